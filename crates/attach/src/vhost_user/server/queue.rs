//! One queue: what the frontend configured, and the ring once it runs.
//!
//! A queue is *started* by its doorbell and *enabled* by a message, or at once
//! where protocol features were not negotiated. It *runs* while it is both and
//! its ring lies in granted memory. Configuration is frozen while it runs; a
//! frontend that reconfigures a queue which it has disabled stops it by that
//! (user-mode Linux does).

use std::sync::Arc;

use causeway_memory::{DirtyLog, Map};
use causeway_ring::position::Position;
use causeway_ring::{Doorbell, DoorbellError, Notifier, Queue, Setup};
use vhost::vhost_user::message::FrontendReq;

use super::super::fault::{Part, Reason};
use super::super::message::RingAddresses;
use super::inflight::InflightBuffer;
use super::model::features;

/// The flag of a ring whose writes are noted.
const LOGS: u32 = 1;

/// One queue of a device.
#[derive(Debug, Default)]
pub struct VirtQueue {
    /// The ring; there while the queue runs.
    pub ring: Option<Queue>,
    index: usize,
    size: Option<u16>,
    addresses: Option<RingAddresses>,
    /// Where the ring begins when the queue is started, as [`VirtQueue::base`] has it; none if
    /// nobody has said.
    base: Option<u32>,
    /// Where the ring stood when it stopped: a start elsewhere is a driver's new beginning.
    stood: Option<u32>,
    started: bool,
    /// As the frontend said; it need not say anything.
    enabled: Option<bool>,
    doorbell: Option<Arc<Doorbell>>,
    notifier: Option<Notifier>,
    error: Option<Notifier>,
    /// The guest addresses that the ring runs at.
    placed: Option<(u64, u64, u64)>,
    /// Where what the ring wrote is noted when it stops: nobody needs it whole before.
    log: Option<Arc<DirtyLog>>,
}

impl VirtQueue {
    pub(super) fn new(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    /// The queue's doorbell, while it is started; none if the frontend wants to be polled.
    /// Whoever watches it keeps this handle until the watch is taken back.
    pub fn doorbell(&self) -> Option<&Arc<Doorbell>> {
        self.doorbell.as_ref()
    }

    /// The guest's notification, if it wants any.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.notifier.as_ref()
    }

    /// Notifies the guest, if it wants that at all.
    ///
    /// # Errors
    /// The frontend made it wait ([`Notifier::notify`]).
    pub fn notify(&self) -> Result<(), DoorbellError> {
        self.notifier.as_ref().map_or(Ok(()), Notifier::notify)
    }

    /// Whether a notification was held up.
    pub(super) fn held_up(&self) -> bool {
        self.notifier.as_ref().is_some_and(Notifier::blocked)
    }

    /// Tells the frontend that the ring is broken, if it wants to know.
    pub fn signal_error(&self) {
        if let Some(error) = &self.error {
            // Its port is closed for what this tells of.
            let _ = error.notify();
        }
    }

