//! Objects by number: a table in which a stale number names no object until its slot has been used
//! 16 times or more (fewer times in a table with shorter numbers).
//!
//! A number has 24 bits, or fewer by [`Table::with_number_bits`]: the index of a slot in the lower
//! bits and the generation of the slot in the upper bits. A slot that is freed advances its
//! generation and goes to the end of the list of free slots. A table of `n` slots therefore repeats
//! a number after at least `2^24 / n` uses of the slot. [`Table::retire`] takes all objects and
//! slots out at once, in constant time: it begins a generation that no slot has had since the last
//! call. Numbers 0 and 1 are never given out: InfiniBand reserves these queue pair numbers.
//!
//! A table has at most 2^20 - 2 objects ([`TABLE_MAX`] slots, two of them never used), or fewer by
//! its creator, and refuses more ([`TableFull`]). A look-up of a stale or unknown number returns
//! `None` in constant time. [`Companion`] holds further values by the numbers of a table, for an
//! owner of the objects in another crate.
//!
//! The adapter's queue pairs and regions, and most objects of `causeway-mlx5`, have such numbers. A
//! number is no secret and protects from stale use only; rights are checked by [`crate::region`].
//! All of it runs in the dispatcher's thread that serves the subnet.

use std::collections::VecDeque;

use crate::limits::{NUMBER_BITS, TABLE_MAX};

/// Indices below this are never given out.
const FIRST: usize = 2;

/// Free slots from which on a table reuses them although its capacity permits more.
const RESTING_MAX: usize = 1024;

/// Returns the number of slots of a table of at most `capacity` objects: a power of two.
pub fn slots_of(capacity: usize) -> usize {
    1_usize.wrapping_shl(Table::<()>::new(capacity).bits)
}

/// A table without a free number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table of {0} objects is full")]
pub struct TableFull(pub usize);

/// A slot of the table.
#[derive(Debug)]
struct Entry<T> {
    /// Number of the object, or of the next object.
    number: u32,
    value: Option<T>,
}

/// Objects by number.
#[derive(Debug)]
pub struct Table<T> {
    /// By index, less [`FIRST`].
    entries: Vec<Entry<T>>,
    /// Indices of the entries without a value; the longest free first.
    free: VecDeque<u32>,
    count: usize,
    capacity: usize,
    /// First generation of new slots, above the bits of the index.
    generation: u32,
    /// Generations that a slot has begun since `generation`, at most.
    begun: u32,
    /// Bits of the index.
    bits: u32,
    /// Bits of a number.
    number_bits: u32,
    /// Index of the entry that the next object takes, with its number set.
    prepared: Option<usize>,
}

impl<T> Table<T> {
    /// Returns a table of at most `capacity` objects, and never more than 2^20 - 2.
    pub fn new(capacity: usize) -> Self {
        Self::with_number_bits(capacity, NUMBER_BITS)
    }

    /// Returns a table whose numbers have at most `number_bits` bits (1 to 24; other values become
    /// the nearest of these), and which has at most 2 objects fewer than there are numbers. The
    /// fewer bits are left for generations, the sooner a stale number names another object.
    pub fn with_number_bits(capacity: usize, number_bits: u32) -> Self {
        let number_bits = number_bits.clamp(1, NUMBER_BITS);
        let most = 1_usize.wrapping_shl(number_bits).min(TABLE_MAX);
        let capacity = capacity.min(most.saturating_sub(FIRST));
        let bits = capacity.saturating_add(FIRST).next_power_of_two().trailing_zeros();
        let (entries, free) = (Vec::new(), VecDeque::new());
        let (generation, begun) = (0, 0);
        let (count, prepared) = (0, None);
        Self { entries, free, count, capacity, generation, begun, bits, number_bits, prepared }
    }

    /// Returns the index of a number in `entries`.
    #[inline]
    fn index(&self, number: u32) -> usize {
        let mask = 1_u32.wrapping_shl(self.bits).wrapping_sub(1);
        (number & mask) as usize
    }

    /// Returns the number after `number` in its slot.
    fn next(&self, number: u32) -> u32 {
        self.wrap(number.wrapping_add(1_u32.wrapping_shl(self.bits)))
    }

