//! NICs over networks with faults: each message arrives once and in order, or its sender learns
//! that it did not.

use crate::common;

use common::hosts::{HostSides, Place};
use common::{MS, NetworkFaults, World};

/// Lengths around every limit.
const LENS: &[usize] = &[
    0, 1, 32, 33, 128, 129, 4, 4095, 4096, 4097, 9_999, 32_767, 32_768, 32_769, 36_864, 100_001,
    262_144, 300_000,
];

fn set_out(seed: u64, places: &[Place], faults: NetworkFaults) -> (World, HostSides) {
    let nics = places.iter().map(|place| place.0 + 1).max().unwrap();
    let mut world = World::new(seed, nics);
    world.faults = faults;
    let mut host_sides = HostSides::default();
    host_sides.open(&mut world, places);
    (world, host_sides)
}

const BAD: NetworkFaults = NetworkFaults { lost: 5, doubled: 3, late: 5, damaged: 2 };

#[test]
fn network_good_delivers_everything() {
    let (mut world, mut host_sides) = set_out(1, &[(0, 0), (1, 3)], NetworkFaults::default());
    host_sides.plan(LENS);
    host_sides.finish(&mut world, 5_000 * MS);
    host_sides.check();
    assert_eq!(world.dropped, [], "no frame is dropped");
    for (board, endpoint) in [(0, 0), (1, 3)] {
        let partners = world.nics[board].peer_states(endpoint);
        assert_eq!(partners.len(), 1);
        let counters = partners[0].counters;
        assert_eq!((counters.resent, counters.blocks_asked_again), (0, 0), "{counters:?}");
        assert_eq!(counters.messages_received, LENS.len() as u64);
    }
}

#[test]
fn network_bad_delivers_everything() {
    for seed in 0..60 {
        let places: &[Place] = match seed % 3 {
            0 => &[(0, 0), (1, 0)],
            1 => &[(0, 0), (1, 1), (2, 2)],
            _ => &[(0, 0), (0, 1), (1, 0), (1, 1)],
        };
        let (mut world, mut host_sides) = set_out(seed, places, BAD);
        host_sides.plan(LENS);
        host_sides.finish(&mut world, 60_000 * MS);
        host_sides.check();
    }
}

#[test]
fn network_terrible_delivers_small_messages() {
    let terrible = NetworkFaults { lost: 25, doubled: 20, late: 30, damaged: 5 };
    for seed in 100..110 {
        let (mut world, mut host_sides) = set_out(seed, &[(0, 0), (1, 0)], terrible);
        let lens: Vec<_> = (0..1_000).map(|n| [0, 8, 40, 200, 5_000][n % 5]).collect();
        host_sides.plan(&lens);
        host_sides.finish(&mut world, 600_000 * MS);
        host_sides.check();
    }
}

#[test]
fn sequence_numbers_wrap_around() {
    let (mut world, mut host_sides) =
        set_out(7, &[(0, 0), (1, 0)], NetworkFaults { lost: 1, ..BAD });
    host_sides.plan(&[1; 40_000]);
    host_sides.finish(&mut world, 600_000 * MS);
    host_sides.check();
}

#[test]
fn pulls_of_all_sizes() {
    let (mut world, mut host_sides) = set_out(8, &[(0, 0), (1, 0)], NetworkFaults::default());
    host_sides.plan(&[4, 1 << 20, (1 << 20) + 1, 5_000_004, 16 << 20]);
    host_sides.finish(&mut world, 60_000 * MS);
    host_sides.check();
    let (mut world, mut host_sides) = set_out(9, &[(0, 0), (1, 0)], BAD);
    host_sides.plan(&[1 << 20, (1 << 20) + 1, 16 << 20]);
    host_sides.finish(&mut world, 600_000 * MS);
    host_sides.check();
}

#[test]
fn crash_fails_only_pending_operations() {
    for seed in 200..260 {
        let places = [(0, 0), (1, 1), (2, 2)];
        let faults = if seed % 2 == 0 { NetworkFaults::default() } else { BAD };
        let (mut world, mut host_sides) = set_out(seed, &places, faults);
        host_sides.crashes = true;
        for _ in 0..4 {
            host_sides.plan(LENS);
            let crash_at = world.now + world.rng.below(200 * MS);
            while world.now < crash_at {
                host_sides.run_host_sides(&mut world);
                world.step(crash_at.min(world.now + MS));
            }
            let board = world.rng.below(3) as usize;
            host_sides.crash(&mut world, board);
        }
        host_sides.finish(&mut world, 300_000 * MS);
        host_sides.check();
        // All live pairs can exchange messages again.
        host_sides.exchange_all(&mut world, 300_000 * MS);
    }
}

#[test]
fn reconnect_keeps_messages_apart() {
    for seed in 400..460 {
        let places = [(0, 0), (1, 1)];
        let faults = if seed % 2 == 0 { NetworkFaults::default() } else { BAD };
        let (mut world, mut host_sides) = set_out(seed, &places, faults);
        host_sides.crashes = true;
        for _ in 0..8 {
            host_sides.plan(LENS);
            let until = world.now + world.rng.below(120 * MS);
            while world.now < until {
                host_sides.run_host_sides(&mut world);
                world.step(until.min(world.now + MS));
            }
            let one = world.rng.below(2) as usize;
            host_sides.disconnect(&mut world, places[one], places[1 - one]);
        }
        host_sides.finish(&mut world, 300_000 * MS);
        host_sides.check();
        host_sides.exchange_all(&mut world, 300_000 * MS);
    }
}

#[test]
fn full_event_ring_slows_peers_and_loses_nothing() {
    for seed in 300..310 {
        let (mut world, mut host_sides) = set_out(
            seed,
            &[(0, 0), (1, 0), (1, 1)],
            NetworkFaults { lost: 2, ..NetworkFaults::default() },
        );
        host_sides.plan(&[8]);
        host_sides.finish(&mut world, 60_000 * MS);
        world.sides[1].room.insert(0, 0);
        let lens: Vec<_> = (0..400).map(|n| LENS[n % LENS.len()].min(40_000)).collect();
        host_sides.plan(&lens);
        // Three times the silence limit. This peer is not silent.
        for _ in 0..600 {
            host_sides.run_host_sides(&mut world);
            world.pass(100 * MS);
        }
        let pending_bytes: usize =
            world.nics[1].peer_states(0).iter().map(|partner| partner.pending_bytes).sum();
        assert!(pending_bytes > 0 && pending_bytes <= causeway_mxoe::limits::PENDING_BYTES_MAX);
        assert!(world.sides[0].told.is_empty(), "the event waits");
        let end = world.now + 600_000 * MS;
        while !host_sides.is_idle() || !world.sides.iter().all(|side| side.told.is_empty()) {
            let events = world.rng.below(20) as usize;
            world.room(1, 0, events);
            host_sides.run_host_sides(&mut world);
            world.step(world.now + MS);
            assert!(world.now < end, "not done in time");
        }
        host_sides.check();
    }
}
