//! Timers: the estimate of round trips, and the ordered list of the timers of a NIC.
//!
//! An owner (the connects of an endpoint, or a peer) has one timer, which fires at or before the
//! earliest time at which the owner has to act.
//!
//! A timer may fire early, because [`Timers::arm`] does not postpone it: the owner checks its
//! deadlines and arms the timer again. Arming an armed timer for a later time, and disarming a
//! timer that is not armed, have no effect. It does not fire on its own:
//! [`Nic::tick`](crate::Nic::tick) takes due owners, so precision is that of the caller. Arming is
//! logarithmic in the number of armed timers, at most one per peer and one per endpoint. A timer
//! must be disarmed before its owner is removed. Times are in ns of the caller's clock; `u64::MAX`
//! means never. [`endpoint`](crate::endpoint) arms the timers of peers, [`connect`](crate::connect)
//! those of connects, and [`Nic`](crate::Nic) runs them, all on the thread of the NIC.

use std::collections::BTreeSet;

use crate::limits::WaitLimits;

/// Estimate of the round trip to a peer in ns (RFC 6298).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip, or 0 before the first measurement.
    smoothed: u64,
    /// Mean deviation.
    variation: u64,
    /// Shortest and longest wait.
    limits: WaitLimits,
}

impl RoundTrip {
    /// Creates an estimate without measurements.
    pub(crate) const fn new(limits: WaitLimits) -> Self {
        Self { smoothed: 0, variation: 0, limits }
    }

    /// Adds a measurement in ns.
    pub(crate) fn measured(&mut self, ns: u64) {
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (ns.max(1), ns.wrapping_shr(1));
            return;
        }
        let off = self.smoothed.abs_diff(ns);
        self.variation = smooth(self.variation, off, 2);
        self.smoothed = smooth(self.smoothed, ns, 3).max(1);
    }

    /// Returns the time in ns to wait for an answer after `tries` attempts without one. Doubles
    /// with each.
    pub(crate) fn wait(&self, tries: u32) -> u64 {
        let WaitLimits { least_ns, most_ns } = self.limits;
        let once = match self.smoothed {
            0 => least_ns.saturating_mul(2),
            known => known.saturating_add(self.variation.saturating_mul(4)),
        };
        let once = once.clamp(least_ns, most_ns);
        once.saturating_mul(1_u64.wrapping_shl(tries.min(10))).min(most_ns)
    }

    /// Returns the smoothed round trip in ns, or 0 if none was measured.
    pub(crate) const fn smoothed(&self) -> u64 {
        self.smoothed
    }
}

/// Returns `old`, moved by 1/2^`shift` of the distance towards `new`.
const fn smooth(old: u64, new: u64, shift: u32) -> u64 {
    old.saturating_sub(old.wrapping_shr(shift)).saturating_add(new.wrapping_shr(shift))
}

/// The owner of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerOwner {
    /// Number of the endpoint.
    pub(crate) endpoint: u8,
    /// `None`: the connects of the endpoint.
    pub(crate) peer: Option<u32>,
}

/// The time at which a timer fires, if it is in the list. The owner keeps it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timer(Option<u64>);

/// The timers of a NIC in the order of time. An owner has at most one entry.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    list: BTreeSet<(u64, TimerOwner)>,
}

impl Timers {
    /// Arms a timer. A timer that fires earlier stays as it is.
    pub(crate) fn arm(&mut self, timer: &mut Timer, due: u64, owner: TimerOwner) {
        if timer.0.is_some_and(|set| set <= due) {
            return;
        }
        self.disarm(timer, owner);
        if due != u64::MAX {
            self.list.insert((due, owner));
            timer.0 = Some(due);
        }
    }

    /// Disarms a timer.
    pub(crate) fn disarm(&mut self, timer: &mut Timer, owner: TimerOwner) {
        if let Some(set) = timer.0.take() {
            self.list.remove(&(set, owner));
        }
    }

    /// Removes and returns an owner whose timer is due. The caller must call [`Timer::fired`] for
    /// it.
    pub(crate) fn next(&mut self, now: u64) -> Option<TimerOwner> {
        let (due, _) = *self.list.first()?;
        if due > now {
            return None;
        }
        self.list.pop_first().map(|(_, owner)| owner)
    }

    /// Returns the time of the earliest timer.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.list.first().map(|(due, _)| *due)
    }

    /// Returns the number of armed timers.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Timer {
    /// Records that the timer is no longer in the list.
    pub(crate) fn fired(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_round_trip_within_its_limits() {
        let mut trip = RoundTrip::new(WaitLimits { least_ns: 20_000, most_ns: 500_000 });
        assert_eq!(trip.wait(0), 40_000);
        trip.measured(100_000);
        assert_eq!(trip.wait(0), 300_000);
        (0..50).for_each(|_| trip.measured(2_000));
        assert_eq!(trip.wait(0), 20_000);
        assert_eq!((trip.wait(2), trip.wait(60)), (80_000, 500_000));
    }

    #[test]
    fn timer_list_has_one_entry_for_an_owner() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        let owner = TimerOwner { endpoint: 1, peer: Some(2) };
        timers.arm(&mut timer, 50, owner);
        timers.arm(&mut timer, 70, owner);
        assert_eq!((timers.len(), timers.deadline()), (1, Some(50)));
        timers.arm(&mut timer, 30, owner);
        assert_eq!((timers.len(), timers.next(29)), (1, None));
        assert_eq!(timers.next(30), Some(owner));
        timer.fired();
        timers.arm(&mut timer, 80, owner);
        timers.disarm(&mut timer, owner);
        assert_eq!((timers.len(), timers.deadline()), (0, None));
    }
}
