//! A sorted table of grants that shares its unchanged parts with earlier versions of itself.
//!
//! The table is a list of immutable chunks of at most [`GRANTS_PER_CHUNK`] (256) grants. An
//! addition builds one or two new chunks, a removal four at most, and moves the list's entries
//! behind them, so its cost does not depend on the grants in other chunks that stay. A copy of the
//! table copies the list and shares all chunks.
//!
//! Two neighbouring chunks together hold more than half a chunk of grants. Therefore `n` grants are
//! in at most `4 n / GRANTS_PER_CHUNK + 1` chunks, and a grant takes 33 bytes: its entry of 32
//! bytes and its part of a chunk's 40 bytes of overhead.
//!
//! [`crate::Grants`] changes the table, [`crate::Map`] searches its copy, by two binary searches.
//! The table does not limit the number of grants, checks neither files nor rights, and keeps no
//! mapping alive: its owner holds the mappings to which the windows point. A table is changed by
//! one thread, that which answers the frontend; its copies are read by any.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::limits::GRANTS_PER_CHUNK;
use crate::rights::Rights;

/// An interval of guest addresses and the mapped bytes behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantWindow {
    /// Guest address of the first byte.
    pub guest: u64,
    /// Length, in bytes.
    pub len: u64,
    /// Host address of the first byte.
    pub start: NonNull<u8>,
}

impl Default for GrantWindow {
    fn default() -> Self {
        Self { guest: 0, len: 0, start: NonNull::dangling() }
    }
}

impl GrantWindow {
    /// Returns the host pointer at guest address `addr` and the number of bytes that follow it in
    /// this window.
    #[inline]
    pub fn pointer(&self, addr: u64) -> Option<(NonNull<u8>, usize)> {
        // Below the window this wraps, to more than any length.
        let at = addr.wrapping_sub(self.guest);
        if at >= self.len {
            return None;
        }
        // SAFETY: at < len, and as many bytes are mapped behind `start`. Both fit usize.
        let pointer = unsafe { self.start.add(at as usize) };
        Some((pointer, self.len.wrapping_sub(at) as usize))
    }

    /// Returns the guest address behind the last byte. A window's end never wraps.
    pub fn end(&self) -> u64 {
        self.guest.saturating_add(self.len)
    }
}

/// A window with the rights of its grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantEntry {
    /// Guest addresses of the grant, and the mapped bytes behind them.
    pub window: GrantWindow,
    /// Index of the file that holds the bytes, in the list of the table's owner.
    pub file: u16,
    /// Rights of the grant.
    pub rights: Rights,
}

/// Consecutive entries. Never empty.
#[derive(Debug, Clone)]
struct GrantChunk {
    /// Guest address of the first entry.
    first: u64,
    entries: Arc<[GrantEntry]>,
}

impl GrantChunk {
    fn new(entries: &[GrantEntry]) -> Option<Self> {
        let first = entries.first()?.window.guest;
        Some(Self { first, entries: entries.into() })
    }
}

/// Why a range of guest addresses cannot be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoveError {
    /// No grant lies in the range.
    Missing,
    /// The range covers only a part of the grant at this guest address.
    Partial(u64),
}

/// Entries in the order of their guest addresses; none overlaps another.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrantTable {
    chunks: Vec<GrantChunk>,
    count: usize,
}

impl GrantTable {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns all entries in the order of their guest addresses.
    pub fn iter(&self) -> impl Iterator<Item = &GrantEntry> {
        self.chunks.iter().flat_map(|chunk| chunk.entries.iter())
    }

