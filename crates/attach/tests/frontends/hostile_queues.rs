//! Frontends that configure queues wrongly, too early, or while they run.

use std::os::fd::AsFd;

use crate::common::*;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    InflightSpec, RegionSpec, RingAddresses, RingEvent, RingValue, emit_table,
};
use causeway_attach::vhost_user::server::features;
use causeway_attach::{Event, Fault};

#[test]
fn hostile_queue_indices() {
    let by_value = [R::SET_VRING_NUM, R::SET_VRING_BASE, R::GET_VRING_BASE, R::SET_VRING_ENABLE];
    for index in [QUEUES as u32, 255, 256, 0x8000, u32::MAX] {
        for request in by_value {
            let mut bench = Bench::granted();
            let result = bench.ring_value(request, index, 1);
            assert_fault(&mut bench, result, &[&format!("{request:?}"), &index.to_string()]);
        }
        let mut bench = Bench::granted();
        let wrong = RingAddresses { index, ..addresses(0) };
        let result = bench.request(R::SET_VRING_ADDR, &wrong.emit(), &[]);
        assert_fault(&mut bench, result, &["SET_VRING_ADDR", &index.to_string()]);
    }
    for request in [R::SET_VRING_KICK, R::SET_VRING_CALL, R::SET_VRING_ERR] {
        for number in [QUEUES as u64, 0xff, 0x200, 1 << 32, !0x100] {
            let mut bench = Bench::granted();
            let result = bench.request(request, &number.to_ne_bytes(), &[event().as_fd()]);
            assert_fault(&mut bench, result, &[&format!("{request:?}"), "the device has 4"]);
        }
    }
}

#[test]
fn hostile_ring_sizes() {
    for size in [0, 3, 63, 65, 2048, 32_768, 65_535, 65_536, 1 << 31, u32::MAX] {
        let mut bench = Bench::granted();
        let result = bench.ring_value(R::SET_VRING_NUM, 0, size);
        assert_fault(&mut bench, result, &["ring size", &size.to_string(), "1024"]);
    }
}

#[test]
fn hostile_ring_bases_and_enables() {
    for base in [65_536, u32::MAX] {
        let mut bench = Bench::granted();
        let result = bench.ring_value(R::SET_VRING_BASE, 0, base);
        assert_fault(&mut bench, result, &["base", &base.to_string()]);
    }
    for value in [2, u32::MAX] {
        let mut bench = Bench::granted();
        let result = bench.ring_value(R::SET_VRING_ENABLE, 0, value);
        assert_fault(&mut bench, result, &["enable", &value.to_string()]);
    }
}

/// Starts queue 0 at `at`; a fault appears when the queue is started and enabled.
fn start_at(bench: &mut Bench, at: RingAddresses) -> Result<(), Fault> {
    bench.ring_value(R::SET_VRING_NUM, 0, u32::from(SIZE))?;
    bench.request(R::SET_VRING_ADDR, &at.emit(), &[])?;
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1)?;
    bench.kick(0)
}

#[test]
fn hostile_rings_in_holes() {
    let last = USER + LEN;
    for user in [0, USER - 16, last, last + 16, !15] {
        for (part, at) in [
            ("descriptor table", RingAddresses { descriptors: user, ..addresses(0) }),
            ("available ring", RingAddresses { available: user, ..addresses(0) }),
            ("used ring", RingAddresses { used: user, ..addresses(0) }),
        ] {
            let mut bench = Bench::granted();
            let result = start_at(&mut bench, at);
            assert_fault(&mut bench, result, &["queue 0", part]);
        }
    }
}

#[test]
fn hostile_rings_over_the_end() {
    let last = USER + LEN;
    for (part, at) in [
        ("descriptor table", RingAddresses { descriptors: last - 1024 + 16, ..addresses(0) }),
        ("available ring", RingAddresses { available: last - 132, ..addresses(0) }),
        ("used ring", RingAddresses { used: last - 516, ..addresses(0) }),
    ] {
        let mut bench = Bench::granted();
        let result = start_at(&mut bench, at);
        assert_fault(&mut bench, result, &["queue 0", part, "not granted"]);
    }
}

