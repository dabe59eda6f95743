//! NICs and a simulated network, reproducible from a seed. The network loses, duplicates, delays,
//! reorders and damages frames.

#![allow(dead_code, reason = "each test uses a part")]

pub mod hosts;
pub mod script;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use causeway_mxoe::local::{self, LocalSide};
use causeway_mxoe::{Admission, DropReason, Nic, NicConfig, Outside, RegionFault};
use causeway_wire::mx::{Address, Event, NicId, PeerId, RegionId, Request};
use causeway_wire::mxoe::FRAME_LEN_NARROW;

pub const MS: u64 = 1_000_000;

/// Random numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedEvent {
    Message { peer: u32, match_info: u64, data: Vec<u8> },
    Event(Event<'static>),
}

fn record(event: &Event<'_>) -> RecordedEvent {
    RecordedEvent::Event(match *event {
        Event::Message { peer, match_info, data } => {
            return RecordedEvent::Message { peer: peer.0, match_info, data: data.to_vec() };
        }
        Event::Connected { token, status, peer } => Event::Connected { token, status, peer },
        Event::PeerSeen { peer, address, session } => Event::PeerSeen { peer, address, session },
        Event::Offered { peer, match_info, len, handle } => {
            Event::Offered { peer, match_info, len, handle }
        }
        Event::Sent { token, status, taken } => Event::Sent { token, status, taken },
        Event::Pulled { token, status } => Event::Pulled { token, status },
        Event::PeerGone { peer, status } => Event::PeerGone { peer, status },
    })
}

/// The outside of a NIC under test.
#[derive(Debug, Default)]
pub struct TestOutside {
    pub frames: Vec<Vec<u8>>,
    pub told: Vec<(u8, RecordedEvent)>,
    /// Remaining room for events of an endpoint. Without an entry: unlimited.
    pub room: HashMap<u8, usize>,
    pub regions: HashMap<(u8, u8), Vec<u8>>,
    /// Peers whose messages are not accepted.
    pub held: HashSet<(u8, PeerId)>,
    /// Regions whose memory is unmapped.
    pub broken: HashSet<(u8, u8)>,
    random: u64,
}

impl TestOutside {
    pub fn new(random: u64) -> Self {
        Self { random, ..Self::default() }
    }

    fn span(&self, key: (u8, u8), offset: u64, len: usize) -> std::ops::Range<usize> {
        let from = usize::try_from(offset).unwrap();
        let have = self.regions.get(&key).map_or(0, Vec::len);
        assert!(from + len <= have, "{offset} + {len} exceeds region {key:?} of {have}");
        from..from + len
    }
}

impl Outside for TestOutside {
    fn random(&mut self) -> u32 {
        let mut rng = Rng(self.random);
        let number = rng.number();
        self.random = rng.0;
        (number >> 32) as u32
    }

    fn frame(&mut self, head: &[u8], data: &[u8]) {
        let frame = [head, data].concat();
        assert!((60..=48 + 8192).contains(&frame.len()), "a frame of {} bytes", frame.len());
        self.frames.push(frame);
    }

    fn holds(&self, endpoint: u8, peer: PeerId) -> bool {
        self.held.contains(&(endpoint, peer))
    }

    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool {
        if let Event::Message { peer, .. } | Event::Offered { peer, .. } = *event
            && self.holds(endpoint, peer)
        {
            return false;
        }
        if let Some(room) = self.room.get_mut(&endpoint) {
            if *room == 0 {
                return false;
            }
            *room -= 1;
        }
        self.told.push((endpoint, record(event)));
        true
    }

    fn read(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault> {
        let key = (endpoint, region.0);
        if self.broken.contains(&key) {
            return Err(RegionFault);
        }
        let span = self.span(key, offset, into.len());
        into.copy_from_slice(&self.regions[&key][span]);
        Ok(())
    }

    fn write(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault> {
        let key = (endpoint, region.0);
        if self.broken.contains(&key) {
            return Err(RegionFault);
        }
        let span = self.span(key, offset, bytes.len());
        self.regions.get_mut(&key).unwrap()[span].copy_from_slice(bytes);
        Ok(())
    }
}

/// Faults of the network in percent of all frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkFaults {
    pub lost: u64,
    pub doubled: u64,
    /// Frames that are delayed by up to 50 ms.
    pub late: u64,
    pub damaged: u64,
}

/// Minimum delay of the network.
pub const PATH_NS: u64 = 50_000;

type FrameInFlight = Reverse<(u64, u64, usize, Vec<u8>)>;

/// NICs and the network between them.
#[derive(Debug)]
pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub nics: Vec<Nic>,
    pub sides: Vec<TestOutside>,
    pub faults: NetworkFaults,
    /// Percentage of frames with a damaged header that the Ethernet checksum does not detect; and
    /// their number.
    pub damage_percent: u64,
    pub damaged_headers: u64,
    /// NICs with jumbo frames; whether the network drops such frames; and the number of such
    /// frames.
    pub wide: Vec<bool>,
    pub narrow: bool,
    pub long: u64,
    /// The NICs belong to one daemon.
    pub is_local: bool,
    in_flight: BinaryHeap<FrameInFlight>,
    order: u64,
    /// Received frames, and reasons of dropped frames.
    pub received: u64,
    pub dropped: Vec<DropReason>,
}

