//! Differential test of the device side of the packed ring against a model of the specification.
//!
//! The model is a driver that writes descriptors as in virtio 1.3, 2.8.6, and a device as in
//! 2.8.21. Both count with plain counters that never wrap; slot and wrap counter are derived from
//! these. The model shares no code with the ring. Chains finish in any order, are direct or
//! indirect, and cross the end of the ring.

use std::collections::VecDeque;

use crate::common::packed::*;
use crate::common::*;
use causeway_memory::Span;
use causeway_ring::limits::BATCH_CHAINS;
use causeway_ring::{Chain, Queue, QueueSetup};
use proptest::prelude::*;

/// Returns slot and wrap counter of the `nth` descriptor since the ring's start.
fn place(nth: u64, size: u16) -> (u16, bool) {
    let size = u64::from(size);
    ((nth % size) as u16, (nth / size).is_multiple_of(2))
}

fn bits(nth: u64, size: u16) -> u16 {
    let (slot, wrap) = place(nth, size);
    slot | u16::from(wrap) << 15
}

/// AVAIL equals the wrap counter, USED does not.
fn made_available(nth: u64, size: u16) -> u16 {
    if place(nth, size).1 { AVAIL_BIT } else { USED_BIT }
}

/// Both equal the wrap counter.
fn marked_used(nth: u64, size: u16) -> u16 {
    if place(nth, size).1 { AVAIL_BIT | USED_BIT } else { 0 }
}

#[derive(Debug, Clone)]
struct Sent {
    id: u16,
    slots: u16,
    readable: Vec<Span>,
    writable: Vec<Span>,
}

#[derive(Debug, Clone)]
enum Step {
    Add {
        readable: Vec<(u16, u16)>,
        writable: Vec<(u16, u16)>,
        table: bool,
        pick: usize,
    },
    Show,
    Pop,
    Batch(usize),
    PutBack,
    Use {
        pick: usize,
        written: u32,
    },
    Publish,
    Event {
        ahead: u64,
        flags: u16,
    },
    Arm,
    Disarm,
    Reclaim,
    /// Stops the queue, and starts another at its position.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let buffers = || prop::collection::vec((any::<u16>(), 0_u16..600), 0..4);
    prop_oneof![
        6 => (buffers(), buffers(), any::<bool>(), any::<usize>()).prop_map(
            |(readable, writable, table, pick)| Step::Add { readable, writable, table, pick }),
        3 => Just(Step::Show),
        3 => Just(Step::Pop),
        3 => (0_usize..40).prop_map(Step::Batch),
        1 => Just(Step::PutBack),
        5 => (any::<usize>(), prop_oneof![Just(0_u32), any::<u32>()])
            .prop_map(|(pick, written)| Step::Use { pick, written }),
        3 => Just(Step::Publish),
        3 => (0_u64..6, 0_u16..3).prop_map(|(ahead, flags)| Step::Event { ahead, flags }),
        2 => Just(Step::Arm),
        1 => Just(Step::Disarm),
        3 => Just(Step::Reclaim),
        1 => Just(Step::Restart),
    ]
}

struct Scene {
    guest: PackedGuest,
    queue: Queue,
    chain: Chain,
    size: u16,
    /// Numbers of descriptors added, published, popped, pushed, published as used and reclaimed.
    added: u64,
    shown: u64,
    popped: u64,
    pushed: u64,
    published: u64,
    reclaimed: u64,
    free_ids: Vec<u16>,
    /// Flags of the first unpublished descriptor.
    gate: u16,
    waiting: VecDeque<Sent>,
    open: Vec<Sent>,
    /// Chains from `returnable` on may be put back.
    returnable: usize,
    /// Used entries in order: (position, chain, written).
    entries: VecDeque<(u64, Sent, u32)>,
    event: (u64, u16),
}

