//! The dirty log: pages that the backend writes during a live migration.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use crate::common::*;
use causeway_attach::Event;
use causeway_attach::limits::{MAPPING_COST, QUEUE_COST};
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;
use causeway_attach::vhost_user::message::{RingAddresses, RingValue};
use causeway_attach::vhost_user::server::features;

/// Bytes of a log for all guest memory up to 2 MiB.
const LOG_BYTES: u64 = 64;
const ON: u64 = features::RING | features::PROTOCOL_FEATURES | features::LOG_ALL;
const OFF: u64 = features::RING | features::PROTOCOL_FEATURES;

fn base(len: u64, offset: u64) -> Vec<u8> {
    [len, offset].map(u64::to_ne_bytes).concat()
}

fn logs(index: u32, flags: u32) -> Vec<u8> {
    RingAddresses { flags, log: GUEST + 0x2000, ..addresses(index) }.emit().to_vec()
}

/// Returns the guest pages that were marked since the last call.
fn noted(log: &std::fs::File) -> Vec<u64> {
    let mut bits = [0; LOG_BYTES as usize];
    log.read_exact_at(&mut bits, 0).unwrap();
    log.write_all_at(&[0; LOG_BYTES as usize], 0).unwrap();
    let first = GUEST >> 12;
    let all = 0..LOG_BYTES * 8;
    all.filter(|page| bits[*page as usize / 8] >> (page % 8) & 1 == 1).map(|p| p - first).collect()
}

/// Returns a bench whose queue 0 runs, and the log, as QEMU sets it up when a migration begins.
fn moving() -> (Bench, std::fs::File) {
    let mut bench = Bench::running();
    let file: OwnedFd = memory(LOG_BYTES);
    bench.request(R::SET_LOG_BASE, &base(LOG_BYTES, 0), &[file.as_fd()]).unwrap();
    assert_eq!(bench.reply_number(), 0);
    bench.send_number(R::SET_FEATURES, ON).unwrap();
    bench.request(R::SET_VRING_ADDR, &logs(0, 1), &[]).unwrap();
    assert!(bench.server.device().is_running(0), "the ring continues");
    assert!(!bench.events.contains(&Event::QueueStopped(0)));
    assert_eq!(bench.server.device().features(), features::RING, "a bit of the transport");
    (bench, file.into())
}

#[test]
fn dirty_log_marks_written_pages_until_logging_stops() {
    let (mut bench, log) = moving();
    assert_eq!(noted(&log), [0; 0]);
    bench.server.device().map.write(GUEST + 0x8_0fff, &[1, 2]).unwrap();
    assert_eq!(noted(&log), [0x80, 0x81]);
    // The whole ring is marked when it stops: it may lie on pages with nothing else.
    let stop = RingValue { index: 0, value: 0 }.emit();
    bench.request(R::GET_VRING_BASE, &stop, &[]).unwrap();
    bench.reply().unwrap();
    assert_eq!(noted(&log), [0, 1, 2]);
    bench.send_number(R::SET_FEATURES, OFF).unwrap();
    bench.server.device().map.write(GUEST + 0x8_0000, &[1]).unwrap();
    assert_eq!(noted(&log), [0; 0]);
}

#[test]
fn dirty_log_cancelled_migration_changes_nothing() {
    let (mut bench, log) = moving();
    bench.send_number(R::SET_FEATURES, OFF).unwrap();
    bench.request(R::SET_VRING_ADDR, &logs(0, 0), &[]).unwrap();
    assert!(bench.server.device().is_running(0));
    bench.server.device().map.write(GUEST, &[1]).unwrap();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 0).unwrap();
    assert_eq!(noted(&log), [0; 0]);
}

#[test]
fn dirty_log_queue_may_be_enabled_after_migration_begins() {
    let mut bench = Bench::running();
    bench.ring_value(R::SET_VRING_ENABLE, 0, 0).unwrap();
    let file: OwnedFd = memory(LOG_BYTES);
    bench.request(R::SET_LOG_BASE, &base(LOG_BYTES, 0), &[file.as_fd()]).unwrap();
    bench.reply_number();
    bench.send_number(R::SET_FEATURES, ON).unwrap();
    for flags in [1, 1, 0] {
        bench.request(R::SET_VRING_ADDR, &logs(0, flags), &[]).unwrap();
    }
    bench.ring_value(R::SET_VRING_ENABLE, 0, 1).unwrap();
    assert!(bench.server.device().is_running(0));
}

