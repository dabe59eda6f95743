//! Hostile peers and hostile host sides: lies affect at most the liar.

use crate::common;

use causeway_mxoe::limits::{
    CONNECTS_MAX, DOUBT_NS, OFFERS_OF_PEER_MAX, OUTBOX_MAX, QUIET_NS, SENDS_MAX,
};
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Address, Event, Handle, PeerId, RegionId, Request, Status, Token, Window};
use causeway_wire::mxoe::{
    Ack, Connect, ConnectBody, Eager, EndpointPair, Fragment, FragmentPlace, Nack, Notify, Packet,
    Pull, PullNack, PullReply, Rendezvous, nack,
};
use proptest::prelude::*;

use common::script::{
    KEY, OURS, Script, THEIR_INDEX, THEIR_MAC, THEIR_SESSION, THEIRS, TO_US, connect, packets,
    theirs,
};
use common::{MS, RecordedEvent, address, nic};

/// Another known NIC, and an unknown one.
const THIRD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 99];

fn eager(session: u32, sequence: u16) -> Eager<'static> {
    Eager { ends: TO_US, sequence, acknowledged: 1, match_info: 1, session, data: b"evil" }
}

/// Offers a large message. Returns its window.
fn offer(script: &mut Script, peer: PeerId, token: u64) -> (u8, u8) {
    let region = RegionId(0);
    script.side.regions.entry((OURS, 0)).or_insert_with(|| {
        assert_eq!(script.nic.region_add(OURS, 10_000), Some(region));
        vec![7; 10_000]
    });
    let from = Window { region, offset: 0, len: 10_000 };
    let offer = Request::Offer { peer, token: Token(token), match_info: 1, from };
    assert_eq!(script.ask(&offer), Admission::Yes);
    let frames = script.sent();
    match packets(&frames)[..] {
        [Packet::Rendezvous(offer)] => (offer.window, offer.window_sequence),
        ref other => panic!("{other:?}"),
    }
}

fn pull(session: u32, (window, window_sequence): (u8, u8)) -> Pull {
    Pull {
        ends: TO_US,
        session,
        total_len: 10_000,
        window,
        window_sequence,
        offset: 0,
        handle: 1,
        magic: 0x2107_1984,
        first_frame_offset: 0,
        block_len: 10_000,
        frame_index: 0,
        wide: false,
    }
}