impl Scene {
    fn new(size: u16, event_index: bool) -> Self {
        let mut guest = PackedGuest::new(size);
        guest.setup.event_index = event_index;
        Self {
            queue: guest.queue(),
            guest,
            chain: Chain::new(),
            size,
            added: 0,
            shown: 0,
            popped: 0,
            pushed: 0,
            published: 0,
            reclaimed: 0,
            free_ids: (0..size).collect(),
            gate: 0,
            waiting: VecDeque::new(),
            open: Vec::new(),
            returnable: 0,
            entries: VecDeque::new(),
            event: (0, 0),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Add { readable, writable, table, pick } => {
                self.add(&readable, &writable, table, pick);
            }
            Step::Show => self.show(),
            Step::Pop => drop(self.pop()),
            Step::Batch(most) => self.batch(most),
            Step::PutBack => self.put_back(),
            Step::Use { pick, written } => self.use_one(pick, written),
            Step::Publish => self.publish(),
            Step::Event { ahead, flags } => self.ask(ahead, flags),
            Step::Arm => self.arm(),
            Step::Disarm => {
                self.queue.disarm().unwrap();
                assert_eq!(self.requests().1, 1, "no doorbell");
            }
            Step::Reclaim => self.reclaim(),
            Step::Restart => self.restart(),
        }
        assert_eq!(usize::from(self.queue.in_flight()), self.open.len());
        assert_eq!(self.queue.next_available(), bits(self.popped, self.size));
        let there = self.waiting.iter().scan(self.popped, |at, sent| {
            *at += u64::from(sent.slots);
            Some(*at)
        });
        let there = there.take_while(|end| *end <= self.shown).count();
        assert_eq!(usize::from(self.queue.available().unwrap()), there);
    }

    /// Writes a descriptor; the first unpublished descriptor gets its flags at publication.
    fn write(&mut self, nth: u64, span: Span, flags: u16, id: u16) {
        let flags = flags | made_available(nth, self.size);
        let (slot, _) = place(nth, self.size);
        let now = if nth == self.shown {
            self.gate = flags;
            self.guest.slot(slot).2
        } else {
            flags
        };
        self.guest.write(slot, span.addr, span.len, now, id);
    }

    fn add(&mut self, readable: &[(u16, u16)], writable: &[(u16, u16)], table: bool, pick: usize) {
        let span =
            |&(at, len): &(u16, u16)| Span { addr: DATA + 8 * u64::from(at), len: u32::from(len) };
        let readable: Vec<Span> = readable.iter().map(span).collect();
        let writable: Vec<Span> = writable.iter().map(span).collect();
        let parts: Vec<(Span, u16)> =
            readable.iter().map(|s| (*s, 0)).chain(writable.iter().map(|s| (*s, WRITE))).collect();
        let slots = if table { 1 } else { parts.len() as u16 };
        let taken = (self.added - self.reclaimed) as u16;
        let fits = parts.len() <= usize::from(self.size) && slots <= self.size - taken;
        if parts.is_empty() || !fits {
            return;
        }
        let at = pick % self.free_ids.len();
        let id = self.free_ids.swap_remove(at);
        if table {
            let at = TABLES + 256 * u64::from(id);
            for (nth, (span, flags)) in (0_u64..).zip(&parts) {
                let bytes = descriptor(span.addr, span.len, 0xbeef, *flags);
                self.guest.map.write(at + 16 * nth, &bytes).unwrap();
            }
            let span = Span { addr: at, len: 16 * parts.len() as u32 };
            self.write(self.added, span, INDIRECT, id);
        } else {
            for (nth, (span, flags)) in (0_u64..).zip(&parts) {
                let last = nth + 1 == parts.len() as u64;
                // Only the last descriptor's id is valid.
                let (more, id) = if last { (0, id) } else { (NEXT, 0xdead) };
                self.write(self.added + nth, *span, flags | more, id);
            }
        }
        self.added += u64::from(slots);
        self.waiting.push_back(Sent { id, slots, readable, writable });
    }

    fn show(&mut self) {
        if self.shown < self.added {
            let slot = u64::from(place(self.shown, self.size).0);
            self.guest.map.write(DESC + 16 * slot + 14, &self.gate.to_le_bytes()).unwrap();
            self.shown = self.added;
        }
    }

    fn pop(&mut self) -> bool {
        // Prefetching has no observable effect.
        self.queue.prefetch(&self.guest.map, 5);
        let got = self.queue.pop(&self.guest.map, &mut self.chain).unwrap();
        self.popped_one(got)
    }

