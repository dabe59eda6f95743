//! The forwarding decision: from a guest's transmit ring to the egress of each frame.
//!
//! The module pops frames, checks source address and size, resolves the egress (routes first, then
//! the address table), and hands batches to `receivers`. It copies no payload and does not wait for
//! receive buffers.
//!
//! # Budget
//! Frames are popped in batches of at most 32. Every line of a frame lies in another processor's
//! cache, so each step touches the whole batch to keep several misses in flight: the descriptors;
//! the first two lines of the frames; then, for each batch to one receive queue, the descriptors
//! and first two lines of the receive buffers. State that is the same for all frames (ports, maps,
//! rings) is looked up once a batch.

use causeway_fabric::carrier::Body;
use causeway_fabric::{Context, Port, PortId, Progress, cost};
use causeway_memory::{Cursor, Map};
use causeway_model::{Forwarding, GroupKind};
use causeway_ring::{Popped, Queue, RingError};
use causeway_wire::ethernet::{self, is_group};
use causeway_wire::hello;
use causeway_wire::pcapng::Direction;
use causeway_wire::virtio_net::Offload;

use crate::backlog::Sender;
use crate::counters::DropReason;
use crate::deliver::{Scratch, To};
use crate::job::{Job, Taken};
use crate::limits::{BATCH_FRAMES, FLOOD_BYTES, TURNS_OUT};
use crate::offload::{Plan, plan};
use crate::port::{Directory, Last, pair};
use crate::route::SetId;
use crate::run::{Offer, Outcome, Run, Way};
use crate::service::Ethernet;
use crate::source::Source;
use crate::table::Learnt;
use crate::uplink::is_link;

/// Reason for closing a port whose granted memory was truncated.
const SHRANK: &str = "granted memory shrank: its file was truncated";

/// Totals of consecutive frames of one flow.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    frames: usize,
    bytes: usize,
    /// As [`Delivery::longest`].
    longest: usize,
}

/// The properties that most frames of a port share: plain, sent from the port's own address to the
/// destination of the previous frame, and within the MTU.
#[derive(Debug, Clone, Copy)]
struct Usual {
    features: u64,
    source: u64,
    destination: u64,
    most: usize,
}

impl Alike {
    /// Adds one frame; `longest` as [`Delivery::longest`].
    #[inline]
    fn add(&mut self, len: usize, longest: usize) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len);
        self.longest = self.longest.max(longest);
    }
}

impl Usual {
    /// Reads and sums frames while they match the flow and their total is below `room` bytes.
    ///
    /// Returns the first frame that does not match, and whether it is plain.
    #[inline(never)]
    fn follow<'a>(
        &self,
        map: &Map,
        frames: &mut std::slice::IterMut<'a, Taken>,
        alike: &mut Alike,
        room: u64,
    ) -> Option<(&'a mut Taken, bool)> {
        let mut sum = *alike;
        let other = frames.find_map(|taken| {
            let plain = taken.job.read_plain(map, &taken.chain, self.features);
            let Taken { job, held, .. } = &mut *taken;
            let pair = job.source == self.source && job.destination == self.destination;
            if !(plain && pair && job.len <= self.most && (sum.bytes as u64) < room) {
                return Some((taken, plain));
            }
            *held = false;
            sum.add(job.len, job.len);
            None
        });
        *alike = sum;
        other
    }
}

/// The next hop of a frame, before a receive queue is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// One port, or one link bundle.
    To(u32),
    /// The switch indices of a route set.
    Set(SetId),
    /// Every other port of the group and every link: broadcast and multicast.
    All,
    /// Every other port of the group that learns, and every link: the destination is unknown.
    Learners,
    /// None: the frame is dropped.
    Drop(DropReason),
}

impl Directory {
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
    fn find(&mut self, from: u32, destination: u64, now_ns: u64) -> Route {
        let version = self.table.version();
        let (route, until_ns) = self.route_until(from, ethernet::address(destination), now_ns);
        if let Route::To(to) = route
            && let Some(until_ns) = until_ns
            && let Some(port) = self.get_mut(from)
        {
            port.last = Some(Last { destination, to, version, until_ns });
        }
        route
    }

