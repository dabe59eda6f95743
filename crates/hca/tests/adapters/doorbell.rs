//! Trapped doorbells, and polling.

use causeway_mlx5::registers::REGION_BAR;
use causeway_model::port::{HcaDoorbell, HcaSpec};

use crate::rig::{Rig, Stream, options};

fn trapped(n: u8) -> HcaSpec {
    HcaSpec { doorbell: HcaDoorbell::Trap, ..options(n) }
}

#[test]
fn hca_trapped_doorbell_wakes_a_port_that_is_not_polled() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, trapped(1)), rig.start(2, trapped(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let bar = rig.client(&guest).region(REGION_BAR).unwrap();
    assert!(bar.info.areas.is_empty(), "the guest cannot map its doorbell pages");
    rig.settle();
    assert_eq!(rig.shard.deadline_ns(), None, "no poll is planned");
    guest.driver.memory().write(stream.buffer(), b"payload").unwrap();
    stream.post_write(&guest, 64);
    for _ in 0..1000 {
        rig.turn();
    }
    assert_eq!(stream.reap(&guest), 0, "the port is not polled");
    rig.ring(&guest);
    rig.settle();
    assert_eq!(stream.reap(&guest), 1);
    assert_eq!(rig.shard.deadline_ns(), None);
}

#[test]
fn hca_polled_port_finds_work_without_a_doorbell() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, options(1)), rig.start(2, options(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let bar = rig.client(&guest).region(REGION_BAR).unwrap();
    assert_eq!(bar.info.areas.len(), 1);
    for _ in 0..1000 {
        rig.turn();
    }
    assert!(rig.shard.deadline_ns().is_some_and(|at| at < rig.now + 2_000_000));
    stream.post_write(&guest, 64);
    for _ in 0..41 {
        rig.turn();
    }
    assert_eq!(stream.reap(&guest), 1, "within 2 ms");
}

#[test]
fn hca_trapped_port_is_polled_while_a_request_waits() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, trapped(1)), rig.start(2, trapped(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    stream.post_send(&guest, 64);
    rig.ring(&guest);
    for _ in 0..1000 {
        rig.turn();
    }
    assert_eq!((stream.reap(&guest), rig.counter(2, "waits_for_receive_total")), (0, 1));
    // The receiver rings no doorbell for a receive work request.
    stream.post_receive(&to);
    for _ in 0..41 {
        rig.turn();
    }
    assert_eq!(stream.reap(&guest), 1, "within 2 ms");
    rig.settle();
    assert_eq!(rig.shard.deadline_ns(), None, "and not polled after it");
}

#[test]
fn hca_trapped_doorbell_arms_a_completion_queue() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, trapped(1)), rig.start(2, trapped(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let mut events = guest.driver.events();
    for (message, expected) in [("first", 1), ("second", 0)] {
        stream.post_write(&guest, 64);
        rig.ring(&guest);
        rig.settle();
        // A fresh queue counts as armed.
        assert_eq!(guest.count_events(&mut events), expected, "{message}");
    }
    guest.driver.arm(&stream.cq, 1, false).unwrap();
    for _ in 0..100 {
        rig.turn();
    }
    assert_eq!(guest.count_events(&mut events), 0, "the port is not polled");
    rig.ring(&guest);
    rig.settle();
    assert_eq!(guest.count_events(&mut events), 1);
}
