//! On-demand tunnels: dormant without traffic, awake with the first frame.

use std::sync::Arc;

use crate::common::*;
use causeway_link::limits::{LINGER_NS, WAITING_BYTES_MAX, WAITING_FRAMES_MAX, WAKE_NS_MAX};
use causeway_link::{EventKind, OnDemand, Refusal, TunnelConfig, WaitRefusal};
use causeway_model::keys::PrivateKey;
use causeway_wire::tunnel::record::FLOODED;

const SECOND: u64 = 1_000 * MS;
const IDLE: u64 = 120 * SECOND;

fn small(byte: u8) -> Got {
    (VNI, 0, Default::default(), vec![byte; 60])
}

/// Adds an on-demand tunnel to another host, dormant if `has_directory`.
fn add(world: &mut World, own: usize, other: usize, idle: u64, has_directory: bool) -> u16 {
    let keys = (Arc::clone(&world.hosts[own].key), world.hosts[other].key.public());
    let on_demand = Some(OnDemand { idle, has_directory });
    let remote = Some(world.hosts[other].address);
    world.add(own, &TunnelConfig { keys: Some(keys), remote, longest: 1_472, on_demand })
}

/// Returns two hosts with a dormant tunnel between them.
fn pair(seed: u64) -> World {
    let mut world = World::new(seed, 2);
    add(&mut world, 0, 1, IDLE, true);
    add(&mut world, 1, 0, IDLE, true);
    world.run(SECOND);
    assert_eq!(dormant(&world), [true; 2]);
    world
}

fn dormant(world: &World) -> [bool; 2] {
    [0, 1].map(|host| world.tunnel(host).is_dormant())
}

fn handshakes(world: &World) -> [u64; 2] {
    [0, 1].map(|host| world.tunnel(host).state(world.now).handshakes)
}

/// Lets time pass until both ends are dormant. Returns the time that passed.
fn run_until_dormant(world: &mut World, most: u64) -> u64 {
    let begun = world.now;
    while dormant(world) != [true; 2] {
        world.run(100 * MS);
        assert!(world.now - begun < most, "still awake: {:?}", dormant(world));
    }
    world.now - begun
}

#[test]
fn dormant_tunnel_sends_nothing_until_the_first_frame() {
    let mut world = pair(1);
    world.tape = Some(Vec::new());
    world.run(3_600 * SECOND);
    assert_eq!(world.tape.take().unwrap().len(), 0, "an hour of silence");
    assert_eq!(world.hosts[0].hub.deadline(), u64::MAX, "no timer");
    world.offer(0, 0, small(1)).unwrap();
    world.run(10 * MS);
    assert_eq!(world.hosts[1].got, [small(1)]);
    world.offer(1, 0, small(2)).unwrap();
    world.run(10 * MS);
    assert_eq!(world.hosts[0].got, [small(2)]);
    assert_eq!((handshakes(&world), dormant(&world)), ([1, 1], [false; 2]));
    let passed = run_until_dormant(&mut world, 2 * IDLE);
    assert!((IDLE - SECOND..=IDLE + SECOND).contains(&passed), "{passed}");
    world.tape = Some(Vec::new());
    world.run(3_600 * SECOND);
    assert_eq!((world.tape.take().unwrap().len(), handshakes(&world)), (0, [1, 1]));
    assert_eq!(world.seen(0, |what| *what == EventKind::Down), 0);
    assert_eq!(world.seen(0, |what| *what == EventKind::Dormant), 1);
    assert!(world.refused.is_empty(), "{:?}", world.refused);
}

#[test]
fn dormant_ends_may_wake_at_once() {
    for seed in 0..20 {
        let mut world = pair(100 + seed);
        world.weather.late = if seed % 2 == 0 { 0 } else { 1000 };
        for byte in 0..3 {
            world.offer(0, 0, small(byte)).unwrap();
            world.offer(1, 0, small(byte)).unwrap();
        }
        world.run(3 * SECOND);
        for host in [0, 1] {
            let mut got = world.hosts[host].got.clone();
            got.sort_by(|a, b| a.3.cmp(&b.3));
            assert_eq!(got, [small(0), small(1), small(2)], "seed {seed}, host {host}");
        }
        run_until_dormant(&mut world, 2 * IDLE);
    }
}

