//! What the frontend has granted and configured so far.

use std::sync::Arc;

use causeway_memory::Map;

use super::model::{Model, features};
use super::queue::VirtQueue;

/// The state of one attached device: its memory and its queues.
///
/// The fields may be borrowed at the same time; [`Self::queue_mut`] does it for one queue.
#[derive(Debug)]
pub struct Device {
    /// The granted memory in its current epoch. Clone the `Arc` to keep an epoch.
    pub map: Arc<Map>,
    /// All queues of the model, running or not.
    pub queues: Vec<VirtQueue>,
    features: u64,
    status: u8,
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

    /// Features that the guest's driver acknowledged.
    pub fn features(&self) -> u64 {
        self.features & !(features::PROTOCOL_FEATURES | features::LOG_ALL)
    }

    /// As acknowledged by the frontend, its own bits included.
    pub(super) fn acked(&self) -> u64 {
        self.features
    }

    pub(super) fn set_acked(&mut self, features: u64) {
        self.features = features;
    }

    /// Whether the guest's driver acknowledged feature bit `bit`.
    pub fn has_feature(&self, bit: u32) -> bool {
        self.features().checked_shr(bit).unwrap_or(0) & 1 == 1
    }

    /// The virtio status byte as the frontend last set it; zero where it does not.
    pub fn status(&self) -> u8 {
        self.status
    }

    pub(super) fn set_status(&mut self, status: u8) {
        self.status = status;
    }

    /// Says by status and error descriptors that the driver has to reset the device
    /// (DEVICE_NEEDS_RESET, virtio 1.3, section 2.1.2).
    pub fn needs_reset(&mut self) {
        const DEVICE_NEEDS_RESET: u8 = 64;
        self.status |= DEVICE_NEEDS_RESET;
        self.queues.iter().for_each(VirtQueue::signal_error);
    }

    /// Counts the maps so far: work that began in another epoch is checked again.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Puts a new map in place of the old one.
    pub(super) fn replace_map(&mut self, map: Map) {
        self.map = Arc::new(map);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The map, and queue `index` if there is one.
    pub fn queue_mut(&mut self, index: usize) -> Option<(&Arc<Map>, &mut VirtQueue)> {
        Some((&self.map, self.queues.get_mut(index)?))
    }

    /// Whether queue `index` runs.
    pub fn runs(&self, index: usize) -> bool {
        self.queues.get(index).is_some_and(VirtQueue::runs)
    }

    /// Forgets where rings stood: one new beginning is told once.
    pub(super) fn forget_positions(&mut self) {
        self.queues.iter_mut().for_each(VirtQueue::forget_position);
    }

    /// Lets go of everything that was granted.
    pub(super) fn release(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            *queue = VirtQueue::new(index);
        }
        self.replace_map(Map::default());
        self.features = 0;
        self.status = 0;
    }
}