#[test]
fn hostile_frames_of_others_and_for_others_do_nothing() {
    let (mut script, _) = Script::connected();
    let session = script.session;
    let packet = Packet::Tiny(eager(session, 1));
    assert_eq!(script.deliver_from(STRANGER, &packet), Err(DropReason::UnknownNic));
    assert_eq!(script.deliver_from(THIRD_MAC, &packet), Err(DropReason::UnknownPeer));
    let ends = EndpointPair { source: 9, ..TO_US };
    let other = Packet::Tiny(Eager { ends, ..eager(session, 1) });
    assert_eq!(script.deliver(&other), Err(DropReason::UnknownPeer));
    let frames = script.sent();
    assert!(packets(&frames).iter().all(|packet| matches!(
        packet, Packet::Nack(nack) if nack.reason == nack::BAD_SESSION
    )));
    assert_eq!(frames.len(), 2, "unknown NICs get no answer");
    let mut frame = theirs(28, &[(0, &[37, OURS, THEIRS, 0, 0, 4])]);
    frame[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(script.receive_frame(&frame), Err(DropReason::NotOurs));
    assert!(matches!(script.receive_frame(&frame[..30]), Err(DropReason::Malformed(_))));
    assert_eq!((script.told(), script.sent()), (vec![], vec![]));
}

#[test]
fn hostile_peer_indexes_do_not_identify_a_sender() {
    let (mut script, _) = Script::connected();
    // The third NIC uses the index of the peer, but is identified by its MAC.
    let mut frame = theirs(
        28,
        &[(0, &[37, OURS, THEIRS, 0, 0, 4]), (8, &[0, 1]), (20, &script.session.to_be_bytes())],
    );
    frame[6..12].copy_from_slice(&THIRD_MAC);
    assert_eq!(script.receive_frame(&frame), Err(DropReason::UnknownPeer));
    // The peer with an outdated index is still the peer.
    frame[6..12].copy_from_slice(&THEIR_MAC);
    frame[14..16].copy_from_slice(&[0xab, 0xcd]);
    assert_eq!(script.receive_frame(&frame), Ok(()));
    assert_eq!(script.told().len(), 1);
}

#[test]
fn hostile_sessions_and_endpoints_are_refused() {
    let (mut script, _) = Script::connected();
    let wrong = script.session ^ 1;
    assert_eq!(script.deliver(&Packet::Tiny(eager(wrong, 1))), Err(DropReason::Session));
    let ack = Ack { ends: TO_US, session: wrong, acknowledged: 1, number: 1 };
    assert_eq!(script.deliver(&Packet::Ack(ack)), Err(DropReason::Session));
    let closed = EndpointPair { destination: 77, ..TO_US };
    let ends = Eager { ends: closed, ..eager(wrong, 5) };
    assert_eq!(script.deliver(&Packet::Tiny(ends)), Err(DropReason::NoEndpoint));
    let raw = EndpointPair { destination: 255, ..TO_US };
    assert_eq!(script.deliver(&connect(raw, 1, 1, KEY)), Err(DropReason::NoEndpoint));
    assert_eq!(script.deliver(&Packet::Pull(pull(wrong, (0, 0)))), Err(DropReason::Session));
    let frames = script.sent();
    let reasons: Vec<_> = packets(&frames)
        .iter()
        .map(|packet| match packet {
            Packet::Nack(nack) => (nack.ends.source, nack.sequence, nack.reason),
            Packet::PullNack(nack) => (nack.source, 0, nack.reason),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (OURS, 1, nack::BAD_SESSION),
        (77, 5, nack::ENDPOINT_CLOSED),
        (255, 0, nack::BAD_ENDPOINT),
        (OURS, 0, nack::BAD_SESSION),
    ];
    assert_eq!(reasons, expected, "an acknowledgement is never refused");
    assert_eq!(script.told(), []);
}

#[test]
fn nothing_is_refused_in_the_name_of_endpoints_that_are_awaited() {
    let (mut script, _) = Script::connected();
    let to = EndpointPair { destination: 77, ..TO_US };
    let message = Packet::Tiny(Eager { ends: to, ..eager(1, 5) });
    script.nic.set_awaited([77].into_iter());
    assert_eq!(script.deliver(&message), Err(DropReason::NoEndpoint));
    assert_eq!(script.deliver(&connect(to, 1, 1, KEY)), Err(DropReason::NoEndpoint));
    let pulls = Pull { ends: to, ..pull(1, (0, 0)) };
    assert_eq!(script.deliver(&Packet::Pull(pulls)), Err(DropReason::NoEndpoint));
    assert_eq!(script.sent().len(), 0);
    script.nic.set_awaited(std::iter::empty());
    assert_eq!(script.deliver(&message), Err(DropReason::NoEndpoint));
    assert_eq!(script.sent().len(), 1);
}

#[test]
fn hostile_pulls_get_only_offers_to_their_sender() {
    let (mut script, peer) = Script::connected();
    // The third NIC is connected too.
    let request = connect(TO_US, 5, 1, KEY);
    script.deliver_from(THIRD_MAC, &request).unwrap();
    script.sent();
    let window = offer(&mut script, peer, 2);
    let session = script.session;
    let good = pull(session, window);
    let refused = |script: &mut Script, from: [u8; 6], pull: Pull| {
        assert_eq!(
            script.deliver_from(from, &Packet::Pull(pull)),
            Err(DropReason::Window),
            "{pull:?}"
        );
        let frames = script.sent();
        let replied = packets(&frames)
            .iter()
            .any(|packet| !matches!(packet, Packet::PullNack(nack) if nack.reason == 4));
        assert!(!replied, "{pull:?}");
    };
    refused(&mut script, THIRD_MAC, good);
    refused(&mut script, THEIR_MAC, Pull { window: window.0 ^ 1, ..good });
    refused(&mut script, THEIR_MAC, Pull { window_sequence: window.1 ^ 1, ..good });
    refused(&mut script, THEIR_MAC, Pull { offset: 1, ..good });
    refused(&mut script, THEIR_MAC, Pull { total_len: 10_001, ..good });
    refused(&mut script, THEIR_MAC, Pull { block_len: 10_001, ..good });
    refused(&mut script, THEIR_MAC, Pull { frame_index: 3, block_len: 1, ..good });
    refused(&mut script, THEIR_MAC, Pull { frame_index: u32::MAX, block_len: 1, ..good });
    refused(&mut script, THEIR_MAC, Pull { first_frame_offset: 1, ..good });
    assert_eq!(script.deliver(&Packet::Pull(good)), Ok(()));
    assert_eq!(script.sent().len(), 3);
}

#[test]
fn hostile_late_pulls_do_not_read_a_reused_window() {
    let (mut script, peer) = Script::connected();
    let first = offer(&mut script, peer, 2);
    let session = script.session;
    let mut sequence = 1;
    let mut notify = |script: &mut Script, (window, window_sequence): (u8, u8)| {
        let notify = Notify {
            ends: TO_US,
            session,
            total_len: 10_000,
            window,
            window_sequence,
            sequence,
            acknowledged: sequence + 1,
        };
        sequence += 1;
        assert_eq!(script.deliver(&Packet::Notify(notify)), Ok(()));
        script.sent();
    };
    notify(&mut script, first);
    // The same window is reused after all others.
    let again = loop {
        let next = offer(&mut script, peer, 3);
        if next.0 == first.0 {
            break next;
        }
        notify(&mut script, next);
    };
    assert_eq!(script.deliver(&Packet::Pull(pull(session, first))), Err(DropReason::Window));
    assert_eq!(script.sent().len(), 1, "a refusal");
    // A late notification ends nothing either.
    let told = script.told().len();
    notify(&mut script, first);
    assert_eq!(script.told(), [], "after {told} events");
    assert_eq!(script.deliver(&Packet::Pull(pull(session, again))), Ok(()));
    assert_eq!(script.sent().len(), 3);
}

/// Pulls a message that the peer offers. Returns handle and magic of the pull.
fn pulling(script: &mut Script, len: u32) -> (u32, u32) {
    let offer = Rendezvous {
        ends: TO_US,
        sequence: 1,
        acknowledged: 1,
        match_info: 1,
        session: script.session,
        message_len: len,
        window: 1,
        window_sequence: 1,
        offset: 0,
    };
    script.deliver(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let Some(RecordedEvent::Event(Event::Offered { handle, .. })) = told.last() else {
        panic!("{told:?}")
    };
    let region = script.nic.region_add(OURS, len.into()).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; len as usize]);
    let into = Window { region, offset: 0, len };
    let pull = Request::Pull { handle: *handle, token: Token(9), into };
    assert_eq!(script.ask(&pull), Admission::Yes);
    let frames = script.sent();
    match packets(&frames)[0] {
        Packet::Pull(pull) => (pull.handle, pull.magic),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_pull_replies_write_nothing() {
    let (mut script, _) = Script::connected();
    let (handle, magic) = pulling(&mut script, 300_000);
    let data = [0xbd; 4096];
    let good = PullReply { frame_sequence: 1, offset: 4096, handle, magic, data: &data };
    let forged = |script: &mut Script, from, reply: PullReply<'_>, dropped| {
        assert_eq!(script.deliver_from(from, &Packet::PullReply(reply)), Err(dropped));
        assert!(script.side.regions[&(OURS, 0)].iter().all(|byte| *byte == 0));
    };
    forged(&mut script, THIRD_MAC, good, DropReason::Handle);
    forged(&mut script, THEIR_MAC, PullReply { handle: handle ^ 1, ..good }, DropReason::Handle);
    forged(
        &mut script,
        THEIR_MAC,
        PullReply { handle: handle ^ 0x1000, ..good },
        DropReason::Handle,
    );
    forged(&mut script, THEIR_MAC, PullReply { magic: magic ^ 0x100, ..good }, DropReason::Handle);
    forged(&mut script, THEIR_MAC, PullReply { magic: magic ^ 1, ..good }, DropReason::NoEndpoint);
    forged(&mut script, THEIR_MAC, PullReply { frame_sequence: 2, ..good }, DropReason::Number);
    forged(&mut script, THEIR_MAC, PullReply { offset: 4097, ..good }, DropReason::Number);
    forged(&mut script, THEIR_MAC, PullReply { data: &data[1..], ..good }, DropReason::Number);
    // Frames that were not requested, and invalid ones.
    for frame in [8 * 4, 72, 73, 74, 256 + 1, 0x000f_ffff] {
        let [frame_sequence, ..] = u32::to_le_bytes(frame);
        let reply = PullReply { frame_sequence, offset: frame * 4096, ..good };
        forged(&mut script, THEIR_MAC, reply, DropReason::Number);
    }
    assert_eq!(script.deliver(&Packet::PullReply(good)), Ok(()));
    assert_eq!(
        script.deliver(&Packet::PullReply(good)),
        Err(DropReason::Number),
        "already present"
    );
    assert_eq!(script.side.regions[&(OURS, 0)].iter().filter(|byte| **byte == 0xbd).count(), 4096);
}

#[test]
fn hostile_refusals_end_nothing_that_was_not_refused() {
    let (mut script, peer) = Script::connected();
    let (handle, magic) = pulling(&mut script, 100_000);
    let data = &[1, 2, 3];
    let request = Request::Eager { peer, token: Token(2), match_info: 1, data };
    assert_eq!(script.ask(&request), Admission::Yes);
    let refusal = Nack { ends: TO_US, reason: nack::BAD_SESSION, peer_index: 0, sequence: 1 };
    let source = THEIRS;
    let pull_refusal = PullNack { source, reason: nack::BAD_WINDOW, handle, magic };
    let mut ignored = |from, packet: Packet<'_>| {
        assert_eq!(script.deliver_from(from, &packet), Err(DropReason::Refusal), "{packet:?}");
        assert_eq!(script.told(), []);
    };
    for reason in (0..=255).filter(|reason| !(1..=3).contains(reason)) {
        ignored(THEIR_MAC, Packet::Nack(Nack { reason, ..refusal }));
        if reason != nack::BAD_WINDOW {
            ignored(THEIR_MAC, Packet::PullNack(PullNack { reason, ..pull_refusal }));
        }
    }
    ignored(THIRD_MAC, Packet::Nack(refusal));
    ignored(THIRD_MAC, Packet::PullNack(pull_refusal));
    for sequence in [0, 2, 0x4001, 0x3fff] {
        ignored(THEIR_MAC, Packet::Nack(Nack { sequence, ..refusal }));
    }
    let ends = EndpointPair { source: 9, ..TO_US };
    ignored(THEIR_MAC, Packet::Nack(Nack { ends, ..refusal }));
    ignored(THEIR_MAC, Packet::PullNack(PullNack { source: 9, ..pull_refusal }));
    ignored(THEIR_MAC, Packet::PullNack(PullNack { handle: handle ^ 1, ..pull_refusal }));
    ignored(THEIR_MAC, Packet::PullNack(PullNack { magic: magic ^ 0x100, ..pull_refusal }));
    assert_eq!(script.deliver(&Packet::PullNack(pull_refusal)), Ok(()));
    assert_eq!(script.told(), [], "the pull is repeated");
    let frames = script.sent();
    let magic = packets(&frames).iter().find_map(|packet| match packet {
        Packet::Pull(again) => Some(again.magic),
        _ => None,
    });
    let pull_refusal = PullNack { magic: magic.unwrap(), ..pull_refusal };
    assert_eq!(script.deliver(&Packet::PullNack(pull_refusal)), Ok(()));
    assert_eq!(script.deliver(&Packet::Nack(refusal)), Ok(()));
    script.pass(DOUBT_NS);
    let status = Status::BadSession;
    let told = script.told();
    let expected = [
        Event::Pulled { token: Token(9), status: Status::BadRdmaWindow },
        Event::Sent { token: Token(2), status, taken: 0 },
        Event::PeerGone { peer, status },
    ];
    assert_eq!(told, expected.map(RecordedEvent::Event));
}

#[test]
fn hostile_fragments_of_another_message_are_not_mixed_in() {
    let (mut script, _) = Script::connected();
    let data = [5; 4096];
    let place = FragmentPlace { message_len: 8192, number: 0, pipeline: 12 };
    let eager = Eager { data: &data, ..eager(script.session, 1) };
    let good = Fragment { eager, place };
    script.deliver(&Packet::Medium(good)).unwrap();
    let other = [6; 4096];
    for wrong in [
        Fragment { eager: Eager { match_info: 2, data: &other, ..eager }, ..good },
        Fragment {
            eager: Eager { data: &other, ..eager },
            place: FragmentPlace { message_len: 12_000, number: 1, ..place },
        },
        Fragment {
            eager: Eager { data: &other[..1024], ..eager },
            place: FragmentPlace { number: 4, pipeline: 10, ..place },
        },
        Fragment { eager: Eager { data: &other, ..eager }, ..good },
    ] {
        script.deliver(&Packet::Medium(wrong)).unwrap();
    }
    // A message of another kind with the same number.
    script.deliver(&Packet::Tiny(Eager { data: b"x", ..eager })).unwrap();
    let told: Vec<_> = script
        .told()
        .into_iter()
        .filter(|told| matches!(told, RecordedEvent::Message { .. }))
        .collect();
    assert_eq!(told, []);
    let place = FragmentPlace { number: 1, ..place };
    script.deliver(&Packet::Medium(Fragment { place, ..good })).unwrap();
    let whole = RecordedEvent::Message { peer: 0, match_info: 1, data: vec![5; 8192] };
    assert_eq!(script.told(), [whole]);
}

#[test]
fn hostile_numbers_do_not_move_the_window() {
    let (mut script, _) = Script::connected();
    let session = script.session;
    for sequence in [0x4001, 0x8001, 0xc001, 258, 4_000, 8_000] {
        let packet = Packet::Tiny(eager(session, sequence));
        assert_eq!(script.deliver(&packet), Err(DropReason::Number), "{sequence:#x}");
    }
    // Acknowledgements of unsent messages.
    for acknowledged in [2, 0, 500, 0x4001] {
        let ack = Ack { ends: TO_US, session, acknowledged, number: u32::from(acknowledged) + 1 };
        let _ = script.deliver(&Packet::Ack(ack));
    }
    assert_eq!(script.told(), []);
    assert_eq!(script.deliver(&Packet::Tiny(eager(session, 1))), Ok(()));
    assert_eq!(script.told().len(), 1);
}

#[test]
fn restart_wrapped_generations_of_a_silent_peer_are_answered() {
    let mut script = Script::new();
    // One known restart, then three unknown ones, so that the generation equals the first.
    for (number, generation) in [(1, 0), (2, 1), (5, 0)] {
        let request = script.request(number, THEIR_SESSION, generation << 14 | 1, KEY);
        assert_eq!(script.deliver(&request), Ok(()));
        let frames = script.sent();
        let Some(Packet::Connect(Connect {
            expected, greeting: ConnectBody::Reply { .. }, ..
        })) = packets(&frames).first().copied()
        else {
            panic!("{:?}", packets(&frames));
        };
        let message = eager(script.session, expected);
        assert_eq!(script.deliver(&Packet::Tiny(message)), Ok(()));
        script.pass(QUIET_NS * 2);
        let frames = script.sent();
        let acks = |packet: &Packet<'_>| matches!(packet, Packet::Ack(ack) if ack.session == THEIR_SESSION);
        assert!(packets(&frames).iter().any(acks), "{:?}", packets(&frames));
    }
}

#[test]
fn hostile_connects_of_one_nic_are_bounded() {
    let mut script = Script::new();
    for n in 0..10_000_u32 {
        let ends = EndpointPair { destination: OURS, source: (n % 256) as u8 };
        // Each with another session, as after a restart, and late enough not to be a late packet.
        if n % 256 == 0 {
            script.pass(QUIET_NS + 1);
        }
        let packet = connect(ends, n, (n / 256) as u8, KEY);
        let _ = script.deliver(&packet);
    }
    assert!(script.nic.peer_states(OURS).len() <= 256);
    assert_eq!(script.told(), [], "the host side gets no event");
    assert!(script.sent().len() <= 20_000, "an answer or two queries for each");
    let (counters, _) = script.nic.endpoint_counters(OURS).unwrap();
    assert_eq!((counters.connects_received, counters.restarts), (10_000, 0));
    // Another NIC can still connect.
    script.deliver_from(THIRD_MAC, &connect(TO_US, 1, 1, KEY)).unwrap();
    assert_eq!(script.nic.peer_states(OURS).len(), 257);
    // A wrong key creates no peer.
    for n in 0..1_000 {
        let ends = EndpointPair { destination: OURS, source: (n % 256) as u8 };
        let wrong = script.deliver_from(THIRD_MAC, &connect(ends, n, 1, KEY ^ 1));
        assert_eq!(wrong, Err(DropReason::Key));
    }
    assert_eq!(script.nic.peer_states(OURS).len(), 257);
}

#[test]
fn hostile_replies_to_connects_that_were_not_made_do_nothing() {
    let mut script = Script::new();
    let to = address(1, THEIRS);
    let ask = Request::Connect { token: Token(1), to, key: 9, timeout_ns: None };
    assert_eq!(script.ask(&ask), Admission::Yes);
    let reply = |session, number, ends| {
        let answer = causeway_wire::mxoe::ConnectStatus::SUCCESS;
        let greeting = ConnectBody::Reply { session: THEIR_SESSION, answer };
        let index_of_destination = THEIR_INDEX;
        let expected = 1;
        Packet::Connect(Connect { ends, index_of_destination, session, expected, number, greeting })
    };
    let session = script.session;
    let other = EndpointPair { source: 9, ..TO_US };
    assert_eq!(script.deliver(&reply(session, 2, TO_US)), Err(DropReason::UnknownPeer));
    assert_eq!(script.deliver(&reply(session, 1, other)), Err(DropReason::UnknownPeer));
    assert_eq!(script.deliver(&reply(session ^ 1, 1, TO_US)), Err(DropReason::Session));
    assert_eq!(
        script.deliver_from(THIRD_MAC, &reply(session, 1, TO_US)),
        Err(DropReason::UnknownPeer)
    );
    assert_eq!(script.told(), []);
    assert_eq!(script.deliver(&reply(session, 1, TO_US)), Ok(()));
    assert_eq!(script.told().len(), 2);
}

#[test]
fn hostile_offers_wait_when_there_are_too_many() {
    let (mut script, _) = Script::connected();
    let most = OFFERS_OF_PEER_MAX as u16;
    for number in 1..=most + 300 {
        let offer = Rendezvous {
            ends: TO_US,
            sequence: number,
            acknowledged: 1,
            match_info: 1,
            session: script.session,
            message_len: 1,
            window: 1,
            window_sequence: 1,
            offset: 0,
        };
        let _ = script.deliver(&Packet::Rendezvous(offer));
    }
    let told = script.told();
    assert_eq!(told.len(), OFFERS_OF_PEER_MAX);
    let RecordedEvent::Event(Event::Offered { handle, .. }) = told[0] else { panic!("{told:?}") };
    // Waiting offers are not acknowledged.
    let frames = script.sent();
    let acked = packets(&frames)
        .iter()
        .any(|packet| matches!(packet, Packet::Ack(ack) if ack.acknowledged > most + 1));
    assert!(!acked);
    // When one ends, another is reported.
    let into = Window { region: RegionId(0), offset: 0, len: 0 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(1), into }), Admission::Yes);
    let told = script.told();
    assert!(matches!(told[..], [.., RecordedEvent::Event(Event::Offered { .. })]), "{told:?}");
}

