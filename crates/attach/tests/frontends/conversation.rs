//! The message sequences of real frontends, and the replies that they need.

use std::os::fd::AsFd;

use crate::common::*;
use causeway_attach::Event;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;
use causeway_attach::vhost_user::message::{
    ConfigSpace, Header, InflightSpec, RegionSpec, RingEvent, emit_region, emit_table,
};
use causeway_attach::vhost_user::server::features;

/// Returns the value of a GET_VRING_BASE reply.
fn base_of(bench: &mut Bench, index: u32) -> u32 {
    bench.ring_value(R::GET_VRING_BASE, index, 0).unwrap();
    let payload = bench.reply().unwrap().payload;
    u32::from_ne_bytes(payload[4..].try_into().unwrap())
}

/// Makes `count` chains of one descriptor available in the ring of queue 0.
fn make_available(bench: &Bench, count: u16) {
    let map = &bench.server.device().map;
    for index in 0..count {
        let descriptor = [GUEST + 0x8_0000, 16].map(u64::to_le_bytes).concat();
        map.write(GUEST + u64::from(index) * 16, &descriptor).unwrap();
        map.write(GUEST + 0x1004 + u64::from(index) * 2, &index.to_le_bytes()).unwrap();
    }
    map.write(GUEST + 0x1002, &count.to_le_bytes()).unwrap();
}

#[test]
fn vhost_user_features_are_offered_and_acknowledged() {
    let mut bench = Bench::new();
    bench.request(R::GET_FEATURES, &[], &[]).unwrap();
    assert_eq!(bench.reply_number(), model().offered());
    bench.request(R::GET_PROTOCOL_FEATURES, &[], &[]).unwrap();
    let protocol = bench.reply_number();
    assert_eq!(protocol, model().protocol_offered().bits());
    bench.negotiate(protocol);
    bench.request(R::GET_QUEUE_NUM, &[], &[]).unwrap();
    assert_eq!(bench.reply_number(), QUEUES as u64);
    bench.request(R::GET_MAX_MEM_SLOTS, &[], &[]).unwrap();
    assert_eq!(bench.reply_number(), causeway_memory::limits::REGIONS_MAX as u64);
    assert_eq!(bench.server.device().features(), features::RING);
    assert!(bench.server.device().has_feature(32));
    assert!(!bench.server.device().has_feature(30), "a bit of the transport is not the guest's");
}

#[test]
fn vhost_user_acknowledges_only_if_negotiated() {
    let mut bench = Bench::new();
    let header = Header::request(R::SET_OWNER, 0).need_reply();
    bench.send_with_header(header, &[], &[]).unwrap();
    assert!(bench.reply().is_none());
    // User-mode Linux wants an acknowledgement of the very message that negotiates
    // acknowledgements.
    let header = Header::request(R::SET_PROTOCOL_FEATURES, 8).need_reply();
    bench.send_with_header(header, &P::REPLY_ACK.bits().to_ne_bytes(), &[]).unwrap();
    assert_eq!(bench.reply_number(), 0);
    bench.request(R::SET_OWNER, &[], &[]).unwrap();
    assert!(bench.reply().is_none());
}

#[test]
fn vhost_user_queue_starts_runs_and_stops() {
    let mut bench = Bench::granted();
    assert_eq!(bench.events, [Event::MemoryChanged]);
    bench.configure_queue(1);
    bench.request(R::SET_VRING_CALL, &RingEvent::emit(1, true), &[event().as_fd()]).unwrap();
    bench.kick(1).unwrap();
    assert!(!bench.server.device().is_running(1), "started, not enabled");
    bench.ring_value(R::SET_VRING_ENABLE, 1, 1).unwrap();
    assert_eq!(bench.events[1..], [Event::QueueStarted(1)]);
    let (_, queue) = bench.server.device_mut().queue_mut(1).unwrap();
    assert!(queue.is_running() && queue.doorbell().is_some() && queue.notifier().is_some());
    bench.ring_value(R::SET_VRING_ENABLE, 1, 0).unwrap();
    assert_eq!(bench.events[2..], [Event::QueueStopped(1)]);
    bench.ring_value(R::SET_VRING_ENABLE, 1, 1).unwrap();
    assert_eq!(bench.events[3..], [Event::QueueStarted(1)]);
    assert_eq!(base_of(&mut bench, 1), 0);
    assert_eq!(bench.events[4..], [Event::QueueStopped(1)]);
    assert!(bench.server.device().queues[1].doorbell().is_none());
    // It starts again at the same position, by its doorbell alone.
    bench.kick(1).unwrap();
    assert_eq!(bench.events[5..], [Event::QueueStarted(1)]);
}

