//! Peers that come and go, confirmations and timeouts, over a transport that the test controls.

use causeway_message::library::{Error, Handover, Library, Partner, ProgressStep, TransportEvent};
use causeway_message::limits::EARLY_SENDS_MAX;
use causeway_message::split::{Address, NicId, PeerId, Token};
use causeway_message::status::Status;
use causeway_testing::messages::fake::{FakeTransport, TransportCall};
use causeway_testing::messages::*;

const PEER: PeerId = PeerId(3);
const FIRST: Partner = Partner { peer: PEER, epoch: 0 };
const ADDRESS: Address = Address { nic: NicId(0xabc), endpoint: 4 };

struct Lone {
    library: Library<Pad>,
    way: FakeTransport,
}

impl Lone {
    /// Returns an endpoint with one peer.
    fn new() -> Self {
        let mut lone =
            Self { library: Library::new(options(1)).unwrap(), way: FakeTransport::default() };
        lone.queue_event(TransportEvent::PeerSeen { peer: PEER, address: ADDRESS, session: 55 });
        lone
    }

    fn queue_event(&mut self, arrival: TransportEvent) {
        self.way.queue_event(arrival);
        self.run();
    }

    fn run(&mut self) {
        while self.library.progress(&mut self.way) == ProgressStep::Worked {}
    }

    fn send(&mut self, len: usize) -> causeway_message::library::RequestId {
        self.library.isend(&mut self.way, FIRST, 1, 2, pad(&vec![7; len])).unwrap()
    }

    fn receive(&mut self, len: usize) -> (causeway_message::library::RequestId, Back) {
        let (pad, back) = room(len);
        (self.library.irecv(&mut self.way, 0, 0, 3, pad).unwrap(), back)
    }

    #[track_caller]
    fn status(&mut self, id: causeway_message::library::RequestId) -> Status {
        self.library.test(id).unwrap().expect("not ended").status
    }

    fn last_token(&self) -> Token {
        *self.way.tokens().last().unwrap()
    }
}

#[test]
fn peers_connect_ends_with_the_peer_or_the_reason() {
    let mut lone = Lone::new();
    let connect = |lone: &mut Lone| {
        lone.library.iconnect(&mut lone.way, ADDRESS, 9, 0x77, 5, Some(1_000)).unwrap()
    };
    let id = connect(&mut lone);
    let token = lone.last_token();
    assert_eq!(lone.way.calls, [TransportCall::Connect(token, ADDRESS, 9, Some(1_000))]);
    lone.queue_event(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    let done = lone.library.test_any(0x77, u64::MAX).unwrap().unwrap();
    assert_eq!((done.status, done.partner, done.context), (Status::Success, Some(FIRST), 5));
    assert_eq!(lone.library.test(id), Err(Error::BadRequest));
    assert_eq!(lone.library.decompose(FIRST), Some((ADDRESS, 55)));
    for status in [Status::BadKey, Status::BadEndpoint, Status::Timeout, Status::EndpointClosed] {
        let id = connect(&mut lone);
        let token = lone.last_token();
        lone.queue_event(TransportEvent::Connected { token, status, peer: PeerId(0) });
        let done = lone.library.test(id).unwrap().unwrap();
        assert_eq!((done.status, done.partner), (status, None));
    }
    // To a peer that was never reported.
    let id = connect(&mut lone);
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Connected {
        token,
        status: Status::Success,
        peer: PeerId(77),
    });
    assert_eq!(lone.status(id), Status::EndpointUnreachable);
    // A cancelled connect: later events for it have no effect.
    let id = connect(&mut lone);
    let token = lone.last_token();
    assert_eq!(lone.library.cancel(&mut lone.way, id), Ok(true));
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::Cancel(token)));
    lone.queue_event(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    assert_eq!(lone.library.ipeek(), None);
    // No room now: the connect is retried.
    lone.way.room = 0;
    let id = connect(&mut lone);
    lone.run();
    lone.way.room = 1;
    lone.run();
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    assert_eq!(lone.status(id), Status::Success);
    // Cancelled before there is room.
    lone.way.room = 0;
    let id = connect(&mut lone);
    let calls = lone.way.calls.len();
    assert_eq!(lone.library.cancel(&mut lone.way, id), Ok(true));
    lone.way.room = 9;
    lone.run();
    assert_eq!(lone.way.calls.len(), calls);
}

#[test]
fn peers_unreported_sends_report_losses_only() {
    let mut lone = Lone::new();
    let id = lone.send(10);
    let say = |lone: &mut Lone, status| {
        lone.queue_event(TransportEvent::Sent { token: Token::UNREPORTED, status, taken: 0 });
        lone.library.has_failed()
    };
    assert!(!say(&mut lone, Status::Success));
    assert!(say(&mut lone, Status::EndpointUnreachable));
    assert!(say(&mut lone, Status::Success), "it was heard before");
    assert_eq!(lone.library.take_lost(), Some(Status::EndpointUnreachable));
    assert_eq!((lone.library.take_lost(), lone.library.has_failed()), (None, false));
    assert_eq!(lone.status(id), Status::Success, "it is another's");
}

