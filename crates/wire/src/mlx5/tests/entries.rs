//! Entries of send and receive queues.

use proptest::prelude::*;

use crate::mlx5::completion_queue::CompletionOpcode;
use crate::mlx5::memory_key::{MemoryKeyContext, UpdateControl, mask};
use crate::mlx5::queue_pair::Service;
use crate::mlx5::work_request::{
    AtomicMaskSegment, AtomicSegment, BLOCK, CHECKSUM_L3, CHECKSUM_L4, COMPLETION_ALWAYS,
    ControlSegment, DataSegment, DatagramSegment, ENTRY_MAX, Error, EthernetSegment, FrameRequest,
    INSERT_VLAN, Payload, RemoteAddressSegment, SendOpcode, SendQueueKind, SendRequest, SendWriter,
    UpdateList, XrcSegment, ZERO_LENGTH_MEANS, receive_segments,
};

fn control(opcode: SendOpcode) -> ControlSegment {
    ControlSegment {
        opcode: opcode.raw(),
        index: 0x0102,
        queue: 0x41,
        completion: COMPLETION_ALWAYS,
        ..Default::default()
    }
}

const DATA: DataSegment = DataSegment { raw_len: 64, key: 0x412a, address: 0x7f00_0000_1000 };
const REMOTE: RemoteAddressSegment =
    RemoteAddressSegment { address: 0x5500_0000_2000, key: 0x522b };

fn parts<'a>(request: &SendRequest<'a>) -> Vec<Payload<'a>> {
    request.payload.map(Result::unwrap).collect()
}

#[test]
fn mlx5_write_entry_has_the_bytes_of_drivers() {
    let mut bytes = [0xee; 64];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::Write));
    assert_eq!(writer.remote(&REMOTE).data(&DATA).finish(), Ok(1));
    #[rustfmt::skip]
    let expected = [
        0, 1, 2, 8, 0, 0, 0x41, 3, 0, 0, 0, 8, 0, 0, 0, 0,
        0, 0, 0x55, 0, 0, 0, 0x20, 0, 0, 0, 0x52, 0x2b, 0, 0, 0, 0,
        0, 0, 0, 64, 0, 0, 0x41, 0x2a, 0, 0, 0x7f, 0, 0, 0, 0x10, 0,
    ];
    assert_eq!(bytes[..48], expected);
    assert_eq!(bytes[48..], [0xee; 16], "bytes behind the entry are left");

    let request = SendRequest::parse(&bytes, SendQueueKind::Connected).unwrap();
    assert_eq!((request.opcode, request.remote), (SendOpcode::Write, Some(REMOTE)));
    assert_eq!((request.control.index, request.control.queue), (0x0102, 0x41));
    assert!(request.control.is_signaled() && !request.control.is_solicited);
    assert_eq!(parts(&request), [Payload::Memory(DATA)]);
    assert_eq!(request.blocks(), 1);
    assert_eq!(request.datagram, None);
}

#[test]
fn mlx5_inline_data_is_padded_to_16_bytes() {
    let data: Vec<u8> = (0..=200).collect();
    for len in [0, 1, 12, 13, 28, 29, 201] {
        let mut bytes = [0; 1024];
        let writer = SendWriter::new(&mut bytes, control(SendOpcode::Send));
        let blocks = writer.inline(&data[..len]).data(&DATA).finish().unwrap();
        let size = usize::from(bytes[7]);
        assert_eq!(size, 1 + (len + 4).div_ceil(16) + 1);
        assert_eq!(usize::from(blocks), (size * 16).div_ceil(BLOCK));
        assert_eq!(bytes[16..20], (0x8000_0000 | len as u32).to_be_bytes());
        let request = SendRequest::parse(&bytes, SendQueueKind::Connected).unwrap();
        assert_eq!(parts(&request), [Payload::Inline(&data[..len]), Payload::Memory(DATA)]);
    }
}

