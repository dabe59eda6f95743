//! Kinds of faults that another emulation of an RDMA adapter had (QEMU's `pvrdma`), one test each.
//!
//! Each test's doc names the fault and its kind; the tests are written for this function.

use causeway_mlx5::limits::{COMPLETION_QUEUE_LOG_MAX, QUEUE_PAGES_MAX};
use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::completion_queue::Syndrome;
use causeway_wire::mlx5::event_queue::EventQueueContext;
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_queue::{
    ReceivePoolContext, ReceiveQueueContext, SendQueueContext, WorkQueue,
};
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{BASE, BUFFER, Completions, Guest, Link, MEMORY, PAGE, Pair, VIRTUAL, World};
use crate::driver::{data, failure, success};

/// Length of a message that takes several steps, in bytes.
const LONG: u64 = 1 << 20;

/// Returns a key for all memory of the guest.
fn key_of_all_memory(world: &mut World, guest: &Guest) -> u32 {
    let context = MemoryKeyContext {
        local_read: true,
        local_write: true,
        queue_pair: 0xff_ffff,
        is_unlimited: true,
        domain: guest.domain,
        ..Default::default()
    };
    guest.create_key(world, &context, &[]).unwrap()
}

/// Creates a completion queue of `1 << log` entries with the given pages.
fn create_cq(world: &mut World, guest: &mut Guest, log: u8, pages: &[u64]) -> Result<u32, Status> {
    let (mut context, _) = guest.cq_context(4);
    context.log_size = log;
    let opcode = Opcode::CreateCompletionQueue;
    guest.create(world, opcode, (0x10, &context.to_bytes()), (0x110, pages))
}

/// CVE-2018-20123: resources of a creation that fails are not released.
#[test]
fn mlx5_leak_on_error_is_absent() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 4);
    // Each refused queue has so many pages that a leak of 32 of them exhausts the quota.
    let log = COMPLETION_QUEUE_LOG_MAX - 4;
    let pages = vec![BASE; (64_usize << log) / PAGE as usize];
    let leaks = 33 * (QUEUE_PAGES_MAX as usize / pages.len() / 32);
    let (mut context, _) = guest.cq_context(4);
    (context.log_size, context.event_queue) = (log, 77);
    let bytes = context.to_bytes();
    for _ in 0..leaks {
        let opcode = Opcode::CreateCompletionQueue;
        let refused = guest.create(&mut world, opcode, (0x10, &bytes), (0x110, &pages));
        assert_eq!(refused, Err(Status::BadResource));
    }
    // A queue pair beyond the limit leaves its completion queue unused.
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let opcode = Opcode::CreateQueuePair;
    let at = (0x18, &context.to_bytes()[..]);
    let mut pairs = Vec::new();
    let refused = loop {
        match guest.create(&mut world, opcode, at, (0x110, &[BASE])) {
            Ok(number) => pairs.push(number),
            Err(status) => break status,
        }
    };
    assert_eq!((refused, pairs.len()), (Status::ExceededLimit, 256));
    for number in pairs {
        guest.simple(&mut world, Opcode::DestroyQueuePair, number).unwrap();
    }
    guest.simple(&mut world, Opcode::DestroyCompletionQueue, cq.number).unwrap();
    create_cq(&mut world, &mut guest, log, &pages).unwrap();
}

/// CVE-2018-20124: the number and lengths of scatter-gather elements are not bounded.
#[test]
fn mlx5_overflow_of_element_lengths_is_refused() {
    let mut link = Link::new(Service::ReliableConnection);
    let all = key_of_all_memory(&mut link.world, &link.a);
    let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_b };
    let before = link.b.read(link.buffer_b, 64);
    // Two elements of 2^31 bytes and one of 8: the sum modulo 2^32 is 8.
    let elements = [data(all, BASE, 0), data(all, BASE, 0), data(all, BASE, 8)];
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |entry| {
        elements.iter().fold(entry.remote(&to), |entry, element| entry.data(element))
    });
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(link.buffer_b, 64), before);
    // As many elements as an entry of the largest length has.
    let mut link = Link::new(Service::ReliableConnection);
    let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_b };
    let element = data(link.key_a, VIRTUAL, 1);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |entry| {
        (0..60).fold(entry.remote(&to), |entry, _| entry.data(&element))
    });
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    // The receiver's second element begins at the end of its memory, and is 2^31 bytes long.
    let mut link = Link::new(Service::ReliableConnection);
    let edge = link.b.allocate(PAGE);
    let (small, long) = (data(link.key_b, VIRTUAL, 4), data(link.key_b, VIRTUAL + BUFFER - 8, 0));
    link.b.post_receive(&mut link.qp_b, &[small, long]);
    let segment = data(link.key_a, VIRTUAL, 64);
    link.a.write(link.buffer_a, &[1; 64]);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(edge, PAGE as usize), [0; PAGE as usize]);
}

