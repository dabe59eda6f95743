//! A shard: the ports of one group and one service, and the state that serves them.
//!
//! A dispatcher (`crate::dispatcher`) gives a shard its turns, and the shard calls its [`Service`].
//! One dispatcher at a time owns a shard, without a lock; a shard moves to another dispatcher
//! whole, with its rings, connections and watched file descriptors. No traffic crosses groups.
//! Shards reach each other by mailboxes and the values of [`crate::carrier`], [`crate::station`]
//! and [`crate::guest_session`]. The simulator, the fuzzer and tests drive shards by hand
//! ([`Shard::step`], [`Shard::turn`]), with their own clock.
//!
//! A shard serves the *queues* of its ports and the *sources* of its service: sockets of links, and
//! mailboxes, each numbered by a `u32` of the service. A queue or source with work is *active*.
//! Active queues and sources are served in rotation, at most [`SERVE_CHAINS_MAX`] (64) chains or
//! frames each time. An empty queue is polled or armed by its dispatch mode ([`causeway_ring`]
//! explains why no doorbell is missed). Used entries are published after each call of the service
//! (one batch). The guest is notified at the end of the turn, at most once per ring, and only if
//! its driver asks for notifications (a resumed queue in any case).
//!
//! A shard parses no frames, starts no thread and never waits for an event. A fault of a guest
//! closes the frontend of that guest's port and of no other port; the port goes on listening.
//!
//! # Budget
//! The shard itself makes no system call while it serves queues, except the notifications that
//! guests asked for and a sample of a port's memory files every 100 ms. A turn ends when
//! its slice of time is used ([`crate::slice`]); the remaining queues and events wait for the next
//! turn. The dispatcher reads the kernel's events every
//! [`EVENT_READ_NS`](crate::limits::EVENT_READ_NS) (50 us).

mod connect;
mod frontend;
mod key;
mod pauses;
pub(crate) mod ports;
mod returns;
pub(crate) mod sources;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::dispatch_mode::PollConfig;
use crate::limits::{EVENTS_MAX, QUANTUM_NS, SERVE_CHAINS_MAX, SERVE_COST};
use crate::port::{PortId, Ports};
use crate::rules::Rules;
use crate::service::{Context, Progress, Service, SourceProgress};
use crate::slice::{Slice, cost};
use crate::source_doorbell::ShardLocation;
use crate::watch::{Poller, WatchEvent, WatchToken};
use causeway_model::Name;
use causeway_model::{CommandError, ServiceRequest, TypedRequest};

pub use key::ShardKey;

use pauses::Pausable;
use returns::Returns;
use sources::Sources;

/// Work of a turn: how often queues and sources were served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Times that work was found.
    pub worked: u32,
    /// Times that the queue or source was empty, or no longer ran.
    pub idle: u32,
    /// 1 if the turn handled events of the kernel; in a sum of turns, the number of such turns.
    pub events: u32,
}

impl Turn {
    /// Returns the cost, in polls of an empty queue.
    pub(crate) fn cost(self) -> usize {
        let cost = self.worked.saturating_mul(SERVE_COST).saturating_add(self.idle);
        usize::try_from(cost).unwrap_or(usize::MAX)
    }

    /// Adds another turn.
    pub(crate) fn add(&mut self, other: Self) {
        self.worked = self.worked.saturating_add(other.worked);
        self.idle = self.idle.saturating_add(other.idle);
        self.events = self.events.saturating_add(other.events);
    }
}

/// An entry of the list of active queues and sources.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A queue, by its port and its index in virtio order.
    Queue(PortId, usize),
    /// A source, by the service's number.
    Source(u32),
}

