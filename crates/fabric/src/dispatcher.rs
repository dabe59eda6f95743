//! A dispatcher: a thread that serves whole shards.
//!
//! Each shard has its own epoll set, and the dispatcher watches these sets. While a shard is busy
//! the dispatcher serves the busy groups in turn ([`crate::schedule`]), each for a slice of time
//! ([`crate::slice`]), and reads the kernel's events every [`LOOK_NS`], so that an idle group that
//! is woken is served soon regardless of the others' load. Without a busy shard it parks in epoll
//! until a doorbell, a message, an order or a deadline. Orders come from other threads and run
//! between turns; adding a shard, removing it and sending it a request are orders. The dispatcher
//! does not choose its shards: the registry does.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use causeway_host::Rescue;
use rustix::event::EventfdFlags;

use crate::bell;
use crate::limits::{
    COST_PER_ROUND, COST_PER_YIELD, CROWDED_NS, EVENTS_MAX, LOAD_WINDOW_NS, LOOK_NS,
    ORDERS_WAITING_MAX, STALL_NS, TAKEN_NS,
};
use crate::load::{Load, Meter};
use crate::roster::Roster;
use crate::shard::Turn;
use crate::share::{Scheduler, Share};
use crate::watch::{Event, Poller, Token, Watch, When};
use causeway_model::CommandError;

/// A closure for the thread that owns the shards.
type Order = Box<dyn FnOnce(&mut Roster) + Send>;

/// The published state of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub load: Load,
    pub spin_ns: AtomicU64,
    pub scarce: AtomicBool,
}

/// The handle of a dispatcher for other threads.
#[derive(Debug)]
pub(crate) struct Worker {
    orders: SyncSender<Order>,
    doorbell: OwnedFd,
    stop: AtomicBool,
    pub gauges: Gauges,
    pub cpu: Option<usize>,
}

impl Worker {
    fn ring(&self) {
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Runs `order` in the dispatcher, and waits for its result.
    ///
    /// # Errors
    /// The dispatcher has stopped.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Roster) -> R + Send + 'static,
    ) -> Result<R, CommandError> {
        let gone = || CommandError::Host("the dispatcher has stopped".into());
        let (reply, answer) = sync_channel(1);
        let order: Order = Box::new(move |roster| {
            let _ = reply.try_send(order(roster));
        });
        self.orders.send(order).map_err(|_| gone())?;
        self.ring();
        answer.recv().map_err(|_| gone())
    }

    /// Requests the dispatcher to close all ports and end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }
}

