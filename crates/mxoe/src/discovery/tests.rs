//! NICs on a wire that can lose every frame.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn nic_id(number: u8) -> NicId {
    NicId::of([2, 0, 0, 0, 0, number])
}

fn discovery(number: u8) -> Discovery {
    Discovery::new(nic_id(number), 100 + u32::from(number), 7, 0)
}

fn tick(discovery: &mut Discovery, now: u64) -> (Vec<Vec<u8>>, Vec<NicChange>) {
    let mut frames = Vec::new();
    let news = discovery.tick(now, &mut |head, data| frames.push([head, data].concat()));
    (frames, news)
}

fn reply(to: &[u8], name: &str, from: u8, magic: u32) -> Vec<u8> {
    let (query, _) = parse(to).unwrap();
    let header =
        Header { destination: query.source, source: mac(nic_id(from)), peer_index: PEER_UNKNOWN };
    let reply = HostReply { index_of_destination: 0, magic, name: name.as_bytes() };
    let (head, data) = emit(&header, &Packet::HostReply(reply));
    [head.bytes(), data].concat()
}

#[test]
fn discovery_finds_nics_and_their_names() {
    let (mut a, mut b) = (discovery(1), discovery(2));
    let (frames, _) = tick(&mut a, 0);
    assert_eq!(frames.len(), 1);
    assert!(Discovery::takes(&frames[0]));
    assert_eq!(b.receive(0, &frames[0]), Some(NicChange::Added(nic_id(1))));
    assert_eq!(b.receive(1, &frames[0]), None, "known");
    let (frames, _) = tick(&mut b, 1);
    assert_eq!(frames.len(), 2, "an announcement and a name query");
    assert_eq!(a.receive(2, &frames[0]), Some(NicChange::Added(nic_id(2))));
    let (_, Packet::HostQuery(query)) = parse(&frames[1]).unwrap() else { panic!("a question") };
    // Answers to another query and of another NIC, and an invalid name.
    b.receive(3, &reply(&frames[1], "x", 1, query.magic + 1));
    b.receive(3, &reply(&frames[1], "x", 3, query.magic));
    b.receive(3, &reply(&frames[1], "a b", 1, query.magic));
    assert_eq!(b.find("x"), None);
    b.receive(3, &reply(&frames[1], "one:0", 1, query.magic));
    assert_eq!(b.find("one:0"), Some(nic_id(1)));
    let peer = b.peer(nic_id(1)).unwrap();
    assert_eq!((peer.origin, peer.answered, peer.heard_at), (NicOrigin::Announced, true, Some(3)));
}

#[test]
fn announcements_come_in_bursts_and_rarely_afterwards() {
    let mut a = discovery(1);
    let mut at = Vec::new();
    let mut now = 0;
    while now < 600 * SECOND {
        at.extend(tick(&mut a, now).0.iter().map(|_| now / SECOND));
        now = a.deadline();
    }
    assert_eq!(at, [0, 1, 2, 3, 4, 5, 6, 7, 187, 367, 547]);
    // A new NIC causes an announcement at once, and a burst.
    let mut b = discovery(2);
    a.receive(580 * SECOND, &tick(&mut b, 0).0[0]);
    let (frames, _) = tick(&mut a, 580 * SECOND);
    assert_eq!(frames.len(), 2);
    // The NIC restarts.
    let mut again = Discovery::new(nic_id(2), 999, 7, 0);
    a.receive(590 * SECOND, &tick(&mut again, 0).0[0]);
    assert_eq!(a.burst, ANNOUNCE_BURST);
}

#[test]
fn discovery_removes_silent_nics_and_keeps_configured_ones() {
    let mut a = discovery(1);
    let mut b = discovery(2);
    assert_eq!(
        a.add_static(nic_id(3), Some("three:0".into()), 0),
        Some(NicChange::Added(nic_id(3)))
    );
    assert_eq!(a.add_static(nic_id(1), None, 0), None, "itself");
    a.receive(0, &tick(&mut b, 0).0[0]);
    let mut gone = Vec::new();
    let mut now = 0;
    while now < 2000 * SECOND {
        gone.extend(tick(&mut a, now).1);
        now = a.deadline().max(now + 1);
    }
    assert_eq!(gone, [NicChange::Removed(nic_id(2))]);
    assert_eq!(a.find("three:0"), Some(nic_id(3)));
    assert_eq!(a.peers().count(), 1);
}

/// Delivers the announcement of a NIC, and its answer with a name.
fn introduce(a: &mut Discovery, number: u8, name: &str, now: u64) {
    let mut other = discovery(number);
    a.receive(now, &tick(&mut other, 0).0[0]);
    answer_name(a, number, name, now);
}

