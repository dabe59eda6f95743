//! Frames that did not fit in their turn: the rest of their pieces, or of their receivers.
//!
//! One frame can be thousands of pieces (TSO with small segments) for a thousand receivers
//! (broadcast). Its sender's turn ends by time all the same; the frame stays in the sender's ring,
//! and the sender's next turn begins with the rest of it. Nothing else of that transmit queue passes
//! it, so the order of frames stays.

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

/// Where the rest of a frame goes.
#[derive(Debug, Clone)]
pub(crate) enum Rest {
    /// To one receive queue, where it may be held.
    One((u32, usize)),
    /// Out of the host.
    Link(Place),
    /// To each of these that has room.
    Many(Vec<Place>),
}

/// A frame that is not delivered, or not wholly.
#[derive(Debug)]
pub(crate) struct Unfinished {
    frame: Taken,
    rest: Rest,
    /// Pieces that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Whether frames of a transmit queue wait for its next turn.
    #[inline]
    pub(crate) fn is_behind(&self, sender: Sender) -> bool {
        let port = self.directory.get(sender.0);
        port.and_then(|port| port.unfinished.get(pair(sender.1))).is_some_and(|u| !u.is_empty())
    }

    /// Leaves frames for the sender's next turn; `done` pieces of the first are delivered.
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

    /// Goes on with what the last turn left. Returns whether all of it is done.
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

    /// Gives a frame back to its sender, unless it is held or postponed again.
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

    /// Gives the frames that wait for a port's next turn back undelivered: its device stops. Returns
    /// how many there were.
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
