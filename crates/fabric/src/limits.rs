//! Every bound of this crate, in one place.

/// Longest name of a port or a group, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest path of a Unix socket, in bytes (unix(7), less the ending zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Longest `_<port>` behind a host socket's path, in bytes.
pub const HOST_SUFFIX_BYTES: usize = 11;
/// Most ports one daemon serves.
pub const PORTS_MAX: usize = 1024;
/// Most groups one daemon knows.
pub const GROUPS_MAX: usize = 1024;
/// Most rules in the ordered list.
pub const RULES_MAX: usize = 4096;
/// Most queue pairs of one net port.
pub const QUEUE_PAIRS_MAX: u16 = 8;
/// Smallest MTU, in bytes (RFC 791: every IPv4 hop carries 68).
pub const MTU_MIN: u16 = 68;
/// Chains served from one queue before the next queue has its turn.
pub const SERVE_CHAINS_MAX: usize = 64;
/// Events taken from the kernel at a time.
pub const EVENTS_MAX: usize = 64;
/// Queues served between two looks at the kernel's events while there is work.
pub const SERVES_PER_LOOK: usize = 32;
/// Commands waiting for the dispatcher; a caller beyond that waits.
pub const COMMANDS_WAITING_MAX: usize = 64;
/// How long a dispatcher looks at an idle queue before it parks, by default, in microseconds.
pub const SPIN_US_DEFAULT: u64 = 20;
/// Longest such spin that may be configured, in microseconds.
pub const SPIN_US_MAX: u64 = 100_000;
/// How long a port takes no frontend after one held up the dispatcher; 30 s.
pub const BARRED_NS: u64 = 30_000_000_000;
/// Guest-triggered log lines of one port in [`LOG_WINDOW_NS`]; the rest is counted.
pub const LOG_LINES_MAX: u32 = 10;
/// See [`LOG_LINES_MAX`]; 5 s.
pub const LOG_WINDOW_NS: u64 = 5_000_000_000;
