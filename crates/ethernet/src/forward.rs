//! From a sender's ring to its receivers: who may send, and who gets a frame.

use causeway_fabric::{Context, Port, PortId, Progress};
use causeway_memory::Map;
use causeway_ring::{Chain, RingError};
use causeway_wire::ethernet::is_group;

use crate::backlog::Sender;
use crate::counters::DropReason;
use crate::deliver::{From, Scratch, To, Trouble};
use crate::job::{Job, Taken};
use crate::limits::BATCH_FRAMES;
use crate::port::{Directory, Last, pair};
use crate::service::Ethernet;
use crate::table::Learnt;

/// Why a port is closed whose memory was taken away under us.
const SHRANK: &str = "granted memory shrank: its file was truncated";

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// To one port.
    To(u32),
    /// To every other port of the group: broadcast and multicast.
    All,
    /// To every other port of the group that learns: the address is unknown.
    Learners,
    /// Nowhere.
    Drop(DropReason),
}

impl Directory {
    /// Whether a port may send from an address. Notes the address where the port learns.
    fn admit(&mut self, place: u32, source: [u8; 6], now_ns: u64) -> bool {
        let Some(port) = self.get(place) else { return false };
        if source == port.spec.mac.0 {
            return true;
        }
        if !port.spec.learn || is_group(source) || source == [0; 6] {
            return false;
        }
        self.table.learn(source, place, now_ns) != Learnt::Forged
    }

    /// As [`Self::route`], by what was found for the sender's last frame where that still holds.
    #[inline]
    fn find(&mut self, from: u32, destination: [u8; 6], now_ns: u64) -> Route {
        let version = self.table.version();
        let Some(port) = self.get_mut(from) else {
            return Route::Drop(DropReason::UnknownDestination);
        };
        if let Some(last) = port.last
            && (last.destination, last.version) == (destination, version)
            && now_ns < last.until_ns
        {
            return Route::To(last.to);
        }
        let route = self.route(from, destination, now_ns);
        if let Route::To(to) = route
            && let Some(until_ns) = self.table.until(destination)
            && let Some(port) = self.get_mut(from)
        {
            port.last = Some(Last { destination, to, version, until_ns });
        }
        route
    }

    /// Where a frame from a port goes.
    pub(crate) fn route(&self, from: u32, destination: [u8; 6], now_ns: u64) -> Route {
        if is_group(destination) {
            return Route::All;
        }
        match self.table.lookup(destination, now_ns) {
            Some(to) if to == from => Route::Drop(DropReason::SamePort),
            Some(to) => Route::To(to),
            None if self.learners.iter().any(|&p| p != from) => Route::Learners,
            None => Route::Drop(DropReason::UnknownDestination),
        }
    }
}

