//! Properties of every layout and of every list of codes.

use std::collections::HashSet;
use std::fmt::Debug;

use crate::Truncated;
use crate::mlx5::{
    capability as cap, command as cmd, completion_queue as cq, counters, event_queue as eq,
    memory_key as key, queue_pair as qp, registers as reg, startup, steering as steer, vport,
    work_queue as wq, work_request as wr,
};

/// Bytes without a pattern, from a seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn check<T: PartialEq + Debug>(
    len: usize,
    bits: usize,
    parse: fn(&[u8]) -> Result<T, Truncated>,
    emit: fn(&T, &mut [u8]) -> Result<(), Truncated>,
) {
    // Fields do not overlap, and each is inside of the format.
    let ones = parse(&vec![0xff; len]).unwrap();
    let mut bytes = vec![0; len];
    emit(&ones, &mut bytes).unwrap();
    let set: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(set as usize, bits, "{ones:?}");

    for seed in 0..20 {
        let from = noise(seed, len + 3);
        let value = parse(&from).unwrap();
        let (mut zeroes, mut others) = (vec![0; len], vec![0xff; len + 3]);
        emit(&value, &mut zeroes).unwrap();
        emit(&value, &mut others).unwrap();
        assert_eq!(parse(&zeroes).unwrap(), value);
        assert_eq!(parse(&others).unwrap(), value);
        assert_eq!(others[len..], [0xff; 3], "bytes behind the format are changed");
        let reserved: u32 = zeroes.iter().zip(&others).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(reserved as usize, len * 8 - bits, "reserved bits are changed");
    }

    for short in 0..len {
        let mut bytes = vec![0x55; short];
        assert_eq!(parse(&bytes).unwrap_err().need, len);
        assert_eq!(emit(&ones, &mut bytes).unwrap_err().have, short);
        assert!(bytes.iter().all(|byte| *byte == 0x55), "a failed emit writes");
    }
}

macro_rules! check_all {
    ($($name:ty),* $(,)?) => {
        $(check(<$name>::LEN, <$name>::BITS, <$name>::parse, <$name>::emit);
        assert_eq!(<$name>::default().to_bytes().len(), <$name>::LEN);)*
    };
}

#[test]
fn mlx5_layouts_of_commands_survive_parse_and_emit() {
    check_all!(
        cmd::QueueEntry,
        cmd::MailboxTrailer,
        cmd::InputHeader,
        cmd::OutputHeader,
        startup::IssiOutput,
        startup::IssiInput,
        startup::AdapterOutput,
        startup::PagesOutput,
        startup::SpecialContextsOutput,
        cap::General,
        cap::Ethernet,
        cap::Atomic,
        cap::Roce,
        cap::FlowTable,
        reg::AccessInput,
        reg::PortType,
        reg::PortMtu,
        reg::PortLanes,
        reg::PortState,
        vport::NicVportContext,
        vport::MacEntry,
        vport::VlanEntry,
        vport::QueryNicInput,
        vport::VportStateOutput,
        vport::RoceAddress,
        vport::RoceAddressInput,
        vport::HcaVportContext,
        counters::Traffic,
        counters::VportInput,
        counters::VportOutput,
        counters::QueueInput,
        counters::QueueOutput,
        steer::ReceiveInterface,
        steer::SendInterface,
        steer::ReceiveQueueTable,
        steer::TableInput,
        steer::TableReference,
        steer::GroupInput,
        steer::MatchHeaders,
        steer::EntryInput,
        steer::Destination,
    );
}

