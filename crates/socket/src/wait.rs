//! Stall tracking: the time for which a sender stands still for each of its receivers. Free of I/O.
//!
//! Only time in which the sender stands still counts, all of it, and per receiver: a receiver
//! without traffic is not late, and two receivers that are slow in turn are both found. Time in
//! which the receiver moves no index of any queue counts separately: its vCPUs may be paused, or
//! wait for a processor.

use crate::limits::{
    SILENT_NS_MAX, STALL_BYTES_MIN, STALL_LOOK_NS, STALL_PACKETS_MIN, STALL_RETURNED_MIN,
    STALL_WINDOW_NS,
};

/// Progress of a receiver since its port was added, and the position of its rings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// Data bytes put in its receive buffers.
    pub bytes: u64,
    /// Data packets put in its receive buffers.
    pub packets: u64,
    /// Data packets whose bytes its credit declared as consumed.
    pub returned: u64,
    /// Sum of the driver's indices of all its queues, wrapping: it changes if the guest posts a
    /// chain.
    pub indices: u32,
}

impl Pace {
    /// Returns whether the progress since `earlier` is sufficient.
    fn suffices(&self, earlier: &Self) -> bool {
        self.bytes.wrapping_sub(earlier.bytes) >= STALL_BYTES_MIN
            || self.packets.wrapping_sub(earlier.packets) >= STALL_PACKETS_MIN
            || self.returned.wrapping_sub(earlier.returned) >= STALL_RETURNED_MIN
    }
}

/// Verdict on a receiver for which a sender stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sender continues to wait.
    Wait,
    /// The guest runs and receives too little.
    Slow,
    /// The guest has not moved an index for [`SILENT_NS_MAX`].
    Silent,
}

/// A sender's stalls by receiver, which `K` identifies. Few at a time.
#[derive(Debug)]
pub struct Waits<K> {
    list: Vec<Wait<K>>,
    /// Receiver for which the sender stands still, and the start or last check of that time.
    stopped: Option<(K, u64)>,
}

#[derive(Debug)]
struct Wait<K> {
    on: K,
    /// The receiver's progress at the start of this window.
    began: Pace,
    /// Its indices at the last check.
    indices: u32,
    /// Time in this window for which the sender stood still while the receiver moved indices.
    waited_ns: u64,
    /// Time for which the sender stood still while the receiver moved none.
    silent_ns: u64,
}

impl<K> Wait<K> {
    /// Adds `ns` of standing still that end at `pace`. Sufficient progress starts a new window.
    fn account(&mut self, ns: u64, pace: &Pace) {
        let time =
            if pace.indices == self.indices { &mut self.silent_ns } else { &mut self.waited_ns };
        *time = time.saturating_add(ns);
        self.indices = pace.indices;
        if pace.suffices(&self.began) {
            (self.began, self.waited_ns, self.silent_ns) = (*pace, 0, 0);
        }
    }

    fn verdict(&self) -> Verdict {
        if self.waited_ns >= STALL_WINDOW_NS {
            Verdict::Slow
        } else if self.silent_ns >= SILENT_NS_MAX {
            Verdict::Silent
        } else {
            Verdict::Wait
        }
    }
}

impl<K> Default for Waits<K> {
    fn default() -> Self {
        Self { list: Vec::new(), stopped: None }
    }
}

impl<K: Copy + PartialEq> Waits<K> {
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
    pub fn stop(&mut self, now_ns: u64, on: K, pace: Pace) -> u64 {
        if !self.is_stopped() {
            self.stopped = Some((on, now_ns));
            match self.list.iter_mut().find(|w| w.on == on) {
                // The time since the last stop does not count.
                Some(wait) => wait.indices = pace.indices,
                None => self.list.push(Wait {
                    on,
                    began: pace,
                    indices: pace.indices,
                    waited_ns: 0,
                    silent_ns: 0,
                }),
            }
        }
        self.due_ns().unwrap_or(now_ns)
    }

    /// Records that the sender resumes; returns false if it did not stand still. `pace` is the
    /// progress of the receiver for which it stood still.
    pub fn go_on(&mut self, now_ns: u64, pace: &Pace) -> bool {
        let Some((on, since)) = self.stopped.take() else { return false };
        if let Some(wait) = self.list.iter_mut().find(|w| w.on == on) {
            wait.account(now_ns.saturating_sub(since), pace);
        }
        true
    }

    /// Returns the time of the next check.
    pub fn due_ns(&self) -> Option<u64> {
        self.stopped.map(|(_, since)| since.saturating_add(STALL_LOOK_NS))
    }

    /// Returns the receiver whose check is due at `now_ns`.
    pub fn due(&self, now_ns: u64) -> Option<K> {
        self.due_ns().filter(|&at| at <= now_ns)?;
        self.stopped_for()
    }