impl Ethernet {
    /// Serves a transmit queue: takes at most `budget` frames and sends each on its way.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        queue: usize,
        budget: usize,
    ) -> Progress {
        let Some(id) = self.directory.get(place).map(|p| p.id) else { return Progress::Parked };
        let mut left = budget;
        let mut progress = Progress::Idle;
        let mut batch = std::mem::take(&mut self.batch);
        while left > 0 {
            match take(cx, id, queue, &mut batch, left.min(BATCH_FRAMES)) {
                Ok(0) => break,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    progress = Progress::Worked;
                    self.send(cx, (place, queue), batch.iter_mut().take(count), &mut left);
                }
                Err(()) => {
                    progress = Progress::Parked;
                    break;
                }
            }
        }
        self.batch = batch;
        self.ahead = 0;
        if progress == Progress::Worked {
            cx.touch(id, queue);
        }
        progress
    }

    /// Sends frames that were taken on their way.
    fn send<'a>(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        batch: impl ExactSizeIterator<Item = &'a mut Taken>,
        left: &mut usize,
    ) {
        let (place, queue) = sender;
        // All of them but the one at hand, as long as none waits.
        self.ahead = u16::try_from(batch.len()).unwrap_or(u16::MAX).saturating_sub(1);
        for taken in batch {
            let Some(me) = self.directory.get(place) else { return };
            let (id, features) = (me.id, me.features);
            let Some(map) = cx.ports.get(id).and_then(Port::map) else { return };
            let held = match taken.job.read(map, &taken.chain, features) {
                Ok(()) => self.forward(cx, sender, taken, left),
                Err((why, len)) => {
                    self.refuse(place, why, len);
                    false
                }
            };
            if held {
                self.ahead = self.ahead.saturating_sub(1);
            } else {
                self.done.push(taken.chain.head());
            }
        }
        if let Some(id) = self.directory.get(place).map(|me| me.id) {
            give_back(cx, id, queue, self.done.drain(..));
        }
        self.done.clear();
    }

    /// Counts a frame that is not even looked at.
    fn refuse(&mut self, place: u32, why: DropReason, len: usize) {
        if let Some(port) = self.directory.get_mut(place) {
            port.counters.transmitted(len);
            port.counters.dropped(why);
        }
    }

    /// Sends a frame on its way; says whether its chain is held.
    fn forward(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        taken: &mut Taken,
        left: &mut usize,
    ) -> bool {
        let job = &taken.job;
        let (place, _) = sender;
        let route = self.decide(place, job, cx.now_ns);
        if let Route::Drop(why) = route {
            self.refuse(place, why, job.len);
            return false;
        }
        if let Some(port) = self.directory.get_mut(place) {
            port.counters.transmitted(job.len);
        }
        if let Route::To(to) = route {
            return self.offer(cx, sender, taken, to);
        }
        let mut targets = std::mem::take(&mut self.targets);
        self.list_targets(place, route, &mut targets);
        // A frame for many is as much work as many frames.
        *left = left.saturating_sub(targets.len().saturating_sub(1));
        let held = match targets.as_slice() {
            [only] => self.offer(cx, sender, taken, *only),
            many => {
                self.offer_all(cx, place, taken, many);
                false
            }
        };
        self.targets = targets;
        held
    }

    /// Checks source and size, and finds the way.
    fn decide(&mut self, place: u32, job: &Job, now_ns: u64) -> Route {
        if !self.directory.get(place).is_some_and(|p| job.fits(p.spec.mtu)) {
            return Route::Drop(DropReason::TooBig);
        }
        if !self.directory.admit(place, job.frame.source, now_ns) {
            return Route::Drop(DropReason::SpoofedSource);
        }
        self.directory.find(place, job.frame.destination, now_ns)
    }

    /// The ports of a frame for many.
    fn list_targets(&self, place: u32, route: Route, targets: &mut Vec<u32>) {
        targets.clear();
        let Directory { members, learners, .. } = &self.directory;
        let all = if route == Route::All { members } else { learners };
        targets.extend(all.iter().copied().filter(|&p| p != place));
    }

    /// Offers a frame to its only receiver. Holds it where that one has no room
    /// now, and says so.
    fn offer(&mut self, cx: &mut Context<'_>, sender: Sender, taken: &mut Taken, to: u32) -> bool {
        let Some(queue) = self.directory.receive_queue(to, &taken.job) else {
            self.directory.dropped(to, DropReason::ReceiverDown);
            return false;
        };
        let mut done = 0;
        // What waits already goes first.
        if !self.directory.waits(to, queue) {
            let from = (sender.0, &taken.chain, &taken.job);
            let to = (to, queue);
            match attempt(&mut self.directory, &mut self.scratch, cx, from, to, &mut done) {
                Attempt::Settled => return false,
                Attempt::Short(had) => return self.hold(cx, sender, taken, done, to, Some(had)),
            }
        }
        self.hold(cx, sender, taken, done, (to, queue), None)
    }

    /// Offers a frame to many; those without room go without.
    fn offer_all(&mut self, cx: &mut Context<'_>, place: u32, taken: &Taken, targets: &[u32]) {
        let job = &taken.job;
        for &to in targets {
            let why = match self.directory.receive_queue(to, job) {
                None => Some(DropReason::ReceiverDown),
                Some(queue) if self.directory.waits(to, queue) => Some(DropReason::NoBuffer),
                Some(queue) => {
                    let from = (place, &taken.chain, job);
                    let to = (to, queue);
                    match attempt(&mut self.directory, &mut self.scratch, cx, from, to, &mut 0) {
                        Attempt::Settled => None,
                        Attempt::Short(_) => Some(DropReason::NoBuffer),
                    }
                }
            };
            if let Some(why) = why {
                self.directory.dropped(to, why);
            }
        }
    }
}

impl Directory {
    /// The receive queue of a port for a frame; `None` when none runs.
    fn receive_queue(&self, to: u32, job: &Job) -> Option<usize> {
        self.get(to)?.receive_queue_for(|| self.flow(job.frame.flow_key(job.head())))
    }

