//! Observations for captures, and the traffic by peer: both name the adapters that got a message.

use causeway_verbs::limits::MULTICAST_QPN;
use causeway_verbs::policy::{Denial, Policy};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

const GID: [u8; 16] = [0xff; 16];

/// Denies all traffic to a guest.
#[derive(Debug)]
struct DenyTo(usize);

impl Policy for DenyTo {
    fn check(&self, _: [u8; 6], _: [u8; 6], receiver: [u8; 6]) -> Result<(), Denial> {
        if receiver == mac(self.0) { Err(Denial::Route(1)) } else { Ok(()) }
    }
}

/// Guests with a datagram queue pair each; all but the first are members of a multicast group.
fn datagram_world(guests: usize) -> (World, Vec<End>) {
    let mut world = World::new(guests);
    let ends = (0..guests).map(|guest| world.create(guest, Kind::Ud, World::attributes()));
    let ends: Vec<End> = ends.collect();
    for end in &ends {
        world.ready(*end, None);
    }
    for end in &ends[1..] {
        world.subnet.attach_multicast(world.ids[end.0], end.1, GID).unwrap();
    }
    (world, ends)
}

/// Sends a datagram of 10 bytes from guest 0.
fn send(world: &mut World, from: End, (to, queue_pair): (usize, u32)) {
    let (queue_key, gid) = (QUEUE_KEY, GID);
    let to = AddressVector { mac: mac(to), queue_pair, queue_key, gid, ..AddressVector::default() };
    let segments = vec![world.segment(0, 0, 10)];
    let (operation, destination) = (Operation::Send, Some(to));
    world.post_work(from, SendWork { operation, segments, destination, ..SendWork::default() });
    assert_eq!(world.run(from), Progress::Idle);
}

/// Returns the guests that received each observed message, and forgets the observations.
fn receivers(world: &mut World) -> Vec<Vec<usize>> {
    let (messages, missed) = world.subnet.take_observations();
    assert_eq!(missed, 0);
    let guest = |id: &AdapterId| world.ids.iter().position(|own| own == id).unwrap();
    messages.iter().map(|message| message.receivers.iter().map(guest).collect()).collect()
}

/// Returns the messages that a guest sent to each other guest, and forgets the sums.
fn sent(world: &mut World, guest: usize) -> Vec<(u8, u64, u64)> {
    let traffic = world.adapter(guest).take_traffic();
    traffic.map(|entry| (entry.mac[5], entry.sent.messages, entry.sent.bytes)).collect()
}

#[test]
fn verbs_observation_of_a_lost_datagram_names_no_receiver() {
    let (mut world, ends) = datagram_world(2);
    world.subnet.observe(vec![world.ids[0], world.ids[1]], 64);
    send(&mut world, ends[0], ends[1]);
    assert_eq!(receivers(&mut world), [[0; 0]], "there is no receive work request");
    world.post_receive(ends[1], vec![world.segment(1, 0, 200)]);
    send(&mut world, ends[0], ends[1]);
    assert_eq!(receivers(&mut world), [[1]]);
    world.post_receive(ends[1], vec![world.segment(1, 0, 200)]);
    world.subnet.set_policy(Some(Box::new(DenyTo(1))));
    send(&mut world, ends[0], ends[1]);
    assert_eq!(receivers(&mut world), [[0; 0]], "a rule denies the datagram");
    assert_eq!(sent(&mut world, 0), [(1, 1, 10)], "lost datagrams are no traffic of the pair");
}

#[test]
fn verbs_observation_of_a_multicast_datagram_names_each_receiver_once() {
    let (mut world, ends) = datagram_world(4);
    // Guest 2 has two members; guest 3 has no receive work request.
    let more = world.create(2, Kind::Ud, World::attributes());
    world.ready(more, None);
    world.subnet.attach_multicast(world.ids[2], more.1, GID).unwrap();
    for end in [ends[1], ends[2], more] {
        world.post_receive(end, vec![world.segment(end.0, 0, 200)]);
    }
    world.subnet.observe(vec![world.ids[2]], 64);
    send(&mut world, ends[0], (9, MULTICAST_QPN));
    assert_eq!(receivers(&mut world), [[1, 2]]);
    assert_eq!(sent(&mut world, 0), [(1, 1, 10), (2, 2, 20)]);
    for end in [ends[1], ends[2]] {
        world.post_receive(end, vec![world.segment(end.0, 0, 200)]);
    }
    world.subnet.set_policy(Some(Box::new(DenyTo(2))));
    send(&mut world, ends[0], (9, MULTICAST_QPN));
    assert_eq!(receivers(&mut world), [[0; 0]; 0], "the observed guest is not concerned");
}

#[test]
fn verbs_observation_covers_the_observed_adapters_only() {
    let mut world = World::new(3);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    let (lossy, silent) = world.connect((0, 2), Kind::Uc);
    let write = |world: &mut World, from: End, to: usize| {
        let operation = Operation::Write(world.remote(to, 0));
        world.post(from, operation, vec![world.segment(0, 0, 8)]);
        assert_eq!(world.run(from), Progress::Idle);
    };
    world.subnet.observe(vec![world.ids[2]], 64);
    write(&mut world, left, 1);
    write(&mut world, lossy, 2);
    assert_eq!(receivers(&mut world), [[2]]);
    world.subnet.observe(vec![world.ids[0]], 64);
    write(&mut world, left, 1);
    assert_eq!(receivers(&mut world), [[1]]);
    world.modify(silent, State::Reset, &Change::default());
    write(&mut world, lossy, 2);
    assert_eq!(receivers(&mut world), [[0; 0]], "the message is lost");
    assert_eq!(sent(&mut world, 0), [(1, 2, 16), (2, 1, 8)]);
    world.subnet.observe(Vec::new(), 64);
    write(&mut world, left, 1);
    assert!(receivers(&mut world).is_empty());
}

#[test]
fn verbs_traffic_of_a_read_is_that_of_the_peer() {
    let mut world = World::new(2);
    let (left, _) = world.connect((0, 1), Kind::Rc);
    world.post(left, Operation::Read(world.remote(1, 0)), vec![world.segment(0, 0, 100)]);
    world.post(left, Operation::Nop, Vec::new());
    assert_eq!(world.run(left), Progress::Idle);
    let traffic: Vec<PeerTraffic> = world.adapter(0).take_traffic().collect();
    let (sent, read) = (TrafficSum::default(), TrafficSum { messages: 1, bytes: 100 });
    assert_eq!(traffic, [PeerTraffic { mac: mac(1), sent, read }]);
}
