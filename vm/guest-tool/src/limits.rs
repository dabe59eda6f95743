//! Limits and ports of the traffic and of the agent; the cases of `hostile` have limits of their
//! own.
//!
//! Constants only. `client`, `serve`, `flood`, `transport` and `pattern` read the limits of
//! traffic, `agent` and `vm::control` those of commands, and `init`, `vm::rdma`, the demo and tests
//! the ports. A time limit that ends is a failed read, write or connect.

use std::time::Duration;

/// Largest single write or message, in bytes. Larger ones are refused before the connect;
/// `client::messages` panics instead.
pub const MAX_WRITE_BYTES: usize = 1 << 20;
/// Largest round of a ping-pong that the service echoes, in bytes; the client has the lower
/// [`MAX_WRITE_BYTES`].
pub const MAX_ROUND_BYTES: usize = 16 << 20;
/// A read or write that makes no progress for this long is a failure.
pub const STALL: Duration = Duration::from_secs(30);
/// Time limit of a connect over TCP, and time in which the sender of a flood repeats its connect.
pub const CONNECT: Duration = Duration::from_secs(10);
/// Output kept of a command that the agent ran, in bytes for each stream: the last bytes; earlier
/// ones are dropped.
pub const MAX_OUTPUT_BYTES: usize = 32 << 10;
/// Longest line on the control channel, in bytes. A longer line is read in parts, and no part is a
/// valid line.
pub const MAX_LINE_BYTES: usize = 512 << 10;
/// Longest JSON text of one byte of output: a control character is `\u0001`.
const MAX_ESCAPE_BYTES: usize = 6;
/// Bytes of a reply beside the output of both streams.
const REPLY_FRAME_BYTES: usize = 4 << 10;
// The longest reply of a command is one line.
const _: () =
    assert!(2 * MAX_OUTPUT_BYTES * MAX_ESCAPE_BYTES + REPLY_FRAME_BYTES <= MAX_LINE_BYTES);
/// Port of the stream service, for TCP and AF_VSOCK.
pub const STREAM_PORT: u32 = 7001;
/// Port of the message (SEQPACKET) service.
pub const MESSAGE_PORT: u32 = 7002;
