//! The driver's start: versions, capabilities, trivial objects, event queues.

use causeway_mlx5::table::{CommandSupport, support};
use causeway_wire::mlx5::capability::{
    Atomic, Ethernet, FLOW_TABLE_RECEIVE, FLOW_TABLE_TRANSMIT, FlowTable, General, Group,
    OUTPUT_OFFSET, Roce,
};
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::startup::{AdapterOutput, IssiOutput, SpecialContextsOutput};
use causeway_wire::mlx5::vport::{MODIFY_NIC_CONTEXT, NicVportContext, RoceAddress, select};

use crate::driver::{BASE, World};

fn capabilities(world: &mut World, group: Group) -> Vec<u8> {
    let guest = world.plug(9);
    let input = InputHeader {
        modifier: group.modifier(true),
        ..InputHeader::new(Opcode::QueryHcaCapabilities, 0)
    };
    guest.try_command(world, &input.to_bytes(), 16 + 4096).unwrap()[OUTPUT_OFFSET..].to_vec()
}

#[test]
fn mlx5_start_reports_versions_and_no_pages() {
    let mut world = World::new();
    let guest = world.plug(1);
    guest.simple(&mut world, Opcode::EnableHca, 0).unwrap();
    let input = InputHeader::new(Opcode::QueryIssi, 0).to_bytes();
    let output = guest.try_command(&mut world, &input, 0x70).unwrap();
    assert_eq!(IssiOutput::parse(&output).unwrap().supported, 2);
    let input = InputHeader { argument: 0, number: 1, ..InputHeader::new(Opcode::SetIssi, 1) };
    guest.try_command(&mut world, &input.to_bytes(), 16).unwrap();
    let input = InputHeader::new(Opcode::QueryPages, 0).to_bytes();
    assert_eq!(guest.try_command(&mut world, &input, 16).unwrap()[12..], [0; 4]);
    let input = InputHeader::new(Opcode::QueryAdapter, 0).to_bytes();
    let output = guest.try_command(&mut world, &input, 0x110).unwrap();
    assert_eq!(AdapterOutput::parse(&output).unwrap().vendor, 0x2c9);
    let input = InputHeader::new(Opcode::QuerySpecialContexts, 0).to_bytes();
    let output = guest.try_command(&mut world, &input, 0x20).unwrap();
    assert_eq!(SpecialContextsOutput::parse(&output).unwrap().reserved_key, 0x100);
}

#[test]
fn mlx5_start_reports_the_capabilities_of_the_configuration() {
    let mut world = World::new();
    let general = General::parse(&capabilities(&mut world, Group::General)).unwrap();
    // The configuration of these tests has 256 queue pairs.
    assert_eq!((general.log_max_queue_pairs, general.log_max_memory_keys), (8, 10));
    assert_eq!(general.log_max_queue_pair_size, 15);
    assert!(general.has_no_page_requests && general.has_extended_connection);
    let mut world = World::new();
    let ethernet = Ethernet::parse(&capabilities(&mut world, Group::Ethernet)).unwrap();
    assert_eq!(ethernet, Ethernet::FUNCTION);
    let mut world = World::new();
    let atomic = Atomic::parse(&capabilities(&mut world, Group::Atomic)).unwrap();
    assert_eq!(atomic, Atomic::FUNCTION);
    let mut world = World::new();
    assert_eq!(Roce::parse(&capabilities(&mut world, Group::Roce)).unwrap(), Roce::FUNCTION);
    let mut world = World::new();
    let block = capabilities(&mut world, Group::FlowTable);
    assert_eq!(FlowTable::parse(&block[FLOW_TABLE_RECEIVE..]).unwrap(), FlowTable::FUNCTION);
    assert!(!FlowTable::parse(&block[FLOW_TABLE_TRANSMIT..]).unwrap().is_supported);
}

