//! Four guests in two groups: all is well within a group, nothing crosses.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::traffic;
use common::{BRIEF, LIMIT, Party};

#[test]
fn groups_cannot_reach_each_other() {
    let party = Party::new(vec![
        Member::new("blue1", "blue", 1),
        Member::new("blue2", "blue", 2),
        Member::new("red1", "red", 3),
        Member::new("red2", "red", 4),
    ]);
    for (from, to) in [(0, 1), (2, 3)] {
        let guest = &party.guests[from];
        let ping = party.expect("ping", traffic::ping(guest, &party.members[to].ip(), 10));
        assert_eq!((ping.sent, ping.received), (10, 10));
        party.expect("vsock", traffic::ping_pong(guest, &party.vsock(to), 4096, 10, BRIEF));
    }
    std::thread::scope(|scope| {
        for (from, to) in [(0, 2), (1, 3), (2, 1), (3, 0)] {
            let party = &party;
            scope.spawn(move || nothing_crosses(party, from, to));
        }
    });
    // Both groups go on after all that was refused.
    for (from, to) in [(1, 0), (3, 2)] {
        let guest = &party.guests[from];
        party.expect("vsock", traffic::stream(guest, &party.vsock(to), 65_536, 8 << 20, BRIEF));
    }
}

fn nothing_crosses(party: &Party, from: usize, to: usize) {
    let (guest, peer) = (&party.guests[from], &party.members[to]);
    let ip = peer.ip();
    let ran = party.expect("ping", guest.run(&["ping", "-c", "2", "-w", "2", &ip], LIMIT));
    assert_ne!(ran.code, Some(0), "{} reached {ip}", guest.name());
    // Not even the question who has that address was answered.
    let neighbour = party.expect("neigh", guest.run(&["ip", "neigh", "show", &ip], LIMIT));
    assert!(!neighbour.stdout.contains("lladdr"), "{}", neighbour.stdout);
    // Nor does a frame that is sent straight to the peer's address arrive.
    let mac = peer.mac();
    let known = ["arp", "-s", &ip, &mac];
    let ran = party.expect("know", guest.run(&known, LIMIT));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = party.expect("ping", guest.run(&["ping", "-c", "2", "-w", "2", &ip], LIMIT));
    assert_ne!(ran.code, Some(0), "{} reached {ip} by {mac}", guest.name());
    let ran = party.expect("forget", guest.run(&["arp", "-d", &ip], LIMIT));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // What came to the peer would have taught it the sender's address.
    let received = party.expect("learned", party.guests[to].run(&["cat", "/proc/net/arp"], LIMIT));
    let asker = format!("{} ", party.members[from].ip());
    assert!(!received.stdout.contains(&asker), "{}", received.stdout);
    assert!(traffic::ping_pong(guest, &party.vsock(to), 64, 1, BRIEF).is_err());
}
