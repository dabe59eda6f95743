//! Clock readings and randomness as arguments.
//!
//! The core calls no clock and no random generator of its own, so that the simulator repeats a run
//! from its seed.
//!
//! The driver ([`crate::io`], the simulator, the fuzzer) reads the clocks before it calls the core;
//! several calls, as for the datagrams of one receive call, may share a reading. [`Clock::now`]
//! must not go back between calls: timers would be late by the difference. [`Clock::wall`] may: a
//! tunnel's initiations carry it, but at least 1 ns more than its last initiation. Only after a
//! restart with a clock that went back are they older than before; the peer then refuses them until
//! it has no session left, 5 min at most ([`crate::limits::SESSION_NS_MAX`]). Session keys depend
//! on the random source: outside of tests it must be the kernel's generator, and must fill the
//! buffer: no error can be returned here. In causewayd the shard of links makes the clocks, on its
//! dispatcher's thread.

use std::fmt;

/// A source of unpredictable random bytes.
pub trait RandomSource {
    /// Fills all of `bytes` with random bytes.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> RandomSource for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// Clock readings and the random source of one call into the core.
pub struct Clock<'a> {
    /// Monotonic time, in ns from any start.
    pub now: u64,
    /// Time of day, in ns since 1970. It may go back.
    pub wall: u64,
    /// The source of random bytes.
    pub random: &'a mut dyn RandomSource,
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now).field("wall", &self.wall).finish()
    }
}

impl Clock<'_> {
    /// Returns `N` random bytes.
    pub fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }
}
