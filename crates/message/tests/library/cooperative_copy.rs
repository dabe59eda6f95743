//! Cooperative copies of large messages, and sides that stop in the middle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use causeway_channel::{EventHead, Layout, Side, open};
use causeway_message::library::{
    Buffer as _, Inaccessible, ProgressStep, RemoteMemory, RemoteRange, RequestId,
};
use causeway_message::limits::{
    DIRECT_BYTES_MIN, HELP_POLLS_MAX, SHARED_BYTES_MIN, SHARED_PART_BYTES, SHARED_PARTS_AT_ONCE,
};
use causeway_message::split::PeerId;
use causeway_message::status::Status;
use causeway_testing::messages::*;
use proptest::prelude::*;

/// Accesses to the other side's memory. Writes are recorded here and applied to the receive's bytes
/// at the end.
#[derive(Debug, Default)]
struct Log {
    /// Bytes of the other side, by address.
    at: u64,
    bytes: Vec<u8>,
    reads: usize,
    written: Vec<(u64, Vec<u8>)>,
    /// Planned results of writes, in order.
    plan: Vec<Result<usize, Inaccessible>>,
    /// Memory can no longer be written.
    closed: bool,
    /// Memory cannot be read.
    never: bool,
    /// Writes take time.
    slow: bool,
    dead: bool,
    now: u64,
    /// Time that each read of the clock takes.
    tick: u64,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Log>>, Arc<AtomicBool>);

