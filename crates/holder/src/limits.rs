//! Every bound of this crate, in one place.

use std::time::Duration;

pub use causeway_attach::limits::RING_SIZE_MAX;

/// Bytes of one control message, either way.
pub const CONTROL_BYTES_MAX: usize = 8192;
/// Ports held at a time; as many as the fabric serves.
pub const PORTS_MAX: usize = 1024;
/// Connections that may wait to be accepted, on each socket.
pub const BACKLOG: i32 = 16;
/// How long one that is to be refused may take to say hello.
pub const REFUSAL_WAIT: Duration = Duration::from_millis(100);
/// How long the daemon's side waits for an answer of the holder.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a holder that was started may take until it listens.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks whether it does.
pub const START_PAUSE: Duration = Duration::from_millis(5);
/// When causewayd closes a connection and is still there after this, it meant to.
pub const PARTING_GRACE: Duration = Duration::from_millis(250);
/// Shortest and longest pause between two looks for a causewayd that is away.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(1);
/// See [`RETRY_PAUSE_MIN`].
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// How often a connection that causewayd closes before its first answer is tried again: it may
/// not have noticed yet that the frontend before has left.
pub const TRIES_MAX: u32 = 10;
/// How many causewayds may die of one message; then its frontend is let go.
pub const DEATHS_MAX: u32 = 3;
/// How long a frontend waits for the one before it to be gone; then it is turned away.
pub const SUCCESSOR_WAIT: Duration = Duration::from_millis(500);
/// Pause after a connection could not be accepted (no descriptor is free, say).
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Without causewayd and without frontends for so long, the holder leaves.
pub const IDLE_LEAVE: Duration = Duration::from_secs(60);
/// How often the holder looks whether it is still wanted.
pub const LOOK: Duration = Duration::from_secs(1);
/// Stack of a frontend's thread, in bytes.
pub const STACK_BYTES: usize = 256 * 1024;
/// Log lines about one port in [`LOG_WINDOW`]; what is over is left out.
pub const LOG_LINES_MAX: u32 = 10;
/// See [`LOG_LINES_MAX`].
pub const LOG_WINDOW: Duration = Duration::from_secs(60);
