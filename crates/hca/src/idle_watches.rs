//! Idle adapters whose doorbell records are compared in batches.
//!
//! An adapter with pauses of full length, and whose function can name the words that change before
//! it has work ([`causeway_mlx5::Function::watch`]), is not polled: its words are compared with
//! their last values. A comparison costs a cache line of the daemon and a line of the guest for
//! each word, without a walk over the objects of the adapter. A port whose words differ is served
//! once, which ends the watch.
//!
//! The ports with equal periods are a batch. A batch is due at multiples of its period on the
//! fabric's clock, so that a single wake-up of the dispatcher's thread serves all adapters of all
//! its groups, and the first message after a pause waits for at most the period. A batch that
//! exceeds the time of the turn continues in the next turn; each word is charged. The list is
//! bounded by the number of ports and [`causeway_mlx5::limits::WATCHED_QUEUES_MAX`].
//!
//! `crate::call` adds a port after a poll without work and compares the batches in the shard's
//! turn, in the dispatcher's thread. A watch keeps the map of its guest: [`crate::service`] removes
//! the watch before the function uses another map. A watch of memory that the guest lost reads
//! zeros, as other loads do (`memory::watch`).

use std::collections::BTreeMap;

use causeway_fabric::Slice;
use causeway_memory::WordWatch;

use crate::limits::WORD_NS;

/// The watched ports with one period.
#[derive(Debug)]
struct Batch<P> {
    /// Time of the next comparison, in nanoseconds.
    due_ns: u64,
    /// Index of the next port; ports before it were compared in the present pass.
    cursor: usize,
    watches: Vec<(P, WordWatch)>,
}

/// The watched ports.
#[derive(Debug)]
pub(crate) struct IdleWatches<P> {
    /// Batches by period, in nanoseconds.
    batches: BTreeMap<u64, Batch<P>>,
    /// Period and index in its batch of each port.
    places: BTreeMap<P, (u64, usize)>,
    /// Earliest time of a comparison.
    first_ns: Option<u64>,
}

/// Returns the first multiple of a period after `now_ns`.
fn next_multiple(period_ns: u64, now_ns: u64) -> u64 {
    let past = now_ns.checked_rem(period_ns).unwrap_or(0);
    now_ns.saturating_sub(past).saturating_add(period_ns)
}

impl<P> Default for IdleWatches<P> {
    fn default() -> Self {
        Self { batches: BTreeMap::new(), places: BTreeMap::new(), first_ns: None }
    }
}

impl<P: Copy + Ord> IdleWatches<P> {
    /// Adds a port, which is compared at least once in each period.
    pub(crate) fn insert(&mut self, port: P, watch: WordWatch, period_ns: u64, now_ns: u64) {
        self.remove(port);
        let period_ns = period_ns.max(1);
        let batch = self.batches.entry(period_ns).or_insert_with(|| Batch {
            due_ns: next_multiple(period_ns, now_ns),
            cursor: 0,
            watches: Vec::new(),
        });
        self.places.insert(port, (period_ns, batch.watches.len()));
        batch.watches.push((port, watch));
        self.update_first();
    }

    /// Removes a port, if it is watched.
    pub(crate) fn remove(&mut self, port: P) {
        let Some((period_ns, mut index)) = self.places.remove(&port) else { return };
        let Some(batch) = self.batches.get_mut(&period_ns) else { return };
        if index < batch.cursor {
            // The ports before the cursor stay those that were compared.
            batch.cursor = batch.cursor.saturating_sub(1);
            batch.watches.swap(index, batch.cursor);
            if let Some((moved, _)) = batch.watches.get(index) {
                self.places.entry(*moved).and_modify(|place| place.1 = index);
            }
            index = batch.cursor;
        }
        if index < batch.watches.len() {
            batch.watches.swap_remove(index);
        }
        match batch.watches.get(index) {
            Some((moved, _)) => {
                self.places.entry(*moved).and_modify(|place| place.1 = index);
            }
            None if batch.watches.is_empty() => {
                self.batches.remove(&period_ns);
            }
            None => {}
        }
        self.update_first();
    }

