//! Sets of numbers as sorted ranges: received packets, acknowledged and lost bytes.
//!
//! The sets of a session are short while losses are few; a peer that acknowledges every second
//! packet makes them long, up to the packets of a window. Nothing here limits them: the session
//! keeps the last 64 ranges of received packets ([`Ranges::keep_last`]). Ranges are found by
//! bisection. A change visits the ranges that it changes, and moves ranges behind them; none fails.

use std::collections::VecDeque;
use std::ops::Range;

/// Disjoint half-open ranges, in order; neighbours are merged.
#[derive(Debug, Default)]
pub struct Ranges(VecDeque<(u64, u64)>);

impl Ranges {
    /// Adds the numbers from `from` to below `to`.
    pub fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Most insertions extend the last range.
        if let Some(last) = self.0.back_mut()
            && last.0 <= from
            && from <= last.1
        {
            last.1 = last.1.max(to);
            return;
        }
        let first = self.0.partition_point(|range| range.1 < from);
        let behind = self.0.partition_point(|range| range.0 <= to).max(first);
        let mut merged = (from, to);
        for (start, end) in self.0.drain(first..behind) {
            merged = (merged.0.min(start), merged.1.max(end));
        }
        self.0.insert(first, merged);
    }

    /// Removes the numbers from `from` to below `to`.
    pub fn remove(&mut self, from: u64, to: u64) {
        let at = self.places(from, to);
        let (first, mut before, mut after) = (at.start, (0, 0), (0, 0));
        for (start, end) in self.0.drain(at) {
            // The first range may begin before `from`, and the last end behind `to`.
            if start < from {
                before = (start, from);
            }
            if to < end {
                after = (to, end);
            }
        }
        for part in [after, before].into_iter().filter(|part| part.0 < part.1) {
            self.0.insert(first, part);
        }
    }

    /// Returns the places of the ranges that have a number from `from` to below `to`.
    fn places(&self, from: u64, to: u64) -> Range<usize> {
        let first = self.0.partition_point(|range| range.1 <= from);
        let behind = self.0.partition_point(|range| range.0 < to);
        if from < to { first..behind.max(first) } else { first..first }
    }

    /// Returns the ranges that have a number from `from` to below `to`, whole and in order.
    pub fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.range(self.places(from, to)).copied()
    }

    /// Removes and returns the first numbers, at most `most`, of the first range.
    pub fn take_first(&mut self, most: u64) -> Option<(u64, u64)> {
        let first = self.0.front_mut()?;
        let (from, end) = *first;
        let to = end.min(from.saturating_add(most));
        first.0 = to;
        if to == end {
            self.0.pop_front();
        }
        Some((from, to))
    }

    /// Returns whether the set has the number.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.1 <= number);
        self.0.get(at).is_some_and(|range| range.0 <= number)
    }

    /// Drops the lowest ranges beyond `most` ranges.
    pub fn keep_last(&mut self, most: usize) {
        let excess = self.0.len().saturating_sub(most);
        self.0.drain(..excess);
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Ranges;

    proptest! {
        /// Compares with a set of numbers.
        #[test]
        fn multiplex_ranges_agree_with_a_set(
            steps in prop::collection::vec((0_u8..4, 0_u64..40, 0_u64..12), 0..40)
        ) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (step, from, len) in steps {
                let to = from + len;
                match step {
                    0 | 1 => { ranges.insert(from, to); model.extend(from..to); }
                    2 => { ranges.remove(from, to); model.retain(|n| *n < from || *n >= to); }
                    _ => if let Some((from, to)) = ranges.take_first(len.max(1)) {
                        prop_assert!(from < to);
                        for number in from..to { prop_assert_eq!(model.pop_first(), Some(number)); }
                    }
                }
                let all: Vec<u64> = ranges.iter().flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
                let listed: Vec<_> = ranges.iter().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0), "merged");
                let overlaps = |range: &(u64, u64)| range.0 < to && from < range.1 && from < to;
                let expected: Vec<_> = listed.iter().copied().filter(overlaps).collect();
                prop_assert_eq!(ranges.overlapping(from, to).collect::<Vec<_>>(), expected);
                for number in 0..52 { prop_assert_eq!(ranges.contains(number), model.contains(&number)); }
            }
        }
    }
}
