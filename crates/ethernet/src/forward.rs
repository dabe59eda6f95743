//! The forwarding decision: from a guest's transmit ring to the egress of each frame.
//!
//! The dispatcher calls [`Ethernet::serve_transmit_queue`] through `crate::service`. The module
//! first resumes frames of earlier turns (`crate::resume`), then pops at most [`BATCH_FRAMES`] (32)
//! frames at a time, has them cut into batches (`crate::classify`), resolves the egress of each
//! (routes first, then the address table), and hands the batches to `crate::receivers`. Chains of
//! frames that are not pending return to the sender's ring as used.
//!
//! The module copies no bytes to a receiver itself ([`deliver_to_queue`] calls `crate::batch`),
//! waits for no receive buffers and publishes no ring: the shard publishes after the call, and
//! notifies the guests at the end of the turn. A ring that breaks a rule closes its port. If a call
//! finds invalid frames only, the port is penalised: the next [`PENALTY_TURNS`] (31) calls for any
//! of its transmit queues pop and resume nothing. Order is kept for each pair of transmit queue and
//! receive queue.
//!
//! # Budget
//! Frames are popped in batches of at most 32. Every line of a frame lies in another processor's
//! cache, so each step touches the whole batch to keep several misses in flight: the descriptors;
//! the first two lines of the frames; then, for each batch to one receive queue, the descriptors
//! and first two lines of the receive buffers. State that is the same for all frames (ports, maps,
//! rings) is looked up once a batch.

use causeway_fabric::carrier::Body;
use causeway_fabric::{Context, Port, PortId, Progress};
use causeway_memory::{Cursor, Map};
use causeway_model::{Forwarding, GroupKind};
use causeway_ring::{PoppedBatch, Queue, RingError};
use causeway_wire::ethernet::{self, is_group};
use causeway_wire::hello;
use causeway_wire::pcapng::Direction;
use causeway_wire::virtio_net::Offload;

use crate::batch::{CopyOutcome, Delivery, Egress, EgressBatch};
use crate::classify::FlowTotals;
use crate::counters::DropReason;
use crate::deliver::{Scratch, TargetQueue};
use crate::frame_store::FrameStore;
use crate::guest_mac::exchange_all;
use crate::headers::{FrameHeaders, RxFrame};
use crate::limits::{BATCH_FRAMES, FLOOD_BYTES, PENALTY_TURNS};
use crate::offload::{OffloadPlan, plan};
use crate::pending_queue::TransmitQueue;
use crate::port::{CachedHop, Switch, pair};
use crate::route::SetId;
use crate::service::Ethernet;
use crate::table::Learnt;
use crate::uplink::is_link;

/// Reason for closing a port whose granted memory was truncated.
const TRUNCATED: &str = "granted memory shrank: its file was truncated";

/// The next hop of a frame, before a receive queue is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// One port, or one link bundle.
    To(u32),
    /// The switch indices of a route set.
    Set(SetId),
    /// Every other port and station of the group and every link: broadcast and multicast.
    All,
    /// Every other port and station of the group that learns, and every link: the destination is
    /// unknown.
    Learners,
    /// None: the frame is dropped.
    Drop(DropReason),
}

impl Switch {
    /// Learns a source address that is not the port's own. Returns whether the port may send from
    /// it.
    fn learn(&mut self, place: u32, source: [u8; 6], now_ns: u64) -> bool {
        let Some(port) = self.get(place) else { return false };
        if !port.spec.learn || is_group(source) || source == [0; 6] {
            return false;
        }
        self.table.learn(source, place, now_ns) != Learnt::Forged
    }

    /// As [`Self::next_hop`], and caches the result for the sender's next frame.
    fn look_up_next_hop(&mut self, from: u32, destination: u64, now_ns: u64) -> NextHop {
        let version = self.table.version();
        let (hop, until_ns) = self.next_hop_until(from, ethernet::address(destination), now_ns);
        if let NextHop::To(to) = hop
            && let Some(until_ns) = until_ns
            && let Some(port) = self.get_mut(from)
        {
            port.cached_hop = Some(CachedHop { destination, to, version, until_ns });
        }
        hop
    }

