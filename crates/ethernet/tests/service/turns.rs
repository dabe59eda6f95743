//! Turns end by time: long work continues in the next turn, in order.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use crate::common::raw::Raw;
use crate::common::*;
use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_ethernet::Ethernet;
use causeway_fabric::limits::QUANTUM_NS;
use causeway_fabric::{PollConfig, Shard, cost};
use causeway_model::NetSpec;

/// Most segments that fit in a turn, their copies included.
const PIECES_PER_TURN: usize = QUANTUM_NS as usize / cost::PIECE_NS as usize + 1;
const NOW: u64 = 1_000_000_000;

/// A shard that the test drives, with a fixed clock.
struct Driven {
    shard: Shard,
    dir: PathBuf,
}

impl Driven {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("turns-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let service = Box::new(Ethernet::new());
        let shard = Shard::new("red".parse().unwrap(), service, PollConfig::default()).unwrap();
        Self { shard, dir }
    }

    /// Adds port `n` and attaches a frontend to it.
    fn attach(&mut self, n: u8, options: NetOptions) -> NetPort {
        self.attach_by(n, move |socket| NetPort::attach(socket, options).unwrap())
    }

    /// Adds port `n` and attaches the frontend that `attach` makes.
    fn attach_by<T: Send + 'static>(
        &mut self,
        n: u8,
        attach: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> T {
        let name = format!("p{n}");
        let socket = self.dir.join(&name);
        let spec = port_spec(&name, "red", &socket, NetSpec { mtu: 65535, ..net(n) });
        self.shard.port_add(spec, true).unwrap();
        let (give, port) = channel();
        let helper = std::thread::spawn(move || drop(give.send(attach(&socket))));
        let mut attached = None;
        wait(
            || {
                self.shard.step(NOW, 8).unwrap();
                attached = port.try_recv().ok();
                attached.is_some()
            },
            || "the frontend is not attached".into(),
        );
        helper.join().unwrap();
        attached.unwrap()
    }