    /// Compares the popped chain, if any.
    fn popped_one(&mut self, got: bool) -> bool {
        let next = self.waiting.front().filter(|_| self.popped < self.shown);
        assert_eq!(got, next.is_some(), "whether there is a chain");
        if !got {
            return false;
        }
        let sent = self.waiting.pop_front().unwrap();
        assert_eq!(self.chain.head(), sent.id);
        assert_eq!(self.chain.readable(), sent.readable);
        assert_eq!(self.chain.writable(), sent.writable);
        let all = |spans: &[Span]| spans.iter().map(|s| u64::from(s.len)).sum::<u64>();
        assert_eq!(self.chain.readable_bytes(), all(&sent.readable));
        assert_eq!(self.chain.writable_bytes(), all(&sent.writable));
        self.popped += u64::from(sent.slots);
        self.open.push(sent);
        true
    }

    /// Pops up to `most` chains by a batch; each must equal that of a single pop.
    fn batch(&mut self, most: usize) {
        let mut chains = vec![Chain::new(); most];
        let got = self.queue.pop_batch(&self.guest.map, chains.iter_mut(), most).unwrap();
        for chain in chains.drain(..got.count) {
            self.chain = chain;
            assert!(self.popped_one(true));
        }
        if got.needs_pop || got.count < most.min(BATCH_CHAINS) {
            assert_eq!(self.pop(), got.needs_pop, "whether there is another");
        }
    }

    /// Puts the last pop back, if no later chain was used.
    fn put_back(&mut self) {
        if self.open.len() > self.returnable
            && let Some(sent) = self.open.pop()
        {
            self.queue.put_back(sent.id);
            self.popped -= u64::from(sent.slots);
            self.waiting.push_front(sent);
        }
    }

    fn use_one(&mut self, pick: usize, written: u32) {
        if self.open.is_empty() {
            return;
        }
        let at = pick % self.open.len();
        let sent = self.open.remove(at);
        self.returnable = self.returnable.saturating_sub(1).max(at);
        self.queue.push(sent.id, written).unwrap();
        self.queue.push(sent.id, written).unwrap();
        let slots = u64::from(sent.slots);
        self.entries.push_back((self.pushed, sent, written));
        self.pushed += slots;
    }

    fn publish(&mut self) {
        let before = self.published;
        let wanted = self.queue.publish().unwrap();
        self.published = self.pushed;
        let (at, flags) = self.event;
        let expected = self.pushed > before
            && match flags {
                0 => true,
                1 => false,
                _ => before <= at && at < self.pushed,
            };
        assert_eq!(wanted, expected, "whether to notify");
    }

    /// Requests notifications: for all, for none, or for the used descriptor `ahead` of the next.
    fn ask(&mut self, ahead: u64, flags: u16) {
        if flags == 2 && !self.guest.setup.event_index {
            return;
        }
        // Descriptors that the device published already cannot be notified any more.
        let at = self.reclaimed + ahead;
        if flags == 2 && (at < self.published || at >= self.published + u64::from(self.size)) {
            return;
        }
        self.event = (at, flags);
        self.guest.map.write(AVAIL, &bits(at, self.size).to_le_bytes()).unwrap();
        self.guest.map.write(AVAIL + 2, &flags.to_le_bytes()).unwrap();
    }

    /// Returns the device's event area.
    fn requests(&self) -> (u16, u16) {
        let mut bytes = [0; 4];
        self.guest.map.read(USED, &mut bytes).unwrap();
        (u16::from_le_bytes([bytes[0], bytes[1]]), u16::from_le_bytes([bytes[2], bytes[3]]))
    }

    fn arm(&mut self) {
        let there = self.queue.arm().unwrap();
        assert_eq!(there, self.popped < self.shown, "whether to look again");
        let (at, flags) = self.requests();
        match self.guest.setup.event_index {
            true => assert_eq!((at, flags), (bits(self.shown, self.size), 2)),
            false => assert_eq!(flags, 0),
        }
    }

