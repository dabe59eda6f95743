//! A scenario of a driver, a device and an inflight record, step by step.
//!
//! The model tracks the chains that the device holds. For any content of the ring: popped chains
//! are granted and bounded, counts agree, the device writes only where its format allows, and an
//! error is permanent. After a restart the device returns the chains in flight again.

use causeway_memory::View;
use causeway_ring::{Chain, Inflight, Queue, QueueSetup, RingError};

use crate::Input;
use crate::guest_memory::{self, GUEST, GuestMemory};

/// Size of the guest's memory, and offsets of its parts.
const BYTES: usize = 16 << 10;
const DESC: usize = 0;
const AVAIL: usize = 0x400;
const USED: usize = 0x600;
const TABLES: usize = 0x1000;
const DATA: usize = 0x2000;
const SIZE_MAX: u16 = 64;
/// The longest scenario, so that a slow input is not reported as a finding.
const STEPS_MAX: usize = 512;

const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

struct Scenario<'g> {
    guest_memory: &'g mut GuestMemory,
    packed: bool,
    setup: QueueSetup,
    queue: Queue,
    chain: Chain,
    /// Heads held by the device, in the order of `pop`.
    held: Vec<u16>,
    /// Heads pushed and not published.
    pushed: Vec<u16>,
    /// Heads at the end of `held` that may be put back, because no chain was pushed since their
    /// `pop`.
    fresh: Vec<u16>,
    recording: bool,
    /// A chain was popped, even if it was put back.
    began: bool,
    /// The driver overwrote state on which recovery depends.
    spoiled: bool,
    /// The driver's position and wrap counter.
    tail: u16,
    wrap: bool,
}

/// Returns the memory of the inflight record, which is separate from the guest's.
fn record_view(record: &GuestMemory, packed: bool, size: u16) -> View {
    let bytes = if packed { Inflight::packed_bytes(size) } else { Inflight::bytes(size) };
    record.map.view(GUEST, bytes).expect("the record has room")
}

fn open(
    setup: QueueSetup,
    used: u16,
    packed: bool,
    guest_memory: &GuestMemory,
) -> Result<Queue, RingError> {
    if packed {
        Queue::packed(setup, used, &guest_memory.map)
    } else {
        Queue::new(setup, &guest_memory.map)
    }
}

/// Draws the addresses of a queue, usually valid.
fn setup(input: &mut Input<'_>, packed: bool) -> (QueueSetup, u16) {
    let flags = input.u8();
    let mut size = if packed { input.below(64) as u16 + 1 } else { 1 << input.below(7) };
    let mut next = input.u16();
    if flags & 1 == 0 {
        next = if packed { 0x8000 } else { next };
    }
    let mut places = [DESC, AVAIL, USED].map(|at| GUEST + at as u64);
    if flags & 0x80 != 0 {
        size = input.u16();
        places[input.below(3)] = input.u64();
    }
    let [desc, avail, used] = places;
    let (event_index, indirect) = (flags & 2 != 0, flags & 4 != 0);
    let start = if flags & 8 == 0 { next } else { input.u16() };
    (QueueSetup { size, desc, avail, used, event_index, indirect, next }, start)
}

/// Runs `data` on a ring of one format.
pub fn run(data: &[u8], packed: bool) {
    guest_memory::with::<BYTES>(|guest_memory| {
        guest_memory::with::<{ 4 << 10 }>(|record| {
            let mut input = Input::new(data);
            let (setup, used) = setup(&mut input, packed);
            let usual = setup.desc == GUEST
                && setup.avail == GUEST + AVAIL as u64
                && setup.used == GUEST + USED as u64;
            let queue = open(setup, used, packed, guest_memory);
            // A ring at another place may overlap with other data: the scenario ends after its
            // set-up.
            let (Ok(queue), true) = (queue, usual && setup.size <= SIZE_MAX) else { return };
            let mut scenario = Scenario::new(guest_memory, packed, setup, queue);
            input.steps(STEPS_MAX, |input| scenario.step(input, record));
            scenario.end();
        });
    });
}

