//! Tests that the driver rings whenever the device may be asleep.

use crate::common::*;
use causeway_memory::Span;
use causeway_ring::Chain;
use causeway_ring::driver::Layout;

/// A polling device gets no doorbell; after a whole pass of the index it sleeps and gets a
/// doorbell.
#[test]
fn parking_device_is_woken_after_a_polled_pass() {
    for packed in [false, true] {
        let map = memory();
        let layout = Layout { base: GUEST, size: 8, table_entries: 0 };
        let (mut driver, mut queue) = pair(&map, layout, packed, true);
        let mut chain = Chain::new();
        let mut work = |chains: u16, asleep: bool| {
            // The index of a split ring reaches the requested value again by itself.
            match (packed && asleep, asleep) {
                (true, _) => assert!(!queue.arm().unwrap()),
                (_, false) => queue.disarm().unwrap(),
                _ => {}
            }
            for _ in 0..chains {
                driver.add(&map, &[Span { addr: DATA, len: 8 }], &[]).unwrap();
            }
            let rang = driver.publish().unwrap();
            while queue.pop(&map, &mut chain).unwrap() {
                queue.push(chain.head(), 0).unwrap();
            }
            queue.publish().unwrap();
            while driver.take().unwrap().is_some() {}
            rang
        };
        assert!(work(1, true), "the device waits for the first");
        for _ in 0..65_535 {
            assert!(!work(1, false), "the device polls");
        }
        assert!(work(2, true), "the device sleeps");
    }
}

/// A device that popped chains, found too few and put them back sleeps until there are more.
#[test]
fn parking_device_is_woken_after_it_put_chains_back() {
    for (packed, event_index) in [(false, false), (false, true), (true, false), (true, true)] {
        let map = memory();
        let layout = Layout { base: GUEST, size: 8, table_entries: 0 };
        let (mut driver, mut queue) = pair(&map, layout, packed, event_index);
        let mut add = || {
            driver.add(&map, &[], &[Span { addr: DATA, len: 8 }]).unwrap();
            driver.publish().unwrap()
        };
        let mut chain = Chain::new();
        add();
        add();
        for _ in 0..2 {
            assert!(queue.pop(&map, &mut chain).unwrap());
        }
        for head in [1, 0] {
            queue.put_back(head);
        }
        assert!(queue.arm().unwrap(), "those that were put back are there");
        assert_eq!(queue.available().unwrap(), 2);
        assert!(add(), "packed: {packed}, event index: {event_index}");
    }
}
