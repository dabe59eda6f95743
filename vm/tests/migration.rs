//! Live migration of a virtual machine to another host by QEMU. QEMU transfers the memory;
//! causewayd logs the pages that it writes.

mod common;

use std::time::Duration;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::Member;
use causeway_vm::monitor::Monitor;
use causeway_vm::{Daemon, Guest, Machine, RunDir, traffic};
use common::LIMIT;
use common::hosts::{TestHosts, await_state, counter, is_served, wait};

#[test]
fn migration_by_qemu_keeps_tcp_connections() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let (stays, mover) = (Member::new("stays", "blue", 1), Member::new("mover", "blue", 2));
    let members = [vec![stays.clone(), mover.clone()], vec![mover.clone()]];
    let daemons: Vec<Daemon> = (0..2)
        .map(|host| {
            let link = test_hosts.link(host, "link", "causeway", 0, "");
            test_hosts.daemon(host, &members[host], &link)
        })
        .collect();
    daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    let dir = RunDir::new().unwrap();
    let machine = Machine::qemu().unwrap();
    // QEMU does not migrate a vhost-user vsock device.
    let spec = |daemon: &Daemon| {
        let mut spec = daemon.guest(&mover);
        spec.vsock = None;
        spec
    };
    let mut here = spec(&daemons[0]);
    here.monitor = Some(dir.join("here.qmp"));
    let mut there = spec(&daemons[1]);
    there.incoming = Some(dir.join("incoming"));
    let guests = Guest::boot_all(&machine, vec![daemons[0].guest(&stays), here]).unwrap();
    let stays_guest = &guests[0];
    assert!(traffic::ping(stays_guest, &mover.ip(), 5).unwrap().received > 0);
    let moved = Guest::start(&machine, there).unwrap();
    wait(|| dir.join("incoming").exists(), || "the destination process does not listen".to_owned());
    let mut monitor = Monitor::connect(&dir.join("here.qmp")).unwrap();
    let target: Target = format!("tcp:{}:{STREAM_PORT}", mover.ip()).parse().unwrap();
    let crossed = || counter(&daemons[0], "link", "transmit_bytes_total");
    let before = crossed();
    // The receiver checks every byte.
    let long = Duration::from_secs(30);
    let stream = std::thread::scope(|scope| {
        let stream = scope.spawn(|| traffic::stream(stays_guest, &target, 4096, u64::MAX, long));
        std::thread::sleep(Duration::from_secs(1));
        assert!(crossed() < before + 1_000_000, "they talk on one host so far");
        monitor.migrate(&dir.join("incoming")).unwrap();
        let served = || is_served(&daemons[1], "mover-net");
        let logs = || format!("{}\n{}", daemons[1].log(), moved.console().tail());
        wait(served, || format!("the guest did not attach\n{}", logs()));
        wait(
            || crossed() > before + 1_000_000,
            || format!("nothing crosses\n{}\n{}", daemons[0].log(), logs()),
        );
        stream.join().unwrap()
    });
    let stream = stream.unwrap_or_else(|e| panic!("{e}\n{}", daemons[1].log()));
    assert!(stream.total_bytes > 0);
    let ran = stays_guest.run(&["ping", "-c", "3", "-A", "-w", "30", &mover.ip()], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
