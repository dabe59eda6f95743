//! Direct reads of large messages, and their failures.

use std::sync::{Arc, Mutex};

use causeway_channel::{EventHead, Layout, Side, open};
use causeway_message::library::{
    Buffer as _, Inaccessible, ProgressStep, RemoteMemory, RemoteRange, RequestId,
};
use causeway_message::limits::{DIRECT_BYTES_MIN, DIRECT_PLACES_MAX, DIRECT_STEP_BYTES};
use causeway_message::split::PeerId;
use causeway_message::status::Status;
use causeway_testing::messages::*;

/// Result of a read.
type Read = Result<usize, Inaccessible>;

/// Memory of a process as far as the test reads it, and planned results of reads.
#[derive(Debug, Default)]
struct Memory {
    at: u64,
    bytes: Vec<u8>,
    /// Planned results of reads, in order.
    plan: Vec<Read>,
    reads: usize,
    /// The time; each read takes some.
    now: u64,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Memory>>);

impl Fake {
    /// Sets the bytes at an address.
    fn put(&self, at: u64, bytes: &[u8]) {
        let mut memory = self.0.lock().unwrap();
        (memory.at, memory.bytes) = (at, bytes.to_vec());
    }

    fn plan(&self, plan: &[Read]) {
        self.0.lock().unwrap().plan = plan.to_vec();
    }

    fn reads(&self) -> usize {
        self.0.lock().unwrap().reads
    }
}

impl RemoteMemory for Fake {
    fn read(&self, from: &[RemoteRange], into: &mut [u8]) -> Result<usize, Inaccessible> {
        let mut memory = self.0.lock().unwrap();
        memory.reads += 1;
        memory.now += 1000 * into.len() as u64;
        assert_eq!(from.iter().map(|place| place.len).sum::<u64>(), into.len() as u64);
        assert!(from.iter().all(|place| place.len > 0));
        let wanted = match memory.plan.is_empty() {
            true => Ok(into.len()),
            false => memory.plan.remove(0),
        }?;
        let mut done = 0;
        for place in from {
            let from = (place.at - memory.at) as usize;
            let len = (place.len as usize).min(wanted.saturating_sub(done));
            into[done..done + len].copy_from_slice(&memory.bytes[from..from + len]);
            done += len;
        }
        Ok(done)
    }

    fn write(&self, _to: &[RemoteRange], _from: &[u8]) -> Result<usize, Inaccessible> {
        Ok(0)
    }

    fn lives(&self) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        self.0.lock().unwrap().now
    }
}

/// Two endpoints; the second reads the first's memory. The second has an open offer, because a
/// message without other traffic would use the channel.
fn pair() -> (EndpointPair, Fake) {
    let (pair, fake) = pair_alone();
    let mut pair = pair;
    pair.b.send(A, 99, &content(99, DIRECT_BYTES_MIN));
    pair.run();
    (pair, fake)
}

fn pair_alone() -> (EndpointPair, Fake) {
    let fake = Fake::default();
    let memory = memory(Layout::DEFAULT);
    let (mut a, mut b) = (End::new(options(1)), End::new(options(2)));
    let mut to_b = channel(&memory, Side::First, 2);
    to_b.direct = Some(Box::new(Fake::default()));
    let mut to_a = channel(&memory, Side::Second, 1);
    to_a.direct = Some(Box::new(fake.clone()));
    assert!(a.ways.add(to_b) && b.ways.add(to_a));
    a.run();
    b.run();
    (EndpointPair { a, b, memory }, fake)
}

/// Sends bytes in segments.
fn send(pair: &mut EndpointPair, fake: &Fake, info: u64, bytes: &[u8], size: usize) -> RequestId {
    let data = cut(bytes, size);
    fake.put(data.bytes(0).as_ptr().addr() as u64, bytes);
    pair.a.library.isend(&mut pair.a.ways, B, info, 0, data).unwrap()
}

