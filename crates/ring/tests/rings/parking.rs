//! Tests of parking with eventfds: two threads over one ring wake each other and never both sleep.
//! A lost wake-up shows as a wait that does not end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::*;
use causeway_memory::{Map, Span};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, Doorbell, Notifier, Queue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const ITEMS: u64 = 100_000;
const SIZE: u16 = 64;
/// Far above any wait that ends; not a performance bound.
const LOST: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Source of pauses, different in each thread and equal in each run.
struct PauseSource(u64);

impl PauseSource {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Mostly returns at once; sometimes pauses long enough for the other side to run dry and park.
    fn pause(&mut self) {
        match self.roll(400) {
            0 => thread::sleep(Duration::from_micros(self.roll(80))),
            1..=20 => thread::yield_now(),
            21..=80 => (0..self.roll(300)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

/// Sleeps until `doorbell` rings.
fn sleep(doorbell: &Doorbell, side: &str) {
    let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&LOST)) {
            Ok(0) => panic!("{side} lost a wake-up"),
            Ok(_) => return doorbell.drain(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns both ends of an eventfd.
fn doorbell_pair() -> (Doorbell, Notifier) {
    let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let other = fd.as_fd().try_clone_to_owned().unwrap();
    (Doorbell::new(fd).unwrap(), Notifier::new(other).unwrap())
}

/// The device: takes numbers in order and pushes each; parks when there is none. Returns its number
/// of parks.
fn device(map: &Map, mut queue: Queue, kick: &Doorbell, call: &Notifier) -> u64 {
    let mut pauses = PauseSource(1);
    let mut chain = Chain::new();
    let mut parks = 0;
    let mut item = 0;
    while item < ITEMS {
        let batch = 1 + pauses.roll(32);
        let mut got = 0;
        while got < batch && queue.pop(map, &mut chain).unwrap() {
            let mut number = [0; 8];
            chain.reader().read(map, &mut number).unwrap();
            assert_eq!(u64::from_le_bytes(number), item, "in order, none lost, none twice");
            item += 1;
            got += 1;
            queue.push(chain.head(), 0).unwrap();
        }
        pauses.pause();
        if queue.publish().unwrap() {
            call.notify().unwrap();
        }
        if got == 0 && !queue.arm().unwrap() {
            parks += 1;
            sleep(kick, "the device");
            queue.disarm().unwrap();
        }
    }
    parks
}

/// The driver: sends numbers; parks when the ring is full, and at the end until all are back.
fn driver(map: &Map, mut driver: Driver, kick: &Notifier, call: &Doorbell, skip: bool) -> u64 {
    let mut pauses = PauseSource(2);
    let mut parks = 0;
    let (mut sent, mut back) = (0, 0);
    while back < ITEMS {
        let batch = 1 + pauses.roll(32);
        let mut moved = 0;
        while driver.take().unwrap().is_some() {
            back += 1;
            moved += 1;
        }
        for _ in 0..batch {
            if sent == ITEMS || driver.free_descriptors() == 0 {
                break;
            }
            // A slot for each number in flight: twice the ring, as heads are reused at once.
            let addr = DATA + 8 * (sent % u64::from(2 * SIZE));
            map.write(addr, &sent.to_le_bytes()).unwrap();
            driver.add(map, &[Span { addr, len: 8 }], &[]).unwrap();
            sent += 1;
            moved += 1;
        }
        pauses.pause();
        if driver.publish().unwrap() {
            kick.notify().unwrap();
        }
        if moved == 0 && back < ITEMS {
            // A sender requests a notification when half of the ring is free, or at the end for
            // each chain.
            let ahead = if skip && sent < ITEMS { driver.outstanding() / 2 } else { 0 };
            if !driver.arm_after(ahead).unwrap() {
                parks += 1;
                sleep(call, "the driver");
                driver.disarm().unwrap();
            }
        }
    }
    parks
}

fn run(packed: bool, event_index: bool, skip: bool) {
    let map = Arc::new(memory());
    let layout = Layout { base: GUEST, size: SIZE, table_entries: 0 };
    let (front, back) = pair(&map, layout, packed, event_index);
    let (kicked, kick) = doorbell_pair();
    let (called, call) = doorbell_pair();
    let theirs = Arc::clone(&map);
    let device = thread::spawn(move || device(&theirs, back, &kicked, &call));
    let driver = driver(&map, front, &kick, &called, skip);
    let device = device.join().unwrap();
    // Both sides must have slept, or the test is vacuous.
    assert!(driver > 10 && device > 10, "parks: driver {driver}, device {device}");
}

#[test]
fn parking_with_event_index_loses_no_wake_up() {
    run(false, true, false);
    run(false, true, true);
}

#[test]
fn parking_with_flags_loses_no_wake_up() {
    run(false, false, false);
}

#[test]
fn parking_in_packed_rings_loses_no_wake_up() {
    run(true, true, false);
    run(true, true, true);
    run(true, false, false);
}

/// A polling driver needs no notification for any number of chains; after a whole pass of the index
/// it sleeps, and is notified.
#[test]
fn parking_driver_is_notified_after_a_polled_pass() {
    let mut guest = Guest::new(8);
    guest.setup.event_index = true;
    guest.describe(0, DATA, 64, 0, 0);
    let mut queue = guest.queue();
    let mut chain = Chain::new();
    let mut work = |guest: &mut Guest, chains: u16| {
        for _ in 0..chains {
            guest.offer(0);
            assert!(queue.pop(&guest.map, &mut chain).unwrap());
            queue.push(0, 0).unwrap();
        }
        queue.publish().unwrap()
    };
    assert!(work(&mut guest, 1), "the driver waits for the first");
    for _ in 0..65_535 {
        assert!(!work(&mut guest, 1), "the driver polls");
    }
    // The used index is 0 again, as is the requested index.
    assert!(work(&mut guest, 2), "the driver sleeps");
}

/// Arming reports a chain that came after the last poll.
#[test]
fn parking_arm_reports_a_late_chain() {
    for event_index in [false, true] {
        let mut guest = Guest::new(8);
        guest.setup.event_index = event_index;
        guest.describe(0, DATA, 64, 0, 0);
        let mut queue = guest.queue();
        let mut chain = Chain::new();
        queue.disarm().unwrap();
        assert!(!queue.pop(&guest.map, &mut chain).unwrap());
        guest.offer(0);
        assert_eq!(queue.arm(), Ok(true));
        assert!(queue.pop(&guest.map, &mut chain).unwrap());
        assert_eq!(queue.arm(), Ok(false));
        queue.put_back(0);
        assert_eq!(queue.arm(), Ok(true), "a chain that was put back is available");
    }
}

/// The number from which a dispatcher computes a rate: chains popped, less those put back.
#[test]
fn queue_counts_popped_chains() {
    let mut guest = Guest::new(8);
    guest.describe(0, DATA, 64, 0, 0);
    let mut queue = guest.queue();
    let mut chain = Chain::new();
    for taken in 0..20 {
        assert_eq!(queue.popped(), taken);
        guest.offer(0);
        assert!(queue.pop(&guest.map, &mut chain).unwrap());
        assert_eq!(queue.popped(), taken + 1);
        queue.put_back(0);
        assert_eq!(queue.popped(), taken);
        assert!(queue.pop(&guest.map, &mut chain).unwrap());
        queue.push(0, 0).unwrap();
        assert!(!queue.pop(&guest.map, &mut chain).unwrap());
    }
}
