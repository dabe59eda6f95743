//! Every bound of the engine, in one place.

/// Messages up to this length are *tiny*: they cross in the event itself, in bytes.
pub const TINY_BYTES_MAX: usize = 32;
/// Up to this length *small*: one packet, in bytes.
pub const SMALL_BYTES_MAX: usize = 128;
/// Up to this length *medium*: several packets; above, *large*: pulled by the receiver. In bytes.
pub const MEDIUM_BYTES_MAX: usize = 32_768;
/// Endpoints of one board: 0 to 254; 255 is raw.
pub const ENDPOINTS_MAX: usize = 255;
/// Segments of one message (`MX_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 256;
