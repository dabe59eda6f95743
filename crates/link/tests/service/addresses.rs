//! Address claims between daemons: announcements, withdrawals, and their synchronisation.

use crate::common::*;
use causeway_link::limits::ADDRESSES_MAX;
use causeway_link::{EventKind, Refusal};
use causeway_wire::tunnel::record::{self, Entry};
use causeway_wire::tunnel::{DatagramKind, Inner, Outer};
use proptest::prelude::*;

const SECOND: u64 = 1_000 * MS;

fn mac(number: u16) -> [u8; 6] {
    let [a, b] = number.to_be_bytes();
    [2, 0, 0, 0, a, b]
}

fn announce(world: &mut World, host: usize, number: u16, epoch: u64) {
    let now = world.now;
    world.tunnel_mut(host).announce(now, VNI, mac(number), epoch).unwrap();
}

#[test]
fn address_is_announced_at_once() {
    let mut world = World::pair(1, false, 1_472);
    announce(&mut world, 0, 1, 77);
    world.run(MS);
    let here = EventKind::Here { vni: VNI, mac: mac(1), epoch: 77 };
    assert_eq!(world.seen(1, |what| *what == here), 1);
    let now = world.now;
    world.tunnel_mut(0).withdraw(now, VNI, mac(1));
    world.run(SECOND);
    let gone = EventKind::Gone { vni: VNI, mac: mac(1), epoch: 77 };
    assert_eq!(world.seen(1, |what| *what == gone), 1);
    assert_eq!(world.seen(1, |what| *what == here), 1, "said three times, news once");
}

#[test]
fn address_claims_are_repeated_on_request() {
    let mut world = World::pair(6, false, 1_472);
    announce(&mut world, 0, 1, 77);
    announce(&mut world, 0, 2, 78);
    world.run(MS);
    let host = &mut world.hosts[1];
    host.hub.tunnel(0).unwrap().repeat_claims(VNI, &mut host.sink);
    host.hub.tunnel(0).unwrap().repeat_claims(VNI + 1, &mut host.sink);
    world.run(MS);
    for (number, epoch) in [(1, 77), (2, 78)] {
        let here = EventKind::Here { vni: VNI, mac: mac(number), epoch };
        assert_eq!(world.seen(1, |what| *what == here), 2);
    }
}

#[test]
fn address_announced_before_the_session_is_synchronised() {
    let mut world = World::new(2, 2);
    world.join(0, 1, false, 1_472);
    announce(&mut world, 0, 1, 77);
    let now = world.now;
    let other = VNI + 1;
    world.tunnel_mut(0).announce(now, other, mac(2), 78).unwrap();
    world.run(SECOND);
    assert_eq!(world.seen(1, |what| matches!(what, EventKind::Here { .. })), 1);
    let host = &mut world.hosts[1];
    assert!(host.hub.tunnel_mut(0).unwrap().carry(other, &mut host.sink));
    world.run(MS);
    let here = EventKind::Here { vni: other, mac: mac(2), epoch: 78 };
    assert_eq!(world.seen(1, |what| *what == here), 1);
}

#[test]
fn address_quota_bounds_announcements() {
    let mut world = World::pair(3, false, 1_472);
    for number in 0..ADDRESSES_MAX as u16 {
        announce(&mut world, 0, number, 5);
    }
    let now = world.now;
    assert!(world.tunnel_mut(0).announce(now, VNI, mac(u16::MAX), 5).is_err());
    world.run(SECOND);
    assert_eq!(world.tunnel(1).state(world.now).addresses, (0, ADDRESSES_MAX));
}

#[test]
fn hostile_announcements_are_bounded_and_counted() {
    let mut world = World::pair(4, true, 1_472);
    for first in 0..100 {
        let mut bytes =
            Outer { kind: DatagramKind::Plain, receiver: 0, counter: 0 }.emit().to_vec();
        bytes.extend(Inner { vni: VNI, flags: 0 }.emit());
        let len = 80 * record::ENTRY_LEN as u16;
        bytes.extend(record::Header { kind: record::HERE, bare: false, hops: 0, len }.emit());
        for number in first * 80..first * 80 + 80 {
            bytes.extend(Entry { mac: mac(number), epoch: 1 }.emit());
        }
        let _ = world.deliver(1, address(0), &bytes);
    }
    assert_eq!(world.tunnel(1).state(world.now).addresses, (0, ADDRESSES_MAX));
    assert!(world.refusals(1, Refusal::Directory) > 0);
    // The peer does not confirm the forged claims, so the synchronisation removes them.
    world.run(3 * SECOND);
    assert_eq!(world.tunnel(1).state(world.now).addresses, (0, 0));
}

#[test]
fn hostile_sync_requests_are_answered_once_a_second() {
    let mut world = World::pair(5, true, 1_472);
    for number in 0..1_000 {
        announce(&mut world, 0, number, 5);
    }
    world.run(SECOND);
    world.tape = Some(Vec::new());
    for _ in 0..1_000 {
        let mut bytes =
            Outer { kind: DatagramKind::Plain, receiver: 0, counter: 0 }.emit().to_vec();
        bytes.extend(Inner { vni: 0, flags: 0 }.emit());
        for _ in 0..50 {
            bytes
                .extend(record::Header { kind: record::SYNC, bare: false, hops: 0, len: 0 }.emit());
        }
        world.deliver(0, address(1), &bytes).unwrap();
    }
    assert!(world.tape.take().unwrap().len() <= 1_000_usize.div_ceil(80));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Both ends agree in the end, for any loss.
    #[test]
    fn address_claims_converge(seed: u64, lost in 0_u64..900, steps in 1_usize..60) {
        let mut world = World::pair(seed, seed % 2 == 0, 1_472);
        world.weather = Weather { lost, late: 300, doubled: 50, ..Weather::default() };
        let mut choice = Seed(seed | 1);
        let mut epoch = 1;
        for _ in 0..steps {
            let (host, number) = (choice.below(2) as usize, choice.below(12) as u16);
            let now = world.now;
            epoch += 1;
            match choice.below(10) {
                0 if host == 0 => {
                    let at = world.now;
                    world.tunnel_mut(0).withdraw(at, VNI, mac(number));
                }
                1..=3 => world.tunnel_mut(host).withdraw(now, VNI, mac(number)),
                _ => announce(&mut world, host, number, epoch),
            }
            let pause = choice.below(50 * MS);
            world.run(pause);
        }
        world.weather = Weather::default();
        world.run(12 * SECOND);
        // The events add up to the claims of the other end.
        for host in [0, 1] {
            let mut known = std::collections::BTreeSet::new();
            for event in &world.hosts[host].events {
                match event.kind {
                    EventKind::Here { mac, .. } => { known.insert(mac); }
                    EventKind::Gone { mac, .. } => { known.remove(&mac); }
                    _ => {}
                }
            }
            let (own, _) = world.tunnel(1 - host).state(world.now).addresses;
            let (_, heard) = world.tunnel(host).state(world.now).addresses;
            prop_assert_eq!((own, own), (heard, known.len()));
        }
    }
}
