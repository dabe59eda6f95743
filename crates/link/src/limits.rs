//! Every bound of this crate, in one place.

/// Longest Ethernet frame that a tunnel carries, in bytes: 65535 of IP with the longest header.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Longest payload of a UDP datagram, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// A datagram's payload that every path carries, in bytes: 1280 of IPv6 less IPv6 and UDP headers.
pub const DATAGRAM_BYTES_SAFE: usize = 1_232;
/// Most datagrams in one batch: what the kernel cuts one send into.
pub const BATCH_DATAGRAMS_MAX: usize = 64;
/// Most bytes in one batch: what one send takes.
pub const BATCH_BYTES_MAX: usize = 65_000;
/// A frame that goes whole into the next datagram rather than in pieces, in bytes at most.
pub const WHOLE_BYTES_MAX: usize = 256;
/// Fewest bytes of a frame worth a fragment that is not its last.
pub const FRAGMENT_BYTES_MIN: usize = 64;

/// Datagrams that a session seals before it asks for a successor: 2^48.
pub const SESSION_DATAGRAMS_REKEY: u64 = 1 << 48;
/// Datagrams that a session seals at all: 2^60.
pub const SESSION_DATAGRAMS_MAX: u64 = 1 << 60;
/// How far behind the newest a datagram may come and still count, in datagrams.
pub const REPLAY_WINDOW: u64 = 2_048;
