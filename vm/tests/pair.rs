//! Two guests on one causewayd: the demo's traffic, with content checks.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_guest_tool::{client, serve};
use causeway_vm::daemon::{HOST_CID, Member, SNAPSHOT_CID, SNAPSHOT_MAC};
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::{BRIEF, LIMIT, Testbed};

const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

fn pair() -> Testbed {
    Testbed::new(vec![Member::new("one", "blue", 1), Member::new("two", "blue", 2)])
}

#[test]
fn ethernet_and_vsock_between_two_guests_and_the_host() {
    let mut testbed = pair();
    ethernet(&testbed);
    vsock(&testbed);
    with_the_host(&testbed);
    testbed.daemon.check().unwrap();
    let ports = testbed.daemon.cli(&["port", "list", "-o", "json"]).unwrap();
    for port in ["one-net", "one-vsock", "two-net", "two-vsock"] {
        assert!(ports.contains(port), "{port} not in {ports}");
    }
    let status = testbed.daemon.stop().expect("causewayd ends when asked");
    assert!(status.success(), "{status}: {}", testbed.daemon.log());
}

fn ethernet(testbed: &Testbed) {
    let [one, two] = [&testbed.guests[0], &testbed.guests[1]];
    let ping = testbed.expect("ping", traffic::ping(one, &testbed.members[1].ip(), 50));
    assert_eq!((ping.sent, ping.received), (50, 50));
    testbed.expect("TCP to two", traffic::stream(one, &testbed.tcp(1), 64 << 10, 64 << 20, BRIEF));
    testbed.expect("TCP to one", traffic::stream(two, &testbed.tcp(0), 4096, 64 << 20, BRIEF));
    testbed.expect("TCP half-close", traffic::half_close(two, &testbed.tcp(0), 300_000));
}

fn vsock(testbed: &Testbed) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (guest, target) = (&testbed.guests[from], testbed.vsock(to));
        for bytes in SIZES {
            let what = format!("{bytes} B to {target}");
            testbed.expect(&what, traffic::ping_pong(guest, &target, bytes, 50, BRIEF));
            testbed.expect(&what, traffic::stream(guest, &target, bytes, 64 << 20, BRIEF));
        }
        testbed.expect("half-close", traffic::half_close(guest, &target, 2 << 20));
        let sizes = [1, 63, 3732, 3733, 4096, 10_000, 65_535, 65_536, 100_000, 1];
        testbed.expect("messages", traffic::messages(guest, &testbed.messages(to), &sizes));
    }
}

fn with_the_host(testbed: &Testbed) {
    for bytes in SIZES {
        let target = testbed.hybrid(0);
        client::ping_pong(&target, bytes, 50, BRIEF).unwrap();
        client::stream(&target, bytes, 64 << 20, BRIEF).unwrap();
    }
    client::half_close(&testbed.hybrid(1), 2 << 20).unwrap();
    let path = testbed.daemon.host_listener(&testbed.members[0], STREAM_PORT);
    serve::spawn(Target::Unix(path.clone())).unwrap();
    testbed.daemon.open_to_daemon(&path).unwrap();
    let host = Target::Vsock(HOST_CID, STREAM_PORT);
    for bytes in SIZES {
        let guest = &testbed.guests[0];
        testbed.expect("to host", traffic::ping_pong(guest, &host, bytes, 50, BRIEF));
        testbed.expect("to host", traffic::stream(guest, &host, bytes, 64 << 20, BRIEF));
    }
    // Only the first guest can reach the listener.
    assert!(traffic::ping_pong(&testbed.guests[1], &host, 64, 1, BRIEF).is_err());
}

#[test]
fn clones_of_one_snapshot_exchange_traffic() {
    let clone = |name, number| Member::new(name, "blue", number).clone_of_snapshot();
    let mut testbed = Testbed::new(vec![clone("one", 1), clone("two", 2)]);
    ethernet(&testbed);
    vsock(&testbed);
    with_the_host(&testbed);
    // Both guests have the same address, and the group has that of each port.
    let ports = testbed.daemon.cli(&["port", "list"]).unwrap();
    for member in &testbed.members {
        let addresses = format!("{} (guest {SNAPSHOT_MAC})", member.mac());
        assert!(ports.contains(&addresses), "{addresses} not in {ports}");
        assert!(ports.contains(&format!("cid {} (guest {SNAPSHOT_CID})", member.cid)), "{ports}");
    }
    testbed.daemon.check().unwrap();
}

#[test]
fn vsock_connect_without_a_listener_is_refused_at_once() {
    let testbed = pair();
    for target in ["vsock:102:9999", "vsock:555:7001", "vsock:2:9999", "seqpacket:102:9999"] {
        let argv = ["causeway-guest", "ping-pong", target, "64", "1", "1000"];
        let ran = testbed.expect(target, testbed.guests[0].run(&argv, LIMIT));
        assert_eq!(ran.code, Some(1), "{target}: {ran:?}");
        // The connection is reset, not timed out.
        assert!(ran.stderr.contains("reset") || ran.stderr.contains("refused"), "{ran:?}");
    }
    let none = Target::Hybrid(testbed.daemon.host_socket(&testbed.members[0]), 9999);
    assert!(client::ping_pong(&none, 64, 1, BRIEF).is_err());
    testbed.expect(
        "after it",
        traffic::ping_pong(&testbed.guests[0], &testbed.vsock(1), 64, 5, BRIEF),
    );
}

#[test]
fn guest_of_user_mode_linux_exchanges_traffic_with_a_virtual_machine() {
    let machine = match Machine::user_mode() {
        Ok(machine) => machine,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let members = vec![Member::new("qemu", "blue", 1), Member::new("uml", "blue", 2)];
    let daemon = Daemon::start(&members).unwrap();
    let boot = |machine: &Machine, member: &Member| {
        Guest::boot_all(machine, vec![daemon.guest(member)])
            .unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()))
    };
    let mut guests = boot(&machine, &members[1]);
    guests.splice(0..0, boot(&Machine::qemu().unwrap(), &members[0]));
    let testbed = Testbed { guests, members, daemon };
    ethernet(&testbed);
    vsock(&testbed);
}
