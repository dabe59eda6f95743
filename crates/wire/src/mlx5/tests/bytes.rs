//! Literal bytes: fields at the places that the documents of the format name, and values that the
//! drivers of Linux accept or send.

use crate::mlx5::capability::{self, Capabilities, FlowTable, Group, Query};
use crate::mlx5::command::{InputHeader, MailboxTrailer, Opcode, OutputHeader, QueueEntry, Status};
use crate::mlx5::completion_queue::{self as cq, ArmWord, CompletionEntry, CompletionQueueContext};
use crate::mlx5::event_queue::{self as eq, Event, EventDoorbell, EventQueueContext, EventType};
use crate::mlx5::memory_key::{self as key, AccessMode, MemoryKeyContext};
use crate::mlx5::queue_pair::{self as qp, QueuePairContext};
use crate::mlx5::startup::{self, AdapterOutput, IssiOutput, SpecialContextsOutput};
use crate::mlx5::work_queue::{ArmInput, NextSegment, ReceivePoolContext, WorkQueueType};
use crate::mlx5::{counters, registers, steering, vport};

/// Returns `len` bytes that are zero except for those of `parts`.
fn block(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (offset, part) in parts {
        bytes[*offset..offset + part.len()].copy_from_slice(part);
    }
    bytes
}

#[test]
fn mlx5_command_entry_has_the_layout_of_the_queue() {
    let bytes = block(
        64,
        &[
            (0, &[7, 0, 0, 0, 0, 0, 2, 0x10]),
            (8, &[0, 0, 0, 1, 0x23, 0x45, 0x64, 0]),
            (0x10, &[5, 0, 0, 0, 0, 0, 0, 0]),
            (0x30, &[0, 0, 0, 1, 0, 0, 0x80, 0]),
            (0x38, &[0, 0, 0, 16, 0xaa, 0, 0, 1]),
        ],
    );
    let entry = QueueEntry::parse(&bytes).unwrap();
    assert_eq!((entry.entry_type, entry.input_len, entry.output_len), (7, 0x210, 16));
    assert_eq!((entry.input_mailbox, entry.output_mailbox), (0x1_2345_6400, 0x1_0000_8000));
    assert_eq!((entry.token, entry.delivery_status), (0xaa, 0));
    assert!(entry.is_device_owned);
    assert_eq!(entry.to_bytes()[..], bytes);
    let header = InputHeader::parse(&entry.input).unwrap();
    assert_eq!(header.operation(), Some(Opcode::CreateQueuePair));

    let trailer = block(576, &[(560, &[0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 3, 0, 0xaa, 1, 2])]);
    let trailer = MailboxTrailer::parse(&trailer[512..]).unwrap();
    assert_eq!((trailer.next, trailer.index, trailer.token), (0x10400, 3, 0xaa));
    assert_eq!((trailer.control_signature, trailer.signature), (1, 2));
}

