//! Ethernet rows of the native frontend: frames from port to port, by size, burst and number of
//! ports, and frames of 65,000 B (rows of segments).
//!
//! One thread is both guests, on the client's core; the rig's dispatcher forwards on the other.
//! Received frames are counted; frames in flight count as lost if none arrives within [`LOST`] (300
//! ms), so that a loss lowers the rate and does not end the row. Only the row of segments that stay
//! in the buffers fails by a loss. The peers are the kernel's bridge, `memcpy`, and Causeway itself
//! with split rings or two ports; testpmd and OVS are compared in `driver` and `switch`. Other
//! modules use [`Pair`], [`frame`] and [`options`]. A ring that a [`Pair`] finds broken ends the
//! benchmark with a panic.

use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort};

use crate::effort::Effort;
use crate::floor;
use crate::peers::kernel;
use crate::rig::{RING, Rig, leave, mac};
use crate::row::{Against, Guest, Plan};

/// VIRTIO_NET_F_MRG_RXBUF.
const MERGE: u64 = 1 << 15;
/// VIRTIO_F_RING_PACKED.
pub const PACKED: u64 = 1 << 34;
/// Frames in flight count as lost if none arrives within this time.
pub const LOST: Duration = Duration::from_millis(300);
/// Time after which a port that takes no frames ends the row with a panic.
const STUCK: Duration = Duration::from_secs(30);

/// Returns a frame between two ports.
pub fn frame(from: [u8; 6], to: [u8; 6], len: usize) -> Vec<u8> {
    // EtherType for local experiments (IEEE 802): the dispatcher does not inspect the payload.
    const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
    let mut frame = [&to[..], &from, &LOCAL_EXPERIMENTAL].concat();
    frame.resize(len, 0);
    frame
}

/// Returns the options of a port for frames of `len` bytes.
pub fn options(len: usize) -> NetOptions {
    let features = if len > 4000 { RING | MERGE } else { RING };
    NetOptions { features, ..NetOptions::default() }
}

/// As [`options`], with packed rings.
fn packed(len: usize) -> NetOptions {
    let split = options(len);
    NetOptions { features: split.features | PACKED, ..split }
}

/// One sender, one receiver, and the frames sent between them in turn.
#[derive(Debug)]
pub struct Pair {
    from: NetPort,
    to: NetPort,
    frames: Vec<Vec<u8>>,
    window: u64,
    sent: u64,
    /// Frames that arrived, or counted as lost.
    pub got: u64,
    last: Instant,
    room: Vec<u8>,
}

impl Pair {
    /// Creates a pair that sends `frames` in turn; all have the same length.
    pub fn new(from: NetPort, to: NetPort, frames: Vec<Vec<u8>>) -> Self {
        let len = frames.first().map_or(64, Vec::len);
        // Limits the bytes in flight to a cache's size, as a guest's own limits would.
        let window = ((1_usize << 20) / len).clamp(8, 192) as u64;
        let last = Instant::now();
        Self { from, to, frames, window, sent: 0, got: 0, last, room: Vec::new() }
    }

    /// Limits the frames in flight to `frames`.
    fn with_window(self, frames: u64) -> Self {
        Self { window: frames, ..self }
    }

    /// Sends at most a burst, of `until` frames in all, and takes received frames.
    pub fn turn(&mut self, burst: usize, until: u64) {
        let header = [0; NET_HEADER_BYTES];
        let (mut queued, is_idle) = (0, self.sent == self.got);
        while queued < burst && self.sent < until && self.sent < self.got + self.window {
            let frame = &self.frames[self.sent as usize % self.frames.len()];
            if !self.from.queue(0, &header, frame).expect("the port lives") {
                break;
            }
            self.sent += 1;
            queued += 1;
        }
        if queued > 0 {
            self.from.flush(0).expect("the port lives");
            if is_idle {
                self.last = Instant::now();
            }
        }
        let before = self.got;
        while self.to.receive(0, &mut self.room).expect("the port lives").is_some() {
            self.got += 1;
        }
        if self.got != before {
            self.last = Instant::now();
        } else if self.sent > self.got && self.last.elapsed() > LOST {
            self.got = self.sent;
        } else if queued == 0 && is_idle && self.sent < until {
            assert!(self.last.elapsed() < STUCK, "the port takes no frames");
        }
    }
}

/// Frames of `len` bytes in bursts from one port to another: millions of received frames per
/// second.
fn mpps(effort: &Effort, len: usize, burst: usize) -> Result<Vec<f64>, String> {
    mpps_with(effort, len, burst, options)
}

/// As [`mpps`] of bursts of 32 frames, with packed rings.
pub fn packed_mpps(effort: &Effort, len: usize) -> Result<Vec<f64>, String> {
    mpps_with(effort, len, 32, packed)
}

fn mpps_with(
    effort: &Effort,
    len: usize,
    burst: usize,
    options: fn(usize) -> NetOptions,
) -> Result<Vec<f64>, String> {
    let frames = effort.rounds(if len > 4000 { 60_000 } else { 3_000_000 });
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        Ok(rate(vec![pair(&rig, 0, len, options)], burst, frames))
    })
}

/// As [`mpps`] of 64 B in bursts of 32, over `pairs` pairs of ports in turn. Each pair has few
/// frames in flight, independent of the number of pairs, to minimise the effect of the client's and
/// the switch's caches.
fn busy_mpps(effort: &Effort, pairs: u8) -> Result<Vec<f64>, String> {
    const WINDOW: u64 = 64;
    let frames = effort.rounds(3_000_000) / u64::from(pairs);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let pair = |i| pair(&rig, i, 64, options).with_window(WINDOW);
        Ok(rate((0..pairs).map(pair).collect(), 32, frames))
    })
}

