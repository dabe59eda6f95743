//! Four guests in two groups: traffic passes within a group, none between groups.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::traffic;
use common::{BRIEF, LIMIT, Testbed};

#[test]
fn groups_cannot_reach_each_other() {
    let testbed = Testbed::new(vec![
        Member::new("blue1", "blue", 1),
        Member::new("blue2", "blue", 2),
        Member::new("red1", "red", 3),
        Member::new("red2", "red", 4),
    ]);
    for (from, to) in [(0, 1), (2, 3)] {
        let guest = &testbed.guests[from];
        let ping = testbed.expect("ping", traffic::ping(guest, &testbed.members[to].ip(), 10));
        assert_eq!((ping.sent, ping.received), (10, 10));
        testbed.expect("vsock", traffic::ping_pong(guest, &testbed.vsock(to), 4096, 10, BRIEF));
    }
    std::thread::scope(|scope| {
        for (from, to) in [(0, 2), (1, 3), (2, 1), (3, 0)] {
            let testbed = &testbed;
            scope.spawn(move || nothing_crosses(testbed, from, to));
        }
    });
    // Both groups still work after the refused traffic.
    for (from, to) in [(1, 0), (3, 2)] {
        let guest = &testbed.guests[from];
        testbed.expect("vsock", traffic::stream(guest, &testbed.vsock(to), 65_536, 8 << 20, BRIEF));
    }
}

fn nothing_crosses(testbed: &Testbed, from: usize, to: usize) {
    let (guest, peer) = (&testbed.guests[from], &testbed.members[to]);
    let ip = peer.ip();
    let ran = testbed.expect("ping", guest.run(&["ping", "-c", "2", "-w", "2", &ip], LIMIT));
    assert_ne!(ran.code, Some(0), "{} reached {ip}", guest.name());
    // The ARP request was not answered either.
    let neighbour = testbed.expect("neigh", guest.run(&["ip", "neigh", "show", &ip], LIMIT));
    assert!(!neighbour.stdout.contains("lladdr"), "{}", neighbour.stdout);
    // Nor does a frame to the peer's MAC address arrive.
    let mac = peer.mac();
    let known = ["arp", "-s", &ip, &mac];
    let ran = testbed.expect("know", guest.run(&known, LIMIT));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = testbed.expect("ping", guest.run(&["ping", "-c", "2", "-w", "2", &ip], LIMIT));
    assert_ne!(ran.code, Some(0), "{} reached {ip} by {mac}", guest.name());
    let ran = testbed.expect("forget", guest.run(&["arp", "-d", &ip], LIMIT));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // A received frame would have added the sender's address to the peer's ARP table.
    let received =
        testbed.expect("learned", testbed.guests[to].run(&["cat", "/proc/net/arp"], LIMIT));
    let asker = format!("{} ", testbed.members[from].ip());
    assert!(!received.stdout.contains(&asker), "{}", received.stdout);
    assert!(traffic::ping_pong(guest, &testbed.vsock(to), 64, 1, BRIEF).is_err());
}
