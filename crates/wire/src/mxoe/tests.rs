//! Tests of the packet layout by offsets, of round trips, and of refused packets.

use proptest::prelude::*;

use super::*;

const HEADER: Header =
    Header { destination: [2, 0, 0, 0, 0, 9], source: [2, 0, 0, 0, 0, 7], peer_index: 0x0102 };
const ENDS: EndpointPair = EndpointPair { destination: 3, source: 4 };

/// Returns the bytes of a frame.
fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    let (head, data) = emit(&HEADER, packet);
    [head.bytes(), data].concat()
}

/// Returns a frame with these values at these offsets of its body, and zeroes elsewhere.
fn golden(body_len: usize, at: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = vec![0; (HEADER_LEN + body_len).max(FRAME_LEN_MIN)];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    frame[12..16].copy_from_slice(&[0x86, 0xdf, 1, 2]);
    for (offset, value) in at {
        frame[16 + offset..16 + offset + value.len()].copy_from_slice(value);
    }
    frame
}

#[track_caller]
fn check(packet: &Packet<'_>, golden: &[u8]) {
    assert_eq!(bytes(packet), golden);
    assert_eq!(parse(golden), Ok((HEADER, *packet)));
}

fn eager(data: &[u8]) -> Eager<'_> {
    Eager {
        ends: ENDS,
        sequence: 0x4001,
        acknowledged: 0x8002,
        match_info: 0x1122_3344_5566_7788,
        session: 0xaabb_ccdd,
        data,
    }
}

/// The fields that all messages have at the same offsets.
const COMMON: (usize, &[u8]) = (
    8,
    &[0x40, 1, 0x80, 2, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xaa, 0xbb, 0xcc, 0xdd],
);

#[test]
fn interop_tiny_and_small_lie_as_mx_has_them() {
    let tiny = golden(29, &[(0, &[37, 3, 4, 0, 0, 5]), COMMON, (24, b"hello")]);
    check(&Packet::Tiny(eager(b"hello")), &tiny);
    assert_eq!(tiny.len(), 60);
    let data = [7; 100];
    let small = golden(124, &[(0, &[38, 3, 4, 0, 0, 100]), COMMON, (24, &data)]);
    check(&Packet::Small(eager(&data)), &small);
}

#[test]
fn interop_medium_lies_as_mx_has_it() {
    let data = [9; 904];
    let place = FragmentPlace { message_len: 5000, number: 1, pipeline: 12 };
    let packet = Packet::Medium(Fragment { eager: eager(&data), place });
    let medium = golden(
        32 + 904,
        &[(0, &[39, 3, 4, 0, 0x13, 0x88]), COMMON, (24, &[3, 0x88, 1, 12]), (32, &data)],
    );
    check(&packet, &medium);
    assert_eq!(place.range(), Some((4096, 904)));
    assert_eq!(place.count(), 2);
}

#[test]
fn interop_rendezvous_pull_and_notify_lie_as_mx_has_them() {
    check_rendezvous();
    check_pull();
    check_pull_reply();
    check_notify();
}

fn check_rendezvous() {
    let offer = Rendezvous {
        ends: ENDS,
        sequence: 0x4001,
        acknowledged: 0x8002,
        match_info: 0x1122_3344_5566_7788,
        session: 0xaabb_ccdd,
        message_len: 0x0010_0000,
        window: 17,
        window_sequence: 18,
        offset: 0x0203,
    };
    let frame = golden(
        32,
        &[(0, &[40, 3, 4, 0, 0, 8]), COMMON, (24, &[0, 0x10, 0, 0]), (28, &[17, 18, 2, 3])],
    );
    check(&Packet::Rendezvous(offer), &frame);
}

fn check_pull() {
    let pull = Pull {
        ends: ENDS,
        session: 0xaabb_ccdd,
        total_len: 0x0010_0000,
        window: 17,
        window_sequence: 18,
        offset: 0x0203,
        handle: 0x0102_0304,
        magic: 0x2107_1983,
        first_frame_offset: 0x0203,
        block_len: 0x7dfd,
        frame_index: 0x0506_0708,
        wide: false,
    };
    let frame = golden(
        32,
        &[
            (0, &[41, 3, 4, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0x10, 0, 0, 17, 18, 2, 3]),
            (16, &[1, 2, 3, 4, 0x21, 7, 0x19, 0x83, 2, 3, 0x7d, 0xfd, 5, 6, 7, 8]),
        ],
    );
    check(&Packet::Pull(pull), &frame);
    // The mark of this implementation, in padding that native MX ignores.
    let mut wide = frame.clone();
    wide[48..56].copy_from_slice(b"\xcaWY\0wide");
    check(&Packet::Pull(Pull { wide: true, ..pull }), &wide);
    // Stale bytes in the padding are not a mark.
    let mut left = frame;
    left[48..].fill(0xca);
    assert_eq!(parse(&left), Ok((HEADER, Packet::Pull(pull))));
}