    /// Returns whether a frame goes to several receivers: its destination is a group address, or
    /// neither the table nor a route has it.
    pub(crate) fn goes_to_many(
        &mut self,
        from: u32,
        (source, destination): (u64, u64),
        now_ns: u64,
    ) -> bool {
        match self.route(from, ethernet::address(destination), now_ns) {
            Route::All => true,
            Route::Learners => self.routes.look_up(from, source, destination).is_none(),
            _ => false,
        }
    }

    /// Returns the next hop of a frame from `from`.
    pub(crate) fn route(&self, from: u32, destination: [u8; 6], now_ns: u64) -> Route {
        self.route_until(from, destination, now_ns).0
    }

    /// As [`Self::next_hop`], with the time until which the table entry is valid.
    fn route_until(&self, from: u32, destination: [u8; 6], now_ns: u64) -> (Route, Option<u64>) {
        if is_group(destination) {
            // Hellos of daemons are consumed before this point; guests may not send them.
            if destination == hello::ADDRESS {
                return (Route::Drop(DropReason::UnknownDestination), None);
            }
            return (Route::All, None);
        }
        let away = || self.moved_to(ethernet::number(destination));
        let moved = if self.away.is_empty() { None } else { away() };
        let known = self.table.lookup_until(destination, now_ns);
        let until_ns = known.map(|(_, until_ns)| until_ns);
        let route = match moved.or(known.map(|(to, _)| to)) {
            Some(to) if to == from => Route::Drop(DropReason::SamePort),
            Some(to) => Route::To(to),
            None if self.learners.iter().chain(self.uplinks.up()).any(|&p| p != from) => {
                Route::Learners
            }
            None => Route::Drop(DropReason::UnknownDestination),
        };
        (route, until_ns)
    }
}

