//! Datagrams: network headers, management datagrams, multicast groups.

use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, NETWORK_IPV4};
use causeway_wire::mlx5::queue_pair::{MULTICAST_NUMBER, QueuePairContext, Service, optional};
use causeway_wire::mlx5::vport::RoceAddress;
use causeway_wire::mlx5::work_request::{DatagramSegment, SendOpcode};

use crate::driver::{Guest, Link, VIRTUAL, World, data, success};

/// Queue key of management datagrams; the top bit selects the key of the sender's queue pair.
const MANAGEMENT_KEY: u32 = 0x8001_0000;

/// Sets entry 3 of the GID table to an IPv4 address of RoCE version 2.
fn set_gid(world: &mut World, guest: &Guest, last: u8) {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
    let address = RoceAddress { gid, mac: guest.mac, version: 2, ..Default::default() };
    let mut input = vec![0; 0x30];
    input[..2].copy_from_slice(&Opcode::SetRoceAddress.raw().to_be_bytes());
    input[9] = 3;
    input[0x10..].copy_from_slice(&address.to_bytes());
    guest.try_command(world, &input, 16).unwrap();
}

fn multicast(opcode: Opcode, number: u32, gid: [u8; 16]) -> Vec<u8> {
    let mut input = InputHeader::new(opcode, number).to_bytes().to_vec();
    input.extend(gid);
    input
}

#[test]
fn mlx5_datagram_arrives_behind_a_network_header() {
    let mut link = Link::new(Service::UnreliableDatagram);
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 100)]);
    link.a.write(link.buffer_a, b"datagram");
    let to = DatagramSegment {
        queue_key: 0x1111,
        is_extended: true,
        queue_pair: link.qp_b.number,
        mac: link.b.mac,
        has_grh: true,
        hop_limit: 9,
        gid: [3; 16],
        ..Default::default()
    };
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&segment));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    let entry = success(link.b.poll_cq(&mut link.cq_b));
    assert_eq!((entry.bytes, entry.grh), (48, 1));
    assert_eq!(entry.source_queue_pair, link.qp_a.number);
    assert_eq!(link.b.read(link.buffer_b + 40, 8), b"datagram");
    assert_eq!(link.b.read(link.buffer_b + 24, 16), [3; 16]);
}

#[test]
fn mlx5_management_datagrams_go_to_number_1_with_the_default_partition() {
    let mut link = Link::new(Service::GeneralServices);
    set_gid(&mut link.world, &link.a, 1);
    let key = QueuePairContext { queue_key: MANAGEMENT_KEY, ..Default::default() };
    let change = (optional::QUEUE_KEY, key);
    link.a.modify(&mut link.world, Opcode::ChangeReadyToSend, &link.qp_a, change).unwrap();
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 400)]);
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    let to = DatagramSegment {
        queue_key: MANAGEMENT_KEY,
        is_extended: true,
        queue_pair: 1,
        mac: link.b.mac,
        has_grh: true,
        source_gid_index: 3,
        gid,
        ..Default::default()
    };
    let segment = data(link.key_a, VIRTUAL, 256);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&segment));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    let entry = success(link.b.poll_cq(&mut link.cq_b));
    assert_eq!(entry.opcode, CompletionOpcode::ReceiveSend.raw());
    assert_eq!((entry.immediate, entry.source_queue_pair), (0xffff, 1));
    assert_eq!((entry.bytes, entry.network), (296, NETWORK_IPV4));
    assert_eq!(link.b.read(link.buffer_b + 20, 1), [0x45]);
    assert_eq!(link.b.read(link.buffer_b + 32, 8), [10, 0, 0, 1, 10, 0, 0, 2]);
}

#[test]
fn mlx5_multicast_reaches_attached_queue_pairs_only() {
    let mut link = Link::new(Service::UnreliableDatagram);
    let gid = [0xff; 16];
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 100)]);
    let to = DatagramSegment {
        queue_key: 0x1111,
        is_extended: true,
        queue_pair: MULTICAST_NUMBER,
        mac: [0x33, 0x33, 0xff, 0xff, 0xff, 0xff],
        has_grh: true,
        gid,
        ..Default::default()
    };
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&segment));
    link.run();
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
    let number = link.qp_b.number;
    let attach = multicast(Opcode::AttachToMulticastGroup, number, gid);
    link.b.try_command(&mut link.world, &attach, 16).unwrap();
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.datagram(&to).data(&segment));
    link.run();
    assert_eq!(success(link.b.poll_cq(&mut link.cq_b)).bytes, 48);
    let detach = multicast(Opcode::DetachFromMulticastGroup, number, gid);
    link.b.try_command(&mut link.world, &detach, 16).unwrap();
    let again = link.b.try_command(&mut link.world, &detach, 16);
    assert_eq!(again, Err(Status::BadResource));
}
