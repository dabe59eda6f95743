//! Rate limits of a port: bytes and messages a second that its guest sends.
//!
//! The limits count the payload of the guest's send work requests in either direction (reads and
//! atomic operations included) and the Ethernet frames that the guest sends. Traffic that other
//! guests send to the port counts for their ports. A [`RateLimit`] decides only: `crate::call`, in
//! the dispatcher's thread, bounds the work of each call ([`RateLimit::bound`]), asks before the
//! frames of the guest and after the call ([`RateLimit::resumes_ns`]), and reports the work done
//! ([`RateLimit::charge`]). A port beyond its
//! limits executes commands and no work; its work stays in guest memory, and nothing is dropped.
//!
//! A limit admits up to [`RATE_BURST_NS`] (4 ms) of its rate after a pause. A call may exceed the
//! limit by a message step (64 KiB), 64 messages or 64 frames; the excess is a debt, which the next
//! pause pays, so that the mean rate is exact. Pauses last until [`RATE_RESUME_NS`] (0.5 ms) of the
//! rate is free again, which bounds their number. Times are the fabric's clock, passed as argument.

use causeway_verbs::Budget;

use crate::limits::{BYTES_PER_CALL_MIN, RATE_BURST_NS, RATE_MESSAGES_MIN, RATE_RESUME_NS};

const SECOND_NS: u128 = 1_000_000_000;

/// A rate in units a second.
#[derive(Debug, Clone, Copy)]
struct Meter {
    per_second: u64,
    /// Time until which the rate is used.
    used_ns: u64,
    /// Part of a nanosecond that is used beyond, in units of 1/`per_second`.
    remainder: u64,
}

impl Meter {
    fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), used_ns: 0, remainder: 0 }
    }

    /// Takes units. Returns the time until which the rate is used.
    fn charge(&mut self, now_ns: u64, units: u64) -> u64 {
        let first_ns = now_ns.saturating_sub(RATE_BURST_NS);
        if self.used_ns < first_ns {
            (self.used_ns, self.remainder) = (first_ns, 0);
        }
        let rate = u128::from(self.per_second);
        let sum = u128::from(units).saturating_mul(SECOND_NS);
        let sum = sum.saturating_add(u128::from(self.remainder));
        let ns = sum.checked_div(rate).unwrap_or(0);
        let rest = sum.checked_rem(rate).unwrap_or(0);
        self.used_ns = self.used_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
        self.remainder = u64::try_from(rest).unwrap_or(0);
        self.used_ns
    }

    /// Returns the units that are free now.
    fn free(&self, now_ns: u64) -> u64 {
        let from_ns = self.used_ns.max(now_ns.saturating_sub(RATE_BURST_NS));
        let free_ns = u128::from(now_ns.saturating_sub(from_ns));
        let units = free_ns.saturating_mul(u128::from(self.per_second)) / SECOND_NS;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

/// The limits of a port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateLimit {
    bytes: Option<Meter>,
    messages: Option<Meter>,
    /// Time before which the port is not served.
    resumes_ns: u64,
}

impl RateLimit {
    /// Returns limits in bytes and messages a second; `None` is unlimited.
    pub(crate) fn new(bytes: Option<u64>, messages: Option<u64>) -> Self {
        Self { bytes: bytes.map(Meter::new), messages: messages.map(Meter::new), resumes_ns: 0 }
    }

