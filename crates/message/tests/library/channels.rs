//! Endpoints in threads, joined by channels; and peers that end or write arbitrary bytes.

use causeway_channel::{EventHead, Layout, Side, open};
use causeway_message::library::{
    Channels, Completion, Partner, ProgressStep, RequestId, Transport,
};
use causeway_message::split::PeerId;
use causeway_message::status::Status;
use causeway_testing::messages::*;
use proptest::prelude::*;

/// A small random generator with a fixed sequence per seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Returns a length from 0 to 4 MiB, mostly short.
fn length(random: &mut Random) -> usize {
    let log2 = random.below(24).min(random.below(24));
    let limit = 1_u64 << log2.min(22);
    if random.below(50) == 0 { 4 << 20 } else { random.below(limit + 1) as usize }
}

/// Length and flags of a message, known to both sides by its number and sender.
fn message(from: u64, number: u64) -> (usize, bool, bool) {
    let mut random = Random((from << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(9);
    let (len, sync, cut) = (length(&mut random), random.below(4) == 0, random.below(5) == 0);
    (len, sync, cut && len > 0)
}

const MESSAGES: u64 = 400;

/// Sends and receives all messages of one side, a few at a time, some to itself.
fn talk(end: &mut End, me: u64, other: Partner) {
    let mut sends: Vec<(RequestId, u64)> = Vec::new();
    let mut receives: Vec<(RequestId, Back, u64)> = Vec::new();
    let (mut sent, mut posted, mut ended) = (0, 0, 0);
    let mut random = Random(me * 77 + 5);
    while ended < 2 * MESSAGES {
        if sent < MESSAGES && sends.len() < 6 && random.below(2) == 0 {
            let (len, sync, _) = message(me, sent);
            let data = cut(&content(me << 32 | sent, len), 1 + len / 3);
            let End { library, ways } = &mut *end;
            let id = if sync {
                library.issend(ways, other, sent, sent, data).unwrap()
            } else {
                library.isend(ways, other, sent, sent, data).unwrap()
            };
            sends.push((id, sent));
            sent += 1;
            // A send to itself, and a receive that is cancelled.
            let own = end.send(Partner::SELF, 1 << 40, b"own");
            let (receive, back) = end.receive(1 << 40, u64::MAX, 3);
            end.ended(own);
            end.ended(receive);
            assert_eq!(given(&back), b"own");
            let (never, _) = end.receive(1 << 41, u64::MAX, 10);
            assert_eq!(end.library.cancel(&mut end.ways, never), Ok(true));
        }
        if posted < MESSAGES && receives.len() < 6 && random.below(2) == 0 {
            let (len, _, cut) = message(3 - me, posted);
            // In order where any completion matches, or by name.
            let mask = if random.below(2) == 0 { u64::MAX } else { u64::MAX >> 20 };
            let (id, back) = end.receive(posted, mask, if cut { len / 2 } else { len });
            receives.push((id, back, posted));
            posted += 1;
        }
        if end.library.progress(&mut end.ways) == ProgressStep::Idle {
            std::thread::yield_now();
        }
        sends.retain(|&(id, number)| {
            let Some(done) = end.library.test(id).unwrap() else { return true };
            let (_, sync, cut) = message(me, number);
            let (len, _, _) = message(me, number);
            let known = cut && (sync || len > 8192);
            assert_eq!(done.status, if known { Status::Truncated } else { Status::Success });
            ended += 1;
            false
        });
        receives.retain(|(id, back, number)| {
            let Some(done) = end.library.test(*id).unwrap() else { return true };
            check(done, &given(back), 3 - me, *number);
            ended += 1;
            false
        });
    }
}

#[track_caller]
fn check(done: Completion, got: &[u8], from: u64, number: u64) {
    let (len, _, cut) = message(from, number);
    assert_eq!((done.match_info, done.msg_length as usize), (number, len));
    let taken = if cut { len / 2 } else { len };
    assert_eq!(done.xfer_length as usize, taken);
    assert_eq!(done.status, if cut { Status::Truncated } else { Status::Success });
    assert!(got == &content(from << 32 | number, len)[..taken], "message {number} of {from}");
}

#[test]
fn channels_random_traffic_between_threads_arrives_as_sent() {
    for layout in [Layout::DEFAULT, Layout::new(16, 16_384).unwrap()] {
        let EndpointPair { mut a, mut b, .. } = EndpointPair::with(layout, options(1), options(2));
        std::thread::scope(|scope| {
            scope.spawn(|| talk(&mut a, 1, B));
            scope.spawn(|| talk(&mut b, 2, A));
        });
        assert_eq!(a.library.requests() + b.library.requests(), 0);
    }
}

/// Both threads sleep whenever they are idle; only doorbells wake them.
#[test]
fn channels_doorbells_wake_for_messages_and_for_room() {
    use std::sync::{Arc, Condvar, Mutex};
    type PeerDoorbell = Arc<(Mutex<bool>, Condvar)>;
    let ring = |doorbell: &PeerDoorbell| {
        let doorbell = doorbell.clone();
        move || {
            *doorbell.0.lock().unwrap() = true;
            doorbell.1.notify_one();
        }
    };
    let layout = Layout::new(16, 16_384).unwrap();
    let memory = memory(layout);
    let doorbells: [PeerDoorbell; 2] = Default::default();
    let side = |side: Side, me: u8, other: u8| {
        let (sender, receiver) = open(&memory, side).unwrap();
        let known = options(other);
        let mut ways = Channels::default();
        let added = ways.add(causeway_message::library::Channel {
            peer: PeerId(other.into()),
            address: known.address,
            session: known.session,
            sender,
            receiver,
            doorbell: ring(&doorbells[usize::from(other) - 1]),
            direct: None,
        });
        assert!(added);
        (causeway_message::library::Library::<Pad>::new(options(me)).unwrap(), ways)
    };
    let ends = [(side(Side::First, 1, 2), B), (side(Side::Second, 2, 1), A)];
    std::thread::scope(|scope| {
        for (((mut library, mut ways), other), doorbell) in ends.into_iter().zip(&doorbells) {
            scope.spawn(move || {
                while library.progress(&mut ways) == ProgressStep::Worked {}
                for round in 0..300_u64 {
                    let len = [10, 100_000, 0, 8192, 40_000][round as usize % 5];
                    let bytes = content(round, len);
                    let (pad_in, back) = room(len);
                    let receive = library.irecv(&mut ways, round, u64::MAX, 0, pad_in).unwrap();
                    let send = library.isend(&mut ways, other, round, 0, pad(&bytes)).unwrap();
                    for id in [send, receive] {
                        while library.test(id).unwrap().is_none() {
                            if library.progress(&mut ways) == ProgressStep::Worked {
                                continue;
                            }
                            let mut rung = doorbell.0.lock().unwrap();
                            if ways.arm() {
                                while !*rung {
                                    rung = doorbell.1.wait(rung).unwrap();
                                }
                            }
                            *rung = false;
                            drop(rung);
                            ways.disarm();
                        }
                    }
                    assert!(given(&back) == bytes);
                }
            });
        }
    });
}

#[test]
fn channels_lost_peer_ends_only_its_own_requests() {
    for died in [false, true] {
        let mut end = End::new(options(1));
        let memories = [memory(Layout::DEFAULT), memory(Layout::DEFAULT)];
        let mut peers = [End::new(options(2)), End::new(options(3))];
        for (at, peer) in peers.iter_mut().enumerate() {
            assert!(end.ways.add(channel(&memories[at], Side::First, 2 + at as u8)));
            assert!(peer.ways.add(channel(&memories[at], Side::Second, 1)));
            peer.run();
        }
        end.run();
        peers[0].send(A, 1, b"before the end");
        let offered = end.send(B, 1, &content(1, 50_000));
        let [dying, mut healthy] = peers;
        if died {
            drop(dying);
            end.ways.report_lost(PeerId(2), Status::EndpointUnreachable);
        } else {
            let mut dying = dying;
            dying.library.disconnect(&mut dying.ways, A).unwrap();
            assert!(!end.ways.arm() || end.run(), "a close is seen before sleeping");
            end.ways.disarm();
        }
        for _ in 0..2000 {
            end.run();
        }
        let status = if died { Status::EndpointUnreachable } else { Status::EndpointClosed };
        assert_eq!(end.ended(offered).status, status);
        // Messages that the peer sent before its end arrive.
        let (receive, back) = end.receive(1, u64::MAX, 14);
        end.ended(receive);
        assert_eq!(given(&back), b"before the end");
        let late = end.send(B, 1, b"x");
        assert_eq!(end.ended(late).status, Status::EndpointUnreachable);
        // The other endpoint goes on.
        let (receive, back) = end.receive(5, u64::MAX, 100_000);
        healthy.send(A, 5, &content(5, 100_000));
        while end.run() | healthy.run() {}
        end.ended(receive);
        assert!(given(&back) == content(5, 100_000));
        // The number can be reused.
        let again = memory(Layout::DEFAULT);
        assert!(end.ways.add(channel(&again, Side::First, 2)));
        end.run();
        assert!(end.library.is_reached(Partner { peer: PeerId(2), epoch: 1 }));
    }
}

/// Kinds of events, as in the table of `library::channels`.
const KINDS: std::ops::RangeInclusive<u8> = 0..=7;

#[test]
fn channels_hostile_chunk_without_a_pull_closes_the_channel() {
    for words in [[0, 0, 0], [1 << 32, 0, 0], [u64::MAX; 3]] {
        let memory = memory(Layout::DEFAULT);
        let mut end = End::new(options(1));
        assert!(end.ways.add(channel(&memory, Side::First, 2)));
        end.run();
        let (mut liar, _) = open(&memory, Side::Second).unwrap();
        assert!(liar.send(EventHead { kind: 4, words }, b"bytes").unwrap());
        end.run();
        assert!(!end.library.is_reached(B));
    }
}

#[test]
fn channels_hostile_excess_bytes_close_the_channel_and_write_nothing() {
    let memory = memory(Layout::DEFAULT);
    let mut end = End::new(options(1));
    assert!(end.ways.add(channel(&memory, Side::First, 2)));
    end.run();
    let (mut liar, mut ear) = open(&memory, Side::Second).unwrap();
    let (receive, back) = end.receive(0, 0, 100);
    assert!(liar.send(EventHead { kind: 2, words: [7, 8, 60] }, &[]).unwrap());
    end.run();
    let pull = ear.poll().unwrap().unwrap();
    assert_eq!((pull.head.kind, pull.head.words[0], pull.head.words[2]), (3, 8, 60));
    ear.advance(&pull);
    let chunk = EventHead { kind: 4, words: [pull.head.words[1], 0, 0] };
    assert!(liar.send(chunk, &[1; 50]).unwrap());
    assert!(liar.send(chunk, &[2; 11]).unwrap());
    end.run();
    assert_eq!(end.ended(receive).status, Status::EndpointUnreachable);
    assert_eq!(given(&back)[50..], [0xaa; 50]);
}

proptest! {
    /// A hostile peer sends any events and writes anywhere in between: every call ends, independent
    /// requests go on, and the peer is lost at worst.
    #[test]
    fn channels_hostile_peer_harms_only_itself(
        story in prop::collection::vec(
            (KINDS, any::<[u8; 3]>(), 0..300_usize, prop::option::of((0..40_000_usize, any::<u64>()))),
            1..60,
        ),
    ) {
        let layout = Layout::new(16, 4096).unwrap();
        let memory = memory(layout);
        let mut end = End::new(options(1));
        prop_assert!(end.ways.add(channel(&memory, Side::First, 2)));
        end.run();
        let (mut liar, mut ear) = open(&memory, Side::Second).unwrap();
        let mut names = vec![0, 1, 1 << 32];
        for (kind, picks, len, scribble) in story {
            if let Some((at, word)) = scribble {
                memory.write((at % (layout.bytes() - 8)) & !7, &word.to_le_bytes()).unwrap();
            }
            // Names that the peer received are the most dangerous input.
            while let Ok(Some(event)) = ear.poll() {
                names.extend(event.head.words);
                ear.advance(&event);
            }
            let words = picks.map(|pick| names[usize::from(pick) % names.len()]);
            let _ = liar.send(EventHead { kind, words }, &vec![9; len]);
            if len % 3 == 0 {
                let (pad, _) = room(len * 10);
                end.library.irecv(&mut end.ways, words[0], u64::MAX, 0, pad).unwrap();
            }
            if len % 5 == 0 {
                end.send(B, words[0], &vec![3; len * 20]);
            }
            end.run();
            let _ = end.ways.arm();
            end.ways.disarm();
        }
        end.ways.report_lost(PeerId(2), Status::EndpointUnreachable);
        end.run();
        // Messages to itself still arrive.
        let (receive, back) = end.receive(1 << 50, u64::MAX, 5);
        end.send(Partner::SELF, 1 << 50, b"alive");
        end.ended(receive);
        prop_assert_eq!(given(&back), b"alive");
        while end.library.test_any(0, 0).unwrap().is_some() {}
    }
}

/// A queued event of a disconnected peer does not apply to the next peer with its number.
#[test]
fn channels_reused_peer_number_has_no_old_events() {
    let mut pair = EndpointPair::new();
    let last = PeerId(1);
    // The end of the peer is queued when it is disconnected.
    Transport::<Pad>::fail_peer(&mut pair.b.ways, last);
    pair.b.library.disconnect(&mut pair.b.ways, A).unwrap();
    let mut next = pair.third(1);
    let (receive, back) = pair.b.receive(5, u64::MAX, 4);
    let sent = next.send(B, 5, b"next");
    while next.run() | pair.b.run() {}
    pair.b.ended(receive);
    assert_eq!(given(&back), b"next");
    assert_eq!(next.ended(sent).status, Status::Success);
}

/// A sender adapts to its receiver only while that makes progress: before a sleep, and after a
/// while, it fills the channel, so that the receiver has enough work when it returns.
#[test]
fn channels_busy_receiver_finds_a_full_channel() {
    for sleeps in [true, false] {
        let mut pair = EndpointPair::new();
        let bytes = content(5, 1 << 20);
        let (receive, back) = pair.b.receive(1, u64::MAX, bytes.len());
        let send = pair.a.send(B, 1, &bytes);
        // The offer arrives and is pulled.
        pair.b.library.progress(&mut pair.b.ways);
        let mut runs = 0;
        while if sleeps { !pair.a.ways.arm() } else { runs < 200 } {
            pair.a.ways.disarm();
            pair.a.library.progress(&mut pair.a.ways);
            runs += 1;
            assert!(runs <= 200, "it never sleeps");
        }
        pair.a.ways.disarm();
        // Chunks of 4 KiB: slots of the first side, event kind 4.
        let slots = (0..128).map(|at| pair.memory.read::<8>(4096 + at * 64 + 56).unwrap());
        let pieces = slots.filter(|last| last[2] == 4).count();
        assert!(pieces >= 28, "{pieces} pieces, sleeps: {sleeps}");
        assert!(pair.b.is_pending(receive));
        pair.run();
        assert_eq!(pair.a.ended(send).status, Status::Success);
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == bytes);
    }
}
