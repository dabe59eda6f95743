//! A world is determined by its seed.

use std::collections::BTreeSet;

use causeway_sim::event::{Crossing, Event};
use causeway_sim::{PlayOptions, play};

const KEEP: PlayOptions = PlayOptions { print: false, keep: true, descriptors: false };

#[test]
fn a_seed_played_twice_gives_the_same_tape() {
    let mut hashes = BTreeSet::new();
    for seed in 0..24 {
        let (first, second) = (play(seed, KEEP), play(seed, KEEP));
        let differ = first.events.iter().zip(&second.events).position(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}: the first event that differs");
        assert_eq!((first.count, first.hash), (second.count, second.hash), "seed {seed}");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 24, "worlds of different seeds differ");
}

#[test]
fn worlds_contain_every_event() {
    let mut seen = BTreeSet::new();
    for seed in 0..120 {
        for event in play(seed, KEEP).events {
            let text = format!("{event:?}");
            let name = text.split(['(', ' ']).next().unwrap_or_default().to_owned();
            seen.insert(match event {
                Event::Act { what, .. } => what.to_owned(),
                Event::Crossing(Crossing::Got { offset, .. }) if offset > 0 => "Cut".into(),
                Event::Crossing(crossing) => {
                    let text = format!("{crossing:?}");
                    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
                }
                Event::FrameGot { offset, .. } if offset > 0 => "Piece".into(),
                Event::Remains { stage: 1.., what: "ports", .. } => "Other stage".into(),
                _ => name,
            });
        }
    }
    // No world is long enough for an `Excuse` by a stalled receiver, which takes ten seconds of
    // silence or one second without progress; the socket crate's `stalls.rs` tests it.
    for wanted in [
        "join",
        "leave",
        "delete",
        "add",
        "reset",
        "pause",
        "resume",
        "grant",
        "FrameGot",
        "Piece",
        "Got",
        "CreditReceived",
        "Eof",
        "Over",
        "Closed",
        "Still",
        "Balance",
        "Left",
        "start",
        "stop",
        "part",
        "heal",
        "weather",
        "mtu",
        "roam",
        "Cut",
        "Other stage",
        "Calm",
        "Arrived",
        "Came",
        "Went",
        "Holds",
    ] {
        assert!(seen.contains(wanted), "no world has {wanted}: {seen:?}");
    }
}
