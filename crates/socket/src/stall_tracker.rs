//! Stall tracking: the time for which a sender stands still for each of its receivers. Free of I/O.
//!
//! A sender *stands still* for a receiver while its transmit ring is stopped because that receiver
//! has no room. Only this time counts, all of it, and per receiver: a receiver without traffic is
//! not late, and two receivers that are slow in turn are both found. Time in which the receiver
//! moves no index of any queue counts separately: its vCPUs may be paused, or wait for a processor.
//!
//! Each port has a [`StallTracker`] as a sender; `crate::stall` reports stops and resumes, calls
//! [`StallTracker::check`] every [`STALL_CHECK_NS`] (100 ms), and carries out the [`StallVerdict`],
//! in the thread of the shard: the tracker resets nothing. A running receiver must make progress
//! within [`STALL_WINDOW_NS`] (1 s) of standing still: [`STALL_BYTES_MIN`] (1 MiB),
//! [`STALL_PACKETS_MIN`] (64) packets or [`STALL_RETURNED_MIN`] (8) consumed packets. A sender
//! stands still for one receiver at a time; a receiver that is a host process is not tracked. A
//! check and a resume count at most two intervals, so a pause of the daemon is not held against a
//! receiver.

use crate::limits::{
    SILENT_NS_MAX, STALL_BYTES_MIN, STALL_CHECK_NS, STALL_PACKETS_MIN, STALL_RETURNED_MIN,
    STALL_WINDOW_NS,
};

/// Progress of a receiver since its port was added, and the position of its rings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiverProgress {
    /// Data bytes put in its receive buffers.
    pub bytes: u64,
    /// Data packets put in its receive buffers.
    pub packets: u64,
    /// Data packets that its credit declared as consumed.
    pub returned: u64,
    /// Sum of the driver's indices of all its queues, wrapping: it changes if the guest posts a
    /// chain.
    pub indices: u32,
}

impl ReceiverProgress {
    /// Returns whether the progress since `earlier` is sufficient.
    fn suffices(&self, earlier: &Self) -> bool {
        self.bytes.wrapping_sub(earlier.bytes) >= STALL_BYTES_MIN
            || self.packets.wrapping_sub(earlier.packets) >= STALL_PACKETS_MIN
            || self.returned.wrapping_sub(earlier.returned) >= STALL_RETURNED_MIN
    }
}

/// Verdict on a receiver for which a sender stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallVerdict {
    /// The sender continues to wait.
    Continue,
    /// The guest runs and received too little in [`STALL_WINDOW_NS`] (1 s) of standing still: the
    /// caller resets the connections on which the sender's data waits for it.
    Slow,
    /// The guest has not moved an index for [`SILENT_NS_MAX`] (10 s); the same consequence.
    Silent,
}

/// A sender's stalls by receiver, which `K` identifies. Few at a time.
#[derive(Debug)]
pub struct StallTracker<K> {
    /// Stalls, at most one per receiver.
    list: Vec<Stall<K>>,
    /// Receiver for which the sender stands still, and the start or last check of that time.
    stopped: Option<(K, u64)>,
}

/// A sender's account of one receiver.
#[derive(Debug)]
struct Stall<K> {
    /// The receiver.
    on: K,
    /// The receiver's progress at the start of this window.
    began: ReceiverProgress,
    /// Its indices at the last check.
    indices: u32,
    /// Time in this window for which the sender stood still while the receiver moved indices.
    waited_ns: u64,
    /// Time for which the sender stood still while the receiver moved none.
    silent_ns: u64,
}

impl<K> Stall<K> {
    /// Adds the time of standing still from `since` to `now_ns`, at most two intervals of checks: the
    /// receiver is not at fault for time in which this daemon did not run. `progress` is that at its
    /// end; sufficient progress starts a new window.
    fn account(&mut self, (since, now_ns): (u64, u64), progress: &ReceiverProgress) {
        let ns = now_ns.saturating_sub(since).min(2 * STALL_CHECK_NS);
        let time = if progress.indices == self.indices {
            &mut self.silent_ns
        } else {
            &mut self.waited_ns
        };
        *time = time.saturating_add(ns);
        self.indices = progress.indices;
        if progress.suffices(&self.began) {
            (self.began, self.waited_ns, self.silent_ns) = (*progress, 0, 0);
        }
    }

