//! Bursts of frames arrive in order. Prints the time of a frame, from the send entry to both
//! completions. To measure:
//! `CAUSEWAY_ROUNDS=20000 cargo test --release -p causeway-mlx5 --test ethernet rate -- --nocapture`.

use std::time::{Duration, Instant};

use causeway_mlx5::ethernet::{
    Body, Deliveries, Frame, FrameRef, Next, Received, complete_frame, next_frame, receive_frame,
};
use causeway_verbs::AdapterId;
use causeway_wire::mlx5::work_request::{
    CHECKSUM_L3, CHECKSUM_L4, ControlSegment, EthernetSegment, SendOpcode, SendWriter,
};

use crate::driver::World;
use crate::interface::{Interface, Options, pair, tcp, udp};

/// Frames of a burst; the last completes.
const BURST: u16 = 16;
/// Bursts, unless CAUSEWAY_ROUNDS says otherwise.
const ROUNDS: u32 = 20;
/// Bytes of a frame that lie in the send entry.
const HEAD: usize = 18;

/// A kind of frame.
struct Traffic {
    name: &'static str,
    bytes: Vec<u8>,
    checksums: u8,
}

/// Posts a burst. All frames have the same payload.
fn post(from: &mut Interface, traffic: &Traffic) {
    let (head, rest) = traffic.bytes.split_at(HEAD);
    let data = from.payload(rest);
    let segment = EthernetSegment { checksums: traffic.checksums, ..Default::default() };
    for number in 1..=BURST {
        let control = ControlSegment {
            index: from.sent,
            opcode: SendOpcode::Send.raw(),
            queue: from.send,
            completion: if number == BURST { 2 } else { 0 },
            ..Default::default()
        };
        let mut entry = [0; 64];
        SendWriter::new(&mut entry, control).ethernet(segment, head).data(&data).finish().unwrap();
        from.post_raw(&entry);
    }
}

/// Forwards all posted frames as the switch does. Returns their number.
#[inline(never)]
fn forward_all(world: &mut World, from: AdapterId, to: AdapterId, frame: &mut Frame) -> u16 {
    let mut count = 0;
    while next_frame(world.subnet.adapter_mut(from).unwrap(), frame) == Next::Frame {
        let map = world.subnet.adapter(from).unwrap().queues().shared_map();
        let body = Body::Guest(&map, &frame.body);
        let (offload, head, len) = (&frame.offload, &frame.head[..], frame.len);
        let frame = FrameRef { offload, head, body, len };
        let receiver = world.subnet.adapter_mut(to).unwrap();
        let received = receive_frame(receiver, &frame, &mut Deliveries::default());
        assert_eq!(received, Received::Delivered { frames: 1 });
        complete_frame(world.subnet.adapter_mut(from).unwrap());
        count += 1;
    }
    count
}

/// Sends bursts of frames, and prints the time of a frame.
fn measure(traffic: &Traffic) {
    let rounds = std::env::var("CAUSEWAY_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut world = World::new();
    let (mut from, mut to) = pair(&mut world, Options::default());
    let (mut spent, mut frame) = (Duration::ZERO, Frame::default());
    for _ in 0..rounds {
        post(&mut from, traffic);
        let start = Instant::now();
        let count = forward_all(&mut world, from.guest.adapter, to.guest.adapter, &mut frame);
        spent += start.elapsed();
        assert_eq!(count, BURST);
        for _ in 0..BURST {
            let (entry, bytes) = to.receive(0).unwrap();
            assert_eq!(entry.bytes as usize, traffic.bytes.len());
            assert_eq!(bytes[..HEAD], traffic.bytes[..HEAD]);
        }
        assert!(from.sent_entry().is_some() && from.sent_entry().is_none());
    }
    println!("frame of {}: {:?}", traffic.name, spent / (rounds * u32::from(BURST)));
}

#[test]
fn ethernet_burst_without_ip_arrives_in_order() {
    let mut bytes = udp(22);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    measure(&Traffic { name: "64 bytes without IP", bytes, checksums: 0 });
}

#[test]
fn ethernet_burst_of_udp_arrives_in_order() {
    let checksums = CHECKSUM_L3 | CHECKSUM_L4;
    measure(&Traffic { name: "64 bytes of UDP", bytes: udp(22), checksums });
}

#[test]
fn ethernet_burst_of_tcp_arrives_in_order() {
    let checksums = CHECKSUM_L3 | CHECKSUM_L4;
    measure(&Traffic { name: "1514 bytes of TCP", bytes: tcp(1000, 1460), checksums });
}
