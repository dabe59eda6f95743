//! Tests of the in-flight record: after the death of the process at any time, its successor pops
//! every chain that was popped and not published as used, in the order of the pops, and none twice.
//!
//! Death is simulated by dropping the queue. For a death inside a call, the bytes of the record are
//! reset, completely or in part, to their state before it: the record is written after the ring,
//! field by field.

use crate::common::*;
use causeway_memory::View;
use causeway_ring::{Chain, Inflight, Queue, RingError};
use proptest::prelude::*;

const SIZE: u16 = 8;

/// A guest, the record that its frontend keeps, and the expected state of each chain.
struct Scene {
    guest: Guest,
    record: View,
    queue: Queue,
    chain: Chain,
    /// Free descriptors of the driver.
    free: Vec<u16>,
    /// Popped and not published as used, oldest first.
    open: Vec<u16>,
    /// Pushed and not published.
    pending: Vec<u16>,
    /// Available and never popped, oldest first.
    waiting: Vec<u16>,
    /// Number of chains that the driver reclaimed, as the used index counts.
    reclaimed: u16,
}

impl Scene {
    fn new(start: u16) -> Self {
        let mut guest = Guest::new(SIZE);
        guest.setup.next = start;
        guest.offered = start;
        guest.map.write(AVAIL + 2, &start.to_le_bytes()).unwrap();
        guest.map.write(USED + 2, &start.to_le_bytes()).unwrap();
        for head in 0..SIZE {
            guest.describe(head, DATA, 64, 0, 0);
        }
        let record = window(Inflight::bytes(SIZE));
        let queue = take_over(&guest, &record).unwrap();
        Self {
            guest,
            record,
            queue,
            chain: Chain::new(),
            free: (0..SIZE).rev().collect(),
            open: Vec::new(),
            pending: Vec::new(),
            waiting: Vec::new(),
            reclaimed: start,
        }
    }

    /// The process dies and another replaces it. Pushed and unpublished chains are not used; the
    /// successor must pop all open chains again, in order, before new chains.
    fn die(&mut self) {
        self.pending.clear();
        self.queue = take_over(&self.guest, &self.record).unwrap();
        let open = std::mem::take(&mut self.open);
        for head in open {
            assert!(self.pop(), "a chain in flight was lost");
            assert_eq!(self.chain.head(), head, "the order of the record");
            self.open.push(head);
        }
    }

    fn offer(&mut self) {
        if let Some(head) = self.free.pop() {
            self.guest.offer(head);
            self.waiting.push(head);
        }
    }

    fn pop(&mut self) -> bool {
        pop(&mut self.queue, &self.guest.map, &mut self.chain).unwrap()
    }

    fn take(&mut self) {
        let got = self.pop();
        assert_eq!(got, !self.waiting.is_empty());
        if got {
            let head = self.waiting.remove(0);
            assert_eq!(self.chain.head(), head, "the order of the ring");
            self.open.push(head);
        }
    }

    fn push(&mut self, pick: usize) {
        let held: Vec<u16> =
            self.open.iter().copied().filter(|head| !self.pending.contains(head)).collect();
        if let Some(&head) = held.get(pick % held.len().max(1)) {
            self.queue.push(head, 0).unwrap();
            self.pending.push(head);
        }
    }

    fn publish(&mut self) {
        self.queue.publish().unwrap();
        self.published();
    }

    /// The driver reads: every chain returns once, in the order of the pushes.
    fn published(&mut self) {
        for head in self.pending.drain(..) {
            let slot = USED + 4 + 8 * u64::from(self.reclaimed % SIZE);
            let mut id = [0; 4];
            self.guest.map.read(slot, &mut id).unwrap();
            assert_eq!(u32::from_le_bytes(id), u32::from(head));
            let at = self.open.iter().position(|&h| h == head);
            self.open.remove(at.expect("a chain came back twice"));
            self.free.push(head);
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
        assert_eq!(self.guest.used_index(), self.reclaimed);
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.record.len()).map(|at| self.record.read::<1>(at).unwrap()[0]).collect()
    }

