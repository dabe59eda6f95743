//! Where a link puts what came: the mailbox of its group.

use std::sync::Arc;

use causeway_fabric::carrier::{Arrival, Arrivals, LinkId, Message, Pool, Standing};
use causeway_fabric::mailbox::Sender;
use causeway_model::Name;

use super::tally::{Loss, Tally};

/// One link as those who receive for it know it.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// Which link.
    pub id: LinkId,
    /// What it is called.
    pub name: Name,
    /// The mailbox of its group.
    pub to: Sender<Message>,
    /// What is counted.
    pub tally: Arc<Tally>,
    /// Where buffers come from.
    pub pool: Pool,
}

impl Inbox {
    /// Brings frames to the group. Those that it is too busy for are counted.
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

    /// Brings a copy of a frame to the group.
    pub fn copy(&self, frame: &[u8], arrival: Arrival) {
        let mut bytes = self.pool.take(frame.len());
        if let Some(room) = bytes.get_mut(..frame.len()) {
            room.copy_from_slice(frame);
        }
        let frames = vec![Arrival { at: 0..frame.len(), ..arrival }];
        self.put(Arrivals { link: self.id, bytes, frames });
    }

    /// Tells the group whether the link carries frames.
    pub fn stands(&self, standing: Standing) {
        if self.to.demand(Message::Standing(self.id, standing)).is_err() {
            log::error!(link = self.name.as_str(); "its group takes no messages");
        }
    }

    /// Tells the group something that must not be lost among frames. No: later, perhaps.
    #[must_use]
    pub fn tell(&self, message: Message) -> bool {
        self.to.insist(message).is_ok()
    }
}
