//! Networks that lose, duplicate, delay, truncate and damage datagrams, from one seed each.

use crate::common::*;
use causeway_link::{EventKind, Refusal};
use proptest::prelude::*;

const SECOND: u64 = 1_000 * MS;

fn any_frame(seed: &mut Seed, mark: u64) -> Got {
    let len = match seed.below(4) {
        0 => 60 + seed.below(40) as usize,
        1 => 1_400 + seed.below(200) as usize,
        2 => 60 + seed.below(9_000) as usize,
        _ => 60 + seed.below(65_490) as usize,
    };
    let mut bytes = frame(seed, len);
    bytes[..8].copy_from_slice(&mark.to_be_bytes());
    (VNI, seed.below(8) as u8, metadata(seed), bytes)
}

/// Two hosts exchange frames through an unreliable network; every received frame was sent, and is
/// received once.
fn storm(seed: u64, plain: bool, weather: Weather) -> (usize, usize, World) {
    let mut world = World::pair(seed, plain, [1_472, 8_972][seed as usize % 2]);
    world.weather = weather;
    let mut sent: [Vec<Got>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..30 {
        for host in [0, 1] {
            let many = world.seed.below(5);
            let mut seed = Seed(world.seed.next());
            let frames: Vec<_> =
                (0..many).map(|i| any_frame(&mut seed, (sent[host].len() as u64) + i)).collect();
            world.send(host, &frames);
            sent[host].extend(frames);
        }
        world.run(7 * MS);
    }
    world.run(100 * MS);
    let mut arrived = 0;
    for host in [0, 1] {
        let theirs = &sent[1 - host];
        let mut seen = vec![0; theirs.len()];
        for got in &world.hosts[host].got {
            let mark = u64::from_be_bytes(*got.3.first_chunk().unwrap()) as usize;
            assert!(theirs[mark] == *got, "frame {mark} is not what was sent");
            seen[mark] += 1;
        }
        assert!(plain || seen.iter().all(|times| *times <= 1), "a frame arrived twice");
        arrived += seen.iter().filter(|times| **times > 0).count();
    }
    (sent[0].len() + sent[1].len(), arrived, world)
}

/// Checks that state is bounded, and that traffic recovers once the network is reliable again.
fn calm_again(mut world: World) {
    world.weather = Weather::default();
    world.run(12 * SECOND);
    for host in [0, 1] {
        let state = world.tunnel(host).state(world.now);
        assert!(state.up);
        assert_eq!(state.fragments, (0, 0), "nothing is kept for ever");
        world.hosts[host].got.clear();
    }
    let frame = (VNI, 0, Default::default(), vec![5; 60_000]);
    world.send(0, std::slice::from_ref(&frame));
    world.send(1, std::slice::from_ref(&frame));
    world.run(10 * MS);
    assert!(world.hosts.iter().all(|host| host.got == [frame.clone()]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn frames_arrive_unchanged_and_once(seed: u64) {
        let mut choice = Seed(seed | 1);
        let mut of = |most: u64| choice.below(most);
        let weather = Weather {
            lost: of(50), doubled: of(100), late: of(500), cut: of(20), flipped: of(20), mtu: 0,
        };
        let (_, _, world) = storm(seed, false, weather);
        calm_again(world);
    }

    #[test]
    fn without_loss_all_arrives_however_late_and_often(seed: u64, late in 0_u64..1000, doubled in 0_u64..1000) {
        let weather = Weather { late, doubled, ..Weather::default() };
        let (sent, arrived, world) = storm(seed, false, weather);
        prop_assert_eq!(sent, arrived);
        prop_assert!(world.refused.iter().all(|r| *r == Refusal::Replayed), "{:?}", world.refused);
        // Each datagram is duplicated; there is no other fault.
        if doubled > 500 { prop_assert!(!world.refused.is_empty()); }
    }

    #[test]
    fn plain_tunnels_make_no_frame_of_pieces_that_do_not_belong_together(seed: u64, lost in 0_u64..50) {
        let weather = Weather { lost, doubled: 100, late: 500, cut: 20, ..Weather::default() };
        let (_, _, world) = storm(seed, true, weather);
        calm_again(world);
    }
}

#[test]
fn every_damage_is_found() {
    let mut world = World::pair(1, false, 1_472);
    world.weather.flipped = 1000;
    for _ in 0..300 {
        world.send(0, &[(VNI, 0, Default::default(), vec![1; 300])]);
        world.run(MS / 2);
    }
    assert!(world.hosts[1].got.is_empty());
    assert!(world.refusals(1, Refusal::Forged) > 200);
    assert!(world.refusals(1, Refusal::Foreign) > 0);
    assert!(world.refusals(1, Refusal::Session) > 0);
}

#[test]
fn a_path_that_becomes_narrow_carries_all_frames_again_in_seconds() {
    let mut world = World::pair(2, false, 8_972);
    assert_eq!(world.tunnel(0).state(world.now).datagram, 8_972);
    world.weather.mtu = 1_400;
    world.run(12 * SECOND);
    assert!(world.tunnel(0).is_up(), "short heartbeats pass");
    assert_eq!(world.seen(0, |what| *what == EventKind::Down), 0);
    assert_eq!(world.tunnel(0).state(world.now).datagram, 1_392);
    let frame = (VNI, 0, Default::default(), vec![5; 9_000]);
    world.send(0, std::slice::from_ref(&frame));
    world.run(10 * MS);
    assert_eq!(world.hosts[1].got, [frame]);
    world.weather.mtu = 0;
    world.run(61 * SECOND);
    assert_eq!(world.tunnel(0).state(world.now).datagram, 8_972);
}

#[test]
fn an_underlay_that_refuses_long_datagrams_is_believed_at_once() {
    let mut world = World::pair(3, false, 8_972);
    world.weather.mtu = 1_472;
    let now = world.now;
    let host = &mut world.hosts[0];
    host.hub.tunnel_mut(0).unwrap().shorten_datagrams(now, &mut host.sink);
    assert_eq!(world.tunnel(0).tx_path().path().unwrap().datagram, 1_232);
    world.run(2 * SECOND);
    assert_eq!(world.tunnel(0).tx_path().path().unwrap().datagram, 1_472);
}
