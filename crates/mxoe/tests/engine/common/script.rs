//! A NIC and a scripted peer: the test supplies and checks frames as bytes.

use causeway_mxoe::{Admission, DropReason, Nic, NicConfig};
use causeway_wire::mx::{Event, PeerId, Request, Status, Token};
use causeway_wire::mxoe::{
    Connect, ConnectBody, ConnectStatus, EndpointPair, Header, Packet, emit, parse,
};

use super::{RecordedEvent, TestOutside, address, nic};

/// Endpoints of both sides, and the key.
pub const OURS: u8 = 3;
pub const THEIRS: u8 = 4;
pub const KEY: u32 = 0x1122_3344;
pub const THEIR_SESSION: u32 = 0x5555_6666;
/// Index of the NIC in the peer's table.
pub const THEIR_INDEX: u16 = 0x0102;

pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Addresses in packets of the peer.
pub const TO_US: EndpointPair = EndpointPair { destination: OURS, source: THEIRS };

/// The NIC under test, and the state of the scripted peer.
pub struct Script {
    pub nic: Nic,
    pub side: TestOutside,
    pub now: u64,
    pub session: u32,
}

impl Script {
    /// Creates a NIC with an endpoint, which knows the peer and itself.
    pub fn new() -> Self {
        Self::of(NicConfig::new(nic(0), "host:0"))
    }

    /// As [`Self::new`], with a configuration.
    pub fn of(config: NicConfig) -> Self {
        let (mut own, mut side) = (Nic::new(config), TestOutside::new(7));
        for known in 0..3 {
            own.nic_add(nic(known)).unwrap();
        }
        let session = own.open(OURS, KEY, &mut side).unwrap();
        Self { nic: own, side, now: 1_000_000_000, session }
    }

    /// Receives a frame.
    pub fn receive_frame(&mut self, frame: &[u8]) -> Result<(), DropReason> {
        self.nic.receive(self.now, frame, &mut self.side)
    }

    /// Receives a packet of the peer.
    pub fn deliver(&mut self, packet: &Packet<'_>) -> Result<(), DropReason> {
        self.deliver_from(THEIR_MAC, packet)
    }

    /// Receives a packet from a MAC.
    pub fn deliver_from(&mut self, source: [u8; 6], packet: &Packet<'_>) -> Result<(), DropReason> {
        let header = Header { destination: OUR_MAC, source, peer_index: 1 };
        let (head, data) = emit(&header, packet);
        self.receive_frame(&[head.bytes(), data].concat())
    }

    pub fn ask(&mut self, request: &Request<'_>) -> Admission {
        self.nic.request(self.now, OURS, request, &mut self.side)
    }

    /// Advances the time and runs due timers.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(due) = self.nic.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.nic.tick(self.now, &mut self.side);
        }
        self.now = end;
    }

    /// Returns the frames sent since the last call.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.side.frames)
    }

    /// Returns the events since the last call.
    pub fn told(&mut self) -> Vec<RecordedEvent> {
        std::mem::take(&mut self.side.told).into_iter().map(|(_, told)| told).collect()
    }

    /// Returns a connect request of the peer.
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
            greeting: ConnectBody::Request { key },
        })
    }

    /// Creates a NIC that has connected to the peer.
    pub fn connected() -> (Self, PeerId) {
        Self::new().connect()
    }

    /// As [`Self::connected`], with peers that can be silent.
    pub fn connected_to_silent() -> (Self, PeerId) {
        Self::of(NicConfig { silent: true, ..NicConfig::new(nic(0), "host:0") }).connect()
    }

    /// As [`Self::connected`], with jumbo frames.
    pub fn connected_wide() -> (Self, PeerId) {
        Self::of(NicConfig { wide: true, ..NicConfig::new(nic(0), "host:0") }).connect()
    }

    fn connect(self) -> (Self, PeerId) {
        let mut script = self;
        let to = address(1, THEIRS);
        let connect = Request::Connect { token: Token(1), to, key: 9, timeout_ns: None };
        assert_eq!(script.ask(&connect), Admission::Yes);
        script.reply(1, 1);
        let told = script.told();
        let Some(RecordedEvent::Event(Event::Connected { status: Status::Success, peer, .. })) =
            told.last()
        else {
            panic!("{told:?}");
        };
        let peer = *peer;
        script.sent();
        (script, peer)
    }

    /// Receives the peer's answer to a connect.
    pub fn reply(&mut self, number: u8, expected: u16) {
        let answer = ConnectStatus::SUCCESS;
        let reply = Connect {
            ends: TO_US,
            index_of_destination: THEIR_INDEX,
            session: self.session,
            expected,
            number,
            greeting: ConnectBody::Reply { session: THEIR_SESSION, answer },
        };
        self.deliver(&Packet::Connect(reply)).unwrap();
    }
}

/// Returns a frame to the peer with the given values at offsets of its body, otherwise zero.
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

/// Returns a frame from the peer, with a body as in [`golden`].
pub fn theirs(body_len: usize, at: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = golden(body_len, at);
    frame[..6].copy_from_slice(&OUR_MAC);
    frame[6..12].copy_from_slice(&THEIR_MAC);
    frame[14..16].copy_from_slice(&[0, 1]);
    frame
}

/// Parses frames of the NIC.
pub fn packets(frames: &[Vec<u8>]) -> Vec<Packet<'_>> {
    frames.iter().map(|frame| parse(frame).unwrap().1).collect()
}

/// Returns a connect request.
pub fn connect(ends: EndpointPair, session: u32, number: u8, key: u32) -> Packet<'static> {
    let greeting = ConnectBody::Request { key };
    let index_of_destination = THEIR_INDEX;
    Packet::Connect(Connect { ends, index_of_destination, session, expected: 1, number, greeting })
}
