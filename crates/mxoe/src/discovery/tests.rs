//! NICs on a wire that can lose every frame.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn board(number: u8) -> NicId {
    NicId::of([2, 0, 0, 0, 0, number])
}

fn discovery(number: u8) -> Discovery {
    Discovery::new(board(number), 100 + u32::from(number), 7, 0)
}

fn said(discovery: &mut Discovery, now: u64) -> (Vec<Vec<u8>>, Vec<News>) {
    let mut frames = Vec::new();
    let news = discovery.tick(now, &mut |head, data| frames.push([head, data].concat()));
    (frames, news)
}

fn reply(to: &[u8], name: &str, from: u8, magic: u32) -> Vec<u8> {
    let (query, _) = parse(to).unwrap();
    let header =
        Header { destination: query.source, source: mac(board(from)), peer_index: PEER_UNKNOWN };
    let reply = HostReply { index_of_destination: 0, magic, name: name.as_bytes() };
    let (head, data) = emit(&header, &Packet::HostReply(reply));
    [head.bytes(), data].concat()
}

#[test]
fn discovery_finds_nics_and_their_names() {
    let (mut a, mut b) = (discovery(1), discovery(2));
    let (frames, _) = said(&mut a, 0);
    assert_eq!(frames.len(), 1);
    assert!(Discovery::takes(&frames[0]));
    assert_eq!(b.hear(0, &frames[0]), Some(News::Added(board(1))));
    assert_eq!(b.hear(1, &frames[0]), None, "known");
    let (frames, _) = said(&mut b, 1);
    assert_eq!(frames.len(), 2, "its own announcement, and a question");
    assert_eq!(a.hear(2, &frames[0]), Some(News::Added(board(2))));
    let (_, Packet::HostQuery(query)) = parse(&frames[1]).unwrap() else { panic!("a question") };
    // Answers to another query and of another NIC, and an invalid name.
    b.hear(3, &reply(&frames[1], "x", 1, query.magic + 1));
    b.hear(3, &reply(&frames[1], "x", 3, query.magic));
    b.hear(3, &reply(&frames[1], "a b", 1, query.magic));
    assert_eq!(b.find("x"), None);
    b.hear(3, &reply(&frames[1], "one:0", 1, query.magic));
    assert_eq!(b.find("one:0"), Some(board(1)));
    let peer = b.peer(board(1)).unwrap();
    assert_eq!((peer.how, peer.answered, peer.heard_at), (How::Announced, true, Some(3)));
}

#[test]
fn announcements_come_in_bursts_and_rarely_afterwards() {
    let mut a = discovery(1);
    let mut at = Vec::new();
    let mut now = 0;
    while now < 600 * SECOND {
        at.extend(said(&mut a, now).0.iter().map(|_| now / SECOND));
        now = a.deadline();
    }
    assert_eq!(at, [0, 1, 2, 3, 4, 5, 6, 7, 187, 367, 547]);
    // A new NIC causes an announcement at once, and a burst.
    let mut b = discovery(2);
    a.hear(580 * SECOND, &said(&mut b, 0).0[0]);
    let (frames, _) = said(&mut a, 580 * SECOND);
    assert_eq!(frames.len(), 2);
    // The NIC restarts.
    let mut again = Discovery::new(board(2), 999, 7, 0);
    a.hear(590 * SECOND, &said(&mut again, 0).0[0]);
    assert_eq!(a.burst, ANNOUNCE_BURST);
}

#[test]
fn discovery_removes_silent_nics_and_keeps_configured_ones() {
    let mut a = discovery(1);
    let mut b = discovery(2);
    assert_eq!(a.name_static(board(3), Some("three:0".into()), 0), Some(News::Added(board(3))));
    assert_eq!(a.name_static(board(1), None, 0), None, "itself");
    a.hear(0, &said(&mut b, 0).0[0]);
    let mut gone = Vec::new();
    let mut now = 0;
    while now < 2000 * SECOND {
        gone.extend(said(&mut a, now).1);
        now = a.deadline().max(now + 1);
    }
    assert_eq!(gone, [News::Removed(board(2))]);
    assert_eq!(a.find("three:0"), Some(board(3)));
    assert_eq!(a.peers().count(), 1);
}

/// Delivers the announcement of a NIC, and its answer with a name.
fn meets(a: &mut Discovery, number: u8, name: &str, now: u64) {
    let mut other = discovery(number);
    a.hear(now, &said(&mut other, 0).0[0]);
    says(a, number, name, now);
}

fn says(a: &mut Discovery, number: u8, name: &str, now: u64) {
    let to = mac(a_board(a));
    let header = Header { destination: to, source: mac(board(number)), peer_index: PEER_UNKNOWN };
    let reply = HostReply { index_of_destination: 0, magic: a.magic, name: name.as_bytes() };
    let (head, data) = emit(&header, &Packet::HostReply(reply));
    a.hear(now, &[head.bytes(), data].concat());
}