    /// Takes used chains as the driver, entry by entry, by the flags at its position.
    fn reclaim(&mut self) {
        loop {
            let (slot, _) = place(self.reclaimed, self.size);
            let (len, id, flags) = self.guest.slot(slot);
            let used = flags & (AVAIL_BIT | USED_BIT) == marked_used(self.reclaimed, self.size);
            assert_eq!(
                used,
                self.reclaimed < self.published,
                "flags at the position of the driver"
            );
            if !used {
                return;
            }
            let (at, sent, written) = self.entries.pop_front().unwrap();
            assert_eq!((at, sent.id, written), (self.reclaimed, id, len));
            assert_eq!(flags & WRITE != 0, written > 0);
            self.reclaimed += u64::from(sent.slots);
            self.free_ids.push(sent.id);
        }
    }

    /// Stops the queue, which returns all chains, and sets up another at its position.
    fn restart(&mut self) {
        // `finish` pushes in the order of ids.
        self.open.sort_by_key(|sent| sent.id);
        for sent in std::mem::take(&mut self.open) {
            let slots = u64::from(sent.slots);
            self.entries.push_back((self.pushed, sent, 0));
            self.pushed += slots;
        }
        self.queue.finish().unwrap();
        (self.published, self.returnable) = (self.pushed, 0);
        let next = self.queue.next_available();
        let setup = QueueSetup { next, ..self.guest.setup };
        self.queue = Queue::packed(setup, next, &self.guest.map).unwrap();
    }

    /// Checks that all chains return.
    fn end(&mut self) {
        self.show();
        while self.pop() {}
        while !self.open.is_empty() {
            self.use_one(0, 7);
        }
        self.publish();
        self.reclaim();
        assert_eq!(self.free_ids.len(), usize::from(self.size));
    }
}

proptest! {
    #[test]
    fn packed_queue_equals_the_model_for_conforming_drivers(
        size in prop_oneof![1_u16..10, Just(64_u16), Just(256_u16)],
        event_index: bool,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut scene = Scene::new(size, event_index);
        steps.into_iter().for_each(|step| scene.run(step));
        scene.end();
    }
}

/// Many passes over the ring, with both wrap counters and chains that cross its end.
#[test]
fn packed_queue_equals_the_model_over_many_passes() {
    for (size, event_index) in [(1, false), (5, true), (8, false), (8, true)] {
        let mut scene = Scene::new(size, event_index);
        let buffers = |n: usize| vec![(1_u16, 64_u16); n];
        for turn in 0..3000_usize {
            for nth in 0..1 + turn % 4 {
                let (readable, writable) = (buffers(1 + (turn + nth) % 3), buffers(nth % 2));
                scene.run(Step::Add { readable, writable, table: turn % 7 == 0, pick: turn });
            }
            scene.run(Step::Show);
            while scene.pop() {}
            while !scene.open.is_empty() {
                scene.run(Step::Use { pick: turn * 31, written: turn as u32 });
            }
            scene.run(Step::Event {
                ahead: 0,
                flags: if event_index { 2 } else { turn as u16 % 2 },
            });
            scene.run(Step::Publish);
            scene.run(Step::Reclaim);
        }
        assert!(scene.added > 20 * u64::from(size));
        scene.end();
    }
}

/// Frontends that know only split rings start at 0. For a new ring that means its start; for a ring
/// after a pass it is the position 0.
#[test]
fn packed_base_of_zero_means_the_start_of_a_new_ring() {
    let mut scene = Scene::new(4, false);
    let add = || Step::Add { readable: vec![(1, 8)], writable: vec![], table: false, pick: 0 };
    scene.guest.setup.next = 0;
    for filled in [false, true] {
        if filled {
            (0..4).for_each(|_| scene.run(add()));
            scene.run(Step::Show);
        }
        assert_eq!(scene.guest.queue().next_available(), 0x8000);
    }
    while scene.pop() {}
    while !scene.open.is_empty() {
        scene.run(Step::Use { pick: 0, written: 0 });
    }
    scene.run(Step::Publish);
    assert_eq!(scene.guest.queue().next_available(), 0);
    scene.run(Step::Reclaim);
    (0..4).for_each(|_| scene.run(add()));
    scene.run(Step::Show);
    assert_eq!(scene.guest.queue().next_available(), 0, "all available in the second turn");
    scene.end();
}
