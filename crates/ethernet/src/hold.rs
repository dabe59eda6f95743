//! Pending frames: enqueued when a receiver runs out of buffers, delivered when it posts more.
//!
//! The dispatcher calls [`Ethernet::drain_pending`] when a receive queue has new buffers, and
//! [`Ethernet::expire_pending`] by a timer. The bounds are in `pending_queue`. Frames that exceed
//! them are dropped and counted at the receiver.

use causeway_fabric::{Context, Progress, cost};

use crate::backlog::{Held, Sender};
use crate::counters::DropReason;
use crate::forward::{Origin, attempt, fault, give_back};
use crate::job::Taken;
use crate::limits::{HELD_PER_QUEUE_MAX, HELD_SPANS_MAX};
use crate::port::{pair, receive_queue};
use crate::run::Offer;
use crate::service::Ethernet;

impl Ethernet {
    /// Enqueues a guest's frame for a receiver without buffers. Returns `false` if the frame was
    /// dropped because a bound is reached.
    ///
    /// `had` is the number of buffers that were found too few, if delivery was tried.
    pub(crate) fn hold(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        taken: &mut Taken,
        done: usize,
        to: (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let (place, queue) = to;
        let ring = self.directory.get(sender.0).map(|p| p.id);
        let ring = ring.and_then(|id| cx.ports.get_mut(id)?.queue(sender.1).map(|(_, ring)| ring));
        let Some((size, in_flight)) = ring.map(|r| (r.size(), r.in_flight())) else { return false };
        let Some(port) = self.directory.get_mut(place) else { return false };
        let Some(backlog) = port.backlogs.get_mut(pair(queue)) else { return false };
        // Frames that were only popped ahead are not pending.
        let in_flight = in_flight.saturating_sub(self.ahead);
        let long = taken.chain.readable().len() > HELD_SPANS_MAX;
        if long || !backlog.has_room(sender, size, in_flight) {
            port.counters.dropped(DropReason::NoBuffer);
            return false;
        }
        // Copied: the popped chain may own room for the longest chain ever seen.
        let mut chain = self.pool.pop().unwrap_or_default();
        chain.copy_from(&taken.chain);
        let Taken { at, hops, flood, .. } = *taken;
        let frame = Taken { chain, job: taken.job.clone(), at, hops, flood, held: true };
        let held = Held { sender, frame, bytes: None, done, since_ns: cx.now_ns };
        taken.held = self.wait(cx, held, to, had);
        taken.held
    }

    /// As [`Self::enqueue_pending`], for a copy of a frame from the link at `from.0`.
    pub(crate) fn hold_copy(
        &mut self,
        cx: &mut Context<'_>,
        (from, bytes): (u32, &[u8]),
        taken: &Taken,
        done: usize,
        to: (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let (sender, since_ns) = ((from, 0), cx.now_ns);
        let Some(port) = self.directory.get_mut(to.0) else { return false };
        let Some(backlog) = port.backlogs.get_mut(pair(to.1)) else { return false };
        if !backlog.has_room_for_copy(sender, taken.job.len) {
            port.counters.dropped(DropReason::NoBuffer);
            return false;
        }
        let end = taken.at.saturating_add(taken.job.len);
        let bytes: Box<[u8]> = bytes.get(taken.at..end).unwrap_or(&[]).into();
        let frame = Taken { job: taken.job.clone(), hops: taken.hops, ..Taken::default() };
        self.wait(cx, Held { sender, frame, bytes: Some(bytes), done, since_ns }, to, had)
    }

    /// Appends a frame to the pending queue of a receive queue.
    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        held: Held,
        (place, queue): (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let Some(port) = self.directory.get_mut(place) else { return false };
        let Some(backlog) = port.backlogs.get_mut(pair(queue)) else { return false };
        let deadline = held.deadline_ns();
        backlog.push(held);
        port.counters.held = port.counters.held.wrapping_add(1);
        self.deadline_ns = Some(self.deadline_ns.map_or(deadline, |at| at.min(deadline)));
        let id = port.id;
        if let Some(had) = had
            && self.expect(cx, place, queue, had) != Progress::Parked
        {
            cx.wake(id, queue);
        }
        true
    }

    /// Checks whether the receiver has posted buffers beyond `had`. If not, its queue is polled, or
    /// armed for a doorbell.
    fn expect(&mut self, cx: &mut Context<'_>, place: u32, queue: usize, had: u16) -> Progress {
        let Some(id) = self.directory.get(place).map(|p| p.id) else { return Progress::Parked };
        let polled = cx.polls(id, queue);
        let Some((_, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else {
            return Progress::Parked;
        };
        let armed = if polled { Ok(false) } else { ring.arm() };
        match armed.and_then(|_| ring.available()) {
            Ok(has) if has > had => Progress::Worked,
            Ok(_) if polled => Progress::Idle,
            Ok(_) => Progress::Parked,
            Err(error) => {
                fault(cx, id, queue, error);
                Progress::Parked
            }
        }
    }

    /// Delivers at most `budget` pending frames of a receive queue, as far as buffers allow.
    pub(crate) fn drain(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        queue: usize,
        budget: usize,
    ) -> Progress {
        for nth in 0..budget {
            if nth > 0 && cx.is_over() {
                return Progress::Worked;
            }
            let Some(backlog) =
                self.directory.get_mut(place).and_then(|p| p.backlogs.get_mut(pair(queue)))
            else {
                return Progress::Parked;
            };
            let Some(mut held) = backlog.pop() else { return Progress::Parked };
            let Held { sender: (from, _), frame, bytes, done, .. } = &mut held;
            let frames = std::slice::from_mut(frame);
            let mut offer = Offer { frames, longest: usize::MAX, done: *done };
            let Self { directory, scratch, .. } = self;
            let origin = bytes.as_deref().map_or(Origin::Port(*from), Origin::Link);
            let attempt = attempt(directory, scratch, cx, origin, (place, queue), &mut offer);
            *done = offer.done;
            let len = held.frame.job.len;
            cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(len)));
            match attempt.short {
                None if attempt.yielded => {
                    let port = self.directory.get_mut(place);
                    if let Some(backlog) = port.and_then(|p| p.backlogs.get_mut(pair(queue))) {
                        backlog.put_back(held);
                    }
                    return Progress::Worked;
                }
                None => self.let_go(cx, held),
                Some(had) => {
                    let port = self.directory.get_mut(place);
                    if let Some(backlog) = port.and_then(|p| p.backlogs.get_mut(pair(queue))) {
                        backlog.put_back(held);
                    }
                    return self.expect(cx, place, queue, had);
                }
            }
        }
        Progress::Worked
    }

    /// Returns the chain of a pending frame to its sender.
    fn let_go(&mut self, cx: &mut Context<'_>, held: Held) {
        if let Some(id) = self.directory.get(held.sender.0).map(|p| p.id) {
            give_back(cx, id, held.sender.1, std::iter::once(held.frame.chain.head()));
            cx.touch(id, held.sender.1);
        }
        if held.bytes.is_none() && self.pool.len() < HELD_PER_QUEUE_MAX {
            self.pool.push(held.frame.chain);
        }
    }

    /// Drops frames whose deadline has passed, and sets the next deadline.
    pub(crate) fn expire(&mut self, cx: &mut Context<'_>) {
        let mut gone = std::mem::take(&mut self.gone);
        let mut next: Option<u64> = None;
        for port in self.directory.iter_mut() {
            for (pair, backlog) in port.backlogs.iter_mut().enumerate() {
                let before = gone.len();
                while let Some(held) = backlog.pop_expired(cx.now_ns) {
                    port.counters.dropped(DropReason::NoBuffer);
                    gone.push(held);
                }
                // The next frame may be smaller, and fit.
                if gone.len() > before && !backlog.is_empty() {
                    cx.wake(port.id, receive_queue(pair));
                }
                next = [next, backlog.deadline_ns()].into_iter().flatten().min();
            }
        }
        self.deadline_ns = next;
        for held in gone.drain(..) {
            self.let_go(cx, held);
        }
        self.gone = gone;
    }

    /// Releases every frame that is pending for a port or was sent by it, because its device stops.
    pub(crate) fn purge(&mut self, cx: &mut Context<'_>, place: u32) {
        let mut gone = std::mem::take(&mut self.gone);
        if let Some(port) = self.directory.get_mut(place) {
            for backlog in &mut port.backlogs {
                while let Some(held) = backlog.pop() {
                    port.counters.dropped(DropReason::ReceiverDown);
                    gone.push(held);
                }
            }
        }
        let received = gone.len();
        for port in self.directory.iter_mut() {
            for (pair, backlog) in port.backlogs.iter_mut().enumerate() {
                let before = gone.len();
                gone.append(&mut backlog.take_from(place));
                // As in `expire_pending`: the next frame may be smaller, and fit.
                if gone.len() > before && !backlog.is_empty() {
                    cx.wake(port.id, receive_queue(pair));
                }
            }
        }
        let unfinished = self.drop_unfinished(cx, place);
        for _ in received..gone.len().saturating_add(unfinished) {
            self.directory.dropped(place, DropReason::SenderDown);
        }
        for held in gone.drain(..) {
            self.let_go(cx, held);
        }
        self.gone = gone;
    }
}
