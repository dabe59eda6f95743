//! Rates of a port over the last seconds, for `causeway hca show`.
//!
//! [`crate::service`] offers the present counters after each call that may have changed them; a
//! sample is kept at most once in [`SAMPLE_NS`] (1 s), and the last [`SAMPLES_MAX`] (6) samples
//! remain. [`crate::view`] asks for the rates; `crate::call` also uses [`Sums`] for the rate
//! limits. All run in the dispatcher's thread. A view compares the present counters with the newest
//! sample that is at least 5 seconds old, or the oldest; without a sample all rates are 0. A port
//! that is not served makes no samples, so the time of a rate may be longer than 5 seconds; the
//! view states it. Counters wrap, and differences are taken so.

use std::collections::VecDeque;

use causeway_mlx5::Function;
use causeway_model::HcaRates;
use causeway_verbs::Adapter;

use crate::limits::{SAMPLE_NS, SAMPLES_MAX};

/// Counters that have a rate in views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    pub requests: u64,
    pub request_bytes: u64,
    pub received: u64,
    pub received_bytes: u64,
    pub errors: u64,
    pub sent_frames: u64,
    pub sent_frame_bytes: u64,
    pub received_frames: u64,
}

/// The traffic that a guest sent between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Requests and frames.
    pub messages: u64,
    /// Bytes of the frames. Those of a request are counted when it ends, so the budget of the call
    /// has them instead.
    pub frame_bytes: u64,
}

impl Sums {
    /// Returns the traffic that the guest sent since an earlier sample.
    pub(crate) fn sent_since(&self, then: &Self) -> Sent {
        let requests = self.requests.wrapping_sub(then.requests);
        let frames = self.sent_frames.wrapping_sub(then.sent_frames);
        let errors = self.errors.wrapping_sub(then.errors);
        Sent {
            messages: requests.saturating_add(errors).saturating_add(frames),
            frame_bytes: self.sent_frame_bytes.wrapping_sub(then.sent_frame_bytes),
        }
    }

    /// Returns the sums of an adapter.
    pub(crate) fn of(adapter: &Adapter<Function>) -> Self {
        let (verbs, frames) = (adapter.counters(), adapter.queues().ethernet_counters());
        Self {
            requests: verbs.requests,
            request_bytes: verbs.request_bytes,
            received: verbs.received,
            received_bytes: verbs.received_bytes,
            errors: verbs.errors,
            sent_frames: frames.sent.total().frames,
            sent_frame_bytes: frames.sent.total().bytes,
            received_frames: frames.received.total().frames,
        }
    }
}

/// Samples of a port's counters.
#[derive(Debug, Default)]
pub(crate) struct RecentSums {
    samples: VecDeque<(u64, Sums)>,
}

impl RecentSums {
    /// Keeps a sample of `sums`, unless the last one is less than a second old. Returns whether it
    /// is kept.
    #[inline]
    pub(crate) fn offer(&mut self, now_ns: u64, sums: impl FnOnce() -> Sums) -> bool {
        let is_due = |(at, _): &(u64, Sums)| now_ns.saturating_sub(*at) >= SAMPLE_NS;
        let is_kept = self.samples.back().is_none_or(is_due);
        if is_kept {
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back((now_ns, sums()));
        }
        is_kept
    }

    /// Returns the rates until now. They are 0 without a sample of the past.
    pub(crate) fn rates(&self, now_ns: u64, now: &Sums) -> HcaRates {
        let window = SAMPLE_NS.saturating_mul(SAMPLES_MAX.saturating_sub(1) as u64);
        let is_old = |(at, _): &&(u64, Sums)| now_ns.saturating_sub(*at) >= window;
        let base = self.samples.iter().rev().find(is_old).or(self.samples.front());
        let Some((at, then)) = base else { return HcaRates::default() };
        let passed_ns = now_ns.saturating_sub(*at);
        let rate = |now: u64, then: u64| {
            let units = u128::from(now.wrapping_sub(then)).saturating_mul(1_000_000_000);
            u64::try_from(units.checked_div(u128::from(passed_ns)).unwrap_or(0)).unwrap_or(u64::MAX)
        };
        HcaRates {
            over_ms: passed_ns / 1_000_000,
            requests: rate(now.requests, then.requests),
            request_bytes: rate(now.request_bytes, then.request_bytes),
            received_messages: rate(now.received, then.received),
            received_bytes: rate(now.received_bytes, then.received_bytes),
            request_errors: rate(now.errors, then.errors),
            sent_frames: rate(now.sent_frames, then.sent_frames),
            received_frames: rate(now.received_frames, then.received_frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_rates_are_means_over_the_last_seconds() {
        let mut recent = RecentSums::default();
        assert_eq!(recent.rates(7, &Sums::default()), HcaRates::default());
        // 100 requests a second for 20 s, then 1000 a second for 5 s.
        let mut sums = Sums::default();
        for tenth in 0..250_u64 {
            recent.offer(tenth * SAMPLE_NS / 10, || sums);
            sums.requests += if tenth < 200 { 10 } else { 100 };
            sums.request_bytes = 64 * sums.requests;
        }
        let rates = recent.rates(25 * SAMPLE_NS, &sums);
        assert_eq!((rates.requests, rates.request_bytes, rates.over_ms), (1000, 64_000, 5000));
        assert_eq!((rates.request_errors, recent.samples.len()), (0, SAMPLES_MAX));
        let idle = recent.rates(124 * SAMPLE_NS, &sums);
        assert_eq!((idle.requests, idle.over_ms), (10, 100_000), "the last second had 1000");
    }
}