#[test]
fn direct_read_copies_once_and_informs_the_sender() {
    let (mut pair, fake) = pair();
    let lens = [DIRECT_BYTES_MIN, 300_001, DIRECT_STEP_BYTES + 1, 3 * DIRECT_STEP_BYTES];
    let (mut number, mut before) = (0, 0);
    for len in lens {
        for (pieces, early) in [(1, true), (3, true), (DIRECT_PLACES_MAX, false), (1, false)] {
            number += 1;
            let bytes = content(number, len);
            let posted = early.then(|| pair.b.receive(number, u64::MAX, len));
            let sent = send(&mut pair, &fake, number, &bytes, len.div_ceil(pieces));
            pair.run();
            let (receive, back) = posted.unwrap_or_else(|| pair.b.receive(number, u64::MAX, len));
            pair.run();
            assert_eq!(pair.b.ended(receive).status, Status::Success);
            let done = pair.a.ended(sent);
            assert_eq!((done.status, done.xfer_length as usize), (Status::Success, len));
            assert!(given(&back) == bytes, "{len} in {pieces}");
            assert_eq!(fake.reads() - before, len.div_ceil(DIRECT_STEP_BYTES));
            before = fake.reads();
        }
    }
    let fetched = pair.b.ways.fetched();
    assert_eq!((fetched.messages, fetched.fell_back), (number, 0));
}

#[test]
fn direct_read_handles_segments_and_short_receives() {
    let (mut pair, fake) = pair();
    let bytes = content(1, 500_000);
    let (pad, back) = cut_room(400_000, 70_001);
    let receive = pair.b.library.irecv(&mut pair.b.ways, 1, u64::MAX, 0, pad).unwrap();
    let sent = send(&mut pair, &fake, 1, &bytes, 90_001);
    pair.run();
    for done in [pair.b.ended(receive), pair.a.ended(sent)] {
        assert_eq!((done.status, done.xfer_length), (Status::Truncated, 400_000));
        assert_eq!(done.msg_length, 500_000);
    }
    assert!(given(&back) == bytes[..400_000]);
    assert_eq!(fake.reads(), 6, "one for each piece of the receive");
}

#[test]
fn direct_read_is_used_where_it_is_faster() {
    let (mut alone, fake) = pair_alone();
    let exchange = |pair: &mut EndpointPair, len: usize, size: usize| {
        let bytes = content(5, len);
        let (receive, back) = pair.b.receive(5, u64::MAX, len);
        let sent = send(pair, &fake, 5, &bytes, size);
        pair.run();
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert_eq!(pair.a.ended(sent).status, Status::Success);
        assert!(given(&back) == bytes);
    };
    exchange(&mut alone, 1 << 20, 1 << 20);
    assert_eq!(fake.reads(), 0);
    // A read is tried once, and takes longer here.
    exchange(&mut alone, 1 << 20, 1 << 20);
    assert_eq!(alone.b.ways.fetched().messages, 1);
    exchange(&mut alone, 1 << 20, 1 << 20);
    assert_eq!(alone.b.ways.fetched().messages, 1);
    let (mut pair, _) = pair();
    exchange(&mut pair, DIRECT_BYTES_MIN - 1, 1 << 20);
    exchange(&mut pair, 90_000, 10_000);
    assert_eq!(pair.b.ways.fetched().messages, 0);
    // Two messages at a time count as traffic for each other.
    let receives = [1, 2].map(|info| alone.b.receive(info, u64::MAX, 1 << 20));
    alone.a.send(B, 1, &content(1, 1 << 20));
    send(&mut alone, &fake, 2, &content(2, 1 << 20), 1 << 20);
    alone.run();
    for ((receive, back), info) in receives.into_iter().zip([1, 2]) {
        alone.b.ended(receive);
        assert!(given(&back) == content(info, 1 << 20));
    }
    assert_eq!(alone.b.ways.fetched().messages, 2);
}

#[test]
fn direct_read_failure_pulls_from_the_first_byte() {
    let len = 3 * DIRECT_STEP_BYTES;
    let step = Ok(DIRECT_STEP_BYTES);
    let plans: [(&[Read], usize, u64); 6] = [
        (&[Ok(0)], 1, 0),
        (&[Ok(DIRECT_STEP_BYTES - 1)], 1, 0),
        (&[step, step, Ok(7)], 3, 0),
        (&[step, Ok(0)], 2, 0),
        (&[Err(Inaccessible)], 1, 1),
        (&[step, Err(Inaccessible)], 2, 1),
    ];
    for (plan, reads, refused) in plans {
        let (mut pair, fake) = pair();
        fake.plan(plan);
        let bytes = content(1, len);
        let (receive, back) = pair.b.receive(1, u64::MAX, len);
        let sent = send(&mut pair, &fake, 1, &bytes, len);
        pair.run();
        assert_eq!(pair.b.ended(receive).status, Status::Success, "{plan:?}");
        assert_eq!(pair.a.ended(sent).status, Status::Success, "{plan:?}");
        assert!(given(&back) == bytes, "{plan:?}");
        let fetched = pair.b.ways.fetched();
        assert_eq!((fetched.messages, fetched.fell_back, fetched.refused), (0, 1, refused));
        assert_eq!(fake.reads(), reads);
        // Later messages are read again, unless the memory is inaccessible for good.
        let (receive, back) = pair.b.receive(2, u64::MAX, len);
        send(&mut pair, &fake, 2, &bytes, len);
        pair.run();
        pair.b.ended(receive);
        assert!(given(&back) == bytes);
        assert_eq!(fake.reads(), reads + if refused == 0 { 3 } else { 0 });
    }
}

