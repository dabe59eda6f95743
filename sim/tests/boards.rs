//! Worlds of boards, in which every message comes once and in order, or fails with a word.

use causeway_sim::{Wish, boards};

const WORLDS: u64 = 100;

// Alone in its process, so that descriptors can be counted.
#[test]
fn a_hundred_worlds_of_boards_keep_every_promise() {
    let mut broken = Vec::new();
    for seed in 0..WORLDS {
        let wish = Wish { descriptors: true, ..Wish::default() };
        if let Some(violation) = boards::play(seed, wish).violation {
            broken.push(format!("causeway-sim --boards --seed {seed} --trace: {violation}"));
        }
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}
