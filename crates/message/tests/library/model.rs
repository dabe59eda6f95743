//! Two endpoints against a model of lists: any sequence of sends, receives, cancels, forgets and
//! probes ends as in the model.

use causeway_channel::Layout;
use causeway_message::limits::CHANNEL_EAGER_BYTES_MAX;
use causeway_testing::messages::model::{Op, play};
use proptest::prelude::*;

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..100_usize,
        2 => 100..9000_usize,
        1 => Just(CHANNEL_EAGER_BYTES_MAX),
        1 => 9000..70_000_usize,
    ]
}

/// Probes may span contexts; receives must select a single context.
fn ops(contexts: u8) -> impl Strategy<Value = Op> {
    let covered = (1_u64 << contexts) - 1;
    let matching = move |covered: u64| {
        (0..4_u64, prop_oneof![Just(0), Just(1), Just(2), Just(u64::MAX)])
            .prop_map(move |(info, mask)| (info & (mask | covered), mask | covered))
    };
    prop_oneof![
        5 => (0..2_usize, prop::bool::weighted(0.2), 0..4_u64, lengths(), prop::bool::weighted(0.2))
            .prop_map(|(from, own, info, len, sync)| Op::Send { from, own, info, len, sync }),
        5 => (0..2_usize, matching(covered), lengths())
            .prop_map(|(at, (info, mask), room)| Op::Receive { at, info, mask, room }),
        1 => (0..2_usize, 0..20_usize).prop_map(|(at, which)| Op::Cancel { at, which }),
        1 => (0..2_usize, 0..20_usize).prop_map(|(at, which)| Op::Forget { at, which }),
        1 => (0..2_usize, matching(0)).prop_map(|(at, (info, mask))| Op::Probe { at, info, mask }),
        3 => Just(Op::Run),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn model_holds_for_any_calls(ops in prop::collection::vec(ops(0), 1..80)) {
        play(ops, Layout::DEFAULT, 0);
    }

    /// In channels so small that every message waits for room.
    #[test]
    fn model_holds_for_any_calls_in_small_channels(
        ops in prop::collection::vec(ops(0), 1..80),
    ) {
        play(ops, Layout::new(16, 16_384).unwrap(), 0);
    }

    /// With context ids of 1 bit, which masks may leave out, and of 2 bits, which they cover.
    #[test]
    fn model_holds_for_any_calls_with_contexts(
        (contexts, ops) in (1..3_u8)
            .prop_flat_map(|bits| (Just(bits), prop::collection::vec(ops(bits), 1..80))),
    ) {
        play(ops, Layout::DEFAULT, contexts);
    }
}
