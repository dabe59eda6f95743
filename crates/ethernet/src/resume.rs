//! Frames of guests that did not fit in their turn: the remaining segments or receivers.
//!
//! One frame can be thousands of segments (TSO with a small MSS) for a thousand receivers
//! (broadcast). The sender's turn still ends by time. `crate::receivers` then leaves the frame
//! here, in the sender's ring, and the sender's next turn begins with its remainder
//! ([`Ethernet::resume`], called by `crate::forward`, in the thread of the group's dispatcher).
//! Later frames of the same transmit queue wait behind it, so the order of frames is kept; other
//! transmit queues are not affected.
//!
//! At most the frames of one batch (32) wait for each transmit queue. They have no deadline: the
//! chain is held until the remainder is delivered or the sender's device stops
//! ([`Ethernet::drop_unfinished`]). Frames without receive buffers are not here but in
//! `crate::pending`; frames of links are in `crate::resume_link`. Switch indices are defined in
//! `crate::port`.

use std::collections::VecDeque;

use causeway_fabric::Context;

use crate::batch::Delivery;
use crate::forward::return_chains;
use crate::headers::RxFrame;
use crate::pending_queue::TransmitQueue;
use crate::port::pair;
use crate::route::SwitchIndex;
use crate::service::Ethernet;

/// The receivers that a frame still has.
#[derive(Debug, Clone)]
pub(crate) enum Remainder {
    /// One receive queue (switch index of the port, queue number); the frame may become pending
    /// there.
    One((u32, usize)),
    /// A link bundle.
    Link(SwitchIndex),
    /// Each port or bundle at these switch indices; a port without buffers misses the frame.
    Many(Vec<SwitchIndex>),
}

/// A guest's frame that is not delivered, or only in part.
#[derive(Debug)]
pub(crate) struct UnfinishedFrame {
    frame: RxFrame,
    /// The receivers that do not have the frame yet.
    rest: Remainder,
    /// Segments that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Returns whether frames of a transmit queue wait for its next turn.
    #[inline]
    pub(crate) fn has_unfinished(&self, sender: TransmitQueue) -> bool {
        let port = self.switch.get(sender.0);
        port.and_then(|port| port.unfinished.get(pair(sender.1))).is_some_and(|u| !u.is_empty())
    }

    /// Leaves frames for the sender's next turn; `done` segments of the first are delivered.
    pub(crate) fn postpone(
        &mut self,
        sender: TransmitQueue,
        frames: &mut [RxFrame],
        mut done: usize,
        rest: &Remainder,
    ) {
        for rx in frames {
            let chain = self.spare_chains.copy_of(&rx.chain);
            let RxFrame { at, hops, flood, .. } = *rx;
            let frame =
                RxFrame { chain, headers: rx.headers.clone(), at, hops, flood, is_pending: true };
            let done = std::mem::take(&mut done);
            if let Some(list) = self.unfinished_of(sender) {
                list.push_back(UnfinishedFrame { frame, rest: rest.clone(), done });
                rx.is_pending = true;
                self.turn.keep_frame();
            }
        }
    }

    /// Returns the unfinished frames of a transmit queue.
    fn unfinished_of(&mut self, sender: TransmitQueue) -> Option<&mut VecDeque<UnfinishedFrame>> {
        self.switch.get_mut(sender.0)?.unfinished.get_mut(pair(sender.1))
    }

    /// Continues with the frames that the last turn left. Returns whether none is left.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>, sender: TransmitQueue) -> bool {
        if !self.has_unfinished(sender) {
            return true;
        }
        let Some(list) = self.unfinished_of(sender) else { return true };
        let mut list = std::mem::take(list);
        while let Some(UnfinishedFrame { mut frame, rest, done }) = list.pop_front() {
            frame.is_pending = false;
            match rest {
                Remainder::One(to) => {
                    let delivery = Delivery { done, ..Delivery::single(&mut frame) };
                    self.deliver_from_guest(cx, sender, delivery, to);
                }
                Remainder::Link(to) => {
                    self.send_guest_frames(cx, sender, std::slice::from_mut(&mut frame), to, done);
                }
                Remainder::Many(targets) => {
                    self.copy_to_each(cx, sender, &mut frame, &targets, done)
                }
            }
            self.release_finished(cx, sender, frame);
            if self.has_unfinished(sender) || cx.is_over() {
                break;
            }
        }
        if let Some(now) = self.unfinished_of(sender) {
            now.append(&mut list);
        }
        !self.has_unfinished(sender)
    }

    /// Returns a chain to its sender, unless the frame is pending or unfinished again.
    fn release_finished(&mut self, cx: &mut Context<'_>, sender: TransmitQueue, frame: RxFrame) {
        if !frame.is_pending
            && let Some(id) = self.switch.get(sender.0).map(|port| port.id)
        {
            return_chains(cx, id, sender.1, std::iter::once(frame.chain.head()));
            cx.touch(id, sender.1);
        }
        self.spare_chains.put(frame.chain);
    }

    /// Gives the chains of a port's unfinished frames back to the port as used, because its device
    /// stops. Returns their number, which the caller counts as `SenderDown`.
    pub(crate) fn drop_unfinished(&mut self, cx: &mut Context<'_>, place: SwitchIndex) -> usize {
        let Some(port) = self.switch.get_mut(place) else { return 0 };
        let lists: Vec<_> = port.unfinished.iter_mut().map(std::mem::take).collect();
        let mut count = 0_usize;
        for (pair, list) in lists.into_iter().enumerate() {
            // receiveq1, transmitq1, receiveq2, …
            let queue = pair.saturating_mul(2).saturating_add(1);
            count = count.saturating_add(list.len());
            for UnfinishedFrame { mut frame, .. } in list {
                frame.is_pending = false;
                self.release_finished(cx, (place, queue), frame);
            }
        }
        count
    }
}