    /// Returns the entry that holds guest address `addr`.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<&GrantEntry> {
        let behind = self.chunks.partition_point(|chunk| chunk.first <= addr);
        let entries = &self.chunks.get(behind.checked_sub(1)?)?.entries;
        let behind = entries.partition_point(|entry| entry.window.guest <= addr);
        let entry = entries.get(behind.checked_sub(1)?)?;
        let at = addr.wrapping_sub(entry.window.guest);
        (at < entry.window.len).then_some(entry)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The guest address of an entry that overlaps.
    pub fn insert(&mut self, entry: GrantEntry) -> Result<(), u64> {
        let guest = entry.window.guest;
        let index = self.chunks.partition_point(|c| c.first <= guest).saturating_sub(1);
        let old = self.chunks.get(index).map_or(&[][..], |chunk| &chunk.entries);
        let (before, after) = old.split_at(old.partition_point(|e| e.window.guest <= guest));
        if let Some(last) = before.last().filter(|last| last.window.end() > guest) {
            return Err(last.window.guest);
        }
        let following = self.chunks.get(index.saturating_add(1)).map(|chunk| chunk.first);
        let next = after.first().map(|entry| entry.window.guest).or(following);
        if let Some(next) = next.filter(|&next| entry.window.end() > next) {
            return Err(next);
        }
        let mut merged = Vec::with_capacity(old.len().saturating_add(1));
        merged.extend_from_slice(before);
        merged.push(entry);
        merged.extend_from_slice(after);
        // Ascending insertions fill each chunk; others leave two halves.
        let cut = match merged.len() <= GRANTS_PER_CHUNK {
            true => merged.len(),
            false if after.is_empty() && following.is_none() => GRANTS_PER_CHUNK,
            false => GRANTS_PER_CHUNK / 2,
        };
        let (low, high) = merged.split_at(cut);
        let end = self.chunks.len().min(index.saturating_add(1));
        let new = [GrantChunk::new(low), GrantChunk::new(high)];
        self.chunks.splice(index..end, new.into_iter().flatten());
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Removes every entry in `range` and passes it to `each`, or removes nothing.
    ///
    /// # Errors
    /// [`RemoveError`].
    pub fn remove(
        &mut self,
        range: Range<u64>,
        mut each: impl FnMut(&GrantEntry),
    ) -> Result<(), RemoveError> {
        if let Some(cut) = self.cut_by(&range) {
            return Err(RemoveError::Partial(cut));
        }
        let low = self.chunks.partition_point(|c| c.first <= range.start).saturating_sub(1);
        let high = self.chunks.partition_point(|c| c.first < range.end).max(low);
        let mut kept: [Vec<GrantEntry>; 2] = Default::default();
        let mut removed = 0_usize;
        for entry in self.chunks.get(low..high).unwrap_or_default().iter().flat_map(|c| &*c.entries)
        {
            let [before, after] = &mut kept;
            match entry.window.guest {
                guest if guest < range.start => before.push(*entry),
                guest if guest >= range.end => after.push(*entry),
                _ => {
                    removed = removed.saturating_add(1);
                    each(entry);
                }
            }
        }
        if removed == 0 {
            return Err(RemoveError::Missing);
        }
        self.count = self.count.saturating_sub(removed);
        self.replace(low..high, kept);
        Ok(())
    }

    /// Returns the guest address of an entry that lies in `range` with a part of its bytes only.
    fn cut_by(&self, range: &Range<u64>) -> Option<u64> {
        let start = self.find(range.start).map(|entry| &entry.window);
        if let Some(window) = start.filter(|window| window.guest < range.start) {
            return Some(window.guest);
        }
        let last = self.find(range.end.checked_sub(1)?).map(|entry| &entry.window)?;
        (last.end() > range.end).then_some(last.guest)
    }

    /// Puts the entries of `kept` in the place of `chunks`, and restores the bound on chunks.
    fn replace(&mut self, chunks: Range<usize>, kept: [Vec<GrantEntry>; 2]) {
        let low = chunks.start;
        let [mut before, after] = kept;
        let new = if before.len().saturating_add(after.len()) <= GRANTS_PER_CHUNK {
            before.extend(after);
            [GrantChunk::new(&before), None]
        } else {
            [GrantChunk::new(&before), GrantChunk::new(&after)]
        };
        let count = new.iter().flatten().count();
        self.chunks.splice(chunks, new.into_iter().flatten());
        if let Some(last) = low.saturating_add(count).checked_sub(1) {
            self.join(last);
        }
        if count > 0
            && let Some(previous) = low.checked_sub(1)
        {
            self.join(previous);
        }
    }

    /// Joins chunk `index` with the next one if both hold half a chunk of entries at most.
    fn join(&mut self, index: usize) {
        let end = index.saturating_add(2);
        let Some([a, b]) = self.chunks.get(index..end) else { return };
        if a.entries.len().saturating_add(b.entries.len()) > GRANTS_PER_CHUNK / 2 {
            return;
        }
        let joined = GrantChunk::new(&[&*a.entries, &*b.entries].concat());
        self.chunks.splice(index..end, joined);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(guest: u64, len: u64) -> GrantEntry {
        let window = GrantWindow { guest, len, start: NonNull::dangling() };
        GrantEntry { window, file: 0, rights: Rights::READ }
    }

    fn is_compact(table: &GrantTable) -> bool {
        let sizes: Vec<usize> = table.chunks.iter().map(|chunk| chunk.entries.len()).collect();
        sizes.iter().all(|&size| size > 0 && size <= GRANTS_PER_CHUNK)
            && sizes.windows(2).all(|pair| pair[0] + pair[1] > GRANTS_PER_CHUNK / 2)
            && sizes.iter().sum::<usize>() == table.len()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Fill(u64, u64),
        Insert(u64, u64),
        Remove(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let at = 0_u64..4000;
        let step = prop_oneof![
            1 => (at.clone(), 1_u64..2000).prop_map(|(at, n)| Step::Fill(at, n)),
            6 => (at.clone(), 1_u64..12).prop_map(|(at, len)| Step::Insert(at, len)),
            2 => (at.clone(), 1_u64..12).prop_map(|(at, len)| Step::Remove(at, len)),
            1 => (at, 1_u64..3000).prop_map(|(at, len)| Step::Remove(at, len)),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// The same rules over an ordered map of starts and lengths.
    #[derive(Debug, Default)]
    struct Model(BTreeMap<u64, u64>);

    impl Model {
        fn insert(&mut self, guest: u64, len: u64) -> bool {
            let free = self.0.iter().all(|(&at, &n)| at + n <= guest || guest + len <= at);
            if free {
                self.0.insert(guest, len);
            }
            free
        }

        fn remove(&mut self, range: &Range<u64>) -> Result<(), RemoveError> {
            let overlaps = |at: u64, n: u64| at < range.end && range.start < at + n;
            let touched: Vec<_> = self
                .0
                .iter()
                .filter(|&(&at, &n)| overlaps(at, n))
                .map(|(&at, &n)| (at, n))
                .collect();
            let cut = touched.iter().find(|(at, n)| *at < range.start || at + n > range.end);
            match cut {
                Some(&(at, _)) => Err(RemoveError::Partial(at)),
                None if touched.is_empty() => Err(RemoveError::Missing),
                None => {
                    self.0.retain(|&at, _| !touched.iter().any(|&(one, _)| one == at));
                    Ok(())
                }
            }
        }
    }

    proptest! {
        #[test]
        fn grants_table_equals_an_ordered_map(steps in steps()) {
            let (mut table, mut model) = (GrantTable::default(), Model::default());
            for step in steps {
                match step {
                    Step::Fill(at, n) => {
                        for guest in at..at + n {
                            prop_assert_eq!(table.insert(entry(guest, 1)).is_ok(), model.insert(guest, 1));
                        }
                    }
                    Step::Insert(at, len) => {
                        prop_assert_eq!(table.insert(entry(at, len)).is_ok(), model.insert(at, len));
                    }
                    Step::Remove(at, len) => {
                        let range = at..at + len;
                        prop_assert_eq!(table.remove(range.clone(), |_| ()), model.remove(&range));
                    }
                }
                prop_assert!(is_compact(&table));
                let all: Vec<_> = table.iter().map(|e| (e.window.guest, e.window.len)).collect();
                prop_assert_eq!(&all, &model.0.iter().map(|(&at, &n)| (at, n)).collect::<Vec<_>>());
            }
            for addr in 0..6100 {
                let expected = model.0.range(..=addr).next_back().filter(|&(&at, &n)| addr < at + n);
                let found = table.find(addr).map(|entry| entry.window.guest);
                prop_assert_eq!(found, expected.map(|(&at, _)| at));
            }
        }
    }
}
