//! Frontends that make the notifications at the end of a conversation block.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::common::*;
use causeway_attach::Fault;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::RingEvent;
use causeway_host::Watchdog;
use causeway_ring::Chain;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Starts queue `index` with one chain in flight and a notification that blocks.
fn trap(bench: &mut Bench, index: u32, call: &OwnedFd) {
    bench.run_queue(index);
    bench.request(R::SET_VRING_CALL, &RingEvent::emit(index, true), &[call.as_fd()]).unwrap();
    let ring = GUEST + u64::from(index) * 0x4000;
    let (map, queue) = bench.server.device_mut().queue_mut(index as usize).unwrap();
    map.write(ring, &[GUEST + 0x8_0000, 16].map(u64::to_le_bytes).concat()).unwrap();
    map.write(ring + 0x1002, &1_u16.to_le_bytes()).unwrap();
    assert!(queue.ring.as_mut().unwrap().pop(map, &mut Chain::new()).unwrap());
    // A notification is pending since the descriptor was set.
    rustix::io::write(call, &(u64::MAX - 2).to_ne_bytes()).unwrap();
    fcntl_setfl(call, fcntl_getfl(call).unwrap() - OFlags::NONBLOCK).unwrap();
}

/// All queues have blocking notifications; `end` makes them stop.
fn held_up(end: fn(&mut Bench) -> Result<(), Fault>) {
    let calls: Vec<OwnedFd> = (0..QUEUES).map(|_| event()).collect();
    let (done, over) = channel::<()>();
    let theirs: Vec<_> = calls.iter().map(|call| call.try_clone().unwrap()).collect();
    let freer = thread::spawn(move || {
        // A watchdog, so that a failing test ends.
        if over.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout) {
            for call in &theirs {
                let _ = rustix::io::read(call, &mut [0_u8; 8]);
            }
        }
    });
    let _rescue = Watchdog::new().unwrap();
    let mut bench = Bench::granted();
    (0..).zip(&calls).for_each(|(index, call)| trap(&mut bench, index, call));
    let result = end(&mut bench);
    assert_fault(&mut bench, result, &["queue 0", "blocked"]);
    drop(done);
    freer.join().unwrap();
}

#[test]
fn hostile_blocked_notification_when_a_queue_stops() {
    held_up(|bench| bench.ring_value(R::GET_VRING_BASE, 0, 0));
}

#[test]
fn hostile_blocked_notification_when_a_rule_is_broken() {
    held_up(|bench| bench.request(R::SET_OWNER, &[0], &[]));
}

#[test]
fn hostile_blocked_notification_when_the_frontend_leaves() {
    held_up(Bench::leave);
}