#[test]
fn direct_read_refusal_pulls_queued_messages_too() {
    let (mut pair, fake) = pair();
    let len = 2 * DIRECT_STEP_BYTES;
    let sends = [1, 2, 3].map(|info| pair.a.send(B, info, &vec![info as u8; len]));
    pair.run();
    let receives = [1, 2, 3].map(|info| (info, pair.b.receive(info, u64::MAX, len)));
    fake.plan(&[Err(Inaccessible)]);
    pair.run();
    for (info, (receive, back)) in receives {
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == vec![info as u8; len]);
    }
    assert!(sends.into_iter().all(|sent| pair.a.ended(sent).status == Status::Success));
    let fetched = pair.b.ways.fetched();
    assert_eq!((fetched.messages, fetched.fell_back, fetched.refused), (0, 3, 1));
    assert_eq!(fake.reads(), 1);
}

#[test]
fn direct_read_ends_a_receive_without_memory() {
    #[derive(Debug)]
    struct Gone;
    impl causeway_message::library::Buffer for Gone {
        fn len(&self) -> usize {
            100_000
        }
        fn bytes(&self, _at: usize) -> &[u8] {
            &[]
        }
        fn bytes_mut(&mut self, _at: usize) -> &mut [u8] {
            &mut []
        }
    }
    for direct in [false, true] {
        let memory = memory(Layout::DEFAULT);
        let fake = Fake::default();
        let mut a = End::new(options(1));
        let mut to_b = channel(&memory, Side::First, 2);
        to_b.direct = direct.then(|| Box::new(Fake::default()) as Box<dyn RemoteMemory>);
        let (mut library, mut ways) = (
            causeway_message::library::Library::<Gone>::new(options(2)).unwrap(),
            LocalChannels::default(),
        );
        let mut to_a = channel(&memory, Side::Second, 1);
        to_a.direct = direct.then(|| Box::new(fake.clone()) as Box<dyn RemoteMemory>);
        assert!(a.ways.add(to_b) && ways.add(to_a));
        a.run();
        let sends = [1, 2, 3].map(|info| a.send(B, info, &content(info, 100_000)));
        library.progress(&mut ways);
        let receives =
            [1, 2, 3].map(|info| library.irecv(&mut ways, info, u64::MAX, 0, Gone).unwrap());
        for _ in 0..1000 {
            library.progress(&mut ways);
            a.run();
        }
        for receive in receives {
            assert_eq!(library.test(receive).unwrap().unwrap().status, Status::Success);
        }
        for sent in sends {
            assert_eq!(a.ended(sent).status, Status::Success);
        }
    }
}

#[test]
fn direct_read_fails_when_the_sender_cancels_or_ends() {
    for way in 0..4 {
        let (mut pair, fake) = pair();
        let len = 3 * DIRECT_STEP_BYTES;
        let (receive, _) = pair.b.receive(1, u64::MAX, len);
        let sent = send(&mut pair, &fake, 1, &content(1, len), len);
        pair.a.run();
        while fake.reads() == 0 {
            assert_eq!(pair.b.library.progress(&mut pair.b.ways), ProgressStep::Worked);
        }
        assert_eq!(fake.reads(), 1, "one step at a time");
        assert!(!pair.b.ways.arm(), "it does not sleep over it");
        pair.b.ways.disarm();
        let ill = match way {
            // The send times out.
            0 => {
                pair.a.library.set_timeout(Some(sent), Some(5)).unwrap();
                pair.a.library.tick(&mut pair.a.ways, 10);
                assert_eq!(pair.a.ended(sent).status, Status::Timeout);
                Status::Aborted
            }
            1 => {
                pair.a.library.disconnect(&mut pair.a.ways, B).unwrap();
                Status::EndpointClosed
            }
            2 => {
                pair.b.ways.report_lost(PeerId(1), Status::EndpointClosed);
                Status::EndpointClosed
            }
            _ => {
                pair.b.library.disconnect(&mut pair.b.ways, A).unwrap();
                Status::EndpointUnreachable
            }
        };
        pair.run();
        for _ in 0..2000 {
            pair.b.run();
        }
        assert_eq!(pair.b.ended(receive).status, ill);
        assert!(fake.reads() <= 2, "a cancelled message is not read to its end");
        assert_eq!(pair.b.ways.fetched().messages, 0);
    }
}

