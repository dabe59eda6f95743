//! The matching engine over rings, with a NIC side that the test controls.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use causeway_channel::mx_rings::{Holds, layout, read_request, write_event};
use causeway_channel::{EventHead, Receiver, Sender, Side, open};
use causeway_message::library::{
    Buffer, Purpose, Rings, Staging, Transport, TransportError, TransportEvent, is_remote,
};
use causeway_message::limits::PULL_AHEAD_BYTES;
use causeway_message::split::{
    Address, Event, Handle, NicId, PeerId, RegionId, Request, Token, Window,
};
use causeway_message::status::Status;
use causeway_testing::messages::memory;

/// Staging in the test: one region of private memory with a limited number of windows, which share
/// their bytes; and another region for lent memory.
#[derive(Debug, Default)]
struct Stage {
    bytes: RefCell<Vec<u8>>,
    places: usize,
    taken: usize,
    /// Further requests fail for good.
    ended: bool,
    /// Contiguous messages are lent.
    reaches: bool,
    /// Memory of receives is lent, too.
    writes: bool,
    /// Lent ranges by address and length; `None` after their return.
    lent: Vec<Option<(usize, usize)>>,
    taken_back: Vec<u64>,
}

/// Region of lent memory.
const OWN: RegionId = RegionId(4);

impl Staging for Stage {
    fn take(&mut self, len: u32, _purpose: Purpose) -> Result<Window, TransportError> {
        if self.ended {
            return Err(TransportError::Never(Status::NoResources));
        }
        if self.taken >= self.places {
            return Err(TransportError::Full);
        }
        self.taken += 1;
        self.bytes.borrow_mut().resize(len as usize, 0);
        Ok(Window { region: RegionId(3), offset: 64, len })
    }

    fn lend(
        &mut self,
        memory: Range<usize>,
        purpose: Purpose,
        _token: Token,
    ) -> Result<Option<Window>, TransportError> {
        if !self.reaches || purpose == Purpose::Pull && !self.writes {
            return Ok(None);
        }
        self.lent.push(Some((memory.start, memory.len())));
        let (offset, len) = (self.lent.len() as u64 - 1, memory.len() as u32);
        Ok(Some(Window { region: OWN, offset, len }))
    }

    fn take_back(&mut self, window: Window) {
        if window.region == OWN {
            self.taken_back.push(window.offset);
        }
    }

    fn give(&mut self, window: Window) {
        if window.region == OWN {
            self.lent[window.offset as usize].take().expect("given twice");
            return;
        }
        self.taken = self.taken.checked_sub(1).expect("given twice");
    }

    fn write(&self, _window: Window, at: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, window: Window, at: usize, into: &mut [u8]) {
        if window.region == OWN {
            return;
        }
        into.copy_from_slice(&self.bytes.borrow()[at..at + into.len()]);
    }
}

type PeerDoorbell = Box<dyn Fn()>;
type Ours = Rings<PeerDoorbell, Stage>;

/// The NIC side.
struct Backend {
    sender: Sender,
    receiver: Receiver,
    holds: Holds,
    rung: Rc<RefCell<u32>>,
}

impl Backend {
    fn tell(&mut self, event: &Event<'_>) {
        assert!(write_event(&mut self.sender, event).unwrap());
    }

    fn asked(&mut self) -> Option<(EventHead, Vec<u8>)> {
        let event = self.receiver.poll().unwrap()?;
        let mut bytes = vec![0; event.len];
        self.receiver.copy(&event, 0, &mut bytes);
        self.receiver.advance(&event);
        Some((event.head, bytes))
    }

    #[track_caller]
    fn expect(&mut self, request: &Request<'_>) {
        let (head, bytes) = self.asked().expect("something is asked");
        assert_eq!(read_request(&head, &bytes).as_ref(), Ok(request));
    }
}

