//! Partners that come and go, confirmations, limits of time: over a way that a test speaks for.

use causeway_message::library::{Error, Handover, Library, Partner, Step, TransportEvent};
use causeway_message::limits::EARLY_SENDS_MAX;
use causeway_message::split::{Address, NicId, PeerId, Token};
use causeway_message::status::Status;
use causeway_testing::messages::fake::{Call, Fake};
use causeway_testing::messages::*;

const PEER: PeerId = PeerId(3);
const FIRST: Partner = Partner { peer: PEER, epoch: 0 };
const ADDRESS: Address = Address { nic: NicId(0xabc), endpoint: 4 };

struct Lone {
    library: Library<Pad>,
    way: Fake,
}

impl Lone {
    /// An endpoint with one partner.
    fn new() -> Self {
        let mut lone = Self { library: Library::new(options(1)).unwrap(), way: Fake::default() };
        lone.say(TransportEvent::PeerSeen { peer: PEER, address: ADDRESS, session: 55 });
        lone
    }

    fn say(&mut self, arrival: TransportEvent) {
        self.way.say(arrival);
        self.run();
    }

    fn run(&mut self) {
        while self.library.progress(&mut self.way) == Step::Worked {}
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
fn a_connect_ends_with_the_partner_or_with_why_there_is_none() {
    let mut lone = Lone::new();
    let connect = |lone: &mut Lone| {
        lone.library.iconnect(&mut lone.way, ADDRESS, 9, 0x77, 5, Some(1_000)).unwrap()
    };
    let id = connect(&mut lone);
    let token = lone.last_token();
    assert_eq!(lone.way.told, [Call::Connect(token, ADDRESS, 9, Some(1_000))]);
    lone.say(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    let done = lone.library.test_any(0x77, u64::MAX).unwrap().unwrap();
    assert_eq!((done.status, done.partner, done.context), (Status::Success, Some(FIRST), 5));
    assert_eq!(lone.library.test(id), Err(Error::BadRequest));
    assert_eq!(lone.library.decompose(FIRST), Some((ADDRESS, 55)));
    for status in [Status::BadKey, Status::BadEndpoint, Status::Timeout, Status::EndpointClosed] {
        let id = connect(&mut lone);
        let token = lone.last_token();
        lone.say(TransportEvent::Connected { token, status, peer: PeerId(0) });
        let done = lone.library.test(id).unwrap().unwrap();
        assert_eq!((done.status, done.partner), (status, None));
    }
    // To a partner that was never seen.
    let id = connect(&mut lone);
    let token = lone.last_token();
    lone.say(TransportEvent::Connected { token, status: Status::Success, peer: PeerId(77) });
    assert_eq!(lone.status(id), Status::EndpointUnreachable);
    // Taken back: what comes later is nobody's.
    let id = connect(&mut lone);
    let token = lone.last_token();
    assert_eq!(lone.library.cancel(&mut lone.way, id), Ok(true));
    assert_eq!(lone.way.told.last(), Some(&Call::Cancel(token)));
    lone.say(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    assert_eq!(lone.library.ipeek(), None);
    // No room now: later.
    lone.way.room = 0;
    let id = connect(&mut lone);
    lone.run();
    lone.way.room = 1;
    lone.run();
    let token = lone.last_token();
    lone.say(TransportEvent::Connected { token, status: Status::Success, peer: PEER });
    assert_eq!(lone.status(id), Status::Success);
    // No room, and taken back before there is.
    lone.way.room = 0;
    let id = connect(&mut lone);
    let told = lone.way.told.len();
    assert_eq!(lone.library.cancel(&mut lone.way, id), Ok(true));
    lone.way.room = 9;
    lone.run();
    assert_eq!(lone.way.told.len(), told);
}

#[test]
fn of_what_nobody_is_told_of_it_is_heard_that_it_is_lost_and_nothing_else() {
    let mut lone = Lone::new();
    let id = lone.send(10);
    let say = |lone: &mut Lone, status| {
        lone.say(TransportEvent::Sent { token: Token::UNREPORTED, status, taken: 0 });
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
fn sends_that_were_copied_end_early_up_to_a_limit_and_are_confirmed_later() {
    let mut lone = Lone::new();
    let ids: Vec<_> = (0..EARLY_SENDS_MAX + 3).map(|_| lone.send(10)).collect();
    let tokens = lone.way.tokens();
    for (number, &id) in ids.iter().enumerate() {
        let ended = number < EARLY_SENDS_MAX;
        assert_eq!(lone.library.ibuffered(id), Ok(ended), "{number}");
        assert_eq!(lone.library.test(id).unwrap().is_some(), ended);
    }
    // One is confirmed: there is room for one more; the others wait for their own.
    let confirm = |lone: &mut Lone, at: usize, status| {
        lone.say(TransportEvent::Sent { token: tokens[at], status, taken: 0 });
    };
    confirm(&mut lone, 0, Status::Success);
    let early = lone.send(10);
    assert_eq!(lone.status(early), Status::Success);
    confirm(&mut lone, EARLY_SENDS_MAX, Status::Success);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX]), Status::Success);
    confirm(&mut lone, EARLY_SENDS_MAX + 1, Status::EndpointClosed);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX + 1]), Status::EndpointClosed);
    // What fails after it ended early is told beside.
    assert_eq!(lone.library.take_lost(), None);
    confirm(&mut lone, 1, Status::EndpointUnreachable);
    assert_eq!(lone.library.take_lost(), Some(Status::EndpointUnreachable));
    assert_eq!(lone.library.take_lost(), None);
    // Twice is once.
    confirm(&mut lone, 1, Status::Success);
    (2..EARLY_SENDS_MAX).for_each(|at| confirm(&mut lone, at, Status::Success));
    confirm(&mut lone, EARLY_SENDS_MAX + 2, Status::Success);
    assert_eq!(lone.status(ids[EARLY_SENDS_MAX + 2]), Status::Success);
    assert_eq!(lone.library.requests(), 1, "the one that was sent in between");
}

