//! Fewer yields of the processor while no other thread takes it.
//!
//! After a service notified a process, the dispatcher yields the processor, because the process may
//! wait for this very one. A yield is a system call, and the kernel's events are read behind it:
//! more than a short message takes. If other processors are free, the process already runs
//! elsewhere, and each yield is in vain: it returns at once. After [`VAIN_YIELDS_FREE`] (4) such
//! yields in a row the dispatcher skips some, about twice as many each time, up to
//! [`YIELD_SKIPS_MAX`] (63) rounds without work, which take some microseconds. A yield that lets
//! another thread run ends that at once.
//!
//! Used by the dispatcher's thread; yields while processors are scarce are not skipped.

use crate::limits::{VAIN_YIELD_NS, VAIN_YIELDS_FREE, YIELD_SKIPS_MAX};

/// The back-off of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct YieldBackoff {
    /// Yields in vain in a row.
    in_vain: u32,
    /// Yields that are still to be skipped.
    skips: u32,
}

impl YieldBackoff {
    /// Returns whether the next yield is to be performed, and counts it as skipped if not.
    pub(crate) fn is_due(&mut self) -> bool {
        let left = self.skips.checked_sub(1);
        self.skips = left.unwrap_or(0);
        left.is_none()
    }

    /// Records a yield that took `took_ns`.
    pub(crate) fn yielded(&mut self, took_ns: u64) {
        self.in_vain = if took_ns < VAIN_YIELD_NS { self.in_vain.saturating_add(1) } else { 0 };
        let doublings = self.in_vain.saturating_sub(VAIN_YIELDS_FREE);
        let skips = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX).saturating_sub(1);
        self.skips = skips.min(YIELD_SKIPS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many yields are skipped before the next.
    fn skipped(backoff: &mut YieldBackoff) -> u32 {
        (0..).take_while(|_| !backoff.is_due()).count() as u32
    }

    #[test]
    fn yields_in_vain_become_rare_until_another_thread_runs() {
        let mut backoff = YieldBackoff::default();
        for _ in 0..VAIN_YIELDS_FREE {
            assert_eq!(skipped(&mut backoff), 0);
            backoff.yielded(VAIN_YIELD_NS - 1);
        }
        for skips in [0, 1, 3, 7, 15, 31, 63, 63, 63] {
            assert_eq!(skipped(&mut backoff), skips);
            backoff.yielded(300);
        }
        backoff.yielded(VAIN_YIELD_NS);
        assert_eq!(skipped(&mut backoff), 0, "a thread waited for the processor");
        for _ in 0..1000 {
            backoff.yielded(0);
        }
        assert_eq!(skipped(&mut backoff), YIELD_SKIPS_MAX);
    }
}
