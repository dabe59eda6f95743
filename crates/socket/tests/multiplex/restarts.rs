//! Sessions end with a reason and begin again: restarts, silence, hostile datagrams.

use causeway_socket::multiplex::{DownReason, PacketRefusal, PeerEvent, PeerSession, Received};
use causeway_wire::multiplex::{Datagram, Hello, VERSION};

use crate::network::{Faults, World};

fn downs(world: &World, host: usize) -> Vec<DownReason> {
    let all = world.events[host].iter();
    all.filter_map(|(event, _)| if let PeerEvent::Down(why) = event { Some(*why) } else { None })
        .collect()
}

#[test]
fn multiplex_restart_of_a_daemon_ends_its_channels_and_agrees_again() {
    for seed in 0..20 {
        let mut world =
            World::new(seed, Faults { loss: seed % 4 * 10, duplication: 10, jitter_us: 500 });
        world.agree();
        let channel = world.hosts[0].open(0).unwrap();
        world.hosts[0].send(channel, 0, [b"before it restarts", b""]);
        world.run(60, |world| world.hosts[0].view().queued_bytes == 0);
        world.events = [Vec::new(), Vec::new()];
        world.restart(1);
        world.run(60, |world| !downs(world, 0).is_empty());
        world.agree();
        assert_eq!(downs(&world, 0), [DownReason::Peer], "seed {seed}");
        assert_eq!(world.hosts[0].view().channels, 1);
        let channel = world.hosts[1].open(0).unwrap();
        world.hosts[1].send(channel, 0, [b"after the restart", b""]);
        world.run(60, |world| world.events[0].iter().any(|(_, text)| text == b"after the restart"));
    }
}

#[test]
fn multiplex_silent_peer_loses_its_session_after_ten_seconds() {
    let mut world = World::new(7, Faults::default());
    world.agree();
    let channel = world.hosts[0].open(0).unwrap();
    world.faults.loss = 100;
    world.hosts[0].send(channel, 0, [b"into the void", b""]);
    let since = world.now;
    world.run(60, |world| !downs(world, 0).is_empty());
    let seconds = (world.now - since) / 1_000_000_000;
    assert_eq!(downs(&world, 0), [DownReason::Silent]);
    assert!((10..=12).contains(&seconds), "after {seconds} s");
    world.faults.loss = 0;
    world.agree();
}

#[test]
fn multiplex_peer_without_the_protocol_costs_few_hellos() {
    let mut session = PeerSession::new(0, &mut || 7);
    let (mut now, mut hellos, mut out) = (0, 0, Vec::new());
    while now < 60_000_000_000 {
        while session.transmit(now, 1200, &mut out) {
            hellos += 1;
            assert!(hellos < 100, "hellos without end");
        }
        let next = session.deadline_ns().unwrap();
        assert!(next > now, "a deadline of the past");
        now = next;
    }
    assert!(hellos <= 12, "{hellos} hellos in a minute");
}

#[test]
fn multiplex_link_without_a_path_does_not_spin_for_an_acknowledgement() {
    let mut world = World::new(8, Faults::default());
    world.agree();
    let channel = world.hosts[0].open(0).unwrap();
    world.hosts[0].send(channel, 0, [b"is not acknowledged", b""]);
    world.run(10, |world| world.events[1].iter().any(|(_, text)| text == b"is not acknowledged"));
    world.longest = 0;
    let until = world.now + 500_000_000;
    // The run fails if deadlines of the past keep the time from passing.
    world.run(10, |world| world.now >= until);
    world.longest = 1200;
    world.run(10, |world| world.hosts[0].view().queued_bytes == 0);
}

#[test]
fn hostile_datagrams_of_a_peer_end_only_its_session() {
    for seed in 0..300 {
        let mut world = World::new(seed, Faults::default());
        world.agree();
        let channel = world.hosts[0].open(0).unwrap();
        for _ in 0..20 {
            world.hosts[0].send(channel, 0, [&[7; 900], &[]]);
            let mut datagram = Vec::new();
            if !world.hosts[0].transmit(world.now, 1200, &mut datagram) {
                world.step();
                continue;
            }
            // Behind the tag, so that the packet reaches the frames.
            for _ in 0..=world.dice.below(3) {
                let at = 6 + world.dice.below(datagram.len() as u64 - 6) as usize;
                datagram[at] = world.dice.next() as u8;
            }
            let (now, mut received) = (world.now, Received::default());
            let _ = world.hosts[1].receive(now, &datagram, &mut || 99, &mut received);
        }
        let view = world.hosts[1].view();
        assert!(view.held_bytes <= 40_000, "{view:?}");
    }
}

#[test]
fn hostile_peer_begins_at_most_four_sessions_a_second() {
    let mut session = PeerSession::new(0, &mut || 7);
    let (mut out, mut received, mut tag) = (Vec::new(), Received::default(), 7);
    for step in 0..10_000_u64 {
        let (now, source) = (step * 100_000, 1000 + step as u32);
        // The first hello asks for the tag and ends the last session, the second begins another.
        for asks_tag in [true, false] {
            let destination = if asks_tag { 0 } else { tag };
            let hello = Hello { version: VERSION, asks: true, source, destination }.emit();
            let _ = session.receive(now, &hello, &mut || 50_000 + step as u32, &mut received);
            while session.transmit(now, 1200, &mut out) {
                if let Ok(Datagram::Hello(hello)) = Datagram::parse(&out) {
                    tag = hello.source;
                }
            }
        }
    }
    let ups = received.events.iter().filter(|event| **event == PeerEvent::Up).count();
    assert!((3..=4).contains(&ups), "{ups} sessions in a second");
}

#[test]
fn multiplex_hello_of_another_version_ends_the_session() {
    let mut world = World::new(9, Faults::default());
    world.agree();
    let hello = Hello { version: VERSION + 1, asks: true, source: 77, destination: 0 }.emit();
    let (now, mut received) = (world.now + 1_000_000_000, Received::default());
    let taken = world.hosts[0].receive(now, &hello, &mut || 99, &mut received);
    assert_eq!(taken, Err(PacketRefusal::Version(VERSION + 1)));
    assert_eq!(received.events, [PeerEvent::Down(DownReason::Peer)]);
    assert!(!world.hosts[0].is_up());
}
