//! The processor time that threads which answer frontends may use, so that floods of messages do
//! not keep processors from other ports.
//!
//! Each thread has a bucket of [`CONTROL_BURST_NS`] (1 s) that fills by one nanosecond in each
//! [`CONTROL_NS_PER_CPU_NS`] (2) of wall time. All threads of the process share another bucket of
//! [`CONTROL_SHARED_BURST_NS`] (4 s), which fills by [`CONTROL_PROCESSORS`] (2) nanoseconds in each
//! nanosecond. A thread charges its processor time to both after each message or turn, and a
//! control thread also a fixed time for each file that a message mapped.
//!
//! A thread pauses while its bucket is empty, or while the shared bucket is empty and its own is
//! less than half full, at most [`CONTROL_PAUSE_MS`] (100 ms) after each message or turn, which
//! leaves further messages in the socket; QEMU waits 5 s for an answer. So many floods together use
//! two processors, and a frontend with few messages does not pause for the floods of others.
//! [`Allowance::charge`] returns the pause, and the caller waits. Nothing is refused or dropped: a
//! debt beyond the size of a bucket is forgotten, and a caller that does not wait is not noticed.
//!
//! The control threads of `crate::vfio_user` use it in causewayd, and the relays of
//! `causeway-holder` in the holder's process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::limits::{
    CONTROL_BURST_NS, CONTROL_NS_PER_CPU_NS, CONTROL_PAUSE_MS, CONTROL_PROCESSORS,
    CONTROL_SHARED_BURST_NS,
};

/// The bucket of all threads with an allowance.
static SHARED: Mutex<Option<Bucket>> = Mutex::new(None);

/// Returns the processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Returns a number of nanoseconds as a signed number.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// An amount of processor time that refills with wall time.
#[derive(Debug)]
struct Bucket {
    /// Time that may be used at once, in nanoseconds; negative after an excess, which is at most
    /// the size of the bucket.
    left_ns: i64,
    /// Size, in nanoseconds.
    size_ns: u64,
    /// Processor time that is earned in a period of wall time: both in nanoseconds.
    rate: (u64, u64),
    /// Time of the last refill.
    refilled: Instant,
}

impl Bucket {
    /// Returns a full bucket that earns `rate.0` nanoseconds in each `rate.1` of wall time.
    fn new(size_ns: u64, rate: (u64, u64)) -> Self {
        Self { left_ns: signed(size_ns), size_ns, rate, refilled: Instant::now() }
    }

    /// Returns the bucket of a thread.
    fn of_thread() -> Self {
        Self::new(CONTROL_BURST_NS, (1, CONTROL_NS_PER_CPU_NS))
    }

    /// Returns the bucket that all threads share.
    fn of_process() -> Self {
        Self::new(CONTROL_SHARED_BURST_NS, (CONTROL_PROCESSORS, 1))
    }

    /// Refills the bucket and takes `spent_ns`.
    fn take(&mut self, spent_ns: u64) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.refilled).as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(self.rate.0).checked_div(self.rate.1).unwrap_or(0);
        let (left, size) = (self.left_ns.saturating_add(signed(earned)), signed(self.size_ns));
        self.left_ns = left.min(size).saturating_sub(signed(spent_ns)).max(size.saturating_neg());
        self.refilled = now;
    }

    /// Returns the time until the bucket is no longer empty, at most [`CONTROL_PAUSE_MS`] (100 ms),
    /// or `None` if the bucket is not empty.
    fn pause(&self) -> Option<Duration> {
        let missing = self.left_ns.checked_neg().filter(|missing| *missing > 0)?.unsigned_abs();
        let pause_ns = missing.saturating_mul(self.rate.1).checked_div(self.rate.0).unwrap_or(0);
        Some(Duration::from_nanos(pause_ns).min(Duration::from_millis(CONTROL_PAUSE_MS)))
    }

    /// Returns whether the bucket is less than half full.
    fn is_low(&self) -> bool {
        self.left_ns.saturating_mul(2) < signed(self.size_ns)
    }
}

