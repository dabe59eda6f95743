//! Tests of guests that break the rules of a packed ring, one rule at a time. Each is refused with
//! the matching reason, and the queue stays broken.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::packed::*;
use crate::common::*;
use causeway_memory::{Map, Mapping, OutOfGrant, Region, Span};
use causeway_ring::{Chain, Queue, QueueSetup, RingError};

const SIZE: u16 = 8;

fn guest() -> PackedGuest {
    let guest = PackedGuest::new(SIZE);
    guest.fill();
    guest
}

fn setup_error(setup: QueueSetup, used: u16) -> RingError {
    Queue::packed(setup, used, &memory()).unwrap_err()
}

#[test]
fn hostile_packed_sizes_and_positions() {
    let good = PackedGuest::new(SIZE).setup;
    for size in [0, 32_769, 65_535] {
        assert_eq!(setup_error(QueueSetup { size, ..good }, 0x8000), RingError::Size(size));
    }
    for bits in [8, 9, 0x7fff, 0x8008, 0xffff] {
        let expected = RingError::Position { bits, size: SIZE };
        assert_eq!(setup_error(QueueSetup { next: bits, ..good }, 0x8000), expected);
        assert_eq!(setup_error(good, bits), expected);
    }
    // Positions further apart than the ring's length.
    for (next, used) in [(0x8000, 0x8001), (0x0001, 0x8000)] {
        let expected = RingError::Position { bits: next, size: SIZE };
        assert_eq!(setup_error(QueueSetup { next, ..good }, used), expected);
    }
    // Any other length is valid, a power of two or not.
    for size in [1, 3, 7, 255] {
        assert!(Queue::packed(QueueSetup { size, ..good }, 0x8000, &memory()).is_ok());
    }
}

/// A frontend grants its memory from an odd offset of the file.
#[test]
fn hostile_packed_ring_out_of_line_in_its_file() {
    let good = PackedGuest::new(SIZE).setup;
    for offset in [0, 1, 2, 4, 8] {
        let file = file(FIRST + 8);
        let mapping = Arc::new(Mapping::new(file.as_fd(), offset, FIRST).unwrap());
        let map = Map::new(vec![Region { guest: GUEST, user: GUEST, mapping }]).unwrap();
        let made = Queue::packed(good, 0x8000, &map);
        if offset % 8 == 0 {
            assert!(made.is_ok(), "{offset}");
        } else {
            let part = "descriptor ring in its file";
            let error = RingError::Alignment { part, addr: DESC, align: 8 };
            assert_eq!(made.map(drop), Err(error), "{offset}");
        }
    }
}

#[test]
fn hostile_packed_parts_out_of_line_or_in_holes() {
    let good = PackedGuest::new(SIZE).setup;
    let end = GUEST + FIRST + SECOND;
    for (setup, part, addr, align) in [
        (QueueSetup { desc: DESC + 8, ..good }, "descriptor ring", DESC + 8, 16),
        (QueueSetup { avail: AVAIL + 2, ..good }, "driver event area", AVAIL + 2, 4),
        (QueueSetup { used: USED + 2, ..good }, "device event area", USED + 2, 4),
    ] {
        assert_eq!(setup_error(setup, 0x8000), RingError::Alignment { part, addr, align });
    }
    for (setup, name) in [
        (QueueSetup { desc: end - 112, ..good }, "descriptor ring"),
        (QueueSetup { desc: GUEST + FIRST - 16, ..good }, "descriptor ring"),
        (QueueSetup { desc: !15, ..good }, "descriptor ring"),
        (QueueSetup { avail: end, ..good }, "driver event area"),
        (QueueSetup { used: GUEST - 4, ..good }, "device event area"),
    ] {
        let error = setup_error(setup, 0x8000);
        assert!(matches!(error, RingError::Hole { part, .. } if part == name), "{error}");
    }
    let mut queue = guest().queue();
    assert!(matches!(queue.remap(&Map::default()), Err(RingError::Hole { .. })));
}

#[test]
fn hostile_packed_chains_without_end() {
    let guest = guest();
    (0..SIZE).for_each(|slot| guest.offer(slot, DATA, 1, NEXT, slot));
    assert_eq!(guest.refused(), RingError::Endless(8));
    // Eight descriptors that end are valid.
    guest.offer(7, DATA, 1, 0, 5);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    assert_eq!(queue.available(), Ok(1));
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    assert_eq!((chain.readable().len(), chain.head()), (8, 5));
}

