//! Restarts of peers and of the endpoint itself: both directions continue.

use crate::common;

use causeway_mxoe::limits::QUIET_NS;
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token, Window};
use causeway_wire::mxoe::{Ack, Connect, ConnectBody, Eager, Packet, Rendezvous};

use common::script::{KEY, OURS, Script, THEIR_SESSION, THEIRS, TO_US, packets};
use common::{MS, RecordedEvent, address, nic};

/// Receives a connect request. Returns the expected number if it is answered.
fn asks(script: &mut Script, number: u8, expected: u16) -> Option<u16> {
    let request = script.request(number, THEIR_SESSION, expected, KEY);
    let _ = script.deliver(&request);
    let frames = script.sent();
    packets(&frames).iter().find_map(|packet| match packet {
        Packet::Connect(Connect { expected, greeting: ConnectBody::Reply { .. }, .. }) => {
            Some(*expected)
        }
        _ => None,
    })
}

/// Repeats the connect request until it is answered.
fn insists(script: &mut Script, number: u8, expected: u16) -> u16 {
    for _ in 0..20 {
        if let Some(answer) = asks(script, number, expected) {
            return answer;
        }
        script.pass(40 * MS);
    }
    panic!("not answered");
}

fn says(script: &mut Script, sequence: u16, acknowledged: u16) -> Result<(), DropReason> {
    let (session, match_info, data) = (script.session, 1, b"data");
    let ends = TO_US;
    script.deliver(&Packet::Tiny(Eager { ends, sequence, acknowledged, match_info, session, data }))
}

fn acks(script: &mut Script, acknowledged: u16, number: u32) -> Result<(), DropReason> {
    let session = script.session;
    script.deliver(&Packet::Ack(Ack { ends: TO_US, session, acknowledged, number }))
}

/// Returns the number acknowledged to the peer since the last call.
fn acknowledged(script: &mut Script) -> Option<u16> {
    let frames = script.sent();
    let packets = packets(&frames);
    let one = |packet: &Packet<'_>| match packet {
        Packet::Ack(ack) if ack.session == THEIR_SESSION => Some(ack.acknowledged),
        _ => None,
    };
    packets.iter().filter_map(one).next_back()
}

/// Sends a message. Returns its sequence numbers on the wire until `ns` have passed.
fn sends(script: &mut Script, peer: PeerId, token: u64, ns: u64) -> Vec<u16> {
    let request = Request::Eager { peer, token: Token(token), match_info: 2, data: b"answer" };
    assert_eq!(script.ask(&request), Admission::Yes);
    script.pass(ns);
    let frames = script.sent();
    let one = |packet: &Packet<'_>| match packet {
        Packet::Tiny(eager) => Some(eager.sequence),
        _ => None,
    };
    packets(&frames).iter().filter_map(one).collect()
}

fn is_sent(script: &mut Script, token: u64) -> bool {
    let sent = Event::Sent { token: Token(token), status: Status::Success, taken: 6 };
    script.told().contains(&RecordedEvent::Event(sent))
}

#[test]
fn restart_unanswered_peer_is_acknowledged() {
    let mut script = Script::new();
    let lost = asks(&mut script, 1, 1);
    assert_eq!(lost, Some(1));
    script.nic.nic_remove(script.now, nic(1), &mut script.side);
    script.nic.nic_add(nic(1)).unwrap();
    let next = insists(&mut script, 1, 1);
    assert_ne!(next, 1, "this endpoint restarted");
    // The peer retransmits until its message is acknowledged.
    let heard = (0..40).find_map(|_| {
        let _ = says(&mut script, next, 1);
        script.pass(40 * MS);
        acknowledged(&mut script)
    });
    assert_eq!(heard, Some(next + 1));
    let seen = script.told();
    let is_known = |told: &RecordedEvent| matches!(told, RecordedEvent::Event(Event::PeerSeen { session, .. }) if *session == THEIR_SESSION);
    assert!(seen.iter().any(is_known), "{seen:?}");
    let messages = seen.iter().filter(|told| matches!(told, RecordedEvent::Message { .. })).count();
    assert_eq!(messages, 1);
    // The other direction.
    assert_eq!(sends(&mut script, PeerId(0), 7, QUIET_NS * 2).first(), Some(&1));
    acks(&mut script, 2, 1).unwrap();
    assert!(is_sent(&mut script, 7));
}

