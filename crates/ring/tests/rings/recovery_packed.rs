//! Tests of the in-flight record of a packed queue: after the death of the process at any time, its
//! successor pops every chain that was popped and not published as used, in the order of the pops,
//! and none twice.
//!
//! Death is simulated by dropping the queue. For a death during the publication of a batch, record
//! and ring are reset to an intermediate state.

use crate::common::*;
use causeway_memory::{Map, Span, View};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, Inflight, Queue, QueueSetup, RingError};
use proptest::prelude::*;

const SIZE: u16 = 8;
const LAYOUT: Layout = Layout { base: GUEST, size: SIZE, table_entries: 4 };

/// A conforming driver, the record that its frontend keeps, and the expected state of each chain.
struct Scene {
    map: Map,
    driver: Driver,
    record: View,
    queue: Queue,
    chain: Chain,
    /// Chains by number and content: added and not popped, popped and not published, published and
    /// not reclaimed.
    waiting: Vec<(u16, Vec<Span>)>,
    open: Vec<(u16, Vec<Span>)>,
    done: Vec<u16>,
    /// Numbers of chains pushed and not published.
    pending: Vec<u16>,
    shown: usize,
    number: u64,
    /// The last pop, which alone may be put back.
    latest: Option<u16>,
}

/// Starts a process that takes the queue over and knows only the ring's start.
fn take_over(map: &Map, record: &View) -> Result<Queue, RingError> {
    let (desc, avail, used) = (LAYOUT.desc().0, LAYOUT.avail().0, LAYOUT.used().0);
    let setup = QueueSetup {
        size: SIZE,
        desc,
        avail,
        used,
        event_index: true,
        indirect: true,
        next: 0x8000,
    };
    let mut queue = Queue::packed(setup, 0x8000, map)?;
    queue.record(Inflight::packed(record.clone(), SIZE)?)?;
    Ok(queue)
}

impl Scene {
    fn new(indirect: bool) -> Self {
        let map = memory();
        let driver = Driver::packed(LAYOUT, true, indirect, &map).unwrap();
        let record = window(Inflight::packed_bytes(SIZE));
        let queue = take_over(&map, &record).unwrap();
        Self {
            map,
            driver,
            record,
            queue,
            chain: Chain::new(),
            waiting: Vec::new(),
            open: Vec::new(),
            done: Vec::new(),
            pending: Vec::new(),
            shown: 0,
            number: 0,
            latest: None,
        }
    }

    fn add(&mut self, parts: usize) {
        let spans: Vec<Span> = (0..parts as u64)
            .map(|nth| Span { addr: DATA + 8 * ((self.number + nth) % 500), len: 8 })
            .collect();
        if let Ok(id) = self.driver.add(&self.map, &spans, &[]) {
            self.number += 7;
            self.waiting.push((id, spans));
        }
    }

    fn show(&mut self) {
        self.driver.publish().unwrap();
        self.shown = self.waiting.len();
    }

    fn pop(&mut self) -> bool {
        crate::common::pop(&mut self.queue, &self.map, &mut self.chain).unwrap()
    }

    fn take(&mut self) {
        let got = self.pop();
        assert_eq!(got, self.shown > 0);
        if got {
            self.shown -= 1;
            let (id, spans) = self.waiting.remove(0);
            assert_eq!((self.chain.head(), self.chain.readable()), (id, &spans[..]));
            self.latest = Some(id);
            self.open.push((id, spans));
        }
    }

    /// Puts a chain back and pops it again, if no later chain was used.
    fn put_back(&mut self) {
        if let Some((id, _)) = self.open.last().cloned()
            && self.latest == Some(id)
            && !self.pending.contains(&id)
        {
            self.queue.put_back(id);
            assert!(self.pop());
            assert_eq!(self.chain.head(), id);
        }
    }

    fn push(&mut self, pick: usize) {
        let held: Vec<u16> =
            self.open.iter().map(|c| c.0).filter(|id| !self.pending.contains(id)).collect();
        if let Some(&id) = held.get(pick % held.len().max(1)) {
            self.queue.push(id, 0).unwrap();
            self.pending.push(id);
        }
    }

    fn publish(&mut self) {
        self.queue.publish().unwrap();
        self.published();
    }

    fn published(&mut self) {
        for id in self.pending.drain(..) {
            self.open.retain(|(open, _)| *open != id);
            self.done.push(id);
        }
    }

    /// The driver reads: every chain returns once, in the order of the pushes.
    fn reclaim(&mut self) {
        for id in self.done.drain(..) {
            assert_eq!(self.driver.take().unwrap().map(|used| used.head), Some(id));
        }
        assert_eq!(self.driver.take().unwrap(), None);
    }

    /// The process dies and another replaces it. Pushed and unpublished chains are not used; the
    /// successor must pop all open chains again, in order, before new chains.
    fn die(&mut self) {
        self.pending.clear();
        self.queue = take_over(&self.map, &self.record).unwrap();
        for (id, spans) in self.open.clone() {
            assert!(self.pop(), "a chain in flight was lost");
            assert_eq!((self.chain.head(), self.chain.readable()), (id, &spans[..]), "the order");
        }
        self.latest = self.open.last().map(|(id, _)| *id);
    }