#[test]
fn hostile_requests_for_unknown_objects_fail() {
    let (mut script, peer) = Script::connected();
    let window = |region: u8, offset, len| Window { region: RegionId(region), offset, len };
    let region = script.nic.region_add(OURS, 100).unwrap();
    assert_eq!(region, RegionId(0));
    let data = vec![0; 32_769];
    let token = Token(7);
    let sent = |status| Event::Sent { token, status, taken: 0 };
    let offer = |peer, from| Request::Offer { peer, token, match_info: 0, from };
    let eager = |peer, data| Request::Eager { peer, token, match_info: 0, data };
    let connect = |nic, endpoint| {
        let to = Address { nic, endpoint };
        Request::Connect { token, to, key: 0, timeout_ns: None }
    };
    let connected = |status| Event::Connected { token, status, peer: PeerId::NONE };
    let strange = PeerId(77);
    let pull = |handle, into| Request::Pull { handle: Handle(handle), token, into };
    let cases = [
        (eager(strange, &data[..1]), Some(sent(Status::EndpointUnreachable))),
        (eager(peer, &data), Some(sent(Status::NoResources))),
        (offer(strange, window(0, 0, 1)), Some(sent(Status::EndpointUnreachable))),
        (offer(peer, window(1, 0, 1)), Some(sent(Status::BadRdmaWindow))),
        (offer(peer, window(0, 0, 101)), Some(sent(Status::BadRdmaWindow))),
        (offer(peer, window(0, u64::MAX, 2)), Some(sent(Status::BadRdmaWindow))),
        (connect(nic(50), 1), Some(connected(Status::EndpointUnreachable))),
        (
            connect(causeway_wire::mx::NicId(u64::MAX), 1),
            Some(connected(Status::EndpointUnreachable)),
        ),
        (connect(nic(1), 255), Some(connected(Status::BadEndpoint))),
        (
            pull(0, window(0, 0, 1)),
            Some(Event::Pulled { token, status: Status::EndpointUnreachable }),
        ),
        (
            pull(u32::MAX, window(0, 0, 1)),
            Some(Event::Pulled { token, status: Status::EndpointUnreachable }),
        ),
        (Request::Disconnect { peer: strange }, None),
        (Request::Forget { peer }, None),
        (Request::Cancel { token }, None),
        (Request::Watch { peer: strange, on: true }, None),
        (Request::Watch { peer, on: false }, None),
    ];
    for (request, event) in cases {
        assert_eq!(script.ask(&request), Admission::Yes);
        let expected: Vec<_> = event.into_iter().map(RecordedEvent::Event).collect();
        assert_eq!(script.told(), expected, "{request:?}");
        assert_eq!(script.sent(), Vec::<Vec<u8>>::new(), "{request:?}");
    }
}