    /// Returns the earliest time of a comparison, in nanoseconds.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// Compares the words of due batches until the slice is used. Adds the ports with changes to
    /// `changed`; the caller removes them.
    pub(crate) fn compare(&mut self, now_ns: u64, slice: &mut Slice, changed: &mut Vec<P>) {
        for (period_ns, batch) in self.batches.iter_mut().filter(|(_, b)| b.due_ns <= now_ns) {
            while let Some((port, watch)) = batch.watches.get(batch.cursor) {
                if slice.is_over() {
                    return;
                }
                let words = u64::try_from(watch.len()).unwrap_or(u64::MAX);
                slice.charge(words.saturating_add(1).saturating_mul(WORD_NS));
                if watch.has_changed() {
                    changed.push(*port);
                }
                batch.cursor = batch.cursor.saturating_add(1);
            }
            batch.cursor = 0;
            batch.due_ns = next_multiple(*period_ns, now_ns);
        }
        self.update_first();
    }

    fn update_first(&mut self) {
        self.first_ns = self.batches.values().map(|batch| batch.due_ns).min();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use causeway_memory::{Map, Mapping, Region, create};

    use super::*;

    const PERIOD: u64 = 2_000_000;

    /// A guest's memory with a word for each port.
    fn memory() -> Arc<Map> {
        let file = create("idle", 8192).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 8192).unwrap());
        Arc::new(Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap())
    }

    fn watch(map: &Arc<Map>, slot: u16) -> WordWatch {
        let mut watch = WordWatch::new(Arc::clone(map));
        watch.add(u64::from(slot) * 4).unwrap();
        watch
    }

    fn compare(watches: &mut IdleWatches<u16>, now_ns: u64, len_ns: u64) -> Vec<u16> {
        let mut changed = Vec::new();
        watches.compare(now_ns, &mut Slice::counted(now_ns, len_ns), &mut changed);
        changed
    }

    #[test]
    fn idle_watches_of_all_ports_are_due_at_the_same_time() {
        let (map, mut watches) = (memory(), IdleWatches::default());
        let mut other = IdleWatches::default();
        assert_eq!(watches.first_ns(), None);
        for slot in 0..100 {
            let now = 10 * PERIOD + u64::from(slot) * 17_000;
            watches.insert(slot, watch(&map, slot), PERIOD, now);
            other.insert(slot, watch(&map, slot), PERIOD, now + 1000);
            assert_eq!(watches.first_ns(), Some(11 * PERIOD), "within the period");
        }
        assert_eq!(other.first_ns(), watches.first_ns(), "ports of other groups too");
        // The thread woke up late.
        assert!(compare(&mut watches, 11 * PERIOD + 70_000, u64::MAX).is_empty());
        assert_eq!(watches.first_ns(), Some(12 * PERIOD));
        watches.insert(100, watch(&map, 100), PERIOD / 4, 11 * PERIOD + 90_000);
        assert_eq!(watches.first_ns(), Some(11 * PERIOD + PERIOD / 4));
        for slot in 0..=100 {
            watches.remove(slot);
        }
        assert_eq!((watches.first_ns(), watches.places.len()), (None, 0));
    }

    #[test]
    fn idle_watches_find_each_change_however_short_the_turns_are() {
        let (map, mut watches) = (memory(), IdleWatches::default());
        for slot in 0..50 {
            watches.insert(slot, watch(&map, slot), PERIOD, 0);
        }
        for slot in [0_u16, 7, 31, 49] {
            map.write(u64::from(slot) * 4, &[1; 4]).unwrap();
        }
        let (mut found, mut turns) = (Vec::new(), 0_u16);
        while watches.first_ns() == Some(PERIOD) {
            // A turn has time for ten ports; ports leave and come meanwhile.
            let changed = compare(&mut watches, PERIOD, 20 * WORD_NS);
            for slot in &changed {
                watches.remove(*slot);
            }
            found.extend(changed);
            watches.remove(40 + turns);
            watches.remove(1 + turns);
            watches.insert(60 + turns, watch(&map, 60 + turns), PERIOD, PERIOD);
            turns += 1;
        }
        found.sort_unstable();
        assert_eq!(found, [0, 7, 31, 49]);
        assert!((5..8).contains(&turns), "{turns}");
        for (port, (_, index)) in &watches.places {
            assert_eq!(watches.batches[&PERIOD].watches[*index].0, *port);
        }
    }
}