    fn ring(&self) -> Vec<u8> {
        let mut bytes = vec![0; 16 * usize::from(SIZE)];
        self.map.read(GUEST, &mut bytes).unwrap();
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.record.len()).map(|at| self.record.read::<1>(at).unwrap()[0]).collect()
    }

    /// Dies while publishing the batch: the record has it prepared, `marks` of the old marks are
    /// cleared, and the flags of the first entry are written if `out`.
    fn die_in_publish(&mut self, out: bool, marks: usize, reclaimed: bool) {
        if self.pending.is_empty() {
            return self.die();
        }
        let (before, ring) = (self.bytes(), self.ring());
        let first = self.first_flags_at(&before);
        self.queue.publish().unwrap();
        // The old free head, the old used index and its wrap counter are written last.
        for range in [14..16, 18..20, 21..22] {
            self.record.write(range.start, &before[range]).unwrap();
        }
        let entries = (0..usize::from(SIZE)).map(|nth| 32 + 32 * nth);
        let after = self.bytes();
        let cleared: Vec<usize> = entries.filter(|&at| before[at] != after[at]).collect();
        for &at in cleared.iter().skip(if out { marks } else { 0 }) {
            self.record.write(at, &before[at..=at]).unwrap();
        }
        if out {
            self.published();
            if reclaimed {
                // The driver even reuses the slots before the successor reads.
                self.reclaim();
                self.add(1);
                self.show();
            }
        } else {
            self.map.write(GUEST + first as u64, &ring[first..first + 2]).unwrap();
        }
        self.die();
    }

    fn first_flags_at(&self, record: &[u8]) -> usize {
        16 * usize::from(u16::from_le_bytes([record[16], record[17]])) + 14
    }

    fn end(&mut self) {
        self.show();
        while self.shown > 0 {
            self.take();
        }
        while self.pending.len() < self.open.len() {
            self.push(0);
        }
        self.publish();
        self.reclaim();
        assert_eq!(self.driver.outstanding(), 0);
        self.queue = take_over(&self.map, &self.record).unwrap();
        assert!(!self.pop(), "nothing is given again once all is used");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(usize),
    Show,
    Take,
    PutBack,
    Push(usize),
    Publish,
    Reclaim,
    Die,
    DieInPublish { out: bool, marks: usize, reclaimed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_usize..4).prop_map(Step::Add),
        4 => Just(Step::Show),
        6 => Just(Step::Take),
        1 => Just(Step::PutBack),
        5 => any::<usize>().prop_map(Step::Push),
        2 => Just(Step::Publish),
        3 => Just(Step::Reclaim),
        1 => Just(Step::Die),
        2 => (any::<bool>(), 0_usize..4, any::<bool>())
            .prop_map(|(out, marks, reclaimed)| Step::DieInPublish { out, marks, reclaimed }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn recovery_completes_packed_chains_once_and_in_order(
        indirect: bool,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut scene = Scene::new(indirect);
        for step in steps {
            match step {
                Step::Add(parts) => scene.add(parts),
                Step::Show => scene.show(),
                Step::Take => scene.take(),
                Step::PutBack => scene.put_back(),
                Step::Push(pick) => scene.push(pick),
                Step::Publish => scene.publish(),
                Step::Reclaim => scene.reclaim(),
                Step::Die => scene.die(),
                Step::DieInPublish { out, marks, reclaimed } => {
                    scene.die_in_publish(out, marks, reclaimed);
                }
            }
        }
        scene.end();
    }

    /// The frontend can write any bytes into the record.
    #[test]
    fn hostile_packed_records(
        bytes in prop::collection::vec(any::<u8>(), Inflight::packed_bytes(SIZE)),
        small in prop::collection::vec(0_u8..10, Inflight::packed_bytes(SIZE)),
        mask in prop::collection::vec(0_u8..8, Inflight::packed_bytes(SIZE)),
        lawful_header: bool,
    ) {
        let mut scene = Scene::new(false);
        (0..4).for_each(|_| scene.add(1));
        scene.show();
        let record = window(bytes.len());
        for (at, pick) in mask.iter().enumerate() {
            let byte = if *pick == 0 { bytes[at] } else if *pick < 4 { small[at] } else { 0 };
            record.write(at, &[byte]).unwrap();
        }
        if lawful_header {
            record.write(8, &[1, 0, SIZE as u8, 0]).unwrap();
            record.write(16, &[small[0] % 8, 0, small[0] % 8, 0, 1, 1, 0, 0]).unwrap();
        }
        if let Ok(mut queue) = take_over(&scene.map, &record) {
            let mut seen = [false; SIZE as usize];
            while let Ok(true) = queue.pop(&scene.map, &mut scene.chain) {
                let id = usize::from(scene.chain.head());
                prop_assert!(!std::mem::replace(&mut seen[id], true), "{id} twice");
            }
            let _ = queue.finish();
        }
    }
}

#[test]
fn hostile_packed_records_of_another_shape() {
    let map = memory();
    let short = window(Inflight::packed_bytes(SIZE) - 1);
    assert!(matches!(Inflight::packed(short, SIZE), Err(RingError::Inflight)));
    for (version, count) in [(1_u16, SIZE * 2), (1, 0), (2, SIZE), (u16::MAX, SIZE)] {
        let record = window(Inflight::packed_bytes(SIZE));
        record.write(8, &version.to_le_bytes()).unwrap();
        record.write(10, &count.to_le_bytes()).unwrap();
        assert_eq!(take_over(&map, &record).unwrap_err(), RingError::Inflight);
    }
    // A cyclic free list, and a position past the ring.
    for (at, value) in [(12_usize, 0_u16), (16, SIZE), (18, SIZE)] {
        let record = window(Inflight::packed_bytes(SIZE));
        record.write(8, &[1, 0, SIZE as u8, 0]).unwrap();
        record.write(at, &value.to_le_bytes()).unwrap();
        assert_eq!(take_over(&map, &record).unwrap_err(), RingError::Inflight);
    }
    // A record of the other format.
    let mut queue = take_over(&map, &window(Inflight::packed_bytes(SIZE))).unwrap();
    let split = Inflight::new(window(Inflight::bytes(SIZE)), SIZE).unwrap();
    assert_eq!(queue.record(split), Err(RingError::Inflight));
}
