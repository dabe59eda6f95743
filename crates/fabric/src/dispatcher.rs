//! A dispatcher: one thread that serves whole shards.
//!
//! Each shard has its own set of watched descriptors, and the dispatcher watches those sets. While
//! a shard is busy the dispatcher goes round: a bounded number of queues of each busy shard, then
//! the kernel's events. With none busy it parks in the kernel until a doorbell, a message, an
//! order or a deadline. Orders come from other threads and run between turns; adding a shard,
//! taking one away and asking it something are all orders.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use causeway_ring::Rescue;
use rustix::event::EventfdFlags;

use crate::bell::{self, Home};
use crate::control::CommandError;
use crate::limits::{
    COST_PER_LOOK, COST_PER_YIELD, CROWDED_NS, EVENTS_MAX, LOAD_WINDOW_NS, ORDERS_WAITING_MAX,
    SHARD_SERVES_MAX, TAKEN_NS,
};
use crate::load::{Load, Meter};
use crate::shard::{Shard, Turn};
use crate::share::{Scheduler, Share};
use crate::spec::Name;
use crate::watch::{Event, Poller, Token, Watch, When};

/// Names a shard in the process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub group: Name,
    pub service: &'static str,
}

/// Something to be done by the thread that owns the shards.
type Order = Box<dyn FnOnce(&mut Roster) + Send>;

/// What a dispatcher tells of itself.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub load: Load,
    pub spin_ns: AtomicU64,
    pub scarce: AtomicBool,
}

/// Reaches a dispatcher from other threads.
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

    /// Has the dispatcher do `order`, and waits for what comes of it.
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

    /// Has the dispatcher close everything and end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }
}

/// A shard and what its dispatcher knows of it.
#[derive(Debug)]
struct Seat {
    key: Key,
    shard: Box<Shard>,
    serial: u32,
    watch: Watch,
    /// On the list of busy ones.
    busy: bool,
    deadline_ns: Option<u64>,
    /// Queues served since the last look, and time since the window began.
    turned: u32,
    /// Looks in vain since something came to those that wait for their turn, in this round.
    vain: usize,
    round: u32,
    meter: Meter,
    load: Arc<Load>,
}

impl Seat {
    /// A turn in a round: `before` and `during` it something came to those that wait.
    fn looked(&mut self, round: u32, idle: u32, (before, during): (bool, bool)) {
        if before || self.round != round {
            self.vain = 0;
        }
        let looks = usize::try_from(idle).unwrap_or(usize::MAX);
        self.vain = if during { 0 } else { self.vain.saturating_add(looks) };
        self.round = round;
    }
}

/// A shard on its way from one dispatcher to another.
#[derive(Debug)]
pub(crate) struct Parted {
    pub shard: Box<Shard>,
    /// Goes with it: a descriptor that was let go of might be had by another at once.
    watch: Watch,
    load: Arc<Load>,
}

/// The shards of one dispatcher.
#[derive(Debug)]
pub(crate) struct Roster {
    poller: Poller,
    seats: Vec<Option<Seat>>,
    busy: VecDeque<usize>,
    deadlines: BTreeSet<(u64, usize)>,
    serial: u32,
    now_ns: u64,
    share: Share,
    /// A process was told something, and the processor was not let go since.
    lets_in: bool,
    /// Of turns in vain, since something was done or others had the processor.
    round: u32,
    /// Until then others have work for our processor.
    crowded_ns: u64,
    /// Of the dispatcher, for bells.
    number: u16,
}

impl Roster {
    fn new(poller: Poller, share: Share) -> Self {
        let (seats, busy) = (Vec::new(), VecDeque::new());
        let deadlines = BTreeSet::new();
        Self {
            poller,
            seats,
            busy,
            deadlines,
            serial: 0,
            now_ns: 0,
            share,
            lets_in: false,
            round: 0,
            crowded_ns: 0,
            number: 0,
        }
    }

