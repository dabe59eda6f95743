//! The cost of losses in network time.

use crate::common;

use causeway_mxoe::limits::{BLOCKS_REQUESTED, REREQUEST};
use common::hosts::{HostSides, Place};
use common::{MS, NetworkFaults, PATH_NS, World};

const PLACES: &[Place] = &[(0, 0), (1, 3)];
const NOTHING: NetworkFaults = NetworkFaults { lost: 100, doubled: 0, late: 0, damaged: 0 };

/// Returns the requested blocks of both NICs, and the repeated requests among them.
fn asked(world: &World) -> (u64, u64) {
    let partners = PLACES.iter().flat_map(|place| world.nics[place.0].peer_states(place.1));
    let both = |sum: (u64, u64), asked: (u64, u64)| (sum.0 + asked.0, sum.1 + asked.1);
    partners
        .map(|partner| (partner.counters.blocks_asked, partner.counters.blocks_asked_again))
        .fold((0, 0), both)
}

/// Returns two NICs that have pulled much from each other.
fn warm() -> (World, HostSides) {
    let (mut world, mut host_sides) = (World::new(3, 2), HostSides::default());
    host_sides.open(&mut world, PLACES);
    host_sides.plan(&[16 << 20]);
    host_sides.finish(&mut world, 5_000 * MS);
    (world, host_sides)
}

/// Sends messages whose first frames are all lost. Returns the duration, and the number of repeated
/// requests.
fn lose_a_window(world: &mut World, host_sides: &mut HostSides, lens: &[usize]) -> (u64, u64) {
    let before = asked(world);
    host_sides.plan(lens);
    loop {
        host_sides.run_host_sides(world);
        if asked(world).0 > before.0 {
            break;
        }
        world.step(world.now + MS);
    }
    let begun = world.now;
    world.faults = NOTHING;
    while world.now < begun + PATH_NS {
        host_sides.run_host_sides(world);
        world.step(begun + PATH_NS);
    }
    world.faults = NetworkFaults::default();
    host_sides.finish(world, 5_000 * MS);
    host_sides.check();
    (world.now - begun, asked(world).1 - before.1)
}

#[test]
fn loss_of_a_window_costs_one_timeout() {
    let least = REREQUEST.least_ns;
    for lens in [&[1 << 20][..], &[256 << 10; 4], &[1 << 20; 8], &[4 << 20]] {
        let (mut world, mut host_sides) = warm();
        let (took, again) = lose_a_window(&mut world, &mut host_sides, lens);
        assert!(again > 0, "no frame was lost");
        assert!(took < 2 * least, "{lens:?} took {took} ns");
    }
    assert_eq!(BLOCKS_REQUESTED.most * 32_768, 1 << 20, "the first length fills a window");
}
