//! Tests of sleeping while the other side publishes, on real processors, where a store may become
//! visible after a later load (virtio 1.3, 2.7.10): at least one side notices the other.
//!
//! Two threads synchronise before each round. Then one arms while the other publishes. If neither
//! sees the other, both would sleep forever. Only the full fences prevent this; without one of them
//! some rounds in a hundred thousand fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::common::*;
use causeway_memory::{Map, Span};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, Queue};

const ROUNDS: u32 = 60_000;

/// Rendezvous of the two threads.
#[derive(Default)]
struct Rendezvous {
    arrived: [AtomicU32; 2],
    noticed: [AtomicBool; 2],
    /// Set when one side failed, so that the other does not wait for it.
    failed: AtomicBool,
}

/// A thread's handle of the rendezvous; marks failure when it panics.
struct Side<'a>(&'a Rendezvous);

impl Drop for Side<'_> {
    fn drop(&mut self) {
        self.0.failed.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

impl Rendezvous {
    /// Waits until side `me ^ 1` arrived as often.
    fn wait(&self, me: usize) {
        let mine = self.arrived[me].fetch_add(1, Ordering::AcqRel) + 1;
        let mut spins = 0_u32;
        while (self.arrived[me ^ 1].load(Ordering::Acquire).wrapping_sub(mine) as i32) < 0 {
            spins += 1;
            if spins.is_multiple_of(128) {
                // The other side may need this processor, or have failed.
                assert!(!self.failed.load(Ordering::Relaxed), "the other side failed");
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Runs both parts at about the same time; at least one must notice the other.
    fn cross(&self, me: usize, jitter: u32, part: impl FnOnce() -> bool) {
        self.wait(me);
        (0..jitter).for_each(|_| std::hint::spin_loop());
        self.noticed[me].store(part(), Ordering::Relaxed);
        self.wait(me);
        let noticed = self.noticed.each_ref().map(|n| n.load(Ordering::Relaxed));
        assert_ne!(noticed, [false; 2], "both would sleep");
        self.wait(me);
    }
}

fn jitter(round: u32, me: u32) -> u32 {
    let mixed = (round ^ (me << 20)).wrapping_mul(0x9e37_79b9);
    (mixed >> 24) % 6
}

fn device(map: &Map, mut queue: Queue, rendezvous: &Rendezvous) {
    let _side = Side(rendezvous);
    let mut chain = Chain::new();
    for round in 0..ROUNDS {
        queue.disarm().unwrap();
        rendezvous.cross(0, jitter(round, 0), || queue.arm().unwrap());
        assert!(queue.pop(map, &mut chain).unwrap());
        queue.push(chain.head(), 0).unwrap();
        rendezvous.cross(0, jitter(round, 2), || queue.publish().unwrap());
    }
}

fn driver(map: &Map, mut driver: Driver, rendezvous: &Rendezvous) {
    let _side = Side(rendezvous);
    for round in 0..ROUNDS {
        driver.disarm().unwrap();
        driver.add(map, &[Span { addr: DATA, len: 8 }], &[]).unwrap();
        rendezvous.cross(1, jitter(round, 1), || driver.publish().unwrap());
        rendezvous.cross(1, jitter(round, 3), || driver.arm().unwrap());
        assert!(driver.take().unwrap().is_some());
    }
}

fn run(packed: bool, event_index: bool) {
    let map = Arc::new(memory());
    let layout = Layout { base: GUEST, size: 8, table_entries: 0 };
    let (front, back) = pair(&map, layout, packed, event_index);
    let rendezvous = Arc::new(Rendezvous::default());
    let (theirs, at) = (Arc::clone(&map), Arc::clone(&rendezvous));
    let device = thread::spawn(move || device(&theirs, back, &at));
    driver(&map, front, &rendezvous);
    device.join().unwrap();
}

// A single test: concurrent tests would compete for the processors.
#[test]
fn ring_crossing_sides_notice_each_other() {
    for packed in [false, true] {
        run(packed, true);
        run(packed, false);
    }
}
