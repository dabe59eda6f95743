//! Requests: end, collection, forget and cancel.

use causeway_channel::Layout;
use causeway_message::library::{Error, Partner, RequestId};
use causeway_message::split::Address;
use causeway_message::status::Status;
use causeway_testing::messages::*;

#[test]
fn requests_small_send_ends_at_once_and_large_send_when_received() {
    let mut pair = EndpointPair::new();
    for (len, at_once) in [(0, true), (8, true), (8192, true), (8193, false), (200_000, false)] {
        let send = pair.a.send(B, 1, &content(2, len));
        assert_eq!(pair.a.library.ibuffered(send), Ok(at_once));
        pair.run();
        if !at_once {
            assert!(pair.a.is_pending(send));
            assert_eq!(pair.a.library.ibuffered(send), Ok(false));
        }
        let (receive, back) = pair.b.receive(1, u64::MAX, len);
        pair.run();
        let done = pair.a.ended(send);
        assert_eq!((done.status, done.partner), (Status::Success, Some(B)));
        assert_eq!((done.msg_length, done.xfer_length), (len as u32, len as u32));
        assert_eq!((done.match_info, done.context), (1, 1 ^ 0xc0));
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == content(2, len));
    }
}

#[test]
fn requests_synchronous_send_ends_when_matched() {
    let mut pair = EndpointPair::new();
    for len in [0, 1, 5000, 100_000] {
        let send = pair.a.ssend(B, 1, &content(3, len));
        pair.run();
        assert!(pair.a.is_pending(send), "{len}: no receive took it");
        assert_eq!(pair.a.library.ibuffered(send), Ok(false));
        assert_eq!(pair.b.library.iprobe(1, 1).unwrap().unwrap().len as usize, len);
        let (receive, back) = pair.b.receive(1, u64::MAX, len);
        pair.run();
        assert_eq!(pair.a.ended(send).status, Status::Success);
        assert_eq!(pair.b.ended(receive).status, Status::Success);
        assert!(given(&back) == content(3, len));
    }
    // Truncated to 0 bytes.
    let send = pair.a.ssend(B, 1, b"some");
    let (receive, _) = pair.b.receive(1, u64::MAX, 0);
    pair.run();
    let (sent, received) = (pair.a.ended(send), pair.b.ended(receive));
    assert_eq!((sent.status, sent.xfer_length), (Status::Truncated, 0));
    assert_eq!((received.status, received.msg_length), (Status::Truncated, 4));
}

#[test]
fn requests_are_collected_once() {
    let mut pair = EndpointPair::new();
    let send = pair.a.send(B, 1, b"x");
    assert_eq!(pair.a.library.context(send), Ok(1 ^ 0xc0));
    pair.a.ended(send);
    let library = &mut pair.a.library;
    assert_eq!(library.test(send), Err(Error::BadRequest));
    assert_eq!(library.context(send), Err(Error::BadRequest));
    assert_eq!(library.forget(send), Err(Error::BadRequest));
    assert_eq!(library.ibuffered(send), Err(Error::BadRequest));
    assert_eq!(library.cancel(&mut pair.a.ways, send), Err(Error::BadRequest));
    for never in [0, 1, u64::MAX, send.0 + 1] {
        assert_eq!(library.test(RequestId(never)), Err(Error::BadRequest));
    }
    assert_eq!(library.requests(), 0);
}

#[test]
fn requests_complete_in_order_and_by_match_information() {
    let mut pair = EndpointPair::new();
    let (late, _) = pair.a.receive(0x21, u64::MAX, 4);
    let first = pair.a.send(B, 0x11, b"a");
    let second = pair.a.send(B, 0x12, b"b");
    pair.b.send(A, 0x21, b"c");
    pair.run();
    assert_eq!(pair.a.library.ipeek(), Some(first));
    assert_eq!(pair.a.library.ipeek(), Some(first), "peeking takes nothing");
    let any = pair.a.library.test_any(0x20, 0xf0).unwrap().unwrap();
    assert_eq!((any.match_info, any.context), (0x21, 0x21 ^ 0xd0));
    assert_eq!(pair.a.library.test(late), Err(Error::BadRequest));
    assert_eq!(pair.a.library.test_any(0x20, 0xf0), Ok(None));
    let any = pair.a.library.test_any(0, 0).unwrap().unwrap();
    assert_eq!(any.match_info, 0x11);
    assert_eq!(pair.a.library.ipeek(), Some(second));
    pair.a.ended(second);
    assert_eq!(pair.a.library.ipeek(), None);
}

