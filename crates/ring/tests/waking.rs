//! The driver's side rings whenever the device may be asleep.

mod common;

use causeway_memory::Span;
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Chain, Queue, Setup};
use common::*;

/// A device that polls is not rung for; when it sleeps a whole turn of the index later, it is.
#[test]
fn a_device_that_polled_for_a_whole_turn_is_woken() {
    let map = memory();
    let layout = Layout { base: GUEST, size: 8, table_entries: 0 };
    let mut driver = Driver::new(layout, true, false, &map).unwrap();
    let (desc, avail, used) = (layout.desc().0, layout.avail().0, layout.used().0);
    let setup = Setup { size: 8, desc, avail, used, event_index: true, indirect: false, next: 0 };
    let mut queue = Queue::new(setup, &map).unwrap();
    let mut chain = Chain::new();
    let mut work = |chains: u16| {
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
    assert!(work(1), "the device waits for the first");
    for _ in 0..65_535 {
        assert!(!work(1), "the device polls");
    }
    assert!(work(2), "the device sleeps");
}
