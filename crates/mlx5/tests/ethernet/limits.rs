//! Frames that do not fit, and counters.

use causeway_mlx5::ethernet::{Body, Frame, FrameRef, Next, Received, next_frame};
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::counters::{QueueOutput, VportOutput};
use causeway_wire::mlx5::work_request::{DataSegment, SendOpcode};
use causeway_wire::virtio_net::Offload;

use crate::driver::World;
use crate::interface::*;

/// Offers a UDP frame of `len` bytes from private memory.
fn offer_len(world: &mut World, to: &Interface, len: usize) -> Received {
    let bytes = udp(len - 42);
    let (head, body) = bytes.split_at(bytes.len().min(256));
    let body = Body::Private(body);
    offer(world, to, &FrameRef { offload: &Offload::None, head, body, len })
}

#[test]
fn ethernet_frame_longer_than_the_mtu_is_dropped_and_takes_no_entry() {
    let mut world = World::new();
    let (_, mut two) = pair(&mut world, Options::default());
    // 1500 bytes, an Ethernet header and a tag.
    assert_eq!(offer_len(&mut world, &two, 1518), Received::Delivered { frames: 1 });
    assert_eq!(offer_len(&mut world, &two, 1519), Received::TooLong);
    assert_eq!(offer_len(&mut world, &two, 65_000), Received::TooLong);
    assert_eq!(offer_len(&mut world, &two, 60), Received::Delivered { frames: 1 });
    assert_eq!(two.receive(0).unwrap().1.len(), 1518);
    assert_eq!(two.receive(0).unwrap().1.len(), 60);
    assert!(two.receive(0).is_none());
    assert_eq!(world.function(&two.guest).ethernet_counters().too_long, 2);
}

#[test]
fn ethernet_frame_longer_than_its_buffers_is_dropped_whatever_the_mtu() {
    let mut world = World::new();
    let options = Options { mtu: 9000, buffer_len: 1024, ..Options::default() };
    let (_, mut two) = pair(&mut world, options);
    assert_eq!(offer_len(&mut world, &two, 1024), Received::Delivered { frames: 1 });
    assert_eq!(offer_len(&mut world, &two, 1025), Received::TooLong);
    assert_eq!(two.receive(0).unwrap().1.len(), 1024);
    assert!(two.receive(0).is_none());
    // Two segments make a longer buffer.
    let data = two.payload(&[0; 100]);
    let first = DataSegment { raw_len: 1024, key: two.key, address: data.address + 4096 };
    two.replace_entry(0, &[data, first]);
    assert_eq!(offer_len(&mut world, &two, 1124), Received::Delivered { frames: 1 });
    two.replace_entry(0, &[data, first]);
}

#[test]
fn ethernet_mtu_of_the_driver_bounds_frames() {
    let mut world = World::new();
    let options = Options { buffer_len: 10_240, ..Options::default() };
    let (_, mut two) = pair(&mut world, options);
    assert_eq!(offer_len(&mut world, &two, 9018), Received::TooLong);
    set_mtu(&mut world, &two.guest, 9000).unwrap();
    assert_eq!(offer_len(&mut world, &two, 9018), Received::Delivered { frames: 1 });
    assert_eq!(two.receive(0).unwrap().1.len(), 9018);
    assert_eq!(offer_len(&mut world, &two, 9019), Received::TooLong);
    set_mtu(&mut world, &two.guest, 600).unwrap();
    assert_eq!(offer_len(&mut world, &two, 619), Received::TooLong);
    assert_eq!(set_mtu(&mut world, &two.guest, 9001), Err(Status::BadParameter));
}

#[test]
fn ethernet_queue_without_entries_drops_and_counts() {
    let mut world = World::new();
    let (_, two) = pair(&mut world, Options::default());
    for _ in 0..16 {
        assert_eq!(offer_len(&mut world, &two, 100), Received::Delivered { frames: 1 });
    }
    assert_eq!(offer_len(&mut world, &two, 100), Received::NoBuffer);
    assert_eq!(offer_len(&mut world, &two, 100), Received::NoBuffer);
    let mut input = InputHeader::new(Opcode::QueryQueueCounter, 0).to_bytes().to_vec();
    input.resize(0x20, 0);
    input[0x1f] = 9;
    let output = two.guest.try_command(&mut world, &input, QueueOutput::LEN).unwrap();
    assert_eq!(QueueOutput::parse(&output).unwrap().out_of_buffer, 2);
}

