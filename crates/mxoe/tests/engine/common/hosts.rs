//! Host sides that send each other messages of all lengths, and check the required outcome.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use causeway_mxoe::Admission;
use causeway_mxoe::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};

use super::{MS, RecordedEvent, World, address};

/// An endpoint: index of its NIC, and number.
pub type Place = (usize, u8);

pub const KEY: u32 = 0x1234;

/// A message: sender, receiver, and its number between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TestMessage {
    pub from: Place,
    pub to: Place,
    pub number: u32,
    /// Number of restarts of the sender.
    pub instance: u32,
}

impl TestMessage {
    /// Returns the match information, which identifies the message.
    fn info(self) -> u64 {
        let place = |(board, endpoint): Place| (board as u64) << 4 | u64::from(endpoint);
        u64::from(self.number)
            | place(self.from) << 32
            | place(self.to) << 40
            | u64::from(self.instance) << 48
    }

    fn of(info: u64) -> Self {
        let place = |bits: u64| ((bits >> 4 & 15) as usize, (bits & 15) as u8);
        Self {
            number: info as u32,
            from: place(info >> 32),
            to: place(info >> 40),
            instance: (info >> 48) as u32,
        }
    }

    fn bytes(self, len: usize) -> Vec<u8> {
        let seed = self.info().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..len as u64).map(|at| (seed.wrapping_mul(at * 2 + 1) >> 56) as u8).collect()
    }
}

/// The host side of an endpoint.
#[derive(Debug, Default)]
pub struct HostSide {
    /// Receiver and length of each message to send.
    to_send: VecDeque<(Place, usize)>,
    /// Number of messages sent to each receiver.
    numbers: HashMap<Place, u32>,
    peers: HashMap<Place, PeerId>,
    places: HashMap<PeerId, Place>,
    connecting: HashMap<Token, Place>,
    /// Pending operations, and the regions of large messages.
    sent: HashMap<Token, (TestMessage, usize, Option<RegionId>)>,
    pulls: HashMap<Token, (TestMessage, usize, RegionId)>,
    waiting: VecDeque<(TestMessage, usize, Handle, PeerId)>,
    /// Number of restarts.
    instance: u32,
    tokens: u64,
}

/// All host sides of a world, and the fate of each message.
#[derive(Debug, Default)]
pub struct HostSides {
    /// Ordered, so that a seed reproduces its world.
    pub all: BTreeMap<Place, HostSide>,
    /// Received messages, by receiver and its restarts.
    pub received: HashMap<(Place, u32), Vec<TestMessage>>,
    pub ended: HashMap<TestMessage, Status>,
    seen: HashSet<(Place, u32, TestMessage)>,
    /// Peers may crash.
    pub crashes: bool,
    /// Headers may be damaged, which can change the number and match information of a packet.
    pub damaged_headers: bool,
    /// Messages received twice.
    doubles: u64,
    /// Number of sent messages.
    pub count: usize,
}

/// Maximum length of a message that is pulled if lengths may be damaged.
const LEN_MAX: u32 = 1 << 20;
/// Maximum number of regions of a host side.
const REGIONS: usize = 64;

impl HostSides {
    pub fn open(&mut self, world: &mut World, places: &[Place]) {
        for place in places {
            let (board, endpoint) = *place;
            world.nics[board].open(endpoint, KEY, &mut world.sides[board]).unwrap();
            self.all.insert(*place, HostSide::default());
        }
    }

    /// Schedules messages of these lengths between all pairs.
    pub fn plan(&mut self, lens: &[usize]) {
        let places: Vec<_> = self.all.keys().copied().collect();
        for (from, host_side) in &mut self.all {
            for len in lens {
                let others = places.iter().filter(|to| *to != from);
                host_side.to_send.extend(others.map(|to| (*to, *len)));
            }
        }
    }

