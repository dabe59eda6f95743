//! A frontend that makes its notifications block: the dispatcher closes the port and serves the
//! others.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::raw::Raw;
use crate::common::*;
use causeway_attach::native::Client;
use causeway_model::PortState;
use causeway_testing::slow::watch_often;
use causeway_wire::virtio_net::Header;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Fills the counter of `call`, so that a write to it blocks.
fn block(call: &OwnedFd) {
    rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    fcntl_setfl(call, fcntl_getfl(call).unwrap() - OFlags::NONBLOCK).unwrap();
}

/// Unblocks the dispatcher after a while, so that a failing test ends: with its eventfd drained,
/// the port would continue.
fn free_later(call: &OwnedFd) -> (impl FnOnce(), JoinHandle<bool>) {
    let call = call.try_clone().unwrap();
    let (done, over) = channel::<()>();
    let thread = thread::spawn(move || {
        let late = over.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout);
        if late {
            rustix::io::read(&call, &mut [0_u8; 8]).unwrap();
        }
        late
    });
    (move || drop(done), thread)
}

#[test]
fn hostile_frontend_that_blocks_its_notification() {
    let rig = Rig::new();
    let mut good = rig.port("good", net(1), ALL);
    let mut other = rig.port("other", net(2), ALL);
    rig.try_add("bad", "red", net(3)).unwrap();
    let bad = Raw::attach(&rig.path("bad"));
    let ready = || rig.view("bad").queues.iter().all(|queue| queue.running);
    wait(ready, || format!("{:?}", rig.view("bad")));
    // Both guests are notified once when they start.
    let (done, freed) = free_later(&bad.calls[0]);
    bad.calls.iter().for_each(block);

    send(&mut good, &Header::default(), &plain(1, mac(3), b"for the bad one"));
    let frame = plain(1, mac(2), b"for another one");
    send(&mut good, &Header::default(), &frame);
    assert_eq!(receive(&mut other).1, frame);
    let view = rig.view("bad");
    done();
    assert!(
        !freed.join().unwrap(),
        "the dispatcher was blocked until the frontend drained its eventfd"
    );
    assert_eq!(view.state, PortState::Faulted);
    let fault = view.fault.unwrap();
    assert!(fault.contains("queue 0") && fault.contains("blocked"), "{fault}");
    assert_eq!(rig.view("good").faults_total, 0);

    // The port refuses the frontend for a while, because it could repeat the attack at once.
    assert!(Client::connect(&rig.path("bad")).is_err());
    assert_eq!(rig.view("bad").connects_total, 1);
    let frame = plain(2, mac(1), b"we go on");
    send(&mut other, &Header::default(), &frame);
    assert_eq!(receive(&mut good).1, frame);
}

#[test]
fn hostile_frontend_whose_notifications_take_long_is_delayed_and_barred() {
    let rig = Rig::new();
    let mut good = rig.port("good", net(1), ALL);
    let mut other = rig.port("other", net(2), ALL);
    rig.try_add("bad", "red", net(3)).unwrap();
    let mut bad = Raw::attach(&rig.path("bad"));
    let ready = || rig.view("bad").queues.iter().all(|queue| queue.running);
    wait(ready, || format!("{:?}", rig.view("bad")));
    let watchers = watch_often(bad.calls[1].as_fd());
    let since = std::time::Instant::now();
    let mut sent = 0_u64;
    while rig.view("bad").state == PortState::Running {
        assert!(since.elapsed() < PATIENCE, "still served after {sent} notifications");
        for _ in 0..16 {
            // To an unused address: the notification only reports the used descriptor.
            let _ = rustix::io::read(&bad.calls[1], &mut [0_u8; 8]);
            bad.send(&plain(3, [2, 0, 0, 0, 0, 9], b"to nobody"));
            sent += 1;
            wait(
                || {
                    bad.transmit.take_all().unwrap();
                    bad.transmit.outstanding() == 0 || rig.view("bad").fault.is_some()
                },
                || "nothing is taken".into(),
            );
        }
    }
    let view = rig.view("bad");
    assert_eq!(view.state, PortState::Faulted);
    let fault = view.fault.unwrap();
    assert!(fault.contains("queue 1") && fault.contains("more than its share"), "{fault}");
    assert!(Client::connect(&rig.path("bad")).is_err(), "the port is barred");
    drop(watchers);
    let frame = plain(1, mac(2), b"we go on");
    send(&mut good, &Header::default(), &frame);
    assert_eq!(receive(&mut other).1, frame);
    assert_eq!(rig.view("good").faults_total, 0);
}
