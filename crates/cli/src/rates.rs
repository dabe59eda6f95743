//! Rates of counters between two samples.
//!
//! Counters of an object begin at 0 when the object is added, and counters of all objects when the
//! daemon starts. [`Period`] therefore detects a restart of the daemon between two samples, and
//! [`grown`] a counter that began anew. No rate is negative, and none is larger than the counter
//! divided by the time that it had. Growth before an object's deletion between two samples is lost.
//!
//! The functions are pure and cannot fail. `stats` and `top` call them, in the main thread.

use std::time::Duration;

/// Shortest period, in seconds: a shorter one would make rates of rounding errors.
const SECONDS_MIN: f64 = 0.001;

/// The time between two samples, by the clock of the daemon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// Time in which the counters grew, in seconds.
    pub seconds: f64,
    /// Whether the daemon was started between the samples, so that all counters began at 0.
    pub is_restarted: bool,
}

impl Period {
    /// Compares the daemon's uptimes in two samples, in seconds. `elapsed` is the time between the
    /// samples by the clock of this process: a daemon that is younger was started in between, even
    /// if its uptime has passed that of its predecessor.
    pub fn between(before_s: f64, now_s: f64, elapsed: Duration) -> Self {
        if now_s < before_s || now_s < elapsed.as_secs_f64() {
            return Self::since_start(now_s);
        }
        Self { seconds: (now_s - before_s).max(SECONDS_MIN), is_restarted: false }
    }

    /// Returns the time since the daemon's start, `uptime_s` seconds ago, for a daemon that was
    /// started after the first sample.
    pub fn since_start(uptime_s: f64) -> Self {
        Self { seconds: uptime_s.max(SECONDS_MIN), is_restarted: true }
    }

    /// Returns the growth of a counter a second. `before` is its value in the first sample, `None`
    /// for a new object.
    pub fn rate(&self, before: Option<u64>, now: u64) -> f64 {
        let before = before.filter(|_| !self.is_restarted).unwrap_or(0);
        grown(before, now) as f64 / self.seconds
    }
}

/// Returns the growth of a counter; a counter that is smaller than before began anew at 0.
pub fn grown(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_detect_a_daemon_that_outlived_its_predecessor() {
        let period = Period::between(2.0, 30.0, Duration::from_secs(60));
        assert_eq!(period, Period { seconds: 30.0, is_restarted: true });
        assert_eq!(period.rate(Some(10), 300), 10.0, "the counter had 30 s");
        let period = Period::between(100.0, 102.0, Duration::from_secs(2));
        assert_eq!(period, Period { seconds: 2.0, is_restarted: false });
        assert_eq!((period.rate(Some(10), 30), period.rate(None, 30)), (10.0, 15.0));
        assert_eq!(period.rate(Some(31), 30), 15.0, "the port was added again");
    }

    proptest! {
        #[test]
        fn rates_are_finite_and_bounded_by_the_counter(
            before in 0.0..1e9_f64,
            now in 0.0..1e9_f64,
            elapsed in 0..1_000_000_000_u64,
            old in proptest::option::of(any::<u64>()),
            new in any::<u64>(),
        ) {
            let period = Period::between(before, now, Duration::from_millis(elapsed));
            prop_assert!(period.seconds >= SECONDS_MIN && period.seconds <= now.max(SECONDS_MIN));
            let rate = period.rate(old, new);
            prop_assert!(rate.is_finite() && rate >= 0.0);
            prop_assert!(rate <= new as f64 / period.seconds);
        }

        #[test]
        fn rates_of_a_running_daemon_are_growth_over_time(
            started in 0.0..1e6_f64,
            passed in 0.01..1e4_f64,
            old in 0..1_u64 << 50,
            more in 0..1_u64 << 50,
        ) {
            // The first sample is taken when the daemon is `started` seconds old.
            let elapsed = Duration::from_secs_f64(passed);
            let period = Period::between(started, started + passed, elapsed);
            prop_assume!(started > 0.001);
            prop_assert!(!period.is_restarted);
            let expected = more as f64 / passed;
            let rate = period.rate(Some(old), old + more);
            prop_assert!((rate - expected).abs() <= expected * 1e-6 + 1e-6, "{rate} {expected}");
        }

        #[test]
        fn rates_after_a_restart_ignore_the_old_counters(
            before in 0.0..1e6_f64,
            age in 0.001..1e4_f64,
            gap in 0.001..1e4_f64,
            old in any::<u64>(),
            new in any::<u64>(),
        ) {
            // The daemon was started `gap` seconds after the first sample.
            let elapsed = Duration::from_secs_f64(age + gap);
            let period = Period::between(before, age, elapsed);
            prop_assert!(period.is_restarted);
            prop_assert_eq!(period.rate(Some(old), new), period.rate(None, new));
        }
    }
}
