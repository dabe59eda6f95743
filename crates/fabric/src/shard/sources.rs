//! Sources of a shard: sockets, eventfds and mailboxes of its service, which are served like
//! queues.
//!
//! A source is known by a `u32` that the service chose
//! ([`Context::watch_source`](crate::Context::watch_source)). The module keeps for each source
//! whether it is active, its dispatch mode by the rate of its frames, and whether its frames come
//! in quick succession. The shard moves woken sources to its active list. The service asks whether
//! to poll an empty source or to arm it: a source is *polled* for the idle spin while its mode is
//! VMM-driven; it is *awaited*, also while processors are scarce, after [`QUICK_RESULTS`] (4)
//! results in a row that each came within [`QUICK_NS`] (500 us) of the last, and for as long after
//! the last (at most the configured idle spin), unless the mode is fixed as guest-driven or a long
//! yield showed in the last 100 ms that other threads need the processor.
//!
//! [`super`] wakes, counts and parks sources; `Context` passes the questions of the service on. All
//! of it runs in the dispatcher's thread. A source becomes known at its first wake and is never
//! forgotten: services reuse their few numbers. The module reads no socket and owns no file
//! descriptor.

use std::collections::VecDeque;

use crate::dense_map::DenseMap;
use crate::dispatch_mode::{PollConfig, QueueMode};
use crate::limits::{QUICK_NS, QUICK_RESULTS};
use crate::progress::{Progress, SourceProgress};
use crate::source_doorbell::SourceDoorbells;
use causeway_model::{PollMode, PollPolicy};

/// State of a source.
#[derive(Debug, Default)]
struct Source {
    /// The source is in the list of active sources, or about to be.
    is_active: bool,
    /// Time of its last work.
    worked_ns: u64,
    /// Dispatch mode by the rate of its frames.
    queue_mode: QueueMode,
    /// Frames that it yielded; wraps.
    taken: u32,
    /// Consecutive quick results, up to [`QUICK_RESULTS`] (4).
    quick_results: u8,
}

/// The sources of a shard by the service's values, which are few and reused.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    all: DenseMap<u32, Source>,
    /// Woken sources that are not yet in the active list of the shard.
    woken: VecDeque<u32>,
    /// Doorbells of the shard's mailboxes.
    pub(crate) doorbells: SourceDoorbells,
    /// A process was notified that may wait for the processor.
    pub(crate) has_notified: bool,
    /// Spinning for awaited sources is allowed: no other thread contends for the processor.
    pub(crate) may_await: bool,
}

impl Sources {
    /// Schedules a source; no effect if it is active already.
    pub(crate) fn wake(&mut self, value: u32) {
        let source = self.all.get_or_default(value);
        if !source.is_active {
            source.is_active = true;
            self.woken.push_back(value);
        }
    }

    /// Removes and returns the source that was woken first.
    pub(crate) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// Marks a source as no longer active.
    pub(crate) fn park(&mut self, value: u32) {
        if let Some(source) = self.all.get_mut(&value) {
            source.is_active = false;
        }
    }

    /// Counts the result of serving a source.
    pub(crate) fn count(
        &mut self,
        value: u32,
        served: SourceProgress,
        poll_config: &PollConfig,
        now_ns: u64,
    ) {
        let Some(source) = self.all.get_mut(&value) else { return };
        source.taken = source.taken.wrapping_add(served.count);
        source.queue_mode.update(poll_config, now_ns, source.taken);
        // The clock is read once for many turns: results at the same time are one arrival.
        if served.count > 0 && now_ns != source.worked_ns {
            let quick_results = now_ns.saturating_sub(source.worked_ns) <= QUICK_NS;
            source.quick_results = if quick_results {
                source.quick_results.saturating_add(1).min(QUICK_RESULTS)
            } else {
                0
            };
        }
        if served.count > 0 || served.progress == Progress::Worked {
            source.worked_ns = now_ns;
        }
    }

    /// Returns whether an empty source is still polled: it is VMM-driven, and its last work is less
    /// than `spin_ns` ago.
    pub(crate) fn is_polled(
        &self,
        value: u32,
        poll_config: &PollConfig,
        now_ns: u64,
        spin_ns: u64,
    ) -> bool {
        self.all.get(&value).is_some_and(|source| {
            let idle = now_ns.saturating_sub(source.worked_ns);
            source.queue_mode.mode(poll_config) == PollMode::VmmDriven && idle < spin_ns
        })
    }

    /// Returns whether the source yielded frames just now, and the last times in quick succession,
    /// as in request and response traffic.
    pub(crate) fn is_awaited(&self, value: u32, poll_config: &PollConfig, now_ns: u64) -> bool {
        self.all.get(&value).is_some_and(|source| {
            self.may_await
                && poll_config.policy != PollPolicy::GuestDriven
                && source.quick_results >= QUICK_RESULTS
                && now_ns.saturating_sub(source.worked_ns) < QUICK_NS.min(poll_config.spin_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_with_quick_results_is_awaited() {
        let (mut sources, poll_config) = (Sources::default(), PollConfig::default());
        sources.may_await = true;
        sources.wake(3);
        let one = SourceProgress { progress: Progress::Worked, count: 1 };
        let mut now = 10 * QUICK_NS;
        sources.count(3, one, &poll_config, now);
        for _ in 0..QUICK_RESULTS {
            assert!(!sources.is_awaited(3, &poll_config, now), "it may be chance");
            now += QUICK_NS;
            sources.count(3, one, &poll_config, now);
        }
        assert!(sources.is_awaited(3, &poll_config, now + QUICK_NS - 1));
        assert!(!sources.is_awaited(3, &poll_config, now + QUICK_NS), "nothing came");
        let mut at_once = Sources { may_await: true, ..Sources::default() };
        at_once.wake(4);
        for _ in 0..=2 * QUICK_RESULTS {
            at_once.count(4, one, &poll_config, now);
        }
        assert!(!at_once.is_awaited(4, &poll_config, now), "it is one arrival");
        sources.may_await = false;
        assert!(!sources.is_awaited(3, &poll_config, now), "others have work for the processor");
        sources.may_await = true;
        for policy in [PollPolicy::GuestDriven, PollPolicy::VmmDriven] {
            let waits = sources.is_awaited(3, &PollConfig { policy, ..poll_config }, now + 1);
            assert_eq!(waits, policy == PollPolicy::VmmDriven, "{policy:?}");
        }
        assert!(
            !sources.is_awaited(3, &PollConfig { spin_ns: 0, ..poll_config }, now),
            "nothing is"
        );
        now += QUICK_NS + 1;
        sources.count(3, one, &poll_config, now);
        assert!(!sources.is_awaited(3, &poll_config, now), "it took long");
    }

    #[test]
    fn source_is_listed_once_and_polled_while_busy() {
        let mut sources = Sources::default();
        sources.wake(3);
        sources.wake(3);
        assert_eq!((sources.next_woken(), sources.next_woken()), (Some(3), None));
        sources.wake(3);
        assert_eq!(sources.next_woken(), None, "it is served already");
        let poll_config = PollConfig { policy: PollPolicy::VmmDriven, ..PollConfig::default() };
        sources.count(
            3,
            SourceProgress { progress: Progress::Worked, count: 1 },
            &poll_config,
            1000,
        );
        assert!(sources.is_polled(3, &poll_config, 1500, 1000));
        assert!(!sources.is_polled(3, &poll_config, 2000, 1000));
        sources.park(3);
        sources.wake(3);
        sources.wake(2);
        let woken = [sources.next_woken(), sources.next_woken()];
        assert_eq!(woken, [Some(3), Some(2)], "in turn");
    }
}
