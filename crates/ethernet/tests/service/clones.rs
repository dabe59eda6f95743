//! Clones of one snapshot: guests with equal MAC addresses, whose group sees different ones.

use crate::common::*;
use causeway_attach::native::{NetOptions, NetPort};
use causeway_model::{Mac, NetSpec};
use causeway_wire::virtio_net::Header;
use etherparse::{ArpHardwareId, ArpOperation, ArpPacket, EtherType, PacketBuilder};
use etherparse::{Icmpv6Slice, Ipv6HeaderSlice};

/// The address of every clone's guest.
const GUEST: [u8; 6] = [0x52, 0x54, 0, 0x77, 0x77, 0x77];
const BROADCAST: [u8; 6] = [0xff; 6];
const PLAIN: Header = Header {
    flags: 0,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
    num_buffers: 0,
};

fn clone_spec(number: u8) -> NetSpec {
    NetSpec { guest_mac: Some(Mac(GUEST)), ..net(number) }
}

/// Adds the ports of clones and attaches to them.
fn clones<const N: usize>(rig: &Rig, features: u64) -> [NetPort; N] {
    let names: Vec<String> = (1..=N).map(|number| format!("c{number}")).collect();
    let ports: Vec<NetPort> = names
        .iter()
        .zip(1..)
        .map(|(name, number)| rig.port(name, clone_spec(number), features))
        .collect();
    rig.wait_running(&names.iter().map(String::as_str).collect::<Vec<_>>());
    ports.try_into().unwrap()
}

/// Returns an ARP packet of a guest with IP address 10.0.0.`ip`.
fn arp(operation: ArpOperation, ip: u8, target: ([u8; 6], u8), destination: [u8; 6]) -> Vec<u8> {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &GUEST,
        &[10, 0, 0, ip],
        &target.0,
        &[10, 0, 0, target.1],
    );
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(GUEST, destination).arp(packet.unwrap()).write(&mut bytes).unwrap();
    bytes
}

/// Returns a frame with these addresses instead of its own.
fn addressed(mut frame: Vec<u8>, destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame
}

#[test]
fn clones_with_one_address_resolve_and_exchange_datagrams() {
    let rig = Rig::new();
    let [mut a, mut b] = clones::<2>(&rig, ALL);
    assert_eq!((a.mac(), b.mac()), (Some(GUEST), Some(GUEST)), "the guest's own address");
    // Port 1 asks for 10.0.0.2: each sees the other under its address in the group.
    send(&mut a, &PLAIN, &arp(ArpOperation::REQUEST, 1, ([0; 6], 2), BROADCAST));
    let request = receive(&mut b).1;
    assert_eq!((&request[..6], &request[6..12]), (&BROADCAST[..], &mac(1)[..]));
    assert_eq!((&request[22..28], &request[32..38]), (&mac(1)[..], &[0; 6][..]));
    send(&mut b, &PLAIN, &arp(ArpOperation::REPLY, 2, (mac(1), 1), mac(1)));
    let reply = receive(&mut a).1;
    assert_eq!((&reply[..6], &reply[6..12]), (&GUEST[..], &mac(2)[..]));
    assert_eq!((&reply[22..28], &reply[32..38]), (&mac(2)[..], &GUEST[..]));
    // UDP with the offload of its checksum, TCP as one large segment, both ways.
    for (number, peer) in [(1, 2), (2, 1)] {
        let (from, to) = if number == 1 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let (header, frame) = udp(number, peer, &pattern(1000), 0);
        send(from, &header, &addressed(frame.clone(), mac(peer), GUEST));
        let (_, got) = receive(to);
        assert_eq!(got, addressed(frame, GUEST, mac(number)));
        for v6 in [false, true] {
            let (header, frame) = tcp(number, peer, v6, &pattern(3000), 1000);
            send(from, &header, &addressed(frame.clone(), mac(peer), GUEST));
            let (passed, got) = receive(to);
            assert_eq!(got, addressed(frame, GUEST, mac(number)), "passes uncut");
            assert_eq!(passed.gso_size, 1000);
        }
    }
    assert_eq!(rig.counter("c1", "drop_spoofed_source_total"), 0);
}

