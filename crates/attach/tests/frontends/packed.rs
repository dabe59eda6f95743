//! Packed rings in the conversation: their positions, their lengths, and the record of chains in
//! flight.

use std::os::fd::{AsFd, OwnedFd};

use crate::common::*;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;
use causeway_attach::vhost_user::message::{InflightSpec, emit_table};
use causeway_attach::vhost_user::server::features;
use causeway_ring::{Chain, Inflight};

const AVAIL: u16 = 1 << 7;

/// As [`Bench::granted`], with packed rings negotiated.
fn granted() -> Bench {
    let mut bench = Bench::granted();
    let acked = features::RING | features::RING_PACKED | features::PROTOCOL_FEATURES;
    bench.send_number(R::SET_FEATURES, acked).unwrap();
    bench
}

fn run(bench: &mut Bench, base: u32) {
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_BASE, 0, base).unwrap();
    bench.kick(0).unwrap();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    assert_eq!(bench.server.device().queues[0].ring.as_ref().unwrap().format(), "packed");
}

/// Makes the descriptors `from..to` of queue 0 available in the first wrap of the ring.
fn make_available(bench: &Bench, from: u16, to: u16) {
    for slot in from..to {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(GUEST + 0x8000).to_le_bytes());
        bytes[8] = 16;
        bytes[12..14].copy_from_slice(&slot.to_le_bytes());
        bytes[14..].copy_from_slice(&AVAIL.to_le_bytes());
        bench.server.device().map.write(GUEST + 16 * u64::from(slot), &bytes).unwrap();
    }
}

fn pop(bench: &mut Bench) -> Option<u16> {
    let (map, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    let mut chain = Chain::new();
    let got = queue.ring.as_mut().unwrap().pop(map, &mut chain).unwrap();
    got.then(|| chain.head())
}

fn base(bench: &mut Bench) -> u32 {
    bench.ring_value(R::GET_VRING_BASE, 0, 0).unwrap();
    let payload = bench.reply().unwrap().payload;
    u32::from_ne_bytes(payload[4..8].try_into().unwrap())
}

#[test]
fn packed_ring_base_has_both_positions() {
    // QEMU sends both positions, DPDK only the lower one, user-mode Linux only zero.
    for begin in [0x8000_8000, 0x8000, 0] {
        let mut bench = granted();
        run(&mut bench, begin);
        make_available(&bench, 0, 5);
        for id in 0..3 {
            assert_eq!(pop(&mut bench), Some(id));
        }
        assert_eq!(base(&mut bench), 0x8003_8003, "chains in flight are returned");
        run(&mut bench, 0x8003_8003);
        assert_eq!(pop(&mut bench), Some(3));
    }
    let mut bench = granted();
    assert_eq!(base(&mut bench), 0x8000_8000, "a queue that never ran");
}

/// Returns another backend after the first was killed: the same memory, and the initial position,
/// which is all that QEMU has after a crash.
fn restarted(memory: OwnedFd) -> Bench {
    let mut bench = Bench { memory, ..Bench::new() };
    bench.negotiate(P::all().bits() & model().protocol_offered().bits());
    let file = bench.memory.try_clone().unwrap();
    bench.request(R::SET_MEM_TABLE, &emit_table(&[region()]), &[file.as_fd()]).unwrap();
    let acked = features::RING | features::RING_PACKED | features::PROTOCOL_FEATURES;
    bench.send_number(R::SET_FEATURES, acked).unwrap();
    bench
}

/// Ends a backend without a clean stop, as SIGKILL does.
fn kill(bench: Bench) -> OwnedFd {
    let memory = bench.memory.try_clone().unwrap();
    std::mem::forget(bench.server);
    memory
}

#[test]
fn packed_ring_goes_on_after_its_backend_was_killed() {
    let mut bench = granted();
    run(&mut bench, 0x8000_8000);
    make_available(&bench, 0, 5);
    for id in 0..3 {
        assert_eq!(pop(&mut bench), Some(id));
    }
    let (_, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    let ring = queue.ring.as_mut().unwrap();
    ring.push_batch((0..2).map(|id| (id, 0))).unwrap();
    ring.publish().unwrap();
    let mut bench = restarted(kill(bench));
    run(&mut bench, 0x8000_8000);
    for id in 2..5 {
        assert_eq!(pop(&mut bench), Some(id), "unused chains are popped again");
    }
    assert_eq!(base(&mut bench), 0x8005_8005);
}

#[test]
fn packed_ring_whose_position_is_lost_does_not_run() {
    let mut bench = granted();
    run(&mut bench, 0x8000_8000);
    make_available(&bench, 0, 5);
    assert_eq!(pop(&mut bench), Some(0));
    let (_, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    queue.ring.as_mut().unwrap().push(0, 0).unwrap();
    queue.ring.as_mut().unwrap().publish().unwrap();
    // The chain in slot 1 continues in slot 2.
    let flags = (AVAIL | 1).to_le_bytes();
    bench.server.device().map.write(GUEST + 16 + 14, &flags).unwrap();
    let mut bench = restarted(kill(bench));
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_BASE, 0, 0x8000_8000).unwrap();
    bench.kick(0).unwrap();
    let result = bench.ring_value(R::SET_VRING_ENABLE, 0, 1);
    assert_fault(&mut bench, result, &["position", "hold", "packed=off"]);
}

#[test]
fn packed_ring_may_have_any_length() {
    let mut bench = granted();
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_NUM, 0, 100).unwrap();
    bench.ring_value(R::SET_VRING_BASE, 0, 0x8063).unwrap();
    bench.kick(0).unwrap();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    assert!(bench.server.device().is_running(0));
}

#[test]
fn hostile_packed_bases() {
    // A slot beyond the ring of 64, and positions further apart than the ring is long.
    for base in [0x8040, 0x0040_0040, 0xffff_ffff, 0x8001_8000, 0x8000_0001] {
        let mut bench = granted();
        bench.configure_queue(0);
        bench.ring_value(R::SET_VRING_BASE, 0, base).unwrap();
        bench.kick(0).unwrap();
        let result = bench.ring_value(R::SET_VRING_ENABLE, 0, 1);
        assert_fault(&mut bench, result, &["position"]);
    }
}

#[test]
fn hostile_packed_base_of_a_ring_that_became_split() {
    let mut bench = granted();
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_BASE, 0, 0x8000_8000).unwrap();
    bench.send_number(R::SET_FEATURES, features::RING | features::PROTOCOL_FEATURES).unwrap();
    bench.kick(0).unwrap();
    let result = bench.ring_value(R::SET_VRING_ENABLE, 0, 1);
    assert_fault(&mut bench, result, &["base", "not packed"]);
}