fn check_pull_reply() {
    let data = [5; 4096];
    let reply = PullReply {
        frame_sequence: 8,
        offset: 0x8000,
        handle: 0x0102_0304,
        magic: 0x2107_1983,
        data: &data,
    };
    let frame = golden(
        16 + 4096,
        &[(0, &[42, 8, 0x10, 0, 0, 0, 0x80, 0, 1, 2, 3, 4, 0x21, 7, 0x19, 0x83]), (16, &data)],
    );
    check(&Packet::PullReply(reply), &frame);
}

fn check_notify() {
    let notify = Notify {
        ends: ENDS,
        session: 0xaabb_ccdd,
        total_len: 0x0010_0000,
        window: 17,
        window_sequence: 18,
        sequence: 0x4001,
        acknowledged: 0x8002,
    };
    let frame = golden(
        24,
        &[
            (0, &[43, 3, 4, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0x10, 0, 0, 17, 18]),
            (18, &[0x40, 1, 0x80, 2]),
        ],
    );
    check(&Packet::Notify(notify), &frame);
}

#[test]
fn interop_connect_lies_as_mx_has_it() {
    let mut connect = Connect {
        ends: ENDS,
        index_of_destination: 0x0506,
        session: 0xaabb_ccdd,
        expected: 0x4001,
        number: 9,
        greeting: ConnectBody::Request { key: 0x1234_5678 },
    };
    let common: [(usize, &[u8]); 4] =
        [(0, &[36, 3, 4, 0, 16]), (10, &[5, 6]), (16, &[0xaa, 0xbb, 0xcc, 0xdd]), (24, &[0x40, 1])];
    let request = [&common[..], &[(20, &[0x12, 0x34, 0x56, 0x78]), (26, &[0, 9])]].concat();
    check(&Packet::Connect(connect), &golden(32, &request));
    connect.greeting = ConnectBody::Reply { session: 0x9876_5432, answer: ConnectStatus::BAD_KEY };
    let reply = [&common[..], &[(20, &[0x98, 0x76, 0x54, 0x32]), (26, &[1, 9, 11])]].concat();
    check(&Packet::Connect(connect), &golden(32, &reply));
}

#[test]
fn interop_acks_and_nacks_lie_as_mx_has_them() {
    let ack = Ack { ends: ENDS, session: 0xaabb_ccdd, acknowledged: 0x4005, number: 7 };
    let frame = golden(
        28,
        &[
            (0, &[35, 3, 4, 0, 16, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0x55, 0, 0x40, 5]),
            (16, &[0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 7, 0x40, 5]),
        ],
    );
    check(&Packet::Ack(ack), &frame);
    let nack = Nack { ends: ENDS, reason: nack::BAD_SESSION, peer_index: 0x0a0b, sequence: 0x4006 };
    let frame = golden(16, &[(0, &[44, 4, 0, 3]), (9, &[3, 0x0a, 0x0b, 0x40, 6])]);
    check(&Packet::Nack(nack), &frame);
    let nack = PullNack { source: 4, reason: nack::BAD_WINDOW, handle: 0x0102_0304, magic: 5 };
    let frame = golden(16, &[(0, &[45, 4, 0, 4]), (8, &[1, 2, 3, 4, 0, 0, 0, 5])]);
    check(&Packet::PullNack(nack), &frame);
}

#[test]
fn interop_host_packets_lie_as_mx_has_them() {
    let query = HostQuery { index_of_destination: 0x0506, magic: 0x1305_2008 };
    let frame = golden(16, &[(0, &[3, 0, 5, 6]), (8, &[0x13, 5, 0x20, 8])]);
    check(&Packet::HostQuery(query), &frame);
    let reply = HostReply { index_of_destination: 0x0506, magic: 0x1305_2008, name: b"node1:0" };
    let frame = golden(24, &[(0, &[4, 8, 5, 6]), (8, &[0x13, 5, 0x20, 8]), (16, b"node1:0\0")]);
    check(&Packet::HostReply(reply), &frame);
    let long = [b'x'; 200];
    let cut = HostReply { index_of_destination: 0, magic: 0, name: &long };
    let cut = bytes(&Packet::HostReply(cut));
    assert!(matches!(parse(&cut), Ok((_, Packet::HostReply(reply))) if reply.name == [b'x'; 79]));
}