/// The processor time that a thread may use. The thread that made the value must make all calls:
/// [`Self::charge`] reads the clock of the thread that calls it.
#[derive(Debug)]
pub struct Allowance {
    own: Bucket,
    shared: &'static Mutex<Option<Bucket>>,
    /// Processor time that was charged, in nanoseconds.
    charged_ns: u64,
}

impl Allowance {
    /// Returns the allowance of this thread, with a full bucket.
    pub fn of_thread() -> Self {
        Self::with(&SHARED)
    }

    /// Returns an allowance with this shared bucket, which is full if it is `None`.
    fn with(shared: &'static Mutex<Option<Bucket>>) -> Self {
        Self { own: Bucket::of_thread(), shared, charged_ns: thread_ns() }
    }

    /// Locks the shared bucket.
    fn shared(&self) -> MutexGuard<'static, Option<Bucket>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges the processor time since the last call and `extra_ns`. Returns the pause that the
    /// thread must make now, if any.
    pub fn charge(&mut self, extra_ns: u64) -> Option<Duration> {
        let used_ns = thread_ns();
        let spent = used_ns.saturating_sub(self.charged_ns).saturating_add(extra_ns);
        self.charged_ns = used_ns;
        self.own.take(spent);
        let mut shared = self.shared();
        let bucket = shared.get_or_insert_with(Bucket::of_process);
        bucket.take(spent);
        let shared_pause = bucket.pause().filter(|_| self.own.is_low());
        drop(shared);
        self.own.pause().max(shared_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Option<Duration> = Some(Duration::from_millis(CONTROL_PAUSE_MS));

    /// Lets `time` pass for a bucket.
    fn pass(bucket: &mut Bucket, time: Duration) {
        bucket.refilled = bucket.refilled.checked_sub(time).unwrap();
    }

    #[test]
    fn vfio_user_allowance_pauses_after_its_burst_and_recovers() {
        static SHARED: Mutex<Option<Bucket>> = Mutex::new(None);
        let mut allowance = Allowance::with(&SHARED);
        assert_eq!(allowance.charge(CONTROL_BURST_NS / 2), None);
        assert_eq!(allowance.charge(CONTROL_BURST_NS), LONGEST);
        // A second of wall time earns half a second of processor time.
        pass(&mut allowance.own, Duration::from_secs(2));
        assert_eq!(allowance.charge(0), None);
        assert!(allowance.charge(CONTROL_BURST_NS).is_some());
        pass(&mut allowance.own, Duration::from_secs(100));
        assert_eq!(allowance.charge(0), None);
        assert!(allowance.own.left_ns <= signed(CONTROL_BURST_NS));
    }

    #[test]
    fn vfio_user_allowance_of_many_floods_together_is_limited() {
        static SHARED: Mutex<Option<Bucket>> = Mutex::new(None);
        let mut floods: Vec<Allowance> = (0..16).map(|_| Allowance::with(&SHARED)).collect();
        let mut light = Allowance::with(&SHARED);
        // No flood alone empties its bucket.
        let part = CONTROL_BURST_NS / 4 * 3;
        let pauses = floods.iter_mut().filter_map(|flood| flood.charge(part)).count();
        // 5 of 16 fit into the burst; on a busy host, time that passes meanwhile serves a few more.
        assert!((8..=11).contains(&pauses), "{pauses} floods pause");
        assert_eq!(light.charge(1000), None, "a thread with few messages does not pause");
        // The debt is at most one bucket, and two processors are earned.
        pass(light.shared().as_mut().unwrap(), Duration::from_millis(1500));
        assert!(floods.iter_mut().all(|flood| flood.charge(0).is_some()));
        pass(light.shared().as_mut().unwrap(), Duration::from_millis(600));
        assert_eq!(floods.iter_mut().filter_map(|flood| flood.charge(0)).count(), 0);
    }
}