    /// Runs one turn, with the events before it.
    fn turn(&mut self) {
        self.shard.look().unwrap();
        self.shard.turn();
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Returns the frames that a port has received so far.
fn got(port: &mut NetPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut frame = Vec::new();
    while port.receive(0, &mut frame).unwrap().is_some() {
        frames.push(frame.clone());
    }
    port.flush(0).unwrap();
    frames
}

/// Options of a receiver without offloads and with room for thousands of segments.
fn receiver() -> NetOptions {
    NetOptions { features: MERGE, ring_size: 4096, receive_bytes: 256, ..Default::default() }
}

fn sender() -> NetOptions {
    NetOptions { features: ALL, ..Default::default() }
}

#[test]
fn turn_ends_within_a_segmented_frame_and_the_next_one_goes_on_with_it() {
    let mut driven = Driven::new("pieces");
    let mut to = driven.attach(2, receiver());
    let mut from = driven.attach(1, sender());
    let (header, frame) = tcp(1, 2, false, &pattern(60_000), 32);
    let plain = plain(1, mac(2), b"behind it");
    assert!(from.queue(0, &header.emit(), &frame).unwrap());
    assert!(from.queue(0, &[0; NET_HEADER_BYTES], &plain).unwrap());
    from.flush(0).unwrap();
    let (mut joined, mut turns) = (Vec::new(), 0);
    let mut last = None;
    while last.is_none() {
        driven.turn();
        turns += 1;
        assert!(turns < 1000, "{} bytes after {turns} turns", joined.len());
        let pieces = got(&mut to);
        assert!(pieces.len() <= PIECES_PER_TURN + 1, "{} pieces in one turn", pieces.len());
        for piece in pieces {
            if piece == plain {
                last = Some(piece);
                continue;
            }
            assert!(last.is_none(), "a segment arrived after the next frame");
            assert!(checksum_is_right(&piece));
            joined.extend_from_slice(payload_of(&piece));
        }
    }
    assert!(joined == payload_of(&frame));
    assert!(turns >= 1875 / PIECES_PER_TURN, "only {turns} turns");
    // The sender has its buffers again.
    driven.turn();
    assert!(from.is_idle(0).unwrap());
}

#[test]
fn turn_ends_between_the_receivers_of_a_broadcast() {
    let mut driven = Driven::new("receivers");
    let mut receivers: Vec<_> = (2..12).map(|n| driven.attach(n, receiver())).collect();
    let mut from = driven.attach(1, sender());
    let (header, mut frame) = udp(1, 2, &pattern(40_000), 64);
    frame[..6].fill(0xff);
    assert!(from.queue(0, &header.emit(), &frame).unwrap());
    from.flush(0).unwrap();
    let mut bytes = vec![0; receivers.len()];
    let mut turns = 0;
    while bytes.iter().any(|bytes| *bytes < 40_000) {
        driven.turn();
        turns += 1;
        assert!(turns < 1000, "{bytes:?} after {turns} turns");
        let mut pieces = 0;
        for (bytes, port) in bytes.iter_mut().zip(&mut receivers) {
            for piece in got(port) {
                pieces += 1;
                *bytes += payload_of(&piece).len();
            }
        }
        assert!(pieces <= PIECES_PER_TURN + 1, "{pieces} pieces in one turn");
    }
    assert_eq!(bytes, [40_000; 10]);
}

#[test]
fn turn_takes_no_more_bytes_than_fit_in_it() {
    let mut driven = Driven::new("bytes");
    let options = NetOptions { ring_size: 1024, receive_bytes: 4096, ..sender() };
    let mut to = driven.attach(2, options);
    let mut from = driven.attach(1, NetOptions { ring_size: 1024, ..sender() });
    let frame = plain(1, mac(2), &pattern(60_000));
    for _ in 0..20 {
        assert!(from.queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap());
    }
    from.flush(0).unwrap();
    let (mut count, mut turns) = (0, 0);
    let most = QUANTUM_NS as usize / cost::bytes(60_000) as usize + 2;
    while count < 20 {
        driven.turn();
        turns += 1;
        assert!(turns < 100, "{count} frames after {turns} turns");
        let frames = got(&mut to);
        assert!(frames.len() <= most, "{} frames in one turn", frames.len());
        assert!(frames.iter().all(|got| *got == frame));
        count += frames.len();
    }
}

#[test]
fn turn_unfinished_frames_are_dropped_when_the_device_stops() {
    let mut driven = Driven::new("stops");
    let mut to = driven.attach(2, receiver());
    let mut from = driven.attach(1, sender());
    let (header, frame) = tcp(1, 2, false, &pattern(60_000), 32);
    assert!(from.queue(0, &header.emit(), &frame).unwrap());
    from.flush(0).unwrap();
    driven.turn();
    assert!(!got(&mut to).is_empty());
    drop(from);
    for _ in 0..4 {
        driven.turn();
    }
    let before = got(&mut to).len();
    for _ in 0..40 {
        driven.turn();
    }
    assert_eq!(got(&mut to).len(), 0, "after {before}");
    let view = driven.shard.port_view(&"p1".parse().unwrap()).unwrap();
    assert_eq!(view.counters["drop_sender_down_total"], 1, "{:?}", view.counters);
}

/// Returns the notifications since the last call.
fn notifications(call: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(call, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn turn_notifies_a_queue_once_for_all_senders() {
    let mut driven = Driven::new("notifications");
    let mut senders: Vec<_> = (1..9).map(|n| driven.attach(n, sender())).collect();
    // Without event indices, the guest requests a notification for every frame.
    let mut to = driven.attach_by(20, Raw::attach);
    driven.turn();
    for round in 0..3_usize {
        for (n, from) in (1..).zip(&mut senders) {
            let frame = plain(n, mac(20), b"one of many");
            assert!(from.queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap());
            from.flush(0).unwrap();
        }
        driven.shard.look().unwrap();
        notifications(&to.calls[0]);
        driven.shard.turn();
        assert_eq!(notifications(&to.calls[0]), 1, "round {round}");
        to.receive.take_all().unwrap();
        // A single frame is notified in the turn in which it is sent.
        let frame = plain(1, mac(20), b"alone");
        assert!(senders[0].queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap());
        senders[0].flush(0).unwrap();
        driven.turn();
        assert_eq!(notifications(&to.calls[0]), 1, "round {round}");
        to.receive.take_all().unwrap();
    }
}