    /// Returns whether a frame goes to several receivers: its destination is a group address, or
    /// neither the table nor a route has it.
    pub(crate) fn is_flooded(
        &mut self,
        from: u32,
        (source, destination): (u64, u64),
        now_ns: u64,
    ) -> bool {
        match self.next_hop(from, ethernet::address(destination), now_ns) {
            NextHop::All => true,
            NextHop::Learners => self.routes.look_up(from, source, destination).is_none(),
            _ => false,
        }
    }

    /// Returns the next hop of a frame from `from`.
    pub(crate) fn next_hop(&self, from: u32, destination: [u8; 6], now_ns: u64) -> NextHop {
        self.next_hop_until(from, destination, now_ns).0
    }

    /// As [`Self::next_hop`], with the time until which the table entry is valid.
    fn next_hop_until(
        &self,
        from: u32,
        destination: [u8; 6],
        now_ns: u64,
    ) -> (NextHop, Option<u64>) {
        if is_group(destination) {
            // Hellos of daemons are consumed before this point; guests may not send them.
            if destination == hello::ADDRESS {
                return (NextHop::Drop(DropReason::UnknownDestination), None);
            }
            return (NextHop::All, None);
        }
        let away = || self.moved_to(ethernet::number(destination));
        let moved = if self.away.is_empty() { None } else { away() };
        let known = self.table.lookup_until(destination, now_ns);
        let until_ns = known.map(|(_, until_ns)| until_ns);
        let hop = match moved.or(known.map(|(to, _)| to)) {
            Some(to) if to == from => NextHop::Drop(DropReason::SamePort),
            Some(to) => NextHop::To(to),
            None if self.learners.iter().chain(self.uplinks.up()).any(|&p| p != from) => {
                NextHop::Learners
            }
            None => NextHop::Drop(DropReason::UnknownDestination),
        };
        (hop, until_ns)
    }
}

impl Ethernet {
    /// Serves a transmit queue: pops at most `budget` frames and forwards each.
    ///
    /// Returns `Idle` if the ring is empty or the port is penalised, `Parked` if the port is
    /// closed, and `Worked` otherwise, also if frames of earlier turns are left and none was
    /// popped. `place` is the sender's switch index.
    pub(crate) fn serve_transmit_queue(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        queue: usize,
        budget: usize,
    ) -> Progress {
        let Some(port) = self.switch.get_mut(place) else { return Progress::Parked };
        if let Some(left) = port.penalty_turns.checked_sub(1) {
            port.penalty_turns = left;
            return Progress::Idle;
        }
        let (id, mut popped_count) = (port.id, 0_usize);
        if !self.resume(cx, (place, queue)) {
            return Progress::Worked;
        }
        let mut left = budget;
        let mut progress = Progress::Idle;
        let mut popped = self.turn.begin();
        while left > 0 && !(popped_count > 0 && cx.is_over()) {
            match pop_batch(cx, id, queue, &mut popped, left.min(BATCH_FRAMES)) {
                Ok(0) => break,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    popped_count = popped_count.saturating_add(count);
                    progress = Progress::Worked;
                    let popped = popped.get_mut(..count).unwrap_or(&mut []);
                    self.send_batch(cx, (place, queue), popped, &mut left);
                }
                Err(()) => {
                    progress = Progress::Parked;
                    break;
                }
            }
        }
        let violations = self.turn.end(popped);
        if popped_count > 0
            && violations >= popped_count
            && let Some(port) = self.switch.get_mut(place)
        {
            port.penalty_turns = PENALTY_TURNS;
        }
        if progress == Progress::Worked {
            self.switch.traffic.commit_run(cx.now_ns);
            cx.touch(id, queue);
        }
        progress
    }

    /// Forwards popped frames and returns their chains to the sender. Frames beyond the time of the
    /// turn are put back into the ring. Flooded frames subtract their copies from `left`.
    fn send_batch(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        popped: &mut [RxFrame],
        left: &mut usize,
    ) {
        let classified = self.classify(cx, sender.0, popped, *left);
        let Some((popped, beyond)) = popped.split_at_mut_checked(classified) else { return };
        return_to_ring(cx, self.switch.get(sender.0).map(|me| me.id), sender.1, beyond);
        self.turn.begin_batch(popped.len());
        let mut batches = std::mem::take(&mut self.batches);
        let mut rest = &mut *popped;
        for EgressBatch { egress, count, longest } in batches.0.drain(..) {
            let Some((frames, later)) = rest.split_at_mut_checked(count) else { break };
            rest = later;
            match egress {
                Egress::Done => {}
                Egress::To(to, queue) => {
                    let delivery = Delivery { frames, longest, done: 0 };
                    self.deliver_from_guest(cx, sender, delivery, (to, queue));
                }
                Egress::Link(to) => self.send_guest_frames(cx, sender, frames, to, 0),
                Egress::All | Egress::Learners | Egress::Set(_) => {
                    self.deliver_to_all(cx, sender, frames, egress, left);
                }
            }
        }
        self.batches = batches;
        self.report_refused_source(cx, sender.0);
        if let Some(id) = self.switch.get(sender.0).map(|me| me.id) {
            let through = popped.iter().filter(|rx| !rx.is_pending);
            return_chains(cx, id, sender.1, through.map(|rx| rx.chain.head()));
        }
    }
}

