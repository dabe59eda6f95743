//! Cost accounts of wake-ups through descriptors that guests and processes own.
//!
//! A wake-up (a write to an eventfd, a message on a socket) runs in the kernel all work that the
//! owner attached to the descriptor: thousands of epoll watches take milliseconds of the
//! dispatcher. [`WakeAccount`] is the account of one owner: a port, a host process, a socket of a
//! stream port, or all attached processes of one user. The owner's service or port wraps each
//! wake-up in [`WakeAccount::charge`] or [`WakeAccount::charge_beyond`], and carries out the
//! [`Verdict`]: the account neither pauses nor closes.
//!
//! A wake-up is free up to [`WAKE_USUAL_NS`] (50 us). The excess may take 1/[`WAKE_SHARE`] (1/20)
//! of the time, after a burst of [`WAKE_BURST_NS`] (2 ms). An owner beyond its share gets a strike:
//! it is not to be woken for at least 100 ms, twice as long each time, and at the strike
//! [`WAKE_STRIKES_MAX`] (4) it is to be closed, and barred for [`BARRED_NS`] (30 s). Strikes are
//! forgotten after [`WAKE_STRIKES_NS`] (60 s) without another.
//!
//! The excess is first taken from two reads of the clock around the call. That includes time in
//! which another thread had the processor, so an owner is penalised only after the processor time
//! of this thread, which costs a system call, was measured around its next 64 calls and exceeds the
//! share too. An account cannot interrupt a wake-up that blocks: the watchdog of the thread does.
//!
//! # Budget
//! Two reads of the clock besides the wake-up; for a suspect two more of the processor time.

use rustix::time::{ClockId, clock_gettime};

use crate::limits::{
    BARRED_NS, WAKE_BURST_NS, WAKE_MEASURED, WAKE_PAUSE_NS, WAKE_SHARE, WAKE_STRIKES_MAX,
    WAKE_STRIKES_NS, WAKE_USUAL_NS,
};

/// Consequence of a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No consequence.
    Fine,
    /// The owner is not to be woken for this many nanoseconds. Streams of host processes ignore the
    /// pause ([`crate::host`]).
    Pause(u64),
    /// The owner exceeded its share 4 times: it is to be closed, and barred for 30 s.
    Excess,
}

/// The account of an owner of descriptors.
#[derive(Debug, Clone, Copy, Default)]
pub struct WakeAccount {
    /// Excess that time has not paid off yet, in nanoseconds.
    owed_ns: u64,
    /// Time up to which `owed_ns` was paid off.
    at_ns: u64,
    /// Calls that are still to be measured by the thread's processor time.
    measured: u32,
    /// Times that the owner exceeded its share.
    strikes: u32,
    /// Time of the last strike.
    struck_ns: u64,
}

/// Reason with which a caller closes an owner after [`Verdict::Excess`].
pub const EXCESS: &str = "waking the owner takes more than its share of the dispatcher's time: its \
                          notification descriptor has too many watchers";

impl WakeAccount {
    /// Runs `wake`, a system call that wakes the owner, and charges the owner for it.
    #[inline]
    pub fn charge<T>(&mut self, wake: impl FnOnce() -> T) -> (T, Verdict) {
        self.charge_beyond(WAKE_USUAL_NS, wake)
    }

    /// As [`Self::charge`], for a call that also moves data: its first `usual_ns` nanoseconds are
    /// free.
    #[inline]
    pub fn charge_beyond<T>(&mut self, usual_ns: u64, wake: impl FnOnce() -> T) -> (T, Verdict) {
        let since = read(ClockId::Monotonic);
        if self.measured > 0 {
            return self.measure(since, usual_ns, wake);
        }
        let result = wake();
        let took_ns = read(ClockId::Monotonic).saturating_sub(since);
        let excess_ns = took_ns.saturating_sub(usual_ns);
        if excess_ns > 0 && self.owe(since, excess_ns) > WAKE_BURST_NS {
            // The next calls show whether the call or another thread took the time.
            (self.measured, self.owed_ns) = (WAKE_MEASURED, 0);
        }
        (result, Verdict::Fine)
    }

    /// As [`Self::charge_beyond`], by the processor time of this thread.
    #[cold]
    fn measure<T>(&mut self, now_ns: u64, usual_ns: u64, wake: impl FnOnce() -> T) -> (T, Verdict) {
        let since = read(ClockId::ThreadCPUTime);
        let result = wake();
        let took_ns = read(ClockId::ThreadCPUTime).saturating_sub(since);
        (result, self.settle(now_ns, took_ns.saturating_sub(usual_ns)))
    }

