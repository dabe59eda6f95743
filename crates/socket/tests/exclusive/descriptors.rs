//! Descriptors of the process: none is leaked, and a process without a free descriptor continues.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::*;
use causeway_attach::native::VsockOptions;
use causeway_model::{Command, PortState};
use causeway_wire::vsock::Op;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn hostile_frontends_that_come_and_go_leak_no_descriptors() {
    let _turn = crate::turn();
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    rig.try_add("red", 3).unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let path = rig.path("red-3");
    let attach = || causeway_attach::native::VsockPort::attach(&path, VsockOptions::default());
    drop(attach().unwrap());
    rig.wait_for("red", 3, |v| v.state == PortState::Listening);
    let before = count();
    for _ in 0..50 {
        let mut port = attach().unwrap();
        send(&mut port, &packet((99, 1), (4, 1), Op::Reset, 0), &[]);
        rig.wait_for("red", 3, |v| v.state == PortState::Faulted);
    }
    // A few descriptors may be on their way to the thread that closes them.
    wait(|| count() < before + 10, || format!("{before} descriptors became {}", count()));
    assert_eq!(rig.view("red", 3).faults_total, 50);
    others.go_on();
}

#[test]
fn hostile_connects_without_a_free_descriptor_are_turned_away_and_cost_nothing() {
    let _turn = crate::turn();
    let rig = Rig::new();
    rig.try_add("red", 3).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..before }).unwrap();
    let mut rest: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for socket in ["red-3", "red-3.host", "red-3"] {
        // The only free descriptor is the client's.
        drop(rest.pop().unwrap());
        let mut client = UnixStream::connect(rig.path(socket)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = client.read(&mut [0]);
        let gone = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(end.as_ref().map_or_else(gone, |&n| n == 0), "{socket}: {end:?}");
        drop(client);
        // The daemon shares the process's descriptors and may hold this one for a moment.
        rest.push(take_descriptor());
    }
    drop(rest);
    let path = rig.path("red-3");
    causeway_attach::native::VsockPort::attach(&path, Default::default()).unwrap();
    move_groups_without_free_descriptors(&rig);
    setrlimit(Resource::Nofile, before).unwrap();
}

/// A second thread takes each descriptor that becomes free.
fn move_groups_without_free_descriptors(rig: &Rig) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut taken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                taken.extend(File::open("/dev/null"));
            }
        });
        for dispatcher in [1, 0].into_iter().cycle().take(500) {
            let group = "red".parse().unwrap();
            let moved = rig.handle.call(Command::ShardMove { group, service: None, dispatcher });
            if moved.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            moved.unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let path = rig.path("red-3");
    causeway_attach::native::VsockPort::attach(&path, Default::default()).unwrap();
}

fn take_descriptor() -> File {
    let since = Instant::now();
    loop {
        match File::open("/dev/null") {
            Ok(file) => return file,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::yield_now();
    }
}
