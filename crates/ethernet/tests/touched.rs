//! What frames cost in copies and in lines of guests' memory: the table "What a frame costs" of
//! ARCHITECTURE.md. Alone in its binary: all that the process's dispatchers touch is recorded.

mod common;

use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetPort};
use causeway_fabric::Pacing;
use causeway_fabric::pace::Policy;
use causeway_memory::trace::{Line, record};
use causeway_wire::virtio::{VIRTIO_F_RING_PACKED, mask};
use causeway_wire::virtio_net::{VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF};
use common::{PATIENCE, Rig, mac, net, plain};

/// Frames that are given to the device at once.
const BURST: usize = 64;
/// Bursts before the one that is recorded: rings have gone round, and both queues are polled.
const EARLIER: usize = 20;

/// Gives a burst to the device, and takes it where it comes out.
fn round(one: &mut NetPort, two: &mut NetPort, frame: &[u8]) {
    for _ in 0..BURST {
        assert!(one.queue(0, &[0; NET_HEADER_BYTES], frame).unwrap(), "no room");
    }
    one.flush(0).unwrap();
    let (mut room, mut got, since) = (Vec::new(), 0, Instant::now());
    while got < BURST {
        match two.receive(0, &mut room).unwrap() {
            Some(_) => got += 1,
            None => std::hint::spin_loop(),
        }
        assert!(since.elapsed() < PATIENCE, "{got} of {BURST} came");
    }
}

/// All lines that a burst of frames of so many bytes has touched.
fn burst(features: u64, len: usize) -> Vec<Line> {
    let spin_ns = u64::try_from(Duration::from_secs(10).as_nanos()).unwrap();
    let rig = Rig::paced(Pacing { policy: Policy::VmmDriven, spin_ns, ..Pacing::default() });
    let features = mask(VIRTIO_NET_F_MAC) | mask(VIRTIO_NET_F_MRG_RXBUF) | features;
    let (mut one, mut two) = (rig.port("one", net(1), features), rig.port("two", net(2), features));
    rig.wait_running(&["one", "two"]);
    let frame = plain(1, mac(2), &vec![7; len - 14]);
    for _ in 0..EARLIER {
        round(&mut one, &mut two, &frame);
    }
    record("dispatcher", || round(&mut one, &mut two, &frame))
}

/// The sum over lines, for each frame.
fn each(lines: &[Line], of: impl Fn(&Line) -> usize) -> f64 {
    lines.iter().map(of).sum::<usize>() as f64 / BURST as f64
}

#[test]
fn a_frame_is_copied_once_and_touches_as_many_lines_as_the_table_says() {
    let rings = [("split", 0, 5.1), ("packed", mask(VIRTIO_F_RING_PACKED), 4.7)];
    for (ring, features, table) in rings {
        let touched = each(&burst(features, 64), |_| 1);
        println!("{ring}: {touched} lines for a frame of 64 B");
        assert!((touched - table).abs() < 0.15, "{ring}: {touched} lines");
        for len in [64, 512, 1500] {
            let lines = burst(features, len);
            // Lines with an index are read as often as it is looked at: of each that is no more than
            // if all of it were read twice.
            let read = each(&lines, |line| line.read.min(128));
            let written = each(&lines, |line| line.written);
            println!("{ring}: {read} bytes read and {written} written for a frame of {len} B");
            // Besides the frame: that both buffers are used, in 16 bytes; and what is read of two
            // descriptors of 16 bytes each, two headers of 12, and rings.
            let frame = len as f64;
            assert!((frame + 16.0..frame + 17.0).contains(&written), "{ring}: {written} of {len}");
            assert!((frame..frame + 100.0).contains(&read), "{ring}: {read} of {len}");
        }
    }
}
