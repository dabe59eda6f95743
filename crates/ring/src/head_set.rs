//! Set of chains in flight, one bit each, in private memory.
//!
//! A split queue adds a head at its pop, which detects a head that is made available twice, and
//! removes the head at its push or put-back, which ignores a head that is not in flight. The set
//! keeps no order
//! and no descriptors. The queue passes only numbers below its size, which it has checked. A
//! repeated addition or removal changes nothing and is reported to the queue, in whose thread all
//! calls run. A packed queue has states by buffer id instead.

/// A set of heads or buffer ids below a queue's size.
#[derive(Debug)]
pub(crate) struct HeadSet {
    /// The bits, 64 in each word.
    words: Vec<u64>,
    /// Number of set bits: at most the queue size, so it never wraps.
    count: u16,
}

impl HeadSet {
    /// Returns an empty set of numbers below `size`.
    pub fn new(size: u16) -> Self {
        Self { words: vec![0; usize::from(size).div_ceil(64)], count: 0 }
    }

    /// Returns the number of members.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns whether `which` is a member.
    #[inline]
    pub fn has(&self, which: u16) -> bool {
        let word = self.words.get(usize::from(which).wrapping_shr(6)).copied().unwrap_or(0);
        word.wrapping_shr(u32::from(which)) & 1 == 1
    }

    /// Adds `which`, which must be below the size. Returns `false` if it was a member already.
    #[inline]
    pub fn add(&mut self, which: u16) -> bool {
        let Some(word) = self.words.get_mut(usize::from(which).wrapping_shr(6)) else {
            return false;
        };
        let bit = 1_u64.wrapping_shl(u32::from(which));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.count = self.count.wrapping_add(1);
        true
    }

    /// Removes `which`. Returns `false` if it was no member.
    #[inline]
    pub fn remove(&mut self, which: u16) -> bool {
        let Some(word) = self.words.get_mut(usize::from(which).wrapping_shr(6)) else {
            return false;
        };
        let bit = 1_u64.wrapping_shl(u32::from(which));
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count = self.count.wrapping_sub(1);
        true
    }
}
