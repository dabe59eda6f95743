//! A driver in a thread of its own arms and sleeps while the function completes.
//!
//! `CAUSEWAY_WAKEUPS=10000000 cargo test --release -p causeway-mlx5 --test function wakeup` runs as
//! many rounds as the variable says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::SendOpcode;

use crate::driver::{Completions, EventRing, Guest, Link, Pair};

/// Rounds, unless CAUSEWAY_WAKEUPS says otherwise, and the longest time of as many rounds.
const ROUNDS: u32 = 100_000;
const TIME: Duration = Duration::from_secs(5);
/// A driver that waits longer has lost an event.
const LOST: Duration = Duration::from_secs(20);
/// Polls of the driver before it yields the processor.
const POLLS: u32 = 1 << 8;

/// A driver that takes each completion either by polling or after an event.
struct Sleeper<'a> {
    guest: &'a Guest,
    pair: &'a mut Pair,
    cq: &'a mut Completions,
    events: EventRing,
    /// Number of arms.
    sequence: u32,
    /// Number of events.
    woken: u32,
}

impl Sleeper<'_> {
    /// Waits for an event of the completion queue, as a thread that sleeps until the interrupt.
    fn sleep(&mut self) {
        let since = Instant::now();
        loop {
            for _ in 0..POLLS {
                if let Some(event) = self.guest.driver.take_event(&mut self.events).unwrap() {
                    assert_eq!(event, Event::Completion { completion_queue: self.cq.number });
                    self.woken += 1;
                    return;
                }
                std::hint::spin_loop();
            }
            assert!(since.elapsed() < LOST, "event {} is lost", self.sequence);
            std::thread::yield_now();
        }
    }

    /// Posts a request and takes its completion. The order of `arm` and the last poll is that of
    /// verbs: arm, poll once more, and sleep if there is still no completion.
    fn round(&mut self, number: u32) {
        // The time between the post and the arm differs, so that both orders occur.
        // Events of arms after which a poll found the completion are read, so that the ring has room.
        while self.guest.driver.take_event(&mut self.events).unwrap().is_some() {}
        self.guest.post(self.pair, (SendOpcode::Nop, 0), |entry| entry);
        for _ in 0..number.wrapping_mul(0x9e37_79b1) >> 24 {
            std::hint::spin_loop();
        }
        loop {
            self.sequence += 1;
            self.guest.arm(self.cq, self.sequence, false);
            // Orders the store of the arm word before the load of the entry.
            std::sync::atomic::fence(Ordering::SeqCst);
            if self.guest.poll_cq(self.cq).is_some() {
                return;
            }
            self.sleep();
            if self.guest.poll_cq(self.cq).is_some() {
                return;
            }
        }
    }
}

#[test]
fn wakeup_is_never_lost_between_arm_and_completion() {
    let wanted = std::env::var("CAUSEWAY_WAKEUPS").ok();
    let time = if wanted.is_some() { Duration::MAX } else { TIME };
    let rounds: u32 = wanted.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let Link { mut world, a, mut qp_a, mut cq_a, .. } = Link::new(Service::ReliableConnection);
    let (is_over, adapter) = (AtomicBool::new(false), a.adapter);
    let (is_over, guest) = (&is_over, &a);
    let result = std::thread::scope(|scope| {
        let driver = scope.spawn(move || {
            let events = guest.events;
            let (pair, cq) = (&mut qp_a, &mut cq_a);
            let mut sleeper = Sleeper { guest, pair, cq, events, sequence: 0, woken: 0 };
            // The dispatcher ends even if a round panics.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let since = Instant::now();
                let run = (0..rounds).take_while(|_| since.elapsed() < time);
                run.inspect(|number| sleeper.round(*number)).count()
            }));
            is_over.store(true, Ordering::Relaxed);
            result.map(|count| (count, sleeper.woken))
        });
        let mut now = 0;
        while !is_over.load(Ordering::Relaxed) {
            now += 1000;
            if poll(&mut world.subnet, adapter, now, &mut Budget::new(64, 1 << 20)) == 0 {
                std::thread::yield_now();
            }
        }
        driver.join().unwrap()
    });
    let (count, woken) = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    println!("{count} completions, {woken} events");
    assert!(count > 0 && woken > 0);
}
