//! The state of a call that serves a transmit queue: frames that were popped together, and counts.
//!
//! `crate::forward` begins a call, pops batches and ends it; `crate::classify` counts frames that broke
//! a rule; `crate::receivers` and `crate::resume` report frames that became pending or unfinished. The
//! ring counts all popped frames as in flight, but only frames that wait for a receiver count against
//! the sender's quota ([`TransmitTurn::waiting`]), which `crate::pending` checks.
//!
//! The module only counts: `crate::forward` penalises a port whose call had frames that broke a
//! rule only. The list keeps its capacity between calls. One call at a time has the state, in the
//! dispatcher's thread of the group.

use crate::headers::RxFrame;

/// State of a call; between calls only the capacity of the list counts.
#[derive(Debug, Default)]
pub(crate) struct TransmitTurn {
    /// Frames popped together.
    popped: Vec<RxFrame>,
    /// Number of popped frames that are neither being delivered nor pending.
    ahead: u16,
    /// Frames of the call that broke a rule.
    violations: usize,
}

impl TransmitTurn {
    /// Begins a call. Returns the list of popped frames, which [`Self::end`] takes back.
    pub(crate) fn begin(&mut self) -> Vec<RxFrame> {
        self.violations = 0;
        std::mem::take(&mut self.popped)
    }

    /// Ends a call. Returns the number of frames that broke a rule.
    pub(crate) fn end(&mut self, popped: Vec<RxFrame>) -> usize {
        self.popped = popped;
        self.ahead = 0;
        self.violations
    }

    /// Begins a batch of `count` popped frames: all except the frame being delivered are ahead.
    #[inline]
    pub(crate) fn begin_batch(&mut self, count: usize) {
        self.ahead = u16::try_from(count).unwrap_or(u16::MAX).saturating_sub(1);
    }

    /// A frame of the batch became pending or unfinished.
    #[inline]
    pub(crate) fn keep_frame(&mut self) {
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Counts a frame as a violation if `is_violation`.
    #[inline]
    pub(crate) fn count_violation(&mut self, is_violation: bool) {
        self.violations = self.violations.saturating_add(usize::from(is_violation));
    }

    /// Returns how many of the ring's `in_flight` chains wait for receivers.
    #[inline]
    pub(crate) fn waiting(&self, in_flight: u16) -> u16 {
        in_flight.saturating_sub(self.ahead)
    }
}