#[test]
fn dirty_log_follows_new_memory_and_a_new_log() {
    let (mut bench, log) = moving();
    let next: OwnedFd = memory(2 * LOG_BYTES);
    bench.request(R::SET_LOG_BASE, &base(LOG_BYTES, LOG_BYTES), &[next.as_fd()]).unwrap();
    bench.reply().unwrap();
    let table = causeway_attach::vhost_user::message::emit_table(&[region()]);
    let memory = bench.memory.try_clone().unwrap();
    bench.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
    bench.server.device().map.write(GUEST + 0x3000, &[1]).unwrap();
    assert_eq!(noted(&log), [0; 0]);
    let next = std::fs::File::from(next);
    let mut bits = [0; 2 * LOG_BYTES as usize];
    next.read_exact_at(&mut bits, 0).unwrap();
    let page = (GUEST >> 12) as usize + 3;
    assert_eq!(bits.iter().position(|byte| *byte != 0), Some(LOG_BYTES as usize + page / 8));
}

/// Returns the cost that `run` causes at the server.
fn cost(bench: &mut Bench, run: impl FnOnce(&mut Bench)) -> u64 {
    let before = bench.server.cost();
    run(bench);
    bench.server.cost() - before
}

#[test]
fn hostile_messages_that_remap_memory_are_charged() {
    let set_log = |bench: &mut Bench| {
        let file = memory(LOG_BYTES);
        bench.request(R::SET_LOG_BASE, &base(LOG_BYTES, 0), &[file.as_fd()]).unwrap();
        bench.reply().unwrap();
    };
    let set_features =
        |to: u64| move |bench: &mut Bench| bench.send_number(R::SET_FEATURES, to).unwrap();
    let mut bench = Bench::running();
    let remaps = |bench: &Bench| bench.events.contains(&Event::MemoryChanged);
    // Without the feature a log changes no memory, and without a log the feature does not.
    assert_eq!(cost(&mut bench, set_features(ON)), 1);
    assert_eq!(cost(&mut bench, set_features(OFF)), 1);
    assert_eq!(cost(&mut bench, set_log), MAPPING_COST);
    assert!(!remaps(&bench));
    assert_eq!(cost(&mut bench, set_features(ON)), MAPPING_COST);
    assert!(remaps(&bench));
    assert_eq!(cost(&mut bench, set_log), 2 * MAPPING_COST - 1);
    assert_eq!(cost(&mut bench, set_features(OFF)), MAPPING_COST);
    let enable =
        |value| move |bench: &mut Bench| bench.ring_value(R::SET_VRING_ENABLE, 0, value).unwrap();
    assert_eq!(cost(&mut bench, enable(0)), 1 + QUEUE_COST);
    assert_eq!(cost(&mut bench, enable(0)), 1);
}

#[test]
fn hostile_logs_are_refused_and_their_loss_is_found() {
    for (len, offset, size) in
        [(0, 0, 64), (64, 1, 64), (u64::MAX, 0, 64), (64, u64::MAX, 64), (1 << 50, 0, 64)]
    {
        let mut bench = Bench::running();
        let result = bench.request(R::SET_LOG_BASE, &base(len, offset), &[memory(size).as_fd()]);
        assert_fault(&mut bench, result, &["the log of written pages"]);
    }
    let mut bench = Bench::running();
    let result = bench.request(R::SET_LOG_BASE, &base(64, 0), &[event().as_fd()]);
    assert_fault(&mut bench, result, &["the log of written pages"]);
    // Without an earlier message about it.
    let mut bench = Bench::new();
    bench.negotiate((P::all() & model().protocol_offered() & !P::LOG_SHMFD).bits());
    let result = bench.request(R::SET_LOG_BASE, &base(64, 0), &[memory(64).as_fd()]);
    assert_fault(&mut bench, result, &["LOG_SHMFD"]);
    // Another address for the running ring; a flag without meaning.
    for addresses in
        [logs(0, 2), RingAddresses { flags: 0, index: 0, ..addresses(1) }.emit().to_vec()]
    {
        let (mut bench, _log) = moving();
        let result = bench.request(R::SET_VRING_ADDR, &addresses, &[]);
        assert_fault(&mut bench, result, &[]);
    }
    let (bench, log) = moving();
    log.set_len(0).unwrap();
    bench.server.device().map.write(GUEST, &[1]).unwrap();
    assert!(bench.server.device().map.is_poisoned());
}