#[test]
fn peers_copied_sends_end_early_up_to_a_limit() {
    let mut lone = Lone::new();
    let ids: Vec<_> = (0..EARLY_SENDS_MAX + 3).map(|_| lone.send(10)).collect();
    let tokens = lone.way.tokens();
    for (number, &id) in ids.iter().enumerate() {
        let ended = number < EARLY_SENDS_MAX;
        assert_eq!(lone.library.ibuffered(id), Ok(ended), "{number}");
        assert_eq!(lone.library.test(id).unwrap().is_some(), ended);
    }
    // A confirmation makes room for another early end; the rest wait for their own.
    let confirm = |lone: &mut Lone, at: usize, status| {
        lone.queue_event(TransportEvent::Sent { token: tokens[at], status, taken: 0 });
    };
    confirm(&mut lone, 0, Status::Success);
    let early = lone.send(10);
    assert_eq!(lone.status(early), Status::Success);
    confirm(&mut lone, EARLY_SENDS_MAX, Status::Success);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX]), Status::Success);
    confirm(&mut lone, EARLY_SENDS_MAX + 1, Status::EndpointClosed);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX + 1]), Status::EndpointClosed);
    // A failure after an early end is reported separately.
    assert_eq!(lone.library.take_lost(), None);
    confirm(&mut lone, 1, Status::EndpointUnreachable);
    assert_eq!(lone.library.take_lost(), Some(Status::EndpointUnreachable));
    assert_eq!(lone.library.take_lost(), None);
    // A repeated confirmation has no effect.
    confirm(&mut lone, 1, Status::Success);
    (2..EARLY_SENDS_MAX).for_each(|at| confirm(&mut lone, at, Status::Success));
    confirm(&mut lone, EARLY_SENDS_MAX + 2, Status::Success);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX + 2]), Status::Success);
    assert_eq!(lone.library.requests(), 1, "the one that was sent in between");
}

#[test]
fn peers_early_send_completes_once() {
    let mut lone = Lone::new();
    let id = lone.send(1);
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.status(id), Status::Success);
    assert_eq!(lone.library.requests(), 0);
    let id = lone.send(1);
    lone.library.forget(id).unwrap();
    assert_eq!(lone.library.requests(), 1);
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.library.requests(), 0);
}

#[test]
fn peers_large_messages_use_offers_and_pulls() {
    let mut lone = Lone::new();
    // The transport keeps the bytes: they are not returned before the end.
    let send = lone.send(101);
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::Offer(PEER, lone.last_token(), 1, 101)));
    assert_eq!(lone.library.ibuffered(send), Ok(false));
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Sent { token, status: Status::Success, taken: 60 });
    let done = lone.library.test(send).unwrap().unwrap();
    assert_eq!((done.status, done.xfer_length, done.msg_length), (Status::Truncated, 60, 101));
    let (receive, back) = lone.receive(50);
    lone.queue_event(TransportEvent::Offered { peer: PEER, match_info: 8, len: 80, offer: 12 });
    let token = lone.last_token();
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::Pull(PEER, 12, token, 50)));
    assert!(lone.library.test(receive).unwrap().is_none());
    lone.queue_event(TransportEvent::Pulled { token, status: Status::Success });
    let done = lone.library.test(receive).unwrap().unwrap();
    assert_eq!((done.status, done.xfer_length, done.msg_length), (Status::Truncated, 50, 80));
    assert_eq!(given(&back), [0x55; 50]);
    let (receive, _) = lone.receive(50);
    lone.queue_event(TransportEvent::Offered { peer: PEER, match_info: 8, len: 50, offer: 13 });
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Pulled { token, status: Status::Aborted });
    assert_eq!(lone.status(receive), Status::Aborted);
    // An eager send with kept bytes has not ended, and its buffer is in use.
    lone.way.eager = Handover::Kept;
    let send = lone.send(5);
    assert_eq!(lone.library.ibuffered(send), Ok(false));
    let token = lone.last_token();
    lone.queue_event(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.library.test(send).unwrap().unwrap().xfer_length, 5);
}

