//! Spin budget of a dispatcher: shorter when other threads need its processor.
//!
//! A dispatcher that polls empty queues takes time from guests where processors are scarce. The
//! kernel counts how long a thread was runnable without a processor; if that time grows, other
//! threads wait for the dispatcher as well. The spin is then cut to a quarter and idle turns yield;
//! without contention the spin doubles again, up to its configured length.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::limits::{SHARE_PERIOD_NS, SPIN_SCARCE_NS_MIN};

/// Waiting for more than 1/32 of the time: processors are scarce.
const SCARCE: u64 = 32;
/// Waiting for less than 1/256 of the time: processors are ample.
const AMPLE: u64 = 256;

/// The present spin budget of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    spin_ns: u64,
    most_ns: u64,
}

impl Share {
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
    pub(crate) fn scarce(&self) -> bool {
        self.spin_ns < self.most_ns
    }

    /// Updates the budget: of `elapsed_ns`, the thread waited `waited_ns` for a processor.
    pub(crate) fn judge(&mut self, waited_ns: u64, elapsed_ns: u64) {
        if waited_ns > elapsed_ns / SCARCE {
            self.spin_ns = (self.spin_ns / 4).max(SPIN_SCARCE_NS_MIN).min(self.most_ns);
        } else if waited_ns < elapsed_ns / AMPLE {
            self.spin_ns = self.spin_ns.saturating_mul(2).max(SPIN_SCARCE_NS_MIN).min(self.most_ns);
        }
    }
}

/// The kernel's scheduling statistics of a thread (proc(5), `schedstat`).
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    file: Option<File>,
    waited_ns: u64,
    at_ns: u64,
    /// Processor time at the last sample, and time waited for events since.
    ran_ns: u64,
    parked_ns: u64,
}

impl Scheduler {
    /// Opens the statistics of the calling thread. Where the kernel does not count, processors
    /// never count as scarce.
    pub(crate) fn of_thread() -> Self {
        Self { file: File::open("/proc/thread-self/schedstat").ok(), ..Self::default() }
    }

    /// Adds time for which the thread waited for events.
    pub(crate) fn parked(&mut self, for_ns: u64) {
        self.parked_ns = self.parked_ns.saturating_add(for_ns);
    }

    /// Returns how long the thread slept since the last [`Self::sample`] other than waiting for
    /// events: it neither ran nor stood in a run queue.
    pub(crate) fn slept_ns(&self, now_ns: u64) -> u64 {
        let Some(waited) = self.file.as_ref().and_then(waited).filter(|_| self.at_ns > 0) else {
            return 0;
        };
        let known = thread_ns()
            .saturating_sub(self.ran_ns)
            .saturating_add(waited.saturating_sub(self.waited_ns).saturating_add(self.parked_ns));
        now_ns.saturating_sub(self.at_ns).saturating_sub(known)
    }

    /// Samples the statistics, at most every [`SHARE_PERIOD_NS`].
    pub(crate) fn look(&mut self, now_ns: u64, share: &mut Share) {
        let elapsed = now_ns.saturating_sub(self.at_ns);
        if elapsed < SHARE_PERIOD_NS {
            return;
        }
        let Some(waited) = self.file.as_ref().and_then(waited) else { return };
        let first = self.at_ns == 0;
        if !first {
            share.judge(waited.saturating_sub(self.waited_ns), elapsed);
        }
        (self.waited_ns, self.at_ns) = (waited, now_ns.max(1));
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
fn waited(file: &File) -> Option<u64> {
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
        let mut scheduler = Scheduler::of_thread();
        scheduler.look(now(), &mut Share::new(1_000_000));
        while now() < 4 * SHARE_PERIOD_NS {}
        let nap = std::time::Duration::from_millis(100);
        let before = scheduler.slept_ns(now());
        std::thread::sleep(nap);
        let slept = scheduler.slept_ns(now()).saturating_sub(before);
        // Where the kernel does not count, no stall is ever found.
        assert!(scheduler.file.is_none() || slept >= 50_000_000, "{slept} of 100 ms");
        scheduler.parked(100_000_000);
        assert!(scheduler.slept_ns(now()) <= before + 50_000_000);
    }

    #[test]
    fn the_spin_shrinks_when_processors_are_scarce_and_comes_back() {
        let mut share = Share::new(1_000_000);
        assert!(!share.scarce());
        share.judge(SHARE_PERIOD_NS / 10, SHARE_PERIOD_NS);
        assert_eq!(share.spin_ns(), 250_000);
        assert!(share.scarce());
        for _ in 0..20 {
            share.judge(SHARE_PERIOD_NS, SHARE_PERIOD_NS);
        }
        assert_eq!(share.spin_ns(), SPIN_SCARCE_NS_MIN);
        share.judge(SHARE_PERIOD_NS / 100, SHARE_PERIOD_NS);
        assert_eq!(share.spin_ns(), SPIN_SCARCE_NS_MIN, "neither scarce nor ample");
        for _ in 0..20 {
            share.judge(0, SHARE_PERIOD_NS);
        }
        assert_eq!(share, Share::new(1_000_000));
    }

    #[test]
    fn no_spin_stays_no_spin() {
        let mut share = Share::new(0);
        share.judge(SHARE_PERIOD_NS, SHARE_PERIOD_NS);
        share.judge(0, SHARE_PERIOD_NS);
        assert_eq!(share.spin_ns(), 0);
    }

    #[test]
    fn this_kernel_counts_or_nothing_is_scarce() {
        let mut scheduler = Scheduler::of_thread();
        let mut share = Share::new(1000);
        scheduler.look(SHARE_PERIOD_NS, &mut share);
        scheduler.look(2 * SHARE_PERIOD_NS, &mut share);
        assert_eq!(scheduler.file.is_some(), scheduler.at_ns > 0);
    }
}
