//! How long a sender has stood still for each of its receivers. Free of I/O.
//!
//! Only the time in which the sender stands still counts, all of it, and for each receiver
//! apart: a receiver that was sent nothing for a while is not behind, and two that take turns
//! in being slow are both seen.

use crate::limits::{STALL_BYTES_MIN, STALL_WINDOW_NS};

/// A sender's waits for receivers, which are named by `K`. Few at a time.
#[derive(Debug)]
pub struct Waits<K> {
    list: Vec<Wait<K>>,
    /// For whom it stands still now, since when.
    stopped: Option<(K, u64)>,
}

#[derive(Debug)]
struct Wait<K> {
    on: K,
    /// What the receiver had taken when this window began, in bytes.
    taken: u64,
    /// How long the sender stood still for it in this window, up to the last stop.
    waited_ns: u64,
}

impl<K> Default for Waits<K> {
    fn default() -> Self {
        Self { list: Vec::new(), stopped: None }
    }
}

impl<K: Copy + PartialEq> Waits<K> {
    /// Whether the sender stands still.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The sender stands still for `on`, which has taken `taken` bytes so far; says when that is
    /// to be judged.
    pub fn stop(&mut self, now_ns: u64, on: K, taken: u64) -> u64 {
        if !self.is_stopped() {
            self.stopped = Some((on, now_ns));
            if !self.list.iter().any(|w| w.on == on) {
                self.list.push(Wait { on, taken, waited_ns: 0 });
            }
        }
        self.due_ns().unwrap_or(now_ns)
    }

    /// The sender goes on; `false` if it did not stand still.
    pub fn go_on(&mut self, now_ns: u64) -> bool {
        let Some((on, since)) = self.stopped.take() else { return false };
        if let Some(wait) = self.list.iter_mut().find(|w| w.on == on) {
            wait.waited_ns = wait.waited_ns.saturating_add(now_ns.saturating_sub(since));
        }
        true
    }

    /// When the receiver that the sender stands still for is to be judged.
    pub fn due_ns(&self) -> Option<u64> {
        let (on, since) = self.stopped?;
        let waited = self.list.iter().find(|w| w.on == on).map_or(0, |w| w.waited_ns);
        Some(since.saturating_add(STALL_WINDOW_NS.saturating_sub(waited)))
    }

    /// The receiver to be judged by `now_ns`, if there is one.
    pub fn due(&self, now_ns: u64) -> Option<K> {
        self.due_ns().filter(|&at| at <= now_ns)?;
        self.stopped.map(|(on, _)| on)
    }

    /// Judges `on`, which has taken `taken` bytes so far: whether it may be waited for on, for
    /// another window.
    pub fn judge(&mut self, now_ns: u64, on: K, taken: u64) -> bool {
        let Some(wait) = self.list.iter_mut().find(|w| w.on == on) else { return true };
        if taken.wrapping_sub(wait.taken) < STALL_BYTES_MIN {
            return false;
        }
        (wait.taken, wait.waited_ns) = (taken, 0);
        if let Some((_, since)) = &mut self.stopped {
            *since = now_ns;
        }
        true
    }

    /// Forgets one receiver; the sender goes on if it stood still for it.
    pub fn forget(&mut self, on: K) {
        self.list.retain(|w| w.on != on);
        self.stopped = self.stopped.filter(|(stopped, _)| *stopped != on);
    }

    /// Nothing of the sender waits any more.
    pub fn clear(&mut self) {
        self.list.clear();
        self.stopped = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn standing_still_adds_up_over_short_stops() {
        let mut waits = Waits::default();
        let mut now = 0;
        // A drip: 4 KiB every 100 ms, and at once it is full again.
        for drop in 0..10 {
            assert_eq!(waits.due(now), None);
            waits.stop(now, 'c', drop * 4096);
            now += 100 * MS;
            if drop < 9 {
                assert!(waits.go_on(now));
            }
        }
        assert_eq!(waits.due(now), Some('c'));
        assert!(!waits.judge(now, 'c', 10 * 4096));
    }

    #[test]
    fn time_without_a_stop_does_not_count() {
        let mut waits = Waits::default();
        waits.stop(0, 'b', 0);
        waits.go_on(MS);
        // A long time in which it was sent next to nothing; then it is full for a moment.
        let later = 3600 * 1000 * MS;
        waits.stop(later, 'b', 10);
        assert_eq!(waits.due(later + 998 * MS), None);
        assert_eq!(waits.due(later + 999 * MS), Some('b'));
    }

    #[test]
    fn receivers_that_take_turns_are_both_seen() {
        let mut waits = Waits::default();
        let mut now = 0;
        let judged = (0..10_u64).find_map(|turn| {
            let on = if turn % 2 == 0 { 'c' } else { 'd' };
            waits.stop(now, on, turn);
            now += 250 * MS;
            let due = waits.due(now);
            waits.go_on(now);
            due
        });
        assert_eq!(judged, Some('c'));
    }

    #[test]
    fn a_receiver_that_takes_enough_has_another_window() {
        let mut waits = Waits::default();
        assert_eq!(waits.stop(0, 'b', 5), STALL_WINDOW_NS);
        assert!(waits.judge(STALL_WINDOW_NS, 'b', 5 + STALL_BYTES_MIN));
        assert_eq!(waits.due_ns(), Some(2 * STALL_WINDOW_NS));
        waits.forget('b');
        assert!(!waits.is_stopped());
    }
}