    /// Whether frames wait for a receive queue.
    fn waits(&self, to: u32, queue: usize) -> bool {
        let backlog = self.get(to).and_then(|p| p.backlogs.get(pair(queue)));
        backlog.is_some_and(|b| !b.is_empty())
    }

    /// Counts a frame that a port did not get.
    pub(crate) fn dropped(&mut self, to: u32, why: DropReason) {
        if let Some(port) = self.get_mut(to) {
            port.counters.dropped(why);
        }
    }
}

/// Takes at most `most` frames from a ring into `batch`, and has the first bytes of each on their
/// way to us before the first is looked at: they lie in another processor's cache. Says how many;
/// an error has been reported.
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
    for count in 0..most {
        if batch.len() == count {
            batch.push(Taken::default());
        }
        let Some(Taken { chain, .. }) = batch.get_mut(count) else { return Ok(count) };
        match ring.pop(map, chain) {
            Ok(true) => {
                if let Some(first) = chain.readable().first() {
                    map.prefetch(first.addr);
                    map.prefetch(first.addr.wrapping_add(64));
                }
            }
            Ok(false) => return Ok(count),
            Err(error) => {
                fault(cx, id, queue, error);
                return Err(());
            }
        }
    }
    Ok(most)
}

/// What came of trying to deliver a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Delivered, or dropped and counted.
    Settled,
    /// The receiver has too few buffers; it has this many.
    Short(u16),
}

/// Tries to deliver a frame to receive queue `to.1` of port `to.0`, going on behind `done` pieces.
pub(crate) fn attempt(
    directory: &mut Directory,
    scratch: &mut Scratch,
    cx: &mut Context<'_>,
    from: (u32, &Chain, &Job),
    to: (u32, usize),
    done: &mut usize,
) -> Attempt {
    let (place, chain, job) = from;
    let (to, queue) = to;
    let Some(sender) = directory.get(place).map(|p| p.id) else { return Attempt::Settled };
    let Some(receiver) = directory.get_mut(to) else { return Attempt::Settled };
    let id = receiver.id;
    let delivered = if job.fits(receiver.spec.mtu) {
        let down = Err(Trouble::Drop(DropReason::ReceiverDown));
        cx.ports.pair(sender, id).map_or(down.clone(), |(sender, port)| {
            let (Some(from_map), Some((map, ring))) = (sender.map(), port.queue(queue)) else {
                return down;
            };
            let from = From { map: from_map, chain, job };
            let (features, counters) = (receiver.features, &mut receiver.counters);
            let delivered = scratch.deliver(from, &mut To { map, ring, features, counters }, done);
            match map.poisoned() {
                true => Err(Trouble::Fault(SHRANK.into())),
                false => delivered,
            }
        })
    } else {
        Err(Trouble::Drop(DropReason::TooBig))
    };
    cx.touch(id, queue);
    match delivered {
        Ok(()) => {}
        Err(Trouble::Short(had)) => return Attempt::Short(had),
        Err(Trouble::Drop(DropReason::SenderFault)) => {
            directory.dropped(place, DropReason::SenderFault);
        }
        Err(Trouble::Drop(why)) => directory.dropped(to, why),
        Err(Trouble::Fault(reason)) => {
            cx.fault(id, reason);
            directory.dropped(to, DropReason::ReceiverDown);
        }
    }
    Attempt::Settled
}

/// Gives chains back to their sender, who sees them when the queue is published.
pub(crate) fn give_back(
    cx: &mut Context<'_>,
    id: PortId,
    queue: usize,
    mut heads: impl Iterator<Item = u16>,
) {
    let Some((_, ring)) = cx.ports.get_mut(id).and_then(|p| p.queue(queue)) else { return };
    if let Err(error) = heads.try_for_each(|head| ring.push(head, 0)) {
        fault(cx, id, queue, error);
    }
}

/// Closes a port whose ring is broken. A ring in memory that was lost reads as zeroes, and breaks
/// any rule: then the loss is the reason.
pub(crate) fn fault(cx: &mut Context<'_>, id: PortId, queue: usize, error: RingError) {
    let poisoned = cx.ports.get(id).and_then(Port::map).is_some_and(Map::poisoned);
    if poisoned {
        cx.fault(id, SHRANK);
    } else {
        cx.fault(id, format_args!("queue {queue}: {error}"));
    }
}
