//! A guest with a host channel adapter is a member of its group: it exchanges frames with a virtio
//! guest, and neither frames nor RDMA cross to another group.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_vm::daemon::{Adapter, Member, Setup};
use causeway_vm::rdma::{self, Programs, RdmaGuest, Suite};
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::{LIMIT, has_rdma_parts};

/// Address of the virtio guest in the network of the RDMA guests.
const VIRTIO_IP: &str = "10.79.0.9";
/// Bytes of a stream.
const STREAM_BYTES: u64 = 4 << 20;

/// Runs a command in the virtio guest.
fn run(guest: &Guest, argv: &[&str]) {
    let ran = guest.run(argv, LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{argv:?}: {ran:?}");
}

#[test]
fn rdma_guest_exchanges_frames_with_a_virtio_guest_and_reaches_no_other_group() {
    let suite = Suite::Trixie;
    if !has_rdma_parts(suite, Programs::Verbs) {
        return;
    }
    let adapter = |number: u8, group: &str| Adapter {
        name: format!("hca{number}"),
        group: group.into(),
        number,
    };
    let member = Member::new("blue1", "blue", 7);
    let setup = Setup {
        members: vec![member.clone()],
        adapters: vec![adapter(1, "blue"), adapter(2, "red")],
        ..Setup::default()
    };
    let daemon = Daemon::with(setup).unwrap();
    let machine = rdma::machine(suite, Programs::Verbs).unwrap();
    let start = |number: u8| {
        let socket = daemon.adapter_socket(&format!("hca{number}"));
        RdmaGuest::start(&machine, &format!("rdma{number}"), &socket, number).unwrap()
    };
    let mut guests = [start(1), start(2)];
    let mut virtio =
        Guest::boot_all(&Machine::qemu().unwrap(), vec![daemon.guest(&member)]).unwrap();
    let virtio = virtio.pop().unwrap();
    for guest in &mut guests {
        guest.await_ready().unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
    }
    let [blue, red] = &guests;
    run(&virtio, &["ip", "addr", "add", &format!("{VIRTIO_IP}/24"), "dev", "eth0"]);

    let expect = |what: &str, result: causeway_vm::Result<()>| {
        result.unwrap_or_else(|e| panic!("{what}: {e}\n--- causewayd ---\n{}", daemon.log()));
    };
    // Segments pass uncut to the virtio guest, and are cut for the adapter.
    let to = |ip: &str| format!("tcp:{ip}:{STREAM_PORT}").parse().unwrap();
    for (name, from, target) in [
        ("from the adapter", blue.guest(), to(VIRTIO_IP)),
        ("to the adapter", &virtio, to(&blue.ip())),
    ] {
        expect(name, traffic::ping_pong(from, &target, 4096, 20, LIMIT).map(drop));
        expect(name, traffic::stream(from, &target, 65_536, STREAM_BYTES, LIMIT).map(drop));
    }

    // Nothing crosses groups: neither frames nor datagrams to a known address.
    let lost = |guest: &RdmaGuest, to: &str| {
        let ran = guest.guest().run(&["ping", "-c", "2", "-w", "2", to], LIMIT).unwrap();
        assert_ne!(ran.code, Some(0), "{} reached {to}", guest.guest().name());
    };
    lost(blue, &red.ip());
    lost(red, VIRTIO_IP);
    let mac = red.run(&["cat", "/sys/class/net/eth0/address"], LIMIT).unwrap();
    let known = ["ip", "neigh", "replace", &red.ip(), "lladdr", mac.trim(), "dev", "eth0"];
    blue.run(&known, LIMIT).unwrap();
    lost(blue, &red.ip());
    let script = format!("rping -s -a {} -C 1 >/dev/null 2>&1 &", red.ip());
    red.run(&["sh", "-c", &script], LIMIT).unwrap();
    let client = ["timeout", "10", "rping", "-c", "-a", &red.ip(), "-C", "1"];
    let ran = blue.guest().run(&client, LIMIT).unwrap();
    assert_ne!(ran.code, Some(0), "RDMA crossed groups: {ran:?}");

    for guest in &guests {
        guest.check_kernel().unwrap();
    }
}