#[test]
fn direct_read_steps_alternate_with_events() {
    let (mut pair, fake) = pair();
    let len = 8 * DIRECT_STEP_BYTES;
    let (long, back) = pair.b.receive(1, u64::MAX, len);
    let bytes = content(1, len);
    send(&mut pair, &fake, 1, &bytes, len);
    for info in 10..50 {
        pair.a.send(B, info, b"short");
    }
    pair.a.run();
    let mut receives: Vec<_> = (10..50).map(|info| pair.b.receive(info, u64::MAX, 5).0).collect();
    while !receives.is_empty() {
        pair.b.library.progress(&mut pair.b.ways);
        receives.retain(|receive| pair.b.is_pending(*receive));
    }
    assert!(fake.reads() < 8, "{} steps before", fake.reads());
    pair.run();
    pair.b.ended(long);
    assert!(given(&back) == bytes);
}

#[test]
fn direct_read_hostile_offers_and_ends_affect_no_other_request() {
    let (good, len) = (4096_u64, DIRECT_BYTES_MIN as u64);
    let said: [&[u64]; 7] = [
        &[0],
        &[0, good],
        &[0, good, len - 1],
        &[0, good, len, good, 1],
        &[0, u64::MAX, len],
        &[0, good, u64::MAX, good, len + 1],
        &[0, good, 1 << 63, good, 1 << 63, good, len],
    ];
    for words in said {
        let (fake, memory) = (Fake::default(), memory(Layout::DEFAULT));
        let mut end = End::new(options(1));
        let mut to_liar = channel(&memory, Side::First, 2);
        to_liar.direct = Some(Box::new(fake.clone()));
        assert!(end.ways.add(to_liar));
        let honest = causeway_testing::messages::memory(Layout::DEFAULT);
        assert!(end.ways.add(channel(&honest, Side::First, 3)));
        end.run();
        let (mut liar, mut ear) = open(&memory, Side::Second).unwrap();
        let to_honest = end.send(partner(3), 7, &content(7, 50_000));
        let to_liar = end.send(B, 8, &content(8, 50_000));
        let offer = ear.poll().unwrap().unwrap();
        ear.advance(&offer);
        let (receive, _) = end.receive(0, 0, len as usize);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(liar.send(EventHead { kind: 2, words: [7, 8, len] }, &bytes).unwrap());
        end.run();
        let pull = ear.poll().unwrap().unwrap();
        assert_eq!((pull.head.kind, pull.head.words[0], pull.head.words[2]), (3, 8, len));
        assert_eq!(fake.reads(), 0, "{words:?}");
        // Names close to those of its own offer: the send to the other peer, the receive.
        let own = offer.head.words[1];
        for name in (0..8).flat_map(|by: u64| [own.wrapping_add(by), own.wrapping_sub(by)]) {
            if name != own {
                assert!(liar.send(EventHead { kind: 6, words: [name, 9, 0] }, &[]).unwrap());
            }
        }
        end.run();
        assert!(end.is_pending(to_honest) && end.is_pending(to_liar) && end.is_pending(receive));
        // A length beyond the message ends it as a whole.
        assert!(liar.send(EventHead { kind: 6, words: [own, 60_000, 0] }, &[]).unwrap());
        assert!(liar.send(EventHead { kind: 6, words: [own, 1, 0] }, &[]).unwrap());
        end.run();
        let done = end.ended(to_liar);
        assert_eq!((done.status, done.xfer_length), (Status::Success, 50_000));
    }
}