    /// Returns whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.messages.is_some()
    }

    /// Returns the time at which the port is served again, or `None` if it may be served now.
    pub(crate) fn resumes_ns(&self, now_ns: u64) -> Option<u64> {
        (now_ns < self.resumes_ns).then_some(self.resumes_ns)
    }

    /// Returns the part of a budget that the limits admit now; nothing during a pause. A spent
    /// budget lets a pass report events without executing work.
    pub(crate) fn bound(&self, now_ns: u64, budget: Budget) -> Budget {
        if self.resumes_ns(now_ns).is_some() {
            return Budget::new(0, 0);
        }
        let free = |meter: Option<Meter>, least: u64| {
            meter.map_or(u64::MAX, |meter| meter.free(now_ns).max(least))
        };
        let messages = free(self.messages, RATE_MESSAGES_MIN);
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        let bytes = free(self.bytes, BYTES_PER_CALL_MIN);
        Budget::new(budget.messages().min(messages), budget.bytes().min(bytes))
    }

    /// Takes the bytes and messages of a call from the limits. A limit that is used up begins a
    /// pause.
    pub(crate) fn charge(&mut self, now_ns: u64, bytes: u64, messages: u64) {
        let used = |meter: &mut Option<Meter>, units: u64| {
            meter.as_mut().map_or(0, |meter| meter.charge(now_ns, units))
        };
        let used_ns = used(&mut self.bytes, bytes).max(used(&mut self.messages, messages));
        if used_ns > now_ns {
            self.resumes_ns = used_ns.saturating_add(RATE_RESUME_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Sends messages of `len` bytes for a second, in calls that each take 20 us and are as large
    /// as the limit admits. Returns the bytes.
    fn send(limit: &mut RateLimit, len: u64) -> u64 {
        let (mut now, mut sent) = (SECOND, 0);
        while now < 2 * SECOND {
            if let Some(resumes) = limit.resumes_ns(now) {
                // The dispatcher is late.
                now = resumes + 70_000;
                continue;
            }
            let budget = limit.bound(now, Budget::new(100, 160_000));
            let count = u64::from(budget.messages()).min(budget.bytes().div_ceil(len));
            limit.charge(now, count * len, count);
            sent += count * len;
            now += 20_000;
        }
        sent
    }

    #[test]
    fn rate_of_bytes_is_kept_within_five_percent() {
        let (small, large) = (64, 65_536);
        for (rate, len) in [(5_000_000_u64, small), (5_000_000, large), (3_000_000_001, large)] {
            let sent = send(&mut RateLimit::new(Some(rate), None), len) as f64;
            let share = sent / rate as f64;
            assert!((0.95..1.05).contains(&share), "{rate} {len}: {share}");
        }
    }

    #[test]
    fn rate_of_messages_is_kept_within_five_percent() {
        let sent = send(&mut RateLimit::new(None, Some(300_000)), 64) / 64;
        assert!((285_000..315_000).contains(&sent), "{sent}");
        let sent = send(&mut RateLimit::new(Some(64_000_000), Some(300_000)), 64) / 64;
        assert!((285_000..315_000).contains(&sent), "the lower limit applies: {sent}");
    }

    #[test]
    fn rate_without_a_limit_admits_everything() {
        let mut limit = RateLimit::new(None, None);
        limit.charge(0, u64::MAX, u64::MAX);
        assert_eq!((limit.is_limited(), limit.resumes_ns(0)), (false, None));
        assert_eq!(limit.bound(0, Budget::new(7, 9)), Budget::new(7, 9));
    }

    #[test]
    fn rate_pause_pays_the_whole_debt_and_admits_a_bounded_burst() {
        let mut limit = RateLimit::new(Some(1_000_000), None);
        limit.charge(SECOND, 1_000_000, 1);
        let resumes = limit.resumes_ns(SECOND).unwrap();
        assert_eq!(resumes, 2 * SECOND - RATE_BURST_NS + RATE_RESUME_NS);
        assert_eq!(limit.bound(resumes - 1, Budget::new(9, 9)), Budget::new(0, 0));
        let late = limit.bound(60 * SECOND, Budget::new(9, 1 << 30));
        assert_eq!(late.bytes(), BYTES_PER_CALL_MIN, "4 ms are 4,000 bytes: the least applies");
        limit.charge(60 * SECOND, u64::MAX, 1);
        limit.charge(61 * SECOND, u64::MAX, u64::MAX);
        assert!(limit.resumes_ns(u64::MAX - 1).is_some(), "sums saturate");
    }
}
