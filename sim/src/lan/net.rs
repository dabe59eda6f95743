//! The network between hosts: delays, loses, duplicates, truncates and corrupts datagrams, and
//! partitions hosts.
//!
//! [`super::host`] posts datagrams ([`Net::post`]), and `super` takes those that have arrived
//! ([`Net::take`]), in the thread of the world. Faults are drawn from the world's seed. A datagram
//! longer than [`Net::mtu`], or between partitioned hosts, is lost silently, as in a real network.
//! The order is that of arrival times; nothing else is kept. There is no limit of datagrams in
//! transit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::rng::Rng;

/// Probabilities of datagram faults, in parts per thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Loss.
    pub lost: u64,
    /// Duplication.
    pub doubled: u64,
    /// Additional delay, which reorders datagrams.
    pub late: u64,
    /// The longest additional delay, in nanoseconds.
    pub late_ns: u64,
    /// Truncation.
    pub cut: u64,
    /// Corruption of one bit.
    pub flipped: u64,
}

/// A datagram in transit.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// Returns the address of a host on an underlay; the address depends on `number`, the count of
/// moves.
pub fn address(under: usize, host: usize, number: u16) -> SocketAddr {
    SocketAddr::from(([10, under as u8, 0, host as u8], 7000 + number))
}

/// Returns underlay and host of a present or former address.
fn place(address: SocketAddr) -> (usize, usize) {
    match address {
        SocketAddr::V4(v4) => {
            let [_, under, _, host] = v4.ip().octets();
            (under.into(), host.into())
        }
        SocketAddr::V6(_) => (usize::MAX, usize::MAX),
    }
}

/// The simulated network.
#[derive(Debug)]
pub struct Net {
    /// The fault probabilities.
    pub weather: Weather,
    /// Partitions: underlay, sender and receiver between which every datagram is lost.
    pub partitions: BTreeSet<(usize, usize, usize)>,
    /// Longer datagrams are lost, in bytes of UDP payload.
    pub mtu: usize,
    /// The shortest transit time, in nanoseconds.
    pub delay_ns: u64,
    wire: BTreeMap<(u64, u64), Datagram>,
    count: u64,
    rng: Rng,
}

impl Net {
    /// Creates a network without faults.
    pub fn new(mut rng: Rng) -> Self {
        let delay_ns = rng.within(10_000, 5_000_000);
        let (weather, partitions, wire) = Default::default();
        Self { weather, partitions, mtu: usize::MAX, delay_ns, wire, count: 0, rng }
    }

    fn happens(&mut self, of_1000: u64) -> bool {
        self.rng.below(1000) < of_1000
    }

    /// Accepts a datagram for transit, subject to faults.
    pub fn post(&mut self, now: u64, mut datagram: Datagram) {
        let Weather { lost, doubled, late, late_ns, cut, flipped } = self.weather;
        let ((under, from), (_, to)) = (place(datagram.from), place(datagram.to));
        let is_partitioned = self.partitions.contains(&(under, from, to));
        if is_partitioned || datagram.bytes.len() > self.mtu || self.happens(lost) {
            return;
        }
        let len = datagram.bytes.len() as u64;
        if self.happens(cut) {
            datagram.bytes.truncate(self.rng.below(len) as usize);
        } else if self.happens(flipped) && len > 0 {
            let (at, bit) = (self.rng.below(len) as usize, self.rng.below(8));
            datagram.bytes[at] ^= 1 << bit;
        }
        let copies = if self.happens(doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let more = if self.happens(late) { self.rng.below(late_ns) } else { 0 };
            self.count += 1;
            self.wire.insert((now + self.delay_ns + more, self.count), datagram.clone());
        }
    }

    /// Returns the arrival time of the next datagram.
    pub fn next(&self) -> Option<u64> {
        self.wire.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the next datagram that has arrived, and returns its underlay, host and content.
    pub fn take(&mut self, now: u64) -> Option<(usize, usize, Datagram)> {
        let first = self.wire.first_entry().filter(|first| first.key().0 <= now)?;
        let datagram = first.remove();
        let (under, host) = place(datagram.to);
        Some((under, host, datagram))
    }
}
