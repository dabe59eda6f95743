//! The limits of this crate.

/// Most pieces of its own memory that a process lends at a time. Further pieces are copied.
pub const OWN_PLACES_MAX: usize = 4096;
/// Most frames that one system call sends to an interface.
pub const FRAMES_PER_CALL_MAX: usize = 64;
/// Interval at which an empty ring asks its socket for the state of the interface, in nanoseconds
/// (100 ms). A wake-up without a frame asks as well.
pub const ASK_NS: u64 = 100_000_000;
/// The same interval while the ring is not polled and no frame is missed, in nanoseconds (1 s).
pub const ASK_IDLE_NS: u64 = 1_000_000_000;
/// Least time between two replacements of a ring, in nanoseconds (100 ms): the cause may recur often.
pub const RENEW_NS: u64 = 100_000_000;
/// Most descriptors of one message (the kernel's limit). All are received, so that the kernel closes
/// none.
pub const DESCRIPTORS_RECEIVED_MAX: usize = 253;
/// Most unread messages, of a socket and of sockets that lie in it, that are inspected before its
/// close.
pub const LOOK_MESSAGES_MAX: usize = 4096;
/// Most sockets and files that this inspection keeps.
pub const LOOK_DESCRIPTORS_MAX: usize = 256;
/// Most threads that close large memory files.
pub const CLOSERS_MAX: usize = 4;
/// Most threads that close, for the accounts of one port, descriptors whose close may block.
pub const REAPERS_PER_OWNER_MAX: usize = 4;
/// Most such threads of this process: one for each port that a host may have, and some.
pub const REAPERS_MAX: usize = 2048;
/// Stack of such a thread, in bytes; it needs some 10 KiB for what it looks through.
pub const REAPER_STACK_BYTES: usize = 256 << 10;
/// How long the close of a socket lingers at most, in nanoseconds; 100 ms.
pub const CLOSE_PATIENCE_NS: i64 = 100_000_000;
/// Descriptors of one account that may wait to be closed before its peer is turned away.
pub const UNCLOSED_MAX: usize = 128;
/// Most pieces handed to the kernel in one scatter-gather call.
pub const IOVECS_MAX: usize = 64;
/// Interval at which the watchdog checks threads that notify, in milliseconds.
pub const WATCH_BUSY_MS: u64 = 10;
/// The same interval while no notification is sent, in milliseconds.
pub const WATCH_IDLE_MS: u64 = 100;
