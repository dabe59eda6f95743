//! Sessions are created, replaced and lost; frames are not affected.

use crate::common::*;
use causeway_link::{EventKind, HandshakeFault, Refusal, TunnelConfig};
use causeway_model::keys::PrivateKey;
use causeway_wire::tunnel::{DatagramKind, Outer};

const SECOND: u64 = 1_000 * MS;

fn small(byte: u8) -> Got {
    (VNI, 0, Default::default(), vec![byte; 60])
}

fn kind(bytes: &[u8]) -> Option<DatagramKind> {
    Outer::parse(bytes).ok().map(|(outer, _)| outer.kind)
}

#[test]
fn sessions_are_replaced_every_two_minutes_and_no_frame_is_lost() {
    let mut world = World::pair(1, false, 1_472);
    for _ in 0..100 {
        for i in 0..60 {
            world.send(i % 2, &[small(i as u8)]);
            world.run(100 * MS);
        }
    }
    let handshakes = world.tunnel(0).state(world.now).handshakes;
    assert!((5..=6).contains(&handshakes), "{handshakes} in ten minutes");
    assert_eq!(world.hosts[0].got.len() + world.hosts[1].got.len(), 6_000);
    assert_eq!(world.seen(0, |what| *what == EventKind::Down), 0);
    assert!(world.refused.is_empty(), "{:?}", world.refused);
}

#[test]
fn frames_on_their_way_while_the_session_changes_arrive() {
    let mut world = World::pair(2, false, 1_472);
    world.run(119 * SECOND);
    world.weather.late = 1000;
    let mut sent = 0_usize;
    while world.tunnel(0).state(world.now).handshakes < 2 {
        world.send(0, &[small(1)]);
        world.send(1, &[small(2)]);
        sent += 1;
        world.run(MS);
        assert!(sent < 20_000);
    }
    world.run(SECOND);
    assert_eq!((world.hosts[0].got.len(), world.hosts[1].got.len()), (sent, sent));
}

#[test]
fn session_handshakes_may_cross() {
    for seed in 0..20 {
        let mut world = World::new(seed, 2);
        world.join(0, 1, false, 1_472);
        world.weather.late = if seed % 2 == 0 { 0 } else { 1000 };
        world.run(2 * SECOND);
        for host in [0, 1] {
            assert!(world.tunnel(host).is_up(), "seed {seed}");
            world.send(host, &[small(1)]);
        }
        world.run(100 * MS);
        assert_eq!((world.hosts[0].got.len(), world.hosts[1].got.len()), (1, 1), "seed {seed}");
        if seed % 2 == 0 {
            assert_eq!(world.refused.iter().filter(|r| **r == Refusal::Crossed).count(), 1);
            assert_eq!(world.tunnel(0).state(world.now).handshakes, 1);
        }
    }
}

#[test]
fn a_daemon_that_comes_back_is_taken_up_again() {
    let mut world = World::pair(3, false, 1_472);
    for host in [1, 0] {
        world.restart(host);
        let keys = (world.hosts[host].key.clone(), world.hosts[1 - host].key.public());
        let remote = Some(address(1 - host));
        world.run(3 * SECOND);
        assert!(!world.tunnel(1 - host).is_up());
        world
            .add(host, &TunnelConfig { keys: Some(keys), remote, longest: 1_472, on_demand: None });
        world.run(SECOND);
        assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
        world.send(0, &[small(1)]);
        world.send(1, &[small(2)]);
        world.run(10 * MS);
        assert_eq!(world.hosts[0].got.pop(), Some(small(2)));
        assert_eq!(world.hosts[1].got.pop(), Some(small(1)));
    }
}

#[test]
fn one_end_need_not_know_the_others_address_and_follows_it() {
    let mut world = World::new(4, 2);
    let keys = |world: &World, own: usize, other: usize| {
        Some((world.hosts[own].key.clone(), world.hosts[other].key.public()))
    };
    let (a, b) = (keys(&world, 0, 1), keys(&world, 1, 0));
    world.add(0, &TunnelConfig { keys: a, remote: None, longest: 1_472, on_demand: None });
    world.add(
        1,
        &TunnelConfig { keys: b, remote: Some(address(0)), longest: 1_472, on_demand: None },
    );
    world.run(SECOND);
    assert_eq!(world.tunnel(0).remote(), Some(address(1)));
    // The other end moves to another address; its next datagram reports it.
    world.hosts[1].address = address(5);
    world.send(1, &[small(1)]);
    world.run(10 * MS);
    assert_eq!(world.tunnel(0).remote(), Some(address(5)));
    assert_eq!(world.seen(0, |what| *what == EventKind::Roamed(address(5))), 1);
    world.send(0, &[small(2)]);
    world.run(10 * MS);
    assert_eq!(world.hosts[1].got.len(), 1);
}

