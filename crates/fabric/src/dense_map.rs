//! A map for small, reused keys: an entry is found by one index, without a search.
//!
//! Services number their sources and processes from 0 and reuse the numbers, and a [`PortId`] has
//! the index of its slot. The map keeps entries in a vector by the index of their key. A key with an
//! index of `DENSE_MAX` or more, or with the index of another key, is kept in an ordered map beside
//! it, so that no key costs more memory than that of the vector's limit and its own entry. Iteration
//! is in the order of indices, then in the order of the keys beside.
//!
//! Used by shards and services on their dispatcher's thread. The map does not limit the number of
//! entries, and its vector never shrinks: callers bound both.

use std::collections::BTreeMap;

use crate::port::PortId;

/// Number of indices that have a place in the vector.
const DENSE_MAX: usize = 4096;

/// A key with a small index.
pub trait DenseKey: Copy + Ord {
    /// Index of the key; different keys may have the same.
    fn index(self) -> usize;
}

impl DenseKey for u32 {
    fn index(self) -> usize {
        self as usize
    }
}

impl DenseKey for PortId {
    fn index(self) -> usize {
        self.slot.into()
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct DenseMap<K, V> {
    dense: Vec<Option<(K, V)>>,
    beside: BTreeMap<K, V>,
}

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        Self { dense: Vec::new(), beside: BTreeMap::new() }
    }
}

impl<K: DenseKey, V> DenseMap<K, V> {
    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        match self.dense.get(key.index()) {
            Some(Some((of, value))) if of == key => Some(value),
            _ if self.beside.is_empty() => None,
            _ => self.beside.get(key),
        }
    }

    /// Returns the value of a key for a change.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.dense.get_mut(key.index()) {
            Some(Some((of, value))) if of == key => Some(value),
            _ if self.beside.is_empty() => None,
            _ => self.beside.get_mut(key),
        }
    }

    /// Returns whether the key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value of a key, which is inserted if it is absent.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if !self.contains_key(&key) {
            self.insert(key, V::default());
        }
        match self.dense.get_mut(key.index()) {
            Some(Some((of, value))) if *of == key => value,
            _ => self.beside.entry(key).or_default(),
        }
    }

    /// Sets the value of a key, and returns its previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = key.index();
        if index >= DENSE_MAX || self.beside.contains_key(&key) {
            return self.beside.insert(key, value);
        }
        if self.dense.len() <= index {
            self.dense.resize_with(index.saturating_add(1), || None);
        }
        match self.dense.get_mut(index) {
            Some(place) if place.as_ref().is_none_or(|(of, _)| *of == key) => {
                place.replace((key, value)).map(|(_, previous)| previous)
            }
            _ => self.beside.insert(key, value),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self.dense.get_mut(key.index()) {
            Some(place) if place.as_ref().is_some_and(|(of, _)| of == key) => {
                place.take().map(|(_, value)| value)
            }
            _ => self.beside.remove(key),
        }
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for place in &mut self.dense {
            place.take_if(|(key, value)| !keep(key, value));
        }
        self.beside.retain(keep);
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let dense = self.dense.iter().flatten().map(|(key, value)| (key, value));
        dense.chain(&self.beside)
    }

    /// Returns all entries for a change of their values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let dense = self.dense.iter_mut().flatten().map(|(key, value)| (&*key, value));
        dense.chain(&mut self.beside)
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns all values for a change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = PortId> {
        let slot = prop_oneof![0..4_u16, 4094..4098_u16];
        (slot, 0..3_u32).prop_map(|(slot, serial)| PortId { slot, serial })
    }

    proptest! {
        #[test]
        fn dense_map_is_as_an_ordered_map(
            steps in prop::collection::vec((key(), any::<u8>(), 0..5_u8), 0..200),
        ) {
            let (mut map, mut model) = (DenseMap::default(), BTreeMap::new());
            for (key, value, step) in steps {
                match step {
                    0 | 1 => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    3 => {
                        let of_model = model.entry(key).or_default();
                        let of_map = map.get_or_default(key);
                        prop_assert_eq!(&*of_map, &*of_model);
                        *of_map = value;
                        *of_model = value;
                    }
                    _ => {
                        map.retain(|key, old| key.serial != 1 || *old > value);
                        model.retain(|key, old| key.serial != 1 || *old > value);
                    }
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.get_mut(&key), model.get_mut(&key));
            }
            let all: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(map.values().count(), model.len());
            prop_assert_eq!(map.values_mut().count(), model.len());
        }
    }
}