#[test]
fn hostile_requests_are_bounded() {
    let (mut script, peer) = Script::connected();
    let tokens = |n| Token(1_000 + n as u64);
    let mut taken = 0;
    while taken < 1 << 20 {
        let token = tokens(taken);
        let request = Request::Eager { peer, token, match_info: 0, data: b"12345678" };
        if script.ask(&request) == Admission::Later {
            break;
        }
        taken += 1;
        script.sent();
    }
    assert_eq!(taken, SENDS_MAX);
    let mut connects = 0;
    loop {
        let to = address(1, (connects % 255) as u8);
        let token = tokens(connects);
        let request = Request::Connect { token, to, key: 0, timeout_ns: Some(MS) };
        if script.ask(&request) == Admission::Later {
            break;
        }
        connects += 1;
    }
    assert_eq!(connects, CONNECTS_MAX);
    // Requests of a host side without room for events are deferred as well.
    script.side.room.insert(OURS, 0);
    let mut refused = 0;
    let request = Request::Eager { peer: PeerId(99), token: Token(0), match_info: 0, data: b"" };
    script.pass(MS);
    while script.ask(&request) == Admission::Yes {
        refused += 1;
        assert!(refused <= SENDS_MAX);
        if refused == 1 {
            assert_eq!(script.ask(&Request::Disconnect { peer }), Admission::Yes);
        }
    }
    assert!(refused <= OUTBOX_MAX);
}