#[test]
fn session_ignores_a_forged_source() {
    let mut world = World::pair(5, false, 1_472);
    world.tape = Some(Vec::new());
    world.send(0, &[small(1)]);
    let data = world.tape.take().unwrap().remove(0);
    world.run(MS);
    // A copy of a datagram, and a damaged copy, from another address.
    let stranger = address(66);
    assert_eq!(world.deliver(1, stranger, &data.bytes), Err(Refusal::Replayed));
    let mut forged = data.bytes.clone();
    forged[8] = 1;
    assert_eq!(world.deliver(1, stranger, &forged), Err(Refusal::Forged));
    assert_eq!(world.tunnel(1).remote(), Some(address(0)));
}

#[test]
fn session_unknown_peer_gets_no_answer() {
    let mut world = World::new(6, 2);
    world.add(
        0,
        &TunnelConfig {
            keys: Some((world.hosts[0].key.clone(), world.hosts[1].key.public())),
            remote: Some(address(1)),
            longest: 1_472,
            on_demand: None,
        },
    );
    // Host 1 is configured for another peer only.
    let other = PrivateKey::new([9; 32]).public();
    world.add(
        1,
        &TunnelConfig {
            keys: Some((world.hosts[1].key.clone(), other)),
            remote: None,
            longest: 1_472,
            on_demand: None,
        },
    );
    world.tape = Some(Vec::new());
    world.run(10 * SECOND);
    let tape = world.tape.take().unwrap();
    assert!(
        tape.iter().all(|letter| kind(&letter.bytes) == Some(DatagramKind::Init)),
        "nothing else"
    );
    // Retried at growing intervals: after 0, 0.5, 1.5, 3.5 and 7.5 s, plus jitter.
    assert!((4..=6).contains(&tape.len()), "{}", tape.len());
    assert_eq!(world.refusals(1, Refusal::Peer), tape.len() as u64);
}

#[test]
fn hostile_initiations_played_again_are_refused() {
    let mut world = World::new(7, 2);
    world.tape = Some(Vec::new());
    world.join(0, 1, false, 1_472);
    world.run(SECOND);
    let tape = world.tape.take().unwrap();
    let inits: Vec<_> =
        tape.iter().filter(|l| kind(&l.bytes) == Some(DatagramKind::Init)).collect();
    world.run(SECOND);
    for letter in inits {
        let host = usize::from(letter.to == address(1));
        let taken = world.deliver(host, letter.from, &letter.bytes);
        assert_eq!(taken, Err(Refusal::Timestamp));
    }
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
}

#[test]
fn hostile_floods_of_initiations_cost_little_and_do_not_lock_out_the_peer() {
    let mut world = World::new(8, 2);
    world.join(0, 1, false, 1_472);
    world.tape = Some(Vec::new());
    world.tick(0);
    let init = world.tape.take().unwrap().remove(0).bytes;
    world.wire.clear();
    world.restart(0);
    let remote = Some(address(1));
    let keys = Some((world.hosts[0].key.clone(), world.hosts[1].key.public()));
    world.add(0, &TunnelConfig { keys, remote, longest: 1_472, on_demand: None });
    // Ten seconds of forged initiations from all addresses, including the peer's own, at a thousand
    // per second.
    let mut asked = 0;
    for i in 0..10_000_u32 {
        let mut forged = init.clone();
        let [.., c, d] = i.to_be_bytes();
        forged[60] = c;
        forged[61] = d;
        let from = if i % 2 == 0 { address(0) } else { ([11, c, d, 1], 1).into() };
        let taken = world.deliver(1, from, &forged);
        asked += u64::from(taken == Err(Refusal::Cookie));
        world.run(MS);
    }
    assert!(world.refusals(1, Refusal::Forged) <= 50 * 12, "looks at the curve");
    assert!(asked >= 9_000, "{asked}");
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up(), "with its cookie the peer gets in");
    world.send(0, &[small(1)]);
    world.run(10 * MS);
    assert_eq!(world.hosts[1].got.len(), 1);
}

#[test]
fn hostile_answers_do_not_end_a_handshake() {
    let mut world = World::new(9, 2);
    world.join(0, 1, false, 1_472);
    world.tape = Some(Vec::new());
    world.tick(0);
    let init = world.tape.take().unwrap().remove(0).bytes;
    let (outer, message) = Outer::parse(&init).unwrap();
    let receiver = outer.counter as u32;
    for (kind, len) in
        [(DatagramKind::Response, 52), (DatagramKind::Response, 51), (DatagramKind::Cookie, 32)]
    {
        let mut bytes = Outer { kind, receiver, counter: 0 }.emit().to_vec();
        bytes.extend(vec![7; len]);
        assert!(world.deliver(0, address(1), &bytes).is_err());
        let mut bytes = Outer { kind, receiver: receiver ^ 1, counter: 0 }.emit().to_vec();
        bytes.extend(vec![7; len]);
        assert_eq!(world.deliver(0, address(1), &bytes), Err(Refusal::Unasked));
    }
    // Even a cookie reply that repeats our initiation causes a single retransmission.
    let mut bytes = Outer { kind: DatagramKind::Cookie, receiver, counter: 0 }.emit().to_vec();
    bytes.extend([7; 16]);
    bytes.extend(&message[16..32]);
    assert_eq!(world.deliver(0, address(9), &bytes), Err(Refusal::Peer));
    assert_eq!(world.deliver(0, address(1), &bytes), Ok(()));
    assert_eq!(world.deliver(0, address(1), &bytes), Err(Refusal::Unasked));
    world.run(3 * SECOND);
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
}

