//! Every order in which the two sides of a ring can meet, and every value that a weakly ordered
//! machine could load: showing against asking, in both formats and both directions, and what is
//! seen of a batch. The steps are the ring's own (`causeway_ring::handshake`), over words that
//! the checker watches.
//!
//! Tried by hand: without `full_fence` the sides of `…_never_both_sleep`, `packed_positions…` and
//! `parking…` sleep both; with a relaxed store of the slot's flags `packed_batches…` sees half a
//! batch. The release of an event area's flags may go without any of these failing.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use causeway_ring::handshake::{
    Words, ask_index, ask_slot, look_index, look_slot, show_index, show_slot,
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

impl Words for Area {
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

/// Words that are nobody's but the two sides': what an entry holds.
fn put(data: &Area, at: usize, value: u16) {
    ok(data.store(2 * at, value, Ordering::Relaxed));
}

fn get(data: &Area, at: usize) -> u16 {
    ok(data.load(2 * at, Ordering::Relaxed))
}

const AVAIL: u16 = 1 << 7;

/// A split ring of four: one side shows entries in two batches, the other asks for the next one
/// whenever it has none, and sleeps if there is none yet. A sleeper that was told goes on.
fn split_cross(event_index: bool) {
    const EVENT: usize = 4;
    loom::model(move || {
        let event_at = event_index.then_some(EVENT);
        let shower = Arc::new(Area::new(3));
        let sleeper = Arc::new(Area::new(3));
        let data = Arc::new(Area::new(1));
        // Asleep from the start would be told of entry 0; it has polled up to here.
        if event_index {
            ok(sleeper.store(EVENT, 7, Ordering::Relaxed));
        } else {
            ok(sleeper.store(0, 1, Ordering::Relaxed));
        }
        let (mine, theirs, written) = (shower.clone(), sleeper.clone(), data.clone());
        let showing = thread::spawn(move || {
            put(&written, 0, 42);
            ok(show_index(&*mine, &*theirs, (0, 1), event_at))
        });
        let index = ok(ask_index(&*sleeper, &*shower, 0, event_at));
        if index == 1 {
            assert_eq!(get(&data, 0), 42, "an entry without its content");
        }
        let told = showing.join().unwrap();
        assert!(index == 1 || told, "asleep and not told");
    });
}

#[test]
fn split_sides_never_both_sleep() {
    split_cross(true);
    split_cross(false);
}

/// The same in a packed ring: `used` for the device that shows used entries, else the driver that
/// makes descriptors available; both sides' slots have the same form.
fn packed_cross(event_index: bool, used: bool) {
    loom::model(move || {
        const SIZE: u16 = 4;
        let at = Position::START;
        let flags = if used { at.used() } else { at.available() };
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        // It has polled up to here.
        ok(events.store(2, 1, Ordering::Relaxed));
        let (slots, theirs) = (ring.clone(), events.clone());
        let showing = thread::spawn(move || {
            put(&slots, 6, 42);
            let batch = (at, at.advance(1, SIZE));
            ok(show_slot(&*slots, &*theirs, flags, batch, SIZE))
        });
        let ask = event_index.then_some(at);
        let seen = ok(ask_slot(&*events, &*ring, ask, at));
        if seen == flags {
            assert_eq!(get(&ring, 6), 42, "a descriptor without its content");
        }
        let told = showing.join().unwrap();
        assert!(seen == flags || told, "asleep and not told");
    });
}

#[test]
fn packed_sides_never_both_sleep() {
    for used in [false, true] {
        packed_cross(true, used);
        packed_cross(false, used);
    }
}

/// An event area that is being changed is read with the new flags and the old position at worst
/// when the sleeper sees what was shown: it moves on from one position to the next meanwhile.
#[test]
fn packed_positions_that_change_lose_no_wake_up() {
    loom::model(|| {
        const SIZE: u16 = 4;
        let (first, second) = (Position::START, Position::START.advance(1, SIZE));
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        // An old request, long passed, and told not to.
        ok(events.store(0, Position::START.advance(3, SIZE).bits(), Ordering::Relaxed));
        ok(events.store(2, 1, Ordering::Relaxed));
        ok(ring.store(first.flags_at(), first.available(), Ordering::Relaxed));
        let (slots, theirs) = (ring.clone(), events.clone());
        let showing = thread::spawn(move || {
            let batch = (second, second.advance(1, SIZE));
            ok(show_slot(&*slots, &*theirs, AVAIL, batch, SIZE))
        });
        let seen = ok(ask_slot(&*events, &*ring, Some(second), second));
        let told = showing.join().unwrap();
        assert!(seen == AVAIL || told, "asleep and not told");
    });
}

/// A batch of two packed descriptors, of which the second has its flags before the first: who sees
/// the first sees both, and what they hold.
#[test]
fn packed_batches_are_seen_whole() {
    loom::model(|| {
        const SIZE: u16 = 4;
        let (first, second) = (Position::START, Position::START.advance(1, SIZE));
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        let (slots, theirs) = (ring.clone(), events.clone());
        let showing = thread::spawn(move || {
            put(&slots, 6, 1);
            put(&slots, 14, 2);
            ok(slots.store(second.flags_at(), second.available(), Ordering::Relaxed));
            let batch = (first, second.advance(1, SIZE));
            ok(show_slot(&*slots, &*theirs, first.available(), batch, SIZE));
        });
        if first.is_available(ok(look_slot(&*ring, first))) {
            assert_eq!(get(&ring, 6), 1);
            assert!(second.is_available(ok(look_slot(&*ring, second))), "half a batch");
            assert_eq!(get(&ring, 14), 2);
        }
        showing.join().unwrap();
    });
}

/// A batch of two split entries under one index.
#[test]
fn split_batches_are_seen_whole() {
    loom::model(|| {
        let (mine, theirs) = (Arc::new(Area::new(2)), Arc::new(Area::new(2)));
        let data = Arc::new(Area::new(2));
        let (area, other, written) = (mine.clone(), theirs.clone(), data.clone());
        let showing = thread::spawn(move || {
            put(&written, 0, 1);
            put(&written, 1, 2);
            ok(show_index(&*area, &*other, (0, 2), None));
        });
        if ok(look_index(&*mine)) == 2 {
            assert_eq!((get(&data, 0), get(&data, 1)), (1, 2));
        }
        showing.join().unwrap();
    });
}

/// The whole of parking: the sleeper disarms, works, arms, looks again and sleeps, while the other
/// side shows twice and rings when it is told to. Whatever the order, nothing shown is left while
/// the sleeper sleeps and nobody rings.
fn park(event_index: bool) {
    loom::model(move || {
        const SIZE: u16 = 4;
        let ring = Arc::new(Area::new(16));
        let events = Arc::new(Area::new(2));
        ok(events.store(2, 1, Ordering::Relaxed));
        let bell = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let (slots, theirs, rings) = (ring.clone(), events.clone(), bell.clone());
        let showing = thread::spawn(move || {
            let mut at = Position::START;
            for _ in 0..2 {
                let batch = (at, at.advance(1, SIZE));
                if ok(show_slot(&*slots, &*theirs, at.available(), batch, SIZE)) {
                    // An eventfd: what it was rung for is visible to whoever is woken.
                    rings.fetch_add(1, Ordering::AcqRel);
                }
                at = batch.1;
            }
        });
        let mut next = Position::START;
        // One look, one sleep: a second sleep is the first one again.
        if next.is_available(ok(look_slot(&*ring, next))) {
            next = next.advance(1, SIZE);
        }
        let ask = event_index.then_some(next);
        let asleep = !next.is_available(ok(ask_slot(&*events, &*ring, ask, next)));
        showing.join().unwrap();
        if asleep && next != Position::START.advance(2, SIZE) {
            assert!(bell.load(Ordering::Acquire) > 0, "asleep with work, and nobody rang");
        }
    });
}

#[test]
fn parking_loses_no_wake_up() {
    park(true);
    park(false);
}
