//! An idle dispatcher uses no processor, in every state of waiting. The processor time of
//! all threads of the process is measured.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::common::*;
use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_wire::vsock::{Op, SHUTDOWN_SEND, Type};

/// Returns the processor time of all threads so far.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let spent = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(spent.sum())
}

/// Checks that no thread spins: a spinning thread uses nearly all of the time, or half of it on a
/// busy machine; a sleeping thread uses a thousandth.
fn rests(state: &str) {
    std::thread::sleep(Duration::from_millis(50));
    let before = cpu();
    std::thread::sleep(Duration::from_millis(400));
    let spent = cpu() - before;
    assert!(spent < Duration::from_millis(60), "{state}: {spent:?} of 400 ms");
}

fn small() -> VsockOptions {
    VsockOptions { ring_size: 16, ..VsockOptions::default() }
}

fn data(a: &mut VsockPort, from: u32, to: (u32, u32)) {
    let header = packet((a.cid() as u32, from), to, Op::Data, 60_000);
    let _ = a.queue(&header, &[1; 60_000]).unwrap();
    a.flush().unwrap();
}

fn between_guests(rig: &Rig) {
    let (mut a, mut b) = (rig.sockets("red", 13), rig.sockets("red", 14));
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 5000);
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 1 << 20), 65_536);
    rests("after traffic");
    let (mut a, mut b) = (rig.port("red", 3), rig.port_with("red", 4, small()));
    for i in 0..60 {
        open(&mut a, &mut b, 100 + i, 200 + i);
    }
    for _ in 0..3 {
        data(&mut a, 100, (4, 200));
    }
    rests("data waits for a receiver");
    for i in 0..60 {
        for _ in 0..4 {
            data(&mut a, 100 + i, (4, 200 + i));
        }
    }
    wait(|| rig.counter("red", 3, "transmit_waited_total") > 0, || "not stopped".into());
    rests("a sender stands still");
    let mut flood = rig.port_with("red", 6, small());
    for _ in 0..2000 {
        flood.queue(&packet((6, 1), (99, 1), Op::Data, 0), &[]).unwrap();
        flood.flush().unwrap();
    }
    rests("a guest takes no resets");
    let mut asks = rig.port("red", 7);
    send(&mut asks, &packet((7, 1), (14, 1), Op::Request, 0), &[]);
    rests("a connect is not answered");
}

fn with_processes(rig: &Rig) {
    let listener = UnixListener::bind(rig.path("red-5.host_9")).unwrap();
    let mut guest = rig.port("red", 5);
    let mut connect = |port| {
        send(&mut guest, &packet((5, port), (2, 9), Op::Request, 0), &[]);
        assert_eq!(next_op(&mut guest), Op::Response);
        accept(&listener)
    };
    let [mut full, first, last] = [1, 2, 3].map(&mut connect);
    full.set_nonblocking(true).unwrap();
    while full.write(&[7; 4096]).is_ok() {}
    rests("a process waits for credit");
    let mut half = UnixStream::connect(rig.path("red-5.host")).unwrap();
    half.write_all(b"CONN").unwrap();
    rests("a process has not said where to");
    let mut shut = |port| {
        let mut header = packet((5, port), (2, 9), Op::Shutdown, 0);
        header.flags = SHUTDOWN_SEND;
        send(&mut guest, &header, &[]);
        wait(|| guest.is_idle().unwrap(), || "not taken".into());
    };
    shut(2);
    first.shutdown(std::net::Shutdown::Write).unwrap();
    rests("the guest, then the process ended its stream");
    last.shutdown(std::net::Shutdown::Write).unwrap();
    shut(3);
    rests("the process, then the guest ended its stream");
    drop((full, first, last));
    rests("the processes are gone");
}

#[test]
fn waiting_takes_no_processor() {
    let _turn = crate::turn();
    let rig = Rig::new();
    rests("nothing at all");
    between_guests(&rig);
    with_processes(&rig);
}
