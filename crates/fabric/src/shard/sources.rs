//! What a service has served like a queue, beside the queues: sockets of links, mailboxes.

use std::collections::{BTreeMap, VecDeque};

use crate::bell::Bells;
use crate::limits::{SOON_NS, SOON_TIMES};
use crate::pace::{Pace, Pacing};
use crate::service::{Progress, Served};
use causeway_model::{PollMode, PollPolicy};

/// What is known of one.
#[derive(Debug, Default)]
struct Source {
    /// In the list of those to serve, or about to be.
    active: bool,
    worked_ns: u64,
    pace: Pace,
    /// Frames it gave; wraps.
    taken: u32,
    /// How often in a row it gave something soon after it had, as far as that matters.
    soon: u8,
}

/// All sources of a shard, by the service's values, which are few and used again.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    all: BTreeMap<u32, Source>,
    woken: VecDeque<u32>,
    pub(crate) bells: Bells,
    /// Somebody was told something who may wait for the processor.
    pub(crate) let_in: bool,
    /// Whether any may be awaited.
    pub(crate) awaits: bool,
}

impl Sources {
    /// Puts a source on the list of those to serve.
    pub(crate) fn wake(&mut self, value: u32) {
        let source = self.all.entry(value).or_default();
        if !source.active {
            source.active = true;
            self.woken.push_back(value);
        }
    }

    /// Who was woken first.
    pub(crate) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// It is no longer on the list.
    pub(crate) fn rest(&mut self, value: u32) {
        if let Some(source) = self.all.get_mut(&value) {
            source.active = false;
        }
    }

    /// Counts what it gave.
    pub(crate) fn count(&mut self, value: u32, served: Served, pacing: &Pacing, now_ns: u64) {
        let Some(source) = self.all.get_mut(&value) else { return };
        source.taken = source.taken.wrapping_add(served.count);
        source.pace.judge(pacing, now_ns, source.taken);
        // The clock is read once for many turns: what they give is one arrival.
        if served.count > 0 && now_ns != source.worked_ns {
            let soon = now_ns.saturating_sub(source.worked_ns) <= SOON_NS;
            source.soon = if soon { source.soon.saturating_add(1).min(SOON_TIMES) } else { 0 };
        }
        if served.count > 0 || served.progress == Progress::Worked {
            source.worked_ns = now_ns;
        }
    }

    /// Whether it is polled although it gives nothing.
    pub(crate) fn polled(&self, value: u32, pacing: &Pacing, now_ns: u64, spin_ns: u64) -> bool {
        self.all.get(&value).is_some_and(|source| {
            let idle = now_ns.saturating_sub(source.worked_ns);
            source.pace.mode(pacing) == PollMode::VmmDriven && idle < spin_ns
        })
    }

    /// Whether it gave something just now, and the last times soon after that again: as in talks
    /// of question and answer.
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
