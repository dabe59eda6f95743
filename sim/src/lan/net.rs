//! The network between hosts: late, lost, doubled, cut and damaged datagrams, and partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::rng::Rng;

/// What happens to datagrams, in parts of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Never arrive.
    pub lost: u64,
    /// Arrive twice.
    pub doubled: u64,
    /// Arrive later than others.
    pub late: u64,
    /// By how much at most, in nanoseconds.
    pub late_ns: u64,
    /// Lose their end.
    pub cut: u64,
    /// Have a bit changed.
    pub flipped: u64,
}

/// A datagram under way.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's.
    pub to: SocketAddr,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The address of a host on one of the networks; it moves with `number`.
pub fn address(under: usize, host: usize, number: u16) -> SocketAddr {
    SocketAddr::from(([10, under as u8, 0, host as u8], 7000 + number))
}

/// Which network and host have that address, or had it.
fn place(address: SocketAddr) -> (usize, usize) {
    match address {
        SocketAddr::V4(v4) => {
            let [_, under, _, host] = v4.ip().octets();
            (under.into(), host.into())
        }
        SocketAddr::V6(_) => (usize::MAX, usize::MAX),
    }
}

/// See the module.
#[derive(Debug)]
pub struct Net {
    /// What happens to datagrams.
    pub weather: Weather,
    /// From whom to whom nothing arrives, on which network.
    pub parted: BTreeSet<(usize, usize, usize)>,
    /// Datagrams longer than this are lost, in bytes of UDP payload.
    pub mtu: usize,
    /// How long each takes at least, in nanoseconds.
    pub delay_ns: u64,
    wire: BTreeMap<(u64, u64), Letter>,
    count: u64,
    rng: Rng,
}

impl Net {
    /// A network in fair weather.
    pub fn new(mut rng: Rng) -> Self {
        let delay_ns = rng.within(10_000, 5_000_000);
        let (weather, parted, wire) = Default::default();
        Self { weather, parted, mtu: usize::MAX, delay_ns, wire, count: 0, rng }
    }

    fn happens(&mut self, of_1000: u64) -> bool {
        self.rng.below(1000) < of_1000
    }

    /// Takes a datagram on.
    pub fn post(&mut self, now: u64, mut letter: Letter) {
        let Weather { lost, doubled, late, late_ns, cut, flipped } = self.weather;
        let ((under, from), (_, to)) = (place(letter.from), place(letter.to));
        let parted = self.parted.contains(&(under, from, to));
        if parted || letter.bytes.len() > self.mtu || self.happens(lost) {
            return;
        }
        let len = letter.bytes.len() as u64;
        if self.happens(cut) {
            letter.bytes.truncate(self.rng.below(len) as usize);
        } else if self.happens(flipped) && len > 0 {
            let (at, bit) = (self.rng.below(len) as usize, self.rng.below(8));
            letter.bytes[at] ^= 1 << bit;
        }
        let copies = if self.happens(doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let more = if self.happens(late) { self.rng.below(late_ns) } else { 0 };
            self.count += 1;
            self.wire.insert((now + self.delay_ns + more, self.count), letter.clone());
        }
    }

    /// When the next datagram arrives.
    pub fn next(&self) -> Option<u64> {
        self.wire.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next datagram that has arrived by now: to which network and host.
    pub fn take(&mut self, now: u64) -> Option<(usize, usize, Letter)> {
        let first = self.wire.first_entry().filter(|first| first.key().0 <= now)?;
        let letter = first.remove();
        let (under, host) = place(letter.to);
        Some((under, host, letter))
    }
}
