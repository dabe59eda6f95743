//! Differential test of the device side of the split ring against rust-vmm's `virtio-queue`.
//!
//! Two memories hold the same bytes; [`Queue`] serves one, the oracle the other. The driver writes
//! to both. Reads, writes and decisions of both sides must be equal at every step;
//! `hostile_bytes.rs` names the rules by which [`Queue`] is stricter.
//!
//! The oracle differs in three points, which a few lines of model replace: it ignores NO_INTERRUPT
//! in the available ring, it publishes each used chain separately, and while chains are put back it
//! requests a doorbell for a chain that is published already, where [`Queue`] requests the next new
//! chain.

use crate::common::*;
use crate::oracle::{Both, Oracle};
use causeway_memory::Span;
use causeway_ring::limits::BATCH_CHAINS;
use causeway_ring::{Chain, Queue};
use proptest::prelude::*;
use virtio_queue::{QueueOwnedT, QueueT};

/// Plan of a chain: buffers as (16-byte slot, length, writable), the number of them in the ring's
/// own table, and a choice of free descriptors.
#[derive(Debug, Clone)]
struct Plan {
    readable: Vec<(u16, u16)>,
    writable: Vec<(u16, u16)>,
    direct: usize,
    pick: usize,
}

#[derive(Debug, Clone)]
enum Step {
    Add(Plan),
    Show,
    Pop,
    Batch(usize),
    PutBack,
    Use { pick: usize, written: u32 },
    Publish,
    Event(i16),
    Flags(u16),
    Arm,
    Disarm,
    Available,
    Reclaim,
}

fn plan() -> impl Strategy<Value = Plan> {
    let buffers = || prop::collection::vec((any::<u16>(), 0_u16..600), 0..7);
    (buffers(), buffers(), 0_usize..14, any::<usize>())
        .prop_map(|(readable, writable, direct, pick)| Plan { readable, writable, direct, pick })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => plan().prop_map(Step::Add),
        3 => Just(Step::Show),
        3 => Just(Step::Pop),
        3 => (0_usize..40).prop_map(Step::Batch),
        1 => Just(Step::PutBack),
        5 => (any::<usize>(), any::<u32>()).prop_map(|(pick, written)| Step::Use { pick, written }),
        3 => Just(Step::Publish),
        2 => (-3_i16..4).prop_map(Step::Event),
        1 => any::<i16>().prop_map(Step::Event),
        1 => (0_u16..4).prop_map(Step::Flags),
        2 => Just(Step::Arm),
        1 => Just(Step::Disarm),
        1 => Just(Step::Available),
        3 => Just(Step::Reclaim),
    ]
}

/// Start indices, some of them shortly before the wrap.
fn start() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0_u16), 65_500_u16..=65_535, any::<u16>()]
}

/// Both device sides, and a conforming driver.
struct Scene {
    both: Both,
    ours: Queue,
    theirs: Oracle,
    size: u16,
    event_index: bool,
    free: Vec<u16>,
    /// Descriptors of each chain in flight, by head.
    held: Vec<Vec<u16>>,
    added: u16,
    shown: u16,
    /// Heads in flight, in the order of their pops; those from `returnable` on may be put back.
    open: Vec<u16>,
    returnable: usize,
    /// Number of chains put back and not popped again.
    back: u16,
    /// Chains pushed and not published.
    pending: Vec<(u16, u32)>,
    /// Used index: published, and as the driver last read it.
    published: u16,
    reclaimed: u16,
    flags: u16,
    chain: Chain,
}

