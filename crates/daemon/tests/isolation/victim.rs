//! The tenant with the measured latency.

use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};
use causeway_mlx5_driver::{CompletionRing, Post, QueuePair};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::work_request::SendOpcode;

use crate::PATIENCE;
use crate::adapters::{Adapter, local, remote};
use crate::daemon::{BLUE, Daemon, RED, adapter_mac, mac};
use crate::processor::RunDelay;

/// From the start of one round trip to the start of the next.
const INTERVAL: Duration = Duration::from_millis(1);
/// An EtherType for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Length of each WRITE, in bytes.
const WRITE_BYTES: u32 = 64;
/// Pause between two polls of a completion queue: leaves the processors to others.
const POLL_PAUSE: Duration = Duration::from_micros(20);

/// A tenant of the group `blue` and its measurements.
pub struct Victim {
    tenant: Box<dyn Tenant>,
    delay: RunDelay,
}

/// A tenant that makes round trips.
pub trait Tenant {
    /// Makes a round trip. Panics if a message is lost or changed.
    fn trip(&mut self);
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
    /// Attaches two network ports, which exchange frames. The thread that calls this has to measure.
    pub fn of_frames(daemon: &Daemon) -> Self {
        let attach = |n: u8| {
            let path = daemon.socket(&format!("blue-{n}"));
            NetPort::attach(&path, NetOptions::default()).unwrap()
        };
        Self::new(daemon, Frames { ports: [attach(0), attach(1)], number: 0 })
    }

    /// Attaches two adapters, of which the first writes to the memory of the second. The thread that
    /// calls this has to measure.
    pub fn of_writes(daemon: &Daemon) -> Self {
        Self::new(daemon, Writes::attach(daemon, "blue", (BLUE, 0)))
    }

    /// As [`Self::of_writes`], with two adapters of the attacker's group.
    pub fn of_writes_beside_the_attacker(daemon: &Daemon) -> Self {
        Self::new(daemon, Writes::attach(daemon, "red", (RED, 2)))
    }

    fn new(daemon: &Daemon, tenant: impl Tenant + 'static) -> Self {
        let delay = RunDelay::of_dispatchers(daemon.pid());
        Self { tenant: Box::new(tenant), delay }
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
        self.tenant.trip();
        let whole = start.elapsed();
        let waited = self.delay.total().saturating_sub(before);
        RoundTrip { whole, served: whole.saturating_sub(waited) }
    }
}

/// Two network ports, which exchange one frame at a time.
struct Frames {
    ports: [NetPort; 2],
    number: u64,
}

impl Tenant for Frames {
    fn trip(&mut self) {
        self.hop(0, 1);
        self.hop(1, 0);
    }
}

impl Frames {
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

/// Two adapters, of which the first writes to the memory of the second, one message at a time.
struct Writes {
    from: Adapter,
    to: Adapter,
    pair: QueuePair,
    completions: CompletionRing,
    keys: [u32; 2],
    buffers: [u64; 2],
    number: u64,
}

impl Writes {
    /// Attaches the adapters `first` and `first + 1` of a group.
    fn attach(daemon: &Daemon, group: &str, (byte, first): (u8, u8)) -> Self {
        let mut from = Adapter::start(daemon, &format!("{group}-hca-{first}"));
        let mut to = Adapter::start(daemon, &format!("{group}-hca-{}", first + 1));
        let (completions, others) = (from.completions(4), to.completions(4));
        let (pair, peer) = (from.pair(&completions), to.pair(&others));
        from.connect(&pair, adapter_mac(byte, first + 1), peer.number);
        to.connect(&peer, adapter_mac(byte, first), pair.number);
        let ((source, own), (target, other)) = (from.buffer(), to.buffer());
        let (keys, buffers) = ([own, other], [source, target]);
        Self { from, to, pair, completions, keys, buffers, number: 0 }
    }
}

impl Tenant for Writes {
    fn trip(&mut self) {
        self.number += 1;
        let Self { from, pair, completions, .. } = self;
        from.driver.memory().write(self.buffers[0], &self.number.to_be_bytes()).unwrap();
        let (to, data) = (remote(self.keys[1]), local(self.keys[0], WRITE_BYTES));
        let post = Post::new(SendOpcode::Write);
        from.driver.post(pair, post, |entry| entry.remote(&to).data(&data)).unwrap();
        let start = Instant::now();
        let entry = loop {
            if let Some(entry) = from.driver.poll_cq(completions).unwrap() {
                break entry;
            }
            assert!(start.elapsed() < PATIENCE, "WRITE {} is lost", self.number);
            std::thread::sleep(POLL_PAUSE);
        };
        assert!(matches!(entry, Entry::Success(_)), "{entry:?}");
        let arrived = self.to.driver.memory().read_array(self.buffers[1]).unwrap();
        assert_eq!(u64::from_be_bytes(arrived), self.number);
    }
}
