//! Tests of guests that break the rules of a split ring, one rule at a time. Each is refused with
//! the matching reason, and the queue stays broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;
use causeway_memory::{Map, OutOfGrant, Span};
use causeway_ring::{Chain, Queue, QueueSetup, RingError};

const SIZE: u16 = 8;

fn setup_error(setup: QueueSetup) -> RingError {
    Queue::new(setup, &memory()).unwrap_err()
}

/// Returns a guest whose descriptors 0 to 7 are valid single buffers.
fn guest() -> Guest {
    let guest = Guest::new(SIZE);
    (0..SIZE).for_each(|index| guest.describe(index, DATA, 64, 0, 0));
    guest
}

#[test]
fn hostile_queue_sizes() {
    for size in [0, 3, 5, 255, 257, 32767, 32769, 65535] {
        assert_eq!(setup_error(QueueSetup { size, ..setup(8, true, 0) }), RingError::Size(size));
    }
}

#[test]
fn hostile_parts_out_of_line() {
    let good = setup(SIZE, true, 0);
    for (setup, part, addr, align) in [
        (QueueSetup { desc: DESC + 8, ..good }, "descriptor table", DESC + 8, 16),
        (QueueSetup { desc: DESC + 1, ..good }, "descriptor table", DESC + 1, 16),
        (QueueSetup { avail: AVAIL + 1, ..good }, "available ring", AVAIL + 1, 2),
        (QueueSetup { used: USED + 2, ..good }, "used ring", USED + 2, 4),
        (QueueSetup { used: u64::MAX, ..good }, "used ring", u64::MAX, 4),
    ] {
        assert_eq!(setup_error(setup), RingError::Alignment { part, addr, align });
    }
}

#[test]
fn hostile_parts_in_holes() {
    let good = setup(SIZE, true, 0);
    let end = GUEST + FIRST + SECOND;
    // Below, above and across the end of the grant, across two regions, and with a wrapping
    // address.
    let places = |len: u64, align: u64| {
        [
            0,
            GUEST - 16,
            end,
            (end - len).next_multiple_of(align) + align,
            GUEST + FIRST - align,
            !(align - 1),
        ]
    };
    let hole = |setup| match setup_error(setup) {
        RingError::Hole { part, .. } => part,
        other => panic!("{other}"),
    };
    for desc in places(16 * 8, 16) {
        assert_eq!(hole(QueueSetup { desc, ..good }), "descriptor table", "{desc:#x}");
    }
    for avail in places(4 + 2 * 8 + 2, 2) {
        assert_eq!(hole(QueueSetup { avail, ..good }), "available ring", "{avail:#x}");
    }
    for used in places(4 + 8 * 8 + 2, 4) {
        assert_eq!(hole(QueueSetup { used, ..good }), "used ring", "{used:#x}");
    }
    // The event index belongs to the ring: without the feature, the same address is valid.
    let tight = QueueSetup { avail: end - (4 + 2 * 8), ..good };
    assert_eq!(hole(tight), "available ring");
    assert!(Queue::new(QueueSetup { event_index: false, ..tight }, &memory()).is_ok());
}

#[test]
fn hostile_memory_without_the_ring() {
    let guest = guest();
    let mut queue = guest.queue();
    let moved = Map::new(vec![region(&file(FIRST), GUEST + FIRST)]).unwrap();
    assert!(matches!(queue.remap(&moved), Err(RingError::Hole { part: "descriptor table", .. })));
    assert!(matches!(queue.remap(&Map::default()), Err(RingError::Hole { .. })));
}

#[test]
fn hostile_cycles() {
    let mut guest = guest();
    guest.describe(0, DATA, 1, NEXT, 0);
    assert_eq!(guest.refused(0), RingError::Endless(8), "itself");
    guest.describe(1, DATA, 0, NEXT, 2);
    guest.describe(2, DATA, 0, NEXT, 1);
    assert_eq!(guest.refused(1), RingError::Endless(8), "two, of no bytes");
    (0..SIZE).for_each(|index| guest.describe(index, DATA, 1, NEXT | WRITE, (index + 1) % SIZE));
    assert_eq!(guest.refused(5), RingError::Endless(8), "the whole table");
    guest.describe(0, TABLES, 32, INDIRECT, 0);
    guest.entry(TABLES, 0, DATA, 1, NEXT, 1);
    guest.entry(TABLES, 1, DATA, 1, NEXT, 0);
    assert_eq!(guest.refused(0), RingError::Endless(8), "in a table");
}