    /// Returns the bits of a number.
    fn wrap(&self, number: u32) -> u32 {
        number & 1_u32.wrapping_shl(self.number_bits).wrapping_sub(1)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the table has no object.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the most objects.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the slot of a number: below [`slots_of`] the capacity. No two objects share a slot.
    #[inline]
    pub fn slot(&self, number: u32) -> usize {
        self.index(number)
    }

    /// Reserves a number for the next object: an owner that restores its objects gives them the
    /// numbers of before. A further call replaces the reservation. Returns false if the table has
    /// no such number, or an object has its slot.
    pub fn prepare(&mut self, number: u32) -> bool {
        let index = self.index(number).wrapping_sub(FIRST);
        if index >= self.capacity || self.wrap(number) != number {
            return false;
        }
        while self.entries.len() <= index {
            let new = self.entries.len();
            let Some(own) = new.checked_add(FIRST).and_then(|own| u32::try_from(own).ok()) else {
                return false;
            };
            self.entries.push(Entry { number: own | self.generation, value: None });
            self.free.push_back(new as u32); // Below the capacity, at most TABLE_MAX.
        }
        let Some(entry) = self.entries.get_mut(index).filter(|entry| entry.value.is_none()) else {
            return false;
        };
        entry.number = number;
        self.prepared = Some(index);
        true
    }

    /// Takes the index of a free entry. Entries that [`Self::prepare`] filled are still listed.
    fn take_free(&mut self) -> Option<usize> {
        if let Some(index) = self.prepared.take() {
            return Some(index);
        }
        loop {
            let index = self.free.pop_front()? as usize;
            if self.entries.get(index)?.value.is_none() {
                return Some(index);
            }
        }
    }

    /// Adds an object. Returns its number.
    ///
    /// # Errors
    /// [`TableFull`].
    pub fn insert(&mut self, value: T) -> Result<u32, TableFull> {
        self.insert_with(|_| value)
    }

    /// Adds the object that `make` returns for the object's number. Returns the number.
    ///
    /// # Errors
    /// [`TableFull`]; `make` was not called.
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Result<u32, TableFull> {
        let full = TableFull(self.capacity);
        if self.count >= self.capacity {
            return Err(full);
        }
        // New slots come first, so that freed numbers rest, but not without bound: slots are
        // memory.
        let can_grow = self.entries.len() < self.capacity && self.free.len() < RESTING_MAX;
        if can_grow && self.prepared.is_none() {
            let number = self.entries.len().checked_add(FIRST).ok_or(full)?;
            let number = u32::try_from(number).map_err(|_| full)? | self.generation;
            self.entries.push(Entry { number, value: Some(make(number)) });
            self.note_inserted(number);
            return Ok(number);
        }
        let index = self.take_free().ok_or(full)?;
        let entry = self.entries.get_mut(index).ok_or(full)?;
        let number = entry.number;
        entry.value = Some(make(number));
        self.note_inserted(number);
        Ok(number)
    }

    /// Counts an object, and the generation that its slot begins after it.
    fn note_inserted(&mut self, number: u32) {
        self.count = self.count.saturating_add(1);
        let age = self.wrap(self.next(number).wrapping_sub(self.generation));
        self.begun = self.begun.max(age.wrapping_shr(self.bits));
    }

    /// Returns the object of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let entry = self.entries.get(self.index(number).wrapping_sub(FIRST))?;
        if entry.number == number { entry.value.as_ref() } else { None }
    }

