//! Pending frames: enqueued when a receiver runs out of buffers, delivered when it posts more.
//!
//! `crate::receivers` and `crate::link_rx` enqueue frames for a single receive queue; a copy for
//! one of several receivers never waits. The dispatcher calls [`Ethernet::drain_pending`] when a
//! receive queue has new buffers, and [`Ethernet::expire_pending`] by a timer.
//! [`Ethernet::purge_port`] releases the frames of a port that stops.
//!
//! The bounds are in `crate::pending_queue`. A frame that exceeds them, or has more than
//! [`PENDING_SPANS_MAX`] (48) descriptors, is dropped and counted at the receiver as `NoBuffer`.
//! Frames of one receive queue stay in order; an expired frame is dropped even if some of its
//! segments were delivered. A pending frame keeps guest addresses, not pointers. `place` is the
//! switch index of the port (`crate::port`).

use causeway_fabric::{Context, Progress, cost};

use crate::batch::Delivery;
use crate::counters::DropReason;
use crate::forward::{Ingress, close_port, deliver_to_queue, return_chains};
use crate::headers::RxFrame;
use crate::limits::PENDING_SPANS_MAX;
use crate::pending_queue::{PendingFrame, TransmitQueue};
use crate::port::{pair, receive_queue};
use crate::service::Ethernet;

/// State of the pending frames of all ports, beside their queues.
#[derive(Debug, Default)]
pub(crate) struct PendingFrames {
    /// Earliest deadline of a pending frame, or earlier.
    deadline_ns: Option<u64>,
    /// Frames that are released together, kept for the capacity of the list.
    released: Vec<PendingFrame>,
}

impl PendingFrames {
    /// Returns the time of the next call of [`Ethernet::expire_pending`].
    pub(crate) const fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Notes the deadline of a new pending frame.
    fn note_deadline(&mut self, deadline_ns: u64) {
        let earliest = self.deadline_ns.map_or(deadline_ns, |at| at.min(deadline_ns));
        self.deadline_ns = Some(earliest);
    }
}

impl Ethernet {
    /// Enqueues a guest's frame for a receiver without buffers. Returns `false` if the frame was
    /// dropped because a bound is reached.
    ///
    /// `had` is the number of buffers that were found too few, if delivery was tried.
    pub(crate) fn enqueue_pending(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        rx: &mut RxFrame,
        done: usize,
        to: (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let (place, queue) = to;
        let ring = self.switch.get(sender.0).map(|p| p.id);
        let ring = ring.and_then(|id| cx.ports.get_mut(id)?.queue(sender.1).map(|(_, ring)| ring));
        let Some((size, in_flight)) = ring.map(|r| (r.size(), r.in_flight())) else { return false };
        let Some(port) = self.switch.get_mut(place) else { return false };
        let Some(pending) = port.pending_queues.get_mut(pair(queue)) else { return false };
        // Frames that were only popped ahead are not pending.
        let in_flight = self.turn.waiting(in_flight);
        let long = rx.chain.readable().len() > PENDING_SPANS_MAX;
        if long || !pending.has_room(sender, size, in_flight) {
            port.counters.count_drop(DropReason::NoBuffer);
            return false;
        }
        let chain = self.spare_chains.copy_of(&rx.chain);
        let RxFrame { at, hops, flood, .. } = *rx;
        let frame =
            RxFrame { chain, headers: rx.headers.clone(), at, hops, flood, is_pending: true };
        let entry = PendingFrame { sender, frame, bytes: None, done, since_ns: cx.now_ns };
        rx.is_pending = self.push_pending(cx, entry, to, had);
        rx.is_pending
    }

    /// As [`Self::enqueue_pending`], for a copy of a frame from the link at `from.0`.
    pub(crate) fn enqueue_pending_copy(
        &mut self,
        cx: &mut Context<'_>,
        (from, bytes): (u32, &[u8]),
        rx: &RxFrame,
        done: usize,
        to: (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let (sender, since_ns) = ((from, 0), cx.now_ns);
        let Some(port) = self.switch.get_mut(to.0) else { return false };
        let Some(pending) = port.pending_queues.get_mut(pair(to.1)) else { return false };
        if !pending.has_room_for_copy(sender, rx.headers.len) {
            port.counters.count_drop(DropReason::NoBuffer);
            return false;
        }
        let end = rx.at.saturating_add(rx.headers.len);
        let bytes: Box<[u8]> = bytes.get(rx.at..end).unwrap_or(&[]).into();
        let frame = RxFrame { headers: rx.headers.clone(), hops: rx.hops, ..RxFrame::default() };
        self.push_pending(
            cx,
            PendingFrame { sender, frame, bytes: Some(bytes), done, since_ns },
            to,
            had,
        )
    }

    /// Appends a frame to the pending queue of a receive queue.
    fn push_pending(
        &mut self,
        cx: &mut Context<'_>,
        entry: PendingFrame,
        (place, queue): (u32, usize),
        had: Option<u16>,
    ) -> bool {
        let Some(port) = self.switch.get_mut(place) else { return false };
        let Some(pending) = port.pending_queues.get_mut(pair(queue)) else { return false };
        let deadline = entry.deadline_ns();
        pending.push(entry);
        port.counters.held = port.counters.held.wrapping_add(1);
        self.pending.note_deadline(deadline);
        let id = port.id;
        if let Some(had) = had
            && self.await_buffers(cx, place, queue, had) != Progress::Parked
        {
            cx.wake(id, queue);
        }
        true
    }

    /// Checks whether the receiver has posted buffers beyond `had`. If not, its queue is polled, or
    /// armed for a doorbell.
    fn await_buffers(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        queue: usize,
        had: u16,
    ) -> Progress {
        let Some(id) = self.switch.get(place).map(|p| p.id) else { return Progress::Parked };
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
                close_port(cx, id, queue, error);
                Progress::Parked
            }
        }
    }

