//! The queue messages of the protocol: configure, start and stop queues, and move running queues to
//! a new memory map.
//!
//! [`Backend::handle`] calls this module, which applies the rules of `queue` and reports started
//! and stopped queues as events. A queue runs as soon as it is started by a doorbell and enabled;
//! if its ring does not lie in granted memory then, the attachment ends. When REM_MEM_REG takes the
//! memory of a running queue away, the queue stops, and runs again when ADD_MEM_REG returns the
//! memory; a SET_MEM_TABLE without it ends the attachment. Chains in flight of a stopping queue are
//! pushed unwritten. The module pops no chains and waits for no service. It runs in the
//! dispatcher's thread that serves the port. A queue that is started twice, or configured while it
//! runs, follows the rules of `queue`.

use causeway_memory::Map;
use causeway_ring::{Doorbell, DoorbellError, Notifier};

use super::super::queue::VirtQueue;
use super::{Backend, Event, HandleResult, Message, Outcome, Reason, Reply};
use crate::vhost_user::codes::FrontendReq;
use crate::vhost_user::message::{RingEvent, RingValue};

impl Backend {
    /// Handles the messages that configure one queue.
    pub(super) fn configure_ring(
        &mut self,
        message: Message,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        use FrontendReq as R;
        use Message as M;
        let acked = self.device.acked();
        match message {
            M::SetVringNum(RingValue { index, value }) => {
                let max = self.model.ring_size_max;
                self.queue(R::SET_VRING_NUM, index)?.1.set_size(value, max, acked)
            }
            M::SetVringAddr(addresses) => {
                self.queue(R::SET_VRING_ADDR, addresses.index)?.1.set_addresses(addresses, acked)
            }
            M::SetVringBase(RingValue { index, value }) => {
                self.queue(R::SET_VRING_BASE, index)?.1.set_base(value, acked)
            }
            M::SetVringKick(event) => self.start(event, events),
            M::SetVringCall(event) => {
                let (queue, ring) = self.queue(R::SET_VRING_CALL, event.index)?;
                ring.set_notifier(notifier(R::SET_VRING_CALL, queue, event)?);
                if ring.is_running() {
                    // Entries that were used before a notifier existed must not stay unnoticed.
                    ring.notify().map_err(|source| Reason::Notification { queue, source })?;
                }
                Ok(())
            }
            M::SetVringErr(event) => {
                // A broken ring closes the connection, which the frontend cannot miss: the
                // descriptor is checked, and closed unused.
                let (queue, _) = self.queue(R::SET_VRING_ERR, event.index)?;
                notifier(R::SET_VRING_ERR, queue, event).map(drop)
            }
            M::SetVringEnable(RingValue { index, value }) => {
                let (queue, ring) = self.queue(R::SET_VRING_ENABLE, index)?;
                if value > 1 {
                    return Err(Reason::RingEnable { queue, value });
                }
                ring.set_enabled(value == 1);
                self.update_queue(queue, events)
            }
            _ => Ok(()),
        }
    }

    /// Returns the queue that a message names.
    pub(super) fn queue(
        &mut self,
        request: FrontendReq,
        index: u32,
    ) -> Result<(usize, &mut VirtQueue), Reason> {
        let queues = self.device.queues.len();
        let at = index as usize;
        match self.device.queues.get_mut(at) {
            Some(queue) => Ok((at, queue)),
            None => Err(Reason::QueueIndex { request, index, queues }),
        }
    }

    /// Handles SET_VRING_KICK: starts the queue. A running queue is stopped before.
    fn start(&mut self, event: RingEvent, events: &mut Vec<Event>) -> Result<(), Reason> {
        let request = FrontendReq::SET_VRING_KICK;
        let features_set = self.features_set;
        let (queue, ring) = self.queue(request, event.index)?;
        if !features_set {
            return Err(Reason::Early { request, queue, missing: "SET_FEATURES" });
        }
        let doorbell = match event.fd {
            Some(fd) => Some(Doorbell::new(fd).map_err(|e| not_eventfd(request, queue, e))?),
            None => None,
        };
        // The dispatcher must unwatch the old doorbell of a running queue before the new doorbell
        // is used.
        if ring.halt() {
            events.push(Event::QueueStopped(queue));
        }
        ring.start(doorbell)?;
        self.update_queue(queue, events)
    }

