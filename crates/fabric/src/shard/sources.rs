//! What a service has served like a queue, beside the queues: sockets of links, mailboxes.

use std::collections::BTreeMap;

use crate::bell::Bells;
use crate::pace::{Mode, Pace, Pacing};
use crate::service::{Progress, Served};

/// What is known of one.
#[derive(Debug, Default)]
struct Source {
    /// In the list of those to serve, or about to be.
    active: bool,
    worked_ns: u64,
    pace: Pace,
    /// Frames it gave; wraps.
    taken: u32,
}

/// All sources of a shard, by the service's values, which are few and used again.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    all: BTreeMap<u32, Source>,
    woken: Vec<u32>,
    pub(crate) bells: Bells,
    /// Somebody was told something who may wait for the processor.
    pub(crate) let_in: bool,
}

impl Sources {
    /// Puts a source on the list of those to serve.
    pub(crate) fn wake(&mut self, value: u32) {
        let source = self.all.entry(value).or_default();
        if !source.active {
            source.active = true;
            self.woken.push(value);
        }
    }

    /// One that was woken.
    pub(crate) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop()
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
        if served.count > 0 || served.progress == Progress::Worked {
            source.worked_ns = now_ns;
        }
    }

    /// Whether it is polled although it gives nothing.
    pub(crate) fn polled(&self, value: u32, pacing: &Pacing, now_ns: u64, spin_ns: u64) -> bool {
        self.all.get(&value).is_some_and(|source| {
            let idle = now_ns.saturating_sub(source.worked_ns);
            source.pace.mode(pacing) == Mode::VmmDriven && idle < spin_ns
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Policy;

    #[test]
    fn a_source_is_listed_once_and_polled_while_it_is_busy() {
        let mut sources = Sources::default();
        sources.wake(3);
        sources.wake(3);
        assert_eq!((sources.next_woken(), sources.next_woken()), (Some(3), None));
        sources.wake(3);
        assert_eq!(sources.next_woken(), None, "it is served already");
        let pacing = Pacing { policy: Policy::VmmDriven, ..Pacing::default() };
        sources.count(3, Served { progress: Progress::Worked, count: 1 }, &pacing, 1000);
        assert!(sources.polled(3, &pacing, 1500, 1000));
        assert!(!sources.polled(3, &pacing, 2000, 1000));
        sources.rest(3);
        sources.wake(3);
        assert_eq!(sources.next_woken(), Some(3));
    }
}