    /// A seat whose shard is about to be called: it has the time and the spin of now.
    fn seat(&mut self, index: usize) -> Option<&mut Seat> {
        let seat = self.seats.get_mut(index)?.as_mut()?;
        let awaits = self.now_ns >= self.crowded_ns;
        seat.shard.set_clock(self.now_ns, self.share.spin_ns(), awaits);
        Some(seat)
    }

    fn find(&self, key: &Key) -> Option<usize> {
        self.seats.iter().position(|s| s.as_ref().is_some_and(|s| s.key == *key))
    }

    /// Takes a new shard in.
    pub(crate) fn adopt(&mut self, key: Key, shard: Box<Shard>, load: Arc<Load>) -> io::Result<()> {
        let (index, token) = self.vacancy()?;
        let watch = self.poller.watch(shard.events(), token, When::Readable)?;
        self.sit(index, key, Parted { shard, watch, load });
        Ok(())
    }

    /// Takes a shard in that another dispatcher has given away, or gives it back.
    pub(crate) fn adopt_again(
        &mut self,
        key: Key,
        mut parted: Parted,
    ) -> Result<(), (Parted, io::Error)> {
        let moved = self.vacancy().and_then(|(index, token)| {
            parted.watch.move_to(&self.poller, token)?;
            Ok(index)
        });
        match moved {
            Ok(index) => self.sit(index, key, parted),
            Err(error) => return Err((parted, error)),
        }
        Ok(())
    }

    /// A free seat, and how its shard will be reported.
    fn vacancy(&mut self) -> io::Result<(usize, Token)> {
        let free = self.seats.iter().position(Option::is_none);
        let index = free.unwrap_or(self.seats.len());
        self.serial = self.serial.wrapping_add(1);
        let slot = u16::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok((index, Token::Shard { slot, serial: self.serial }))
    }

    fn sit(&mut self, index: usize, key: Key, parted: Parted) {
        let Parted { shard, watch, load } = parted;
        // A vacancy has one.
        let slot = u16::try_from(index).unwrap_or(u16::MAX);
        let home = Home { dispatcher: self.number, slot, serial: self.serial };
        let seat = Seat {
            watch,
            key,
            shard,
            serial: self.serial,
            busy: false,
            deadline_ns: None,
            turned: 0,
            vain: 0,
            round: 0,
            meter: Meter::default(),
            load,
        };
        match self.seats.get_mut(index) {
            Some(place) => *place = Some(seat),
            None => self.seats.push(Some(seat)),
        }
        if self.number != 0
            && let Some(seat) = self.seat(index)
        {
            seat.shard.moved(home);
        }
        self.refresh(index);
    }

    /// Gives a shard away.
    pub(crate) fn release(&mut self, key: &Key) -> Option<Parted> {
        // What was rung here is not heard elsewhere.
        self.hear();
        let index = self.find(key)?;
        let Seat { mut shard, watch, load, deadline_ns, .. } = self.seats.get_mut(index)?.take()?;
        shard.moved(Home::NONE);
        self.busy.retain(|&busy| busy != index);
        if let Some(at) = deadline_ns {
            self.deadlines.remove(&(at, index));
        }
        Some(Parted { shard, watch, load })
    }

    /// Does something with one shard.
    pub(crate) fn with<R>(&mut self, key: &Key, call: impl FnOnce(&mut Shard) -> R) -> Option<R> {
        let index = self.find(key)?;
        let seat = self.seat(index)?;
        let result = call(&mut seat.shard);
        self.refresh(index);
        Some(result)
    }

    /// Every shard.
    pub(crate) fn shards(&mut self) -> impl Iterator<Item = (&Key, &mut Shard)> {
        self.seats.iter_mut().flatten().map(|s| (&s.key, &mut *s.shard))
    }

    /// Wakes the sources whose bells shards of this thread have rung.
    fn hear(&mut self) {
        while let Some(rung) = bell::next_rung() {
            let index = usize::from(rung.slot);
            if let Some(seat) = self.seat(index).filter(|seat| seat.serial == rung.serial) {
                seat.shard.rung(rung.value);
                self.refresh(index);
            }
        }
    }

