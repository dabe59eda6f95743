//! A library that takes no messages of one peer.

mod common;

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, PeerId, RegionId, Request, Status, Token, Window};
use causeway_wire::mxoe::{Connect, Eager, Ends, Greeting, Notify, Packet};

use common::Told;
use common::script::{KEY, OURS, Script, THEIR_INDEX, TO_US, packets};

/// Another endpoint of the peer's.
const OTHER: Ends = Ends { source: 9, ..TO_US };

/// Two peers: the first is endpoint 4, which we connected to, the other came itself.
fn two() -> (Script, PeerId, PeerId) {
    let (mut script, peer) = Script::connected();
    let greeting = Greeting::Request { key: KEY };
    let connect = Connect {
        ends: OTHER,
        index_of_destination: THEIR_INDEX,
        session: 77,
        expected: 1,
        number: 1,
        greeting,
    };
    script.say(&Packet::Connect(connect)).unwrap();
    message(&mut script, OTHER, 1, 1);
    let told = script.told();
    let [Told::Event(Event::PeerSeen { peer: other, .. }), Told::Message { .. }] = told[..] else {
        panic!("{told:?}");
    };
    script.sent();
    (script, peer, other)
}

fn message(script: &mut Script, ends: Ends, sequence: u16, match_info: u64) {
    let session = script.session;
    let eager = Eager { ends, sequence, acknowledged: 1, match_info, session, data: b"data" };
    script.say(&Packet::Small(eager)).unwrap();
}

/// What was matched by what came since.
fn came(script: &mut Script) -> Vec<(u32, u64)> {
    let one = |told| match told {
        Told::Message { peer, match_info, .. } => (peer, match_info),
        other => panic!("{other:?}"),
    };
    script.told().into_iter().map(one).collect()
}

#[test]
fn a_partner_whose_messages_wait_holds_no_other_up() {
    let (mut script, peer, other) = two();
    script.side.held.insert((OURS, peer));
    message(&mut script, TO_US, 1, 10);
    message(&mut script, OTHER, 2, 20);
    message(&mut script, TO_US, 2, 11);
    assert_eq!(came(&mut script), [(other.0, 20)]);
    // Room is there for the other, whoever waits before it.
    script.side.room.insert(OURS, 0);
    message(&mut script, OTHER, 3, 21);
    assert_eq!(script.told(), []);
    script.side.room.clear();
    script.board.room(script.now, OURS, &mut script.side);
    assert_eq!(came(&mut script), [(other.0, 21)]);
    script.side.held.clear();
    script.board.room(script.now, OURS, &mut script.side);
    assert_eq!(came(&mut script), [(peer.0, 10), (peer.0, 11)]);
}

#[test]
fn what_a_partner_took_is_heard_while_its_messages_wait() {
    let (mut script, peer, _) = two();
    let region = script.board.region_add(OURS, 100_000).unwrap();
    assert_eq!(region, RegionId(0));
    script.side.regions.insert((OURS, 0), vec![7; 100_000]);
    let from = Window { region, offset: 0, len: 100_000 };
    let offer = Request::Offer { peer, token: Token(5), match_info: 1, from };
    assert_eq!(script.ask(&offer), Admission::Yes);
    let frames = script.sent();
    let [Packet::Rendezvous(offered)] = packets(&frames)[..] else { panic!("{frames:?}") };
    script.side.held.insert((OURS, peer));
    message(&mut script, TO_US, 1, 10);
    // It took all, and says so behind that message.
    let notify = Notify {
        ends: TO_US,
        sequence: 2,
        acknowledged: 2,
        session: script.session,
        total_len: 100_000,
        window: offered.window,
        window_sequence: offered.window_sequence,
    };
    script.say(&Packet::Notify(notify)).unwrap();
    let sent = Event::Sent { token: Token(5), status: Status::Success, taken: 100_000 };
    assert_eq!(script.told(), [Told::Event(sent)]);
    let _ = script.say(&Packet::Notify(notify));
    assert_eq!(script.told(), [], "once");
    script.side.held.clear();
    script.board.room(script.now, OURS, &mut script.side);
    assert_eq!(came(&mut script), [(peer.0, 10)]);
    message(&mut script, TO_US, 3, 11);
    assert_eq!(came(&mut script), [(peer.0, 11)], "it has its number");
}
