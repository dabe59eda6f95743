//! Tests of driver and device side against each other.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region, Span};
use proptest::prelude::*;

use super::{Driver, DriverError, Layout};
use crate::{Chain, Queue, QueueSetup};

const BASE: u64 = 0x10_0000;
const DATA: u64 = BASE + 0x4_0000;
const LEN: u64 = 0x10_0000;

fn memory() -> Map {
    let file = causeway_memory::create("driver-test", LEN).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, LEN).unwrap());
    Map::new(vec![Region { guest: BASE, user: 0x7000_0000, mapping }]).unwrap()
}

const FORMATS: [bool; 2] = [false, true];

fn pair(map: &Map, packed: bool, size: u16, event_index: bool, indirect: bool) -> (Driver, Queue) {
    let layout = Layout { base: BASE, size, table_entries: 8 };
    assert!(layout.end() < DATA);
    let make = if packed { Driver::packed } else { Driver::new };
    let driver = make(layout, event_index, indirect, map).unwrap();
    let setup = QueueSetup {
        size,
        desc: layout.desc().0,
        avail: layout.avail().0,
        used: layout.used().0,
        event_index,
        indirect,
        next: driver.base(),
    };
    let queue = if packed { Queue::packed(setup, setup.next, map) } else { Queue::new(setup, map) };
    (driver, queue.unwrap())
}

fn span(nth: u64, len: u32) -> Span {
    Span { addr: DATA + nth * 0x1000, len }
}

#[test]
fn driver_chain_reaches_the_device_and_returns() {
    let map = memory();
    for (packed, indirect) in FORMATS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (mut driver, mut queue) = pair(&map, packed, 8, true, indirect);
        let head = driver.add(&map, &[span(0, 10), span(1, 20)], &[span(2, 300)]).unwrap();
        assert!(driver.publish().unwrap(), "the device waits for the first");
        let mut chain = Chain::new();
        assert!(queue.pop(&map, &mut chain).unwrap());
        assert_eq!(chain.head(), head);
        assert_eq!(chain.readable(), [span(0, 10), span(1, 20)]);
        assert_eq!(chain.writable(), [span(2, 300)]);
        queue.push(head, 123).unwrap();
        assert!(queue.publish().unwrap(), "the driver waits for the first");
        let used = driver.take().unwrap().unwrap();
        assert_eq!((used.head, used.written), (head, 123));
        assert_eq!(driver.take().unwrap(), None);
        assert_eq!(driver.free_descriptors(), 8);
    }
}

#[test]
fn driver_full_ring_is_reported_and_loses_nothing() {
    let map = memory();
    for packed in FORMATS {
        let (mut driver, mut queue) = pair(&map, packed, 4, false, false);
        driver.add(&map, &[span(0, 1), span(1, 1), span(2, 1)], &[]).unwrap();
        assert_eq!(driver.add(&map, &[span(0, 1), span(1, 1)], &[]), Err(DriverError::Full));
        driver.add(&map, &[span(3, 1)], &[]).unwrap();
        assert_eq!(driver.add(&map, &[span(0, 1)], &[]), Err(DriverError::Full));
        driver.publish().unwrap();
        let mut chain = Chain::new();
        let mut lengths = Vec::new();
        while queue.pop(&map, &mut chain).unwrap() {
            lengths.push(chain.readable().len());
            queue.push(chain.head(), 0).unwrap();
        }
        queue.publish().unwrap();
        assert_eq!(lengths, [3, 1]);
        while driver.take().unwrap().is_some() {}
        assert_eq!(driver.free_descriptors(), 4);
    }
}