pub fn nic(board: usize) -> NicId {
    NicId(0x0200_0000_0001 + board as u64)
}

fn board_of(nic: NicId) -> usize {
    (nic.0 - 0x0200_0000_0001) as usize
}

pub fn address(board: usize, endpoint: u8) -> Address {
    Address { nic: nic(board), endpoint }
}

fn config(board: usize) -> NicConfig {
    NicConfig { give_up_ns: 20_000 * MS, ..NicConfig::new(nic(board), "host:0") }
}

impl World {
    /// Creates NICs that know each other.
    pub fn new(seed: u64, nics: usize) -> Self {
        Self::of(seed, nics, false)
    }

    /// Creates NICs of one daemon.
    pub fn local(seed: u64, nics: usize) -> Self {
        Self::of(seed, nics, true)
    }

    fn of(seed: u64, nics: usize, is_local: bool) -> Self {
        let mut rng = Rng(seed);
        let sides = (0..nics).map(|_| TestOutside::new(rng.number())).collect();
        let mut world = Self {
            now: 1_000 * MS,
            rng,
            nics: Vec::new(),
            sides,
            faults: NetworkFaults::default(),
            damage_percent: 0,
            damaged_headers: 0,
            wide: vec![false; nics],
            narrow: false,
            long: 0,
            is_local,
            in_flight: BinaryHeap::new(),
            order: 0,
            received: 0,
            dropped: Vec::new(),
        };
        world.nics = (0..nics).map(|board| world.new_nic(board, nics)).collect();
        world
    }

    fn new_nic(&self, board: usize, nics: usize) -> Nic {
        let mut new = Nic::new(NicConfig { wide: self.wide[board], ..config(board) });
        let mut nothing = TestOutside::new(0);
        for other in 0..nics {
            if self.is_local {
                assert!(new.nic_add_local(self.now, nic(other), &mut nothing));
            } else {
                new.nic_add(nic(other)).unwrap();
            }
        }
        new
    }

    /// Sets which NICs use jumbo frames.
    pub fn widen(&mut self, wide: &[bool]) {
        self.wide = wide.to_vec();
        for (board, wide) in self.nics.iter_mut().zip(wide) {
            board.set_wide(*wide);
        }
    }

    /// Restarts a NIC without its state.
    pub fn crash(&mut self, board: usize) {
        if self.is_local {
            // A daemon that lives closes the endpoints of a NIC.
            for endpoint in 0..16 {
                self.nics[board].close(self.now, endpoint, &mut self.sides[board]);
            }
            while self.perform(board) {}
        }
        self.nics[board] = self.new_nic(board, self.nics.len());
        self.sides[board] = TestOutside::new(self.rng.number());
    }

    pub fn request(&mut self, board: usize, endpoint: u8, request: &Request<'_>) -> Admission {
        if self.is_local
            && let Some(route) = local::route(&self.nics[board], endpoint, request)
            && self.rng.chance(70)
        {
            let to = board_of(route.to());
            let (own, other) = self.pair(board, to);
            if local::deliver(own.0, &route, request, own.1, other) {
                return Admission::Yes;
            }
        }
        let side = &mut self.sides[board];
        let taken = self.nics[board].request(self.now, endpoint, request, side);
        self.carry(board);
        taken
    }

    /// Gives an endpoint room for more events.
    pub fn room(&mut self, board: usize, endpoint: u8, events: usize) {
        self.sides[board].room.insert(endpoint, events);
        self.nics[board].room(self.now, endpoint, &mut self.sides[board]);
        self.carry(board);
    }

    /// Registers memory of an endpoint.
    pub fn region(&mut self, board: usize, endpoint: u8, bytes: Vec<u8>) -> Option<RegionId> {
        let region = self.nics[board].region_add(endpoint, bytes.len() as u64)?;
        self.sides[board].regions.insert((endpoint, region.0), bytes);
        Some(region)
    }

    pub fn unregister(&mut self, board: usize, endpoint: u8, region: RegionId) -> Option<Vec<u8>> {
        let side = &mut self.sides[board];
        assert!(self.nics[board].region_remove(self.now, endpoint, region, side));
        self.carry(board);
        self.sides[board].regions.remove(&(endpoint, region.0))
    }