impl Switch {
    /// Checks source and size of a frame of the port at `place`, and resolves its egress.
    ///
    /// The flag of the result is set if the egress holds for every frame to the same destination
    /// while the table version and the running queues stay the same.
    #[inline]
    pub(crate) fn resolve_egress(
        &mut self,
        place: u32,
        map: &Map,
        rx: &mut RxFrame,
        now_ns: u64,
    ) -> Result<(Egress, bool), DropReason> {
        let Some(me) = self.get(place) else { return Ok((Egress::Done, false)) };
        let headers = &rx.headers;
        let (own, last) = (me.mac == headers.source, me.cached_hop);
        if !headers.fits_mtu(me.spec.mtu) {
            return Err(DropReason::TooBig);
        }
        if !own && !self.learn(place, ethernet::address(headers.source), now_ns) {
            return Err(DropReason::SpoofedSource);
        }
        if let Some(hop) = self.next_hop_by_routes(place, rx) {
            return Ok((self.choose_egress(map, rx, hop?)?, false));
        }
        let headers = &rx.headers;
        let version = self.table.version();
        let hop = match last {
            Some(last) if last.holds(headers.destination, version, now_ns) => NextHop::To(last.to),
            _ => self.look_up_next_hop(place, headers.destination, now_ns),
        };
        // The common case: one port with one queue.
        if let NextHop::To(to) = hop
            && let Some([only]) = self.get(to).map(|port| port.receive.as_slice())
        {
            return Ok((Egress::To(to, *only), true));
        }
        Ok((self.choose_egress(map, rx, hop)?, false))
    }

    /// Resolves the egress of a frame to several receivers, or to a port with several queues or
    /// none.
    fn choose_egress(
        &mut self,
        map: &Map,
        rx: &mut RxFrame,
        hop: NextHop,
    ) -> Result<Egress, DropReason> {
        let RxFrame { chain, headers, .. } = rx;
        let flows = match hop {
            NextHop::Drop(why) => return Err(why),
            NextHop::Set(_) => true,
            NextHop::To(to) => self.get(to).is_some_and(|port| port.receive.len() > 1),
            NextHop::All | NextHop::Learners => true,
        };
        // Only a queue choice by flow needs the transport headers.
        if flows && headers.offload == Offload::None {
            headers.read_all_headers(Body::Guest(
                map,
                Cursor::at(chain.readable(), headers.rest_at),
            ))?;
        }
        Ok(match hop {
            NextHop::Set(set) => Egress::Set(set),
            NextHop::To(to) if is_link(to) => Egress::Link(to),
            NextHop::All => Egress::All,
            NextHop::Learners => Egress::Learners,
            NextHop::To(to) => match self.receive_queue(to, headers) {
                Some(queue) => Egress::To(to, queue),
                None => {
                    self.count_drop(to, DropReason::ReceiverDown);
                    Egress::Done
                }
            },
            NextHop::Drop(why) => return Err(why),
        })
    }