    /// Checks the receiver for which the sender stands still, whose progress is `pace`.
    pub fn look(&mut self, now_ns: u64, pace: &Pace) -> Verdict {
        let Some((on, since)) = &mut self.stopped else { return Verdict::Wait };
        let Some(wait) = self.list.iter_mut().find(|w| w.on == *on) else { return Verdict::Wait };
        // The receiver is not at fault for time in which this daemon did not run.
        let passed = now_ns.saturating_sub(*since).min(2 * STALL_LOOK_NS);
        *since = now_ns;
        wait.account(passed, pace);
        wait.verdict()
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
    fn pace(packets: u64, bytes: u64, indices: u32) -> Pace {
        Pace { bytes, packets, returned: 0, indices }
    }

    /// Stands still from 0 on and checks every 100 ms; `at(n)` is the progress at the nth check.
    /// Returns the first verdict other than waiting, and its time in milliseconds.
    fn judged(at: impl Fn(u64) -> Pace) -> Option<(Verdict, u64)> {
        let mut waits = Waits::default();
        let mut due = waits.stop(0, 'b', at(0));
        (1..=600).find_map(|n| {
            assert_eq!(waits.due(due), Some('b'));
            let verdict = waits.look(due, &at(n));
            let found = (verdict != Verdict::Wait).then_some((verdict, due / MS));
            due = waits.due_ns().unwrap();
            found
        })
    }

    #[test]
    fn stall_running_receiver_without_progress_is_slow_after_the_window() {
        assert_eq!(judged(|n| pace(n, 4096 * n, n as u32)), Some((Verdict::Slow, 1000)));
    }

    #[test]
    fn packets_bytes_and_returned_credit_each_are_progress() {
        assert_eq!(judged(|n| pace(7 * n, 7 * n, n as u32)), None, "7 bytes in each look");
        assert_eq!(judged(|n| pace(n, n * STALL_BYTES_MIN / 9, n as u32)), None);
        let returned = |n| Pace { returned: n, indices: n as u32, ..Pace::default() };
        assert_eq!(judged(returned), None);
    }

    #[test]
    fn stall_receiver_with_unmoved_indices_has_a_longer_limit() {
        let paused = judged(|_| pace(1, 1, 7));
        assert_eq!(paused, Some((Verdict::Silent, SILENT_NS_MAX / MS)));
        // Paused for 3 s after 5 packets, then running.
        let back = |n: u64| {
            let n = if n < 5 { n } else { 5.max(n.saturating_sub(30)) };
            pace(8 * n, 8 * n, n as u32)
        };
        assert_eq!(judged(back), None);
    }

    #[test]
    fn hostile_signs_of_life_do_not_buy_time_without_end() {
        // It moves an index now and then and receives nothing.
        for every in [2, 5, 10, 50] {
            let verdict = judged(|n| pace(0, 0, (n / every) as u32));
            let (_, at) = verdict.unwrap();
            assert!(at <= (SILENT_NS_MAX + STALL_WINDOW_NS) / MS, "every {every}: {at} ms");
        }
    }

    #[test]
    fn stall_time_adds_up_over_short_stops() {
        let mut waits = Waits::default();
        let mut now = 0;
        let mut slow = None;
        // 4 KiB every 90 ms, and the ring is full again at once.
        for drop in 0..20 {
            waits.stop(now, 'c', pace(drop, drop * 4096, drop as u32));
            now += 90 * MS;
            assert!(waits.go_on(now, &pace(drop + 1, (drop + 1) * 4096, drop as u32 + 1)));
            waits.stop(now, 'c', pace(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
            let verdict = waits.look(now, &pace(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
            if verdict == Verdict::Slow {
                slow = Some(now / MS);
                break;
            }
            waits.go_on(now, &pace(drop + 1, (drop + 1) * 4096, drop as u32 + 1));
        }
        assert_eq!(slow, Some(1080));
    }

    #[test]
    fn stall_time_without_a_stop_does_not_count() {
        let mut waits = Waits::default();
        waits.stop(0, 'b', pace(0, 0, 0));
        waits.go_on(MS, &pace(1, 1, 1));
        // A long time with little traffic; then the ring is full for a moment.
        let later = 3600 * 1000 * MS;
        waits.stop(later, 'b', pace(2, 2, 2));
        assert_eq!(waits.look(later + 100 * MS, &pace(2, 2, 3)), Verdict::Wait);
    }

    #[test]
    fn stall_alternating_receivers_are_both_found() {
        let mut waits = Waits::default();
        let mut now = 0;
        let judged = (0..30_u64).find_map(|turn| {
            let on = if turn % 2 == 0 { 'c' } else { 'd' };
            waits.stop(now, on, pace(turn, turn, turn as u32));
            now += 100 * MS;
            let verdict = waits.look(now, &pace(turn, turn, turn as u32 + 1));
            waits.go_on(now, &pace(turn, turn, turn as u32 + 1));
            (verdict == Verdict::Slow).then_some(on)
        });
        assert_eq!(judged, Some('c'));
        waits.stop(now, 'c', Pace::default());
        waits.forget('c');
        assert!(!waits.is_stopped());
    }
}
