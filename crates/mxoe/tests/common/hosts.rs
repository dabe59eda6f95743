//! Libraries that send each other messages of all lengths, and know what must come of it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use causeway_mxoe::Admission;
use causeway_mxoe::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};

use super::{MS, Told, World, address};

/// An endpoint: of which NIC, and which.
pub type Place = (usize, u8);

pub const KEY: u32 = 0x1234;

/// A message: from whom to whom, and the how manyth of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Letter {
    pub from: Place,
    pub to: Place,
    pub number: u32,
    /// Lives that its sender had.
    pub life: u32,
}

impl Letter {
    /// What is matched: it tells the letter.
    fn info(self) -> u64 {
        let place = |(board, endpoint): Place| (board as u64) << 4 | u64::from(endpoint);
        u64::from(self.number)
            | place(self.from) << 32
            | place(self.to) << 40
            | u64::from(self.life) << 48
    }

    fn of(info: u64) -> Self {
        let place = |bits: u64| ((bits >> 4 & 15) as usize, (bits & 15) as u8);
        Self {
            number: info as u32,
            from: place(info >> 32),
            to: place(info >> 40),
            life: (info >> 48) as u32,
        }
    }

    fn bytes(self, len: usize) -> Vec<u8> {
        let seed = self.info().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..len as u64).map(|at| (seed.wrapping_mul(at * 2 + 1) >> 56) as u8).collect()
    }
}

/// One library.
#[derive(Debug, Default)]
pub struct Library {
    /// What is to be sent: to whom, of which length.
    to_send: VecDeque<(Place, usize)>,
    /// How many were sent to each.
    numbers: HashMap<Place, u32>,
    peers: HashMap<Place, PeerId>,
    places: HashMap<PeerId, Place>,
    connecting: HashMap<Token, Place>,
    /// What is under way, and where large ones lie.
    sent: HashMap<Token, (Letter, usize, Option<RegionId>)>,
    pulls: HashMap<Token, (Letter, usize, RegionId)>,
    waiting: VecDeque<(Letter, usize, Handle, PeerId)>,
    /// Large messages that are to be forgotten.
    life: u32,
    tokens: u64,
}

/// All libraries of a world, and what came of every letter.
#[derive(Debug, Default)]
pub struct Libraries {
    /// In order, so that a seed gives the same world again.
    pub all: BTreeMap<Place, Library>,
    /// Letters that came, by receiver and its life.
    pub came: HashMap<(Place, u32), Vec<Letter>>,
    pub ended: HashMap<Letter, Status>,
    seen: HashSet<(Place, u32, Letter)>,
    /// Whether peers may go.
    pub crashes: bool,
    /// Whether what a packet says of itself may be wrong: of its number and match nobody can tell.
    pub garbled: bool,
    /// Letters that came once more.
    doubles: u64,
    /// How many were sent.
    pub count: usize,
}

/// Longest message that is taken where lengths may be wrong.
const LEN_MAX: u32 = 1 << 20;
/// Most regions that one library uses.
const REGIONS: usize = 64;

impl Libraries {
    pub fn open(&mut self, world: &mut World, places: &[Place]) {
        for place in places {
            let (board, endpoint) = *place;
            world.boards[board].open(endpoint, KEY, &mut world.sides[board]).unwrap();
            self.all.insert(*place, Library::default());
        }
    }

    /// Everyone sends everyone messages of these lengths.
    pub fn plan(&mut self, lens: &[usize]) {
        let places: Vec<_> = self.all.keys().copied().collect();
        for (from, library) in &mut self.all {
            for len in lens {
                let others = places.iter().filter(|to| *to != from);
                library.to_send.extend(others.map(|to| (*to, *len)));
            }
        }
    }

