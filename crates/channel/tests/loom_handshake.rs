//! Model check of the handshake: every interleaving of the two sides of a channel, and every value
//! that a weakly ordered machine can load. The steps are those of `causeway_channel::handshake`.
//!
//! Mutations tried by hand: without `full_fence` both sides sleep; with a relaxed store in
//! `publish` an event is seen without its content.

use std::sync::atomic::Ordering;

use causeway_channel::handshake::{
    ChannelWords, arm, disarm, load_word, must_wake, publish, take_wake_request,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

/// Shared words under the checker: content, slot, sleeping, consumed, waiting, doorbell.
struct Area([AtomicU64; 6]);

const CONTENT: usize = 0;
const SLOT: usize = 8;
const SLEEPS: usize = 16;
const GIVEN_BACK: usize = 24;
const WAITS: usize = 32;
const DOORBELL: usize = 40;

impl Area {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn ring(&self) {
        // An eventfd: writes before the signal are visible to the woken side.
        self.0[DOORBELL / 8].fetch_add(1, Ordering::AcqRel);
    }
}

impl ChannelWords for Area {
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
fn channel_published_event_is_seen_with_its_content_or_signalled() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            sender.store(CONTENT, 42, Ordering::Relaxed);
            publish(&*sender, SLOT, 1);
            if must_wake(&*sender, SLEEPS) {
                sender.ring();
            }
        });
        let seen = load_word(&*area, SLOT) == 1 || arm(&*area, SLEEPS, SLOT) == 1;
        if seen {
            assert_eq!(area.load(CONTENT, Ordering::Relaxed), 42, "an event without its content");
        }
        sending.join().unwrap();
        assert!(seen || area.load(DOORBELL, Ordering::Acquire) > 0, "asleep without a doorbell");
    });
}

/// The sleeper wakes, requests a wake-up again after the first event, and two events come: a
/// doorbell for each is not needed, but none is lost.
#[test]
fn channel_sleeper_that_sleeps_again_misses_nothing() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            for event in [1, 2] {
                publish(&*sender, SLOT, event);
                if must_wake(&*sender, SLEEPS) {
                    sender.ring();
                }
            }
        });
        let mut seen = arm(&*area, SLEEPS, SLOT);
        if seen != 0 {
            disarm(&*area, SLEEPS);
            let rings = area.load(DOORBELL, Ordering::Acquire);
            seen = arm(&*area, SLEEPS, SLOT);
            sending.join().unwrap();
            let rung = area.load(DOORBELL, Ordering::Acquire) > rings || rings > 0;
            assert!(seen == 2 || rung, "asleep with the second event, without a doorbell");
        } else {
            sending.join().unwrap();
            assert!(area.load(DOORBELL, Ordering::Acquire) > 0, "asleep without a doorbell");
        }
    });
}

/// The same with requests that are cleared, so that a single doorbell covers any number of events
/// until the next request.
#[test]
fn channel_cleared_wake_request_is_signalled() {
    loom::model(|| {
        let area = Area::new();
        let sender = area.clone();
        let sending = thread::spawn(move || {
            let mut rung = 0;
            for event in [1, 2] {
                publish(&*sender, SLOT, event);
                if take_wake_request(&*sender, SLEEPS) {
                    sender.ring();
                    rung += 1;
                }
            }
            rung
        });
        let seen = arm(&*area, SLEEPS, SLOT);
        if seen == 0 {
            assert_eq!(sending.join().unwrap(), 1, "a sleeper gets a single doorbell");
            assert_eq!(load_word(&*area, SLOT), 2);
        } else {
            disarm(&*area, SLEEPS);
            let rings = area.load(DOORBELL, Ordering::Acquire);
            let seen = arm(&*area, SLEEPS, SLOT);
            sending.join().unwrap();
            let rung = area.load(DOORBELL, Ordering::Acquire) > rings;
            assert!(seen == 2 || rung, "asleep with the second event, without a doorbell");
        }
    });
}

/// Both sides sleep at once: the sender waits for room while the receiver takes the last event and
/// then sleeps for the next. They never both sleep without a doorbell.
#[test]
fn channel_waiting_sender_and_sleeping_receiver_do_not_deadlock() {
    loom::model(|| {
        let area = Area::new();
        let receiver = area.clone();
        // The receiver publishes its counts, rings if the sender waits, and sleeps until the slot
        // changes.
        let receiving = thread::spawn(move || {
            publish(&*receiver, GIVEN_BACK, 1);
            if must_wake(&*receiver, WAITS) {
                receiver.ring();
            }
            arm(&*receiver, SLEEPS, SLOT)
        });
        let mut wakes = false;
        let mut room = arm(&*area, WAITS, GIVEN_BACK) == 1;
        if !room && area.load(DOORBELL, Ordering::Acquire) > 0 {
            room = load_word(&*area, GIVEN_BACK) == 1;
            assert!(room, "doorbell without room");
        }
        if room {
            disarm(&*area, WAITS);
            publish(&*area, SLOT, 1);
            wakes = must_wake(&*area, SLEEPS);
        }
        let seen = receiving.join().unwrap();
        if room {
            assert!(wakes || seen == 1, "the receiver sleeps without a doorbell");
        } else {
            assert!(
                area.load(DOORBELL, Ordering::Acquire) > 0,
                "the sender waits without a doorbell"
            );
        }
    });
}
