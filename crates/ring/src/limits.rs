//! Every bound of this crate, in one place.

/// Largest queue, in entries (virtio 1.3, 2.7).
pub const QUEUE_SIZE_MAX: u16 = 32768;
/// Most bytes that one chain may describe (virtio 1.3, 2.7.5: 2^32).
pub const CHAIN_BYTES_MAX: u64 = 1 << 32;
/// A split ring's descriptor, in bytes.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Most chains that one call takes from a ring.
pub const BATCH_CHAINS: usize = 32;