#[test]
fn clone_receives_segments_and_checksums_in_software() {
    let rig = Rig::new();
    // The receiver takes no offload: frames are cut and completed.
    let [mut a] = clones::<1>(&rig, ALL);
    let mut b = rig.port("b", NetSpec { guest_mac: Some(Mac(GUEST)), ..net(2) }, 0);
    rig.wait_running(&["b"]);
    let (header, frame) = tcp(1, 2, false, &pattern(3000), 1000);
    send(&mut a, &header, &addressed(frame, mac(2), GUEST));
    for number in 0..3 {
        let (_, got) = receive(&mut b);
        assert_eq!((&got[..6], &got[6..12]), (&GUEST[..], &mac(1)[..]), "segment {number}");
        assert!(checksum_is_right(&got));
        assert_eq!(payload_of(&got), &pattern(3000)[number * 1000..][..1000]);
    }
    let (header, frame) = udp(1, 2, &pattern(700), 0);
    send(&mut a, &header, &addressed(frame, mac(2), GUEST));
    let (_, got) = receive(&mut b);
    assert!(checksum_is_right(&got) && got[..6] == GUEST);
}

/// Returns a neighbour solicitation of a guest with the option for its address.
fn solicitation() -> Vec<u8> {
    let (source, destination) = ([0xfe; 16], [0xff; 16]);
    let mut bytes = Vec::new();
    let body = [&[0x20; 16][..], &[14, 1, 1, 2, 3, 4, 5, 6], &[1, 1], &GUEST].concat();
    PacketBuilder::ethernet2(GUEST, [0x33, 0x33, 0xff, 0, 0, 2])
        .ipv6(source, destination, 255)
        .icmpv6_raw(135, 0, [0; 4])
        .write(&mut bytes, &body)
        .unwrap();
    bytes
}

#[test]
fn clones_are_found_by_neighbour_discovery() {
    let rig = Rig::new();
    let [mut a, mut b] = clones::<2>(&rig, ALL);
    let mut c = rig.port("c", net(3), ALL);
    rig.wait_running(&["c"]);
    send(&mut a, &PLAIN, &solicitation());
    // A multicast frame for a clone and for a port without the option.
    for port in [&mut b, &mut c] {
        let got = receive(port).1;
        assert_eq!(got[6..12], mac(1));
        assert_eq!(got[got.len() - 6..], mac(1), "the option behind the first 64 bytes");
        let ip = Ipv6HeaderSlice::from_slice(&got[14..]).unwrap();
        let message = Icmpv6Slice::from_slice(&got[54..]).unwrap();
        assert!(message.is_checksum_valid(ip.source(), ip.destination()));
        assert_eq!(got[14..56], solicitation()[14..56], "nothing else changes");
    }
    // The answer of the port without the option names the clone by its address in the group.
    let mut answer = addressed(solicitation(), mac(1), mac(3));
    let len = answer.len();
    answer[len - 6..].copy_from_slice(&mac(1));
    send(&mut c, &PLAIN, &answer);
    let got = receive(&mut a).1;
    assert_eq!((&got[..6], &got[len - 6..]), (&GUEST[..], &GUEST[..]));
    assert!(is_silent(&mut b));
}

#[test]
fn clone_sends_from_its_own_address_only() {
    let rig = Rig::new();
    let [mut a, mut b] = clones::<2>(&rig, ALL);
    for source in [mac(1), mac(2), mac(9), [0; 6], BROADCAST] {
        send(&mut a, &PLAIN, &addressed(plain(1, mac(2), b"forged"), mac(2), source));
    }
    rig.wait_counter("c1", "drop_spoofed_source_total", 5);
    assert!(is_silent(&mut b));
    // A trace uses the group's addresses, and names the guest's.
    let trace = rig.trace("c1", None, mac(2));
    assert_eq!((&*trace.verdict, &trace.to[..]), ("forward", &["c2".to_owned()][..]));
    let exchanged = format!("its guest has the address {}, exchanged with", Mac(GUEST));
    assert!(trace.steps[1].starts_with(&exchanged), "{:?}", trace.steps);
    let notice = rig.view("c1").notice.unwrap();
    let shown = Mac(GUEST).to_string();
    assert!(notice.contains(&format!("the guest's address is {shown}")), "{notice}");
}

