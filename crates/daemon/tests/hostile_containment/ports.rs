//! Attacks of a port: by its rings, its memory, its messages and its streams.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_attach::native::{Client, VsockOptions, VsockPort};
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{Header, RegionSpec, RingAddresses, emit_table};
use causeway_attach::vhost_user::stream::MessageStream;
use causeway_wire::vsock::{self, Op, Type};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::{Daemon, PATIENCE, wait};

const MEMORY: u64 = 0x4_0000;
const DATA: u64 = 0x1_0000;
/// Address of queue `n`'s parts: descriptors, available and used ring.
const QUEUE: u64 = 0x4000;
const SIZE: u16 = 64;
const VERSION_1: u64 = 1 << 32;
/// Connections of a storm: three times as many as a port accepts at once. It accepts 32 further ones a
/// second, so that this number is the duration of the storm.
const CONNECTIONS: usize = 96;
/// Frontends with a malformed chain, of four kinds.
const MALFORMED: u64 = 60;
/// Connections that pass descriptors: each number of descriptors several times.
const DESCRIPTOR_MESSAGES: usize = 48;
/// Attachments that break a rule: each of four rules after each of five steps, twice.
const BROKEN: u32 = 40;

/// A frontend that writes its rings itself.
struct RawFrontend {
    client: Client,
    file: File,
    kicks: [OwnedFd; 2],
    shown: u16,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn memory() -> File {
    let file = File::from(memfd_create("bad", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(MEMORY).unwrap();
    file
}

const REGION: RegionSpec = RegionSpec { guest: 0, len: MEMORY, user: 0, offset: 0 };

impl RawFrontend {
    fn attach(path: &Path) -> Self {
        let file = memory();
        let client = right_steps(path, 2, &file);
        let mut bad = Self { client, file, kicks: [event(), event()], shown: 0 };
        bad.start(0);
        bad.start(1);
        bad
    }

    fn start(&mut self, index: u32) {
        let at = u64::from(index) * QUEUE;
        let (descriptors, available, used) = (at, at + 0x1000, at + 0x2000);
        let ring = RingAddresses { index, flags: 0, descriptors, used, available, log: 0 };
        let (kick, call) = (&self.kicks[index as usize], event());
        self.client.start_queue(SIZE, 0, &ring, kick.as_fd(), call.as_fd()).unwrap();
    }

    fn kick(&self) {
        // The counter may be full: then the doorbell has rung already.
        let _ = rustix::io::write(&self.kicks[1], &1_u64.to_ne_bytes());
    }

    /// Offers descriptor 0 of the transmit ring, with these values, `count` times.
    fn offer(&mut self, addr: u64, len: u32, flags: u16, count: u16) {
        let mut bytes = addr.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0, 0]);
        for n in 0..u64::from(count) {
            self.file.write_all_at(&bytes, QUEUE + 16 * n).unwrap();
            let slot = u64::from(self.shown % SIZE);
            let place = QUEUE + 0x1000 + 4 + 2 * slot;
            self.file.write_all_at(&(n as u16).to_le_bytes(), place).unwrap();
            self.shown = self.shown.wrapping_add(1);
        }
        self.file.write_all_at(&self.shown.to_le_bytes(), QUEUE + 0x1000 + 2).unwrap();
        self.kick();
    }

    fn used(&self) -> u16 {
        let mut bytes = [0; 2];
        self.file.read_exact_at(&mut bytes, QUEUE + 0x2000 + 2).unwrap();
        u16::from_le_bytes(bytes)
    }
}

pub fn reconnect_storm(daemon: &Daemon) {
    for _ in 0..CONNECTIONS {
        drop(Client::connect(&daemon.socket("bad-net")).unwrap());
    }
}

pub fn malformed_chains(daemon: &Daemon) {
    for n in 0..MALFORMED {
        let mut bad = RawFrontend::attach(&daemon.socket("bad-net"));
        let (addr, flags) = [(DATA, 1), (u64::MAX - 4, 0), (MEMORY, 0), (DATA, 4)][n as usize % 4];
        bad.offer(addr, 100, flags, 1);
        wait(|| bad.client.is_gone(), || format!("chain {n} was taken"));
    }
}

pub fn forged_flood(daemon: &Daemon) {
    let mut bad = RawFrontend::attach(&daemon.socket("bad-net"));
    // From the first victim's address to the second.
    let frame = [0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 0, 0x88, 0xb5];
    bad.file.write_all_at(&frame, DATA + 12).unwrap();
    for n in 0..500 {
        bad.offer(DATA, 100, 0, SIZE);
        wait(|| bad.used() == bad.shown, || format!("batch {n} stays"));
    }
}

pub fn memory_churn(daemon: &Daemon) {
    let mut bad = RawFrontend::attach(&daemon.socket("bad-net"));
    for _ in 0..300 {
        let file = memory();
        let told = bad.client.tell(R::SET_MEM_TABLE, &emit_table(&[REGION]), &[file.as_fd()]);
        told.unwrap();
    }
}

pub fn doorbell_storm(daemon: &Daemon) {
    let bad = RawFrontend::attach(&daemon.socket("bad-net"));
    for _ in 0..100_000 {
        bad.kick();
    }
}

fn packet(op: Op, from: u32, len: u32, fwd_cnt: u32) -> vsock::Header {
    vsock::Header {
        src_cid: 12,
        dst_cid: 11,
        src_port: from,
        dst_port: 1,
        len,
        kind: Type::Stream.raw(),
        op: op.raw(),
        flags: 0,
        buf_alloc: u32::MAX,
        fwd_cnt,
    }
}

fn vsock_port(daemon: &Daemon, ring_size: u16) -> VsockPort {
    let options = VsockOptions { ring_size, ..VsockOptions::default() };
    let (path, mut port) = (daemon.socket("bad-vsock"), None);
    // The holder refuses a frontend whose predecessor takes long to leave.
    let attached = || {
        port = VsockPort::attach(&path, options.clone()).ok();
        port.is_some()
    };
    wait(attached, || "bad-vsock accepts no frontend".into());
    port.unwrap()
}

/// Connects to the second victim's listening port and advertises false credit.
pub fn credit_lies(daemon: &Daemon) {
    let mut bad = vsock_port(daemon, 128);
    let mut data = Vec::new();
    // Other ports each time: late packets of an ended connection are ignored.
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    let first = NEXT.fetch_add(100, Ordering::Relaxed);
    for n in first..first + 100 {
        for header in [packet(Op::Request, n, 0, 0), packet(Op::CreditUpdate, n, 0, 1 << 20)] {
            wait(|| bad.queue(&header, &[]).unwrap(), || "no room to send".into());
        }
        bad.flush().unwrap();
        let mut reset = false;
        let drained = |bad: &mut VsockPort, reset: &mut bool| {
            while let Some(header) = bad.receive(&mut data).unwrap() {
                *reset |= header.operation() == Some(Op::Reset) && header.dst_port == n;
            }
            *reset
        };
        let mut drained = drained;
        wait(|| drained(&mut bad, &mut reset), || format!("lie {n} was believed"));
    }
}

/// Sends packets of unknown connections without end, and never takes the resets.
pub fn never_reading(daemon: &Daemon) {
    let mut bad = vsock_port(daemon, 16);
    let mut refused = 0;
    while refused < 50 {
        if !bad.queue(&packet(Op::Data, 7, 0, 0), &[]).unwrap() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        bad.flush().unwrap();
    }
}

pub fn reset_storm(daemon: &Daemon) {
    let mut bad = RawFrontend::attach(&daemon.socket("bad-net"));
    for _ in 0..300 {
        bad.offer(DATA, 60, 0, 32);
        for index in [0, 1] {
            bad.client.stop_queue(index).unwrap();
        }
        bad.shown = 0;
        bad.file.write_all_at(&[0; 0x3000], QUEUE).unwrap();
        for index in [0, 1] {
            bad.start(index);
        }
    }
}

/// Connects, sends a message with these descriptors, and waits for the close.
fn say(daemon: &Daemon, header: Header, payload: &[u8], fds: &[BorrowedFd<'_>]) {
    let socket = UnixStream::connect(daemon.socket("bad-net")).unwrap();
    let watch = socket.try_clone().unwrap();
    let stream = MessageStream::new(OwnedFd::from(socket));
    // The daemon may close the connection before all bytes are sent.
    let _ = stream.send(header, payload, fds);
    watch.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut &watch, &mut rest);
}

pub fn descriptor_storm(daemon: &Daemon) {
    let files: Vec<OwnedFd> = (0..8).map(|_| memory().into()).collect();
    let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let odd = File::open("/").unwrap();
    for n in 0..DESCRIPTOR_MESSAGES {
        let fds = if n % 3 == 0 { &[odd.as_fd()][..] } else { &fds[..1 + n % 8] };
        say(daemon, Header::request(R::SET_OWNER, 0), &[], fds);
    }
}

/// Connects and takes `steps` valid steps of an attachment. A connection that arrives while the
/// previous one is being closed is refused and repeated.
fn right_steps(path: &Path, steps: u32, file: &File) -> Client {
    let start = Instant::now();
    loop {
        let attempt = Client::connect(path).and_then(|mut client| {
            if steps > 0 {
                client.set_features(VERSION_1)?;
            }
            if steps > 1 {
                client.grant(&REGION, file.as_fd())?;
            }
            Ok(client)
        });
        match attempt {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < PATIENCE, "still turned away: {error}"),
        }
    }
}

/// Sends a malformed message after each number of valid steps.
pub fn broken_set_up(daemon: &Daemon) {
    for round in 0..BROKEN {
        let mut client = right_steps(&daemon.socket("bad-net"), round % 5, &memory());
        let wrong: (R, Vec<u8>) = match round % 4 {
            0 => (R::SET_VRING_NUM, [[0; 4], 3_u32.to_ne_bytes()].concat()),
            1 => (R::SET_VRING_ENABLE, [99_u32.to_ne_bytes(), [1, 0, 0, 0]].concat()),
            2 => (R::SET_FEATURES, u64::MAX.to_ne_bytes().to_vec()),
            _ => (R::SET_MEM_TABLE, vec![0xff; 40]),
        };
        // Whether the message is sent or not, the result is the same.
        let _ = client.tell(wrong.0, &wrong.1, &[]);
        wait(|| client.is_gone(), || format!("round {round} was taken"));
    }
}