    /// Whether the queue runs.
    pub fn runs(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether the frontend has started the queue, running or not.
    pub fn started(&self) -> bool {
        self.started
    }

    /// Ring size in descriptors, once configured.
    pub fn size(&self) -> Option<u16> {
        self.size
    }

    /// For a message that changes the configuration: refuses while the queue runs, and stops it
    /// if it is started but disabled.
    fn configure(&mut self, request: FrontendReq) -> Result<(), Reason> {
        if self.runs() {
            return Err(Reason::QueueRunning { request, queue: self.index });
        }
        self.started = false;
        self.doorbell = None;
        Ok(())
    }

    pub(super) fn set_size(&mut self, size: u32, max: u16, acked: u64) -> Result<(), Reason> {
        self.configure(FrontendReq::SET_VRING_NUM)?;
        let fits = |n: &u16| n.is_power_of_two() || is_packed(acked) && *n > 0;
        let good = u16::try_from(size).ok().filter(|n| fits(n) && *n <= max);
        let size = good.ok_or(Reason::RingSize { queue: self.index, size, max })?;
        self.size = Some(size);
        Ok(())
    }

    pub(super) fn set_addresses(
        &mut self,
        addresses: RingAddresses,
        acked: u64,
    ) -> Result<(), Reason> {
        let logs = addresses.flags == LOGS && acked & features::LOG_ALL != 0;
        // Whether its pages are noted may change once it is started, and nothing else; it follows
        // the features.
        let same = self.addresses.as_ref().is_some_and(|old| addresses.lies_as(old));
        if !(self.started && same) {
            self.configure(FrontendReq::SET_VRING_ADDR)?;
        }
        if addresses.flags != 0 && !logs {
            return Err(Reason::RingFlags { queue: self.index, flags: addresses.flags });
        }
        self.addresses = Some(addresses);
        Ok(())
    }

    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Notes all of the ring: what we wrote of it, and what not.
    fn mark(&self) {
        let (Some(log), Some((desc, avail, used))) = (&self.log, self.placed) else { return };
        let size = u64::from(self.size.unwrap_or(0));
        let bytes = |each: u64| size.saturating_mul(each).saturating_add(6);
        for (addr, len) in [(desc, bytes(16)), (avail, bytes(2)), (used, bytes(8))] {
            log.mark(addr, len);
        }
    }

    pub(super) fn set_base(&mut self, base: u32, acked: u64) -> Result<(), Reason> {
        self.configure(FrontendReq::SET_VRING_BASE)?;
        let base = match (is_packed(acked), base >> 16) {
            (false, 1..) => return Err(Reason::RingBase { queue: self.index, base }),
            // Only QEMU says where the used entries go on; others mean the same place.
            (true, 0) => both(base),
            _ => base,
        };
        self.base = Some(base);
        Ok(())
    }

    /// Starts the queue; `doorbell` is none where the frontend wants to be polled.
    pub(super) fn start(&mut self, doorbell: Option<Doorbell>) -> Result<(), Reason> {
        let early = |missing| Reason::Early {
            request: FrontendReq::SET_VRING_KICK,
            queue: self.index,
            missing,
        };
        if self.size.is_none() {
            return Err(early("SET_VRING_NUM"));
        }
        if self.addresses.is_none() {
            return Err(early("SET_VRING_ADDR"));
        }
        self.doorbell = doorbell.map(Arc::new);
        self.started = true;
        Ok(())
    }

    pub(super) fn set_notifier(&mut self, notifier: Option<Notifier>) {
        self.notifier = notifier;
    }

    pub(super) fn set_error(&mut self, error: Option<Notifier>) {
        self.error = error;
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = Some(enabled);
    }

    /// Forgets what SET_VRING_ENABLE said.
    pub(super) fn reset_enabled(&mut self) {
        self.enabled = None;
    }

    /// Whether the queue should run, were its memory there.
    pub(super) fn wanted(&self, acked: u64) -> bool {
        let at_once = acked & features::PROTOCOL_FEATURES == 0;
        self.started && self.enabled.unwrap_or(at_once)
    }

    /// Whether a start now is a driver's new beginning.
    pub(super) fn begins_anew(&self) -> bool {
        self.stood.is_some_and(|stood| Some(stood) != self.base)
    }

    pub(super) fn forget_position(&mut self) {
        self.stood = None;
    }

    /// Makes the ring, which must lie in `map`.
    pub(super) fn run(
        &mut self,
        map: &Map,
        acked: u64,
        inflight: Option<&InflightBuffer>,
    ) -> Result<(), Reason> {
        let queue = self.index;
        let (Some(size), Some(addresses)) = (self.size, self.addresses) else { return Ok(()) };
        let placed = self.place(map, &addresses)?;
        let (next, used) = self.begin(acked)?;
        let setup = Setup {
            size,
            desc: placed.0,
            avail: placed.1,
            used: placed.2,
            event_index: acked & features::EVENT_IDX != 0,
            indirect: acked & features::INDIRECT_DESC != 0,
            next,
        };
        let wrong = |source| Reason::Ring { queue, source };
        let ring = match is_packed(acked) {
            true => Queue::packed(setup, used, map),
            false => Queue::new(setup, map),
        };
        let mut ring = ring.map_err(wrong)?;
        if let Some(record) = inflight.and_then(|buffer| buffer.of(queue, size, is_packed(acked))) {
            ring.record(record.map_err(wrong)?).map_err(wrong)?;
        } else if ring.locate().map_err(wrong)? {
            // It may wait for what the backend before used. That this is held up is found when the
            // message is done.
            let _ = self.notify();
        }
        self.placed = Some(placed);
        self.ring = Some(ring);
        Ok(())
    }

    /// Where a ring goes on to take chains, and a packed one to use them.
    fn begin(&self, acked: u64) -> Result<(u16, u16), Reason> {
        let fresh = if is_packed(acked) { both(u32::from(Position::START.bits())) } else { 0 };
        let base = self.base.unwrap_or(fresh);
        // Set before the features were: as a split ring's it may be too large.
        match (base.to_le_bytes(), is_packed(acked)) {
            ([n0, n1, u0, u1], true) => {
                Ok((u16::from_le_bytes([n0, n1]), u16::from_le_bytes([u0, u1])))
            }
            ([n0, n1, 0, 0], false) => Ok((u16::from_le_bytes([n0, n1]), 0)),
            _ => Err(Reason::RingBase { queue: self.index, base }),
        }
    }

    /// Follows to a new map. The ring must still be where it was.
    pub(super) fn follow(&mut self, map: &Map) -> Result<(), Reason> {
        let queue = self.index;
        let Some(addresses) = self.addresses else { return Ok(()) };
        let placed = self.place(map, &addresses)?;
        if Some(placed) != self.placed {
            return Err(Reason::RingMoved { queue });
        }
        match &mut self.ring {
            Some(ring) => ring.remap(map).map_err(|source| Reason::Ring { queue, source }),
            None => Ok(()),
        }
    }

    /// Guest addresses of the descriptor table, the available and the used ring.
    fn place(&self, map: &Map, at: &RingAddresses) -> Result<(u64, u64, u64), Reason> {
        let queue = self.index;
        if map.is_empty() {
            return Err(Reason::NoMemory { queue });
        }
        let guest =
            |part, user| map.user_to_guest(user).ok_or(Reason::RingAddress { queue, part, user });
        Ok((
            guest(Part::Descriptors, at.descriptors)?,
            guest(Part::Available, at.available)?,
            guest(Part::Used, at.used)?,
        ))
    }

    /// Takes the ring down, giving back what is in flight; says whether there was one.
    /// The queue goes on from where it stood when it runs again.
    pub(super) fn halt(&mut self) -> bool {
        let Some(mut ring) = self.ring.take() else { return false };
        // A ring that cannot be reached any more has nobody to be told.
        if ring.finish().unwrap_or(false) {
            // That it was held up is found when the message is done.
            let _ = self.notify();
        }
        self.base = Some(stands(&ring));
        self.stood = self.base;
        self.mark();
        self.placed = None;
        true
    }

    /// After [`Self::halt`]: the queue waits for a new start.
    pub(super) fn stop(&mut self) {
        self.started = false;
        self.doorbell = None;
    }

    /// Where the ring stands, or would begin: of a split ring the next available index, of a
    /// packed one its position twice, for what is available and what is used.
    pub(super) fn base(&self, acked: u64) -> u32 {
        let fresh = || self.begin(acked).map_or(0, |(next, used)| join(next, used));
        self.ring.as_ref().map_or_else(fresh, stands)
    }
}

/// Whether the rings are packed.
pub(super) fn is_packed(acked: u64) -> bool {
    acked & features::RING_PACKED != 0
}

/// The base of a packed ring: where chains are taken, and where they are used.
fn join(next: u16, used: u16) -> u32 {
    u32::from(next) | u32::from(used) << 16
}

/// The base of a packed ring that has nothing in flight.
fn both(next: u32) -> u32 {
    next | next << 16
}

/// Where a ring stands that has nothing in flight.
fn stands(ring: &Queue) -> u32 {
    let next = u32::from(ring.next_available());
    match ring {
        Queue::Split(_) => next,
        Queue::Packed(_) => both(next),
    }
}
