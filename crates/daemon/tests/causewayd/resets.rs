//! Connections of a held guest when causewayd is killed: each ends with a reset, independent of the
//! guest's activity, the position of its rings, and the number of kills.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::daemon_process::{self, DaemonProcess};
use crate::common::{Dir, send};
use causeway_attach::native::{
    ConnectionId, SocketError, Sockets, VsockOptions, VsockPort, net_features,
};
use causeway_wire::vsock::{Header, Op, Type};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
const LIMIT: Duration = Duration::from_secs(30);
const PORT: u32 = 7;

/// Writes a configuration of two held vsock ports, `a` with CID 3 and `b` with CID 4.
fn config(dir: &Dir) -> PathBuf {
    let port = |(name, cid)| {
        format!("[[port]]\nname = \"{name}\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = {cid}\n")
    };
    daemon_process::config(dir, "vsock", &[("a", 3), ("b", 4)].map(port).concat())
}

fn attach(dir: &Dir, name: &str, options: VsockOptions) -> VsockPort {
    VsockPort::attach(&dir.file(&format!("{name}.sock")), options).unwrap()
}

fn packet(src: (u64, u32), dst: (u64, u32), op: Op, len: u32) -> Header {
    Header { len, buf_alloc: 1 << 18, ..Header::between(src, dst, Type::Stream.raw(), op) }
}

fn give(port: &mut VsockPort, header: &Header, data: &[u8]) {
    assert!(port.queue(header, data).unwrap(), "no room to send");
    port.flush().unwrap();
    let since = Instant::now();
    while !port.is_idle().unwrap() {
        assert!(since.elapsed() < LIMIT, "it is not taken");
        thread::yield_now();
    }
}

/// Returns the operation and local port number of the next packet at a manually driven port.
fn next(port: &mut VsockPort) -> (Op, u32) {
    let since = Instant::now();
    loop {
        if let Some(header) = port.receive(&mut Vec::new()).unwrap() {
            return (header.operation().unwrap(), header.dst_port);
        }
        assert!(since.elapsed() < LIMIT, "no packet came");
        port.wait(false, Some(Duration::from_millis(20))).unwrap();
    }
}

fn connections(dir: &Dir, port: &str) -> u64 {
    let (_, view) = send(&dir.file("control.sock"), "GET", &format!("/v1/ports/{port}"), "");
    view["counters"]["connections"].as_u64().unwrap_or_else(|| panic!("{view}"))
}

/// Returns the used bytes of each ledger below `dir`.
fn named(dir: &Path) -> Vec<usize> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all.extend(named(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "open") {
            let bytes = std::fs::read(entry).unwrap();
            all.push(bytes.iter().filter(|byte| **byte != 0).count());
        }
    }
    all
}

/// The peer resets one connection and keeps another. Both must be reset when the guest adds buffers
/// again.
#[test]
fn resets_reach_a_guest_without_buffers_after_any_number_of_kills() {
    const BUFFERS: u16 = 4;
    for kills in [1, 3] {
        let dir = Dir::new();
        let file = config(&dir);
        let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        let mut a = attach(&dir, "a", VsockOptions::default());
        let few = VsockOptions { ring_size: BUFFERS, ..VsockOptions::default() };
        let mut b = attach(&dir, "b", few);
        for from in [100, 101] {
            give(&mut a, &packet((3, from), (4, PORT), Op::Request, 0), &[]);
            assert_eq!(next(&mut b), (Op::Request, PORT));
            give(&mut b, &packet((4, PORT), (3, from), Op::Response, 0), &[]);
            assert_eq!(next(&mut a), (Op::Response, from));
        }
        // From here on `b` takes no packet: each of these fills a buffer.
        for _ in 0..BUFFERS {
            give(&mut a, &packet((3, 100), (4, PORT), Op::Data, 3), b"abc");
        }
        give(&mut a, &packet((3, 100), (4, PORT), Op::Reset, 0), &[]);
        assert_eq!(connections(&dir, "b"), 1);
        for _ in 0..kills {
            life.kill();
            life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        }
        for _ in 0..BUFFERS {
            assert_eq!(next(&mut b), (Op::Data, PORT), "{kills} kills");
        }
        for _ in 0..2 {
            assert_eq!(next(&mut b), (Op::Reset, PORT), "{kills} kills");
        }
        assert_eq!(next(&mut a), (Op::Reset, 101), "{kills} kills");
        // A reset is sent once only.
        let since = Instant::now();
        while named(&dir.0) != [0, 0] {
            assert!(since.elapsed() < LIMIT, "{:?} are still to be told", named(&dir.0));
            thread::sleep(Duration::from_millis(2));
        }
        life.stop();
    }
}

