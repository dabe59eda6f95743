//! A link's access to its group: frames and state go to the mailbox of the group's shard.
//!
//! The mailbox is bounded; frames that find it full are dropped and counted. No call blocks.

use std::sync::Arc;

use causeway_fabric::carrier::{Arrival, Arrivals, LinkId, Message, Pool, Standing};
use causeway_fabric::mailbox::Sender;
use causeway_model::Name;

use super::tally::{Loss, Tally};

/// The receiving side's view of one link.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// The link's identifier.
    pub id: LinkId,
    /// The link's name, for log lines.
    pub name: Name,
    /// The mailbox of its group.
    pub to: Sender<Message>,
    /// The link's counters.
    pub tally: Arc<Tally>,
    /// Pool of receive buffers.
    pub pool: Pool,
}

impl Inbox {
    /// Sends received frames to the group. Counts frames that find its mailbox full.
    pub fn put(&self, arrivals: Arrivals) {
        let frames = arrivals.frames.len() as u64;
        if frames == 0 {
            return;
        }
        let bytes = arrivals.frames.iter().map(|frame| frame.at.len() as u64);
        self.tally.received(frames, bytes.fold(0, u64::saturating_add));
        if self.to.push(Message::Arrivals(arrivals)).is_err() {
            self.tally.lost(Loss::Busy, frames);
        }
    }

    /// Sends a copy of a frame to the group.
    pub fn copy(&self, frame: &[u8], arrival: Arrival) {
        let mut bytes = self.pool.take(frame.len());
        if let Some(room) = bytes.get_mut(..frame.len()) {
            room.copy_from_slice(frame);
        }
        let frames = vec![Arrival { at: 0..frame.len(), ..arrival }];
        self.put(Arrivals { link: self.id, bytes, frames });
    }

    /// Reports to the group whether the link carries frames.
    pub fn stands(&self, standing: Standing) {
        if self.to.demand(Message::Standing(self.id, standing)).is_err() {
            log::error!(link = self.name.as_str(); "its group takes no messages");
        }
    }

    /// Sends the group a message for which a full mailbox keeps room in reserve. Returns false if
    /// even that is used up; retry later.
    #[must_use]
    pub fn tell(&self, message: Message) -> bool {
        self.to.insist(message).is_ok()
    }
}
