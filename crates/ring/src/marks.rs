//! Which chains are taken, a bit each.

/// A set of heads or buffer ids below a queue's size.
#[derive(Debug)]
pub(crate) struct Marks {
    words: Vec<u64>,
    /// How many bits are set: at most as many as there are, so it never wraps.
    count: u16,
}

impl Marks {
    /// None of `size`.
    pub fn new(size: u16) -> Self {
        Self { words: vec![0; usize::from(size).div_ceil(64)], count: 0 }
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Whether `which` is there.
    #[inline]
    pub fn has(&self, which: u16) -> bool {
        let word = self.words.get(usize::from(which).wrapping_shr(6)).copied().unwrap_or(0);
        word.wrapping_shr(u32::from(which)) & 1 == 1
    }

    /// Adds `which`, which is below the size; `false` if it was there.
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

    /// Takes `which` out; `false` if it was not there.
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
