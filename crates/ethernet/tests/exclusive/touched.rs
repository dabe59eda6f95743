//! Cost of frames in copies and cache lines of guest memory: the table "What a frame costs" of
//! ARCHITECTURE.md. Every access of the process's dispatchers is recorded.

use crate::common::bursts::{BURST, Bursts};
use causeway_memory::trace::{Line, record};
use causeway_model::PollPolicy;
use causeway_wire::virtio::{VIRTIO_F_RING_PACKED, mask};

/// Returns all lines that a burst of frames of `len` bytes touched.
fn burst(features: u64, len: usize) -> Vec<Line> {
    let mut bursts = Bursts::new(PollPolicy::VmmDriven, features, len, false);
    record("dispatcher", || bursts.round())
}

/// Returns the sum over lines, per frame.
fn each(lines: &[Line], of: impl Fn(&Line) -> usize) -> f64 {
    lines.iter().map(of).sum::<usize>() as f64 / BURST as f64
}

#[test]
fn ethernet_copies_and_lines_match_the_cost_table() {
    let _turn = crate::turn();
    let rings = [("split", 0, 5.1), ("packed", mask(VIRTIO_F_RING_PACKED), 4.7)];
    for (ring, features, table) in rings {
        let touched = each(&burst(features, 64), |_| 1);
        println!("{ring}: {touched} lines for a frame of 64 B");
        assert!((touched - table).abs() < 0.15, "{ring}: {touched} lines");
        for len in [64, 512, 1500] {
            let lines = burst(features, len);
            // Lines with an index are read once for each poll; the sum stays below two reads of
            // every line.
            let read = each(&lines, |line| line.read.min(128));
            let written = each(&lines, |line| line.written);
            println!("{ring}: {read} bytes read and {written} written for a frame of {len} B");
            // Besides the frame: 16 bytes of used entries are written; two descriptors of 16 bytes,
            // two headers of 12 bytes and ring indices are read.
            let frame = len as f64;
            assert!((frame + 16.0..frame + 17.0).contains(&written), "{ring}: {written} of {len}");
            assert!((frame..frame + 100.0).contains(&read), "{ring}: {read} of {len}");
        }
    }
}