impl Ethernet {
    /// Serves a transmit queue: pops at most `budget` frames and forwards each.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        queue: usize,
        budget: usize,
    ) -> Progress {
        let Some(port) = self.directory.get_mut(place) else { return Progress::Parked };
        if let Some(left) = port.sits_out.checked_sub(1) {
            port.sits_out = left;
            return Progress::Idle;
        }
        let (id, mut taken) = (port.id, 0_usize);
        if !self.resume(cx, (place, queue)) {
            return Progress::Worked;
        }
        self.refused = 0;
        let mut left = budget;
        let mut progress = Progress::Idle;
        let mut batch = std::mem::take(&mut self.batch);
        while left > 0 && !(taken > 0 && cx.is_over()) {
            match take(cx, id, queue, &mut batch, left.min(BATCH_FRAMES)) {
                Ok(0) => break,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    taken = taken.saturating_add(count);
                    progress = Progress::Worked;
                    let batch = batch.get_mut(..count).unwrap_or(&mut []);
                    self.send(cx, (place, queue), batch, &mut left);
                }
                Err(()) => {
                    progress = Progress::Parked;
                    break;
                }
            }
        }
        self.batch = batch;
        self.ahead = 0;
        if taken > 0
            && self.refused >= taken
            && let Some(port) = self.directory.get_mut(place)
        {
            port.sits_out = TURNS_OUT;
        }
        if progress == Progress::Worked {
            self.directory.traffic.enter(cx.now_ns);
            cx.touch(id, queue);
        }
        progress
    }

    /// Forwards popped frames and returns their chains to the sender.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        batch: &mut [Taken],
        left: &mut usize,
    ) {
        let sorted = self.sort(cx, sender.0, batch, *left);
        let Some((batch, beyond)) = batch.split_at_mut_checked(sorted) else { return };
        put_back(cx, self.directory.get(sender.0).map(|me| me.id), sender.1, beyond);
        // All of them except the frame being delivered, as long as none is pending.
        self.ahead = u16::try_from(batch.len()).unwrap_or(u16::MAX).saturating_sub(1);
        let mut runs = std::mem::take(&mut self.runs);
        let mut rest = &mut *batch;
        for Run { way, count, longest } in runs.0.drain(..) {
            let Some((frames, later)) = rest.split_at_mut_checked(count) else { break };
            rest = later;
            match way {
                Way::Done => {}
                Way::To(to, queue) => {
                    let offer = Offer { frames, longest, done: 0 };
                    self.offer(cx, sender, offer, (to, queue));
                }
                Way::Link(to) => self.offer_to_link(cx, sender, frames, to, 0),
                Way::All | Way::Learners | Way::Set(_) => {
                    self.offer_all(cx, sender, frames, way, left);
                }
            }
        }
        self.runs = runs;
        self.show_refused(cx, sender.0);
        if let Some(id) = self.directory.get(sender.0).map(|me| me.id) {
            let through = batch.iter().filter(|taken| !taken.held);
            give_back(cx, id, sender.1, through.map(|taken| taken.chain.head()));
        }
    }

    /// Reads and checks the first bytes of each frame, and cuts the frames into batches by egress.
    ///
    /// Returns the number of classified frames. Frames behind flooded frames whose copies exceed
    /// `left`, and frames beyond the estimated time of the turn, are not classified.
    #[inline(never)]
    fn sort(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        batch: &mut [Taken],
        mut left: usize,
    ) -> usize {
        let me = self.directory.get(place);
        let found = me.and_then(|me| Some((me, cx.ports.get(me.id).and_then(Port::map)?)));
        self.runs.0.clear();
        let Some((me, map)) = found else { return batch.len() };
        let (features, mac, mtu) = (me.features, me.mac, me.spec.mtu);
        self.directory.routes.tidy();
        let most = usize::from(mtu).saturating_add(ethernet::HEADER_LEN);
        let (mut count, mut bytes) = (0_usize, 0_usize);
        // Estimated time of the frames, of their segments and copies, and of their descriptors.
        let (limit_ns, mut all_ns, mut chains_ns) = (cx.left_ns(), 0_u64, 0_u64);
        // The flow that the next frames are compared with; the frames that matched it; the batch of
        // both.
        let mut usual: Option<Usual> = None;
        let (mut alike, mut run) = (Alike::default(), Run::default());
        let mut frames = batch.iter_mut();
        loop {
            let next = match &usual {
                Some(usual) => {
                    let room = limit_ns.saturating_sub(all_ns).saturating_mul(8);
                    usual.follow(map, &mut frames, &mut alike, room)
                }
                None => frames.next().map(|taken| {
                    let plain = taken.job.read_plain(map, &taken.chain, features);
                    (taken, plain)
                }),
            };
            let Some((taken, plain)) = next else { break };
            let alike_ns = cost::bytes(alike.bytes);
            let any = count.wrapping_add(alike.frames) > 0;
            if any && all_ns.saturating_add(alike_ns) >= limit_ns {
                break;
            }
            let read = match plain {
                true => Ok(()),
                false => {
                    let spans = taken.chain.readable().len() as u64;
                    let spans_ns = spans.saturating_mul(cost::SPAN_NS);
                    chains_ns = chains_ns.saturating_add(spans_ns);
                    all_ns = all_ns.saturating_add(spans_ns);
                    taken.job.read_any(map, &taken.chain, features)
                }
            };
            taken.held = false;
            let len = taken.job.len;
            let fits = if plain { len <= most } else { taken.job.fits(mtu) };
            let own = read.is_ok() && taken.job.source == mac && fits;
            let longest = if plain { len } else { usize::MAX };
            let destination = taken.job.destination;
            if own && usual.is_some_and(|usual| usual.destination == destination) {
                alike.add(len, longest);
                continue;
            }
            count = count.wrapping_add(alike.frames).wrapping_add(1);
            bytes = bytes.wrapping_add(alike.bytes).wrapping_add(len);
            all_ns = all_ns.saturating_add(alike_ns);
            self.count_usual(place, usual, (&mut alike, &mut run), cx.now_ns);
            let sent = read.and_then(|()| self.directory.send(place, map, taken, cx.now_ns));
            // Refused frames would fill the traffic matrix with forged addresses.
            if sent.is_ok() {
                self.directory.count_traffic(place, &taken.job, cx.now_ns);
            }
            let source = taken.job.source;
            let (way, all) = sent.unwrap_or_else(|why| {
                self.directory.dropped(place, why);
                if why == DropReason::SpoofedSource
                    && let Some(me) = self.directory.get_mut(place)
                    && me.refused.is_none_or(|(last, _)| last != source)
                {
                    me.refused = Some((source, false));
                }
                self.refused = self.refused.saturating_add(usize::from(why.is_senders_fault()));
                (Way::Done, false)
            });
            usual = (all && own).then_some(Usual { features, source: mac, destination, most });
            self.runs.push(std::mem::replace(&mut run, Run { way, count: 1, longest }));
            let mut frame_ns = cost::bytes(len);
            if taken.job.offload != Offload::None {
                let pieces = self.directory.pieces(way, &taken.job) as u64;
                frame_ns = frame_ns.saturating_add(pieces.saturating_mul(cost::PIECE_NS));
            }
            let receivers = match way {
                Way::All => self.directory.members.len(),
                Way::Learners => self.directory.learners.len(),
                Way::Set(set) => self.directory.routes.places(set).len(),
                Way::Done | Way::To(..) | Way::Link(_) => {
                    all_ns = all_ns.saturating_add(frame_ns);
                    continue;
                }
            };
            let receivers = receivers.saturating_add(self.directory.uplinks.up().len());
            let copies_ns = frame_ns.saturating_add(cost::CHAIN_NS);
            all_ns = all_ns.saturating_add(copies_ns.saturating_mul(receivers as u64));
            left = left.saturating_sub(receivers);
            if left == 0 {
                break;
            }
        }
        count = count.wrapping_add(alike.frames);
        bytes = bytes.wrapping_add(alike.bytes);
        self.count_usual(place, usual, (&mut alike, &mut run), cx.now_ns);
        self.runs.push(run);
        if let Some(me) = self.directory.get_mut(place) {
            me.counters.transmitted(count, bytes);
        }
        if !self.directory.taps.is_empty() {
            let (source, sent) = (Source::Guest(map), batch.get(..count).unwrap_or(&[]));
            self.directory.taps.show(place, Direction::In, source, sent, cx.now_ns);
        }
        let frames_ns = (count as u64).saturating_mul(cost::CHAIN_NS);
        cx.charge(frames_ns.saturating_add(cost::bytes(bytes)).saturating_add(chains_ns));
        count
    }

    /// Adds the frames that matched a flow to its batch, and counts them in the traffic matrix.
    fn count_usual(
        &mut self,
        place: u32,
        usual: Option<Usual>,
        (alike, run): (&mut Alike, &mut Run),
        now_ns: u64,
    ) {
        let alike = std::mem::take(alike);
        if let Some(Usual { source, destination, .. }) = usual {
            run.count = run.count.wrapping_add(alike.frames);
            run.longest = run.longest.max(alike.longest);
            self.directory.count_alike(place, (source, destination), alike, now_ns);
        }
    }
}

