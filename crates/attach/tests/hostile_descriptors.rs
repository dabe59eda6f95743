//! Frontends that send descriptors in the wrong number or of the wrong type. None may leak.
//!
//! Descriptors are counted for the whole process, so the tests run one after another.

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_attach::Fault;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    Header, InflightSpec, RegionSpec, RingEvent, emit_region, emit_table,
};
use common::*;

/// Time that descriptors may take to be closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serialises the tests, and counts descriptors at the start and the end.
struct Count {
    _turn: MutexGuard<'static, ()>,
    before: usize,
}

impl Count {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // The first mapping of a process opens the file that replaces lost memory, permanently.
        drop(Bench::granted());
        Self { _turn, before: descriptors() }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(eventually_open(self.before), self.before, "descriptors leaked");
        }
    }
}

/// Waits until `wanted` descriptors are open, and returns the number; some are closed on another
/// thread, with a delay.
fn eventually_open(wanted: usize) -> usize {
    let since = Instant::now();
    while descriptors() != wanted && since.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    descriptors()
}

/// Returns every message that a test can send, with its number of descriptors.
fn messages() -> Vec<(R, Vec<u8>, usize)> {
    let inflight = InflightSpec { len: 4096, offset: 0, queues: 1, ring_size: SIZE, padded: true };
    let more = RegionSpec { guest: GUEST + LEN, user: USER + LEN, ..region() };
    vec![
        (R::GET_FEATURES, vec![], 0),
        (R::SET_FEATURES, vec![0; 8], 0),
        (R::SET_OWNER, vec![], 0),
        (R::SET_MEM_TABLE, emit_table(&[region()]), 1),
        (R::SET_MEM_TABLE, emit_table(&[region(), more]), 2),
        (R::SET_VRING_NUM, vec![0; 8], 0),
        (R::SET_VRING_ADDR, addresses(1).emit(), 0),
        (R::GET_VRING_BASE, vec![0; 8], 0),
        (R::SET_VRING_KICK, RingEvent::emit(1, true), 1),
        (R::SET_VRING_CALL, RingEvent::emit(1, true), 1),
        (R::SET_VRING_ERR, RingEvent::emit(1, true), 1),
        (R::SET_VRING_KICK, RingEvent::emit(1, false), 0),
        (R::SET_VRING_CALL, RingEvent::emit(1, false), 0),
        (R::SET_VRING_ERR, RingEvent::emit(1, false), 0),
        (R::SET_INFLIGHT_FD, inflight.emit(), 1),
        (R::SET_BACKEND_REQ_FD, vec![], 1),
        (R::ADD_MEM_REG, emit_region(&more), 1),
        (R::SET_STATUS, vec![0; 8], 0),
    ]
}

fn send_with(bench: &mut Bench, request: R, payload: &[u8], count: usize) -> Result<(), Fault> {
    let files: Vec<OwnedFd> = (0..count).map(|_| memory(LEN)).collect();
    let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let header = Header::request(request, payload.len() as u32);
    bench.send_raw(&[header.emit().as_slice(), payload].concat(), &fds)
}

#[test]
fn hostile_descriptor_counts() {
    let _count = Count::new();
    for (request, payload, right) in messages() {
        for wrong in [0, 1, 2, 3, 7, 8].into_iter().filter(|&count| count != right) {
            let mut bench = Bench::running();
            let result = send_with(&mut bench, request, &payload, wrong);
            let came = format!("{wrong} descriptors");
            assert_fault(&mut bench, result, &[&format!("{request:?}"), &came]);
        }
    }
}

#[test]
fn hostile_more_than_eight_descriptors() {
    let _count = Count::new();
    for (request, payload, _) in messages() {
        for count in [9, 10, 11, 33, 64] {
            let mut bench = Bench::running();
            let result = send_with(&mut bench, request, &payload, count);
            assert_fault(&mut bench, result, &["more than 8 descriptors"]);
        }
    }
}

