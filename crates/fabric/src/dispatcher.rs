//! A dispatcher: a thread that serves whole shards.
//!
//! [`crate::fabric`] makes the dispatchers and runs each in a thread (that of a
//! [`ManualFabric`](crate::ManualFabric) in the thread of the caller); [`crate::shard_table`] holds
//! the shards of one. Each shard has its own epoll set, and the dispatcher watches these sets.
//! While a shard is busy the dispatcher serves the busy groups in turn ([`crate::schedule`]), each
//! for a slice of time ([`crate::slice`]), and reads the kernel's events every [`EVENT_READ_NS`]
//! (50 us), so that an idle group that is woken is served soon regardless of the load of others.
//! A shard is busy while one of its queues or sources has work or is polled, also without work for
//! the idle spin ([`crate::dispatch_mode`]: 1 ms by default, less while processors are scarce).
//! Without a busy shard the dispatcher waits at once in epoll for a doorbell, a message, an order
//! or a deadline. A dispatcher that polls and finds no work yields the processor after a round over
//! all queues, or 256 polls, if it notified a process ([`crate::yield_backoff`] skips some of these
//! yields), or if processors are scarce; then also before it reads events.
//!
//! An *order* is a closure from another thread, which runs between two turns, in order of arrival:
//! adding a shard, removing it, sending it a request. At most [`ORDERS_WAITING_MAX`] (64) orders
//! wait; further callers block, so the dispatcher's own thread must not send itself an order.
//! Orders are executed when events are read: while a shard is busy, after at most 50 us and the
//! turn that is under way. An order that still waits when the thread ends is dropped, and its
//! caller gets an error.
//!
//! The registry chooses the shards and sends the orders. If a turn fails with an error of the host,
//! or panics, the thread ends, and the fabric stops the other dispatchers. No port is closed then:
//! all shards stay as they are until the process ends, as at a crash of the process, so that held
//! frontends and the records of adapters are there for the next causewayd.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_host::Watchdog;
use rustix::event::EventfdFlags;

use crate::limits::{
    CONTENDED_NS, COST_PER_ROUND, COST_PER_YIELD, EVENT_READ_NS, EVENTS_MAX, LOAD_WINDOW_NS,
    LONG_YIELD_NS, ORDERS_WAITING_MAX, STALL_NS,
};
use crate::load::{Load, Meter};
use crate::shard::Turn;
use crate::shard_table::ShardTable;
use crate::source_doorbell;
use crate::spin_budget::{SchedStats, SpinBudget};
use crate::turn_times::TurnTimes;
use crate::watch::{Poller, Trigger, Watch, WatchEvent, WatchToken};
use crate::yield_backoff::YieldBackoff;
use causeway_model::CommandError;

/// A closure for the thread that owns the shards.
type Order = Box<dyn FnOnce(&mut ShardTable) + Send>;

/// The state that a dispatcher publishes, for views and for the placement of shards; at most
/// [`LOAD_WINDOW_NS`] (1 s) old while it serves.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Busy share.
    pub load: Load,
    /// Idle spin, in nanoseconds.
    pub spin_ns: AtomicU64,
    /// The idle spin is reduced because processors are scarce.
    pub scarce: AtomicBool,
    /// Stalls of the thread by ports.
    pub stalls: AtomicU64,
    /// Time that the thread slept in these stalls, in nanoseconds.
    pub stalled_ns: AtomicU64,
    /// Times of turns.
    pub turn_times: Arc<TurnTimes>,
}

/// The handle of a dispatcher for other threads.
#[derive(Debug)]
pub(crate) struct Worker {
    orders: SyncSender<Order>,
    /// Eventfd that wakes the dispatcher for an order or the stop.
    doorbell: OwnedFd,
    /// The dispatcher is to end.
    stop: AtomicBool,
    /// The dispatcher leaves its ports as they are when it ends.
    keeps_ports: AtomicBool,
    /// State that the dispatcher publishes.
    pub gauges: Gauges,
    /// CPU to which the thread is bound.
    pub cpu: Option<usize>,
}