fn any_eager(longest: usize) -> impl Strategy<Value = (u16, u16, u64, u32, Vec<u8>)> {
    let data = proptest::collection::vec(any::<u8>(), 0..=longest);
    (any::<u16>(), any::<u16>(), any::<u64>(), any::<u32>(), data)
}

fn eager_of(
    ends: EndpointPair,
    (sequence, acknowledged, match_info, session, data): &(u16, u16, u64, u32, Vec<u8>),
) -> Eager<'_> {
    let (sequence, acknowledged) = (*sequence, *acknowledged);
    Eager { ends, sequence, acknowledged, match_info: *match_info, session: *session, data }
}

/// Checks a round trip, the minimum length of the frame, and that padding is zero.
#[track_caller]
fn round_trip(packet: &Packet<'_>, needs: usize) {
    let bytes = bytes(packet);
    assert_eq!(parse(&bytes), Ok((HEADER, *packet)));
    assert_eq!(bytes.len(), needs.max(FRAME_LEN_MIN));
    assert!(bytes[needs.min(bytes.len())..].iter().all(|byte| *byte == 0), "padding is zero");
}

proptest! {
    #[test]
    fn mxoe_messages_round_trip(
        (destination, source) in any::<(u8, u8)>(),
        tiny in any_eager(TINY_LEN_MAX),
        small in any_eager(SMALL_LEN_MAX),
    ) {
        let ends = EndpointPair { destination, source };
        round_trip(&Packet::Tiny(eager_of(ends, &tiny)), 40 + tiny.4.len());
        round_trip(&Packet::Small(eager_of(ends, &small)), 40 + small.4.len());
    }

    #[test]
    fn mxoe_fragments_round_trip_and_cover_their_message(
        message_len in 1..=MEDIUM_LEN_MAX as u16,
        pipeline in 10_u8..=15,
        common in any_eager(0),
    ) {
        let data = vec![3; MEDIUM_LEN_MAX];
        let mut covered = 0;
        let count = FragmentPlace { message_len, number: 0, pipeline }.count();
        for number in 0..count {
            let place = FragmentPlace { message_len, number: number as u8, pipeline };
            let (offset, len) = place.range().unwrap();
            prop_assert_eq!(offset, covered);
            covered += len;
            let eager = Eager { data: &data[..len], ..eager_of(ENDS, &common) };
            round_trip(&Packet::Medium(Fragment { eager, place }), 48 + len);
        }
        prop_assert_eq!(covered, usize::from(message_len));
        let past = FragmentPlace { message_len, number: count as u8, pipeline };
        prop_assert_eq!(past.range(), None);
    }

    #[test]
    fn mxoe_large_packets_round_trip(
        (sequence, acknowledged, match_info, session) in any::<(u16, u16, u64, u32)>(),
        (message_len, window, window_sequence, offset) in any::<(u32, u8, u8, u16)>(),
        (handle, magic, frame_index, at, wide) in any::<(u32, u32, u32, u32, bool)>(),
        first_frame_offset in 0_u16..4096,
        block_len in 1_u16..=28_672,
        data in proptest::collection::vec(any::<u8>(), 1..=JUMBO_LEN),
    ) {
        let (ends, total_len) = (ENDS, message_len);
        let offer = Rendezvous {
            ends, sequence, acknowledged, match_info, session, message_len, window,
            window_sequence, offset,
        };
        round_trip(&Packet::Rendezvous(offer), 48);
        let pull = Pull {
            ends, session, total_len, window, window_sequence, offset, handle, magic,
            first_frame_offset, block_len, frame_index, wide,
        };
        round_trip(&Packet::Pull(pull), if wide { 56 } else { 48 });
        let notify =
            Notify { ends, session, total_len, window, window_sequence, sequence, acknowledged };
        round_trip(&Packet::Notify(notify), 40);
        let frame_sequence = window;
        let reply = PullReply { frame_sequence, offset: at, handle, magic, data: &data };
        round_trip(&Packet::PullReply(reply), 32 + data.len());
    }

    #[test]
    fn mxoe_control_packets_round_trip(
        (session, expected, number, key) in any::<(u32, u16, u8, u32)>(),
        (status, index_of_destination, magic) in any::<(u8, u16, u32)>(),
        reply in any::<bool>(),
        name in "[a-z0-9:.-]{0,79}",
    ) {
        let (ends, answer) = (ENDS, ConnectStatus(status));
        let greeting =
            if reply { ConnectBody::Reply { session: key, answer } } else { ConnectBody::Request { key } };
        let connect = Connect { ends, index_of_destination, session, expected, number, greeting };
        round_trip(&Packet::Connect(connect), 48);
        let ack = Ack { ends, session, acknowledged: expected, number: magic };
        round_trip(&Packet::Ack(ack), 44);
        let peer_index = index_of_destination;
        round_trip(&Packet::Nack(Nack { ends, reason: status, peer_index, sequence: expected }), 32);
        let nack = PullNack { source: number, reason: status, handle: key, magic };
        round_trip(&Packet::PullNack(nack), 32);
        round_trip(&Packet::HostQuery(HostQuery { index_of_destination, magic }), 32);
        let reply = HostReply { index_of_destination, magic, name: name.as_bytes() };
        round_trip(&Packet::HostReply(reply), 33 + name.len());
    }

    #[test]
    fn hostile_bytes_round_trip_or_are_refused(
        kind in any::<u8>(),
        mut frame in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Some(place) = frame.get_mut(12..17) {
            place.copy_from_slice(&[0x86, 0xdf, 0, 1, kind]);
        }
        if let Ok((header, packet)) = parse(&frame) {
            let (head, data) = emit(&header, &packet);
            let again = [head.bytes(), data].concat();
            // A raw packet has no length field, so padding becomes part of it.
            if !matches!(packet, Packet::Raw(_)) {
                prop_assert_eq!(parse(&again), Ok((header, packet)));
            }
        }
    }
}

