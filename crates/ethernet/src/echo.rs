//! Frames for many, or for one that nobody knows, that come by a second way.
//!
//! Where links make a circle and are for transit, a frame for many comes from either side. Whoever
//! sent it is behind one of them, or at a port of ours: so of two equal frames that come by two ways
//! within a moment the second is a copy of the first. Equal frames that come by one way are what a
//! guest repeats. Numbers ([`crate::flood`]) tell copies apart for longer, but not all links carry
//! them: a copy may come without the one that the frame had, or with another.
//!
//! # Budget
//! Only in groups with links for transit, and of frames that go to many: a hash of the
//! frame, one look.

use std::hash::{BuildHasher, RandomState};

use causeway_wire::frame::Frame;

use crate::limits::{ECHO_NS, ECHO_PLACES, FLOOD_BYTES, REPEATS_MAX};
use crate::route::Place;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Echoes {
    /// Keyed anew in every process.
    key: RandomState,
    /// By a part of the print. No room until the first frame.
    last: Box<[Heard]>,
}

/// A frame that came.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    print: u64,
    place: Place,
    at_ns: u64,
    /// Since when equal ones are counted, and how many there were.
    since_ns: u64,
    count: u8,
}

/// Why a frame is not new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It came by another way a moment ago.
    Copy,
    /// It comes by one link again and again.
    Storm,
}

impl Echoes {
    /// What a frame of `len` bytes is known by; `first` are its first bytes, as many as matter.
    /// Its checksum does not: one copy may have it while it is still to be made in the other.
    pub fn print(&self, len: usize, first: &[u8]) -> u64 {
        let first = first.get(..FLOOD_BYTES).unwrap_or(first);
        let transport = Frame::parse(first).ok().and_then(|frame| frame.network?.transport);
        let at = transport.map(|t| t.offset.saturating_add(t.protocol.checksum_offset()));
        let at = at.filter(|at| at.saturating_add(2) <= first.len());
        let (before, behind) = first.split_at_checked(at.unwrap_or(0)).unwrap_or((&[], first));
        let skipped = if at.is_some() { 2 } else { 0 };
        self.key.hash_one((len, before, behind.get(skipped..).unwrap_or(&[])))
    }

    /// What a frame that came by a link is known by.
    ///
    /// # Errors
    /// It came by another way just now, or by this one too often. The latter ends when it has not
    /// come for [`ECHO_NS`].
    pub fn look(&mut self, frame: &[u8], place: Place, now_ns: u64) -> Result<u64, Known> {
        let print = self.print(frame.len(), frame);
        let Some(last) = self.last.get_mut(Self::at(print)) else { return Ok(print) };
        if last.print != print || now_ns >= last.at_ns.saturating_add(ECHO_NS) {
            return Ok(print);
        }
        if last.place != place {
            return Err(Known::Copy);
        }
        if last.count < REPEATS_MAX {
            return Ok(print);
        }
        last.at_ns = now_ns;
        Err(Known::Storm)
    }

    /// A frame that is no copy is accepted.
    pub fn note(&mut self, print: u64, place: Place, now_ns: u64) {
        if self.last.is_empty() {
            self.last = vec![Heard::default(); ECHO_PLACES].into();
        }
        if let Some(last) = self.last.get_mut(Self::at(print)) {
            let again = last.print == print
                && last.place == place
                && now_ns < last.since_ns.saturating_add(ECHO_NS);
            let (since_ns, count) =
                if again { (last.since_ns, last.count.saturating_add(1)) } else { (now_ns, 1) };
            *last = Heard { print, place, at_ns: now_ns, since_ns, count };
        }
    }

    fn at(print: u64) -> usize {
        usize::try_from(print).unwrap_or(0) & (ECHO_PLACES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Echoes {
        fn is_echo(&mut self, frame: &[u8], place: Place, now_ns: u64) -> bool {
            let found = self.look(frame, place, now_ns);
            found.map(|print| self.note(print, place, now_ns)).is_err()
        }
    }

    #[test]
    fn what_was_not_accepted_hides_no_copy() {
        let mut echoes = Echoes::default();
        assert!(echoes.look(b"frame", 1, 5).is_ok() && echoes.look(b"frame", 2, 6).is_ok());
    }

    #[test]
    fn what_comes_by_another_way_within_a_moment_is_a_copy() {
        let mut echoes = Echoes::default();
        assert!(!echoes.is_echo(b"frame", 1, 5));
        assert!(!echoes.is_echo(b"frame", 1, 6), "said again");
        assert!(echoes.is_echo(b"frame", 2, 7) && echoes.is_echo(b"frame", 2, 8));
        assert!(!echoes.is_echo(b"frame\0", 2, 8), "another one");
        assert!(!echoes.is_echo(b"frame", 2, 6 + ECHO_NS), "long ago");
        assert!(echoes.is_echo(b"frame", 1, 7 + ECHO_NS), "it has moved");
    }

    #[test]
    fn echo_ends_a_loop_by_one_link_and_forgets_it() {
        let mut echoes = Echoes::default();
        let passed = (0..10_000).filter(|n| !echoes.is_echo(b"frame", 1, n * 100_000)).count();
        assert_eq!(passed, usize::from(REPEATS_MAX));
        assert_eq!(echoes.look(b"frame", 1, 1_000_000_000), Err(Known::Storm));
        assert!(echoes.look(b"frame", 1, 1_000_000_000 + ECHO_NS).is_ok(), "the loop is gone");
        // A host that repeats itself every 100 ms is heard for ever.
        let said = (1..1_000_u64).filter(|n| echoes.is_echo(b"again", 1, 5 + n * 100_000_000));
        assert_eq!(said.count(), 0);
    }

    #[test]
    fn a_checksum_that_is_still_to_be_made_makes_no_other_frame() {
        let echoes = Echoes::default();
        let mut frame = vec![0xff; 12];
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 255, 255, 255, 255, 0, 68, 0, 67, 0, 16, 1, 2]);
        frame.extend_from_slice(b"whatever");
        let print = |frame: &[u8]| echoes.print(frame.len(), frame);
        let before = print(&frame);
        frame[40..42].copy_from_slice(&[3, 4]);
        assert_eq!(print(&frame), before);
        frame[42] = b'W';
        assert_ne!(print(&frame), before);
    }

    #[test]
    fn a_hostile_flood_takes_no_more_room() {
        let mut echoes = Echoes::default();
        for n in 0..100_000_u32 {
            assert!(!echoes.is_echo(&n.to_be_bytes(), 1, 5));
        }
        assert_eq!(echoes.last.len(), ECHO_PLACES);
    }
}
