//! A virtqueue: the frontend's configuration, and the ring while it runs.
//!
//! A queue is *started* by its doorbell and *enabled* by a message, or at once if protocol features
//! were not negotiated. It *runs* while it is both and its ring lies in granted memory. Size, base
//! and addresses of the ring are frozen while it runs: a message that sets them ends the
//! attachment, except one that repeats the addresses. For a queue that is started and disabled such
//! a message undoes the start (user-mode Linux does this). `backend` changes the configuration; the
//! service uses [`VirtQueue::ring`], and the dispatcher watches [`VirtQueue::doorbell`] and calls
//! [`VirtQueue::notify`].
//!
//! The module does not watch doorbells, pops no chains and decides no notification of served
//! chains. A stop pushes all chains in flight back unwritten, unless the ring is broken or
//! unreachable, and notifies a guest that wants that. Sizes beyond the model's limit and addresses
//! outside granted memory end the attachment.

use std::sync::Arc;

use causeway_memory::{DirtyLog, Map};
use causeway_ring::position::Position;
use causeway_ring::{Doorbell, DoorbellError, Notifier, Queue, QueueSetup};

use super::super::fault::{Reason, RingPart};
use super::super::message::RingAddresses;
use super::inflight::InflightBuffer;
use super::model::features;
use crate::vhost_user::codes::FrontendReq;

/// Flag of SET_VRING_ADDR: writes to the used ring are logged.
const LOGS: u32 = 1;

/// One queue of a device.
#[derive(Debug, Default)]
pub struct VirtQueue {
    /// The ring, while the queue runs.
    pub ring: Option<Queue>,
    /// The queue's number.
    index: usize,
    /// Ring size in descriptors; `None` until the frontend sets it.
    size: Option<u16>,
    /// Addresses of the ring's parts in the frontend's address space.
    addresses: Option<RingAddresses>,
    /// The position at which the ring starts, in the format of [`VirtQueue::base`]; `None` if the
    /// frontend did not set it.
    base: Option<u32>,
    /// The position at which the ring stopped. A start at another position means a driver's reset.
    stopped_at: Option<u32>,
    /// Set by SET_VRING_KICK.
    started: bool,
    /// Set by SET_VRING_ENABLE; `None` if the frontend did not send it.
    enabled: Option<bool>,
    /// The doorbell of a started queue; `None` if the frontend wants to be polled.
    doorbell: Option<Arc<Doorbell>>,
    /// The guest's notifier; `None` if the frontend wants no notifications.
    notifier: Option<Notifier>,
    /// The guest addresses of the running ring: descriptor table, available ring, used ring.
    guest_addresses: Option<(u64, u64, u64)>,
    /// The dirty log. Ring pages are marked when the ring stops: a migration needs them complete
    /// only then.
    log: Option<Arc<DirtyLog>>,
}

impl VirtQueue {
    pub(super) fn new(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    /// Returns the doorbell of a started queue, or `None` if the frontend wants to be polled. A
    /// watcher must keep this handle until it has removed the watch.
    pub fn doorbell(&self) -> Option<&Arc<Doorbell>> {
        self.doorbell.as_ref()
    }

    /// Returns the guest's notifier, if the guest wants notifications.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.notifier.as_ref()
    }

    /// Notifies the guest, if it wants notifications.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked the notification ([`Notifier::notify`]).
    pub fn notify(&self) -> Result<(), DoorbellError> {
        self.notifier.as_ref().map_or(Ok(()), Notifier::notify)
    }

    /// Returns whether a notification was blocked.
    pub(super) fn held_up(&self) -> bool {
        self.notifier.as_ref().is_some_and(Notifier::is_blocked)
    }

