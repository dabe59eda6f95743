//! Guests that restart or die in the middle of traffic, while others go on.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::limits::BOOT;
use causeway_vm::{Guest, Machine, traffic};
use common::{BRIEF, LIMIT, Party};
use std::time::Duration;

#[test]
fn a_guest_that_restarts_or_dies_leaves_the_others_alone() {
    let mut party = Party::new(vec![
        Member::new("stays1", "blue", 1),
        Member::new("stays2", "blue", 2),
        Member::new("goes", "blue", 3),
    ]);
    let target = party.vsock(1);
    let (goes, stay) = party.guests.split_last_mut().expect("three guests");
    let (one, leaver) = (&stay[0], party.members[2].cid);

    // A stream that lasts through all of it, and one to the guest that goes.
    let long = Duration::from_secs(20);
    std::thread::scope(|scope| {
        let through = scope.spawn(|| traffic::stream(one, &target, 4096, u64::MAX, long));
        let cut = scope.spawn(|| {
            let target = format!("vsock:{leaver}:7001").parse().unwrap();
            traffic::stream(one, &target, 4096, u64::MAX, Duration::from_secs(60))
        });
        std::thread::sleep(Duration::from_secs(1));
        goes.restart(BOOT).unwrap();
        assert!(cut.join().unwrap().is_err(), "a stream outlived its receiver's kernel");
        through.join().unwrap().unwrap();
    });
    let back = party.vsock(2);
    party.expect(
        "to one that restarted",
        traffic::ping_pong(&party.guests[0], &back, 64, 10, BRIEF),
    );
    let ping = traffic::ping(&party.guests[0], &party.members[2].ip(), 10);
    assert!(party.expect("ping one that restarted", ping).received > 0);

    party.guests[2].kill();
    let target = party.vsock(1);
    party
        .expect("after a kill", traffic::stream(&party.guests[0], &target, 65_536, 8 << 20, BRIEF));
    let argv = ["causeway-guest", "ping-pong", "vsock:103:7001", "64", "1", "1000"];
    let ran = party.expect("call the dead", party.guests[0].run(&argv, LIMIT));
    assert_eq!(ran.code, Some(1), "{ran:?}");

    // A new guest on the dead one's ports.
    let machine = Machine::qemu().unwrap();
    let spec = party.daemon.guest(&party.members[2]);
    let new = party.expect("reborn", Guest::boot_all(&machine, vec![spec]));
    party.expect("from the new", traffic::stream(&new[0], &target, 4096, 8 << 20, BRIEF));
    party.expect("to the new", traffic::ping_pong(&party.guests[0], &back, 4096, 10, BRIEF));
    party.daemon.check().unwrap();
}
