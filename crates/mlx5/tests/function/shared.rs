//! Shared receive queues.

use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::event_queue::{Event, EventType};
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::work_queue::{ReceivePoolContext, WorkQueue};
use causeway_wire::mlx5::work_request::SendOpcode;

use crate::driver::{Completions, Guest, Link, Pair, VIRTUAL, World, data, success};

const ENTRIES: u16 = 8;

struct Shared {
    number: u32,
    ring: u64,
    record: u64,
    posted: u16,
}

fn create(world: &mut World, guest: &mut Guest) -> Shared {
    let (ring, record) = (guest.allocate(4096), guest.allocate(8));
    for index in 0..ENTRIES {
        // The list is in reverse order: 0, 7, 6, ...
        let next = (index + ENTRIES - 1) % ENTRIES;
        guest.write(ring + u64::from(index) * 64 + 2, &next.to_be_bytes());
    }
    let queue = WorkQueue {
        domain: guest.domain,
        doorbell_record: record,
        log_stride: 6,
        log_size: 3,
        ..Default::default()
    };
    let context = ReceivePoolContext { queue, ..Default::default() }.to_bytes();
    let opcode = Opcode::CreateReceivePool;
    let number = guest.create(world, opcode, (0x20, &context), (0x110, &[ring])).unwrap();
    Shared { number, ring, record, posted: 0 }
}

impl Shared {
    fn post(&mut self, guest: &Guest, index: u16, key: u32) {
        let at = self.ring + u64::from(index) * 64 + 16;
        let address = VIRTUAL + u64::from(index) * 256;
        guest.write(at, &data(key, address, 64).to_bytes());
        guest.write(at + 16, &data(0x100, 0, 0).to_bytes());
        self.posted += 1;
        guest.write(self.record, &u32::from(self.posted).to_be_bytes());
    }
}

/// Adds a queue pair to b that receives from a shared queue, and its peer to a.
fn connect(link: &mut Link, shared: u32) -> (Pair, Pair, Completions) {
    let cq = link.b.create_cq(&mut link.world, 5);
    let mut context = link.b.qp_context(Service::ReliableConnection, cq.number);
    context.receive_queue_type = ReceiveQueueType::Shared.raw();
    context.shared_receive_queue = shared;
    let receiver = link.b.create_pair(&mut link.world, context);
    let context = link.a.qp_context(Service::ReliableConnection, link.cq_a.number);
    let sender = link.a.create_pair(&mut link.world, context);
    link.a.connect(&mut link.world, &sender, link.b.mac, receiver.number);
    link.b.connect(&mut link.world, &receiver, link.a.mac, sender.number);
    (sender, receiver, cq)
}

#[test]
fn mlx5_shared_queue_follows_links_and_reports_indices() {
    let mut link = Link::new(Service::ReliableConnection);
    let mut shared = create(&mut link.world, &mut link.b);
    let (mut sender, receiver, mut cq) = connect(&mut link, shared.number);
    for index in [0, 7, 6] {
        shared.post(&link.b, index, link.key_b);
    }
    let segment = data(link.key_a, VIRTUAL, 8);
    for index in [0_u16, 7, 6] {
        link.a.write(link.buffer_a, &[index as u8; 8]);
        link.a.post(&mut sender, (SendOpcode::Send, 0), |e| e.data(&segment));
        link.run();
        let entry = success(link.b.poll_cq(&mut cq));
        assert_eq!((entry.counter, entry.queue), (index, receiver.number));
        assert_eq!(entry.user_index, 0x1234);
        let at = link.buffer_b + u64::from(index) * 256;
        assert_eq!(link.b.read(at, 8), [index as u8; 8]);
    }
    let busy = link.b.simple(&mut link.world, Opcode::DestroyReceivePool, shared.number);
    assert_eq!(busy, Err(Status::BadResourceState));
}

#[test]
fn mlx5_shared_queue_reports_its_limit_once() {
    let mut link = Link::new(Service::ReliableConnection);
    let mut shared = create(&mut link.world, &mut link.b);
    let (mut sender, ..) = connect(&mut link, shared.number);
    for index in [0, 7, 6, 5] {
        shared.post(&link.b, index, link.key_b);
    }
    let arm = InputHeader {
        argument: 3,
        ..InputHeader::new(Opcode::ArmSharedReceiveQueue, shared.number)
    };
    link.b.try_command(&mut link.world, &arm.to_bytes(), 16).unwrap();
    let mut ring = link.b.async_events;
    assert!(link.b.take_events(&mut ring).is_empty());
    let segment = data(link.key_a, VIRTUAL, 8);
    for _ in 0..3 {
        link.a.post(&mut sender, (SendOpcode::Send, 0), |e| e.data(&segment));
        link.run();
    }
    let expected = Event::Queue {
        event_type: EventType::SharedReceiveQueueLimit,
        queue_type: 0,
        number: shared.number,
    };
    assert_eq!(link.b.take_events(&mut ring), [expected]);
}

#[test]
fn mlx5_shared_queue_with_a_link_outside_is_broken() {
    let mut link = Link::new(Service::ReliableConnection);
    let mut shared = create(&mut link.world, &mut link.b);
    let (mut sender, ..) = connect(&mut link, shared.number);
    shared.post(&link.b, 0, link.key_b);
    link.b.write(shared.ring + 2, &0xffff_u16.to_be_bytes());
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut sender, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    assert!(link.world.function(&link.b).counters().malformed_entries > 0);
}
