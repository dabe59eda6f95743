//! Messages between NICs of one daemon, in memory.
//!
//! A NIC that was added by [`Nic::nic_add_local`] is a *local* NIC: it has its [`Nic`] in the same
//! thread, and packets to it do not reach the network. They wait in the [`LocalQueue`] of the
//! sending NIC until the owner of both passes them on ([`Nic::next_local`],
//! [`Nic::receive_local`]). No call of one NIC calls another, so that nothing recurses.
//!
//! The queue has at most [`LOCAL_FRAMES_MAX`] packets; further packets are dropped and counted, as
//! on a network, and the engine repeats them.

use std::collections::VecDeque;

use causeway_wire::mx::NicId;

use crate::context::count;
use crate::endpoint::mac_of;
use crate::limits::LOCAL_FRAMES_MAX;
use crate::{DropReason, Nic, Outside};

/// A packet for a NIC of the same daemon.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalFrame {
    /// The NIC to which it goes.
    pub to: NicId,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// Work of a NIC for NICs of the same daemon, in order.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    frames: VecDeque<LocalFrame>,
    /// Packets that were dropped because the queue was full.
    dropped: u64,
}

impl LocalQueue {
    /// Queues a packet of two parts.
    pub(crate) fn push_frame(&mut self, to: [u8; 6], head: &[u8], data: &[u8]) {
        if self.frames.len() >= LOCAL_FRAMES_MAX {
            return count(&mut self.dropped);
        }
        let bytes = [head, data].concat();
        self.frames.push_back(LocalFrame { to: NicId::of(to), bytes });
    }
}

impl Nic {
    /// Adds a NIC of the same daemon, which may be this NIC itself. Peers at a NIC that was known
    /// on the network end with [`Status::EndpointUnreachable`]. Returns whether the table has room.
    ///
    /// [`Status::EndpointUnreachable`]: causeway_wire::mx::Status::EndpointUnreachable
    pub fn nic_add_local(&mut self, now: u64, nic: NicId, out: &mut dyn Outside) -> bool {
        if self.is_local(nic) {
            return true;
        }
        self.nic_remove(now, nic, out);
        let added = self.nic_add(nic);
        added.into_iter().for_each(|number| self.hosts.set_local(number));
        added.is_some()
    }

    /// Returns whether a NIC belongs to the same daemon.
    pub fn is_local(&self, nic: NicId) -> bool {
        let number = mac_of(nic).and_then(|mac| self.hosts.number(mac));
        number.is_some_and(|number| self.hosts.is_local(number))
    }

    /// Returns whether packets wait for NICs of the same daemon.
    pub fn has_local(&self) -> bool {
        !self.local.frames.is_empty()
    }

    /// Returns the next packet for a NIC of the same daemon.
    pub fn next_local(&mut self) -> Option<LocalFrame> {
        self.local.frames.pop_front()
    }

    /// Processes a packet of a NIC of the same daemon.
    ///
    /// # Errors
    /// As for [`Nic::receive`].
    pub fn receive_local(
        &mut self,
        now: u64,
        frame: &LocalFrame,
        out: &mut dyn Outside,
    ) -> Result<(), DropReason> {
        self.receive_by(now, &frame.bytes, true, out)
    }
}
