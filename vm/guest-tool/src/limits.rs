//! Every limit of the tool, in one place.
//!
//! Constants only, read in the guest by `client`, `serve`, `flood` and `transport` (traffic) and by
//! `agent` (commands), each in the thread of its connection or command. A value beyond a limit of
//! sizes is an error of the command; a time limit that ends is a failed read, write or connect.

use std::time::Duration;

/// Largest single write or message, in bytes.
pub const MAX_WRITE_BYTES: usize = 1 << 20;
/// Maximum memory of a ping-pong for one round, in bytes.
pub const MAX_ROUND_BYTES: usize = 16 << 20;
/// A read or write that makes no progress for this long is a failure.
pub const STALL: Duration = Duration::from_secs(30);
/// Longest wait for a connection to be accepted.
pub const CONNECT: Duration = Duration::from_secs(10);
/// Output kept of a command that the agent ran, in bytes for each stream: the last bytes; earlier
/// ones are dropped.
pub const MAX_OUTPUT_BYTES: usize = 32 << 10;
/// Longest line on the control channel, in bytes.
pub const MAX_LINE_BYTES: usize = 256 << 10;
/// Port of the stream service, for TCP and AF_VSOCK.
pub const STREAM_PORT: u32 = 7001;
/// Port of the message (SEQPACKET) service.
pub const MESSAGE_PORT: u32 = 7002;