    /// Delivers at most `budget` pending frames of a receive queue, as far as buffers allow.
    /// Returns `Worked` if more can be delivered, `Idle` if buffers are missing and the queue is
    /// polled, and `Parked` if no frame is pending or a doorbell was requested for new buffers.
    pub(crate) fn drain_pending(
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
            let Some(pending) =
                self.switch.get_mut(place).and_then(|p| p.pending_queues.get_mut(pair(queue)))
            else {
                return Progress::Parked;
            };
            let Some(mut entry) = pending.pop() else { return Progress::Parked };
            let PendingFrame { sender: (from, _), frame, bytes, done, .. } = &mut entry;
            let frames = std::slice::from_mut(frame);
            let mut delivery = Delivery { frames, longest: usize::MAX, done: *done };
            let Self { switch, scratch, .. } = self;
            let ingress = bytes.as_deref().map_or(Ingress::Port(*from), Ingress::Link);
            let outcome =
                deliver_to_queue(switch, scratch, cx, ingress, (place, queue), &mut delivery);
            *done = delivery.done;
            let len = entry.frame.headers.len;
            cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(len)));
            match outcome.shortage {
                None if outcome.out_of_time => {
                    let port = self.switch.get_mut(place);
                    if let Some(pending) = port.and_then(|p| p.pending_queues.get_mut(pair(queue)))
                    {
                        pending.put_back(entry);
                    }
                    return Progress::Worked;
                }
                None => self.release_frame(cx, entry),
                Some(had) => {
                    let port = self.switch.get_mut(place);
                    if let Some(pending) = port.and_then(|p| p.pending_queues.get_mut(pair(queue)))
                    {
                        pending.put_back(entry);
                    }
                    return self.await_buffers(cx, place, queue, had);
                }
            }
        }
        Progress::Worked
    }

    /// Returns the chain of a pending frame to its sender.
    fn release_frame(&mut self, cx: &mut Context<'_>, entry: PendingFrame) {
        if let Some(id) = self.switch.get(entry.sender.0).map(|p| p.id) {
            return_chains(cx, id, entry.sender.1, std::iter::once(entry.frame.chain.head()));
            cx.touch(id, entry.sender.1);
        }
        if entry.bytes.is_none() {
            self.spare_chains.put(entry.frame.chain);
        }
    }

    /// Drops frames after their deadline, counted at the receiver as `NoBuffer`, and sets the next
    /// deadline.
    pub(crate) fn expire_pending(&mut self, cx: &mut Context<'_>) {
        let mut released = std::mem::take(&mut self.pending.released);
        let mut next: Option<u64> = None;
        for port in self.switch.iter_mut() {
            for (pair, pending) in port.pending_queues.iter_mut().enumerate() {
                let before = released.len();
                while let Some(entry) = pending.pop_expired(cx.now_ns) {
                    port.counters.count_drop(DropReason::NoBuffer);
                    released.push(entry);
                }
                // The next frame may be smaller, and fit.
                if released.len() > before && !pending.is_empty() {
                    cx.wake(port.id, receive_queue(pair));
                }
                next = [next, pending.deadline_ns()].into_iter().flatten().min();
            }
        }
        self.pending.deadline_ns = next;
        for entry in released.drain(..) {
            self.release_frame(cx, entry);
        }
        self.pending.released = released;
    }

    /// Releases every frame that is pending for a port or was sent by it, because its device stops.
    /// The frames are counted there as `ReceiverDown` or `SenderDown`; their chains return to their
    /// senders' rings as used.
    pub(crate) fn purge_port(&mut self, cx: &mut Context<'_>, place: u32) {
        let mut released = std::mem::take(&mut self.pending.released);
        if let Some(port) = self.switch.get_mut(place) {
            for pending in &mut port.pending_queues {
                while let Some(entry) = pending.pop() {
                    port.counters.count_drop(DropReason::ReceiverDown);
                    released.push(entry);
                }
            }
        }
        let received = released.len();
        for port in self.switch.iter_mut() {
            for (pair, pending) in port.pending_queues.iter_mut().enumerate() {
                let before = released.len();
                released.append(&mut pending.take_from(place));
                // As in `expire_pending`: the next frame may be smaller, and fit.
                if released.len() > before && !pending.is_empty() {
                    cx.wake(port.id, receive_queue(pair));
                }
            }
        }
        let unfinished = self.drop_unfinished(cx, place);
        for _ in received..released.len().saturating_add(unfinished) {
            self.switch.count_drop(place, DropReason::SenderDown);
        }
        for entry in released.drain(..) {
            self.release_frame(cx, entry);
        }
        self.pending.released = released;
    }
}