#[test]
fn mlx5_layouts_of_queues_survive_parse_and_emit() {
    check_all!(
        eq::EventQueueContext,
        eq::EventEntry,
        eq::EventDoorbell,
        cq::CompletionQueueContext,
        cq::CompletionEntry,
        cq::ErrorEntry,
        cq::ArmWord,
        cq::DoorbellRecord,
        cq::ArmDoorbell,
        key::MemoryKeyContext,
        key::RangeEntry,
        key::UpdateControl,
        qp::AddressPath,
        qp::QueuePairContext,
        qp::DoorbellRecord,
        wq::WorkQueue,
        wq::SendQueueContext,
        wq::ReceiveQueueContext,
        wq::ReceivePoolContext,
        wq::XrcReceiveQueueContext,
        wq::NextSegment,
        wq::ArmInput,
        wr::ControlSegment,
        wr::DatagramSegment,
        wr::RemoteAddressSegment,
        wr::AtomicSegment,
        wr::AtomicMaskSegment,
        wr::XrcSegment,
        wr::DataSegment,
        wr::EthernetSegment,
    );
}

macro_rules! check_codes {
    ($($name:ty),* $(,)?) => {
        $(let raw: HashSet<_> = <$name>::ALL.iter().map(|code| code.raw()).collect();
        assert_eq!(raw.len(), <$name>::ALL.len());
        for code in <$name>::ALL {
            assert_eq!(<$name>::from_raw(code.raw()), Some(*code));
            assert!(!code.to_string().is_empty());
        })*
    };
}

#[test]
fn mlx5_codes_survive_both_conversions() {
    check_codes!(
        cmd::Opcode,
        cmd::Status,
        cmd::DeliveryStatus,
        cap::Group,
        eq::EventType,
        eq::PortChange,
        eq::CompletionQueueFault,
        cq::CompletionOpcode,
        cq::Syndrome,
        key::AccessMode,
        qp::Service,
        qp::State,
        qp::ReceiveQueueType,
        qp::PathMtu,
        wq::WorkQueueType,
        wq::QueueState,
        wr::SendOpcode,
        vport::ListType,
        vport::RoceVersion,
        steer::Dispatch,
        steer::HashFunction,
        steer::TableType,
        steer::DestinationType,
    );
    assert_eq!(cmd::Opcode::from_raw(0), None);
    assert_eq!(cmd::Opcode::from_raw(0xa04), None, "CREATE_UCTX is not offered");
    assert_eq!(cmd::Opcode::ToError.as_str(), "2ERR_QP");
}

#[test]
fn mlx5_events_survive_parse_and_emit() {
    use eq::{CompletionQueueFault, Event, EventType, PortChange};

    let queues = EventType::ALL.iter().filter(|kind| kind.has_queue());
    let queues = queues.map(|kind| Event::Queue { event_type: *kind, queue_type: 1, number: 0xfe });
    let others = [
        Event::Completion { completion_queue: 0xab_cdef },
        Event::CompletionQueueError {
            completion_queue: 0x12_3456,
            fault: CompletionQueueFault::Overrun,
        },
        Event::Port { change: PortChange::Active, port: 1 },
        Event::Command { entries: 0x8000_0001 },
        Event::NicVport { vport: 7 },
    ];
    for event in queues.chain(others) {
        for owner in [false, true] {
            assert_eq!(Event::parse(&event.to_bytes(owner)), Ok((Some(event), owner)));
        }
    }
    assert_eq!(Event::parse(&[0xee; 64]), Ok((None, false)), "unknown types are no event");
    assert!(Event::parse(&[0; 63]).is_err());
}

#[test]
fn mlx5_completion_entry_opcode_selects_its_kind() {
    let success = cq::Entry::Success(cq::CompletionEntry {
        bytes: 4096,
        queue: 0x55,
        counter: 9,
        opcode: cq::CompletionOpcode::ReceiveSend.raw(),
        owner: true,
        ..Default::default()
    });
    let error = cq::Entry::Error(cq::ErrorEntry {
        syndrome: cq::Syndrome::Flushed.raw(),
        queue: 0x55,
        counter: 9,
        opcode: cq::CompletionOpcode::ResponderError.raw(),
        owner: true,
        ..Default::default()
    });
    for entry in [success, error] {
        assert_eq!(cq::Entry::parse(&entry.to_bytes()), Ok(entry));
        assert!(entry.owner());
    }
    assert!(cq::Entry::parse(&[0; 63]).is_err());
}
