//! The work budget of one turn is the same for every guest's frames, broadcasts included.

use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_ethernet::Ethernet;
use causeway_fabric::PollConfig;
use causeway_model::Name;
use causeway_sim::Stage;
use causeway_sim::stage::{net_spec, plain_net};

const GUESTS: u8 = 40;
const FRAMES: u64 = 100;

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

fn name(n: u8) -> Name {
    format!("p{n}").parse().unwrap()
}

fn broadcast(number: u64) -> Vec<u8> {
    [&[0xff; 6][..], &mac(0), &[0x88, 0xb5], &number.to_le_bytes()].concat()
}

/// Creates a group of `GUESTS` guests with the given ring format.
fn group(ring: u64) -> (Stage, Vec<NetPort>) {
    let group: Name = "g".parse().unwrap();
    let stage =
        Stage::new(group.clone(), Box::new(Ethernet::new()), PollConfig::default()).unwrap();
    let plain = NetOptions::default();
    let options = NetOptions { features: plain.features | ring, ..plain };
    let port = |n| {
        stage.add(net_spec(&group, &name(n), plain_net(mac(n), 1500))).unwrap();
        stage.net(&name(n), options.clone(), 0).unwrap()
    };
    let ports = (0..GUESTS).map(port).collect();
    stage.step(8).unwrap();
    (stage, ports)
}

fn transmitted(stage: &Stage) -> u64 {
    stage.view(&name(0)).unwrap().counters["transmit_packets_total"]
}

fn hostile_broadcasts(ring: u64) {
    let (stage, mut ports) = group(ring);
    for number in 0..FRAMES {
        assert!(ports[0].queue(0, &[0; NET_HEADER_BYTES], &broadcast(number)).unwrap());
    }
    ports[0].flush(0).unwrap();
    // The stage does not ring doorbells itself.
    ports[0].frontend().driver_queue(1).unwrap().1.ring();
    let mut before = 0;
    for _ in 0..10 * FRAMES {
        stage.advance(1000);
        stage.step(1).unwrap();
        let now = transmitted(&stage);
        // The budget is 64 frames; the last frame may exceed it.
        let copies = (now - before) * u64::from(GUESTS - 1);
        assert!(copies <= 64 + u64::from(GUESTS), "{copies} copies in one turn");
        before = now;
    }
    assert_eq!(before, FRAMES);
    let mut frame = Vec::new();
    for port in &mut ports[1..] {
        for number in 0..FRAMES {
            assert!(port.receive(0, &mut frame).unwrap().is_some(), "frame {number}");
            assert_eq!(frame, broadcast(number), "in order, each once");
        }
        assert!(port.receive(0, &mut frame).unwrap().is_none());
    }
}

#[test]
fn hostile_broadcasts_are_served_a_few_at_a_time() {
    hostile_broadcasts(0);
}

#[test]
fn hostile_broadcasts_of_packed_rings_are_served_a_few_at_a_time() {
    hostile_broadcasts(causeway_attach::native::net_features::RING_PACKED);
}