#[test]
fn dormant_tunnel_repeats_a_lost_handshake() {
    let mut world = pair(2);
    for lost in [1, 2] {
        // The initiation is lost, then the response.
        world.offer(0, 0, small(lost)).unwrap();
        let until = if lost == 1 { 0 } else { MS / 10 };
        world.run(until);
        world.wire.clear();
        world.run(2 * SECOND);
        assert_eq!(world.hosts[1].got, [small(lost)]);
        world.hosts[1].got.clear();
        run_until_dormant(&mut world, 2 * IDLE);
    }
}

#[test]
fn dormant_ends_follow_the_shorter_idle_time() {
    let mut world = World::new(3, 2);
    add(&mut world, 0, 1, 30 * SECOND, true);
    add(&mut world, 1, 0, 600 * SECOND, true);
    world.offer(1, 0, small(1)).unwrap();
    let passed = run_until_dormant(&mut world, 60 * SECOND);
    assert!(passed >= 29 * SECOND, "{passed}");
    world.run(3_600 * SECOND);
    assert_eq!(handshakes(&world), [1, 1], "none woke the other");
}

#[test]
fn dormant_notice_that_is_lost_ends_after_one_handshake_more() {
    for outage in [SECOND, 15 * SECOND] {
        let mut world = pair(4);
        world.offer(0, 0, small(1)).unwrap();
        world.run(IDLE - 60 * SECOND);
        // Both ends see the same traffic, but this frame is lost: the other end is idle 60 s before.
        world.offer(0, 0, small(2)).unwrap();
        world.wire.clear();
        world.run(58 * SECOND);
        world.weather.lost = 1000;
        world.run(2 * SECOND + outage);
        world.weather.lost = 0;
        run_until_dormant(&mut world, 2 * IDLE);
        world.run(3_600 * SECOND);
        assert_eq!(dormant(&world), [true; 2], "outage of {outage}");
        assert!(handshakes(&world)[0] <= 3, "{:?}", handshakes(&world));
    }
}

#[test]
fn dormant_tunnel_reaches_a_peer_that_restarted() {
    let mut world = pair(5);
    for round in 0..3 {
        world.offer(0, 0, small(1)).unwrap();
        world.run(SECOND);
        run_until_dormant(&mut world, 2 * IDLE);
        let host = round % 2;
        world.restart(host);
        add(&mut world, host, 1 - host, IDLE, true);
        world.run(SECOND);
        world.hosts[1].got.clear();
        world.offer(0, 0, small(2)).unwrap();
        world.run(SECOND);
        assert_eq!(world.hosts[1].got, [small(2)], "round {round}");
        world.hosts[1].got.clear();
        run_until_dormant(&mut world, 2 * IDLE);
    }
    // A peer that restarts while awake: this end finds it silent, and both are dormant in the end.
    world.offer(0, 0, small(3)).unwrap();
    world.run(SECOND);
    world.restart(1);
    add(&mut world, 1, 0, IDLE, true);
    run_until_dormant(&mut world, 2 * IDLE);
}

#[test]
fn dormant_tunnel_follows_a_peer_that_roamed() {
    let mut world = pair(6);
    world.offer(0, 0, small(1)).unwrap();
    world.run(SECOND);
    run_until_dormant(&mut world, 2 * IDLE);
    world.hosts[1].address = address(5);
    world.offer(1, 0, small(2)).unwrap();
    world.run(SECOND);
    assert_eq!(world.hosts[0].got, [small(2)]);
    run_until_dormant(&mut world, 2 * IDLE);
    world.offer(0, 0, small(3)).unwrap();
    world.run(SECOND);
    assert_eq!(world.hosts[1].got.last(), Some(&small(3)), "the address is kept");
}