    /// Returns the verdict by the times so far.
    fn verdict(&self) -> StallVerdict {
        if self.waited_ns >= STALL_WINDOW_NS {
            StallVerdict::Slow
        } else if self.silent_ns >= SILENT_NS_MAX {
            StallVerdict::Silent
        } else {
            StallVerdict::Continue
        }
    }
}

impl<K> Default for StallTracker<K> {
    fn default() -> Self {
        Self { list: Vec::new(), stopped: None }
    }
}

impl<K: Copy + PartialEq> StallTracker<K> {
    /// Returns whether the sender stands still.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the receiver for which the sender stands still.
    #[inline]
    pub fn stopped_for(&self) -> Option<K> {
        self.stopped.map(|(on, _)| on)
    }

    /// Records that the sender stands still for `on`. Returns the time of the receiver's next
    /// check.
    pub fn stop(&mut self, now_ns: u64, on: K, progress: ReceiverProgress) -> u64 {
        if !self.is_stopped() {
            self.stopped = Some((on, now_ns));
            match self.list.iter_mut().find(|w| w.on == on) {
                // The time since the last stop does not count.
                Some(stall) => stall.indices = progress.indices,
                None => self.list.push(Stall {
                    on,
                    began: progress,
                    indices: progress.indices,
                    waited_ns: 0,
                    silent_ns: 0,
                }),
            }
        }
        self.due_ns().unwrap_or(now_ns)
    }

    /// Records that the sender resumes; returns false if it did not stand still. `progress` is the
    /// progress of the receiver for which it stood still.
    pub fn resume(&mut self, now_ns: u64, progress: &ReceiverProgress) -> bool {
        let Some((on, since)) = self.stopped.take() else { return false };
        if let Some(stall) = self.list.iter_mut().find(|w| w.on == on) {
            stall.account((since, now_ns), progress);
        }
        true
    }

    /// Returns the time of the next check.
    pub fn due_ns(&self) -> Option<u64> {
        self.stopped.map(|(_, since)| since.saturating_add(STALL_CHECK_NS))
    }

    /// Returns the receiver whose check is due at `now_ns`.
    pub fn due(&self, now_ns: u64) -> Option<K> {
        self.due_ns().filter(|&at| at <= now_ns)?;
        self.stopped_for()
    }

    /// Checks the receiver for which the sender stands still, whose progress is `progress`.
    pub fn check(&mut self, now_ns: u64, progress: &ReceiverProgress) -> StallVerdict {
        let Some((on, since)) = &mut self.stopped else { return StallVerdict::Continue };
        let Some(stall) = self.list.iter_mut().find(|w| w.on == *on) else {
            return StallVerdict::Continue;
        };
        stall.account((std::mem::replace(since, now_ns), now_ns), progress);
        stall.verdict()
    }

    /// Forgets a receiver; the sender resumes if it stood still for it.
    pub fn forget(&mut self, on: K) {
        self.list.retain(|w| w.on != on);
        self.stopped = self.stopped.filter(|(stopped, _)| *stopped != on);
    }

