//! Every order in which the two sides of a channel can meet, and every value that a weakly ordered
//! machine could load. The steps are the channel's own (`causeway_channel::handshake`).
//!
//! Tried by hand: without `full_fence` both sides sleep; with a relaxed store in `show` an event is
//! seen without its content.

use std::sync::atomic::Ordering;

use causeway_channel::handshake::{Words, ask, awake, look, must_wake, show, take_wish};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

/// Shared words under the checker: content, slot, sleeping, given back, waiting, bell.
struct Area([AtomicU64; 6]);

const CONTENT: usize = 0;
const SLOT: usize = 8;
const SLEEPS: usize = 16;
const GIVEN_BACK: usize = 24;
const WAITS: usize = 32;
const BELL: usize = 40;

impl Area {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn ring(&self) {
        // An eventfd: what it was rung for is visible to whoever is woken.
        self.0[BELL / 8].fetch_add(1, Ordering::AcqRel);
    }
}

impl Words for Area {
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at / 8].load(order)
    }

    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.0[at / 8].store(value, order);
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    fn far_fence() -> bool {
        unreachable!("no thread can make a fence in another here")
    }
}

#[test]
fn an_event_shown_is_seen_or_rung_for_and_never_without_its_content() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            sender.store(CONTENT, 42, Ordering::Relaxed);
            show(&*sender, SLOT, 1);
            if must_wake(&*sender, SLEEPS) {
                sender.ring();
            }
        });
        let seen = look(&*area, SLOT) == 1 || ask(&*area, SLEEPS, SLOT) == 1;
        if seen {
            assert_eq!(area.load(CONTENT, Ordering::Relaxed), 42, "an event without its content");
        }
        sending.join().unwrap();
        assert!(seen || area.load(BELL, Ordering::Acquire) > 0, "asleep, and nobody rang");
    });
}

/// The sleeper was awake, asks again after the first event, and two events come: one bell each is
/// not needed, but none is lost.
#[test]
fn who_wakes_and_sleeps_again_misses_nothing() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            for event in [1, 2] {
                show(&*sender, SLOT, event);
                if must_wake(&*sender, SLEEPS) {
                    sender.ring();
                }
            }
        });
        let mut seen = ask(&*area, SLEEPS, SLOT);
        if seen != 0 {
            awake(&*area, SLEEPS);
            let bells = area.load(BELL, Ordering::Acquire);
            seen = ask(&*area, SLEEPS, SLOT);
            sending.join().unwrap();
            let rung = area.load(BELL, Ordering::Acquire) > bells || bells > 0;
            assert!(seen == 2 || rung, "asleep with the second event, and nobody rang");
        } else {
            sending.join().unwrap();
            assert!(area.load(BELL, Ordering::Acquire) > 0, "asleep, and nobody rang");
        }
    });
}

/// The same where the wish is taken, so that one bell is for any number of events until the sleeper
/// asks again.
#[test]
fn a_wish_that_is_taken_is_woken_for() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            let mut rung = 0;
            for event in [1, 2] {
                show(&*sender, SLOT, event);
                if take_wish(&*sender, SLEEPS) {
                    sender.ring();
                    rung += 1;
                }
            }
            rung
        });
        let seen = ask(&*area, SLEEPS, SLOT);
        if seen == 0 {
            assert_eq!(sending.join().unwrap(), 1, "asleep, and not woken once");
            assert_eq!(look(&*area, SLOT), 2);
        } else {
            awake(&*area, SLEEPS);
            let bells = area.load(BELL, Ordering::Acquire);
            let seen = ask(&*area, SLEEPS, SLOT);
            sending.join().unwrap();
            let rung = area.load(BELL, Ordering::Acquire) > bells;
            assert!(seen == 2 || rung, "asleep with the second event, and nobody rang");
        }
    });
}

/// Both directions of sleep at once: the sender waits for room while the receiver takes the last
/// event and then sleeps for the next one. Never do both sleep unrung.
#[test]
fn a_sender_that_waits_and_a_receiver_that_sleeps_do_not_wait_for_each_other() {
    loom::model(|| {
        let area = Area::new();
        let receiver = area.clone();
        // The receiver gives back, rings if the sender waits, and sleeps until the slot changes.
        let receiving = thread::spawn(move || {
            show(&*receiver, GIVEN_BACK, 1);
            if must_wake(&*receiver, WAITS) {
                receiver.ring();
            }
            ask(&*receiver, SLEEPS, SLOT)
        });
        let mut wakes = false;
        let mut room = ask(&*area, WAITS, GIVEN_BACK) == 1;
        if !room && area.load(BELL, Ordering::Acquire) > 0 {
            room = look(&*area, GIVEN_BACK) == 1;
            assert!(room, "rung, and yet no room");
        }
        if room {
            awake(&*area, WAITS);
            show(&*area, SLOT, 1);
            wakes = must_wake(&*area, SLEEPS);
        }
        let seen = receiving.join().unwrap();
        if room {
            assert!(wakes || seen == 1, "the receiver sleeps, and nobody rang");
        } else {
            assert!(area.load(BELL, Ordering::Acquire) > 0, "the sender waits, and nobody rang");
        }
    });
}
