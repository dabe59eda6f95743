//! Model check of the handshake: every interleaving of the two sides of a ring, and every value
//! that a weakly ordered machine can load. It covers publishing against arming, in both formats and
//! both directions, and the visibility of a batch. The steps are those of
//! `causeway_ring::handshake`, over words that the checker observes.
//!
//! Mutations tried by hand: without `full_fence` both sides sleep in `…_never_both_sleep`,
//! `packed_positions…` and `parking…`; with a relaxed store of the slot's flags `packed_batches…`
//! sees half a batch. Without the release of an event area's flags no test fails.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use causeway_ring::handshake::{
    RingWords, arm_index, arm_slots, load_flags, load_index, publish_index, publish_slots,
};
use causeway_ring::position::Position;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, fence};
use loom::thread;

/// Shared words under the checker.
struct Area(Vec<AtomicU16>);

impl Area {
    fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU16::new(0)).collect())
    }
}

impl RingWords for Area {
    type Error = Infallible;

    fn load(&self, at: usize, order: Ordering) -> Result<u16, Infallible> {
        Ok(self.0[at / 2].load(order))
    }

    fn store(&self, at: usize, value: u16, order: Ordering) -> Result<(), Infallible> {
        self.0[at / 2].store(value, order);
        Ok(())
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

fn ok<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}

/// Writes the content of an entry.
fn put(data: &Area, at: usize, value: u16) {
    ok(data.store(2 * at, value, Ordering::Relaxed));
}

fn get(data: &Area, at: usize) -> u16 {
    ok(data.load(2 * at, Ordering::Relaxed))
}

const AVAIL: u16 = 1 << 7;

/// A split ring of four entries: one side publishes in two batches; the other arms when it has
/// none, and sleeps if none came. A signalled sleeper continues.
fn split_cross(event_index: bool) {
    const EVENT: usize = 4;
    loom::model(move || {
        let event_at = event_index.then_some(EVENT);
        let shower = Arc::new(Area::new(3));
        let sleeper = Arc::new(Area::new(3));
        let data = Arc::new(Area::new(1));
        // A side that sleeps from the start would be signalled for entry 0; this side has polled up
        // to here.
        if event_index {
            ok(sleeper.store(EVENT, 7, Ordering::Relaxed));
        } else {
            ok(sleeper.store(0, 1, Ordering::Relaxed));
        }
        let (mine, theirs, written) = (shower.clone(), sleeper.clone(), data.clone());
        let publishing = thread::spawn(move || {
            put(&written, 0, 42);
            ok(publish_index(&*mine, &*theirs, (0, 1), event_at))
        });
        let index = ok(arm_index(&*sleeper, &*shower, 0, event_at));
        if index == 1 {
            assert_eq!(get(&data, 0), 42, "an entry without its content");
        }
        let signalled = publishing.join().unwrap();
        assert!(index == 1 || signalled, "asleep without a signal");
    });
}

#[test]
fn split_sides_never_both_sleep() {
    split_cross(true);
    split_cross(false);
}

/// The same for a packed ring: with `used` a device that publishes used entries, otherwise a driver
/// that publishes descriptors. Both sides' slots have the same form.
fn packed_cross(event_index: bool, used: bool) {
    loom::model(move || {
        const SIZE: u16 = 4;
        let at = Position::START;
        let flags = if used { at.used() } else { at.available() };
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        // This side has polled up to here.
        ok(events.store(2, 1, Ordering::Relaxed));
        let (slots, theirs) = (ring.clone(), events.clone());
        let publishing = thread::spawn(move || {
            put(&slots, 6, 42);
            let batch = (at, at.advance(1, SIZE));
            ok(publish_slots(&*slots, &*theirs, flags, batch, SIZE))
        });
        let ask = event_index.then_some(at);
        let seen = ok(arm_slots(&*events, &*ring, ask, at));
        if seen == flags {
            assert_eq!(get(&ring, 6), 42, "a descriptor without its content");
        }
        let signalled = publishing.join().unwrap();
        assert!(seen == flags || signalled, "asleep without a signal");
    });
}

#[test]
fn packed_sides_never_both_sleep() {
    for used in [false, true] {
        packed_cross(true, used);
        packed_cross(false, used);
    }
}

/// A changing event area is read with new flags and an old position at worst if the sleeper sees
/// the published entry: it moves on to the next position meanwhile.
#[test]
fn packed_positions_that_change_lose_no_wake_up() {
    loom::model(|| {
        const SIZE: u16 = 4;
        let (first, second) = (Position::START, Position::START.advance(1, SIZE));
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        // A stale request, and a disabled signal.
        ok(events.store(0, Position::START.advance(3, SIZE).bits(), Ordering::Relaxed));
        ok(events.store(2, 1, Ordering::Relaxed));
        ok(ring.store(first.flags_at(), first.available(), Ordering::Relaxed));
        let (slots, theirs) = (ring.clone(), events.clone());
        let publishing = thread::spawn(move || {
            let batch = (second, second.advance(1, SIZE));
            ok(publish_slots(&*slots, &*theirs, AVAIL, batch, SIZE))
        });
        let seen = ok(arm_slots(&*events, &*ring, Some(second), second));
        let signalled = publishing.join().unwrap();
        assert!(seen == AVAIL || signalled, "asleep without a signal");
    });
}

/// A batch of two packed descriptors, the second with its flags before the first: a reader that
/// sees the first sees both with their content.
#[test]
fn packed_batches_are_seen_whole() {
    loom::model(|| {
        const SIZE: u16 = 4;
        let (first, second) = (Position::START, Position::START.advance(1, SIZE));
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        let (slots, theirs) = (ring.clone(), events.clone());
        let publishing = thread::spawn(move || {
            put(&slots, 6, 1);
            put(&slots, 14, 2);
            ok(slots.store(second.flags_at(), second.available(), Ordering::Relaxed));
            let batch = (first, second.advance(1, SIZE));
            ok(publish_slots(&*slots, &*theirs, first.available(), batch, SIZE));
        });
        if first.is_available(ok(load_flags(&*ring, first))) {
            assert_eq!(get(&ring, 6), 1);
            assert!(second.is_available(ok(load_flags(&*ring, second))), "half a batch");
            assert_eq!(get(&ring, 14), 2);
        }
        publishing.join().unwrap();
    });
}

/// A batch of two split entries under one index.
#[test]
fn split_batches_are_seen_whole() {
    loom::model(|| {
        let (mine, theirs) = (Arc::new(Area::new(2)), Arc::new(Area::new(2)));
        let data = Arc::new(Area::new(2));
        let (area, other, written) = (mine.clone(), theirs.clone(), data.clone());
        let publishing = thread::spawn(move || {
            put(&written, 0, 1);
            put(&written, 1, 2);
            ok(publish_index(&*area, &*other, (0, 2), None));
        });
        if ok(load_index(&*mine)) == 2 {
            assert_eq!((get(&data, 0), get(&data, 1)), (1, 2));
        }
        publishing.join().unwrap();
    });
}

/// The complete parking: the sleeper disarms, works, arms, polls again and sleeps, while the other
/// side publishes twice and signals on request. In no order is a published entry left while the
/// sleeper sleeps unsignalled.
fn park(event_index: bool) {
    loom::model(move || {
        const SIZE: u16 = 4;
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        ok(events.store(2, 1, Ordering::Relaxed));
        let doorbell = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let (slots, theirs, rings) = (ring.clone(), events.clone(), doorbell.clone());
        let publishing = thread::spawn(move || {
            let mut at = Position::START;
            for _ in 0..2 {
                let batch = (at, at.advance(1, SIZE));
                if ok(publish_slots(&*slots, &*theirs, at.available(), batch, SIZE)) {
                    // An eventfd: writes before the signal are visible to the woken side.
                    rings.fetch_add(1, Ordering::AcqRel);
                }
                at = batch.1;
            }
        });
        let mut next = Position::START;
        // A second sleep would repeat the first.
        if next.is_available(ok(load_flags(&*ring, next))) {
            next = next.advance(1, SIZE);
        }
        let ask = event_index.then_some(next);
        let asleep = !next.is_available(ok(arm_slots(&*events, &*ring, ask, next)));
        publishing.join().unwrap();
        if asleep && next != Position::START.advance(2, SIZE) {
            assert!(doorbell.load(Ordering::Acquire) > 0, "asleep with work, without a doorbell");
        }
    });
}

#[test]
fn parking_loses_no_wake_up() {
    park(true);
    park(false);
}