fn a_board(a: &Discovery) -> NicId {
    nic(a.own)
}

#[test]
fn a_board_of_our_address_is_noticed_and_our_own_voice_is_not() {
    let mut a = discovery(1);
    let own = said(&mut a, 0).0;
    let mut twin = Discovery::new(board(1), 999, 7, 0);
    assert_eq!((a.hear(1, &own[0]), a.twins), (None, 0));
    assert_eq!((a.hear(2, &said(&mut twin, 0).0[0]), a.twins), (None, 1));
    // A frame with our address that is no announcement of ours does not count.
    let header = Header { destination: [0xff; 6], source: mac(board(1)), peer_index: 0 };
    let stray = Announcement { nic: board(2).0, serial: 5 }.emit();
    let (head, data) = emit(&header, &Packet::Raw(&stray));
    assert_eq!((a.hear(3, &[head.bytes(), data].concat()), a.twins), (None, 1));
    assert_eq!(a.peers().count(), 0);
}

#[test]
fn hostile_boards_take_no_name_that_another_one_has() {
    let mut a = discovery(1);
    a.name_static(board(3), Some("three:0".into()), 0);
    meets(&mut a, 2, "two:0", 1);
    meets(&mut a, 9, "two:0", 2);
    assert_eq!((a.find("two:0"), a.contested), (Some(board(2)), 1));
    // The owner of the name is queried, and answers.
    said(&mut a, 3);
    says(&mut a, 2, "two:0", 4);
    said(&mut a, HOST_NAMELESS_NS + 5);
    says(&mut a, 9, "two:0", HOST_NAMELESS_NS + 6);
    assert_eq!(a.find("two:0"), Some(board(2)));
    // Configured names stay.
    says(&mut a, 3, "two:0", HOST_NAMELESS_NS + 7);
    says(&mut a, 9, "three:0", HOST_NAMELESS_NS + 8);
    assert_eq!((a.find("two:0"), a.find("three:0")), (Some(board(2)), Some(board(3))));
    assert_eq!(a.peer(board(9)).unwrap().name, None);
    // The NIC may have another name.
    says(&mut a, 9, "nine:0", HOST_NAMELESS_NS + 9);
    assert_eq!(a.find("nine:0"), Some(board(9)));
}

#[test]
fn discovery_name_moves_when_its_owner_is_gone() {
    let mut a = discovery(1);
    meets(&mut a, 2, "two:0", 1);
    meets(&mut a, 9, "two:0", 2);
    said(&mut a, 2);
    let (_, news) = said(&mut a, 2 + HOST_NAMELESS_NS);
    assert_eq!(news, [News::Removed(board(2))]);
    says(&mut a, 9, "two:0", 3 + HOST_NAMELESS_NS);
    assert_eq!(a.find("two:0"), Some(board(9)));
}

#[test]
fn discovery_keeps_nics_with_active_endpoints() {
    let mut a = discovery(1);
    let mut b = discovery(2);
    a.hear(0, &said(&mut b, 0).0[0]);
    meets(&mut a, 3, "three:0", 0);
    let long = HOST_STALE_NS + HOST_NAMELESS_NS;
    for now in (0..3 * long).step_by(HOST_NAMELESS_NS as usize / 2) {
        assert!(!a.would_end(now), "{now}");
        [2, 3].into_iter().for_each(|number| a.spoke(board(number), now));
        assert_eq!(said(&mut a, now).1, []);
    }
    assert!(a.would_end(4 * long));
    assert_eq!(said(&mut a, 4 * long).1.len(), 2);
}

#[test]
fn hostile_announcements_are_bounded_and_claim_no_other_nic() {
    let mut a = discovery(1);
    let mut added = 0;
    for number in 0..3000_u32 {
        let [_, _, high, low] = number.to_be_bytes();
        let source = [4, 0, 0, 0, high, low];
        let header = Header { destination: [0xff; 6], source, peer_index: 0 };
        let data = Announcement { nic: nic(source).0, serial: number }.emit();
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        added += usize::from(a.hear(5, &[head.bytes(), rest].concat()).is_some());
        // From a foreign MAC.
        let header = Header { destination: [0xff; 6], source: [6; 6], peer_index: 0 };
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        assert_eq!(a.hear(5, &[head.bytes(), rest].concat()), None);
    }
    assert_eq!(added, HOST_NAMELESS_MAX);
    let (frames, _) = said(&mut a, 5);
    assert_eq!(frames.len(), HOST_NAMELESS_MAX + 1, "one answer for all of them");
    said(&mut a, 5 + HOST_NAMELESS_NS);
    assert_eq!(a.peers().count(), 0);
}

proptest! {
    #[test]
    fn hostile_frames_are_taken_or_ignored(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        kind in 0..6_u8,
    ) {
        let mut a = discovery(1);
        let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdf, 0, 0, kind], &bytes].concat();
        a.hear(1, &frame);
        frame.truncate(bytes.len());
        a.hear(1, &frame);
        said(&mut a, 2);
    }
}
