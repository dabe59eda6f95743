//! Sources of a shard: sockets of links and mailboxes, which are served like queues.
//!
//! The state here decides when a source is active, polled or awaited; the service reads it.

use std::collections::{BTreeMap, VecDeque};

use crate::bell::Bells;
use crate::limits::{SOON_NS, SOON_TIMES};
use crate::pace::{Pace, Pacing};
use crate::service::{Progress, Served};
use causeway_model::{PollMode, PollPolicy};

/// State of a source.
#[derive(Debug, Default)]
struct Source {
    /// The source is in the list of active sources, or about to be.
    active: bool,
    worked_ns: u64,
    pace: Pace,
    /// Frames that it yielded; wraps.
    taken: u32,
    /// Consecutive quick results, up to [`SOON_TIMES`].
    soon: u8,
}

/// The sources of a shard by the service's values, which are few and reused.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    all: BTreeMap<u32, Source>,
    woken: VecDeque<u32>,
    pub(crate) bells: Bells,
    /// A process was notified that may wait for the processor.
    pub(crate) let_in: bool,
    /// Spinning for sources is allowed.
    pub(crate) awaits: bool,
}

impl Sources {
    /// Schedules a source.
    pub(crate) fn wake(&mut self, value: u32) {
        let source = self.all.entry(value).or_default();
        if !source.active {
            source.active = true;
            self.woken.push_back(value);
        }
    }

    /// Removes the source that was woken first.
    pub(crate) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// Marks a source as no longer active.
    pub(crate) fn rest(&mut self, value: u32) {
        if let Some(source) = self.all.get_mut(&value) {
            source.active = false;
        }
    }

    /// Counts the result of serving a source.
    pub(crate) fn count(&mut self, value: u32, served: Served, pacing: &Pacing, now_ns: u64) {
        let Some(source) = self.all.get_mut(&value) else { return };
        source.taken = source.taken.wrapping_add(served.count);
        source.pace.judge(pacing, now_ns, source.taken);
        // The clock is read once for many turns: results at the same time are one arrival.
        if served.count > 0 && now_ns != source.worked_ns {
            let soon = now_ns.saturating_sub(source.worked_ns) <= SOON_NS;
            source.soon = if soon { source.soon.saturating_add(1).min(SOON_TIMES) } else { 0 };
        }
        if served.count > 0 || served.progress == Progress::Worked {
            source.worked_ns = now_ns;
        }
    }

    /// Returns whether an empty source is still polled.
    pub(crate) fn polled(&self, value: u32, pacing: &Pacing, now_ns: u64, spin_ns: u64) -> bool {
        self.all.get(&value).is_some_and(|source| {
            let idle = now_ns.saturating_sub(source.worked_ns);
            source.pace.mode(pacing) == PollMode::VmmDriven && idle < spin_ns
        })
    }

    /// Returns whether the source yielded frames just now, and the last times in quick succession,
    /// as in request and response traffic.
    pub(crate) fn awaited(&self, value: u32, pacing: &Pacing, now_ns: u64) -> bool {
        self.all.get(&value).is_some_and(|source| {
            self.awaits
                && pacing.policy != PollPolicy::GuestDriven
                && source.soon >= SOON_TIMES
                && now_ns.saturating_sub(source.worked_ns) < SOON_NS.min(pacing.spin_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_answers_soon_is_waited_for_and_no_other() {
        let (mut sources, pacing) = (Sources::default(), Pacing::default());
        sources.awaits = true;
        sources.wake(3);
        let one = Served { progress: Progress::Worked, count: 1 };
        let mut now = 10 * SOON_NS;
        sources.count(3, one, &pacing, now);
        for _ in 0..SOON_TIMES {
            assert!(!sources.awaited(3, &pacing, now), "it may be chance");
            now += SOON_NS;
            sources.count(3, one, &pacing, now);
        }
        assert!(sources.awaited(3, &pacing, now + SOON_NS - 1));
        assert!(!sources.awaited(3, &pacing, now + SOON_NS), "nothing came");
        let mut at_once = Sources { awaits: true, ..Sources::default() };
        at_once.wake(4);
        for _ in 0..=2 * SOON_TIMES {
            at_once.count(4, one, &pacing, now);
        }
        assert!(!at_once.awaited(4, &pacing, now), "it is one arrival");
        sources.awaits = false;
        assert!(!sources.awaited(3, &pacing, now), "others have work for the processor");
        sources.awaits = true;
        for policy in [PollPolicy::GuestDriven, PollPolicy::VmmDriven] {
            let waits = sources.awaited(3, &Pacing { policy, ..pacing }, now + 1);
            assert_eq!(waits, policy == PollPolicy::VmmDriven, "{policy:?}");
        }
        assert!(!sources.awaited(3, &Pacing { spin_ns: 0, ..pacing }, now), "nothing is");
        now += SOON_NS + 1;
        sources.count(3, one, &pacing, now);
        assert!(!sources.awaited(3, &pacing, now), "it took long");
    }

    #[test]
    fn a_source_is_listed_once_and_polled_while_it_is_busy() {
        let mut sources = Sources::default();
        sources.wake(3);
        sources.wake(3);
        assert_eq!((sources.next_woken(), sources.next_woken()), (Some(3), None));
        sources.wake(3);
        assert_eq!(sources.next_woken(), None, "it is served already");
        let pacing = Pacing { policy: PollPolicy::VmmDriven, ..Pacing::default() };
        sources.count(3, Served { progress: Progress::Worked, count: 1 }, &pacing, 1000);
        assert!(sources.polled(3, &pacing, 1500, 1000));
        assert!(!sources.polled(3, &pacing, 2000, 1000));
        sources.rest(3);
        sources.wake(3);
        sources.wake(2);
        let woken = [sources.next_woken(), sources.next_woken()];
        assert_eq!(woken, [Some(3), Some(2)], "in turn");
    }
}