    /// Handles GET_VRING_BASE: stops the queue, and replies with its position.
    pub(super) fn get_base(&mut self, which: RingValue, events: &mut Vec<Event>) -> HandleResult {
        let acked = self.device.acked();
        let (queue, ring) = self.queue(FrontendReq::GET_VRING_BASE, which.index)?;
        if ring.halt() {
            events.push(Event::QueueStopped(queue));
        }
        ring.stop();
        let value = ring.base(acked);
        Ok(Outcome::Reply(Reply::bytes(RingValue { index: which.index, value }.emit())))
    }

    /// Starts or stops queue `index` as its state requires.
    fn update_queue(&mut self, index: usize, events: &mut Vec<Event>) -> Result<(), Reason> {
        let acked = self.device.acked();
        let Some((map, queue)) = self.device.queue_mut(index) else { return Ok(()) };
        match (queue.should_run(acked), queue.is_running()) {
            (true, false) => {
                let is_reset = queue.starts_after_reset();
                queue.run(map, acked, self.inflight.as_ref())?;
                if is_reset {
                    self.device.forget_positions();
                    events.push(Event::Reset);
                }
                events.push(Event::QueueStarted(index));
            }
            (false, true) => {
                queue.halt();
                events.push(Event::QueueStopped(index));
            }
            _ => {}
        }
        Ok(())
    }

    /// Starts or stops every queue as its state requires.
    pub(super) fn update_all_queues(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        (0..self.device.queues.len()).try_for_each(|index| self.update_queue(index, events))
    }

    /// Stops every queue.
    pub(super) fn stop_all(&mut self, events: &mut Vec<Event>) {
        let mut held_up = false;
        for (index, queue) in self.device.queues.iter_mut().enumerate() {
            if held_up {
                // One blocked notification ends the attachment, so further ones are not tried.
                queue.set_notifier(None);
            }
            let halted = queue.halt();
            held_up |= queue.held_up();
            if halted {
                events.push(Event::QueueStopped(index));
            }
            queue.stop();
        }
    }

    /// Installs `map`, and moves every running queue to it. A `whole` table must contain the rings;
    /// between single additions and removals a ring may be unreachable, and its queue stops
    /// meanwhile.
    pub(super) fn change_map(
        &mut self,
        map: Map,
        whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        let log = self.wanted_log();
        let map = map.logged(log.clone());
        for (index, queue) in self.device.queues.iter_mut().enumerate() {
            queue.set_log(log.clone());
            if !queue.is_running() {
                continue;
            }
            match queue.follow(&map) {
                Ok(()) => {}
                Err(reason) if whole => return Err(reason),
                Err(_) => {
                    queue.halt();
                    events.push(Event::QueueStopped(index));
                }
            }
        }
        self.device.replace_map(map);
        events.push(Event::MemoryChanged);
        if whole { self.update_all_queues(events) } else { self.restart_reachable(events) }
    }

    /// Starts queues whose memory is reachable again; the others stay stopped.
    fn restart_reachable(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        for index in 0..self.device.queues.len() {
            match self.update_queue(index, events) {
                Ok(())
                | Err(Reason::NoMemory { .. } | Reason::RingAddress { .. } | Reason::Ring { .. }) =>
                    {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }
}

/// Returns the notifier in a message, or `None` if the frontend wants none.
fn notifier(
    request: FrontendReq,
    queue: usize,
    event: RingEvent,
) -> Result<Option<Notifier>, Reason> {
    let Some(fd) = event.fd else { return Ok(None) };
    Notifier::new(fd).map(Some).map_err(|error| not_eventfd(request, queue, error))
}

fn not_eventfd(request: FrontendReq, queue: usize, source: DoorbellError) -> Reason {
    Reason::NotEventfd { request, queue, source }
}