#[test]
fn peers_refused_requests_are_retried_in_order() {
    let mut lone = Lone::new();
    lone.way.room = 2;
    let ids: Vec<_> = (0..6).map(|number| lone.send(99 + number)).collect();
    lone.run();
    assert_eq!(lone.way.calls.len(), 2);
    lone.way.room = 3;
    lone.run();
    lone.way.room = 3;
    let late = lone.send(1);
    assert_eq!(lone.way.calls.len(), 5, "it may not overtake");
    lone.run();
    let lens: Vec<_> = lone
        .way
        .calls
        .iter()
        .map(|calls| match calls {
            TransportCall::Eager(.., bytes) => bytes.len(),
            TransportCall::Offer(.., len) => *len,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lens, [99, 100, 101, 102, 103, 104, 1]);
    assert_eq!(lone.status(ids[0]), Status::Success);
    assert_eq!(lone.status(late), Status::Success);
}

#[test]
fn peers_loss_ends_all_requests_of_the_peer() {
    for disconnect in [false, true] {
        let mut lone = Lone::new();
        lone.queue_event(TransportEvent::Offered {
            peer: PEER,
            match_info: 70,
            len: 500,
            offer: 1,
        });
        lone.way.queue_message(PEER, 71, b"whole");
        lone.run();
        let (pulling, pulling_back) = lone.receive(1000);
        let offered = lone.send(1000);
        lone.queue_event(TransportEvent::Offered {
            peer: PEER,
            match_info: 72,
            len: 500,
            offer: 2,
        });
        lone.queue_event(TransportEvent::Offered {
            peer: PEER,
            match_info: 73,
            len: 500,
            offer: 3,
        });
        lone.way.room = 0;
        let waiting = lone.send(10);
        lone.run();
        let early_lost = lone.library.take_lost();
        assert_eq!(early_lost, None);
        let expected = if disconnect {
            lone.library.disconnect(&mut lone.way, FIRST).unwrap();
            assert_eq!(lone.way.calls.last(), Some(&TransportCall::Disconnect(PEER)));
            Status::EndpointUnreachable
        } else {
            lone.queue_event(TransportEvent::PeerGone {
                peer: PEER,
                status: Status::EndpointClosed,
            });
            assert_eq!(lone.way.calls.last(), Some(&TransportCall::Forget(PEER)));
            Status::EndpointClosed
        };
        for id in [pulling, offered, waiting] {
            assert_eq!(lone.status(id), expected);
        }
        given(&pulling_back);
        // Offers are void; eager messages stay.
        let (receive, back) = lone.receive(10);
        assert_eq!(lone.library.test(receive).unwrap().unwrap().match_info, 71);
        assert_eq!(given(&back)[..5], *b"whole");
        assert_eq!(lone.library.unexpected(), 0);
        // New sends end at once.
        let send = lone.send(10);
        assert_eq!(lone.status(send), Status::EndpointUnreachable);
        assert!(!lone.library.is_reached(FIRST));
        assert_eq!(lone.library.disconnect(&mut lone.way, FIRST), Err(Error::BadRequest));
        assert_eq!(lone.library.requests(), 0);
    }
}

#[test]
fn peers_restarted_peer_is_a_new_one() {
    let mut lone = Lone::new();
    assert!(lone.library.set_partner_context(FIRST, 99));
    let offered = lone.send(1000);
    lone.queue_event(TransportEvent::PeerSeen { peer: PEER, address: ADDRESS, session: 56 });
    assert_eq!(lone.status(offered), Status::EndpointUnreachable);
    let second = Partner { peer: PEER, epoch: 1 };
    assert_eq!(lone.library.decompose(FIRST), None);
    assert_eq!(lone.library.decompose(second), Some((ADDRESS, 56)));
    assert_eq!(lone.library.partner_context(FIRST), None);
    assert_eq!(lone.library.partner_context(second), Some(0));
    let (to_old, to_new) =
        (lone.send(1), lone.library.isend(&mut lone.way, second, 1, 1, pad(b"x")).unwrap());
    assert_eq!(lone.status(to_old), Status::EndpointUnreachable);
    assert_eq!(lone.status(to_new), Status::Success);
}

#[test]
fn peers_have_a_value_of_the_application() {
    let mut lone = Lone::new();
    for partner in [FIRST, Partner::SELF] {
        assert_eq!(lone.library.partner_context(partner), Some(0));
        assert!(lone.library.set_partner_context(partner, u64::MAX));
        assert_eq!(lone.library.partner_context(partner), Some(u64::MAX));
    }
    let unknown = Partner { peer: PeerId(9), epoch: 0 };
    assert_eq!(lone.library.partner_context(unknown), None);
    assert!(!lone.library.set_partner_context(unknown, 1));
    let send = lone.library.isend(&mut lone.way, unknown, 1, 1, pad(b"x")).unwrap();
    assert_eq!(lone.status(send), Status::EndpointUnreachable);
}

#[test]
fn peers_requests_time_out() {
    let mut lone = Lone::new();
    lone.library.tick(&mut lone.way, 1000);
    assert_eq!(lone.library.deadline(), None);
    lone.library.set_timeout(None, Some(500)).unwrap();
    let offered = lone.send(1000);
    let offered_token = lone.last_token();
    let connect = lone.library.iconnect(&mut lone.way, ADDRESS, 1, 1, 1, Some(700)).unwrap();
    let (untimed, _) = lone.receive(10);
    let (timed, timed_back) = lone.receive(10);
    lone.library.set_timeout(Some(timed), Some(600)).unwrap();
    let (matched, _) = lone.receive(10);
    assert_eq!(lone.library.deadline(), Some(1500));
    lone.library.tick(&mut lone.way, 1499);
    assert!(lone.library.test(offered).unwrap().is_none());
    lone.library.tick(&mut lone.way, 1500);
    assert_eq!(lone.status(offered), Status::Timeout);
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::Cancel(offered_token)));
    assert_eq!(lone.library.deadline(), Some(1600));
    lone.library.tick(&mut lone.way, 1600);
    let done = lone.library.test(timed).unwrap().unwrap();
    assert_eq!((done.status, done.partner, done.xfer_length), (Status::Timeout, None, 0));
    given(&timed_back);
    lone.library.tick(&mut lone.way, 9999);
    assert_eq!(lone.status(connect), Status::Timeout);
    assert_eq!(lone.library.deadline(), None);
    // The limit applies to the time before the match.
    assert!(lone.library.test(untimed).unwrap().is_none());
    lone.queue_event(TransportEvent::Offered { peer: PEER, match_info: 1, len: 10, offer: 1 });
    lone.queue_event(TransportEvent::Offered { peer: PEER, match_info: 1, len: 10, offer: 1 });
    lone.library.set_timeout(Some(matched), Some(1)).unwrap();
    lone.library.tick(&mut lone.way, 99_999);
    assert!(lone.library.test(matched).unwrap().is_none());
    // Events after the end have no effect.
    lone.queue_event(TransportEvent::Sent {
        token: offered_token,
        status: Status::Success,
        taken: 1000,
    });
    lone.queue_event(TransportEvent::Wanted { peer: PEER, token: offered_token, to: 4, len: 10 });
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::Fail(PEER, 4)));
    // The limit is removed.
    lone.library.set_timeout(None, None).unwrap();
    lone.send(1000);
    assert_eq!(lone.library.deadline(), None);
}

