//! A link's access to its group: frames and state go to the mailbox of the group's shard.
//!
//! The sources of links ([`super::tunnels`], [`super::bare`], [`super::stream`], [`super::raw`])
//! call it in the shard of links, as the last step of a received frame there; `ethernet` takes the
//! frames from the mailbox in the group's shard. The mailbox has room for `ARRIVALS_WAITING_MAX`
//! (256) messages, each with all frames of a receive buffer; frames that find it full are dropped
//! and counted ([`Loss::Busy`]). Address changes may use twice that room, and state changes and new
//! carriers (which `super::pending` sends) four times: a refused state change or carrier is logged
//! and lost (the group keeps the old state until the next change), a refused address change is
//! reported to the caller, which sends it again. No call blocks, and messages of one link keep
//! their order.

use std::sync::Arc;

use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, LinkStatus, Message, ReceivedFrame, ReceivedFrames,
};
use causeway_fabric::mailbox::Sender;
use causeway_model::Name;

use super::stats::{LinkStats, Loss};

/// The receiving side's view of one link.
#[derive(Debug, Clone)]
pub struct LinkInbox {
    /// The link's identifier.
    pub id: LinkId,
    /// The link's name, for log lines.
    pub name: Name,
    /// The mailbox of its group.
    pub to: Sender<Message>,
    /// The mailbox of the group's service of sockets, for a link that carries sockets.
    pub segments: Option<Sender<Message>>,
    /// The link's counters.
    pub stats: Arc<LinkStats>,
    /// Pool of receive buffers.
    pub pool: BufferPool,
}

impl LinkInbox {
    /// Sends received frames to the group. Counts frames that find its mailbox full.
    pub fn deliver(&self, arrivals: ReceivedFrames) {
        let frames = arrivals.frames.len() as u64;
        if frames == 0 {
            return;
        }
        let bytes = arrivals.frames.iter().map(|frame| frame.at.len() as u64);
        self.stats.add_received(frames, bytes.fold(0, u64::saturating_add));
        if self.to.push(Message::ReceivedFrames(arrivals)).is_err() {
            self.stats.add_drops(Loss::Busy, frames);
        }
    }

    /// Sends datagrams of the stream protocol to the group's service of sockets. Its peer sends those
    /// again that find the mailbox full.
    pub fn deliver_segments(&self, segments: ReceivedFrames) {
        if let Some(to) = &self.segments
            && to.push(Message::ReceivedFrames(segments)).is_err()
        {
            self.stats.add_drops(Loss::Busy, 1);
        }
    }

    /// Sends a copy of a frame to the group.
    pub fn deliver_copy(&self, frame: &[u8], arrival: ReceivedFrame) {
        let mut bytes = self.pool.take(frame.len());
        if let Some(room) = bytes.get_mut(..frame.len()) {
            room.copy_from_slice(frame);
        }
        let frames = vec![ReceivedFrame { at: 0..frame.len(), ..arrival }];
        self.deliver(ReceivedFrames { link: self.id, bytes, frames });
    }

    /// Reports to the group whether the link carries frames.
    pub fn report_standing(&self, standing: LinkStatus) {
        for to in [Some(&self.to), self.segments.as_ref()].into_iter().flatten() {
            self.send_critical(to, Message::LinkStatus(self.id, standing));
        }
    }

    /// Replaces the carriers of the group: that of frames, and that of datagrams of the stream
    /// protocol if one is given and the link carries sockets. The earlier ones are dropped there.
    pub fn replace_carriers(&self, frames: Box<dyn Carrier>, segments: Option<Box<dyn Carrier>>) {
        self.send_critical(&self.to, Message::Carrier(self.id, frames));
        if let Some((to, carrier)) = self.segments.as_ref().zip(segments) {
            self.send_critical(to, Message::Carrier(self.id, carrier));
        }
    }

    fn send_critical(&self, to: &Sender<Message>, message: Message) {
        if to.push_critical(message).is_err() {
            log::error!(link = self.name.as_str(); "cannot send to the link's group: the group misses a change of the link's state");
        }
    }

    /// Sends the group a message for which a full mailbox keeps room in reserve. Returns false if
    /// even that is used up; retry later.
    #[must_use]
    pub fn send_reserved(&self, message: Message) -> bool {
        self.to.push_urgent(message).is_ok()
    }
}
