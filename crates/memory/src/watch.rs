//! Words of guest memory with the values that they had, so that a change is found by a load each.
//!
//! A [`WordWatch`] keeps the places of its words in this process. A comparison therefore reads a
//! cache line of the watch and a line of the guest for each word, without a look-up of the address,
//! and the loads of different words do not depend on each other. The watch keeps its map: a caller
//! that replaces the map drops the watch first. A page lost from its file reads as zeros, as in
//! `crate::access`.
//!
//! `causeway-mlx5` fills a watch with the doorbell records of an idle function, and bounds their
//! number. `causeway-hca` compares the watches in the turn of its shard, in the dispatcher's
//! thread. A word that is not granted is refused ([`OutOfGrant`]) when it is added; a comparison
//! does not fail.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::map::{Map, OutOfGrant};
use crate::trace;

/// A word and its last value.
#[derive(Debug)]
struct Word {
    at: NonNull<u32>,
    value: u32,
}

impl Word {
    /// Loads the word. Later loads of the caller see the writes before the loaded one.
    #[inline]
    fn load(&self) -> u32 {
        trace::read(self.at.as_ptr().cast::<u8>(), size_of::<u32>());
        // SAFETY: `Map::word` found 4 aligned, mapped bytes, which live as long as the map of the
        // watch. Other accesses of this process to them are copies by opaque instructions or atomic.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr()) }.load(Ordering::Acquire)
    }
}

/// Words of a map, each with the value that it had when it was added.
#[derive(Debug)]
pub struct WordWatch {
    /// Lies in the watch itself, so that a caller with many watches of one word reads no other
    /// line.
    first: Option<Word>,
    others: Vec<Word>,
    map: Arc<Map>,
}

// SAFETY: the places lie in mappings of the map, which may be used from any thread and live as long
// as the watch; no reference to the bytes is ever made.
unsafe impl Send for WordWatch {}

impl WordWatch {
    /// Returns a watch of a map without words.
    pub fn new(map: Arc<Map>) -> Self {
        Self { first: None, others: Vec::new(), map }
    }

    /// Adds the 4 bytes at `addr`. Returns their value, in the byte order of the host.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `addr` is unaligned.
    pub fn add(&mut self, addr: u64) -> Result<u32, OutOfGrant> {
        let mut word = Word { at: self.map.word_pointer(addr)?, value: 0 };
        word.value = word.load();
        let value = word.value;
        match self.first {
            None => self.first = Some(word),
            Some(_) => self.others.push(word),
        }
        Ok(value)
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.others.len().saturating_add(usize::from(self.first.is_some()))
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns whether a word differs from its value at [`Self::add`].
    #[inline]
    pub fn has_changed(&self) -> bool {
        let mut words = self.first.iter().chain(&self.others);
        words.any(|word| word.load() != word.value)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Mapping, Region, create};

    #[test]
    fn watch_finds_a_change_of_any_of_its_words() {
        let file = create("watch", 8192).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 8192).unwrap());
        let map = Map::new(vec![Region { guest: 0x1000, user: 0, mapping }]).unwrap();
        let map = Arc::new(map);
        map.write(0x1008, &7_u32.to_ne_bytes()).unwrap();
        let mut watch = WordWatch::new(Arc::clone(&map));
        assert_eq!((watch.is_empty(), watch.has_changed()), (true, false));
        assert_eq!((watch.add(0x1008), watch.add(0x2ffc)), (Ok(7), Ok(0)));
        assert_eq!((watch.len(), watch.has_changed()), (2, false));
        map.write(0x100c, &9_u32.to_ne_bytes()).unwrap();
        assert!(!watch.has_changed(), "the next word is not watched");
        map.write(0x2ffc, &1_u32.to_ne_bytes()).unwrap();
        assert!(watch.has_changed());
        map.write(0x2ffc, &0_u32.to_ne_bytes()).unwrap();
        assert!(!watch.has_changed(), "the value is that of before");
        for addr in [0x3000, 0x1002, 0xffc, u64::MAX] {
            assert!(watch.add(addr).is_err(), "{addr:#x}");
        }
        assert_eq!(watch.len(), 2);
        // The watch keeps the memory.
        drop(map);
        assert!(!watch.has_changed());
    }
}
