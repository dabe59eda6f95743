//! Extended reliable connections.

use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::work_queue::XrcReceiveQueueContext;
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode, XrcSegment};

use crate::driver::{Completions, Guest, Link, Pair, VIRTUAL, World, data, failure, success};

const USER_INDEX: u32 = 0x4321;

/// A shared receive queue of an XRC domain.
struct Queue {
    number: u32,
    ring: u64,
    record: u64,
    cq: Completions,
}

fn queue_context(guest: &mut Guest, domain: u32, cq: u32) -> (XrcReceiveQueueContext, u64) {
    let (ring, record) = (guest.allocate(4096), guest.allocate(8));
    for index in 0..8_u16 {
        guest.write(ring + u64::from(index) * 64 + 2, &((index + 1) % 8).to_be_bytes());
    }
    let context = XrcReceiveQueueContext {
        log_size: 3,
        log_stride: 2,
        xrc_domain: domain,
        completion_queue: cq,
        user_index: USER_INDEX,
        domain: guest.domain,
        doorbell_record: record,
        ..Default::default()
    };
    (context, ring)
}

fn create_queue(world: &mut World, guest: &mut Guest, domain: u32) -> Queue {
    let cq = guest.create_cq(world, 4);
    let (context, ring) = queue_context(guest, domain, cq.number);
    let opcode = Opcode::CreateXrcSharedReceiveQueue;
    let bytes = context.to_bytes();
    let number = guest.create(world, opcode, (0x10, &bytes), (0x110, &[ring])).unwrap();
    Queue { number, ring, record: context.doorbell_record, cq }
}

impl Queue {
    /// Posts the first entry.
    fn post(&self, guest: &Guest, key: u32) {
        guest.write(self.ring + 16, &data(key, VIRTUAL, 64).to_bytes());
        guest.write(self.ring + 32, &data(0x100, 0, 0).to_bytes());
        guest.write(self.record, &1_u32.to_be_bytes());
    }
}

/// Adds an initiator to a and a target to b, and the target's XRC domain with a queue.
fn connect(link: &mut Link) -> (Pair, Pair, Queue) {
    let world = &mut link.world;
    let domain = link.b.simple(world, Opcode::AllocateXrcDomain, 0).unwrap();
    let queue = create_queue(world, &mut link.b, domain);
    let service = Service::ExtendedReliableConnection;
    let mut context = link.b.qp_context(service, link.cq_b.number);
    context.has_no_send_queue = true;
    context.receive_queue_type = ReceiveQueueType::Shared.raw();
    context.shared_receive_queue = queue.number;
    context.xrc_domain = domain;
    let target = link.b.create_pair(world, context);
    let mut context = link.a.qp_context(service, link.cq_a.number);
    context.receive_queue_type = ReceiveQueueType::Shared.raw();
    context.receive_completion_queue = 0;
    let initiator = link.a.create_pair(world, context);
    link.a.connect(world, &initiator, link.b.mac, target.number);
    link.b.connect(world, &target, link.a.mac, initiator.number);
    (initiator, target, queue)
}

#[test]
fn mlx5_xrc_send_completes_with_the_number_of_the_queue() {
    let mut link = Link::new(Service::ReliableConnection);
    let (mut initiator, target, mut queue) = connect(&mut link);
    queue.post(&link.b, link.key_b);
    link.a.write(link.buffer_a, &[7; 8]);
    let (xrc, segment) = (XrcSegment { receive_queue: queue.number }, data(link.key_a, VIRTUAL, 8));
    link.a.post(&mut initiator, (SendOpcode::SendImmediate, 5), |e| e.xrc(&xrc).data(&segment));
    link.run();
    assert_eq!(success(link.a.poll_cq(&mut link.cq_a)).user_index, 0x1234);
    let entry = success(link.b.poll_cq(&mut queue.cq));
    assert_eq!((entry.user_index, entry.queue), (USER_INDEX, target.number));
    assert_eq!((entry.bytes, entry.immediate), (8, 5));
    assert_eq!(entry.source_queue_pair, initiator.number);
    assert_eq!(link.b.read(link.buffer_b, 8), [7; 8]);
    assert!(link.b.poll_cq(&mut link.cq_b).is_none());
}

#[test]
fn mlx5_xrc_write_names_a_queue_too() {
    let mut link = Link::new(Service::ReliableConnection);
    let (mut initiator, _, queue) = connect(&mut link);
    link.a.write(link.buffer_a, &[9; 8]);
    let to = RemoteAddressSegment { address: VIRTUAL + 100, key: link.key_b };
    let segment = data(link.key_a, VIRTUAL, 8);
    for (number, succeeds) in [(queue.number, true), (queue.number + 1, false)] {
        let xrc = XrcSegment { receive_queue: number };
        let build = (SendOpcode::Write, 0);
        link.a.post(&mut initiator, build, |e| e.xrc(&xrc).remote(&to).data(&segment));
        link.run();
        match link.a.poll_cq(&mut link.cq_a) {
            entry if succeeds => drop(success(entry)),
            entry => assert_eq!(failure(entry).syndrome, 0x12),
        }
    }
    assert_eq!(link.b.read(link.buffer_b + 100, 8), [9; 8]);
}

#[test]
fn mlx5_xrc_domain_in_use_is_not_destroyed() {
    let mut link = Link::new(Service::ReliableConnection);
    let (_, target, queue) = connect(&mut link);
    let domain = target.context.xrc_domain;
    let (world, b) = (&mut link.world, &link.b);
    let mut close = |opcode, number| b.simple(world, opcode, number).map(drop);
    let busy = Err(Status::BadResourceState);
    assert_eq!(close(Opcode::DeallocateXrcDomain, domain), busy);
    assert_eq!(close(Opcode::DestroyCompletionQueue, queue.cq.number), busy);
    close(Opcode::DestroyQueuePair, target.number).unwrap();
    assert_eq!(close(Opcode::DeallocateXrcDomain, domain), busy);
    close(Opcode::DestroyXrcSharedReceiveQueue, queue.number).unwrap();
    close(Opcode::DestroyCompletionQueue, queue.cq.number).unwrap();
    close(Opcode::DeallocateXrcDomain, domain).unwrap();
    assert_eq!(close(Opcode::DeallocateXrcDomain, domain), Err(Status::BadResource));
}

#[test]
fn mlx5_xrc_queue_and_target_need_their_domain() {
    let mut link = Link::new(Service::ReliableConnection);
    let world = &mut link.world;
    let cq = link.b.create_cq(world, 4);
    let domain = link.b.simple(world, Opcode::AllocateXrcDomain, 0).unwrap();
    let opcode = Opcode::CreateXrcSharedReceiveQueue;
    for (domain, cq) in [(domain + 1, cq.number), (domain, cq.number + 1)] {
        let (context, ring) = queue_context(&mut link.b, domain, cq);
        let bytes = context.to_bytes();
        let result = link.b.create(world, opcode, (0x10, &bytes), (0x110, &[ring]));
        assert_eq!(result, Err(Status::BadResource));
    }
    let mut context = link.b.qp_context(Service::ExtendedReliableConnection, cq.number);
    context.has_no_send_queue = true;
    context.receive_queue_type = ReceiveQueueType::None.raw();
    context.xrc_domain = domain + 1;
    let bytes = context.to_bytes();
    let result = link.b.create(world, Opcode::CreateQueuePair, (0x18, &bytes), (0x110, &[]));
    assert_eq!(result, Err(Status::BadResource));
}