#[test]
fn vhost_user_queue_is_enabled_without_protocol_features() {
    let mut bench = Bench::new();
    bench.send_number(R::SET_FEATURES, features::RING).unwrap();
    let (table, memory) = (emit_table(&[region()]), bench.memory.try_clone().unwrap());
    bench.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
    bench.configure_queue(0);
    bench.kick(0).unwrap();
    assert_eq!(bench.events, [Event::MemoryChanged, Event::QueueStarted(0)]);
}

#[test]
fn vhost_user_queue_without_a_doorbell_is_polled() {
    let mut bench = Bench::granted();
    bench.configure_queue(0);
    bench.request(R::SET_VRING_KICK, &RingEvent::emit(0, false), &[]).unwrap();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    let queue = &bench.server.device().queues[0];
    assert!(queue.is_running() && queue.doorbell().is_none());
}

#[test]
fn vhost_user_features_may_be_repeated_for_each_queue_pair() {
    let mut bench = Bench::running();
    let acked = features::RING | features::PROTOCOL_FEATURES;
    bench.send_number(R::SET_FEATURES, acked).unwrap();
    bench.request(R::SET_OWNER, &[], &[]).unwrap();
    assert_eq!(bench.events, []);
}

#[test]
fn vhost_user_disabled_queue_may_be_reconfigured() {
    let mut bench = Bench::running();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 0).unwrap();
    bench.run_queue(0);
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::QueueStarted(0)]);
}

#[test]
fn vhost_user_notifies_user_mode_linux_by_a_stream() {
    let mut bench = Bench::running();
    let (reader, writer) = sockets();
    bench.request(R::SET_VRING_CALL, &RingEvent::emit(0, true), &[writer.as_fd()]).unwrap();
    let queue = &bench.server.device().queues[0];
    // One notification when the descriptor is set on a running queue, and one more.
    queue.notify().unwrap();
    let mut bytes = [0; 64];
    assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(16));
    // A guest that does not read its notifications does not block the dispatcher.
    (0..100_000).for_each(|_| queue.notify().unwrap());
    drop(reader);
    queue.notify().unwrap();
}

#[test]
fn vhost_user_memory_table_may_have_trailing_room() {
    let mut bench = Bench::new();
    let mut table = emit_table(&[region()]);
    table.extend([0; 32]);
    let memory = bench.memory.try_clone().unwrap();
    bench.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
    assert_eq!(bench.server.device().map.regions().len(), 1);
}

#[test]
fn vhost_user_base_counts_popped_chains() {
    let mut bench = Bench::running();
    make_available(&bench, 5);
    let (map, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    let ring = queue.ring.as_mut().unwrap();
    let mut chain = causeway_ring::Chain::new();
    for _ in 0..3 {
        assert!(ring.pop(map, &mut chain).unwrap());
    }
    assert_eq!(base_of(&mut bench, 0), 3);
    let mut used = [0; 2];
    bench.server.device().map.read(GUEST + 0x2002, &mut used).unwrap();
    assert_eq!(u16::from_le_bytes(used), 3, "chains in flight are returned");
}

#[test]
fn vhost_user_paused_guest_continues_and_reset_guest_restarts() {
    let mut bench = Bench::running();
    make_available(&bench, 2);
    let (map, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    let mut chain = causeway_ring::Chain::new();
    assert!(queue.ring.as_mut().unwrap().pop(map, &mut chain).unwrap());
    assert_eq!(base_of(&mut bench, 0), 1);
    bench.send_number(R::SET_STATUS, 0).unwrap();
    bench.ring_value(R::SET_VRING_BASE, 0, 1).unwrap();
    bench.kick(0).unwrap();
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::QueueStarted(0)]);
    assert_eq!(base_of(&mut bench, 0), 1);
    bench.events.clear();
    bench.ring_value(R::SET_VRING_BASE, 0, 0).unwrap();
    bench.kick(0).unwrap();
    assert_eq!(bench.events, [Event::Reset, Event::QueueStarted(0)]);
}

