//! Fairness between messages and between peers.

use causeway_channel::Layout;
use causeway_message::limits::{UNEXPECTED_BYTES_MAX, UNEXPECTED_MAX, UNEXPECTED_PER_PEER_MIN};
use causeway_testing::messages::*;

const EXACT: u64 = u64::MAX;

#[test]
fn fairness_large_message_arrives_between_small_ones() {
    let mut pair = EndpointPair::with(Layout::new(16, 16_384).unwrap(), options(1), options(2));
    let bytes = content(1, 200_000);
    let (receive, back) = pair.b.receive(7, EXACT, bytes.len());
    let large = pair.a.send(B, 7, &bytes);
    let mut small = 0_u32;
    let mut rounds = 0;
    while pair.b.is_pending(receive) {
        rounds += 1;
        assert!(rounds < 2000, "the large message stands still after {small} small ones");
        while pair.a.library.requests() < 100 {
            pair.a.send(B, 1, b"small");
            pair.b.receive(1, EXACT, 8);
        }
        pair.a.library.progress(&mut pair.a.ways);
        pair.b.library.progress(&mut pair.b.ways);
        while pair.a.library.test_any(1, EXACT).unwrap().is_some() {}
        while pair.b.library.test_any(1, EXACT).unwrap().is_some() {
            small += 1;
        }
    }
    assert!(given(&back) == bytes);
    pair.a.ended(large);
    // Small messages make progress, too.
    assert!(small > 100, "{small}");
}

/// Returns an endpoint with two peers, 1 and 3.
fn three() -> (EndpointPair, End) {
    let mut pair = EndpointPair::new();
    let third = pair.third(3);
    (pair, third)
}

#[test]
fn fairness_unexpected_messages_leave_room_for_other_peers() {
    for (len, count) in [(0, UNEXPECTED_MAX + 100), (8192, UNEXPECTED_BYTES_MAX / 8192 + 100)] {
        let (mut pair, mut third) = three();
        let bytes = content(0, len);
        for _ in 0..count {
            pair.a.send(B, 1, &bytes);
        }
        while pair.a.run() | pair.b.run() {}
        let kept = pair.b.library.unexpected();
        assert!(kept < count * 3 / 4, "{kept} of {count}");
        third.send(B, 3, &bytes);
        third.run();
        pair.b.run();
        assert!(pair.b.library.iprobe(3, EXACT).unwrap().is_some(), "{len}");
        // Waiting messages arrive when there is room again.
        for _ in 0..count {
            let (receive, back) = pair.b.receive(1, EXACT, len);
            while pair.b.is_pending(receive) {
                assert!(pair.a.run() | pair.b.run(), "{len}: nothing comes any more");
            }
            drop(back);
        }
        assert_eq!(pair.b.library.unexpected(), 1);
    }
}

/// Many peers that take all room in turn: each keeps its guaranteed minimum.
#[test]
fn fairness_each_peer_has_a_guaranteed_minimum() {
    let mut pair = EndpointPair::new();
    pair.b.library.set_unexpected_max(200, 1 << 20);
    let mut foes = Vec::new();
    for number in 3..20 {
        let mut foe = pair.third(number);
        for _ in 0..200 {
            foe.send(B, 3, b"unexpected here");
        }
        while foe.run() | pair.b.run() {}
        foes.push(foe);
    }
    assert!(pair.b.library.unexpected() >= 200);
    assert!(pair.b.library.take_unexpected_full() && !pair.b.library.take_unexpected_full());
    for _ in 0..UNEXPECTED_PER_PEER_MIN {
        pair.a.send(B, 1, b"heard");
    }
    pair.run();
    for _ in 0..UNEXPECTED_PER_PEER_MIN {
        let (receive, back) = pair.b.receive(1, EXACT, 5);
        pair.b.ended(receive);
        assert_eq!(given(&back), b"heard");
    }
}
