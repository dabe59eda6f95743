//! Loads of dispatchers and shards, published across threads.
//!
//! The dispatcher that owns a shard measures its busy time ([`Meter`]) and publishes the percentage
//! at the end of each window ([`LOAD_WINDOW_NS`](crate::limits::LOAD_WINDOW_NS) (1 s)); the
//! registry reads it ([`Load`]) to place and move shards, and for views. A value older than 2.5 s
//! counts as 0. Values are whole percent of wall-clock time and may be a window old; polling of
//! empty queues does not count as busy.

use std::sync::atomic::{AtomicU64, Ordering};

/// Busy share of the owner's last window.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Percent in the low byte; above it, the time of publishing, in milliseconds of the fabric's
    /// clock.
    word: AtomicU64,
    /// Busy time in all windows, in nanoseconds.
    busy_ns: AtomicU64,
}

/// Age from which a value counts as 0: its owner has slept since.
const FRESH_MS: u64 = 2_500;

impl Load {
    /// Publishes the busy share of a window that ended at `now_ns`.
    pub(crate) fn publish(&self, percent: u8, now_ns: u64) {
        let word = (now_ns / 1_000_000) << 8 | u64::from(percent.min(100));
        self.word.store(word, Ordering::Relaxed);
    }

    /// Adds the busy time of a window that ended.
    pub(crate) fn charge(&self, busy_ns: u64) {
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    /// Returns the busy time in all windows that have ended, in seconds.
    pub(crate) fn busy_seconds(&self) -> f64 {
        self.busy_ns.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Returns the busy share of the last window, in percent; 0 if the owner has slept since.
    pub(crate) fn percent(&self, now_ns: u64) -> u8 {
        let word = self.word.load(Ordering::Relaxed);
        let age = (now_ns / 1_000_000).saturating_sub(word >> 8);
        if age > FRESH_MS { 0 } else { (word & 0xff) as u8 }
    }
}

/// Busy time within a window.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    busy_ns: u64,
}

impl Meter {
    /// Adds busy time.
    pub(crate) fn add(&mut self, busy_ns: u64) {
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
    }

    /// Returns the busy time in the window so far, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Ends a window of `window_ns`, and returns its busy share in percent.
    pub(crate) fn percent(&mut self, window_ns: u64) -> u8 {
        let busy = std::mem::take(&mut self.busy_ns);
        let percent = busy.saturating_mul(100).checked_div(window_ns).unwrap_or(0);
        u8::try_from(percent.min(100)).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_percent_of_its_window_and_grows_stale() {
        let (load, mut meter) = (Load::default(), Meter::default());
        meter.add(250);
        meter.add(250);
        load.publish(meter.percent(1000), 5_000_000_000);
        assert_eq!(load.percent(6_000_000_000), 50);
        assert_eq!(load.percent(8_000_000_000), 0, "its owner sleeps");
        assert_eq!(meter.percent(1000), 0, "a window is reported once");
        assert_eq!(meter.percent(0), 0);
    }
}
