//! Whose messages the library half cannot take now: words beside the rings, which only it writes.
//!
//! They are not requests: a request waits behind those that the backend half does not take, which
//! may wait for the very partner that is not to be held any more.

use std::sync::atomic::Ordering;

use causeway_channel::UNUSED;
use causeway_memory::View;

use crate::limits::PARTNERS_MAX;
use crate::split::PeerId;

/// How often a partner was let go on: so that it is seen that there are some.
const RELEASES_AT: usize = UNUSED.start + 256;
/// A bit for each partner.
const BITS_AT: usize = UNUSED.start + 512;
const WORDS: usize = PARTNERS_MAX / 16;
const _: () = assert!(BITS_AT + WORDS * 2 <= UNUSED.end);

/// See above.
#[derive(Debug)]
pub struct Holds {
    memory: View,
    /// What we wrote: of what lies in memory nothing is taken back.
    bits: Vec<u16>,
    releases: u16,
}

/// Where the bit of a partner is: which word, and what is set in it.
fn place(peer: PeerId) -> Option<(usize, u16)> {
    let at = peer.0 as usize;
    (at < PARTNERS_MAX).then_some((at / 16, 1_u16.wrapping_shl(peer.0 & 15)))
}

fn address(word: usize) -> usize {
    BITS_AT.saturating_add(word.saturating_mul(2))
}

impl Holds {
    /// In the memory of the rings, which is all zeroes there.
    pub fn new(memory: View) -> Self {
        Self { memory, bits: vec![0; WORDS], releases: 0 }
    }

    /// For the library half: messages of that partner wait, or go on; says whether that is news.
    /// The backend half is to be rung when they go on.
    pub fn set(&mut self, peer: PeerId, yes: bool) -> bool {
        let Some((word, bit)) = place(peer) else { return false };
        let Some(bits) = self.bits.get_mut(word) else { return false };
        if (*bits & bit != 0) == yes {
            return false;
        }
        *bits ^= bit;
        let bits = *bits;
        let _ = self.memory.store(address(word), bits, Ordering::Release);
        if !yes {
            self.releases = self.releases.wrapping_add(1);
            let _ = self.memory.store(RELEASES_AT, self.releases, Ordering::Release);
        }
        true
    }

    /// For the backend half: whether messages of that partner wait.
    pub fn has(&self, peer: PeerId) -> bool {
        place(peer).is_some_and(|(word, bit)| {
            self.memory.load(address(word), Ordering::Acquire).is_ok_and(|bits| bits & bit != 0)
        })
    }

    fn releases(&self) -> u16 {
        self.memory.load(RELEASES_AT, Ordering::Acquire).unwrap_or(self.releases)
    }

    /// For the backend half: whether [`Self::released`] would say yes.
    #[inline]
    pub fn releases_any(&self) -> bool {
        self.releases() != self.releases
    }

    /// For the backend half: whether any go on that waited when this was asked last.
    pub fn released(&mut self) -> bool {
        let releases = self.releases();
        std::mem::replace(&mut self.releases, releases) != releases
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use causeway_memory::{Mapping, create};

    use super::*;

    #[test]
    fn each_partner_is_held_by_itself() {
        let len = super::super::layout().bytes();
        let file = create("holds", len as u64).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as u64).unwrap());
        let view = || View::new(mapping.clone(), 0, len).unwrap();
        let (mut ours, mut theirs) = (Holds::new(view()), Holds::new(view()));
        let last = u32::try_from(PARTNERS_MAX - 1).unwrap();
        for peer in [0, 15, 16, last] {
            assert!(ours.set(PeerId(peer), true) && !ours.set(PeerId(peer), true));
        }
        let held = (0..=last + 20).filter(|peer| theirs.has(PeerId(*peer)));
        assert_eq!(held.collect::<Vec<_>>(), [0, 15, 16, last]);
        assert!(!theirs.released());
        assert!(ours.set(PeerId(15), false) && !ours.set(PeerId(15), false));
        assert!(theirs.released() && !theirs.released());
        assert!(!theirs.has(PeerId(15)) && theirs.has(PeerId(0)));
        assert!(!ours.set(PeerId(last + 1), true), "there is none");
        assert!(!ours.set(PeerId::NONE, true));
    }
}
