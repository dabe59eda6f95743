//! A frontend with private memory: it rings, and its rings stay empty for the daemon.

use std::time::Duration;

use crate::common::*;
use causeway_model::PortState;

#[test]
fn vsock_doorbells_of_an_empty_ring_tell_of_memory_that_is_not_shared() {
    let rig = Rig::new();
    let raw = rig.raw("red", 3);
    wait(
        || {
            raw.kick();
            std::thread::sleep(Duration::from_millis(2));
            rig.view("red", 3).notice.is_some()
        },
        || "no notice".into(),
    );
    let view = rig.view("red", 3);
    let notice = view.notice.unwrap();
    assert!(notice.contains("share=on"), "{notice}");
    assert_eq!((view.state, view.faults_total), (PortState::Running, 0));
}

#[test]
fn vsock_doorbells_of_a_guest_that_runs_tell_of_nothing() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    for port in 0..20 {
        join(&mut a, &mut b, causeway_wire::vsock::Type::Stream, 100 + port);
    }
    assert_eq!((rig.view("red", 3).notice, rig.view("red", 4).notice), (None, None));
}