#[test]
fn a_peer_that_falls_silent_is_down_within_two_seconds_and_up_when_it_speaks() {
    let mut world = World::pair(10, false, 1_472);
    world.weather.lost = 1000;
    world.run(2_100 * MS);
    assert!(!world.tunnel(0).is_up() && !world.tunnel(1).is_up());
    world.run(20 * SECOND);
    world.weather.lost = 0;
    world.run(6 * SECOND);
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
    assert_eq!(world.seen(0, |what| *what == EventKind::Up), 2);
    let (of, lost) = world.tunnel(0).state(world.now).loss;
    assert!(of == 32 && (20..32).contains(&lost), "{lost} of {of}");
}

#[test]
fn session_expires_without_rekey() {
    let mut world = World::pair(11, false, 1_472);
    world.weather.lost = 1000;
    world.run(301 * SECOND);
    assert!(world.tunnel(0).tx_path().path().is_none());
    assert!(world.tunnel(0).state(world.now).session_age.is_none());
}

#[test]
fn a_late_datagram_does_not_move_the_peer_back() {
    let mut world = World::pair(12, false, 1_472);
    world.tape = Some(Vec::new());
    world.send(0, &[small(1)]);
    world.hosts[0].address = address(5);
    world.send(0, &[small(2)]);
    let tape = world.tape.take().unwrap();
    world.wire.clear();
    for at in [1, 0] {
        assert_eq!(world.deliver(1, tape[at].from, &tape[at].bytes), Ok(()));
        assert_eq!(world.tunnel(1).remote(), Some(address(5)));
    }
    assert_eq!(world.hosts[1].got, [small(2), small(1)]);
}

#[test]
fn two_ends_that_both_moved_and_came_back_find_each_other_by_their_configured_addresses() {
    let mut world = World::pair(31, false, 1_472);
    for host in [0, 1] {
        world.hosts[host].address = address(5 + host);
        world.send(host, &[small(1)]);
        world.run(100 * MS);
    }
    assert_eq!(world.tunnel(0).remote(), Some(address(6)));
    assert_eq!(world.tunnel(1).remote(), Some(address(5)));
    for host in [0, 1] {
        world.hosts[host].address = address(host);
    }
    world.run(20 * SECOND);
    assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
    assert_eq!(world.tunnel(0).remote(), Some(address(1)));
}

#[test]
fn a_clone_of_a_peer_is_refused_and_named() {
    let mut world = World::pair(32, false, 1_472);
    // A third host has the key of the second.
    let keys = Some((world.hosts[1].key.clone(), world.hosts[0].key.public()));
    world.clone_host(1);
    world.add(2, &TunnelConfig { keys, remote: Some(address(0)), longest: 1_472, on_demand: None });
    world.run(30 * SECOND);
    assert_eq!(world.seen(0, |what| *what == EventKind::Down), 0);
    assert_eq!(world.seen(1, |what| *what == EventKind::Down), 0);
    assert_eq!(world.tunnel(0).remote(), Some(address(1)));
    assert!(world.refusals(0, Refusal::Clone) > 3);
    assert_eq!(
        world.seen(0, |what| *what == EventKind::Clone(address(2))),
        1,
        "told once a minute"
    );
    assert_eq!(world.tunnel(0).state(world.now).fault, Some(HandshakeFault::Clone(address(2))));
}

#[test]
fn a_peer_whose_clock_was_set_back_a_day_is_named_and_taken_up_again() {
    let mut world = World::pair(34, false, 1_472);
    let keys = Some((world.hosts[1].key.clone(), world.hosts[0].key.public()));
    world.restart(1);
    world.add(1, &TunnelConfig { keys, remote: Some(address(0)), longest: 1_472, on_demand: None });
    let day = 86_400 * SECOND;
    // Only the peer's clock: the other end initiates nothing any more, as behind a NAT.
    world.hosts[1].address = address(9);
    world.wall -= day;
    world.run(60 * SECOND);
    let fault = world.tunnel(0).state(world.now).fault;
    assert!(matches!(fault, Some(HandshakeFault::Behind(ns)) if ns > day / 2), "{fault:?}");
    world.run(300 * SECOND);
    assert!(world.tunnel(1).is_up() && world.tunnel(0).is_up());
}

#[test]
fn a_clock_that_was_set_back_a_little_first_hides_no_day() {
    let mut world = World::pair(35, false, 1_472);
    for back in [30, 86_400] {
        let keys = Some((world.hosts[1].key.clone(), world.hosts[0].key.public()));
        world.restart(1);
        world.add(
            1,
            &TunnelConfig { keys, remote: Some(address(0)), longest: 1_472, on_demand: None },
        );
        world.hosts[1].address = address(9);
        world.wall -= back * SECOND;
        world.run(20 * SECOND);
        let named = world.seen(0, |what| matches!(what, EventKind::Behind(_)));
        assert_eq!(named, usize::from(back > 60), "{back} s");
    }
    assert!(world.refusals(0, Refusal::Timestamp) > 1);
}
