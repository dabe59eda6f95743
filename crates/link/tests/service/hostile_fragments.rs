//! Fragments that contradict each other, overlap, or never complete a frame.

use causeway_link::limits::{
    FRAGMENTED_BYTES_MAX, FRAGMENTED_FRAMES_MAX, FRAGMENTED_NS_MAX, FRAGMENTED_RANGES_MAX,
};
use causeway_link::reassembly::{Reassembler, ReceivedFragment};
use causeway_link::{Refusal, RefusalCounters};
use causeway_wire::ecn::Ecn;
use proptest::prelude::*;

fn piece(id: u32, offset: usize, total: usize, bytes: &[u8]) -> ReceivedFragment<'_> {
    ReceivedFragment { vni: 1, id, offset, total, bare: true, hops: 0, ecn: Ecn::NotEct, bytes }
}

/// Adds a fragment and returns a copy of the result.
fn take(all: &mut Reassembler, piece: &ReceivedFragment<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    all.add(0, piece, &mut RefusalCounters::default())
        .map(|whole| whole.map(|(bytes, _)| bytes.to_vec()))
}

#[test]
fn hostile_overlaps_and_contradictions_drop_the_frame() {
    let bytes = [7; 100];
    for other in [
        piece(1, 50, 300, &bytes),
        piece(1, 0, 300, &[8; 100]),
        piece(1, 99, 300, &[7; 1]).clone_with(&[8; 1]),
        piece(1, 100, 301, &bytes),
        ReceivedFragment { hops: 1, ..piece(1, 100, 300, &bytes) },
        ReceivedFragment { bare: false, ..piece(1, 100, 300, &bytes) },
    ] {
        let mut all = Reassembler::default();
        assert_eq!(take(&mut all, &piece(1, 0, 300, &bytes)), Ok(None));
        assert_eq!(take(&mut all, &other), Err(Refusal::Overlap), "{other:?}");
        assert_eq!(all.held(), (0, 0));
        // The remaining fragment completes no frame.
        assert_eq!(take(&mut all, &piece(1, 100, 300, &bytes)), Ok(None));
        assert_eq!(take(&mut all, &piece(1, 200, 300, &bytes)), Ok(None));
    }
}

trait With<'a> {
    fn clone_with(self, bytes: &'a [u8]) -> Self;
}

impl<'a> With<'a> for ReceivedFragment<'a> {
    fn clone_with(self, bytes: &'a [u8]) -> Self {
        Self { bytes, ..self }
    }
}

#[test]
fn duplicate_fragments_are_no_contradiction() {
    let mut all = Reassembler::default();
    let (first, last) = ([1; 100], [2; 50]);
    assert_eq!(take(&mut all, &piece(1, 0, 150, &first)), Ok(None));
    assert_eq!(take(&mut all, &piece(1, 0, 150, &first)), Ok(None));
    assert_eq!(take(&mut all, &piece(1, 20, 150, &first[..30])), Ok(None));
    let whole = take(&mut all, &piece(1, 100, 150, &last)).unwrap().unwrap();
    assert_eq!(whole, [&first[..], &last[..]].concat());
}

#[test]
fn hostile_fragment_offsets_are_refused() {
    let mut all = Reassembler::default();
    for (offset, total, bytes, refusal) in [
        (0, 65_558, &[0; 9][..], Refusal::Oversized),
        (0, usize::MAX, &[0; 9], Refusal::Oversized),
        (usize::MAX, 100, &[0; 9], Refusal::Oversized),
        (92, 100, &[0; 9], Refusal::Oversized),
        (0, 8, &[0; 9], Refusal::Oversized),
        (0, 100, &[], Refusal::Truncated),
        (0, 0, &[], Refusal::Truncated),
    ] {
        assert_eq!(take(&mut all, &piece(1, offset, total, bytes)), Err(refusal));
    }
    let short = ReceivedFragment { bare: false, ..piece(1, 0, 9, &[0; 9]) };
    assert_eq!(take(&mut all, &short), Err(Refusal::Truncated), "no room for metadata");
    assert_eq!(all.held(), (0, 0));
}

#[test]
fn hostile_frames_that_never_end_take_bounded_memory_and_time() {
    let mut all = Reassembler::default();
    let mut refusals = RefusalCounters::default();
    for id in 0..100_000 {
        let total = if id % 2 == 0 { 65_000 } else { 100 };
        all.add(u64::from(id), &piece(id, 0, total, &[7; 64]), &mut refusals).unwrap();
        let (frames, bytes) = all.held();
        assert!(frames <= FRAGMENTED_FRAMES_MAX && bytes <= FRAGMENTED_BYTES_MAX);
    }
    let (frames, _) = all.held();
    assert_eq!(refusals.of(Refusal::Crowded) + frames as u64, 100_000);
    all.expire(99_999 + FRAGMENTED_NS_MAX - 1, &mut refusals);
    assert_eq!(all.held().0, 1, "the last is not too old yet");
    all.expire(99_999 + FRAGMENTED_NS_MAX, &mut refusals);
    assert_eq!(all.held(), (0, 0));
    assert_eq!(refusals.of(Refusal::Incomplete), frames as u64);
}

#[test]
fn hostile_tiny_fragments_are_bounded() {
    let mut all = Reassembler::default();
    let mut refused = false;
    for at in (0..60_000).step_by(2) {
        match take(&mut all, &piece(1, at, 60_000, &[7])) {
            Ok(None) => assert!(at / 2 < FRAGMENTED_RANGES_MAX || refused),
            Err(Refusal::Crowded) => refused = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused);
}

#[test]
fn reassembly_drops_the_oldest_frame_for_room() {
    let mut all = Reassembler::default();
    for id in 0..2 * FRAGMENTED_FRAMES_MAX as u32 {
        take(&mut all, &piece(id, 0, 128, &[1; 64])).unwrap();
    }
    assert_eq!(take(&mut all, &piece(0, 64, 128, &[2; 64])), Ok(None), "forgotten");
    let newest = 2 * FRAGMENTED_FRAMES_MAX as u32 - 1;
    assert!(take(&mut all, &piece(newest, 64, 128, &[2; 64])).unwrap().is_some());
}

proptest! {
    /// In any order, cut anywhere, several frames at a time.
    #[test]
    fn reassembly_accepts_any_order(
        cuts in prop::collection::vec(1_usize..3_000, 0..20),
        order in any::<prop::sample::Index>().prop_map(|i| i.index(usize::MAX) as u64),
        total in 1_usize..3_000,
    ) {
        let bytes: Vec<u8> = (0..total).map(|at| ((at * 7) >> 2) as u8).collect();
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < total).collect();
        cuts.extend([0, total]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut pieces: Vec<_> = cuts.windows(2)
            .flat_map(|w| [1, 2].map(|id| piece(id, w[0], total, &bytes[w[0]..w[1]])))
            .collect();
        let mut state = order | 1;
        for at in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            pieces.swap(at, (state >> 33) as usize % (at + 1));
        }
        let mut all = Reassembler::default();
        let whole: Vec<_> = pieces.iter().filter_map(|p| take(&mut all, p).unwrap()).collect();
        prop_assert_eq!(whole, [bytes.clone(), bytes]);
        prop_assert_eq!(all.held(), (0, 0));
    }
}
