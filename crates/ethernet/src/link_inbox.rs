//! What links sent to a group and the group has not forwarded yet: the mailbox, frames beyond the
//! bounds of a turn, and the count of deliveries of the turn.
//!
//! `crate::link_rx` forwards the frames, and `crate::resume_link` continues with frames that were
//! delivered in part. The order is: late frames, then unfinished arrivals, then the mailbox; the next
//! stage is read only while the ones before are empty, so that frames keep their order. A turn makes
//! at most about [`ARRIVALS_PER_TURN_MAX`] (256) deliveries. The module moves no frame.
//!
//! The mailbox has [`ARRIVALS_WAITING_MAX`] (256) places: links drop and count a batch that finds
//! it full. It is made with the first link or station; without a descriptor of the host the link is
//! refused. Links push from their own threads; all else runs in the dispatcher's thread of the
//! group.

use std::collections::VecDeque;
use std::io;

use causeway_fabric::Context;
use causeway_fabric::carrier::{Message, ReceivedFrames};
use causeway_fabric::limits::ARRIVALS_WAITING_MAX;
use causeway_fabric::mailbox::{Mailbox, Sender};

use crate::headers::RxFrame;
use crate::limits::ARRIVALS_PER_TURN_MAX;
use crate::resume_link::LateFrame;

/// Source value of the mailbox that links write to.
pub(crate) const INBOX: u32 = 0;

/// Received frames of a link or station that are being processed.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) received: ReceivedFrames,
    /// The first frame that is left.
    pub(crate) at: usize,
    /// The other stations of the sender's service have received the frames.
    pub(crate) has_reached_stations: bool,
}

impl Arrivals {
    pub(crate) fn new(received: ReceivedFrames, has_reached_stations: bool) -> Self {
        Self { received, at: 0, has_reached_stations }
    }
}

/// The inbox of the links of a group.
#[derive(Debug, Default)]
pub(crate) struct LinkInbox {
    /// The mailbox that links write to, with the sender that is cloned for each link that joins;
    /// created with the first link.
    mailbox: Option<(Sender<Message>, Mailbox<Message>)>,
    /// Arrivals that did not fit in a turn.
    unfinished: Option<Arrivals>,
    /// Frames that were not completely delivered in their turn.
    late: VecDeque<LateFrame>,
    /// Deliveries of the current turn.
    deliveries: usize,
    /// Frames of a batch, kept for their capacity.
    frames: Vec<RxFrame>,
}

impl LinkInbox {
    /// Returns a sender of the mailbox, which is created on first use.
    ///
    /// # Errors
    /// The host has no descriptor for the mailbox.
    pub(crate) fn sender(&mut self, cx: &mut Context<'_>) -> io::Result<Sender<Message>> {
        if let Some((sender, _)) = &self.mailbox {
            return Ok(sender.clone());
        }
        let (sender, mailbox) = cx.mailbox(ARRIVALS_WAITING_MAX, INBOX)?;
        self.mailbox = Some((sender.clone(), mailbox));
        Ok(sender)
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.deliveries = 0;
    }

    /// Counts deliveries of the turn.
    #[inline]
    pub(crate) fn count_deliveries(&mut self, count: usize) {
        self.deliveries = self.deliveries.saturating_add(count);
    }

    /// Returns whether the turn has made all deliveries that it may make.
    #[inline]
    pub(crate) fn is_turn_full(&self) -> bool {
        self.deliveries >= ARRIVALS_PER_TURN_MAX
    }

    /// Returns whether the next arrivals stay for the next turn; `is_over` is called if the turn has
    /// made a delivery.
    #[inline]
    pub(crate) fn ends_turn(&self, is_over: impl FnOnce() -> bool) -> bool {
        self.has_late() || (self.deliveries > 1 && is_over()) || self.is_turn_full()
    }

    /// Returns the next message of the mailbox.
    pub(crate) fn next_message(&self) -> Option<Message> {
        self.mailbox.as_ref().and_then(|(_, mailbox)| mailbox.next())
    }

    /// Requests a wake-up for the next message. Returns `false` if a message waits, or without a
    /// mailbox.
    pub(crate) fn arm(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|(_, mailbox)| mailbox.arm())
    }

    /// Leaves arrivals for the next turn.
    pub(crate) fn leave_unfinished(&mut self, arrivals: Arrivals) {
        self.unfinished = Some(arrivals);
    }

    /// Returns the arrivals that the last turn left.
    pub(crate) fn take_unfinished(&mut self) -> Option<Arrivals> {
        self.unfinished.take()
    }

    /// Returns whether frames of this turn were left for the next.
    #[inline]
    pub(crate) fn has_left_frames(&self) -> bool {
        self.unfinished.is_some() || self.has_late()
    }

    /// Leaves a frame for the next turn.
    pub(crate) fn push_late(&mut self, frame: LateFrame) {
        self.late.push_back(frame);
    }

    /// Returns whether frames are left that were not completely delivered.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Removes the frames that were not completely delivered.
    pub(crate) fn take_late(&mut self) -> VecDeque<LateFrame> {
        std::mem::take(&mut self.late)
    }

    /// Puts frames behind those that were left since [`Self::take_late`].
    pub(crate) fn append_late(&mut self, mut frames: VecDeque<LateFrame>) {
        self.late.append(&mut frames);
    }

    /// Returns a list of at least `count` frames to fill, which [`Self::put_frames`] takes back.
    #[inline]
    pub(crate) fn take_frames(&mut self, count: usize) -> Vec<RxFrame> {
        let mut frames = std::mem::take(&mut self.frames);
        if frames.len() < count {
            frames.resize_with(count, RxFrame::default);
        }
        frames
    }

    /// Takes a list back.
    #[inline]
    pub(crate) fn put_frames(&mut self, frames: Vec<RxFrame>) {
        self.frames = frames;
    }
}
