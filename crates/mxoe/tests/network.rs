//! NICs over a network that loses, doubles, delays, reorders and damages: every message comes
//! once and in order, or its sender hears that it did not.

mod common;

use common::hosts::{Libraries, Place};
use common::{MS, Weather, World};

/// Lengths around every limit.
const LENS: &[usize] = &[
    0, 1, 32, 33, 128, 129, 4, 4095, 4096, 4097, 9_999, 32_767, 32_768, 32_769, 36_864, 100_001,
    262_144, 300_000,
];

fn set_out(seed: u64, places: &[Place], weather: Weather) -> (World, Libraries) {
    let boards = places.iter().map(|place| place.0 + 1).max().unwrap();
    let mut world = World::new(seed, boards);
    world.weather = weather;
    let mut libraries = Libraries::default();
    libraries.open(&mut world, places);
    (world, libraries)
}

const BAD: Weather = Weather { lost: 5, doubled: 3, late: 5, damaged: 2 };

#[test]
fn two_boards_over_a_good_network() {
    let (mut world, mut libraries) = set_out(1, &[(0, 0), (1, 3)], Weather::default());
    libraries.plan(LENS);
    libraries.finish(&mut world, 5_000 * MS);
    libraries.check();
    assert_eq!(world.dropped, [], "nothing of it is wrong");
    for (board, endpoint) in [(0, 0), (1, 3)] {
        let partners = world.boards[board].partners(endpoint);
        assert_eq!(partners.len(), 1);
        let counters = partners[0].counters;
        assert_eq!((counters.resent, counters.blocks_asked_again), (0, 0), "{counters:?}");
        assert_eq!(counters.messages_received, LENS.len() as u64);
    }
}

#[test]
fn many_seeds_over_a_bad_network() {
    for seed in 0..60 {
        let places: &[Place] = match seed % 3 {
            0 => &[(0, 0), (1, 0)],
            1 => &[(0, 0), (1, 1), (2, 2)],
            _ => &[(0, 0), (0, 1), (1, 0), (1, 1)],
        };
        let (mut world, mut libraries) = set_out(seed, places, BAD);
        libraries.plan(LENS);
        libraries.finish(&mut world, 60_000 * MS);
        libraries.check();
    }
}

#[test]
fn many_small_messages_over_a_terrible_network() {
    let terrible = Weather { lost: 25, doubled: 20, late: 30, damaged: 5 };
    for seed in 100..110 {
        let (mut world, mut libraries) = set_out(seed, &[(0, 0), (1, 0)], terrible);
        let lens: Vec<_> = (0..1_000).map(|n| [0, 8, 40, 200, 5_000][n % 5]).collect();
        libraries.plan(&lens);
        libraries.finish(&mut world, 600_000 * MS);
        libraries.check();
    }
}

#[test]
fn numbers_come_round() {
    let (mut world, mut libraries) = set_out(7, &[(0, 0), (1, 0)], Weather { lost: 1, ..BAD });
    libraries.plan(&[1; 40_000]);
    libraries.finish(&mut world, 600_000 * MS);
    libraries.check();
}

#[test]
fn pulls_of_all_sizes() {
    let (mut world, mut libraries) = set_out(8, &[(0, 0), (1, 0)], Weather::default());
    libraries.plan(&[4, 1 << 20, (1 << 20) + 1, 5_000_004, 16 << 20]);
    libraries.finish(&mut world, 60_000 * MS);
    libraries.check();
    let (mut world, mut libraries) = set_out(9, &[(0, 0), (1, 0)], BAD);
    libraries.plan(&[1 << 20, (1 << 20) + 1, 16 << 20]);
    libraries.finish(&mut world, 600_000 * MS);
    libraries.check();
}

#[test]
fn crashes_fail_what_was_under_way_and_nothing_else() {
    for seed in 200..260 {
        let places = [(0, 0), (1, 1), (2, 2)];
        let weather = if seed % 2 == 0 { Weather::default() } else { BAD };
        let (mut world, mut libraries) = set_out(seed, &places, weather);
        libraries.crashes = true;
        for _ in 0..4 {
            libraries.plan(LENS);
            let crash_at = world.now + world.rng.below(200 * MS);
            while world.now < crash_at {
                libraries.play(&mut world);
                world.step(crash_at.min(world.now + MS));
            }
            let board = world.rng.below(3) as usize;
            libraries.crash(&mut world, board);
        }
        libraries.finish(&mut world, 300_000 * MS);
        libraries.check();
        // Everyone who lives hears everyone again.
        libraries.hear_all(&mut world, 300_000 * MS);
    }
}

#[test]
fn partners_that_disconnect_and_connect_again_mix_nothing_up() {
    for seed in 400..460 {
        let places = [(0, 0), (1, 1)];
        let weather = if seed % 2 == 0 { Weather::default() } else { BAD };
        let (mut world, mut libraries) = set_out(seed, &places, weather);
        libraries.crashes = true;
        for _ in 0..8 {
            libraries.plan(LENS);
            let until = world.now + world.rng.below(120 * MS);
            while world.now < until {
                libraries.play(&mut world);
                world.step(until.min(world.now + MS));
            }
            let one = world.rng.below(2) as usize;
            libraries.disconnect(&mut world, places[one], places[1 - one]);
        }
        libraries.finish(&mut world, 300_000 * MS);
        libraries.check();
        libraries.hear_all(&mut world, 300_000 * MS);
    }
}

#[test]
fn a_library_that_takes_no_events_slows_its_peers_and_loses_nothing() {
    for seed in 300..310 {
        let (mut world, mut libraries) =
            set_out(seed, &[(0, 0), (1, 0), (1, 1)], Weather { lost: 2, ..Weather::default() });
        libraries.plan(&[8]);
        libraries.finish(&mut world, 60_000 * MS);
        world.sides[1].room.insert(0, 0);
        let lens: Vec<_> = (0..400).map(|n| LENS[n % LENS.len()].min(40_000)).collect();
        libraries.plan(&lens);
        // Three times as long as a peer may be silent: this one is not.
        for _ in 0..600 {
            libraries.play(&mut world);
            world.pass(100 * MS);
        }
        let parked: usize = world.boards[1].partners(0).iter().map(|partner| partner.parked).sum();
        assert!(parked > 0 && parked <= causeway_mxoe::limits::PARKED_BYTES_MAX);
        assert!(world.sides[0].told.is_empty(), "it waits");
        let end = world.now + 600_000 * MS;
        while !libraries.is_idle() || !world.sides.iter().all(|side| side.told.is_empty()) {
            let events = world.rng.below(20) as usize;
            world.room(1, 0, events);
            libraries.play(&mut world);
            world.step(world.now + MS);
            assert!(world.now < end, "not done in time");
        }
        libraries.check();
    }
}
