//! Receivers without buffers, and the frames that wait for them.

use crate::common::*;
use causeway_attach::native::{Client, DevicePlan, Frontend, NetOptions, NetPort, QueuePlan, Role};
use causeway_model::PortState;
use causeway_wire::virtio_net::Header;

fn small(rig: &Rig, name: &str, ring_size: u16) -> NetPort {
    let options = NetOptions { features: ALL, ring_size, ..Default::default() };
    rig.attach(name, options)
}

fn numbered(n: u8) -> Vec<u8> {
    plain(1, mac(2), &[n; 60])
}

#[test]
fn pending_frames_arrive_in_order() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    let mut b = small(&rig, "b", 4);
    for round in 0..50_u8 {
        for n in 0..4 {
            send(&mut a, &Header::default(), &numbered(round.wrapping_mul(4).wrapping_add(n)));
        }
        for n in 0..4 {
            assert_eq!(receive(&mut b).1, numbered(round.wrapping_mul(4).wrapping_add(n)));
        }
    }
    // More frames than the receiver has buffers, before it receives any.
    for n in 0..10 {
        send(&mut a, &Header::default(), &numbered(n));
    }
    rig.wait_counter("a", "transmit_packets_total", 210);
    // No frame overtakes another; on a machine that stalls, some frames may have exceeded their
    // deadline.
    let (mut got, mut next) = (0, 0);
    while got + rig.counter("b", "drop_no_buffer_total") < 10 {
        let mut frame = Vec::new();
        while b.receive(0, &mut frame).unwrap().is_some() {
            assert!(frame[14] >= next, "{} after {next}", frame[14]);
            next = frame[14] + 1;
            got += 1;
        }
        // Returns the read buffers to the ring.
        b.wait(Some(std::time::Duration::from_millis(1))).unwrap();
    }
    wait(|| a.is_idle(0).unwrap(), || "the sender's ring".into());
}

#[test]
fn hostile_receiver_without_buffers_keeps_no_ring() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut c = rig.port("c", net(3), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    let _b = small(&rig, "b", 2);
    // A quarter of a's ring may wait; the rest is dropped at once, and c is served throughout.
    for n in 0..200 {
        send(&mut a, &Header::default(), &numbered(n));
    }
    let frame = plain(1, mac(3), b"and you?");
    send(&mut a, &Header::default(), &frame);
    assert_eq!(receive(&mut c).1, frame);
    rig.wait_counter("a", "transmit_packets_total", 201);
    // Waiting frames are dropped after their deadline, and the sender has its whole ring again.
    wait(|| a.is_idle(0).unwrap(), || format!("{:?}", rig.counters("b")));
    let counters = rig.counters("b");
    assert_eq!(counters["receive_packets_total"], 2);
    assert_eq!(counters["drop_no_buffer_total"], 198);
    assert!(counters["receive_held_total"] >= 64, "{counters:?}");
}

#[test]
fn hostile_frames_of_many_descriptors_do_not_wait() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    let options = NetOptions { features: ALL, descriptor_bytes: Some(16), ..Default::default() };
    let mut a = rig.attach("a", options);
    rig.try_add("b", "red", net(2)).unwrap();
    let mut b = small(&rig, "b", 4);
    // 57 descriptors each: the first four frames find buffers; the others would occupy memory of
    // the daemon.
    for n in 0..6 {
        send(&mut a, &Header::default(), &plain(1, mac(2), &[n; 880]));
    }
    rig.wait_counter("b", "drop_no_buffer_total", 2);
    assert_eq!(rig.counter("b", "receive_held_total"), 0);
    send(&mut a, &Header::default(), &numbered(6));
    rig.wait_counter("b", "receive_held_total", 1);
    for n in 0..4 {
        assert_eq!(receive(&mut b).1, plain(1, mac(2), &[n; 880]));
    }
    assert_eq!(receive(&mut b).1, numbered(6));
}

#[test]
fn pending_frames_are_released_when_the_receiver_leaves() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    for _ in 0..20 {
        let b = small(&rig, "b", 2);
        for n in 0..10 {
            send(&mut a, &Header::default(), &numbered(n));
        }
        drop(b);
        wait(|| rig.view("b").state == PortState::Listening, || "b is attached".into());
        wait(|| a.is_idle(0).unwrap(), || "the sender's ring".into());
    }
    send(&mut a, &Header::default(), &numbered(0));
    let before = rig.counter("b", "drop_receiver_down_total");
    wait(|| rig.counter("b", "drop_receiver_down_total") >= before, || "the counter".into());
}

#[test]
fn pending_frames_are_dropped_when_the_sender_leaves() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    rig.try_add("b", "red", net(2)).unwrap();
    let mut b = small(&rig, "b", 2);
    for _ in 0..20 {
        let mut a = small(&rig, "a", 64);
        for n in 0..10 {
            send(&mut a, &Header::default(), &numbered(n));
        }
        let frame = numbered(100);
        drop(a);
        wait(|| rig.view("a").state == PortState::Listening, || "a is attached".into());
        // Receives every frame that had arrived; then a frame of a new sender arrives.
        let mut a = small(&rig, "a", 64);
        send(&mut a, &Header::default(), &frame);
        while receive(&mut b).1 != frame {}
        drop(a);
        wait(|| rig.view("a").state == PortState::Listening, || "a is attached".into());
    }
    assert_eq!((rig.view("a").faults_total, rig.view("b").faults_total), (0, 0));
}

