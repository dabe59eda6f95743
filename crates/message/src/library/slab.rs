//! Table of entries with intrusive lists: no allocation per entry. (A *slab* of staging memory is
//! something else: `library::rings`.)
//!
//! An entry has an *index* (`u32`), which is reused, and a *name* (`u64`: generation and index),
//! which is not, up to 2^32 uses of one index. Applications and peers get names; [`Slab::find`]
//! checks a name in constant time. No name is 0.
//!
//! The table grows to its highest use and never shrinks. At `max` entries, insertions return
//! `None`, and the call of the application fails with `NoResources`; the room for unexpected
//! messages is checked before. An entry may stand in one [`SlabList`] at a time; the caller knows
//! which, unlinks the entry before it removes it, and passes the right list: neither is checked.
//!
//! Used for the requests and unexpected messages of a [`Library`](super::Library), under the lock
//! of its caller.

/// Index that ends a list.
const NONE: u32 = u32::MAX;

/// Entries by index. Each entry may stand in one [`SlabList`] at a time.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    /// Index of the first free entry, or [`NONE`]; free entries are linked by `next`.
    free: u32,
    /// Number of entries with a value.
    used: usize,
    /// Maximum of `used`.
    max: usize,
}

#[derive(Debug)]
struct SlabEntry<T> {
    /// Increases with each reuse, so that a stale name does not match.
    generation: u32,
    /// Indices of the neighbours in a list, or [`NONE`].
    prev: u32,
    next: u32,
    value: Option<T>,
}

impl<T> SlabEntry<T> {
    /// Puts the entry at the head of the free list.
    #[inline(always)]
    fn free(&mut self, at: u32, free: &mut u32, used: &mut usize) {
        // Generations start at 1, so that no name is 0.
        self.generation = self.generation.wrapping_add(1).max(1);
        self.next = std::mem::replace(free, at);
        *used = used.saturating_sub(1);
    }
}

/// An ordered list of entries of a slab.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlabList {
    head: u32,
    tail: u32,
}

impl Default for SlabList {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl SlabList {
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

impl<T> Slab<T> {
    /// Returns a table with `capacity` entries allocated and at most `max` entries.
    pub(super) fn new(capacity: usize, max: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), free: NONE, used: 0, max }
    }

