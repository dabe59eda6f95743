//! Kills causewayd under load, again and again, while its frontends continue.
//!
//! Ethernet frontends reconnect by themselves: no frame is duplicated, reordered or changed. vsock
//! frontends are held and notice only resets: each stream ends complete, or with a reset at both
//! ends, and a new stream works at once. The times of the kills come from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::daemon_process::{self, DaemonProcess, await_state};
use crate::common::{Dir, send};
use causeway_attach::native::{
    ConnectionId, NetOptions, NetPort, SocketError, Sockets, VsockOptions, VsockPort, net_features,
};
use causeway_wire::vsock::Type;

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
const LIMIT: Duration = Duration::from_secs(30);
const STREAM: usize = 300_000;
const PORT: u32 = 7;

/// The held ports, and the format of rings.
#[derive(Clone, Copy)]
struct HoldSetting {
    /// `hold` in `[daemon]`.
    hold: &'static str,
    /// Ring features of every frontend.
    ring: u64,
    /// Whether Ethernet frontends reconnect by themselves; otherwise they must not notice a kill.
    reconnect: bool,
    kills: u32,
}

fn config(dir: &Dir, setting: HoldSetting) -> std::path::PathBuf {
    let ports = |(name, n)| {
        format!(
            "[[port]]\nname = \"{name}-net\"\ngroup = \"blue\"\nkind = \"net\"\n\
             mac = \"52:54:00:00:00:0{n}\"\n\
             [[port]]\nname = \"{name}-vsock\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = {n}\n"
        )
    };
    daemon_process::config(dir, setting.hold, &[("a", 3), ("b", 4)].map(ports).concat())
}

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

fn byte(seed: u64, at: usize) -> u8 {
    ((seed.wrapping_mul(31).wrapping_add(at as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56)
        as u8
}

/// Counters of the load.
#[derive(Default)]
struct LoadCounters {
    stop: AtomicBool,
    frames_sent: AtomicU64,
    frames: AtomicU64,
    whole: AtomicU64,
    reset: AtomicU64,
}

fn net(dir: &Dir, name: &str, setting: HoldSetting) -> NetPort {
    let plain = NetOptions::default();
    let features = plain.features | setting.ring;
    let reconnect = setting.reconnect.then_some(LIMIT);
    let options = NetOptions { features, reconnect, ..plain };
    NetPort::attach(&dir.file(&format!("{name}-net.sock")), options).unwrap()
}

/// Sends numbered frames, at most as many as fit into the ring.
fn send_frames(mut port: NetPort, seen: &LoadCounters) {
    let mut number = 0_u64;
    while !seen.stop.load(Ordering::Relaxed) {
        let len = 60 + (number % 900) as usize;
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 4]);
        frame[6..12].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 3]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..22].copy_from_slice(&number.to_le_bytes());
        (22..len).for_each(|at| frame[at] = byte(number, at));
        if port.queue(0, &[0; 12], &frame).unwrap() {
            number += 1;
            seen.frames_sent.store(number, Ordering::Relaxed);
        } else {
            port.flush(0).unwrap();
            port.wait_room(0, Some(Duration::from_millis(20))).unwrap();
        }
        if number.is_multiple_of(16) {
            port.flush(0).unwrap();
            port.frontend().reconnect().unwrap();
            thread::sleep(Duration::from_micros(100));
        }
    }
}

fn receive_frames(mut port: NetPort, seen: &LoadCounters) {
    let (mut frame, mut next) = (Vec::new(), 0_u64);
    while !seen.stop.load(Ordering::Relaxed) {
        if port.receive(0, &mut frame).unwrap().is_none() {
            port.wait(Some(Duration::from_millis(20))).unwrap();
            continue;
        }
        let number = u64::from_le_bytes(frame[14..22].try_into().unwrap());
        assert!(number >= next, "frame {number} came after {}: twice, or out of order", next - 1);
        assert_eq!(frame.len(), 60 + (number % 900) as usize, "frame {number} was cut");
        assert!(
            (22..frame.len()).all(|at| frame[at] == byte(number, at)),
            "frame {number} changed"
        );
        next = number + 1;
        seen.frames.fetch_add(1, Ordering::Relaxed);
    }
}

fn vsock(dir: &Dir, name: &str, setting: HoldSetting) -> Sockets {
    let path = dir.file(&format!("{name}-vsock.sock"));
    let options = VsockOptions { features: setting.ring, ..VsockOptions::default() };
    Sockets::new(VsockPort::attach(&path, options).unwrap())
}

