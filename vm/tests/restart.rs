//! causewayd is killed outright and replaced while guests of QEMU talk through it.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::{BRIEF, Party};
use std::time::Duration;

#[test]
fn guests_outlive_causewayd() {
    let members = vec![Member::new("one", "blue", 1), Member::new("two", "blue", 2)];
    let daemon = Daemon::start(&members).unwrap();
    let spec = |member: &Member| {
        let mut spec = daemon.guest(member);
        spec.reconnects = true;
        // One guest of each kind of ring.
        spec.packed = member.name == "two";
        spec
    };
    let guests = Guest::boot_all(&Machine::qemu().unwrap(), members.iter().map(spec).collect());
    let guests =
        guests.unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
    let mut party = Party { guests, members, daemon };
    let shown = party.daemon.cli(&["port", "show", "two-net", "-o", "json"]).unwrap();
    assert!(shown.contains("\"packed\""), "the second guest's rings are not packed: {shown}");
    let (vsock, tcp, ip) = (party.vsock(1), party.tcp(1), party.members[1].ip());
    for round in 0..3 {
        let one = &party.guests[0];
        let daemon = &mut party.daemon;
        std::thread::scope(|scope| {
            let target = &vsock;
            // Far longer than the test may take: only a reset ends it.
            let long = Duration::from_secs(120);
            let cut = scope.spawn(move || traffic::stream(one, target, 4096, u64::MAX, long));
            std::thread::sleep(Duration::from_secs(1));
            assert!(!cut.is_finished(), "round {round}: the stream ended by itself");
            daemon.replace().unwrap();
            let error = cut.join().unwrap().expect_err("a stream outlived causewayd").to_string();
            assert!(error.contains("reset") || error.contains("pipe"), "round {round}: {error}");
        });
        let what = format!("round {round}");
        for guest in &party.guests {
            assert!(party.expect(&what, guest.run(&["true"], BRIEF)).code == Some(0));
        }
        let again = traffic::ping_pong(&party.guests[0], &vsock, 64, 10, BRIEF);
        party.expect(&format!("{what}: a new connection"), again);
        let ping = party.expect(&what, traffic::ping(&party.guests[0], &ip, 20));
        assert!(ping.received > 0, "{what}: Ethernet did not resume: {ping:?}");
        let stream = traffic::stream(&party.guests[0], &tcp, 65536, 8 << 20, BRIEF);
        party.expect(&format!("{what}: TCP"), stream);
    }
}