    /// Returns whether the queue runs.
    pub fn is_running(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns whether the frontend has started the queue, running or not.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Returns the ring size in descriptors, once configured.
    pub fn size(&self) -> Option<u16> {
        self.size
    }

    /// Prepares for a message that changes the configuration: undoes the start of a queue that is
    /// disabled. Returns [`Reason::QueueRunning`] if the queue runs.
    fn configure(&mut self, request: FrontendReq) -> Result<(), Reason> {
        if self.is_running() {
            return Err(Reason::QueueRunning { request, queue: self.index });
        }
        self.started = false;
        self.doorbell = None;
        Ok(())
    }

    /// Sets the ring size: 1 to `max`, for a split ring a power of two.
    pub(super) fn set_size(&mut self, size: u32, max: u16, acked: u64) -> Result<(), Reason> {
        self.configure(FrontendReq::SET_VRING_NUM)?;
        let fits = |n: &u16| n.is_power_of_two() || is_packed(acked) && *n > 0;
        let good = u16::try_from(size).ok().filter(|n| fits(n) && *n <= max);
        let size = good.ok_or(Reason::RingSize { queue: self.index, size, max })?;
        self.size = Some(size);
        Ok(())
    }

    /// Sets the addresses of the ring's parts.
    pub(super) fn set_addresses(
        &mut self,
        addresses: RingAddresses,
        acked: u64,
    ) -> Result<(), Reason> {
        let logs = addresses.flags == LOGS && acked & features::LOG_ALL != 0;
        // The logging flag may change after the start, and nothing else; it follows the features.
        let same = self.addresses.as_ref().is_some_and(|old| addresses.has_same_addresses(old));
        if !(self.started && same) {
            self.configure(FrontendReq::SET_VRING_ADDR)?;
        }
        if addresses.flags != 0 && !logs {
            return Err(Reason::RingFlags { queue: self.index, flags: addresses.flags });
        }
        self.addresses = Some(addresses);
        Ok(())
    }

    /// Sets the dirty log for the pages of the ring.
    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Marks all pages of the ring as dirty, including those that only the driver writes.
    fn mark_dirty(&self) {
        let (Some(log), Some((desc, avail, used))) = (&self.log, self.guest_addresses) else {
            return;
        };
        let size = u64::from(self.size.unwrap_or(0));
        let bytes = |each: u64| size.saturating_mul(each).saturating_add(6);
        for (addr, len) in [(desc, bytes(16)), (avail, bytes(2)), (used, bytes(8))] {
            log.mark(addr, len);
        }
    }

    /// Sets the position at which the ring starts.
    pub(super) fn set_base(&mut self, base: u32, acked: u64) -> Result<(), Reason> {
        self.configure(FrontendReq::SET_VRING_BASE)?;
        let base = match (is_packed(acked), base >> 16) {
            (false, 1..) => return Err(Reason::RingBase { queue: self.index, base }),
            // Only QEMU sends the used position; other frontends mean the same position for both.
            (true, 0) => both(base),
            _ => base,
        };
        self.base = Some(base);
        Ok(())
    }

    /// Starts the queue. `doorbell` is `None` if the frontend wants to be polled.
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

    /// Sets or removes the guest's notifier.
    pub(super) fn set_notifier(&mut self, notifier: Option<Notifier>) {
        self.notifier = notifier;
    }

    /// Stores the value of SET_VRING_ENABLE.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = Some(enabled);
    }

    /// Clears the value of SET_VRING_ENABLE.
    pub(super) fn reset_enabled(&mut self) {
        self.enabled = None;
    }

    /// Returns whether the queue is started and enabled.
    pub(super) fn should_run(&self, acked: u64) -> bool {
        let at_once = acked & features::PROTOCOL_FEATURES == 0;
        self.started && self.enabled.unwrap_or(at_once)
    }

    /// Returns whether a start now means a driver's reset.
    pub(super) fn starts_after_reset(&self) -> bool {
        self.stopped_at.is_some_and(|stopped_at| Some(stopped_at) != self.base)
    }

    /// Forgets the position at which the ring stopped.
    pub(super) fn forget_position(&mut self) {
        self.stopped_at = None;
    }

    /// Creates the ring, which must lie in `map`.
    pub(super) fn run(
        &mut self,
        map: &Map,
        acked: u64,
        inflight: Option<&InflightBuffer>,
    ) -> Result<(), Reason> {
        let queue = self.index;
        let (Some(size), Some(addresses)) = (self.size, self.addresses) else { return Ok(()) };
        let guest_addresses = self.locate_guest(map, &addresses)?;
        let (next, used) = self.start_position(acked)?;
        let setup = QueueSetup {
            size,
            desc: guest_addresses.0,
            avail: guest_addresses.1,
            used: guest_addresses.2,
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
            // The guest may wait for entries that the previous backend used. A blocked notification
            // is detected when the message is done.
            let _ = self.notify();
        }
        self.guest_addresses = Some(guest_addresses);
        self.ring = Some(ring);
        Ok(())
    }

