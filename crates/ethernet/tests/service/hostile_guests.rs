//! Guests that break the rules of their rings and memory under traffic: each loses its own port,
//! with a reason, and every other port continues.

use crate::common::raw::Raw;
use crate::common::*;
use causeway_attach::native::NetPort;
use causeway_memory::Span;
use causeway_model::PortState;
use causeway_testing::frontend::{RINGS_END, SEND_AT};
use causeway_wire::virtio_net::Header;

/// Two lawful ports and a hostile port.
struct Scene {
    rig: Rig,
    good: NetPort,
    other: NetPort,
    bad: Raw,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new();
        let good = rig.port("good", net(1), ALL);
        let other = rig.port("other", net(2), ALL);
        rig.try_add("bad", "red", net(3)).unwrap();
        let bad = Raw::attach(&rig.path("bad"));
        Self { rig, good, other, bad }
    }

    /// Waits until the hostile port closes, and checks that the others still exchange frames.
    fn expect_fault(&mut self, reason: &str) {
        let rig = &self.rig;
        wait(|| rig.view("bad").state == PortState::Faulted, || format!("{:?}", rig.view("bad")));
        let fault = rig.view("bad").fault.unwrap();
        assert!(fault.contains(reason), "{fault}");
        assert_eq!(rig.view("bad").faults_total, 1);
        let frame = plain(1, mac(2), b"we go on");
        send(&mut self.good, &Header::default(), &frame);
        assert_eq!(receive(&mut self.other).1, frame);
        let frame = plain(2, mac(1), b"indeed");
        send(&mut self.other, &Header::default(), &frame);
        assert_eq!(receive(&mut self.good).1, frame);
        for port in ["good", "other"] {
            assert_eq!(rig.view(port).faults_total, 0);
        }
        // The same port accepts its next guest.
        let mut next = self.rig.attach("bad", Default::default());
        let frame = plain(1, mac(3), b"welcome");
        send(&mut self.good, &Header::default(), &frame);
        assert_eq!(receive(&mut next).1, frame);
    }
}

#[test]
fn ethernet_lawful_guest_exchanges_frames() {
    let mut scene = Scene::new();
    let frame = plain(3, mac(1), b"not bad at all");
    scene.bad.send(&frame);
    assert_eq!(receive(&mut scene.good).1, frame);
    let answer = plain(1, mac(3), b"good to know");
    send(&mut scene.good, &Header::default(), &answer);
    let bad = &mut scene.bad;
    wait(
        || bad.receive.take().unwrap().is_some_and(|used| used.written == 12 + 26),
        || "nothing was received".into(),
    );
    let mut bytes = vec![0; 12 + answer.len()];
    bad.map.read(RINGS_END, &mut bytes).unwrap();
    assert_eq!(bytes[12..], answer);
}

#[test]
fn hostile_receiver_whose_memory_shrinks() {
    let mut scene = Scene::new();
    scene.bad.file.set_len(RINGS_END).unwrap();
    send(&mut scene.good, &Header::default(), &plain(1, mac(3), b"where are you"));
    scene.expect_fault("shrank");
}

#[test]
fn hostile_sender_whose_memory_shrinks() {
    let mut scene = Scene::new();
    scene.bad.file.set_len(RINGS_END).unwrap();
    scene.bad.send_chain(&[Span { addr: SEND_AT, len: 500 }]);
    scene.expect_fault("shrank");
}

#[test]
fn hostile_sender_whose_rings_vanish() {
    let mut scene = Scene::new();
    scene.bad.file.set_len(0).unwrap();
    scene.bad.kick_all();
    send(&mut scene.good, &Header::default(), &plain(1, mac(3), b"where are you"));
    scene.expect_fault("shrank");
}

#[test]
fn hostile_transmit_index_that_jumps() {
    let mut scene = Scene::new();
    scene.bad.jump(1000);
    scene.bad.kick_all();
    scene.expect_fault("jumped");
}

#[test]
fn hostile_transmit_chain_outside_the_memory() {
    let mut scene = Scene::new();
    scene.bad.send_chain(&[Span { addr: 0xffff_ffff_f000, len: 100 }]);
    scene.expect_fault("not granted");
}

#[test]
fn hostile_transmit_chain_without_end() {
    let mut scene = Scene::new();
    let span = Span { addr: SEND_AT, len: 16 };
    let bad = &mut *scene.bad;
    bad.transmit.add(&bad.map, &[span], &[]).unwrap();
    scene.bad.describe(1, 0, span, 1, 0);
    scene.bad.transmit.publish().unwrap();
    scene.bad.kick_all();
    scene.expect_fault("chain of more than");
}

#[test]
fn hostile_receive_chain_without_end() {
    let mut scene = Scene::new();
    scene.bad.describe(0, 0, Span { addr: SEND_AT, len: 16 }, 1 | 2, 0);
    send(&mut scene.good, &Header::default(), &plain(1, mac(3), b"take this"));
    scene.expect_fault("chain of more than");
}

#[test]
fn hostile_receive_buffer_outside_the_memory() {
    let mut scene = Scene::new();
    scene.bad.describe(0, 0, Span { addr: 0x7fff_0000, len: 2048 }, 2, 0);
    send(&mut scene.good, &Header::default(), &plain(1, mac(3), b"take this"));
    scene.expect_fault("not granted");
}

#[test]
fn hostile_frames_that_wait_when_their_sender_faults() {
    let mut scene = Scene::new();
    // Fills the lawful port's ring, so that frames wait, and then breaks its own ring.
    let frame = plain(3, mac(1), &[7; 100]);
    scene.bad.map.write(SEND_AT, &[&[0; 12], &frame[..]].concat()).unwrap();
    let span = Span { addr: SEND_AT, len: frame.len() as u32 + 12 };
    for _ in 0..10 {
        for _ in 0..32 {
            while scene.bad.transmit.take().unwrap().is_some() {}
            let bad = &mut *scene.bad;
            let _ = bad.transmit.add(&bad.map, &[span], &[]);
        }
        scene.bad.transmit.publish().unwrap();
        scene.bad.kick_all();
    }
    scene.bad.jump(40_000);
    scene.bad.kick_all();
    let rig = &scene.rig;
    wait(|| rig.view("bad").state == PortState::Faulted, || format!("{:?}", rig.view("bad")));
    while !is_silent(&mut scene.good) {}
    wait(|| scene.good.is_idle(0).unwrap(), || "the ring".into());
    scene.expect_fault("jumped");
}
