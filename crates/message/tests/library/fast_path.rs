//! The fast path: completions and their order are the same as on the general path.

use causeway_message::library::{
    Completion, EndpointIdentity, FastMiss, LibraryOptions, ProgressStep,
};
use causeway_message::status::Status;
use causeway_testing::messages::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Send { info: u64, len: usize },
    Receive { info: u64, mask: u64, len: usize, directed: Option<u8>, forget: bool },
    Take,
}

fn ops() -> impl Strategy<Value = Op> {
    let lengths = || prop_oneof![8 => 0..40_usize, 1 => 40..9000_usize, 1 => 9000..40_000_usize];
    let masks = prop_oneof![Just(0), Just(1), Just(u64::MAX)];
    let directed = prop_oneof![3 => Just(None), 2 => Just(Some(1)), 1 => Just(Some(3))];
    prop_oneof![
        5 => (0..3_u64, lengths()).prop_map(|(info, len)| Op::Send { info, len }),
        5 => (0..3_u64, masks, lengths(), directed, prop::bool::weighted(0.1)).prop_map(
            |(info, mask, len, directed, forget)| {
                Op::Receive { info: info & mask, mask, len, directed, forget }
            }
        ),
        3 => Just(Op::Take),
    ]
}

/// Takes and collects everything, one at a time.
fn take(end: &mut End, straight: bool) -> Vec<Completion> {
    let mut told = Vec::new();
    loop {
        let took = straight.then(|| end.library.receive_fast(&mut end.ways));
        if let Some(Ok((ended, _))) = took {
            told.push(ended);
            continue;
        }
        let step = end.library.progress(&mut end.ways);
        while let Some(ended) = end.library.test_any(0, 0).unwrap() {
            told.push(ended);
        }
        if step == ProgressStep::Idle && took != Some(Err(FastMiss::Worked)) {
            return told;
        }
    }
}

/// Returns the completions at the receiver, and the bytes of each receive.
fn play(ops: &[Op], straight: bool) -> (Vec<Completion>, Vec<Option<Vec<u8>>>) {
    let mut pair = EndpointPair::new();
    let (mut told, mut backs) = (Vec::new(), Vec::new());
    for (number, op) in (0..).zip(ops) {
        match *op {
            Op::Send { info, len } => drop(pair.a.send(B, info, &content(number, len))),
            Op::Receive { info, mask, len, directed, forget } => {
                let from = directed.map(|endpoint| {
                    let LibraryOptions { address, session, .. } = options(endpoint);
                    EndpointIdentity { address, session }
                });
                let (pad, back) = room(len);
                let End { library, ways } = &mut pair.b;
                let id = library.irecv_from(ways, from, (info, mask), number, pad).unwrap();
                if forget {
                    library.forget(id).unwrap();
                }
                backs.push(back);
            }
            Op::Take => told.extend(take(&mut pair.b, straight)),
        }
    }
    // The sender feeds a long message.
    for _ in 0..64 {
        told.extend(take(&mut pair.b, straight));
        pair.a.run();
    }
    (told, backs.iter().map(|back| back.lock().unwrap().take()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn fast_path_completes_as_the_general_path(ops in prop::collection::vec(ops(), 1..60)) {
        prop_assert_eq!(play(&ops, true), play(&ops, false));
    }
}

#[test]
fn fast_path_needs_a_short_message_and_a_posted_receive() {
    let mut pair = EndpointPair::new();
    let straight = |pair: &mut EndpointPair| pair.b.library.receive_fast(&mut pair.b.ways);
    assert_eq!(straight(&mut pair), Err(FastMiss::Unsure), "nothing came");
    let (id, back) = pair.b.receive(1, u64::MAX, 8);
    pair.a.send(B, 1, b"straight");
    let (ended, more) = straight(&mut pair).unwrap();
    assert!(!more, "nothing is behind it");
    assert_eq!((ended.status, ended.code, ended.context), (Status::Success, 0, 1 ^ 0xd0));
    assert_eq!((ended.msg_length, ended.xfer_length), (8, 8));
    assert_eq!(ended.partner, Some(partner(1)));
    assert_eq!(given(&back), b"straight");
    // It is collected and counted.
    assert!(pair.b.library.test(id).is_err());
    assert_eq!((pair.b.library.requests(), pair.b.library.ipeek()), (0, None));

    pair.a.send(B, 2, b"early");
    assert_eq!(straight(&mut pair), Err(FastMiss::Unsure), "no receive waits for it");
    pair.b.run();
    let (early, _) = pair.b.receive(2, u64::MAX, 8);
    let (behind, _) = pair.b.receive(3, u64::MAX, 8);
    pair.a.send(B, 3, b"behind");
    assert_eq!(straight(&mut pair), Err(FastMiss::Unsure), "another is to be collected first");
    assert_eq!(pair.b.ended(early).match_info, 2);
    assert_eq!(straight(&mut pair).unwrap().0.match_info, 3);
    assert!(pair.b.library.test(behind).is_err());

    let (cut, _) = pair.b.receive(4, u64::MAX, 3);
    pair.a.send(B, 4, b"too long");
    assert_eq!(straight(&mut pair), Err(FastMiss::Worked), "it completes as a truncated message");
    assert_eq!(pair.b.ended(cut).status, Status::Truncated);
    pair.b.library.set_raises(true);
    pair.b.receive(5, u64::MAX, 8);
    pair.a.send(B, 5, b"raises");
    assert_eq!(straight(&mut pair), Err(FastMiss::Unsure), "failures are reported first");
}

/// Every poll finds a ready message, however many came from one peer.
#[test]
fn fast_path_finds_every_ready_message() {
    let mut pair = EndpointPair::new();
    for number in 0..100_u64 {
        pair.b.receive(number, u64::MAX, 8);
        pair.a.send(B, number, b"message");
    }
    let mut next = 0;
    while next < 100 {
        let End { library, ways } = &mut pair.b;
        match library.receive_fast(ways) {
            Ok((ended, more)) => {
                assert_eq!((ended.match_info, more), (next, next < 99));
                next += 1;
            }
            Err(FastMiss::Unsure) => {
                assert_eq!(library.progress(ways), ProgressStep::Worked, "after {next}");
                while let Some(ended) = library.test_any(0, 0).unwrap() {
                    assert_eq!(ended.match_info, next);
                    next += 1;
                }
            }
            Err(missed) => panic!("{missed:?} after {next}"),
        }
    }
}
