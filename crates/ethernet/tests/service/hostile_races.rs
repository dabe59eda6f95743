//! A guest rewrites the headers and descriptors of its frames while they are forwarded, a hundred
//! thousand frames in each test. Only checked bytes are delivered: no forged source, no offload
//! that a receiver cannot handle, no byte outside the grant. Bystanders continue throughout.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::raw::{self, Raw};
use crate::common::*;
use causeway_attach::native::NetPort;
use causeway_memory::{Map, Span};
use causeway_model::PortState;
use causeway_testing::frontend::{SEND_AT, TRANSMIT};
use causeway_testing::numbers::Numbers;
use causeway_wire::virtio_net::{
    GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HDR_F_NEEDS_CSUM, Header,
};

/// Frames of the hostile guest in each test.
const RACES: u32 = 100_000;
/// Frames that the hostile guest sends at once, each with a buffer of its own.
const BATCH: u16 = 32;
const PLACE: u64 = 0x400;
/// Rounds between two exchanges of the bystanders.
const BYSTANDS: u32 = 50;
const LEN: u32 = 12 + 300;

/// Rewrites a part of frames that are in flight.
type Scribble = fn(&Map, &mut Numbers);

/// Returns the address of frame `n`.
fn place(numbers: &mut Numbers) -> u64 {
    SEND_AT + PLACE * (numbers.next() % u64::from(BATCH))
}

fn offload_headers(map: &Map, numbers: &mut Numbers) {
    let header = Header {
        flags: numbers.one_of(&[0, HDR_F_NEEDS_CSUM, HDR_F_NEEDS_CSUM, 0xff]),
        gso_type: numbers.one_of(&[GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, GSO_ECN, 0xff]),
        hdr_len: numbers.one_of(&[0, 54, 14, 300, 0xffff]),
        gso_size: numbers.one_of(&[0, 1, 100, 246, 0xffff]),
        csum_start: numbers.one_of(&[34, 34, 0, 299, 0xffff]),
        csum_offset: numbers.one_of(&[16, 16, 6, 0, 0xffff]),
        num_buffers: numbers.one_of(&[0, 1, 0xffff]),
    };
    let at = place(numbers);
    let bytes = header.emit();
    // In two steps, so that halves of two headers are read together.
    map.write(at, &bytes[..6]).unwrap();
    map.write(at + 6, &bytes[6..]).unwrap();
}

fn ethernet_headers(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers) + 12;
    let to = numbers.one_of(&[mac(1), mac(1), mac(2), mac(4), [0xff; 6], [1, 0, 94, 0, 0, 1]]);
    let from = numbers.one_of(&[mac(3), mac(3), mac(3), mac(1), mac(2), [0xff; 6], [0; 6]]);
    map.write(at, &to).unwrap();
    map.write(at + 6, &from).unwrap();
    let kind = numbers.one_of(&[[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [0, 0]]);
    map.write(at + 12, &kind).unwrap();
}

fn packet_headers(map: &Map, numbers: &mut Numbers) {
    let at = place(numbers) + 12 + 14;
    let value = numbers.one_of(&[0x45, 0x4f, 0x40, 0x60, 0xff, 0, 6, 17, 0x50, 0xf0]);
    let field = numbers.one_of(&[0, 2, 3, 6, 7, 9, 20 + 12, 20 + 13]);
    map.write(at + field, &[value]).unwrap();
}

fn descriptors(map: &Map, numbers: &mut Numbers) {
    let index = numbers.next() % u64::from(BATCH);
    let addr = place(numbers) + numbers.one_of(&[0, 0, 0, 1, 12]);
    let len: u32 = numbers.one_of(&[LEN, LEN, LEN, 0, 11, 12, 26, 64, 900]);
    // Rarely, an invalid value, for which the port closes.
    let rare = numbers.once_in(20_000);
    let (addr, flags): (u64, u16) = if rare { (u64::MAX - 3, 0) } else { (addr, 0) };
    let at = TRANSMIT.desc().0 + 16 * index;
    map.write(at, &addr.to_le_bytes()).unwrap();
    map.write(at + 8, &len.to_le_bytes()).unwrap();
    map.write(at + 12, &flags.to_le_bytes()).unwrap();
}

fn everything(map: &Map, numbers: &mut Numbers) {
    let of = [offload_headers, ethernet_headers, packet_headers, descriptors];
    numbers.one_of::<Scribble>(&of.map(|f| f as Scribble))(map, numbers);
}