fn pair() -> (Ours, Backend) {
    let view = memory(layout());
    let rung = Rc::new(RefCell::new(0));
    let count = rung.clone();
    let doorbell: PeerDoorbell = Box::new(move || *count.borrow_mut() += 1);
    let (sender, receiver) = open(&view, Side::First).unwrap();
    let holds = Holds::new(view.clone());
    let ours =
        Rings::new(sender, receiver, holds, doorbell, Stage { places: 1, ..Stage::default() });
    let (sender, receiver) = open(&view, Side::Second).unwrap();
    (ours, Backend { sender, receiver, holds: Holds::new(view), rung })
}

fn way(ours: &mut Ours) -> &mut dyn Transport<Vec<u8>> {
    ours
}

#[track_caller]
fn next(ours: &mut Ours) -> TransportEvent {
    let arrival = way(ours).next().expect("something came");
    way(ours).done();
    arrival
}

/// Engine's number of the NIC side's peer 5.
const PEER: PeerId = PeerId(11);

/// And of peer 6.
const OTHER: PeerId = PeerId(13);

fn seen(ours: &mut Ours, backend: &mut Backend) {
    let address = Address { nic: NicId(0x0200_0000_0009), endpoint: 1 };
    backend.tell(&Event::PeerSeen { peer: PeerId(5), address, session: 6 });
    assert_eq!(next(ours), TransportEvent::PeerSeen { peer: PEER, address, session: 6 });
    assert!(is_remote(PEER) && !is_remote(PeerId(10)) && !is_remote(PeerId::NONE));
}

#[test]
fn rings_offers_and_pulls_use_staging() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    let data: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    way(&mut ours).offer(PEER, Token(1), 7, &data).unwrap();
    let from = Window { region: RegionId(3), offset: 64, len: 100_000 };
    backend.expect(&Request::Offer { peer: PeerId(5), token: Token(1), match_info: 7, from });
    assert_eq!(*ours.staging.bytes.borrow(), data);
    // Without staging the message waits.
    assert_eq!(way(&mut ours).offer(PEER, Token(2), 7, &data), Err(TransportError::Full));
    let pulled = way(&mut ours).pull(PEER, 9, Token(3), None, 10);
    assert_eq!(pulled, Err(TransportError::Full));
    backend.tell(&Event::Sent { token: Token(1), status: Status::Success, taken: 100_000 });
    assert!(matches!(
        next(&mut ours),
        TransportEvent::Sent { token: Token(1), taken: 100_000, .. }
    ));
    way(&mut ours).pull(PEER, 9, Token(3), None, 10).unwrap();
    let into = Window { region: RegionId(3), offset: 64, len: 10 };
    backend.expect(&Request::Pull { handle: Handle(9), token: Token(3), into });
    ours.staging.write(into, 0, b"0123456789");
    backend.tell(&Event::Pulled { token: Token(3), status: Status::Success });
    let arrival = way(&mut ours).next().unwrap();
    assert_eq!(arrival, TransportEvent::Chunk { peer: PEER, token: Token(3), len: 10 });
    let mut bytes = [0; 20];
    assert_eq!(way(&mut ours).copy(4, &mut bytes), 6);
    assert_eq!(&bytes[..6], b"456789");
    way(&mut ours).done();
    assert_eq!(ours.staging.taken, 0);
    // A failed pull, and a pull from a disconnected peer, which is not reported.
    way(&mut ours).pull(PEER, 9, Token(4), None, 10).unwrap();
    backend.tell(&Event::Pulled { token: Token(4), status: Status::Aborted });
    let failed = TransportEvent::Pulled { token: Token(4), status: Status::Aborted };
    assert_eq!(next(&mut ours), failed);
    way(&mut ours).pull(PEER, 9, Token(5), None, 10).unwrap();
    way(&mut ours).disconnect(PEER);
    backend.tell(&Event::Pulled { token: Token(5), status: Status::Success });
    assert_eq!(way(&mut ours).next(), None);
    assert_eq!(ours.staging.taken, 0);
}

