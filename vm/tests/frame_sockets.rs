//! Guests of QEMU without vhost-user, at ports of kind `stream` and `dgram`, beside a guest with it.

mod common;

use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, GuestSpec, Machine, Nic, NicBackend, Qemu, traffic};
use common::{BRIEF, Testbed};

/// Returns a guest whose frames take the backend of QEMU that `causeway port show --for qemu` prints.
fn guest(daemon: &Daemon, member: &Member, port: &str) -> GuestSpec {
    let version = Qemu::find().unwrap().version_text;
    let words = ["port", "show", port, "--for", "qemu", "--qemu-version", &version, "--lines"];
    let shown = daemon.cli(&words).unwrap();
    let mut lines = shown.lines().skip_while(|line| *line != "-netdev").skip(1);
    let printed = lines.next().expect("a network backend");
    // The machine chooses the identifiers.
    let backend = printed.replace(&format!(",id=cw-{port}"), "");
    let backend = NicBackend::Qemu(backend);
    let (mac, address) = (member.mac(), format!("{}/24", member.ip()));
    GuestSpec::new(&member.name).nic(Nic { backend, mac, address, mtu: 1500 })
}

#[test]
fn qemu_guests_on_stream_and_datagram_sockets_exchange_traffic() {
    let members = ["one", "two", "three"].into_iter().zip(1..);
    let members: Vec<_> = members.map(|(name, at)| Member::new(name, "blue", at)).collect();
    let daemon = Daemon::start(&members[..1]).unwrap();
    let add = |port: &str, kind: &str, member: &Member| {
        let mac = member.mac();
        let words = ["port", "add", port, "--kind", kind, "--group", "blue", "--mac", &mac];
        daemon.cli(&words).unwrap();
    };
    add("s", "stream", &members[1]);
    add("d", "dgram", &members[2]);
    let specs = vec![
        daemon.guest(&members[0]),
        guest(&daemon, &members[1], "s"),
        guest(&daemon, &members[2], "d"),
    ];
    let guests = Guest::boot_all(&Machine::qemu().unwrap(), specs)
        .unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
    daemon.open_to_daemon(&daemon.nic_socket("d").with_extension("sock.peer")).unwrap();
    let testbed = Testbed { guests, members, daemon };
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let (guest, ip) = (&testbed.guests[from], testbed.members[to].ip());
        let ping = testbed.expect("ping", traffic::ping(guest, &ip, 5));
        assert_eq!((ping.sent, ping.received), (5, 5), "{from} to {to}");
        let what = format!("TCP from {from} to {to}");
        testbed.expect(&what, traffic::stream(guest, &testbed.tcp(to), 64 << 10, 16 << 20, BRIEF));
        testbed.expect(&what, traffic::half_close(guest, &testbed.tcp(to), 300_000));
    }
    let ports = testbed.daemon.cli(&["port", "list"]).unwrap();
    for port in ["s ", "d "] {
        let line = ports.lines().find(|line| line.starts_with(port)).unwrap();
        assert!(line.contains("running"), "{ports}");
    }
}
