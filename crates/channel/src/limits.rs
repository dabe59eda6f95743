//! Limits of a channel.

/// Fewest slots of one direction. The number of slots is a power of two.
pub const SLOTS_MIN: u32 = 16;
/// Most slots of one direction.
pub const SLOTS_MAX: u32 = 16_384;
/// Smallest data ring of one direction, in bytes. The size is a power of two.
pub const DATA_BYTES_MIN: u32 = 4096;
/// Largest data ring of one direction, in bytes.
pub const DATA_BYTES_MAX: u32 = 64 << 20;