#[test]
fn driver_refuses_false_values_of_a_split_device() {
    let map = memory();
    let layout = Layout { base: BASE, size: 8, table_entries: 0 };
    let mut driver = Driver::new(layout, false, false, &map).unwrap();
    let head = driver.add(&map, &[], &[span(0, 16)]).unwrap();
    driver.publish().unwrap();
    let used = layout.used().0;
    let answer = |index: u16, id: u32, written: u32| {
        let entry = u64::from(id) | u64::from(written) << 32;
        map.write(used + 4, &entry.to_le_bytes()).unwrap();
        map.write(used + 2, &index.to_le_bytes()).unwrap();
    };
    answer(2, u32::from(head), 0);
    assert_eq!(driver.take(), Err(DriverError::IndexJump { from: 0, to: 2 }));
    answer(1, 3, 0);
    assert_eq!(driver.take(), Err(DriverError::Unknown(3)));
    answer(1, 70_000, 0);
    assert_eq!(driver.take(), Err(DriverError::Unknown(70_000)));
    answer(1, u32::from(head), 17);
    assert_eq!(driver.take(), Err(DriverError::Overrun { written: 17, room: 16 }));
}

#[test]
fn driver_refuses_false_values_of_a_packed_device() {
    let map = memory();
    let layout = Layout { base: BASE, size: 8, table_entries: 0 };
    let mut driver = Driver::packed(layout, false, false, &map).unwrap();
    let answer = |slot: u64, id: u16, written: u32| {
        let entry = u64::from(written) | u64::from(id) << 32 | 0x8080_u64 << 48;
        map.write(layout.desc().0 + 16 * slot + 8, &entry.to_le_bytes()).unwrap();
    };
    answer(0, 0, 0);
    assert_eq!(driver.take(), Ok(None), "nothing was given");
    let id = driver.add(&map, &[], &[span(0, 16)]).unwrap();
    driver.publish().unwrap();
    assert_eq!(driver.take(), Ok(None));
    for wrong in [id + 1, 8, u16::MAX] {
        answer(0, wrong, 0);
        assert_eq!(driver.take(), Err(DriverError::Unknown(u32::from(wrong))));
    }
    answer(0, id, 17);
    assert_eq!(driver.take(), Err(DriverError::Overrun { written: 17, room: 16 }));
    answer(1, id, 0);
    assert_eq!(driver.take(), Ok(None), "used twice");
}

#[test]
fn driver_read_only_chains_have_no_written_length() {
    let map = memory();
    let layout = Layout { base: BASE, size: 8, table_entries: 0 };
    let mut driver = Driver::packed(layout, false, false, &map).unwrap();
    let reply = |slot: u64, id: u16, flags: u64| {
        let entry = 76 | u64::from(id) << 32 | (0x8080 | flags) << 48;
        map.write(layout.desc().0 + 16 * slot + 8, &entry.to_le_bytes()).unwrap();
    };
    let ids = [0; 2].map(|_| driver.add(&map, &[span(0, 76)], &[]).unwrap());
    driver.publish().unwrap();
    reply(0, ids[0], 0);
    let used = driver.take().unwrap().unwrap();
    assert_eq!((used.head, used.written), (ids[0], 0));
    // The device sets the WRITE flag, although the chain is read-only.
    reply(1, ids[1], 2);
    assert_eq!(driver.take(), Err(DriverError::Overrun { written: 76, room: 0 }));
}

#[test]
fn driver_and_device_request_signals_before_sleeping() {
    let map = memory();
    for (packed, event_index) in FORMATS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (mut driver, mut queue) = pair(&map, packed, 8, event_index, false);
        queue.disarm().unwrap();
        driver.disarm().unwrap();
        let first = driver.add(&map, &[span(0, 1)], &[]).unwrap();
        // The event index of a split ring is 0 initially, which the first chain passes.
        assert_eq!(driver.publish().unwrap(), event_index && !packed);
        let mut chain = Chain::new();
        assert!(queue.pop(&map, &mut chain).unwrap());
        driver.add(&map, &[span(1, 1)], &[]).unwrap();
        assert!(!driver.publish().unwrap(), "the device is at work");
        assert!(queue.arm().unwrap(), "arming reports a chain that came meanwhile");
        assert!(queue.pop(&map, &mut chain).unwrap());
        assert!(!queue.arm().unwrap());
        driver.add(&map, &[span(2, 1)], &[]).unwrap();
        assert!(driver.publish().unwrap(), "the device sleeps");

        queue.push(first, 0).unwrap();
        queue.publish().unwrap();
        assert!(driver.arm().unwrap(), "arming reports a chain that came meanwhile");
        assert!(driver.take().unwrap().is_some());
        assert!(!driver.arm().unwrap());
        queue.push(chain.head(), 0).unwrap();
        assert!(queue.publish().unwrap(), "the driver sleeps");
    }
}