impl<'g> Scenario<'g> {
    fn new(
        guest_memory: &'g mut GuestMemory,
        packed: bool,
        setup: QueueSetup,
        queue: Queue,
    ) -> Self {
        let (tail, wrap) = match packed {
            true => (setup.next & 0x7fff, setup.next & 0x8000 != 0),
            false => (setup.next, false),
        };
        let scenario = Self {
            guest_memory,
            packed,
            setup,
            queue,
            chain: Chain::new(),
            held: Vec::new(),
            pushed: Vec::new(),
            fresh: Vec::new(),
            recording: false,
            began: false,
            spoiled: false,
            tail,
            wrap,
        };
        if !packed {
            scenario.guest_memory.write(AVAIL + 2, &tail.to_le_bytes());
        }
        scenario
    }

    fn step(&mut self, input: &mut Input<'_>, record: &mut GuestMemory) {
        match input.below(20) {
            0 => self.scribble(input),
            1 | 2 => self.describe(input),
            3..=5 => self.offer(input),
            6 => self.jump(input),
            7..=9 => self.pop(),
            10 | 11 => self.push(input),
            12 => self.push_unknown_head(input),
            13 => self.put_back(),
            14 => self.publish(),
            15 => self.look(input),
            16 => self.remap(),
            17 => self.begin_record(record),
            18 => self.die(record),
            _ => {
                if input.bool() {
                    let at = usize::from(input.u16()) % record.len();
                    record.write(at, input.bytes(8));
                    self.spoiled = true;
                } else {
                    self.finish();
                }
            }
        }
        assert_eq!(usize::from(self.queue.in_flight()), self.held.len(), "chains in flight");
    }

