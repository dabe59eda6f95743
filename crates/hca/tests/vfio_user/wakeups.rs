//! Arms of completion queues that race with completions: a driver that sleeps until the interrupt, and
//! a dispatcher in a thread of its own.
//!
//! A round posts a write to the adapter itself, waits for a random time, and arms the completion queue.
//! The mean of the times follows that of the completions, so that as many arms come before as after
//! the completion, and many at the same time. Half of the rounds then poll once more, as programs do;
//! the others depend on the event alone. Each round must end.
//!
//! `CAUSEWAY_WAKEUPS=10000000 cargo test -p causeway-hca --test vfio_user wakeup -- --nocapture` runs as
//! many rounds as the variable says.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use causeway_fabric::PollConfig;
use causeway_mlx5_driver::{CompletionRing, Driver, EventRing, Post, QueuePair, VfioBar};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Daemon, MEMORY, VIRTUAL, mac};

/// Rounds, unless CAUSEWAY_WAKEUPS says otherwise.
const ROUNDS: u32 = 200_000;
/// Completion queues, each with a queue pair. The event queue has room for two events of each.
const QUEUES: u32 = 24;
/// Rounds with the same number of queues in use.
const PHASE: u32 = 1 << 10;
/// A round in so many pauses for up to 4 ms before its arm: the adapter is then polled after pauses,
/// and after those watched.
const PAUSED: u32 = 1 << 9;
/// Time for which the dispatcher polls an idle adapter in every turn: most arms find it polling.
const SPIN_NS: u64 = 200_000;
/// Longest pause of polls, in microseconds.
const IDLE_POLL_US: u32 = 100;
/// Polls of the event queue before the driver sleeps, in half of the rounds.
const POLLS: u32 = 1 << 8;
/// A driver that sleeps longer has lost an interrupt.
const LOST: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Bounds of the longest time between a post and its arm, in nanoseconds.
const DELAY_NS: [u64; 2] = [200, 20_000];
/// Interrupt vector of completions.
const COMPLETIONS: usize = 1;

/// A completion queue and the queue pair that uses it.
struct Queue {
    cq: CompletionRing,
    pair: QueuePair,
    /// Number of arms.
    arms: u32,
    /// Whether a round waits for the event.
    is_waiting: bool,
}

/// Returns the random number of a round.
fn random(round: u32) -> u32 {
    let mixed = round.wrapping_mul(0x9e37_79b1);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    mixed ^ (mixed >> 13)
}

/// A driver, and the numbers of its rounds.
struct Racer {
    bar: VfioBar,
    driver: Driver,
    events: EventRing,
    queues: Vec<Queue>,
    key: u32,
    begun: u32,
    /// Longest time between a post and its arm.
    delay_ns: u64,
    /// Rounds whose completion a poll behind the arm found.
    polled: u32,
    /// Rounds whose completion was taken after an event.
    woken: u32,
    event_count: u64,
    sleeps: u64,
}

impl Racer {
    fn start(daemon: &Daemon) -> Self {
        let socket = daemon.port_with(1, IDLE_POLL_US);
        let (mut bar, mut driver) = VfioBar::start(&socket, MEMORY).unwrap();
        let page = driver.allocate(4096).unwrap();
        let key = driver.register(&mut bar, VIRTUAL, page, 4096).unwrap();
        let mut queue = |_| {
            let cq = driver.create_cq(&mut bar, 3).unwrap();
            let context = driver.qp_context(Service::ReliableConnection, cq.number).unwrap();
            let pair = driver.create_pair(&mut bar, context).unwrap();
            driver.connect(&mut bar, &pair, mac(1), pair.number).unwrap();
            Queue { cq, pair, arms: 0, is_waiting: false }
        };
        let queues = (0..QUEUES).map(&mut queue).collect();
        let events = driver.events();
        let (begun, polled, woken, event_count, sleeps) = Default::default();
        let delay_ns = DELAY_NS[0];
        Self {
            bar,
            driver,
            events,
            queues,
            key,
            begun,
            delay_ns,
            polled,
            woken,
            event_count,
            sleeps,
        }
    }

    fn post(&mut self, queue: usize) {
        let from = DataSegment { raw_len: 64, key: self.key, address: VIRTUAL };
        let to = RemoteAddressSegment { address: VIRTUAL + 128, key: self.key };
        let (post, pair) = (Post::new(SendOpcode::Write), &mut self.queues[queue].pair);
        self.driver.post(pair, post, |entry| entry.remote(&to).data(&from)).unwrap();
    }

    fn arm(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        queue.arms += 1;
        self.driver.arm(&queue.cq, queue.arms, false).unwrap();
        // Orders the store of the arm word before the load of the entry.
        fence(Ordering::SeqCst);
    }

