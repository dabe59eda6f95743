//! MXoE packets, and two NICs with a network that drops, duplicates, alters and forges frames, and
//! host sides that make arbitrary requests. Targets `mxoe` (packets alone) and `board` (two NICs,
//! at most 200 steps). Every token completes at most once, peers are reported before they are
//! named, tables and pending bytes keep to their limits, and regions are accessed only while they
//! are registered. Sockets and real time are not involved.

use std::collections::{HashMap, HashSet, VecDeque};

use causeway_mxoe::limits::{PARTNERS_MAX, PENDING_BYTES_MAX};
use causeway_mxoe::{Admission, Nic, NicConfig, Outside, RegionFault};
use causeway_wire::mx::{Address, Event, Handle, NicId, PeerId, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{self, Kind, Packet};

use crate::Input;

const MS: u64 = 1_000_000;
/// Frames that are kept for replay.
const REMEMBERED: usize = 32;
/// The maximum number of frames in transit.
const UNDERWAY: usize = 256;
/// Steps of one scenario.
const STEPS: usize = 200;
const KEY: u32 = 5;
const REGION_BYTES: usize = 70_000;

/// Decodes a frame: the frame is refused, or is a packet that encodes to the same bytes.
pub fn packet(data: &[u8]) {
    let mut input = Input::new(data);
    let mut frame = input.array::<17>().to_vec();
    if input.bool() {
        frame[12..14].copy_from_slice(&mxoe::ETHER_TYPE.to_be_bytes());
        frame[16] = input.one_of(&Kind::ALL).number();
    }
    frame.extend_from_slice(input.rest());
    let Ok((header, packet)) = mxoe::parse(&frame) else { return };
    let (head, data) = mxoe::emit(&header, &packet);
    let again = [head.bytes(), data].concat();
    assert!(again.len() >= mxoe::FRAME_LEN_MIN);
    // Raw packets carry no length: Ethernet padding becomes part of the payload.
    if let Packet::Raw(_) = packet {
        return;
    }
    assert_eq!(mxoe::parse(&again), Ok((header, packet)));
    assert!(again.len() <= mxoe::FRAME_LEN_MAX.max(frame.len()));
    if let Packet::Medium(fragment) = packet {
        let (offset, len) = fragment.place.range().expect("a parsed range");
        assert_eq!(len, fragment.eager.data.len());
        assert!(offset + len <= usize::from(fragment.place.message_len));
    }
}

/// Returns each kind of packet.
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let seed = |frame: &Vec<u8>| {
        let (front, rest) = frame.split_at(17);
        [front, &[0], &rest[..rest.len().min(120)]].concat()
    };
    honest_frames().iter().map(seed).collect()
}

/// The environment of a NIC.
#[derive(Default)]
struct Side {
    random: u32,
    frames: Vec<Vec<u8>>,
    /// The number of events for which the host side has room.
    room: usize,
    /// Tokens of requests without a completion.
    open: HashSet<u64>,
    peers: Vec<PeerId>,
    gone: Vec<PeerId>,
    handles: VecDeque<Handle>,
    regions: HashMap<u8, Vec<u8>>,
    broken: bool,
    /// The host side forgot a peer that is still reachable, so peer identities are no longer
    /// checked.
    has_forgotten_peer: bool,
}

impl Side {
    fn check_seen(&self, peer: PeerId) {
        assert!(self.peers.contains(&peer) || self.has_forgotten_peer, "{peer:?} was not reported");
    }

    fn ended(&mut self, token: Token) {
        assert!(self.open.remove(&token.0), "{token:?} completed twice or is unknown");
    }
}