#[test]
fn peers_hostile_names_have_no_effect() {
    let mut lone = Lone::new();
    let send = lone.send(1000);
    let token = lone.last_token();
    let (receive, _) = lone.receive(1000);
    let others = [PeerId(4), PeerId(u32::MAX), PEER];
    for name in [0, 1, u64::MAX, token.0 ^ 1, token.0 ^ 1 << 33, receive.0] {
        for peer in others {
            let (token, status) = (Token(name), Status::Success);
            lone.queue_event(TransportEvent::Sent { token, status, taken: 5 });
            lone.queue_event(TransportEvent::Pulled { token, status });
            lone.queue_event(TransportEvent::Connected { token, status, peer });
            lone.queue_event(TransportEvent::Wanted { peer, token, to: 1, len: 5 });
            lone.queue_event(TransportEvent::Chunk { peer, token, len: 5 });
            lone.queue_event(TransportEvent::Failed { peer, token });
        }
    }
    // The right name, but from another peer.
    lone.queue_event(TransportEvent::Wanted { peer: PeerId(4), token, to: 1, len: 5 });
    assert!(lone.library.test(send).unwrap().is_none());
    assert!(lone.library.test(receive).unwrap().is_none());
    // From peers that were never reported.
    lone.way.queue_message(PeerId(4), 1, b"x");
    lone.queue_event(TransportEvent::Offered { peer: PeerId(4), match_info: 1, len: 5, offer: 1 });
    lone.queue_event(TransportEvent::PeerGone { peer: PeerId(4), status: Status::Success });
    assert!(lone.library.test(receive).unwrap().is_none());
    assert_eq!(lone.library.unexpected(), 0);
    // A peer number that is too high.
    let peer = PeerId(u32::MAX);
    lone.queue_event(TransportEvent::PeerSeen { peer, address: ADDRESS, session: 1 });
    assert_eq!(lone.way.calls.last(), Some(&TransportCall::FailPeer(peer)));
}

#[test]
fn peers_unreachable_peer_fails_sends_and_its_messages_arrive() {
    let mut lone = Lone::new();
    let (offered, (_, _back)) = (lone.send(1000), lone.receive(1000));
    lone.way.room = 0;
    let waiting = lone.send(10);
    lone.queue_event(TransportEvent::Unreached { peer: PEER, status: Status::EndpointUnreachable });
    for id in [offered, waiting] {
        assert_eq!(lone.status(id), Status::EndpointUnreachable);
    }
    lone.way.queue_message(PEER, 71, b"whole");
    lone.run();
    assert!(lone.library.is_reached(FIRST), "it is not gone");
    assert!(lone.way.arrivals.is_empty());
}