    /// Dies in `call`, of whose writes to the record only `kept` happened. The record's used index
    /// is written last; any part of the earlier writes can be missing.
    fn die_in(&mut self, kept: usize, call: impl FnOnce(&mut Self)) {
        let before = self.bytes();
        call(self);
        let after = self.bytes();
        let changed: Vec<usize> = (0..before.len())
            .step_by(2)
            .filter(|&at| before[at..at + 2] != after[at..at + 2])
            .collect();
        // The used index of the record (at 14) is written last.
        let (last, first): (Vec<_>, Vec<_>) = changed.into_iter().partition(|&at| at == 14);
        for at in first.into_iter().chain(last).skip(kept) {
            self.record.write(at, &before[at..at + 2]).unwrap();
        }
    }

    fn end(&mut self) {
        while self.pop() {
            let head = self.chain.head();
            assert_eq!(self.waiting.remove(0), head);
            self.open.push(head);
        }
        while self.pending.len() < self.open.len() {
            self.push(0);
        }
        self.publish();
        assert!(self.open.is_empty() && self.waiting.is_empty());
        assert_eq!(self.free.len(), usize::from(SIZE));
        self.queue = take_over(&self.guest, &self.record).unwrap();
        assert!(!self.pop(), "nothing is given again once all is used");
    }
}

/// Starts a process that takes the queue over.
fn take_over(guest: &Guest, record: &View) -> Result<Queue, RingError> {
    let mut queue = guest.queue();
    queue.record(Inflight::new(record.clone(), SIZE)?)?;
    Ok(queue)
}

#[derive(Debug, Clone)]
enum Step {
    Offer,
    Take,
    PutBack,
    Push(usize),
    Publish,
    Die,
    DieInTake,
    DieInPush(usize),
    DieInPublish(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => Just(Step::Offer),
        5 => Just(Step::Take),
        1 => Just(Step::PutBack),
        4 => any::<usize>().prop_map(Step::Push),
        2 => Just(Step::Publish),
        1 => Just(Step::Die),
        1 => Just(Step::DieInTake),
        1 => (0_usize..4).prop_map(Step::DieInPush),
        2 => (0_usize..12).prop_map(Step::DieInPublish),
    ]
}

