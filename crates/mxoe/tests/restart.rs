//! Peers that begin anew, or do not know that we did: both directions go on.

mod common;

use causeway_mxoe::limits::QUIET_NS;
use causeway_mxoe::{Admission, Dropped};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token, Window};
use causeway_wire::mxoe::{Ack, Connect, Eager, Greeting, Packet, Rendezvous};

use common::script::{KEY, OURS, Script, THEIR_SESSION, THEIRS, TO_US, packets};
use common::{MS, Told, address, nic};

/// The peer asks to connect: what we expect, if we answer.
fn asks(script: &mut Script, number: u8, expected: u16) -> Option<u16> {
    let request = script.request(number, THEIR_SESSION, expected, KEY);
    let _ = script.say(&request);
    let frames = script.sent();
    packets(&frames).iter().find_map(|packet| match packet {
        Packet::Connect(Connect { expected, greeting: Greeting::Reply { .. }, .. }) => {
            Some(*expected)
        }
        _ => None,
    })
}

/// The peer asks until it is answered.
fn insists(script: &mut Script, number: u8, expected: u16) -> u16 {
    for _ in 0..20 {
        if let Some(answer) = asks(script, number, expected) {
            return answer;
        }
        script.pass(40 * MS);
    }
    panic!("not answered");
}

fn says(script: &mut Script, sequence: u16, acknowledged: u16) -> Result<(), Dropped> {
    let (session, match_info, data) = (script.session, 1, b"data");
    let ends = TO_US;
    script.say(&Packet::Tiny(Eager { ends, sequence, acknowledged, match_info, session, data }))
}

fn acks(script: &mut Script, acknowledged: u16, number: u32) -> Result<(), Dropped> {
    let session = script.session;
    script.say(&Packet::Ack(Ack { ends: TO_US, session, acknowledged, number }))
}

/// What the peer was acknowledged since.
fn acknowledged(script: &mut Script) -> Option<u16> {
    let frames = script.sent();
    let packets = packets(&frames);
    let one = |packet: &Packet<'_>| match packet {
        Packet::Ack(ack) if ack.session == THEIR_SESSION => Some(ack.acknowledged),
        _ => None,
    };
    packets.iter().filter_map(one).next_back()
}

/// We send something: the numbers that it has on the wire until `ns` passed.
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
    script.told().contains(&Told::Event(sent))
}

#[test]
fn a_partner_that_was_not_answered_before_we_ended_it_is_acknowledged() {
    let mut script = Script::new();
    let lost = asks(&mut script, 1, 1);
    assert_eq!(lost, Some(1));
    script.board.host_remove(script.now, nic(1), &mut script.side);
    script.board.host_add(nic(1)).unwrap();
    let next = insists(&mut script, 1, 1);
    assert_ne!(next, 1, "we began anew");
    // It sends again and again, and hears at last that it is there.
    let heard = (0..40).find_map(|_| {
        let _ = says(&mut script, next, 1);
        script.pass(40 * MS);
        acknowledged(&mut script)
    });
    assert_eq!(heard, Some(next + 1));
    let seen = script.told();
    let is_known = |told: &Told| matches!(told, Told::Event(Event::PeerSeen { session, .. }) if *session == THEIR_SESSION);
    assert!(seen.iter().any(is_known), "{seen:?}");
    let messages = seen.iter().filter(|told| matches!(told, Told::Message { .. })).count();
    assert_eq!(messages, 1);
    // And the other way.
    assert_eq!(sends(&mut script, PeerId(0), 7, QUIET_NS * 2).first(), Some(&1));
    acks(&mut script, 2, 1).unwrap();
    assert!(is_sent(&mut script, 7));
}

#[test]
fn what_such_a_partner_offers_is_pulled_once_it_is_known() {
    let mut script = Script::new();
    assert_eq!(asks(&mut script, 1, 1), Some(1));
    script.board.host_remove(script.now, nic(1), &mut script.side);
    script.board.host_add(nic(1)).unwrap();
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
    script.say(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let Some(Told::Event(Event::Offered { handle, .. })) = told.last() else { panic!("{told:?}") };
    let region = script.board.region_add(OURS, 40_000).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; 40_000]);
    let into = Window { region, offset: 0, len: 40_000 };
    let pull = Request::Pull { handle: *handle, token: Token(9), into };
    assert_eq!(script.ask(&pull), Admission::Yes);
    // It is not acknowledged, and offers the same again.
    let pulled = (0..40).any(|_| {
        let _ = script.say(&Packet::Rendezvous(offer));
        script.pass(40 * MS);
        let frames = script.sent();
        packets(&frames).iter().any(|packet| matches!(packet, Packet::Pull(_)))
    });
    assert!(pulled);
}

/// A peer that sent one message and had three of ours.
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

/// A peer began anew and asks to connect: both directions go on.
fn goes_on(script: &mut Script, number: u8, expected: u16) {
    let next = insists(script, number, expected);
    let gone = |told: &Told| matches!(told, Told::Event(Event::PeerGone { .. }));
    assert!(script.told().iter().any(gone), "what was before is over");
    says(script, next, expected).unwrap();
    let told = script.told();
    let peer = told.iter().find_map(|told| match told {
        Told::Message { peer, .. } => Some(PeerId(*peer)),
        _ => None,
    });
    assert_eq!(sends(script, peer.unwrap(), 9, QUIET_NS * 2).first(), Some(&expected));
    acks(script, expected + 1, 1).unwrap();
    assert!(is_sent(script, 9));
}

#[test]
fn a_partner_whose_generations_came_round_while_we_kept_it_hears_us() {
    let mut script = Script::new();
    acquainted(&mut script);
    // Four times anew, unheard.
    goes_on(&mut script, 5, 1);
}