    /// Checks that a broken queue stays broken and that an intact queue reports no error.
    fn judge<T>(&mut self, result: Result<T, RingError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert_eq!(self.queue.broken(), Some(error), "error is not permanent");
                assert_eq!(self.queue.available(), Err(error));
                assert_eq!(self.queue.publish(), Err(error));
                None
            }
        }
    }

    fn scribble(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.u16()) % self.guest_memory.len();
        self.guest_memory.write(at, input.bytes(8));
        self.spoiled |= (USED..TABLES).contains(&(at + 7)) || self.packed && at < AVAIL;
    }

    /// Writes a descriptor into the ring or a table.
    fn describe(&mut self, input: &mut Input<'_>) {
        let table = [DESC, DESC, TABLES, TABLES + 0x100][input.below(4)];
        let nth = input.below(usize::from(SIZE_MAX));
        let at = table + 16 * nth;
        let addr = match input.below(8) {
            0 => input.u64(),
            1 => GUEST + self.guest_memory.len() as u64 - u64::from(input.u8()),
            2 => GUEST.wrapping_sub(u64::from(input.u8())),
            3 | 4 => GUEST + [TABLES, TABLES + 0x100, TABLES + 0x200][input.below(3)] as u64,
            _ => GUEST + DATA as u64 + u64::from(input.u16() & 0x1fff),
        };
        let len = match input.below(4) {
            0 => input.u32(),
            1 => 16 * (u32::from(input.u8()) & 15),
            _ => u32::from(input.u8()),
        };
        let flags = if input.below(8) == 0 { input.u16() } else { u16::from(input.u8() & 7) };
        let last = if input.below(8) == 0 { input.u16() } else { u16::from(input.u8()) % SIZE_MAX };
        self.guest_memory.write(at, &descriptor(addr, len, flags, last, self.packed));
        self.spoiled |= self.packed && table == DESC;
    }

    /// Makes a chain available, as a driver does.
    fn offer(&mut self, input: &mut Input<'_>) {
        let size = self.setup.size;
        let id = u16::from(input.u8()) % size;
        if !self.packed {
            let slot = usize::from(self.tail % size);
            self.guest_memory.write(AVAIL + 4 + 2 * slot, &id.to_le_bytes());
            self.tail = self.tail.wrapping_add(1);
            self.guest_memory.write(AVAIL + 2, &self.tail.to_le_bytes());
            return;
        }
        let count = 1 + input.below(3) as u16;
        let shape = input.u8();
        for nth in 0..count {
            let avail = if self.wrap { 1 << 7 } else { 1 << 15 };
            let more = if nth + 1 < count { NEXT } else { 0 };
            let write = u16::from(shape >> nth & 1) << 1;
            let (addr, len, flags) = match shape & 0x80 {
                0 => (DATA + 256 * usize::from(nth), 64, avail | more | write),
                _ => (TABLES, 16 * (u32::from(shape) & 3), avail | INDIRECT),
            };
            let at = DESC + 16 * usize::from(self.tail);
            let bytes = descriptor(GUEST + addr as u64, len, flags, id, true);
            self.guest_memory.write(at, &bytes);
            self.tail += 1;
            if self.tail >= size {
                self.tail = 0;
                self.wrap = !self.wrap;
            }
        }
    }

    /// Sets the available index to any value; in a packed ring, the driver's position.
    fn jump(&mut self, input: &mut Input<'_>) {
        if self.packed {
            self.tail = input.u16() % self.setup.size;
            self.wrap = input.bool();
        } else {
            self.tail = input.u16();
            self.guest_memory.write(AVAIL + 2, &self.tail.to_le_bytes());
        }
    }

    fn pop(&mut self) {
        let mut chain = std::mem::take(&mut self.chain);
        self.queue.prefetch(&self.guest_memory.map, u16::MAX);
        let popped = self.queue.pop(&self.guest_memory.map, &mut chain);
        if self.judge(popped) == Some(true) {
            let head = chain.head();
            self.began = true;
            assert!(head < self.setup.size, "head {head}");
            assert!(!self.held.contains(&head), "head {head} popped twice");
            self.assert_sound(&chain);
            // A driver that reuses a chain before its return corrupts the record, at its own
            // expense.
            self.spoiled |= self.pushed.contains(&head);
            self.held.push(head);
            self.fresh.push(head);
        }
        self.chain = chain;
    }

    /// Asserts the guarantees on which a service relies.
    fn assert_sound(&self, chain: &Chain) {
        let (readable, writable) = (chain.readable(), chain.writable());
        assert!(
            readable.len() + writable.len() <= usize::from(self.setup.size),
            "longer than the queue"
        );
        for span in readable.iter().chain(writable) {
            let granted = span.len == 0 || self.guest_memory.grants(span.addr, span.len.into());
            assert!(granted, "{span:?} is not granted");
        }
        let sum = |spans: &[causeway_memory::Span]| {
            spans.iter().map(|span| u64::from(span.len)).sum::<u64>()
        };
        assert_eq!(chain.readable_bytes(), sum(readable));
        assert_eq!(chain.writable_bytes(), sum(writable));
        assert_eq!(chain.reader().remaining(), sum(readable));
        assert!(sum(readable) + sum(writable) <= 1 << 32);
    }

    fn push(&mut self, input: &mut Input<'_>) {
        if self.held.is_empty() {
            return;
        }
        let head = self.held[input.below(self.held.len())];
        let pushed = self.queue.push(head, u32::from(input.u8()));
        // A queue that breaks during a push may or may not still count the chain.
        if self.queue.broken().is_none() {
            self.held.retain(|&held| held != head);
            self.pushed.push(head);
            self.fresh.clear();
        } else {
            self.resync();
        }
        self.judge(pushed);
    }

    /// A push of a head that the device does not hold has no effect.
    fn push_unknown_head(&mut self, input: &mut Input<'_>) {
        let head = input.u16();
        if self.held.contains(&head) || self.queue.broken().is_some() {
            return;
        }
        assert_eq!(self.queue.push(head, 1), Ok(()));
    }

    fn put_back(&mut self) {
        let Some(head) = self.fresh.pop() else { return };
        let before = self.queue.popped();
        self.queue.put_back(head);
        if self.queue.broken().is_none() {
            assert_eq!(before.wrapping_sub(self.queue.popped()), 1, "put back");
        }
        self.held.retain(|&held| held != head);
    }

    fn publish(&mut self) {
        let before = u16::from_le_bytes(self.guest_memory.read(USED + 2));
        let published = self.queue.publish();
        if self.judge(published).is_none() {
            return;
        }
        let count = std::mem::take(&mut self.pushed).len() as u16;
        let after = u16::from_le_bytes(self.guest_memory.read(USED + 2));
        if !self.packed && count > 0 && !self.spoiled {
            assert_eq!(after.wrapping_sub(before), count, "used entries shown");
        }
    }

    fn look(&mut self, input: &mut Input<'_>) {
        let size = self.setup.size;
        match input.below(3) {
            0 => {
                let available = self.queue.available();
                if let Some(count) = self.judge(available) {
                    assert!(count <= size.saturating_mul(2), "{count} available");
                }
            }
            1 => {
                let armed = self.queue.arm();
                self.judge(armed);
            }
            _ => {
                let quiet = self.queue.disarm();
                self.judge(quiet);
            }
        }
    }

    fn remap(&mut self) {
        assert_eq!(self.queue.remap(&self.guest_memory.map), Ok(()));
    }

    fn begin_record(&mut self, record: &GuestMemory) {
        // Recording starts only at the start of a queue, before the first `pop`.
        if self.recording || self.began || self.queue.broken().is_some() {
            return;
        }
        self.recording = self.take_record(record);
    }

    fn take_record(&mut self, record: &GuestMemory) -> bool {
        let size = self.setup.size;
        let view = record_view(record, self.packed, size);
        let taken =
            if self.packed { Inflight::packed(view, size) } else { Inflight::new(view, size) };
        let outcome = taken.and_then(|inflight| self.queue.record(inflight));
        assert!(outcome.is_ok() || self.spoiled, "own record was refused: {outcome:?}");
        outcome.is_ok()
    }

    /// Restarts the device: the new queue must return the chains in flight again.
    fn die(&mut self, record: &GuestMemory) {
        if !self.recording || self.queue.broken().is_some() {
            return;
        }
        // The next index as the frontend knows it: the used index of the ring.
        let used = match self.packed {
            true => self.setup.next,
            false => u16::from_le_bytes(self.guest_memory.read(USED + 2)),
        };
        let setup = QueueSetup { next: used, ..self.setup };
        let Ok(queue) = open(setup, used, self.packed, self.guest_memory) else { return };
        self.queue = queue;
        let mut lost = std::mem::take(&mut self.held);
        (self.pushed, self.fresh) = (Vec::new(), Vec::new());
        if !self.take_record(record) {
            self.recording = false;
            return;
        }
        if self.spoiled {
            return;
        }
        // Every chain that was in flight comes first, each once, unless the driver broke the ring
        // since.
        while !lost.is_empty() && self.queue.broken().is_none() {
            let before = self.held.len();
            self.pop();
            if self.held.len() == before {
                break;
            }
            let head = self.held[before];
            lost.retain(|&one| one != head);
        }
        assert!(
            lost.is_empty() || self.queue.broken().is_some(),
            "chains were not returned after the restart: {lost:?}"
        );
    }

    /// Returns all chains, stops the queue and resumes at its position.
    fn finish(&mut self) {
        let finished = self.queue.finish();
        if self.judge(finished).is_none() {
            self.resync();
            return;
        }
        self.held.clear();
        self.pushed.clear();
        self.fresh.clear();
    }

    /// Takes the counts from the queue, because they are undefined for the model after a break.
    fn resync(&mut self) {
        let count = usize::from(self.queue.in_flight());
        self.held.truncate(count);
    }

    fn end(mut self) {
        let used = if self.packed { 4 } else { 6 + 8 * usize::from(self.setup.size) };
        let mut ours = vec![(USED, used)];
        if self.packed {
            ours.push((DESC, 16 * usize::from(self.setup.size)));
        }
        self.guest_memory.assert_untouched(&ours);
        let finished = self.queue.finish();
        if self.judge(finished).is_some() {
            assert_eq!(self.queue.in_flight(), 0, "all chains were returned");
        }
    }
}

