//! Receives that are taken back while very many are posted: each for itself, whichever it is.

use causeway_message::status::Status;
use causeway_testing::messages::*;

const POSTED: u64 = 100_000;

#[test]
fn of_a_hundred_thousand_receives_any_can_be_taken_back() {
    let mut pair = Pair::new();
    let b = &mut pair.b;
    let posted: Vec<_> = (0..POSTED).map(|info| b.receive(info, u64::MAX, 1)).collect();
    // From the middle outwards, so that neither the first nor the last is at hand; but one.
    let kept = POSTED / 3;
    let half = POSTED / 2;
    for step in 0..half {
        for at in [half + step, half - 1 - step].into_iter().filter(|at| *at != kept) {
            let (receive, _) = posted[at as usize];
            assert_eq!(b.library.cancel(&mut b.ways, receive), Ok(true), "{at}");
        }
    }
    pair.a.send(B, kept - 1, b"-");
    pair.a.send(B, kept, b"+");
    pair.run();
    let (receive, ref back) = posted[kept as usize];
    assert_eq!(pair.b.ended(receive).status, Status::Success);
    assert_eq!(given(back), b"+");
    assert!(pair.b.library.iprobe(kept - 1, u64::MAX).unwrap().is_some(), "nobody waits for it");
}