#[test]
fn hostile_lengths_are_refused() {
    let spoil = |packet: &Packet<'_>, at: usize, with: &[u8]| {
        let mut bytes = bytes(packet);
        bytes[16 + at..16 + at + with.len()].copy_from_slice(with);
        bytes
    };
    let refused = |frame: &[u8]| parse(frame).unwrap_err().to_string();
    let tiny = Packet::Tiny(eager(b"hello"));
    assert_eq!(refused(&spoil(&tiny, 4, &[0, 33])), "MXoE: length of tiny is 33, not 0 to 32");
    assert_eq!(refused(&spoil(&tiny, 4, &[0, 21])), "tiny needs 45 bytes, 44 are there");
    assert_eq!(refused(&spoil(&tiny, 0, &[32])), "MXoE: packet type 32 is unknown");
    let data = [0; 904];
    let place = FragmentPlace { message_len: 5000, number: 1, pipeline: 12 };
    let medium = Packet::Medium(Fragment { eager: eager(&data), place });
    for (at, with) in [
        (4, &[0, 0][..]), // An empty message.
        (4, &[0x80, 1]),  // A message that is too long.
        (24, &[3, 0x89]), // A fragment past the message's end.
        (24, &[3, 0x87]), // A last fragment that is too short.
        (26, &[2]),       // A fragment behind the last.
        (27, &[16]),      // Fragments longer than any message.
        (27, &[5]),       // Too many fragments.
    ] {
        assert!(parse(&spoil(&medium, at, with)).is_err(), "{at}: {with:?}");
    }
    let reply = PullReply { frame_sequence: 0, offset: 0, handle: 0, magic: 0, data: &[0; 60] };
    for len in [[0, 0], [0x20, 1], [0, 61]] {
        assert!(parse(&spoil(&Packet::PullReply(reply), 2, &len)).is_err(), "{len:?}");
    }
    let name = HostReply { index_of_destination: 0, magic: 0, name: b"ab" };
    for (at, with) in [(1, &[0][..]), (1, &[2]), (17, &[0]), (1, &[200])] {
        assert!(parse(&spoil(&Packet::HostReply(name), at, with)).is_err(), "{at}: {with:?}");
    }
    assert!(matches!(parse(&[0; 60]), Err(Error::EtherType(0))));
    assert!(matches!(parse(&[0; 15]), Err(Error::Truncated(_))));
}
