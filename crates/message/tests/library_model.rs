//! Two endpoints against a model of lists: whatever is sent, received, taken back, forgotten and
//! probed, in whatever order, ends as the model says.

mod library_common;

use causeway_message::limits::CHANNEL_EAGER_BYTES_MAX;
use causeway_ring::channel::Layout;
use library_common::model::{Op, play};
use proptest::prelude::*;

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..100_usize,
        2 => 100..9000_usize,
        1 => Just(CHANNEL_EAGER_BYTES_MAX),
        1 => 9000..70_000_usize,
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let matching = || {
        (0..4_u64, prop_oneof![Just(0), Just(1), Just(u64::MAX)])
            .prop_map(|(info, mask)| (info & mask, mask))
    };
    prop_oneof![
        5 => (0..2_usize, prop::bool::weighted(0.2), 0..4_u64, lengths(), prop::bool::weighted(0.2))
            .prop_map(|(from, own, info, len, sync)| Op::Send { from, own, info, len, sync }),
        5 => (0..2_usize, matching(), lengths())
            .prop_map(|(at, (info, mask), room)| Op::Receive { at, info, mask, room }),
        1 => (0..2_usize, 0..20_usize).prop_map(|(at, which)| Op::Cancel { at, which }),
        1 => (0..2_usize, 0..20_usize).prop_map(|(at, which)| Op::Forget { at, which }),
        1 => (0..2_usize, matching()).prop_map(|(at, (info, mask))| Op::Probe { at, info, mask }),
        3 => Just(Op::Run),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_calls_end_as_the_model_says(ops in prop::collection::vec(ops(), 1..80)) {
        play(ops, Layout::DEFAULT);
    }

    /// In channels so small that everything waits for room.
    #[test]
    fn any_calls_end_as_the_model_says_where_room_is_scarce(
        ops in prop::collection::vec(ops(), 1..80),
    ) {
        play(ops, Layout::new(16, 16_384).unwrap());
    }
}