fn answer_name(a: &mut Discovery, number: u8, name: &str, now: u64) {
    let to = mac(own_id(a));
    let header = Header { destination: to, source: mac(nic_id(number)), peer_index: PEER_UNKNOWN };
    let reply = HostReply { index_of_destination: 0, magic: a.magic, name: name.as_bytes() };
    let (head, data) = emit(&header, &Packet::HostReply(reply));
    a.receive(now, &[head.bytes(), data].concat());
}

fn own_id(a: &Discovery) -> NicId {
    nic(a.own)
}

#[test]
fn discovery_notices_a_duplicate_address_and_ignores_own_frames() {
    let mut a = discovery(1);
    let own = tick(&mut a, 0).0;
    let mut twin = Discovery::new(nic_id(1), 999, 7, 0);
    assert_eq!((a.receive(1, &own[0]), a.duplicate_addresses), (None, 0));
    assert_eq!((a.receive(2, &tick(&mut twin, 0).0[0]), a.duplicate_addresses), (None, 1));
    // A frame with our address that is no announcement of ours does not count.
    let header = Header { destination: [0xff; 6], source: mac(nic_id(1)), peer_index: 0 };
    let stray = Announcement { nic: nic_id(2).0, serial: 5 }.emit();
    let (head, data) = emit(&header, &Packet::Raw(&stray));
    assert_eq!((a.receive(3, &[head.bytes(), data].concat()), a.duplicate_addresses), (None, 1));
    assert_eq!(a.peers().count(), 0);
}

#[test]
fn hostile_nics_take_no_name_of_another() {
    let mut a = discovery(1);
    a.add_static(nic_id(3), Some("three:0".into()), 0);
    introduce(&mut a, 2, "two:0", 1);
    introduce(&mut a, 9, "two:0", 2);
    assert_eq!((a.find("two:0"), a.contested), (Some(nic_id(2)), 1));
    // The owner of the name is queried, and answers.
    tick(&mut a, 3);
    answer_name(&mut a, 2, "two:0", 4);
    tick(&mut a, NIC_NAMELESS_NS + 5);
    answer_name(&mut a, 9, "two:0", NIC_NAMELESS_NS + 6);
    assert_eq!(a.find("two:0"), Some(nic_id(2)));
    // Configured names stay.
    answer_name(&mut a, 3, "two:0", NIC_NAMELESS_NS + 7);
    answer_name(&mut a, 9, "three:0", NIC_NAMELESS_NS + 8);
    assert_eq!((a.find("two:0"), a.find("three:0")), (Some(nic_id(2)), Some(nic_id(3))));
    assert_eq!(a.peer(nic_id(9)).unwrap().name, None);
    // The NIC may have another name.
    answer_name(&mut a, 9, "nine:0", NIC_NAMELESS_NS + 9);
    assert_eq!(a.find("nine:0"), Some(nic_id(9)));
}

#[test]
fn discovery_name_moves_when_its_owner_is_gone() {
    let mut a = discovery(1);
    introduce(&mut a, 2, "two:0", 1);
    introduce(&mut a, 9, "two:0", 2);
    tick(&mut a, 2);
    let (_, news) = tick(&mut a, 2 + NIC_NAMELESS_NS);
    assert_eq!(news, [NicChange::Removed(nic_id(2))]);
    answer_name(&mut a, 9, "two:0", 3 + NIC_NAMELESS_NS);
    assert_eq!(a.find("two:0"), Some(nic_id(9)));
}

#[test]
fn discovery_keeps_nics_with_active_endpoints() {
    let mut a = discovery(1);
    let mut b = discovery(2);
    a.receive(0, &tick(&mut b, 0).0[0]);
    introduce(&mut a, 3, "three:0", 0);
    let long = NIC_STALE_NS + NIC_NAMELESS_NS;
    for now in (0..3 * long).step_by(NIC_NAMELESS_NS as usize / 2) {
        assert!(!a.would_end(now), "{now}");
        [2, 3].into_iter().for_each(|number| a.record_activity(nic_id(number), now));
        assert_eq!(tick(&mut a, now).1, []);
    }
    assert!(a.would_end(4 * long));
    assert_eq!(tick(&mut a, 4 * long).1.len(), 2);
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
        added += usize::from(a.receive(5, &[head.bytes(), rest].concat()).is_some());
        // From a foreign MAC.
        let header = Header { destination: [0xff; 6], source: [6; 6], peer_index: 0 };
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        assert_eq!(a.receive(5, &[head.bytes(), rest].concat()), None);
    }
    assert_eq!(added, NIC_NAMELESS_MAX);
    let (frames, _) = tick(&mut a, 5);
    assert_eq!(frames.len(), NIC_NAMELESS_MAX + 1, "a single announcement answers all");
    tick(&mut a, 5 + NIC_NAMELESS_NS);
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
        a.receive(1, &frame);
        frame.truncate(bytes.len());
        a.receive(1, &frame);
        tick(&mut a, 2);
    }
}