#[test]
fn clone_sees_the_original_under_its_own_group_address() {
    let rig = Rig::new();
    let [mut a] = clones::<1>(&rig, ALL);
    // The original of the snapshot still runs.
    let mut original = rig.port("o", NetSpec { mac: Mac(GUEST), ..net(2) }, ALL);
    rig.wait_running(&["o"]);
    let frame = addressed(plain(1, mac(1), b"hello"), mac(1), GUEST);
    send(&mut original, &PLAIN, &frame);
    assert_eq!(receive(&mut a).1, addressed(frame.clone(), GUEST, mac(1)));
    send(&mut a, &PLAIN, &addressed(frame.clone(), mac(1), GUEST));
    assert_eq!(receive(&mut original).1, addressed(frame, GUEST, mac(1)));
}

#[test]
fn hostile_frames_of_clones_stay_bounded_and_change_nothing_else() {
    let rig = Rig::new();
    let [mut a, mut b] = clones::<2>(&rig, ALL);
    let nd = solicitation();
    let mut frames = Vec::new();
    // Cut off at every length, and with options of length 0.
    let whole = arp(ArpOperation::REQUEST, 1, ([0; 6], 2), BROADCAST);
    frames.extend((14..whole.len()).map(|len| whole[..len].to_vec()));
    for at in [78, 79, 86, 87] {
        let mut frame = nd.clone();
        frame[at..at + 2].fill(0);
        frames.push(frame);
    }
    frames.extend((15..nd.len()).step_by(3).map(|len| nd[..len].to_vec()));
    // Tags without end.
    let tags = [0x81, 0, 0, 7].repeat(40);
    frames.push([&BROADCAST[..], &GUEST, &tags].concat());
    for frame in &frames {
        send(&mut a, &PLAIN, frame);
        let got = receive(&mut b).1;
        assert_eq!(got.len(), frame.len());
        assert_eq!(got[6..12], mac(1));
        let differing: Vec<usize> = (14..got.len()).filter(|at| got[*at] != frame[*at]).collect();
        assert!(differing.len() <= 8, "{frame:02x?} became {got:02x?}");
    }
}

#[test]
fn clone_without_buffers_receives_pending_frames_with_its_guests_address() {
    let rig = Rig::new();
    let [mut a] = clones::<1>(&rig, ALL);
    rig.try_add("c2", "red", clone_spec(2)).unwrap();
    let options = NetOptions { features: ALL, ring_size: 4, ..NetOptions::default() };
    let mut b = rig.attach("c2", options);
    rig.wait_running(&["c2"]);
    let frame = |number: u8| addressed(plain(1, mac(2), &[number; 100]), mac(2), GUEST);
    (0..12).for_each(|number| send(&mut a, &PLAIN, &frame(number)));
    // Eight frames wait; each was tried, and is tried again when buffers come.
    rig.wait_counter("c2", "receive_held_total", 8);
    for number in 0..12 {
        assert_eq!(receive(&mut b).1, addressed(frame(number), GUEST, mac(1)), "frame {number}");
    }
}

#[test]
fn clones_by_the_hundred_share_one_address() {
    let rig = Rig::new();
    let mut all = clones::<100>(&rig, ALL);
    for at in 0..100_usize {
        let (number, peer) = (at as u8 + 1, (at as u8 + 1) % 100 + 1);
        let frame = addressed(plain(number, mac(peer), &[number; 90]), mac(peer), GUEST);
        send(&mut all[at], &PLAIN, &frame);
        let got = receive(&mut all[usize::from(peer) - 1]).1;
        assert_eq!(got, addressed(frame, GUEST, mac(number)));
    }
    // A broadcast reaches every other clone, each with the group's address of the sender.
    send(&mut all[41], &PLAIN, &arp(ArpOperation::REQUEST, 42, ([0; 6], 7), BROADCAST));
    for (at, port) in all.iter_mut().enumerate().filter(|(at, _)| *at != 41) {
        let got = receive(port).1;
        assert_eq!((&got[6..12], &got[22..28]), (&mac(42)[..], &mac(42)[..]), "clone {at}");
    }
}
