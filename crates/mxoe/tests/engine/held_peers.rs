//! A host side that accepts no messages of one peer.

use crate::common;

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, PeerId, RegionId, Request, Status, Token, Window};
use causeway_wire::mxoe::{Connect, ConnectBody, Eager, EndpointPair, Notify, Packet};

use common::RecordedEvent;
use common::script::{KEY, OURS, Script, THEIR_INDEX, TO_US, packets};

/// Another endpoint of the peer's NIC.
const OTHER: EndpointPair = EndpointPair { source: 9, ..TO_US };

/// Returns two peers: endpoint 4, to which the NIC connected, and an endpoint that connected
/// itself.
fn two() -> (Script, PeerId, PeerId) {
    let (mut script, peer) = Script::connected();
    let greeting = ConnectBody::Request { key: KEY };
    let connect = Connect {
        ends: OTHER,
        index_of_destination: THEIR_INDEX,
        session: 77,
        expected: 1,
        number: 1,
        greeting,
    };
    script.deliver(&Packet::Connect(connect)).unwrap();
    message(&mut script, OTHER, 1, 1);
    let told = script.told();
    let [RecordedEvent::Event(Event::PeerSeen { peer: other, .. }), RecordedEvent::Message { .. }] =
        told[..]
    else {
        panic!("{told:?}");
    };
    script.sent();
    (script, peer, other)
}

fn message(script: &mut Script, ends: EndpointPair, sequence: u16, match_info: u64) {
    let session = script.session;
    let eager = Eager { ends, sequence, acknowledged: 1, match_info, session, data: b"data" };
    script.deliver(&Packet::Small(eager)).unwrap();
}

/// Returns peer and match information of the messages since the last call.
fn received(script: &mut Script) -> Vec<(u32, u64)> {
    let one = |told| match told {
        RecordedEvent::Message { peer, match_info, .. } => (peer, match_info),
        other => panic!("{other:?}"),
    };
    script.told().into_iter().map(one).collect()
}

#[test]
fn held_peer_does_not_delay_others() {
    let (mut script, peer, other) = two();
    script.side.held.insert((OURS, peer));
    message(&mut script, TO_US, 1, 10);
    message(&mut script, OTHER, 2, 20);
    message(&mut script, TO_US, 2, 11);
    assert_eq!(received(&mut script), [(other.0, 20)]);
    // Room is for the other peer, even if a held peer waits before it.
    script.side.room.insert(OURS, 0);
    message(&mut script, OTHER, 3, 21);
    assert_eq!(script.told(), []);
    script.side.room.clear();
    script.nic.room(script.now, OURS, &mut script.side);
    assert_eq!(received(&mut script), [(other.0, 21)]);
    script.side.held.clear();
    script.nic.room(script.now, OURS, &mut script.side);
    assert_eq!(received(&mut script), [(peer.0, 10), (peer.0, 11)]);
}

#[test]
fn held_peer_notifications_are_processed() {
    let (mut script, peer, _) = two();
    let region = script.nic.region_add(OURS, 100_000).unwrap();
    assert_eq!(region, RegionId(0));
    script.side.regions.insert((OURS, 0), vec![7; 100_000]);
    let from = Window { region, offset: 0, len: 100_000 };
    let offer = Request::Offer { peer, token: Token(5), match_info: 1, from };
    assert_eq!(script.ask(&offer), Admission::Yes);
    let frames = script.sent();
    let [Packet::Rendezvous(offered)] = packets(&frames)[..] else { panic!("{frames:?}") };
    script.side.held.insert((OURS, peer));
    message(&mut script, TO_US, 1, 10);
    // A notification behind the held message.
    let notify = Notify {
        ends: TO_US,
        sequence: 2,
        acknowledged: 2,
        session: script.session,
        total_len: 100_000,
        window: offered.window,
        window_sequence: offered.window_sequence,
    };
    script.deliver(&Packet::Notify(notify)).unwrap();
    let sent = Event::Sent { token: Token(5), status: Status::Success, taken: 100_000 };
    assert_eq!(script.told(), [RecordedEvent::Event(sent)]);
    let _ = script.deliver(&Packet::Notify(notify));
    assert_eq!(script.told(), [], "once");
    script.side.held.clear();
    script.nic.room(script.now, OURS, &mut script.side);
    assert_eq!(received(&mut script), [(peer.0, 10)]);
    message(&mut script, TO_US, 3, 11);
    assert_eq!(received(&mut script), [(peer.0, 11)], "the number is assigned");
}
