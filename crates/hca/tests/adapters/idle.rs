//! Idle adapters whose doorbell records are watched.

use std::os::fd::AsFd as _;

use causeway_attach::vfio_user::message::{DMA_READABLE, DMA_WRITABLE, DmaMap};

use crate::rig::{Guest, Rig, Stream, options};

/// Turns after which a port without work is watched: 20 ms.
const PAUSE: u32 = 400;
/// Turns in the longest wait of the first message: 2 ms, and the turn under way.
const WAIT: u32 = 41;
/// Default `idle_poll_us`, in nanoseconds.
const PERIOD_NS: u64 = 2_000_000;

fn turns(rig: &mut Rig, count: u32) {
    for _ in 0..count {
        rig.turn();
    }
}

/// Returns a guest with a connection to itself.
fn looped(rig: &mut Rig, n: u8) -> (Guest, Stream) {
    let mut guest = rig.start(n, options(n));
    let stream = Stream::looped(rig, &mut guest);
    (guest, stream)
}

#[test]
fn hca_idle_ports_share_each_wake_up() {
    let mut rig = Rig::new();
    let mut guests = Vec::new();
    for n in 1..=12 {
        guests.push(looped(&mut rig, n));
        turns(&mut rig, 7);
    }
    turns(&mut rig, PAUSE);
    let (begin, mut wakes) = (rig.now, 0);
    while rig.now < begin + 50 * PERIOD_NS {
        // The dispatcher's thread wakes late.
        rig.now = rig.shard.deadline_ns().unwrap() + 50_000;
        rig.shard.step(rig.now, 4).unwrap();
        assert!(!rig.shard.is_busy());
        wakes += 1;
    }
    assert!((45..=51).contains(&wakes), "{wakes} in 50 periods");
    for (guest, stream) in &mut guests {
        stream.post_write(guest, 64);
    }
    turns(&mut rig, WAIT);
    // A dispatcher has turns without pauses while ports are busy.
    (0..20).for_each(|_| rig.turn_again());
    for (number, (guest, stream)) in guests.iter_mut().enumerate() {
        assert_eq!(stream.reap(guest), 1, "port {number}");
    }
}

#[test]
fn hca_idle_port_reports_an_event_when_its_queue_is_armed() {
    let mut rig = Rig::new();
    let (mut guest, mut stream) = looped(&mut rig, 1);
    let mut events = guest.driver.events();
    // The first event of a queue needs no arm.
    stream.post_write(&guest, 64);
    turns(&mut rig, PAUSE);
    assert_eq!((guest.count_events(&mut events), stream.reap(&guest)), (1, 1));
    for sequence in 1..4 {
        stream.post_write(&guest, 64);
        turns(&mut rig, PAUSE);
        assert_eq!(guest.count_events(&mut events), 0, "the queue is not armed");
        guest.driver.arm(&stream.cq, sequence, false).unwrap();
        turns(&mut rig, WAIT);
        assert_eq!(guest.count_events(&mut events), 1);
        assert_eq!(stream.reap(&guest), 1);
    }
    // A command of the driver ends the pause.
    turns(&mut rig, PAUSE);
    guest.with(&mut rig, |driver, bar| driver.create_cq(bar, 3));
}

#[test]
fn hca_idle_port_uses_no_memory_that_was_withdrawn() {
    let mut rig = Rig::new();
    let (guest, mut stream) = looped(&mut rig, 1);
    let other = 1 << 40;
    let memory = guest.driver.memory().file().try_clone_to_owned().unwrap();
    rig.with_client(&guest, |client| {
        let flags = DMA_READABLE | DMA_WRITABLE;
        let grant = DmaMap { flags, offset: 0, address: other, size: 4096 };
        client.map(&grant, Some(memory.as_fd()))
    })
    .unwrap();
    turns(&mut rig, PAUSE);
    // The withdrawal is answered when no watch uses the map.
    rig.with_client(&guest, |client| client.unmap(other, 4096)).unwrap();
    turns(&mut rig, PAUSE);
    stream.post_write(&guest, 64);
    turns(&mut rig, WAIT);
    assert_eq!(stream.reap(&guest), 1);
}