impl Scene {
    fn new(size: u16, event_index: bool, start: u16) -> Self {
        let both = Both::new();
        both.write(AVAIL + 2, &start.to_le_bytes());
        both.write(USED + 2, &start.to_le_bytes());
        let setup = setup(size, event_index, start);
        Self {
            ours: Queue::new(setup, &both.ours).unwrap(),
            theirs: both.oracle(setup),
            both,
            size,
            event_index,
            free: (0..size).collect(),
            held: vec![Vec::new(); usize::from(size)],
            added: start,
            shown: start,
            open: Vec::new(),
            returnable: 0,
            back: 0,
            pending: Vec::new(),
            published: start,
            reclaimed: start,
            flags: 0,
            chain: Chain::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Add(plan) => self.add(&plan),
            Step::Show => self.show(),
            Step::Pop => drop(self.pop()),
            Step::Batch(most) => self.batch(most),
            Step::PutBack => self.put_back(),
            Step::Use { pick, written } => self.use_one(pick, written),
            Step::Publish => self.publish(),
            Step::Event(ahead) => self.event(ahead),
            Step::Flags(flags) => {
                self.flags = flags;
                self.both.write(AVAIL, &flags.to_le_bytes());
            }
            Step::Arm => {
                let armed = self.ours.arm().unwrap();
                let mem = &self.both.theirs;
                assert_eq!(armed, self.theirs.enable_notification(mem).unwrap(), "arm");
                if self.event_index && self.back > 0 {
                    let asked = self.theirs.next_avail().wrapping_add(self.back);
                    self.both.write_theirs(self.event_at(), &asked.to_le_bytes());
                }
                self.same_requests();
            }
            Step::Disarm => {
                self.ours.disarm().unwrap();
                self.theirs.disable_notification(&self.both.theirs).unwrap();
                self.same_requests();
            }
            Step::Available => self.available(),
            Step::Reclaim => self.reclaim(),
        }
        let next = self.ours.next_available();
        assert_eq!(next, self.theirs.next_avail(), "the next available index");
        assert_eq!(usize::from(self.ours.in_flight()), self.open.len());
    }

    /// Writes the chain of `plan`, if enough descriptors are free.
    fn add(&mut self, plan: &Plan) {
        let readable = plan.readable.iter().map(|b| (b, 0));
        let parts: Vec<_> = readable.chain(plan.writable.iter().map(|b| (b, WRITE))).collect();
        let direct = plan.direct.min(parts.len());
        let tabled = parts.len() - direct;
        let wanted = direct + usize::from(tabled > 0);
        if parts.is_empty() || parts.len() > usize::from(self.size) || wanted > self.free.len() {
            return;
        }
        let at = plan.pick % self.free.len();
        self.free.rotate_left(at);
        let mine: Vec<u16> = self.free.drain(..wanted).collect();
        let head = mine[0];
        let table = TABLES + 256 * u64::from(head);
        for (nth, ((place, len), write)) in parts.iter().enumerate() {
            let addr = DATA + 8 * u64::from(*place);
            let more = if nth + 1 < parts.len() { NEXT } else { 0 };
            let (slot, next) = if nth < direct {
                let next = mine.get(nth + 1).copied().unwrap_or(0xdead);
                (DESC + 16 * u64::from(mine[nth]), next)
            } else {
                (table + 16 * (nth - direct) as u64, (nth - direct + 1) as u16)
            };
            self.both.write(slot, &descriptor(addr, u32::from(*len), write | more, next));
        }
        if tabled > 0 {
            let slot = DESC + 16 * u64::from(mine[direct]);
            // A device must ignore WRITE here (virtio 1.3, 2.7.5.3.2).
            let flags = INDIRECT | if plan.pick & 1 == 0 { WRITE } else { 0 };
            self.both.write(slot, &descriptor(table, 16 * tabled as u32, flags, 0xbeef));
        }
        let slot = u64::from(self.added % self.size);
        self.both.write(AVAIL + 4 + 2 * slot, &head.to_le_bytes());
        self.added = self.added.wrapping_add(1);
        self.held[usize::from(head)] = mine;
    }

    fn show(&mut self) {
        self.shown = self.added;
        self.both.write(AVAIL + 2, &self.shown.to_le_bytes());
    }

    fn pop(&mut self) -> bool {
        // Prefetching has no observable effect.
        self.ours.prefetch(&self.both.ours, 5);
        let got = self.ours.pop(&self.both.ours, &mut self.chain).unwrap();
        self.popped_one(got)
    }

    /// Compares the popped chain, if any.
    fn popped_one(&mut self, got: bool) -> bool {
        let theirs = self.theirs.pop_descriptor_chain(&self.both.theirs);
        assert_eq!(got, theirs.is_some(), "whether there is a chain");
        let Some(theirs) = theirs else { return false };
        assert_eq!(self.chain.head(), theirs.head_index());
        let (readable, writable) = crate::oracle::halves(theirs);
        assert_eq!(self.chain.readable(), readable);
        assert_eq!(self.chain.writable(), writable);
        assert_eq!(self.chain.readable_bytes(), bytes(&readable));
        assert_eq!(self.chain.writable_bytes(), bytes(&writable));
        self.open.push(self.chain.head());
        self.back = self.back.saturating_sub(1);
        true
    }