/// The hostile guest, its receiver, and two bystanders.
struct Scene {
    rig: Rig,
    file: File,
    bad: Raw,
    good: NetPort,
    pair: [NetPort; 2],
    exchanges: u32,
    received: u32,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new();
        let good = rig.port("good", net(1), ALL);
        let pair = [("one", 4), ("two", 5)].map(|(name, n)| rig.port(name, net(n), ALL));
        rig.try_add("bad", "red", net(3)).unwrap();
        let file = raw::SIZES.memory();
        let bad = Raw::over(&rig.path("bad"), file.try_clone().unwrap());
        Self { rig, file, bad, good, pair, exchanges: 0, received: 0 }
    }

    /// Writes frames as a lawful guest would.
    fn write_frames(&self) {
        let (header, frame) = tcp(3, 1, false, &pattern(246), 100);
        let bytes = [&header.emit()[..], &frame].concat();
        assert_eq!(bytes.len(), LEN as usize);
        for n in 0..u64::from(BATCH) {
            self.bad.map.write(SEND_AT + PLACE * n, &bytes).unwrap();
        }
    }

    /// Sends a batch and receives the results; returns the number of frames that the daemon used.
    fn round(&mut self) -> u32 {
        for n in 0..u64::from(BATCH) {
            let span = Span { addr: SEND_AT + PLACE * n, len: LEN };
            let bad = &mut *self.bad;
            bad.transmit.add(&bad.map, &[span], &[]).unwrap();
        }
        self.bad.transmit.publish().unwrap();
        self.bad.kick_all();
        let start = Instant::now();
        let mut taken = 0;
        while self.bad.transmit.outstanding() > 0 {
            while self.bad.transmit.take().unwrap().is_some() {
                taken += 1;
            }
            self.drain();
            if self.bad.client.is_gone() {
                self.reattach();
                break;
            }
            assert!(start.elapsed().as_secs() < 30, "frames were never used");
        }
        taken
    }

    /// Attaches again after the port closed with a reason.
    fn reattach(&mut self) {
        let view = self.rig.view("bad");
        assert_eq!(view.state, PortState::Faulted);
        assert!(view.fault.is_some_and(|fault| fault.contains("not granted")));
        self.bad = Raw::over(&self.rig.path("bad"), self.file.try_clone().unwrap());
    }

    fn drain(&mut self) {
        let mut frame = Vec::new();
        while let Some(header) = self.good.receive(0, &mut frame).unwrap() {
            self.received += 1;
            check(&Header::parse(&header).unwrap(), &frame);
        }
    }

    /// Exchanges a frame between the bystanders, and checks every other frame that they receive.
    fn exchange_bystanders(&mut self) {
        self.exchanges += 1;
        let body = pattern(60 + (self.exchanges % 1000) as usize);
        let frame = plain(4, mac(5), &[&self.exchanges.to_le_bytes()[..], &body].concat());
        let [one, two] = &mut self.pair;
        send(one, &Header::default(), &frame);
        loop {
            let (header, got) = receive(two);
            if got == frame {
                break;
            }
            check(&header, &got);
        }
        let mut stray = Vec::new();
        while let Some(header) = one.receive(0, &mut stray).unwrap() {
            check(&Header::parse(&header).unwrap(), &stray);
        }
    }
}

/// Checks the invariants of every frame from the hostile guest, for any content at the time of
/// sending.
fn check(header: &Header, frame: &[u8]) {
    assert!(frame.len() >= 14, "{frame:?}");
    assert_eq!(frame[6..12], mac(3), "a forged source was delivered");
    if header.flags & HDR_F_NEEDS_CSUM != 0 {
        let end = usize::from(header.csum_start) + usize::from(header.csum_offset) + 2;
        assert!(end <= frame.len(), "{header:?} of a frame of {} bytes", frame.len());
    }
    let kinds = [GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4];
    assert!(kinds.contains(&(header.gso_type & !GSO_ECN)), "{header:?}");
    if header.gso_type != GSO_NONE {
        assert!(header.gso_size > 0 && header.flags & HDR_F_NEEDS_CSUM != 0, "{header:?}");
        assert!(usize::from(header.hdr_len) <= frame.len(), "{header:?}");
    }
}

fn race(scribble: Scribble) {
    let mut scene = Scene::new();
    let stop = Arc::new(AtomicBool::new(false));
    let (map, told) = (raw::SIZES.map(&scene.file), Arc::clone(&stop));
    let scribbler = std::thread::spawn(move || {
        let mut numbers = Numbers::new(1);
        while !told.load(Ordering::Relaxed) {
            scribble(&map, &mut numbers);
        }
    });
    let (mut taken, mut rounds) = (0, 0);
    while taken < RACES {
        if rounds % 8 == 0 {
            scene.write_frames();
        }
        taken += scene.round();
        rounds += 1;
        if rounds % BYSTANDS == 0 {
            scene.exchange_bystanders();
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    raw::SIZES.assert_canaries(&scene.file);
    assert!(scene.received > 100, "{} frames only came through", scene.received);
    for name in ["good", "one", "two"] {
        assert_eq!(scene.rig.view(name).faults_total, 0, "{name}");
    }
    // Without the race, the port works as before.
    if scene.bad.client.is_gone() {
        scene.reattach();
    }
    let frame = plain(3, mac(1), b"well behaved");
    scene.bad.send(&frame);
    while receive(&mut scene.good).1 != frame {}
}

#[test]
fn hostile_race_of_offload_headers() {
    race(offload_headers);
}

#[test]
fn hostile_race_of_ethernet_headers() {
    race(ethernet_headers);
}

#[test]
fn hostile_race_of_packet_headers() {
    race(packet_headers);
}

#[test]
fn hostile_race_of_frame_descriptors() {
    race(descriptors);
}

#[test]
fn hostile_race_of_everything_in_a_frame() {
    race(everything);
}
