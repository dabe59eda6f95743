//! The virtio device behind a port: granted memory, negotiated features and queues.
//!
//! The backend changes it by messages; the service reads it between messages and moves chains
//! through its queues. Each change of the memory table or of logging begins a new *epoch*: a new
//! [`Map`], and a new [`Device::epoch`]. Mappings of an old epoch stay valid while a clone of its
//! `Arc` exists.
//!
//! The device knows neither its type nor the layout of its configuration space, does not check the
//! features that it stores, and resets nothing by itself. At the end of the attachment it is as
//! before the first message, in a new epoch without memory. One thread owns it at a time.

use std::sync::Arc;

use causeway_memory::Map;

use super::model::{Model, features};
use super::queue::VirtQueue;

/// The state of one attached device.
///
/// The fields may be borrowed at the same time; [`Self::queue_mut`] does so for one queue.
#[derive(Debug)]
pub struct Device {
    /// The granted memory in its current epoch. Clone the `Arc` to keep an epoch.
    pub map: Arc<Map>,
    /// All queues of the model, running or not.
    pub queues: Vec<VirtQueue>,
    /// Acknowledged feature bits, those of the transport included.
    features: u64,
    /// The virtio status byte.
    status: u8,
    /// Number of map changes; wraps.
    epoch: u64,
}

impl Device {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            map: Arc::default(),
            queues: (0..model.queues).map(VirtQueue::new).collect(),
            features: 0,
            status: 0,
            epoch: 0,
        }
    }

    /// Returns the features that the guest's driver acknowledged.
    pub fn features(&self) -> u64 {
        self.features & !(features::PROTOCOL_FEATURES | features::LOG_ALL)
    }

    /// Returns all acknowledged feature bits, those of the transport included.
    pub(super) fn acked(&self) -> u64 {
        self.features
    }

    /// Sets all acknowledged feature bits.
    pub(super) fn set_acked(&mut self, features: u64) {
        self.features = features;
    }

    /// Returns whether the guest's driver acknowledged feature bit `bit`.
    pub fn has_feature(&self, bit: u32) -> bool {
        self.features().checked_shr(bit).unwrap_or(0) & 1 == 1
    }

    /// Returns the virtio status byte as the frontend last set it; 0 if it does not.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Sets the virtio status byte.
    pub(super) fn set_status(&mut self, status: u8) {
        self.status = status;
    }

    /// Returns the number of the present map. Work that began in another epoch must check its
    /// addresses again.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Replaces the map and begins a new epoch.
    pub(super) fn replace_map(&mut self, map: Map) {
        self.map = Arc::new(map);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns the map and queue `index`, if it exists.
    pub fn queue_mut(&mut self, index: usize) -> Option<(&Arc<Map>, &mut VirtQueue)> {
        Some((&self.map, self.queues.get_mut(index)?))
    }

    /// Returns whether queue `index` runs.
    pub fn is_running(&self, index: usize) -> bool {
        self.queues.get(index).is_some_and(VirtQueue::is_running)
    }

    /// Forgets the positions of stopped rings, so that a reset is reported once.
    pub(super) fn forget_positions(&mut self) {
        self.queues.iter_mut().for_each(VirtQueue::forget_position);
    }

    /// Releases everything that was granted.
    pub(super) fn release(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            *queue = VirtQueue::new(index);
        }
        self.replace_map(Map::default());
        self.features = 0;
        self.status = 0;
    }
}
