//! All limits of this crate. Limits of queues that services set up are in `attach`.

/// Largest queue, in entries (virtio 1.3, 2.7).
pub const QUEUE_SIZE_MAX: u16 = 32768;
/// Maximum length of a chain, in bytes (virtio 1.3, 2.7.5: 2^32).
pub const CHAIN_BYTES_MAX: u64 = 1 << 32;
/// Length of a split ring's descriptor, in bytes; a packed ring's has the same.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Maximum number of chains that a batch pops.
pub const BATCH_CHAINS: usize = 32;