#[test]
fn mlx5_command_headers_have_number_and_state() {
    let input = [9, 9, 0, 0, 0, 0, 0, 1, 0x10, 0, 0x12, 0x34, 0, 0, 0, 0x40];
    let header = InputHeader::parse(&input).unwrap();
    assert_eq!(header.operation(), Some(Opcode::ModifyReceiveQueue));
    assert_eq!((header.modifier, header.state, header.number), (1, 1, 0x1234));
    assert_eq!(header.argument, 0x40);
    let mut output = Status::BadResourceState.header().to_bytes();
    assert_eq!(output, [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    OutputHeader { number: 0x41, ..Status::Ok.header() }.emit(&mut output).unwrap();
    assert_eq!(output[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41]);
}

#[test]
fn mlx5_start_up_answers_are_those_that_drivers_accept() {
    let issi = IssiOutput { current: 0, supported: 1 << startup::ISSI }.to_bytes();
    assert_eq!((issi.len(), issi[0x6f]), (0x70, 2));
    let adapter = AdapterOutput { vendor: startup::VENDOR_ID, ..Default::default() }.to_bytes();
    assert_eq!(adapter[0x28..0x2c], [0, 0, 2, 0xc9]);
    let keys =
        SpecialContextsOutput { reserved_key: key::RESERVED_LOCAL_KEY, ..Default::default() };
    assert_eq!(keys.to_bytes()[0xc..0x10], [0, 0, 1, 0]);
    assert_eq!(registers::command_queue_size(5, 6), 0x56);
    assert_eq!(registers::command_interface(1000), 0x0005_03e8);
    assert_eq!(registers::firmware_version(16, 32), 0x0020_0010);
}

#[test]
fn mlx5_general_capabilities_have_the_verified_bytes() {
    let mut bytes = vec![0; capability::BLOCK_LEN];
    Capabilities::FUNCTION.emit(Group::General, &mut bytes).unwrap();
    let expected = block(
        capability::BLOCK_LEN,
        &[
            (0x00, &[0x02]),
            (0x10, &[14, 15, 0, 14, 0, 14]),
            (0x19, &[20, 0, 16, 16, 20, 0, 4]),
            (0x21, &[40, 0, 0x80 | 16]),
            (0x29, &[4, 0, 4]),
            (0x2f, &[4]),
            (0x34, &[0x02, 15, 1, 1, 30, 1]),
            (0x3f, &[1, 0x80, 0x40, 0, 0x0e, 0x70, 0x80, 0, 0x0f]),
            (0x4b, &[12]),
            (0x52, &[4, 0, 0, 0, 2, 0]),
            (0x5f, &[16]),
            (0x63, &[6, 8, 16, 0, 16]),
            (0x6c, &[10, 10, 10, 10, 0x80 | 14, 8, 8, 3, 11, 6, 11, 6]),
            (0x7b, &[15, 0, 4, 4, 4]),
            (0x8f, &[16]),
            (0xa7, &[1]),
            (0xc1, &[1]),
        ],
    );
    for (offset, (have, want)) in bytes.iter().zip(&expected).enumerate() {
        assert_eq!(have, want, "offset {offset:#x}");
    }
}

#[test]
fn mlx5_other_capabilities_have_the_verified_bytes() {
    let emit = |group| {
        let mut bytes = vec![0; capability::BLOCK_LEN];
        Capabilities::FUNCTION.emit(group, &mut bytes).unwrap();
        bytes
    };
    let expect = |parts: &[(usize, &[u8])]| block(capability::BLOCK_LEN, parts);
    assert_eq!(emit(Group::Ethernet), expect(&[(0, &[0xc1, 0x80 | 16, 0x17])]));
    let atomic: &[(usize, &[u8])] = &[(8, &[0x42]), (0x13, &[3]), (0x17, &[8])];
    assert_eq!(emit(Group::Atomic), expect(atomic));
    let roce: &[u8] = &[6, 0, 5, 0, 0, 0x12, 0xb7, 0xff, 0xff, 0xc0, 0, 0, 0, 1, 0];
    assert_eq!(emit(Group::Roce), expect(&[(0x11, roce)]));
    let flow = emit(Group::FlowTable);
    let table = FlowTable::parse(&flow[capability::FLOW_TABLE_RECEIVE..]).unwrap();
    assert_eq!(table, FlowTable::FUNCTION);
    assert_eq!(flow[0x40..0x48], [0x9e, 0, 0, 0, 16, 0, 0, 64]);
    for fields in [&flow[0x60..0x70], &flow[0x70..0x80]] {
        assert_eq!(fields[..4], [0xff, 0x0f, 0xfe, 0]);
    }
    assert_eq!(flow[0x80..], [0; 4096 - 128], "tables of other directions do not exist");
    assert_eq!(emit(Group::Eswitch), expect(&[]));

    assert_eq!(Query::parse(3), Query { group: Some(Group::Ethernet), is_current: true });
    assert_eq!(Query::parse(0xffff).group, None);
    assert_eq!(Group::FlowTable.modifier(false), 14);
    assert!(Capabilities::FUNCTION.emit(Group::FlowTable, &mut [0; 0x60]).is_err());
}

#[test]
fn mlx5_event_queue_has_the_layout_of_create_eq() {
    let bytes =
        block(64, &[(0x0a, &[1]), (0x0c, &[11, 0, 0, 16]), (0x16, &[0xf0, 3]), (0x18, &[2])]);
    let context = EventQueueContext::parse(&bytes).unwrap();
    assert_eq!((context.log_size, context.uar_page, context.vector), (11, 16, 3));
    assert_eq!((context.log_page_size, context.page_offset), (2, 4));

    let command = Event::Command { entries: 2 }.to_bytes(true);
    assert_eq!(command[..], block(64, &[(1, &[0x0a]), (0x23, &[2]), (0x3f, &[1])]));
    let completion = Event::Completion { completion_queue: 0x41 }.to_bytes(false);
    assert_eq!(completion[..], block(64, &[(0x3b, &[0x41])]));
    let fatal = EventType::WorkQueueCatastrophic;
    let queue = Event::Queue { event_type: fatal, queue_type: 0, number: 0x1_0203 }.to_bytes(false);
    assert_eq!(queue[..], block(64, &[(1, &[5]), (0x39, &[1, 2, 3])]));
    let fault = eq::CompletionQueueFault::Overrun;
    let error = Event::CompletionQueueError { completion_queue: 7, fault }.to_bytes(false);
    assert_eq!(error[..], block(64, &[(1, &[4]), (0x23, &[7]), (0x2b, &[1])]));
    let port = Event::Port { change: eq::PortChange::Active, port: 1 }.to_bytes(false);
    assert_eq!(port[..], block(64, &[(1, &[9, 0, 4]), (0x28, &[0x10])]));

    assert_eq!(EventDoorbell { event_queue: 5, consumer: 0x102 }.to_bytes(), [5, 0, 1, 2]);
    let bits: Vec<bool> = (0..9).map(|producer| eq::owner_bit(producer, 2)).collect();
    assert_eq!(bits, [false, false, false, false, true, true, true, true, false]);
}

#[test]
fn mlx5_completion_queue_has_the_layout_of_create_cq() {
    let bytes = block(
        64,
        &[
            (0x01, &[0x22]),
            (0x0c, &[7, 0, 0, 17]),
            (0x17, &[5]),
            (0x18, &[1]),
            (0x3c, &[0x12, 0x34, 0x50, 0x40]),
        ],
    );
    let context = CompletionQueueContext::parse(&bytes).unwrap();
    assert_eq!((context.stride(), context.ignores_overrun), (Some(128), true));
    assert_eq!((context.log_size, context.uar_page, context.event_queue), (7, 17, 5));
    assert_eq!((context.log_page_size, context.doorbell_record), (1, 0x1234_5040));
    assert_eq!(CompletionQueueContext { entry_size: 2, ..context }.stride(), None);

    let arm = ArmWord::parse(&[0x31, 0, 1, 2]).unwrap();
    assert_eq!(arm, ArmWord { sequence: 3, is_solicited_only: true, consumer: 0x102 });
    let record = cq::DoorbellRecord { consumer: 9, arm }.to_bytes();
    assert_eq!(record, [0, 0, 0, 9, 0x31, 0, 1, 2]);
    let doorbell = cq::ArmDoorbell { arm, completion_queue: 0x41 }.to_bytes();
    assert_eq!(doorbell, [0x31, 0, 1, 2, 0, 0, 0, 0x41]);
}

#[test]
fn mlx5_completion_entries_have_the_layout_of_drivers() {
    let received = CompletionEntry {
        grh: 1,
        network: cq::NETWORK_IPV4,
        source_queue_pair: 1,
        user_index: 0x11,
        immediate: 0xffff,
        bytes: 0x128,
        queue: 0x41,
        counter: 0x203,
        opcode: cq::CompletionOpcode::ReceiveSend.raw(),
        is_solicited: true,
        owner: true,
        ..Default::default()
    };
    let expected = block(
        64,
        &[
            (0x18, &[0x12, 0, 0, 1]),
            (0x23, &[0x11, 0, 0, 0xff, 0xff]),
            (0x2e, &[1, 0x28]),
            (0x3b, &[0x41, 2, 3]),
            (0x3f, &[0x23]),
        ],
    );
    assert_eq!(received.to_bytes()[..], expected);

    let frame = CompletionEntry {
        checksum: 0xbeef,
        checks: cq::CHECK_L3 | cq::CHECK_L4,
        layer4: cq::L4_UDP,
        layer3: cq::L3_IPV4,
        has_vlan: true,
        vlan: 0x2064,
        ..Default::default()
    };
    let expected = block(64, &[(0x14, &[0xbe, 0xef]), (0x1c, &[6, 0x29, 0x20, 0x64])]);
    assert_eq!(frame.to_bytes()[..], expected);

    let error = cq::ErrorEntry {
        vendor_syndrome: 0x88,
        syndrome: cq::Syndrome::RemoteAccess.raw(),
        request_opcode: 8,
        queue: 0x41,
        counter: 5,
        opcode: cq::CompletionOpcode::RequestError.raw(),
        ..Default::default()
    };
    let bytes: &[u8] = &[0x88, 0x13, 8, 0, 0, 0x41, 0, 5, 0, 0xd0];
    assert_eq!(error.to_bytes()[..], block(64, &[(0x36, bytes)]));
}

#[test]
fn mlx5_memory_key_has_the_layout_of_create_mkey() {
    let bytes = block(
        64,
        &[
            (0x02, &[0x7d, 0, 0xff, 0xff, 0xff, 0x2a]),
            (0x0c, &[1, 0, 0, 9]),
            (0x10, &[0, 0, 0x7f, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x30, 0]),
            (0x37, &[2]),
            (0x3b, &[12]),
        ],
    );
    let context = MemoryKeyContext::parse(&bytes).unwrap();
    assert_eq!(context.mode(), Some(AccessMode::PageList));
    assert!(context.remote_atomic && context.remote_write && context.remote_read);
    assert!(context.local_write && context.local_read && !context.has_update);
    assert_eq!((context.queue_pair, context.variable), (key::ANY_QUEUE_PAIR, 0x2a));
    assert_eq!((context.domain, context.has_remote_invalidate), (9, true));
    assert_eq!((context.start, context.len), (0x7f00_0000_1000, 0x3000));
    assert_eq!((context.list_size, context.log_page_size), (2, 12));
    let upper = MemoryKeyContext { access_mode_high: 1, ..context };
    assert_eq!(upper.mode(), None, "later access modes are not known");
    assert_eq!(key::key(0x41, 0x2a), 0x412a);
    assert_eq!(key::split(0x412a), (0x41, 0x2a));
}

#[test]
fn mlx5_queue_pair_has_the_layout_of_create_qp() {
    let path: &[u8] = &[0, 0, 0, 0, 0, 0x80, 0, 0, 14 << 3, 3, 0, 64];
    let bytes = block(
        0xe8,
        &[
            (0x00, &[0x30, 0, 0, 0, 0, 0, 0, 9]),
            (0x08, &[0xbe, 0x3a, 0x40, 0, 0, 0, 0, 17]),
            (0x13, &[0x11, 1, 0, 0, 0x42]),
            (0x18, path),
            (0x28, &[0xfe, 0x80]),
            (0x3c, &[0, 0, 1, 0, 0, 0]),
            (0x3e, &[2, 0x43, 0x57, 0, 0, 2]),
            (0x71, &[0x46, 0xe0]),
            (0x7d, &[0, 0, 0x51]),
            (0x91, &[0x41, 0xe1, 0, 12, 0, 1, 2]),
            (0x9d, &[0, 0, 0x52]),
            (0xa4, &[0x12, 0x34, 0x50, 0x80]),
            (0xa8, &[0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0]),
        ],
    );
    let context = QueuePairContext::parse(&bytes).unwrap();
    assert_eq!(qp::State::from_raw(context.state), Some(qp::State::ReadyToSend));
    assert_eq!(context.service(), Some(qp::Service::ReliableConnection));
    assert_eq!(qp::PathMtu::from_raw(context.mtu).map(qp::PathMtu::bytes), Some(4096));
    assert_eq!((context.domain, context.log_message_max, context.uar_page), (9, 30, 17));
    assert_eq!((context.receive_entries(), context.receive_stride()), (128, 64));
    assert_eq!((context.send_blocks(), context.send_offset()), (256, 8192));
    assert_eq!(context.buffer_len(), 8192 + 256 * 64);
    assert_eq!((context.user_index, context.log_page_size), (0x11, 1));
    assert_eq!(context.remote_number, 0x42);
    let path = context.primary_path;
    assert!(path.has_grh);
    assert_eq!((path.ack_timeout, path.source_gid_index, path.hop_limit), (14, 3, 64));
    assert_eq!(path.destination_gid[..2], [0xfe, 0x80]);
    assert_eq!(path.destination_mac, [2, 0x43, 0x57, 0, 0, 2]);
    assert_eq!((context.log_requester_resources, context.retry_count), (2, 6));
    assert_eq!((context.rnr_retry, context.log_responder_resources), (7, 2));
    assert!(context.remote_read && context.remote_write && context.remote_atomic);
    assert_eq!((context.page_offset, context.min_rnr_timer), (4, 12));
    assert_eq!(context.next_receive_psn, 0x0102);
    assert_eq!((context.send_completion_queue, context.receive_completion_queue), (0x51, 0x52));
    assert_eq!((context.doorbell_record, context.queue_key), (0x1234_5080, 0x1111_1111));
    let shared = QueuePairContext { receive_queue_type: 1, ..context };
    assert_eq!((shared.receive_entries(), shared.send_offset()), (0, 0));
    let none = QueuePairContext { has_no_send_queue: true, ..context };
    assert_eq!(none.send_blocks(), 0);
    let record = qp::DoorbellRecord::parse(&[0xff, 0xff, 1, 2, 0, 0, 3, 4]).unwrap();
    assert_eq!(record, qp::DoorbellRecord { receive: 0x102, send: 0x304 });
}

#[test]
fn mlx5_shared_receive_queue_has_the_layout_of_create_rmp() {
    let bytes = block(
        0xf0,
        &[
            (0x01, &[0x10]),
            (0x35, &[19]),
            (0x44, &[0x12, 0x34, 0x50, 0xc0]),
            (0x50, &[0, 5, 3, 13]),
        ],
    );
    let context = ReceivePoolContext::parse(&bytes).unwrap();
    let ring = context.queue;
    assert_eq!((context.state, ring.queue_type()), (1, Some(WorkQueueType::LinkedList)));
    assert_eq!((ring.stride(), ring.entries(), ring.buffer_len()), (32, 8192, 32 * 8192));
    assert_eq!((ring.page_offset, ring.log_page_size), (19, 3));
    assert_eq!(ring.doorbell_record, 0x1234_50c0);
    let next = NextSegment::parse(&block(16, &[(2, &[1, 2])])).unwrap();
    assert_eq!(next.next, 0x102);
    let arm = ArmInput::parse(&block(16, &[(9, &[0, 0, 0x41, 0, 0, 0, 8])])).unwrap();
    assert_eq!(arm, ArmInput { number: 0x41, limit: 8 });
}

#[test]
fn mlx5_port_answers_have_the_layout_of_drivers() {
    let context = vport::NicVportContext {
        min_inline_mode: vport::INLINE_L2,
        has_roce: true,
        mtu: 1500 + vport::MTU_OVERHEAD,
        port_guid: 0x0243_5700_0000_0010,
        permanent_mac: [2, 0x43, 0x57, 0, 0, 1],
        ..Default::default()
    };
    let expected = block(
        0x100,
        &[
            (0, &[1]),
            (3, &[1]),
            (0x26, &[0x05, 0xf2]),
            (0x30, &[2, 0x43, 0x57, 0, 0, 0, 0, 0x10]),
            (0xf6, &[2, 0x43, 0x57, 0, 0, 1]),
        ],
    );
    assert_eq!(context.to_bytes()[..], expected);
    assert_eq!(vport::VportStateOutput { admin: 1, state: 1 }.to_bytes()[0xf], 0x11);

    let speed = registers::ETHERNET_100G;
    let port = registers::PortType {
        capability: speed,
        admin: speed,
        operational: speed,
        ..Default::default()
    };
    let half: &[u8] = &[0, 0x80];
    assert_eq!(port.to_bytes()[..], block(64, &[(0xc, half), (0x18, half), (0x24, half)]));
    let mtu = registers::PortMtu { port: 1, max: 9216, admin: 9216, operational: 9216 };
    let word: &[u8] = &[0x24, 0];
    let expected = block(16, &[(1, &[1]), (4, word), (8, word), (12, word)]);
    assert_eq!(mtu.to_bytes()[..], expected);
    let lanes = registers::PortLanes { capability: 1, ..Default::default() };
    assert_eq!(lanes.to_bytes()[7], 1);

    let mut table = [0xee; 0x10 + 12];
    vport::emit_partition_table(&mut table).unwrap();
    assert_eq!(table[0x10..], [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(vport::emit_partition_table(&mut [0; 0x13]).is_err());
}

#[test]
fn mlx5_gid_table_entry_has_the_layout_of_set_roce_address() {
    let mut input = block(0x30, &[(0, &[7, 0x61]), (8, &[0, 3])]);
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 2];
    input[0x10..0x20].copy_from_slice(&gid);
    input[0x20..0x22].copy_from_slice(&[0x10, 0x64]);
    input[0x22..0x28].copy_from_slice(&[2, 0x43, 0x57, 0, 0, 2]);
    input[0x2b] = 2;
    let address = vport::RoceAddress::parse(&input[vport::ROCE_ADDRESS..]).unwrap();
    assert_eq!((address.gid, address.mac), (gid, [2, 0x43, 0x57, 0, 0, 2]));
    assert_eq!((address.has_vlan, address.vlan), (true, 100));
    assert_eq!((address.layer3, address.version), (vport::L3_IPV4, vport::RoceVersion::V2.raw()));
    assert!(!address.is_deleted());
    let mut deleted = [0; 32];
    assert!(vport::RoceAddress::parse(&deleted).unwrap().is_deleted());
    (deleted[0x1a], deleted[0x1b]) = (1, 2);
    assert!(vport::RoceAddress::parse(&deleted).unwrap().is_deleted(), "as drivers delete");
    assert_eq!(vport::RoceAddressInput::parse(&input).unwrap().index, 3);
}

#[test]
fn mlx5_address_list_ends_with_its_count_or_its_bytes() {
    let mut context = block(0x110, &[(0xf0, &[1, 0, 0, 9])]);
    context[0x102..0x108].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    let entries: Vec<_> = vport::list_entries(&context).collect();
    assert_eq!(entries.len(), 2, "the count is larger than the list");
    let first = vport::MacEntry::parse(&entries[0]).unwrap();
    assert_eq!(first.mac, [1, 0, 0x5e, 0, 0, 1]);
    context[0xf3] = 1;
    assert_eq!(vport::list_entries(&context).count(), 1);
    assert_eq!(vport::list_entries(&context[..0xff]).count(), 0);
}

#[test]
fn mlx5_receive_table_lists_its_queues() {
    let mut context = block(0xf0 + 12, &[(0x17, &[3]), (0x1b, &[3])]);
    assert_eq!(steering::emit_table_entries(&[0x41, 0x42, 0xff00_0043], &mut context), 3);
    let queues: Vec<u32> = steering::table_entries(&context).collect();
    assert_eq!(queues, [0x41, 0x42, 0x43]);
    context[0x1a] = 0xff;
    assert_eq!(steering::table_entries(&context).count(), 3, "the list ends with its bytes");
    let key = block(0xf0, &[(0x28, &[0x6d]), (0x4f, &[0x5a])]);
    let key = steering::hash_key(&key).unwrap();
    assert_eq!((key[0], key[39]), (0x6d, 0x5a));
    assert_eq!(steering::hash_key(&[0; 0x4f]), None);
}

#[test]
fn mlx5_flow_entry_names_a_receive_interface_for_a_mac() {
    let mac = [2, 0x43, 0x57, 0, 0, 1];
    let mut input = block(
        0x350,
        &[
            (0x17, &[5]),
            (0x23, &[9]),
            (0x47, &[1]),
            (0x4f, &[4]),
            (0x53, &[1]),
            (0x88, &mac),
            (0x340, &[2, 0, 0, 0x71]),
        ],
    );
    let entry = steering::EntryInput::parse(&input).unwrap();
    assert_eq!((entry.table, entry.index, entry.group), (5, 9, 1));
    assert_eq!((entry.action, entry.outer.destination_mac), (steering::ACTION_FORWARD, mac));
    let targets: Vec<_> = steering::destinations(&input).collect();
    let interface = steering::DestinationType::ReceiveInterface.raw();
    let target = steering::Destination { destination_type: interface, number: 0x71 };
    assert_eq!(targets, [target]);
    input[0x51..0x54].copy_from_slice(&[0xff; 3]);
    assert_eq!(steering::destinations(&input).count(), 2, "the list ends with its bytes");
    input[0x50] = 0x80;
    assert_eq!(steering::destinations(&input).count(), 1, "long destinations");

    let mask = steering::MatchHeaders { destination_mac: [0xff; 6], ..Default::default() };
    let frame = steering::MatchHeaders { destination_mac: mac, vlan: 7, ..Default::default() };
    assert!(entry.outer.matches(&mask, &frame));
    let other = steering::MatchHeaders { destination_mac: [0xff; 6], ..frame };
    assert!(!entry.outer.matches(&mask, &other));
    assert!(entry.outer.matches(&Default::default(), &other), "an empty mask matches all");
}

#[test]
fn mlx5_counters_have_the_layout_of_queries() {
    let traffic = counters::Traffic { packets: 2, bytes: 0x105 };
    let output = counters::VportOutput { received_unicast: traffic, ..Default::default() };
    let output = output.to_bytes();
    assert_eq!(output[..], block(0x210, &[(0x97, &[2]), (0x9e, &[1, 5])]));
    let output = counters::QueueOutput { out_of_buffer: 3, ..Default::default() }.to_bytes();
    assert_eq!(output[..], block(0x100, &[(0x33, &[3])]));
    let input = counters::QueueInput::parse(&block(0x20, &[(0x18, &[0x80]), (0x1f, &[1])]));
    assert_eq!(input, Ok(counters::QueueInput { clears: true, set: 1 }));
}
