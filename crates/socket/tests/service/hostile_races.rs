//! A guest rewrites headers, data and descriptors of its packets while they are processed, a
//! hundred thousand packets per case. The checked values are the delivered values: no forged
//! address, no more data than announced, no byte outside the grant; and other guests' traffic
//! continues.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::raw::{self, Raw};
use crate::common::*;
use causeway_attach::native::{ConnectionId, Sockets, VsockPort};
use causeway_memory::{Map, Span};
use causeway_model::PortState;
use causeway_testing::frontend::{SEND_AT, TRANSMIT};
use causeway_testing::numbers::Numbers;
use causeway_wire::vsock::{HEADER_LEN, Header, Op, Type};

/// Packets of the hostile guest in each case.
const RACES: u32 = 100_000;
/// Packets offered at once, each at its own place.
const BATCH: u16 = 32;
const PLACE: u64 = 0x1000;
const DATA: u32 = 1000;
/// Rounds between two exchanges of the other guests.
const EXCHANGES: u32 = 50;
/// Offsets of the fields of a header.
const SRC_CID: u64 = 0;
const DST_CID: u64 = 8;
const SRC_PORT: u64 = 16;
const DST_PORT: u64 = 20;
const LEN: u64 = 24;
const TYPE: u64 = 28;
const OP: u64 = 30;
const FLAGS: u64 = 32;
const BUF_ALLOC: u64 = 36;
const FWD_CNT: u64 = 40;

/// Rewrites memory while packets are processed.
type Scribble = fn(&Map, &mut Numbers);

fn place(numbers: &mut Numbers) -> u64 {
    SEND_AT + PLACE * (numbers.next() % u64::from(BATCH))
}

fn addresses(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers);
    let own: u64 =
        if numbers.once_in(20_000) { numbers.one_of(&[4, 14, 2, 0, u64::MAX]) } else { 3 };
    map.write(at + SRC_CID, &own.to_le_bytes()).unwrap();
    let to: u64 = numbers.one_of(&[4, 4, 4, 14, 2, 3, u64::MAX]);
    map.write(at + DST_CID, &to.to_le_bytes()).unwrap();
    for field in [SRC_PORT, DST_PORT] {
        map.write(at + field, &numbers.one_of(&[1_u32, 1, 1, 2, u32::MAX]).to_le_bytes()).unwrap();
    }
}

fn operations(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers);
    let op =
        numbers.one_of(&[Op::Data, Op::Data, Op::Request, Op::CreditUpdate, Op::CreditRequest]);
    let op = numbers.one_of(&[op.raw(), Op::Data.raw(), Op::Reset.raw(), 0, 99]);
    map.write(at + OP, &op.to_le_bytes()).unwrap();
    map.write(at + TYPE, &numbers.one_of(&[1_u16, 1, 1, 2, 9]).to_le_bytes()).unwrap();
    map.write(at + FLAGS, &numbers.one_of(&[0_u32, 0, 1, 3, u32::MAX]).to_le_bytes()).unwrap();
}

fn lengths(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers) + LEN;
    let len = numbers.one_of(&[DATA, DATA, 0, 1, DATA - 1, 17]);
    let len =
        if numbers.once_in(20_000) { numbers.one_of(&[DATA + 1, 1 << 16, u32::MAX]) } else { len };
    map.write(at, &len.to_le_bytes()).unwrap();
}

fn credit(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers);
    let room = numbers.one_of(&[1_u32 << 18, 1 << 18, 0, 1, u32::MAX]);
    map.write(at + BUF_ALLOC, &room.to_le_bytes()).unwrap();
    let count = if numbers.next().is_multiple_of(512) {
        numbers.one_of(&[1, 1 << 31, u32::MAX])
    } else {
        0
    };
    map.write(at + FWD_CNT, &count.to_le_bytes()).unwrap();
}

fn descriptors(map: &Map, numbers: &mut Numbers) {
    let index = numbers.next() % u64::from(BATCH);
    let rare = numbers.once_in(20_000);
    let addr = if rare { u64::MAX - 3 } else { place(numbers) };
    // Never shorter than header and data while the header is valid.
    let len: u32 = numbers.one_of(&[HEADER_LEN as u32 + DATA, 2000, 4096]);
    let at = TRANSMIT.desc().0 + 16 * index;
    map.write(at, &addr.to_le_bytes()).unwrap();
    map.write(at + 8, &len.to_le_bytes()).unwrap();
}

fn everything(map: &Map, numbers: &mut Numbers) {
    let of = [addresses, operations, lengths, credit, descriptors];
    numbers.one_of::<Scribble>(&of.map(|f| f as Scribble))(map, numbers);
}

