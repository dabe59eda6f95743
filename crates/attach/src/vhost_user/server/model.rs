//! The model of a device: the features, queues and configuration space that it offers.
//!
//! The service fills in a [`Model`] when a port is added and for each frontend
//! (`fabric::Service::model`); `backend` enforces it. A model holds no state of a connection and
//! does not change while the frontend is connected. [`Model::new`] offers [`features::RING`] and
//! [`features::RING_PACKED`] beside the features of the device. A configuration space is read-only
//! for the driver, and change notifications are not sent. The dispatcher that serves the port reads
//! it, in its thread.

use super::super::VhostUserProtocolFeatures;
use crate::limits::RING_SIZE_MAX;

/// Feature bits of the ring and the transport, which no device type defines.
pub mod features {
    /// The frontend may negotiate protocol features (vhost-user).
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// Written pages are recorded in a dirty log (vhost). Drivers do not see the bit.
    pub const LOG_ALL: u64 = 1 << 26;
    /// VIRTIO_F_INDIRECT_DESC (virtio 1.3, 6).
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// VIRTIO_F_EVENT_IDX.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// VIRTIO_F_VERSION_1.
    pub const VERSION_1: u64 = 1 << 32;
    /// VIRTIO_F_RING_PACKED.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Features that the rings of either format support.
    pub const RING: u64 = INDIRECT_DESC | EVENT_IDX | VERSION_1;
}

/// The order of a frontend's first messages. Frontends read two answers about a network device
/// differently, and the protocol does not name the implementation:
///
/// | frontend | first messages | GET_QUEUE_NUM is compared with | CONFIG of a network device |
/// |---|---|---|---|
/// | QEMU 2.5 to 11 | GET_FEATURES, GET_PROTOCOL_FEATURES | queue pairs | warned about; 7.0 to 8.1 crash |
/// | libkrun | as QEMU | queues | used |
/// | OpenVMM | GET_FEATURES, SET_FEATURES | queues | used |
/// | crosvm | SET_OWNER | queues | used |
/// | Cloud Hypervisor | SET_OWNER | queues | ignored |
/// | DPDK, user-mode Linux | SET_OWNER | not sent | ignored, used |
///
/// QEMU is distinguished from libkrun by BACKEND_REQ, which QEMU accepts, once it has answered the
/// offer. The offer itself must suit both: it has no CONFIG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FrontendOrder {
    /// GET_PROTOCOL_FEATURES before SET_OWNER and SET_FEATURES.
    #[default]
    OfferFirst,
    /// SET_OWNER or SET_FEATURES before GET_PROTOCOL_FEATURES.
    StateFirst,
}

/// A device as its service describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Number of queues; above [`QUEUES_MAX`](crate::limits::QUEUES_MAX) (64) the backend serves
    /// 64.
    pub queues: usize,
    /// Offered virtio features, those of the ring included ([`features::RING`],
    /// [`features::RING_PACKED`]).
    pub features: u64,
    /// The configuration space; empty if the frontend implements it.
    pub config: Vec<u8>,
    /// Whether the queues are pairs of a network device. Frontends differ for such devices: QEMU
    /// counts pairs and implements the configuration space itself (`FrontendOrder`).
    pub has_pairs: bool,
    /// Largest accepted ring, in descriptors; by default [`RING_SIZE_MAX`] (32,768). A larger ring
    /// ends the attachment.
    pub ring_size_max: u16,
}

impl Model {
    /// Returns a device of `queues` queues that offers `features` and those of both ring formats,
    /// with rings of up to [`RING_SIZE_MAX`] (32,768) descriptors.
    pub fn new(queues: usize, features: u64, config: Vec<u8>) -> Self {
        Self {
            queues,
            features: features | features::RING | features::RING_PACKED,
            config,
            has_pairs: false,
            ring_size_max: RING_SIZE_MAX,
        }
    }

    /// Returns the device as a network device, whose queues are pairs.
    #[must_use]
    pub fn in_pairs(self) -> Self {
        Self { has_pairs: true, ..self }
    }

    /// Returns the answer to GET_QUEUE_NUM for a frontend that accepted the features `accepted`.
    pub(super) fn queue_number(
        &self,
        order: FrontendOrder,
        accepted: VhostUserProtocolFeatures,
    ) -> usize {
        let is_qemu = order == FrontendOrder::OfferFirst
            && accepted.contains(VhostUserProtocolFeatures::BACKEND_REQ);
        if self.has_pairs && is_qemu { self.queues / 2 } else { self.queues }
    }

    /// Returns the answer to GET_PROTOCOL_FEATURES.
    pub(super) fn protocol_shown(&self, order: FrontendOrder) -> VhostUserProtocolFeatures {
        match order {
            FrontendOrder::OfferFirst if self.has_pairs => {
                self.protocol_offered().difference(VhostUserProtocolFeatures::CONFIG)
            }
            _ => self.protocol_offered(),
        }
    }

    /// Returns all feature bits that a frontend may acknowledge.
    pub fn offered(&self) -> u64 {
        self.features | features::PROTOCOL_FEATURES | features::LOG_ALL
    }

    /// Returns all protocol features that a frontend may acknowledge.
    pub fn protocol_offered(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as P;
        let all = P::MQ
            | P::REPLY_ACK
            | P::CONFIGURE_MEM_SLOTS
            | P::INFLIGHT_SHMFD
            | P::RESET_DEVICE
            | P::STATUS
            // QEMU migrates a guest only if the backend offers a dirty log.
            | P::LOG_SHMFD
            // User-mode Linux gives its devices interrupts only if it gets a backend channel.
            | P::BACKEND_REQ;
        // QEMU warns about a configuration space that it does not need.
        if self.config.is_empty() { all } else { all | P::CONFIG }
    }
}
