//! Bits of the peers with messages that the host side cannot take now: words beside the rings that
//! only the host side writes.
//!
//! `message` sets a peer's bit when it must defer a message of the peer, and clears it when it has
//! no deferred messages of the peer; `mxoe` then keeps messages and offers of this peer, and
//! continues all other traffic. The bits are not requests, because a request can wait behind
//! requests that the NIC side defers, and these can wait for the peer that is to be released.
//!
//! There are bits for the NIC side's peer numbers below [`PARTNERS_MAX`] (2,048), which are all
//! that `mxoe` assigns; a peer with a higher number is never held. A bit takes effect when the NIC
//! side reads it, so a few messages may still arrive. The module rings no doorbell, and the NIC
//! side must bound the messages that it keeps. If the memory is lost (the file was truncated), no
//! peer is held.
//!
//! Each side has one [`Holds`] and uses it in one thread at a time: the host side in the thread
//! that holds the lock of the endpoint, the NIC side in the dispatcher's thread of causewayd, or in
//! direct mode in the same thread as the host side.

use std::sync::atomic::Ordering;

use causeway_memory::View;
use causeway_wire::mx::PeerId;
use causeway_wire::mx::limits::PARTNERS_MAX;

use crate::UNUSED;

/// Offset of the number of releases, by which the NIC side detects new releases.
const RELEASES_AT: usize = UNUSED.start + 256;
/// Offset of the bits, one for each peer.
const BITS_AT: usize = UNUSED.start + 512;
const WORDS: usize = PARTNERS_MAX / 16;
const _: () = assert!(BITS_AT + WORDS * 2 <= UNUSED.end);

/// One side's access to the bits.
#[derive(Debug)]
pub struct Holds {
    /// The memory of the rings.
    memory: View,
    /// Bits that this side wrote. It never reads its own bits from shared memory.
    bits: Vec<u16>,
    /// Number of releases: written (host side), or last seen (NIC side); wraps. Exactly 65,536
    /// releases between two reads of the NIC side look like none; a later release reports them.
    releases: u16,
}

/// Returns the word of a peer's bit, and the bit in that word.
fn place(peer: PeerId) -> Option<(usize, u16)> {
    let at = peer.0 as usize;
    (at < PARTNERS_MAX).then_some((at / 16, 1_u16.wrapping_shl(peer.0 & 15)))
}

/// Returns the offset of a word of bits.
fn address(word: usize) -> usize {
    BITS_AT.saturating_add(word.saturating_mul(2))
}

impl Holds {
    /// Creates the access to the bits in the memory of the rings. The memory must be new (zeroes):
    /// the host side assumes that no bit is set, and this function clears none.
    pub fn new(memory: View) -> Self {
        Self { memory, bits: vec![0; WORDS], releases: 0 }
    }

    /// Holds or releases the messages of a peer. Returns whether the bit changed: false if it has
    /// the value already or the peer has no bit. After a release the host side must ring the NIC
    /// side's doorbell. For the host side.
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

    /// Returns whether messages of the peer are held. For the NIC side.
    #[inline]
    pub fn has(&self, peer: PeerId) -> bool {
        place(peer).is_some_and(|(word, bit)| {
            self.memory.load(address(word), Ordering::Acquire).is_ok_and(|bits| bits & bit != 0)
        })
    }

    /// Returns the number of releases in the memory.
    fn releases(&self) -> u16 {
        self.memory.load(RELEASES_AT, Ordering::Acquire).unwrap_or(self.releases)
    }

    /// Returns whether [`Self::released`] would return true, without clearing that. For the NIC
    /// side.
    #[inline]
    pub fn releases_any(&self) -> bool {
        self.releases() != self.releases
    }

    /// Returns whether peers were released since the last call. For the NIC side.
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
    fn mx_rings_hold_each_peer_by_itself() {
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