    /// Returns the number of used entries.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Returns whether an insertion would return `None`.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// Adds an entry, or returns `None` if the table is full.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        self.insert_with(|| value)
    }

    /// Adds an entry that `make` builds in place, or returns `None` if the table is full.
    #[inline(always)]
    pub(super) fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<u32> {
        if self.free == NONE {
            self.grow()?;
        }
        let at = self.free;
        let entry = self.entries.get_mut(at as usize)?;
        if entry.value.is_some() {
            // Unreachable for a free entry; the check spares the drop code of the old value.
            return None;
        }
        self.free = entry.next;
        entry.next = NONE;
        entry.prev = NONE;
        entry.value = Some(make());
        self.used = self.used.saturating_add(1);
        Some(at)
    }

    /// Adds a free entry, or returns `None` if the table is full.
    #[cold]
    fn grow(&mut self) -> Option<()> {
        if self.is_full() {
            return None;
        }
        let at = u32::try_from(self.entries.len()).ok().filter(|&at| at < NONE)?;
        self.entries.push(SlabEntry { generation: 1, prev: NONE, next: NONE, value: None });
        self.free = at;
        Some(())
    }

    /// Removes an entry, which must stand in no list, and returns its value.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let entry = self.entries.get_mut(at as usize)?;
        let value = entry.value.take()?;
        entry.free(at, &mut self.free, &mut self.used);
        Some(value)
    }

    /// Removes an entry and drops its value.
    #[inline(always)]
    pub(super) fn discard(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        if entry.value.is_some() {
            entry.value = None;
            entry.free(at, &mut self.free, &mut self.used);
        }
    }

    /// Removes an entry with nothing to drop, and skips the drop code.
    #[inline]
    pub(super) fn discard_spent(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        if entry.value.is_some() {
            std::mem::forget(entry.value.take());
            entry.free(at, &mut self.free, &mut self.used);
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.entries.get(at as usize)?.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.entries.get_mut(at as usize)?.value.as_mut()
    }

    /// Returns the unique name of an entry: generation and index.
    #[inline]
    pub(super) fn name(&self, at: u32) -> u64 {
        let generation = self.entries.get(at as usize).map_or(0, |entry| entry.generation);
        u64::from(generation) << 32 | u64::from(at)
    }

    /// Returns the index of a name that is still valid.
    #[inline]
    pub(super) fn find(&self, name: u64) -> Option<u32> {
        let (generation, at) = ((name >> 32) as u32, name as u32);
        let entry = self.entries.get(at as usize)?;
        (entry.generation == generation && entry.value.is_some()).then_some(at)
    }

    /// Returns the name that the next insertion gets, or `None` if the table is full.
    #[inline]
    pub(super) fn next_name(&mut self) -> Option<u64> {
        if self.free == NONE {
            self.grow()?;
        }
        Some(self.name(self.free))
    }

    /// Returns index and value of a name that is still valid.
    #[inline]
    pub(super) fn named(&self, name: u64) -> Option<(u32, &T)> {
        let (generation, at) = ((name >> 32) as u32, name as u32);
        let entry = self.entries.get(at as usize)?;
        let value = entry.value.as_ref().filter(|_| entry.generation == generation)?;
        Some((at, value))
    }

    /// Returns the number of entries ever allocated; all indices are below it.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(NONE)
    }

    /// Returns the index of the entry after `at` in its list.
    #[inline]
    pub(super) fn after(&self, at: u32) -> Option<u32> {
        self.entries.get(at as usize).map(|entry| entry.next).filter(|&next| next != NONE)
    }

    /// Returns the entries of a list, in order.
    pub(super) fn iter(&self, list: &SlabList) -> impl Iterator<Item = (u32, &T)> {
        std::iter::successors(list.first(), |&at| self.after(at))
            .filter_map(|at| self.get(at).map(|value| (at, value)))
    }

    /// Appends an entry to a list.
    #[inline]
    pub(super) fn push(&mut self, list: &mut SlabList, at: u32) {
        let tail = list.tail;
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        entry.prev = tail;
        entry.next = NONE;
        match self.entries.get_mut(tail as usize) {
            Some(last) => last.next = at,
            None => list.head = at,
        }
        list.tail = at;
    }

    /// Prepends an entry to a list.
    pub(super) fn push_first(&mut self, list: &mut SlabList, at: u32) {
        let head = list.head;
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        entry.prev = NONE;
        entry.next = head;
        match self.entries.get_mut(head as usize) {
            Some(first) => first.prev = at,
            None => list.tail = at,
        }
        list.head = at;
    }

    /// Removes the first entry of a list.
    #[inline]
    pub(super) fn shift(&mut self, list: &mut SlabList) {
        let Some(entry) = self.entries.get_mut(list.head as usize) else { return };
        let next = std::mem::replace(&mut entry.next, NONE);
        list.head = next;
        match self.entries.get_mut(next as usize) {
            Some(behind) => behind.prev = NONE,
            None => list.tail = NONE,
        }
    }

    /// Removes an entry from its list.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut SlabList, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let (prev, next) = (entry.prev, entry.next);
        entry.prev = NONE;
        entry.next = NONE;
        match self.entries.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => list.head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(behind) => behind.prev = prev,
            None => list.tail = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slab_lists_keep_order_and_names_end_with_entries() {
        let mut slab = Slab::new(0, 4);
        let mut list = SlabList::default();
        let all: Vec<_> = "abcd".chars().map(|c| slab.insert(c).unwrap()).collect();
        assert_eq!(slab.insert('e'), None);
        all.iter().for_each(|&at| slab.push(&mut list, at));
        let read = |slab: &Slab<char>, list: &SlabList| -> String {
            slab.iter(list).map(|(_, &c)| c).collect()
        };
        assert_eq!(read(&slab, &list), "abcd");
        let name = slab.name(all[1]);
        slab.unlink(&mut list, all[1]);
        assert_eq!(read(&slab, &list), "acd");
        slab.unlink(&mut list, all[0]);
        slab.unlink(&mut list, all[3]);
        assert_eq!(read(&slab, &list), "c");
        slab.push(&mut list, all[0]);
        slab.push_first(&mut list, all[3]);
        assert_eq!(read(&slab, &list), "dca");
        slab.unlink(&mut list, all[3]);
        assert_eq!(read(&slab, &list), "ca");
        assert_eq!(slab.find(name), Some(all[1]));
        assert_eq!(slab.remove(all[1]), Some('b'));
        assert_eq!(slab.find(name), None);
        assert_eq!(slab.insert('x'), Some(all[1]));
        assert_eq!(slab.find(name), None);
        slab.unlink(&mut list, all[2]);
        slab.unlink(&mut list, all[0]);
        assert!(list.is_empty() && list.first().is_none());
    }
}