    /// Forgets all receivers: the sender has no queued data.
    pub fn clear(&mut self) {
        self.list.clear();
        self.stopped = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Progress of a running receiver with `packets` of `bytes` in total.
    fn progress(packets: u64, bytes: u64, indices: u32) -> ReceiverProgress {
        ReceiverProgress { bytes, packets, returned: 0, indices }
    }

    /// Stands still from 0 on and checks every 100 ms; `at(n)` is the progress at the nth check.
    /// Returns the first verdict other than waiting, and its time in milliseconds.
    fn first_verdict(at: impl Fn(u64) -> ReceiverProgress) -> Option<(StallVerdict, u64)> {
        let mut tracker = StallTracker::default();
        let mut due = tracker.stop(0, 'b', at(0));
        (1..=600).find_map(|n| {
            assert_eq!(tracker.due(due), Some('b'));
            let verdict = tracker.check(due, &at(n));
            let found = (verdict != StallVerdict::Continue).then_some((verdict, due / MS));
            due = tracker.due_ns().unwrap();
            found
        })
    }

    #[test]
    fn stall_running_receiver_without_progress_is_slow_after_the_window() {
        assert_eq!(
            first_verdict(|n| progress(n, 4096 * n, n as u32)),
            Some((StallVerdict::Slow, 1000))
        );
    }

    #[test]
    fn packets_bytes_and_returned_credit_each_are_progress() {
        assert_eq!(
            first_verdict(|n| progress(7 * n, 7 * n, n as u32)),
            None,
            "7 bytes in each look"
        );
        assert_eq!(first_verdict(|n| progress(n, n * STALL_BYTES_MIN / 9, n as u32)), None);
        let returned =
            |n| ReceiverProgress { returned: n, indices: n as u32, ..ReceiverProgress::default() };
        assert_eq!(first_verdict(returned), None);
    }

    #[test]
    fn stall_receiver_with_unmoved_indices_has_a_longer_limit() {
        let paused = first_verdict(|_| progress(1, 1, 7));
        assert_eq!(paused, Some((StallVerdict::Silent, SILENT_NS_MAX / MS)));
        // Paused for 3 s after 5 packets, then running.
        let back = |n: u64| {
            let n = if n < 5 { n } else { 5.max(n.saturating_sub(30)) };
            progress(8 * n, 8 * n, n as u32)
        };
        assert_eq!(first_verdict(back), None);
    }

    #[test]
    fn hostile_signs_of_life_do_not_buy_time_without_end() {
        // It moves an index now and then and receives nothing.
        for every in [2, 5, 10, 50] {
            let verdict = first_verdict(|n| progress(0, 0, (n / every) as u32));
            let (_, at) = verdict.unwrap();
            assert!(at <= (SILENT_NS_MAX + STALL_WINDOW_NS) / MS, "every {every}: {at} ms");
        }
    }

    #[test]
    fn stall_time_adds_up_over_short_stops() {
        let mut tracker = StallTracker::default();
        let mut now = 0;
        let mut slow = None;
        // 4 KiB every 90 ms, and the ring is full again at once.
        for drop in 0..20 {
            tracker.stop(now, 'c', progress(drop, drop * 4096, drop as u32));
            now += 90 * MS;
            assert!(tracker.resume(now, &progress(drop + 1, (drop + 1) * 4096, drop as u32 + 1)));
            tracker.stop(now, 'c', progress(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
            let verdict =
                tracker.check(now, &progress(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
            if verdict == StallVerdict::Slow {
                slow = Some(now / MS);
                break;
            }
            tracker.resume(now, &progress(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
        }
        assert_eq!(slow, Some(1080));
    }

    #[test]
    fn stall_time_without_a_stop_does_not_count() {
        let mut tracker = StallTracker::default();
        tracker.stop(0, 'b', progress(0, 0, 0));
        tracker.resume(MS, &progress(1, 1, 1));
        // A long time with little traffic; then the ring is full for a moment.
        let later = 3600 * 1000 * MS;
        tracker.stop(later, 'b', progress(2, 2, 2));
        assert_eq!(tracker.check(later + 100 * MS, &progress(2, 2, 3)), StallVerdict::Continue);
    }

    #[test]
    fn stall_time_in_which_the_daemon_did_not_run_does_not_count() {
        // The receiver made room soon, but the dispatcher runs after 5 s only.
        let mut tracker = StallTracker::default();
        tracker.stop(0, 'b', progress(0, 0, 0));
        assert!(tracker.resume(5000 * MS, &progress(1, 4096, 1)));
        tracker.stop(5000 * MS, 'b', progress(1, 4096, 1));
        let verdict = tracker.check(5100 * MS, &progress(1, 4096, 2));
        assert_eq!(verdict, StallVerdict::Continue);
    }

    #[test]
    fn stall_alternating_receivers_are_both_found() {
        let mut tracker = StallTracker::default();
        let mut now = 0;
        let first_verdict = (0..30_u64).find_map(|turn| {
            let on = if turn % 2 == 0 { 'c' } else { 'd' };
            tracker.stop(now, on, progress(turn, turn, turn as u32));
            now += 100 * MS;
            let verdict = tracker.check(now, &progress(turn, turn, turn as u32 + 1));
            tracker.resume(now, &progress(turn, turn, turn as u32 + 1));
            (verdict == StallVerdict::Slow).then_some(on)
        });
        assert_eq!(first_verdict, Some('c'));
        tracker.stop(now, 'c', ReceiverProgress::default());
        tracker.forget('c');
        assert!(!tracker.is_stopped());
    }
}