    /// Returns whether the owner was to be closed within the last [`BARRED_NS`] (30 s), and is
    /// still to be refused.
    pub fn is_barred(&self) -> bool {
        let since = read(ClockId::Monotonic).saturating_sub(self.struck_ns);
        self.strikes >= WAKE_STRIKES_MAX && since < BARRED_NS
    }

    /// Charges a call that took `excess_ns` more than usual of this thread's processor time.
    fn settle(&mut self, now_ns: u64, excess_ns: u64) -> Verdict {
        self.measured = self.measured.saturating_sub(1);
        // All processes of a user share an account, so the excess may come from another descriptor
        // than this call's.
        if self.owe(now_ns, excess_ns) <= WAKE_BURST_NS || excess_ns == 0 {
            return Verdict::Fine;
        }
        if now_ns.saturating_sub(self.struck_ns) > WAKE_STRIKES_NS {
            self.strikes = 0;
        }
        (self.strikes, self.struck_ns) = (self.strikes.saturating_add(1), now_ns);
        self.measured = WAKE_MEASURED;
        if self.strikes >= WAKE_STRIKES_MAX {
            return Verdict::Excess;
        }
        let growing = WAKE_PAUSE_NS.saturating_mul(1 << self.strikes.min(16));
        let owed = std::mem::take(&mut self.owed_ns);
        Verdict::Pause(owed.saturating_mul(WAKE_SHARE).max(growing))
    }

    /// Adds the excess of a call, and returns the debt.
    fn owe(&mut self, now_ns: u64, excess_ns: u64) -> u64 {
        let paid = now_ns.saturating_sub(self.at_ns).checked_div(WAKE_SHARE).unwrap_or(0);
        self.at_ns = now_ns;
        self.owed_ns = self.owed_ns.saturating_sub(paid).saturating_add(excess_ns);
        self.owed_ns
    }
}

/// Reads a clock, in nanoseconds.
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn wakes_that_are_usual_are_free_however_many() {
        let mut wakes = WakeAccount { measured: 1, ..WakeAccount::default() };
        for call in 0..1_000_000_u64 {
            assert_eq!(wakes.settle(call * WAKE_USUAL_NS, 0), Verdict::Fine);
        }
    }

    #[test]
    fn wakes_that_are_usual_are_free_beside_expensive_ones_of_the_same_owner() {
        let mut wakes = WakeAccount::default();
        let verdicts: Vec<_> = (1..=WAKE_STRIKES_MAX).map(|_| wakes.settle(MS, 50 * MS)).collect();
        assert_eq!(verdicts.last(), Some(&Verdict::Excess));
        assert_eq!(wakes.settle(MS, 0), Verdict::Fine);
        assert_eq!(wakes.settle(MS, 1), Verdict::Excess);
    }

    #[test]
    fn wakes_beyond_the_share_pause_their_owner_for_longer_each_time_and_close_it() {
        let mut wakes = WakeAccount::default();
        let (mut now, mut until, mut pauses, mut spent) = (0, 0, Vec::new(), 0);
        loop {
            now += MS;
            if now < until {
                continue;
            }
            spent += 5 * MS;
            match wakes.settle(now, 5 * MS) {
                Verdict::Fine => {}
                Verdict::Pause(pause) => {
                    until = now + pause;
                    pauses.push(pause);
                }
                Verdict::Excess => break,
            }
        }
        assert!(pauses.is_sorted() && pauses.len() as u32 == WAKE_STRIKES_MAX - 1, "{pauses:?}");
        assert!(spent < now / WAKE_SHARE + 2 * WAKE_BURST_NS + 10 * MS, "{spent} of {now}");
    }

    #[test]
    fn wakes_within_the_share_go_on_and_old_strikes_are_forgotten() {
        let mut wakes = WakeAccount::default();
        for call in 1..10_000 {
            // Three percent.
            assert_eq!(wakes.settle(call * 10 * MS, 300_000), Verdict::Fine);
        }
        let mut now = 1 << 60;
        for _ in 0..10 * WAKE_STRIKES_MAX {
            now += WAKE_STRIKES_NS + 1;
            assert!(matches!(wakes.settle(now, 50 * MS), Verdict::Pause(_)));
        }
    }

    #[test]
    fn wakes_that_waited_for_the_processor_cost_nothing() {
        let mut wakes = WakeAccount::default();
        for _ in 0..20 {
            let sleep = || std::thread::sleep(std::time::Duration::from_millis(3));
            let ((), verdict) = wakes.charge(sleep);
            assert_eq!(verdict, Verdict::Fine);
        }
        assert!(wakes.measured > 0, "it was suspected");
    }
}