#[test]
fn mlx5_start_hands_out_distinct_doorbell_pages() {
    let mut world = World::new();
    let guest = world.start(1);
    let first = guest.uar;
    let second = guest.simple(&mut world, Opcode::AllocateUar, 0).unwrap();
    assert!(first >= 16 && second != first);
    guest.simple(&mut world, Opcode::DeallocateUar, second).unwrap();
    let again = guest.simple(&mut world, Opcode::DeallocateUar, second);
    assert_eq!(again, Err(Status::BadResource));
    // The BAR of these tests has 256 pages.
    let mut count = 0;
    while guest.simple(&mut world, Opcode::AllocateUar, 0).is_ok() {
        count += 1;
    }
    assert_eq!(count, 256 - 16 - 1);
}

#[test]
fn mlx5_commands_report_to_their_event_queue_after_its_creation() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let mut ring = guest.command_events;
    // The creation itself was polled for; the two further event queues were reported.
    let events = guest.take_events(&mut ring);
    assert_eq!(events, [Event::Command { entries: 1 }; 2]);
    guest.simple(&mut world, Opcode::Nop, 0).unwrap();
    assert_eq!(guest.take_events(&mut ring), [Event::Command { entries: 1 }]);
    let vectors: Vec<u16> = world.function(&guest).take_interrupts().collect();
    assert_eq!(vectors, [0]);
    assert_eq!(world.function(&guest).take_interrupts().count(), 0);
    // No bit of a number is dropped.
    let high = guest.simple(&mut world, Opcode::DestroyEventQueue, ring.number | 0x100);
    assert_eq!(high, Err(Status::BadResource));
    assert_eq!(guest.take_events(&mut ring), [Event::Command { entries: 1 }]);
    guest.simple(&mut world, Opcode::DestroyEventQueue, ring.number).unwrap();
    guest.command_events = ring;
    assert!(guest.take_events(&mut ring).is_empty());
}

#[test]
fn mlx5_commands_with_unknown_opcode_are_refused_and_counted() {
    let mut world = World::new();
    let guest = world.start(1);
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0xbad_u16.to_be_bytes());
    assert_eq!(guest.try_command(&mut world, &input, 16), Err(Status::BadOperation));
    let xrq = InputHeader::new(Opcode::CreateSignatureVariables, 0).to_bytes();
    assert_eq!(guest.try_command(&mut world, &xrq, 16), Err(Status::BadOperation));
    assert_eq!(support(Opcode::CreateSignatureVariables), CommandSupport::Refused);
    assert_eq!(support(Opcode::CreateQueuePair), CommandSupport::Performed);
    assert_eq!(support(Opcode::InitHca), CommandSupport::Accepted);
    assert_eq!(world.function(&guest).counters().unknown_commands, 2);
}

#[test]
fn mlx5_commands_with_a_short_output_are_answered() {
    let mut world = World::new();
    let guest = world.plug(1);
    // Linux asks for 12 bytes.
    let input = InputHeader::new(Opcode::EnableHca, 0).to_bytes();
    let (output, delivery) = guest.command(&mut world, &input, 12);
    assert_eq!((output[0], delivery), (0, 0));
}

#[test]
fn mlx5_teardown_removes_all_objects() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 4);
    guest.simple(&mut world, Opcode::TeardownHca, 0).unwrap();
    let destroy = guest.simple(&mut world, Opcode::DestroyCompletionQueue, cq.number);
    assert_eq!(destroy, Err(Status::BadResource));
    assert_eq!(guest.simple(&mut world, Opcode::AllocateUar, 0), Ok(16));
}

