//! The properties and limits of a function, from the options of its port.
//!
//! `causeway-hca` makes the values; [`crate::Function::new`] sets those outside of the limits to the
//! nearest limit. The record of a function depends on them: a record of other limits is not restored.

use crate::limits;

/// Properties and limits of a function, from the options of its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionConfig {
    /// Ethernet address, assigned by the operator. Also makes the GUIDs.
    pub mac: [u8; 6],
    /// Largest payload of an Ethernet frame, in bytes.
    pub mtu: u16,
    /// MSI-X vectors: 2 to [`limits::VECTORS_MAX`] (64).
    pub vectors: u16,
    /// Maximum number of queue pairs: 1 to [`limits::QUEUE_PAIRS_MAX`] (16,384).
    pub queue_pairs_max: usize,
    /// Maximum number of completion queues: 1 to [`limits::COMPLETION_QUEUES_MAX`] (65,536).
    pub completion_queues_max: usize,
    /// Maximum number of memory keys.
    pub regions_max: usize,
    /// Maximum number of registered bytes.
    pub registered_bytes_max: u64,
    /// Length of BAR 0, in bytes: a power of two. Pages from [`limits::UAR_FIRST`] (16) on are
    /// doorbell pages.
    pub uar_bytes: u64,
}

impl FunctionConfig {
    /// Returns the values within the limits of functions.
    pub(crate) fn clamped(&self) -> Self {
        let completion_queues = limits::COMPLETION_QUEUES_MAX;
        Self {
            vectors: self.vectors.clamp(2, limits::VECTORS_MAX),
            queue_pairs_max: self.queue_pairs_max.clamp(1, limits::QUEUE_PAIRS_MAX),
            completion_queues_max: self.completion_queues_max.clamp(1, completion_queues),
            ..self.clone()
        }
    }
}
