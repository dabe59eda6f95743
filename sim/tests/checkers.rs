//! Each checker finds what it is for: tapes of good worlds, each with one thing wrong.

use causeway_sim::check::Checkers;
use causeway_sim::event::{Crossing, Event, Place};
use causeway_sim::{Wish, play};

/// Tapes of good worlds.
fn tapes() -> Vec<Vec<Event>> {
    let wish = Wish { keep: true, ..Wish::default() };
    (0..24).map(|seed| play(seed, wish).events).collect()
}

/// Bends each tape in a few of the places where `bend` can bend an event into others, and says
/// how often `checker` found it, of how many.
fn one(
    tapes: &[Vec<Event>],
    checker: &str,
    bend: impl Fn(&Event) -> Option<Vec<Event>>,
) -> (usize, usize) {
    let (mut hits, mut tries) = (0, 0);
    for tape in tapes {
        assert_eq!(Checkers::judge(tape), Ok(()));
        let places = (0..tape.len()).filter(|at| bend(&tape[*at]).is_some());
        let places: Vec<usize> = places.collect();
        for nth in [0, places.len() / 2, places.len().saturating_sub(1)] {
            let Some(&at) = places.get(nth) else { continue };
            let Some(new) = bend(&tape[at]) else { continue };
            let bent = [&tape[..at], &new, &tape[at + 1..]].concat();
            tries += 1;
            hits += usize::from(Checkers::judge(&bent).is_err_and(|v| v.checker == checker));
        }
    }
    assert!(tries > 0, "no tape can be bent for {checker}");
    (hits, tries)
}

#[test]
fn frames_that_are_not_as_they_were_sent() {
    let tapes = tapes();
    let bends: [fn(&mut Event); 4] = [
        |e| {
            if let Event::FrameGot { sum, .. } = e {
                *sum ^= 1
            }
        },
        |e| {
            if let Event::FrameGot { sound, .. } = e {
                *sound = false
            }
        },
        |e| {
            if let Event::FrameGot { from, .. } = e {
                from.stage ^= 1
            }
        },
        |e| {
            if let Event::FrameGot { at, from, .. } = e {
                *at = *from
            }
        },
    ];
    for bend in bends {
        let (hits, tries) = one(&tapes, "frames", |event| {
            let mut bent = event.clone();
            bend(&mut bent);
            (bent != *event).then(|| vec![bent])
        });
        assert_eq!(hits, tries);
    }
    let twice = |e: &Event| match e {
        Event::FrameGot { .. } => Some(vec![e.clone(), e.clone()]),
        _ => None,
    };
    let (hits, tries) = one(&tapes, "frames", twice);
    assert_eq!(hits, tries, "a frame twice");
}

#[test]
fn frames_out_of_order() {
    let tapes = tapes();
    let mut hits = 0;
    for tape in &tapes {
        let got = |event: &Event| match event {
            Event::FrameGot { at, from, serial, .. } => Some((*at, *from, *serial)),
            _ => None,
        };
        let places: Vec<usize> = (0..tape.len()).filter(|at| got(&tape[*at]).is_some()).collect();
        let pair = places.windows(2).find(|pair| {
            let (a, b) = (got(&tape[pair[0]]), got(&tape[pair[1]]));
            a.zip(b).is_some_and(|(a, b)| (a.0, a.1) == (b.0, b.1) && a.2 != b.2)
        });
        let Some(&[a, b]) = pair else { continue };
        let mut bent = tape.clone();
        bent.swap(a, b);
        assert_eq!(Checkers::judge(&bent).unwrap_err().checker, "frames");
        hits += 1;
    }
    assert!(hits > 0);
}

#[test]
fn frames_that_no_counter_knows_of() {
    let tapes = tapes();
    // Not every tape can be balanced: frames that were cut may have been left behind unseen.
    let (hits, tries) = one(&tapes, "tally", |event| match *event {
        Event::Tally { at, given, dropped } => {
            Some(vec![Event::Tally { at, given, dropped: dropped + 1 }])
        }
        _ => None,
    });
    assert!(hits * 3 > tries, "{hits} of {tries}");
}