#[test]
fn vhost_user_reset_device_stops_queues_and_keeps_memory() {
    let mut bench = Bench::running();
    bench.request(R::RESET_DEVICE, &[], &[]).unwrap();
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::Reset]);
    assert_eq!(bench.server.device().features(), 0);
    assert_eq!(bench.server.device().map.regions().len(), 1);
    bench.send_number(R::SET_FEATURES, features::RING | features::PROTOCOL_FEATURES).unwrap();
    bench.run_queue(0);
    assert!(bench.server.device().is_running(0));
}

#[test]
fn vhost_user_new_memory_table_keeps_running_queues() {
    let mut bench = Bench::running();
    let epoch = bench.server.device().epoch();
    let more = RegionSpec { guest: GUEST + LEN, len: LEN, user: USER + 2 * LEN, offset: 0 };
    let (first, second) = (bench.memory.try_clone().unwrap(), memory(LEN));
    let table = emit_table(&[region(), more]);
    bench.request(R::SET_MEM_TABLE, &table, &[first.as_fd(), second.as_fd()]).unwrap();
    assert_eq!(bench.events, [Event::MemoryChanged]);
    assert!(bench.server.device().is_running(0));
    assert_eq!(bench.server.device().epoch(), epoch + 1);
    make_available(&bench, 1);
    let (map, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    let mut chain = causeway_ring::Chain::new();
    assert!(queue.ring.as_mut().unwrap().pop(map, &mut chain).unwrap());
}

#[test]
fn vhost_user_queue_stops_while_its_region_is_removed() {
    let mut bench = Bench::running();
    bench.request(R::REM_MEM_REG, &emit_region(&region()), &[]).unwrap();
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::MemoryChanged]);
    bench.add_region(&region()).unwrap();
    assert_eq!(bench.events[2..], [Event::MemoryChanged, Event::QueueStarted(0)]);
    // Old QEMU attaches a descriptor that is ignored.
    let memory = bench.memory.try_clone().unwrap();
    bench.request(R::REM_MEM_REG, &emit_region(&region()), &[memory.as_fd()]).unwrap();
}

#[test]
fn regions_may_be_added_and_removed_once_for_every_queue_pair() {
    let mut bench = Bench::running();
    let epoch = bench.server.device().epoch();
    bench.add_region(&region()).unwrap();
    assert_eq!((bench.events.as_slice(), bench.server.device().epoch()), (&[][..], epoch));
    assert!(bench.server.device().is_running(0));
    for _ in 0..2 {
        bench.request(R::REM_MEM_REG, &emit_region(&region()), &[]).unwrap();
    }
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::MemoryChanged]);
    // Another region at the same address replaces it after its removal.
    let other = RegionSpec { len: LEN / 2, ..region() };
    bench.add_region(&other).unwrap();
    bench.request(R::REM_MEM_REG, &emit_region(&region()), &[]).unwrap();
    bench.request(R::REM_MEM_REG, &emit_region(&other), &[]).unwrap();
}

#[test]
fn vhost_user_config_space_is_zero_past_its_end_and_read_only() {
    let mut bench = Bench::granted();
    let space = ConfigSpace { offset: 6, size: 4, flags: 0, bytes: vec![9; 4] };
    bench.request(R::GET_CONFIG, &space.emit(), &[]).unwrap();
    assert_eq!(bench.reply().unwrap().payload[12..], [7, 8, 0, 0]);
    let header = Header::request(R::SET_CONFIG, 16).need_reply();
    bench.send_with_header(header, &space.emit(), &[]).unwrap();
    assert_ne!(bench.reply_number(), 0, "refused");
    bench.request(R::SET_CONFIG, &space.emit(), &[]).unwrap();
    assert!(bench.reply().is_none());
}