#[test]
fn dormant_tunnel_rekeys_while_traffic_lasts() {
    let mut world = pair(7);
    for byte in 0..60_u8 {
        world.offer(usize::from(byte % 2), 0, small(byte)).unwrap();
        world.run(10 * SECOND);
    }
    assert_eq!(world.hosts[0].got.len() + world.hosts[1].got.len(), 60);
    assert!((5..=6).contains(&handshakes(&world)[0]), "{:?}", handshakes(&world));
    assert_eq!(world.seen(0, |what| *what == EventKind::Dormant), 0);
    run_until_dormant(&mut world, 2 * IDLE);
}

#[test]
fn dormant_tunnel_ignores_replayed_datagrams() {
    let mut world = pair(8);
    world.tape = Some(Vec::new());
    world.offer(0, 0, small(1)).unwrap();
    world.run(SECOND);
    let tape = world.tape.take().unwrap();
    run_until_dormant(&mut world, 2 * IDLE);
    for wait in [0, SECOND, 60 * SECOND] {
        world.run(wait);
        let events = world.hosts[1].events.len();
        for letter in tape.iter().filter(|letter| letter.to == address(1)) {
            assert!(world.deliver(1, letter.from, &letter.bytes).is_err());
        }
        world.run(SECOND);
        assert_eq!((dormant(&world), handshakes(&world)), ([true; 2], [1, 1]));
        assert_eq!(world.hosts[1].events.len(), events);
    }
    assert_eq!(world.hosts[1].got, [small(1)]);
}

#[test]
fn dormant_frames_on_their_way_are_delivered_and_wake_the_tunnel() {
    let mut world = pair(9);
    world.offer(0, 0, small(1)).unwrap();
    world.run(SECOND);
    // A frame is under way while the peer goes dormant.
    world.tape = Some(Vec::new());
    world.offer(0, 0, small(2)).unwrap();
    let late = world.tape.take().unwrap().pop().unwrap();
    world.wire.clear();
    while !world.tunnel(1).is_dormant() {
        world.run(100 * MS);
    }
    world.deliver(1, late.from, &late.bytes).unwrap();
    world.run(SECOND);
    assert_eq!(world.hosts[1].got, [small(1), small(2)]);
    assert_eq!(dormant(&world), [false; 2], "it was traffic");
    run_until_dormant(&mut world, 2 * IDLE);
}

#[test]
fn dormant_tunnel_is_down_while_its_peer_does_not_answer() {
    let mut world = World::new(10, 2);
    add(&mut world, 0, 1, IDLE, true);
    for round in 1..=2 {
        world.offer(0, 0, small(1)).unwrap();
        world.run(WAKE_NS_MAX + SECOND);
        assert_eq!(world.seen(0, |what| *what == EventKind::Down), round);
        assert_eq!(world.tunnel(0).state(world.now).waiting, (0, round as u64));
        assert_eq!(world.offer(0, 0, small(2)), Err(WaitRefusal::Down));
        world.run(2 * IDLE);
        assert!(world.tunnel(0).is_dormant(), "it may be tried again");
        assert_eq!(world.seen(0, |what| *what == EventKind::Dormant), round);
    }
    // The peer appears while the tunnel is awake.
    world.offer(0, 0, small(1)).unwrap();
    world.run(WAKE_NS_MAX + SECOND);
    add(&mut world, 1, 0, IDLE, true);
    world.run(10 * SECOND);
    assert!(world.tunnel(0).is_up() && world.hosts[1].got.is_empty());
    run_until_dormant(&mut world, 2 * IDLE);
}

