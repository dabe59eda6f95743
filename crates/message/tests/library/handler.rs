//! The unexpected handler: its questions, and the effects of its answers.

use causeway_message::library::{HandlerAction, HandlerMessage, Partner, ProgressStep};
use causeway_message::status::Status;
use causeway_testing::messages::*;

fn asked(end: &mut End) -> HandlerMessage {
    loop {
        match end.library.progress(&mut end.ways) {
            ProgressStep::Ask(asked) => return asked,
            ProgressStep::Worked => {}
            step => panic!("nothing is asked: {step:?}"),
        }
    }
}

fn pair() -> EndpointPair {
    let mut pair = EndpointPair::new();
    pair.b.library.set_handler(true);
    pair
}

fn bytes_of(end: &End, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    assert_eq!(end.library.asked_bytes(&end.ways, &mut bytes), len as usize);
    bytes
}

#[test]
fn handler_sees_unexpected_messages_and_their_bytes() {
    let mut pair = pair();
    let (receive, _) = pair.b.receive(1, u64::MAX, 8);
    pair.a.send(B, 1, b"expected");
    pair.a.send(B, 2, b"whole");
    pair.a.send(B, 3, &content(1, 100_000));
    let first = asked(&mut pair.b);
    pair.b.ended(receive);
    assert_eq!(first, HandlerMessage { partner: A, match_info: 2, len: 5, whole: true });
    assert_eq!(bytes_of(&pair.b, 5), b"whole");
    // No event is handled before the answer, and a second poll returns the same question.
    assert_eq!(pair.b.library.progress(&mut pair.b.ways), ProgressStep::Asking);
    assert_eq!(bytes_of(&pair.b, 5), b"whole");
    pair.b.library.answer(&mut pair.b.ways, HandlerAction::Finished);
    let second = asked(&mut pair.b);
    assert_eq!(second, HandlerMessage { partner: A, match_info: 3, len: 100_000, whole: false });
    assert_eq!(pair.b.library.asked_bytes(&pair.b.ways, &mut [0; 10]), 0);
    pair.b.library.answer(&mut pair.b.ways, HandlerAction::Continue);
    assert_eq!(pair.b.library.unexpected(), 1);
}

#[test]
fn handler_continue_matches_as_without_a_handler() {
    let mut pair = pair();
    for len in [10, 100_000] {
        let bytes = content(2, len);
        // A receive that the handler posts takes the message.
        let send = pair.a.send(B, 1, &bytes);
        asked(&mut pair.b);
        let (receive, back) = pair.b.receive(1, u64::MAX, len);
        pair.b.library.answer(&mut pair.b.ways, HandlerAction::Continue);
        pair.run();
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == bytes);
        assert_eq!(pair.a.ended(send).status, Status::Success);
        // Without a receive, the message is kept, and the handler is not called again.
        let send = pair.a.send(B, 1, &bytes);
        asked(&mut pair.b);
        pair.b.library.answer(&mut pair.b.ways, HandlerAction::Continue);
        pair.run();
        let (receive, back) = pair.b.receive(1, u64::MAX, len);
        pair.run();
        pair.b.ended(receive);
        assert!(given(&back) == bytes);
        pair.a.ended(send);
    }
}

#[test]
fn handler_finished_drops_the_message_and_completes_the_sender() {
    let mut pair = pair();
    let small = pair.a.send(B, 1, b"small");
    let large = pair.a.send(B, 2, &content(1, 50_000));
    let sync = pair.a.ssend(B, 3, b"");
    for _ in 0..3 {
        asked(&mut pair.b);
        pair.b.library.answer(&mut pair.b.ways, HandlerAction::Finished);
    }
    pair.run();
    assert_eq!(pair.a.ended(small).status, Status::Success);
    let large = pair.a.ended(large);
    assert_eq!((large.status, large.xfer_length), (Status::Truncated, 0));
    assert_eq!(pair.a.ended(sync).status, Status::Success);
    assert_eq!(pair.b.library.unexpected(), 0);
    assert_eq!(pair.b.library.requests(), 0);
    assert_eq!(pair.b.library.ipeek(), None);
}

#[test]
fn handler_sees_sends_to_itself_in_order() {
    let mut end = End::new(options(1));
    end.library.set_handler(true);
    let own = Partner::SELF;
    let (receive, _) = end.receive(9, u64::MAX, 1);
    let sends: Vec<_> = (1..=3).map(|info| end.send(own, info, &[info as u8; 3])).collect();
    // A message that a receive takes needs no handler, but waits behind the others.
    let taken = end.send(own, 9, b"x");
    assert_eq!(end.library.unexpected(), 0);
    assert_eq!(asked(&mut end).match_info, 1);
    assert_eq!(bytes_of(&end, 3), [1; 3]);
    // Sent by the handler itself.
    let late = end.send(own, 4, b"late");
    end.library.answer(&mut end.ways, HandlerAction::Finished);
    let done = end.ended(sends[0]);
    assert_eq!((done.status, done.xfer_length), (Status::Success, 3));
    assert_eq!(asked(&mut end).match_info, 2);
    let (posted, back) = end.receive(2, u64::MAX, 3);
    end.library.answer(&mut end.ways, HandlerAction::Continue);
    end.ended(posted);
    assert_eq!(given(&back), [2; 3]);
    end.ended(sends[1]);
    assert_eq!(asked(&mut end).match_info, 3);
    end.library.answer(&mut end.ways, HandlerAction::Continue);
    assert_eq!(end.library.unexpected(), 1);
    assert_eq!(asked(&mut end).match_info, 4);
    end.ended(receive);
    end.ended(taken);
    end.library.answer(&mut end.ways, HandlerAction::Finished);
    end.ended(late);
}

#[test]
fn handler_survives_a_peer_that_is_lost_meanwhile() {
    for (len, action) in [
        (5, HandlerAction::Continue),
        (50_000, HandlerAction::Continue),
        (50_000, HandlerAction::Finished),
    ] {
        let mut pair = pair();
        pair.a.send(B, 1, &content(1, len));
        asked(&mut pair.b);
        pair.b.library.disconnect(&mut pair.b.ways, A).unwrap();
        pair.b.library.answer(&mut pair.b.ways, action);
        pair.b.run();
        let (receive, _) = pair.b.receive(1, u64::MAX, len);
        pair.b.run();
        assert!(pair.b.is_pending(receive), "nothing of it is left");
        assert_eq!(pair.b.library.unexpected(), 0);
    }
}
