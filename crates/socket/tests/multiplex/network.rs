//! Two sessions and the network between them.

use std::collections::BTreeMap;

use causeway_socket::multiplex::{MessageBytes, PeerEvent, PeerSession, Received};

/// A generator of numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Faults of the network, in percent of datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    /// Delay beyond the least, up to this, so that datagrams overtake each other.
    pub jitter_us: u64,
}

/// Two hosts, 0 and 1.
pub struct World {
    pub now: u64,
    pub dice: Dice,
    pub faults: Faults,
    pub hosts: [PeerSession; 2],
    pub events: [Vec<(PeerEvent, Vec<u8>)>; 2],
    /// The most events of a datagram or tick.
    pub most_events: usize,
    /// The output of each host's session, used again and again.
    received: [Received; 2],
    /// Arrival, host and bytes of datagrams under way.
    wire: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    count: u64,
    pub longest: usize,
    pub datagrams: u64,
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut dice = Dice::new(seed);
        let hosts = [0, 1].map(|_| PeerSession::new(0, &mut || dice.next() as u32));
        Self {
            now: 1,
            dice,
            faults,
            hosts,
            events: [Vec::new(), Vec::new()],
            most_events: 0,
            received: Default::default(),
            wire: BTreeMap::new(),
            count: 0,
            longest: 1200,
            datagrams: 0,
        }
    }

    /// Replaces a host by another of the same name, as a restart does.
    pub fn restart(&mut self, host: usize) {
        let (now, dice) = (self.now, &mut self.dice);
        self.hosts[host] = PeerSession::new(now, &mut || dice.next() as u32);
        self.events[host].clear();
    }

    /// Puts a datagram on the wire.
    pub fn throw(&mut self, to: usize, bytes: Vec<u8>) {
        let copies = 1 + u64::from(self.dice.chance(self.faults.duplication));
        for _ in 0..copies {
            if self.dice.chance(self.faults.loss) {
                continue;
            }
            let jitter = self.dice.below(self.faults.jitter_us * 1000 + 1);
            self.count += 1;
            self.wire.insert((self.now + 100_000 + jitter, self.count), (to, bytes.clone()));
        }
    }

    /// Takes the events of a host; messages without the bytes, which are beside.
    fn collect(&mut self, host: usize, mut received: Received, datagram: &[u8]) {
        self.most_events = self.most_events.max(received.events.len());
        for event in &received.events {
            self.events[host].push(match event {
                PeerEvent::Message(channel, message) => {
                    let place = PeerEvent::Message(*channel, MessageBytes::InDatagram(0..0));
                    (place, received.read(message, datagram).to_vec())
                }
                other => (other.clone(), Vec::new()),
            });
        }
        received.clear();
        self.received[host] = received;
    }

    fn send(&mut self) {
        for host in 0..2 {
            let (mut out, before) = (Vec::new(), self.datagrams);
            while self.hosts[host].transmit(self.now, self.longest, &mut out) {
                assert!(self.datagrams - before < 100_000, "host {host} sends without end");
                assert!(out.len() <= self.longest, "{} bytes", out.len());
                self.datagrams += 1;
                self.throw(1 - host, out.clone());
            }
        }
    }

    /// Sends what is due, and moves the time to the next event. Returns false if nothing will ever
    /// happen.
    pub fn step(&mut self) -> bool {
        self.send();
        let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self.hosts.iter().filter_map(PeerSession::deadline_ns);
        let Some(next) = deadlines.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        for host in 0..2 {
            let mut received = std::mem::take(&mut self.received[host]);
            let (now, dice) = (self.now, &mut self.dice);
            self.hosts[host].tick(now, &mut || dice.next() as u32, &mut received);
            self.hosts[host].pass_deferred(now, &mut || dice.next() as u32, &mut received);
            self.collect(host, received, &[]);
        }
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (host, bytes) = entry.remove();
            let mut received = std::mem::take(&mut self.received[host]);
            let (now, dice) = (self.now, &mut self.dice);
            let _ =
                self.hosts[host].receive(now, &bytes, &mut || dice.next() as u32, &mut received);
            self.collect(host, received, &bytes);
        }
        true
    }

    /// Steps until `done`, at most `seconds` of the sessions' time.
    pub fn run(&mut self, seconds: u64, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + seconds * 1_000_000_000;
        let (mut last, mut steps) = (self.now, 0);
        while !done(self) {
            if !self.step() {
                // Nothing is under way until the caller sends more.
                self.now += 1_000_000;
            }
            steps = if self.now == last { steps + 1 } else { 0 };
            last = self.now;
            assert!(
                steps < 100_000,
                "time stands still: {:?}",
                self.hosts.each_ref().map(PeerSession::deadline_ns)
            );
            assert!(
                self.now < until,
                "not done after {seconds} s: {:?} {:?}",
                self.hosts[0].view(),
                self.hosts[1].view()
            );
        }
    }

    /// Agrees on a session.
    pub fn agree(&mut self) {
        self.run(60, |world| world.hosts.iter().all(PeerSession::is_up));
    }
}