#[test]
fn mlx5_vport_returns_the_mtu_that_the_driver_wrote() {
    let mut world = World::new();
    let guest = world.start(1);
    let query = InputHeader::new(Opcode::QueryNicVportContext, 0).to_bytes();
    let output = guest.try_command(&mut world, &query, 0x110).unwrap();
    let context = NicVportContext::parse(&output[16..]).unwrap();
    assert_eq!((context.mtu, context.permanent_mac), (1522, guest.mac));
    let set = |mtu| {
        let header = InputHeader {
            argument: select::MTU,
            ..InputHeader::new(Opcode::ModifyNicVportContext, 0)
        };
        let mut input = vec![0; MODIFY_NIC_CONTEXT + 0x100];
        input[..16].copy_from_slice(&header.to_bytes());
        let context = NicVportContext { mtu, ..Default::default() };
        context.emit(&mut input[MODIFY_NIC_CONTEXT..]).unwrap();
        input
    };
    guest.try_command(&mut world, &set(9022), 16).unwrap();
    let output = guest.try_command(&mut world, &query, 0x110).unwrap();
    assert_eq!(NicVportContext::parse(&output[16..]).unwrap().mtu, 9022);
    // 9000 is the largest MTU of the configuration.
    let refused = guest.try_command(&mut world, &set(9023), 16);
    assert_eq!(refused, Err(Status::BadParameter));
}

#[test]
fn mlx5_gid_table_keeps_256_entries() {
    let mut world = World::new();
    let guest = world.start(1);
    let address = RoceAddress { gid: [5; 16], mac: guest.mac, version: 2, ..Default::default() };
    let other = RoceAddress { mac: [2; 6], ..address };
    let set_to = |index: u16, address: &RoceAddress| {
        let mut input = vec![0; 0x30];
        input[..2].copy_from_slice(&Opcode::SetRoceAddress.raw().to_be_bytes());
        input[8..10].copy_from_slice(&index.to_be_bytes());
        input[0x10..].copy_from_slice(&address.to_bytes());
        input
    };
    let set = |index: u16| set_to(index, &address);
    guest.try_command(&mut world, &set(255), 16).unwrap();
    // Only the operator assigns Ethernet addresses.
    let refused = guest.try_command(&mut world, &set_to(255, &other), 16);
    assert_eq!(refused, Err(Status::BadParameter));
    guest.try_command(&mut world, &set_to(254, &RoceAddress::default()), 16).unwrap();
    assert_eq!(guest.try_command(&mut world, &set(256), 16), Err(Status::BadIndex));
    let mut query = set(255)[..16].to_vec();
    query[..2].copy_from_slice(&Opcode::QueryRoceAddress.raw().to_be_bytes());
    let output = guest.try_command(&mut world, &query, 0x30).unwrap();
    assert_eq!(RoceAddress::parse(&output[0x10..]).unwrap(), address);
}

#[test]
fn mlx5_registers_of_the_port_report_an_active_link() {
    let mut world = World::new();
    let guest = world.start(1);
    let mut input = vec![0; 0x50];
    input[..2].copy_from_slice(&Opcode::AccessRegister.raw().to_be_bytes());
    input[7] = 1;
    input[10..12].copy_from_slice(&0x5004_u16.to_be_bytes());
    let output = guest.try_command(&mut world, &input, 0x50).unwrap();
    assert_eq!(output[0x10 + 0x24..][..4], (1_u32 << 23).to_be_bytes());
    input[10..12].copy_from_slice(&0x5003_u16.to_be_bytes());
    let output = guest.try_command(&mut world, &input, 0x20).unwrap();
    assert_eq!(output[0x14..0x16], 9022_u16.to_be_bytes());
}

#[test]
fn mlx5_memory_that_is_revoked_ends_commands_silently() {
    let mut world = World::new();
    let guest = world.start(1);
    let entry = guest.place_command(3, &InputHeader::new(Opcode::Nop, 0).to_bytes(), 16);
    world.function(&guest).set_map(Default::default());
    guest.registers.write(0, 0x18, &8_u32.to_be_bytes());
    assert_eq!(causeway_mlx5::run_commands(&mut world.subnet, guest.adapter, 8).commands, 0);
    assert_eq!(guest.read(entry + 0x3f, 1), [1]);
    assert!(entry > BASE);
}