    /// Looks anew at whether a shard is busy and when it wants to be called.
    fn refresh(&mut self, index: usize) {
        let Some(seat) = self.seats.get_mut(index).and_then(Option::as_mut) else { return };
        let deadline = seat.shard.deadline_ns();
        if deadline != seat.deadline_ns {
            if let Some(at) = seat.deadline_ns {
                self.deadlines.remove(&(at, index));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, index));
            }
            seat.deadline_ns = deadline;
        }
        if seat.shard.is_busy() && !seat.busy {
            seat.busy = true;
            self.busy.push_back(index);
        }
    }

    /// Gives each busy shard a turn, as long as it costs less than `most` in all.
    fn turns(&mut self, most: usize) -> Turn {
        let mut all = Turn::default();
        let mut left = most;
        let round = self.round;
        for _ in 0..self.busy.len() {
            if left == 0 {
                break;
            }
            let Some(index) = self.busy.pop_front() else { break };
            let Some(seat) = self.seat(index) else { continue };
            let before = seat.shard.came();
            let turn = seat.shard.turn(SHARD_SERVES_MAX);
            let during = seat.shard.came();
            seat.looked(round, turn.idle, (before, during));
            let lets_in = seat.shard.lets_in();
            seat.busy = false;
            seat.turned = seat.turned.saturating_add(turn.worked);
            all.add(turn);
            left = left.saturating_sub(turn.cost());
            self.lets_in |= lets_in;
            self.refresh(index);
        }
        self.hear();
        all
    }

    /// Whether all that waits for its turn was looked at in vain in this round.
    fn all_in_vain(&self) -> bool {
        let mut busy = self.busy.iter().filter_map(|index| self.seats.get(*index)?.as_ref());
        busy.all(|seat| seat.round == self.round && seat.vain >= seat.shard.waiting())
    }

    /// Calls the shards whose deadlines have passed.
    fn due(&mut self) {
        let now = self.now_ns;
        let passed =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, index)| *index);
        for index in passed.collect::<Vec<_>>() {
            if let Some(seat) = self.seat(index) {
                seat.shard.tick();
            }
            self.refresh(index);
        }
    }

    /// One shard has events.
    fn look(&mut self, slot: u16, serial: u32) -> io::Result<()> {
        let index = usize::from(slot);
        let Some(seat) = self.seat(index).filter(|s| s.serial == serial) else { return Ok(()) };
        seat.shard.look()?;
        self.refresh(index);
        Ok(())
    }

    /// Shares `busy_ns`, in which `worked` queues had work, out to the shards.
    fn account(&mut self, busy_ns: u64, worked: u32) {
        for seat in self.seats.iter_mut().flatten().filter(|s| s.turned > 0) {
            let turned = u64::from(std::mem::take(&mut seat.turned));
            let part = busy_ns.saturating_mul(turned).checked_div(worked.into());
            seat.meter.add(part.unwrap_or(0));
        }
    }

    fn publish(&mut self, window_ns: u64) {
        for seat in self.seats.iter_mut().flatten() {
            seat.load.publish(seat.meter.percent(window_ns), self.now_ns);
        }
    }
}

/// The thread's own part.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    worker: Arc<Worker>,
    inbox: Receiver<Order>,
    roster: Roster,
    _doorbell: Watch,
    start: Instant,
    scheduler: Scheduler,
    events: Vec<Event>,
    /// Cost that turns may have until the next look.
    left: usize,
    /// Cost of turns in vain since something was done, or others had the processor.
    vain: usize,
    /// Lets others have the processor; and they had it since the last look.
    let_go: fn(),
    gone: bool,
    /// Since the last look, and since the window of the loads began.
    turned: Turn,
    meter: Meter,
    window_ns: u64,
}