    /// Returns whether a bridge must not forward a frame to this address (IEEE 802.1Q, 8.6.3).
    #[inline]
    pub(crate) fn is_link_local(&self, destination: u64) -> bool {
        ethernet::is_link_local(destination) && self.kind == GroupKind::Bridge
    }

    /// Returns the next hop by the routes, or `None` if no route fits and the address table
    /// decides. A bridge drops link-local frames before the routes apply.
    #[inline]
    pub(crate) fn next_hop_by_routes(
        &mut self,
        place: u32,
        rx: &RxFrame,
    ) -> Option<Result<NextHop, DropReason>> {
        if self.is_link_local(rx.headers.destination) {
            return Some(Err(DropReason::LinkLocal));
        }
        if self.routes.is_empty() || hello::is_hello(rx.headers.destination) {
            return None;
        }
        match self.routes.look_up(place, rx.headers.source, rx.headers.destination) {
            Some(set) => {
                self.routes.count(set, 1);
                Some(Ok(match self.routes.places(set) {
                    [only] => NextHop::To(*only),
                    _ => NextHop::Set(set),
                }))
            }
            None if self.routes.forwarding() == Forwarding::Routes => {
                Some(Err(DropReason::NoRoute))
            }
            None => None,
        }
    }

    /// Returns into how many segments a frame is cut at most; 0 if it passes uncut.
    #[inline]
    pub(crate) fn segment_count(&self, egress: Egress, headers: &FrameHeaders) -> usize {
        let Offload::Segment(_, gso) = headers.offload else { return 0 };
        let passes = match egress {
            Egress::Done => true,
            Egress::To(to, _) => self
                .get(to)
                .is_some_and(|port| plan(&headers.offload, port.features) == OffloadPlan::Pass),
            Egress::Link(to) => self.uplinks.takes_offloads(to),
            Egress::All | Egress::Learners | Egress::Set(_) => false,
        };
        let size = usize::from(gso.size);
        if passes { 0 } else { headers.len.checked_div(size).unwrap_or(0) }
    }

    /// Lists the receivers of a flooded or routed frame: ports and links.
    pub(crate) fn list_targets(&self, place: u32, egress: Egress, targets: &mut Vec<u32>) {
        targets.clear();
        let ports = match egress {
            Egress::Set(set) => {
                targets.extend_from_slice(self.routes.places(set));
                return;
            }
            Egress::Learners => &self.learners,
            _ => &self.members,
        };
        targets.extend(ports.iter().copied().filter(|&p| p != place));
        let passes = |to: &u32| !is_link(place) || self.uplinks.may_pass(place, *to);
        targets.extend(self.uplinks.up().iter().copied().filter(passes));
    }

    /// Assigns a flood number to a flooded frame that leaves by a link and has none yet. Peers
    /// detect copies by the number.
    pub(crate) fn assign_flood_number(
        &mut self,
        rx: &mut RxFrame,
        egress: Egress,
        targets: &[u32],
    ) {
        let flooded = matches!(egress, Egress::All | Egress::Learners);
        if flooded && rx.flood.is_none() && targets.iter().any(|to| is_link(*to)) {
            rx.flood = Some(self.flood_sequences.draw_number());
        }
    }

    /// Records a flooded frame of a local port, so that copies that return by a link are dropped.
    pub(crate) fn note_own_flood(&mut self, cx: &Context<'_>, place: u32, rx: &RxFrame) {
        let Some(port) = self.get(place) else { return };
        let Some(map) = cx.ports.get(port.id).and_then(Port::map) else { return };
        let head = rx.headers.head();
        let mut first = vec![0; rx.headers.len.min(FLOOD_BYTES)];
        let (copied, rest) = first.split_at_mut_checked(head.len()).unwrap_or((&mut [], &mut []));
        if copied.len() == head.len() {
            copied.copy_from_slice(head);
        }
        // An unreadable frame is not sent either, so its fingerprint does not matter.
        let _ = Cursor::at(rx.chain.readable(), rx.headers.rest_at).read(map, rest);
        let print = self.duplicates.fingerprint(rx.headers.len, &first);
        self.duplicates.record(print, place, cx.now_ns);
    }

