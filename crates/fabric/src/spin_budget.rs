//! Spin budget of a dispatcher: shorter when other threads need its processor.
//!
//! A dispatcher that polls empty queues takes time from guests where processors are scarce. The
//! kernel counts how long a thread was runnable without a processor; if that time grows, other
//! threads wait for the dispatcher as well. The spin is then cut to a quarter, down to
//! [`SPIN_SCARCE_NS_MIN`] (4 us), and idle turns yield; without contention the spin doubles again,
//! up to its configured length. Scarce is a wait of more than 1/32 of the time, ample of less than
//! 1/256; between the two the budget stays.
//!
//! The dispatcher samples the kernel's figures ([`SchedStats::sample`]) when it reads events, at
//! most every [`SHARE_PERIOD_NS`] (10 ms); the shards get the spin with the time of each call, and
//! poll empty queues and sources for it. The module
//! neither spins nor yields. Each dispatcher has its own budget, and its figures belong to the
//! thread that opened them. On a kernel without `schedstat` the budget never shrinks.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::limits::{SHARE_PERIOD_NS, SPIN_SCARCE_NS_MIN};

/// Waiting for more than 1/32 of the time: processors are scarce.
const SCARCE: u64 = 32;
/// Waiting for less than 1/256 of the time: processors are ample.
const AMPLE: u64 = 256;

/// The present spin budget of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpinBudget {
    spin_ns: u64,
    /// Configured length.
    most_ns: u64,
}

impl SpinBudget {
    /// Makes a budget of the full configured length.
    pub(crate) fn new(most_ns: u64) -> Self {
        Self { spin_ns: most_ns, most_ns }
    }

    /// Returns the idle spin, in nanoseconds.
    #[inline]
    pub(crate) fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// Returns whether other threads need the processor, so that idle turns yield.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.spin_ns < self.most_ns
    }

    /// Updates the budget: of `elapsed_ns`, the thread waited `waited_ns` for a processor.
    pub(crate) fn update(&mut self, waited_ns: u64, elapsed_ns: u64) {
        if waited_ns > elapsed_ns / SCARCE {
            self.spin_ns = (self.spin_ns / 4).max(SPIN_SCARCE_NS_MIN).min(self.most_ns);
        } else if waited_ns < elapsed_ns / AMPLE {
            self.spin_ns = self.spin_ns.saturating_mul(2).max(SPIN_SCARCE_NS_MIN).min(self.most_ns);
        }
    }
}

/// The kernel's scheduling statistics of a thread (proc(5), `schedstat`).
#[derive(Debug, Default)]
pub(crate) struct SchedStats {
    /// `/proc/thread-self/schedstat`; `None` if the kernel does not count.
    file: Option<File>,
    /// Time on a run queue at the last sample.
    waited_ns: u64,
    /// Time of the last sample; 0: none.
    at_ns: u64,
    /// Processor time at the last sample.
    ran_ns: u64,
    /// Time waited for events since the last sample.
    parked_ns: u64,
}

impl SchedStats {
    /// Opens the statistics of the calling thread. Where the kernel does not count, processors
    /// never count as scarce.
    pub(crate) fn of_thread() -> Self {
        Self { file: File::open("/proc/thread-self/schedstat").ok(), ..Self::default() }
    }

    /// Adds time for which the thread waited for events.
    pub(crate) fn add_parked(&mut self, for_ns: u64) {
        self.parked_ns = self.parked_ns.saturating_add(for_ns);
    }

    /// Returns how long the thread slept since the last [`Self::sample`] other than waiting for
    /// events: it neither ran nor stood in a run queue.
    pub(crate) fn slept_ns(&self, now_ns: u64) -> u64 {
        let Some(run_queue_ns) =
            self.file.as_ref().and_then(run_queue_ns).filter(|_| self.at_ns > 0)
        else {
            return 0;
        };
        let known = thread_ns().saturating_sub(self.ran_ns).saturating_add(
            run_queue_ns.saturating_sub(self.waited_ns).saturating_add(self.parked_ns),
        );
        now_ns.saturating_sub(self.at_ns).saturating_sub(known)
    }