#[test]
fn streams_that_lose_repeat_or_change_bytes() {
    let tapes = tapes();
    let lost = |e: &Event| matches!(e, Event::Got { len, .. } if *len > 0).then(Vec::new);
    let changed = |e: &Event| match *e {
        Event::Got { way, len, sum, end } => Some(vec![Event::Got { way, len, sum: sum ^ 1, end }]),
        _ => None,
    };
    let twice = |e: &Event| match e {
        Event::Got { len, .. } if *len > 0 => Some(vec![e.clone(), e.clone()]),
        _ => None,
    };
    let (hits, tries) = one(&tapes, "streams", changed);
    assert_eq!(hits, tries, "changed");
    let (hits, tries) = one(&tapes, "streams", twice);
    assert_eq!(hits, tries, "twice");
    let (hits, tries) = one(&tapes, "streams", lost);
    // The last bytes before a reset may be lost; and without them credit was consumed early.
    assert!(hits * 2 > tries, "lost: {hits} of {tries}");
}

#[test]
fn messages_without_their_ends() {
    let (hits, tries) = one(&tapes(), "streams", |e| match *e {
        Event::Got { way, len, sum, end: true } => {
            Some(vec![Event::Got { way, len, sum, end: false }])
        }
        _ => None,
    });
    assert!(hits * 2 > tries, "{hits} of {tries}");
}

#[test]
fn ends_that_come_too_early() {
    let tapes = tapes();
    let mut hits = 0;
    for tape in &tapes {
        // The end is told before the last bytes.
        for at in 1..tape.len() {
            let Event::Eof(way) = &tape[at] else { continue };
            let got =
                |e: &Event| matches!(e, Event::Got { way: w, len, .. } if w == way && *len > 0);
            let Some(before) = tape[..at].iter().rposition(got) else { continue };
            let mut bent = tape.clone();
            let end = bent.remove(at);
            bent.insert(before, end);
            assert_eq!(Checkers::judge(&bent).unwrap_err().checker, "streams");
            hits += 1;
            break;
        }
    }
    assert!(hits > 0);
}

#[test]
fn credit_that_was_not_given() {
    let tapes = tapes();
    let (hits, tries) = one(&tapes, "credit", |e| match *e {
        Event::Told { way, consumed, buffer } => {
            Some(vec![Event::Told { way, consumed, buffer: buffer + (1 << 20) }])
        }
        _ => None,
    });
    assert_eq!(hits, tries, "more room than there is");
    let (hits, tries) = one(&tapes, "credit", |e| match *e {
        Event::Told { way, consumed, .. } => {
            Some(vec![Event::Told { way, consumed: consumed + 1, buffer: 0 }])
        }
        _ => None,
    });
    assert!(hits * 2 > tries, "consumption that nobody told of: {hits} of {tries}");
    let mut found = 0;
    for tape in &tapes {
        // The receiver is taken to have far less room than it said.
        let small: Vec<Event> = tape
            .iter()
            .map(|e| match *e {
                Event::Room { way, consumed, .. } => Event::Room { way, consumed, buffer: 1 },
                Event::Told { way, consumed, .. } => Event::Told { way, consumed, buffer: 1 },
                ref other => other.clone(),
            })
            .collect();
        found += usize::from(Checkers::judge(&small).is_err_and(|v| v.checker == "credit"));
    }
    assert!(found > 0, "more came than there was room for");
}

#[test]
fn endings_that_one_end_does_not_know() {
    let tapes = tapes();
    let (hits, tries) = one(&tapes, "endings", |e| match *e {
        Event::Still { asking: false, .. } => Some(Vec::new()),
        _ => None,
    });
    assert_eq!(hits, tries, "open at one end");
    let (hits, tries) = one(&tapes, "endings", |e| match *e {
        Event::Still { way, asking: false } => Some(vec![Event::Still { way, asking: true }]),
        _ => None,
    });
    assert_eq!(hits, tries, "no answer");
    // A reset out of nothing, in worlds that have no excuse for it.
    let mut found = 0;
    for tape in tapes.iter().filter(|t| !t.iter().any(|e| matches!(e, Event::Excuse { .. }))) {
        let Some(at) = tape.iter().position(|e| matches!(e, Event::Still { asking: false, .. }))
        else {
            continue;
        };
        let Event::Still { way, .. } = tape[at] else { continue };
        let mut bent = tape.clone();
        bent.insert(at, Event::Over(way));
        found += usize::from(Checkers::judge(&bent).is_err_and(|v| v.checker == "endings"));
    }
    assert!(found > 0, "a reset without a reason");
}