/// CVE-2021-3582: the length of a registration is not compared with its pages.
#[test]
fn mlx5_registration_longer_than_its_pages_reaches_no_further() {
    let context = MemoryKeyContext {
        access_mode: 1,
        has_update: true,
        remote_write: true,
        local_write: true,
        local_read: true,
        queue_pair: 0xff_ffff,
        start: VIRTUAL + 16,
        list_size: 8,
        log_page_size: 12,
        ..Default::default()
    };
    for len in [PAGE, 16 * PAGE, 1 << 40, u64::MAX - VIRTUAL - 16, u64::MAX] {
        for address in [VIRTUAL + 2 * PAGE, VIRTUAL + 2 * PAGE - 4] {
            let mut link = Link::new(Service::ReliableConnection);
            let edge = link.b.allocate(PAGE);
            let last = edge - PAGE;
            let pages = [last, last];
            let context = MemoryKeyContext { len, domain: link.b.domain, ..context };
            let key = link.b.create_key(&mut link.world, &context, &pages).unwrap_or(link.key_b);
            link.a.write(link.buffer_a, &[1; 8]);
            let to = RemoteAddressSegment { address, key };
            let segment = data(link.key_a, VIRTUAL, 8);
            link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
            link.run();
            if key != link.key_b {
                failure(link.a.poll_cq(&mut link.cq_a));
            }
            assert_eq!(link.b.read(edge, PAGE as usize), [0; PAGE as usize], "{len:#x}");
        }
    }
}

/// CVE-2021-3607: the size of a ring is not compared with its pages before memory is allocated.
#[test]
fn mlx5_ring_larger_than_its_pages_is_refused() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 4);
    let queue = |queue_type, log_stride| WorkQueue {
        queue_type,
        domain: guest.domain,
        log_stride,
        log_size: 15,
        ..Default::default()
    };
    let pool = ReceivePoolContext { queue: queue(0, 11), ..Default::default() };
    let completion_queue = cq.number;
    let send = SendQueueContext { completion_queue, queue: queue(1, 6), ..Default::default() };
    let receive =
        ReceiveQueueContext { completion_queue, queue: queue(1, 11), ..Default::default() };
    let events = EventQueueContext { log_size: 16, ..Default::default() };
    let mut events = events.to_bytes().to_vec();
    events.resize(0x50, 0);
    let pair = QueuePairContext {
        log_send_size: 15,
        log_receive_size: 15,
        log_receive_stride: 7,
        ..guest.qp_context(Service::ReliableConnection, cq.number)
    };
    let (mut completions, _) = guest.cq_context(4);
    completions.log_size = COMPLETION_QUEUE_LOG_MAX;
    let rings: [(Opcode, usize, &[u8]); 6] = [
        (Opcode::CreateEventQueue, 0x10, &events),
        (Opcode::CreateCompletionQueue, 0x10, &completions.to_bytes()),
        (Opcode::CreateQueuePair, 0x18, &pair.to_bytes()),
        (Opcode::CreateReceivePool, 0x20, &pool.to_bytes()),
        (Opcode::CreateSendQueue, 0x20, &send.to_bytes()),
        (Opcode::CreateReceiveQueue, 0x20, &receive.to_bytes()),
    ];
    for (opcode, at, context) in rings {
        for pages in [0, 1, 64] {
            let list = vec![BASE; pages];
            let refused = guest.create(&mut world, opcode, (at, context), (0x110, &list));
            assert_eq!(refused, Err(Status::BadParameter), "{opcode} with {pages} pages");
        }
    }
}

/// CVE-2021-3608: a ring with a page that cannot be mapped is used or released half made.
#[test]
fn mlx5_ring_with_a_page_outside_memory_fails_there_only() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let first = guest.allocate(PAGE);
    for index in 0..64 {
        guest.write(first + index * 64 + 0x3f, &[0xf1]);
    }
    let mut cq = guest.create_cq(&mut world, 7);
    let number = create_cq(&mut world, &mut guest, 7, &[first, BASE + MEMORY]).unwrap();
    let context = guest.qp_context(Service::ReliableConnection, number);
    let mut pair = guest.create_pair(&mut world, context);
    guest.connect(&mut world, &pair, guest.mac, pair.number);
    for _ in 0..8 {
        for _ in 0..10 {
            guest.post(&mut pair, (SendOpcode::Nop, 0), |entry| entry);
        }
        world.run();
    }
    assert_eq!(world.function(&guest).counters().completions, 64);
    assert!(world.function(&guest).counters().overruns > 0);
    guest.simple(&mut world, Opcode::DestroyQueuePair, pair.number).unwrap();
    guest.simple(&mut world, Opcode::DestroyCompletionQueue, number).unwrap();
    // A ring with all its pages works.
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let mut pair = guest.create_pair(&mut world, context);
    guest.connect(&mut world, &pair, guest.mac, pair.number);
    guest.post(&mut pair, (SendOpcode::Nop, 0), |entry| entry);
    world.run();
    success(guest.poll_cq(&mut cq));
}

