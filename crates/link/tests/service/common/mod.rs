//! Simulated hosts with a [`TunnelSet`] each, and a network between them whose faults a seed decides.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use causeway_link::limits::DATAGRAM_BYTES_MAX;
use causeway_link::{
    Clock, Event, EventKind, Packer, Refusal, Sink, Tunnel, TunnelConfig, TunnelSet, WaitRefusal,
    WaitingFrame,
};
use causeway_model::keys::PrivateKey;
use causeway_wire::tunnel::record::FLOODED;
use causeway_wire::virtio_net::Header as Metadata;

/// The virtual network of most tests.
pub const VNI: u32 = 7;
/// One millisecond.
pub const MS: u64 = 1_000_000;

/// Random numbers from a seed (xorshift64*).
#[derive(Debug, Clone)]
pub struct Seed(pub u64);

impl Seed {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 8) % bound.max(1)
    }

    /// Returns true in `of_1000` of 1000 cases.
    pub fn chance(&mut self, of_1000: u64) -> bool {
        self.below(1000) < of_1000
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| (self.next() >> 32) as u8);
    }
}

/// A received frame: network, hops, metadata and bytes.
pub type Got = (u32, u8, Metadata, Vec<u8>);

/// A host.
#[derive(Debug)]
pub struct Host {
    pub address: SocketAddr,
    pub key: Arc<PrivateKey>,
    pub hub: TunnelSet,
    pub sink: Sink,
    pub events: Vec<Event>,
    pub got: Vec<Got>,
    packers: BTreeMap<u16, Packer>,
}

/// Faults of the network, per 1000 datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    pub cut: u64,
    pub flipped: u64,
    /// Datagrams longer than this are lost; 0 for none.
    pub mtu: usize,
}

/// A datagram in flight.
#[derive(Debug, Clone)]
pub struct Letter {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct World {
    pub now: u64,
    pub wall: u64,
    pub seed: Seed,
    pub weather: Weather,
    pub hosts: Vec<Host>,
    /// By time of arrival, and in order.
    pub wire: BTreeMap<(u64, u64), Letter>,
    /// All datagrams ever sent, while recording is on.
    pub tape: Option<Vec<Letter>>,
    pub refused: Vec<Refusal>,
    letters: u64,
}

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7000))
}

impl World {
    /// Returns `hosts` hosts without tunnels.
    pub fn new(seed: u64, hosts: usize) -> Self {
        let mut world = Self {
            now: 1_000 * MS,
            wall: 1_700_000_000_000 * MS,
            seed: Seed(seed | 1 << 40),
            weather: Weather::default(),
            hosts: Vec::new(),
            wire: BTreeMap::new(),
            tape: None,
            refused: Vec::new(),
            letters: 0,
        };
        for at in 0..hosts {
            let mut random = [0; 32];
            world.seed.fill(&mut random);
            let host = world.host(address(at), PrivateKey::new(random));
            world.hosts.push(host);
        }
        world
    }

    fn host(&mut self, address: SocketAddr, key: PrivateKey) -> Host {
        let key = Arc::new(key);
        let hub = self.clock(|m| TunnelSet::new(Some(Arc::clone(&key)), m));
        Host {
            address,
            key,
            hub,
            sink: Sink::default(),
            events: Vec::new(),
            got: Vec::new(),
            packers: BTreeMap::new(),
        }
    }

    /// Returns two hosts with a tunnel between them, up.
    pub fn pair(seed: u64, plain: bool, longest: usize) -> Self {
        let mut world = Self::new(seed, 2);
        world.join(0, 1, plain, longest);
        world.run(100 * MS);
        assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
        // Both initiated at once, and one initiation had precedence.
        world.refused.clear();
        world
    }

    /// Adds a tunnel between two hosts, known to both.
    pub fn join(&mut self, a: usize, b: usize, plain: bool, longest: usize) {
        for (own, other) in [(a, b), (b, a)] {
            let keys = (Arc::clone(&self.hosts[own].key), self.hosts[other].key.public());
            let keys = (!plain).then_some(keys);
            let remote = Some(self.hosts[other].address);
            self.add(own, &TunnelConfig { keys, remote, longest, on_demand: None });
        }
    }

    pub fn add(&mut self, host: usize, config: &TunnelConfig) -> u16 {
        let (now, wall) = (self.now, self.wall);
        let mut entropy = |_: &mut [u8]| unreachable!("adding a tunnel draws nothing");
        let clock = Clock { now, wall, random: &mut entropy };
        let host = &mut self.hosts[host];
        let number = host.hub.add(config, &clock).unwrap();
        assert!(host.hub.tunnel_mut(number).unwrap().carry(VNI, &mut host.sink));
        number
    }

