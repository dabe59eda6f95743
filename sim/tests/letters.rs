//! The checker of messages between boards finds what it is for, and worlds have what is to be checked.

use std::collections::BTreeSet;

use causeway_sim::check::Checkers;
use causeway_sim::event::{Event, Letter, Post};
use causeway_sim::{Wish, boards};

/// Tapes of good worlds.
fn tapes(count: u64) -> Vec<Vec<Event>> {
    let wish = Wish { keep: true, ..Wish::default() };
    (0..count).map(|seed| boards::play(seed, wish).events).collect()
}

#[test]
fn worlds_of_boards_have_what_they_are_for() {
    let mut seen = BTreeSet::new();
    for event in tapes(40).into_iter().flatten() {
        seen.insert(match event {
            Event::Act { what, .. } => what.to_owned(),
            Event::Post(Post::Ended { well, .. }) => format!("well {well}"),
            Event::Post(post) => {
                let text = format!("{post:?}");
                text.split(['(', ' ']).next().unwrap_or_default().to_owned()
            }
            _ => continue,
        });
    }
    for wanted in [
        "start",
        "kill",
        "crash",
        "disconnect",
        "part",
        "join",
        "weather",
        "away",
        "flood",
        "heal",
        "Sent",
        "Heard",
        "Got",
        "well true",
        "well false",
        "Died",
        "Calm",
        "Arrived",
    ] {
        assert!(seen.contains(wanted), "no world has {wanted}: {seen:?}");
    }
}

/// What is wrong with an event; none where it is another's.
type Bend = fn(&Post) -> Option<Vec<Post>>;

fn other(letter: Letter) -> Letter {
    Letter { number: letter.number + 1_000_000, ..letter }
}

#[test]
fn the_checker_of_letters_finds_what_it_is_for() {
    let bends: &[(&str, Bend)] = &[
        ("other bytes", |post| match post.clone() {
            Post::Got { at, life, letter, len, .. } => {
                Some(vec![Post::Got { at, life, letter, len, sound: false }])
            }
            _ => None,
        }),
        ("another length", |post| match post.clone() {
            Post::Got { at, life, letter, len, sound } => {
                Some(vec![Post::Got { at, life, letter, len: len + 1, sound }])
            }
            _ => None,
        }),
        ("twice", |post| match post {
            Post::Heard { .. } | Post::Got { .. } | Post::Ended { .. } | Post::Sent { .. } => {
                Some(vec![post.clone(), post.clone()])
            }
            _ => None,
        }),
        ("never sent", |post| match post.clone() {
            Post::Heard { at, life, letter } => {
                Some(vec![Post::Heard { at, life, letter: other(letter) }])
            }
            _ => None,
        }),
        ("to another", |post| match post.clone() {
            Post::Heard { life, letter, .. } => {
                Some(vec![Post::Heard { at: letter.from, life, letter }])
            }
            _ => None,
        }),
        ("had by who did not hear of it", |post| match post.clone() {
            Post::Got { at, life, letter, len, sound } => {
                Some(vec![Post::Got { at, life: life.wrapping_add(100), letter, len, sound }])
            }
            _ => None,
        }),
    ];
    for tape in tapes(10) {
        assert_eq!(Checkers::judge(&tape), Ok(()));
        for (what, bend) in bends {
            let bent_at = |at: &usize| {
                let Event::Post(post) = &tape[*at] else { return None };
                bend(post)
            };
            let places: Vec<_> = (0..tape.len()).filter(|at| bent_at(at).is_some()).collect();
            for nth in [0, places.len() / 2, places.len() - 1] {
                let at = places[nth];
                let new: Vec<_> = bent_at(&at).unwrap().into_iter().map(Event::Post).collect();
                let bent = [&tape[..at], &new, &tape[at + 1..]].concat();
                let found = Checkers::judge(&bent);
                assert!(found.is_err_and(|v| v.checker == "letters"), "{what}: {:?}", tape[at]);
            }
        }
    }
}

/// The tape without what is so of the letters that were sent in calm.
fn without(tape: &[Event], so: impl Fn(&Post) -> bool) -> Vec<Event> {
    let calm = tape.iter().position(|event| *event == Event::Post(Post::Calm)).unwrap();
    let lost = |(at, event): &(usize, &Event)| {
        *at > calm && matches!(event, Event::Post(post) if so(post))
    };
    let left = tape.iter().enumerate().filter(|one| !lost(one));
    left.map(|(_, event)| event.clone()).collect()
}

#[test]
fn the_checker_of_letters_finds_what_is_missing() {
    for tape in tapes(10) {
        let got = without(&tape, |post| matches!(post, Post::Got { .. } | Post::Heard { .. }));
        let ended = without(&tape, |post| matches!(post, Post::Ended { .. }));
        for bent in [got, ended] {
            let found = Checkers::judge(&bent);
            assert!(found.is_err_and(|v| v.checker == "letters"));
        }
    }
    // What is out of order.
    let mut swapped = 0;
    for tape in tapes(10) {
        let heard = |event: &Event| match event {
            Event::Post(Post::Heard { at, life, letter }) => {
                Some((*at, *life, letter.from, letter.life))
            }
            _ => None,
        };
        let places: Vec<_> = (0..tape.len()).filter(|at| heard(&tape[*at]).is_some()).collect();
        let pair = places.windows(2).find(|two| heard(&tape[two[0]]) == heard(&tape[two[1]]));
        let Some(&[a, b]) = pair else { continue };
        let mut bent = tape.clone();
        bent.swap(a, b);
        assert!(Checkers::judge(&bent).is_err_and(|v| v.checker == "letters"));
        swapped += 1;
    }
    assert!(swapped > 0);
}