/// Transfers a stream from `a` to `b`. Returns whether it ended complete; if not, both ends were
/// reset.
fn stream(a: &mut Sockets, b: &mut Sockets, seed: u64) -> Result<(), SocketError> {
    let out = a.connect_or_pump(b)?;
    let since = Instant::now();
    let accepted = loop {
        match b.accept(Duration::from_millis(1)) {
            Ok(id) if id.port == out.local => break id,
            // The answer to an earlier connect that was reset.
            Ok(_) | Err(SocketError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
        a.turn().unwrap();
        if since.elapsed() > LIMIT {
            panic!("connected, and never accepted");
        }
    };
    let data: Vec<u8> = (0..STREAM).map(|at| byte(seed, at)).collect();
    let (mut sent, mut got) = (0, 0);
    let mut ends = [None, None];
    while got < STREAM && ends.iter().any(Option::is_none) {
        assert!(since.elapsed() < LIMIT, "{got} of {sent} bytes came, and no reset: {ends:?}");
        if ends[0].is_none() {
            // A reader detects a reset even if everything was sent.
            let ended =
                a.try_receive(out, &mut [0; 1]).and_then(|_| a.try_send(out, &data[sent..]));
            match ended {
                Ok(count) => sent += count,
                Err(SocketError::Reset) => ends[0] = Some(sent),
                Err(error) => panic!("{error}"),
            }
        }
        let mut part = [0; 4096];
        if ends[1].is_none() {
            match b.try_receive(accepted, &mut part) {
                Ok(count) => {
                    let fresh = &part[..count];
                    assert!(fresh == &data[got..got + count], "bytes changed after {got}");
                    got += count;
                }
                Err(SocketError::Reset) => ends[1] = Some(got),
                Err(error) => panic!("{error}"),
            }
        }
        thread::yield_now();
    }
    let _ = a.close(out);
    let _ = b.close(accepted);
    if got == STREAM { Ok(()) } else { Err(SocketError::Reset) }
}

trait Pump {
    fn connect_or_pump(&mut self, other: &mut Sockets) -> Result<ConnectionId, SocketError>;
}

impl Pump for Sockets {
    /// Connects while the other side, in the same thread, answers.
    fn connect_or_pump(&mut self, other: &mut Sockets) -> Result<ConnectionId, SocketError> {
        let cid = other.cid();
        let done = AtomicBool::new(false);
        let done = &done;
        thread::scope(|scope| {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    other.turn().unwrap();
                    thread::sleep(Duration::from_micros(200));
                }
            });
            let connected = self.connect(Type::Stream, cid, PORT, LIMIT);
            done.store(true, Ordering::Relaxed);
            connected
        })
    }
}

