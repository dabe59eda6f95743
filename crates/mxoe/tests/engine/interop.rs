//! Interoperability with native MX and Open-MX: their frames and ours, byte by byte.

use crate::common;

use causeway_mxoe::Admission;
use causeway_mxoe::limits::DOUBT_NS;
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};
use causeway_wire::mxoe::{HostQuery, Packet, nack};

use common::script::{
    KEY, OURS, Script, THEIR_INDEX, THEIR_SESSION, THEIRS, golden, packets, theirs,
};
use common::{MS, RecordedEvent, address};

const SESSION: [u8; 4] = THEIR_SESSION.to_be_bytes();

fn eager<'a>(peer: PeerId, token: u64, data: &'a [u8]) -> Request<'a> {
    Request::Eager { peer, token: Token(token), match_info: 0x0102_0304_0506_0708, data }
}

/// Returns number, acknowledgement, match information and session of a message to the peer.
fn common(number: u8, acknowledged: u8) -> Vec<u8> {
    [&[0, number, 0, acknowledged, 1, 2, 3, 4, 5, 6, 7, 8][..], &SESSION].concat()
}

/// Returns a tiny message of the peer.
fn tiny(script: &Script, number: u16, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u8;
    theirs(
        24 + data.len(),
        &[
            (0, &[37, OURS, THEIRS, 0, 0, len]),
            (8, &number.to_be_bytes()),
            (10, &[0, 1]),
            (12, &[0, 0, 0, 0, 0, 0, 0, 9]),
            (20, &script.session.to_be_bytes()),
            (24, data),
        ],
    )
}

#[test]
fn interop_connect_and_send_a_tiny_message() {
    let mut script = Script::new();
    let ours = script.session.to_be_bytes();
    let to = address(1, THEIRS);
    let connect = Request::Connect { token: Token(1), to, key: 0x0a0b_0c0d, timeout_ns: None };
    assert_eq!(script.ask(&connect), Admission::Yes);
    let mut request = golden(
        32,
        &[
            (0, &[36, THEIRS, OURS, 0, 16]),
            (10, &[0, 1]),
            (16, &ours),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &[0, 1, 0, 1]),
        ],
    );
    // The peer has not reported its index yet.
    request[14..16].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(script.sent(), std::slice::from_ref(&request));
    script.pass(40 * MS);
    assert_eq!(script.sent(), [request], "the request is repeated unchanged");
    let reply = theirs(
        32,
        &[
            (0, &[36, OURS, THEIRS, 0, 16]),
            (10, &THEIR_INDEX.to_be_bytes()),
            (16, &ours),
            (20, &SESSION),
            (24, &[0, 1, 1, 1]),
        ],
    );
    assert_eq!(script.receive_frame(&reply), Ok(()));
    let peer = PeerId(0);
    let seen = Event::PeerSeen { peer, address: to, session: THEIR_SESSION };
    let connected = Event::Connected { token: Token(1), status: Status::Success, peer };
    assert_eq!(script.told(), [RecordedEvent::Event(seen), RecordedEvent::Event(connected)]);
    assert_eq!(script.ask(&eager(peer, 2, b"hello")), Admission::Yes);
    let message =
        golden(29, &[(0, &[37, THEIRS, OURS, 0, 0, 5]), (8, &common(1, 1)), (24, b"hello")]);
    assert_eq!(script.sent(), std::slice::from_ref(&message));
    assert_eq!(script.told(), [], "the message is not acknowledged");
    script.pass(500 * MS);
    assert!(script.sent().iter().all(|again| *again == message), "the retransmission is identical");
    let ack = theirs(
        28,
        &[
            (0, &[35, OURS, THEIRS, 0, 16]),
            (8, &ours),
            (12, &[0x55, 0, 0, 2]),
            (16, &ours),
            (20, &[0, 0, 0, 1, 0, 2]),
        ],
    );
    assert_eq!(script.receive_frame(&ack), Ok(()));
    let sent = Event::Sent { token: Token(2), status: Status::Success, taken: 5 };
    assert_eq!(script.told(), [RecordedEvent::Event(sent)]);
    script.pass(5_000 * MS);
    assert_eq!(script.sent(), Vec::<Vec<u8>>::new(), "no packet is pending");
    assert_eq!(script.nic.deadline(), None);
}

