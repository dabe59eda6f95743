//! The duplicate filter: copies of flooded frames, detected by their content.
//!
//! In a loop of transit links, a flooded frame arrives from both sides. Of two equal frames that
//! arrive by different paths within [`DUPLICATE_NS`] (500 ms), the second is therefore a copy.
//! Equal frames by the same path are repeats of the guest, up to [`REPEATS_MAX`] (16) within that
//! time; more of them are a loop ([`DuplicateKind::Storm`]). Flood numbers
//! (`crate::flood_sequence`) detect copies for longer, but not every link carries them: a copy may
//! arrive without the number of its frame, or with another.
//!
//! `crate::link_rx` checks each flooded frame of a link before forwarding and records it after
//! acceptance; those of stations are only recorded, and so are flooded frames of local ports that
//! leave by a link (`crate::receivers`). The filter forwards and drops nothing by itself. It
//! remembers [`DUPLICATE_SLOTS`] (4,096) frames; a newer frame with the same slot displaces an
//! older frame; copies of the older frame then pass. Compared are a keyed hash of the first
//! [`FLOOD_BYTES`] bytes (2 KiB), without the transport checksum, and of the length, so a copy with
//! a changed header (TTL, NAT) is not detected. All of it runs in the dispatcher's thread of the
//! group.
//!
//! # Budget
//! Only in groups with transit links that are up, and for flooded frames: one hash of the frame and
//! two table accesses.

use std::hash::{BuildHasher, RandomState};

use causeway_wire::frame::Frame;

use crate::limits::{DUPLICATE_NS, DUPLICATE_SLOTS, FLOOD_BYTES, REPEATS_MAX};
use crate::route::SwitchIndex;

/// The filter of one group.
#[derive(Debug, Default)]
pub(crate) struct DuplicateFilter {
    /// Random for each process, so that guests cannot choose collisions.
    key: RandomState,
    /// Indexed by a part of the fingerprint. Not allocated until the first frame.
    last: Box<[SeenFrame]>,
}

/// A flooded frame that was accepted.
#[derive(Debug, Clone, Copy, Default)]
struct SeenFrame {
    /// Fingerprint of the frame.
    print: u64,
    /// Switch index of the ingress.
    place: SwitchIndex,
    /// Time of the last equal frame.
    at_ns: u64,
    /// Start of the interval in which repeats are counted.
    since_ns: u64,
    /// Equal frames since `since_ns`.
    count: u8,
}

/// Why a frame is filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuplicateKind {
    /// The same frame arrived by another path within [`DUPLICATE_NS`].
    Copy,
    /// The same link has brought the frame more than [`REPEATS_MAX`] times.
    Storm,
}

impl DuplicateFilter {
    /// Returns the fingerprint of a frame of `len` bytes that begins with `first`.
    ///
    /// The transport checksum is left out: it may be complete in one copy and an offload in the
    /// other.
    pub fn fingerprint(&self, len: usize, first: &[u8]) -> u64 {
        let first = first.get(..FLOOD_BYTES).unwrap_or(first);
        let transport = Frame::parse(first).ok().and_then(|frame| frame.network?.transport);
        let at = transport.map(|t| t.offset.saturating_add(t.protocol.checksum_offset()));
        let at = at.filter(|at| at.saturating_add(2) <= first.len());
        let (before, behind) = first.split_at_checked(at.unwrap_or(0)).unwrap_or((&[], first));
        let skipped = if at.is_some() { 2 } else { 0 };
        self.key.hash_one((len, before, behind.get(skipped..).unwrap_or(&[])))
    }

    /// Checks a frame that arrived by a link, and returns its fingerprint.
    ///
    /// # Errors
    /// Returns the reason if the frame is a copy or a loop. A loop is over when the frame has not
    /// arrived for [`DUPLICATE_NS`].
    pub fn check(
        &mut self,
        frame: &[u8],
        place: SwitchIndex,
        now_ns: u64,
    ) -> Result<u64, DuplicateKind> {
        let print = self.fingerprint(frame.len(), frame);
        let Some(last) = self.last.get_mut(Self::at(print)) else { return Ok(print) };
        if last.print != print || now_ns >= last.at_ns.saturating_add(DUPLICATE_NS) {
            return Ok(print);
        }
        if last.place != place {
            return Err(DuplicateKind::Copy);
        }
        if last.count < REPEATS_MAX {
            return Ok(print);
        }
        last.at_ns = now_ns;
        Err(DuplicateKind::Storm)
    }

