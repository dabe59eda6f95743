//! Drivers that do not keep to the formats.

use causeway_mlx5::ethernet::{Body, FrameRef, Next, Received};
use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::{Entry, Syndrome};
use causeway_wire::mlx5::work_queue::SendQueueContext;
use causeway_wire::mlx5::work_request::{DataSegment, EthernetSegment, INSERT_VLAN, SendOpcode};
use causeway_wire::virtio_net::Offload;
use proptest::prelude::*;

use crate::driver::{BASE, MEMORY, World};
use crate::interface::*;

/// Checks that the next completion is an error, and that the queue is in the error state.
fn expect_error(world: &mut World, one: &mut Interface, syndrome: Syndrome) {
    let Some(Entry::Error(entry)) = one.sent_entry() else { panic!("no error completion") };
    assert_eq!((entry.syndrome, entry.queue, entry.opcode), (syndrome.raw(), one.send, 13));
    let input = InputHeader::new(Opcode::QuerySendQueue, one.send).to_bytes();
    let output = one.guest.try_command(world, &input, 0x110).unwrap();
    assert_eq!(SendQueueContext::parse(&output[0x20..]).unwrap().state, 3);
}

/// Checks that the queue works after a reset.
fn expect_recovery(world: &mut World, one: &mut Interface, two: &mut Interface) {
    one.restart_send(world);
    let bytes = udp(100);
    assert_eq!(one.send_frame(world, two, &bytes), Received::Delivered { frames: 1 });
    while let Some(entry) = one.sent_entry() {
        assert!(matches!(entry, Entry::Success(_)));
    }
    assert_eq!(two.receive(0).unwrap().1, bytes);
}

#[test]
fn ethernet_malformed_send_entries_fail_their_queue() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let control = |opcode: u8, size: u8| {
        let mut block = [0; 64];
        (block[3], block[7], block[11]) = (opcode, size, 8);
        block
    };
    let mut inline = control(0xa, 3);
    inline[0x1c..0x1e].copy_from_slice(&1000_u16.to_be_bytes());
    let mut data = control(0xa, 3);
    data[0x20..0x24].copy_from_slice(&0x8000_0100_u32.to_be_bytes());
    let entries = [
        control(0xa, 0),
        control(0xa, 1),
        control(0xa, 63),
        control(0xee, 2),
        control(0x08, 4),
        control(0x25, 4),
        inline,
        data,
    ];
    for entry in entries {
        one.post_raw(&entry);
        assert_eq!(one.forward(&mut world, &two), (Next::Dropped, None));
        expect_error(&mut world, &mut one, Syndrome::LocalQueuePairOperation);
        assert_eq!(one.forward(&mut world, &two), (Next::Empty, None));
        expect_recovery(&mut world, &mut one, &mut two);
    }
    assert!(world.function(&one.guest).take_fault().is_some());
}

#[test]
fn ethernet_lengths_and_keys_of_send_entries_are_checked() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let good = one.payload(&[1; 64]);
    let huge = DataSegment { raw_len: 0x7fff_ffff, ..good };
    let zero = DataSegment { raw_len: 0, ..good };
    let cases = [
        (vec![huge], Syndrome::LocalLength),
        (vec![zero], Syndrome::LocalLength),
        (vec![DataSegment { raw_len: 40_000, ..good }; 55], Syndrome::LocalLength),
        (vec![DataSegment { key: good.key ^ 1, ..good }], Syndrome::LocalProtection),
        (vec![DataSegment { key: 0x100, ..good }], Syndrome::LocalProtection),
        (vec![DataSegment { address: u64::MAX - 8, ..good }], Syndrome::LocalProtection),
        (vec![DataSegment { address: BASE + MEMORY - 9, ..good }], Syndrome::LocalProtection),
    ];
    for (segments, syndrome) in cases {
        one.post_send(SendOpcode::Send, |w| {
            let writer = w.ethernet(EthernetSegment::default(), &[0; 18]);
            segments.iter().fold(writer, |writer, segment| writer.data(segment))
        });
        // A further entry is flushed.
        one.post_send(SendOpcode::Nop, |w| w);
        assert_eq!(one.forward(&mut world, &two), (Next::Dropped, None), "{segments:?}");
        expect_error(&mut world, &mut one, syndrome);
        assert_eq!(one.forward(&mut world, &two), (Next::Empty, None));
        expect_error(&mut world, &mut one, Syndrome::Flushed);
        expect_recovery(&mut world, &mut one, &mut two);
    }
}