#[test]
fn hostile_senders_fill_no_memory_of_a_dormant_tunnel() {
    let mut world = World::new(11, 2);
    add(&mut world, 0, 1, IDLE, true);
    let refused = (0..1_000).filter(|_| world.offer(0, 0, small(1)).is_err()).count();
    assert_eq!(refused, 1_000 - WAITING_FRAMES_MAX);
    world.run(WAKE_NS_MAX + SECOND);
    world.run(2 * IDLE);
    let long = (VNI, 0, Default::default(), vec![7; 50_000]);
    let taken = (0..100).filter(|_| world.offer(0, 0, long.clone()).is_ok()).count();
    assert_eq!(taken, WAITING_BYTES_MAX / 50_000);
    // All of it leaves once the peer is there.
    add(&mut world, 1, 0, IDLE, true);
    world.run(2 * SECOND);
    assert_eq!(world.hosts[1].got, vec![long; taken]);
}

#[test]
fn on_demand_tunnel_stays_awake_for_a_peer_that_is_not() {
    let mut world = World::new(12, 2);
    add(&mut world, 0, 1, IDLE, true);
    let keys = (Arc::clone(&world.hosts[1].key), world.hosts[0].key.public());
    let remote = Some(address(0));
    world.add(1, &TunnelConfig { keys: Some(keys), remote, longest: 1_472, on_demand: None });
    world.run(3_600 * SECOND);
    assert_eq!(dormant(&world), [false; 2]);
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
    assert_eq!(world.seen(1, |what| *what == EventKind::Down), 0);
}

#[test]
fn on_demand_tunnel_without_a_directory_announces_and_then_is_dormant() {
    let mut world = World::new(13, 2);
    add(&mut world, 0, 1, IDLE, false);
    add(&mut world, 1, 0, IDLE, false);
    let now = world.now;
    world.tunnel_mut(0).announce(now, VNI, [2; 6], 5).unwrap();
    let passed = run_until_dormant(&mut world, 2 * IDLE);
    assert!(passed <= LINGER_NS + SECOND, "{passed}");
    assert_eq!(world.tunnel(1).state(world.now).addresses.1, 1);
    // A change wakes it for a while.
    let now = world.now;
    world.tunnel_mut(0).withdraw(now, VNI, [2; 6]);
    world.run(5 * SECOND);
    assert_eq!(world.tunnel(1).state(world.now).addresses.1, 0);
    run_until_dormant(&mut world, LINGER_NS + SECOND);
    // With a directory, the next session corrects what the peer missed.
    let mut world = pair(14);
    let now = world.now;
    world.tunnel_mut(0).announce(now, VNI, [2; 6], 5).unwrap();
    world.run(10 * SECOND);
    assert_eq!((dormant(&world), world.tunnel(1).state(world.now).addresses.1), ([true; 2], 0));
    world.offer(1, 0, small(1)).unwrap();
    world.run(SECOND);
    assert_eq!(world.tunnel(1).state(world.now).addresses.1, 1);
}

#[test]
fn flooded_frames_do_not_keep_a_tunnel_awake() {
    let mut world = pair(15);
    let flooded = (VNI, FLOODED, Default::default(), vec![7; 60]);
    world.offer(0, 0, flooded.clone()).unwrap();
    world.run(SECOND);
    assert_eq!(world.hosts[1].got, [flooded]);
    let passed = run_until_dormant(&mut world, 2 * IDLE);
    assert!(passed <= LINGER_NS, "{passed}");
}

/// Returns a host with a dormant tunnel to each of 1,000 others, of which the first three exist.
fn site(seed: u64) -> World {
    let mut world = World::new(seed, 4);
    for other in 1..4 {
        add(&mut world, 0, other, IDLE, true);
        add(&mut world, other, 0, IDLE, true);
    }
    for other in 3..1_000_u32 {
        let mut key = [0; 32];
        world.seed.fill(&mut key);
        let keys = (Arc::clone(&world.hosts[0].key), PrivateKey::new(key).public());
        let remote = Some(([10, 1, (other >> 8) as u8, other as u8], 7_000).into());
        let on_demand = Some(OnDemand { idle: IDLE, has_directory: true });
        world.add(0, &TunnelConfig { keys: Some(keys), remote, longest: 1_472, on_demand });
    }
    world
}

