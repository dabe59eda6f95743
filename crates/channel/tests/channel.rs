//! Tests of channels between two conforming sides.

mod common;

use causeway_channel::{
    ChannelError, EventHead, Layout, Side, allow_fences, far_fence, format, open,
};
use common::{memory, pair};

/// Returns bytes that depend on seed and position.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 24) as u8
    };
    (0..len).map(|_| next(&mut state)).collect()
}

fn head(number: u64) -> EventHead {
    EventHead { kind: number as u8, words: [number, !number, number << 7] }
}

#[test]
fn channel_events_of_every_length_arrive_unchanged() {
    let layout = Layout::new(16, 4096).unwrap();
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    let lengths = (0..200).chain([255, 256, 1000, 1024, 1500, 2047, layout.event_bytes_max()]);
    for (number, len) in lengths.enumerate() {
        let (number, bytes) = (number as u64, content(number as u64, len));
        assert!(sender.send(head(number), &bytes).unwrap(), "no room for {len}");
        let event = receiver.poll().unwrap().unwrap();
        assert_eq!((event.head, event.len), (head(number), len));
        let mut got = vec![0; len + 5];
        assert_eq!(receiver.copy(&event, 0, &mut got), len);
        assert_eq!(&got[..len], bytes);
        // From the middle of the event past its end.
        let mut part = vec![0; 10];
        let n = receiver.copy(&event, len / 2, &mut part);
        assert_eq!(part[..n], bytes[len / 2..len.min(len / 2 + 10)]);
        assert_eq!(receiver.copy(&event, len, &mut part), 0);
        receiver.advance(&event);
        assert_eq!(receiver.poll().unwrap(), None);
    }
}

#[test]
fn channel_sender_without_fences_wakes_a_sleeper() {
    assert!(allow_fences() && far_fence(), "this kernel has membarrier");
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(Layout::new(16, 4096).unwrap());
    assert!(!receiver.request_wake(), "the sender makes its fences itself");
    receiver.disarm();
    sender.omit_fences();
    assert!(receiver.request_wake());
    receiver.disarm();
    // In each round there is one event. Either the receiver sees it, or the sender sees that the
    // receiver sleeps.
    const ROUNDS: u64 = 20_000;
    let barrier = std::sync::Barrier::new(2);
    let rung = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                barrier.wait();
                while !sender.send(head(round), &[]).unwrap() {}
                rung.store(sender.take_wake_request(), std::sync::atomic::Ordering::SeqCst);
                barrier.wait();
            }
        });
        for round in 0..ROUNDS {
            barrier.wait();
            let there = (receiver.request_wake() && !far_fence()) || receiver.ready();
            barrier.wait();
            let rung = rung.load(std::sync::atomic::Ordering::SeqCst);
            assert!(there || rung, "asleep without a doorbell");
            let event = receiver.poll().unwrap().unwrap();
            assert_eq!(event.head, head(round));
            receiver.disarm();
            receiver.advance(&event);
        }
    });
}

#[test]
fn channel_bytes_in_pieces_are_a_single_event() {
    let (_memory, (mut sender, _), (_, receiver)) = pair(Layout::new(16, 4096).unwrap());
    for len in [5, 32, 33, 900] {
        let bytes = content(len as u64, len);
        let mut writing = sender.begin(len).unwrap().unwrap();
        bytes.chunks(7).for_each(|piece| writing.put(piece));
        writing.put(b"beyond the end");
        writing.send(head(1));
    }
    let mut receiver = receiver;
    for len in [5, 32, 33, 900] {
        let event = receiver.poll().unwrap().unwrap();
        let mut got = vec![0; len];
        assert_eq!(receiver.copy(&event, 0, &mut got), len);
        assert_eq!(got, content(len as u64, len));
        receiver.advance(&event);
    }
}

#[test]
fn channel_full_refuses_events_until_some_are_taken() {
    let layout = Layout::new(16, 4096).unwrap();
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    let mut sent = 0_u64;
    let mut received = 0_u64;
    for round in 0..1000_usize {
        let len = [8, 600, 0, 2048, 33][round % 5];
        while sender.send(head(sent), &content(sent, len)).unwrap() {
            sent += 1;
        }
        assert!(sent - received >= 1, "nothing fits");
        // More than the quarter that the receiver may defer.
        for _ in 0..5 {
            let Some(event) = receiver.poll().unwrap() else { break };
            assert_eq!(event.head, head(received));
            let mut got = vec![0; event.len];
            receiver.copy(&event, 0, &mut got);
            assert_eq!(got, content(received, event.len));
            receiver.advance(&event);
            received += 1;
        }
    }
    assert!(received > 1000, "only {received}");
}

#[test]
fn channel_has_room_for_any_length_once_all_is_taken() {
    let layout = Layout::new(16, 4096).unwrap();
    for used in 0..70 {
        let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
        // Uses some of the ring, less than the receiver publishes at once.
        for _ in 0..used {
            assert!(sender.send(head(0), &[7; 100]).unwrap());
            let event = receiver.poll().unwrap().unwrap();
            receiver.advance(&event);
        }
        assert!(sender.send(head(1), &vec![1; layout.event_bytes_max()]).unwrap(), "after {used}");
        assert!(!sender.send(head(1), &vec![1; layout.event_bytes_max() + 1]).unwrap());
    }
}

