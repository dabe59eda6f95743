//! Cancels of receives while very many are posted.

use causeway_message::status::Status;
use causeway_testing::messages::*;

const POSTED: u64 = 100_000;

#[test]
fn cancel_finds_any_of_a_hundred_thousand_receives() {
    let mut pair = EndpointPair::new();
    let b = &mut pair.b;
    let posted: Vec<_> = (0..POSTED).map(|info| b.receive(info, u64::MAX, 1)).collect();
    // From the middle outwards, so that neither end of the list comes early; one receive remains.
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
    assert!(
        pair.b.library.iprobe(kept - 1, u64::MAX).unwrap().is_some(),
        "no receive waits for it"
    );
}