proptest! {
    /// All chains arrive in order with the same spans, and return once.
    #[test]
    fn driver_chains_arrive_once_and_in_order(
        packed: bool,
        event_index: bool,
        indirect: bool,
        size_log in 0_u32..6,
        steps in prop::collection::vec((0_u8..4, 1_usize..12, 0_usize..4), 1..400),
    ) {
        let map = memory();
        let (mut driver, mut queue) = pair(&map, packed, 1 << size_log, event_index, indirect);
        let mut sent = VecDeque::new();
        let mut open = VecDeque::new();
        let mut chain = Chain::new();
        for (what, readable, writable) in steps {
            match what {
                0 => {
                    let out: Vec<_> = (0..readable).map(|n| span(n as u64, n as u32 + 1)).collect();
                    let into: Vec<_> = (0..writable).map(|n| span(n as u64 + 20, 7)).collect();
                    let next = driver.next_head();
                    let added = match (&out[..], &into[..]) {
                        ([only], []) => driver.add_one(*only, false),
                        _ => driver.add(&map, &out, &into),
                    };
                    match added {
                        Ok(head) => {
                            prop_assert_eq!(next, Some(head));
                            sent.push_back((head, out, into));
                        }
                        Err(error) => prop_assert_eq!(error, DriverError::Full),
                    }
                }
                1 => drop(driver.publish().unwrap()),
                2 => if queue.pop(&map, &mut chain).unwrap() {
                    let (head, out, into) = sent.pop_front().unwrap();
                    prop_assert_eq!(chain.head(), head);
                    prop_assert_eq!(chain.readable(), &out[..]);
                    prop_assert_eq!(chain.writable(), &into[..]);
                    open.push_back(head);
                    queue.push(head, 0).unwrap();
                    queue.publish().unwrap();
                },
                _ => while let Some(used) = driver.take().unwrap() {
                    prop_assert_eq!(Some(used.head), open.pop_front());
                },
            }
        }
        driver.publish().unwrap();
        while queue.pop(&map, &mut chain).unwrap() {
            queue.push(chain.head(), 0).unwrap();
        }
        queue.publish().unwrap();
        while driver.take().unwrap().is_some() {}
        prop_assert_eq!(driver.free_descriptors(), 1 << size_log);
        prop_assert_eq!(driver.outstanding(), 0);
    }
}

/// Batches of one buffer each, by number: used buffers are available again.
#[test]
fn driver_renewed_buffers_are_available_again() {
    for packed in [false, true] {
        let map = memory();
        let (mut driver, mut queue) = pair(&map, packed, 8, false, false);
        let of = |head| span(u64::from(head), u32::from(head) + 1);
        assert_eq!(driver.add_each(5, true, of), Ok(5));
        assert_eq!(driver.add_each(5, true, of), Ok(3), "as many as there is room for");
        driver.publish().unwrap();
        let mut chain = Chain::new();
        for round in 0..100_u32 {
            let count = [1, 8, 3][round as usize % 3];
            for _ in 0..count {
                assert!(queue.pop(&map, &mut chain).unwrap());
                assert_eq!(chain.writable(), &[of(chain.head())]);
                queue.push(chain.head(), 1).unwrap();
            }
            queue.publish().unwrap();
            let most = if round % 2 == 0 { 2 } else { 8 };
            assert_eq!(driver.renew(most, of), Ok(most.min(count)));
            assert_eq!(driver.renew(8, of), Ok(count - most.min(count)));
            driver.publish().unwrap();
        }
        assert_eq!(driver.outstanding(), 8);
        for _ in 0..8 {
            assert!(queue.pop(&map, &mut chain).unwrap());
            queue.push(chain.head(), 0).unwrap();
        }
        queue.publish().unwrap();
        driver.take_all().unwrap();
        assert_eq!((driver.outstanding(), driver.free_descriptors()), (0, 8));
    }
}