#[test]
fn hostile_packed_record_for_split_rings() {
    let mut bench = granted();
    let ask = InflightSpec { len: 0, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    bench.request(R::GET_INFLIGHT_FD, &ask.emit(), &[]).unwrap();
    let buffer = bench.reply().unwrap();
    bench.request(R::SET_INFLIGHT_FD, &buffer.payload, &[buffer.fds[0].as_fd()]).unwrap();
    bench.send_number(R::SET_FEATURES, features::RING | features::PROTOCOL_FEATURES).unwrap();
    bench.configure_queue(0);
    bench.kick(0).unwrap();
    let result = bench.ring_value(R::SET_VRING_ENABLE, 0, 1);
    assert_fault(&mut bench, result, &["in-flight record"]);
}

#[test]
fn packed_ring_chains_in_flight_are_popped_again() {
    let mut first = granted();
    let ask = InflightSpec { len: 0, offset: 0, queues: 2, ring_size: SIZE, padded: true };
    first.request(R::GET_INFLIGHT_FD, &ask.emit(), &[]).unwrap();
    let buffer = first.reply().unwrap();
    let len = u64::from_ne_bytes(buffer.payload[..8].try_into().unwrap());
    assert_eq!(len, 2 * Inflight::packed_bytes(SIZE) as u64);
    first.request(R::SET_INFLIGHT_FD, &buffer.payload, &[buffer.fds[0].as_fd()]).unwrap();
    run(&mut first, 0x8000);
    make_available(&first, 0, 4);
    assert_eq!((pop(&mut first), pop(&mut first)), (Some(0), Some(1)));
    let (_, queue) = first.server.device_mut().queue_mut(0).unwrap();
    queue.ring.as_mut().unwrap().push(1, 0).unwrap();
    queue.ring.as_mut().unwrap().publish().unwrap();
    // The first backend ends here without a clean stop.
    let kept = std::mem::ManuallyDrop::new(first);
    let mut second = granted();
    let (table, memory) = (emit_table(&[region()]), kept.memory.try_clone().unwrap());
    second.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
    second.request(R::SET_INFLIGHT_FD, &buffer.payload, &[buffer.fds[0].as_fd()]).unwrap();
    run(&mut second, 0x8000);
    let given: Vec<u16> = std::iter::from_fn(|| pop(&mut second)).collect();
    assert_eq!(given, [0, 2, 3], "the chain in flight first, the used chain not at all");
}