impl Directory {
    /// Checks source and size of a frame, and resolves its egress.
    ///
    /// The flag is set if the egress holds for every frame to the same destination while the table
    /// version and the running queues stay the same.
    fn send(
        &mut self,
        place: u32,
        map: &Map,
        taken: &mut Taken,
        now_ns: u64,
    ) -> Result<(Way, bool), DropReason> {
        let Some(me) = self.get(place) else { return Ok((Way::Done, false)) };
        let job = &taken.job;
        let (own, last) = (me.mac == job.source, me.last);
        if !job.fits(me.spec.mtu) {
            return Err(DropReason::TooBig);
        }
        if !own && !self.learn(place, ethernet::address(job.source), now_ns) {
            return Err(DropReason::SpoofedSource);
        }
        if let Some(route) = self.by_routes(place, taken) {
            return Ok((self.choose(map, taken, route?)?, false));
        }
        let job = &taken.job;
        let version = self.table.version();
        let route = match last {
            Some(last) if last.holds(job.destination, version, now_ns) => Route::To(last.to),
            _ => self.find(place, job.destination, now_ns),
        };
        // The common case: one port with one queue.
        if let Route::To(to) = route
            && let Some([only]) = self.get(to).map(|port| port.receive.as_slice())
        {
            return Ok((Way::To(to, *only), true));
        }
        Ok((self.choose(map, taken, route)?, false))
    }