#[test]
fn restart_offers_of_an_unanswered_peer_are_pulled() {
    let mut script = Script::new();
    assert_eq!(asks(&mut script, 1, 1), Some(1));
    script.nic.nic_remove(script.now, nic(1), &mut script.side);
    script.nic.nic_add(nic(1)).unwrap();
    let sequence = insists(&mut script, 1, 1);
    let offer = Rendezvous {
        ends: TO_US,
        sequence,
        acknowledged: 1,
        match_info: 1,
        session: script.session,
        message_len: 40_000,
        window: 7,
        window_sequence: 8,
        offset: 0,
    };
    script.told();
    script.deliver(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let Some(RecordedEvent::Event(Event::Offered { handle, .. })) = told.last() else {
        panic!("{told:?}")
    };
    let region = script.nic.region_add(OURS, 40_000).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; 40_000]);
    let into = Window { region, offset: 0, len: 40_000 };
    let pull = Request::Pull { handle: *handle, token: Token(9), into };
    assert_eq!(script.ask(&pull), Admission::Yes);
    // The offer is not acknowledged, and is retransmitted.
    let pulled = (0..40).any(|_| {
        let _ = script.deliver(&Packet::Rendezvous(offer));
        script.pass(40 * MS);
        let frames = script.sent();
        packets(&frames).iter().any(|packet| matches!(packet, Packet::Pull(_)))
    });
    assert!(pulled);
}

/// Returns a peer after a message from it and three messages to it.
fn acquainted(script: &mut Script) -> PeerId {
    assert_eq!(asks(script, 1, 1), Some(1));
    says(script, 1, 1).unwrap();
    for (token, number) in [(1, 1), (2, 2), (3, 3)] {
        assert_eq!(sends(script, PeerId(0), token, 0), [number]);
        acks(script, number + 1, number.into()).unwrap();
        assert!(is_sent(script, token));
    }
    PeerId(0)
}

/// Restarts the peer, which connects again. Checks that both directions continue.
fn goes_on(script: &mut Script, number: u8, expected: u16) {
    let next = insists(script, number, expected);
    let gone = |told: &RecordedEvent| matches!(told, RecordedEvent::Event(Event::PeerGone { .. }));
    assert!(script.told().iter().any(gone), "the previous peer ends");
    says(script, next, expected).unwrap();
    let told = script.told();
    let peer = told.iter().find_map(|told| match told {
        RecordedEvent::Message { peer, .. } => Some(PeerId(*peer)),
        _ => None,
    });
    assert_eq!(sends(script, peer.unwrap(), 9, QUIET_NS * 2).first(), Some(&expected));
    acks(script, expected + 1, 1).unwrap();
    assert!(is_sent(script, 9));
}

#[test]
fn restart_wrapped_generations_of_a_known_peer_are_answered() {
    let mut script = Script::new();
    acquainted(&mut script);
    // Four restarts without a message.
    goes_on(&mut script, 5, 1);
}

#[test]
fn restart_peer_with_a_lower_connect_number_is_answered() {
    // By its number, this request could be a late one.
    for generation in 1..4 {
        let mut script = Script::new();
        acquainted(&mut script);
        goes_on(&mut script, 200, generation << 14 | 1);
    }
}

#[test]
fn restart_late_connect_ends_nothing() {
    for (number, expected) in [(1, 1), (2, 1), (0, 0xc001), (250, 0x8001)] {
        let mut script = Script::new();
        let peer = acquainted(&mut script);
        let _ = asks(&mut script, number, expected);
        script.pass(QUIET_NS / 2);
        let _ = asks(&mut script, number, expected);
        assert_eq!(script.told(), [], "{number} {expected:#x}");
        assert_eq!(sends(&mut script, peer, 8, 0), [4]);
    }
}

#[test]
fn restart_late_connect_of_a_silent_peer_ends_nothing() {
    for (number, expected) in [(1, 1), (2, 1), (0, 0xc001), (250, 0x8001)] {
        let mut script = Script::new();
        let peer = acquainted(&mut script);
        script.pass(QUIET_NS * 2);
        script.sent();
        let _ = asks(&mut script, number, expected);
        // The peer may have been queried.
        script.pass(MS);
        let _ = acks(&mut script, 4, 4);
        script.pass(QUIET_NS * 2);
        assert_eq!(script.told(), [], "{number} {expected:#x}");
        script.sent();
        assert_eq!(sends(&mut script, peer, 8, 0), [4]);
    }
}