/// Begins a message of [`LONG`] bytes from a to b, of which some steps are done.
fn begin_long(link: &mut Link) -> (u32, u64) {
    let (from, to) = (link.a.allocate(LONG), link.b.allocate(LONG));
    link.a.write(from, &vec![0xee; LONG as usize]);
    let source = link.a.register(&mut link.world, VIRTUAL, from, LONG);
    let key = link.b.register(&mut link.world, VIRTUAL, to, LONG);
    let remote = RemoteAddressSegment { address: VIRTUAL, key };
    let segment = data(source, VIRTUAL, LONG as u32);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&remote).data(&segment));
    let mut budget = Budget::new(4, LONG / 4);
    poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget);
    assert_eq!(link.b.read(to, 1), [0xee]);
    assert_eq!(link.b.read(to + LONG - 1, 1), [0]);
    (key, to)
}

/// CVE-2022-1050: commands that arrive during the work or destruction of an object use freed
/// objects.
#[test]
fn mlx5_use_after_destruction_in_a_message_is_absent() {
    let mut link = Link::new(Service::ReliableConnection);
    let (key, to) = begin_long(&mut link);
    link.b.simple(&mut link.world, Opcode::DestroyMemoryKey, key >> 8).unwrap();
    link.run();
    let refused = failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(refused.syndrome, Syndrome::RemoteAccess.raw());
    assert_eq!(link.b.read(to + LONG - 1, 1), [0]);
    // The queue pair of the requester, then that of the responder.
    for is_requester in [true, false] {
        let mut link = Link::new(Service::ReliableConnection);
        let (_, to) = begin_long(&mut link);
        let (guest, pair) = if is_requester { (&link.a, link.qp_a) } else { (&link.b, link.qp_b) };
        guest.simple(&mut link.world, Opcode::DestroyQueuePair, pair.number).unwrap();
        let late = guest.simple(&mut link.world, Opcode::ToError, pair.number);
        assert_eq!(late, Err(Status::BadResource));
        // The number is in use again, by another queue pair that is not ready.
        let context = QueuePairContext { doorbell_record: pair.record, ..pair.context };
        let guest = if is_requester { &mut link.a } else { &mut link.b };
        guest.create_pair(&mut link.world, context);
        link.run();
        assert!(link.a.poll_cq(&mut link.cq_a).is_none());
        assert_eq!(link.b.read(to + LONG - 1, 1), [0]);
    }
    // Memory that is no longer granted.
    let mut link = Link::new(Service::ReliableConnection);
    let (_, to) = begin_long(&mut link);
    link.world.function(&link.b).set_map(Default::default());
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(to + LONG - 1, 1), [0]);
}

/// Allocates a page on each side of the memory that `allocate` takes. Returns the pages.
fn between<T>(guest: &mut Guest, allocate: impl FnOnce(&mut Guest) -> T) -> (T, [u64; 2]) {
    let first = guest.allocate(PAGE);
    let value = allocate(guest);
    let pages = [first, guest.allocate(PAGE)];
    pages.iter().for_each(|page| guest.write(*page, &[0x3c; PAGE as usize]));
    (value, pages)
}

/// CVE-2023-1544: an index that the guest writes selects memory outside of the ring.
#[test]
fn mlx5_index_outside_of_a_ring_stays_in_the_ring() {
    let indices = [0, 1, 31, 32, 33, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0x7f_ffff, u32::MAX];
    for index in indices {
        let mut world = World::new();
        let mut guest = world.start(1);
        let ((mut cq, mut pair), pages) = between(&mut guest, |guest| ring(&mut world, guest));
        // Consumer index of the completion queue, and receive and send counters.
        guest.write(cq.record, &index.to_be_bytes());
        guest.write(cq.record + 4, &index.to_be_bytes());
        guest.write(pair.record, &index.to_be_bytes());
        guest.post(&mut pair, (SendOpcode::Nop, 0), |entry| entry);
        world.run();
        guest.write(pair.record + 4, &index.to_be_bytes());
        world.run();
        for page in pages {
            assert_eq!(guest.read(page, PAGE as usize), [0x3c; PAGE as usize], "{index:#x}");
        }
        while guest.poll_cq(&mut cq).is_some() {}
        guest.simple(&mut world, Opcode::DestroyQueuePair, pair.number).unwrap();
        guest.simple(&mut world, Opcode::DestroyCompletionQueue, cq.number).unwrap();
    }
}

fn ring(world: &mut World, guest: &mut Guest) -> (Completions, Pair) {
    let cq = guest.create_cq(world, 5);
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let pair = guest.create_pair(world, context);
    guest.connect(world, &pair, guest.mac, pair.number);
    (cq, pair)
}
