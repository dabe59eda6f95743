//! Guest memory that the kernel charges to this process.
//!
//! The kernel charges a page of a memory file to the control group of the process that touches it
//! first. A frontend that grants a large sparse file and has the daemon read its holes moves the
//! charge from its own group to the daemon's: 64 MiB of a tenant became 1 GiB of the daemon. Pages
//! that the guest touched first are charged to its VMM and do not count here.
//!
//! No kernel interface names the payer of a page. The account of a port therefore adds, for each
//! second, the smaller of two upper bounds: the growth of the port's files, and the growth of this
//! process's charge ([`crate::memory_charge`]). [`crate::port`] takes the samples, every
//! [`FOOTPRINT_SAMPLE_NS`] (100 ms) while its shard serves the port or publishes to it, and the
//! shard closes the frontend of a port beyond `memory_max` (by default
//! [`crate::memory_charge::default_max`], which is no limit unless the daemon has a control group
//! of its own). The port then refuses frontends for 30 s, and twice as long after each
//! further such fault, at most 128 times as long (64 minutes).
//!
//! Processes of a port whose service keeps the attachments have no account here. The account ends
//! with its frontend. The sum never falls, even if the frontend frees memory; it may count pages
//! that another port made the daemon touch in the same second. A port that is not served is not
//! sampled.

use crate::limits::{FOOTPRINT_SAMPLE_NS, FOOTPRINT_WINDOW_NS};

/// The account of one port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Footprint {
    /// Time of the next sample; 0: none was taken yet.
    due_ns: u64,
    /// Start of the window, which lasts [`FOOTPRINT_WINDOW_NS`] (1 s).
    window_ns: u64,
    /// Bytes that the port's files had allocated at the start of the window.
    allocated: u64,
    /// Bytes that were charged to this process at the start of the window.
    charged: u64,
    /// Growth, within the window, of files that were replaced since.
    replaced: u64,
    /// Bytes charged before the window.
    paid: u64,
}

impl Footprint {
    /// Returns whether [`Self::sample`] is to be called.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Records the bytes that the port's files have allocated and the bytes charged to this
    /// process. Returns the bytes charged for the port so far.
    pub fn sample(&mut self, now_ns: u64, allocated: u64, charged: u64) -> u64 {
        let first = self.due_ns == 0;
        self.due_ns = now_ns.saturating_add(FOOTPRINT_SAMPLE_NS);
        let grown = allocated.saturating_sub(self.allocated).saturating_add(self.replaced);
        let more = if first { 0 } else { grown.min(charged.saturating_sub(self.charged)) };
        let paid = self.paid.saturating_add(more);
        if first || now_ns.saturating_sub(self.window_ns) >= FOOTPRINT_WINDOW_NS {
            (self.window_ns, self.allocated, self.charged) = (now_ns, allocated, charged);
            (self.replaced, self.paid) = (0, paid);
        }
        paid
    }

    /// Records that the files, with `before` bytes, were replaced by files with `after` bytes. The
    /// charge of the old files stays counted, for the frontend may keep them.
    pub fn replace(&mut self, before: u64, after: u64) {
        let grown = before.saturating_sub(self.allocated);
        self.replaced = self.replaced.saturating_add(grown);
        self.allocated = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const S: u64 = 1_000_000_000;

    /// Samples ten times a second; per second the files grow by `grown` and the charge by
    /// `charged`.
    fn paid(seconds: u64, grown: u64, charged: u64) -> u64 {
        let (mut footprint, mut paid) = (Footprint::default(), 0);
        for tenth in 0..=10 * seconds {
            let now = S + tenth * S / 10;
            assert!(footprint.is_due(now));
            let (grown, charged) = (tenth * grown / 10, tenth * charged / 10);
            paid = footprint.sample(now, 1024 * MIB + grown, 77 * MIB + charged);
        }
        paid
    }

    #[test]
    fn footprint_is_what_both_the_files_and_the_charge_grow_by() {
        assert_eq!(paid(4, 256 * MIB, 256 * MIB), 1024 * MIB, "holes that we read");
        assert_eq!(paid(60, 1024 * MIB, 0), 0, "a guest that boots, by its VMM's own touches");
        assert_eq!(paid(60, 0, 1024 * MIB), 0, "another's");
        assert_eq!(paid(10, 64 * MIB, MIB), 10 * MIB);
    }

    #[test]
    fn footprint_does_not_count_what_was_there_and_outlives_a_new_memory_table() {
        let mut footprint = Footprint::default();
        assert_eq!(footprint.sample(S, 4096 * MIB, 512 * MIB), 0);
        assert!(!footprint.is_due(S + 1));
        assert_eq!(footprint.sample(2 * S, 4196 * MIB, 612 * MIB), 100 * MIB);
        // The charge appears after the replacement of the files that it is for.
        footprint.replace(4296 * MIB, 2048 * MIB);
        assert_eq!(footprint.sample(3 * S, 2058 * MIB, 722 * MIB), 210 * MIB);
        assert_eq!(footprint.sample(4 * S, 0, 0), 210 * MIB);
    }
}