#[test]
fn a_partner_that_connected_to_many_others_meanwhile_hears_us() {
    // By its number, this request might be one of before.
    for generation in 1..4 {
        let mut script = Script::new();
        acquainted(&mut script);
        goes_on(&mut script, 200, generation << 14 | 1);
    }
}

#[test]
fn a_late_request_of_a_partner_ends_nothing() {
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
fn a_late_request_of_a_partner_that_is_silent_and_there_ends_nothing() {
    for (number, expected) in [(1, 1), (2, 1), (0, 0xc001), (250, 0x8001)] {
        let mut script = Script::new();
        let peer = acquainted(&mut script);
        script.pass(QUIET_NS * 2);
        script.sent();
        let _ = asks(&mut script, number, expected);
        // It may have been asked whether it is there.
        script.pass(MS);
        let _ = acks(&mut script, 4, 4);
        script.pass(QUIET_NS * 2);
        assert_eq!(script.told(), [], "{number} {expected:#x}");
        script.sent();
        assert_eq!(sends(&mut script, peer, 8, 0), [4]);
    }
}

#[test]
fn a_late_acknowledgement_of_a_former_life_does_not_deafen() {
    let mut script = Script::new();
    acquainted(&mut script);
    script.told();
    let next = insists(&mut script, 2, 0x4001);
    // Of before, the thousandth.
    let _ = acks(&mut script, 4, 1_000);
    says(&mut script, next, 0x4001).unwrap();
    let told = script.told();
    let Some(Told::Message { peer, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!(sends(&mut script, PeerId(*peer), 9, QUIET_NS * 2).first(), Some(&0x4001));
    acks(&mut script, 0x4002, 1).unwrap();
    assert!(is_sent(&mut script, 9));
}

#[test]
fn an_acknowledgement_whose_number_was_damaged_does_not_deafen() {
    let mut script = Script::new();
    acquainted(&mut script);
    acks(&mut script, 4, 4 | 1 << 30).unwrap();
    assert_eq!(sends(&mut script, PeerId(0), 9, 0), [4]);
    acks(&mut script, 5, 5).unwrap();
    assert!(is_sent(&mut script, 9));
}

#[test]
fn an_acknowledgement_that_comes_again_and_again_is_one() {
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
    assert!(!resent(&mut script), "one that came ten times says that nothing is missing");
    for number in 5..8 {
        acks(&mut script, 4, number).unwrap();
    }
    assert!(resent(&mut script));
}

/// We ask to connect, for so long at most: what we expect, by our last request.
fn connects(script: &mut Script, token: u64, ns: u64) -> Option<u16> {
    let (to, key) = (address(1, THEIRS), KEY);
    let connect = Request::Connect { token: Token(token), to, key, timeout_ns: Some(ns) };
    assert_eq!(script.ask(&connect), Admission::Yes);
    script.pass(ns);
    let frames = script.sent();
    let one = |packet: &Packet<'_>| match packet {
        Packet::Connect(Connect { expected, greeting: Greeting::Request { .. }, .. }) => {
            Some(*expected)
        }
        _ => None,
    };
    packets(&frames).iter().filter_map(one).next_back()
}

/// The peer sends a message that says which it is.
fn tells(script: &mut Script, sequence: u16, match_info: u64) -> Result<(), Dropped> {
    let (session, data, ends) = (script.session, b"data", TO_US);
    let acknowledged = 1;
    script.say(&Packet::Tiny(Eager { ends, sequence, acknowledged, match_info, session, data }))
}

fn infos(script: &mut Script) -> Vec<u64> {
    let one = |told| match told {
        Told::Message { match_info, .. } => Some(match_info),
        Told::Event(_) => None,
    };
    script.told().into_iter().filter_map(one).collect()
}

#[test]
fn lives_that_a_partner_never_heard_of_do_not_bring_back_the_numbers_that_it_knows() {
    let mut script = Script::new();
    let peer = acquainted(&mut script);
    assert_eq!(script.ask(&Request::Disconnect { peer }), Admission::Yes);
    assert_eq!(script.ask(&Request::Forget { peer }), Admission::Yes);
    for token in 20..30 {
        assert_eq!(connects(&mut script, token, 100 * MS), Some(0x4001), "{token}");
        // It goes on as if nothing had been.
        let _ = tells(&mut script, 2, 2);
        let _ = tells(&mut script, 5, 5);
        assert_eq!(infos(&mut script), [0; 0]);
    }
}

#[test]
fn what_came_early_before_a_partner_connected_is_not_taken_for_what_it_sends_then() {
    // It answers, or asks itself.
    for answers in [true, false] {
        let mut script = Script::new();
        assert_eq!(connects(&mut script, 1, MS / 2), Some(1));
        let (to, key) = (address(1, THEIRS), KEY);
        let connect = Request::Connect { token: Token(2), to, key, timeout_ns: None };
        assert_eq!(script.ask(&connect), Admission::Yes);
        // Of a life of ours in which we expected the same.
        tells(&mut script, 3, 30).unwrap();
        tells(&mut script, 2, 20).unwrap();
        let held: usize = script.board.partners(OURS).iter().map(|partner| partner.parked).sum();
        assert_eq!(held, 8);
        if answers {
            script.reply(2, 1);
        } else {
            assert_eq!(asks(&mut script, 1, 1), Some(1));
        }
        let held: usize = script.board.partners(OURS).iter().map(|partner| partner.parked).sum();
        assert_eq!(held, 0);
        for number in 1..=4 {
            tells(&mut script, number, number.into()).unwrap();
        }
        assert_eq!(infos(&mut script), [1, 2, 3, 4], "{answers}");
    }
}