    /// Crashes the host sides of a NIC. New ones take over the unsent messages.
    pub fn crash(&mut self, world: &mut World, board: usize) {
        world.crash(board);
        let places: Vec<_> = self.all.keys().copied().collect();
        for place in places.into_iter().filter(|place| place.0 == board) {
            world.nics[board].open(place.1, KEY, &mut world.sides[board]).unwrap();
            let old = self.all.remove(&place).unwrap();
            let instance = old.instance + 1;
            let new = HostSide { to_send: old.to_send, instance, ..HostSide::default() };
            self.all.insert(place, new);
        }
    }

    /// Disconnects a peer of a host side, and ends its operations.
    pub fn disconnect(&mut self, world: &mut World, place: Place, other: Place) {
        let host_side = self.all.get_mut(&place).unwrap();
        if let Some(peer) = host_side.peers.remove(&other) {
            let disconnect = Request::Disconnect { peer };
            assert_eq!(world.request(place.0, place.1, &disconnect), Admission::Yes);
        }
    }

    /// Returns whether no operation is pending and no message unsent.
    pub fn is_idle(&self) -> bool {
        self.all.values().all(|host_side| {
            host_side.to_send.is_empty()
                && host_side.sent.is_empty()
                && host_side.pulls.is_empty()
                && host_side.waiting.is_empty()
        })
    }

    /// Lets each host side process its events and act.
    pub fn run_host_sides(&mut self, world: &mut World) {
        self.read_events(world);
        let places: Vec<_> = self.all.keys().copied().collect();
        for place in places {
            self.act(world, place);
        }
    }

    /// Lets each host side process its events.
    pub fn read_events(&mut self, world: &mut World) {
        for board in 0..world.nics.len() {
            for (endpoint, told) in world.told(board) {
                self.receive_frame(world, (board, endpoint), told);
            }
        }
    }

