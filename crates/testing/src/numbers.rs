//! Numbers that are the same in every run: a seeded generator for random tests.
//!
//! The generator is predictable: it must not be used for keys or sessions. Numbers are below 2^44.
//! Equal seeds give equal numbers on every machine. A test that fails should print its seed; the
//! generator does not. Users: random tests of `ethernet`, `ring` and `socket`. A generator belongs
//! to one thread; a choice from an empty list panics.

/// A linear congruential generator.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, below 2^44.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        self.0 >> 20
    }

    /// Returns a value of `of`.
    ///
    /// # Panics
    /// `of` is empty.
    pub const fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }

    /// Returns true once in `turns` calls, on average.
    pub const fn once_in(&mut self, turns: u64) -> bool {
        self.next().is_multiple_of(turns)
    }
}