#[test]
fn ethernet_queue_that_is_not_ready_drops() {
    let mut world = World::new();
    let (_, mut two) = pair(&mut world, Options::default());
    two.set_receive_state(&mut world, 0, 3);
    assert_eq!(offer_len(&mut world, &two, 100), Received::Down);
    two.set_receive_state(&mut world, 0, 0);
    assert_eq!(offer_len(&mut world, &two, 100), Received::Down);
    two.set_receive_state(&mut world, 0, 1);
    assert_eq!(offer_len(&mut world, &two, 100), Received::Delivered { frames: 1 });
    assert!(two.receive(0).is_some());
}

#[test]
fn ethernet_vport_counters_are_those_of_the_frames() {
    let mut world = World::new();
    let (mut one, two) = pair(&mut world, Options::default());
    let mut broadcast = udp(10);
    broadcast[..6].fill(0xff);
    for bytes in [udp(10), udp(20), broadcast] {
        one.send_frame(&mut world, &two, &bytes);
    }
    let mut read = |interface: &Interface| {
        let mut input = InputHeader::new(Opcode::QueryVportCounter, 0).to_bytes().to_vec();
        input.resize(0x20, 0);
        let output = interface.guest.try_command(&mut world, &input, VportOutput::LEN).unwrap();
        VportOutput::parse(&output).unwrap()
    };
    let (sent, received) = (read(&one), read(&two));
    assert_eq!((sent.transmitted_unicast.packets, sent.transmitted_unicast.bytes), (2, 114));
    assert_eq!((sent.transmitted_broadcast.packets, sent.received_unicast.packets), (1, 0));
    assert_eq!((received.received_unicast.packets, received.received_unicast.bytes), (2, 114));
    assert_eq!(received.received_broadcast.packets, 1);
}

#[test]
fn ethernet_send_queues_take_turns() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let bytes = udp(1);
    let data = one.payload(&bytes[18..]);
    for _ in 0..8 {
        one.post_send(SendOpcode::Send, |w| {
            w.ethernet(Default::default(), &bytes[..18]).data(&data)
        });
    }
    for _ in 0..8 {
        assert_eq!(one.forward(&mut world, &two).0, Next::Frame);
        assert!(two.receive(0).is_some());
    }
    assert_eq!(one.forward(&mut world, &two).0, Next::Empty);
    assert!(world.function(&one.guest).is_active());
    one.set_send_state(&mut world, 0).unwrap();
}

#[test]
fn ethernet_many_empty_send_queues_are_idle() {
    let mut world = World::new();
    let (mut one, two) = pair(&mut world, Options::default());
    // More queues than entries that a call takes.
    for _ in 0..70 {
        one.add_send_queue(&mut world);
    }
    let mut frame = Frame::default();
    let next = |world: &mut World, one: &Interface, frame: &mut Frame| {
        next_frame(world.subnet.adapter_mut(one.guest.adapter).unwrap(), frame)
    };
    assert_eq!(next(&mut world, &one, &mut frame), Next::Empty);
    assert_eq!(frame.looks, 71);
    // Entries without a frame are counted too.
    for _ in 0..5 {
        one.post_send(SendOpcode::Nop, |w| w);
    }
    assert_eq!(next(&mut world, &one, &mut frame), Next::Empty);
    assert_eq!(frame.looks, 71 + 5);
    assert_eq!(one.send_frame(&mut world, &two, &udp(1)), Received::Delivered { frames: 1 });
}

#[test]
fn ethernet_queue_with_entries_is_not_reported_as_empty() {
    let mut world = World::new();
    let (mut one, _two) = pair(&mut world, Options { send_blocks: 64, ..Options::default() });
    for _ in 0..2 {
        one.add_send_queue(&mut world);
    }
    // More than two turns of their queue; the other queues are looked at in between.
    for _ in 0..40 {
        one.post_send(SendOpcode::Nop, |w| w);
    }
    let mut frame = Frame::default();
    let mut next = |world: &mut World| {
        next_frame(world.subnet.adapter_mut(one.guest.adapter).unwrap(), &mut frame)
    };
    assert_eq!(next(&mut world), Next::Dropped);
    assert_eq!(next(&mut world), Next::Empty);
}