impl Dispatcher {
    /// A dispatcher without shards. Its clock counts from `start`, the same for all of a fabric.
    pub(crate) fn new(
        start: Instant,
        spin_ns: u64,
        cpu: Option<usize>,
    ) -> io::Result<(Self, Arc<Worker>)> {
        // Memory of a guest that died is not freed where others are served.
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
            roster: Roster::new(poller, Share::new(spin_ns)),
            _doorbell: watch,
            start,
            scheduler: Scheduler::default(),
            events: Vec::new(),
            left: 0,
            vain: 0,
            let_go: std::thread::yield_now,
            gone: false,
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
        // A frontend cannot keep this thread in a notification.
        let _rescue = Rescue::new()?;
        self.begin();
        while self.turn(true)? {}
        Ok(())
    }

    /// This thread is the dispatcher's from now on.
    pub(crate) fn begin(&mut self) {
        self.roster.number = bell::enter();
        self.scheduler = Scheduler::of_thread();
    }

    /// Looks at the kernel's events if it is time to, waiting for one if nothing else is to be
    /// done and `waits`; then gives each busy shard a turn. Says no when it was stopped and all is
    /// closed.
    pub(crate) fn turn(&mut self, waits: bool) -> io::Result<bool> {
        if self.worker.stop.load(Ordering::Acquire) {
            for (_, shard) in self.roster.shards() {
                shard.close_all();
            }
            return Ok(false);
        }
        if self.roster.busy.is_empty() || self.left == 0 {
            self.left = COST_PER_LOOK;
            self.look(waits)?;
        }
        let turn = self.roster.turns(self.left);
        self.left = self.left.saturating_sub(turn.cost());
        self.turned.add(turn);
        self.yield_in_vain(turn);
        Ok(true)
    }

    /// Lets others have the processor, if nothing is to be done: at once who was told something,
    /// else after a while where processors are scarce.
    fn yield_in_vain(&mut self, turn: Turn) {
        if turn.worked > 0 {
            self.begin_round();
            return;
        }
        if self.roster.busy.is_empty() {
            // It is going to sleep.
            self.begin_round();
            self.roster.lets_in = false;
            return;
        }
        self.vain = self.vain.saturating_add(turn.cost());
        let wanted = || self.vain >= COST_PER_YIELD && self.roster.share.scarce();
        // What was not looked at yet may have work; but not for ever.
        let whole = || self.vain >= COST_PER_LOOK || self.roster.all_in_vain();
        if (self.roster.lets_in || wanted()) && whole() {
            self.begin_round();
            self.roster.lets_in = false;
            // It may be long until we go on: then what came meanwhile is looked at first.
            (self.left, self.gone) = (0, true);
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

    /// Takes orders, events and deadlines, and waits for one of them if no shard is busy.
    fn look(&mut self, waits: bool) -> io::Result<()> {
        let before = self.roster.now_ns;
        // Read once a look, not once a turn: on some machines the clock is a system call.
        self.roster.now_ns = self.elapsed();
        let busy = !self.roster.busy.is_empty();
        self.account(before);
        let gone = std::mem::take(&mut self.gone);
        let vain = matches!(self.turned, Turn { worked: 0, idle: 1.. });
        if busy && !gone && vain && self.roster.share.scarce() {
            (self.let_go)();
        }
        self.turned = Turn::default();
        let timeout = if busy || !waits { Some(0) } else { self.until_deadline() };
        self.roster.poller.wait(&mut self.events, EVENTS_MAX, timeout)?;
        if !busy {
            self.roster.now_ns = self.elapsed();
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

    /// Nanoseconds until the first shard wants to be called; `None`: none does.
    fn until_deadline(&self) -> Option<u64> {
        let (first, _) = self.roster.deadlines.first()?;
        Some(first.saturating_sub(self.roster.now_ns))
    }

    /// Counts the time since the last look as work, as far as turns found some.
    fn account(&mut self, before_ns: u64) {
        let now = self.roster.now_ns;
        let Turn { worked, idle } = self.turned;
        let part = u64::from(worked).saturating_mul(now.saturating_sub(before_ns));
        let busy = part.checked_div(u64::from(worked).saturating_add(idle.into())).unwrap_or(0);
        if busy > 0 {
            self.meter.add(busy);
            self.roster.account(busy, worked);
        }
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