    /// The library of a place dies with its NIC, and another takes its place with what was not
    /// sent.
    pub fn crash(&mut self, world: &mut World, board: usize) {
        world.crash(board);
        let places: Vec<_> = self.all.keys().copied().collect();
        for place in places.into_iter().filter(|place| place.0 == board) {
            world.boards[board].open(place.1, KEY, &mut world.sides[board]).unwrap();
            let old = self.all.remove(&place).unwrap();
            let life = old.life + 1;
            let new = Library { to_send: old.to_send, life, ..Library::default() };
            self.all.insert(place, new);
        }
    }

    /// A library forgets a peer, and what is under way with it.
    pub fn disconnect(&mut self, world: &mut World, place: Place, other: Place) {
        let library = self.all.get_mut(&place).unwrap();
        if let Some(peer) = library.peers.remove(&other) {
            let disconnect = Request::Disconnect { peer };
            assert_eq!(world.request(place.0, place.1, &disconnect), Admission::Yes);
        }
    }

    /// Whether nothing is under way or to be sent.
    pub fn is_idle(&self) -> bool {
        self.all.values().all(|library| {
            library.to_send.is_empty()
                && library.sent.is_empty()
                && library.pulls.is_empty()
                && library.waiting.is_empty()
        })
    }

    /// Lets every library hear and do something.
    pub fn play(&mut self, world: &mut World) {
        for board in 0..world.boards.len() {
            for (endpoint, told) in world.told(board) {
                self.hear(world, (board, endpoint), told);
            }
        }
        let places: Vec<_> = self.all.keys().copied().collect();
        for place in places {
            self.act(world, place);
        }
    }

    fn act(&mut self, world: &mut World, place: Place) {
        let (board, endpoint) = place;
        let library = self.all.get_mut(&place).unwrap();
        for _ in 0..library.waiting.len() {
            let (letter, len, handle, peer) = library.waiting.pop_front().unwrap();
            let room = library.pulls.len() < REGIONS;
            // Somewhere within the region, so that places are told from beginnings.
            let into = room.then(|| world.region(board, endpoint, vec![0xee; len + 13])).flatten();
            let Some(region) = into else {
                library.waiting.push_back((letter, len, handle, peer));
                continue;
            };
            library.tokens += 1;
            let token = Token(library.tokens);
            library.pulls.insert(token, (letter, len, region));
            let into = Window { region, offset: 13, len: len as u32 };
            let pull = Request::Pull { handle, token, into };
            assert_eq!(world.request(board, endpoint, &pull), Admission::Yes);
        }
        while let Some((to, len)) = library.to_send.front().copied() {
            let Some(peer) = library.peers.get(&to).copied() else {
                library.connect(world, place, to);
                return;
            };
            let number = library.numbers.get(&to).copied().unwrap_or(0);
            let letter = Letter { from: place, to, number, life: library.life };
            let token = Token(library.tokens + 1);
            let match_info = letter.info();
            let (taken, region) = if len <= MEDIUM_BYTES_MAX && len % 5 != 4 {
                let data = letter.bytes(len);
                let eager = Request::Eager { peer, token, match_info, data: &data };
                (world.request(board, endpoint, &eager), None)
            } else {
                let large = library.sent.values().filter(|sent| sent.2.is_some()).count();
                if large >= REGIONS {
                    return;
                }
                let bytes = [vec![0; 7], letter.bytes(len)].concat();
                let Some(region) = world.region(board, endpoint, bytes) else { return };
                let from = Window { region, offset: 7, len: len as u32 };
                let offer = Request::Offer { peer, token, match_info, from };
                (world.request(board, endpoint, &offer), Some(region))
            };
            if taken == Admission::Later {
                if let Some(region) = region {
                    world.unregister(board, endpoint, region);
                }
                return;
            }
            library.tokens += 1;
            library.numbers.insert(to, number + 1);
            library.sent.insert(token, (letter, len, region));
            library.to_send.pop_front();
            self.count += 1;
        }
    }