    /// Returns the available position of the ring, and the used position of a packed ring.
    fn start_position(&self, acked: u64) -> Result<(u16, u16), Reason> {
        let fresh = if is_packed(acked) { both(u32::from(Position::START.bits())) } else { 0 };
        let base = self.base.unwrap_or(fresh);
        // The base may have been set before the features, and then be too large for a split ring.
        match (base.to_le_bytes(), is_packed(acked)) {
            ([n0, n1, u0, u1], true) => {
                Ok((u16::from_le_bytes([n0, n1]), u16::from_le_bytes([u0, u1])))
            }
            ([n0, n1, 0, 0], false) => Ok((u16::from_le_bytes([n0, n1]), 0)),
            _ => Err(Reason::RingBase { queue: self.index, base }),
        }
    }

    /// Moves the ring to a new map, in which it must have the same guest addresses.
    pub(super) fn follow(&mut self, map: &Map) -> Result<(), Reason> {
        let queue = self.index;
        let Some(addresses) = self.addresses else { return Ok(()) };
        let guest_addresses = self.locate_guest(map, &addresses)?;
        if Some(guest_addresses) != self.guest_addresses {
            return Err(Reason::RingMoved { queue });
        }
        match &mut self.ring {
            Some(ring) => ring.remap(map).map_err(|source| Reason::Ring { queue, source }),
            None => Ok(()),
        }
    }

    /// Returns the guest addresses of the descriptor table, the available ring and the used ring.
    fn locate_guest(&self, map: &Map, at: &RingAddresses) -> Result<(u64, u64, u64), Reason> {
        let queue = self.index;
        if map.is_empty() {
            return Err(Reason::NoMemory { queue });
        }
        let guest =
            |part, user| map.user_to_guest(user).ok_or(Reason::RingAddress { queue, part, user });
        Ok((
            guest(RingPart::Descriptors, at.descriptors)?,
            guest(RingPart::Available, at.available)?,
            guest(RingPart::Used, at.used)?,
        ))
    }

    /// Removes the ring and pushes the chains in flight back unwritten, if the ring is reachable;
    /// returns whether there was a ring. The queue continues from the same position when it runs
    /// again.
    pub(super) fn halt(&mut self) -> bool {
        let Some(mut ring) = self.ring.take() else { return false };
        // An unreachable ring has no chains to return.
        if ring.finish().unwrap_or(false) {
            // A blocked notification is detected when the message is done.
            let _ = self.notify();
        }
        self.base = Some(position_of(&ring));
        self.stopped_at = self.base;
        self.mark_dirty();
        self.guest_addresses = None;
        true
    }

    /// Marks the queue as not started, after [`Self::halt`].
    pub(super) fn stop(&mut self) {
        self.started = false;
        self.doorbell = None;
    }

    /// Returns the ring's position: the next available index of a split ring, or the available and
    /// used positions of a packed ring, 16 bits each.
    pub(super) fn base(&self, acked: u64) -> u32 {
        let fresh = || self.start_position(acked).map_or(0, |(next, used)| join(next, used));
        self.ring.as_ref().map_or_else(fresh, position_of)
    }
}

/// Returns whether the rings are packed.
pub(super) fn is_packed(acked: u64) -> bool {
    acked & features::RING_PACKED != 0
}

/// Joins the available and used position of a packed ring to a base.
fn join(next: u16, used: u16) -> u32 {
    u32::from(next) | u32::from(used) << 16
}

/// Returns the base of a packed ring without chains in flight.
fn both(next: u32) -> u32 {
    next | next << 16
}

/// Returns the base of a ring without chains in flight.
fn position_of(ring: &Queue) -> u32 {
    let next = u32::from(ring.next_available());
    match ring {
        Queue::Split(_) => next,
        Queue::Packed(_) => both(next),
    }
}