/// A receive is found by the information of its message, not by its own.
#[test]
fn requests_ended_receive_is_found_by_the_information_of_its_message() {
    let mut pair = EndpointPair::new();
    pair.b.receive(0, 0, 4);
    pair.a.send(B, 0xabcd, b"x");
    pair.run();
    assert_eq!(pair.b.library.test_any(0, u64::MAX), Ok(None));
    assert!(pair.b.library.test_any(0xabcd, u64::MAX).unwrap().is_some());
}

#[test]
fn requests_receive_can_be_cancelled_until_matched() {
    let mut pair = EndpointPair::new();
    let (receive, back) = pair.b.receive(1, u64::MAX, 100_000);
    let b = &mut pair.b;
    assert_eq!(b.library.cancel(&mut b.ways, receive), Ok(true));
    given(&back);
    assert_eq!(b.library.test(receive), Err(Error::BadRequest));
    assert_eq!(b.library.ipeek(), None, "no completion is reported");
    // Matched, but not ended: the bytes are in flight.
    let (receive, back) = pair.b.receive(1, u64::MAX, 100_000);
    let send = pair.a.send(B, 1, &content(1, 100_000));
    pair.b.run();
    let b = &mut pair.b;
    assert!(b.is_pending(receive));
    assert_eq!(b.library.cancel(&mut b.ways, receive), Ok(false));
    pair.run();
    let b = &mut pair.b;
    assert_eq!(b.library.cancel(&mut b.ways, receive), Ok(false), "ended");
    pair.b.ended(receive);
    assert!(given(&back) == content(1, 100_000));
    pair.a.ended(send);
}

#[test]
fn requests_sends_cannot_be_cancelled() {
    let mut pair = EndpointPair::new();
    let send = pair.a.send(B, 1, &content(1, 100_000));
    let a = &mut pair.a;
    assert_eq!(a.library.cancel(&mut a.ways, send), Err(Error::BadRequest));
    assert!(a.is_pending(send));
}

#[test]
fn requests_only_sends_are_buffered() {
    let mut pair = EndpointPair::new();
    let (receive, _) = pair.b.receive(1, u64::MAX, 1);
    assert_eq!(pair.b.library.ibuffered(receive), Err(Error::BadRequest));
}

#[test]
fn requests_forgotten_ones_go_on_without_completion() {
    let mut pair = EndpointPair::new();
    // Before and after the end, of each kind.
    let (receive, back) = pair.b.receive(1, u64::MAX, 100_000);
    pair.b.library.forget(receive).unwrap();
    assert_eq!(pair.b.library.test(receive), Err(Error::BadRequest));
    let send = pair.a.send(B, 1, &content(1, 100_000));
    pair.a.library.forget(send).unwrap();
    pair.run();
    assert!(given(&back) == content(1, 100_000));
    let small = pair.a.send(B, 2, b"x");
    pair.a.library.forget(small).unwrap();
    let own = pair.a.send(Partner::SELF, 3, b"y");
    pair.a.library.forget(own).unwrap();
    let (own_receive, own_back) = pair.a.receive(3, u64::MAX, 1);
    pair.a.library.forget(own_receive).unwrap();
    assert_eq!(given(&own_back), b"y");
    pair.run();
    for end in [&mut pair.a, &mut pair.b] {
        assert_eq!(end.library.ipeek(), None);
        assert_eq!(end.library.requests(), 0);
    }
    assert_eq!(pair.b.library.unexpected(), 1);
}

#[test]
fn requests_send_to_itself_ends_when_matched_or_truncated() {
    let mut end = End::new(options(1));
    let own = Partner::SELF;
    for len in [0, 5, 3000, 4 << 20] {
        let bytes = content(7, len);
        // Unexpected.
        let send = end.send(own, 9, &bytes);
        assert!(end.is_pending(send));
        assert_eq!(end.library.ibuffered(send), Ok(true));
        let found = end.library.iprobe(9, u64::MAX).unwrap().unwrap();
        assert_eq!((found.partner, found.len as usize), (own, len));
        let (receive, back) = end.receive(9, u64::MAX, len);
        let (sent, received) = (end.ended(send), end.ended(receive));
        assert_eq!((sent.status, received.status), (Status::Success, Status::Success));
        assert_eq!((sent.partner, received.partner), (Some(own), Some(own)));
        assert_eq!(received.xfer_length as usize, len);
        assert!(given(&back) == bytes);
        // Expected, synchronous.
        let (receive, back) = end.receive(9, u64::MAX, len);
        let send = end.ssend(own, 9, &bytes);
        assert_eq!(end.ended(send).status, Status::Success);
        assert_eq!(end.ended(receive).status, Status::Success);
        assert!(given(&back) == bytes);
        // Truncated, in both orders.
        for early in [true, false] {
            if len > 0 {
                let posted = early.then(|| end.receive(9, u64::MAX, len - 1));
                let send = end.send(own, 9, &bytes);
                let (receive, back) = posted.unwrap_or_else(|| end.receive(9, u64::MAX, len - 1));
                let (sent, received) = (end.ended(send), end.ended(receive));
                assert_eq!((sent.status, received.status), (Status::Truncated, Status::Truncated));
                assert_eq!((sent.xfer_length as usize, sent.msg_length as usize), (len - 1, len));
                assert!(given(&back) == bytes[..len - 1]);
            }
        }
    }
    assert_eq!(end.library.requests(), 0);
    assert_eq!(end.library.unexpected(), 0);
}

