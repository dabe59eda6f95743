//! The processor time that a control thread may use, so that a flood of messages does not keep a
//! processor from other ports.
//!
//! A bucket holds up to [`CONTROL_BURST_NS`] (1 s) and fills by one nanosecond in each
//! [`CONTROL_NS_PER_CPU_NS`] (2) of wall time. The thread charges its processor time after each
//! message, and pauses while the bucket is empty, at most [`CONTROL_PAUSE_MS`] (100 ms) after a
//! message, so that a frontend never waits for an answer as long as QEMU does (5 s). A larger debt
//! stays in the bucket and delays later messages. Nothing is refused or dropped; messages wait in
//! the socket.
//!
//! `super::control` charges and sleeps; this module sleeps never. Each control thread has a bucket
//! of its own, so that other ports are not delayed. The dispatcher's time is not charged here.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::limits::{CONTROL_BURST_NS, CONTROL_NS_PER_CPU_NS, CONTROL_PAUSE_MS};

/// Returns the processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// The processor time that the thread may use: a bucket of [`CONTROL_BURST_NS`].
#[derive(Debug)]
pub(super) struct Allowance {
    /// Time that may be used at once, in nanoseconds; negative after an excess.
    left_ns: i64,
    /// Processor time that was charged.
    charged_ns: u64,
    /// Time of the last refill.
    refilled: Instant,
}

impl Allowance {
    /// Returns a full bucket.
    pub fn new() -> Self {
        let left_ns = i64::try_from(CONTROL_BURST_NS).unwrap_or(i64::MAX);
        Self { left_ns, charged_ns: thread_ns(), refilled: Instant::now() }
    }

    /// Charges the processor time since the last call and `extra_ns`. Returns the pause until the
    /// bucket is no longer empty, if the bucket is.
    pub fn charge(&mut self, extra_ns: u64) -> Option<Duration> {
        let (used_ns, now) = (thread_ns(), Instant::now());
        let spent = used_ns.saturating_sub(self.charged_ns).saturating_add(extra_ns);
        let passed = now.saturating_duration_since(self.refilled).as_nanos();
        let earned = u64::try_from(passed).unwrap_or(u64::MAX);
        let earned = earned.checked_div(CONTROL_NS_PER_CPU_NS).unwrap_or(0);
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let left = self.left_ns.saturating_add(signed(earned)).min(signed(CONTROL_BURST_NS));
        self.left_ns = left.saturating_sub(signed(spent));
        (self.charged_ns, self.refilled) = (used_ns, now);
        let missing = self.left_ns.checked_neg().filter(|missing| *missing > 0)?;
        let pause_ns = missing.unsigned_abs().saturating_mul(CONTROL_NS_PER_CPU_NS);
        Some(Duration::from_nanos(pause_ns).min(Duration::from_millis(CONTROL_PAUSE_MS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vfio_user_allowance_pauses_after_its_burst_and_recovers() {
        let mut allowance = Allowance::new();
        assert_eq!(allowance.charge(CONTROL_BURST_NS / 2), None);
        let pause = allowance.charge(CONTROL_BURST_NS);
        assert_eq!(pause, Some(Duration::from_millis(CONTROL_PAUSE_MS)));
        // A second of wall time earns half a second of processor time.
        let second = Duration::from_secs(1);
        allowance.refilled = allowance.refilled.checked_sub(second * 2).unwrap();
        assert_eq!(allowance.charge(0), None);
        assert!(allowance.charge(CONTROL_BURST_NS).is_some());
        allowance.refilled = allowance.refilled.checked_sub(second * 100).unwrap();
        assert_eq!(allowance.charge(0), None);
        assert!(allowance.left_ns <= i64::try_from(CONTROL_BURST_NS).unwrap());
    }
}
