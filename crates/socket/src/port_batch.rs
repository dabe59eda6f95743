//! Ports with work that ends with the present batch: deliveries to make, receive buffers to close,
//! and resets that are not published.
//!
//! `crate::service` delivers to scheduled ports at the end of a call, `crate::deliver` closes
//! buffers and clears resets from ledgers. The lists keep their capacity; a port stands in each at
//! most once, and is found by a scan. `crate::transmit` and `crate::deliver` note ports. A port
//! that is gone is skipped by its caller. All of it runs in the thread of the shard.

use causeway_fabric::PortId;

/// Lists of ports.
#[derive(Debug, Default)]
pub(crate) struct PortBatch {
    /// Ports with new deliveries.
    scheduled: Vec<PortId>,
    /// Ports with an open receive buffer.
    filling: Vec<PortId>,
    /// Ports with resets in their unpublished receive ring, which their ledgers still record.
    unpublished_resets: Vec<PortId>,
}

impl PortBatch {
    /// Schedules a delivery to a port.
    #[inline]
    pub(crate) fn schedule(&mut self, to: PortId) {
        push_once(&mut self.scheduled, to);
    }

    /// Removes all scheduled ports.
    pub(crate) fn take_scheduled(&mut self) -> Vec<PortId> {
        std::mem::take(&mut self.scheduled)
    }

    /// Notes that a port has an open receive buffer.
    #[inline]
    pub(crate) fn note_filling(&mut self, to: PortId) {
        push_once(&mut self.filling, to);
    }

    /// Removes the ports with an open receive buffer; [`Self::put_filling`] takes the list back.
    pub(crate) fn take_filling(&mut self) -> Vec<PortId> {
        std::mem::take(&mut self.filling)
    }

    /// Takes the emptied list back for its capacity.
    pub(crate) fn put_filling(&mut self, list: Vec<PortId>) {
        self.filling = list;
    }

    /// Notes that a port has a reset in its unpublished receive ring.
    pub(crate) fn note_unpublished_reset(&mut self, to: PortId) {
        push_once(&mut self.unpublished_resets, to);
    }

    /// Returns whether a port has unpublished resets.
    pub(crate) fn has_unpublished_resets(&self) -> bool {
        !self.unpublished_resets.is_empty()
    }

    /// Keeps the ports of which resets are still unpublished.
    pub(crate) fn retain_unpublished_resets(
        &mut self,
        is_unpublished: impl FnMut(&PortId) -> bool,
    ) {
        self.unpublished_resets.retain(is_unpublished);
    }
}

/// Adds a port to a list that lacks it.
#[inline]
fn push_once(list: &mut Vec<PortId>, port: PortId) {
    if !list.contains(&port) {
        list.push(port);
    }
}