/// Returns the next short message: its peer, match information and bytes.
fn short(ours: &mut Ours) -> Option<(PeerId, u64, Vec<u8>)> {
    let (peer, short) = way(ours).short()?;
    let mut bytes = vec![0; short.len()];
    assert_eq!(short.copy_to(&mut bytes, &mut []), short.len());
    Some((peer, short.word, bytes))
}

#[test]
fn rings_short_messages_use_the_fast_path() {
    let (mut ours, mut backend) = pair();
    assert!(!ours.may_have_event() && !way(&mut ours).more() && short(&mut ours).is_none());
    seen(&mut ours, &mut backend);
    let message = |match_info, data| Event::Message { peer: PeerId(5), match_info, data };
    let long = [7; 33];
    let told: [(u64, &[u8]); 4] = [(1, b""), (2, b"eight by"), (3, &long), (4, b"last")];
    told.iter().for_each(|(info, data)| backend.tell(&message(*info, data)));
    assert!(ours.may_have_event() && way(&mut ours).more());
    for (info, more) in [(1, true), (2, true)] {
        let data = told[info - 1].1.to_vec();
        assert_eq!(short(&mut ours), Some((PEER, info as u64, data.clone())));
        assert_eq!(short(&mut ours), Some((PEER, info as u64, data)), "it was not taken");
        assert_eq!(way(&mut ours).short_done(), more);
    }
    assert_eq!(short(&mut ours), None, "it is long");
    let third = TransportEvent::Message { peer: PEER, match_info: 3, len: 33 };
    assert_eq!(way(&mut ours).next(), Some(third));
    assert_eq!(short(&mut ours), None, "it is being looked at");
    // A deferred message delays the next.
    way(&mut ours).defer();
    assert!(ours.may_have_event());
    assert_eq!(short(&mut ours), None);
    assert_eq!(way(&mut ours).next(), None, "the other went behind it");
    assert!(ours.nudge() && ours.may_have_event());
    assert_eq!(next(&mut ours), third);
    assert_eq!(next(&mut ours), TransportEvent::Message { peer: PEER, match_info: 4, len: 4 });
    assert!(!ours.may_have_event());
    backend.tell(&message(5, b"again"));
    assert_eq!(short(&mut ours), Some((PEER, 5, b"again".to_vec())));
    assert!(!way(&mut ours).short_done() && !ours.may_have_event());
    // The general path reports an invalid event.
    let nonsense = EventHead { kind: 3, words: [6, 1, 5] };
    assert!(backend.sender.send(nonsense, b"x").unwrap());
    assert_eq!(short(&mut ours), None);
    assert_eq!(
        next(&mut ours),
        TransportEvent::PeerGone { peer: PEER, status: Status::EndpointUnreachable }
    );
}

#[test]
fn rings_bypass_does_not_overtake_requests() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    assert_eq!(ours.bypass_peer(PEER), Some(PeerId(5)));
    let mut asked = 0;
    while way(&mut ours).connect(Token(asked), Address { nic: NicId(1), endpoint: 0 }, 0, None)
        == Ok(())
    {
        asked += 1;
    }
    way(&mut ours).disconnect(PEER);
    assert_eq!(ours.bypass_peer(PEER), None, "there was no room for that");
    assert!(ours.may_have_event());
    for _ in 0..asked {
        backend.asked().unwrap();
    }
    assert_eq!(way(&mut ours).next(), None);
    backend.expect(&Request::Disconnect { peer: PeerId(5) });
    assert_eq!(ours.bypass_peer(PEER), Some(PeerId(5)));
    ours.end();
    assert_eq!(ours.bypass_peer(PEER), None);
}

/// A buffer of two segments.
#[derive(Debug)]
struct Apart(Vec<u8>, Vec<u8>);

impl Buffer for Apart {
    fn len(&self) -> usize {
        self.0.len() + self.1.len()
    }

    fn bytes(&self, at: usize) -> &[u8] {
        self.0
            .get(at..)
            .filter(|rest| !rest.is_empty())
            .unwrap_or_else(|| &self.1[at - self.0.len()..])
    }

