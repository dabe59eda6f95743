//! A virtual machine moves between two hosts during a TCP connection.
//!
//! The test moves only the network device: the port on the first host is deleted, and the device,
//! with its current ring state, attaches to the port of the same address on the second host. Peers
//! see no difference from a migration; the guest's kernel and its connections survive.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, GuestSpec, Machine, Nic, NicBackend, RunDir, traffic};
use common::LIMIT;
use common::hosts::{TestHosts, await_state, counter, is_served, show, wait};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

const PORT: &str = "mover-net";

/// Moves the device between hosts: the device reconnects to the socket that `door` links to.
fn move_to(door: &Path, from: &Daemon, to: &Daemon, mover: &Member) {
    let next = door.with_extension("next");
    symlink(to.net_socket(mover), &next).unwrap();
    std::fs::rename(&next, door).unwrap();
    from.cli(&["port", "del", PORT]).unwrap();
    wait(|| is_served(to, PORT), || format!("the device did not attach\n{}", to.log()));
}

/// Recreates the port on the host that the device left, for its return.
fn restore(daemon: &Daemon, mover: &Member) {
    let (mac, mtu) = (mover.mac(), mover.mtu.to_string());
    let socket = daemon.net_socket(mover).display().to_string();
    let words = ["port", "add", PORT, "--group", "blue", "--kind", "net", "--mac", &mac];
    let more = ["--mtu", &mtu, "--socket", &socket];
    daemon.cli(&[&words[..], &more].concat()).unwrap();
}

#[test]
fn a_virtual_machine_that_moves_to_the_other_host_keeps_its_tcp_connections() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let (stays, mover) = (Member::new("stays", "blue", 1), Member::new("mover", "blue", 2));
    let near = [stays.clone(), mover.clone()];
    let daemons = [&near[..], &near[1..]].map(|m| m.to_vec());
    let daemons: Vec<Daemon> = (0..2)
        .map(|host| {
            let link = test_hosts.link(host, "link", "causeway", 0, "");
            test_hosts.daemon(host, &daemons[host], &link)
        })
        .collect();
    daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    let dir = RunDir::new().unwrap();
    let door = dir.join("mover.sock");
    symlink(daemons[0].net_socket(&mover), &door).unwrap();
    let mut spec = GuestSpec::new("mover").nic(Nic {
        backend: NicBackend::VhostUser(door.clone()),
        mac: mover.mac(),
        address: format!("{}/24", mover.ip()),
        mtu: mover.mtu,
    });
    spec.reconnects = true;
    let specs = vec![daemons[0].guest(&stays), spec];
    let guests = Guest::boot_all(&Machine::qemu().unwrap(), specs).unwrap();
    let [stays_guest, moves] = &guests[..] else { panic!("two guests") };

    let target = |member: &Member| -> Target {
        format!("tcp:{}:{STREAM_PORT}", member.ip()).parse().unwrap()
    };
    let crossed = || counter(&daemons[0], "link", "transmit_bytes_total");
    assert!(traffic::ping(stays_guest, &mover.ip(), 5).unwrap().received > 0);
    let before = crossed();
    // Data in both directions; each receiver checks every byte.
    let long = Duration::from_secs(15);
    let streams = std::thread::scope(|scope| {
        let to =
            scope.spawn(|| traffic::stream(stays_guest, &target(&mover), 4096, u64::MAX, long));
        let from = scope.spawn(|| traffic::stream(moves, &target(&stays), 4096, u64::MAX, long));
        std::thread::sleep(Duration::from_secs(1));
        assert!(crossed() < before + 1_000_000, "they talk on one host so far");
        move_to(&door, &daemons[0], &daemons[1], &mover);
        wait(
            || crossed() > before + 1_000_000,
            || format!("nothing crosses: {:#}\n{}", show(&daemons[0], "link"), daemons[0].log()),
        );
        // Back to the first host.
        restore(&daemons[0], &mover);
        move_to(&door, &daemons[1], &daemons[0], &mover);
        [to.join().unwrap(), from.join().unwrap()]
    });
    for stream in streams {
        let stream = stream.unwrap_or_else(|e| panic!("{e}\n{}", daemons[0].log()));
        assert!(stream.total_bytes > 0);
    }
    let ran = stays_guest.run(&["ping", "-c", "3", "-A", "-w", "30", &mover.ip()], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
