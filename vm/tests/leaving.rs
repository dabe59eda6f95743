//! Guests that restart or are killed during traffic, while other guests continue.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::limits::BOOT;
use causeway_vm::{Guest, Machine, traffic};
use common::{BRIEF, LIMIT, Testbed};
use std::time::Duration;

#[test]
fn guest_restart_or_crash_does_not_affect_other_guests() {
    let mut testbed = Testbed::new(vec![
        Member::new("stays1", "blue", 1),
        Member::new("stays2", "blue", 2),
        Member::new("goes", "blue", 3),
    ]);
    let target = testbed.vsock(1);
    let (goes, stay) = testbed.guests.split_last_mut().expect("three guests");
    let (one, leaver) = (&stay[0], testbed.members[2].cid);

    // A stream between the remaining guests, and a stream to the guest that ends.
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
    let back = testbed.vsock(2);
    testbed.expect(
        "to one that restarted",
        traffic::ping_pong(&testbed.guests[0], &back, 64, 10, BRIEF),
    );
    let ping = traffic::ping(&testbed.guests[0], &testbed.members[2].ip(), 10);
    assert!(testbed.expect("ping one that restarted", ping).received > 0);

    testbed.guests[2].kill();
    let target = testbed.vsock(1);
    testbed.expect(
        "after a kill",
        traffic::stream(&testbed.guests[0], &target, 65_536, 8 << 20, BRIEF),
    );
    let argv = ["causeway-guest", "ping-pong", "vsock:103:7001", "64", "1", "1000"];
    let ran = testbed.expect("call the dead", testbed.guests[0].run(&argv, LIMIT));
    assert_eq!(ran.code, Some(1), "{ran:?}");

    // A new guest on the ports of the killed guest.
    let machine = Machine::qemu().unwrap();
    let spec = testbed.daemon.guest(&testbed.members[2]);
    let new = testbed.expect("reborn", Guest::boot_all(&machine, vec![spec]));
    testbed.expect("from the new", traffic::stream(&new[0], &target, 4096, 8 << 20, BRIEF));
    testbed.expect("to the new", traffic::ping_pong(&testbed.guests[0], &back, 4096, 10, BRIEF));
    testbed.daemon.check().unwrap();
}
