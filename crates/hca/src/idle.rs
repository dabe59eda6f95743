//! The poll schedule of an idle adapter.
//!
//! A guest posts work by stores to its own memory, which raise no event in the daemon. So an idle
//! adapter is polled at falling rates: [`FIRST_PAUSE_NS`] (20 us) after the idle spin, then after
//! pauses that double up to the port's `idle_poll_us` (never longer; 20 us is lowered to it too).
//! The first message after a pause waits for at most the last pause, unless the shard's turns are
//! late, and the price of an idle adapter is one poll in each. Work ends the pauses: the next idle
//! time begins with the shortest. A command doorbell, and a completion that the work of another
//! adapter causes, end a pause at once; an adapter without queues has no pauses.
//!
//! | pause | polls of an idle adapter a second |
//! |---|---|
//! | 100 us | 10,000 |
//! | 2 ms (default) | 500 |
//! | 20 ms | 50 |
//!
//! An adapter with pauses of full length is watched instead of polled, if it can be
//! ([`crate::idle_watches`]); the pauses then have no end of their own.
//!
//! The module keeps times only: `crate::call`, in the dispatcher's thread, polls the adapter,
//! reports the result ([`IdleSchedule::stop`], [`IdleSchedule::pause`]), and sets the deadline of
//! the pause.

use crate::limits::FIRST_PAUSE_NS;

/// The poll schedule of one adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleSchedule {
    /// Longest pause, in nanoseconds.
    longest_ns: u64,
    /// Length of the present pause, in nanoseconds.
    pause_ns: u64,
    /// End of the present pause; `None` while the adapter is polled in every turn, watched, or not
    /// polled at all.
    ends_ns: Option<u64>,
}

impl IdleSchedule {
    /// Returns a schedule without a pause.
    pub(crate) fn new(longest_us: u32) -> Self {
        let longest_ns = u64::from(longest_us).saturating_mul(1000);
        Self { longest_ns, pause_ns: 0, ends_ns: None }
    }

    /// Ends the pause: the adapter is polled in every turn, or not at all.
    pub(crate) fn stop(&mut self) {
        (self.pause_ns, self.ends_ns) = (0, None);
    }

    /// Begins a pause: the first, or one twice as long as the last.
    pub(crate) fn pause(&mut self, now_ns: u64) {
        let doubled = self.pause_ns.saturating_mul(2).max(FIRST_PAUSE_NS);
        self.pause_ns = doubled.min(self.longest_ns);
        self.ends_ns = Some(now_ns.saturating_add(self.pause_ns));
    }

    /// Leaves the present pause without an end: the adapter is watched.
    pub(crate) fn watch(&mut self) {
        self.ends_ns = None;
    }

    /// Returns the length of the present pause, in nanoseconds, if it is the longest.
    pub(crate) fn longest_ns(&self) -> Option<u64> {
        (self.pause_ns == self.longest_ns).then_some(self.longest_ns)
    }

    /// Begins a pause as [`Self::pause`] does, which ends at `until_ns` at the latest.
    pub(crate) fn pause_until(&mut self, now_ns: u64, until_ns: u64) {
        self.pause(now_ns);
        self.ends_ns = self.ends_ns.map(|ends_ns| ends_ns.min(until_ns));
    }

    /// Returns the end of the present pause, in nanoseconds.
    pub(crate) fn ends_ns(&self) -> Option<u64> {
        self.ends_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_pauses_double_up_to_the_longest() {
        let mut schedule = IdleSchedule::new(100);
        let (mut now, mut pauses) = (1_000_000, Vec::new());
        for _ in 0..5 {
            schedule.pause(now);
            let end = schedule.ends_ns().unwrap();
            pauses.push(end - now);
            now = end;
        }
        assert_eq!(pauses, [20_000, 40_000, 80_000, 100_000, 100_000]);
        schedule.stop();
        assert_eq!(schedule.ends_ns(), None);
        schedule.pause(now);
        assert_eq!(schedule.ends_ns(), Some(now + FIRST_PAUSE_NS), "work starts over");
    }

    #[test]
    fn idle_pause_is_never_longer_than_configured() {
        let mut schedule = IdleSchedule::new(10);
        schedule.pause(0);
        assert_eq!(schedule.ends_ns(), Some(10_000));
    }
}
