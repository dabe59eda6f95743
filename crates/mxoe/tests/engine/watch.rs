//! Peers that the host side waits for without a pending message.

use crate::common;

use causeway_mxoe::Admission;
use causeway_mxoe::limits::{GIVE_UP_NS, WATCH_NS};
use causeway_wire::mx::{Event, PeerId, Request, Status};
use causeway_wire::mxoe::{Ack, Eager, Nack, Packet, nack};

use common::script::{Script, TO_US, packets};
use common::{MS, RecordedEvent};

fn watch(script: &mut Script, peer: PeerId, on: bool) {
    assert_eq!(script.ask(&Request::Watch { peer, on }), Admission::Yes);
}

/// Returns the number of the query that was sent, or `None` if nothing was sent.
fn question(script: &mut Script) -> Option<u16> {
    let sent = script.sent();
    match packets(&sent)[..] {
        [Packet::Tiny(Eager { sequence, data: &[], .. })] => Some(sequence),
        [] => None,
        ref other => panic!("{other:?}"),
    }
}

fn gone(script: &mut Script) -> bool {
    let told = script.told();
    told.iter().any(|told| matches!(told, RecordedEvent::Event(Event::PeerGone { .. })))
}

#[test]
fn watched_peer_is_queried_periodically() {
    let (mut script, peer) = Script::connected();
    script.pass(3600 * 1000 * MS);
    assert_eq!(question(&mut script), None, "the peer is not watched");
    watch(&mut script, peer, true);
    let sequence = question(&mut script).expect("is it there?");
    watch(&mut script, peer, true);
    assert_eq!(question(&mut script), None, "once");
    // Longer than the silence limit.
    let times = u32::try_from(2 * GIVE_UP_NS / WATCH_NS).unwrap();
    for number in 1..=times {
        let (session, acknowledged) = (script.session, sequence + 1);
        let ack = Ack { ends: TO_US, session, acknowledged, number };
        script.deliver(&Packet::Ack(ack)).unwrap();
        script.pass(WATCH_NS);
        assert!(question(&mut script).is_some(), "again");
    }
    watch(&mut script, peer, false);
    script.pass(3600 * 1000 * MS);
    assert_eq!((question(&mut script), gone(&mut script)), (None, false));
}

#[test]
fn watched_peer_closed_or_silent_is_gone() {
    let (mut script, peer) = Script::connected();
    script.pass(3600 * 1000 * MS);
    watch(&mut script, peer, true);
    let sequence = question(&mut script).unwrap();
    // The endpoint is closed, and refuses each query.
    let reason = nack::ENDPOINT_CLOSED;
    let refusal = Packet::Nack(Nack { ends: TO_US, reason, peer_index: 0, sequence });
    script.deliver(&refusal).unwrap();
    script.pass(WATCH_NS);
    assert!(gone(&mut script), "{:?}", Status::EndpointClosed);

    let (mut script, peer) = Script::connected();
    script.pass(3600 * 1000 * MS);
    watch(&mut script, peer, true);
    script.pass(GIVE_UP_NS - WATCH_NS);
    assert!(!gone(&mut script), "earlier silence does not count");
    script.pass(2 * WATCH_NS);
    assert!(gone(&mut script));
}
