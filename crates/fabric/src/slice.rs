//! Time slices: the time that a group may use before other groups have their turn.
//!
//! Reading the clock costs as much as a small frame, so services *charge* their work by estimates
//! ([`cost`]), and the slice reads the clock only after [`RESYNC_NS`] (10 us) of charged work. A
//! high estimate costs a reading; a low estimate lets a slice overrun, for which the group's next
//! slices are shorter (`crate::schedule`).
//!
//! The shard table starts a slice for a shard's turn; the shard and its service charge it
//! ([`Context::charge`](crate::Context::charge)) and stop when [`Slice::is_over`]. A slice does not
//! interrupt: work that is not charged, or not checked, goes on. Times are nanoseconds of the
//! fabric's clock. A slice is used in its dispatcher's thread alone.
//!
//! A service that accounts a part of its turn to an owner reads the clock at both ends of the part
//! ([`Slice::read`]); otherwise time that was not charged would count for the next owner.
//!
//! A shard that is driven by hand (the simulator, the fuzzer, unit tests) has no clock: estimates
//! alone end its slices, so that each run is the same.

use std::time::Instant;

use crate::limits::RESYNC_NS;

/// Estimates of work, in nanoseconds; each is above the measured cost.
pub mod cost {
    /// Popping, resolving and returning a chain.
    pub const CHAIN_NS: u64 = 60;
    /// Polling an empty queue.
    pub const POLL_NS: u64 = 30;
    /// A piece of a segmented frame: its headers and its buffer.
    pub const PIECE_NS: u64 = 250;
    /// A system call.
    pub const CALL_NS: u64 = 1_000;
    /// A descriptor of a chain beyond its first.
    pub const SPAN_NS: u64 = 40;
    /// A burst of datagrams from a socket: the call, and 64 KiB that are checked and copied.
    pub const BURST_NS: u64 = 20_000;
    /// An entry of a table that is scanned.
    pub const SCAN_NS: u64 = 20;

    /// Returns the cost of copying `count` bytes once: 8 GB/s.
    #[inline]
    pub const fn bytes(count: usize) -> u64 {
        (count as u64) / 8
    }

    /// Returns the number of bytes that are copied once in `ns` nanoseconds.
    #[inline]
    pub const fn bytes_within(ns: u64) -> u64 {
        ns.saturating_mul(8)
    }
}

/// The clock of a slice.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// Estimates alone.
    Charged,
    /// The time since an instant.
    Since(Instant),
    /// A function that returns the time in nanoseconds.
    Function(fn() -> u64),
}

/// The remaining time of the group that is served.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    clock: Clock,
    /// Time: the last reading plus the work charged since.
    now_ns: u64,
    /// Time at the last reading of the clock.
    read_ns: u64,
    /// End of the slice.
    end_ns: u64,
}

impl Default for Slice {
    fn default() -> Self {
        Self::counted(0, u64::MAX)
    }
}

impl Slice {
    /// Returns a slice of `len_ns` without a clock.
    pub fn counted(now_ns: u64, len_ns: u64) -> Self {
        Self {
            clock: Clock::Charged,
            now_ns,
            read_ns: now_ns,
            end_ns: now_ns.saturating_add(len_ns),
        }
    }

    /// Returns an endless slice with a clock that counts from `start`.
    pub(crate) fn timed(start: Instant) -> Self {
        Self { clock: Clock::Since(start), now_ns: 0, read_ns: 0, end_ns: u64::MAX }
    }

    /// Returns an endless slice with a clock of the caller, for tests: a function that returns the
    /// time in nanoseconds.
    pub fn with_clock(clock: fn() -> u64) -> Self {
        let now_ns = clock();
        Self { clock: Clock::Function(clock), now_ns, read_ns: now_ns, end_ns: u64::MAX }
    }

    /// Returns the time of the last reading plus the work charged since, in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Sets the time to a reading of the clock.
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        (self.now_ns, self.read_ns) = (now_ns, now_ns);
    }

    /// Returns a slice with the same clock that ends at `end_ns`. A service bounds a part of its
    /// turn by it, and reports the time with [`Self::take_time`].
    #[must_use]
    pub fn until(self, end_ns: u64) -> Self {
        Self { end_ns, ..self }
    }

    /// Continues from the time of `other`, a slice that ended.
    pub fn take_time(&mut self, other: &Self) {
        (self.now_ns, self.read_ns) = (other.now_ns, other.read_ns);
    }

    /// Charges work of about `ns` nanoseconds.
    #[inline]
    pub fn charge(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
        if self.now_ns.saturating_sub(self.read_ns) >= RESYNC_NS {
            self.read();
        }
    }

    /// Reads the clock, if there is one: the time is then that of the clock instead of an estimate.
    #[cold]
    pub fn read(&mut self) {
        match self.clock {
            Clock::Charged => self.read_ns = self.now_ns,
            Clock::Since(start) => {
                self.set_now(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
            Clock::Function(clock) => self.set_now(clock()),
        }
    }

    /// Returns whether the time is used.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.now_ns >= self.end_ns
    }

    /// Returns the remaining nanoseconds.
    #[inline]
    pub fn left_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_without_a_clock_ends_by_what_is_charged() {
        let mut slice = Slice::counted(5, 3 * RESYNC_NS);
        slice.charge(2 * RESYNC_NS);
        assert!(!slice.is_over());
        assert_eq!(slice.left_ns(), RESYNC_NS);
        slice.charge(RESYNC_NS);
        assert!(slice.is_over());
        assert_eq!(slice.now_ns(), 5 + 3 * RESYNC_NS);
    }

    #[test]
    fn slice_with_a_clock_corrects_what_is_charged() {
        let start = Instant::now();
        let mut slice = Slice::timed(start).until(10_000_000_000);
        // 1,000 seconds by estimates alone.
        for _ in 0..100 {
            slice.charge(10_000_000_000);
        }
        assert!(!slice.is_over(), "{slice:?}");
        let mut slice = Slice::timed(start).until(1);
        slice.charge(RESYNC_NS);
        assert!(slice.is_over());
    }
}
