//! The limits of this crate.
//!
//! Constants only, fixed at compile time; the modules of this crate apply them, and a call at a
//! limit returns an error or defers its work. Limits of threads and queues hold for the whole
//! process unless the constant names a port, an account or a call. Times are in the unit that the
//! name ends in.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | lent ranges | `net::app_memory` | the loan is refused, and the caller copies |
//! | frames and pieces of a call | `net::send`, `net::guest_io`, callers | the call does fewer and the caller repeats it, or the call refuses the frames |
//! | queries and replacements of a ring | `net::receiver` | the next query or replacement waits |
//! | descriptors of a message | `fd::receive` | none: the kernel passes no more |
//! | inspection before a close | `fd::deferred_close` | the rest is closed without inspection, and may block its thread for 100 ms each |
//! | threads that close | `fd::deferred_close`, `fd::reaper` | descriptors wait for a free thread |
//! | unclosed descriptors | `fd::account` | the caller refuses the peer's connections and descriptors |
//! | notifications | `watchdog` | the blocked write is interrupted |

/// Most ranges of its own memory that a process lends at a time. Further ranges are copied.
pub const OWN_LOANS_MAX: usize = 4096;
/// Most frames that a system call sends. The caller sends the rest by another call; a segmented
/// batch of more is refused.
pub const FRAMES_PER_CALL_MAX: usize = 64;
/// Interval at which an empty ring queries its socket for the state of the interface, in
/// nanoseconds (100 ms). A wake-up without a frame queries it as well.
pub const QUERY_NS: u64 = 100_000_000;
/// The same interval while the ring is not polled and no frame is missed, in nanoseconds (1 s).
pub const QUERY_IDLE_NS: u64 = 1_000_000_000;
/// Least time between two replacements of a ring, in nanoseconds (100 ms), because the cause may
/// recur often.
pub const RENEW_NS: u64 = 100_000_000;
/// Most descriptors of a message (the kernel's limit). All are received, so that the kernel closes
/// none.
pub const DESCRIPTORS_RECEIVED_MAX: usize = 253;
/// Most unread messages, of a socket and of sockets that lie in it, that are inspected before its
/// close. The rest is closed without inspection.
pub const SCAN_MESSAGES_MAX: usize = 4096;
/// Most sockets and files that this inspection keeps. Then it ends.
pub const SCAN_DESCRIPTORS_MAX: usize = 256;
/// Most threads of the process that close memory files of more than 1 MiB. Further files wait for a
/// free thread.
pub const CLOSERS_MAX: usize = 4;
/// Most threads that close, for the accounts of a port or of a listening socket, descriptors with a
/// close that may block. Further descriptors wait.
pub const REAPERS_PER_OWNER_MAX: usize = 4;
/// Most such threads of this process: more than a host may have ports. With so many, descriptors
/// wait for a thread that runs out of work.
pub const REAPERS_MAX: usize = 2048;
/// Stack of such a thread, in bytes. The scan of a closing socket needs about 10 KiB.
pub const REAPER_STACK_BYTES: usize = 256 << 10;
/// Longest time that the close of a socket may linger, in nanoseconds (100 ms). Then a signal
/// interrupts it.
pub const CLOSE_PATIENCE_NS: i64 = 100_000_000;
/// Most descriptors of an account that may wait for their close. Above, the account is behind:
/// callers refuse its peer's new connections and descriptors (`fd::account`).
pub const UNCLOSED_MAX: usize = 128;
/// Most pieces handed to the kernel in a scatter-gather call. The call moves the bytes of these
/// alone; a frame in more pieces is not written to a TAP interface.
pub const IOVECS_MAX: usize = 64;
/// Interval at which the watchdog checks threads that notify, in milliseconds.
pub const WATCH_BUSY_MS: u64 = 10;
/// The same interval while no notification is sent, in milliseconds.
pub const WATCH_IDLE_MS: u64 = 100;