    fn bytes_mut(&mut self, _at: usize) -> &mut [u8] {
        unreachable!("nothing is received")
    }
}

#[test]
fn rings_pull_into_lent_memory_copies_nothing_and_is_withdrawn() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    (ours.staging.reaches, ours.staging.writes) = (true, true);
    let mut receive = vec![7; 100_000];
    let place = Some((receive.as_ptr().addr(), 90_000));
    let asked = |token: u64| {
        let into = Window { region: OWN, offset: token, len: 90_000 };
        Request::Pull { handle: Handle(9), token: Token(token), into }
    };
    for token in 0..2 {
        way(&mut ours).pull(PEER, 9, Token(token), Some(&mut receive), 90_000).unwrap();
        backend.expect(&asked(token));
        assert_eq!(ours.staging.lent[token as usize], place);
    }
    assert_eq!(ours.staging.taken, 0);
    backend.tell(&Event::Pulled { token: Token(0), status: Status::Success });
    assert!(matches!(next(&mut ours), TransportEvent::Chunk { len: 90_000, .. }));
    assert_eq!(ours.staging.lent[0], None);
    assert!(ours.staging.taken_back.is_empty());
    // The application gets the memory back with the loss of the peer, before the pull has ended.
    way(&mut ours).disconnect(PEER);
    assert_eq!(ours.staging.taken_back, [1]);
    assert!(ours.staging.lent[1].is_some());
    // A short message, and a shorter buffer, go through staging.
    for (len, mut into) in [(1000, vec![0; 1000]), (90_000, vec![0; 80_000])] {
        way(&mut ours).pull(OTHER, 9, Token(5), Some(&mut into), len).unwrap();
        assert_eq!(ours.staging.lent.len(), 2);
        ours.staging.taken = 0;
    }
}

#[test]
fn rings_lent_memory_needs_no_staging_and_is_withdrawn() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    ours.staging.reaches = true;
    let data = vec![7; 100_000];
    let asked = |token: u64| {
        let from = Window { region: OWN, offset: token, len: 100_000 };
        Request::Offer { peer: PeerId(5), token: Token(token), match_info: 7, from }
    };
    for token in 0..3 {
        way(&mut ours).offer(PEER, Token(token), 7, &data).unwrap();
        backend.expect(&asked(token));
        assert_eq!(ours.staging.lent[token as usize], Some((data.as_ptr().addr(), data.len())));
    }
    assert_eq!(ours.staging.taken, 0);
    backend.tell(&Event::Sent { token: Token(0), status: Status::Success, taken: 100_000 });
    assert!(matches!(next(&mut ours), TransportEvent::Sent { token: Token(0), .. }));
    assert_eq!(ours.staging.lent[0], None, "its place is free");
    // A cancelled offer, and all offers to a disconnected peer; none to another peer.
    way(&mut ours).cancel(Token(1));
    backend.expect(&Request::Cancel { token: Token(1) });
    assert_eq!(ours.staging.taken_back, [1]);
    way(&mut ours).offer(OTHER, Token(3), 7, &data).unwrap();
    let other = ours.staging.lent.len() as u64 - 1;
    way(&mut ours).disconnect(PEER);
    ours.staging.taken_back.sort_unstable();
    assert_eq!(ours.staging.taken_back, [1, 1, 2]);
    way(&mut ours).withdraw_memory(Token(3));
    assert_eq!(ours.staging.taken_back.last(), Some(&other), "its memory is lost");
    // It is freed only when no request uses it.
    assert!(ours.staging.lent[1].is_some() && ours.staging.lent[2].is_some());
    for token in [1, 2] {
        backend.tell(&Event::Sent { token: Token(token), status: Status::Aborted, taken: 0 });
        next(&mut ours);
        assert_eq!(ours.staging.lent[token as usize], None);
    }
    // A message in two segments is copied.
    let apart = Apart(vec![1; 10], vec![2; 10]);
    Transport::<Apart>::offer(&mut ours, PEER, Token(4), 7, &apart).unwrap();
    assert_eq!((ours.staging.taken, ours.staging.lent.len()), (1, 4));
    assert_eq!(*ours.staging.bytes.borrow(), [[1; 10], [2; 10]].concat());
    // When the rings have no room, no memory stays lent.
    let mut offered = 4;
    while way(&mut ours).offer(PEER, Token(5), 7, &data).is_ok() {
        offered += 1;
    }
    assert!(ours.staging.lent.iter().skip(offered).all(Option::is_none));
}