    /// Resolves the egress of a frame to several receivers, or to a port with several queues or
    /// none.
    fn choose(&mut self, map: &Map, taken: &mut Taken, route: Route) -> Result<Way, DropReason> {
        let Taken { chain, job, .. } = taken;
        let flows = match route {
            Route::Drop(why) => return Err(why),
            Route::Set(_) => true,
            Route::To(to) => self.get(to).is_some_and(|port| port.receive.len() > 1),
            Route::All | Route::Learners => true,
        };
        // Only a queue choice by flow needs the transport headers.
        if flows && job.offload == Offload::None {
            job.look_deeper(Body::Guest(map, Cursor::at(chain.readable(), job.rest_at)))?;
        }
        Ok(match route {
            Route::Set(set) => Way::Set(set),
            Route::To(to) if is_link(to) => Way::Link(to),
            Route::All => Way::All,
            Route::Learners => Way::Learners,
            Route::To(to) => match self.receive_queue(to, job) {
                Some(queue) => Way::To(to, queue),
                None => {
                    self.dropped(to, DropReason::ReceiverDown);
                    Way::Done
                }
            },
            Route::Drop(why) => return Err(why),
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
    pub(crate) fn by_routes(
        &mut self,
        place: u32,
        taken: &Taken,
    ) -> Option<Result<Route, DropReason>> {
        if self.is_link_local(taken.job.destination) {
            return Some(Err(DropReason::LinkLocal));
        }
        if self.routes.is_empty() || hello::is_hello(taken.job.destination) {
            return None;
        }
        match self.routes.look_up(place, taken.job.source, taken.job.destination) {
            Some(set) => {
                self.routes.count(set, 1);
                Some(Ok(match self.routes.places(set) {
                    [only] => Route::To(*only),
                    _ => Route::Set(set),
                }))
            }
            None if self.routes.forwarding() == Forwarding::Routes => {
                Some(Err(DropReason::NoRoute))
            }
            None => None,
        }
    }

    /// Returns into how many segments a frame is cut at most; 0 if it passes uncut.
    fn pieces(&self, way: Way, job: &Job) -> usize {
        let Offload::Segment(_, gso) = job.offload else { return 0 };
        let passes = match way {
            Way::Done => true,
            Way::To(to, _) => {
                self.get(to).is_some_and(|port| plan(&job.offload, port.features) == Plan::Pass)
            }
            Way::Link(to) => self.uplinks.takes_offloads(to),
            Way::All | Way::Learners | Way::Set(_) => false,
        };
        let size = usize::from(gso.size);
        if passes { 0 } else { job.len.checked_div(size).unwrap_or(0) }
    }

    /// Lists the receivers of a flooded or routed frame: ports and links.
    pub(crate) fn list_targets(&self, place: u32, way: Way, targets: &mut Vec<u32>) {
        targets.clear();
        let ports = match way {
            Way::Set(set) => {
                targets.extend_from_slice(self.routes.places(set));
                return;
            }
            Way::Learners => &self.learners,
            _ => &self.members,
        };
        targets.extend(ports.iter().copied().filter(|&p| p != place));
        let passes = |to: &u32| !is_link(place) || self.uplinks.may_pass(place, *to);
        targets.extend(self.uplinks.up().iter().copied().filter(passes));
    }

    /// Assigns a flood number to a flooded frame that leaves by a link and has none yet. Peers
    /// detect copies by the number.
    pub(crate) fn number(&mut self, taken: &mut Taken, way: Way, targets: &[u32]) {
        let flooded = matches!(way, Way::All | Way::Learners);
        if flooded && taken.flood.is_none() && targets.iter().any(|to| is_link(*to)) {
            taken.flood = Some(self.floods.draw());
        }
    }

    /// Records a flooded frame of a local port, so that copies that return by a link are dropped.
    pub(crate) fn note_own(&mut self, cx: &Context<'_>, place: u32, taken: &Taken) {
        let Some(port) = self.get(place) else { return };
        let Some(map) = cx.ports.get(port.id).and_then(Port::map) else { return };
        let head = taken.job.head();
        let mut first = vec![0; taken.job.len.min(FLOOD_BYTES)];
        let (copied, rest) = first.split_at_mut_checked(head.len()).unwrap_or((&mut [], &mut []));
        if copied.len() == head.len() {
            copied.copy_from_slice(head);
        }
        // An unreadable frame is not sent either, so its fingerprint does not matter.
        let _ = Cursor::at(taken.chain.readable(), taken.job.rest_at).read(map, rest);
        let print = self.echoes.print(taken.job.len, &first);
        self.echoes.note(print, place, cx.now_ns);
    }

    /// Returns the receive queue of a port for a frame, or `None` if no queue runs.
    pub(crate) fn receive_queue(&self, to: u32, job: &Job) -> Option<usize> {
        self.get(to)?.receive_queue_for(|| self.flow(job.frame.flow_key(job.head())))
    }

    /// Returns whether frames wait for a receive queue.
    pub(crate) fn waits(&self, to: u32, queue: usize) -> bool {
        let backlog = self.get(to).and_then(|p| p.backlogs.get(pair(queue)));
        backlog.is_some_and(|b| !b.is_empty())
    }

    /// Counts a frame in the traffic matrix.
    #[inline]
    pub(crate) fn count_traffic(&mut self, place: u32, job: &Job, now_ns: u64) {
        let one = Alike { frames: 1, bytes: job.len, longest: job.len };
        self.count_alike(place, (job.source, job.destination), one, now_ns);
    }

    /// Counts frames of one address pair in the traffic matrix.
    fn count_alike(&mut self, place: u32, pair: (u64, u64), alike: Alike, now_ns: u64) {
        if alike.frames > 0 {
            let sum = (alike.frames as u64, alike.bytes as u64);
            self.traffic.count(place, pair, sum, now_ns);
        }
    }

    /// Counts a frame that a port or link did not receive.
    pub(crate) fn dropped(&mut self, to: u32, why: DropReason) {
        if is_link(to) {
            self.uplinks.dropped(to, why);
        } else if let Some(port) = self.get_mut(to) {
            port.counters.dropped(why);
        }
    }
}

/// Pops at most `most` frames from a ring. An error closes the port.
fn take(
    cx: &mut Context<'_>,
    id: PortId,
    queue: usize,
    batch: &mut Vec<Taken>,
    most: usize,
) -> Result<usize, ()> {
    let Some((map, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else {
        return Err(());
    };
    if batch.len() < most {
        batch.resize_with(most, Taken::default);
    }
    match pop(map, ring, batch.get_mut(..most).unwrap_or(&mut [])) {
        Ok(count) => Ok(count),
        Err(error) => {
            fault(cx, id, queue, error);
            Err(())
        }
    }
}

/// Pops frames into `batch` until it is full or the ring is empty; returns their number.
fn pop(map: &Map, ring: &mut Queue, batch: &mut [Taken]) -> Result<usize, RingError> {
    let most = batch.len();
    let Popped { mut count, odd } =
        ring.pop_batch(map, batch.iter_mut().map(|taken| &mut taken.chain), most)?;
    let rest = batch.get_mut(count..).filter(|_| odd).unwrap_or(&mut []);
    if odd {
        ring.look_ahead(map, u16::try_from(rest.len()).unwrap_or(u16::MAX));
    }
    for taken in rest {
        if !ring.pop(map, &mut taken.chain)? {
            break;
        }
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// Puts popped frames back into their ring; the next pop returns them.
fn put_back(cx: &mut Context<'_>, id: Option<PortId>, queue: usize, frames: &[Taken]) {
    let Some((_, ring)) = id.and_then(|id| cx.ports.get_mut(id)?.queue(queue)) else { return };
    for taken in frames.iter().rev() {
        ring.put_back(taken.chain.head());
    }
}

/// The result of [`deliver_to_queue`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// Frames that were delivered, or dropped and counted.
    pub settled: usize,
    /// As [`CopyOutcome::shortage`].
    pub short: Option<u16>,
    /// As [`CopyOutcome::out_of_time`].
    pub yielded: bool,
}

/// The ingress of frames.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// The port at this switch index: the frames lie in guest memory.
    Port(u32),
    /// A link: the frames lie in this buffer.
    Link(&'a [u8]),
}

/// Delivers frames to receive queue `to.1` of port `to.0`, as far as buffers and time allow.
pub(crate) fn attempt(
    directory: &mut Directory,
    scratch: &mut Scratch,
    cx: &mut Context<'_>,
    from: Origin<'_>,
    to: (u32, usize),
    offer: &mut Offer<'_>,
) -> Attempt {
    let (place, queue) = to;
    let mut attempt = Attempt { settled: offer.frames.len(), ..Attempt::default() };
    let sender = match from {
        Origin::Port(from) => match directory.get(from) {
            Some(port) => Some(port.id),
            None => return attempt,
        },
        Origin::Link(_) => None,
    };
    let Some(receiver) = directory.get_mut(place) else { return attempt };
    let (id, mtu, features) = (receiver.id, receiver.spec.mtu, receiver.features);
    let pair = match (sender, from) {
        (Some(sender), _) => cx
            .ports
            .pair(sender, id)
            .and_then(|(s, r)| Some((Source::Guest(s.map()?), r.queue(queue)?))),
        (None, Origin::Link(bytes)) => {
            let queue = cx.ports.get_mut(id).and_then(|r| r.queue(queue));
            queue.map(|queue| (Source::Link(bytes), queue))
        }
        (None, Origin::Port(_)) => None,
    };
    let Some((source, (map, ring))) = pair else {
        offer.frames.iter().for_each(|_| receiver.counters.dropped(DropReason::ReceiverDown));
        return attempt;
    };
    let mut to = To { map, ring, features, mtu, counters: &mut receiver.counters };
    let Outcome { settled, short, yielded, mut fault, sender_faults } =
        scratch.deliver_all(source, &mut to, offer, cx.slice);
    (attempt.settled, attempt.short, attempt.yielded) = (settled, short, yielded);
    if map.poisoned() {
        fault = Some(SHRANK.into());
    }
    if !directory.taps.is_empty() {
        let got = offer.frames.get(..settled).unwrap_or(&[]);
        directory.taps.show(place, Direction::Out, source, got, cx.now_ns);
    }
    cx.touch(id, queue);
    if let Some(reason) = fault {
        cx.fault(id, reason);
    }
    if let Origin::Port(from) = from {
        for _ in 0..sender_faults {
            directory.dropped(from, DropReason::SenderFault);
        }
    }
    attempt
}

/// Returns chains to their sender as used. The guest sees them when the queue is published.
pub(crate) fn give_back(
    cx: &mut Context<'_>,
    id: PortId,
    queue: usize,
    heads: impl Iterator<Item = u16>,
) {
    let Some((_, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else { return };
    if let Err(error) = ring.push_batch(heads.map(|head| (head, 0))) {
        fault(cx, id, queue, error);
    }
}

/// Closes a port whose ring is broken. Lost memory reads as zeroes and breaks any ring rule, so the
/// loss is reported in place of the rule.
pub(crate) fn fault(cx: &mut Context<'_>, id: PortId, queue: usize, error: RingError) {
    let poisoned = cx.ports.get(id).and_then(Port::map).is_some_and(Map::poisoned);
    if poisoned {
        cx.fault(id, SHRANK);
    } else {
        cx.fault(id, format_args!("queue {queue}: {error}"));
    }
}
