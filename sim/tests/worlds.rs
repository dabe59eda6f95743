//! A thousand worlds, in which every promise is kept and after which nothing is left.

use causeway_sim::{Wish, play};

const WORLDS: u64 = 1000;

// Alone in its process, so that descriptors can be counted.
#[test]
fn a_thousand_worlds_keep_every_promise() {
    let mut broken = Vec::new();
    for seed in 0..WORLDS {
        let wish = Wish { descriptors: true, ..Wish::default() };
        if let Some(violation) = play(seed, wish).violation {
            broken.push(format!("causeway-sim --seed {seed} --trace: {violation}"));
        }
        if seed % 100 == 99 {
            eprintln!("{} of {WORLDS} worlds, {} broken", seed + 1, broken.len());
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