fn pair(rig: &Rig, number: u8, len: usize, options: fn(usize) -> NetOptions) -> Pair {
    let (a, b) = (number * 2 + 1, number * 2 + 2);
    let frames = vec![frame(mac(a), mac(b), len)];
    Pair::new(rig.net(a, options(len)), rig.net(b, options(len)), frames)
}

/// Sends `frames` frames over each pair; returns millions per second in total.
fn rate(mut pairs: Vec<Pair>, burst: usize, frames: u64) -> f64 {
    let since = Instant::now();
    while pairs.iter().any(|pair| pair.got < frames) {
        pairs.iter_mut().for_each(|pair| pair.turn(burst, frames));
    }
    let total = frames * pairs.len() as u64;
    total as f64 / since.elapsed().as_secs_f64() / 1e6
}

/// Frames of `len` bytes that the client writes and reads: GB/s.
fn filled_gbps(effort: &Effort, len: usize, burst: usize) -> Result<Vec<f64>, String> {
    let rates = mpps(effort, len, burst)?;
    Ok(rates.into_iter().map(|mpps| mpps * len as f64 / 1e3).collect())
}

/// Frames of `len` bytes that the client leaves in its buffers, so that the only copy is the
/// switch's: GB/s.
fn gbps(effort: &Effort, len: usize, burst: usize) -> Result<Vec<f64>, String> {
    let total = effort.rounds(120_000);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let (mut from, mut to) = (rig.net(1, options(len)), rig.net(2, options(len)));
        let frame = frame(mac(1), mac(2), len);
        let whole = NET_HEADER_BYTES + len;
        let failed = |e: NativeError| e.to_string();
        leave(&mut from, &mut to, &[0; NET_HEADER_BYTES], &frame).map_err(failed)?;
        let (mut sent, mut got) = (0_u64, 0_u64);
        let (mut since, mut last) = (Instant::now(), Instant::now());
        while got < total {
            let mut queued = 0;
            while queued < burst && sent < got + burst as u64 {
                if !from.queue_as_is(0, whole as u32).map_err(failed)? {
                    break;
                }
                sent += 1;
                queued += 1;
            }
            if queued > 0 {
                from.flush(0).map_err(failed)?;
            }
            while let Some(there) = to.discard(0).map_err(failed)? {
                if there != len {
                    return Err(format!("a segment of {there} bytes came"));
                }
                got += 1;
                last = Instant::now();
                if got == burst as u64 {
                    since = last;
                }
            }
            if last.elapsed() > LOST {
                return Err("segments were lost".into());
            }
        }
        let bytes = (total - burst as u64) * len as u64;
        Ok(bytes as f64 / since.elapsed().as_secs_f64() / 1e9)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let row = |name: String, len: usize, burst: usize| {
        Plan::new(name, "Mpps", Guest::Native, move |e| mpps(e, len, burst))
    };
    let mut plans = Vec::new();
    for len in [64, 128, 256, 512, 1024, 1500, 9000] {
        let plan = row(format!("Ethernet frames, {len} B"), len, 32).at("ethernet-frames", len);
        plans.push(plan);
    }
    let udp = row("Ethernet frames, 1442 B".into(), 1442, 32);
    plans.push(udp.beside("bridge + veth, UDP", kernel::udp_mpps).note(
        "The peer's figure includes the host kernel's protocol stack, with a system call for \
         each datagram of 1400 B; Causeway's figure includes no stack.",
    ));
    for len in [64, 1500] {
        let name = format!("Ethernet frames, {len} B, packed ring");
        let ours = move |e: &Effort| packed_mpps(e, len);
        let plan = Plan::new(name, "Mpps", Guest::Native, ours);
        plans.push(plan.beside("ours, split ring", move |e| mpps(e, len, 32)));
    }
    for burst in [1, 4, 16, 32] {
        let name = format!("Ethernet frames, 64 B, burst {burst}");
        plans.push(row(name, 64, burst).at("ethernet-burst", burst));
    }
    for pairs in [1, 2, 4, 8, 16] {
        let ports = usize::from(pairs) * 2;
        let name = format!("Ethernet frames, 64 B, {ports} busy ports");
        let ours = move |e: &Effort| busy_mpps(e, pairs);
        let plan = Plan::new(name, "Mpps", Guest::Native, ours).at("ethernet-ports", ports);
        plans.push(if pairs == 1 {
            plan
        } else {
            let plan = plan.beside("ours, 2 ports", |e| busy_mpps(e, 1));
            plan.aim(Against::Peer("ours, 2 ports"), 0.9)
        });
    }
    let memcpy = |e: &Effort| e.each(|| Ok(floor::memcpy_gbps(65_000)));
    let plan = Plan::new("Ethernet segments, 64 KiB", "GB/s", Guest::Native, |effort| {
        gbps(effort, 65_000, 8)
    });
    plans.push(plan.beside("memcpy", memcpy).aim(Against::Figure, 8.0).note(
        "The client leaves the segments in its buffers and does not read received segments, like \
         DPDK's generator: the only copy is the switch's.",
    ));
    let name = "Ethernet segments, 64 KiB, written and read";
    let plan = Plan::new(name, "GB/s", Guest::Native, |effort| filled_gbps(effort, 65_000, 8));
    plans.push(plan.beside("memcpy", memcpy).beside("bridge + veth, TCP", kernel::tcp_gbps).note(
        "One core writes and reads every segment: three copies in all, of which the switch makes \
         one. The peer's figure is TCP with 64 KiB writes between two namespaces and includes the \
         host kernel's protocol stack; Causeway's figure includes no stack.",
    ));
    plans
}