    fn act(&mut self, world: &mut World, place: Place) {
        let (board, endpoint) = place;
        let host_side = self.all.get_mut(&place).unwrap();
        for _ in 0..host_side.waiting.len() {
            let (message, len, handle, peer) = host_side.waiting.pop_front().unwrap();
            let room = host_side.pulls.len() < REGIONS;
            // At an offset in the region, to distinguish windows from regions.
            let into = room.then(|| world.region(board, endpoint, vec![0xee; len + 13])).flatten();
            let Some(region) = into else {
                host_side.waiting.push_back((message, len, handle, peer));
                continue;
            };
            host_side.tokens += 1;
            let token = Token(host_side.tokens);
            host_side.pulls.insert(token, (message, len, region));
            let into = Window { region, offset: 13, len: len as u32 };
            let pull = Request::Pull { handle, token, into };
            assert_eq!(world.request(board, endpoint, &pull), Admission::Yes);
        }
        while let Some((to, len)) = host_side.to_send.front().copied() {
            let Some(peer) = host_side.peers.get(&to).copied() else {
                host_side.connect(world, place, to);
                return;
            };
            let number = host_side.numbers.get(&to).copied().unwrap_or(0);
            let message = TestMessage { from: place, to, number, instance: host_side.instance };
            let token = Token(host_side.tokens + 1);
            let match_info = message.info();
            let (taken, region) = if len <= MEDIUM_BYTES_MAX && len % 5 != 4 {
                let data = message.bytes(len);
                let eager = Request::Eager { peer, token, match_info, data: &data };
                (world.request(board, endpoint, &eager), None)
            } else {
                let large = host_side.sent.values().filter(|sent| sent.2.is_some()).count();
                if large >= REGIONS {
                    return;
                }
                let bytes = [vec![0; 7], message.bytes(len)].concat();
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
            host_side.tokens += 1;
            host_side.numbers.insert(to, number + 1);
            host_side.sent.insert(token, (message, len, region));
            host_side.to_send.pop_front();
            self.count += 1;
        }
    }

    fn receive_frame(&mut self, world: &mut World, place: Place, told: RecordedEvent) {
        let (board, endpoint) = place;
        let Some(host_side) = self.all.get_mut(&place) else { return };
        let event = match told {
            RecordedEvent::Message { peer, match_info, data } => {
                return self.receive_message(world, place, PeerId(peer), match_info, &data);
            }
            RecordedEvent::Event(event) => event,
        };
        match event {
            Event::Connected { token, status, peer } => {
                let to = host_side.connecting.remove(&token).expect("a connect that was made");
                if status == Status::Success {
                    assert_eq!(host_side.places[&peer], to, "the peer was introduced before");
                    host_side.peers.insert(to, peer);
                } else {
                    assert!(self.crashes, "a connect ended with {status:?}");
                    assert_eq!(peer, PeerId::NONE);
                }
            }
            Event::PeerSeen { peer, address, .. } => {
                let from = ((address.nic.0 & 0xff) as usize - 1, address.endpoint);
                assert_eq!(host_side.places.insert(peer, from), None, "the address is in use");
                host_side.peers.insert(from, peer);
            }
            Event::Offered { peer, match_info, len, handle } => {
                let message = TestMessage::of(match_info);
                let most = if self.damaged_headers { LEN_MAX } else { u32::MAX };
                host_side.waiting.push_back((message, len.min(most) as usize, handle, peer));
                if !self.damaged_headers {
                    assert_eq!(host_side.places[&peer], message.from, "the peer is another one");
                    self.arrived(place, message);
                }
            }
            Event::Sent { token, status, taken } => {
                let (message, len, region) = host_side.sent.remove(&token).expect("sent, once");
                if status == Status::Success {
                    assert!(taken as usize == len || self.damaged_headers, "{message:?}");
                } else {
                    assert!(self.crashes, "{message:?} ended with {status:?}");
                }
                assert_eq!(self.ended.insert(message, status), None, "{message:?} ended twice");
                if let Some(region) = region {
                    world.unregister(board, endpoint, region);
                }
            }
            Event::Pulled { token, status } => self.receive_pulled(world, place, token, status),
            Event::PeerGone { peer, status } => {
                assert!(self.crashes, "gone: {status:?}");
                let from = host_side.places.remove(&peer).expect("it was seen");
                if host_side.peers.get(&from) == Some(&peer) {
                    host_side.peers.remove(&from);
                }
                host_side.waiting.retain(|waiting| waiting.3 != peer);
                assert_eq!(
                    world.request(board, endpoint, &Request::Forget { peer }),
                    Admission::Yes
                );
            }
            Event::Message { .. } => unreachable!(),
        }
    }

    fn receive_message(
        &mut self,
        world: &mut World,
        place: Place,
        peer: PeerId,
        match_info: u64,
        data: &[u8],
    ) {
        let message = TestMessage::of(match_info);
        let same = data == message.bytes(data.len());
        if self.damaged_headers {
            return self.arrived_somehow(world, place, message, same && data.len() >= 16);
        }
        assert_eq!(self.all[&place].places[&peer], message.from, "the peer is another one");
        assert!(same, "{message:?}: other bytes");
        self.arrived(place, message);
    }

    /// Takes the end of a pull.
    fn receive_pulled(&mut self, world: &mut World, place: Place, token: Token, status: Status) {
        let Some(host_side) = self.all.get_mut(&place) else { return };
        let (message, len, region) = host_side.pulls.remove(&token).expect("pulled, once");
        let bytes = world.unregister(place.0, place.1, region).unwrap();
        if status != Status::Success {
            assert!(self.crashes, "{message:?} was pulled with {status:?}");
            return;
        }
        assert!(bytes[..13] == [0xee; 13], "the bytes before the window are unchanged");
        let same = bytes[13..] == message.bytes(len);
        assert!(same || self.damaged_headers, "{message:?}: other bytes");
        if self.damaged_headers {
            self.arrived_somehow(world, place, message, same && len >= 16);
        }
    }

    fn arrived(&mut self, place: Place, message: TestMessage) {
        let instance = self.all[&place].instance;
        assert_eq!(message.to, place);
        assert!(self.seen.insert((place, instance, message)), "{message:?} received twice");
        self.received.entry((place, instance)).or_default().push(message);
    }

    /// Records a message that may be damaged. An undamaged message must arrive at its receiver, and
    /// only once, unless its sequence number was damaged.
    fn arrived_somehow(&mut self, world: &World, place: Place, message: TestMessage, same: bool) {
        if !same {
            return;
        }
        assert_eq!(message.to, place, "the receiver is another one");
        let instance = self.all[&place].instance;
        self.doubles += u64::from(!self.seen.insert((place, instance, message)));
        assert!(self.doubles <= world.damaged_headers, "{message:?} received twice");
    }

    /// Checks the order for each instance of a sender; without crashes also completeness and
    /// success.
    pub fn check(&self) {
        if self.damaged_headers {
            return;
        }
        for letters in self.received.values() {
            let mut last: HashMap<(Place, u32), u32> = HashMap::new();
            for message in letters {
                let next = last.get(&(message.from, message.instance)).map_or(0, |last| last + 1);
                if self.crashes {
                    assert!(message.number >= next, "{message:?} received late");
                } else {
                    assert_eq!(message.number, next, "sender {:?}", message.from);
                }
                last.insert((message.from, message.instance), message.number);
            }
        }
        let received = self.received.values().map(Vec::len).sum::<usize>();
        if self.crashes {
            // Successful messages were received.
            let all: HashSet<_> = self.received.values().flatten().collect();
            for (message, status) in &self.ended {
                assert!(*status != Status::Success || all.contains(message), "{message:?} is lost");
            }
        } else {
            assert_eq!((received, self.ended.len()), (self.count, self.count));
        }
    }

    /// Checks that all pairs can exchange messages, at the latest after necessary restarts.
    pub fn exchange_all(&mut self, world: &mut World, limit_ns: u64) {
        const LEN: usize = 20;
        const ROUNDS: usize = 2;
        let pairs = self.all.len() * (self.all.len() - 1);
        for round in 1..=ROUNDS {
            let before: HashSet<TestMessage> = self.ended.keys().copied().collect();
            self.plan(&[LEN]);
            self.finish(world, limit_ns);
            self.check();
            let said = self.ended.iter().filter(|(message, _)| !before.contains(message));
            let said: Vec<(TestMessage, Status)> =
                said.map(|(message, status)| (*message, *status)).collect();
            assert_eq!(said.len(), pairs);
            let lost = said.iter().filter(|(message, status)| {
                let instance = self.all[&message.to].instance;
                let received = self.seen.contains(&(message.to, instance, *message));
                assert!(
                    received || *status != Status::Success,
                    "{message:?} was lost without a word"
                );
                !received
            });
            let lost: Vec<_> = lost.collect();
            if lost.is_empty() {
                return;
            }
            assert!(round < ROUNDS, "not heard: {lost:?}");
        }
    }

    /// Returns the pending operations.
    fn left(&self) -> String {
        let left = |(place, host_side): (&Place, &HostSide)| {
            let HostSide { to_send, sent, pulls, waiting, connecting, .. } = host_side;
            let sent: Vec<_> = sent.values().take(4).collect();
            let counts = (to_send.len(), pulls.len(), waiting.len(), connecting.len());
            format!("{place:?}: {counts:?}, {sent:?}")
        };
        self.all.iter().map(left).collect::<Vec<_>>().join("; ")
    }

    /// Runs until all operations have ended.
    pub fn finish(&mut self, world: &mut World, limit_ns: u64) {
        let end = world.now + limit_ns;
        loop {
            self.run_host_sides(world);
            if self.is_idle() && world.sides.iter().all(|side| side.told.is_empty()) {
                return;
            }
            assert!(world.now < end, "not done in time: {}", self.left());
            world.step(world.now + 10 * MS);
        }
    }
}

impl HostSide {
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