    /// Records an accepted frame.
    pub fn record(&mut self, print: u64, place: SwitchIndex, now_ns: u64) {
        if self.last.is_empty() {
            self.last = vec![SeenFrame::default(); DUPLICATE_SLOTS].into();
        }
        if let Some(last) = self.last.get_mut(Self::at(print)) {
            let again = last.print == print
                && last.place == place
                && now_ns < last.since_ns.saturating_add(DUPLICATE_NS);
            let (since_ns, count) =
                if again { (last.since_ns, last.count.saturating_add(1)) } else { (now_ns, 1) };
            *last = SeenFrame { print, place, at_ns: now_ns, since_ns, count };
        }
    }

    /// Returns the index in `last` of a fingerprint.
    fn at(print: u64) -> usize {
        usize::try_from(print).unwrap_or(0) & (DUPLICATE_SLOTS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl DuplicateFilter {
        fn is_duplicate(&mut self, frame: &[u8], place: SwitchIndex, now_ns: u64) -> bool {
            let found = self.check(frame, place, now_ns);
            found.map(|print| self.record(print, place, now_ns)).is_err()
        }
    }

    #[test]
    fn duplicates_ignore_refused_frames() {
        let mut duplicates = DuplicateFilter::default();
        assert!(
            duplicates.check(b"frame", 1, 5).is_ok() && duplicates.check(b"frame", 2, 6).is_ok()
        );
    }

    #[test]
    fn duplicates_by_another_path_within_the_interval_are_copies() {
        let mut duplicates = DuplicateFilter::default();
        assert!(!duplicates.is_duplicate(b"frame", 1, 5));
        assert!(!duplicates.is_duplicate(b"frame", 1, 6), "a repeat by the same link");
        assert!(duplicates.is_duplicate(b"frame", 2, 7) && duplicates.is_duplicate(b"frame", 2, 8));
        assert!(!duplicates.is_duplicate(b"frame\0", 2, 8), "another frame");
        assert!(!duplicates.is_duplicate(b"frame", 2, 6 + DUPLICATE_NS), "after the interval");
        assert!(duplicates.is_duplicate(b"frame", 1, 7 + DUPLICATE_NS), "the sender has moved");
    }

    #[test]
    fn duplicates_stop_a_loop_by_one_link_and_forget_it() {
        let mut duplicates = DuplicateFilter::default();
        let passed =
            (0..10_000).filter(|n| !duplicates.is_duplicate(b"frame", 1, n * 100_000)).count();
        assert_eq!(passed, usize::from(REPEATS_MAX));
        assert_eq!(duplicates.check(b"frame", 1, 1_000_000_000), Err(DuplicateKind::Storm));
        assert!(
            duplicates.check(b"frame", 1, 1_000_000_000 + DUPLICATE_NS).is_ok(),
            "the loop is gone"
        );
        // A host that repeats a frame every 100 ms is never filtered.
        let said =
            (1..1_000_u64).filter(|n| duplicates.is_duplicate(b"again", 1, 5 + n * 100_000_000));
        assert_eq!(said.count(), 0);
    }

    #[test]
    fn duplicates_ignore_an_incomplete_checksum() {
        let duplicates = DuplicateFilter::default();
        let mut frame = vec![0xff; 12];
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 255, 255, 255, 255, 0, 68, 0, 67, 0, 16, 1, 2]);
        frame.extend_from_slice(b"whatever");
        let print = |frame: &[u8]| duplicates.fingerprint(frame.len(), frame);
        let before = print(&frame);
        frame[40..42].copy_from_slice(&[3, 4]);
        assert_eq!(print(&frame), before);
        frame[42] = b'W';
        assert_ne!(print(&frame), before);
    }

    #[test]
    fn hostile_flood_does_not_grow_the_duplicate_filter() {
        let mut duplicates = DuplicateFilter::default();
        for n in 0..100_000_u32 {
            assert!(!duplicates.is_duplicate(&n.to_be_bytes(), 1, 5));
        }
        assert_eq!(duplicates.last.len(), DUPLICATE_SLOTS);
    }
}