#[test]
fn pending_frame_too_large_for_any_buffer_is_dropped() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    // First without mergeable buffers, each too small; then with, but too few of them.
    for (features, ring_size) in [(0, 256), (MERGE, 4)] {
        let options = NetOptions { features, ring_size, receive_bytes: 200, ..Default::default() };
        let mut b = rig.attach("b", options);
        let before = rig.counter("b", "drop_buffer_too_small_total");
        send(&mut a, &Header::default(), &plain(1, mac(2), &pattern(1000)));
        rig.wait_counter("b", "drop_buffer_too_small_total", before + 1);
        let frame = plain(1, mac(2), &pattern(100));
        send(&mut a, &Header::default(), &frame);
        assert_eq!(receive(&mut b).1, frame);
        drop(b);
        wait(|| rig.view("b").state == PortState::Listening, || "b is attached".into());
    }
}

#[test]
fn a_port_may_be_deleted_while_frames_wait() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    let _b = small(&rig, "b", 2);
    for n in 0..10 {
        send(&mut a, &Header::default(), &numbered(n));
    }
    let delete = causeway_model::Command::PortDel("b".parse().unwrap());
    rig.handle.call(delete).unwrap();
    wait(|| a.is_idle(0).unwrap(), || "the sender's ring".into());
    send(&mut a, &Header::default(), &numbered(0));
    wait(|| rig.counter("a", "drop_unknown_destination_total") > 0, || "the counter".into());
}

#[test]
fn hostile_receive_buffers_below_a_header_close_their_port_only() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut c = rig.port("c", net(3), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    let queue = |role, slot_bytes| QueuePlan { role, size: 8, slot_bytes };
    let queues = vec![queue(Role::Receive, 11), queue(Role::Send, 2000)];
    let plan = DevicePlan { features: MERGE, queues, config_bytes: 0 };
    let client = Client::connect(&rig.path("b")).unwrap();
    let _b = Frontend::attach(client, &plan).unwrap();
    send(&mut a, &Header::default(), &numbered(1));
    wait(|| rig.view("b").state == PortState::Faulted, || format!("{:?}", rig.view("b")));
    let fault = rig.view("b").fault.unwrap();
    assert!(fault.contains("11 bytes"), "{fault}");
    let frame = plain(1, mac(3), b"you go on");
    send(&mut a, &Header::default(), &frame);
    assert_eq!(receive(&mut c).1, frame);
}

#[test]
fn hostile_runts_are_dropped() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    let mut b = rig.port("b", net(2), ALL);
    for bytes in [0, 1, 6, 13] {
        send(&mut a, &Header::default(), &vec![0; bytes]);
    }
    rig.wait_counter("a", "drop_runt_total", 4);
    assert!(is_silent(&mut b));
    assert_eq!(rig.view("a").faults_total, 0);
}

#[test]
fn frames_that_wait_when_their_sender_leaves_are_counted() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), ALL);
    rig.try_add("b", "red", net(2)).unwrap();
    let _b = small(&rig, "b", 2);
    for n in 0..20 {
        send(&mut a, &Header::default(), &numbered(n));
    }
    rig.wait_counter("a", "transmit_packets_total", 20);
    drop(a);
    wait(|| rig.view("a").state == PortState::Listening, || "a leaves".into());
    // On a machine that stalls, some frames may exceed their deadline before the sender leaves.
    let (left, late) =
        (rig.counter("a", "drop_sender_down_total"), rig.counter("b", "drop_no_buffer_total"));
    assert_eq!(rig.counter("b", "receive_packets_total") + left + late, 20);
}

#[test]
fn pending_frame_behind_a_dropped_frame_is_delivered() {
    let rig = Rig::new();
    rig.try_add("a", "red", net(1)).unwrap();
    rig.try_add("b", "red", net(2)).unwrap();
    let mut c = rig.port("c", net(3), ALL);
    let from_c = plain(3, mac(2), &[3; 60]);
    // On a machine that stalls, the frame may exceed its deadline.
    let came = (0..20).any(|_| {
        let options =
            NetOptions { features: MERGE, ring_size: 8, receive_bytes: 200, ..Default::default() };
        let _b = rig.attach("b", options);
        let mut a = small(&rig, "a", 64);
        let sent = |port| rig.counter(port, "transmit_packets_total");
        let (had, lost) = (got(&rig), rig.counter("b", "drop_no_buffer_total"));
        let before = (sent("a"), sent("c"));
        for _ in 0..5 {
            send(&mut c, &Header::default(), &from_c);
        }
        wait(|| got(&rig) == had + 5, || "b has three buffers left".into());
        // The first frame needs six buffers and waits; the second needs one and waits behind it.
        send(&mut a, &Header::default(), &plain(1, mac(2), &pattern(1000)));
        wait(|| sent("a") > before.0, || "it was not taken".into());
        send(&mut c, &Header::default(), &from_c);
        wait(|| sent("c") > before.1 + 5, || "it was not taken".into());
        drop(a);
        let lost = || rig.counter("b", "drop_no_buffer_total") > lost;
        wait(|| got(&rig) == had + 6 || lost(), || "the frame is gone".into());
        let came = got(&rig) == had + 6;
        drop(_b);
        let gone = |port| rig.view(port).state == PortState::Listening;
        wait(|| gone("a") && gone("b"), || "ports are attached".into());
        came
    });
    assert!(came);
}

/// Returns the number of frames that port b received.
fn got(rig: &Rig) -> u64 {
    rig.counter("b", "receive_packets_total")
}
