//! Prints the time of one look-up in a memory map, in nanoseconds, for maps of several sizes.
//!
//! Each access reads 8 bytes at a pseudo-random granted address. All grants lie in the same 16
//! pages of one file, so that the bytes themselves stay in the first-level cache.
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a measurement")]

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_memory::{Grant, Grants, Map, Mapping, Region, Rights};

const PAGE: u64 = 4096;
const PAGES: u64 = 16;
const ACCESSES: u64 = 20_000_000;
const RUNS: usize = 5;

fn regions(count: u64) -> Map {
    let file = causeway_memory::create("lookup", PAGES * PAGE).unwrap();
    let region = |n: u64| {
        let mapping = Mapping::new(file.as_fd(), n % PAGES * PAGE, PAGE).unwrap();
        Region { guest: n * 2 * PAGE, user: n * 2 * PAGE, mapping: Arc::new(mapping) }
    };
    Map::new((0..count).map(region).collect()).unwrap()
}

fn grants(count: u64) -> Grants {
    let file = causeway_memory::create("lookup", PAGES * PAGE).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, PAGES * PAGE).unwrap());
    let mut grants = Grants::new();
    for n in 0..count {
        let (guest, offset) = (n * 2 * PAGE, n % PAGES * PAGE);
        let grant = Grant { guest, len: PAGE, offset, rights: Rights::READ_WRITE };
        grants.grant_in(grant, &mapping).unwrap();
    }
    grants
}

/// Prints the time of a change of a large table, with and without a new epoch after each.
fn changes(grants: &mut Grants, count: u64) {
    const CHANGES: u32 = 10_000;
    for (first, epochs) in [(0, false), (u64::from(CHANGES), true)] {
        let mut epoch = grants.epoch();
        let since = Instant::now();
        for n in first..first + u64::from(CHANGES) {
            let guest = n * 104_729 % count * 2 * PAGE;
            grants.revoke(guest, PAGE).unwrap();
            if epochs {
                epoch = grants.epoch();
            }
        }
        let each = since.elapsed() / CHANGES;
        black_box(epoch.bytes());
        println!("{:>7} grants: {each:?} for a removal, epoch after each: {epochs}", grants.len());
    }
}

/// Returns the nanoseconds of an access in the fastest of some runs.
fn measure(map: &Map, count: u64) -> f64 {
    let run = || {
        let since = Instant::now();
        let mut state = 1_u64;
        let mut bytes = [0; 8];
        for _ in 0..ACCESSES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) % count * 2 * PAGE;
            assert!(map.read_array(black_box(at), &mut bytes));
        }
        black_box(bytes);
        since.elapsed().as_nanos() as f64 / ACCESSES as f64
    };
    (0..RUNS).map(|_| run()).fold(f64::MAX, f64::min)
}

fn main() {
    for count in [1, 2, 8, 64] {
        println!("{count:>7} regions: {:.1} ns", measure(&regions(count), count));
    }
    for count in [1, 2, 8, 64, 262_144] {
        let since = Instant::now();
        let mut grants = grants(count);
        let built = since.elapsed();
        let time = measure(&grants.epoch(), count);
        println!("{count:>7} grants: {time:.1} ns, built in {built:?}");
        if count > 64 {
            changes(&mut grants, count);
        }
    }
}