    /// Returns the time with two NICs and their outside; no second one if both are the same.
    fn pair<'a>(
        &'a mut self,
        own: usize,
        other: usize,
    ) -> ((u64, LocalSide<'a>), Option<LocalSide<'a>>) {
        let mut all = self.nics.iter_mut().zip(&mut self.sides);
        let side = |(nic, out): (_, &'a mut TestOutside)| LocalSide { nic, out };
        let first = side(all.nth(own.min(other)).unwrap());
        if own == other {
            return ((self.now, first), None);
        }
        let second = side(all.nth(own.abs_diff(other) - 1).unwrap());
        let (own, other) = if own < other { (first, second) } else { (second, first) };
        ((self.now, own), Some(other))
    }

    /// Performs the next work of a NIC for NICs of its daemon. Returns whether there was any.
    pub fn perform(&mut self, board: usize) -> bool {
        let Some(work) = self.nics[board].next_local() else { return false };
        let to = board_of(work.to());
        let ((now, own), other) = self.pair(board, to);
        if let Err(dropped) = local::perform(now, work, own, other) {
            self.dropped.push(dropped);
        }
        assert!(self.sides[board].frames.is_empty(), "a frame left the daemon");
        true
    }

    /// Passes the sent frames of a NIC to the network.
    pub fn carry(&mut self, from: usize) {
        for frame in std::mem::take(&mut self.sides[from].frames) {
            let to = usize::from(frame[5]).wrapping_sub(1);
            let long = frame.len() > FRAME_LEN_NARROW;
            self.long += u64::from(long);
            if long && self.narrow {
                continue;
            }
            let copies = 1 + usize::from(self.rng.chance(self.faults.doubled));
            for _ in 0..copies {
                if self.rng.chance(self.faults.lost) || to >= self.nics.len() {
                    continue;
                }
                let late = self.rng.chance(self.faults.late);
                let way = PATH_NS + if late { self.rng.below(50 * MS) } else { 0 };
                let mut frame = frame.clone();
                if self.rng.chance(self.faults.damaged) {
                    self.damage(&mut frame);
                }
                if self.damage_percent > 0 && self.rng.chance(self.damage_percent) {
                    self.garble(&mut frame);
                }
                self.order += 1;
                self.in_flight.push(Reverse((self.now + way, self.order, to, frame)));
            }
        }
    }

    /// Damage as by truncation and misrouting, which the Ethernet checksum does not detect.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        if self.rng.chance(50) {
            frame.truncate(self.rng.below(frame.len() as u64) as usize);
        } else {
            let at = self.rng.below(14) as usize;
            frame[at] ^= 1 << self.rng.below(8);
        }
    }

    /// Damages the header, but not the content. Numbers, match information and windows of messages
    /// are excluded: nothing else in a packet confirms them.
    fn garble(&mut self, frame: &mut [u8]) {
        let (head, message) = match frame.get(16) {
            Some(35) => (28, false),
            Some(36 | 41) => (32, false),
            Some(37 | 38) => (24, true),
            Some(39) => (32, true),
            Some(40) => (28, true),
            Some(43) => (8, true),
            _ => (16, false),
        };
        let at = self.rng.below(2 + head) as usize;
        let greeting = frame.get(16) == Some(&36);
        let only = message && matches!(at, 4 | 10 | 11) || greeting && matches!(at, 26 | 27);
        let bit = self.rng.below(8);
        if let Some(byte) = frame.get_mut(14 + at).filter(|_| !only) {
            *byte ^= 1 << bit;
            self.damaged_headers += 1;
        }
    }

    /// Returns the time of the next timer or frame.
    pub fn next(&self) -> Option<u64> {
        let frames = self.in_flight.peek().map(|Reverse((at, ..))| *at);
        if self.nics.iter().any(Nic::has_local) {
            return Some(self.now + 1_000);
        }
        self.nics.iter().filter_map(Nic::deadline).chain(frames).min()
    }

    /// Advances the time to the next timer or frame, but at most to `until`, and processes it.
    pub fn step(&mut self, until: u64) {
        let next = self.next().map_or(until, |next| next.min(until));
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.in_flight.peek()
            && *at <= self.now
        {
            let Reverse((_, _, to, frame)) = self.in_flight.pop().unwrap();
            self.received += 1;
            if let Err(dropped) = self.nics[to].receive(self.now, &frame, &mut self.sides[to]) {
                self.dropped.push(dropped);
            }
            self.carry(to);
        }
        for board in 0..self.nics.len() {
            for _ in 0..self.rng.below(4) {
                self.perform(board);
            }
        }
        for board in 0..self.nics.len() {
            if self.nics[board].deadline().is_some_and(|due| due <= self.now) {
                self.nics[board].tick(self.now, &mut self.sides[board]);
                self.carry(board);
                let due = self.nics[board].deadline();
                assert!(due.is_none_or(|due| due > self.now), "timers must make progress");
            }
        }
    }

    /// Advances the time.
    pub fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.now < until {
            self.step(until);
        }
    }

    /// Returns the events of a NIC since the last call.
    pub fn told(&mut self, board: usize) -> Vec<(u8, RecordedEvent)> {
        std::mem::take(&mut self.sides[board].told)
    }

    /// Returns the events of a NIC with a single endpoint.
    pub fn events(&mut self, board: usize) -> Vec<RecordedEvent> {
        self.told(board).into_iter().map(|(_, told)| told).collect()
    }
}