type Bend = fn(&mut Crossing);

/// Bends what a guest got in a world of hosts.
fn bent_crossing(bend: impl Fn(&mut Crossing)) -> impl Fn(&Event) -> Option<Vec<Event>> {
    move |event| {
        let Event::Crossing(crossing @ Crossing::Got { .. }) = event else { return None };
        let mut bent = crossing.clone();
        bend(&mut bent);
        (bent != *crossing).then(|| vec![Event::Crossing(bent)])
    }
}

#[test]
fn frames_between_hosts_that_are_not_as_they_were_sent() {
    let tapes = tapes();
    let bends: [(&str, Bend); 5] = [
        ("damaged", |c| {
            if let Crossing::Got { sum, .. } = c {
                *sum ^= 1
            }
        }),
        ("unsound", |c| {
            if let Crossing::Got { sound, .. } = c {
                *sound = false
            }
        }),
        ("of another group", |c| {
            if let Crossing::Got { from, .. } = c {
                from.stage ^= 1
            }
        }),
        ("of another sender", |c| {
            if let Crossing::Got { from, .. } = c {
                from.guest += 10
            }
        }),
        ("come back", |c| {
            if let Crossing::Got { at, from, .. } = c {
                *at = *from
            }
        }),
    ];
    for (name, bend) in bends {
        let (hits, tries) = one(&tapes, "crossing", bent_crossing(bend));
        assert_eq!(hits, tries, "{name}");
    }
    let twice = |e: &Event| match e {
        Event::Crossing(Crossing::Got { .. }) => Some(vec![e.clone(), e.clone()]),
        _ => None,
    };
    let (hits, tries) = one(&tapes, "crossing", twice);
    assert_eq!(hits, tries, "twice");
    let (hits, tries) = one(&tapes, "crossing", |e| match *e {
        Event::Crossing(Crossing::Holds { host, what, most, .. }) => {
            let count = most + 1;
            Some(vec![Event::Crossing(Crossing::Holds { host, what, count, most })])
        }
        _ => None,
    });
    assert_eq!(hits, tries, "too much is held");
}

#[test]
fn frames_that_get_lost_or_overtaken_in_calm() {
    let (mut lost, mut overtaken) = (0, 0);
    for tape in tapes() {
        let calm = |e: &Event| matches!(e, Event::Crossing(Crossing::Calm));
        let Some(start) = tape.iter().position(calm) else { continue };
        let sent = |e: &Event| match *e {
            Event::Crossing(Crossing::Sent { from, serial, .. }) => Some((from, serial)),
            _ => None,
        };
        let got = |e: &Event| match *e {
            Event::Crossing(Crossing::Got { at, from, serial, .. }) => Some((at, from, serial)),
            _ => None,
        };
        let fresh: Vec<(Place, u16)> = tape[start..].iter().filter_map(sent).collect();
        let places = (start..tape.len()).filter(|at| {
            got(&tape[*at]).is_some_and(|(_, from, serial)| fresh.contains(&(from, serial)))
        });
        let places: Vec<usize> = places.collect();
        let Some(&first) = places.first() else { continue };
        let without = [&tape[..first], &tape[first + 1..]].concat();
        assert_eq!(Checkers::judge(&without).unwrap_err().checker, "crossing");
        lost += 1;
        // Two frames of one pair, the second told of in the first one's place.
        let key = |at: usize| got(&tape[at]);
        let pair = places.iter().enumerate().find_map(|(nth, &a)| {
            let (at, from, serial) = key(a)?;
            let later = |b: &&usize| {
                key(**b).is_some_and(|(to, by, s)| (to, by) == (at, from) && s != serial)
            };
            places[nth + 1..].iter().find(later).map(|b| (a, *b))
        });
        let Some((a, b)) = pair else { continue };
        let mut bent = tape.clone();
        bent.swap(a, b);
        assert!(Checkers::judge(&bent).is_err_and(|v| v.checker == "crossing"));
        overtaken += 1;
    }
    assert!(lost > 2 && overtaken > 2, "{lost} and {overtaken}");
}

#[test]
fn things_that_are_left_over() {
    let (hits, tries) = one(&tapes(), "remains", |e| match *e {
        Event::Remains { stage, what, count: 0 } => {
            Some(vec![Event::Remains { stage, what, count: 1 }])
        }
        _ => None,
    });
    assert_eq!(hits, tries);
}
