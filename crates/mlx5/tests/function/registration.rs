//! Memory keys: creation, limits, and changes by work requests.

use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, Syndrome};
use causeway_wire::mlx5::memory_key::{MemoryKeyContext, UpdateControl, mask};
use causeway_wire::mlx5::queue_pair::{ReceiveQueueType, Service};
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{BASE, Link, VIRTUAL, World, data, failure, success};

/// Returns the context of a key without pages, as a driver keeps them for registrations.
fn free_key(domain: u32) -> MemoryKeyContext {
    MemoryKeyContext {
        is_free: true,
        has_update: true,
        access_mode: 1,
        queue_pair: 0xff_ffff,
        variable: 1,
        domain,
        list_size: 8,
        log_page_size: 12,
        ..Default::default()
    }
}

/// Returns the segments of a registration of `len` bytes at `start`.
fn registration(variable: u8, start: u64, len: u64) -> (UpdateControl, MemoryKeyContext) {
    let control = UpdateControl {
        is_inline: true,
        list_size: 1,
        mask: mask::FAST_REGISTRATION,
        ..Default::default()
    };
    let context = MemoryKeyContext {
        remote_write: true,
        remote_read: true,
        local_write: true,
        local_read: true,
        queue_pair: 0xff_ffff,
        has_remote_invalidate: true,
        variable,
        start,
        len,
        log_page_size: 12,
        ..Default::default()
    };
    (control, context)
}

#[test]
fn mlx5_fast_registration_makes_a_key_valid_until_its_invalidation() {
    let mut link = Link::new(Service::ReliableConnection);
    let key = link.b.create_key(&mut link.world, &free_key(link.b.domain), &[]).unwrap();
    let (control, context) = registration(2, 0x5000_0010, 100);
    let page = link.buffer_b | 3;
    let list = page.to_be_bytes();
    link.b.post(&mut link.qp_b, (SendOpcode::Update, key), |e| {
        e.update(&control, &context).list(&list)
    });
    link.run();
    assert_eq!(success(link.b.poll_cq(&mut link.cq_b)).request_opcode, 0x25);
    let key = key & !0xff | 2;
    link.a.write(link.buffer_a, b"registered");
    let segment = data(link.key_a, VIRTUAL, 10);
    let to = RemoteAddressSegment { address: 0x5000_0010, key };
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(link.buffer_b + 0x10, 10), b"registered");
    // The peer invalidates the key with a message.
    link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL + 4096, 16)]);
    link.a.post(&mut link.qp_a, (SendOpcode::SendInvalidate, key), |e| e.data(&segment));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    let received = success(link.b.poll_cq(&mut link.cq_b));
    assert_eq!(received.opcode, CompletionOpcode::ReceiveSendInvalidate.raw());
    assert_eq!(received.immediate, key);
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
    link.run();
    let refused = failure(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(refused.syndrome, Syndrome::RemoteAccess.raw());
}

#[test]
fn mlx5_user_registration_takes_its_list_from_memory() {
    let mut link = Link::new(Service::ReliableConnection);
    let cq = link.b.create_cq(&mut link.world, 4);
    // Linux names no protection domain for its queue pair for registration.
    let mut context = link.b.qp_context(Service::Registration, cq.number);
    (context.domain, context.receive_queue_type) = (0, ReceiveQueueType::None.raw());
    let mut pair = link.b.create_pair(&mut link.world, context);
    link.b.connect(&mut link.world, &pair, [0; 6], 0);
    let other = link.b.simple(&mut link.world, Opcode::AllocateProtectionDomain, 0).unwrap();
    let key = link.b.create_key(&mut link.world, &free_key(other), &[]).unwrap();
    // The list lies in the buffer, and the driver's key of all memory reaches it.
    let all = MemoryKeyContext {
        local_read: true,
        local_write: true,
        queue_pair: 0xff_ffff,
        is_unlimited: true,
        domain: link.b.domain,
        ..Default::default()
    };
    let all = link.b.create_key(&mut link.world, &all, &[]).unwrap();
    let list = link.b.allocate(4096);
    let pages = link.b.allocate(8192);
    link.b.write(list, &pages.to_be_bytes());
    link.b.write(list + 8, &(pages + 4096).to_be_bytes());
    let (mut control, mut context) = registration(5, 0x9000, 8192);
    (control.is_inline, control.mask) = (false, mask::USER_REGISTRATION);
    context.domain = link.b.domain;
    let segment = data(all, list, 16);
    link.b.post(&mut pair, (SendOpcode::Update, key), |e| {
        e.update(&control, &context).data(&segment)
    });
    link.run();
    let mut cq = cq;
    success(link.b.poll_cq(&mut cq));
    let key = key & !0xff | 5;
    let from = data(link.key_a, VIRTUAL, 16);
    link.a.write(link.buffer_a, &[9; 16]);
    let to = RemoteAddressSegment { address: 0x9000 + 4090, key };
    link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
    link.run();
    success(link.a.poll_cq(&mut link.cq_a));
    assert_eq!(link.b.read(pages + 4090, 16), [9; 16]);
}

#[test]
fn mlx5_keys_beyond_the_limit_are_refused() {
    let mut link = Link::new(Service::ReliableConnection);
    let mut last = Ok(0);
    for _ in 0..1024 {
        last = link.a.create_key(&mut link.world, &free_key(link.a.domain), &[]);
        if last.is_err() {
            break;
        }
    }
    assert_eq!(last, Err(Status::ExceededLimit));
    // The other function is not affected.
    link.b.create_key(&mut link.world, &free_key(link.b.domain), &[]).unwrap();
}

#[test]
fn mlx5_keys_of_other_keys_and_short_lists_are_refused() {
    let mut link = Link::new(Service::ReliableConnection);
    let context = MemoryKeyContext { access_mode: 2, ..free_key(link.a.domain) };
    let refused = link.a.create_key(&mut link.world, &context, &[]);
    assert_eq!(refused, Err(Status::BadParameter));
    let context = MemoryKeyContext { start: u64::MAX, len: 2, ..free_key(link.a.domain) };
    let refused = link.a.create_key(&mut link.world, &context, &[]);
    assert_eq!(refused, Err(Status::BadParameter));
    let mut bytes = free_key(link.a.domain).to_bytes().to_vec();
    bytes.resize(0x54, 0);
    bytes[0x50..].copy_from_slice(&u32::MAX.to_be_bytes());
    let opcode = Opcode::CreateMemoryKey;
    let refused = link.a.create(&mut link.world, opcode, (0x10, &bytes), (0x110, &[]));
    assert_eq!(refused, Err(Status::BadParameter));
    bytes[0x50..].copy_from_slice(&100_u32.to_be_bytes());
    let refused = link.a.create(&mut link.world, opcode, (0x10, &bytes), (0x110, &[]));
    assert_eq!(refused, Err(Status::BadInputLength));
}

#[test]
fn mlx5_key_of_all_memory_has_no_length() {
    let mut world = World::new();
    let guest = world.start(1);
    let key = MemoryKeyContext {
        local_read: true,
        queue_pair: 0xff_ffff,
        domain: guest.domain,
        start: BASE,
        len: 4096,
        ..Default::default()
    };
    let refused = guest.create_key(&mut world, &key, &[]);
    assert_eq!(refused, Err(Status::BadParameter));
    let whole = MemoryKeyContext { is_unlimited: true, ..key };
    guest.create_key(&mut world, &whole, &[]).unwrap();
    let list = MemoryKeyContext { access_mode: 1, ..whole };
    assert_eq!(guest.create_key(&mut world, &list, &[]), Err(Status::BadParameter));
}
