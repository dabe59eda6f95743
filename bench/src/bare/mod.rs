//! A bare KVM guest: a virtual processor in 64-bit user mode without a kernel.
//!
//! Its memory slots, doorbells (ioeventfd) and exits equal those of any guest; it has no kernel,
//! takes no interrupts, and polls. The rows of `rows::bare` start it by [`Bare`] for each figure:
//! the benchmark executes itself with [`FLAG`] as first argument, and [`serve`] runs the guest in
//! that process and takes commands as lines. An answer may take 20 s; then, and when the figure
//! ends, the process is killed, because not every /dev/kvm supports such a guest. A failure is the
//! reason for which the row is left out. The guest attaches to two net ports by vhost-user, as a
//! VMM would, with the frontend's end of [`causeway_attach::native`] ([`Client`]). No causewayd
//! runs: the ports are those of the dispatcher in the benchmark's process (`rig`).

mod machine;
mod payload;

use std::io::{BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use causeway_attach::native::Client;
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses};
use machine::{MEMORY, Machine, PARAMETERS};
use payload::at;

use crate::peers::process::{Program, command};
use crate::pin::{CLIENT, pin};
use crate::rig::mac;
use crate::rows::ethernet::frame;

/// First argument of the guest's process.
pub const FLAG: &str = "--inner-bare-guest";

const SIZE: u16 = 256;
const VERSION_1: u64 = 1 << 32;
/// User address of guest address 0, as reported to the dispatcher.
const USER: u64 = 0x7000_0000_0000;
const RINGS: u64 = 0x1_0000;
const RING_BYTES: u64 = 0x4000;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const SEND_BUFFERS: u64 = 0x4_0000;
const SEND_BYTES: u64 = 128;
const RECEIVE_BUFFERS: u64 = 0x8_0000;
const RECEIVE_BYTES: u64 = 2048;
const NET_HEADER: usize = 12;
/// VIRTQ_DESC_F_WRITE.
const WRITE: u16 = 2;

/// Initialises a ring: entry `i` names buffer `i`, of `len` bytes. No entry is available yet.
fn fill(
    memory: &std::fs::File,
    ring: u64,
    buffers: (u64, u64),
    len: usize,
    flags: u16,
) -> std::io::Result<()> {
    let (first, apart) = buffers;
    for i in 0..SIZE {
        let at = first + u64::from(i) * apart;
        let head = [&at.to_le_bytes()[..], &(len as u32).to_le_bytes(), &flags.to_le_bytes()];
        memory.write_all_at(&head.concat(), ring + u64::from(i) * 16)?;
        memory.write_all_at(&i.to_le_bytes(), ring + AVAILABLE + 4 + u64::from(i) * 2)?;
    }
    // VIRTQ_AVAIL_F_NO_INTERRUPT: the guest polls.
    memory.write_all_at(&1_u16.to_le_bytes(), ring + AVAILABLE)
}