/// The ports of one group and one service. A dispatcher or a test drives it.
#[derive(Debug)]
pub struct Shard {
    /// The epoll set of the shard.
    pub(crate) poller: Poller,
    pub(crate) ports: Ports,
    pub(crate) rules: Rules,
    service: Box<dyn Service>,
    pub(crate) poll_config: PollConfig,
    /// Time of the last read of the clock.
    pub(crate) now_ns: u64,
    group: Name,
    /// Idle spin now: the time for which an empty VMM-driven queue is polled, at most that of
    /// `poll_config`.
    spin_ns: u64,
    /// Queues and sources to be served, in order of service.
    active: VecDeque<Work>,
    /// Work was queued since the flag was last read.
    has_new_work: bool,
    sources: Sources,
    /// Paused activities of ports, with the time of their end.
    pauses: BTreeSet<(u64, PortId, Pausable)>,
    returns: Returns,
    /// Queues with used entries that are not published.
    dirty: Vec<(PortId, usize)>,
    /// Interrupts that the service raised in a call.
    interrupts: Vec<(PortId, usize)>,
    /// Queues with a notification at the end of the turn.
    notifications: Vec<(PortId, usize)>,
    /// A turn is under way; guests are notified at its end.
    in_turn: bool,
    /// Queues that the service asked to serve, not yet in `active`.
    woken: Vec<(PortId, usize)>,
    /// Ports to be closed, each with the reason.
    faults: Vec<(PortId, String)>,
    /// Events that the kernel reported and that are not handled yet.
    events: VecDeque<WatchEvent>,
    /// Buffer of the last read of events; keeps its capacity.
    reported: Vec<WatchEvent>,
    /// A deadline has passed.
    is_deadline_due: bool,
    /// Time of the present turn.
    slice: Slice,
    /// Weight of the group ([`crate::schedule`]).
    weight: u32,
}

impl Shard {
    /// Makes a shard of `group` without ports.
    ///
    /// # Errors
    /// The host has no descriptor.
    pub fn new(
        group: Name,
        service: Box<dyn Service>,
        poll_config: PollConfig,
    ) -> io::Result<Self> {
        let mut ports = Ports::default();
        ports.add_group(group.clone());
        Ok(Self {
            poller: Poller::new()?,
            ports,
            rules: Rules::default(),
            service,
            poll_config,
            now_ns: 0,
            group,
            spin_ns: poll_config.spin_ns,
            active: VecDeque::new(),
            has_new_work: false,
            sources: Sources::default(),
            pauses: BTreeSet::new(),
            returns: Returns::default(),
            dirty: Vec::new(),
            interrupts: Vec::new(),
            notifications: Vec::new(),
            in_turn: false,
            woken: Vec::new(),
            faults: Vec::new(),
            events: VecDeque::new(),
            reported: Vec::new(),
            is_deadline_due: false,
            slice: Slice::default(),
            weight: 1,
        })
    }

    /// Returns the group of the ports.
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// Returns the rules against which the service checks connects.
    pub fn rules_mut(&mut self) -> &mut Rules {
        &mut self.rules
    }

    /// Sets the time, the idle spin, and whether the service may spin for a source whose answers
    /// arrive soon (`may_await`). The dispatcher calls this before each other call.
    pub(crate) fn set_clock(&mut self, now_ns: u64, spin_ns: u64, may_await: bool) {
        self.sources.may_await = may_await;
        self.now_ns = now_ns;
        self.spin_ns = spin_ns.min(self.poll_config.spin_ns);
        // Endless except in a turn.
        self.slice = Slice::counted(now_ns, u64::MAX);
    }

    /// Records the location of the shard.
    pub(crate) fn set_location(&mut self, location: ShardLocation) {
        self.sources.doorbells.set_location(location);
    }

    /// Activates a source: the dispatcher's own thread rang its doorbell.
    pub(crate) fn ring_source(&mut self, value: u32) {
        self.sources.wake(value);
        self.apply_and_notify();
    }

    /// Returns whether the service notified a process since the last call, and clears the flag.
    pub(crate) fn take_notified(&mut self) -> bool {
        std::mem::take(&mut self.sources.has_notified)
    }

    /// Returns whether a queue or source became active since the last call, and clears the flag.
    pub(crate) fn take_new_work(&mut self) -> bool {
        std::mem::take(&mut self.has_new_work)
    }

    /// Returns the number of active queues and sources.
    pub(crate) fn waiting(&self) -> usize {
        self.active.len()
    }

    /// Returns whether a queue, an event or a deadline waits for the next turn.
    #[inline]
    pub fn is_busy(&self) -> bool {
        !self.active.is_empty() || !self.events.is_empty() || self.is_deadline_due
    }