    /// Returns the object of a number, for changes.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number).wrapping_sub(FIRST);
        let entry = self.entries.get_mut(index)?;
        if entry.number == number { entry.value.as_mut() } else { None }
    }

    /// Returns whether a number names an object.
    pub fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    /// Takes an object out of the table.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index(number).wrapping_sub(FIRST);
        let next = self.next(number);
        let entry = self.entries.get_mut(index).filter(|entry| entry.number == number)?;
        let value = entry.value.take()?;
        entry.number = next;
        self.free.push_back(u32::try_from(index).ok()?);
        self.count = self.count.saturating_sub(1);
        Some(value)
    }

    /// Returns all objects with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.entries.iter();
        all.filter_map(|entry| entry.value.as_ref().map(|value| (entry.number, value)))
    }

    /// Returns all objects with their numbers, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let all = self.entries.iter_mut();
        all.filter_map(|entry| entry.value.as_mut().map(|value| (entry.number, value)))
    }

    /// Takes all objects and slots out, with their numbers, which become stale here. The time does
    /// not depend on their number; the drop of the result does.
    #[must_use = "the drop takes time for each object"]
    pub fn retire(&mut self) -> Self {
        let past = self.begun.wrapping_shl(self.bits);
        let next = Self {
            entries: Vec::new(),
            free: VecDeque::new(),
            count: 0,
            capacity: self.capacity,
            generation: self.wrap(self.generation.wrapping_add(past)),
            begun: 0,
            bits: self.bits,
            number_bits: self.number_bits,
            prepared: None,
        };
        std::mem::replace(self, next)
    }
}

/// Further values by the numbers of a [`Table`] of the same capacity. A value is found by its whole
/// number, so that a stale number finds nothing. The owner removes the value with its object; else
/// the value stays until another takes its slot.
#[derive(Debug)]
pub struct Companion<T> {
    entries: Vec<Option<(u32, T)>>,
    bits: u32,
}

impl<T> Companion<T> {
    /// Returns an empty companion of a table that was made for `capacity` objects.
    pub fn new(capacity: usize) -> Self {
        let table = Table::<T>::new(capacity);
        Self { entries: Vec::new(), bits: table.bits }
    }

    /// Returns the index of a number in `entries`.
    #[inline]
    fn index(&self, number: u32) -> usize {
        (number & 1_u32.wrapping_shl(self.bits).wrapping_sub(1)) as usize
    }

    /// Sets the value of a number. Returns the previous value of its slot.
    pub fn insert(&mut self, number: u32, value: T) -> Option<T> {
        let index = self.index(number);
        while self.entries.len() <= index {
            self.entries.push(None);
        }
        let entry = self.entries.get_mut(index)?;
        entry.replace((number, value)).map(|(_, value)| value)
    }