impl Worker {
    /// Wakes the dispatcher.
    fn ring(&self) {
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Runs `order` in the dispatcher's thread, and blocks until its result is there.
    ///
    /// # Errors
    /// The dispatcher has stopped.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut ShardTable) -> R + Send + 'static,
    ) -> Result<R, CommandError> {
        let (reply, answer) = sync_channel(1);
        let order: Order = Box::new(move |shards| {
            let _ = reply.try_send(order(shards));
        });
        self.orders.send(order).map_err(|_| Self::stopped())?;
        self.ring();
        answer.recv().map_err(|_| Self::stopped())
    }

    /// Runs `order` with `value`, as [`Self::run`] does.
    ///
    /// # Errors
    /// The dispatcher has stopped. The value returns with the error, unless the order had begun.
    pub(crate) fn run_with<V: Send + 'static, R: Send + 'static>(
        &self,
        value: V,
        order: impl FnOnce(&mut ShardTable, V) -> R + Send + 'static,
    ) -> Result<R, (Option<V>, CommandError)> {
        // A dispatcher that ends drops its waiting orders, and would drop their values with them.
        let place = Arc::new(Mutex::new(Some(value)));
        let take =
            |place: &Mutex<Option<V>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shared = place.clone();
        match self.run(move |shards| take(&shared).map(|value| order(shards, value))) {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err((None, Self::stopped())),
            Err(error) => Err((take(&place), error)),
        }
    }

    /// Returns the error of a command to a dispatcher that has ended.
    fn stopped() -> CommandError {
        CommandError::Host("the dispatcher has stopped".into())
    }

    /// Requests the dispatcher to close all ports and end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Lets the dispatcher leave its ports as they are when it is stopped.
    pub(crate) fn keep_ports(&self) {
        self.keeps_ports.store(true, Ordering::Release);
    }
}

/// The state that the dispatcher's thread owns.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    worker: Arc<Worker>,
    inbox: Receiver<Order>,
    shards: ShardTable,
    _doorbell: Watch,
    /// Origin of the clock.
    start: Instant,
    sched_stats: SchedStats,
    events: Vec<WatchEvent>,
    /// Time of the next read of the kernel's events while a shard is busy.
    next_read_ns: u64,
    /// Cost of turns without work since the last work or yield.
    idle_cost: usize,
    /// Function that yields the processor; tests replace it.
    yield_now: fn(),
    /// The processor was yielded since the last read of events.
    has_yielded: bool,
    /// Skips yields to notified processes while no thread takes the processor.
    yield_backoff: YieldBackoff,
    /// A queue was served since the last read of events.
    has_served: bool,
    /// Turns since the last read of events.
    recent: Turn,
    /// Busy time since the window of the loads began.
    meter: Meter,
    /// Start of that window.
    window_ns: u64,
}

impl Dispatcher {
    /// Makes a dispatcher without shards. Its clock counts from `start`, which all dispatchers of a
    /// fabric share.
    pub(crate) fn new(
        start: Instant,
        spin_ns: u64,
        cpu: Option<usize>,
    ) -> io::Result<(Self, Arc<Worker>)> {
        // Unmapping the memory of a dead guest would stall the other ports.
        causeway_memory::unmap_in_background();
        let poller = Poller::new()?;
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = poller.watch(doorbell.as_fd(), WatchToken::Order, Trigger::Doorbell)?;
        let (orders, inbox) = sync_channel(ORDERS_WAITING_MAX);
        let [stop, keeps_ports] = [(); 2].map(|()| AtomicBool::new(false));
        let gauges = Gauges::default();
        let worker = Arc::new(Worker { orders, doorbell, stop, keeps_ports, gauges, cpu });
        let mut shards = ShardTable::new(poller, SpinBudget::new(spin_ns), start);
        shards.turn_times = worker.gauges.turn_times.clone();
        let dispatcher = Self {
            worker: worker.clone(),
            inbox,
            shards,
            _doorbell: watch,
            start,
            sched_stats: SchedStats::default(),
            events: Vec::new(),
            next_read_ns: 0,
            idle_cost: 0,
            yield_now: std::thread::yield_now,
            has_yielded: false,
            yield_backoff: YieldBackoff::default(),
            has_served: false,
            recent: Turn::default(),
            meter: Meter::default(),
            window_ns: 0,
        };
        Ok((dispatcher, worker))
    }