#[test]
fn hostile_packed_chains_over_those_in_flight() {
    let guest = guest();
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    // Seven slots are free; a chain of eight wraps around over the chain in flight.
    (1..SIZE).for_each(|slot| guest.offer(slot, DATA, 1, NEXT, 1));
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(RingError::Overfull(8)));
    assert_packed_latched(&mut queue, &guest.map, RingError::Overfull(8));
}

#[test]
fn hostile_packed_second_turn_while_all_is_in_flight() {
    let guest = guest();
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    for _ in 0..SIZE {
        assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    }
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(false));
    guest.write(0, DATA, 64, USED_BIT, 0);
    assert_eq!(queue.available(), Ok(0));
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(RingError::Overfull(8)));
}

#[test]
fn hostile_packed_buffer_ids() {
    let guest = guest();
    for id in [8, 9, 255, 32_768, u16::MAX] {
        guest.offer(0, DATA, 64, 0, id);
        assert_eq!(guest.refused(), RingError::Head { head: id, size: SIZE });
    }
    guest.offer(0, DATA, 64, 0, 3);
    guest.offer(1, DATA, 64, 0, 3);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    queue.put_back(3);
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true), "put back is not twice");
    assert_eq!(queue.pop(&guest.map, &mut chain), Err(RingError::Twice(3)));
    assert_packed_latched(&mut queue, &guest.map, RingError::Twice(3));
}

#[test]
fn hostile_packed_tables() {
    let guest = guest();
    let end = GUEST + FIRST + SECOND;
    for len in [0, 1, 8, 15, 17, 24, u32::MAX] {
        guest.offer(0, TABLES, len, INDIRECT, 0);
        assert_eq!(guest.refused(), RingError::IndirectTable(len));
    }
    guest.offer(0, TABLES, 16, INDIRECT | NEXT, 0);
    assert_eq!(guest.refused(), RingError::IndirectTable(16), "a table that goes on");
    guest.offer(0, TABLES, 9 * 16, INDIRECT, 0);
    assert_eq!(guest.refused(), RingError::Endless(8), "longer than the queue");
    for addr in [0, GUEST - 16, end - 16, end, u64::MAX - 15, u64::MAX - 31] {
        guest.offer(0, addr, 32, INDIRECT, 0);
        assert_eq!(guest.refused(), RingError::Descriptor(OutOfGrant { addr, len: 32 }));
    }
    guest.offer(0, DATA, 1, NEXT, 0);
    guest.offer(1, TABLES, 16, INDIRECT, 0);
    assert_eq!(guest.refused(), RingError::IndirectTable(16), "a table in a chain");
    guest.offer(0, TABLES, 32, INDIRECT, 0);
    let entry = |at: u64, addr, flags| {
        guest.map.write(TABLES + 16 * at, &descriptor(addr, 16, 0, flags)).unwrap();
    };
    entry(0, DATA, 0);
    entry(1, TABLES, INDIRECT);
    assert_eq!(guest.refused(), RingError::Nested);
    entry(0, DATA, WRITE);
    entry(1, DATA, 0);
    assert_eq!(guest.refused(), RingError::Order);
}

#[test]
fn hostile_packed_tables_that_were_not_negotiated() {
    let mut guest = guest();
    guest.setup.indirect = false;
    guest.offer(0, TABLES, 16, INDIRECT, 0);
    assert_eq!(guest.refused(), RingError::NotNegotiated);
}

#[test]
fn packed_tables_ignore_reserved_flags() {
    let guest = guest();
    guest.offer(0, TABLES, 32, INDIRECT | WRITE, 6);
    for at in 0..2 {
        let junk = NEXT | AVAIL_BIT | USED_BIT | WRITE;
        guest.map.write(TABLES + 16 * at, &descriptor(DATA, 16, 0xdead, junk)).unwrap();
    }
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    assert_eq!((chain.head(), chain.writable().len(), chain.readable().len()), (6, 2, 0));
}

#[test]
fn hostile_packed_order_and_holes() {
    let guest = guest();
    guest.offer(0, DATA, 1, WRITE | NEXT, 0);
    assert_eq!(guest.refused(), RingError::Order);
    let end = GUEST + FIRST + SECOND;
    for (addr, len) in [(0, 1), (GUEST - 1, 2), (end - 1, 2), (end, 1), (u64::MAX, 2)] {
        guest.offer(0, addr, len, 0, 0);
        let gap = OutOfGrant { addr, len: u64::from(len) };
        assert_eq!(guest.refused(), RingError::Descriptor(gap));
    }
}