#[test]
fn a_send_that_ended_early_is_told_once_whether_confirmed_before_or_after() {
    let mut lone = Lone::new();
    let id = lone.send(1);
    let token = lone.last_token();
    lone.say(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.status(id), Status::Success);
    assert_eq!(lone.library.requests(), 0);
    let id = lone.send(1);
    lone.library.forget(id).unwrap();
    assert_eq!(lone.library.requests(), 1);
    let token = lone.last_token();
    lone.say(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.library.requests(), 0);
}

#[test]
fn large_messages_go_by_offers_and_pulls() {
    let mut lone = Lone::new();
    // The way says that it keeps the bytes: they are not given back before.
    let send = lone.send(101);
    assert_eq!(lone.way.told.last(), Some(&Call::Offer(PEER, lone.last_token(), 1, 101)));
    assert_eq!(lone.library.ibuffered(send), Ok(false));
    let token = lone.last_token();
    lone.say(TransportEvent::Sent { token, status: Status::Success, taken: 60 });
    let done = lone.library.test(send).unwrap().unwrap();
    assert_eq!((done.status, done.xfer_length, done.msg_length), (Status::Truncated, 60, 101));
    let (receive, back) = lone.receive(50);
    lone.say(TransportEvent::Offered { peer: PEER, match_info: 8, len: 80, offer: 12 });
    let token = lone.last_token();
    assert_eq!(lone.way.told.last(), Some(&Call::Pull(PEER, 12, token, 50)));
    assert!(lone.library.test(receive).unwrap().is_none());
    lone.say(TransportEvent::Pulled { token, status: Status::Success });
    let done = lone.library.test(receive).unwrap().unwrap();
    assert_eq!((done.status, done.xfer_length, done.msg_length), (Status::Truncated, 50, 80));
    assert_eq!(given(&back), [0x55; 50]);
    let (receive, _) = lone.receive(50);
    lone.say(TransportEvent::Offered { peer: PEER, match_info: 8, len: 50, offer: 13 });
    let token = lone.last_token();
    lone.say(TransportEvent::Pulled { token, status: Status::Aborted });
    assert_eq!(lone.status(receive), Status::Aborted);
    // An eager send whose bytes are kept is not over, and its buffer not free.
    lone.way.eager = Handover::Kept;
    let send = lone.send(5);
    assert_eq!(lone.library.ibuffered(send), Ok(false));
    let token = lone.last_token();
    lone.say(TransportEvent::Sent { token, status: Status::Success, taken: 0 });
    assert_eq!(lone.library.test(send).unwrap().unwrap().xfer_length, 5);
}