#[test]
fn hostile_rings_over_two_regions() {
    // Adjacent for the guest, but in different files: a ring may not span them.
    let second = RegionSpec { guest: GUEST + LEN, user: USER + LEN, ..region() };
    let mut bench = Bench::granted();
    let files = [bench.memory.try_clone().unwrap(), memory(LEN)];
    let table = emit_table(&[region(), second]);
    bench.request(R::SET_MEM_TABLE, &table, &[files[0].as_fd(), files[1].as_fd()]).unwrap();
    let at = RingAddresses { descriptors: USER + LEN - 512, ..addresses(0) };
    let result = start_at(&mut bench, at);
    assert_fault(&mut bench, result, &["descriptor table", "not granted"]);
}

#[test]
fn hostile_misaligned_rings() {
    for (part, at) in [
        ("descriptor table", RingAddresses { descriptors: USER + 8, ..addresses(0) }),
        ("available ring", RingAddresses { available: USER + 0x1001, ..addresses(0) }),
        ("used ring", RingAddresses { used: USER + 0x2002, ..addresses(0) }),
    ] {
        let mut bench = Bench::granted();
        let result = start_at(&mut bench, at);
        assert_fault(&mut bench, result, &[part, "aligned"]);
    }
}

#[test]
fn hostile_ring_flags() {
    for flags in [1, 2, u32::MAX] {
        let mut bench = Bench::granted();
        let result = start_at(&mut bench, RingAddresses { flags, ..addresses(0) });
        assert_fault(&mut bench, result, &["flags", "logging was not offered"]);
    }
}

#[test]
fn hostile_doorbells_that_come_too_early() {
    let mut bench = Bench::new();
    let result = bench.kick(0);
    assert_fault(&mut bench, result, &["SET_VRING_KICK", "before SET_FEATURES"]);

    let mut bench = Bench::granted();
    let result = bench.kick(0);
    assert_fault(&mut bench, result, &["SET_VRING_KICK", "before SET_VRING_NUM"]);

    let mut bench = Bench::granted();
    bench.ring_value(R::SET_VRING_NUM, 0, 8).unwrap();
    let result = bench.kick(0);
    assert_fault(&mut bench, result, &["SET_VRING_KICK", "before SET_VRING_ADDR"]);
}

/// The messages of QEMU with `memory-backend-ram` for the guest: everything except the memory.
#[test]
fn vhost_user_rings_without_any_granted_memory_name_the_remedy() {
    let mut bench = Bench::new();
    bench.negotiate(0);
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    let result = bench.kick(0);
    assert_fault(&mut bench, result, &["queue 0", "no memory", "memory-backend-memfd", "share=on"]);
}

#[test]
fn hostile_changes_while_a_queue_runs() {
    let value = |value| RingValue { index: 0, value }.emit();
    let elsewhere = RingAddresses { index: 0, ..addresses(1) };
    for (request, payload) in [
        (R::SET_VRING_NUM, value(32)),
        (R::SET_VRING_NUM, value(u32::from(SIZE))),
        (R::SET_VRING_BASE, value(9)),
        (R::SET_VRING_BASE, value(0)),
        (R::SET_VRING_ADDR, elsewhere.emit()),
    ] {
        let mut bench = Bench::running();
        let result = bench.request(request, &payload, &[]);
        assert_fault(&mut bench, result, &[&format!("{request:?}"), "queue 0 while it runs"]);
        assert_eq!(bench.events, [Event::QueueStopped(0)]);
    }
    // A message that changes nothing is allowed: QEMU sends it when it cancels a migration.
    let mut bench = Bench::running();
    bench.request(R::SET_VRING_ADDR, &addresses(0).emit(), &[]).unwrap();
    assert!(bench.server.device().is_running(0));
}

#[test]
fn hostile_features_changed_while_a_queue_runs() {
    let mut bench = Bench::running();
    let fewer = features::VERSION_1 | features::PROTOCOL_FEATURES;
    let result = bench.send_number(R::SET_FEATURES, fewer);
    assert_fault(&mut bench, result, &["SET_FEATURES", "queue 0 runs"]);
}