#[test]
fn interop_the_peer_connects_and_its_messages_are_acknowledged_as_mx_does() {
    let mut script = Script::new();
    let request = theirs(
        32,
        &[
            (0, &[36, OURS, THEIRS, 0, 16]),
            (10, &THEIR_INDEX.to_be_bytes()),
            (16, &SESSION),
            (20, &KEY.to_be_bytes()),
            (24, &[0, 1, 0, 7]),
        ],
    );
    assert_eq!(script.receive_frame(&request), Ok(()));
    let ours = script.session.to_be_bytes();
    let reply = golden(
        32,
        &[
            (0, &[36, THEIRS, OURS, 0, 16]),
            (10, &[0, 1]),
            (16, &SESSION),
            (20, &ours),
            (24, &[0, 1, 1, 7]),
        ],
    );
    assert_eq!(script.sent(), std::slice::from_ref(&reply));
    assert_eq!(script.receive_frame(&request), Ok(()));
    assert_eq!(script.sent(), [reply], "a repeated request is answered again");
    let ack = |next: u8, number: u8| {
        golden(
            28,
            &[
                (0, &[35, THEIRS, OURS, 0, 16]),
                (8, &SESSION),
                (12, &[0x55, 0, 0, next]),
                (16, &SESSION),
                (20, &[0, 0, 0, number, 0, next]),
            ],
        )
    };
    assert_eq!(script.receive_frame(&tiny(&script, 1, b"one")), Ok(()));
    assert_eq!(script.sent(), Vec::<Vec<u8>>::new());
    script.pass(15 * MS);
    assert_eq!(script.sent(), Vec::<Vec<u8>>::new(), "the acknowledgement is delayed");
    script.pass(MS);
    assert_eq!(script.sent(), [ack(2, 1)], "after the maximum delay");
    for number in 2..=5 {
        assert_eq!(script.sent(), Vec::<Vec<u8>>::new());
        assert_eq!(script.receive_frame(&tiny(&script, number, b"more")), Ok(()));
    }
    assert_eq!(script.sent(), [ack(6, 2)], "after four messages");
    assert_eq!(script.receive_frame(&tiny(&script, 5, b"more")), Ok(()));
    assert_eq!(script.sent(), [ack(6, 3)], "the acknowledgement is repeated");
    let told = script.told();
    assert_eq!(told.len(), 6, "{told:?}");
    let one = RecordedEvent::Message { peer: 0, match_info: 9, data: b"one".to_vec() };
    assert_eq!(told[1], one);
    // A message contains the acknowledgement.
    assert_eq!(script.receive_frame(&tiny(&script, 6, b"x")), Ok(()));
    assert_eq!(script.ask(&eager(PeerId(0), 2, b"y")), Admission::Yes);
    let message = golden(25, &[(0, &[37, THEIRS, OURS, 0, 0, 1]), (8, &common(1, 7)), (24, b"y")]);
    assert_eq!(script.sent(), [message]);
    script.pass(18 * MS);
    assert_eq!(script.sent(), Vec::<Vec<u8>>::new());
}

#[test]
fn interop_medium_messages_are_fragmented() {
    let (mut script, peer) = Script::connected();
    let data: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
    assert_eq!(script.ask(&eager(peer, 2, &data)), Admission::Yes);
    let head = |to: u8, from: u8| [39, to, from, 0, 0x13, 0x88];
    let first = golden(
        32 + 4096,
        &[
            (0, &head(THEIRS, OURS)),
            (8, &common(1, 1)),
            (24, &[0x10, 0, 0, 12]),
            (32, &data[..4096]),
        ],
    );
    let second = golden(
        32 + 904,
        &[
            (0, &head(THEIRS, OURS)),
            (8, &common(1, 1)),
            (24, &[3, 0x88, 1, 12]),
            (32, &data[4096..]),
        ],
    );
    assert_eq!(script.sent(), [first, second]);
    let ours = script.session.to_be_bytes();
    let fragment = |number: u8, part: &[u8]| {
        theirs(
            32 + part.len(),
            &[
                (0, &head(OURS, THEIRS)),
                (8, &[0, 1, 0, 2]),
                (19, &[9]),
                (20, &ours),
                (24, &(part.len() as u16).to_be_bytes()),
                (26, &[number, 12]),
                (32, part),
            ],
        )
    };
    assert_eq!(script.receive_frame(&fragment(1, &data[4096..])), Ok(()));
    let sent = Event::Sent { token: Token(2), status: Status::Success, taken: 5000 };
    assert_eq!(
        script.told(),
        [RecordedEvent::Event(sent)],
        "what received acknowledges, and is not whole"
    );
    assert_eq!(script.receive_frame(&fragment(1, &data[4096..])), Ok(()));
    assert_eq!(script.told(), [], "a duplicate");
    assert_eq!(script.receive_frame(&fragment(0, &data[..4096])), Ok(()));
    assert_eq!(script.told(), [RecordedEvent::Message { peer: 0, match_info: 9, data }]);
}