#[test]
fn what_has_no_room_is_handed_over_later_in_order() {
    let mut lone = Lone::new();
    lone.way.room = 2;
    let ids: Vec<_> = (0..6).map(|number| lone.send(99 + number)).collect();
    lone.run();
    assert_eq!(lone.way.told.len(), 2);
    lone.way.room = 3;
    lone.run();
    lone.way.room = 3;
    let late = lone.send(1);
    assert_eq!(lone.way.told.len(), 5, "it may not overtake");
    lone.run();
    let lens: Vec<_> = lone
        .way
        .told
        .iter()
        .map(|told| match told {
            Call::Eager(.., bytes) => bytes.len(),
            Call::Offer(.., len) => *len,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lens, [99, 100, 101, 102, 103, 104, 1]);
    assert_eq!(lone.status(ids[0]), Status::Success);
    assert_eq!(lone.status(late), Status::Success);
}

#[test]
fn all_that_waits_for_a_partner_ends_when_it_is_gone() {
    for disconnect in [false, true] {
        let mut lone = Lone::new();
        lone.say(TransportEvent::Offered { peer: PEER, match_info: 70, len: 500, offer: 1 });
        lone.way.say_message(PEER, 71, b"whole");
        lone.run();
        let (pulling, pulling_back) = lone.receive(1000);
        let offered = lone.send(1000);
        lone.say(TransportEvent::Offered { peer: PEER, match_info: 72, len: 500, offer: 2 });
        lone.say(TransportEvent::Offered { peer: PEER, match_info: 73, len: 500, offer: 3 });
        lone.way.room = 0;
        let waiting = lone.send(10);
        lone.run();
        let early_lost = lone.library.take_lost();
        assert_eq!(early_lost, None);
        let expected = if disconnect {
            lone.library.disconnect(&mut lone.way, FIRST).unwrap();
            assert_eq!(lone.way.told.last(), Some(&Call::Disconnect(PEER)));
            Status::EndpointUnreachable
        } else {
            lone.say(TransportEvent::PeerGone { peer: PEER, status: Status::EndpointClosed });
            assert_eq!(lone.way.told.last(), Some(&Call::Forget(PEER)));
            Status::EndpointClosed
        };
        for id in [pulling, offered, waiting] {
            assert_eq!(lone.status(id), expected);
        }
        given(&pulling_back);
        // Offers are void, what came whole is not.
        let (receive, back) = lone.receive(10);
        assert_eq!(lone.library.test(receive).unwrap().unwrap().match_info, 71);
        assert_eq!(given(&back)[..5], *b"whole");
        assert_eq!(lone.library.unexpected(), 0);
        // And what is sent now ends at once.
        let send = lone.send(10);
        assert_eq!(lone.status(send), Status::EndpointUnreachable);
        assert!(!lone.library.is_reached(FIRST));
        assert_eq!(lone.library.disconnect(&mut lone.way, FIRST), Err(Error::BadRequest));
        assert_eq!(lone.library.requests(), 0);
    }
}

#[test]
fn a_partner_that_began_anew_is_another_one() {
    let mut lone = Lone::new();
    assert!(lone.library.set_partner_context(FIRST, 99));
    let offered = lone.send(1000);
    lone.say(TransportEvent::PeerSeen { peer: PEER, address: ADDRESS, session: 56 });
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
fn each_partner_has_a_word_of_the_application() {
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
fn requests_that_take_too_long_end() {
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
    assert_eq!(lone.way.told.last(), Some(&Call::Cancel(offered_token)));
    assert_eq!(lone.library.deadline(), Some(1600));
    lone.library.tick(&mut lone.way, 1600);
    let done = lone.library.test(timed).unwrap().unwrap();
    assert_eq!((done.status, done.partner, done.xfer_length), (Status::Timeout, None, 0));
    given(&timed_back);
    lone.library.tick(&mut lone.way, 9999);
    assert_eq!(lone.status(connect), Status::Timeout);
    assert_eq!(lone.library.deadline(), None);
    // The limit is for what comes before the match.
    assert!(lone.library.test(untimed).unwrap().is_none());
    lone.say(TransportEvent::Offered { peer: PEER, match_info: 1, len: 10, offer: 1 });
    lone.say(TransportEvent::Offered { peer: PEER, match_info: 1, len: 10, offer: 1 });
    lone.library.set_timeout(Some(matched), Some(1)).unwrap();
    lone.library.tick(&mut lone.way, 99_999);
    assert!(lone.library.test(matched).unwrap().is_none());
    // What comes after the end is nobody's.
    lone.say(TransportEvent::Sent { token: offered_token, status: Status::Success, taken: 1000 });
    lone.say(TransportEvent::Wanted { peer: PEER, token: offered_token, to: 4, len: 10 });
    assert_eq!(lone.way.told.last(), Some(&Call::Fail(PEER, 4)));
    // Never, again.
    lone.library.set_timeout(None, None).unwrap();
    lone.send(1000);
    assert_eq!(lone.library.deadline(), None);
}

#[test]
fn names_that_nobody_gave_out_do_no_harm() {
    let mut lone = Lone::new();
    let send = lone.send(1000);
    let token = lone.last_token();
    let (receive, _) = lone.receive(1000);
    let others = [PeerId(4), PeerId(u32::MAX), PEER];
    for name in [0, 1, u64::MAX, token.0 ^ 1, token.0 ^ 1 << 33, receive.0] {
        for peer in others {
            let (token, status) = (Token(name), Status::Success);
            lone.say(TransportEvent::Sent { token, status, taken: 5 });
            lone.say(TransportEvent::Pulled { token, status });
            lone.say(TransportEvent::Connected { token, status, peer });
            lone.say(TransportEvent::Wanted { peer, token, to: 1, len: 5 });
            lone.say(TransportEvent::Chunk { peer, token, len: 5 });
            lone.say(TransportEvent::Failed { peer, token });
        }
    }
    // The right name, but of another partner's.
    lone.say(TransportEvent::Wanted { peer: PeerId(4), token, to: 1, len: 5 });
    assert!(lone.library.test(send).unwrap().is_none());
    assert!(lone.library.test(receive).unwrap().is_none());
    // From partners that nobody has seen.
    lone.way.say_message(PeerId(4), 1, b"x");
    lone.say(TransportEvent::Offered { peer: PeerId(4), match_info: 1, len: 5, offer: 1 });
    lone.say(TransportEvent::PeerGone { peer: PeerId(4), status: Status::Success });
    assert!(lone.library.test(receive).unwrap().is_none());
    assert_eq!(lone.library.unexpected(), 0);
    // And a partner number that is too high.
    let peer = PeerId(u32::MAX);
    lone.say(TransportEvent::PeerSeen { peer, address: ADDRESS, session: 1 });
    assert_eq!(lone.way.told.last(), Some(&Call::Broken(peer)));
}

#[test]
fn sends_to_who_is_not_reached_any_more_end_and_what_it_sent_is_taken() {
    let mut lone = Lone::new();
    let (offered, (_, _back)) = (lone.send(1000), lone.receive(1000));
    lone.way.room = 0;
    let waiting = lone.send(10);
    lone.say(TransportEvent::Unreached { peer: PEER, status: Status::EndpointUnreachable });
    for id in [offered, waiting] {
        assert_eq!(lone.status(id), Status::EndpointUnreachable);
    }
    lone.way.say_message(PEER, 71, b"whole");
    lone.run();
    assert!(lone.library.is_reached(FIRST), "it is not gone");
    assert!(lone.way.arrivals.is_empty());
}
