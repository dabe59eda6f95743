//! How long to wait, and who is to be called when.

use std::collections::BTreeSet;

/// The round trip to a peer, estimated (as in RFC 6298), in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    smoothed: u64,
    variation: u64,
    least: u64,
    most: u64,
}

impl RoundTrip {
    /// Nothing is known yet; waits are between these.
    pub(crate) const fn new((least, most): (u64, u64)) -> Self {
        Self { smoothed: 0, variation: 0, least, most }
    }

    /// One was measured.
    pub(crate) fn measured(&mut self, ns: u64) {
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (ns.max(1), ns.wrapping_shr(1));
            return;
        }
        let off = self.smoothed.abs_diff(ns);
        self.variation = mix(self.variation, off, 2);
        self.smoothed = mix(self.smoothed, ns, 3).max(1);
    }

    /// How long to wait for an answer, the `tries`th time (from 0).
    pub(crate) fn wait(&self, tries: u32) -> u64 {
        let once = match self.smoothed {
            0 => self.least.saturating_mul(2),
            known => known.saturating_add(self.variation.saturating_mul(4)),
        };
        let once = once.clamp(self.least, self.most);
        once.saturating_mul(1_u64.wrapping_shl(tries.min(10))).min(self.most)
    }

    /// What was measured, smoothed, in ns; 0 when nothing was.
    pub(crate) const fn smoothed(&self) -> u64 {
        self.smoothed
    }
}

/// `old` and one `2^shift`th of how far `new` is from it.
const fn mix(old: u64, new: u64, shift: u32) -> u64 {
    old.saturating_sub(old.wrapping_shr(shift)).saturating_add(new.wrapping_shr(shift))
}

/// Whose timer it is: an endpoint's connects, or a peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) endpoint: u8,
    /// None: the connects.
    pub(crate) peer: Option<u32>,
}

/// When its owner is called, as far as the list knows: each owner stands in it at most once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alarm(Option<u64>);

/// All alarms, the next one first.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    list: BTreeSet<(u64, Owner)>,
}

impl Alarms {
    /// Calls the owner at `due` or before.
    pub(crate) fn arm(&mut self, alarm: &mut Alarm, due: u64, owner: Owner) {
        if alarm.0.is_some_and(|set| set <= due) {
            return;
        }
        self.disarm(alarm, owner);
        if due != u64::MAX {
            self.list.insert((due, owner));
            alarm.0 = Some(due);
        }
    }

    /// Does not call the owner.
    pub(crate) fn disarm(&mut self, alarm: &mut Alarm, owner: Owner) {
        if let Some(set) = alarm.0.take() {
            self.list.remove(&(set, owner));
        }
    }

    /// The next owner that is due. It was taken out: its [`Alarm`] is to be [cleared](Alarm::rang).
    pub(crate) fn next(&mut self, now: u64) -> Option<Owner> {
        let (due, _) = *self.list.first()?;
        if due > now {
            return None;
        }
        self.list.pop_first().map(|(_, owner)| owner)
    }

    /// When the next one is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.list.first().map(|(due, _)| *due)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Alarm {
    /// Its owner was called.
    pub(crate) fn rang(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_follow_the_round_trip_within_their_bounds() {
        let mut trip = RoundTrip::new((20_000, 500_000));
        assert_eq!(trip.wait(0), 40_000);
        trip.measured(100_000);
        assert_eq!(trip.wait(0), 300_000);
        (0..50).for_each(|_| trip.measured(2_000));
        assert_eq!(trip.wait(0), 20_000);
        assert_eq!((trip.wait(2), trip.wait(60)), (80_000, 500_000));
    }

    #[test]
    fn an_owner_stands_in_the_list_once() {
        let (mut alarms, mut alarm) = (Alarms::default(), Alarm::default());
        let owner = Owner { endpoint: 1, peer: Some(2) };
        alarms.arm(&mut alarm, 50, owner);
        alarms.arm(&mut alarm, 70, owner);
        assert_eq!((alarms.len(), alarms.deadline()), (1, Some(50)));
        alarms.arm(&mut alarm, 30, owner);
        assert_eq!((alarms.len(), alarms.next(29)), (1, None));
        assert_eq!(alarms.next(30), Some(owner));
        alarm.rang();
        alarms.arm(&mut alarm, 80, owner);
        alarms.disarm(&mut alarm, owner);
        assert_eq!((alarms.len(), alarms.deadline()), (0, None));
    }
}