/// The state that the dispatcher's thread owns.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    worker: Arc<Worker>,
    inbox: Receiver<Order>,
    roster: Roster,
    _doorbell: Watch,
    start: Instant,
    scheduler: Scheduler,
    events: Vec<Event>,
    /// Time of the next read of the kernel's events while a shard is busy.
    look_at_ns: u64,
    /// Cost of turns without work since the last work or yield.
    vain: usize,
    /// Function that yields the processor; tests replace it.
    let_go: fn(),
    gone: bool,
    /// A queue was served since the last read of events.
    served: bool,
    /// Turns since the last read of events.
    turned: Turn,
    /// Busy time since the window of the loads began.
    meter: Meter,
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
        causeway_memory::unmap_elsewhere();
        let poller = Poller::new()?;
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = poller.watch(doorbell.as_fd(), Token::Order, When::Rung)?;
        let (orders, inbox) = sync_channel(ORDERS_WAITING_MAX);
        let (stop, gauges) = (AtomicBool::new(false), Gauges::default());
        let worker = Arc::new(Worker { orders, doorbell, stop, gauges, cpu });
        let dispatcher = Self {
            worker: worker.clone(),
            inbox,
            roster: Roster::new(poller, Share::new(spin_ns), start),
            _doorbell: watch,
            start,
            scheduler: Scheduler::default(),
            events: Vec::new(),
            look_at_ns: 0,
            vain: 0,
            let_go: std::thread::yield_now,
            gone: false,
            served: false,
            turned: Turn::default(),
            meter: Meter::default(),
            window_ns: 0,
        };
        Ok((dispatcher, worker))
    }

    /// Serves until [`Worker::stop`]; then closes all ports and removes their sockets.
    pub(crate) fn run(mut self) -> io::Result<()> {
        if let Some(cpu) = self.worker.cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set)?;
        }
        // Interrupts this thread if a frontend keeps it in a notification.
        let _rescue = Rescue::new()?;
        self.begin();
        while self.turn(true)? {}
        Ok(())
    }

    /// Makes the calling thread the dispatcher's thread.
    pub(crate) fn begin(&mut self) {
        self.roster.number = bell::enter();
        self.scheduler = Scheduler::of_thread();
    }

    /// Reads the kernel's events if it is time to, and waits for an event if there is no other work
    /// and `waits` is set; then serves each busy group. Returns false once the dispatcher was
    /// stopped and all ports are closed.
    pub(crate) fn turn(&mut self, waits: bool) -> io::Result<bool> {
        if self.worker.stop.load(Ordering::Acquire) {
            for (_, shard) in self.roster.shards() {
                shard.close_all();
            }
            return Ok(false);
        }
        if self.roster.is_idle() || self.roster.slice.now_ns() >= self.look_at_ns {
            self.look(waits)?;
            self.look_at_ns = self.roster.now_ns.saturating_add(LOOK_NS);
            // Reading events took time as well, which no group is charged for.
            self.roster.slice.read();
        } else if !waits {
            // So did the loop of the thread that turns this dispatcher by hand.
            self.roster.slice.read();
        }
        let begun = self.roster.slice.now_ns();
        let turn = self.roster.turns(self.look_at_ns);
        if turn.worked > 0 {
            self.meter.add(self.roster.slice.now_ns().saturating_sub(begun));
        }
        self.turned.add(turn);
        self.served |= turn != Turn::default();
        self.yield_in_vain(turn);
        Ok(true)
    }

    /// Yields the processor if there was no work: after a whole round if a process was notified,
    /// else after a while if processors are scarce.
    fn yield_in_vain(&mut self, turn: Turn) {
        if turn.worked > 0 {
            self.begin_round();
            return;
        }
        if self.roster.is_idle() {
            // The thread is about to sleep.
            self.begin_round();
            self.roster.lets_in = false;
            return;
        }
        self.vain = self.vain.saturating_add(turn.cost());
        let wanted = || self.vain >= COST_PER_YIELD && self.roster.share.scarce();
        // Queues that were not polled yet may have work; the wait for them is bounded.
        let whole = || self.vain >= COST_PER_ROUND || self.roster.all_in_vain();
        if (self.roster.lets_in || wanted()) && whole() {
            self.begin_round();
            self.roster.lets_in = false;
            // The yield may take long; new events are read first afterwards.
            (self.look_at_ns, self.gone) = (0, true);
            let since = Instant::now();
            (self.let_go)();
            if since.elapsed() >= Duration::from_nanos(TAKEN_NS) {
                self.roster.crowded_ns = self.elapsed().saturating_add(CROWDED_NS);
            }
        }
    }

    fn begin_round(&mut self) {
        self.vain = 0;
        self.roster.round = self.roster.round.wrapping_add(1);
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Handles orders, events and deadlines, and waits for one of them if no shard is busy.
    fn look(&mut self, waits: bool) -> io::Result<()> {
        let before = self.roster.now_ns;
        self.roster.set_now(self.elapsed());
        let busy = !self.roster.is_idle();
        self.find_stall(before);
        self.publish_loads();
        let gone = std::mem::take(&mut self.gone);
        let vain = matches!(self.turned, Turn { worked: 0, idle: 1.., .. });
        if busy && !gone && vain && self.roster.share.scarce() {
            (self.let_go)();
        }
        self.turned = Turn::default();
        let timeout = if busy || !waits { Some(0) } else { self.until_deadline() };
        self.roster.poller.wait(&mut self.events, EVENTS_MAX, timeout)?;
        if !busy {
            let since = self.roster.now_ns;
            self.roster.set_now(self.elapsed());
            self.scheduler.parked(self.roster.now_ns.saturating_sub(since));
        }
        self.scheduler.look(self.roster.now_ns, &mut self.roster.share);
        for index in 0..self.events.len() {
            let Some(event) = self.events.get(index) else { break };
            match event.token {
                Token::Order => {
                    while let Ok(order) = self.inbox.try_recv() {
                        order(&mut self.roster);
                    }
                }
                Token::Shard { slot, serial } => self.roster.look(slot, serial)?,
                _ => {}
            }
        }
        self.roster.due();
        self.roster.hear();
        Ok(())
    }

    /// Searches for ports that stalled this thread since the last read of events, if the thread
    /// slept.
    fn find_stall(&mut self, before_ns: u64) {
        let now = self.roster.now_ns;
        let served = std::mem::take(&mut self.served);
        if !served || now.saturating_sub(before_ns) < STALL_NS {
            return;
        }
        let slept = self.scheduler.slept_ns(now);
        if slept < STALL_NS {
            return;
        }
        self.roster.stalled(before_ns, slept);
    }

    /// Returns the nanoseconds until the first deadline of a shard.
    fn until_deadline(&self) -> Option<u64> {
        Some(self.roster.first_deadline_ns()?.saturating_sub(self.roster.now_ns))
    }

    /// Publishes the loads of the dispatcher and its shards at the end of their window.
    fn publish_loads(&mut self) {
        let now = self.roster.now_ns;
        let window = now.saturating_sub(self.window_ns);
        if window >= LOAD_WINDOW_NS {
            let gauges = &self.worker.gauges;
            gauges.load.publish(self.meter.percent(window), now);
            gauges.spin_ns.store(self.roster.share.spin_ns(), Ordering::Relaxed);
            gauges.scarce.store(self.roster.share.scarce(), Ordering::Relaxed);
            self.roster.publish(window);
            self.window_ns = now;
        }
    }
}

#[cfg(test)]
mod tests;
