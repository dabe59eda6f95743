//! Unreported sends: messages of a host side in the same process, reported only if they fail.

use crate::common;

use std::ops::ControlFlow;

use causeway_mxoe::Admission;
use causeway_mxoe::limits::{EARLY_SENDS_MAX, GIVE_UP_NS, MEDIUM_BYTES_MAX};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token};
use causeway_wire::mxoe::{Ack, Eager, Packet};

use common::script::{OURS, Script, TO_US, packets};
use common::{MS, NetworkFaults, RecordedEvent, World, address};

fn send(script: &mut Script, peer: PeerId, info: u64, data: &[u8]) -> bool {
    script.nic.send_unreported(script.now, OURS, (peer, info), data, &mut script.side)
}

/// Returns the ends of messages.
fn ended(told: &[RecordedEvent]) -> Vec<(Token, Status)> {
    let sent = |told: &RecordedEvent| match *told {
        RecordedEvent::Event(Event::Sent { token, status, .. }) => Some((token, status)),
        _ => None,
    };
    told.iter().filter_map(sent).collect()
}

#[test]
fn unreported_sends_are_numbered_with_requests_and_not_reported() {
    let (mut script, peer) = Script::connected();
    assert!(send(&mut script, peer, 1, b"one"));
    let asked = Request::Eager { peer, token: Token(9), match_info: 2, data: b"two" };
    assert_eq!(script.ask(&asked), Admission::Yes);
    assert!(send(&mut script, peer, 3, &[3; 200]));
    let sent = script.sent();
    let numbers: Vec<_> = packets(&sent)
        .iter()
        .map(|packet| match packet {
            Packet::Tiny(Eager { sequence, match_info, .. }) => (*sequence, *match_info),
            Packet::Medium(fragment) => (fragment.eager.sequence, fragment.eager.match_info),
            other => panic!("{other:?}"),
        })
        .collect();
    let first = numbers[0].0;
    assert_eq!(numbers, [(first, 1), (first + 1, 2), (first + 2, 3)]);
    assert_eq!(script.nic.unreported(OURS), 2);
    let ack = Ack { ends: TO_US, session: script.session, acknowledged: first + 3, number: 1 };
    script.deliver(&Packet::Ack(ack)).unwrap();
    assert_eq!(
        ended(&script.told()),
        [(Token(9), Status::Success)],
        "unreported sends have no event"
    );
    assert_eq!(script.nic.unreported(OURS), 0);
}

#[test]
fn unreported_sends_fail_with_their_peer() {
    let (mut script, peer) = Script::connected();
    for info in 0..3 {
        assert!(send(&mut script, peer, info, b""));
    }
    script.pass(2 * GIVE_UP_NS);
    let told = script.told();
    let lost = (Token::UNREPORTED, Status::EndpointUnreachable);
    assert_eq!(ended(&told), [lost; 3]);
    assert!(
        matches!(told.last(), Some(RecordedEvent::Event(Event::PeerGone { .. }))),
        "after them"
    );
    assert_eq!(script.nic.unreported(OURS), 0);
    assert!(!send(&mut script, peer, 4, b""), "the daemon is gone");
    assert_eq!(script.nic.unreported(OURS), 0);
}

#[test]
fn unreported_sends_are_limited_in_number_and_length() {
    let (mut script, peer) = Script::connected();
    assert!(!send(&mut script, peer, 0, &vec![0; MEDIUM_BYTES_MAX + 1]));
    assert!(!send(&mut script, PeerId(99), 0, b""), "nobody");
    for info in 0..EARLY_SENDS_MAX as u64 {
        assert!(send(&mut script, peer, info, b"x"));
    }
    assert!(!send(&mut script, peer, 0, b"x"), "the limit is reached");
    assert_eq!(script.nic.unreported(OURS), EARLY_SENDS_MAX);
    let asked = Request::Eager { peer, token: Token(9), match_info: 2, data: b"" };
    assert_eq!(script.ask(&asked), Admission::Yes, "a request is admitted");
    script.nic.close(script.now, OURS, &mut script.side);
    assert!(!send(&mut script, peer, 0, b"x"), "the window is closed");
    assert_eq!(ended(&script.told()), []);
}

/// Sends alternately by both ways. Returns the received messages in order.
fn through(faults: NetworkFaults, seed: u64) -> Vec<u64> {
    const COUNT: u64 = 400;
    let mut world = World::new(seed, 2);
    for board in 0..2 {
        world.nics[board].open(0, 9, &mut world.sides[board]).unwrap();
    }
    let connect = Request::Connect { token: Token(1), to: address(1, 0), key: 9, timeout_ns: None };
    assert_eq!(world.request(0, 0, &connect), Admission::Yes);
    world.pass(100 * MS);
    let connected = world.events(0).into_iter().find_map(|told| match told {
        RecordedEvent::Event(Event::Connected { status: Status::Success, peer, .. }) => Some(peer),
        _ => None,
    });
    let peer = connected.expect("connected");
    world.faults = faults;
    let (mut next, mut received) = (0, Vec::new());
    let mut more = |world: &mut World| {
        while next < COUNT {
            let bytes = vec![next as u8; world.rng.below(6000) as usize];
            let straight = world.rng.chance(70)
                && world.nics[0].send_unreported(
                    world.now,
                    0,
                    (peer, next),
                    &bytes,
                    &mut world.sides[0],
                );
            let token = Token(next);
            let asked = Request::Eager { peer, token, match_info: next, data: &bytes };
            if !straight && world.request(0, 0, &asked) != Admission::Yes {
                return ControlFlow::Continue(());
            }
            world.carry(0);
            next += 1;
            if world.rng.chance(30) {
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(())
    };
    let until = world.now + 200_000 * MS;
    while world.now < until
        && (more(&mut world).is_continue()
            || world.nics[0].peer_states(0)[0].sending != (0, 0)
            || received.len() < COUNT as usize)
    {
        world.step(world.now + MS);
        received.extend(world.events(1).into_iter().filter_map(|told| match told {
            RecordedEvent::Message { match_info, data, .. } => {
                assert!(data.iter().all(|byte| *byte == match_info as u8), "{match_info}");
                Some(match_info)
            }
            RecordedEvent::Event(_) => None,
        }));
    }
    assert_eq!(world.nics[0].unreported(0), 0);
    let told = ended(&world.events(0));
    assert!(
        told.iter()
            .all(|(token, status)| { *token != Token::UNREPORTED && *status == Status::Success })
    );
    assert_eq!(received, (0..COUNT).collect::<Vec<_>>(), "seed {seed}");
    received
}

#[test]
fn unreported_sends_and_requests_arrive_once_and_in_order() {
    let bad = NetworkFaults { lost: 10, doubled: 5, late: 10, damaged: 2 };
    for seed in 0..20 {
        through(bad, seed);
    }
    through(NetworkFaults::default(), 77);
}
