//! Matching rules of MX, over channels.

use causeway_message::library::{Error, Library, LibraryOptions, Partner};
use causeway_message::status::Status;
use causeway_testing::messages::*;

#[test]
fn match_follows_mask_and_information() {
    let mut pair = EndpointPair::new();
    let cases = [
        (0x1234, u64::MAX, 0x1234, true),
        (0x1234, u64::MAX, 0x1235, false),
        (0x1200, 0xff00, 0x1234, true),
        (0x1200, 0xff00, 0x34, false),
        (0, 0, u64::MAX, true),
        (1 << 63, 1 << 63, u64::MAX, true),
    ];
    for (info, mask, sent, matches) in cases {
        let (receive, back) = pair.b.receive(info, mask, 4);
        let send = pair.a.send(B, sent, b"four");
        pair.run();
        assert_eq!(pair.a.ended(send).status, Status::Success);
        if matches {
            let done = pair.b.ended(receive);
            assert_eq!((done.status, done.match_info), (Status::Success, sent));
            assert_eq!(done.partner, Some(A));
            assert_eq!((done.msg_length, done.xfer_length, done.context), (4, 4, info ^ 0xd0));
            assert_eq!(given(&back), b"four");
        } else {
            assert!(pair.b.is_pending(receive));
            assert!(pair.b.library.cancel(&mut pair.b.ways, receive).unwrap());
            let (receive, _) = pair.b.receive(sent, u64::MAX, 4);
            pair.b.ended(receive);
        }
    }
}

#[test]
fn match_refuses_information_outside_the_mask() {
    let mut pair = EndpointPair::new();
    let (pad, back) = room(1);
    let b = &mut pair.b;
    assert_eq!(b.library.irecv(&mut b.ways, 2, 1, 0, pad), Err(Error::BadMatchMask));
    given(&back);
    assert_eq!(b.library.iprobe(2, 1), Err(Error::BadMatchMask));
    assert_eq!(b.library.test_any(2, 1), Err(Error::BadMatchMask));
    assert_eq!(b.library.requests(), 0);
}

#[test]
fn match_takes_posted_receives_in_order() {
    let mut pair = EndpointPair::new();
    let (any, any_back) = pair.b.receive(0, 0, 8);
    let (exact, exact_back) = pair.b.receive(5, u64::MAX, 8);
    let (any_too, _) = pair.b.receive(0, 0, 8);
    for bytes in [b"first", b"secnd"] {
        pair.a.send(B, 5, bytes);
    }
    pair.run();
    pair.b.ended(any);
    pair.b.ended(exact);
    assert_eq!(given(&any_back)[..5], *b"first");
    assert_eq!(given(&exact_back)[..5], *b"secnd");
    assert!(pair.b.is_pending(any_too));
}

#[test]
fn match_takes_unexpected_messages_in_order() {
    let mut pair = EndpointPair::new();
    for number in 0..10_u64 {
        pair.a.send(B, number % 2, &number.to_le_bytes());
    }
    pair.run();
    assert_eq!(pair.b.library.unexpected(), 10);
    for expected in [1, 3, 5, 7, 9_u64] {
        let (receive, back) = pair.b.receive(1, u64::MAX, 8);
        pair.b.ended(receive);
        assert_eq!(given(&back), expected.to_le_bytes());
    }
    for expected in [0, 2, 4, 6, 8_u64] {
        let (receive, back) = pair.b.receive(0, 0, 8);
        pair.b.ended(receive);
        assert_eq!(given(&back), expected.to_le_bytes());
    }
}

#[test]
fn match_keeps_the_order_of_large_and_small_messages() {
    let mut pair = EndpointPair::new();
    let lens = [10, 100_000, 0, 33, 8192, 8193, 1_000_000, 1];
    let sends: Vec<_> =
        (0_u64..).zip(lens).map(|(n, len)| pair.a.send(B, 1, &content(n, len))).collect();
    pair.run();
    for (number, len) in (0_u64..).zip(lens) {
        let (receive, back) = pair.b.receive(0, 0, 2_000_000);
        pair.run();
        let done = pair.b.ended(receive);
        assert_eq!((done.status, done.msg_length as usize), (Status::Success, len), "{number}");
        assert!(given(&back)[..len] == content(number, len), "{number}");
    }
    for send in sends {
        assert_eq!(pair.a.ended(send).status, Status::Success);
    }
}

#[test]
fn match_truncates_a_message_longer_than_its_receive() {
    let mut pair = EndpointPair::new();
    // Eager and expected, eager and unexpected, offered and expected, offered and unexpected.
    for (len, room, early) in [
        (100, 60, true),
        (100, 60, false),
        (20, 0, true),
        (20, 0, false),
        (50_000, 40_000, true),
        (50_000, 1, false),
        (50_000, 0, true),
    ] {
        let bytes = content(len as u64, len);
        let mut posted = early.then(|| pair.b.receive(3, u64::MAX, room));
        let send = pair.a.send(B, 3, &bytes);
        pair.run();
        let (receive, back) = posted.take().unwrap_or_else(|| pair.b.receive(3, u64::MAX, room));
        pair.run();
        let done = pair.b.ended(receive);
        assert_eq!(done.status, Status::Truncated, "{len} into {room}");
        assert_eq!((done.msg_length as usize, done.xfer_length as usize), (len, room));
        assert_eq!(given(&back), bytes[..room]);
        // Only the sender of a pulled message learns of the truncation.
        let sent = pair.a.ended(send);
        let pulled = len > 8192;
        assert_eq!(sent.status, if pulled { Status::Truncated } else { Status::Success });
        assert_eq!(sent.xfer_length as usize, if pulled { room } else { len });
        assert_eq!(sent.msg_length as usize, len);
    }
}