#[test]
fn hostile_packed_chains_over_four_gigabytes() {
    const GIB: u32 = 1 << 30;
    let large = GUEST + (4 << 30);
    let mut guest = guest();
    guest.map =
        Map::new(vec![region(&file(FIRST), GUEST), region(&file(u64::from(GIB)), large)]).unwrap();
    (0..4).for_each(|slot| guest.offer(slot, large, GIB, NEXT, 0));
    guest.offer(4, DATA, 0, 0, 0);
    let (mut queue, mut chain) = (guest.queue(), Chain::new());
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true), "2^32 bytes are lawful");
    guest.offer(4, DATA, 1, 0, 0);
    assert_eq!(guest.refused(), RingError::Bytes);
}

#[test]
fn packed_push_ignores_ids_not_in_flight() {
    let guest = guest();
    let mut queue = guest.queue();
    for id in [0, 7, 8, u16::MAX] {
        queue.put_back(id);
        queue.push(id, 5).unwrap();
    }
    assert_eq!(queue.publish(), Ok(false));
    assert_eq!((queue.in_flight(), queue.available(), queue.popped()), (0, Ok(8), 0));
    assert_eq!(guest.slot(0), (64, 0, AVAIL_BIT));
}

#[test]
fn hostile_packed_event_areas() {
    // Invalid values in the driver's event area cause superfluous notifications only.
    for (position, flags) in [(0xffff, 2), (8, 2), (0x8008, 2), (0, 3), (0, 0xffff), (0, 4)] {
        let mut guest = guest();
        guest.setup.event_index = true;
        guest.map.write(AVAIL, &u16::to_le_bytes(position)).unwrap();
        guest.map.write(AVAIL + 2, &u16::to_le_bytes(flags)).unwrap();
        let (mut queue, mut chain) = (guest.queue(), Chain::new());
        assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
        queue.push(chain.head(), 0).unwrap();
        assert_eq!(queue.publish(), Ok(true));
        assert_eq!(queue.arm(), Ok(true));
    }
}

#[test]
fn hostile_packed_file_that_shrinks_under_the_ring() {
    let memory = file(FIRST);
    let mut guest = PackedGuest::new(SIZE);
    guest.map = Map::new(vec![region(&memory, GUEST)]).unwrap();
    guest.fill();
    let other = self::guest();
    let (mut queue, mut theirs) = (guest.queue(), other.queue());
    let mut chain = Chain::new();
    assert_eq!(queue.pop(&guest.map, &mut chain), Ok(true));
    rustix::fs::ftruncate(&memory, 0).unwrap();
    for _ in 0..4 {
        let _ = queue.pop(&guest.map, &mut chain);
        let _ = queue.push(0, 64);
        let _ = queue.publish();
        let _ = queue.arm();
        let _ = queue.disarm();
    }
    let _ = queue.finish();
    assert!(guest.map.is_poisoned(), "the owner of the guest can see it");
    assert_eq!(theirs.pop(&other.map, &mut chain), Ok(true));
    theirs.push(chain.head(), 0).unwrap();
    assert_eq!(theirs.publish(), Ok(true));
    assert!(!other.map.is_poisoned());
}

/// A guest rewrites descriptors including flags while they are read: popped chains are valid
/// nevertheless.
#[test]
fn hostile_packed_ring_that_changes_while_it_is_read() {
    for size in [1_u16, 2, 8] {
        let guest = Arc::new(PackedGuest::new(size));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped) = (Arc::clone(&guest), Arc::clone(&stop));
        let scribbler = std::thread::spawn(move || {
            let mut dice = 1_u64;
            while !stopped.load(Ordering::Relaxed) {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let bits = dice >> 20;
                let slot = (bits % u64::from(size)) as u16;
                let flags = if bits >> 30 & 3 == 0 { 0 } else { NEXT };
                let flags = if bits >> 35 & 63 == 0 { INDIRECT } else { flags };
                let flags = flags | if bits >> 54 & 1 == 0 { AVAIL_BIT } else { USED_BIT };
                let addr = if bits >> 41 & 1023 == 0 { 0 } else { TABLES };
                theirs.write(slot, addr, 16, flags, (bits >> 8) as u16 % size);
                theirs.map.write(TABLES, &descriptor(TABLES, 16, 0, 0)).unwrap();
            }
        });
        let mut chain = Chain::new();
        let mut given = 0_u32;
        // Terminates: some chains are complete.
        for round in 0_u32.. {
            if round % 1000 == 999 {
                std::thread::yield_now();
            }
            if round >= 40_000 && given > 0 {
                break;
            }
            let mut queue = guest.queue();
            match queue.pop(&guest.map, &mut chain) {
                Ok(false) => {}
                Ok(true) => {
                    assert!(chain.readable().len() <= usize::from(size), "longer than the queue");
                    assert!(chain.head() < size);
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
