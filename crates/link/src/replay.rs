//! The replay window of a session: no datagram is accepted twice.
//!
//! A sliding bit map over the newest [`REPLAY_WINDOW`] (2,048) counters (as RFC 6479 describes it).
//! A counter older than the window is refused, also if it was never received, so a datagram that
//! the network delays by more than [`REPLAY_WINDOW`] datagrams is lost: the tunnel drops it and
//! counts [`Refusal::Replayed`](crate::Refusal::Replayed).
//!
//! The window authenticates nothing: `crate::tunnel::records` opens a datagram first, and then
//! calls [`Replay::take`] with its counter. The window belongs to the thread of the tunnel (in the
//! daemon, the shard of links). Sessions without encryption do not use it: their datagrams can be
//! replayed.

use crate::limits::REPLAY_WINDOW;

/// Words of the bit map.
const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// The received counters among the newest [`REPLAY_WINDOW`] (2,048). Call it only with counters of
/// authenticated datagrams: a forged counter would move the window.
#[derive(Debug, Clone)]
pub struct Replay {
    /// One more than the largest counter so far; 0 before the first.
    next: u64,
    /// A bit for each counter of the window, at the counter modulo the window.
    seen: [u64; WORDS],
}

impl Default for Replay {
    fn default() -> Self {
        Self { next: 0, seen: [0; WORDS] }
    }
}

impl Replay {
    /// Returns one more than the largest counter so far.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Marks `counter` as received. Returns whether it is new and within the window.
    pub fn take(&mut self, counter: u64) -> bool {
        if counter == u64::MAX {
            // Noise reserves this counter.
            return false;
        }
        if counter >= self.next {
            self.slide(counter);
        } else if self.next.saturating_sub(counter) > REPLAY_WINDOW {
            return false;
        }
        let (word, bit) = place(counter);
        let Some(word) = self.seen.get_mut(word) else { return false };
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Returns whether `counter` is larger than all before.
    pub const fn is_newest(&self, counter: u64) -> bool {
        counter >= self.next
    }

    /// Makes `counter` the newest and clears the bits in between.
    fn slide(&mut self, counter: u64) {
        let ahead = counter.saturating_sub(self.next).saturating_add(1);
        if ahead >= REPLAY_WINDOW {
            self.seen = [0; WORDS];
        } else {
            for each in 0..ahead {
                let (word, bit) = place(self.next.wrapping_add(each));
                if let Some(word) = self.seen.get_mut(word) {
                    *word &= !bit;
                }
            }
        }
        self.next = counter.saturating_add(1);
    }
}

/// Returns the word index and bit mask of a counter.
const fn place(counter: u64) -> (usize, u64) {
    let at = counter % REPLAY_WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replay_window_accepts_each_counter_once() {
        let mut replay = Replay::default();
        for counter in [0, 1, 5, 3, 2047, 2048, 4, 100_000, 100_000 - 2047] {
            assert!(replay.take(counter), "{counter}");
            assert!(!replay.take(counter), "{counter}");
        }
        assert!(!replay.take(100_000 - 2048), "too old");
        assert!(!replay.take(2));
        assert!(replay.take(u64::MAX - 1));
        assert!(!replay.take(100_001));
        assert!(!replay.take(u64::MAX));
    }

    proptest! {
        /// Compares with a set of all accepted counters.
        #[test]
        fn the_window_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..5000), 1..400)) {
            let mut replay = Replay::default();
            let (mut all, mut top) = (HashSet::new(), 0_u64);
            for (back, by) in steps {
                let counter = if back { top.saturating_sub(by) } else { top + by % 300 };
                let in_window = counter >= top || top + 1 - counter <= REPLAY_WINDOW;
                let expected = in_window && all.insert(counter);
                prop_assert_eq!(replay.take(counter), expected, "{} of {}", counter, top);
                top = top.max(counter);
            }
        }
    }
}
