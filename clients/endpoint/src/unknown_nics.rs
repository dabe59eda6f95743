//! Unknown NICs: senders of frames that this process does not know, to be asked about.
//!
//! At most [`UNKNOWN_NICS_MAX`] (16) NICs are recorded in [`UNKNOWN_NICS_NS`] (1 ms), each once, so
//! a flood of forged addresses leads to a bounded number of questions. A NIC beyond the limit is
//! not recorded; its next frame tries again. The frames themselves are dropped in any case; their
//! senders repeat them.
//!
//! The queue sends nothing and stores no answers. The NIC side in the process (`bypass`) records
//! the sender of a dropped frame; `Paths` takes one NIC per poll and asks the daemon; a positive
//! answer goes to `Bypass::add_known_nic`. After a negative answer, or none, the next frame of the
//! NIC asks again. All run in the thread that holds the lock of the endpoint.

use std::collections::VecDeque;

use causeway_message::split::NicId;

use crate::limits::{UNKNOWN_NICS_MAX, UNKNOWN_NICS_NS};

/// Queue of unknown NICs.
#[derive(Debug, Default)]
pub struct UnknownNics {
    /// To be asked about; at most [`UNKNOWN_NICS_MAX`] (16).
    waiting: VecDeque<NicId>,
    /// NICs that were queued since `since_ns`.
    asked: Vec<NicId>,
    /// Start of the current period, in ns of the monotonic clock.
    since_ns: u64,
}

impl UnknownNics {
    /// Records a frame of an unknown NIC.
    #[cold]
    pub fn record(&mut self, now_ns: u64, nic: NicId) {
        if now_ns.saturating_sub(self.since_ns) >= UNKNOWN_NICS_NS {
            // The daemon may know other NICs now; a queued NIC is asked about anyway.
            (self.since_ns, self.asked) = (now_ns, self.waiting.iter().copied().collect());
        }
        if self.asked.len() < UNKNOWN_NICS_MAX && !self.asked.contains(&nic) {
            self.asked.push(nic);
            self.waiting.push_back(nic);
        }
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the next NIC to ask about.
    #[inline]
    pub fn next(&mut self) -> Option<NicId> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_nics_are_queued_once_per_period() {
        let mut unknown_nics = UnknownNics::default();
        for at in [0, 1, UNKNOWN_NICS_NS - 1] {
            unknown_nics.record(at, NicId(7));
        }
        assert_eq!((unknown_nics.next(), unknown_nics.next()), (Some(NicId(7)), None));
        unknown_nics.record(UNKNOWN_NICS_NS, NicId(7));
        assert_eq!(unknown_nics.next(), Some(NicId(7)));
    }

    #[test]
    fn unknown_nics_hostile_flood_is_bounded() {
        let mut unknown_nics = UnknownNics::default();
        for turn in 0..1000 {
            for nic in 0..2 * UNKNOWN_NICS_MAX as u64 {
                unknown_nics.record(turn * UNKNOWN_NICS_NS, NicId(nic));
            }
            assert!(
                unknown_nics.waiting.len() <= UNKNOWN_NICS_MAX,
                "{turn}: {}",
                unknown_nics.waiting.len()
            );
            unknown_nics.next().expect("a queued NIC");
        }
        while unknown_nics.next().is_some() {}
        assert!(unknown_nics.is_empty());
    }
}