#[test]
fn rings_pull_a_few_long_messages_at_a_time() {
    let (mut ours, mut backend) = pair();
    ours.staging.places = 3;
    seen(&mut ours, &mut backend);
    let long = PULL_AHEAD_BYTES as u32;
    let asked = |token: u32, len: u32| {
        let into = Window { region: RegionId(3), offset: 64, len };
        Request::Pull { handle: Handle(token), token: Token(token.into()), into }
    };
    for token in 1..=6 {
        way(&mut ours).pull(PEER, token, Token(token), None, long).unwrap();
    }
    backend.expect(&asked(1, long));
    backend.expect(&asked(2, long));
    assert!(backend.asked().is_none(), "two of any length");
    way(&mut ours).pull(OTHER, 7, Token(7), None, 10).unwrap();
    backend.expect(&asked(7, 10));
    let over = |backend: &mut Backend, token, status| {
        backend.tell(&Event::Pulled { token: Token(token), status });
    };
    over(&mut backend, 1, Status::Success);
    assert_eq!(
        way(&mut ours).next(),
        Some(TransportEvent::Chunk { peer: PEER, token: Token(1), len: long })
    );
    assert!(backend.asked().is_none(), "its place is in use");
    way(&mut ours).done();
    backend.expect(&asked(3, long));
    // No window is free at first.
    ours.staging.places = 1;
    over(&mut backend, 2, Status::Aborted);
    assert!(matches!(next(&mut ours), TransportEvent::Pulled { token: Token(2), .. }));
    assert!(backend.asked().is_none());
    ours.staging.places = 3;
    assert_eq!(way(&mut ours).next(), None);
    backend.expect(&asked(4, long));
    // No window will ever be free: the receive fails.
    ours.staging.ended = true;
    over(&mut backend, 3, Status::Aborted);
    assert!(matches!(next(&mut ours), TransportEvent::Pulled { token: Token(3), .. }));
    assert!(!ours.arm(), "a failure is to be reported");
    ours.disarm();
    let status = Status::NoResources;
    assert_eq!(next(&mut ours), TransportEvent::Pulled { token: Token(5), status });
    assert_eq!(next(&mut ours), TransportEvent::Pulled { token: Token(6), status });
    // No pulls of a lost peer wait.
    ours.staging.ended = false;
    way(&mut ours).pull(PEER, 8, Token(8), None, long).unwrap();
    backend.expect(&asked(8, long));
    way(&mut ours).pull(PEER, 9, Token(9), None, long).unwrap();
    way(&mut ours).disconnect(PEER);
    backend.expect(&Request::Disconnect { peer: PeerId(5) });
    over(&mut backend, 4, Status::Aborted);
    over(&mut backend, 8, Status::Success);
    over(&mut backend, 7, Status::Aborted);
    assert!(matches!(next(&mut ours), TransportEvent::Pulled { token: Token(7), .. }));
    assert!(backend.asked().is_none());
    assert_eq!(ours.staging.taken, 0);
}

