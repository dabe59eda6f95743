//! Work of a NIC for NICs of the same daemon, in order.
//!
//! The queue has at most [`LOCAL_FRAMES_MAX`] (1,024) packets; further packets are dropped, as on a
//! network, and the engine repeats them. Other work is bounded by its objects: one entry for each
//! peer with messages to send, each waiting peer that has room again, each active pull, and each
//! ended peer. The
//! queue decides nothing; [`perform`](super::perform()) does. A step for an endpoint or NIC that is
//! gone stays in the queue until its turn and has no effect then. Filled by the engine
//! ([`EngineContext`](crate::context::EngineContext)) and by [`perform`](super::perform()); emptied
//! by [`Nic::next_local`](crate::Nic::next_local), whose caller drops the steps of a removed NIC.
//! No lock: the thread of the NIC.

use std::collections::VecDeque;

use causeway_wire::mx::{Address, Handle, NicId, PeerId, Status};

use crate::limits::LOCAL_FRAMES_MAX;

/// The two ends of a local connection, as the sender of a work knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalEnds {
    /// Endpoint of the sender, and its session.
    pub(crate) from: (Address, u32),
    /// Endpoint of the receiver, and its session.
    pub(crate) to: (Address, u32),
}

impl LocalEnds {
    /// Returns the NIC of the receiver.
    pub fn to(&self) -> NicId {
        self.to.0.nic
    }
}

/// A step that concerns a NIC of the same daemon.
#[derive(Debug)]
pub struct LocalWork(pub(super) Step);

/// Kind of a step.
#[derive(Debug)]
pub(super) enum Step {
    /// A packet.
    Frame { to: NicId, bytes: Vec<u8> },
    /// Pass the messages for a peer.
    Send { to: NicId, endpoint: u8, peer: PeerId },
    /// Copy the next piece of a pull from a peer.
    Pull { to: NicId, endpoint: u8, handle: Handle },
    /// The peer has room for messages again.
    Room(LocalEnds),
    /// The peer is gone.
    Gone(LocalEnds, Status),
}

impl LocalWork {
    /// Returns the NIC that the work concerns, which may be that of its queue.
    pub fn to(&self) -> NicId {
        match &self.0 {
            Step::Frame { to, .. } | Step::Send { to, .. } | Step::Pull { to, .. } => *to,
            Step::Room(ends) | Step::Gone(ends, _) => ends.to.0.nic,
        }
    }
}

/// Work of a NIC for NICs of the same daemon.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    steps: VecDeque<Step>,
    /// Number of packets among the steps.
    frames: usize,
}

impl LocalQueue {
    /// Queues a packet of two parts. Drops it if [`LOCAL_FRAMES_MAX`] packets wait.
    pub(crate) fn push_frame(&mut self, to: [u8; 6], head: &[u8], data: &[u8]) {
        if self.frames < LOCAL_FRAMES_MAX {
            self.frames = self.frames.saturating_add(1);
            let bytes = [head, data].concat();
            self.steps.push_back(Step::Frame { to: NicId::of(to), bytes });
        }
    }

    /// Queues another step.
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    /// Returns the next step.
    pub(super) fn pop(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        if matches!(step, Step::Frame { .. }) {
            self.frames = self.frames.saturating_sub(1);
        }
        Some(step)
    }

    /// Returns whether there is no step.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