/// Attaches a net device with a receive and a transmit ring. `unused` takes the notifications of
/// both rings, which polling guests do not need.
fn attach(
    path: &Path,
    machine: &Machine,
    first: u64,
    bells: [BorrowedFd<'_>; 2],
    unused: BorrowedFd<'_>,
) -> Result<Client, String> {
    let attach = || {
        let mut client = Client::connect(path)?;
        client.set_features(VERSION_1)?;
        let region = RegionSpec { guest: 0, len: MEMORY, user: USER, offset: 0 };
        client.grant(&region, machine.memory_fd())?;
        for (index, bell) in (0_u32..).zip(bells) {
            let ring = USER + first + u64::from(index) * RING_BYTES;
            let (used, available) = (ring + USED, ring + AVAILABLE);
            let addresses =
                RingAddresses { index, flags: 0, descriptors: ring, used, available, log: 0 };
            client.start_queue(SIZE, 0, &addresses, bell, unused)?;
        }
        Ok(client)
    };
    attach().map_err(|e: causeway_attach::native::NativeError| e.to_string())
}

/// The machine with its two devices.
struct Guest {
    machine: Machine,
    _devices: [Client; 2],
    frames: u64,
}

impl Guest {
    fn new(paths: [&Path; 2]) -> Result<Self, String> {
        let mut machine = Machine::new()?;
        let send = machine.doorbell(payload::RING_SEND)?;
        let receive = machine.doorbell(payload::RING_RECEIVE)?;
        let unused = machine.doorbell(payload::RING_UNUSED)?;
        // Receive and transmit ring of the sender, then of the receiver.
        let [_, sender, receiver, _] = [0, 1, 2, 3].map(|i| RINGS + i * RING_BYTES);
        let memory = machine.memory();
        let frame = [&[0; NET_HEADER][..], &frame(mac(1), mac(2), 64)].concat();
        let fill = || {
            fill(memory, sender, (SEND_BUFFERS, SEND_BYTES), frame.len(), 0)?;
            let room = RECEIVE_BYTES as usize;
            fill(memory, receiver, (RECEIVE_BUFFERS, RECEIVE_BYTES), room, WRITE)?;
            for i in 0..u64::from(SIZE) {
                memory.write_all_at(&frame, SEND_BUFFERS + i * SEND_BYTES)?;
            }
            memory.write_all_at(&SIZE.to_le_bytes(), receiver + AVAILABLE + 2)?;
            let rings = [
                sender + AVAILABLE,
                sender + USED,
                receiver + AVAILABLE,
                receiver + USED,
                SEND_BUFFERS,
                RECEIVE_BUFFERS,
            ];
            let rings: Vec<u8> = rings.iter().flat_map(|at| at.to_le_bytes()).collect();
            memory.write_all_at(&rings, PARAMETERS + at::RINGS)
        };
        fill().map_err(|e: std::io::Error| e.to_string())?;
        let (n, [a, b]) = (unused.as_fd(), paths);
        let devices = [
            attach(a, &machine, RINGS, [n, send.as_fd()], n)?,
            attach(b, &machine, RINGS + 2 * RING_BYTES, [receive.as_fd(), n], n)?,
        ];
        Ok(Self { machine, _devices: devices, frames: 0 })
    }

    fn set(&self, at: u64, value: u64) -> Result<(), String> {
        let written = self.machine.memory().write_all_at(&value.to_le_bytes(), PARAMETERS + at);
        written.map_err(|e| e.to_string())
    }

    /// Sends `count` frames, at most 128 of them in flight and at most `burst` made available at a
    /// time; returns seconds and the doorbells of both rings.
    fn frames(&mut self, count: u64, burst: u64) -> Result<(f64, u64), String> {
        self.frames += count;
        self.set(at::TARGET, self.frames)?;
        self.set(at::BURST, burst)?;
        self.set(at::WINDOW, 128)?;
        self.set(at::RUNG, 0)?;
        self.set(at::MODE, 0)?;
        let since = Instant::now();
        self.machine.run()?;
        let mut rung = [0; 8];
        let read = self.machine.memory().read_exact_at(&mut rung, PARAMETERS + at::RUNG);
        read.map_err(|e| e.to_string())?;
        Ok((since.elapsed().as_secs_f64(), u64::from_le_bytes(rung)))
    }

    /// Rings the doorbell of the two rings that carry no frames, `count` times; returns seconds.
    /// The dispatcher watches it, and finds empty rings.
    fn bells(&mut self, count: u64) -> Result<f64, String> {
        self.set(at::TARGET, count)?;
        self.set(at::MODE, 1)?;
        let since = Instant::now();
        self.machine.run()?;
        Ok(since.elapsed().as_secs_f64())
    }
}

/// Runs the guest until its input ends. Commands: `frames COUNT BURST`, `bells COUNT`; answers:
/// `ok` with figures, or `no` with a reason. A number that is absent or invalid is 1, and a line
/// without `frames` counts as `bells`.
pub fn serve() -> ExitCode {
    pin(CLIENT);
    let paths: Vec<String> = std::env::args().skip(2).collect();
    let [a, b] = paths.as_slice() else { return ExitCode::FAILURE };
    let mut guest = Guest::new([Path::new(a), Path::new(b)]);
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse().ok()).unwrap_or(1);
        let answer = match (&mut guest, words.first()) {
            (Err(why), _) => Err(why.clone()),
            (Ok(guest), Some(&"frames")) => {
                guest.frames(number(1), number(2)).map(|(s, rung)| format!("{s} {rung}"))
            }
            (Ok(guest), _) => guest.bells(number(1)).map(|s| s.to_string()),
        };
        let text = answer.map_or_else(|why| format!("no {why}"), |text| format!("ok {text}"));
        let said = writeln!(std::io::stdout(), "{text}");
        if said.and_then(|()| std::io::stdout().flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Handle of the guest's process, in the benchmark; killed when dropped.
#[derive(Debug)]
pub struct Bare(Program);

impl Bare {
    /// Starts the guest on the sockets of two net ports with the MAC addresses `mac(1)` and
    /// `mac(2)` of `rig`.
    pub fn start(sockets: [&Path; 2]) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok(Self(Program::start(command(me).arg(FLAG).args(sockets))?))
    }

    fn ask(&mut self, words: &str) -> Result<String, String> {
        self.0.write_line(words)?;
        let answer = self.0.await_line(Duration::from_secs(20), |line| Some(line.to_owned()))?;
        match answer.split_once(' ') {
            Some(("ok", figures)) => Ok(figures.to_owned()),
            Some(("no", why)) => Err(why.to_owned()),
            _ => Err(format!("unexpected answer of the bare guest: {answer:?}")),
        }
    }

    /// Sends `count` frames of 64 B from the first port to the second, at most `burst` made
    /// available at a time; returns seconds. A burst above 128 counts as 128.
    pub fn frames_s(&mut self, count: u64, burst: u64) -> Result<f64, String> {
        let figures = self.ask(&format!("frames {count} {burst}"))?;
        let seconds = figures.split_whitespace().next().and_then(|w| w.parse().ok());
        seconds.ok_or_else(|| "no figure".to_owned())
    }

    /// Rings the doorbell of idle rings `count` times; returns seconds.
    pub fn bells_s(&mut self, count: u64) -> Result<f64, String> {
        self.ask(&format!("bells {count}"))?.parse().map_err(|_| "no figure".to_owned())
    }
}