#[test]
fn mlx5_atomic_entries_have_operands_and_masks() {
    let atomic = AtomicSegment { swap_or_add: 5, compare: 6 };
    let masks = AtomicMaskSegment { swap_or_add: 7, compare: 8 };
    let write = |opcode| {
        let mut bytes = [0; 128];
        let mut writer = SendWriter::new(&mut bytes, control(opcode)).remote(&REMOTE);
        writer = writer.atomic(&atomic);
        if opcode == SendOpcode::MaskedCompareSwap {
            writer = writer.atomic_mask(&masks);
        }
        writer.data(&DATA).finish().unwrap();
        bytes
    };
    for opcode in SendOpcode::ALL.iter().copied().filter(|opcode| opcode.is_atomic()) {
        let bytes = write(opcode);
        let request = SendRequest::parse(&bytes, SendQueueKind::Connected).unwrap();
        assert_eq!((request.remote, request.atomic), (Some(REMOTE), Some(atomic)));
        let expected = (opcode == SendOpcode::MaskedCompareSwap).then_some(masks);
        assert_eq!(request.atomic_mask, expected);
        assert_eq!(parts(&request), [Payload::Memory(DATA)]);
    }
}

#[test]
fn mlx5_datagram_entry_has_its_destination() {
    let segment = DatagramSegment {
        queue_key: 0x1111_1111,
        is_extended: true,
        queue_pair: 0x42,
        lid_or_udp_port: 0xc123,
        mac: [2, 0x43, 0x57, 0, 0, 2],
        traffic_class: 1,
        hop_limit: 64,
        has_grh: true,
        source_gid_index: 3,
        flow_label: 0xa_bcde,
        gid: [0xfe; 16],
        ..Default::default()
    };
    let mut bytes = [0; 128];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::SendImmediate));
    assert_eq!(writer.datagram(&segment).data(&DATA).finish(), Ok(2));
    assert_eq!(bytes[16..28], [0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0, 0x80, 0, 0, 0x42]);
    assert_eq!(bytes[0x1e..0x20], [0xc1, 0x23]);
    assert_eq!(bytes[0x24..0x30], [2, 0x43, 0x57, 0, 0, 2, 1, 64, 0x40, 0x3a, 0xbc, 0xde]);
    let request = SendRequest::parse(&bytes, SendQueueKind::Datagram).unwrap();
    assert_eq!(request.datagram, Some(segment));
    assert_eq!(parts(&request), [Payload::Memory(DATA)]);
}

#[test]
fn mlx5_ethernet_entry_has_headers_and_offloads() {
    let offloads = EthernetSegment {
        checksums: CHECKSUM_L3 | CHECKSUM_L4,
        segment_size: 1448,
        ..Default::default()
    };
    let headers: Vec<u8> = (1..=66).collect();
    for len in [0, 1, 2, 3, 18, 19, 66] {
        let mut bytes = [0; 256];
        let writer = SendWriter::new(&mut bytes, control(SendOpcode::Segmentation));
        writer.ethernet(offloads, &headers[..len]).data(&DATA).finish().unwrap();
        let behind = if len <= 2 { 0x20 } else { 0x20 + (len - 2).div_ceil(16) * 16 };
        assert_eq!(usize::from(bytes[7]) * 16, behind + 16, "headers of {len} bytes");
        assert_eq!(bytes[0x14..0x18], [0xc0, 0, 0x05, 0xa8]);
        assert_eq!(bytes[0x1c..0x1e], [0, len as u8]);
        assert_eq!(bytes[0x1e..0x1e + len], headers[..len]);
        let request = SendRequest::parse(&bytes, SendQueueKind::Ethernet).unwrap();
        assert_eq!(request.headers, &headers[..len]);
        assert_eq!(request.ethernet.unwrap().segment_size, 1448);
        assert_eq!(parts(&request), [Payload::Memory(DATA)]);
    }
    let tag = EthernetSegment { inline_len: INSERT_VLAN, start: [0x20, 0x64], ..offloads };
    let mut bytes = [0; 64];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::Send));
    writer.ethernet(tag, &[]).data(&DATA).finish().unwrap();
    let request = SendRequest::parse(&bytes, SendQueueKind::Ethernet).unwrap();
    assert_eq!(request.ethernet.unwrap().vlan(), Some(0x2064));
    assert_eq!((request.headers, request.payload.count()), (&[][..], 1));
}

