//! Causeway tunnel datagrams, from an unknown sender and from a peer with the correct key; VXLAN
//! headers; and frames on a byte stream, compared with a simple model. Targets `tunnel`, `roce`,
//! `vxlan` and `stream`. Time and datagrams are simulated in the thread of the target. Fragments
//! must arrive at their offsets, reassembly and tables keep to their limits, and received datagrams
//! cause a bounded number of others.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use causeway_link::limits::{
    ADDRESSES_MAX, FRAGMENTED_BYTES_MAX, FRAGMENTED_FRAMES_MAX, FRAME_BYTES_MAX, STREAM_BYTES,
};
use causeway_link::{Clock, EventKind, Sink, TunnelConfig, TunnelSet};
use causeway_model::keys::{PrivateKey, PublicKey};
use causeway_wire::deframer::Deframer;
use causeway_wire::tunnel::record::{self, Fragment};
use causeway_wire::tunnel::{DatagramKind, Inner, Outer};
use causeway_wire::vnet_stream::VnetHeader;
use causeway_wire::{roce, vnet_stream, vxlan};

use crate::Input;

const VNI: u32 = 7;
const MS: u64 = 1_000_000;

/// Two tunnel sets and the datagrams between them.
struct Stage {
    tunnel_sets: [TunnelSet; 2],
    sink: Sink,
    now: u64,
    random: u8,
    /// Number of datagrams that the tunnel sets sent.
    given: usize,
}

/// The keys of both hosts, generated once because key generation dominates the time of a short
/// scenario.
fn keys() -> &'static [(Arc<PrivateKey>, PublicKey); 2] {
    static KEYS: OnceLock<[(Arc<PrivateKey>, PublicKey); 2]> = OnceLock::new();
    KEYS.get_or_init(|| {
        [1, 2].map(|byte| {
            let key = PrivateKey::new([byte; 32]);
            let public = key.public();
            (Arc::new(key), public)
        })
    })
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7000))
}

impl Stage {
    fn new(plain: bool) -> Self {
        let (mut random, now) = (0_u8, 5_000 * MS);
        let mut entropy = |bytes: &mut [u8]| {
            random = random.wrapping_add(1);
            bytes.fill(random);
        };
        let mut moment = Clock { now, wall: now, random: &mut entropy };
        let mut sink = Sink::default();
        let tunnel_sets = [0, 1].map(|own| {
            let mut tunnel_set = TunnelSet::new(Some(Arc::clone(&keys()[own].0)), &mut moment);
            let peer = (Arc::clone(&keys()[own].0), keys()[1 - own].1);
            let config = TunnelConfig {
                keys: (!plain).then_some(peer),
                // Only the first host initiates, to avoid a redundant handshake.
                remote: (plain || own == 0).then(|| address(1 - own)),
                longest: 1_472,
                on_demand: None,
            };
            let number = tunnel_set.add(&config, &moment).expect("the first tunnel");
            assert!(tunnel_set.tunnel_mut(number).expect("a tunnel").carry(VNI, &mut sink));
            tunnel_set
        });
        Self { tunnel_sets, sink, now, random, given: 0 }
    }