#[test]
fn hostile_unmapped_memory_ends_its_operations() {
    let (mut script, peer) = Script::connected();
    let window = offer(&mut script, peer, 2);
    let session = script.session;
    script.side.broken.insert((OURS, 0));
    assert_eq!(script.deliver(&Packet::Pull(pull(session, window))), Err(DropReason::Window));
    let failed = Event::Sent { token: Token(2), status: Status::BadRdmaWindow, taken: 0 };
    assert_eq!(script.told(), [RecordedEvent::Event(failed)]);
    let frames = script.sent();
    assert!(matches!(packets(&frames)[..], [Packet::PullNack(nack)] if nack.reason == 4));
    let (handle, magic) = pulling(&mut script, 5_000);
    script.side.broken.insert((OURS, 1));
    let data = [1; 4096];
    let reply = PullReply { frame_sequence: 0, offset: 0, handle, magic, data: &data };
    assert_eq!(script.deliver(&Packet::PullReply(reply)), Err(DropReason::Window));
    let failed = Event::Pulled { token: Token(9), status: Status::BadRdmaWindow };
    assert_eq!(script.told(), [RecordedEvent::Event(failed)]);
    let frames = script.sent();
    assert!(
        matches!(packets(&frames)[..], [Packet::Notify(notify)] if notify.total_len == 0),
        "its sender does not wait for ever"
    );
}

