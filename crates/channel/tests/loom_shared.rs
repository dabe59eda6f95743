//! Every order in which receiver and sender of a message can take its parts, and every value that a
//! weakly ordered machine could load. The steps are the channel's own
//! (`causeway_channel::shared`).
//!
//! Tried by hand: where the sender takes its parts first and says afterwards that it copies, a
//! receiver gives memory up that is written to; with a relaxed exchange it sees its part missing.

use std::sync::atomic::Ordering;

use causeway_channel::shared::{Cell, End, Giving, Most, Next, Taking, Turn};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

const PARTS: u32 = 3;
const ONE: Most = Most { least: 1, most: 1 };

/// The word, and who copied each part.
struct Message {
    word: AtomicU64,
    parts: [AtomicU64; PARTS as usize],
}

impl Message {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(0),
            parts: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn copy(&self, parts: std::ops::Range<u32>, by: u64) {
        for part in parts {
            let part = &self.parts[part as usize];
            assert_eq!(part.load(Ordering::Relaxed), 0, "copied twice");
            part.store(by, Ordering::Relaxed);
        }
    }
}

impl Cell for Message {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.word.store(value, order);
    }
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64> {
        let (yes, no) = (Ordering::AcqRel, Ordering::Acquire);
        self.word.compare_exchange(current, new, yes, no).map(drop)
    }
}

/// A sender that copies what it gets, and says whether it told the receiver at the end.
fn give(message: &Message, well: bool) -> bool {
    let mut giving = Giving::of(End::Back, 1, PARTS);
    let mut told = false;
    while let Next::Copy(parts) = giving.next(message, ONE) {
        if well {
            message.copy(parts.clone(), 2);
        }
        told = giving.copied(message, parts, well);
        if !well {
            break;
        }
    }
    told
}

#[test]
fn every_part_is_copied_once_and_who_waits_is_told() {
    for well in [true, false] {
        loom::model(move || {
            let message = Message::new();
            let mut taking = Taking::begin(&*message, End::Front, 0, PARTS);
            let sender = message.clone();
            let sending = thread::spawn(move || give(&sender, well));
            let mut sending = Some(sending);
            loop {
                match taking.take(&*message, ONE).unwrap() {
                    Turn::Copy(parts) => message.copy(parts, 1),
                    Turn::Wait => {
                        let told = sending.take().expect("told, and nothing changed").join();
                        assert!(told.unwrap(), "the receiver waits, and is not told");
                    }
                    Turn::Done => break,
                }
            }
            let all = message.parts.iter().all(|part| part.load(Ordering::Relaxed) > 0);
            assert!(all, "a part is missing");
        });
    }
}

/// A receiver that gives the message up: what is copied then is seen to be copied.
#[test]
fn memory_that_is_given_up_is_not_written_to() {
    loom::model(|| {
        let message = Message::new();
        let mut taking = Taking::begin(&*message, End::Front, 0, PARTS);
        let sender = message.clone();
        let sending = thread::spawn(move || give(&sender, true));
        let mut busy = taking.end(&*message);
        while busy {
            thread::yield_now();
            busy = taking.is_copied(&*message).unwrap();
        }
        // From here on the memory is somebody else's, and the next message is shared: one that is
        // late for the first takes nothing of it.
        let before = message.parts.each_ref().map(|part| part.swap(7, Ordering::Relaxed));
        let mut next = Taking::begin(&*message, End::Front, 1, PARTS);
        assert_eq!(next.take(&*message, ONE), Ok(Turn::Copy(0..1)));
        sending.join().unwrap();
        assert!(message.parts.iter().all(|part| part.load(Ordering::Relaxed) == 7), "{before:?}");
    });
}
