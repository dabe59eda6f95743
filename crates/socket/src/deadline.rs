//! Things that are due at some time, in the order in which they were set. Free of I/O.

use std::collections::VecDeque;

/// Below this many entries nothing is swept.
const SWEEP_MIN: usize = 64;

/// A list of `(when, what)`, set in order of time. An entry that no longer holds stays until its
/// time comes or the list is swept, so that what a guest sets and cancels at any rate takes up
/// no more than twice what holds.
#[derive(Debug)]
pub struct Deadlines<T> {
    list: VecDeque<(u64, T)>,
    sweep_at: usize,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self { list: VecDeque::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Copy> Deadlines<T> {
    /// Adds `what`, due at `at_ns`; `holds` tells of entries whether they still hold.
    pub fn set(&mut self, at_ns: u64, what: T, holds: impl Fn(u64, T) -> bool) {
        if self.list.len() >= self.sweep_at {
            self.list.retain(|&(at, what)| holds(at, what));
            self.sweep_at = self.list.len().saturating_mul(2).max(SWEEP_MIN);
        }
        self.list.push_back((at_ns, what));
    }

    /// When the first is due; it may hold no longer.
    pub fn first_ns(&self) -> Option<u64> {
        self.list.front().map(|&(at, _)| at)
    }

    /// Takes the next one that is due at `now_ns`, and when it was.
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
            // One in a thousand holds.
            deadlines.set(n, n, |at, n| at == n && n % 1000 == 0);
            assert!(deadlines.list.len() <= 300);
        }
        let due: Vec<_> = std::iter::from_fn(|| deadlines.take_due(u64::MAX)).collect();
        assert_eq!(due.iter().filter(|(_, n)| n % 1000 == 0).count(), 100);
    }

    #[test]
    fn due_in_order_and_not_before() {
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