/// Encodes a descriptor; `last` is the next field of a split ring, or the buffer id of a packed
/// ring.
fn descriptor(addr: u64, len: u32, flags: u16, last: u16, packed: bool) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    let (first, second) = if packed { (last, flags) } else { (flags, last) };
    bytes[12..14].copy_from_slice(&first.to_le_bytes());
    bytes[14..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// Returns scenarios that reach deep code paths: valid chains, popped and used, with and without a
/// restart.
pub fn seeds(packed: bool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for flags in [0_u8, 2, 4, 6] {
        // A queue of 8 from the first position; recording starts.
        let mut scenario = vec![flags, if packed { 7 } else { 3 }, 0, 0, 17];
        for round in 0..6_u8 {
            if !packed {
                // A readable descriptor in the ring, within the data, without a successor.
                scenario.extend([1, 0, round, 5, 0, 0, 2, 32, 1, 0, 1, 0]);
            }
            scenario.extend([3, round]);
            if packed {
                scenario.extend([round % 3, 4]);
            }
            scenario.extend([7, 15, 0, 15, 1]);
            match round {
                0 | 3 => scenario.extend([10, 0, 8]),
                1 => scenario.push(18),
                2 => scenario.push(13),
                _ => scenario.push(14),
            }
        }
        scenario.extend([14, 16, 19, 0]);
        all.push(scenario);
    }
    all
}