impl Scene {
    fn run(&mut self, step: Step) {
        match step {
            Step::Offer => self.offer(),
            Step::Take => self.take(),
            Step::PutBack => {
                // Put back and popped again: the record keeps the chain throughout.
                let last = self.open.last().copied().filter(|h| !self.pending.contains(h));
                if let Some(head) = last {
                    self.queue.put_back(head);
                    assert!(self.pop());
                    assert_eq!(self.chain.head(), head);
                }
            }
            Step::Push(pick) => self.push(pick),
            Step::Publish => self.publish(),
            Step::Die => self.die(),
            Step::DieInTake => {
                // Before its mark is set, the chain was never popped.
                let (open, waiting) = (self.open.clone(), self.waiting.clone());
                self.die_in(0, Self::take);
                (self.open, self.waiting) = (open, waiting);
                self.die();
            }
            Step::DieInPush(kept) => {
                let pick = kept;
                self.die_in(kept, |scene| scene.push(pick));
                self.die();
            }
            Step::DieInPublish(kept) => {
                // The used index is published: these chains are used, regardless of the record.
                self.die_in(kept, Self::publish);
                self.die();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn recovery_completes_chains_once_and_in_order(
        start in prop_oneof![Just(0_u16), Just(65_533_u16), any::<u16>()],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut scene = Scene::new(start);
        steps.into_iter().for_each(|step| scene.run(step));
        scene.end();
    }
}

/// A run of ordinary work, with a death after each of its calls.
#[test]
fn recovery_after_a_death_at_each_step() {
    let work = [
        Step::Offer,
        Step::Offer,
        Step::Offer,
        Step::Take,
        Step::Take,
        Step::Push(1),
        Step::Publish,
        Step::Offer,
        Step::Take,
        Step::Push(0),
        Step::Push(0),
        Step::Publish,
        Step::Offer,
        Step::Take,
        Step::Take,
        Step::Push(1),
        Step::Push(0),
        Step::Publish,
    ];
    let deaths = [Step::Die, Step::DieInTake, Step::DieInPush(1), Step::DieInPublish(2)];
    for death in deaths {
        for at in 0..=work.len() {
            for again in at..=work.len() {
                let mut scene = Scene::new(65_533);
                for (nth, step) in work.iter().enumerate() {
                    if nth == at || nth == again {
                        scene.run(death.clone());
                    }
                    scene.run(step.clone());
                }
                scene.end();
            }
        }
    }
}

/// A queue that ran before it had a record continues at its position.
#[test]
fn recovery_with_a_new_record_for_a_used_queue() {
    let mut guest = Guest::new(SIZE);
    guest.describe(3, DATA, 64, 0, 0);
    let mut chain = Chain::new();
    let mut queue = guest.queue();
    for _ in 0..1000 {
        guest.offer(3);
        assert!(queue.pop(&guest.map, &mut chain).unwrap());
        queue.push(3, 0).unwrap();
        queue.publish().unwrap();
    }
    guest.setup.next = queue.next_available();
    let record = window(Inflight::bytes(SIZE));
    let mut queue = take_over(&guest, &record).unwrap();
    assert_eq!(queue.available(), Ok(0));
    guest.offer(3);
    assert!(queue.pop(&guest.map, &mut chain).unwrap());
    let mut queue = take_over(&guest, &record).unwrap();
    assert!(queue.pop(&guest.map, &mut chain).unwrap());
    assert!(!queue.pop(&guest.map, &mut chain).unwrap());
}

/// GET_VRING_BASE of a queue with a record counts chains in the record as popped.
#[test]
fn recovery_position_counts_recorded_chains() {
    let mut scene = Scene::new(0);
    for _ in 0..3 {
        scene.offer();
        scene.take();
    }
    let last = scene.chain.head();
    scene.queue.put_back(last);
    assert_eq!(scene.queue.next_available(), 3);
    scene.die();
    assert_eq!(scene.queue.next_available(), 3);
    scene.end();
}

proptest! {
    /// The frontend can write any bytes into the record.
    #[test]
    fn hostile_records(
        bytes in prop::collection::vec(any::<u8>(), Inflight::bytes(SIZE)),
        marks in prop::collection::vec(0_u8..2, usize::from(SIZE)),
        index in prop_oneof![0_u16..12, any::<u16>()],
        noted in prop_oneof![0_u16..12, any::<u16>()],
        batch in prop_oneof![0_u16..SIZE, any::<u16>()],
        lawful_header: bool,
    ) {
        let mut guest = Guest::new(SIZE);
        (0..SIZE).for_each(|head| guest.describe(head, DATA, 64, 0, 0));
        (0..SIZE).for_each(|head| guest.offer(head));
        guest.map.write(USED + 2, &index.to_le_bytes()).unwrap();
        let record = window(bytes.len());
        record.write(0, &bytes).unwrap();
        if lawful_header {
            for (at, value) in [(8, 1), (10, SIZE), (12, batch), (14, noted)] {
                record.write(at, &value.to_le_bytes()).unwrap();
            }
            for (head, mark) in marks.iter().enumerate() {
                record.write(16 + 16 * head, &[*mark]).unwrap();
            }
        }
        if let Ok(mut queue) = take_over(&guest, &record) {
            let mut seen = vec![false; usize::from(SIZE)];
            let mut chain = Chain::new();
            while let Ok(true) = queue.pop(&guest.map, &mut chain) {
                let head = usize::from(chain.head());
                prop_assert!(!std::mem::replace(&mut seen[head], true), "{head} twice");
            }
        }
    }
}

#[test]
fn hostile_records_of_another_shape() {
    let guest = Guest::new(SIZE);
    assert!(matches!(
        Inflight::new(window(Inflight::bytes(SIZE) - 1), SIZE),
        Err(RingError::Inflight)
    ));
    for (version, count) in [(1, SIZE * 2), (1, 0), (2, SIZE), (u16::MAX, SIZE)] {
        let record = window(Inflight::bytes(SIZE));
        record.write(8, &version.to_le_bytes()).unwrap();
        record.write(10, &count.to_le_bytes()).unwrap();
        assert_eq!(take_over(&guest, &record).unwrap_err(), RingError::Inflight);
    }
    // A batch longer than the queue, and a batch that leads out of the table.
    for (noted, head) in [(1_u16, 0_u16), (0_u16.wrapping_sub(9), 0), (u16::MAX, SIZE)] {
        let record = window(Inflight::bytes(SIZE));
        for (at, value) in [(8, 1), (10, SIZE), (12, head), (14, noted)] {
            record.write(at, &value.to_le_bytes()).unwrap();
        }
        assert_eq!(take_over(&guest, &record).unwrap_err(), RingError::Inflight);
    }
}