    /// Calls `with` for a tunnel set at the current time, and delivers its datagrams if requested.
    fn at(
        &mut self,
        host: usize,
        pass: bool,
        with: impl FnOnce(&mut TunnelSet, &mut Clock<'_>, &mut Sink),
    ) {
        let Self { now, random, sink, tunnel_sets, .. } = self;
        let mut entropy = |bytes: &mut [u8]| {
            *random = random.wrapping_add(1);
            bytes.fill(*random);
        };
        let mut moment = Clock { now: *now, wall: *now, random: &mut entropy };
        with(&mut tunnel_sets[host], &mut moment, sink);
        let letters = std::mem::take(&mut self.sink.datagrams);
        self.given += letters.len();
        for (to, bytes) in letters {
            assert!(!bytes.is_empty() && bytes.len() <= 1_472);
            if pass && to == address(1 - host) {
                self.receive(1 - host, address(host), &bytes, true);
            }
        }
    }

    fn receive(&mut self, host: usize, from: SocketAddr, bytes: &[u8], pass: bool) {
        self.at(host, pass, |tunnel_set, moment, sink| {
            let _ = tunnel_set.receive(moment, from, bytes, sink);
        });
        let Self { tunnel_sets, sink, now, .. } = self;
        for frame in &sink.frames {
            assert_eq!(frame.vni, VNI);
            assert!(frame.at.len() <= FRAME_BYTES_MAX);
            assert_eq!(sink.frame(frame).len(), frame.at.len());
            check_origin(sink.frame(frame));
        }
        for event in sink.events.drain(..) {
            if let EventKind::Here { vni, .. } | EventKind::Gone { vni, .. } = event.kind {
                assert_eq!(vni, VNI);
            }
        }
        sink.clear();
        let state = tunnel_sets[host].tunnel(0).expect("a tunnel").state(*now);
        let (frames, held) = state.fragments;
        assert!(frames <= FRAGMENTED_FRAMES_MAX && held <= FRAGMENTED_BYTES_MAX);
        assert!(state.addresses.1 <= ADDRESSES_MAX);
        assert!((1_232..=1_472).contains(&state.datagram));
    }

    fn tick(&mut self, host: usize, pass: bool) {
        self.at(host, pass, |tunnel_set, moment, sink| {
            tunnel_set.tick(moment, sink);
            assert!(tunnel_set.deadline() > moment.now, "timer is due without end");
        });
        self.sink.clear();
    }

    /// Runs the timers of both hosts and delivers their datagrams.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.now += MS;
            self.tick(0, true);
            self.tick(1, true);
        }
    }
}

/// Splits the payload of a UDP datagram of RoCE: headers that are read are written as they were,
/// but for reserved bits.
pub fn roce(data: &[u8]) {
    let Ok(packet) = roce::packet(data) else { return };
    let (bytes, len) = packet.headers.emit();
    assert_eq!(roce::Headers::parse(&bytes[..len]), Ok((packet.headers, len)));
    let padding = usize::from(packet.headers.base.padding);
    assert_eq!(len + packet.payload.len() + padding + roce::CRC_LEN, data.len());
    let base = bytes.first_chunk().expect("a base header");
    roce::invariant_crc(&data[..data.len().min(60)], &[0; 8], base, &[packet.payload]);
}

/// Returns a packet of each opcode.
pub fn roce_seeds() -> Vec<Vec<u8>> {
    let opcodes = (0..=u8::MAX).filter_map(roce::Opcode::from_raw);
    let packet = |opcode| {
        let base = roce::BaseHeader { padding: 1, ..roce::BaseHeader::new(opcode, 7, 9) };
        let (bytes, len) = roce::Headers::new(base).emit();
        [&bytes[..len], &[5; 16]].concat()
    };
    opcodes.map(packet).collect()
}

/// Returns the byte at `offset` of frame `id`, which the peer sends in fragments.
fn byte_of(id: u32, offset: usize, word: u8) -> u8 {
    ((id as usize * 64 + offset % 8 * 8) as u8) | word & 7
}

/// Checks that a frame consists of fragments of one frame, each at its offset; every fragmented
/// frame in a scenario has the same size.
fn check_origin(frame: &[u8]) {
    if frame.len() != PIECED {
        return;
    }
    for (at, byte) in frame.iter().enumerate() {
        assert_eq!(byte / 8 % 8, (at % 8) as u8, "byte {at} is at the wrong offset");
        assert_eq!(byte / 64, frame[0] / 64, "byte {at} belongs to another frame");
    }
}

/// The length of fragmented frames.
const PIECED: usize = 160;

fn record_of(kind: u8, bare: bool, hops: u8, body: &[u8]) -> Vec<u8> {
    let header = record::Header { kind, bare, hops, len: body.len() as u16 };
    [&header.emit()[..], body].concat()
}