#[test]
fn interop_a_large_message_is_offered_pulled_by_the_peer_and_notified() {
    let (mut script, peer) = Script::connected();
    let data: Vec<u8> = (0..40_000).map(|at| (at % 253) as u8).collect();
    let region = script.nic.region_add(OURS, 50_000).unwrap();
    let mut memory = vec![0xee; 50_000];
    memory[10_000..].copy_from_slice(&data);
    script.side.regions.insert((OURS, region.0), memory);
    let from = Window { region, offset: 10_000, len: 40_000 };
    let match_info = 0x0102_0304_0506_0708;
    let offer = Request::Offer { peer, token: Token(2), match_info, from };
    assert_eq!(script.ask(&offer), Admission::Yes);
    let frames = script.sent();
    let (window, sequence) = (frames[0][16 + 28], frames[0][16 + 29]);
    let rendezvous = golden(
        32,
        &[
            (0, &[40, THEIRS, OURS, 0, 0, 8]),
            (8, &common(1, 1)),
            (24, &40_000_u32.to_be_bytes()),
            (28, &[window, sequence]),
        ],
    );
    assert_eq!(frames, [rendezvous]);
    let ours = script.session.to_be_bytes();
    let pull = |block: u16, frame: u8| {
        theirs(
            32,
            &[
                (0, &[41, OURS, THEIRS, 0]),
                (4, &ours),
                (8, &40_000_u32.to_be_bytes()),
                (12, &[window, sequence]),
                (16, &[1, 2, 3, 4, 0x21, 7, 0x19, 0x84]),
                (26, &block.to_be_bytes()),
                (31, &[frame]),
            ],
        )
    };
    let reply = |frame: u8, from: usize, to: usize| {
        golden(
            16 + to - from,
            &[
                (0, &[42, frame]),
                (2, &((to - from) as u16).to_be_bytes()),
                (4, &(from as u32).to_be_bytes()),
                (8, &[1, 2, 3, 4, 0x21, 7, 0x19, 0x84]),
                (16, &data[from..to]),
            ],
        )
    };
    assert_eq!(script.receive_frame(&pull(32_768, 0)), Ok(()));
    let replies: Vec<_> =
        (0..8).map(|n: u8| reply(n, usize::from(n) * 4096, (usize::from(n) + 1) * 4096)).collect();
    assert!(script.sent() == replies);
    assert_eq!(script.receive_frame(&pull(7_232, 8)), Ok(()));
    assert!(script.sent() == [reply(8, 32_768, 36_864), reply(9, 36_864, 40_000)]);
    assert_eq!(script.receive_frame(&their_notify(ours, window, sequence)), Ok(()));
    let sent = Event::Sent { token: Token(2), status: Status::Success, taken: 40_000 };
    assert_eq!(script.told(), [RecordedEvent::Event(sent)]);
    let frames = script.sent();
    assert!(
        matches!(packets(&frames)[..], [Packet::Ack(ack)] if ack.acknowledged == 2),
        "old MX waits for this: {frames:?}"
    );
}

/// Returns the peer's notification that it pulled 40,000 bytes of a window.
fn their_notify(session: [u8; 4], window: u8, sequence: u8) -> Vec<u8> {
    theirs(
        24,
        &[
            (0, &[43, OURS, THEIRS, 0]),
            (4, &session),
            (8, &40_000_u32.to_be_bytes()),
            (12, &[window, sequence]),
            (18, &[0, 1, 0, 2]),
        ],
    )
}

