//! Model check of the cooperative copy: every order in which receiver and sender can take parts,
//! and every value that a weakly ordered machine can load. The steps are those of
//! `causeway_channel::cooperative_copy`.
//!
//! Mutations tried by hand: if the sender takes its parts before it sets `BUSY`, a receiver
//! releases memory that is still written; with a relaxed exchange it misses its part.

use std::sync::atomic::Ordering;

use causeway_channel::cooperative_copy::{
    Cell, CopyEnd, ReceiverShare, ReceiverStep, SenderShare, SenderStep, ShareSize,
};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

const PARTS: u32 = 3;
const ONE: ShareSize = ShareSize { least: 1, most: 1 };

/// The word, and the copier of each part.
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
        let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
        self.word.compare_exchange(current, new, ok, err).map(drop)
    }
}

/// A sender that copies the parts it takes. Returns whether it notified the receiver at the end.
fn give(message: &Message, copies: bool) -> bool {
    let mut giving = SenderShare::of(CopyEnd::Back, 1, PARTS);
    let mut notified = false;
    while let SenderStep::Copy(parts) = giving.next(message, ONE) {
        if copies {
            message.copy(parts.clone(), 2);
        }
        notified = giving.copied(message, parts, copies);
        if !copies {
            break;
        }
    }
    notified
}

#[test]
fn shared_parts_are_copied_once_and_a_waiting_receiver_is_notified() {
    for copies in [true, false] {
        loom::model(move || {
            let message = Message::new();
            let mut taking = ReceiverShare::begin(&*message, CopyEnd::Front, 0, PARTS);
            let sender = message.clone();
            let sending = thread::spawn(move || give(&sender, copies));
            let mut sending = Some(sending);
            loop {
                match taking.take(&*message, ONE).unwrap() {
                    ReceiverStep::Copy(parts) => message.copy(parts, 1),
                    ReceiverStep::Wait => {
                        let notified = sending.take().expect("the sender has ended already").join();
                        assert!(notified.unwrap(), "the receiver waits without notification");
                    }
                    ReceiverStep::Done => break,
                }
            }
            let all = message.parts.iter().all(|part| part.load(Ordering::Relaxed) > 0);
            assert!(all, "a part is missing");
        });
    }
}

/// A receiver that ends the copy sees whether the sender still writes.
#[test]
fn shared_memory_is_not_written_after_its_release() {
    loom::model(|| {
        let message = Message::new();
        let mut taking = ReceiverShare::begin(&*message, CopyEnd::Front, 0, PARTS);
        let sender = message.clone();
        let sending = thread::spawn(move || give(&sender, true));
        let mut busy = taking.end(&*message);
        while busy {
            thread::yield_now();
            busy = taking.is_copied(&*message).unwrap();
        }
        // From here on the memory belongs to the next message: a late sender of the first message
        // takes none of its parts.
        let before = message.parts.each_ref().map(|part| part.swap(7, Ordering::Relaxed));
        let mut next = ReceiverShare::begin(&*message, CopyEnd::Front, 1, PARTS);
        assert_eq!(next.take(&*message, ONE), Ok(ReceiverStep::Copy(0..1)));
        sending.join().unwrap();
        assert!(message.parts.iter().all(|part| part.load(Ordering::Relaxed) == 7), "{before:?}");
    });
}
