//! Worlds of NICs: every message arrives once and in order, or completes with an error.

use causeway_sim::{PlayOptions, boards};

const WORLDS: u64 = 100;

// The only test of its process, so that open descriptors can be counted.
#[test]
fn a_hundred_worlds_of_boards_keep_every_promise() {
    let mut broken = Vec::new();
    for seed in 0..WORLDS {
        let options = PlayOptions { descriptors: true, ..PlayOptions::default() };
        if let Some(violation) = boards::play(seed, options).violation {
            broken.push(format!("causeway-sim --boards --seed {seed} --trace: {violation}"));
        }
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}
