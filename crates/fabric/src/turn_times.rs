//! Times of turns as a histogram, for metrics. Its buckets end at 1 us to 100 ms; a longer turn
//! counts in the total alone.
//!
//! The dispatcher's thread adds the time of each turn of a shard that had work, which it has
//! measured for the load already; views read the sums from other threads. There is one writer, so
//! an addition is a load and a store without a lock or a fence. A reader may see a turn in one sum
//! and not yet in another.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_model::{TurnBucket, TurnTimesView};

/// Upper bounds of the buckets, in microseconds. A slice is some tens of microseconds; the bounds
/// above find turns that stall other shards.
const BOUNDS_US: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000];

/// Number of turns by their time.
#[derive(Debug, Default)]
pub(crate) struct TurnTimes {
    /// Turns of each bucket that are in no lower bucket.
    buckets: [AtomicU64; BOUNDS_US.len()],
    /// All turns.
    turns: AtomicU64,
    /// Time of all turns, in nanoseconds.
    total_ns: AtomicU64,
}

/// Adds to a sum that only the calling thread changes.
fn add(sum: &AtomicU64, more: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl TurnTimes {
    /// Adds a turn of `ns` nanoseconds. Only the dispatcher's thread may call it.
    #[inline]
    pub(crate) fn add(&self, ns: u64) {
        let fits = |bound: &u64| ns <= bound.saturating_mul(1000);
        let bucket = BOUNDS_US.iter().zip(&self.buckets).find(|(bound, _)| fits(bound));
        if let Some((_, bucket)) = bucket {
            add(bucket, 1);
        }
        add(&self.turns, 1);
        add(&self.total_ns, ns);
    }

    /// Returns the sums now.
    pub(crate) fn view(&self) -> TurnTimesView {
        let mut below = 0_u64;
        let bucket = |(bound, bucket): (&u64, &AtomicU64)| {
            below = below.saturating_add(bucket.load(Ordering::Relaxed));
            TurnBucket { at_most_us: *bound, turns_total: below }
        };
        let buckets: Vec<_> = BOUNDS_US.iter().zip(&self.buckets).map(bucket).collect();
        TurnTimesView {
            buckets,
            // Turns that were added meanwhile are in a bucket only.
            turns_total: self.turns.load(Ordering::Relaxed).max(below),
            seconds_total: self.total_ns.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_times_count_each_turn_at_its_bound_and_above() {
        let times = TurnTimes::default();
        for us in [0, 1, 3, 60, 5_000_000] {
            times.add(us * 1000);
        }
        let view = times.view();
        let at = |us| view.buckets.iter().find(|b| b.at_most_us == us).unwrap().turns_total;
        assert_eq!((at(1), at(2), at(5), at(50), at(100), at(100_000)), (2, 2, 3, 3, 4, 4));
        assert_eq!(view.turns_total, 5);
        assert!((view.seconds_total - 5.000_064).abs() < 1e-9, "{view:?}");
    }
}
