//! Bytes in are bytes out, in order, on every channel, in bounded memory.

use std::collections::BTreeMap;

use causeway_socket::limits::{
    CHANNELS_MAX, CHANNELS_PER_OWNER_MAX, HELD_BYTES_MAX, HELD_MESSAGES_PER_TURN,
};
use causeway_socket::multiplex::{PeerEvent, PeerSession};

use crate::network::{Faults, World};

/// Returns message `number` of a channel.
fn message(channel: u32, number: u64) -> Vec<u8> {
    let len = 10 + (u64::from(channel) * 7919 + number * 104_729) % 4097;
    (0..len).map(|at| (at * 31 + number + u64::from(channel)) as u8).collect()
}

/// What one side has received of a channel.
#[derive(Default)]
struct Heard {
    messages: u64,
    ended: bool,
}

/// Both sides open channels, send messages on each, and end them; returns the datagrams.
fn exchange(seed: u64, faults: Faults, channels: usize, messages: u64) -> u64 {
    let mut world = World::new(seed, faults);
    world.agree();
    let opened: [Vec<u32>; 2] = [0, 1]
        .map(|host| (0..channels).map(|_| world.hosts[host].open(host as u32).unwrap()).collect());
    let all: Vec<u32> = opened.concat();
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    let mut heard: [BTreeMap<u32, Heard>; 2] = [BTreeMap::new(), BTreeMap::new()];
    let mut sent: [BTreeMap<u32, u64>; 2] =
        [0, 1].map(|host| opened[host].iter().map(|c| (*c, 0)).collect());
    world.run(600, |world| {
        for host in 0..2 {
            // A channel of the peer can be answered once it is known.
            for channel in &all {
                let known = sent[host].contains_key(channel) || heard[host].contains_key(channel);
                let next = sent[host].get(channel).copied().unwrap_or(0);
                if !known || next > messages || world.dice.chance(70) {
                    continue;
                }
                if next == messages {
                    // A side drops messages that arrive after it ended its direction.
                    if heard[host].get(channel).is_none_or(|heard| heard.messages < messages) {
                        continue;
                    }
                    world.hosts[host].end(*channel);
                } else {
                    let text = message(*channel, next);
                    let (head, body) = text.split_at(text.len() / 3);
                    world.hosts[host].send(*channel, host as u32, [head, body]);
                }
                sent[host].insert(*channel, next + 1);
            }
            for (event, bytes) in std::mem::take(&mut world.events[host]) {
                match event {
                    PeerEvent::Message(channel, _) => {
                        let heard = heard[host].entry(channel).or_default();
                        assert!(!heard.ended, "a message after the end");
                        assert_eq!(bytes, message(channel, heard.messages), "channel {channel}");
                        heard.messages += 1;
                    }
                    PeerEvent::Ended(channel) => {
                        let heard = heard[host].entry(channel).or_default();
                        assert!(!std::mem::replace(&mut heard.ended, true), "ended twice");
                    }
                    PeerEvent::Up => {}
                    PeerEvent::Down(why) => panic!("seed {seed}: {why}"),
                }
            }
            assert!(world.hosts[host].view().held_bytes <= HELD_BYTES_MAX);
        }
        let over =
            |host: &BTreeMap<u32, Heard>| host.len() == all.len() && host.values().all(|h| h.ended);
        heard.iter().all(over) && world.hosts.iter().all(|host| host.view().channels == 1)
    });
    for host in 0..2 {
        assert!(heard[host].values().all(|heard| heard.messages == messages));
        assert_eq!(world.hosts[host].view().queued_bytes, 0);
        assert_eq!(world.hosts[host].view().held_bytes, 0);
        assert_eq!(world.hosts[host].queued_by(host as u32), 0);
    }
    world.datagrams
}

#[test]
fn multiplex_messages_arrive_once_and_in_order_on_a_bad_network() {
    for seed in 0..40 {
        let faults =
            Faults { loss: seed % 5 * 8, duplication: seed % 3 * 20, jitter_us: seed % 4 * 3000 };
        exchange(seed, faults, 1 + seed as usize % 6, 12);
    }
}

#[test]
fn multiplex_without_faults_sends_little_more_than_the_bytes() {
    let (channels, messages) = (4, 100);
    let datagrams = exchange(1, Faults::default(), channels, messages);
    // Of both sides, on the channels of both.
    let bytes = 2 * 2 * channels as u64 * messages * 2053;
    assert!(datagrams < bytes / 1100 * 2, "{datagrams} datagrams for {bytes} bytes");
}