    /// Serves until [`Worker::stop`]; then closes all ports and removes their sockets. After
    /// [`Worker::keep_ports`] and after an error the ports are open.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        if let Some(cpu) = self.worker.cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set)?;
        }
        // Interrupts this thread if a frontend keeps it in a notification.
        let _rescue = Watchdog::new()?;
        self.begin();
        while self.turn(true)? {}
        Ok(())
    }

    /// Ends the dispatcher without closing its ports: shards and connections stay as they are until
    /// the process ends. Waiting orders are dropped.
    pub(crate) fn leave_ports(self) {
        std::mem::forget(self.shards);
    }

    /// Returns whether the ports stay open at the end ([`Worker::keep_ports`]).
    pub(crate) fn keeps_ports(&self) -> bool {
        self.worker.keeps_ports.load(Ordering::Acquire)
    }

    /// Makes the calling thread the dispatcher's thread.
    pub(crate) fn begin(&mut self) {
        self.shards.number = source_doorbell::register_dispatcher();
        self.sched_stats = SchedStats::of_thread();
    }

    /// Reads the kernel's events if it is time to, and waits for an event if there is no other work
    /// and `waits` is set; then serves each busy group. Returns false once the dispatcher was
    /// stopped and all ports are closed, or are to stay open.
    pub(crate) fn turn(&mut self, waits: bool) -> io::Result<bool> {
        if self.worker.stop.load(Ordering::Acquire) {
            if !self.keeps_ports() {
                self.shards.shards().for_each(|(_, shard)| shard.close_all());
            }
            return Ok(false);
        }
        if self.shards.is_idle() || self.shards.slice.now_ns() >= self.next_read_ns {
            self.read_events(waits)?;
            self.next_read_ns = self.shards.now_ns.saturating_add(EVENT_READ_NS);
            // Reading events took time as well, which no group is charged for.
            self.shards.slice.read();
        } else if !waits {
            // So did the loop of the thread that turns this dispatcher by hand.
            self.shards.slice.read();
        }
        let begun = self.shards.slice.now_ns();
        let turn = self.shards.turns(self.next_read_ns);
        if turn.worked > 0 {
            self.meter.add(self.shards.slice.now_ns().saturating_sub(begun));
        }
        self.recent.add(turn);
        self.has_served |= turn != Turn::default();
        self.yield_if_idle(turn);
        Ok(true)
    }

    /// Yields the processor if there was no work: after a whole round, or some, if a process was
    /// notified, else after a while if processors are scarce.
    fn yield_if_idle(&mut self, turn: Turn) {
        if turn.worked > 0 {
            self.begin_round();
            return;
        }
        if self.shards.is_idle() {
            // The thread is about to sleep.
            self.begin_round();
            self.shards.has_notified = false;
            return;
        }
        self.idle_cost = self.idle_cost.saturating_add(turn.cost());
        let must_yield = || self.idle_cost >= COST_PER_YIELD && self.shards.spin_budget.is_scarce();
        // Queues that were not polled yet may have work; the wait for them is bounded.
        let has_finished_round =
            || self.idle_cost >= COST_PER_ROUND || self.shards.has_polled_all();
        let must_yield = must_yield();
        if (self.shards.has_notified || must_yield) && has_finished_round() {
            self.begin_round();
            if !self.yield_backoff.is_due() && !must_yield {
                return;
            }
            self.shards.has_notified = false;
            // The yield may take long; new events are read first afterwards.
            (self.next_read_ns, self.has_yielded) = (0, true);
            let since = Instant::now();
            (self.yield_now)();
            let took = since.elapsed();
            self.yield_backoff.yielded(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            if took >= Duration::from_nanos(LONG_YIELD_NS) {
                self.shards.contended_until_ns = self.elapsed().saturating_add(CONTENDED_NS);
            }
        }
    }

    /// Begins a new round: every queue is to be polled before the next yield.
    fn begin_round(&mut self) {
        self.idle_cost = 0;
        self.shards.round = self.shards.round.wrapping_add(1);
    }

    /// Returns the time since `start`, in nanoseconds.
    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Handles orders, events and deadlines, and waits for one of them if no shard is busy.
    fn read_events(&mut self, waits: bool) -> io::Result<()> {
        let before = self.shards.now_ns;
        self.shards.set_now(self.elapsed());
        let busy = !self.shards.is_idle();
        self.find_stall(before);
        self.publish_loads();
        let has_yielded = std::mem::take(&mut self.has_yielded);
        let found_nothing = matches!(self.recent, Turn { worked: 0, idle: 1.., .. });
        if busy && !has_yielded && found_nothing && self.shards.spin_budget.is_scarce() {
            (self.yield_now)();
        }
        self.recent = Turn::default();
        let timeout = if busy || !waits { Some(0) } else { self.until_deadline() };
        self.shards.poller.wait(&mut self.events, EVENTS_MAX, timeout)?;
        if !busy {
            let since = self.shards.now_ns;
            self.shards.set_now(self.elapsed());
            self.sched_stats.add_parked(self.shards.now_ns.saturating_sub(since));
        }
        self.sched_stats.sample(self.shards.now_ns, &mut self.shards.spin_budget);
        for index in 0..self.events.len() {
            let Some(event) = self.events.get(index) else { break };
            match event.token {
                WatchToken::Order => {
                    while let Ok(order) = self.inbox.try_recv() {
                        order(&mut self.shards);
                    }
                }
                WatchToken::Shard { slot, serial } => self.shards.read_events(slot, serial)?,
                _ => {}
            }
        }
        self.shards.schedule_deadlines();
        self.shards.deliver_rings();
        Ok(())
    }

    /// Searches for ports that stalled this thread since the last read of events, if the thread
    /// slept.
    fn find_stall(&mut self, before_ns: u64) {
        let now = self.shards.now_ns;
        let has_served = std::mem::take(&mut self.has_served);
        if !has_served || now.saturating_sub(before_ns) < STALL_NS {
            return;
        }
        let slept = self.sched_stats.slept_ns(now);
        if slept < STALL_NS {
            return;
        }
        let gauges = &self.worker.gauges;
        gauges.stalls.fetch_add(1, Ordering::Relaxed);
        gauges.stalled_ns.fetch_add(slept, Ordering::Relaxed);
        self.shards.bar_stalling_ports(before_ns, slept);
    }

    /// Returns the nanoseconds until the first deadline of a shard.
    fn until_deadline(&self) -> Option<u64> {
        Some(self.shards.first_deadline_ns()?.saturating_sub(self.shards.now_ns))
    }

    /// Publishes the loads of the dispatcher and its shards at the end of their window.
    fn publish_loads(&mut self) {
        let now = self.shards.now_ns;
        let window = now.saturating_sub(self.window_ns);
        if window >= LOAD_WINDOW_NS {
            let gauges = &self.worker.gauges;
            gauges.load.publish(self.meter.percent(window), now);
            gauges.spin_ns.store(self.shards.spin_budget.spin_ns(), Ordering::Relaxed);
            gauges.scarce.store(self.shards.spin_budget.is_scarce(), Ordering::Relaxed);
            self.shards.publish(window);
            self.window_ns = now;
        }
    }
}

#[cfg(test)]
mod tests;