    /// Sets the weight of its group, in quanta per turn.
    pub(crate) fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
    }

    /// Returns the weight of its group.
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Schedules the deadline handler for the next turn.
    pub(crate) fn set_due(&mut self) {
        self.is_deadline_due = true;
    }

    /// Returns the next deadline, in nanoseconds of the shard's clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.service.deadline_ns().into_iter().chain(self.next_pause_end_ns()).min()
    }

    /// Returns the epoll descriptor of the shard: readable while a doorbell, a message or a connect
    /// waits for [`Self::look`].
    pub fn events(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Reads the kernel's events, at most [`EVENTS_MAX`] (64), to be handled in the next turn.
    /// Reads none while earlier events are unhandled. Never waits.
    ///
    /// # Errors
    /// The host fails.
    pub(crate) fn take_events(&mut self) -> io::Result<()> {
        // Level-triggered events would be read again and again.
        if !self.events.is_empty() {
            return Ok(());
        }
        self.poller.wait(&mut self.reported, EVENTS_MAX, Some(0))?;
        // Frontends that leave make room for frontends that connect.
        let comes = |event: &&WatchEvent| matches!(event.token, WatchToken::Listener { .. });
        self.events.extend(self.reported.iter().filter(|e| !comes(e)));
        self.events.extend(self.reported.iter().filter(comes));
        Ok(())
    }

    /// Reads and handles the kernel's events, and handles passed deadlines, without a limit of
    /// time. Serves no queue: [`Self::turn`] does. Never waits.
    ///
    /// # Errors
    /// Reading the events fails; events that were read before are handled all the same.
    pub fn look(&mut self) -> io::Result<()> {
        let taken = self.take_events();
        self.slice = Slice::counted(self.now_ns, u64::MAX);
        self.in_turn = true;
        self.handle_events();
        self.tick();
        self.in_turn = false;
        self.notify();
        taken
    }

    /// Handles events until the slice is used, at least one. Returns whether there was an event.
    fn handle_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.events.pop_front() {
            any = true;
            self.slice.charge(cost::CALL_NS);
            self.handle_event(event);
            if self.slice.is_over() {
                break;
            }
        }
        any
    }

    /// Asks the service to answer a request.
    ///
    /// # Errors
    /// The service refuses or does not know the request.
    pub fn ask<T: TypedRequest>(&mut self, request: T) -> Result<T::Answer, CommandError> {
        let dispatch = self.with(|service, cx| service.ask(cx, ServiceRequest::new(request)));
        self.apply_and_notify();
        dispatch.finish()?.take::<T>()
    }

    /// Handles passed deadlines of the shard and the service.
    fn tick(&mut self) {
        self.is_deadline_due = false;
        self.end_pauses();
        if self.service.deadline_ns().is_some_and(|at| at <= self.now_ns) {
            self.with(|service, cx| service.tick(cx));
            self.apply_and_notify();
        }
    }

    /// Reads the kernel's events at time `now_ns` and serves until no work is left, or for `turns`
    /// turns. For callers that drive a shard by hand.
    ///
    /// # Errors
    /// The host fails.
    pub fn step(&mut self, now_ns: u64, turns: usize) -> io::Result<()> {
        self.now_ns = now_ns;
        for _ in 0..turns {
            self.look()?;
            if !self.is_busy() {
                break;
            }
            self.turn();
        }
        Ok(())
    }

    /// Serves one turn of a shard that is driven by hand: one quantum, by estimates alone.
    pub fn turn(&mut self) -> Turn {
        let quantum = u64::try_from(QUANTUM_NS).unwrap_or(u64::MAX);
        self.turn_for(Slice::counted(self.now_ns, quantum)).0
    }

    /// Handles an event: passes it to the port, source or service that it concerns.
    fn handle_event(&mut self, event: WatchEvent) {
        match event.token {
            // Events of a dispatcher.
            WatchToken::Order | WatchToken::Shard { .. } => {}
            WatchToken::Listener { slot, serial } => self.accept(PortId { slot, serial }),
            WatchToken::Frontend { slot, serial } => self.receive(PortId { slot, serial }),
            WatchToken::Doorbell { slot, queue, serial } => {
                let queue = usize::from(queue);
                let id = self.ports.at_slot(slot).map(|p| p.id).filter(|id| id.serial == serial);
                if let Some(id) = id {
                    self.check_shared(id, queue);
                    self.activate(id, queue);
                }
            }
            WatchToken::Source { value } => {
                self.sources.wake(value);
                self.apply_and_notify();
            }
            WatchToken::Service { value } => {
                let (readable, writable) = (event.readable, event.writable);
                self.with(|service, cx| service.ready(cx, value, readable, writable));
                self.apply_and_notify();
            }
        }
    }

    /// Calls the service with a context of this shard.
    fn with<R>(&mut self, call: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> R) -> R {
        let mut cx = Context {
            ports: &mut self.ports,
            rules: &mut self.rules,
            now_ns: self.now_ns,
            poll_config: &self.poll_config,
            spin_ns: self.spin_ns,
            poller: &self.poller,
            dirty: &mut self.dirty,
            interrupts: &mut self.interrupts,
            woken: &mut self.woken,
            sources: &mut self.sources,
            faults: &mut self.faults,
            slice: &mut self.slice,
        };
        call(&mut *self.service, &mut cx)
    }

    /// Adds a queue to the active list.
    fn activate(&mut self, id: PortId, queue: usize) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let Some(work) = port.queues.get_mut(queue) else { return };
        work.worked_ns = now;
        if !work.is_active {
            work.is_active = true;
            if let Some((_, ring)) = port.queue(queue) {
                // A broken ring reports its error again when it is served.
                let _ = ring.disarm();
            }
            self.active.push_back(Work::Queue(id, queue));
            self.has_new_work = true;
        }
    }

    /// Handles events and serves each active queue and source once, until the slice is used.
    /// Returns the work and the slice with its used time.
    pub(crate) fn turn_for(&mut self, slice: Slice) -> (Turn, Slice) {
        self.slice = slice;
        self.in_turn = true;
        let mut turn = Turn::default();
        if self.handle_events() {
            turn.events = 1;
        }
        if self.is_deadline_due {
            self.tick();
        }
        for _ in 0..self.active.len() {
            let Some(work) = self.active.pop_front() else { break };
            let (worked, stays) = match work {
                Work::Queue(id, queue) => {
                    let worked = self.serve(id, queue);
                    (worked == Some(true), worked.is_some())
                }
                Work::Source(value) => {
                    let served = self.serve_source(value);
                    let parked = served.progress == Progress::Parked;
                    (served.count > 0 || served.progress == Progress::Worked, !parked)
                }
            };
            let count = if worked { &mut turn.worked } else { &mut turn.idle };
            *count = count.saturating_add(1);
            if stays {
                self.active.push_back(work);
            } else {
                self.park(work);
            }
            // The active flag must be settled first: a wake of this very queue must find it parked.
            self.apply_and_notify();
            self.slice.charge(cost::POLL_NS);
            if self.slice.is_over() {
                break;
            }
        }
        self.service.turned();
        self.in_turn = false;
        self.notify();
        (turn, self.slice)
    }

    /// Marks a queue or source as no longer active.
    fn park(&mut self, work: Work) {
        match work {
            Work::Queue(id, queue) => {
                if let Some(work) = self.ports.get_mut(id).and_then(|p| p.queues.get_mut(queue)) {
                    work.is_active = false;
                }
            }
            Work::Source(value) => self.sources.park(value),
        }
    }

    /// As [`Self::serve`], for a source.
    fn serve_source(&mut self, value: u32) -> SourceProgress {
        let served = self.with(|s, cx| s.serve_source(cx, value, SERVE_CHAINS_MAX));
        self.sources.count(value, served, &self.poll_config, self.now_ns);
        served
    }

    /// Serves a queue once. Returns whether it had work, or `None` if it is no longer active.
    fn serve(&mut self, id: PortId, queue: usize) -> Option<bool> {
        let port = self.ports.get(id)?;
        if !port.is_running(queue) || port.queues.get(queue)?.is_withheld {
            return None;
        }
        if port.memory_lost() {
            self.faults.push((id, frontend::MEMORY_LOST.into()));
            return None;
        }
        let progress = self.with(|s, cx| s.serve(cx, id, queue, SERVE_CHAINS_MAX));
        self.check_memory(id);
        let (now, spin) = (self.now_ns, self.spin_ns);
        let port = self.ports.get_mut(id)?;
        port.update_mode(queue, &self.poll_config, now);
        let work = port.queues.get_mut(queue)?;
        match progress {
            Progress::Worked => {
                work.worked_ns = now;
                Some(true)
            }
            Progress::Idle if work.is_polled(&self.poll_config, now, spin) => Some(false),
            Progress::Idle => match port.queue(queue).map(|(_, ring)| ring.arm())? {
                Ok(more) => more.then_some(true),
                Err(error) => {
                    self.faults.push((id, format!("queue {queue}: {error}")));
                    None
                }
            },
            Progress::Parked => None,
        }
    }

    /// Schedules a notification of a queue's guest for the end of the turn.
    fn notify_at_end(&mut self, id: PortId, queue: usize) {
        let work = self.ports.get_mut(id).and_then(|port| port.queues.get_mut(queue));
        if let Some(work) = work
            && !std::mem::replace(&mut work.notify_due, true)
        {
            self.notifications.push((id, queue));
        }
    }

    /// Notifies the guests of this turn.
    fn notify(&mut self) {
        // Closing a port that cost too much may publish used entries of other ports.
        while !self.notifications.is_empty() {
            for (id, queue) in std::mem::take(&mut self.notifications) {
                let Some(port) = self.ports.get_mut(id) else { continue };
                if port.queues.get(queue).is_some_and(|work| work.notify_due) {
                    let notified = port.notify(queue, self.now_ns);
                    self.notified(id, queue, notified);
                }
            }
            self.apply_requests();
        }
    }

    /// Applies requests of services: publish, wake, close. Outside of a turn guests are notified at
    /// once.
    fn apply_and_notify(&mut self) {
        self.apply_requests();
        if !self.in_turn {
            self.notify();
        }
    }

    /// Publishes the queues in `dirty`, activates the queues in `woken` and the woken sources, and
    /// closes the ports in `faults`, until all lists are empty.
    fn apply_requests(&mut self) {
        loop {
            // Transmit queues are published before receive queues: if this process dies in between,
            // a frame is lost, which is allowed, and not delivered twice.
            if self.dirty.len() > 1 {
                self.dirty.sort_unstable_by_key(|(_, queue)| !is_transmit(*queue));
            }
            // Cleared in place: the lists are filled once per batch and keep their capacity.
            for index in 0..self.dirty.len() {
                let Some(&(id, queue)) = self.dirty.get(index) else { break };
                let Some(port) = self.ports.get_mut(id) else { continue };
                if let Some(work) = port.queues.get_mut(queue) {
                    work.is_dirty = false;
                    work.worked_ns = self.now_ns;
                }
                port.update_mode(queue, &self.poll_config, self.now_ns);
                let published = port.publish(queue);
                // Usually followed by a system call that notifies the driver.
                self.slice.charge(cost::CALL_NS);
                if port.memory_lost() {
                    // Other ports may have sent to a guest that has not rung since.
                    self.faults.push((id, frontend::MEMORY_LOST.into()));
                }
                match published {
                    Ok(true) => self.notify_at_end(id, queue),
                    Ok(false) => {}
                    Err(error) => self.notified(id, queue, Err(error)),
                }
                self.check_memory(id);
            }
            self.dirty.clear();
            for index in 0..self.interrupts.len() {
                let Some(&(id, vector)) = self.interrupts.get(index) else { break };
                self.notify_at_end(id, vector);
            }
            self.interrupts.clear();
            for index in 0..self.woken.len() {
                let Some(&(id, queue)) = self.woken.get(index) else { break };
                self.activate(id, queue);
            }
            self.woken.clear();
            while let Some(value) = self.sources.next_woken() {
                self.active.push_back(Work::Source(value));
                self.has_new_work = true;
            }
            if self.faults.is_empty() {
                return;
            }
            for (id, reason) in std::mem::take(&mut self.faults) {
                self.fault(id, reason);
            }
        }
    }
}

/// Returns whether guests send by this queue: the second of each pair in both device types.
fn is_transmit(queue: usize) -> bool {
    queue & 1 == 1
}