#[test]
fn hostile_inflight_shapes() {
    let good = InflightSpec { len: 4096, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    let wrong = [
        InflightSpec { queues: 0, ..good },
        InflightSpec { queues: QUEUES as u16 + 1, ..good },
        InflightSpec { queues: u16::MAX, ring_size: u16::MAX, ..good },
        InflightSpec { ring_size: 0, ..good },
        InflightSpec { ring_size: 63, ..good },
        InflightSpec { ring_size: 2048, ..good },
    ];
    for spec in wrong {
        let mut bench = Bench::granted();
        let result = bench.request(R::GET_INFLIGHT_FD, &spec.emit(), &[]);
        assert_fault(&mut bench, result, &["GET_INFLIGHT_FD"]);
        let mut bench = Bench::granted();
        let result = bench.request(R::SET_INFLIGHT_FD, &spec.emit(), &[memory(4096).as_fd()]);
        assert_fault(&mut bench, result, &["SET_INFLIGHT_FD"]);
    }
    let lies = [
        (InflightSpec { len: 64, ..good }, "too short"),
        (InflightSpec { offset: 4096, ..good }, "bytes"),
        (InflightSpec { offset: u64::MAX, ..good }, "wraps"),
    ];
    for (spec, word) in lies {
        let mut bench = Bench::granted();
        let result = bench.request(R::SET_INFLIGHT_FD, &spec.emit(), &[memory(4096).as_fd()]);
        assert_fault(&mut bench, result, &["buffer", word]);
    }
}

/// Starts queue 0 with an in-flight buffer of these bytes.
fn start_with_record(record: &[u8]) -> (Bench, Result<(), Fault>) {
    let mut bench = Bench::granted();
    let file = memory(4096);
    rustix::io::pwrite(&file, record, 0).unwrap();
    let spec = InflightSpec { len: 4096, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    bench.request(R::SET_INFLIGHT_FD, &spec.emit(), &[file.as_fd()]).unwrap();
    bench.configure_queue(0);
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    let result = bench.kick(0);
    (bench, result)
}

#[test]
fn hostile_inflight_records() {
    let record = |version: u16, count: u16, last: u16, used: u16| {
        let mut bytes = vec![0; 16];
        for (at, value) in [(8, version), (10, count), (12, last), (14, used)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    };
    for wrong in [
        record(2, SIZE, 0, 0),
        record(1, SIZE / 2, 0, 0),
        record(1, SIZE, 0, 1),
        record(1, SIZE, u16::MAX, u16::MAX - 3),
    ] {
        let (mut bench, result) = start_with_record(&wrong);
        assert_fault(&mut bench, result, &["queue 0", "in-flight record"]);
    }
    let (bench, result) = start_with_record(&record(1, SIZE, 0, 0));
    result.unwrap();
    assert!(bench.server.device().is_running(0));
}

#[test]
fn hostile_inflight_buffer_while_a_queue_runs() {
    let mut bench = Bench::running();
    let spec = InflightSpec { len: 4096, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    let result = bench.request(R::SET_INFLIGHT_FD, &spec.emit(), &[memory(4096).as_fd()]);
    assert_fault(&mut bench, result, &["SET_INFLIGHT_FD", "queue 0 while it runs"]);
}

#[test]
fn hostile_inflight_buffer_that_shrinks() {
    let mut bench = Bench::granted();
    let file = memory(4096);
    let spec = InflightSpec { len: 4096, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    bench.request(R::SET_INFLIGHT_FD, &spec.emit(), &[file.as_fd()]).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    // The lost buffer reads as zeroes, that is, as a new record, and has no effect on others.
    bench.run_queue(0);
    let result = bench.server.check_memory(&mut bench.events);
    assert_fault(&mut bench, result, &["shrank"]);
}

#[test]
fn hostile_stop_of_a_queue_that_never_ran() {
    let mut bench = Bench::new();
    bench.ring_value(R::GET_VRING_BASE, 3, 0).unwrap();
    assert_eq!(bench.reply().unwrap().payload, RingValue { index: 3, value: 0 }.emit());
    assert_eq!(bench.events, []);
}

#[test]
fn hostile_starts_and_stops_without_end() {
    let mut bench = Bench::running();
    for _ in 0..1000 {
        bench.request(R::SET_VRING_KICK, &RingEvent::emit(0, false), &[]).unwrap();
        bench.ring_value(R::GET_VRING_BASE, 0, 0).unwrap();
        assert!(bench.reply().is_some());
        bench.run_queue(0);
    }
    let starts = bench.events.iter().filter(|e| **e == Event::QueueStarted(0)).count();
    let stops = bench.events.iter().filter(|e| **e == Event::QueueStopped(0)).count();
    assert_eq!((starts, stops), (2000, 2000));
}