#[test]
fn ethernet_inserted_tag_counts_to_the_length_of_a_frame() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let part = DataSegment { raw_len: 32_768, ..one.payload(&[1; 64]) };
    let tagged = EthernetSegment { inline_len: INSERT_VLAN, start: [0, 7], ..Default::default() };
    // 65,557 bytes with the tag, and one more.
    let rest = 65_557 - 4 - 32_768;
    for (raw_len, next) in [(rest, Next::Frame), (rest + 1, Next::Dropped)] {
        let rest = DataSegment { raw_len, ..part };
        one.post_send(SendOpcode::Send, |w| w.ethernet(tagged, &[]).data(&part).data(&rest));
        assert_eq!(one.forward(&mut world, &two).0, next, "{raw_len}");
        if next == Next::Frame {
            assert!(matches!(one.sent_entry(), Some(Entry::Success(_))));
        }
    }
    expect_error(&mut world, &mut one, Syndrome::LocalLength);
    expect_recovery(&mut world, &mut one, &mut two);
}

#[test]
fn ethernet_frame_of_59_segments_is_gathered() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let bytes = udp(18 + 59 * 20 - 42);
    let data = one.payload(&bytes[18..]);
    one.post_send(SendOpcode::Send, |w| {
        let writer = w.ethernet(EthernetSegment::default(), &bytes[..18]);
        (0..59).fold(writer, |writer, index| {
            let address = data.address + index * 20;
            writer.data(&DataSegment { raw_len: 20, address, ..data })
        })
    });
    assert_eq!(one.forward(&mut world, &two).1, Some(Received::Delivered { frames: 1 }));
    assert_eq!(two.receive(0).unwrap().1, bytes);
}

#[test]
fn ethernet_runt_is_dropped_and_completed() {
    let mut world = World::new();
    let (mut one, two) = pair(&mut world, Options::default());
    one.post_send(SendOpcode::Send, |w| w.ethernet(EthernetSegment::default(), &[1; 13]));
    assert_eq!(one.forward(&mut world, &two), (Next::Dropped, None));
    assert!(matches!(one.sent_entry(), Some(Entry::Success(_))));
}

#[test]
fn ethernet_counter_that_jumps_fails_the_queue() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    one.guest.write(one.record + 4, &17_u32.to_be_bytes());
    assert_eq!(one.forward(&mut world, &two), (Next::Dropped, None));
    expect_error(&mut world, &mut one, Syndrome::LocalQueuePairOperation);
    expect_recovery(&mut world, &mut one, &mut two);
    let frame = udp(10);
    two.guest.write(two.receive[0].record, &0xffff_u32.to_be_bytes());
    // The counter is read when no posted entry is known.
    let mut results = Vec::new();
    for _ in 0..17 {
        results.push(one.send_frame(&mut world, &two, &frame));
        one.sent_entry();
    }
    assert_eq!(results.pop(), Some(Received::Down));
    let counters = world.function(&two.guest).ethernet_counters();
    assert_eq!(counters.failed_receives, 1);
}

#[test]
fn ethernet_receive_entry_without_permission_fails_its_queue() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let data = two.payload(&[0; 8]);
    let bad = [
        DataSegment { raw_len: 2048, key: data.key ^ 2, ..data },
        DataSegment { raw_len: 2048, address: u64::MAX - 100, ..data },
        DataSegment { raw_len: 2048, address: BASE + MEMORY - 10, ..data },
    ];
    for segment in bad {
        two.replace_entry(0, &[segment]);
        assert_eq!(one.send_frame(&mut world, &two, &udp(100)), Received::Down, "{segment:?}");
        let entry = two.guest.poll_cq(&mut two.receive[0].cq);
        let Some(Entry::Error(entry)) = entry else { panic!("{entry:?}") };
        assert_eq!((entry.opcode, entry.syndrome, entry.user_index), (14, 4, 0x52));
        assert_eq!(one.send_frame(&mut world, &two, &udp(100)), Received::Down);
        two.set_receive_state(&mut world, 0, 0);
        two.set_receive_state(&mut world, 0, 1);
        while one.sent_entry().is_some() {}
    }
}

