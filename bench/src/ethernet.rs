//! Ethernet rows: frames from port to port, by size, burst and number of ports.

use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};

use crate::rig::{RING, Rig, mac};

/// VIRTIO_NET_F_MRG_RXBUF.
const MERGE: u64 = 1 << 15;

fn frame(from: u8, to: u8, len: usize) -> Vec<u8> {
    // An experimental EtherType (IEEE 802): no protocol for us to look into.
    const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
    let mut frame = [&mac(to)[..], &mac(from), &LOCAL_EXPERIMENTAL].concat();
    frame.resize(len, 0);
    frame
}

/// What a run of frames came to.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Frames per second that arrived, in millions.
    pub mpps: f64,
    /// Their bytes, in GB/s.
    pub gbps: f64,
}

/// Frames of `len` bytes in bursts of `burst` over `pairs` pairs of ports, one after the other.
pub fn rate(len: usize, burst: usize, pairs: u8) -> Rate {
    let rig = Rig::new(Duration::from_millis(100));
    let features = if len > 4000 { RING | MERGE } else { RING };
    let options = || NetOptions { features, ..NetOptions::default() };
    let mut ports: Vec<(NetPort, NetPort, Vec<u8>)> = (0..pairs)
        .map(|i| {
            let (a, b) = (i * 2 + 1, i * 2 + 2);
            (rig.net(a, options()), rig.net(b, options()), frame(a, b, len))
        })
        .collect();
    // No more on the way than a cache holds: what a guest's own limits would leave.
    let window = ((1_usize << 20) / len).clamp(8, 192) as u64;
    let each = if len > 4000 { 30_000 } else { 2_000_000 } / u64::from(pairs);
    let (mut sent, mut got) = (vec![0_u64; ports.len()], vec![0_u64; ports.len()]);
    let (header, mut room) = ([0; NET_HEADER_BYTES], Vec::new());
    let since = Instant::now();
    let mut last = Instant::now();
    while got.iter().any(|&n| n < each) {
        for (((from, to, frame), sent), got) in ports.iter_mut().zip(&mut sent).zip(&mut got) {
            let mut queued = 0;
            while queued < burst && *sent < each && *sent < *got + window {
                if !from.queue(0, &header, frame).expect("the port lives") {
                    break;
                }
                *sent += 1;
                queued += 1;
            }
            if queued > 0 {
                from.flush(0).expect("the port lives");
            }
            while to.receive(0, &mut room).expect("the port lives").is_some() {
                *got += 1;
                last = Instant::now();
            }
        }
        // A frame that was dropped never comes: count it as sent and lost.
        if last.elapsed() > Duration::from_millis(300) {
            got.iter_mut().zip(&sent).for_each(|(got, sent)| *got = *sent);
            last = Instant::now();
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let total = (each * u64::from(pairs)) as f64;
    Rate { mpps: total / seconds / 1e6, gbps: total * len as f64 / seconds / 1e9 }
}