#[test]
fn mlx5_registration_entry_selects_fields_by_mask() {
    let context = MemoryKeyContext {
        local_read: true,
        start: 0x1000,
        log_page_size: 12,
        ..Default::default()
    };
    let mut update = UpdateControl {
        is_inline: true,
        requires_free: true,
        list_size: 4,
        mask: mask::FAST_REGISTRATION,
        ..Default::default()
    };
    let list: Vec<u8> = (0..64).collect();
    let mut bytes = [0; 256];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::Update));
    assert_eq!(writer.update(&update, &context).list(&list).finish(), Ok(3));
    assert_eq!(bytes[0x10..0x18], [0xa0, 0, 0, 0, 0, 4, 0, 0]);
    assert_eq!(bytes[0x18..0x20], [0, 0, 0, 0, 0x20, 0x9e, 0x21, 0x43]);
    for kind in [SendQueueKind::Connected, SendQueueKind::Registration, SendQueueKind::Ethernet] {
        let request = SendRequest::parse(&bytes, kind).unwrap().update.unwrap();
        assert_eq!((request.control, request.context), (update, context));
        assert_eq!(request.list, UpdateList::Inline(&list));
        assert!(request.control.changes(mask::LEN | mask::START | mask::VARIABLE));
        assert!(!request.control.changes(mask::DOMAIN));
    }

    update = UpdateControl { is_inline: false, has_offset: true, ..update };
    (update.offset_low, update.offset_high) = (0x0102, 3);
    let mut bytes = [0; 192];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::Update));
    writer.update(&update, &context).data(&DATA).finish().unwrap();
    let request = SendRequest::parse(&bytes, SendQueueKind::Registration).unwrap().update.unwrap();
    assert_eq!(request.list, UpdateList::Memory(DATA));
    assert_eq!(request.control.offset(), 0x3_0102);
    update.has_offset = false;
    assert_eq!(update.offset(), 0);
}

#[test]
fn mlx5_revocation_has_a_list_size_without_a_list() {
    let update = UpdateControl { list_size: 4, mask: mask::REVOCATION, ..Default::default() };
    for is_free in [true, false] {
        let context = MemoryKeyContext { is_free, ..Default::default() };
        let mut bytes = [0; 128];
        let writer = SendWriter::new(&mut bytes, control(SendOpcode::Update));
        writer.update(&update, &context).finish().unwrap();
        let request = SendRequest::parse(&bytes, SendQueueKind::Registration);
        assert_eq!(request.is_ok(), is_free, "only a free key needs no list");
    }
}

#[test]
fn mlx5_xrc_entry_names_the_receive_queue() {
    let segment = XrcSegment { receive_queue: 0x61 };
    let mut bytes = [0; 64];
    let writer = SendWriter::new(&mut bytes, control(SendOpcode::Send));
    writer.xrc(&segment).data(&DATA).finish().unwrap();
    assert_eq!(bytes[16..20], [0, 0, 0, 0x61]);
    let request = SendRequest::parse(&bytes, SendQueueKind::ExtendedConnected).unwrap();
    assert_eq!((request.xrc, request.payload.count()), (Some(segment), 1));
}