    fn hear(&mut self, world: &mut World, place: Place, told: Told) {
        let (board, endpoint) = place;
        let Some(library) = self.all.get_mut(&place) else { return };
        let event = match told {
            Told::Message { peer, match_info, data } => {
                let letter = Letter::of(match_info);
                let same = data == letter.bytes(data.len());
                if self.garbled {
                    self.arrived_somehow(world, place, letter, same && data.len() >= 16);
                    return;
                }
                assert_eq!(library.places[&PeerId(peer)], letter.from, "of another");
                assert!(same, "{letter:?}: other bytes");
                self.arrived(place, letter);
                return;
            }
            Told::Event(event) => event,
        };
        match event {
            Event::Connected { token, status, peer } => {
                let to = library.connecting.remove(&token).expect("a connect that was made");
                if status == Status::Success {
                    assert_eq!(library.places[&peer], to, "it was seen before");
                    library.peers.insert(to, peer);
                } else {
                    assert!(self.crashes, "a connect ended with {status:?}");
                    assert_eq!(peer, PeerId::NONE);
                }
            }
            Event::PeerSeen { peer, address, .. } => {
                let from = ((address.nic.0 & 0xff) as usize - 1, address.endpoint);
                assert_eq!(library.places.insert(peer, from), None, "it is another's");
                library.peers.insert(from, peer);
            }
            Event::Offered { peer, match_info, len, handle } => {
                let letter = Letter::of(match_info);
                let most = if self.garbled { LEN_MAX } else { u32::MAX };
                library.waiting.push_back((letter, len.min(most) as usize, handle, peer));
                if !self.garbled {
                    assert_eq!(library.places[&peer], letter.from, "of another");
                    self.arrived(place, letter);
                }
            }
            Event::Sent { token, status, taken } => {
                let (letter, len, region) = library.sent.remove(&token).expect("sent, once");
                if status == Status::Success {
                    assert!(taken as usize == len || self.garbled, "{letter:?}");
                } else {
                    assert!(self.crashes, "{letter:?} ended with {status:?}");
                }
                assert_eq!(self.ended.insert(letter, status), None, "{letter:?} ended twice");
                if let Some(region) = region {
                    world.unregister(board, endpoint, region);
                }
            }
            Event::Pulled { token, status } => {
                let (letter, len, region) = library.pulls.remove(&token).expect("pulled, once");
                let bytes = world.unregister(board, endpoint, region).unwrap();
                if status == Status::Success {
                    assert!(bytes[..13] == [0xee; 13], "before the window");
                    let same = bytes[13..] == letter.bytes(len);
                    assert!(same || self.garbled, "{letter:?}: other bytes");
                    if self.garbled {
                        self.arrived_somehow(world, place, letter, same && len >= 16);
                    }
                } else {
                    assert!(self.crashes, "{letter:?} was pulled with {status:?}");
                }
            }
            Event::PeerGone { peer, status } => {
                assert!(self.crashes, "gone: {status:?}");
                let from = library.places.remove(&peer).expect("it was seen");
                if library.peers.get(&from) == Some(&peer) {
                    library.peers.remove(&from);
                }
                library.waiting.retain(|waiting| waiting.3 != peer);
                assert_eq!(
                    world.request(board, endpoint, &Request::Forget { peer }),
                    Admission::Yes
                );
            }
            Event::Message { .. } => unreachable!(),
        }
    }

    fn arrived(&mut self, place: Place, letter: Letter) {
        let life = self.all[&place].life;
        assert_eq!(letter.to, place);
        assert!(self.seen.insert((place, life, letter)), "{letter:?} came twice");
        self.came.entry((place, life)).or_default().push(letter);
    }

    /// A message that may be another than it says. If it is this one, it is here that it was to
    /// come, and once; unless it came by a number that was another's.
    fn arrived_somehow(&mut self, world: &World, place: Place, letter: Letter, same: bool) {
        if !same {
            return;
        }
        assert_eq!(letter.to, place, "it is for another");
        let life = self.all[&place].life;
        self.doubles += u64::from(!self.seen.insert((place, life, letter)));
        assert!(self.doubles <= world.garbled, "{letter:?} came twice");
    }

