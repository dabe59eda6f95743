//! Every bound of this crate, in one place.

/// Longest name of a port or a group, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
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
