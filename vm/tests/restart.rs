//! causewayd is killed with SIGKILL and replaced while QEMU guests exchange traffic through it.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::{BRIEF, Testbed};
use std::time::Duration;

#[test]
fn guests_outlive_causewayd() {
    let members = vec![Member::new("one", "blue", 1), Member::new("two", "blue", 2)];
    let daemon = Daemon::start(&members).unwrap();
    let spec = |member: &Member| {
        let mut spec = daemon.guest(member);
        spec.reconnects = true;
        // A guest with split rings and a guest with packed rings.
        spec.packed = member.name == "two";
        spec
    };
    let guests = Guest::boot_all(&Machine::qemu().unwrap(), members.iter().map(spec).collect());
    let guests =
        guests.unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
    let mut testbed = Testbed { guests, members, daemon };
    let shown = testbed.daemon.cli(&["port", "show", "two-net", "-o", "json"]).unwrap();
    assert!(shown.contains("\"packed\""), "the second guest's rings are not packed: {shown}");
    let (vsock, tcp, ip) = (testbed.vsock(1), testbed.tcp(1), testbed.members[1].ip());
    for round in 0..3 {
        let one = &testbed.guests[0];
        let daemon = &mut testbed.daemon;
        std::thread::scope(|scope| {
            let target = &vsock;
            // Far longer than the test: only a reset ends it.
            let long = Duration::from_secs(120);
            let cut = scope.spawn(move || traffic::stream(one, target, 4096, u64::MAX, long));
            std::thread::sleep(Duration::from_secs(1));
            assert!(!cut.is_finished(), "round {round}: the stream ended by itself");
            daemon.replace().unwrap();
            let error = cut.join().unwrap().expect_err("a stream outlived causewayd").to_string();
            assert!(error.contains("reset") || error.contains("pipe"), "round {round}: {error}");
        });
        let what = format!("round {round}");
        for guest in &testbed.guests {
            assert!(testbed.expect(&what, guest.run(&["true"], BRIEF)).code == Some(0));
        }
        let again = traffic::ping_pong(&testbed.guests[0], &vsock, 64, 10, BRIEF);
        testbed.expect(&format!("{what}: a new connection"), again);
        let ping = testbed.expect(&what, traffic::ping(&testbed.guests[0], &ip, 20));
        assert!(ping.received > 0, "{what}: Ethernet did not resume: {ping:?}");
        let stream = traffic::stream(&testbed.guests[0], &tcp, 65536, 8 << 20, BRIEF);
        testbed.expect(&format!("{what}: TCP"), stream);
    }
}