    /// Pops up to `most` chains by a batch; each must equal that of a single pop.
    fn batch(&mut self, most: usize) {
        let mut chains = vec![Chain::new(); most];
        let got = self.ours.pop_batch(&self.both.ours, chains.iter_mut(), most).unwrap();
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
            && let Some(head) = self.open.pop()
        {
            self.ours.put_back(head);
            self.back += 1;
            QueueOwnedT::go_to_previous_position(&mut self.theirs);
        }
    }

    fn use_one(&mut self, pick: usize, written: u32) {
        if self.open.is_empty() {
            return;
        }
        let at = pick % self.open.len();
        let head = self.open.remove(at);
        // Chains popped before a used chain cannot go back to the available ring.
        self.returnable = self.returnable.saturating_sub(1).max(at);
        self.ours.push(head, written).unwrap();
        self.ours.push(head, written).unwrap();
        self.pending.push((head, written));
    }

    fn publish(&mut self) {
        let wanted = self.ours.publish().unwrap();
        let any = !self.pending.is_empty();
        for (head, written) in self.pending.drain(..) {
            self.theirs.add_used(&self.both.theirs, head, written).unwrap();
            self.published = self.published.wrapping_add(1);
        }
        let theirs = self.theirs.needs_notification(&self.both.theirs).unwrap();
        let expected = if self.event_index { theirs } else { any && self.flags & 1 == 0 };
        assert_eq!(wanted, expected, "whether to notify");
        self.same_used();
    }

    fn available(&mut self) {
        let ours = self.ours.available().unwrap();
        let theirs = self.shown.wrapping_sub(self.theirs.next_avail());
        // Our count uses the last loaded index; the driver's index is loaded again when the count
        // is 0.
        assert!(ours <= theirs && (ours == 0) == (theirs == 0), "{ours} of {theirs}");
    }

    /// Requests a notification some chains after the last used chain that the driver read.
    fn event(&mut self, ahead: i16) {
        let event = self.reclaimed.wrapping_add_signed(ahead);
        self.both.write(AVAIL + 4 + 2 * u64::from(self.size), &event.to_le_bytes());
    }

    /// Takes used chains back as the driver.
    fn reclaim(&mut self) {
        while self.reclaimed != self.published {
            let slot = USED + 4 + 8 * u64::from(self.reclaimed % self.size);
            let head = self.both.read::<4>(slot);
            let head = u32::from_le_bytes(head) as usize;
            let mine = std::mem::take(&mut self.held[head]);
            assert!(!mine.is_empty(), "chain {head} came back twice");
            self.free.extend(mine);
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
    }

    /// Returns the address of the device's event index.
    fn event_at(&self) -> u64 {
        USED + 4 + 8 * u64::from(self.size)
    }

    /// Compares the used rings. Unpublished entries exist in ours only.
    fn same_used(&self) {
        let len = 4 + 8 * usize::from(self.size) + 2;
        let (ours, theirs) = self.both.compare(USED, len);
        assert_eq!(ours, theirs, "the used ring");
    }

    /// Compares the flags and the event index that the driver reads.
    fn same_requests(&self) {
        for at in [USED, self.event_at()] {
            let (ours, theirs) = self.both.compare(at, 2);
            assert_eq!(ours, theirs, "requests to the driver");
        }
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
        assert_eq!(self.free.len(), usize::from(self.size));
    }
}

fn bytes(spans: &[Span]) -> u64 {
    spans.iter().map(|s| u64::from(s.len)).sum()
}

proptest! {
    #[test]
    fn split_queue_equals_the_oracle_for_conforming_drivers(
        size_log in 0_u32..9,
        event_index: bool,
        start in start(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut scene = Scene::new(1 << size_log, event_index, start);
        steps.into_iter().for_each(|step| scene.run(step));
        scene.end();
    }
}

/// A full pass of the indices and more, with a driver that mostly requests no notification.
#[test]
fn split_queue_equals_the_oracle_over_a_pass_of_the_indices() {
    for event_index in [false, true] {
        let mut scene = Scene::new(8, event_index, 65_530);
        let plan = Plan { readable: vec![(1, 64)], writable: vec![], direct: 1, pick: 0 };
        for turn in 0..30_000_u32 {
            for _ in 0..1 + turn % 5 {
                scene.run(Step::Add(plan.clone()));
            }
            scene.run(Step::Show);
            while scene.pop() {
                scene.use_one(0, 0);
            }
            // Every 8000 passes the driver sleeps; otherwise its event index is stale.
            if turn % 8000 == 7999 {
                scene.run(Step::Event(0));
            }
            scene.run(Step::Publish);
            scene.run(Step::Reclaim);
        }
        scene.end();
    }
}