    /// Returns the receive queue of a port for a frame, or `None` if no queue runs.
    pub(crate) fn receive_queue(&self, to: u32, headers: &FrameHeaders) -> Option<usize> {
        self.get(to)?.receive_queue_for(|| self.flow(headers.frame.flow_key(headers.head())))
    }

    /// Returns whether frames wait for a receive queue.
    pub(crate) fn has_pending(&self, to: u32, queue: usize) -> bool {
        let pending = self.get(to).and_then(|p| p.pending_queues.get(pair(queue)));
        pending.is_some_and(|b| !b.is_empty())
    }

    /// Counts a frame in the traffic matrix.
    #[inline]
    pub(crate) fn count_traffic(&mut self, place: u32, headers: &FrameHeaders, now_ns: u64) {
        let one = FlowTotals { frames: 1, bytes: headers.len, longest: headers.len };
        self.count_pair(place, (headers.source, headers.destination), one, now_ns);
    }

    /// Counts frames of one address pair in the traffic matrix.
    pub(crate) fn count_pair(
        &mut self,
        place: u32,
        pair: (u64, u64),
        totals: FlowTotals,
        now_ns: u64,
    ) {
        if totals.frames > 0 {
            let sum = (totals.frames as u64, totals.bytes as u64);
            self.traffic.count(place, pair, sum, now_ns);
        }
    }

    /// Counts a frame that a port or link did not receive.
    pub(crate) fn count_drop(&mut self, to: u32, why: DropReason) {
        if is_link(to) {
            self.uplinks.count_drop(to, why);
        } else if let Some(port) = self.get_mut(to) {
            port.counters.count_drop(why);
        }
    }
}