#[test]
fn rings_deferred_message_delays_no_other_event() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    let message = |match_info| Event::Message { peer: PeerId(5), match_info, data: b"bytes" };
    let came = |match_info| TransportEvent::Message { peer: PEER, match_info, len: 5 };
    backend.tell(&message(1));
    assert_eq!(way(&mut ours).next(), Some(came(1)));
    way(&mut ours).defer();
    assert!(backend.holds.has(PeerId(5)) && backend.asked().is_none());
    backend.tell(&message(2));
    backend.tell(&Event::Sent { token: Token(8), status: Status::Success, taken: 3 });
    backend.tell(&Event::PeerGone { peer: PeerId(5), status: Status::EndpointClosed });
    backend.tell(&Event::Pulled { token: Token(9), status: Status::Success });
    assert!(matches!(next(&mut ours), TransportEvent::Sent { token: Token(8), .. }));
    assert!(matches!(next(&mut ours), TransportEvent::Pulled { token: Token(9), .. }));
    // The first message again after an empty poll; and again.
    for _ in 0..2 {
        let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
        assert_eq!(first, Some(came(1)));
        way(&mut ours).defer();
        assert_eq!(way(&mut ours).next(), None, "it rests");
    }
    assert!(ours.arm(), "it waits for the application alone");
    ours.disarm();
    assert_eq!(way(&mut ours).next(), Some(came(1)));
    let mut bytes = [0; 9];
    assert_eq!((way(&mut ours).copy(1, &mut bytes), &bytes[..4]), (4, &b"ytes"[..]));
    way(&mut ours).done();
    assert!(backend.holds.has(PeerId(5)) && !backend.holds.released(), "there are more");
    assert_eq!(next(&mut ours), came(2));
    let gone = TransportEvent::PeerGone { peer: PEER, status: Status::EndpointClosed };
    assert_eq!(next(&mut ours), gone, "after its messages");
    assert!(!backend.holds.has(PeerId(5)) && backend.holds.released());
    assert_eq!(*backend.rung.borrow(), 1, "it may sleep");
    backend.tell(&message(3));
    assert_eq!(next(&mut ours), came(3));
}

fn other_seen(ours: &mut Ours, backend: &mut Backend) {
    let address = Address { nic: NicId(0x0200_0000_0009), endpoint: 2 };
    backend.tell(&Event::PeerSeen { peer: PeerId(6), address, session: 7 });
    assert!(matches!(next(ours), TransportEvent::PeerSeen { peer: OTHER, .. }));
}

fn message(peer: u32, match_info: u64) -> Event<'static> {
    Event::Message { peer: PeerId(peer), match_info, data: b"bytes" }
}

fn came(peer: PeerId, match_info: u64) -> TransportEvent {
    TransportEvent::Message { peer, match_info, len: 5 }
}

/// Takes the next event, which must be `arrival`, and defers it.
#[track_caller]
fn deferred(ours: &mut Ours, arrival: TransportEvent) {
    assert_eq!(way(ours).next(), Some(arrival));
    way(ours).defer();
}

#[test]
fn rings_pending_messages_delay_no_other_peer() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    other_seen(&mut ours, &mut backend);
    backend.tell(&message(5, 1));
    backend.tell(&message(6, 2));
    backend.tell(&message(5, 3));
    backend.tell(&message(6, 4));
    deferred(&mut ours, came(PEER, 1));
    assert!(backend.holds.has(PeerId(5)) && !backend.holds.has(PeerId(6)));
    assert_eq!(next(&mut ours), came(OTHER, 2));
    deferred(&mut ours, came(OTHER, 4));
    assert!(backend.holds.has(PeerId(6)));
    // Both were tried: they rest, and then each comes again, in turn.
    assert_eq!(way(&mut ours).next(), None);
    deferred(&mut ours, came(PEER, 1));
    assert_eq!(next(&mut ours), came(OTHER, 4));
    assert!(!backend.holds.has(PeerId(6)) && backend.holds.released());
    backend.tell(&message(6, 5));
    assert_eq!(next(&mut ours), came(OTHER, 5));
    let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(first, Some(came(PEER, 1)));
    way(&mut ours).done();
    assert_eq!(next(&mut ours), came(PEER, 3), "in order");
    assert!(!backend.holds.has(PeerId(5)) && backend.holds.released());
}