/// Receives an offer of 40,000 bytes, which start at byte 5 of its window.
fn offered(script: &mut Script) -> Handle {
    let offer = theirs(
        32,
        &[
            (0, &[40, OURS, THEIRS, 0, 0, 8]),
            (8, &[0, 1, 0, 1]),
            (19, &[9]),
            (20, &script.session.to_be_bytes()),
            (24, &40_000_u32.to_be_bytes()),
            (28, &[17, 18, 0, 5]),
        ],
    );
    assert_eq!(script.receive_frame(&offer), Ok(()));
    match script.told()[..] {
        [
            RecordedEvent::Event(Event::Offered {
                peer: PeerId(0),
                match_info: 9,
                len: 40_000,
                handle,
            }),
        ] => handle,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn interop_pull_of_a_large_message_at_any_offset() {
    let (mut script, _) = Script::connected();
    let handle = offered(&mut script);
    let region = script.nic.region_add(OURS, 40_001).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0xee; 40_001]);
    let into = Window { region, offset: 1, len: 40_000 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(5), into }), Admission::Yes);
    let frames = script.sent();
    let named: [u8; 8] = frames[0][32..40].try_into().unwrap();
    assert_eq!(named[7], 0x80 ^ OURS, "hardware finds the endpoint here");
    let pull = |first: u16, block: u16, frame: u8| {
        golden(
            32,
            &[
                (0, &[41, THEIRS, OURS, 0]),
                (4, &SESSION),
                (8, &40_000_u32.to_be_bytes()),
                (12, &[17, 18, 0, 5]),
                (16, &named),
                (24, &first.to_be_bytes()),
                (26, &block.to_be_bytes()),
                (31, &[frame]),
            ],
        )
    };
    assert_eq!(frames, [pull(5, 32_763, 0), pull(0, 7_237, 8)]);
    let data: Vec<u8> = (0..40_000).map(|at| (at % 253) as u8).collect();
    let edges = |frame: usize| {
        let edge = |frame: usize| (frame * 4096).saturating_sub(5).min(40_000);
        (edge(frame), edge(frame + 1))
    };
    // In reverse order of the blocks; a frame of the first block is lost.
    let reply = |frame: usize| {
        let (from, to) = edges(frame);
        theirs(
            16 + to - from,
            &[
                (0, &[42, frame as u8]),
                (2, &((to - from) as u16).to_be_bytes()),
                (4, &(from as u32).to_be_bytes()),
                (8, &named),
                (16, &data[from..to]),
            ],
        )
    };
    for frame in [9, 8, 0, 1, 3, 4, 5, 6, 7] {
        assert_eq!(script.receive_frame(&reply(frame)), Ok(()));
        if frame == 8 {
            assert_eq!(script.sent(), [pull(5, 32_763, 0)], "the first block may be lost");
        }
    }
    assert_eq!((script.sent(), script.told()), (vec![], vec![]));
    script.pass(10 * MS);
    assert_eq!(script.sent()[0], pull(0, 4096, 2), "only the missing frames");
    assert_eq!(script.receive_frame(&reply(2)), Ok(()));
    let pulled = Event::Pulled { token: Token(5), status: Status::Success };
    assert_eq!(script.told(), [RecordedEvent::Event(pulled)]);
    assert!(script.side.regions[&(OURS, region.0)][1..] == data);
    let notify = golden(
        24,
        &[
            (0, &[43, THEIRS, OURS, 0]),
            (4, &SESSION),
            (8, &40_000_u32.to_be_bytes()),
            (12, &[17, 18]),
            (18, &[0, 1, 0, 2]),
        ],
    );
    assert_eq!(script.sent(), [notify]);
}

#[test]
fn interop_empty_large_message_needs_only_a_notify() {
    let (mut script, _) = Script::connected();
    let handle = offered(&mut script);
    let into = Window { region: RegionId(9), offset: 0, len: 0 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(5), into }), Admission::Yes);
    let pulled = Event::Pulled { token: Token(5), status: Status::Success };
    assert_eq!(script.told(), [RecordedEvent::Event(pulled)]);
    let frames = script.sent();
    assert!(matches!(packets(&frames)[..], [Packet::Notify(notify)] if notify.total_len == 0));
}

#[test]
fn interop_refused_connects_have_the_status_of_mx() {
    let refusal = |reason: u8| theirs(16, &[(0, &[44, THEIRS, 0, reason]), (9, &[OURS])]);
    let wrong_key = |session: u32| {
        theirs(
            32,
            &[
                (0, &[36, OURS, THEIRS, 0, 16]),
                (16, &session.to_be_bytes()),
                (24, &[0, 0, 1, 1, 11]),
            ],
        )
    };
    for (reason, status) in [
        (nack::BAD_ENDPOINT, Status::BadEndpoint),
        (nack::ENDPOINT_CLOSED, Status::EndpointClosed),
        (nack::BAD_SESSION, Status::BadSession),
        (0, Status::BadKey),
        (255, Status::Timeout),
    ] {
        let mut script = Script::new();
        let timeout_ns = Some(3_000 * MS);
        let to = address(1, THEIRS);
        let connect = Request::Connect { token: Token(1), to, key: 1, timeout_ns };
        assert_eq!(script.ask(&connect), Admission::Yes);
        match reason {
            0 => assert_eq!(script.receive_frame(&wrong_key(script.session)), Ok(())),
            255 => script.pass(2_999 * MS),
            reason => assert_eq!(script.receive_frame(&refusal(reason)), Ok(())),
        }
        // A refusal counts if no answer arrives.
        script.pass(if matches!(reason, 0 | 255) { MS } else { DOUBT_NS });
        let peer = PeerId::NONE;
        let connected = Event::Connected { token: Token(1), status, peer };
        assert_eq!(script.told(), [RecordedEvent::Event(connected)]);
        assert!(script.nic.peer_states(OURS).is_empty());
        script.pass(600 * MS);
        assert_eq!(script.nic.deadline(), None, "no timer is pending");
    }
}

#[test]
fn interop_nic_answers_with_its_name() {
    let (mut script, _) = Script::connected();
    let query = HostQuery { index_of_destination: THEIR_INDEX, magic: 0x1305_2008 };
    assert_eq!(script.deliver(&Packet::HostQuery(query)), Ok(()));
    let name = golden(23, &[(0, &[4, 7, 0, 1]), (8, &[0x13, 5, 0x20, 8]), (16, b"host:0\0")]);
    assert_eq!(script.sent(), [name]);
}