/// Pops at most `most` frames from a ring. An error closes the port.
fn pop_batch(
    cx: &mut Context<'_>,
    id: PortId,
    queue: usize,
    popped: &mut Vec<RxFrame>,
    most: usize,
) -> Result<usize, ()> {
    let Some((map, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else {
        return Err(());
    };
    if popped.len() < most {
        popped.resize_with(most, RxFrame::default);
    }
    match pop_frames(map, ring, popped.get_mut(..most).unwrap_or(&mut [])) {
        Ok(count) => Ok(count),
        Err(error) => {
            close_port(cx, id, queue, error);
            Err(())
        }
    }
}

/// Pops frames into `batch` until it is full or the ring is empty; returns their number.
fn pop_frames(map: &Map, ring: &mut Queue, popped: &mut [RxFrame]) -> Result<usize, RingError> {
    let most = popped.len();
    let PoppedBatch { mut count, needs_pop } =
        ring.pop_batch(map, popped.iter_mut().map(|rx| &mut rx.chain), most)?;
    let rest = popped.get_mut(count..).filter(|_| needs_pop).unwrap_or(&mut []);
    if needs_pop {
        ring.prefetch(map, u16::try_from(rest.len()).unwrap_or(u16::MAX));
    }
    for rx in rest {
        if !ring.pop(map, &mut rx.chain)? {
            break;
        }
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// Puts popped frames back into their ring; the next pop returns them.
fn return_to_ring(cx: &mut Context<'_>, id: Option<PortId>, queue: usize, frames: &[RxFrame]) {
    let Some((_, ring)) = id.and_then(|id| cx.ports.get_mut(id)?.queue(queue)) else { return };
    for rx in frames.iter().rev() {
        ring.put_back(rx.chain.head());
    }
}

/// The result of [`deliver_to_queue`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliveryOutcome {
    /// Frames that were delivered, or dropped and counted; all frames, uncounted, if the port of
    /// the sender or receiver is gone.
    pub committed: usize,
    /// As [`CopyOutcome::shortage`].
    pub shortage: Option<u16>,
    /// As [`CopyOutcome::out_of_time`].
    pub out_of_time: bool,
}

/// The ingress of frames.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ingress<'a> {
    /// The port at this switch index: the frames lie in guest memory.
    Port(u32),
    /// A link: the frames lie in this buffer.
    Link(&'a [u8]),
}

/// Delivers frames to receive queue `to.1` of port `to.0`, as far as buffers and time allow.
pub(crate) fn deliver_to_queue(
    switch: &mut Switch,
    scratch: &mut Scratch,
    cx: &mut Context<'_>,
    from: Ingress<'_>,
    to: (u32, usize),
    delivery: &mut Delivery<'_>,
) -> DeliveryOutcome {
    let (place, queue) = to;
    let mut outcome =
        DeliveryOutcome { committed: delivery.frames.len(), ..DeliveryOutcome::default() };
    let sender = match from {
        Ingress::Port(from) => match switch.get(from) {
            Some(port) => Some(port.id),
            None => return outcome,
        },
        Ingress::Link(_) => None,
    };
    let Some(receiver) = switch.get_mut(place) else { return outcome };
    let (id, mtu, features) = (receiver.id, receiver.spec.mtu, receiver.features);
    let exchange = receiver.exchange;
    let pair = match (sender, from) {
        (Some(sender), _) => cx
            .ports
            .pair(sender, id)
            .and_then(|(s, r)| Some((FrameStore::Guest(s.map()?), r.queue(queue)?))),
        (None, Ingress::Link(bytes)) => {
            let queue = cx.ports.get_mut(id).and_then(|r| r.queue(queue));
            queue.map(|queue| (FrameStore::Link(bytes), queue))
        }
        (None, Ingress::Port(_)) => None,
    };
    let Some((source, (map, ring))) = pair else {
        delivery.frames.iter().for_each(|_| receiver.counters.count_drop(DropReason::ReceiverDown));
        return outcome;
    };
    let mut to = TargetQueue { map, ring, features, mtu, counters: &mut receiver.counters };
    if let Some(exchange) = &exchange {
        exchange_all(exchange, source, delivery.frames);
    }
    let CopyOutcome { committed, shortage, out_of_time, mut fault, sender_faults } =
        scratch.deliver_all(source, &mut to, delivery, cx.slice);
    if let Some(exchange) = &exchange {
        // Further receivers, captures and later attempts use the group's addresses.
        exchange_all(exchange, source, delivery.frames);
    }
    (outcome.committed, outcome.shortage, outcome.out_of_time) = (committed, shortage, out_of_time);
    if map.is_poisoned() {
        fault = Some(TRUNCATED.into());
    }
    if !switch.mirrors.is_empty() {
        let got = delivery.frames.get(..committed).unwrap_or(&[]);
        switch.mirrors.copy_frames(place, Direction::Out, source, got, cx.now_ns);
    }
    cx.touch(id, queue);
    if let Some(reason) = fault {
        cx.fault(id, reason);
    }
    if let Ingress::Port(from) = from {
        for _ in 0..sender_faults {
            switch.count_drop(from, DropReason::SenderFault);
        }
    }
    outcome
}

/// Returns chains to their sender as used. The guest sees them when the queue is published.
pub(crate) fn return_chains(
    cx: &mut Context<'_>,
    id: PortId,
    queue: usize,
    heads: impl Iterator<Item = u16>,
) {
    let Some((_, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else { return };
    if let Err(error) = ring.push_batch(heads.map(|head| (head, 0))) {
        close_port(cx, id, queue, error);
    }
}

/// Closes a port whose ring is broken. Lost memory reads as zeroes and breaks any ring rule, so the
/// loss is reported in place of the rule.
pub(crate) fn close_port(cx: &mut Context<'_>, id: PortId, queue: usize, error: RingError) {
    let poisoned = cx.ports.get(id).and_then(Port::map).is_some_and(Map::is_poisoned);
    if poisoned {
        cx.fault(id, TRUNCATED);
    } else {
        cx.fault(id, format_args!("queue {queue}: {error}"));
    }
}
