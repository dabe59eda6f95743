//! Sets of numbers as sorted ranges: received packets, acknowledged and lost bytes.
//!
//! The sets of a session are short: losses are few, and the callers bound the number of ranges. All
//! operations take time in the number of ranges, and none fails.

/// Disjoint half-open ranges, in order; neighbours are merged.
#[derive(Debug, Default)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds the numbers from `from` to below `to`.
    pub fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Most insertions extend the last range.
        if let Some(last) = self.0.last_mut()
            && last.0 <= from
            && from <= last.1
        {
            last.1 = last.1.max(to);
            return;
        }
        let first = self.0.partition_point(|range| range.1 < from);
        let behind = self.0.partition_point(|range| range.0 <= to);
        let merged = self.0.get(first..behind).unwrap_or(&[]);
        let from = merged.first().map_or(from, |range| range.0.min(from));
        let to = merged.last().map_or(to, |range| range.1.max(to));
        self.0.splice(first..behind.max(first), [(from, to)]);
    }

    /// Removes the numbers from `from` to below `to`.
    pub fn remove(&mut self, from: u64, to: u64) {
        if from >= to || self.0.iter().all(|range| range.1 <= from || to <= range.0) {
            return;
        }
        let all = std::mem::take(&mut self.0);
        for (start, end) in all {
            for part in [(start, end.min(from)), (start.max(to), end)] {
                if part.0 < part.1 {
                    self.0.push(part);
                }
            }
        }
    }

    /// Removes and returns the first numbers, at most `most`, of the first range.
    pub fn take_first(&mut self, most: u64) -> Option<(u64, u64)> {
        let first = self.0.first_mut()?;
        let (from, end) = *first;
        let to = end.min(from.saturating_add(most));
        first.0 = to;
        if to == end {
            self.0.remove(0);
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
                prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "merged");
                for number in 0..52 { prop_assert_eq!(ranges.contains(number), model.contains(&number)); }
            }
        }
    }
}
