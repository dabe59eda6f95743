//! Sequence conflicts: no message is lost without a report, and forged packets end nothing.

use crate::common;

use causeway_mxoe::limits::{CONFLICTS_NS, CONFLICTS_TOLERATED, DOUBT_NS};
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token};
use causeway_wire::mxoe::{Ack, Eager, Packet};

use common::script::{KEY, Script, THEIR_SESSION, TO_US, packets};
use common::{MS, RecordedEvent};

const GONE: Status = Status::EndpointUnreachable;

fn ack(script: &mut Script, acknowledged: u16, number: u32) -> Result<(), DropReason> {
    let session = script.session;
    script.deliver(&Packet::Ack(Ack { ends: TO_US, session, acknowledged, number }))
}

fn send(script: &mut Script, peer: PeerId, token: u64) {
    let send = Request::Eager { peer, token: Token(token), match_info: 1, data: b"x" };
    assert_eq!(script.ask(&send), Admission::Yes);
}

fn sent(token: u64, status: Status) -> RecordedEvent {
    let taken = u32::from(status == Status::Success);
    RecordedEvent::Event(Event::Sent { token: Token(token), status, taken })
}

/// Returns the number of queries since the last call, and the sequence numbers of messages.
fn wire(script: &mut Script) -> (usize, Vec<u16>) {
    let frames = script.sent();
    let tinies = packets(&frames).into_iter().filter_map(|packet| match packet {
        Packet::Tiny(tiny) => Some((tiny.data.is_empty(), tiny.sequence)),
        _ => None,
    });
    let (asked, messages): (Vec<_>, Vec<_>) = tinies.partition(|(empty, _)| *empty);
    (asked.len(), messages.into_iter().map(|(_, number)| number).collect())
}

/// Returns a peer that has acknowledged two messages.
fn sent_two() -> (Script, PeerId) {
    let (mut script, peer) = Script::connected();
    send(&mut script, peer, 2);
    send(&mut script, peer, 3);
    ack(&mut script, 3, 1).unwrap();
    assert_eq!(script.told(), [sent(2, Status::Success), sent(3, Status::Success)]);
    script.sent();
    (script, peer)
}

/// Ways to acknowledge an unsent number.
type Says = fn(&mut Script, number: u32);

const WAYS: [Says; 3] = [
    |script, number| assert_eq!(ack(script, 7, number), Err(DropReason::Number)),
    |script, number| {
        let (session, sequence, data) = (script.session, number as u16 - 1, b"data");
        let ends = TO_US;
        let tiny = Eager { ends, sequence, acknowledged: 7, match_info: 9, session, data };
        script.deliver(&Packet::Tiny(tiny)).unwrap();
    },
    |script, number| {
        let request = script.request(number as u8, THEIR_SESSION, 7, KEY);
        script.deliver(&request).unwrap();
    },
];

#[test]
fn conflict_peer_with_unknown_numbers_gets_nothing_and_ends() {
    for says in WAYS {
        let (mut script, peer) = sent_two();
        says(&mut script, 2);
        assert_eq!(wire(&mut script), (1, vec![]), "a query is sent");
        script.told();
        // As many messages as would make the acknowledgement possible.
        (10..14).for_each(|token| send(&mut script, peer, token));
        assert_eq!(wire(&mut script), (0, vec![]), "no new message is sent");
        for number in 3..8 {
            let _ = ack(&mut script, 7, number);
            script.pass(DOUBT_NS / 8);
        }
        assert_eq!(
            (wire(&mut script), script.told()),
            ((1, vec![]), vec![]),
            "the query is repeated"
        );
        script.pass(DOUBT_NS / 2);
        let mut expected: Vec<_> = (10..14).map(|token| sent(token, GONE)).collect();
        expected.push(RecordedEvent::Event(Event::PeerGone { peer, status: GONE }));
        assert_eq!(script.told(), expected);
        assert_eq!(wire(&mut script), (0, vec![]));
    }
}

#[test]
fn conflict_peer_ahead_of_the_flight_ends_with_its_messages() {
    let (mut script, peer) = sent_two();
    send(&mut script, peer, 10);
    let _ = ack(&mut script, 7, 2);
    (11..20).for_each(|token| send(&mut script, peer, token));
    script.pass(DOUBT_NS);
    let mut expected: Vec<_> = (10..20).map(|token| sent(token, GONE)).collect();
    expected.push(RecordedEvent::Event(Event::PeerGone { peer, status: GONE }));
    assert_eq!(script.told(), expected);
}

