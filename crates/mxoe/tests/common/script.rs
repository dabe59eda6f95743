//! One NIC, and a peer that says what the test says: frames by their bytes.

use causeway_mxoe::{Admission, Config, Dropped, Nic};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token};
use causeway_wire::mxoe::{Answer, Connect, Ends, Greeting, Header, Packet, emit, parse};

use super::{Side, Told, address, nic};

/// The endpoints of both, and what they were opened with.
pub const OURS: u8 = 3;
pub const THEIRS: u8 = 4;
pub const KEY: u32 = 0x1122_3344;
pub const THEIR_SESSION: u32 = 0x5555_6666;
/// What the peer calls us in its table.
pub const THEIR_INDEX: u16 = 0x0102;

pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Ends of packets that the peer sends.
pub const TO_US: Ends = Ends { destination: OURS, source: THEIRS };

/// See above.
pub struct Script {
    pub board: Nic,
    pub side: Side,
    pub now: u64,
    pub session: u32,
}

impl Script {
    /// A NIC with one endpoint, which knows the peer and its own MAC.
    pub fn new() -> Self {
        Self::of(Config::new(nic(0), "host:0"))
    }

    fn of(config: Config) -> Self {
        let (mut board, mut side) = (Nic::new(config), Side::new(7));
        for known in 0..3 {
            board.host_add(nic(known)).unwrap();
        }
        let session = board.open(OURS, KEY, &mut side).unwrap();
        Self { board, side, now: 1_000_000_000, session }
    }

    /// A frame comes.
    pub fn hear(&mut self, frame: &[u8]) -> Result<(), Dropped> {
        self.board.receive(self.now, frame, &mut self.side)
    }

    /// A packet of the peer's comes.
    pub fn say(&mut self, packet: &Packet<'_>) -> Result<(), Dropped> {
        self.say_from(THEIR_MAC, packet)
    }

    /// A packet of another MAC's comes.
    pub fn say_from(&mut self, source: [u8; 6], packet: &Packet<'_>) -> Result<(), Dropped> {
        let header = Header { destination: OUR_MAC, source, peer_index: 1 };
        let (head, data) = emit(&header, packet);
        self.hear(&[head.bytes(), data].concat())
    }

    pub fn ask(&mut self, request: &Request<'_>) -> Admission {
        self.board.request(self.now, OURS, request, &mut self.side)
    }

    /// Time passes, and what is due is done.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(due) = self.board.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.board.tick(self.now, &mut self.side);
        }
        self.now = end;
    }

    /// What was sent since.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.side.frames)
    }

    /// What was told since.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.side.told).into_iter().map(|(_, told)| told).collect()
    }

    /// The peer asks to connect.
    pub fn request(
        &mut self,
        number: u8,
        session: u32,
        expected: u16,
        key: u32,
    ) -> Packet<'static> {
        Packet::Connect(Connect {
            ends: TO_US,
            index_of_destination: THEIR_INDEX,
            session,
            expected,
            number,
            greeting: Greeting::Request { key },
        })
    }

    /// Both are connected: we asked.
    pub fn connected() -> (Self, PeerId) {
        Self::new().connect()
    }

    /// The same, and the peer may say nothing for long.
    pub fn connected_to_silent() -> (Self, PeerId) {
        Self::of(Config { silent: true, ..Config::new(nic(0), "host:0") }).connect()
    }

    /// The same, on a network that carries two frames in one.
    pub fn connected_wide() -> (Self, PeerId) {
        Self::of(Config { wide: true, ..Config::new(nic(0), "host:0") }).connect()
    }

    fn connect(self) -> (Self, PeerId) {
        let mut script = self;
        let to = address(1, THEIRS);
        let connect = Request::Connect { token: Token(1), to, key: 9, timeout_ns: None };
        assert_eq!(script.ask(&connect), Admission::Yes);
        script.reply(1, 1);
        let told = script.told();
        let Some(Told::Event(Event::Connected { status: Status::Success, peer, .. })) = told.last()
        else {
            panic!("{told:?}");
        };
        let peer = *peer;
        script.sent();
        (script, peer)
    }

    /// The peer answers a request to connect.
    pub fn reply(&mut self, number: u8, expected: u16) {
        let answer = Answer::SUCCESS;
        let reply = Connect {
            ends: TO_US,
            index_of_destination: THEIR_INDEX,
            session: self.session,
            expected,
            number,
            greeting: Greeting::Reply { session: THEIR_SESSION, answer },
        };
        self.say(&Packet::Connect(reply)).unwrap();
    }
}

/// A frame of ours to the peer, with these values at these offsets of its body, else zero.
pub fn golden(body_len: usize, at: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = vec![0; (16 + body_len).max(60)];
    frame[..6].copy_from_slice(&THEIR_MAC);
    frame[6..12].copy_from_slice(&OUR_MAC);
    frame[12..14].copy_from_slice(&[0x86, 0xdf]);
    frame[14..16].copy_from_slice(&THEIR_INDEX.to_be_bytes());
    for (offset, value) in at {
        frame[16 + offset..16 + offset + value.len()].copy_from_slice(value);
    }
    frame
}

/// A frame of the peer's to us, likewise.
pub fn theirs(body_len: usize, at: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = golden(body_len, at);
    frame[..6].copy_from_slice(&OUR_MAC);
    frame[6..12].copy_from_slice(&THEIR_MAC);
    frame[14..16].copy_from_slice(&[0, 1]);
    frame
}

/// The packets in frames of ours.
pub fn packets(frames: &[Vec<u8>]) -> Vec<Packet<'_>> {
    frames.iter().map(|frame| parse(frame).unwrap().1).collect()
}
