//! Processes that end, lie or give memory back in the middle of messages through the daemon: each
//! costs itself only, and its peers get a reason.

mod common;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_channel::EventHead;
use causeway_channel::mx_rings::write_request;
use causeway_memory::{Mapping, View, create};
use causeway_testing::wait::patient;
use causeway_wire::local::{ClientMessage, DaemonMessage, HELLO_NO_CHANNELS};
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};
use rustix::fs::{FallocateFlags, fallocate};

use common::rings::{Rings, at};
use common::{Host, Process, soon};

struct End {
    process: Process,
    rings: Rings,
    number: u8,
}

impl End {
    fn open(host: &Host, board: &str, number: u8) -> Self {
        let mut process = host.attach_as(board, HELLO_NO_CHANNELS);
        let rings = Rings::open(&mut process, number);
        Self { process, rings, number }
    }

    fn reach(&mut self, board: &str, number: u8) -> PeerId {
        let (status, peer) = self.rings.connect(at(board, number), 7);
        assert_eq!(status, Status::Success);
        peer
    }

    fn lend(&mut self, len: usize) -> (RegionId, View, OwnedFd) {
        let file: OwnedFd = create("region", len as u64).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
        let view = View::new(Arc::new(mapping), 0, len).unwrap();
        let request = ClientMessage::Region { tag: 3, endpoint: self.number, len: len as u64 };
        self.process.0.send(request.emit(), vec![file.try_clone().unwrap()]).unwrap();
        loop {
            match self.process.hear().0 {
                DaemonMessage::Region { tag: 3, code: 0, region, .. } => {
                    return (RegionId(region), view, file);
                }
                DaemonMessage::Wake { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn unlend(&mut self, region: RegionId) {
        self.process.ask(ClientMessage::Unregion { endpoint: self.number, region: region.0 });
    }

    fn offer(&mut self, peer: PeerId, token: u64, region: RegionId, len: usize) {
        let from = Window { region, offset: 0, len: len as u32 };
        self.rings.request(&Request::Offer { peer, token: Token(token), match_info: token, from });
    }

    fn pull(&mut self, handle: Handle, token: u64, region: RegionId, len: usize) {
        let into = Window { region, offset: 0, len: len as u32 };
        self.rings.request(&Request::Pull { handle, token: Token(token), into });
    }

    /// Returns the next event that is no introduction.
    fn hear(&mut self) -> Event<'static> {
        loop {
            match self.rings.hear() {
                Event::PeerSeen { .. } => {}
                event => return event,
            }
        }
    }

    fn offered(&mut self) -> Handle {
        match self.hear() {
            Event::Offered { handle, .. } => handle,
            other => panic!("{other:?}"),
        }
    }
}

/// Bytes of the long messages: many pieces, so that something happens in the middle.
const LONG: usize = 64 << 20;

/// Returns two endpoints, and an offer of one to the other with its memory on both sides.
fn offering(host: &Host) -> (End, End, PeerId, Handle, RegionId, RegionId) {
    let (mut a, mut b) = (End::open(host, "a", 1), End::open(host, "b", 2));
    let peer = a.reach("b", 2);
    let ((from, ..), (into, ..)) = (a.lend(LONG), b.lend(LONG));
    a.offer(peer, 5, from, LONG);
    let handle = b.offered();
    (a, b, peer, handle, from, into)
}

#[test]
fn hostile_receivers_that_end_in_a_pull_end_the_offer() {
    let host = Host::new();
    let (mut a, mut b, peer, handle, _, into) = offering(&host);
    b.pull(handle, 6, into, LONG);
    drop(b);
    let since = Instant::now();
    let sent = a.hear();
    // The pull may have been complete.
    let Event::Sent { token: Token(5), status, .. } = sent else { panic!("{sent:?}") };
    assert!([Status::EndpointClosed, Status::Success].contains(&status), "{status:?}");
    assert_eq!(a.hear(), Event::PeerGone { peer, status: Status::EndpointClosed });
    assert!(since.elapsed() < patient(Duration::from_secs(1)), "the end is reported at once");
}

#[test]
fn hostile_senders_that_end_in_a_pull_end_the_pull() {
    let host = Host::new();
    let (a, mut b, _, handle, _, into) = offering(&host);
    b.pull(handle, 6, into, LONG);
    drop(a);
    let pulled = b.hear();
    let Event::Pulled { token: Token(6), status } = pulled else { panic!("{pulled:?}") };
    assert!([Status::EndpointClosed, Status::Success].contains(&status), "{status:?}");
    assert!(matches!(b.hear(), Event::PeerGone { status: Status::EndpointClosed, .. }));
}

#[test]
fn hostile_regions_released_in_a_pull_end_both_sides() {
    let host = Host::new();
    for of_sender in [true, false] {
        let (mut a, mut b, _, handle, from, into) = offering(&host);
        b.pull(handle, 6, into, LONG);
        match of_sender {
            true => a.unlend(from),
            false => b.unlend(into),
        }
        let Event::Pulled { token: Token(6), status: pulled } = b.hear() else { panic!() };
        let Event::Sent { token: Token(5), status: sent, taken } = a.hear() else { panic!() };
        let failed = Status::BadRdmaWindow;
        match (pulled, sent) {
            // The pull was complete before.
            (Status::Success, Status::Success) => assert_eq!(taken as usize, LONG),
            (pulled, Status::Success) => assert_eq!((pulled, taken), (failed, 0)),
            (pulled, sent) => assert_eq!((pulled, sent), (failed, failed)),
        }
        // Both continue.
        let peer = PeerId(0);
        a.rings.send(peer, 9, b"goes on");
        assert_eq!(b.rings.receive(), (9, b"goes on".to_vec()));
    }
}

#[test]
fn hostile_memory_without_pages_ends_its_own_transfers_only() {
    let host = Host::new();
    let (mut a, mut b) = (End::open(&host, "a", 1), End::open(&host, "b", 2));
    let peer = a.reach("b", 2);
    let (from, _, file) = a.lend(1 << 20);
    let (into, view, _) = b.lend(1 << 20);
    // A hole reads as zeros: the daemon is not stopped.
    view.write(0, &[7; 4096]).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    a.offer(peer, 5, from, 1 << 20);
    let handle = b.offered();
    b.pull(handle, 6, into, 1 << 20);
    assert_eq!(b.hear(), Event::Pulled { token: Token(6), status: Status::Success });
    let mut bytes = [1; 4096];
    view.read_into(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    // A pull twice, of a wrong handle, and beyond the memory.
    b.pull(handle, 7, into, 1 << 20);
    assert!(
        matches!(b.hear(), Event::Pulled { token: Token(7), status } if status != Status::Success)
    );
    b.pull(Handle(12_345), 8, into, 10);
    assert!(
        matches!(b.hear(), Event::Pulled { token: Token(8), status } if status != Status::Success)
    );
}

#[test]
fn hostile_rings_do_not_reach_the_peer() {
    let host = Host::new();
    let (mut liar, mut b) = (End::open(&host, "a", 1), End::open(&host, "b", 2));
    let mut honest = End::open(&host, "a", 3);
    let (peer, other) = (liar.reach("b", 2), honest.reach("b", 2));
    liar.rings.send(peer, 1, b"before");
    assert_eq!(b.rings.receive(), (1, b"before".to_vec()));
    assert!(liar.rings.sender.send(EventHead { kind: 99, words: [1; 3] }, b"").unwrap());
    liar.rings.ring();
    assert!(liar.process.is_parted());
    assert!(matches!(b.hear(), Event::PeerGone { status: Status::EndpointClosed, .. }));
    honest.rings.send(other, 2, b"after");
    assert_eq!(b.rings.receive(), (2, b"after".to_vec()));
}

#[test]
fn hostile_long_pulls_delay_no_short_message_of_others() {
    let host = Host::new();
    let (mut a, mut b, peer, mut handle, from, into) = offering(&host);
    let (mut c, mut d) = (End::open(&host, "a", 3), End::open(&host, "b", 4));
    let other = c.reach("b", 4);
    let mut passed = 0;
    for token in 10..30 {
        b.pull(handle, token, into, LONG);
        c.rings.request(&Request::Eager {
            peer: other,
            token: Token::UNREPORTED,
            match_info: token,
            data: b"short",
        });
        assert_eq!(d.rings.receive(), (token, b"short".to_vec()));
        // The pull copies 64 MiB, the message 5 bytes.
        passed += u32::from(!b.rings.receiver.ready());
        assert!(matches!(b.hear(), Event::Pulled { status: Status::Success, .. }));
        a.offer(peer, token, from, LONG);
        handle = b.offered();
    }
    assert!(passed > 0, "each message waited for a pull");
}

#[test]
fn fairness_none_of_forty_endpoints_starves_through_the_daemon() {
    let host = Host::new();
    let mut ends: Vec<End> = Vec::new();
    for number in 0..20 {
        ends.push(End::open(&host, "a", number));
        ends.push(End::open(&host, "b", number));
    }
    let mut peers = Vec::new();
    for number in 0..20_u8 {
        peers.push(ends[usize::from(number) * 2].reach("b", number));
    }
    let mut received = [0_u64; 20];
    let mut sent = [0_u64; 20];
    let data = [9; 1000];
    // The loop offers each pair what its rings hold, so the numbers of messages depend on when the
    // dispatcher's thread runs; `make bench` compares them. Here no pair may starve.
    let least = 500;
    let since = Instant::now();
    while received.iter().any(|count| *count < least) {
        assert!(since.elapsed() < common::PATIENCE, "{received:?}");
        for pair in 0..20 {
            let peer = peers[pair];
            let sender = &mut ends[pair * 2].rings;
            for _ in 0..16 {
                let (token, match_info) = (Token::UNREPORTED, sent[pair]);
                let request = Request::Eager { peer, token, match_info, data: &data };
                if !write_request(&mut sender.sender, &request).unwrap() {
                    break;
                }
                sent[pair] += 1;
            }
            sender.ring();
            let receiver = &mut ends[pair * 2 + 1].rings;
            while receiver.receiver.ready() && received[pair] < sent[pair] {
                let (number, _) = receiver.receive();
                assert_eq!(number, received[pair], "pair {pair}: in order");
                received[pair] += 1;
            }
        }
    }
    soon(|| host.counter("a", "endpoints") == 20, "the endpoints are open");
}