#[test]
fn match_leaves_the_rest_of_a_longer_receive() {
    let mut pair = EndpointPair::new();
    for len in [0, 8, 32, 33, 5000, 20_000] {
        let (receive, back) = pair.b.receive(0, 0, len + 10);
        pair.a.send(B, 0, &content(1, len));
        pair.run();
        let done = pair.b.ended(receive);
        assert_eq!((done.status, done.xfer_length as usize), (Status::Success, len));
        let got = given(&back);
        assert_eq!(got[..len], content(1, len));
        assert_eq!(got[len..], [0xaa; 10]);
    }
}

#[test]
fn match_handles_segments_of_any_size() {
    let mut pair = EndpointPair::new();
    for len in [31, 500, 70_000] {
        for (from, into) in [(1, 3), (7, 64), (1000, 13), (64, 1_000_000)] {
            let bytes = content(len as u64, len);
            let (pad, back) = cut_room(len, into);
            let b = &mut pair.b;
            b.library.irecv(&mut b.ways, 0, 0, 0, pad).unwrap();
            let a = &mut pair.a;
            a.library.isend(&mut a.ways, B, 0, 0, cut(&bytes, from)).unwrap();
            pair.run();
            assert!(given(&back) == bytes, "{len} from {from} into {into}");
            // Also to itself, matched and unexpected.
            for late in [false, true] {
                let (pad, back) = cut_room(len, into);
                let a = &mut pair.a;
                let mut pad = Some(pad);
                if !late {
                    a.library.irecv(&mut a.ways, 0, 0, 0, pad.take().unwrap()).unwrap();
                }
                a.library.isend(&mut a.ways, Partner::SELF, 0, 0, cut(&bytes, from)).unwrap();
                if let Some(pad) = pad {
                    a.library.irecv(&mut a.ways, 0, 0, 0, pad).unwrap();
                }
                assert!(given(&back) == bytes, "{len} from {from} into {into}, self");
            }
        }
    }
}

#[test]
fn match_probe_finds_the_oldest_message_and_leaves_it() {
    let mut pair = EndpointPair::new();
    assert_eq!(pair.b.library.iprobe(0, 0), Ok(None));
    pair.a.send(B, 0x11, b"abc");
    pair.a.send(B, 0x12, &[1; 50_000]);
    pair.a.send(B, 0x11, b"later");
    pair.run();
    for _ in 0..2 {
        let found = pair.b.library.iprobe(0x11, u64::MAX).unwrap().unwrap();
        assert_eq!((found.partner, found.match_info, found.len), (A, 0x11, 3));
        let found = pair.b.library.iprobe(0x2, 0xf).unwrap().unwrap();
        assert_eq!((found.match_info, found.len), (0x12, 50_000));
        assert_eq!(pair.b.library.iprobe(0x13, u64::MAX), Ok(None));
    }
    let (receive, _) = pair.b.receive(0x11, u64::MAX, 10);
    assert_eq!(pair.b.ended(receive).msg_length, 3);
    assert_eq!(pair.b.library.iprobe(0x11, u64::MAX).unwrap().unwrap().len, 5);
}

fn with_contexts(bits: u8, shift: u8) -> EndpointPair {
    let contexts =
        |endpoint| LibraryOptions { context_bits: bits, context_shift: shift, ..options(endpoint) };
    EndpointPair::with(causeway_channel::Layout::DEFAULT, contexts(1), contexts(2))
}

#[test]
fn match_separates_contexts_and_probes_all() {
    let mut pair = with_contexts(8, 16);
    let b = &mut pair.b;
    let (pad, _) = room(1);
    let refused = b.library.irecv(&mut b.ways, 0, 0xffff, 0, pad);
    assert_eq!(refused, Err(Error::BadMatchingForContextIdMask));
    let mask = 0xff_0000;
    let (three, back) = b.receive(0x03_0000, mask, 8);
    for context in [4_u64, 5, 3, 2, 5] {
        pair.a.send(B, context << 16 | 1, &context.to_le_bytes());
    }
    pair.run();
    pair.b.ended(three);
    assert_eq!(given(&back)[..8], 3_u64.to_le_bytes());
    // Over all contexts in the order of arrival: 4, 5, 2, 5.
    let found = pair.b.library.iprobe(1, 0xff).unwrap().unwrap();
    assert_eq!(found.match_info, 0x04_0001);
    let found = pair.b.library.iprobe(0x02_0000, mask).unwrap().unwrap();
    assert_eq!(found.match_info, 0x02_0001);
    for context in [2, 5, 4, 5_u64] {
        let (receive, back) = pair.b.receive(context << 16, mask, 8);
        pair.b.ended(receive);
        assert_eq!(given(&back), context.to_le_bytes());
    }
    // Completions of any context, with any mask.
    let (one, _) = pair.b.receive(0x09_0000, mask, 1);
    pair.a.send(B, 0x09_0007, b"x");
    pair.run();
    assert!(pair.b.library.test_any(6, 0xff).unwrap().is_none());
    assert!(pair.b.library.test_any(7, 0xff).unwrap().is_some());
    assert_eq!(pair.b.library.test(one), Err(Error::BadRequest));
}

#[test]
fn match_refuses_context_ids_that_do_not_fit() {
    for (bits, shift, fits) in [
        (16, 48, true),
        (16, 49, false),
        (17, 0, false),
        (0, 64, true),
        (1, 63, true),
        (255, 255, false),
    ] {
        let made = Library::<Pad>::new(LibraryOptions {
            context_bits: bits,
            context_shift: shift,
            ..options(1)
        });
        assert_eq!(made.is_ok(), fits, "{bits} at {shift}");
    }
}