    /// Samples the statistics, at most every [`SHARE_PERIOD_NS`] (10 ms).
    pub(crate) fn sample(&mut self, now_ns: u64, budget: &mut SpinBudget) {
        let elapsed = now_ns.saturating_sub(self.at_ns);
        if elapsed < SHARE_PERIOD_NS {
            return;
        }
        let Some(run_queue_ns) = self.file.as_ref().and_then(run_queue_ns) else { return };
        let first = self.at_ns == 0;
        if !first {
            budget.update(run_queue_ns.saturating_sub(self.waited_ns), elapsed);
        }
        (self.waited_ns, self.at_ns) = (run_queue_ns, now_ns.max(1));
        (self.ran_ns, self.parked_ns) = (thread_ns(), 0);
    }
}

/// Returns the processor time of this thread, in nanoseconds. The first number of `schedstat` lags
/// by a tick.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Parses the second of the three numbers: time on a run queue.
fn run_queue_ns(file: &File) -> Option<u64> {
    let mut bytes = [0; 96];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(bytes.get(..len)?).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_time_slept_and_neither_work_nor_waiting_for_events() {
        let start = std::time::Instant::now();
        let now = || u64::try_from(start.elapsed().as_nanos()).unwrap() + SHARE_PERIOD_NS;
        let mut stats = SchedStats::of_thread();
        stats.sample(now(), &mut SpinBudget::new(1_000_000));
        while now() < 4 * SHARE_PERIOD_NS {}
        let nap = std::time::Duration::from_millis(100);
        let before = stats.slept_ns(now());
        std::thread::sleep(nap);
        let slept = stats.slept_ns(now()).saturating_sub(before);
        // Where the kernel does not count, no stall is ever found.
        assert!(stats.file.is_none() || slept >= 50_000_000, "{slept} of 100 ms");
        stats.add_parked(100_000_000);
        assert!(stats.slept_ns(now()) <= before + 50_000_000);
    }

    #[test]
    fn the_spin_shrinks_when_processors_are_scarce_and_comes_back() {
        let mut budget = SpinBudget::new(1_000_000);
        assert!(!budget.is_scarce());
        budget.update(SHARE_PERIOD_NS / 10, SHARE_PERIOD_NS);
        assert_eq!(budget.spin_ns(), 250_000);
        assert!(budget.is_scarce());
        for _ in 0..20 {
            budget.update(SHARE_PERIOD_NS, SHARE_PERIOD_NS);
        }
        assert_eq!(budget.spin_ns(), SPIN_SCARCE_NS_MIN);
        budget.update(SHARE_PERIOD_NS / 100, SHARE_PERIOD_NS);
        assert_eq!(budget.spin_ns(), SPIN_SCARCE_NS_MIN, "neither scarce nor ample");
        for _ in 0..20 {
            budget.update(0, SHARE_PERIOD_NS);
        }
        assert_eq!(budget, SpinBudget::new(1_000_000));
    }

    #[test]
    fn spin_budget_of_zero_stays_zero() {
        let mut budget = SpinBudget::new(0);
        budget.update(SHARE_PERIOD_NS, SHARE_PERIOD_NS);
        budget.update(0, SHARE_PERIOD_NS);
        assert_eq!(budget.spin_ns(), 0);
    }

    #[test]
    fn spin_budget_needs_kernel_statistics() {
        let mut stats = SchedStats::of_thread();
        let mut budget = SpinBudget::new(1000);
        stats.sample(SHARE_PERIOD_NS, &mut budget);
        stats.sample(2 * SHARE_PERIOD_NS, &mut budget);
        assert_eq!(stats.file.is_some(), stats.at_ns > 0);
    }
}