/// The hostile guest at CID 3, its peer at 4 driven by hand, and two well-behaved guests.
struct Scene {
    rig: Rig,
    file: File,
    bad: Raw,
    peer: VsockPort,
    pair: [Sockets; 2],
    ids: (ConnectionId, ConnectionId),
    received: u32,
    taken: u32,
    faults: u32,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new();
        let peer = rig.port("red", 4);
        let (mut a, mut b) = (rig.sockets("red", 14), rig.sockets("red", 15));
        let ids = join(&mut a, &mut b, Type::Stream, 1);
        rig.try_add("red", 3).unwrap();
        let file = raw::SIZES.memory();
        let bad = Raw::over(&rig.path("red-3"), file.try_clone().unwrap());
        Self { rig, file, bad, peer, pair: [a, b], ids, received: 0, taken: 0, faults: 0 }
    }

    /// Writes valid packets: a connect first, then data.
    fn write_packets(&self) {
        for n in 0..u64::from(BATCH) {
            let op = if n == 0 { Op::Request } else { Op::Data };
            let len = if n == 0 { 0 } else { DATA };
            let header = packet((3, 1), (4, 1), op, len).emit();
            self.bad.map.write(SEND_AT + PLACE * n, &header).unwrap();
        }
    }

    /// Sends `count` packets from place `first` and waits until they are processed.
    fn send(&mut self, first: u16, count: u16) {
        for n in first..first + count {
            let len = HEADER_LEN as u32 + DATA;
            let span = Span { addr: SEND_AT + PLACE * u64::from(n), len };
            let bad = &mut *self.bad;
            bad.transmit.add(&bad.map, &[span], &[]).unwrap();
        }
        self.bad.transmit.publish().unwrap();
        self.bad.kick();
        let start = Instant::now();
        while self.bad.transmit.outstanding() > 0 {
            while self.bad.transmit.take().unwrap().is_some() {
                self.taken += 1;
            }
            self.refill();
            self.answer();
            if self.bad.client.is_gone() {
                self.reattach();
                return;
            }
            assert!(start.elapsed() < PATIENCE, "packets were never given back");
        }
    }

    /// Posts receive buffers again, so that resets find room.
    fn refill(&mut self) {
        let mut any = false;
        while self.bad.receive.take().unwrap().is_some() {
            let span = [raw::data_at(100)];
            let bad = &mut *self.bad;
            bad.receive.add(&bad.map, &[], &span).unwrap();
            any = true;
        }
        if any {
            self.bad.receive.publish().unwrap();
            self.bad.kick_all();
        }
    }

    /// Accepts each connect and receives each packet at the peer.
    fn answer(&mut self) {
        let mut data = Vec::new();
        while let Some(header) = self.peer.receive(&mut data).unwrap() {
            self.received += 1;
            self.check(&header, &data);
            if header.operation() == Some(Op::Request) {
                let mut response =
                    packet((4, header.dst_port), (3, header.src_port), Op::Response, 0);
                response.kind = header.kind;
                let _ = self.peer.queue(&response, &[]).unwrap();
            }
        }
        self.peer.flush().unwrap();
    }

    /// Checks the invariants of each packet of the hostile guest.
    fn check(&self, header: &Header, data: &[u8]) {
        assert_eq!((header.src_cid, header.dst_cid), (3, 4), "{header:?}");
        let op = header.operation().expect("an operation");
        assert!(header.socket_type().is_some(), "{header:?}");
        let len = if op == Op::Data { header.len as usize } else { 0 };
        assert_eq!(data.len(), len, "{header:?}");
        assert!(len <= 4096, "{header:?}");
    }

    /// Checks that the port was closed with a reason, and attaches again.
    fn reattach(&mut self) {
        self.rig.wait_for("red", 3, |v| v.state == PortState::Faulted);
        let fault = self.rig.view("red", 3).fault.unwrap();
        let known = ["not granted", "forged", "announces", "of data, at most"];
        assert!(known.iter().any(|word| fault.contains(word)), "{fault}");
        self.faults += 1;
        self.bad = Raw::over(&self.rig.path("red-3"), self.file.try_clone().unwrap());
    }

    fn exchange_beside(&mut self) {
        let [a, b] = &mut self.pair;
        transfer((a, self.ids.0), (b, self.ids.1), &pattern(self.taken, 20_000), 3000);
    }
}

fn race(scribble: Scribble) {
    let mut scene = Scene::new();
    let stop = Arc::new(AtomicBool::new(false));
    let (map, stopped) = (raw::SIZES.map(&scene.file), Arc::clone(&stop));
    let scribbler = std::thread::spawn(move || {
        let mut numbers = Numbers::new(1);
        while !stopped.load(Ordering::Relaxed) {
            scribble(&map, &mut numbers);
        }
    });
    let mut rounds = 0_u32;
    while scene.taken < RACES {
        if rounds.is_multiple_of(4) {
            scene.write_packets();
            // A connection for the data that follows, if the race permits it.
            scene.send(0, 1);
        }
        scene.send(1, BATCH - 1);
        rounds += 1;
        if rounds.is_multiple_of(EXCHANGES) {
            scene.exchange_beside();
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    raw::SIZES.assert_canaries(&scene.file);
    assert!(scene.received > 100, "{} packets only came through", scene.received);
    for cid in [4, 14, 15] {
        assert_eq!(scene.rig.view("red", cid).state, PortState::Running, "{cid}");
    }
    scene.exchange_beside();
}

#[test]
fn hostile_race_of_packet_addresses() {
    race(addresses);
}

#[test]
fn hostile_race_of_packet_operations() {
    race(operations);
}

#[test]
fn hostile_race_of_packet_lengths() {
    race(lengths);
}

#[test]
fn hostile_race_of_credit() {
    race(credit);
}

#[test]
fn hostile_race_of_packet_descriptors() {
    race(descriptors);
}

#[test]
fn hostile_race_of_everything_in_a_packet() {
    race(everything);
}
