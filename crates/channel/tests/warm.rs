//! Tests of the position of data: the beginning of the ring is reused while both sides keep up.

mod common;

use std::collections::VecDeque;

use causeway_channel::{EventHead, INLINE_BYTES, Layout, Receiver, WARM_BYTES};
use causeway_memory::View;
use common::pair;
use proptest::prelude::*;

/// Returns the offset of the first side's data.
fn data(layout: Layout) -> usize {
    4096 + 2 * 64 * layout.slots() as usize
}

fn content(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7 + 1) as u8).collect()
}

fn head(number: u64) -> EventHead {
    EventHead { kind: 1, words: [number, 0, 0] }
}

/// Takes the next event, and checks that it is event `number`.
fn take(receiver: &mut Receiver, number: u64, len: usize) {
    let event = receiver.poll().unwrap().expect("it was sent");
    assert_eq!((event.head, event.len), (head(number), len));
    let mut got = vec![0; len];
    assert_eq!(receiver.copy(&event, 0, &mut got), len);
    assert!(got == content(number, len), "bytes of event {number}");
    receiver.advance(&event);
}

fn untouched(memory: &View, from: usize, to: usize) -> bool {
    (from..to).step_by(8).all(|at| memory.read::<8>(at).unwrap() == [0; 8])
}

#[test]
fn channel_sides_that_keep_up_reuse_few_bytes() {
    let layout = Layout::DEFAULT;
    for longest in [100, 1024, 1500, 4096] {
        let (memory, (mut sender, _), (_, mut receiver)) = pair(layout);
        for number in 0..500 {
            let len = longest - number as usize % 60;
            assert!(sender.send(head(number), &content(number, len)).unwrap());
            take(&mut receiver, number, len);
        }
        let begin = data(layout);
        let end = begin + layout.data() as usize;
        assert!(untouched(&memory, begin + WARM_BYTES, end), "events of {longest} bytes");
    }
}

#[test]
fn channel_pieces_taken_in_time_reuse_few_bytes() {
    let layout = Layout::DEFAULT;
    let (memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    let mut taken = 0;
    for number in 0..2000_u64 {
        // A sender with back-pressure: two pieces at a time.
        while sender.data_out() + 4096 > WARM_BYTES
            && sender.refresh_data_out().unwrap() + 4096 > WARM_BYTES
        {
            take(&mut receiver, taken, 4096);
            taken += 1;
        }
        assert!(sender.send(head(number), &content(number, 4096)).unwrap());
        assert!(number - taken < 2);
    }
    let begin = data(layout);
    assert!(untouched(&memory, begin + WARM_BYTES, begin + layout.data() as usize));
}

#[test]
fn channel_sender_ahead_of_its_receiver_uses_the_whole_ring() {
    let layout = Layout::DEFAULT;
    let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    let mut next = 0;
    for round in 0..50 {
        let first = next;
        while sender.send(head(next), &content(next, 4096)).unwrap() {
            next += 1;
        }
        // Less the part behind the position where it returned to the beginning.
        assert!(next - first >= 28, "round {round}: {} events", next - first);
        (first..next).for_each(|number| take(&mut receiver, number, 4096));
    }
}

proptest! {
    /// Events sent and taken in any order arrive unchanged; once all are taken there is room for
    /// the longest event.
    #[test]
    fn channel_events_arrive_unchanged_in_any_order_of_calls(
        data in prop::sample::select(vec![4096_u32, 16_384, 32_768, 131_072]),
        steps in prop::collection::vec((any::<bool>(), 0..16_384_usize, 0..4_u8), 1..300),
    ) {
        let layout = Layout::new(64, data).unwrap();
        let (_memory, (mut sender, _), (_, mut receiver)) = pair(layout);
        let (mut sent, mut out) = (0_u64, VecDeque::new());
        for (send, len, size) in steps {
            // Mostly short events.
            let len = (len >> (3 * size)).min(layout.event_bytes_max());
            if send {
                if sender.send(head(sent), &content(sent, len)).unwrap() {
                    out.push_back((sent, len));
                    sent += 1;
                } else {
                    prop_assert!(!out.is_empty(), "no room for {} bytes in an empty ring", len);
                }
            } else if let Some((number, len)) = out.pop_front() {
                take(&mut receiver, number, len);
            }
            let long = out.iter().filter(|(_, len)| *len > INLINE_BYTES);
            let least: usize = long.map(|(_, len)| len.next_multiple_of(64)).sum();
            prop_assert!((least..=data as usize).contains(&sender.data_out()));
        }
        out.drain(..).for_each(|(number, len)| take(&mut receiver, number, len));
        let longest = content(sent, layout.event_bytes_max());
        prop_assert!(sender.send(head(sent), &longest).unwrap());
    }

    /// For a peer that sets the flag of any event, the bytes are those of this ring, and no others.
    #[test]
    fn hostile_data_positions_stay_within_the_ring(
        events in prop::collection::vec((any::<bool>(), 0..9000_u32), 1..200),
    ) {
        let layout = Layout::new(16, 32_768).unwrap();
        let (memory, _, (_, mut receiver)) = pair(layout);
        memory.write(data(layout), &[0xaa; 32_768]).unwrap();
        for (number, (at_begin, len)) in events.into_iter().enumerate() {
            let pass = 0x8000 + number as u64 / 16;
            let last = pass | 1 << 16 | u64::from(at_begin) << 24 | u64::from(len) << 32;
            memory.write(4096 + number % 16 * 64 + 56, &last.to_le_bytes()).unwrap();
            let event = receiver.poll().unwrap().unwrap();
            let mut got = vec![0; len as usize];
            prop_assert_eq!(receiver.copy(&event, 0, &mut got), len as usize);
            prop_assert!(len <= 32 || got.iter().all(|&b| b == 0xaa));
            receiver.advance(&event);
        }
    }
}
