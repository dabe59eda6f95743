//! Hostile claims that a peer is gone or refuses a connect: a claim needs proof by the peer.

use crate::common;

use causeway_mxoe::limits::{DOUBT_NS, RESEND};
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token};
use causeway_wire::mxoe::{Ack, EndpointPair, Nack, Packet, nack};

use common::script::{KEY, Script, THEIRS, TO_US, connect, packets};
use common::{MS, RecordedEvent, address};

#[test]
fn hostile_claims_that_a_peer_is_gone_end_nothing_while_it_answers() {
    let (mut script, peer) = Script::connected();
    let send = Request::Eager { peer, token: Token(2), match_info: 1, data: b"x" };
    assert_eq!(script.ask(&send), Admission::Yes);
    let status = Status::EndpointClosed;
    let refusal = Nack { ends: TO_US, reason: nack::ENDPOINT_CLOSED, peer_index: 0, sequence: 1 };
    let other = connect(TO_US, 0x9999, 9, KEY);
    let session = script.session;
    for number in 1..50 {
        assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
        assert_eq!(script.deliver(&other), Err(DropReason::Session));
        script.pass(DOUBT_NS / 2);
        let ack = Ack { ends: TO_US, session, acknowledged: 1, number };
        assert_eq!(script.deliver(&Packet::Ack(ack)), Ok(()));
        script.pass(DOUBT_NS);
    }
    assert_eq!(script.told(), []);
    // A silent peer is gone, and another instance may connect.
    assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
    script.pass(DOUBT_NS);
    let gone =
        [Event::Sent { token: Token(2), status, taken: 0 }, Event::PeerGone { peer, status }];
    assert_eq!(script.told(), gone.map(RecordedEvent::Event));
    assert_eq!(script.deliver(&other), Ok(()));
}

#[test]
fn hostile_claims_that_a_silent_peer_is_gone_need_a_refused_query() {
    let (mut script, peer) = Script::connected_to_silent();
    let send = Request::Eager { peer, token: Token(2), match_info: 1, data: b"x" };
    assert_eq!(script.ask(&send), Admission::Yes);
    let refusal =
        |sequence| Nack { ends: TO_US, reason: nack::ENDPOINT_CLOSED, peer_index: 0, sequence };
    for _ in 0..9 {
        assert_eq!(script.deliver(&Packet::Nack(refusal(1))), Ok(()));
        script.pass(10 * DOUBT_NS);
    }
    assert_eq!(script.told(), [], "a silent peer may be busy");
    // The query is refused as well: number 0 is the last acknowledged one.
    assert_eq!(script.deliver(&Packet::Nack(refusal(1))), Ok(()));
    assert_eq!(script.deliver(&Packet::Nack(refusal(0))), Ok(()));
    script.pass(DOUBT_NS);
    let status = Status::EndpointClosed;
    let gone =
        [Event::Sent { token: Token(2), status, taken: 0 }, Event::PeerGone { peer, status }];
    assert_eq!(script.told(), gone.map(RecordedEvent::Event));
}

#[test]
fn liveness_query_allows_for_distance_and_is_repeated() {
    const TRIP: u64 = DOUBT_NS - DOUBT_NS / 4;
    let (mut script, peer) = Script::connected();
    let send = |number| Request::Eager { peer, token: Token(number), match_info: 1, data: b"x" };
    assert_eq!(script.ask(&send(1)), Admission::Yes);
    script.pass(TRIP);
    let session = script.session;
    let ack = Ack { ends: TO_US, session, acknowledged: 2, number: 1 };
    assert_eq!(script.deliver(&Packet::Ack(ack)), Ok(()));
    assert_eq!(script.told().len(), 1);
    assert_eq!(script.ask(&send(2)), Admission::Yes);
    script.sent();
    let status = Status::EndpointClosed;
    let refusal = Nack { ends: TO_US, reason: nack::ENDPOINT_CLOSED, peer_index: 0, sequence: 2 };
    assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
    let asked = |frames: &[Vec<u8>]| {
        let empty =
            |packet: &Packet<'_>| matches!(packet, Packet::Tiny(tiny) if tiny.data.is_empty());
        packets(frames).iter().filter(|packet| empty(packet)).count()
    };
    assert_eq!(asked(&script.sent()), 1);
    script.pass(TRIP);
    assert_eq!(asked(&script.sent()), 0);
    script.pass(TRIP);
    assert_eq!((asked(&script.sent()), script.told()), (1, vec![]), "the first query may be lost");
    script.pass(TRIP);
    let gone =
        [Event::Sent { token: Token(2), status, taken: 0 }, Event::PeerGone { peer, status }];
    assert_eq!(
        (asked(&script.sent()), script.told()),
        (0, gone.map(RecordedEvent::Event).to_vec())
    );
}

#[test]
fn hostile_refusals_of_connects_leave_a_distant_peer_time_to_answer() {
    const TRIP: u64 = DOUBT_NS + DOUBT_NS / 2;
    let refusal = Nack { ends: TO_US, reason: nack::ENDPOINT_CLOSED, peer_index: 0, sequence: 0 };
    let connect = |token, endpoint| {
        let to = address(1, endpoint);
        Request::Connect { token: Token(token), to, key: 9, timeout_ns: None }
    };
    let closed = |token| {
        let (status, peer) = (Status::EndpointClosed, PeerId::NONE);
        [RecordedEvent::Event(Event::Connected { token: Token(token), status, peer })]
    };
    // The distance is known from the peer, or from the delay of the refusal.
    let (mut script, peer) = Script::connected();
    let send = Request::Eager { peer, token: Token(2), match_info: 1, data: b"x" };
    assert_eq!(script.ask(&send), Admission::Yes);
    script.pass(TRIP);
    let session = script.session;
    let ack = Ack { ends: TO_US, session, acknowledged: 2, number: 1 };
    assert_eq!(script.deliver(&Packet::Ack(ack)), Ok(()));
    let elsewhere = Nack { ends: EndpointPair { source: 9, ..TO_US }, ..refusal };
    for (late, endpoint, refusal) in [(0, THEIRS, refusal), (0, 9, elsewhere)] {
        script.told();
        assert_eq!(script.ask(&connect(5, endpoint)), Admission::Yes);
        script.pass(late);
        assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
        script.pass(3 * TRIP - 1);
        assert_eq!(script.told(), []);
        script.pass(1);
        assert_eq!(script.told(), closed(5));
    }
    let mut script = Script::new();
    for (late, lasts) in [(MS, DOUBT_NS), (TRIP, 3 * TRIP), (2_000 * MS, RESEND.most_ns)] {
        assert_eq!(script.ask(&connect(6, THEIRS)), Admission::Yes);
        script.pass(late);
        assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
        script.pass(lasts - 1);
        assert_eq!(script.told(), []);
        script.pass(1);
        assert_eq!(script.told(), closed(6));
    }
}
