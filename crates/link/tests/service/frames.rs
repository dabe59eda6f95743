//! Frames of every length between two daemons.

use crate::common::*;
use causeway_link::limits::FRAME_BYTES_MAX;
use causeway_link::{EventKind, Refusal};

/// Returns frames of these lengths.
fn frames(seed: &mut Seed, lengths: impl IntoIterator<Item = usize>) -> Vec<Got> {
    let mut each = |len: usize| (VNI, seed.below(9) as u8, metadata(seed), frame(seed, len));
    lengths.into_iter().map(&mut each).collect()
}

#[test]
fn frames_of_every_length_cross_with_their_metadata() {
    for plain in [false, true] {
        for longest in [1_232, 1_472, 8_972, 65_507] {
            let mut world = World::pair(3, plain, longest);
            let lengths = [60, 65_550, 14, 1_514, 1_414, 1_400, 9_014, 64, FRAME_BYTES_MAX, 1, 61];
            let sent = frames(&mut world.seed.clone(), lengths);
            world.send(0, &sent);
            world.send(1, &sent);
            world.run(10 * MS);
            for host in [0, 1] {
                let mut got = std::mem::take(&mut world.hosts[host].got);
                // Whole frames may overtake fragmented frames.
                let order = |f: &Got| lengths.iter().position(|len| *len == f.3.len());
                got.sort_by_key(order);
                assert!(got == sent, "plain {plain}, longest {longest}, host {host}");
            }
        }
    }
}

#[test]
fn frames_around_the_datagram_limit_cross() {
    let mut world = World::pair(4, false, 1_472);
    for first in [0, 700, 1_300] {
        for len in 1_300..1_480 {
            let mut seed = world.seed.clone();
            let lengths = [first, len].into_iter().filter(|len| *len > 0);
            let sent = frames(&mut seed, lengths);
            world.send(0, &sent);
            world.run(MS);
            let mut got = std::mem::take(&mut world.hosts[1].got);
            got.sort_by_key(|f| f.3.len());
            assert!(got == sent, "{first} {len}");
        }
    }
}

#[test]
fn small_frames_share_datagrams() {
    let mut world = World::pair(5, false, 1_472);
    let seed = &mut world.seed.clone();
    let sent: Vec<_> = (0..1000)
        .map(|_| (VNI, 0, causeway_wire::virtio_net::Header::default(), frame(seed, 60)))
        .collect();
    world.tape = Some(Vec::new());
    world.send(0, &sent);
    // Frames of 64 bytes in 1436 bytes of plaintext.
    assert_eq!(world.tape.take().unwrap().len(), 1000_usize.div_ceil(22));
    world.run(10 * MS);
    assert!(world.hosts[1].got == sent);
}

#[test]
fn frames_of_another_network_are_refused() {
    let mut world = World::pair(6, false, 1_472);
    let frame = |vni, byte| (vni, 0, Default::default(), vec![byte; 100]);
    world.send(0, &[frame(VNI, 1), frame(VNI + 1, 2), frame(VNI, 3), frame(0x00ff_ffff, 4)]);
    world.run(10 * MS);
    let got: Vec<_> = world.hosts[1].got.iter().map(|got| (got.0, got.3[0])).collect();
    assert_eq!(got, [(VNI, 1), (VNI, 3)]);
    assert_eq!(world.refusals(1, Refusal::Vni), 2);
}

#[test]
fn tunnel_reports_up_at_both_ends() {
    let world = World::pair(7, false, 1_472);
    for host in [0, 1] {
        assert_eq!(world.seen(host, |what| *what == EventKind::Up), 1);
        assert!(world.seen(host, |what| *what == EventKind::Session) >= 1);
        assert_eq!(world.seen(host, |what| *what == EventKind::Datagram(1_472)), 1);
        let state = world.tunnel(host).state(world.now);
        assert_eq!((state.up, state.datagram), (true, 1_472));
        assert_eq!(state.rtt, Some(MS / 5));
    }
}
