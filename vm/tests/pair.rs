//! Two guests at one causewayd: the demo's traffic, with its content checked.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_guest_tool::{client, serve};
use causeway_vm::daemon::{HOST_CID, Member};
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::{BRIEF, LIMIT, Party};

const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

fn pair() -> Party {
    Party::new(vec![Member::new("one", "blue", 1), Member::new("two", "blue", 2)])
}

#[test]
fn ethernet_and_vsock_between_two_guests_and_the_host() {
    let mut party = pair();
    ethernet(&party);
    vsock(&party);
    with_the_host(&party);
    party.daemon.check().unwrap();
    let ports = party.daemon.cli(&["port", "list", "-o", "json"]).unwrap();
    for port in ["one-net", "one-vsock", "two-net", "two-vsock"] {
        assert!(ports.contains(port), "{port} not in {ports}");
    }
    let status = party.daemon.stop().expect("causewayd ends when asked");
    assert!(status.success(), "{status}: {}", party.daemon.log());
}

fn ethernet(party: &Party) {
    let [one, two] = [&party.guests[0], &party.guests[1]];
    let ping = party.expect("ping", traffic::ping(one, &party.members[1].ip(), 50));
    assert_eq!((ping.sent, ping.received), (50, 50));
    party.expect("TCP to two", traffic::stream(one, &party.tcp(1), 64 << 10, 64 << 20, BRIEF));
    party.expect("TCP to one", traffic::stream(two, &party.tcp(0), 4096, 64 << 20, BRIEF));
    party.expect("TCP half-close", traffic::half_close(two, &party.tcp(0), 300_000));
}

fn vsock(party: &Party) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (guest, target) = (&party.guests[from], party.vsock(to));
        for bytes in SIZES {
            let what = format!("{bytes} B to {target}");
            party.expect(&what, traffic::ping_pong(guest, &target, bytes, 50, BRIEF));
            party.expect(&what, traffic::stream(guest, &target, bytes, 64 << 20, BRIEF));
        }
        party.expect("half-close", traffic::half_close(guest, &target, 2 << 20));
        let sizes = [1, 63, 3732, 3733, 4096, 10_000, 65_535, 65_536, 100_000, 1];
        party.expect("messages", traffic::messages(guest, &party.messages(to), &sizes));
    }
}

fn with_the_host(party: &Party) {
    for bytes in SIZES {
        let target = party.hybrid(0);
        client::ping_pong(&target, bytes, 50, BRIEF).unwrap();
        client::stream(&target, bytes, 64 << 20, BRIEF).unwrap();
    }
    client::half_close(&party.hybrid(1), 2 << 20).unwrap();
    let path = party.daemon.host_listener(&party.members[0], STREAM_PORT);
    serve::spawn(Target::Unix(path.clone())).unwrap();
    party.daemon.open_to_daemon(&path).unwrap();
    let host = Target::Vsock(HOST_CID, STREAM_PORT);
    for bytes in SIZES {
        let guest = &party.guests[0];
        party.expect("to host", traffic::ping_pong(guest, &host, bytes, 50, BRIEF));
        party.expect("to host", traffic::stream(guest, &host, bytes, 64 << 20, BRIEF));
    }
    // The listener is the first guest's alone.
    assert!(traffic::ping_pong(&party.guests[1], &host, 64, 1, BRIEF).is_err());
}

#[test]
fn calls_that_nobody_answers_are_refused_at_once() {
    let party = pair();
    for target in ["vsock:102:9999", "vsock:555:7001", "vsock:2:9999", "seqpacket:102:9999"] {
        let argv = ["causeway-guest", "ping-pong", target, "64", "1", "1000"];
        let ran = party.expect(target, party.guests[0].run(&argv, LIMIT));
        assert_eq!(ran.code, Some(1), "{target}: {ran:?}");
        // A reset, not a wait until somebody gives up.
        assert!(ran.stderr.contains("reset") || ran.stderr.contains("refused"), "{ran:?}");
    }
    let none = Target::Hybrid(party.daemon.host_socket(&party.members[0]), 9999);
    assert!(client::ping_pong(&none, 64, 1, BRIEF).is_err());
    party.expect("after it", traffic::ping_pong(&party.guests[0], &party.vsock(1), 64, 5, BRIEF));
}

#[test]
fn user_mode_linux_beside_a_virtual_machine() {
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
    let party = Party { guests, members, daemon };
    ethernet(&party);
    vsock(&party);
}