#[test]
fn channel_counts_continue_past_the_last_id() {
    // 2^32 events are too many for a test; passes of the id are not.
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(Layout::new(16, 4096).unwrap());
    for number in 0..16 * 70_000_u64 {
        assert!(sender.send(EventHead { kind: 1, words: [number, 0, 0] }, &[]).unwrap());
        let event = receiver.poll().unwrap().unwrap();
        assert_eq!(event.head.words[0], number);
        receiver.advance(&event);
        assert!(receiver.poll().unwrap().is_none());
    }
}

#[test]
fn channel_receiver_is_woken_once_for_each_sleep() {
    let layout = Layout::new(16, 4096).unwrap();
    for spares in [false, true] {
        let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
        if spares {
            sender.omit_fences();
        }
        for _ in 0..3 {
            assert!(!receiver.arm());
            let mut rings = 0;
            for number in 0..5 {
                assert!(sender.send(head(number), &[]).unwrap());
                rings += usize::from(sender.take_wake_request());
            }
            assert_eq!(rings, 1, "spares: {spares}");
            receiver.disarm();
            while let Some(event) = receiver.poll().unwrap() {
                receiver.advance(&event);
            }
        }
    }
}

#[test]
fn channel_wakes_only_a_side_that_sleeps() {
    let layout = Layout::new(16, 4096).unwrap();
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    assert!(sender.send(head(1), &[]).unwrap());
    assert!(!sender.must_wake());
    assert!(receiver.arm(), "there is an event");
    receiver.disarm();
    let event = receiver.poll().unwrap().unwrap();
    receiver.advance(&event);
    assert!(!receiver.arm());
    assert!(sender.send(head(2), &[]).unwrap());
    assert!(sender.must_wake());
    receiver.disarm();
    assert!(!sender.must_wake());
    // The other direction of waiting: the sender waits for room.
    while sender.send(head(3), &[]).unwrap() {}
    assert!(!sender.arm_room(0).unwrap());
    let mut rung = false;
    while let Some(event) = receiver.poll().unwrap() {
        rung |= receiver.advance(&event);
    }
    assert!(rung, "the sender waits");
    assert!(sender.arm_room(0).unwrap());
    sender.disarm();
}

#[test]
fn channel_close_is_seen_after_the_last_event() {
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(Layout::DEFAULT);
    assert!(sender.send(head(1), b"last").unwrap());
    assert!(!receiver.closed());
    sender.close();
    assert!(receiver.closed());
    let event = receiver.poll().unwrap().unwrap();
    receiver.advance(&event);
    assert_eq!(receiver.poll().unwrap(), None);
}

#[test]
fn channel_directions_are_independent() {
    let (_memory, mut first, mut second) = pair(Layout::new(16, 4096).unwrap());
    let mut once = |number: u64, back: bool| {
        let bytes = content(number, (number * 37 % 2049) as usize);
        let (from, to) = if back { (&mut second, &mut first) } else { (&mut first, &mut second) };
        assert!(from.0.send(head(number), &bytes).unwrap());
        let event = to.1.poll().unwrap().unwrap();
        let mut got = vec![0; event.len];
        to.1.copy(&event, 0, &mut got);
        assert_eq!(got, bytes);
        to.1.advance(&event);
    };
    for round in 0..500 {
        once(2 * round, false);
        once(2 * round + 1, true);
    }
}

#[test]
fn channel_two_threads_pass_a_million_bytes() {
    let layout = Layout::new(16, 8192).unwrap();
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    const EVENTS: u64 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..EVENTS {
                let bytes = content(number, (number * number % 4097) as usize);
                while !sender.send(head(number), &bytes).unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..EVENTS {
            let event = loop {
                if let Some(event) = receiver.poll().unwrap() {
                    break event;
                }
                std::thread::yield_now();
            };
            assert_eq!(event.head, head(number));
            let mut got = vec![0; event.len];
            receiver.copy(&event, 0, &mut got);
            assert_eq!(got, content(number, (number * number % 4097) as usize));
            receiver.advance(&event);
        }
    });
}

#[test]
fn channel_open_refuses_other_versions_and_sizes() {
    let layout = Layout::new(16, 4096).unwrap();
    let blank = memory(layout);
    assert_eq!(open(&blank, Side::First).unwrap_err(), ChannelError::Header);
    format(&blank, layout).unwrap();
    assert!(open(&blank, Side::First).is_ok());
    for other in [2, 4] {
        blank.write(4, &[other]).unwrap();
        assert_eq!(open(&blank, Side::First).unwrap_err(), ChannelError::Header);
    }
    blank.write(4, &[3]).unwrap();
    // Larger than the memory, not a power of two, or zero.
    for (slots, data) in [(32_u32, 4096_u32), (16, 8192), (16, 5000), (0, 4096), (u32::MAX, 1)] {
        blank.write(8, &slots.to_le_bytes()).unwrap();
        blank.write(12, &data.to_le_bytes()).unwrap();
        let error = open(&blank, Side::Second).unwrap_err();
        assert!(!matches!(error, ChannelError::Header), "{error}");
    }
    assert!(format(&blank, Layout::DEFAULT).is_err());
}