impl Outside for Side {
    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        self.random
    }

    fn frame(&mut self, head: &[u8], data: &[u8]) {
        let frame = [head, data].concat();
        assert!((mxoe::FRAME_LEN_MIN..=mxoe::FRAME_LEN_MAX).contains(&frame.len()));
        assert!(mxoe::parse(&frame).is_ok(), "{frame:02x?}");
        self.frames.push(frame);
    }

    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool {
        assert_eq!(endpoint, 1);
        let Some(room) = self.room.checked_sub(1) else { return false };
        self.room = room;
        match *event {
            Event::Connected { token, .. }
            | Event::Sent { token, .. }
            | Event::Pulled { token, .. } => self.ended(token),
            Event::PeerSeen { peer, .. } => {
                let known = self.peers.contains(&peer) || self.gone.contains(&peer);
                assert!(!known || self.has_forgotten_peer, "{peer:?} was reported twice");
                self.peers.push(peer);
            }
            Event::PeerGone { peer, .. } => {
                self.check_seen(peer);
                self.peers.retain(|other| *other != peer);
                self.gone.push(peer);
            }
            Event::Message { peer, data, .. } => {
                self.check_seen(peer);
                assert!(data.len() <= mxoe::MEDIUM_LEN_MAX);
            }
            Event::Offered { peer, handle, .. } => {
                self.check_seen(peer);
                self.handles.push_back(handle);
            }
        }
        true
    }

    fn read(
        &mut self,
        _endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault> {
        let bytes = &self.regions[&region.0][offset as usize..][..into.len()];
        into.copy_from_slice(bytes);
        if self.broken { Err(RegionFault) } else { Ok(()) }
    }

    fn write(
        &mut self,
        _endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault> {
        let memory = self.regions.get_mut(&region.0).expect("a registered region");
        memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        if self.broken { Err(RegionFault) } else { Ok(()) }
    }
}

fn nic(board: usize) -> NicId {
    NicId(0x0200_0000_0001 + board as u64)
}

/// Two NICs with an endpoint each, and the network between them.
struct Stage {
    boards: [Nic; 2],
    sides: [Side; 2],
    /// Frames in transit, and frames kept for replay.
    underway: VecDeque<(usize, Vec<u8>)>,
    remembered: VecDeque<(usize, Vec<u8>)>,
    now: u64,
    tokens: u64,
}

impl Stage {
    fn new() -> Self {
        let mut sides = [1, 2].map(|random| Side { random, room: 1_000, ..Side::default() });
        let boards = [0, 1].map(|number| {
            let config = NicConfig::new(nic(number), "host:0");
            let config = NicConfig { give_up_ns: 10_000 * MS, wide: true, ..config };
            let mut board = Nic::new(config);
            for other in 0..3 {
                board.nic_add(nic(other)).expect("room for a NIC");
            }
            board.open(1, KEY, &mut sides[number]).expect("a free endpoint");
            board
        });
        let (underway, remembered) = (VecDeque::new(), VecDeque::new());
        Self { boards, sides, underway, remembered, now: 1_000 * MS, tokens: 0 }
    }

    /// Lets a NIC act, collects the frames it sends, and returns their number.
    fn at<T>(
        &mut self,
        board: usize,
        with: impl FnOnce(&mut Nic, u64, &mut Side) -> T,
    ) -> (T, usize) {
        let result = with(&mut self.boards[board], self.now, &mut self.sides[board]);
        let frames = std::mem::take(&mut self.sides[board].frames);
        let count = frames.len();
        for frame in frames {
            if self.remembered.len() >= REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back((1 - board, frame.clone()));
            // Frames without room are lost.
            if self.underway.len() < UNDERWAY {
                self.underway.push_back((1 - board, frame));
            }
        }
        (result, count)
    }

    fn hear(&mut self, board: usize, frame: &[u8]) {
        let (_, sent) = self.at(board, |board, now, side| board.receive(now, frame, side));
        // The frames of a full window, and the retransmits that may follow.
        assert!(sent <= 1_200, "{sent} frames caused by one frame");
    }

    /// Advances time.
    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        for _ in 0..64 {
            let due = |board: usize| self.boards[board].deadline().filter(|due| *due <= end);
            let Some(due) = [due(0), due(1)].into_iter().flatten().min() else { break };
            self.now = self.now.max(due);
            for board in 0..2 {
                self.at(board, |board, now, side| {
                    board.tick(now, side);
                    assert!(
                        board.deadline().is_none_or(|due| due > now),
                        "timer is due without end"
                    );
                });
            }
        }
        self.now = end;
    }

    fn request(&mut self, board: usize, input: &mut Input<'_>) {
        self.tokens += 1;
        let token = Token(self.tokens);
        let side = &mut self.sides[board];
        let peer = match side.peers.len() {
            0 => PeerId(u32::from(input.u8())),
            len => side.peers[input.below(len)],
        };
        let window = Window {
            region: RegionId(input.u8() & 3),
            offset: input.one_of(&[0, 1, 4_095, 69_999, u64::MAX]),
            len: input.one_of(&[0, 1, 4_096, 4_097, 40_000, 69_000, 70_001, u32::MAX]),
        };
        let lens = [0, 1, 8, 32, 33, 128, 129, 4_096, 4_097, 20_000, 32_768, 32_769];
        let bytes = vec![7; input.one_of(&lens)];
        let request = match input.below(9) {
            0 => {
                let endpoint = input.one_of(&[1, 1, 1, 0, 2, 255]);
                let nic = nic(input.one_of(&[1 - board, 1 - board, 2, 4]));
                let timeout_ns = input.bool().then(|| u64::from(input.u8()) * 10 * MS);
                let key = KEY + u32::from(input.u8() == 255);
                let to = Address { nic, endpoint };
                Request::Connect { token, to, key, timeout_ns }
            }
            1 | 2 => Request::Eager { peer, token, match_info: 3, data: &bytes },
            3 => Request::Offer { peer, token, match_info: 4, from: window },
            4 => {
                let handle = side.handles.pop_front().unwrap_or(Handle(input.u32()));
                Request::Pull { handle, token, into: window }
            }
            5 => Request::Cancel { token: Token(u64::from(input.u8())) },
            6 => {
                side.has_forgotten_peer |= side.gone.is_empty();
                Request::Forget { peer: side.gone.pop().unwrap_or(peer) }
            }
            7 => Request::Watch { peer, on: input.bool() },
            _ => Request::Disconnect { peer },
        };
        side.open.insert(token.0);
        let ends = !matches!(
            request,
            Request::Cancel { .. }
                | Request::Forget { .. }
                | Request::Disconnect { .. }
                | Request::Watch { .. }
        );
        let (taken, _) = self.at(board, |board, now, side| board.request(now, 1, &request, side));
        let side = &mut self.sides[board];
        if !ends || taken == Admission::Later {
            assert!(side.open.remove(&token.0), "completion of an unknown token");
            match request {
                Request::Pull { handle, .. } => side.handles.push_front(handle),
                Request::Forget { peer } if taken == Admission::Later => side.gone.push(peer),
                _ => {}
            }
        }
    }

    fn region(&mut self, board: usize, input: &mut Input<'_>) {
        if input.bool() {
            let side = &mut self.sides[board];
            if side.regions.len() < 4
                && let Some(region) = self.boards[board].region_add(1, REGION_BYTES as u64)
            {
                side.regions.insert(region.0, vec![0; REGION_BYTES]);
            }
        } else {
            let region = RegionId(input.u8() & 3);
            self.at(board, |board, now, side| board.region_remove(now, 1, region, side));
            // From now on any access of the NIC to the region is an error.
            self.sides[board].regions.remove(&region.0);
        }
    }

    /// Delivers a forged or altered frame.
    fn forge(&mut self, input: &mut Input<'_>) {
        let (to, mut frame) = match self.remembered.len() {
            0 => (0, vec![0; 60]),
            len => self.remembered[input.below(len)].clone(),
        };
        for _ in 0..input.below(5) {
            let at = input.below(64);
            if let Some(byte) = frame.get_mut(at) {
                *byte = input.u8();
            }
        }
        match input.u8() {
            255 => frame.truncate(input.below(256)),
            254 => frame.extend_from_slice(input.bytes(64)),
            _ => {}
        }
        self.hear(to, &frame);
    }

    /// Closes and reopens an endpoint; the previous host side gets no further events.
    fn reopen(&mut self, board: usize) {
        self.at(board, |board, now, side| board.close(now, 1, side));
        let side = &mut self.sides[board];
        *side = Side { random: side.random, room: 1_000, ..Side::default() };
        self.boards[board].open(1, KEY, side).expect("a closed endpoint");
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let word = input.u8();
        let board = usize::from(word >> 7);
        match word & 15 {
            0..=3 => self.request(board, input),
            4..=7 => {
                // Frames in transit arrive unchanged.
                for _ in 0..=input.below(32) {
                    let Some((to, frame)) = self.underway.pop_front() else { break };
                    self.hear(to, &frame);
                }
            }
            8 => {
                self.underway.pop_front();
            }
            9 => {
                let len = self.underway.len();
                if len > 1 {
                    self.underway.swap(0, input.below(len));
                }
            }
            10 | 11 => self.forge(input),
            12 => self.pass(input.one_of(&[1, 5, 16, 50, 500, 5_000, 20_000]) * MS),
            13 => {
                self.sides[board].room = usize::from(input.u8());
                self.at(board, |board, now, side| board.room(now, 1, side));
            }
            14 => self.region(board, input),
            _ => match input.u8() {
                0..=15 => self.sides[board].broken ^= true,
                16..=31 => {
                    self.at(board, |board, now, side| board.nic_remove(now, nic(2), side));
                }
                32..=47 => self.reopen(board),
                _ => {}
            },
        }
    }

    fn check(&self) {
        for board in &self.boards {
            let partners = board.peer_states(1);
            assert!(partners.len() <= PARTNERS_MAX);
            let pending_bytes: usize = partners.iter().map(|partner| partner.pending_bytes).sum();
            assert!(pending_bytes <= PENDING_BYTES_MAX);
        }
    }
}