#[test]
fn site_of_a_thousand_hosts_has_sessions_with_those_that_talk() {
    let mut world = site(16);
    world.tape = Some(Vec::new());
    for second in 0..60 {
        for to in 0..3 {
            world.offer(0, to, small(second)).unwrap();
        }
        world.run(SECOND);
    }
    let all = || world.hosts[0].hub.tunnels();
    assert_eq!(all().count(), 1_000);
    assert_eq!(all().filter(|tunnel| !tunnel.is_dormant()).count(), 3);
    for other in 1..4 {
        assert_eq!(world.hosts[other].got.len(), 60);
    }
    let tape = world.tape.take().unwrap();
    let known: Vec<_> = (0..4).map(address).collect();
    assert!(tape.iter().all(|letter| known.contains(&letter.to)), "no datagram to the others");
}

/// Random traffic, restarts and faults: frames arrive at most once; in silence both ends go dormant
/// and stay so, and then a frame in each direction arrives.
fn play(seed: u64) {
    let mut world = World::new(seed, 2);
    let idle = [0, 1].map(|_| 15 + world.seed.below(60));
    for host in [0, 1] {
        add(&mut world, host, 1 - host, idle[host] * SECOND, true);
    }
    for round in 0..30 {
        let rough = world.seed.chance(500);
        world.weather.lost = if rough { world.seed.below(700) } else { 0 };
        world.weather.doubled = if rough { 200 } else { 0 };
        world.weather.late = world.seed.below(1_000);
        let restarts = world.seed.chance(150);
        if restarts {
            let host = world.seed.below(2) as usize;
            world.restart(host);
            add(&mut world, host, 1 - host, idle[host] * SECOND, true);
        }
        // Long enough to find a lost session, or a peer that was restarted.
        let settles = if round > 0 { world.seed.below(200) * SECOND } else { 0 };
        world.run(settles);
        world.hosts.iter_mut().for_each(|host| host.got.clear());
        let from = world.seed.below(2) as usize;
        let mut sent = 0;
        for byte in 0..world.seed.below(5) {
            sent += usize::from(world.offer(from, 0, small(byte as u8)).is_ok());
            let pause = world.seed.below(300) * MS;
            world.run(pause);
        }
        world.run(4 * SECOND);
        let got = &mut world.hosts[1 - from].got;
        let count = got.len();
        got.sort_by(|a, b| a.3.cmp(&b.3));
        got.dedup();
        assert_eq!(got.len(), count, "seed {seed}, round {round}: twice");
        assert!(count <= sent);
    }
    world.weather = Weather::default();
    // The longest that an end is awake without traffic: an outage was found, and a session agreed.
    run_until_dormant(&mut world, 400 * SECOND);
    world.tape = Some(Vec::new());
    world.run(3_600 * SECOND);
    assert_eq!(world.tape.take().unwrap().len(), 0, "seed {seed}");
    for host in [0, 1] {
        world.hosts.iter_mut().for_each(|host| host.got.clear());
        world.offer(host, 0, small(9)).unwrap();
        world.run(2 * SECOND);
        assert_eq!(world.hosts[1 - host].got, [small(9)], "seed {seed}");
        run_until_dormant(&mut world, 400 * SECOND);
    }
}

#[test]
fn on_demand_tunnels_are_dormant_after_random_faults() {
    for seed in 0..60 {
        play(1_000 + seed);
    }
}

#[test]
fn a_replayed_initiation_does_not_displace_a_newer_one() {
    let mut world = pair(17);
    world.tape = Some(Vec::new());
    world.offer(0, 0, small(1)).unwrap();
    world.run(SECOND);
    let old = world.tape.take().unwrap().remove(0);
    run_until_dormant(&mut world, 2 * IDLE);
    world.offer(0, 0, small(2)).unwrap();
    world.run(MS / 10);
    // The answer to the new initiation is under way.
    assert_eq!(world.deliver(1, old.from, &old.bytes), Err(Refusal::Timestamp));
    world.run(100 * MS);
    assert_eq!(world.hosts[1].got, [small(1), small(2)]);
}