#[test]
fn ethernet_body_that_is_revoked_loses_the_frame_only() {
    let mut world = World::new();
    let (one, mut two) = pair(&mut world, Options::default());
    let head = udp(1000);
    let spans = [causeway_memory::Span { addr: BASE + MEMORY, len: 786 }];
    let body = Body::Guest(&one.guest.map, &spans);
    let frame = FrameRef { offload: &Offload::None, head: &head[..256], body, len: 1042 };
    assert_eq!(offer(&mut world, &two, &frame), Received::Lost);
    let body = Body::Private(&head[256..1000]);
    let frame = FrameRef { body, ..frame };
    assert_eq!(offer(&mut world, &two, &frame), Received::Lost);
    let body = Body::Private(&head[256..]);
    let frame = FrameRef { body, ..frame };
    assert_eq!(offer(&mut world, &two, &frame), Received::Delivered { frames: 1 });
    assert_eq!(two.receive(0).unwrap().1, head);
    assert_eq!(world.function(&two.guest).ethernet_counters().lost, 2);
}

#[test]
fn ethernet_completion_queue_that_overruns_fails_its_queues() {
    let mut world = World::new();
    let (mut one, mut two) = pair(&mut world, Options::default());
    let frame = udp(10);
    let mut last = Received::Filtered;
    for _ in 0..65 {
        // The driver of the receiver posts entries and takes no completions.
        two.post(0, 1);
        last = one.send_frame(&mut world, &two, &frame);
        one.sent_entry();
    }
    assert_eq!(last, Received::Down);
    assert_eq!(one.send_frame(&mut world, &two, &frame), Received::Down);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn ethernet_random_send_entries_never_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 64 * 8),
        opcode in prop::sample::select(vec![0_u8, 0xa, 0xe, 0x25, 8]),
        size in 0_u8..40,
        inline in 0_u16..80,
        valid_keys in any::<bool>(),
    ) {
        let mut world = World::new();
        let (mut one, two) = pair(&mut world, Options::default());
        (bytes[3], bytes[7]) = (opcode, size);
        bytes[0x1c..0x1e].copy_from_slice(&inline.to_be_bytes());
        if valid_keys {
            let data = one.payload(&udp(2000)).to_bytes();
            for place in bytes.chunks_mut(16).skip(3) {
                place.copy_from_slice(&data);
            }
            bytes[0x1e..0x2c].copy_from_slice(&udp(0)[..14]);
        }
        one.post_raw(&bytes);
        for _ in 0..20 {
            if one.forward(&mut world, &two).0 == Next::Empty {
                break;
            }
            while one.sent_entry().is_some() {}
        }
    }

    #[test]
    fn ethernet_random_frames_never_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        kind in any::<u8>(),
        start in 0_u16..120,
        offset in 0_u16..40,
    ) {
        use causeway_wire::virtio_net::ChecksumPlace;
        let mut world = World::new();
        let options = Options { keeps_vlan: false, ..Options::default() };
        let two = Interface::up(&mut world, 2, options);
        let valid = if kind & 1 == 0 { udp(20) } else { tcp(3, 20) };
        for (to, from) in bytes.iter_mut().zip(valid.iter().take(usize::from(kind >> 2))) {
            *to = *from;
        }
        let offload = match kind & 2 {
            0 => Offload::None,
            _ => Offload::Checksum(ChecksumPlace { start, offset }),
        };
        let (head, body) = bytes.split_at(bytes.len().min(256));
        let len = bytes.len();
        offer(&mut world, &two, &FrameRef { offload: &offload, head, body: Body::Private(body), len });
    }
}
