//! Tests of a packed queue without a record whose process is killed at any point of a batch: the
//! successor gets the position of the device's start, as QEMU sends it, and finds the true position
//! in the ring.

use crate::common::*;
use causeway_memory::{Map, Span};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, Queue, QueueSetup, RingError};
use proptest::prelude::*;

const SIZE: u16 = 8;
const LAYOUT: Layout = Layout { base: GUEST, size: SIZE, table_entries: 4 };
const START: u16 = 0x8000;

fn setup(next: u16) -> QueueSetup {
    let (desc, avail, used) = (LAYOUT.desc().0, LAYOUT.avail().0, LAYOUT.used().0);
    QueueSetup { size: SIZE, desc, avail, used, event_index: true, indirect: true, next }
}

/// Starts a process that takes the queue over.
fn take_over(map: &Map, at: u16) -> Result<(Queue, bool), RingError> {
    let mut queue = Queue::packed(setup(at), at, map)?;
    let moved = queue.locate()?;
    Ok((queue, moved))
}

/// A conforming driver whose chains take one slot each.
struct Scene {
    map: Map,
    driver: Driver,
    queue: Queue,
    /// Chains that the driver published: not popped, or popped by a killed process, ...
    waiting: Vec<u16>,
    /// ... popped and not pushed, ...
    taken: Vec<u16>,
    /// ... and pushed, in that order, and not reclaimed.
    pushed: Vec<u16>,
    writable: bool,
}

impl Scene {
    fn new(writable: bool) -> Self {
        let map = memory();
        let driver = Driver::packed(LAYOUT, true, true, &map).unwrap();
        let (queue, moved) = take_over(&map, START).unwrap();
        assert!(!moved, "a fresh ring begins at its start");
        let (waiting, taken, pushed) = Default::default();
        Self { map, driver, queue, waiting, taken, pushed, writable }
    }

    fn add(&mut self, parts: u64) {
        let spans: Vec<_> = (0..parts).map(|n| Span { addr: DATA + 64 * n, len: 64 }).collect();
        let all = &spans[..];
        let (readable, writable) = if self.writable { (&[][..], all) } else { (all, &[][..]) };
        if let Ok(id) = self.driver.add(&self.map, readable, writable) {
            self.waiting.push(id);
        }
        self.driver.publish().unwrap();
    }

    fn take(&mut self) {
        let mut chain = Chain::new();
        let got = crate::common::pop(&mut self.queue, &self.map, &mut chain).unwrap();
        assert_eq!(got, !self.waiting.is_empty(), "no chain is lost");
        if got {
            let at = self.waiting.iter().position(|id| *id == chain.head());
            self.taken.push(self.waiting.remove(at.expect("none comes twice")));
        }
    }

    fn push(&mut self, which: usize) {
        if !self.taken.is_empty() {
            let id = self.taken.remove(which % self.taken.len());
            self.queue.push(id, if self.writable { 9 } else { 0 }).unwrap();
            self.pushed.push(id);
        }
    }

    fn publish(&mut self) {
        self.queue.publish().unwrap();
        for id in self.pushed.drain(..) {
            assert_eq!(self.driver.take().unwrap().map(|used| used.head), Some(id));
        }
        assert_eq!(self.driver.take().unwrap(), None);
    }

    /// Kills the process, and starts another.
    fn die(&mut self) {
        let (queue, _) = take_over(&self.map, START).unwrap();
        self.queue = queue;
        // The used chains are published now, all or none.
        let mut published = 0;
        while let Some(used) = self.driver.take().unwrap() {
            assert_eq!(used.head, self.pushed[published], "in order, each once");
            published += 1;
        }
        assert!(
            published == 0 || published == self.pushed.len(),
            "{published} of {:?}",
            self.pushed
        );
        self.waiting.extend(self.pushed.drain(..).skip(published));
        self.waiting.append(&mut self.taken);
    }
}

proptest! {
    #[test]
    fn packed_queue_continues_at_the_position_of_a_killed_process(
        writable: bool,
        steps in prop::collection::vec((0_u8..16, 0_usize..8), 0..200),
    ) {
        let mut scene = Scene::new(writable);
        for (step, which) in steps {
            match step {
                0..5 => scene.add(1),
                5 => scene.add(3),
                6..10 => scene.take(),
                10..13 => scene.push(which),
                13..15 => scene.publish(),
                _ => scene.die(),
            }
        }
        // All chains return in the end.
        scene.die();
        for _ in 0..3 * SIZE {
            scene.add(1);
            scene.take();
            scene.push(0);
            scene.publish();
        }
        while !scene.waiting.is_empty() {
            scene.take();
            scene.push(0);
            scene.publish();
        }
        prop_assert!(scene.driver.outstanding() == 0, "each came back once");
    }
}

/// Writes the flags of all slots, and returns the position of a queue that is set up at `at`.
fn stands(flags: &[u16; 4], at: u16) -> Result<u16, RingError> {
    let map = memory();
    let setup = QueueSetup { size: 4, ..setup(at) };
    for (slot, flags) in (0..).zip(flags) {
        let bytes = descriptor(DATA, 64, slot, *flags);
        map.write(LAYOUT.desc().0 + 16 * u64::from(slot), &bytes).unwrap();
    }
    let mut queue = Queue::packed(setup, at, &map)?;
    queue.locate()?;
    Ok(queue.next_available())
}

#[test]
fn packed_queue_is_located_by_its_flags_or_not_at_all() {
    // In the first pass, with wrap counter 1, and in the second.
    const A1: u16 = 1 << 7;
    const A0: u16 = 1 << 15;
    const U1: u16 = A1 | A0;
    let at = |flags: [u16; 4]| stands(&flags, START);
    assert_eq!(at([0; 4]), Ok(0x8000));
    assert_eq!(at([A1, A1, 0, 0]), Ok(0x8000));
    assert_eq!(at([U1, A1, 0, 0]), Ok(0x8001));
    assert_eq!(at([U1, U1, 0, 0]), Ok(0x8002));
    assert_eq!(at([U1, U1, A1, A1]), Ok(0x8002));
    assert_eq!(at([A0, U1, U1, A1]), Ok(0x8003));
    assert_eq!(at([U1; 4]), Ok(0x0000));
    assert_eq!(at([A0; 4]), Ok(0x0000));
    assert_eq!(at([0, A0, A0, U1]), Ok(0x0001));
    assert_eq!(at([A1, A1, A0, A0]), Ok(0x0002), "a full ring, in the second turn");
    assert_eq!(at([U1, A1, U1, A1]), Ok(0x8003), "the second was pushed and not published");
    // Chains of several slots: the given position may be right, or is certainly wrong.
    let chained = [U1, A1 | NEXT, A1, A1];
    assert_eq!(stands(&chained, 0x8003), Ok(0x8003));
    assert_eq!(stands(&chained, START), Err(RingError::PositionLost));
    assert_eq!(at([U1, 0, U1, 0]), Err(RingError::PositionLost), "no driver writes this");
}