    /// Returns the value of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.entries.get(self.index(number)) {
            Some(Some((own, value))) if *own == number => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a number, for changes.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number);
        match self.entries.get_mut(index) {
            Some(Some((own, value))) if *own == number => Some(value),
            _ => None,
        }
    }

    /// Takes the value of a number out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let index = self.index(number);
        self.entries.get_mut(index)?.take().map(|(_, value)| value)
    }

    /// Returns all values with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().flatten().map(|(number, value)| (*number, value))
    }

    /// Returns all values with their numbers, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().flatten().map(|(number, value)| (*number, value))
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.entries = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn number_skips_zero_and_one() {
        let mut table = Table::new(4);
        let numbers: Vec<u32> = (0..4).map(|value| table.insert(value).unwrap()).collect();
        assert_eq!(numbers, [2, 3, 4, 5]);
        assert_eq!(table.insert(9), Err(TableFull(4)));
        assert!(table.get(0).is_none() && table.get(1).is_none());
    }

    #[test]
    fn number_of_removed_object_names_nothing_until_the_generations_repeat() {
        let mut table = Table::new(2);
        let first = table.insert(1).unwrap();
        table.insert(0).unwrap();
        for value in 0..1000 {
            let stale = table.iter().find(|(number, _)| *number != first).map(|(number, _)| number);
            table.remove(stale.unwrap()).unwrap();
            let next = table.insert(value).unwrap();
            assert_ne!(Some(next), stale);
            assert!(table.get(stale.unwrap()).is_none());
            assert!(next > 1 && next < 1 << 24);
        }
    }

    #[test]
    fn number_table_keeps_no_slots_after_a_retirement() {
        let mut table = Table::new(1000);
        let mut stale = Vec::new();
        for round in 0..20 {
            for value in 0..100 {
                let number = table.insert(value).unwrap();
                assert!(!stale.contains(&number), "{number} in round {round}");
                stale.push(number);
            }
            // Slots of several generations, with and without objects.
            for index in (0..99).step_by(3) {
                table.remove(stale[round * 100 + index]).unwrap();
            }
            drop(table.retire());
            assert!(table.is_empty() && table.entries.capacity() == 0 && table.free.is_empty());
            assert!(stale.iter().all(|number| table.get(*number).is_none()));
        }
    }

    #[test]
    fn number_of_a_retired_narrow_table_keeps_its_bits() {
        let mut table = Table::with_number_bits(254, 8);
        for _ in 0..3 {
            let numbers: Vec<u32> = (0..254).map(|_| table.insert(()).unwrap()).collect();
            assert_eq!(numbers, (2..256).collect::<Vec<u32>>());
            assert_eq!(table.retire().len(), 254);
        }
    }

    #[test]
    fn number_of_a_narrow_table_keeps_its_bits() {
        let mut table = Table::with_number_bits(128, 8);
        for _ in 0..10_000 {
            let number = table.insert(()).unwrap();
            assert!((2..256).contains(&number), "{number}");
            table.remove(number).unwrap();
        }
        assert_eq!(Table::<()>::with_number_bits(1000, 8).capacity(), 254);
    }

    #[test]
    fn number_generations_wrap_within_24_bits() {
        let mut table = Table::new(TABLE_MAX);
        let mut number = table.insert(()).unwrap();
        table.entries.truncate(1);
        table.capacity = 1;
        for _ in 0..100 {
            table.remove(number).unwrap();
            number = table.insert(()).unwrap();
            assert!(number > 1 && number < 1 << 24);
        }
    }

    #[test]
    fn number_that_is_prepared_is_the_next() {
        let mut table = Table::new(8);
        let far = 5 | 3 << 4;
        assert!(table.prepare(far));
        assert_eq!(table.insert('a'), Ok(far));
        assert!(!table.prepare(5), "the slot is taken");
        assert!(!table.prepare(1) && !table.prepare(15) && !table.prepare(1 << 24 | 6));
        // The other numbers are given out once each, and the prepared slot again after its removal.
        let rest: Vec<u32> = (0..7).map(|_| table.insert('b').unwrap()).collect();
        assert_eq!(rest.iter().map(|number| table.slot(*number)).filter(|s| *s == 5).count(), 0);
        assert_eq!(table.insert('c'), Err(TableFull(8)));
        assert_eq!(table.remove(far), Some('a'));
        let again = table.insert('d').unwrap();
        assert_eq!((table.slot(again), again > far, table.len()), (5, true, 8));
        assert_eq!(slots_of(8), 16);
    }

    #[test]
    fn number_companion_finds_whole_numbers_only() {
        let mut table = Table::new(1);
        let mut companion = Companion::new(1);
        let first = table.insert(()).unwrap();
        companion.insert(first, 'a');
        table.remove(first);
        let second = table.insert(()).unwrap();
        assert!(companion.get(second).is_none());
        assert_eq!(companion.insert(second, 'b'), Some('a'));
        assert!(companion.remove(first).is_none());
        assert_eq!(companion.get_mut(second).copied(), Some('b'));
    }

    proptest! {
        #[test]
        fn number_table_equals_a_map(steps in prop::collection::vec(any::<(bool, u8)>(), 0..400)) {
            let mut table = Table::new(20);
            let mut model = HashMap::new();
            for (insert, value) in steps {
                if value == 0 {
                    let old = table.retire();
                    prop_assert!(old.iter().all(|(number, value)| model.get(&number) == Some(value)));
                    model.clear();
                } else if insert {
                    match table.insert(value) {
                        Ok(number) => prop_assert!(model.insert(number, value).is_none()),
                        Err(_) => prop_assert_eq!(model.len(), 20),
                    }
                } else if let Some(&number) = model.keys().nth(usize::from(value) % model.len().max(1)) {
                    prop_assert_eq!(table.remove(number), model.remove(&number));
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert!(table.iter().all(|(number, value)| model.get(&number) == Some(value)));
            }
        }
    }
}