#[test]
fn hostile_chains_longer_than_the_queue() {
    let mut guest = guest();
    (0..9).for_each(|at| guest.entry(TABLES, at, DATA, 1, if at < 8 { NEXT } else { 0 }, at + 1));
    guest.describe(0, TABLES, 9 * 16, INDIRECT, 0);
    assert_eq!(guest.refused(0), RingError::Endless(8), "a table of nine");
    guest.describe(0, DATA, 1, NEXT, 1);
    guest.describe(1, TABLES, 8 * 16, INDIRECT, 0);
    guest.entry(TABLES, 7, DATA, 1, 0, 0);
    assert_eq!(guest.refused(0), RingError::Endless(8), "one and a table of eight");
    // Eight descriptors in total are valid, direct or indirect.
    guest.describe(1, TABLES, 7 * 16, INDIRECT, 0);
    guest.entry(TABLES, 6, DATA, 1, 0, 0);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    guest.offer(0);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    assert_eq!(chain.readable().len(), 8);
}

#[test]
fn hostile_nested_tables() {
    let mut guest = guest();
    guest.describe(0, TABLES, 32, INDIRECT, 0);
    guest.entry(TABLES, 0, TABLES + 256, 16, INDIRECT, 0);
    assert_eq!(guest.refused(0), RingError::Nested);
    guest.entry(TABLES, 0, TABLES, 32, INDIRECT, 0);
    assert_eq!(guest.refused(0), RingError::Nested, "a table that names itself");
    guest.entry(TABLES, 0, DATA, 1, NEXT, 1);
    guest.entry(TABLES, 1, TABLES + 256, 16, INDIRECT | NEXT, 0);
    assert_eq!(guest.refused(0), RingError::Nested, "as the second entry");
}

#[test]
fn hostile_tables_that_go_on() {
    let mut guest = guest();
    guest.describe(0, TABLES, 16, INDIRECT | NEXT, 1);
    assert_eq!(guest.refused(0), RingError::IndirectTable(16));
}

#[test]
fn hostile_table_lengths() {
    let mut guest = guest();
    for len in [0, 1, 8, 15, 17, 24, 127, u32::MAX] {
        guest.describe(0, TABLES, len, INDIRECT, 0);
        assert_eq!(guest.refused(0), RingError::IndirectTable(len));
    }
}

#[test]
fn hostile_tables_in_holes() {
    let mut guest = guest();
    let end = GUEST + FIRST + SECOND;
    for addr in [0, GUEST - 16, end - 16, end, u64::MAX - 15, u64::MAX - 31] {
        // The first entry alone would be valid if granted.
        guest.describe(0, addr, 32, INDIRECT, 0);
        let expected = RingError::Descriptor(OutOfGrant { addr, len: 32 });
        assert_eq!(guest.refused(0), expected);
    }
    guest.describe(0, TABLES, 0xffff_fff0, INDIRECT, 0);
    let expected = RingError::Descriptor(OutOfGrant { addr: TABLES, len: 0xffff_fff0 });
    assert_eq!(guest.refused(0), expected);
}

#[test]
fn hostile_tables_that_were_not_negotiated() {
    let mut guest = guest();
    guest.setup.indirect = false;
    guest.describe(0, TABLES, 16, INDIRECT, 0);
    guest.entry(TABLES, 0, DATA, 1, 0, 0);
    assert_eq!(guest.refused(0), RingError::NotNegotiated);
}

#[test]
fn hostile_index_jumps() {
    for (from, to) in [(0, 9), (0, u16::MAX), (65_534, 7), (65_534, 65_533), (5, 4)] {
        let mut guest = guest();
        guest.setup.next = from;
        let expected = RingError::IndexJump { from, to, size: SIZE };
        for call in 0..3 {
            guest.show(from);
            let mut queue = guest.queue();
            assert_eq!(queue.available(), Ok(0));
            guest.show(to);
            let error = match call {
                0 => queue.pop(&guest.map, &mut Chain::new()).unwrap_err(),
                1 => queue.available().unwrap_err(),
                _ => queue.arm().unwrap_err(),
            };
            assert_eq!(error, expected);
            assert_latched(&mut queue, &guest.map, error);
        }
    }
    // A chain as long as the queue is valid.
    let mut guest = guest();
    guest.setup.next = 65_534;
    guest.show(65_534_u16.wrapping_add(SIZE));
    assert_eq!(guest.queue().available(), Ok(SIZE));
}