/// Clones with the same CID: reset packets after a kill have the CIDs of the guest's view, and the
/// transport reset event is sent, by which Linux reads its CID again.
#[test]
fn resets_of_clones_have_the_cid_of_the_snapshot() {
    let dir = Dir::new();
    let port = |(name, cid)| {
        let kind = "kind = \"vsock\"\nguest_cid = 3\n";
        format!("[[port]]\nname = \"{name}\"\ngroup = \"blue\"\ncid = {cid}\n{kind}")
    };
    let ports = [("a", 10), ("b", 11)].map(port).concat();
    let file = daemon_process::config(&dir, "vsock", &ports);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let [mut a, mut b] = ["a", "b"].map(|name| attach(&dir, name, VsockOptions::default()));
    assert_eq!((a.cid(), b.cid()), (3, 3));
    give(&mut a, &packet((3, 100), (11, PORT), Op::Request, 0), &[]);
    assert_eq!(next(&mut b), (Op::Request, PORT));
    give(&mut b, &packet((3, PORT), (10, 100), Op::Response, 0), &[]);
    assert_eq!(next(&mut a), (Op::Response, 100));
    life.kill();
    life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    for (port, peer) in [(&mut a, 11), (&mut b, 10)] {
        let since = Instant::now();
        let (mut reset, mut event) = (None, None);
        while reset.is_none() || event.is_none() {
            reset = reset.or(port.receive(&mut Vec::new()).unwrap());
            event = event.or(port.receive_event().unwrap());
            assert!(since.elapsed() < LIMIT, "{reset:?} {event:?}");
            thread::sleep(Duration::from_millis(2));
        }
        let reset = reset.unwrap();
        assert_eq!((reset.src_cid, reset.dst_cid), (peer, 3));
        assert_eq!((reset.operation(), event), (Some(Op::Reset), Some(0)));
    }
    life.stop();
}

/// Returns both ends of a new stream.
fn join(a: &mut Sockets, b: &mut Sockets) -> Result<(ConnectionId, ConnectionId), SocketError> {
    let cid = b.cid();
    let done = AtomicBool::new(false);
    let (out, last) = thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut last = None;
            while last.is_none() || !done.load(Ordering::Relaxed) {
                match b.accept(Duration::from_millis(1)) {
                    Ok(id) => last = Some(id),
                    Err(SocketError::TimedOut) if !done.load(Ordering::Relaxed) => {}
                    Err(SocketError::TimedOut) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            last
        });
        let out = a.connect(Type::Stream, cid, PORT, LIMIT);
        done.store(true, Ordering::Relaxed);
        (out, accepting.join().unwrap())
    });
    let out = out?;
    Ok((out, last.filter(|id| id.port == out.local).ok_or(SocketError::Reset)?))
}

/// Transfers `bytes` in each direction.
fn pass(
    (a, out): (&mut Sockets, ConnectionId),
    (b, accepted): (&mut Sockets, ConnectionId),
    [there, back]: [u32; 2],
) -> Result<(), SocketError> {
    for _ in 0..there {
        a.send(out, b"x", LIMIT)?;
        b.receive(accepted, &mut [0; 1], LIMIT)?;
    }
    for _ in 0..back {
        b.send(accepted, b"x", LIMIT)?;
        a.receive(out, &mut [0; 1], LIMIT)?;
    }
    Ok(())
}

/// Opens a stream and transfers `bytes` in each direction.
fn stream(a: &mut Sockets, b: &mut Sockets, bytes: [u32; 2]) -> (ConnectionId, ConnectionId) {
    // A stream opened while the port is re-attached is reset; then another is opened.
    for _ in 0..1000 {
        match join(a, b).and_then(|(out, to)| pass((a, out), (b, to), bytes).map(|()| (out, to))) {
            Ok(ends) => return ends,
            Err(SocketError::Reset) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("every stream is reset");
}

/// A small ring wraps often: a wrapped index must not be mistaken for that of a new ring.
#[test]
fn resets_end_streams_at_any_position_of_small_packed_rings() {
    let dir = Dir::new();
    let file = config(&dir);
    let options = VsockOptions {
        ring_size: 2,
        features: net_features::RING_PACKED,
        ..VsockOptions::default()
    };
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let [mut a, mut b] = ["a", "b"].map(|name| Sockets::new(attach(&dir, name, options.clone())));
    b.listen(Type::Stream, PORT);
    for round in 0..64_u32 {
        let (out, accepted) = stream(&mut a, &mut b, [round % 4, round / 4 % 4]);
        life.kill();
        life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        for (end, sockets, id) in [("a", &mut a, out), ("b", &mut b, accepted)] {
            let told = sockets.receive(id, &mut [0; 1], LIMIT);
            assert!(matches!(told, Err(SocketError::Reset)), "round {round}, {end}: {told:?}");
            let _ = sockets.close(id);
        }
    }
    life.stop();
}
