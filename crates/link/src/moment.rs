//! What the core asks of the world: the time, and random bytes.

use std::fmt;

/// A source of random bytes that nobody can guess.
pub trait Entropy {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Entropy for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// Now.
pub struct Moment<'a> {
    /// A clock that never goes back, in ns from any start.
    pub now: u64,
    /// The time of day, in ns since 1970.
    pub wall: u64,
    /// Where random bytes come from.
    pub entropy: &'a mut dyn Entropy,
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("now", &self.now).field("wall", &self.wall).finish()
    }
}

impl Moment<'_> {
    /// Random bytes.
    pub fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }
}