impl Fake {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    fn is_writing(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

impl RemoteMemory for Fake {
    fn read(&self, from: &[RemoteRange], into: &mut [u8]) -> Result<usize, Inaccessible> {
        let mut log = self.log();
        if log.never {
            return Err(Inaccessible);
        }
        log.reads += 1;
        let mut done = 0;
        for place in from {
            let (from, len) = (place.at.wrapping_sub(log.at) as usize, place.len as usize);
            // Of an earlier message: not checked.
            match log.bytes.get(from..from.saturating_add(len)) {
                Some(bytes) => into[done..done + len].copy_from_slice(bytes),
                None => into[done..done + len].fill(0),
            }
            done += len;
        }
        assert_eq!(done, into.len());
        Ok(done)
    }

    fn write(&self, to: &[RemoteRange], from: &[u8]) -> Result<usize, Inaccessible> {
        if self.log().slow {
            self.1.store(true, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(30));
            self.1.store(false, Ordering::SeqCst);
        }
        let mut log = self.log();
        assert!(!log.closed, "written after the end of the receive");
        if !log.plan.is_empty() {
            return log.plan.remove(0);
        }
        let mut done = 0;
        for place in to {
            let len = place.len as usize;
            log.written.push((place.at, from[done..done + len].to_vec()));
            done += len;
        }
        assert_eq!(done, from.len());
        Ok(done)
    }

    fn lives(&self) -> bool {
        !self.log().dead
    }

    fn now_ns(&self) -> u64 {
        let mut log = self.log();
        log.now += log.tick;
        log.now
    }
}

/// Two endpoints; the first sends, the second receives.
struct Both {
    pair: EndpointPair,
    /// Access of the sender to the receiver's memory, and the reverse.
    writes: Fake,
    reads: Fake,
}

impl Both {
    /// `side`: the sender's.
    fn new(side: Side) -> Self {
        let (writes, reads) = (Fake::default(), Fake::default());
        let memory = memory(Layout::DEFAULT);
        let (mut a, mut b) = (End::new(options(1)), End::new(options(2)));
        let other = if side == Side::First { Side::Second } else { Side::First };
        let mut to_b = channel(&memory, side, 2);
        to_b.direct = Some(Box::new(writes.clone()));
        let mut to_a = channel(&memory, other, 1);
        to_a.direct = Some(Box::new(reads.clone()));
        assert!(a.ways.add(to_b) && b.ways.add(to_a));
        a.run();
        b.run();
        let mut both = Self { pair: EndpointPair { a, b, memory }, writes, reads };
        // The first message uses the channel; the next is read and takes no time.
        let (_, end) =
            both.begin(99, &content(99, DIRECT_BYTES_MIN), (usize::MAX / 2, usize::MAX / 2));
        both.pair.run();
        end.check(&mut both);
        assert_eq!(both.reads.log().reads, 0);
        both
    }

    /// Starts a send and a receive with segments of these sizes.
    fn begin(
        &mut self,
        info: u64,
        bytes: &[u8],
        (from, into): (usize, usize),
    ) -> (RequestId, Ending) {
        let (pad, back) = cut_room(bytes.len(), into);
        let base = pad.bytes(0).as_ptr().addr() as u64;
        let EndpointPair { a, b, .. } = &mut self.pair;
        let receive = b.library.irecv(&mut b.ways, info, u64::MAX, 0, pad).unwrap();
        let data = cut(bytes, from);
        {
            let mut log = self.reads.log();
            (log.at, log.bytes) = (data.bytes(0).as_ptr().addr() as u64, bytes.to_vec());
        }
        self.writes.log().written.clear();
        let sent = a.library.isend(&mut a.ways, B, info, 0, data).unwrap();
        (sent, Ending { receive, sent, back, base, bytes: bytes.to_vec() })
    }

    fn step(&mut self, of_sender: bool) -> bool {
        let EndpointPair { a, b, .. } = &mut self.pair;
        let end = if of_sender { a } else { b };
        end.library.progress(&mut end.ways) != ProgressStep::Idle
    }

    fn helped(&self) -> u64 {
        self.pair.b.ways.fetched().helped
    }
}

struct Ending {
    receive: RequestId,
    sent: RequestId,
    back: Back,
    base: u64,
    bytes: Vec<u8>,
}

impl Ending {
    /// Checks that both ended with success and every byte was copied once. Returns the bytes that
    /// the sender wrote.
    #[track_caller]
    fn check(self, both: &mut Both) -> usize {
        assert_eq!(both.pair.b.ended(self.receive).status, Status::Success);
        let sent = both.pair.a.ended(self.sent);
        assert_eq!((sent.status, sent.xfer_length as usize), (Status::Success, self.bytes.len()));
        let mut got = given(&self.back);
        let mut written = 0;
        for (at, bytes) in &both.writes.log().written {
            let at = (at - self.base) as usize;
            let place = &mut got[at..at + bytes.len()];
            assert!(place.iter().all(|byte| *byte == 0xaa), "read and written");
            place.copy_from_slice(bytes);
            written += bytes.len();
        }
        assert!(got == self.bytes, "{} bytes, {written} written", got.len());
        written
    }
}

const WHOLE: (usize, usize) = (usize::MAX / 2, usize::MAX / 2);

#[test]
fn cooperative_copy_copies_each_byte_once() {
    for side in [Side::First, Side::Second] {
        let mut both = Both::new(side);
        let lens = [500_001, 1 << 20, (5 << 20) + 1, SHARED_PART_BYTES * 100];
        for (at, len) in lens.into_iter().enumerate() {
            let (_, end) = both.begin(at as u64, &content(at as u64, len), WHOLE);
            while both.step(false) | both.step(true) {}
            let written = end.check(&mut both);
            assert!(written > len / 10 && written < len * 4 / 5, "{written} of {len}");
            assert_eq!(both.helped(), at as u64 + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Any order of calls on both sides, with any segments.
    #[test]
    fn cooperative_copy_in_any_order_copies_each_byte_once(
        len in SHARED_BYTES_MIN..2_000_000,
        turns in prop::collection::vec(any::<bool>(), 0..60),
        pieces in (1..=8_usize, 1..=8_usize),
        first in any::<bool>(),
        failing in prop::collection::vec(0..3_u8, 0..3),
    ) {
        let mut both = Both::new(if first { Side::First } else { Side::Second });
        let size = |pieces: usize| len.div_ceil(pieces);
        let bytes = content(1, len);
        let plan = failing.into_iter().map(|how| match how {
            0 => Ok(0),
            1 => Ok(1),
            _ => Err(Inaccessible),
        });
        both.writes.log().plan = plan.collect();
        let (_, end) = both.begin(1, &bytes, (size(pieces.0), size(pieces.1)));
        for turn in turns {
            both.step(turn);
        }
        both.pair.run();
        end.check(&mut both);
        // And the next message.
        both.writes.log().plan.clear();
        let (_, end) = both.begin(2, &bytes, WHOLE);
        both.pair.run();
        end.check(&mut both);
    }
}

#[test]
fn cooperative_copy_idle_sender_costs_nothing_and_may_join_late() {
    let mut both = Both::new(Side::First);
    let bytes = content(1, 4 << 20);
    let (_, end) = both.begin(1, &bytes, WHOLE);
    let mut steps = 0;
    while both.step(false) {
        steps += 1;
    }
    assert!(steps < 40, "{steps} steps");
    both.pair.run();
    assert_eq!(end.check(&mut both), 0);
    assert_eq!(both.helped(), 0);
}

#[test]
fn cooperative_copy_falls_back_to_a_read() {
    for how in [Ok(0), Ok(100), Err(Inaccessible)] {
        let mut both = Both::new(Side::Second);
        both.writes.log().plan = vec![how];
        let bytes = content(1, 1 << 20);
        let (_, end) = both.begin(1, &bytes, WHOLE);
        while both.step(false) | both.step(true) {}
        assert_eq!(end.check(&mut both), 0, "{how:?}");
    }
}

#[test]
fn cooperative_copy_writes_nothing_to_a_lost_receiver() {
    let mut both = Both::new(Side::First);
    both.writes.log().dead = true;
    let (_, end) = both.begin(1, &content(1, 1 << 20), WHOLE);
    while both.step(false) | both.step(true) {}
    assert_eq!(end.check(&mut both), 0);
}

#[test]
fn cooperative_copy_is_not_requested_by_a_sending_receiver() {
    let mut both = Both::new(Side::First);
    both.pair.b.send(A, 98, &content(98, DIRECT_BYTES_MIN));
    both.pair.run();
    let (_, end) = both.begin(1, &content(1, 1 << 20), WHOLE);
    both.pair.run();
    assert_eq!(end.check(&mut both), 0);
}

#[test]
fn cooperative_copy_stops_at_the_failure_of_the_receive() {
    for way in 0..4 {
        let mut both = Both::new(Side::First);
        let (sent, end) = both.begin(1, &content(1, 4 << 20), WHOLE);
        assert!(both.step(false));
        assert!(both.step(true));
        assert_eq!(both.writes.log().written.len(), 1, "it helps");
        let EndpointPair { a, b, .. } = &mut both.pair;
        let ill = match way {
            0 => {
                a.library.set_timeout(Some(sent), Some(5)).unwrap();
                a.library.tick(&mut a.ways, 10);
                assert_eq!(a.ended(sent).status, Status::Timeout);
                Status::Aborted
            }
            1 => {
                a.library.disconnect(&mut a.ways, B).unwrap();
                Status::EndpointClosed
            }
            2 => {
                b.ways.report_lost(PeerId(1), Status::EndpointClosed);
                Status::EndpointClosed
            }
            _ => {
                b.library.disconnect(&mut b.ways, A).unwrap();
                Status::EndpointUnreachable
            }
        };
        if way != 0 {
            while both.step(false) {}
            for _ in 0..2000 {
                both.step(false);
            }
            assert_eq!(both.pair.b.ended(end.receive).status, ill, "{way}");
        }
        both.writes.log().closed = true;
        for _ in 0..2000 {
            both.step(true);
            both.step(false);
        }
        if way == 0 {
            assert_eq!(both.pair.b.ended(end.receive).status, ill);
        }
    }
}

#[test]
fn cooperative_copy_sender_stays_awake_and_waiting_receiver_may_sleep() {
    let mut both = Both::new(Side::First);
    // As if the sender copied the rest at this moment; and then it does.
    let least = SHARED_PARTS_AT_ONCE.least as usize * SHARED_PART_BYTES;
    let (_, end) = both.begin(1, &content(1, 3 * least), WHOLE);
    assert!(both.step(false));
    let word = u64::from_le_bytes(both.pair.memory.read::<8>(1024 + 192).unwrap());
    let (front, back) = (word & 0x1f_ffff, word >> 21 & 0x1f_ffff);
    assert!(front == 0 && back > 0, "the receiver takes from the back");
    both.pair.memory.write(1024 + 192, &(word | back | 1 << 42).to_le_bytes()).unwrap();
    while both.step(false) {}
    assert!(both.pair.b.is_pending(end.receive));
    assert!(both.pair.b.ways.arm(), "it waits for a bell");
    both.pair.b.ways.disarm();
    both.pair.memory.write(1024 + 192, &word.to_le_bytes()).unwrap();
    while both.step(true) {}
    assert!(!both.pair.b.ways.arm(), "the event ends the wait");
    both.pair.b.ways.disarm();
    both.pair.run();
    assert!(end.check(&mut both) > 0);

    // The same where the event is not readable: the receiver polls by itself.
    let (_, end) = both.begin(3, &content(3, 3 * least), WHOLE);
    assert!(both.step(false));
    let word = u64::from_le_bytes(both.pair.memory.read::<8>(1024 + 192).unwrap());
    let back = word >> 21 & 0x1f_ffff;
    both.pair.memory.write(1024 + 192, &(word | back | 1 << 42).to_le_bytes()).unwrap();
    while both.step(false) {}
    assert!(both.pair.b.is_pending(end.receive));
    both.pair.memory.write(1024 + 192, &word.to_le_bytes()).unwrap();
    assert!(!both.pair.b.ways.arm(), "a part is ready");
    both.pair.b.ways.disarm();
    while both.step(false) {}
    both.pair.run();
    assert_eq!(end.check(&mut both), 0);

    // The wait for a stopped receiver is bounded.
    let (_, end) = both.begin(2, &content(2, 4 << 20), WHOLE);
    assert!(both.step(false));
    assert!(both.step(true));
    assert!(!both.pair.a.ways.arm(), "it helps");
    both.pair.a.ways.disarm();
    let mut looks = 0;
    while both.step(true) {
        looks += 1;
        assert!(looks <= 2 * HELP_POLLS_MAX);
    }
    assert!(both.pair.a.ways.arm(), "it helps no more");
    both.pair.a.ways.disarm();
    both.pair.run();
    assert!(end.check(&mut both) > 0);
}

/// The sender's event stands behind a deferred message: the receiver must not sleep.
#[test]
fn cooperative_copy_behind_a_deferred_message_keeps_the_receiver_awake() {
    let mut both = Both::new(Side::First);
    let least = SHARED_PARTS_AT_ONCE.least as usize * SHARED_PART_BYTES;
    both.pair.b.library.set_unexpected_max(1, 1);
    let (_, end) = both.begin(1, &content(1, 3 * least), WHOLE);
    for info in 70..110 {
        both.pair.a.send(B, info, b"some are kept, and the next is not taken");
    }
    let word = |both: &Both| u64::from_le_bytes(both.pair.memory.read::<8>(1024 + 192).unwrap());
    assert!(both.step(false));
    let shared = word(&both);
    let back = shared >> 21 & 0x1f_ffff;
    both.pair.memory.write(1024 + 192, &(shared | back | 1 << 42).to_le_bytes()).unwrap();
    while both.step(false) {}
    assert!(both.pair.b.is_pending(end.receive));
    assert!(!both.pair.b.ways.arm(), "no doorbell may ring");
    both.pair.b.ways.disarm();
    // Now the part is copied, without an event.
    both.pair.memory.write(1024 + 192, &shared.to_le_bytes()).unwrap();
    while !both.pair.b.ways.arm() {
        both.pair.b.ways.disarm();
        both.step(false);
    }
    both.pair.b.ways.disarm();
    assert_eq!(both.pair.b.ended(end.receive).status, Status::Success);
}

/// Memory that is withdrawn from a receive in each of its states: no process writes to it, and the
/// receive ends.
#[test]
fn cooperative_copy_stops_when_the_memory_is_withdrawn() {
    for state in 0..4 {
        let mut both = Both::new(Side::First);
        let (_, end) = both.begin(1, &content(1, 4 << 20), WHOLE);
        let (_, other) = both.begin(2, &content(1, 4 << 20), WHOLE);
        if state > 0 {
            both.step(false);
        }
        if state > 1 {
            both.step(true);
        }
        if state > 2 {
            // The sender copies the rest at this moment, and ends.
            let word = u64::from_le_bytes(both.pair.memory.read::<8>(1024 + 192).unwrap());
            let front = word >> 21 & 0x1f_ffff;
            let lie = word & !0x1f_ffff | front | 1 << 42;
            both.pair.memory.write(1024 + 192, &lie.to_le_bytes()).unwrap();
            while both.step(false) {}
            both.reads.log().dead = true;
        }
        let End { library, ways } = &mut both.pair.b;
        for receive in [end.receive, other.receive] {
            library.lose_buffer(ways, receive, Pad::lose);
        }
        both.writes.log().closed = true;
        both.reads.log().dead = false;
        for _ in 0..3000 {
            both.step(false);
            both.step(true);
        }
        for receive in [end.receive, other.receive] {
            assert_eq!(both.pair.b.ended(receive).status, Status::Success, "{state}");
        }
    }
}

/// A receiver without read access to its peer, which could write: it does not ask for help.
#[test]
fn cooperative_copy_needs_access_in_both_directions() {
    let mut both = Both::new(Side::First);
    let bytes = content(1, 1 << 20);
    for info in [1, 2] {
        both.pair.a.send(B, info, &bytes);
    }
    both.pair.run();
    // Two messages are to be read, and the first read fails for good.
    both.reads.log().never = true;
    let receives = [1, 2].map(|info| both.pair.b.receive(info, u64::MAX, bytes.len()));
    while both.step(false) {}
    both.writes.log().closed = true;
    both.pair.run();
    for (receive, back) in receives {
        assert_eq!(both.pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == bytes);
    }
    assert_eq!(both.pair.b.ways.fetched().refused, 1);
    let word = u64::from_le_bytes(both.pair.memory.read::<8>(1024 + 192).unwrap());
    assert!(word >> 43 <= 1, "the second was shared, too");
}

/// Two threads: a disconnect from a copying sender waits for the end of the copy.
#[test]
fn cooperative_copy_disconnect_waits_for_the_sender() {
    for state in 0..2 {
        let mut both = Both::new(Side::First);
        let (_, end) = both.begin(1, &content(1, 4 << 20), WHOLE);
        assert!(both.step(false));
        both.writes.log().slow = true;
        let Both { pair: EndpointPair { mut a, mut b, .. }, writes, .. } = both;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| a.library.progress(&mut a.ways));
            while !writes.is_writing() {
                std::thread::yield_now();
            }
            match state {
                0 => b.library.disconnect(&mut b.ways, A).unwrap(),
                _ => b.library.lose_buffer(&mut b.ways, end.receive, Pad::lose),
            }
            assert!(!writes.is_writing(), "it did not wait");
            writes.log().closed = true;
            assert_eq!(sender.join().unwrap(), ProgressStep::Worked);
        });
    }
}

/// A receiver that the test controls, to which an endpoint sends.
struct Liar {
    end: End,
    writes: Fake,
    mouth: causeway_channel::Sender,
    ear: causeway_channel::Receiver,
    memory: causeway_memory::View,
    /// The endpoint's offer: its bytes and its name.
    sent: RequestId,
    name: u64,
    data: Vec<u8>,
}

impl Liar {
    fn new() -> Self {
        let (writes, memory) = (Fake::default(), memory(Layout::DEFAULT));
        let mut end = End::new(options(1));
        let mut to_liar = channel(&memory, Side::First, 2);
        to_liar.direct = Some(Box::new(writes.clone()));
        assert!(end.ways.add(to_liar));
        end.run();
        let (mouth, mut ear) = open(&memory, Side::Second).unwrap();
        let data = content(8, 1 << 20);
        let sent = end.send(B, 8, &data);
        let offer = ear.poll().unwrap().unwrap();
        ear.advance(&offer);
        Self { end, writes, mouth, ear, memory, sent, name: offer.head.words[1], data }
    }

    fn say(&mut self, kind: u8, words: [u64; 3], told: &[u64]) {
        let bytes: Vec<u8> = told.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(self.mouth.send(EventHead { kind, words }, &bytes).unwrap());
        self.end.run();
    }

    /// Writes the shared word of the endpoint's message: number, front and back.
    fn share(&self, number: u64, front: u64, back: u64) {
        let word = number << 43 | back << 21 | front;
        self.memory.write(1024 + 192, &word.to_le_bytes()).unwrap();
    }
}

#[test]
fn cooperative_copy_hostile_requests_write_only_the_offered_bytes() {
    let len = 1_u64 << 20;
    let all = len / SHARED_PART_BYTES as u64;
    let mut liar = Liar::new();
    let name = liar.name;
    // No addresses, too few bytes, too many, ranges that wrap, another peer's name, no number.
    for (words, told) in [
        ([name, 5, len], &[1][..]),
        ([name, 5, len], &[1, 4096, len - 1]),
        ([name, 5, len], &[1, 4096]),
        ([name, 5, len], &[1, u64::MAX, len]),
        ([name, 5, u64::MAX], &[1, 4096, u64::MAX]),
        ([name, 5, 1 << 40], &[1, 4096, 1 << 40]),
        ([name + 1, 5, len], &[1, 4096, len]),
        ([name, 5, len], &[0, 4096, len]),
        ([name, 5, len], &[1 << 40, 4096, len]),
    ] {
        liar.share(told[0], 0, all);
        liar.say(7, words, told);
        assert!(liar.writes.log().written.is_empty(), "{words:?} {told:?}");
    }
    // A longer message than the offer: the rest is not written, and no byte is written twice.
    liar.share(1, 0, 2 * all);
    liar.say(7, [name, 5, 2 * len], &[1, 4096, 2 * len]);
    let data = liar.data.clone();
    assert!(liar.writes.log().written.iter().all(|(at, bytes)| {
        let from = (at - 4096) as usize;
        data.get(from..from + bytes.len()).is_some_and(|of| of == bytes)
    }));
    // The word of another message, or reversed, or out of range.
    liar.writes.log().written.clear();
    for (number, front, back) in [(2, 0, all), (1, all, 0), (1, 0, all + 1), (0, 0, all)] {
        liar.share(number, front, back);
        liar.say(7, [name, 5, len], &[1, 4096, len]);
    }
    assert!(liar.writes.log().written.is_empty());
    // The receiver claims nothing: the endpoint takes two steps for this request.
    liar.share(1, 0, all);
    liar.say(7, [name, 5, len], &[1, 4096, len]);
    let most = 2 * SHARED_PARTS_AT_ONCE.most as usize * SHARED_PART_BYTES;
    let written: usize = liar.writes.log().written.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(written > 0 && written <= most, "{written}");
    // A word that is reset again and again: a request ends when all parts were claimed.
    liar.writes.log().written.clear();
    let told: Vec<u8> = [3, 4096, len].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    assert!(liar.mouth.send(EventHead { kind: 7, words: [name, 5, len] }, &told).unwrap());
    for _ in 0..50 {
        liar.share(3, 0, 1);
        liar.end.library.progress(&mut liar.end.ways);
    }
    assert_eq!(liar.writes.log().written.len(), 1);
    // The end of a message that was never received completes no request of this side.
    for number in 0..300 {
        liar.say(8, [number, 0, 0], &[]);
    }
    assert!(liar.end.is_pending(liar.sent));
    liar.say(6, [name, len, 0], &[]);
    assert_eq!(liar.end.ended(liar.sent).status, Status::Success);
    // After that the offer is closed.
    liar.writes.log().closed = true;
    liar.share(2, 0, all);
    liar.say(7, [name, 5, len], &[2, 4096, len]);
    assert!(liar.ear.poll().is_ok());
}

/// A hostile sender may write the word, too: its receiver loses the channel, or waits as for any
/// silent sender; a disconnect takes bounded time.
#[test]
fn cooperative_copy_hostile_sender_loses_its_channel_in_bounded_time() {
    let all = (1_u64 << 20) / SHARED_PART_BYTES as u64;
    let busy = 1_u64 << 42;
    let number = 1_u64 << 43;
    let word = |front: u64, back: u64| number | back << 21 | front;
    for (lie, breaks) in [
        (0, true),
        (u64::MAX, true),
        (word(0, all + 1), true),
        (word(1, 0), true),
        (word(0, 0) | busy, false),
        (word(0, 0), false),
    ] {
        // The receiver claims from the front.
        let mut both = Both::new(Side::Second);
        let (_, end) = both.begin(1, &content(1, 1 << 20), WHOLE);
        assert!(both.step(false));
        let at = 2048 + 192;
        let said = u64::from_le_bytes(both.pair.memory.read::<8>(at).unwrap());
        let front = said & 0x1f_ffff;
        let lie = if breaks { lie } else { lie | front | front << 21 };
        both.pair.memory.write(at, &lie.to_le_bytes()).unwrap();
        for _ in 0..100 {
            both.step(false);
        }
        if breaks {
            let done = both.pair.b.ended(end.receive);
            assert_eq!(done.status, Status::EndpointUnreachable, "{lie:#x}");
            continue;
        }
        if lie & busy == 0 {
            // The sender claims to have copied everything: its message is the bytes that lie there.
            assert_eq!(both.pair.b.ended(end.receive).status, Status::Success);
            continue;
        }
        assert!(both.pair.b.is_pending(end.receive), "it waits");
        both.reads.log().tick = 1_000_000;
        let before = both.reads.log().now;
        let EndpointPair { b, .. } = &mut both.pair;
        b.library.disconnect(&mut b.ways, A).unwrap();
        assert_eq!(both.pair.b.ended(end.receive).status, Status::EndpointUnreachable);
        let waited = both.reads.log().now - before;
        assert!((2_000_000_000..2_100_000_000).contains(&waited), "{waited}");
        // No wait at all for an ended process.
        let mut both = Both::new(Side::Second);
        let (_, end) = both.begin(1, &content(1, 1 << 20), WHOLE);
        assert!(both.step(false));
        both.pair.memory.write(at, &lie.to_le_bytes()).unwrap();
        both.reads.log().dead = true;
        both.reads.log().tick = 1_000_000;
        both.pair.b.ways.report_lost(PeerId(1), Status::EndpointClosed);
        both.pair.run();
        assert_eq!(both.pair.b.ended(end.receive).status, Status::EndpointClosed);
        assert!(both.reads.log().now < 100_000_000);
    }
}