#[test]
fn hostile_index_that_goes_back_under_way() {
    let mut guest = guest();
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    (0..4).for_each(|head| guest.offer(head));
    for _ in 0..4 {
        assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    }
    guest.show(3);
    let expected = RingError::IndexJump { from: 4, to: 3, size: SIZE };
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(expected));
    assert_latched(&mut queue, &guest.map, expected);
}

#[test]
fn hostile_heads() {
    let mut guest = guest();
    for head in [8, 9, 255, 32768, u16::MAX] {
        assert_eq!(guest.refused(head), RingError::Head { head, size: SIZE });
    }
}

#[test]
fn hostile_next_descriptors() {
    let mut guest = guest();
    for next in [8, 9, 32768, u16::MAX] {
        guest.describe(0, DATA, 1, NEXT, next);
        assert_eq!(guest.refused(0), RingError::Next { next, size: 8 });
    }
    // In an indirect table the bound is the table's length, not the queue's.
    guest.describe(1, TABLES, 32, INDIRECT, 0);
    for next in [2, 7, u16::MAX] {
        guest.entry(TABLES, 0, DATA, 1, NEXT, next);
        assert_eq!(guest.refused(1), RingError::Next { next, size: 2 });
    }
}

#[test]
fn hostile_order() {
    let mut guest = guest();
    guest.describe(0, DATA, 1, WRITE | NEXT, 1);
    assert_eq!(guest.refused(0), RingError::Order);
    guest.describe(0, DATA, 0, WRITE | NEXT, 1);
    guest.describe(1, DATA, 0, 0, 0);
    assert_eq!(guest.refused(0), RingError::Order, "of no bytes");
    guest.describe(1, TABLES, 16, INDIRECT | WRITE, 0);
    guest.entry(TABLES, 0, DATA, 1, 0, 0);
    assert_eq!(guest.refused(0), RingError::Order, "into a table");
}

#[test]
fn hostile_buffers_in_holes() {
    let mut guest = guest();
    let end = GUEST + FIRST + SECOND;
    for (addr, len) in [(0, 1), (GUEST - 1, 2), (end - 1, 2), (end, 1), (u64::MAX, 2)] {
        for write in [0, WRITE] {
            guest.describe(0, addr, len, write, 0);
            let gap = OutOfGrant { addr, len: u64::from(len) };
            assert_eq!(guest.refused(0), RingError::Descriptor(gap));
        }
    }
    // A buffer across the boundary of two regions is valid.
    guest.describe(0, GUEST + FIRST - 5, 10, 0, 0);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    guest.offer(0);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    let mut bytes = [0; 10];
    chain.reader().read(&guest.map, &mut bytes).unwrap();
}

#[test]
fn hostile_chains_over_four_gigabytes() {
    const GIB: u32 = 1 << 30;
    let large = GUEST + (4 << 30);
    let mut guest = guest();
    guest.map =
        Map::new(vec![region(&file(FIRST), GUEST), region(&file(u64::from(GIB)), large)]).unwrap();
    (0..3).for_each(|index| guest.describe(index, large, GIB, NEXT, index + 1));
    guest.describe(3, large, GIB, NEXT | WRITE, 4);
    guest.describe(4, DATA, 0, WRITE, 0);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    guest.offer(0);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true), "2^32 bytes are lawful");
    assert_eq!(chain.readable_bytes() + chain.writable_bytes(), 1 << 32);
    guest.show(0);
    guest.describe(4, DATA, 1, WRITE, 0);
    assert_eq!(guest.refused(0), RingError::Bytes);
}