/// Builds records that a peer could send, usually well-formed.
fn records(input: &mut Input<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..=input.below(6) {
        let piece = match input.below(8) {
            0 => {
                let len = input.below(100);
                record_of(record::FRAME, input.bool(), input.u8(), &vec![9; len])
            }
            1..=3 => {
                let (id, word) = (u32::from(input.u8() & 3), input.u8());
                let offset = usize::from(input.u8()) % PIECED;
                let len = if input.bool() { 32 } else { input.below(PIECED) };
                let offset = if input.bool() { offset / 32 * 32 } else { offset };
                let total = if word & 0xf0 == 0xf0 { input.u32() } else { PIECED as u32 };
                let bytes: Vec<_> = (offset..(offset + len).min(PIECED))
                    .map(|at| byte_of(id, at, word & 1))
                    .collect();
                let fragment = Fragment { id, offset: offset as u32, total }.emit();
                record_of(record::FRAGMENT, true, 0, &[&fragment[..], &bytes].concat())
            }
            4 => record_of(record::ECHO, false, 0, &input.array::<{ record::ECHO_LEN }>()),
            5 => {
                let mut body = input.array::<{ record::ECHO_REPLY_LEN }>();
                if input.bool() {
                    // A plausible time, and a plausible probe length.
                    body[..8]
                        .copy_from_slice(&(5_000 * MS + u64::from(input.u8()) * MS).to_be_bytes());
                    body[8..].copy_from_slice(
                        &input.one_of(&[0_u32, 1_232, 1_472, 9_000]).to_be_bytes(),
                    );
                }
                record_of(record::ECHO_REPLY, false, 0, &body)
            }
            6 => {
                let kind = input.one_of(&[record::HERE, record::GONE, record::SYNC]);
                let len = record::ENTRY_LEN * input.below(4);
                record_of(kind, false, 0, input.bytes(len))
            }
            _ => {
                let len = input.below(40);
                input.bytes(len).to_vec()
            }
        };
        text.extend(piece);
    }
    text
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let shape = input.u8();
    let (plain, fresh) = (shape & 7 != 0, shape & 8 != 0);
    let mut stage = Stage::new(plain);
    if !fresh {
        stage.settle();
        assert!(
            stage
                .tunnel_sets
                .iter()
                .all(|tunnel_set| tunnel_set.tunnel(0).is_some_and(|tunnel| tunnel.is_up()))
        );
    }
    let mut most = stage.given;
    while !input.is_empty() {
        let what = input.u8();
        let from = if what & 0x40 == 0 { address(0) } else { address(5) };
        let bytes = match what & 7 {
            0 => {
                stage.now += u64::from(input.u16()) * MS;
                stage.tick(1, what & 8 != 0);
                most += 64;
                continue;
            }
            1 => {
                let len = usize::from(input.u8());
                input.bytes(len).to_vec()
            }
            2 => {
                let kind = input.one_of(&[
                    DatagramKind::Init,
                    DatagramKind::Response,
                    DatagramKind::Data,
                    DatagramKind::Plain,
                    DatagramKind::Cookie,
                ]);
                let header = Outer { kind, receiver: input.u32(), counter: u64::from(input.u8()) };
                let len = input.one_of(&[0, 16, 32, 52, 124, 200]);
                [&header.emit()[..], input.bytes(len)].concat()
            }
            _ => {
                let vni = if what & 0x80 == 0 { VNI } else { input.u32() };
                let text = [&Inner { vni, flags: 0 }.emit()[..], &records(&mut input)].concat();
                let Some(path) =
                    stage.tunnel_sets[0].tunnel(0).and_then(|tunnel| tunnel.tx_path().path())
                else {
                    continue;
                };
                let mut bytes = Vec::new();
                path.session.seal(&text, &mut bytes).expect("a short frame");
                bytes
            }
        };
        stage.receive(1, from, &bytes, false);
        most += 2;
        assert!(stage.given <= most, "more datagrams sent than allowed for those received");
    }
    // No incomplete frame is kept after its timeout.
    stage.now += 2_000 * MS;
    stage.tick(1, false);
    let state = stage.tunnel_sets[1].tunnel(0).expect("a tunnel").state(stage.now);
    assert_eq!(state.fragments, (0, 0));
}

/// Returns scenarios that reach every record.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = vec![vec![0, 1, 40, 0xc1, 3], vec![8, 2, 0, 0, 0, 0, 0, 0, 4], vec![9]];
    // Mostly without encryption: handshakes are slow, and the records after a handshake are the
    // same.
    for (shape, kinds) in [(0_u8, 1), (1, 8)] {
        for kind in 0..kinds {
            let mut scenario = vec![shape];
            for round in 0..4_u8 {
                scenario.extend([3, 0, kind, round, 1, round * 32, 1, 1, 0, 0, 0, 0]);
            }
            scenario.extend([8, 2, 0, 1, 3, 1, 2, 3, 4]);
            all.push(scenario);
        }
        // All fragments of a frame.
        let mut scenario = vec![shape];
        for piece in 0..5_u8 {
            scenario.extend([3, 0, 1, 2, 0, piece * 32, 1, 1]);
        }
        all.push(scenario);
    }
    all
}

