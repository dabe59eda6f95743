//! The tenant whose latency is measured.

use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};

use crate::PATIENCE;
use crate::daemon::{BLUE, Daemon, mac};
use crate::processor::RunDelay;

/// From the start of one round trip to the start of the next.
const INTERVAL: Duration = Duration::from_millis(1);
/// An EtherType for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Two ports of the group `blue`, which exchange one frame at a time.
#[derive(Debug)]
pub struct Victim {
    ports: [NetPort; 2],
    delay: RunDelay,
    number: u64,
}

/// The time of one round trip.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip {
    /// Time measured by the victim.
    pub whole: Duration,
    /// The same without the time in which the dispatcher and the victim waited for a processor. On
    /// a crowded machine a working dispatcher is preempted, and a sleeping one is not.
    pub served: Duration,
}

impl Victim {
    /// Attaches the ports. The thread that calls this has to measure.
    pub fn attach(daemon: &Daemon) -> Self {
        let attach = |n: u8| {
            let path = daemon.socket(&format!("blue-{n}"));
            NetPort::attach(&path, NetOptions::default()).unwrap()
        };
        let delay = RunDelay::of_dispatchers(daemon.pid());
        Self { ports: [attach(0), attach(1)], delay, number: 0 }
    }

    /// Makes a round trip once an [`INTERVAL`] while `more` returns true.
    pub fn ping_while(&mut self, mut more: impl FnMut() -> bool) -> Vec<RoundTrip> {
        let mut trips = Vec::new();
        while more() {
            let trip = self.ping();
            trips.push(trip);
            std::thread::sleep(INTERVAL.saturating_sub(trip.whole));
        }
        trips
    }

    fn ping(&mut self) -> RoundTrip {
        let (before, start) = (self.delay.total(), Instant::now());
        self.hop(0, 1);
        self.hop(1, 0);
        let whole = start.elapsed();
        let waited = self.delay.total().saturating_sub(before);
        RoundTrip { whole, served: whole.saturating_sub(waited) }
    }

    /// Sends a frame and sleeps until it arrives.
    fn hop(&mut self, from: usize, to: usize) {
        self.number += 1;
        let addresses = [mac(BLUE, to as u8), mac(BLUE, from as u8)].concat();
        let frame = [&addresses, &ETHER_TYPE[..], &self.number.to_be_bytes(), &[0; 36]].concat();
        assert!(self.ports[from].send(&frame).unwrap(), "no room to send");
        let (start, mut arrived) = (Instant::now(), Vec::new());
        while self.ports[to].receive(0, &mut arrived).unwrap().is_none() {
            let left = PATIENCE.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| panic!("frame {} is lost", self.number));
            self.ports[to].wait(Some(left)).unwrap();
        }
        assert_eq!(arrived, frame, "frame {} is lost or changed", self.number);
    }
}
