//! Lists of deadlines in the order in which they were set. Free of I/O.
//!
//! The service keeps five lists, one for each fixed period: connects without an answer, lingering
//! and draining connections, frequent and rare credit requests. As all entries of a list have the
//! same period, the order in which they are set is the order in which they are due.
//!
//! A cancelled entry stays until it is due or swept. [`Deadlines::set`] sweeps a list that has
//! reached twice the number of entries that were valid at the last sweep, and at least 64: the
//! length is bounded by twice the most entries that are valid at a time. The list does not sort: an
//! entry that is set too early for its place is taken late, after those before it. It has no timer
//! and no limit of valid entries: the service reports [`Deadlines::first_ns`] to its shard as the
//! time of the next wake-up, and calls [`Deadlines::take_due`] then, in the dispatcher's thread.

use std::collections::VecDeque;

/// Length below which a list is not swept.
const SWEEP_MIN: usize = 64;

/// A list of deadlines in order of time. A cancelled entry stays until its time or a sweep; the
/// list has at most twice as many entries as were valid at the last sweep, or 64, regardless of the
/// rate at which a guest sets and cancels.
#[derive(Debug)]
pub struct Deadlines<T> {
    /// Time and subject of each entry.
    list: VecDeque<(u64, T)>,
    /// Length at which cancelled entries are removed.
    sweep_at: usize,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self { list: VecDeque::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Copy> Deadlines<T> {
    /// Adds `subject`, due at `at_ns`, which must not be earlier than the last entry; `is_valid`
    /// returns whether an entry is still valid.
    pub fn set(&mut self, at_ns: u64, subject: T, is_valid: impl Fn(u64, T) -> bool) {
        if self.list.len() >= self.sweep_at {
            self.list.retain(|&(at, subject)| is_valid(at, subject));
            self.sweep_at = self.list.len().saturating_mul(2).max(SWEEP_MIN);
        }
        self.list.push_back((at_ns, subject));
    }

    /// Returns the time of the first entry, which may be cancelled.
    pub fn first_ns(&self) -> Option<u64> {
        self.list.front().map(|&(at, _)| at)
    }

    /// Removes the first entry if it is due at `now_ns`, and returns its time and subject. The
    /// caller checks whether the entry is still valid.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        self.list.front().filter(|&&(at, _)| at <= now_ns)?;
        self.list.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_rates_take_up_no_more_than_what_holds() {
        let mut deadlines = Deadlines::default();
        for n in 0..100_000_u64 {
            // Every thousandth entry is valid.
            deadlines.set(n, n, |at, n| at == n && n % 1000 == 0);
            assert!(deadlines.list.len() <= 300);
        }
        let due: Vec<_> = std::iter::from_fn(|| deadlines.take_due(u64::MAX)).collect();
        assert_eq!(due.iter().filter(|(_, n)| n % 1000 == 0).count(), 100);
    }

    #[test]
    fn deadlines_are_due_in_order_and_not_before() {
        let mut deadlines = Deadlines::default();
        deadlines.set(10, 'a', |_, _| true);
        deadlines.set(20, 'b', |_, _| true);
        assert_eq!((deadlines.first_ns(), deadlines.take_due(9)), (Some(10), None));
        assert_eq!(deadlines.take_due(15), Some((10, 'a')));
        assert_eq!(deadlines.take_due(15), None);
        assert_eq!(deadlines.take_due(20), Some((20, 'b')));
        assert_eq!(deadlines.first_ns(), None);
    }
}