#[test]
fn hostile_heads_made_available_twice() {
    let mut guest = guest();
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    guest.offer(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    // A head that was put back or used may be popped again.
    queue.put_back(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    queue.push(3, 0).unwrap();
    guest.offer(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    guest.offer(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(RingError::Twice(3)));
    assert_latched(&mut queue, &guest.map, RingError::Twice(3));
}

#[test]
fn hostile_heads_made_available_while_put_back() {
    let mut guest = guest();
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    guest.offer(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    queue.put_back(3);
    guest.offer(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(RingError::Twice(3)));
}

#[test]
fn split_push_ignores_heads_not_in_flight() {
    let mut guest = guest();
    let mut queue = guest.queue();
    for head in [0, 7, 8, u16::MAX] {
        queue.put_back(head);
        queue.push(head, 5).unwrap();
    }
    assert_eq!(queue.publish(), Ok(false));
    assert_eq!((queue.in_flight(), queue.available(), guest.used_index()), (0, Ok(0), 0));
    guest.offer(0);
    assert_eq!(queue.available(), Ok(1));
}

#[test]
fn hostile_file_that_shrinks_under_the_ring() {
    let memory = file(FIRST);
    let mut guest = guest();
    guest.map = Map::new(vec![region(&memory, GUEST)]).unwrap();
    let mut other = self::guest();
    let (mut queue, mut theirs) = (guest.queue(), other.queue());
    let mut chain = Chain::new();
    (0..SIZE).for_each(|head| guest.describe(head, DATA, 64, WRITE, 0));
    guest.offer(0);
    guest.offer(1);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    rustix::fs::ftruncate(&memory, 0).unwrap();

    // Lost pages read as zeroes; the result is a refusal or zeroes.
    for _ in 0..4 {
        let _ = queue.pop(&guest.map, &mut chain);
        let _ = queue.push(0, 64);
        let _ = queue.publish();
        let _ = queue.arm();
        let _ = queue.disarm();
    }
    let _ = queue.finish();
    assert!(guest.map.is_poisoned(), "the owner of the guest can see it");

    other.offer(2);
    assert_eq!(theirs.pop(&other.map, &mut chain), Ok(true));
    theirs.push(2, 0).unwrap();
    assert_eq!(theirs.publish(), Ok(true));
    assert!(!other.map.is_poisoned());
}

/// A guest rewrites descriptors and indices while they are read: popped chains are valid
/// nevertheless.
#[test]
fn hostile_ring_that_changes_while_it_is_read() {
    for size in [1_u16, 2, 8] {
        let guest = Arc::new(Guest::new(size));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped) = (Arc::clone(&guest), Arc::clone(&stop));
        let scribbler = std::thread::spawn(move || {
            let mut dice = 1_u64;
            while !stopped.load(Ordering::Relaxed) {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let bits = dice >> 20;
                let index = (bits % u64::from(size)) as u16;
                let next = (bits >> 8) as u16 % size;
                let flags = if bits >> 30 & 3 == 0 { 0 } else { NEXT };
                let flags = if bits >> 35 & 63 == 0 { INDIRECT } else { flags };
                let addr = if bits >> 41 & 1023 == 0 { 0 } else { TABLES };
                theirs.describe(index, addr, 16, flags, next);
                theirs.entry(TABLES, 0, TABLES, 16, 0, 0);
            }
        });
        let mut chain = Chain::new();
        // Terminates: some chains are complete.
        let mut given = 0_u32;
        for round in 0_u32.. {
            if round % 1000 == 999 {
                // The rewriting thread may need this processor.
                std::thread::yield_now();
            }
            if round >= 40_000 && given > 0 {
                break;
            }
            let mut queue = guest.queue();
            guest.map.write(AVAIL + 2, &1_u16.to_le_bytes()).unwrap();
            match queue.pop(&guest.map, &mut chain) {
                Ok(more) => {
                    assert!(more);
                    assert!(chain.readable().len() <= usize::from(size), "longer than the queue");
                    // An empty span has no valid address.
                    let within = |s: &Span| s.len == 0 || granted(s.addr, s.len.into());
                    assert!(chain.readable().iter().all(within));
                    given += 1;
                }
                Err(error) => assert_eq!(queue.broken(), Some(error)),
            }
        }
        stop.store(true, Ordering::Relaxed);
        scribbler.join().unwrap();
    }
}
