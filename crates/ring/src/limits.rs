//! All limits of this crate: sizes of rings, chains and batches, as virtio defines them or as
//! constants of the implementation.
//!
//! A chain beyond a limit is a [`RingError`](crate::RingError) and ends the queue, a queue beyond
//! its limit is not set up (on the driver side with a `DriverError`); a
//! longer batch is served by several calls. The operator cannot change the values. Limits of queues
//! that services set up (their number, and the ring size that a device accepts) are in `attach`.
//!
//! `split`, `packed` and `driver` read the limit of queues, the pops that of batches, `chain` that
//! of bytes, in the thread that serves the queue (in causewayd, a dispatcher).

/// Largest queue, in entries (virtio 1.3, 2.7). The start of a larger one fails.
pub const QUEUE_SIZE_MAX: u16 = 32768;
/// Maximum length of a chain, in bytes (virtio 1.3, 2.7.5: 2^32). A longer chain ends the queue.
pub const CHAIN_BYTES_MAX: u64 = 1 << 32;
/// Length of a split ring's descriptor, in bytes; a packed ring's has the same.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Maximum number of chains that a batch pops. The rest is popped by the next call.
pub const BATCH_CHAINS: usize = 32;
