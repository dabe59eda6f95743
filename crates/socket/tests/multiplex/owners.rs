//! Queued bytes are charged to their owner until they are acknowledged.

use causeway_socket::multiplex::DISOWNED;

use crate::network::{Faults, World};

#[test]
fn multiplex_reset_of_another_owner_frees_the_bytes_of_the_first() {
    let mut world = World::new(1, Faults::default());
    world.agree();
    let channel = world.hosts[0].open(0).unwrap();
    world.hosts[0].send(channel, 5, [&[7; 10], &[8; 4000]]);
    world.hosts[0].send(channel, DISOWNED, [&[9; 10], &[]]);
    world.hosts[0].end(channel);
    assert_eq!(world.hosts[0].queued_by(5), 2 + 4010 + 2 + 10);
    world.run(10, |world| world.hosts[0].view().queued_bytes == 0);
    assert_eq!([5, DISOWNED].map(|owner| world.hosts[0].queued_by(owner)), [0, 0]);
}

#[test]
fn multiplex_disowned_bytes_are_charged_until_they_are_acknowledged() {
    let mut world = World::new(2, Faults::default());
    world.agree();
    let channel = world.hosts[0].open(0).unwrap();
    world.hosts[0].send(channel, 5, [&[7; 10], &[8; 4000]]);
    world.hosts[0].end(channel);
    let addresses = world.hosts[0].queued_by(DISOWNED);
    world.hosts[0].disown(5);
    assert_eq!([5, DISOWNED].map(|owner| world.hosts[0].queued_by(owner)), [0, addresses + 4012]);
    world.run(10, |world| world.hosts[0].view().queued_bytes == 0);
    assert_eq!(world.hosts[0].queued_by(DISOWNED), 0);
}