    /// Takes the completion of a queue. Returns whether there was one.
    fn take(&mut self, queue: usize) -> bool {
        let entry = self.driver.poll_cq(&mut self.queues[queue].cq).unwrap();
        assert!(matches!(entry, None | Some(Entry::Success(_))), "{entry:?}");
        entry.is_some()
    }

    /// Begins a round: posts, arms, and polls in half of the rounds.
    fn begin(&mut self, queue: usize) {
        let random = random(self.begun);
        self.begun += 1;
        self.post(queue);
        if self.begun.is_multiple_of(PAUSED) {
            std::thread::sleep(Duration::from_nanos(u64::from(random >> 10)));
        } else {
            let delay = (self.delay_ns * u64::from(random >> 12)) >> 20;
            let since = Instant::now();
            while since.elapsed() < Duration::from_nanos(delay) {
                std::hint::spin_loop();
            }
        }
        self.arm(queue);
        let polls = random & 1 == 0;
        let is_done = polls && self.take(queue);
        self.queues[queue].is_waiting = !is_done;
        if polls {
            self.polled += u32::from(is_done);
            let step = self.delay_ns / 32;
            let next = if is_done { self.delay_ns - step } else { self.delay_ns + step };
            self.delay_ns = next.clamp(DELAY_NS[0], DELAY_NS[1]);
        }
    }

    /// Takes all events, and ends the rounds that they concern. Returns whether there was an event.
    fn take_events(&mut self) -> bool {
        let before = self.event_count;
        while let Some(event) = self.driver.take_event(&mut self.events).unwrap() {
            self.event_count += 1;
            let Event::Completion { completion_queue } = event else { panic!("{event:?}") };
            let queue = self.queues.iter().position(|queue| queue.cq.number == completion_queue);
            let queue = queue.expect("a queue of this driver");
            // An arm before a poll that found the completion may still report an event.
            if !self.queues[queue].is_waiting {
                continue;
            }
            if !self.take(queue) {
                self.arm(queue);
                if !self.take(queue) {
                    continue;
                }
            }
            self.queues[queue].is_waiting = false;
            self.woken += 1;
        }
        self.event_count > before
    }

    /// Waits for an event, in half of the rounds without polls of the event queue.
    fn wait(&mut self) {
        let polls = if self.begun & 64 == 0 { POLLS } else { 1 };
        if (0..polls).any(|_| self.take_events()) {
            return;
        }
        let vector = self.bar.vector(COMPLETIONS).unwrap();
        let ready = poll(&mut [PollFd::new(&vector, PollFlags::IN)], Some(&LOST)).unwrap();
        let waiting = self.queues.iter().filter(|queue| queue.is_waiting).map(|q| q.cq);
        assert!(
            ready > 0,
            "round {}: no interrupt for {:?}",
            self.begun,
            waiting.collect::<Vec<_>>()
        );
        assert!(self.bar.take_interrupts(COMPLETIONS).unwrap());
        self.sleeps += 1;
        self.take_events();
    }

    /// Runs rounds, in the first queues of a number that differs.
    fn run(&mut self, rounds: u32) {
        while self.polled + self.woken < rounds {
            self.take_events();
            let used = (self.begun / PHASE % QUEUES + 1) as usize;
            let idle = self.queues.iter().take(used).position(|queue| !queue.is_waiting);
            match idle.filter(|_| self.begun < rounds) {
                Some(queue) => self.begin(queue),
                None => self.wait(),
            }
        }
    }
}

#[test]
fn wakeup_of_a_sleeping_driver_is_never_lost() {
    let wanted = std::env::var("CAUSEWAY_WAKEUPS").ok();
    let rounds: u32 = wanted.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let spins = PollConfig { spin_ns: SPIN_NS, ..PollConfig::default() };
    let daemon = Daemon::start_with("wakeups", spins);
    let mut racer = Racer::start(&daemon);
    let since = Instant::now();
    racer.run(rounds);
    racer.take_events();
    let arms: u64 = racer.queues.iter().map(|queue| u64::from(queue.arms)).sum();
    let Racer { polled, woken, event_count, sleeps, delay_ns, .. } = racer;
    println!(
        "{rounds} rounds in {:.1} s: {polled} ended by a poll, {woken} by an event; {arms} arms, \
         {event_count} events, {sleeps} sleeps; arms up to {delay_ns} ns behind posts",
        since.elapsed().as_secs_f32()
    );
    assert_eq!(polled + woken, rounds);
    assert!(polled > 0 && woken > 0 && sleeps > 0);
    // A new queue counts as armed.
    assert!(event_count <= arms + u64::from(QUEUES), "an arm reported two events");
}
