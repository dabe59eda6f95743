//! Frames of guests that did not fit in their turn: the remaining segments or receivers.
//!
//! One frame can be thousands of segments (TSO with a small MSS) for a thousand receivers
//! (broadcast). The sender's turn still ends by time. The frame then stays in the sender's ring,
//! and the sender's next turn begins with its remainder. Later frames of the same transmit queue
//! wait behind it, so the order of frames is kept. Frames of links are in [`crate::resume_link`].

use std::collections::VecDeque;

use causeway_fabric::Context;

use crate::backlog::Sender;
use crate::forward::give_back;
use crate::job::Taken;
use crate::limits::HELD_PER_QUEUE_MAX;
use crate::port::pair;
use crate::route::Place;
use crate::run::Offer;
use crate::service::Ethernet;

/// The receivers that a frame still has.
#[derive(Debug, Clone)]
pub(crate) enum Rest {
    /// One receive queue; the frame may become pending there.
    One((u32, usize)),
    /// A link bundle.
    Link(Place),
    /// Each of these that has buffers.
    Many(Vec<Place>),
}

/// A guest's frame that is not delivered, or only in part.
#[derive(Debug)]
pub(crate) struct Unfinished {
    frame: Taken,
    rest: Rest,
    /// Segments that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Returns whether frames of a transmit queue wait for its next turn.
    #[inline]
    pub(crate) fn is_behind(&self, sender: Sender) -> bool {
        let port = self.directory.get(sender.0);
        port.and_then(|port| port.unfinished.get(pair(sender.1))).is_some_and(|u| !u.is_empty())
    }

    /// Leaves frames for the sender's next turn; `done` segments of the first are delivered.
    pub(crate) fn postpone_all(
        &mut self,
        sender: Sender,
        frames: &mut [Taken],
        mut done: usize,
        rest: &Rest,
    ) {
        for taken in frames {
            let mut chain = self.pool.pop().unwrap_or_default();
            chain.copy_from(&taken.chain);
            let Taken { at, hops, flood, .. } = *taken;
            let frame = Taken { chain, job: taken.job.clone(), at, hops, flood, held: true };
            let done = std::mem::take(&mut done);
            if let Some(list) = self.unfinished_of(sender) {
                list.push_back(Unfinished { frame, rest: rest.clone(), done });
                taken.held = true;
                self.ahead = self.ahead.saturating_sub(1);
            }
        }
    }

    fn unfinished_of(&mut self, sender: Sender) -> Option<&mut VecDeque<Unfinished>> {
        self.directory.get_mut(sender.0)?.unfinished.get_mut(pair(sender.1))
    }

    /// Continues with the frames that the last turn left. Returns whether none is left.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>, sender: Sender) -> bool {
        if !self.is_behind(sender) {
            return true;
        }
        let Some(list) = self.unfinished_of(sender) else { return true };
        let mut list = std::mem::take(list);
        while let Some(Unfinished { mut frame, rest, done }) = list.pop_front() {
            frame.held = false;
            match rest {
                Rest::One(to) => {
                    let offer = Offer { done, ..Offer::of_one(&mut frame) };
                    self.offer(cx, sender, offer, to);
                }
                Rest::Link(to) => {
                    self.offer_to_link(cx, sender, std::slice::from_mut(&mut frame), to, done);
                }
                Rest::Many(targets) => self.copy_to_each(cx, sender, &mut frame, &targets, done),
            }
            self.let_finished_go(cx, sender, frame);
            if self.is_behind(sender) || cx.is_over() {
                break;
            }
        }
        if let Some(now) = self.unfinished_of(sender) {
            now.append(&mut list);
        }
        !self.is_behind(sender)
    }

    /// Returns a chain to its sender, unless the frame is pending or unfinished again.
    fn let_finished_go(&mut self, cx: &mut Context<'_>, sender: Sender, frame: Taken) {
        if !frame.held
            && let Some(id) = self.directory.get(sender.0).map(|port| port.id)
        {
            give_back(cx, id, sender.1, std::iter::once(frame.chain.head()));
            cx.touch(id, sender.1);
        }
        if self.pool.len() < HELD_PER_QUEUE_MAX {
            self.pool.push(frame.chain);
        }
    }

    /// Returns the chains of a port's unfinished frames undelivered, because its device stops.
    /// Returns their number.
    pub(crate) fn drop_unfinished(&mut self, cx: &mut Context<'_>, place: Place) -> usize {
        let Some(port) = self.directory.get_mut(place) else { return 0 };
        let lists: Vec<_> = port.unfinished.iter_mut().map(std::mem::take).collect();
        let mut count = 0_usize;
        for (pair, list) in lists.into_iter().enumerate() {
            // receiveq1, transmitq1, receiveq2, …
            let queue = pair.saturating_mul(2).saturating_add(1);
            count = count.saturating_add(list.len());
            for Unfinished { mut frame, .. } in list {
                frame.held = false;
                self.let_finished_go(cx, (place, queue), frame);
            }
        }
        count
    }
}
