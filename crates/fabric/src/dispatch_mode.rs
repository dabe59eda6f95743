//! Dispatch modes of queues and sources: polled or woken by doorbells, after VNET/P. Operators see
//! them as poll modes (`causeway_model::poll`).
//!
//! *Guest-driven*: the queue is served when its guest rings, and its doorbell is armed as soon as
//! the queue is empty. Few packets cost little, and each costs a doorbell. *VMM-driven*: doorbells
//! are off and the dispatcher polls for as long as chains keep coming. *Adaptive* (VNET/P, section
//! 4.3) switches to VMM-driven above the upper rate in a period and to guest-driven below the lower
//! rate, and keeps its mode between the two. The mode is per queue, and so per direction of a port.
//!
//! A period's count is compared with `rate * elapsed / second`. The published implementation
//! inverts the fraction, and in practice never leaves its first mode.
//!
//! A VMM-driven queue that stays empty for the idle spin is armed as well, so that an idle
//! dispatcher sleeps; the spin depends on how scarce processors are (`crate::spin_budget`).
//!
//! The shard reports the chains of a queue after each batch and each publish, and the frames of a
//! source after each call; this module only decides. The shard polls or arms a queue; a source is
//! armed by its service. The module has no timer: a period ends at the first report after its
//! length, so a sleeping queue keeps its mode and rate until it wakes. A queue that starts is
//! guest-driven, unless the policy is fixed as VMM-driven. By default the rates are 10,000 and
//! 1,000 chains a second, the period is 10 ms and the idle spin 1 ms ([`causeway_model::limits`]).

use causeway_model::{PollMode, PollPolicy};

use causeway_model::limits::{
    LOWER_RATE_DEFAULT, PERIOD_US_DEFAULT, RATE_MAX, SPIN_US_DEFAULT, UPPER_RATE_DEFAULT,
};

/// Parameters of the dispatch modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollConfig {
    /// Selects a fixed mode or the adaptive choice.
    pub policy: PollPolicy,
    /// Chains per second above which a queue becomes VMM-driven.
    pub upper: u32,
    /// Chains per second below which a queue becomes guest-driven; the mode is kept from `lower` to
    /// `upper`.
    pub lower: u32,
    /// Measuring period of a rate, in nanoseconds.
    pub period_ns: u64,
    /// Time for which an empty VMM-driven queue is polled before its doorbell is armed, in
    /// nanoseconds.
    pub spin_ns: u64,
}

impl Default for PollConfig {
    fn default() -> Self {
        Self {
            policy: PollPolicy::Adaptive,
            upper: UPPER_RATE_DEFAULT,
            lower: LOWER_RATE_DEFAULT,
            period_ns: PERIOD_US_DEFAULT.saturating_mul(1000),
            spin_ns: SPIN_US_DEFAULT.saturating_mul(1000),
        }
    }
}

/// Returns the number of chains in `elapsed_ns` at `rate` per second.
fn expected(rate: u32, elapsed_ns: u64) -> u64 {
    let chains = u128::from(rate).saturating_mul(elapsed_ns.into()) / 1_000_000_000;
    u64::try_from(chains).unwrap_or(u64::MAX)
}

/// Dispatch mode of a queue, and the measurement behind it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueMode {
    /// Mode by the measured rate; a fixed policy overrides it.
    mode: PollMode,
    /// Start of the period, and the count of chains at that time.
    since_ns: u64,
    base: u32,
    /// Chains per second in the last whole period.
    rate: u32,
    /// Changes of `mode`.
    changes: u64,
}

impl QueueMode {
    /// Returns the mode in effect: that of the policy, or of the rate if the policy is adaptive.
    pub(crate) fn mode(&self, poll_config: &PollConfig) -> PollMode {
        match poll_config.policy {
            PollPolicy::Adaptive => self.mode,
            PollPolicy::GuestDriven => PollMode::GuestDriven,
            PollPolicy::VmmDriven => PollMode::VmmDriven,
        }
    }