    /// Restarts the host without its state, with the same key.
    pub fn restart(&mut self, host: usize) {
        let address = self.hosts[host].address;
        let key = PrivateKey::clone(&self.hosts[host].key);
        self.hosts[host] = self.host(address, key);
    }

    /// Adds a host with the key of another.
    pub fn clone_host(&mut self, of: usize) {
        let key = PrivateKey::clone(&self.hosts[of].key);
        let host = self.host(address(self.hosts.len()), key);
        self.hosts.push(host);
    }

    pub fn clock<R>(&mut self, with: impl FnOnce(&mut Clock<'_>) -> R) -> R {
        let (now, wall) = (self.now, self.wall);
        let mut entropy = |bytes: &mut [u8]| self.seed.fill(bytes);
        with(&mut Clock { now, wall, random: &mut entropy })
    }

    pub fn tunnel(&self, host: usize) -> &Tunnel {
        self.hosts[host].hub.tunnel(0).unwrap()
    }

    pub fn tunnel_mut(&mut self, host: usize) -> &mut Tunnel {
        self.hosts[host].hub.tunnel_mut(0).unwrap()
    }

    /// Returns how often `host` reported this event.
    pub fn seen(&self, host: usize, what: impl Fn(&EventKind) -> bool) -> usize {
        self.hosts[host].events.iter().filter(|event| what(&event.kind)).count()
    }

    /// Returns how often the host's tunnels and its hub refused a datagram for that reason.
    pub fn refusals(&self, host: usize, reason: Refusal) -> u64 {
        let hub = &self.hosts[host].hub;
        hub.refusals().of(reason) + hub.tunnels().map(|t| t.refusals().of(reason)).sum::<u64>()
    }

    /// Passes a datagram to a host.
    pub fn deliver(&mut self, host: usize, from: SocketAddr, bytes: &[u8]) -> Result<(), Refusal> {
        let (now, wall) = (self.now, self.wall);
        let mut entropy = |bytes: &mut [u8]| self.seed.fill(bytes);
        let mut clock = Clock { now, wall, random: &mut entropy };
        let Host { hub, sink, .. } = &mut self.hosts[host];
        let taken = hub.receive(&mut clock, from, bytes, sink);
        if let Err(refusal) = taken {
            self.refused.push(refusal);
        }
        self.empty(host);
        taken
    }

    /// Runs a host's timers.
    pub fn tick(&mut self, host: usize) {
        let (now, wall) = (self.now, self.wall);
        let mut entropy = |bytes: &mut [u8]| self.seed.fill(bytes);
        let mut clock = Clock { now, wall, random: &mut entropy };
        let Host { hub, sink, .. } = &mut self.hosts[host];
        hub.tick(&mut clock, sink);
        assert!(hub.deadline() > now, "the same again and again");
        self.empty(host);
    }

    /// Processes the results in a host's sink.
    fn empty(&mut self, host: usize) {
        let Host { sink, events, got, address, .. } = &mut self.hosts[host];
        for frame in &sink.frames {
            let bytes = sink.frame(frame).to_vec();
            assert_eq!(bytes.len(), frame.at.len());
            got.push((frame.vni, frame.hops, frame.metadata, bytes));
        }
        events.append(&mut sink.events);
        let letters = std::mem::take(&mut sink.datagrams);
        let from = *address;
        sink.clear();
        for (to, bytes) in letters {
            self.post(from, to, bytes);
        }
    }

    /// Sends a datagram through the unreliable network.
    pub fn post(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        assert!(!bytes.is_empty() && bytes.len() <= DATAGRAM_BYTES_MAX);
        let Weather { lost, doubled, late, cut, flipped, mtu } = self.weather;
        if let Some(tape) = &mut self.tape {
            tape.push(Letter { from, to, bytes: bytes.clone() });
        }
        if self.seed.chance(lost) || (mtu > 0 && bytes.len() > mtu) {
            return;
        }
        if self.seed.chance(cut) {
            let len = self.seed.below(bytes.len() as u64) as usize;
            bytes.truncate(len);
        }
        if self.seed.chance(flipped) && !bytes.is_empty() {
            let at = self.seed.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.seed.below(8);
        }
        let copies = if self.seed.chance(doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = if self.seed.chance(late) { self.seed.below(20 * MS) } else { 0 };
            self.letters += 1;
            let key = (self.now + MS / 10 + delay, self.letters);
            self.wire.insert(key, Letter { from, to, bytes: bytes.clone() });
        }
    }

    /// Sends a frame from a host on a tunnel, or leaves it there for the next session, as a carrier
    /// does.
    pub fn offer(&mut self, host: usize, tunnel: u16, frame: Got) -> Result<(), WaitRefusal> {
        let tx_path = Arc::clone(self.hosts[host].hub.tunnel(tunnel).unwrap().tx_path());
        let (vni, hops, metadata, bytes) = frame;
        if tx_path.path().is_some() {
            let mut packer = Packer::new(Arc::clone(&tx_path));
            let mut sent = Vec::new();
            let read = |offset: usize, into: &mut [u8]| {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                Ok::<_, Infallible>(())
            };
            packer
                .push(vni, hops, &metadata, bytes.len(), read, |batch| sent.extend(cut(batch)))
                .unwrap();
            packer.finish(|batch| sent.extend(cut(batch))).unwrap();
            let from = self.hosts[host].address;
            sent.into_iter().for_each(|(to, bytes)| self.post(from, to, bytes));
        } else {
            tx_path.wait(WaitingFrame { vni, hops, metadata, is_segment: false, bytes })?;
        }
        if hops & FLOODED == 0 {
            tx_path.note_traffic();
        }
        if tx_path.path().is_none() && tx_path.begin_request() {
            let (now, wall) = (self.now, self.wall);
            let mut entropy = |bytes: &mut [u8]| self.seed.fill(bytes);
            let mut clock = Clock { now, wall, random: &mut entropy };
            let Host { hub, sink, .. } = &mut self.hosts[host];
            hub.wake(tunnel, &mut clock, sink);
            self.empty(host);
        }
        Ok(())
    }

    /// Lets time pass.
    pub fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            for host in 0..self.hosts.len() {
                self.tick(host);
            }
            let mut next = self.hosts.iter().map(|h| h.hub.deadline()).min().unwrap_or(end);
            if let Some((key, _)) = self.wire.first_key_value() {
                next = next.min(key.0);
            }
            if next > end {
                break;
            }
            self.wall += next.saturating_sub(self.now);
            self.now = self.now.max(next);
            while let Some(first) =
                self.wire.first_entry().filter(|first| first.key().0 <= self.now)
            {
                let letter = first.remove();
                let host = self.hosts.iter().position(|h| h.address == letter.to);
                if let Some(host) = host {
                    let _ = self.deliver(host, letter.from, &letter.bytes);
                }
            }
        }
        self.wall += end - self.now;
        self.now = end;
    }

    /// Sends frames from a host on its first tunnel, in one batch or several.
    pub fn send(&mut self, host: usize, frames: &[(u32, u8, Metadata, Vec<u8>)]) {
        let tx_path = Arc::clone(self.tunnel(host).tx_path());
        let packers = &mut self.hosts[host].packers;
        let mut packer = packers.remove(&0).unwrap_or_else(|| Packer::new(tx_path));
        let mut sent = Vec::new();
        for (vni, hops, metadata, bytes) in frames {
            let read = |offset: usize, into: &mut [u8]| {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                Ok::<_, Infallible>(())
            };
            let cut = |batch: &causeway_link::Batch| sent.extend(cut(batch));
            packer.push(*vni, *hops, metadata, bytes.len(), read, cut).unwrap();
        }
        packer.finish(|batch| sent.extend(cut(batch))).unwrap();
        self.hosts[host].packers.insert(0, packer);
        let from = self.hosts[host].address;
        for (to, bytes) in sent {
            self.post(from, to, bytes);
        }
    }
}

/// Splits a batch as the kernel does.
pub fn cut(batch: &causeway_link::Batch) -> Vec<(SocketAddr, Vec<u8>)> {
    let pieces: Vec<_> = batch.bytes().chunks(batch.segment()).map(<[u8]>::to_vec).collect();
    assert_eq!(pieces.len(), batch.datagrams());
    assert!(pieces.len() <= 64 && batch.bytes().len() <= DATAGRAM_BYTES_MAX);
    pieces.into_iter().map(|bytes| (batch.to().unwrap(), bytes)).collect()
}

/// Returns a frame of `len` bytes with a pattern.
pub fn frame(seed: &mut Seed, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    seed.fill(&mut bytes);
    bytes
}

/// Returns a frame's metadata, or the default.
pub fn metadata(seed: &mut Seed) -> Metadata {
    if seed.chance(500) {
        return Metadata::default();
    }
    Metadata {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: seed.below(1500) as u16,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    }
}
