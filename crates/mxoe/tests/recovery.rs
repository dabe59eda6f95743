//! What a loss costs, in the time of the network.

mod common;

use causeway_mxoe::limits::{ASK_AGAIN_NS, BLOCKS_ASKED};
use common::hosts::{Libraries, Place};
use common::{MS, WAY_NS, Weather, World};

const PLACES: &[Place] = &[(0, 0), (1, 3)];
const NOTHING: Weather = Weather { lost: 100, doubled: 0, late: 0, damaged: 0 };

/// Blocks that were asked for: of both NICs, and again.
fn asked(world: &World) -> (u64, u64) {
    let partners = PLACES.iter().flat_map(|place| world.boards[place.0].partners(place.1));
    let both = |sum: (u64, u64), asked: (u64, u64)| (sum.0 + asked.0, sum.1 + asked.1);
    partners
        .map(|partner| (partner.counters.blocks_asked, partner.counters.blocks_asked_again))
        .fold((0, 0), both)
}

/// Two NICs that have pulled much from each other.
fn warm() -> (World, Libraries) {
    let (mut world, mut libraries) = (World::new(3, 2), Libraries::default());
    libraries.open(&mut world, PLACES);
    libraries.plan(&[16 << 20]);
    libraries.finish(&mut world, 5_000 * MS);
    (world, libraries)
}

/// Messages of these lengths, whose first frames are all lost: how long they take, and how many
/// blocks are asked for again.
fn lose_a_window(world: &mut World, libraries: &mut Libraries, lens: &[usize]) -> (u64, u64) {
    let before = asked(world);
    libraries.plan(lens);
    loop {
        libraries.play(world);
        if asked(world).0 > before.0 {
            break;
        }
        world.step(world.now + MS);
    }
    let begun = world.now;
    world.weather = NOTHING;
    while world.now < begun + WAY_NS {
        libraries.play(world);
        world.step(begun + WAY_NS);
    }
    world.weather = Weather::default();
    libraries.finish(world, 5_000 * MS);
    libraries.check();
    (world.now - begun, asked(world).1 - before.1)
}

#[test]
fn a_whole_window_that_is_lost_costs_one_wait() {
    let (least, _) = ASK_AGAIN_NS;
    for lens in [&[1 << 20][..], &[256 << 10; 4], &[1 << 20; 8], &[4 << 20]] {
        let (mut world, mut libraries) = warm();
        let (took, again) = lose_a_window(&mut world, &mut libraries, lens);
        assert!(again > 0, "nothing was lost");
        assert!(took < 2 * least, "{lens:?} took {took} ns");
    }
    let (_, _, most) = BLOCKS_ASKED;
    assert_eq!(most * 32_768, 1 << 20, "the first is a window");
}