#[test]
fn rings_hold_passes_full_request_queue() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    backend.tell(&message(5, 1));
    // The NIC side takes no more requests.
    while way(&mut ours).eager(PEER, Token(1), 1, &vec![1]).is_ok() {}
    deferred(&mut ours, came(PEER, 1));
    assert!(backend.holds.has(PeerId(5)));
    let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(first, Some(came(PEER, 1)));
    way(&mut ours).done();
    assert!(!backend.holds.has(PeerId(5)) && backend.holds.released());
}

#[test]
fn rings_pending_messages_are_retried_before_sleep() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    backend.tell(&message(5, 1));
    deferred(&mut ours, came(PEER, 1));
    assert!(ours.arm(), "it waits for the application");
    ours.disarm();
    // The application posts a receive, which may match.
    assert!(ours.nudge());
    assert!(!ours.arm(), "it is not known yet");
    ours.disarm();
    let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(first, Some(came(PEER, 1)));
    way(&mut ours).done();
    assert!(!ours.nudge() && ours.arm());
}

#[test]
fn rings_events_before_the_end_are_handled_first() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    other_seen(&mut ours, &mut backend);
    backend.tell(&message(5, 1));
    deferred(&mut ours, came(PEER, 1));
    backend.tell(&message(5, 2));
    backend.tell(&message(6, 3));
    backend.tell(&Event::Offered { peer: PeerId(6), match_info: 4, len: 9, handle: Handle(1) });
    backend.tell(&Event::Sent { token: Token(8), status: Status::Success, taken: 3 });
    ours.end();
    assert!(!ours.arm());
    assert_eq!(next(&mut ours), came(OTHER, 3));
    assert!(matches!(next(&mut ours), TransportEvent::Sent { token: Token(8), .. }), "no offer");
    // The peer with pending messages is unreachable; the other is lost.
    let status = Status::EndpointUnreachable;
    assert_eq!(next(&mut ours), TransportEvent::Unreached { peer: PEER, status }, "reported once");
    deferred(&mut ours, came(PEER, 1));
    let gone = |peer| TransportEvent::PeerGone { peer, status: Status::EndpointUnreachable };
    assert_eq!(way(&mut ours).next(), Some(gone(OTHER)));
    way(&mut ours).forget(OTHER);
    way(&mut ours).done();
    deferred(&mut ours, came(PEER, 1));
    assert_eq!(way(&mut ours).next(), None);
    assert!(ours.arm(), "the application does not take it");
    assert!(ours.nudge() && !ours.arm());
    let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(first, Some(came(PEER, 1)));
    way(&mut ours).done();
    assert_eq!(next(&mut ours), came(PEER, 2));
    assert!(!ours.arm());
    let last = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(last, Some(gone(PEER)));
    way(&mut ours).forget(PEER);
    way(&mut ours).done();
    assert_eq!(way(&mut ours).next(), None);
    assert!(ours.arm());
}

#[test]
fn rings_messages_after_the_end_fail_and_wait_for_no_staging() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    ours.staging.places = 0;
    let data = vec![1; 40_000];
    let offered = way(&mut ours).offer(PEER, Token(1), 0, &data);
    assert_eq!(offered, Err(TransportError::Full));
    ours.end();
    let gone = TransportError::Never(Status::EndpointUnreachable);
    assert_eq!(way(&mut ours).offer(PEER, Token(1), 0, &data), Err(gone));
    assert_eq!(way(&mut ours).pull(PEER, 1, Token(2), None, 40_000), Err(gone));
}

#[test]
fn rings_unanswered_connects_fail() {
    let (mut ours, mut backend) = pair();
    let to = Address { nic: NicId(0x0200_0000_0009), endpoint: 1 };
    for token in 1..=3 {
        way(&mut ours).connect(Token(token), to, 4, None).unwrap();
    }
    backend.tell(&Event::Connected { token: Token(1), status: Status::BadKey, peer: PeerId::NONE });
    assert!(matches!(next(&mut ours), TransportEvent::Connected { token: Token(1), .. }));
    way(&mut ours).cancel(Token(2));
    ours.end();
    assert!(!ours.arm());
    let (status, peer) = (Status::EndpointUnreachable, PeerId::NONE);
    assert_eq!(next(&mut ours), TransportEvent::Connected { token: Token(3), status, peer });
    assert_eq!(way(&mut ours).next(), None);
    assert!(ours.arm());
}

