//! Bursts of frames from one port to another, for tests of their cost.

use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetPort};
use causeway_fabric::PollConfig;
use causeway_model::PollPolicy;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::VIRTIO_NET_F_MAC;

use super::{MERGE, PATIENCE, Rig, mac, net, plain};

/// Frames that are sent at once.
pub const BURST: usize = 64;
/// Bursts before the measurement: the rings have wrapped, and the poll modes are settled.
const EARLIER: usize = 20;

pub struct Bursts {
    _rig: Rig,
    one: NetPort,
    two: NetPort,
    frame: Vec<u8>,
    sleep: bool,
}

impl Bursts {
    /// Sets up frames of `len` bytes between queues with `policy` and `features`; the receiver
    /// sleeps or polls, as `sleep` demands.
    pub fn new(policy: PollPolicy, features: u64, len: usize, sleep: bool) -> Self {
        let rig =
            Rig::paced(PollConfig { policy, spin_ns: 10_000_000_000, ..PollConfig::default() });
        let features = mask(VIRTIO_NET_F_MAC) | MERGE | features;
        let (one, two) = (rig.port("one", net(1), features), rig.port("two", net(2), features));
        rig.wait_running(&["one", "two"]);
        let frame = plain(1, mac(2), &vec![7; len - 14]);
        let mut bursts = Self { _rig: rig, one, two, frame, sleep };
        (0..EARLIER).for_each(|_| bursts.round());
        bursts
    }

    /// Sends one burst and receives it.
    pub fn round(&mut self) {
        let Self { one, two, frame, sleep, .. } = self;
        for _ in 0..BURST {
            assert!(one.queue(0, &[0; NET_HEADER_BYTES], frame).unwrap(), "no room");
        }
        one.flush(0).unwrap();
        let (mut room, mut got, since) = (Vec::new(), 0, Instant::now());
        while got < BURST {
            match two.receive(0, &mut room).unwrap() {
                Some(_) => got += 1,
                None if *sleep => drop(two.wait(Some(Duration::from_millis(100))).unwrap()),
                None => std::hint::spin_loop(),
            }
            assert!(since.elapsed() < PATIENCE, "{got} of {BURST} frames arrived");
        }
    }
}