#[test]
fn mlx5_invalid_send_entries_are_refused() {
    let mut bytes = [0; 64];
    let parse = |bytes: &[u8], kind| SendRequest::parse(bytes, kind).map(|_| ()).unwrap_err();
    SendWriter::new(&mut bytes, control(SendOpcode::Read)).remote(&REMOTE).finish().unwrap();
    bytes[7] = 0;
    assert_eq!(parse(&bytes, SendQueueKind::Connected), Error::Size(0));
    bytes[7] = 5;
    assert_eq!(parse(&bytes, SendQueueKind::Connected), Error::Size(5));
    bytes[7] = 1;
    assert!(matches!(parse(&bytes, SendQueueKind::Connected), Error::Truncated(_)));
    bytes[7] = 2;
    let kind = SendQueueKind::Datagram;
    assert_eq!(parse(&bytes, kind), Error::Kind { opcode: SendOpcode::Read, kind });
    bytes[3] = 0x7f;
    assert_eq!(parse(&bytes, SendQueueKind::Connected), Error::Opcode(0x7f));
    assert!(matches!(parse(&bytes[..15], SendQueueKind::Connected), Error::Truncated(_)));
    // Inline data that is longer than the entry ends the payload.
    SendWriter::new(&mut bytes, control(SendOpcode::Send)).inline(&[1; 12]).finish().unwrap();
    bytes[19] = 13;
    let request = SendRequest::parse(&bytes, SendQueueKind::Connected).unwrap();
    let parts: Vec<_> = request.payload.collect();
    assert_eq!(parts.len(), 1);
    assert!(parts[0].is_err());
}

#[test]
fn mlx5_send_writer_reports_an_entry_that_is_too_long() {
    let mut bytes = [0; 2048];
    let mut writer = SendWriter::new(&mut bytes, control(SendOpcode::Send));
    for _ in 0..62 {
        writer = writer.data(&DATA);
    }
    assert_eq!(writer.finish(), Ok(16), "the longest entry");
    let mut writer = SendWriter::new(&mut bytes, control(SendOpcode::Send));
    for _ in 0..63 {
        writer = writer.data(&DATA);
    }
    assert_eq!(writer.finish().unwrap_err().have, ENTRY_MAX);
    let mut short = [0; 40];
    let writer = SendWriter::new(&mut short, control(SendOpcode::Send)).data(&DATA).data(&DATA);
    assert_eq!(writer.data(&DATA).finish().unwrap_err().have, 40);
    let writer = SendWriter::new(&mut short[..8], control(SendOpcode::Nop));
    assert!(
        writer.inline(&[1; 99]).ethernet(EthernetSegment::default(), &[1; 40]).finish().is_err()
    );
}

#[test]
fn mlx5_receive_entry_ends_with_the_reserved_key() {
    let mut bytes = [0; 64];
    DATA.emit(&mut bytes).unwrap();
    let long = DataSegment { raw_len: 0, ..DATA };
    long.emit(&mut bytes[16..]).unwrap();
    DataSegment::end().emit(&mut bytes[32..]).unwrap();
    assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let segments: Vec<_> = receive_segments(&bytes).collect();
    assert_eq!(segments, [DATA, long]);
    assert_eq!((segments[0].len(), segments[1].len()), (64, ZERO_LENGTH_MEANS));
    assert_eq!(receive_segments(&bytes[..31]).count(), 1);
}

#[test]
fn mlx5_send_opcodes_have_their_receive_completions() {
    let receive = |opcode: SendOpcode| opcode.receive_opcode();
    let immediate = Some(CompletionOpcode::ReceiveWriteImmediate);
    assert_eq!(receive(SendOpcode::WriteImmediate), immediate);
    let invalidate = Some(CompletionOpcode::ReceiveSendInvalidate);
    assert_eq!(receive(SendOpcode::SendInvalidate), invalidate);
    assert_eq!(receive(SendOpcode::Write), None);
    assert_eq!(SendQueueKind::of(Service::GeneralServices), Some(SendQueueKind::Datagram));
    assert_eq!(SendQueueKind::of(Service::DynamicTarget), None);
}

