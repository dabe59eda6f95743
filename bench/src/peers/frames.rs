//! Bare frames over a veth pair between two namespaces: the cost of `AF_PACKET` itself.
//!
//! Rows of messages between hosts compare with it, because MXoE uses the same sockets. Both ends
//! are threads of the benchmark in two namespaces; each polls on its own core, or sleeps, on its
//! own core or both on one. A stream ends 100 ms after its last frame, and its figure is that of
//! the frames that arrived, up to the last; without a first frame within 5 s the figure fails. A
//! round trip fails if its frame is lost, after 20 s ([`super::wait`]). Needs root; otherwise the
//! peer is left out with the reason.

use std::time::{Duration, Instant};

use super::underlay::{Ends, Underlay};
use super::wait::{Polls, QUIET as LATE, readable};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};
use causeway_fabric::socket_buffers::{set_receive_buffer, set_send_buffer};
use causeway_host::limits::FRAMES_PER_CALL_MAX;
use causeway_host::net::rx_ring::{PacketRing, Slots};
use causeway_host::net::send::contiguous_frames;
use causeway_host::net::socket::{PacketSocket, VNET_HEADER_BYTES};

/// EtherType for local experiments (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;
/// Length of the shortest frame, with the virtio-net header before it.
const LEN: usize = VNET_HEADER_BYTES + 60;

fn frame() -> [u8; LEN] {
    let mut frame = [0; LEN];
    let (to, kind) = (VNET_HEADER_BYTES, VNET_HEADER_BYTES + 12);
    frame[to..to + 6].fill(0xff);
    frame[to + 6] = 2;
    frame[kind..kind + 2].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame
}

/// Waits for one frame, polling or asleep.
fn receive(socket: &PacketSocket, spin: bool) -> std::io::Result<()> {
    let (mut room, mut polls) = ([0; 256], Polls::default());
    loop {
        match socket.receive(&mut room) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if spin => polls.vain(LATE)?,
            Err(_) => readable(socket, LATE)?,
        }
    }
}

/// Round trips of the shortest frame: microseconds.
pub fn frame_round_us(effort: &Effort, ends: Ends) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let rounds = effort.rounds(30_000);
    let spin = ends == Ends::Spinning;
    let open = || PacketSocket::open_for("eth0", ETHERTYPE, None).map_err(std::io::Error::other);
    let send = |socket: &PacketSocket| rustix::io::write(socket, &frame()).map(drop);
    effort.each(|| {
        let echo = || {
            pin(ends.core(1));
            let socket = open()?;
            for _ in 0..=rounds {
                receive(&socket, spin)?;
                send(&socket)?;
            }
            Ok(())
        };
        let mut round_us = 0.0;
        let ask = || {
            pin(ends.core(0));
            let socket = open()?;
            let mut since = Instant::now();
            for round in 0..=rounds {
                if round == 1 {
                    since = Instant::now();
                }
                send(&socket)?;
                receive(&socket, spin)?;
            }
            round_us = since.elapsed().as_secs_f64() * 1e6 / rounds as f64;
            Ok(())
        };
        underlay.both(ask, echo)?;
        Ok(round_us)
    })
}

/// Bytes of data in each frame of a stream of shorter frames.
pub const DATA: usize = 4096;
/// Size of the sender's and of the receiver's socket buffer, in bytes.
const HELD: usize = 4 << 20;
/// Time without a frame after which the receiver ends: before the first frame, and after it.
const QUIET: [Duration; 2] = [Duration::from_secs(5), Duration::from_millis(100)];

/// A stream of `total` bytes in frames of `data` bytes each, at most 8 KiB, in Gbit/s of data
/// received. A system call sends up to [`FRAMES_PER_CALL_MAX`] frames, receives use the packet
/// ring; each end polls on its own core.
pub fn frame_gbits(effort: &Effort, total: u64, data: usize) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    for host in 0..2 {
        let set = ["-n", underlay.name(host)?, "link", "set", "eth0", "mtu", "9000"];
        super::process::run(super::process::command("ip").args(set))?;
    }
    let count = effort.rounds(total) / data as u64;
    let open = || PacketSocket::open_for("eth0", ETHERTYPE, None).map_err(std::io::Error::other);
    let receive = || {
        pin(SERVER);
        let socket = open()?;
        set_receive_buffer(&socket, HELD);
        let slots = if data > DATA { Slots::jumbo() } else { Slots::LONG };
        let mut ring = PacketRing::new(&socket, slots)?;
        let mut room = vec![0; VNET_HEADER_BYTES + 2 * data];
        let (mut came, mut first, mut last) = (0_u64, None, Instant::now());
        while last.elapsed() < QUIET[usize::from(came > 0)] {
            if ring.receive(&socket, &mut room).is_ok() {
                came += 1;
                last = Instant::now();
                first.get_or_insert(last);
            }
        }
        let first = first.ok_or(std::io::ErrorKind::TimedOut)?;
        let time = last.duration_since(first);
        Ok(came as f64 * data as f64 * 8.0 / time.as_secs_f64() / 1e9)
    };
    let send = || {
        pin(CLIENT);
        let socket = open()?;
        set_send_buffer(&socket, HELD);
        let one = [&frame()[..VNET_HEADER_BYTES + 14], &vec![7; data]].concat();
        let bytes = one.repeat(FRAMES_PER_CALL_MAX);
        let ends: Vec<usize> = (1..=FRAMES_PER_CALL_MAX).map(|n| n * one.len()).collect();
        let mut sent = 0;
        while sent < count {
            match socket.send(contiguous_frames(&bytes, &ends, 0)) {
                Ok(more) => sent += more as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    effort.each(|| underlay.both(send, receive))
}
