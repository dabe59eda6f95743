//! Mechanisms of VMM-bypass I/O that no other test of the function states: shares of queue pairs,
//! keys and registered memory of a guest, and keys of all memory.
//!
//! `docs/design/rdma.md` lists all mechanisms with their tests.

use causeway_mlx5::limits::SLICE_MESSAGES;
use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::completion_queue::Syndrome;
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{BUFFER, Guest, Link, VIRTUAL, World, data, failure, success};

/// Binary logarithm of the page length of the large regions.
const LOG_PAGE: u8 = 20;

/// M2, M3: a key names memory of its own adapter alone. The other guest has a region at the same
/// address.
#[test]
fn mlx5_key_of_another_guest_names_no_memory() {
    let mut link = Link::new(Service::ReliableConnection);
    link.a.write(link.buffer_a, b"from a");
    // A further region of b: no region of a has its number.
    let buffer = link.b.allocate(BUFFER);
    let foreign = link.b.register(&mut link.world, VIRTUAL, buffer, BUFFER);
    let to = RemoteAddressSegment { address: VIRTUAL, key: foreign };
    let from = data(link.key_a, VIRTUAL, 6);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(buffer, 6), b"from a");
    assert_eq!(link.b.read(link.buffer_b, 6), [0; 6]);
    let from = data(foreign, VIRTUAL, 6);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.run();
    let refused = failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(refused.syndrome, Syndrome::LocalProtection.raw());
}

/// Registers `mib` MiB, each of which is the same memory. Returns the key.
fn register(world: &mut World, guest: &Guest, mib: u64) -> Result<u32, Status> {
    let context = MemoryKeyContext {
        access_mode: 1,
        local_read: true,
        queue_pair: 0xff_ffff,
        domain: guest.domain,
        start: 0,
        len: mib << LOG_PAGE,
        log_page_size: LOG_PAGE,
        ..Default::default()
    };
    guest.create_key(world, &context, &vec![crate::driver::BASE; mib as usize])
}

/// M5: registered memory has a limit, which fails further registrations of the same guest only.
#[test]
fn mlx5_registered_bytes_are_limited_for_each_guest() {
    let mut world = World::new();
    let (a, b) = (world.start(1), world.start(2));
    let most = world.function(&a).config().registered_bytes_max >> LOG_PAGE;
    let half = register(&mut world, &a, most / 2).unwrap();
    assert_eq!(register(&mut world, &a, most / 2 + 1), Err(Status::ExceededLimit));
    register(&mut world, &a, most - most / 2).unwrap();
    assert_eq!(register(&mut world, &a, 1), Err(Status::ExceededLimit));
    register(&mut world, &b, most).unwrap();
    a.simple(&mut world, Opcode::DestroyMemoryKey, half >> 8).unwrap();
    register(&mut world, &a, 1).unwrap();
}

/// M4, M12: a key of all memory reaches the memory that is granted, and ends with the grant.
#[test]
fn mlx5_key_of_all_memory_ends_with_the_grant() {
    let mut link = Link::new(Service::ReliableConnection);
    let whole = MemoryKeyContext {
        local_read: true,
        queue_pair: 0xff_ffff,
        is_unlimited: true,
        domain: link.a.domain,
        ..Default::default()
    };
    let key = link.a.create_key(&mut link.world, &whole, &[]).unwrap();
    link.a.write(link.buffer_a, b"granted");
    let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_b };
    let from = data(key, link.buffer_a, 7);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(link.buffer_b, 7), b"granted");
    link.b.write(link.buffer_b, &[0; 7]);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.world.function(&link.a).set_map(Default::default());
    link.run();
    assert_eq!(link.b.read(link.buffer_b, 7), [0; 7]);
    // The key does not come back to life for memory that is granted later: the queue pair failed.
    let map = std::sync::Arc::clone(&link.a.map);
    link.world.function(&link.a).set_map(map);
    link.run();
    assert_eq!(link.b.read(link.buffer_b, 7), [0; 7]);
}

/// M13: a queue pair with a flood of messages leaves another queue pair its share of a pass.
#[test]
fn mlx5_flood_on_a_queue_pair_leaves_others_their_share() {
    let mut link = Link::new(Service::ReliableConnection);
    let completions = link.a.create_cq(&mut link.world, 8);
    let context = link.a.qp_context(Service::ReliableConnection, completions.number);
    let context = QueuePairContext { log_send_size: 8, ..context };
    let mut flood = link.a.create_pair(&mut link.world, context);
    link.a.connect(&mut link.world, &flood, link.a.mac, flood.number);
    let cq = link.a.create_cq(&mut link.world, 4);
    let context = link.a.qp_context(Service::ReliableConnection, cq.number);
    let mut other = link.a.create_pair(&mut link.world, context);
    link.a.connect(&mut link.world, &other, link.a.mac, other.number);
    let (mut cq, key) = (cq, link.key_a);
    let to = RemoteAddressSegment { address: VIRTUAL, key };
    let from = data(key, VIRTUAL, BUFFER as u32);
    for _ in 0..2 * SLICE_MESSAGES {
        link.a.post(&mut flood, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    }
    link.a.post(&mut other, (SendOpcode::Nop, 0), |entry| entry);
    // A budget for a quarter of the flood.
    let mut budget = Budget::new(1000, u64::from(SLICE_MESSAGES) / 2 * BUFFER);
    poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget);
    success(link.a.poll_cq(&mut cq));
}