proptest! {
    #[test]
    fn mlx5_hostile_send_entries_do_not_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1100),
        opcode in prop::sample::select(SendOpcode::ALL),
        kind in prop::sample::select(vec![
            SendQueueKind::Connected,
            SendQueueKind::ExtendedConnected,
            SendQueueKind::Datagram,
            SendQueueKind::Registration,
            SendQueueKind::Ethernet,
        ]),
    ) {
        if let Some(byte) = bytes.get_mut(3) {
            *byte = opcode.raw();
        }
        if let Ok(request) = SendRequest::parse(&bytes, kind) {
            prop_assert!(request.control.len() <= bytes.len());
            prop_assert!((1..=16).contains(&request.blocks()));
            prop_assert!(request.payload.count() <= 63);
            prop_assert!(request.headers.len() <= ENTRY_MAX);
        }
        prop_assert!(receive_segments(&bytes).count() <= bytes.len() / 16);
    }

    #[test]
    fn mlx5_hostile_lists_end_with_their_bytes(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        use crate::mlx5::{page_list, steering, vport};

        prop_assert!(vport::list_entries(&bytes).count() <= bytes.len() / 8);
        prop_assert!(steering::table_entries(&bytes).count() <= bytes.len() / 4);
        prop_assert!(steering::destinations(&bytes).count() <= bytes.len() / 8);
        prop_assert_eq!(page_list::addresses(&bytes).len(), bytes.len() / 8);
    }

    #[test]
    fn mlx5_payloads_survive_writer_and_parser(
        list in prop::collection::vec(
            prop_oneof![
                (1_u32..0x8000_0000, any::<u32>(), any::<u64>()).prop_map(Ok),
                prop::collection::vec(any::<u8>(), 0..60).prop_map(Err),
            ],
            0..12,
        ),
    ) {
        let mut bytes = [0; ENTRY_MAX];
        let mut writer = SendWriter::new(&mut bytes, control(SendOpcode::Write)).remote(&REMOTE);
        for part in &list {
            writer = match part {
                Ok((raw_len, key, address)) => writer.data(&DataSegment {
                    raw_len: *raw_len,
                    key: *key,
                    address: *address,
                }),
                Err(data) => writer.inline(data),
            };
        }
        writer.finish().unwrap();
        let request = SendRequest::parse(&bytes, SendQueueKind::Connected).unwrap();
        prop_assert_eq!(request.remote, Some(REMOTE));
        let parsed = parts(&request);
        prop_assert_eq!(parsed.len(), list.len());
        for (have, want) in parsed.iter().zip(&list) {
            match (have, want) {
                (Payload::Memory(segment), Ok((raw_len, key, address))) => {
                    let fields = (segment.len(), segment.key, segment.address);
                    prop_assert_eq!(fields, (*raw_len, *key, *address));
                }
                (Payload::Inline(data), Err(want)) => prop_assert_eq!(*data, &want[..]),
                _ => prop_assert!(false, "the kind of a part changed"),
            }
        }
    }
}

proptest! {
    #[test]
    fn mlx5_frame_entry_has_the_fields_of_a_send_entry(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        opcode in prop::sample::select(vec![0_u8, 0x0a, 0x0e, 0x08, 0x25, 0xff]),
        size in 0..14_u8,
        inline in 0..40_u16,
    ) {
        let mut bytes = bytes;
        for (at, value) in [(3, opcode), (7, size), (28, 0), (29, inline as u8)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let frame = FrameRequest::parse(&bytes);
        match SendRequest::parse(&bytes, SendQueueKind::Ethernet) {
            Ok(request) if request.opcode == SendOpcode::Nop => prop_assert_eq!(frame, Ok(None)),
            Ok(request) if request.opcode == SendOpcode::Update => prop_assert!(frame.is_err()),
            Ok(request) => {
                let frame = frame.unwrap().unwrap();
                prop_assert_eq!(frame.control, request.control);
                prop_assert_eq!(frame.is_segmented, request.opcode == SendOpcode::Segmentation);
                prop_assert_eq!(Some(frame.ethernet), request.ethernet);
                prop_assert_eq!(frame.headers, request.headers);
                prop_assert_eq!(frame.payload, request.payload);
            }
            Err(_) => prop_assert!(frame.is_err()),
        }
    }
}