/// Decodes a VXLAN packet: an accepted packet encodes to the same bytes, except for reserved bits.
pub fn vxlan(data: &[u8]) {
    match vxlan::parse(data) {
        Ok((vni, frame)) => {
            assert!(vni <= vxlan::VNI_MAX && data[0] & 8 != 0);
            let again = [&vxlan::emit(vni)[..], frame].concat();
            assert_eq!(vxlan::parse(&again), Ok((vni, frame)));
            assert_eq!((&again[4..7], &again[8..]), (&data[4..7], &data[8..]));
        }
        Err(_) => assert!(data.len() < vxlan::HEADER_LEN || data[0] & 8 == 0),
    }
}

/// Returns valid and invalid packets.
pub fn vxlan_seeds() -> Vec<Vec<u8>> {
    let good = [&vxlan::emit(0x00ab_cdef)[..], &[2; 60]].concat();
    vec![good.clone(), good[..7].to_vec(), vec![0; 20]]
}

/// Reads a stream in pieces: the frames are those that a simple parser finds in the whole stream.
pub fn stream(data: &[u8]) {
    let mut input = Input::new(data);
    let cuts = input.array::<4>().map(|cut| usize::from(cut) + 1);
    let mut whole = Vec::new();
    while !input.is_empty() {
        match input.below(4) {
            0 => {
                let len = input.below(30);
                whole.extend(input.bytes(len));
            }
            _ => {
                let len = usize::from(input.u16());
                let len = if input.bool() { len % 100 } else { len };
                whole.extend(vnet_stream::emit(len).expect("a short frame"));
                whole.extend(std::iter::repeat_n(len as u8, len));
            }
        }
    }
    let mut expected = Vec::new();
    let mut rest = &whole[..];
    let broken = loop {
        if rest.is_empty() || (rest.len() < 6 && b"et".starts_with(&rest[..rest.len().min(2)])) {
            break false;
        }
        let announced =
            rest.get(2..6).map(|len| u32::from_le_bytes(len.try_into().expect("four")) as usize);
        let right = announced.is_some_and(|len| (14..=FRAME_BYTES_MAX).contains(&len));
        if !rest.starts_with(b"et") || !right {
            break true;
        }
        let Some((frame, behind)) = announced.and_then(|len| rest[6..].split_at_checked(len))
        else {
            break false;
        };
        expected.push(frame);
        rest = behind;
    };
    let mut deframer = Deframer::<VnetHeader>::new(STREAM_BYTES, FRAME_BYTES_MAX);
    let (mut found, mut at, mut failed) = (0, 0, false);
    for cut in cuts.iter().cycle() {
        let room = deframer.room();
        assert!(!room.is_empty());
        let len = (cut * cut).min(whole.len() - at).min(room.len());
        room[..len].copy_from_slice(&whole[at..at + len]);
        deframer.filled(len);
        at += len;
        loop {
            match deframer.take() {
                Ok(Some(frame)) => {
                    assert_eq!(&deframer.bytes()[frame], expected[found]);
                    found += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        if failed || at == whole.len() {
            break;
        }
    }
    assert_eq!((found, failed), (expected.len(), broken));
}

/// Returns streams of short and long frames, and a stream with an invalid header.
pub fn stream_seeds() -> Vec<Vec<u8>> {
    let short = [&[0, 9, 30, 255][..], &[1, 60, 0, 1, 1, 90, 0, 1, 1, 20, 0, 1]].concat();
    let long =
        [&[255, 200, 90, 255][..], &[1, 0xff, 0xff, 0, 1, 15, 0xff, 0, 1, 14, 0, 0]].concat();
    let wrong = [&short[..], &[0, 8, b'G', b'E', b'T', b' ', b'/', 0, 0, 0]].concat();
    vec![short, long, wrong]
}