#[test]
fn requests_channels_connect_to_the_own_endpoint_only() {
    let mut end = End::new(options(1));
    let own = options(1).address;
    let mut connect = |to, key| {
        end.library.iconnect(&mut end.ways, to, key, 1, 2, None).map(|id| end.library.test(id))
    };
    let done = connect(own, 7).unwrap().unwrap().unwrap();
    assert_eq!((done.status, done.partner), (Status::Success, Some(Partner::SELF)));
    assert_eq!((done.match_info, done.context), (1, 2));
    let done = connect(own, 8).unwrap().unwrap().unwrap();
    assert_eq!(done.status, Status::BadKey);
    let done = connect(Address { endpoint: 9, ..own }, 7).unwrap().unwrap().unwrap();
    assert_eq!(done.status, Status::EndpointUnknown);
    assert_eq!(end.library.decompose(Partner::SELF), Some((own, 101)));
}

#[test]
fn requests_sends_without_room_wait_in_order() {
    let layout = Layout::new(16, 16_384).unwrap();
    let mut pair = EndpointPair::with(layout, options(1), options(2));
    let lens = [8000, 3000, 100_000, 1, 0, 8192, 40, 9000];
    let mut sends = Vec::new();
    for number in 0..200_u64 {
        let len = lens[number as usize % lens.len()];
        sends.push((number, len, pair.a.send(B, number, &content(number, len))));
    }
    for (number, len, send) in sends {
        // Messages are received in the order of sending.
        let (receive, back) = pair.b.receive(0, 0, 100_000);
        pair.run();
        assert_eq!(pair.b.ended(receive).match_info, number);
        assert!(given(&back)[..len] == content(number, len));
        assert_eq!(pair.a.ended(send).status, Status::Success);
    }
    assert_eq!(pair.a.library.requests() + pair.b.library.requests(), 0);
}

#[test]
fn requests_unexpected_messages_are_bounded() {
    let mut pair = EndpointPair::new();
    const LEN: usize = 8192;
    let sends = 2 * causeway_message::limits::UNEXPECTED_BYTES_MAX / LEN;
    let mut ids = Vec::new();
    for number in 0..sends as u64 {
        ids.push(pair.a.send(B, number, &content(number, LEN)));
        if number % 8 == 0 {
            pair.run();
        }
    }
    pair.run();
    let kept = pair.b.library.unexpected();
    // A single peer leaves as much room for others.
    assert_eq!(kept, causeway_message::limits::UNEXPECTED_BYTES_MAX / LEN / 2);
    assert!(ids.iter().rev().any(|&id| pair.a.library.ibuffered(id) == Ok(false)));
    // Only the application can take the messages: the endpoint may sleep.
    assert!(pair.b.ways.arm());
    pair.b.ways.disarm();
    // A receive that is posted now takes the oldest message.
    let waits = kept as u64;
    let (receive, back) = pair.b.receive(waits, u64::MAX, LEN);
    pair.b.ways.nudge();
    assert!(!pair.b.ways.arm(), "no sleep before the retry");
    pair.b.ways.disarm();
    pair.run();
    pair.b.ended(receive);
    assert!(given(&back) == content(waits, LEN));
    // And all others, in order, once there is room.
    for number in (0..sends as u64).filter(|&number| number != waits) {
        let (receive, back) = pair.b.receive(0, 0, LEN);
        pair.run();
        assert_eq!(pair.b.ended(receive).match_info, number);
        assert!(given(&back) == content(number, LEN));
    }
    ids.into_iter().for_each(|id| assert_eq!(pair.a.ended(id).status, Status::Success));
}