fn streams(mut a: Sockets, mut b: Sockets, seen: &LoadCounters) {
    b.listen(Type::Stream, PORT);
    let mut seed = 0;
    while !seen.stop.load(Ordering::Relaxed) {
        seed += 1;
        let count = match stream(&mut a, &mut b, seed) {
            Ok(()) => &seen.whole,
            Err(SocketError::Reset) => &seen.reset,
            Err(error) => panic!("{error}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread of the load, which runs until it is stopped.
type Load = Box<dyn FnOnce(&LoadCounters) + Send>;

/// Waits until a counter has grown by `more`.
fn grows(what: &str, counter: &AtomicU64, more: u64) {
    let (since, goal) = (Instant::now(), counter.load(Ordering::Relaxed) + more);
    while counter.load(Ordering::Relaxed) < goal {
        assert!(since.elapsed() < LIMIT, "{what} stand still");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn restart_fifty_kills_under_load() {
    kills_under_load(HoldSetting { hold: "vsock", ring: 0, reconnect: true, kills: 50 });
}

#[test]
fn restart_kills_under_load_with_packed_rings_and_every_frontend_held() {
    let ring = net_features::RING_PACKED;
    kills_under_load(HoldSetting { hold: "all", ring, reconnect: false, kills: 20 });
}

fn kills_under_load(setting: HoldSetting) {
    let dir = Dir::new();
    let file = config(&dir, setting);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let (_, info) = send(&dir.file("control.sock"), "GET", "/v1/info", "");
    let holder = info["holder_pid"].clone();
    assert!(holder.is_u64(), "{info}");
    let seen = Arc::new(LoadCounters::default());
    let load: Vec<Load> = vec![
        Box::new({
            let port = net(&dir, "a", setting);
            move |seen| send_frames(port, seen)
        }),
        Box::new({
            let port = net(&dir, "b", setting);
            move |seen| receive_frames(port, seen)
        }),
        Box::new({
            let (a, b) = (vsock(&dir, "a", setting), vsock(&dir, "b", setting));
            move |seen| streams(a, b, seen)
        }),
    ];
    let threads: Vec<_> = load
        .into_iter()
        .map(|part| {
            let seen = seen.clone();
            thread::spawn(move || part(&seen))
        })
        .collect();
    grows("frames", &seen.frames, 1000);
    grows("streams", &seen.whole, 1);
    let mut random = Random(20_261_122);
    for kill in 0..setting.kills {
        // Some processes are killed while they start.
        thread::sleep(Duration::from_micros(random.below(60_000)));
        life.kill();
        assert!(threads.iter().all(|t| !t.is_finished()), "after kill {kill}");
        life = DaemonProcess::start(CAUSEWAYD, &file);
        if kill % 10 == 9 {
            life = life.ready(&dir);
            grows("frames", &seen.frames, 100);
            grows("streams", &seen.whole, 1);
        }
    }
    life = life.ready(&dir);
    let (_, info) = send(&dir.file("control.sock"), "GET", "/v1/info", "");
    assert_eq!(info["holder_pid"], holder, "one holder all along");
    let (_, port) = send(&dir.file("control.sock"), "GET", "/v1/ports/a-vsock", "");
    assert_eq!(port["held"], true, "{port}");
    assert!(port["socket"].as_str().unwrap().ends_with("a-vsock.sock"), "{port}");
    let (_, port) = send(&dir.file("control.sock"), "GET", "/v1/ports/a-net", "");
    assert_eq!(port["held"], setting.hold == "all", "{port}");
    grows("frames", &seen.frames, 1000);
    grows("streams", &seen.whole, 3);
    seen.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} of {} frames; {} streams whole, {} reset",
        count(&seen.frames),
        count(&seen.frames_sent),
        count(&seen.whole),
        count(&seen.reset)
    );
    assert!(count(&seen.reset) > 0, "no stream was under way at any kill");
    life.release(&dir);
    assert!(!dir.file("a-vsock.sock").exists(), "the holder let go");
}

/// Waits until a port has this state.
#[test]
fn restart_held_guests_survive_a_clean_stop_but_not_a_release() {
    let dir = Dir::new();
    let setting = HoldSetting { hold: "vsock", ring: 0, reconnect: false, kills: 0 };
    let file = config(&dir, setting);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let (mut a, mut b) = (vsock(&dir, "a", setting), vsock(&dir, "b", setting));
    await_state(&dir, "a-vsock", "running");
    await_state(&dir, "b-vsock", "running");
    life.stop();
    assert!(dir.file("a-vsock.sock").exists(), "the holder keeps the port");
    assert!(!dir.file("a-net.sock").exists(), "a port that is not held is closed");
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    // No frontend has reconnected.
    await_state(&dir, "a-vsock", "running");
    await_state(&dir, "b-vsock", "running");
    b.listen(Type::Stream, PORT);
    let since = Instant::now();
    while let Err(error) = stream(&mut a, &mut b, 1) {
        assert!(matches!(error, SocketError::Reset) && since.elapsed() < LIMIT, "{error}");
    }
    life.release(&dir);
    assert!(!dir.file("a-vsock.sock").exists(), "the holder let go");
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    await_state(&dir, "a-vsock", "listening");
    life.release(&dir);
}

/// A host that is busy for seconds delays the start of causewayd.
#[test]
fn restart_waits_for_a_holder_that_answers_late() {
    let dir = Dir::new();
    let setting = HoldSetting { hold: "vsock", ring: 0, reconnect: false, kills: 0 };
    let file = config(&dir, setting);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let (_, info) = send(&dir.file("control.sock"), "GET", "/v1/info", "");
    let holder = i32::try_from(info["holder_pid"].as_u64().unwrap()).unwrap();
    let holder = rustix::process::Pid::from_raw(holder).unwrap();
    let signal = |signal| rustix::process::kill_process(holder, signal).unwrap();
    let _guest = vsock(&dir, "a", setting);
    await_state(&dir, "a-vsock", "running");
    life.kill();
    signal(rustix::process::Signal::STOP);
    let start = DaemonProcess::start(CAUSEWAYD, &file);
    thread::sleep(causeway_holder::limits::CONTROL_TIMEOUT + Duration::from_millis(500));
    signal(rustix::process::Signal::CONT);
    let mut life = start.ready(&dir);
    // The frontend did not reconnect.
    await_state(&dir, "a-vsock", "running");
    life.release(&dir);
}

#[test]
fn restart_held_guests_survive_a_failed_start() {
    let dir = Dir::new();
    let setting = HoldSetting { hold: "vsock", ring: 0, reconnect: false, kills: 0 };
    let file = config(&dir, setting);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let _guest = vsock(&dir, "a", setting);
    await_state(&dir, "a-vsock", "running");
    life.stop();
    // A port whose socket another process serves.
    let taken = dir.file("taken.sock");
    let _other = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    let port = format!(
        "[[port]]\nname = \"taken\"\ngroup = \"blue\"\nkind = \"net\"\nsocket = \"{}\"\n",
        taken.display()
    );
    std::fs::write(&file, format!("{good}{port}")).unwrap();
    assert_eq!(DaemonProcess::start(CAUSEWAYD, &file).code(), Some(1));
    std::fs::write(&file, good).unwrap();
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    await_state(&dir, "a-vsock", "running");
    life.release(&dir);
}
