//! A thousand worlds satisfy every invariant and leave no resource behind.

use causeway_sim::{PlayOptions, play};

const WORLDS: u64 = 1000;

// The only test of its process, so that open descriptors can be counted.
#[test]
fn a_thousand_worlds_keep_every_promise() {
    let mut broken = Vec::new();
    for seed in 0..WORLDS {
        let options = PlayOptions { descriptors: true, ..PlayOptions::default() };
        if let Some(violation) = play(seed, options).violation {
            broken.push(format!("causeway-sim --seed {seed} --trace: {violation}"));
        }
        if seed % 100 == 99 {
            eprintln!("{} of {WORLDS} worlds, {} broken", seed + 1, broken.len());
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
