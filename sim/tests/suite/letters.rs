//! The checker of messages finds its violations, and worlds of NICs contain every kind of event.

use std::collections::BTreeSet;

use causeway_sim::check::Checkers;
use causeway_sim::event::{Event, MessageEvent, MessageId};
use causeway_sim::{PlayOptions, boards};

/// Returns tapes of correct worlds.
fn tapes(count: u64) -> Vec<Vec<Event>> {
    let options = PlayOptions { keep: true, ..PlayOptions::default() };
    (0..count).map(|seed| boards::play(seed, options).events).collect()
}

#[test]
fn nic_worlds_contain_every_event() {
    let mut seen = BTreeSet::new();
    for event in tapes(40).into_iter().flatten() {
        seen.insert(match event {
            Event::Act { what, .. } => what.to_owned(),
            Event::Message(MessageEvent::Ended { well, .. }) => format!("well {well}"),
            Event::Message(event) => {
                let text = format!("{event:?}");
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

/// Alters an event; `None` if the alteration does not apply.
type Bend = fn(&MessageEvent) -> Option<Vec<MessageEvent>>;

fn other(id: MessageId) -> MessageId {
    MessageId { number: id.number + 1_000_000, ..id }
}

#[test]
fn message_checker_detects_altered_messages() {
    let bends: &[(&str, Bend)] = &[
        ("altered bytes", |event| match event.clone() {
            MessageEvent::Got { at, life, id, len, .. } => {
                Some(vec![MessageEvent::Got { at, life, id, len, sound: false }])
            }
            _ => None,
        }),
        ("another length", |event| match event.clone() {
            MessageEvent::Got { at, life, id, len, sound } => {
                Some(vec![MessageEvent::Got { at, life, id, len: len + 1, sound }])
            }
            _ => None,
        }),
        ("twice", |event| match event {
            MessageEvent::Heard { .. }
            | MessageEvent::Got { .. }
            | MessageEvent::Ended { .. }
            | MessageEvent::Sent { .. } => Some(vec![event.clone(), event.clone()]),
            _ => None,
        }),
        ("never sent", |event| match event.clone() {
            MessageEvent::Heard { at, life, id } => {
                Some(vec![MessageEvent::Heard { at, life, id: other(id) }])
            }
            _ => None,
        }),
        ("to another endpoint", |event| match event.clone() {
            MessageEvent::Heard { life, id, .. } => {
                Some(vec![MessageEvent::Heard { at: id.from, life, id }])
            }
            _ => None,
        }),
        ("received without a notification", |event| match event.clone() {
            MessageEvent::Got { at, life, id, len, sound } => {
                Some(vec![MessageEvent::Got { at, life: life.wrapping_add(100), id, len, sound }])
            }
            _ => None,
        }),
    ];
    for tape in tapes(10) {
        assert_eq!(Checkers::judge(&tape), Ok(()));
        for (what, bend) in bends {
            let bent_at = |at: &usize| {
                let Event::Message(event) = &tape[*at] else { return None };
                bend(event)
            };
            let places: Vec<_> = (0..tape.len()).filter(|at| bent_at(at).is_some()).collect();
            for nth in [0, places.len() / 2, places.len() - 1] {
                let at = places[nth];
                let new: Vec<_> = bent_at(&at).unwrap().into_iter().map(Event::Message).collect();
                let bent = [&tape[..at], &new, &tape[at + 1..]].concat();
                let found = Checkers::judge(&bent);
                assert!(found.is_err_and(|v| v.checker == "messages"), "{what}: {:?}", tape[at]);
            }
        }
    }
}

/// Returns the tape without those events of messages sent in calm for which `so` holds.
fn without(tape: &[Event], so: impl Fn(&MessageEvent) -> bool) -> Vec<Event> {
    let calm = tape.iter().position(|event| *event == Event::Message(MessageEvent::Calm)).unwrap();
    let lost = |(at, event): &(usize, &Event)| {
        *at > calm && matches!(event, Event::Message(event) if so(event))
    };
    let left = tape.iter().enumerate().filter(|one| !lost(one));
    left.map(|(_, event)| event.clone()).collect()
}

#[test]
fn message_checker_detects_lost_and_reordered_messages() {
    for tape in tapes(10) {
        let got = without(&tape, |event| {
            matches!(event, MessageEvent::Got { .. } | MessageEvent::Heard { .. })
        });
        let ended = without(&tape, |event| matches!(event, MessageEvent::Ended { .. }));
        for bent in [got, ended] {
            let found = Checkers::judge(&bent);
            assert!(found.is_err_and(|v| v.checker == "messages"));
        }
    }
    // Two messages in swapped order.
    let mut swapped = 0;
    for tape in tapes(10) {
        let heard = |event: &Event| match event {
            Event::Message(MessageEvent::Heard { at, life, id }) => {
                Some((*at, *life, id.from, id.life))
            }
            _ => None,
        };
        let places: Vec<_> = (0..tape.len()).filter(|at| heard(&tape[*at]).is_some()).collect();
        let pair = places.windows(2).find(|two| heard(&tape[two[0]]) == heard(&tape[two[1]]));
        let Some(&[a, b]) = pair else { continue };
        let mut bent = tape.clone();
        bent.swap(a, b);
        assert!(Checkers::judge(&bent).is_err_and(|v| v.checker == "messages"));
        swapped += 1;
    }
    assert!(swapped > 0);
}