    /// Returns the chains per second in the last whole period.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Returns how often the mode by the measured rate changed, also under a fixed policy.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Updates the mode at the end of a period; `chains` counts the queue's chains and may wrap.
    #[inline]
    pub(crate) fn update(&mut self, poll_config: &PollConfig, now_ns: u64, chains: u32) {
        let elapsed = now_ns.saturating_sub(self.since_ns);
        if elapsed < poll_config.period_ns {
            return;
        }
        let count = u64::from(chains.wrapping_sub(self.base));
        let mode = if count > expected(poll_config.upper, elapsed) {
            PollMode::VmmDriven
        } else if count < expected(poll_config.lower, elapsed) {
            PollMode::GuestDriven
        } else {
            self.mode
        };
        let second = u128::from(count).saturating_mul(1_000_000_000);
        let rate = second.checked_div(elapsed.into()).and_then(|rate| u32::try_from(rate).ok());
        self.rate = rate.unwrap_or(RATE_MAX).min(RATE_MAX);
        self.changes = self.changes.saturating_add(u64::from(mode != self.mode));
        self.mode = mode;
        (self.since_ns, self.base) = (now_ns, chains);
    }

    /// Starts the measurement of a queue that begins to run.
    pub(crate) fn start(&mut self, now_ns: u64, chains: u32) {
        *self = Self { since_ns: now_ns, base: chains, changes: self.changes, ..Self::default() };
    }

    /// Returns the reason of the present mode, for the operator.
    pub(crate) fn reason(&self, poll_config: &PollConfig) -> String {
        let PollConfig { upper, lower, .. } = poll_config;
        match (poll_config.policy, self.mode) {
            (PollPolicy::GuestDriven | PollPolicy::VmmDriven, _) => "configured".into(),
            (_, PollMode::VmmDriven) if self.rate > *upper => {
                format!("{} chains/s, above {upper}", self.rate)
            }
            (_, PollMode::GuestDriven) if self.rate < *lower => {
                format!("{} chains/s, below {lower}", self.rate)
            }
            _ => format!("{} chains/s, kept between {lower} and {upper}", self.rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 10_000_000;

    #[test]
    fn dispatch_mode_expected_count_is_rate_times_time() {
        // VNET/P's defaults: 10,000 per second are 100 in 10 ms, not a million.
        assert_eq!(expected(10_000, PERIOD), 100);
        assert_eq!(expected(1_000, PERIOD), 10);
        assert_eq!(expected(u32::MAX, u64::MAX), u64::MAX, "no overflow");
    }

    #[test]
    fn modes_follow_the_rate_with_hysteresis() {
        let poll_config = PollConfig::default();
        let mut queue_mode = QueueMode::default();
        let (mut now, mut total) = (0, u32::MAX - 50);
        queue_mode.start(now, total);
        let mut period = |queue_mode: &mut QueueMode, chains: u32| {
            now += PERIOD;
            total = total.wrapping_add(chains);
            queue_mode.update(&poll_config, now, total);
            queue_mode.mode(&poll_config)
        };
        assert_eq!(period(&mut queue_mode, 100), PollMode::GuestDriven, "not above the upper rate");
        assert_eq!(period(&mut queue_mode, 101), PollMode::VmmDriven);
        assert_eq!(period(&mut queue_mode, 50), PollMode::VmmDriven, "kept between");
        assert!(queue_mode.reason(&poll_config).contains("kept between"));
        assert_eq!(period(&mut queue_mode, 10), PollMode::VmmDriven, "not below the lower rate");
        assert_eq!(period(&mut queue_mode, 9), PollMode::GuestDriven);
        assert_eq!(period(&mut queue_mode, 50), PollMode::GuestDriven, "kept between");
        assert_eq!((queue_mode.changes(), queue_mode.rate()), (2, 5000));
    }

    #[test]
    fn dispatch_mode_late_update_divides_by_elapsed_time() {
        let poll_config = PollConfig::default();
        let mut queue_mode = QueueMode::default();
        queue_mode.start(0, 0);
        queue_mode.update(&poll_config, 100 * PERIOD, 5000);
        assert_eq!(
            queue_mode.mode(&poll_config),
            PollMode::GuestDriven,
            "5,000 a second, however late it is seen"
        );
        queue_mode.update(&poll_config, 100 * PERIOD + PERIOD / 2, 9000);
        assert_eq!(queue_mode.rate(), 5000, "the period is not over");
    }

    #[test]
    fn dispatch_mode_configured_stays() {
        let poll_config = PollConfig { policy: PollPolicy::GuestDriven, ..PollConfig::default() };
        let mut queue_mode = QueueMode::default();
        queue_mode.update(&poll_config, PERIOD, 1_000_000);
        assert_eq!(queue_mode.mode(&poll_config), PollMode::GuestDriven);
        assert_eq!(queue_mode.reason(&poll_config), "configured");
    }
}