#[test]
fn multiplex_lost_packet_delays_its_channel_alone() {
    let mut world = World::new(3, Faults::default());
    world.agree();
    world.run(1, |world| world.hosts[0].deadline_ns().is_none());
    world.events = [Vec::new(), Vec::new()];
    let [slow, fast] = [0, 1].map(|_| world.hosts[0].open(0).unwrap());
    world.hosts[0].send(slow, 0, [b"a lost message", b""]);
    let mut lost = Vec::new();
    assert!(world.hosts[0].transmit(world.now, 1200, &mut lost), "this datagram is lost");
    world.hosts[0].send(fast, 0, [b"the first message", b""]);
    let since = world.now;
    let heard = |world: &World, channel: u32| {
        world.events[1]
            .iter()
            .any(|(event, _)| matches!(event, PeerEvent::Message(of, _) if *of == channel))
    };
    world.run(1, |world| heard(world, fast));
    assert!(world.now - since < 1_000_000 && !heard(&world, slow));
    world.run(1, |world| heard(world, slow));
}

#[test]
fn multiplex_small_messages_behind_a_lost_packet_pass_in_portions() {
    const COUNT: usize = 8 * HELD_MESSAGES_PER_TURN;
    let mut world = World::new(6, Faults::default());
    world.agree();
    world.run(1, |world| world.hosts[0].deadline_ns().is_none());
    let channel = world.hosts[0].open(0).unwrap();
    world.hosts[0].send(channel, 0, [&[1; 10], b""]);
    let mut lost = Vec::new();
    assert!(world.hosts[0].transmit(world.now, 1200, &mut lost), "this datagram is lost");
    for number in 1..COUNT as u64 {
        world.hosts[0].send(channel, 0, [&number.to_be_bytes(), b"xy"]);
    }
    world.hosts[0].end(channel);
    world.events = [Vec::new(), Vec::new()];
    world.run(5, |world| {
        world.events[1].iter().any(|(event, _)| *event == PeerEvent::Ended(channel))
    });
    let messages = world.events[1].iter().filter(|(event, _)| *event != PeerEvent::Ended(channel));
    let numbers = messages.map(|(_, bytes)| u64::from_be_bytes(bytes[..8].try_into().unwrap()));
    assert!(numbers.skip(1).eq(1..COUNT as u64));
    assert_eq!(world.hosts[1].view().held_bytes, 0);
    // The last piece of a portion, and a datagram, have 100 messages each at most.
    assert!(world.most_events < HELD_MESSAGES_PER_TURN + 200, "{}", world.most_events);
}

#[test]
fn multiplex_channels_are_limited_and_reused() {
    let mut world = World::new(5, Faults::default());
    world.agree();
    let mut opened = Vec::new();
    for owner in 0..4 {
        let before = opened.len();
        opened.extend(std::iter::from_fn(|| world.hosts[0].open(owner)));
        assert_eq!(opened.len() - before, CHANNELS_PER_OWNER_MAX, "of owner {owner}");
    }
    assert_eq!((opened.len(), world.hosts[0].open(4)), (CHANNELS_MAX, None));
    for channel in &opened {
        world.hosts[0].send(*channel, 0, [&[7; 10], b""]);
        world.hosts[0].end(*channel);
    }
    world.run(20, |world| {
        for (event, _) in std::mem::take(&mut world.events[1]) {
            if let PeerEvent::Ended(channel) = event {
                world.hosts[1].end(channel);
            }
        }
        world.hosts.iter().all(|host: &PeerSession| host.view().channels == 1)
    });
    let again: Vec<u32> = std::iter::from_fn(|| world.hosts[0].open(0)).collect();
    assert_eq!(again.len(), CHANNELS_PER_OWNER_MAX);
}

#[test]
fn multiplex_idle_session_frees_its_memory_after_a_second() {
    let mut world = World::new(4, Faults::default());
    world.agree();
    world.run(2, |world| world.hosts[0].deadline_ns().is_none());
    let channel = world.hosts[0].open(0).unwrap();
    for _ in 0..8 {
        world.hosts[0].send(channel, 0, [&[7; 4096], b""]);
    }
    world.run(1, |world| world.hosts[0].view().queued_bytes == 0);
    // Only the memory of the channel is left to be handled.
    let deadline = world.hosts[0].deadline_ns().unwrap();
    assert!(deadline > world.now + 900_000_000, "{deadline} at {}", world.now);
    world.run(2, |world| world.hosts[0].deadline_ns().is_none());
}