/// Runs one input. Each request completes once, a peer is reported before the events that name it,
/// regions are accessed within their length and only while registered, and a frame causes no more
/// frames than the window allows.
pub fn board(data: &[u8]) {
    let mut input = Input::new(data);
    let mut stage = Stage::new();
    input.steps(STEPS, |input| stage.step(input));
    stage.check();
}

/// Frames arrive.
const ARRIVE: [u8; 6] = [4, 31, 4, 31, 4, 31];
/// The first NIC connects to the second, and the connection completes.
const CONNECT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 31, 4, 31, 4];

/// A request: NIC, kind, length of data, and length of the window.
fn request(board: u8, kind: u8, len: u8, large: u8) -> [u8; 7] {
    [board << 7, 0, 0, 0, large, len, kind]
}

/// Returns scenarios in which messages of all kinds arrive.
pub fn board_seeds() -> Vec<Vec<u8>> {
    let begin = [&CONNECT[..], &[31], &ARRIVE].concat();
    let mut eager = begin.clone();
    for len in 0..11 {
        eager.extend(request(0, 1, len, 0));
        eager.extend(ARRIVE);
    }
    let mut large = [&begin[..], &[14, 1, 0x8e, 1]].concat();
    for len in [0, 3, 5] {
        large.extend(request(0, 3, 0, len));
        large.extend(ARRIVE);
        large.extend(request(1, 4, 0, len));
        large.extend(ARRIVE);
        large.extend(ARRIVE);
    }
    let slow = [&begin[..], &[0x8d, 0], &eager[begin.len()..], &[0x8d, 255], &ARRIVE].concat();
    let lossy = [&eager[..], &[8, 12, 4, 8, 12, 4]].concat();
    let forged = [&large[..], &[10, 3, 2, 20, 9, 33, 1, 10, 5, 1, 16, 45]].concat();
    let anew = [&eager[..], &[0x8f, 40], &request(0, 1, 2, 0), &ARRIVE, &large].concat();
    vec![eager, large, slow, lossy, forged, anew]
}

/// Returns the first frame of each kind from the scenarios.
fn honest_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut kinds = HashSet::new();
    for seed in board_seeds() {
        let mut input = Input::new(&seed);
        let mut stage = Stage::new();
        while !input.is_empty() {
            stage.step(&mut input);
            let new = stage.remembered.iter().filter(|(_, frame)| kinds.insert(frame[16]));
            frames.extend(new.map(|(_, frame)| frame.clone()));
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_get_far() {
        let kinds: HashSet<_> = honest_frames().iter().map(|frame| frame[16]).collect();
        for kind in [35, 36, 37, 38, 39, 40, 41, 42, 43, 44] {
            assert!(kinds.contains(&kind), "{kind} of {kinds:?}");
        }
    }
}