#[test]
fn hostile_descriptors_byte_by_byte() {
    let _count = Count::new();
    let mut bench = Bench::running();
    let header = Header::request(R::SET_FEATURES, 8).emit();
    let file = memory(LEN);
    let last = header.iter().try_for_each(|byte| bench.send_raw(&[*byte], &[file.as_fd()]));
    assert_fault(&mut bench, last, &["more than 8 descriptors"]);
}

/// Descriptors that are closed later on another thread are refused with the first byte, not with
/// the last.
#[test]
fn hostile_descriptors_of_disallowed_types_byte_by_byte() {
    let _count = Count::new();
    let mut bench = Bench::running();
    let header = Header::request(R::SET_FEATURES, 8).emit();
    let odd = std::fs::File::open("/dev/null").unwrap();
    let first = bench.send_raw(&header[..1], &[odd.as_fd()]);
    assert_fault(&mut bench, first, &["a message came with", "no eventfd, no Unix socket"]);
}

#[test]
fn hostile_descriptors_of_the_next_message_are_not_mixed_up() {
    let _count = Count::new();
    let mut bench = Bench::granted();
    bench.configure_queue(0);
    // One write without and one with a descriptor, received together.
    let first = Header::request(R::SET_OWNER, 0).emit();
    let second = Header::request(R::SET_VRING_KICK, 8).emit();
    let peer = bench.peer.as_ref().unwrap();
    peer.send(Header::request(R::SET_OWNER, 0), &[], &[]).unwrap();
    let kick = event();
    let bytes = [second.as_slice(), &RingEvent::emit(0, true)].concat();
    bench.send_raw(&bytes, &[kick.as_fd()]).unwrap();
    assert!(bench.server.device().queues[0].doorbell().is_some());
    // A descriptor with half of a message, the rest without.
    bench.send_raw(&first[..5], &[kick.as_fd()]).unwrap();
    let result = bench.send_raw(&first[5..], &[]);
    assert_fault(&mut bench, result, &["SET_OWNER", "1 descriptors"]);
}

#[test]
fn hostile_end_between_descriptor_and_message() {
    let _count = Count::new();
    let mut bench = Bench::running();
    let header = Header::request(R::SET_VRING_KICK, 8).emit();
    bench.send_raw(&header, &[event().as_fd()]).unwrap();
    let result = bench.leave();
    assert_fault(&mut bench, result, &["middle of a message"]);
}

#[test]
fn hostile_doorbells_that_are_no_eventfds() {
    let _count = Count::new();
    for request in [R::SET_VRING_KICK, R::SET_VRING_CALL, R::SET_VRING_ERR] {
        let mut bench = Bench::granted();
        bench.configure_queue(0);
        let result = bench.request(request, &RingEvent::emit(0, true), &[memory(8).as_fd()]);
        assert_fault(&mut bench, result, &[&format!("{request:?}"), "queue 0", "eventfd"]);
    }
}

#[test]
fn hostile_replacements_do_not_pile_up() {
    let _count = Count::new();
    let mut bench = Bench::running();
    let baseline = descriptors();
    for _ in 0..100 {
        for request in [R::SET_VRING_KICK, R::SET_VRING_CALL, R::SET_VRING_ERR] {
            bench.request(request, &RingEvent::emit(0, true), &[event().as_fd()]).unwrap();
        }
        let table = emit_table(&[region()]);
        let file = bench.memory.try_clone().unwrap();
        bench.request(R::SET_MEM_TABLE, &table, &[file.as_fd()]).unwrap();
        bench.request(R::SET_BACKEND_REQ_FD, &[], &[sockets().0.as_fd()]).unwrap();
    }
    // The notification and the backend channel are open now, nothing else.
    assert_eq!(eventually_open(baseline + 2), baseline + 2);
}

#[test]
fn hostile_frontend_that_attaches_and_leaves_a_thousand_times() {
    let _count = Count::new();
    for _ in 0..1000 {
        Bench::running().leave().unwrap();
    }
}