#[test]
fn ack_of_a_previous_instance_does_not_block_later_ones() {
    let mut script = Script::new();
    acquainted(&mut script);
    script.told();
    let next = insists(&mut script, 2, 0x4001);
    // The thousandth acknowledgement of the previous instance.
    let _ = acks(&mut script, 4, 1_000);
    says(&mut script, next, 0x4001).unwrap();
    let told = script.told();
    let Some(RecordedEvent::Message { peer, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!(sends(&mut script, PeerId(*peer), 9, QUIET_NS * 2).first(), Some(&0x4001));
    acks(&mut script, 0x4002, 1).unwrap();
    assert!(is_sent(&mut script, 9));
}

#[test]
fn ack_with_a_damaged_number_does_not_block_later_ones() {
    let mut script = Script::new();
    acquainted(&mut script);
    acks(&mut script, 4, 4 | 1 << 30).unwrap();
    assert_eq!(sends(&mut script, PeerId(0), 9, 0), [4]);
    acks(&mut script, 5, 5).unwrap();
    assert!(is_sent(&mut script, 9));
}

#[test]
fn ack_repetitions_count_once() {
    let mut script = Script::new();
    acquainted(&mut script);
    let many = [sends(&mut script, PeerId(0), 8, 0), sends(&mut script, PeerId(0), 9, 0)].concat();
    assert_eq!(many, [4, 5]);
    let resent = |script: &mut Script| {
        let frames = script.sent();
        packets(&frames).iter().any(|packet| matches!(packet, Packet::Tiny(_)))
    };
    for _ in 0..10 {
        let _ = acks(&mut script, 4, 4);
    }
    assert!(!resent(&mut script), "ten copies of an acknowledgement report no loss");
    for number in 5..8 {
        acks(&mut script, 4, number).unwrap();
    }
    assert!(resent(&mut script));
}

/// Connects for at most `ns`. Returns the expected number in the last request.
fn connects(script: &mut Script, token: u64, ns: u64) -> Option<u16> {
    let (to, key) = (address(1, THEIRS), KEY);
    let connect = Request::Connect { token: Token(token), to, key, timeout_ns: Some(ns) };
    assert_eq!(script.ask(&connect), Admission::Yes);
    script.pass(ns);
    let frames = script.sent();
    let one = |packet: &Packet<'_>| match packet {
        Packet::Connect(Connect { expected, greeting: ConnectBody::Request { .. }, .. }) => {
            Some(*expected)
        }
        _ => None,
    };
    packets(&frames).iter().filter_map(one).next_back()
}

/// Receives a message of the peer with match information.
fn tells(script: &mut Script, sequence: u16, match_info: u64) -> Result<(), DropReason> {
    let (session, data, ends) = (script.session, b"data", TO_US);
    let acknowledged = 1;
    script.deliver(&Packet::Tiny(Eager { ends, sequence, acknowledged, match_info, session, data }))
}

fn infos(script: &mut Script) -> Vec<u64> {
    let one = |told| match told {
        RecordedEvent::Message { match_info, .. } => Some(match_info),
        RecordedEvent::Event(_) => None,
    };
    script.told().into_iter().filter_map(one).collect()
}

#[test]
fn restart_unnoticed_restarts_do_not_reuse_known_numbers() {
    let mut script = Script::new();
    let peer = acquainted(&mut script);
    assert_eq!(script.ask(&Request::Disconnect { peer }), Admission::Yes);
    assert_eq!(script.ask(&Request::Forget { peer }), Admission::Yes);
    for token in 20..30 {
        assert_eq!(connects(&mut script, token, 100 * MS), Some(0x4001), "{token}");
        // The peer continues without noticing the restart.
        let _ = tells(&mut script, 2, 2);
        let _ = tells(&mut script, 5, 5);
        assert_eq!(infos(&mut script), [0; 0]);
    }
}

#[test]
fn early_messages_of_a_previous_instance_are_discarded() {
    // The peer answers, or connects itself.
    for answers in [true, false] {
        let mut script = Script::new();
        assert_eq!(connects(&mut script, 1, MS / 2), Some(1));
        let (to, key) = (address(1, THEIRS), KEY);
        let connect = Request::Connect { token: Token(2), to, key, timeout_ns: None };
        assert_eq!(script.ask(&connect), Admission::Yes);
        // Messages to a previous instance that expected the same number.
        tells(&mut script, 3, 30).unwrap();
        tells(&mut script, 2, 20).unwrap();
        let held: usize =
            script.nic.peer_states(OURS).iter().map(|partner| partner.pending_bytes).sum();
        assert_eq!(held, 8);
        if answers {
            script.reply(2, 1);
        } else {
            assert_eq!(asks(&mut script, 1, 1), Some(1));
        }
        let held: usize =
            script.nic.peer_states(OURS).iter().map(|partner| partner.pending_bytes).sum();
        assert_eq!(held, 0);
        for number in 1..=4 {
            tells(&mut script, number, number.into()).unwrap();
        }
        assert_eq!(infos(&mut script), [1, 2, 3, 4], "{answers}");
    }
}