#[test]
fn rings_pending_messages_do_not_delay_failures_after_the_end() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    let data = vec![1; 20_000];
    // The pending queue is full, and the ring has more.
    for _ in 0..80 {
        let event = Event::Message { peer: PeerId(5), match_info: 0, data: &data };
        while write_event(&mut backend.sender, &event).unwrap() {}
        if way(&mut ours).next().is_some() {
            way(&mut ours).defer();
        }
    }
    let to = Address { nic: NicId(0x0200_0000_0009), endpoint: 2 };
    way(&mut ours).connect(Token(3), to, 4, None).unwrap();
    ours.end();
    let mut told = Vec::new();
    for _ in 0..300 {
        match way(&mut ours).next() {
            Some(TransportEvent::Message { .. }) => way(&mut ours).defer(),
            Some(arrival) => {
                told.push(arrival);
                way(&mut ours).done();
            }
            None => {}
        }
    }
    let (status, peer) = (Status::EndpointUnreachable, PeerId::NONE);
    let connected = TransportEvent::Connected { token: Token(3), status, peer };
    assert_eq!(told, [connected, TransportEvent::Unreached { peer: PEER, status }]);
    assert!(ours.arm(), "the rest waits for the application");
    // A hostile NIC side that goes on writing is read for a bounded time.
    let mut written = 0;
    for _ in 0..1000 {
        let event = Event::Message { peer: PeerId(5), match_info: 0, data: &data };
        written += u32::from(write_event(&mut backend.sender, &event).unwrap());
        if way(&mut ours).next().is_some() {
            way(&mut ours).defer();
        }
    }
    assert!(written < 300, "{written} messages were taken");
}

#[test]
fn rings_hostile_nic_side_is_bounded_in_memory() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    let data = vec![1; 20_000];
    let mut sent = 0;
    // It ignores the hold.
    for _ in 0..500 {
        let event = Event::Message { peer: PeerId(5), match_info: 0, data: &data };
        while write_event(&mut backend.sender, &event).unwrap() {
            sent += 1;
        }
        if way(&mut ours).next().is_some() {
            way(&mut ours).defer();
        }
    }
    assert!(sent < 100, "{sent} messages were taken");
    let first = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert!(matches!(first, Some(TransportEvent::Message { .. })), "they are still there");
}

#[test]
fn rings_hostile_entries_end_the_rings() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    assert!(backend.sender.send(EventHead { kind: 77, words: [0; 3] }, &[]).unwrap());
    let gone = TransportEvent::PeerGone { peer: PEER, status: Status::EndpointUnreachable };
    let told = way(&mut ours).next().or_else(|| way(&mut ours).next());
    assert_eq!(told, Some(gone));
    way(&mut ours).forget(PEER);
    way(&mut ours).done();
    assert_eq!(way(&mut ours).next(), None);
    let never = TransportError::Never(Status::EndpointUnreachable);
    assert_eq!(way(&mut ours).eager(PEER, Token(1), 1, &vec![1]), Err(never));
    assert_eq!(way(&mut ours).offer(PEER, Token(1), 1, &vec![1]), Err(never));
    assert_eq!(ours.staging.taken, 0, "its place is free");
}

#[test]
fn rings_doorbell_wakes_the_nic_side() {
    let (mut ours, mut backend) = pair();
    seen(&mut ours, &mut backend);
    way(&mut ours).eager(PEER, Token(1), 1, &vec![1]).unwrap();
    assert_eq!(*backend.rung.borrow(), 0);
    assert!(backend.receiver.arm(), "something is there");
    backend.asked().unwrap();
    assert!(!backend.receiver.arm());
    way(&mut ours).eager(PEER, Token(1), 1, &vec![1]).unwrap();
    assert_eq!(*backend.rung.borrow(), 1);
}