#[test]
fn vhost_user_inflight_buffer_is_created_and_adopted() {
    let mut bench = Bench::granted();
    for padded in [false, true] {
        let ask = InflightSpec { len: 0, offset: 0, queues: 2, ring_size: SIZE, padded };
        bench.request(R::GET_INFLIGHT_FD, &ask.emit(), &[]).unwrap();
        let raw = bench.reply().unwrap();
        assert_eq!(raw.payload.len(), ask.emit().len(), "the reply has the format of the request");
        let len = u64::from_ne_bytes(raw.payload[..8].try_into().unwrap());
        assert_eq!(len, 2 * causeway_ring::Inflight::bytes(SIZE) as u64);
        bench.request(R::SET_INFLIGHT_FD, &raw.payload, &[raw.fds[0].as_fd()]).unwrap();
    }
    bench.run_queue(0);
    assert!(bench.server.device().is_running(0));
}

#[test]
fn vhost_user_chains_in_flight_are_popped_again_after_a_crash() {
    let mut first = Bench::granted();
    let ask = InflightSpec { len: 0, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    first.request(R::GET_INFLIGHT_FD, &ask.emit(), &[]).unwrap();
    let buffer = first.reply().unwrap();
    first.request(R::SET_INFLIGHT_FD, &buffer.payload, &[buffer.fds[0].as_fd()]).unwrap();
    first.run_queue(0);
    make_available(&first, 3);
    let (map, queue) = first.server.device_mut().queue_mut(0).unwrap();
    let mut chain = causeway_ring::Chain::new();
    assert!(queue.ring.as_mut().unwrap().pop(map, &mut chain).unwrap());
    // The first backend ends here without a clean stop.
    let memory = first.memory.try_clone().unwrap();
    let kept = std::mem::ManuallyDrop::new(first);
    let mut second = Bench::new();
    second.memory = memory;
    second.negotiate(model().protocol_offered().bits());
    let (table, memory) = (emit_table(&[region()]), kept.memory.try_clone().unwrap());
    second.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
    second.request(R::SET_INFLIGHT_FD, &buffer.payload, &[buffer.fds[0].as_fd()]).unwrap();
    second.run_queue(0);
    let (map, queue) = second.server.device_mut().queue_mut(0).unwrap();
    let ring = queue.ring.as_mut().unwrap();
    let mut heads = Vec::new();
    while ring.pop(map, &mut chain).unwrap() {
        heads.push(chain.head());
    }
    assert_eq!(heads, [0, 1, 2], "the chain in flight first");
}

#[test]
fn vhost_user_status_is_kept() {
    let mut bench = Bench::granted();
    bench.send_number(R::SET_STATUS, 15).unwrap();
    bench.request(R::GET_STATUS, &[], &[]).unwrap();
    assert_eq!(bench.reply_number(), 15);
}

#[test]
fn vhost_user_close_releases_all_grants() {
    let mut bench = Bench::running();
    bench.leave().unwrap();
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::Closed]);
    assert_released(&bench);
}

#[test]
fn vhost_user_close_before_the_reply_is_no_fault() {
    let mut bench = Bench::running();
    let peer = bench.peer.take().unwrap();
    let header = Header::request(R::GET_FEATURES, 0);
    peer.send(header, &[], &[]).unwrap();
    drop(peer);
    bench.server.receive(&mut bench.events).unwrap();
    assert_eq!(bench.events, [Event::QueueStopped(0), Event::Closed]);
    assert_released(&bench);
}

#[test]
fn vhost_user_messages_may_arrive_in_any_segmentation() {
    let mut bench = Bench::new();
    let header = Header::request(R::SET_FEATURES, 8).emit();
    let payload = features::RING.to_ne_bytes();
    for byte in header.iter().chain(&payload) {
        assert_eq!(bench.server.device().features(), 0);
        bench.send_raw(&[*byte], &[]).unwrap();
    }
    assert_eq!(bench.server.device().features(), features::RING);
    // Several messages in one write.
    let many = [header.as_slice(), &payload].concat().repeat(5);
    bench.send_raw(&many, &[]).unwrap();
}
