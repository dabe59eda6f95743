//! A virtual machine is moved from one process to another on another host while it runs, by QEMU's
//! own migration: with its memory, of which causewayd says what it writes to.

mod common;

use std::time::Duration;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, Machine, RunDir, traffic};
use common::LIMIT;
use common::hosts::{Ground, await_state, counter, is_served, wait};
use common::monitor::Monitor;

#[test]
fn a_virtual_machine_that_qemu_migrates_keeps_its_tcp_connections() {
    let Some(ground) = Ground::new(&[1500]) else { return };
    let (stays, mover) = (Member::new("stays", "blue", 1), Member::new("mover", "blue", 2));
    let members = [vec![stays.clone(), mover.clone()], vec![mover.clone()]];
    let daemons: Vec<Daemon> = (0..2)
        .map(|host| {
            let link = ground.link(host, "link", "causeway", 0, "");
            ground.daemon(host, &members[host], &link)
        })
        .collect();
    daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    let dir = RunDir::new().unwrap();
    let machine = Machine::qemu().unwrap();
    // Its vsock device is not QEMU's to migrate.
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
    wait(|| dir.join("incoming").exists(), || "the other process does not wait".to_owned());
    let mut monitor = Monitor::connect(&dir.join("here.qmp"));
    let target: Target = format!("tcp:{}:{STREAM_PORT}", mover.ip()).parse().unwrap();
    let crossed = || counter(&daemons[0], "link", "transmit_bytes_total");
    let before = crossed();
    // Every byte is checked at its end.
    let long = Duration::from_secs(30);
    let stream = std::thread::scope(|scope| {
        let stream = scope.spawn(|| traffic::stream(stays_guest, &target, 4096, u64::MAX, long));
        std::thread::sleep(Duration::from_secs(1));
        assert!(crossed() < before + 1_000_000, "they talk on one host so far");
        monitor.migrate(&dir.join("incoming"));
        let served = || is_served(&daemons[1], "mover-net");
        let told = || format!("{}\n{}", daemons[1].log(), moved.console().tail());
        wait(served, || format!("it did not come\n{}", told()));
        wait(
            || crossed() > before + 1_000_000,
            || format!("nothing crosses\n{}\n{}", daemons[0].log(), told()),
        );
        stream.join().unwrap()
    });
    let stream = stream.unwrap_or_else(|e| panic!("{e}\n{}", daemons[1].log()));
    assert!(stream.total_bytes > 0);
    let ran = stays_guest.run(&["ping", "-c", "3", "-A", "-w", "30", &mover.ip()], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
