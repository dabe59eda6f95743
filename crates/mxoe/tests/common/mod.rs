//! NICs, and a network between them that comes from a seed: it loses, doubles, delays, reorders
//! and damages frames.

#![allow(dead_code, reason = "each test uses a part")]

pub mod hosts;
pub mod script;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use causeway_mxoe::{Admission, Config, Dropped, Nic, Outside, RegionFault};
use causeway_wire::mx::{Address, Event, NicId, PeerId, RegionId, Request};
use causeway_wire::mxoe::FRAME_LEN_NARROW;

pub const MS: u64 = 1_000_000;

/// Randomness from the seed alone: SplitMix64.
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

/// An event, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Message { peer: u32, match_info: u64, data: Vec<u8> },
    Event(Event<'static>),
}

fn keep(event: &Event<'_>) -> Told {
    Told::Event(match *event {
        Event::Message { peer, match_info, data } => {
            return Told::Message { peer: peer.0, match_info, data: data.to_vec() };
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

/// What a NIC has around it.
#[derive(Debug, Default)]
pub struct Side {
    pub frames: Vec<Vec<u8>>,
    pub told: Vec<(u8, Told)>,
    /// Events that an endpoint still takes; not named: any number.
    pub room: HashMap<u8, usize>,
    pub regions: HashMap<(u8, u8), Vec<u8>>,
    /// Peers whose messages are not taken now.
    pub held: HashSet<(u8, PeerId)>,
    /// Regions whose memory is gone.
    pub broken: HashSet<(u8, u8)>,
    random: u64,
}

impl Side {
    pub fn new(random: u64) -> Self {
        Self { random, ..Self::default() }
    }

    fn span(&self, key: (u8, u8), offset: u64, len: usize) -> std::ops::Range<usize> {
        let from = usize::try_from(offset).unwrap();
        let have = self.regions.get(&key).map_or(0, Vec::len);
        assert!(from + len <= have, "outside of region {key:?}: {offset} + {len} of {have}");
        from..from + len
    }
}

impl Outside for Side {
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
        self.told.push((endpoint, keep(event)));
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

/// What the network does, in percent of all frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    /// Frames that are late, by up to 50 ms.
    pub late: u64,
    pub damaged: u64,
}

/// Time on the way, at least.
pub const WAY_NS: u64 = 50_000;

type Underway = Reverse<(u64, u64, usize, Vec<u8>)>;

/// NICs and what is between them.
#[derive(Debug)]
pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub boards: Vec<Nic>,
    pub sides: Vec<Side>,
    pub weather: Weather,
    /// Of frames whose head is another one, by a bit, and which are not told by Ethernet's
    /// checksum, in percent; and how many there were.
    pub garbling: u64,
    pub garbled: u64,
    /// Which NICs take two frames in one, whether such cross the network, and how many were sent.
    pub wide: Vec<bool>,
    pub narrow: bool,
    pub long: u64,
    underway: BinaryHeap<Underway>,
    order: u64,
    /// Frames that came, and those that changed nothing.
    pub came: u64,
    pub dropped: Vec<Dropped>,
}

pub fn nic(board: usize) -> NicId {
    NicId(0x0200_0000_0001 + board as u64)
}

pub fn address(board: usize, endpoint: u8) -> Address {
    Address { nic: nic(board), endpoint }
}

fn config(board: usize) -> Config {
    Config { give_up_ns: 20_000 * MS, ..Config::new(nic(board), "host:0") }
}

impl World {
    /// NICs that know each other.
    pub fn new(seed: u64, boards: usize) -> Self {
        let mut rng = Rng(seed);
        let sides = (0..boards).map(|_| Side::new(rng.number())).collect();
        let mut world = Self {
            now: 1_000 * MS,
            rng,
            boards: Vec::new(),
            sides,
            weather: Weather::default(),
            garbling: 0,
            garbled: 0,
            wide: vec![false; boards],
            narrow: false,
            long: 0,
            underway: BinaryHeap::new(),
            order: 0,
            came: 0,
            dropped: Vec::new(),
        };
        world.boards = (0..boards).map(|board| world.board(board, boards)).collect();
        world
    }

    fn board(&self, board: usize, boards: usize) -> Nic {
        let mut new = Nic::new(Config { wide: self.wide[board], ..config(board) });
        for other in 0..boards {
            new.host_add(nic(other)).unwrap();
        }
        new
    }

    /// Which NICs take two frames in one, from now on.
    pub fn widen(&mut self, wide: &[bool]) {
        self.wide = wide.to_vec();
        for (board, wide) in self.boards.iter_mut().zip(wide) {
            board.set_wide(*wide);
        }
    }

    /// A NIC loses all that it knew.
    pub fn crash(&mut self, board: usize) {
        self.boards[board] = self.board(board, self.boards.len());
        self.sides[board] = Side::new(self.rng.number());
    }

    pub fn request(&mut self, board: usize, endpoint: u8, request: &Request<'_>) -> Admission {
        let side = &mut self.sides[board];
        let taken = self.boards[board].request(self.now, endpoint, request, side);
        self.carry(board);
        taken
    }

    /// An endpoint takes so many events more.
    pub fn room(&mut self, board: usize, endpoint: u8, events: usize) {
        self.sides[board].room.insert(endpoint, events);
        self.boards[board].room(self.now, endpoint, &mut self.sides[board]);
        self.carry(board);
    }

    /// Memory of an endpoint, registered.
    pub fn region(&mut self, board: usize, endpoint: u8, bytes: Vec<u8>) -> Option<RegionId> {
        let region = self.boards[board].region_add(endpoint, bytes.len() as u64)?;
        self.sides[board].regions.insert((endpoint, region.0), bytes);
        Some(region)
    }

    pub fn unregister(&mut self, board: usize, endpoint: u8, region: RegionId) -> Option<Vec<u8>> {
        let side = &mut self.sides[board];
        assert!(self.boards[board].region_remove(self.now, endpoint, region, side));
        self.carry(board);
        self.sides[board].regions.remove(&(endpoint, region.0))
    }

    /// Puts what a NIC sent on its way.
    pub fn carry(&mut self, from: usize) {
        for frame in std::mem::take(&mut self.sides[from].frames) {
            let to = usize::from(frame[5]).wrapping_sub(1);
            let long = frame.len() > FRAME_LEN_NARROW;
            self.long += u64::from(long);
            if long && self.narrow {
                continue;
            }
            let copies = 1 + usize::from(self.rng.chance(self.weather.doubled));
            for _ in 0..copies {
                if self.rng.chance(self.weather.lost) || to >= self.boards.len() {
                    continue;
                }
                let late = self.rng.chance(self.weather.late);
                let way = WAY_NS + if late { self.rng.below(50 * MS) } else { 0 };
                let mut frame = frame.clone();
                if self.rng.chance(self.weather.damaged) {
                    self.damage(&mut frame);
                }
                if self.garbling > 0 && self.rng.chance(self.garbling) {
                    self.garble(&mut frame);
                }
                self.order += 1;
                self.underway.push(Reverse((self.now + way, self.order, to, frame)));
            }
        }
    }

    /// Damage that no checksum of Ethernet's would tell: what is cut, and what went astray.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        if self.rng.chance(50) {
            frame.truncate(self.rng.below(frame.len() as u64) as usize);
        } else {
            let at = self.rng.below(14) as usize;
            frame[at] ^= 1 << self.rng.below(8);
        }
    }

    /// Damage to what the packet says of itself; of what it brings, none. Nor of whose message it
    /// is and which, or which is next, nor of which window: packets say so once, and nothing else
    /// in them tells.
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
            self.garbled += 1;
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<u64> {
        let frames = self.underway.peek().map(|Reverse((at, ..))| *at);
        self.boards.iter().filter_map(Nic::deadline).chain(frames).min()
    }

    /// Lets time pass until `until`, at most to the next thing that happens, and lets that happen.
    pub fn step(&mut self, until: u64) {
        let next = self.next().map_or(until, |next| next.min(until));
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.underway.peek()
            && *at <= self.now
        {
            let Reverse((_, _, to, frame)) = self.underway.pop().unwrap();
            self.came += 1;
            if let Err(dropped) = self.boards[to].receive(self.now, &frame, &mut self.sides[to]) {
                self.dropped.push(dropped);
            }
            self.carry(to);
        }
        for board in 0..self.boards.len() {
            if self.boards[board].deadline().is_some_and(|due| due <= self.now) {
                self.boards[board].tick(self.now, &mut self.sides[board]);
                self.carry(board);
                let due = self.boards[board].deadline();
                assert!(due.is_none_or(|due| due > self.now), "the same again and again");
            }
        }
    }

    /// Lets so much time pass.
    pub fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.now < until {
            self.step(until);
        }
    }

    /// What a NIC told, and is not told again.
    pub fn told(&mut self, board: usize) -> Vec<(u8, Told)> {
        std::mem::take(&mut self.sides[board].told)
    }

    /// The events of a NIC's only endpoint.
    pub fn events(&mut self, board: usize) -> Vec<Told> {
        self.told(board).into_iter().map(|(_, told)| told).collect()
    }
}
