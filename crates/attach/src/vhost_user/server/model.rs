//! What a device offers to its frontend.

use super::super::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use crate::limits::RING_SIZE_MAX;

/// Feature bits that belong to the ring and the transport, not to the device type.
pub mod features {
    /// The frontend may speak of protocol features (vhost-user).
    pub const PROTOCOL_FEATURES: u64 = super::VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    /// Pages that are written are noted in a log (vhost); of no meaning to drivers.
    pub const LOG_ALL: u64 = 1 << 26;
    /// VIRTIO_F_INDIRECT_DESC (virtio 1.3, section 6).
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// VIRTIO_F_EVENT_IDX.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// VIRTIO_F_VERSION_1.
    pub const VERSION_1: u64 = 1 << 32;
    /// VIRTIO_F_RING_PACKED.
    pub const RING_PACKED: u64 = 1 << 34;
    /// What the rings of either format can do.
    pub const RING: u64 = INDIRECT_DESC | EVENT_IDX | VERSION_1;
}

/// A device as its service describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Queues; at most [`QUEUES_MAX`](crate::limits::QUEUES_MAX).
    pub queues: usize,
    /// Virtio features offered, those of the ring included ([`features::RING`],
    /// [`features::RING_PACKED`]).
    pub features: u64,
    /// The configuration space; empty if the frontend keeps it itself.
    pub config: Vec<u8>,
    /// Largest ring taken, in descriptors.
    pub ring_size_max: u16,
}

impl Model {
    /// A device of `queues` queues that offers `features` beside those of the ring.
    pub fn new(queues: usize, features: u64, config: Vec<u8>) -> Self {
        Self {
            queues,
            features: features | features::RING | features::RING_PACKED,
            config,
            ring_size_max: RING_SIZE_MAX,
        }
    }

    /// All feature bits that a frontend may acknowledge.
    pub fn offered(&self) -> u64 {
        self.features | features::PROTOCOL_FEATURES | features::LOG_ALL
    }

    /// All protocol features that a frontend may acknowledge.
    pub fn protocol_offered(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as P;
        let all = P::MQ
            | P::REPLY_ACK
            | P::CONFIGURE_MEM_SLOTS
            | P::INFLIGHT_SHMFD
            | P::RESET_DEVICE
            | P::STATUS
            // Without it QEMU does not move a guest to another host.
            | P::LOG_SHMFD
            // User-mode Linux has interrupts for its devices only where it can be called back.
            | P::BACKEND_REQ;
        // QEMU warns of a configuration space that it does not need.
        if self.config.is_empty() { all } else { all | P::CONFIG }
    }
}