#[test]
fn hostile_silence_is_given_up() {
    let (mut script, peer) = Script::connected();
    let request = Request::Eager { peer, token: Token(2), match_info: 0, data: b"anybody?" };
    assert_eq!(script.ask(&request), Admission::Yes);
    script.pass(499_000 * MS);
    assert_eq!(script.told(), []);
    let tries = script.sent().len();
    assert!((999..1_100).contains(&tries), "every half second: {tries}");
    script.pass(2_000 * MS);
    let status = Status::EndpointUnreachable;
    let gone =
        [Event::Sent { token: Token(2), status, taken: 0 }, Event::PeerGone { peer, status }];
    assert_eq!(script.told(), gone.map(RecordedEvent::Event));
    assert_eq!(script.nic.deadline(), None);
    assert_eq!(script.ask(&Request::Forget { peer }), Admission::Yes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Random bodies from a peer: no panic, and a bounded number of answers.
    #[test]
    fn hostile_bodies_of_a_peer_do_no_harm(
        bodies in proptest::collection::vec(
            (prop_oneof![35..=45_u8, any::<u8>()], proptest::collection::vec(any::<u8>(), 15..60)),
            1..200,
        ),
        honest in any::<bool>(),
    ) {
        let (mut script, _) = Script::connected();
        let session = script.session.to_be_bytes();
        for (kind, mut body) in bodies {
            body[0] = OURS;
            body[1] = THEIRS;
            if honest && body.len() > 22 {
                let at = if kind == 41 || kind == 43 { 3 } else { 19 };
                body[at..at + 4].copy_from_slice(&session);
            }
            let frame = theirs(body.len() + 1, &[(0, &[kind]), (1, &body)]);
            let _ = script.receive_frame(&frame);
            prop_assert!(script.sent().len() <= 20);
            script.pass(MS);
            script.sent();
        }
    }
}
