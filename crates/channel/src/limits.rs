//! Limits of a channel's size. A channel outside them is refused when it is opened.

/// Minimum number of slots of a direction. The number of slots is a power of two.
pub const SLOTS_MIN: u32 = 16;
/// Maximum number of slots of a direction.
pub const SLOTS_MAX: u32 = 16_384;
/// Minimum size of a direction's data ring, in bytes. The size is a power of two.
pub const DATA_BYTES_MIN: u32 = 4096;
/// Maximum size of a direction's data ring, in bytes.
pub const DATA_BYTES_MAX: u32 = 64 << 20;