#[test]
fn hostile_claims_to_be_ahead_end_nothing_while_the_peer_answers() {
    for says in WAYS {
        let (mut script, peer) = sent_two();
        for round in 0..4 {
            let token = u64::from(10 + round);
            says(&mut script, 2 + round);
            script.told();
            send(&mut script, peer, token);
            assert_eq!(wire(&mut script), (1, vec![]), "a query is sent");
            script.pass(DOUBT_NS / 4);
            // Late acknowledgements, or those of the forger.
            let _ = ack(&mut script, 3 + round as u16, 1);
            let _ = ack(&mut script, 9 + round as u16, 1);
            assert_eq!(wire(&mut script), (0, vec![]));
            ack(&mut script, 3 + round as u16, 2 + 2 * round).unwrap();
            assert_eq!(wire(&mut script), (0, vec![3 + round as u16]), "the connection continues");
            ack(&mut script, 4 + round as u16, 3 + 2 * round).unwrap();
            assert_eq!(script.told(), [sent(token, Status::Success)]);
            script.pass(2 * DOUBT_NS);
            assert_eq!((wire(&mut script), script.told()), ((0, vec![]), vec![]));
        }
    }
}

/// Acknowledges less than before, as often as is tolerated.
fn lacks(script: &mut Script, every_ns: u64) {
    let times = CONFLICTS_TOLERATED;
    for number in 0..times {
        let _ = ack(script, 1, 2 + number);
        script.pass(every_ns);
    }
    assert_eq!((wire(script), script.told()), ((0, vec![]), vec![]));
}

#[test]
fn conflict_peer_that_lost_its_state_is_queried_and_restarts() {
    let (mut script, peer) = sent_two();
    let (times, ns) = (CONFLICTS_TOLERATED, CONFLICTS_NS);
    lacks(&mut script, ns / u64::from(times) + MS);
    let _ = ack(&mut script, 1, 100);
    assert_eq!(
        (wire(&mut script), script.told()),
        ((1, vec![]), vec![]),
        "the peer is queried first"
    );
    let _ = ack(&mut script, 1, 101);
    script.pass(DOUBT_NS - 1);
    assert_eq!((wire(&mut script), script.told()), ((1, vec![]), vec![]), "the query is repeated");
    script.pass(1);
    assert_eq!(script.told(), [RecordedEvent::Event(Event::PeerGone { peer, status: GONE })]);
}

#[test]
fn hostile_contradictions_end_nothing_while_the_peer_answers() {
    let (mut script, _) = sent_two();
    let (times, ns) = (CONFLICTS_TOLERATED, CONFLICTS_NS);
    for round in 0..3 {
        lacks(&mut script, ns / u64::from(times) + MS);
        let _ = ack(&mut script, 1, 100);
        assert_eq!(wire(&mut script), (1, vec![]));
        ack(&mut script, 3, 2 + round).unwrap();
        script.pass(2 * DOUBT_NS);
        assert_eq!((wire(&mut script), script.told()), ((0, vec![]), vec![]));
    }
}

#[test]
fn conflict_needs_repetition_over_time() {
    let (mut script, _) = sent_two();
    let (times, ns) = (CONFLICTS_TOLERATED, CONFLICTS_NS);
    lacks(&mut script, 0);
    for number in 0..10 * times {
        let _ = ack(&mut script, 1, 100 + number);
        script.pass(ns / u64::from(10 * times) - 1);
    }
    assert_eq!((wire(&mut script), script.told()), ((0, vec![]), vec![]));
    // Neither repetition alone nor time alone suffices.
    script.pass(MS);
    let _ = ack(&mut script, 1, 999);
    assert_eq!(wire(&mut script), (1, vec![]));
}

#[test]
fn conflict_late_acknowledgements_end_nothing() {
    let (mut script, _) = sent_two();
    let (times, ns) = (CONFLICTS_TOLERATED, CONFLICTS_NS);
    for number in 0..100 {
        let _ = ack(&mut script, 1, 100 + number);
        if number % times == 0 {
            let _ = ack(&mut script, 3, 200 + number);
        }
        script.pass(ns / u64::from(times));
    }
    assert_eq!((wire(&mut script), script.told()), ((0, vec![]), vec![]));
}