    /// Of each sender's life all came in order; without crashes all came, and ended well.
    pub fn check(&self) {
        if self.garbled {
            return;
        }
        for letters in self.came.values() {
            let mut last: HashMap<(Place, u32), u32> = HashMap::new();
            for letter in letters {
                let next = last.get(&(letter.from, letter.life)).map_or(0, |last| last + 1);
                if self.crashes {
                    assert!(letter.number >= next, "{letter:?} came late");
                } else {
                    assert_eq!(letter.number, next, "of {:?}", letter.from);
                }
                last.insert((letter.from, letter.life), letter.number);
            }
        }
        let came = self.came.values().map(Vec::len).sum::<usize>();
        if self.crashes {
            // What ended well came to somebody.
            let all: HashSet<_> = self.came.values().flatten().collect();
            for (letter, status) in &self.ended {
                assert!(*status != Status::Success || all.contains(letter), "{letter:?} is lost");
            }
        } else {
            assert_eq!((came, self.ended.len()), (self.count, self.count));
        }
    }

    /// Everyone hears everyone else, if not at once then when those that had to begin anew have.
    pub fn hear_all(&mut self, world: &mut World, limit_ns: u64) {
        const LEN: usize = 20;
        const ROUNDS: usize = 2;
        let pairs = self.all.len() * (self.all.len() - 1);
        for round in 1..=ROUNDS {
            let before: HashSet<Letter> = self.ended.keys().copied().collect();
            self.plan(&[LEN]);
            self.finish(world, limit_ns);
            self.check();
            let said = self.ended.iter().filter(|(letter, _)| !before.contains(letter));
            let said: Vec<(Letter, Status)> =
                said.map(|(letter, status)| (*letter, *status)).collect();
            assert_eq!(said.len(), pairs);
            let lost = said.iter().filter(|(letter, status)| {
                let life = self.all[&letter.to].life;
                let came = self.seen.contains(&(letter.to, life, *letter));
                assert!(came || *status != Status::Success, "{letter:?} was lost without a word");
                !came
            });
            let lost: Vec<_> = lost.collect();
            if lost.is_empty() {
                return;
            }
            assert!(round < ROUNDS, "not heard: {lost:?}");
        }
    }

    /// What is not done.
    fn left(&self) -> String {
        let left = |(place, library): (&Place, &Library)| {
            let Library { to_send, sent, pulls, waiting, connecting, .. } = library;
            let sent: Vec<_> = sent.values().take(4).collect();
            let counts = (to_send.len(), pulls.len(), waiting.len(), connecting.len());
            format!("{place:?}: {counts:?}, {sent:?}")
        };
        self.all.iter().map(left).collect::<Vec<_>>().join("; ")
    }

    /// Plays until all is done.
    pub fn finish(&mut self, world: &mut World, limit_ns: u64) {
        let end = world.now + limit_ns;
        loop {
            self.play(world);
            if self.is_idle() && world.sides.iter().all(|side| side.told.is_empty()) {
                return;
            }
            assert!(world.now < end, "not done in time: {}", self.left());
            world.step(world.now + 10 * MS);
        }
    }
}

impl Library {
    fn connect(&mut self, world: &mut World, (board, endpoint): Place, to: Place) {
        if self.connecting.values().any(|other| *other == to) {
            return;
        }
        self.tokens += 1;
        let token = Token(self.tokens);
        self.connecting.insert(token, to);
        let to = address(to.0, to.1);
        let timeout_ns = Some(5_000 * MS);
        let connect = Request::Connect { token, to, key: KEY, timeout_ns };
        assert_eq!(world.request(board, endpoint, &connect), Admission::Yes);
    }
}
