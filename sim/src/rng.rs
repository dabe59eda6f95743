//! Random numbers derived from the seed alone: SplitMix64 (Steele, Lea and Flood, 2014).
//!
//! Every random decision of a world comes from an [`Rng`] of its seed, so that a seed replays its
//! world; `causeway-sim --seed` relies on it. A change of the order of draws changes all worlds.
//! The numbers are not secret: the product's own randomness is not taken from here, except where a
//! world passes a generator to it. The callers keep the preconditions: [`Rng::pick`] of an empty
//! slice panics, and [`Rng::within`] needs `first <= last` and fewer than 2^64 numbers. Numbers of
//! [`Rng::below`] are a remainder, with a bias that no world notices.

/// A deterministic random number generator: equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Rng(u64);

/// Mixes a number so that every output bit depends on every input bit.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Rng {
    /// Creates the generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number().checked_rem(end).unwrap_or(0)
    }

    /// Returns a number in the closed range `first..=last`.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true with a probability of `percent` per cent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
