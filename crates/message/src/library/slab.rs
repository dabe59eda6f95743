//! A table of things that are named by number and stand in lists, without allocating for each.

/// Ends a list.
const NONE: u32 = u32::MAX;

/// Things by number. Each may stand in one [`List`] at a time.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    used: usize,
    max: usize,
}

#[derive(Debug)]
struct Entry<T> {
    /// Of how many things this was the place; a name of an earlier one is none any more.
    generation: u32,
    prev: u32,
    next: u32,
    value: Option<T>,
}

impl<T> Entry<T> {
    /// Its place is free again, before all others.
    #[inline(always)]
    fn free(&mut self, at: u32, free: &mut u32, used: &mut usize) {
        // Never 0, so that no name is.
        self.generation = self.generation.wrapping_add(1).max(1);
        self.next = std::mem::replace(free, at);
        *used = used.saturating_sub(1);
    }
}

/// Some of a slab's things, in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

impl<T> Slab<T> {
    /// With room for `max` things at most, and for `capacity` from the start.
    pub(super) fn new(capacity: usize, max: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), free: NONE, used: 0, max }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// Adds one, unless it is full.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        self.insert_with(|| value)
    }

    /// The same; it is made in its place.
    #[inline(always)]
    pub(super) fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<u32> {
        if self.free == NONE {
            self.grow()?;
        }
        let at = self.free;
        let entry = self.entries.get_mut(at as usize)?;
        if entry.value.is_some() {
            // Never: it stood in the list of free places. Said so that nothing is dropped here.
            return None;
        }
        self.free = entry.next;
        entry.next = NONE;
        entry.prev = NONE;
        entry.value = Some(make());
        self.used = self.used.saturating_add(1);
        Some(at)
    }

    /// Makes one more place, unless it is full.
    #[cold]
    fn grow(&mut self) -> Option<()> {
        if self.is_full() {
            return None;
        }
        let at = u32::try_from(self.entries.len()).ok().filter(|&at| at < NONE)?;
        self.entries.push(Entry { generation: 1, prev: NONE, next: NONE, value: None });
        self.free = at;
        Some(())
    }

    /// Takes one out. It must stand in no list.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let entry = self.entries.get_mut(at as usize)?;
        let value = entry.value.take()?;
        entry.free(at, &mut self.free, &mut self.used);
        Some(value)
    }

    /// The same, where what it was is of no interest.
    #[inline(always)]
    pub(super) fn discard(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        if entry.value.is_some() {
            entry.value = None;
            entry.free(at, &mut self.free, &mut self.used);
        }
    }

    /// The same of one that has nothing to be dropped, as its owner knows: it is forgotten.
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

    /// A name that is only this one's.
    #[inline]
    pub(super) fn name(&self, at: u32) -> u64 {
        let generation = self.entries.get(at as usize).map_or(0, |entry| entry.generation);
        u64::from(generation) << 32 | u64::from(at)
    }

    /// Whose name that is, if it still is one.
    #[inline]
    pub(super) fn find(&self, name: u64) -> Option<u32> {
        let (generation, at) = ((name >> 32) as u32, name as u32);
        let entry = self.entries.get(at as usize)?;
        (entry.generation == generation && entry.value.is_some()).then_some(at)
    }

    /// The name of what is added next, if there is room for it.
    #[inline]
    pub(super) fn next_name(&mut self) -> Option<u64> {
        if self.free == NONE {
            self.grow()?;
        }
        Some(self.name(self.free))
    }

    /// What has that name, and its number, if the name still is one.
    #[inline]
    pub(super) fn named(&self, name: u64) -> Option<(u32, &T)> {
        let (generation, at) = ((name >> 32) as u32, name as u32);
        let entry = self.entries.get(at as usize)?;
        let value = entry.value.as_ref().filter(|_| entry.generation == generation)?;
        Some((at, value))
    }

    /// The numbers of all places that were ever used.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(NONE)
    }

    /// Who stands behind `at`.
    #[inline]
    pub(super) fn after(&self, at: u32) -> Option<u32> {
        self.entries.get(at as usize).map(|entry| entry.next).filter(|&next| next != NONE)
    }

    /// All of a list, in order.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = (u32, &T)> {
        std::iter::successors(list.first(), |&at| self.after(at))
            .filter_map(|at| self.get(at).map(|value| (at, value)))
    }

    /// Puts one at the end of a list.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, at: u32) {
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

    /// Puts one at the beginning of a list.
    pub(super) fn push_first(&mut self, list: &mut List, at: u32) {
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

    /// Takes the first out of its list.
    #[inline]
    pub(super) fn shift(&mut self, list: &mut List) {
        let Some(entry) = self.entries.get_mut(list.head as usize) else { return };
        let next = std::mem::replace(&mut entry.next, NONE);
        list.head = next;
        match self.entries.get_mut(next as usize) {
            Some(behind) => behind.prev = NONE,
            None => list.tail = NONE,
        }
    }

    /// Takes one out of the list it stands in.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, at: u32) {
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
    fn lists_keep_their_order_and_names_end_with_what_they_name() {
        let mut slab = Slab::new(0, 4);
        let mut list = List::default();
        let all: Vec<_> = "abcd".chars().map(|c| slab.insert(c).unwrap()).collect();
        assert_eq!(slab.insert('e'), None);
        all.iter().for_each(|&at| slab.push(&mut list, at));
        let read = |slab: &Slab<char>, list: &List| -> String {
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
