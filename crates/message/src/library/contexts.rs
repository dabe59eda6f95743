//! Context ids: bits of the match information that select one of several independent queues, as in
//! `mx_open_endpoint`.
//!
//! There are `2^bits` contexts for `bits` of at most [`CONTEXT_BITS_MAX`] (16), allocated when the
//! endpoint is opened. Each has the posted receives and the unexpected messages of one context id,
//! oldest first; more bits are refused. A message is compared only with the receives of its own
//! context.
//!
//! A receive whose mask does not cover the id is refused by `library::receive`; a probe with such a
//! mask searches all contexts, as [`Library::test_any`](super::Library::test_any) searches all
//! ended requests. This module holds the list heads only: the entries are in the slabs of
//! [`Library`](super::Library). The modules that add, match and end receives and unexpected
//! messages use it, under the lock of the endpoint.

use super::Error;
use super::slab::SlabList;
use crate::limits::CONTEXT_BITS_MAX;

/// Posted receives and unexpected messages of one context.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queues {
    /// Receives without a message, in the order in which they were posted.
    pub posted: SlabList,
    /// Messages without a receive, in the order of their arrival.
    pub unexpected: SlabList,
}

/// All contexts of an endpoint.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Position of the lowest bit of the id in the match information.
    shift: u8,
    /// Bits that the mask of a receive must cover.
    mask: u64,
    all: Vec<Queues>,
}

impl Contexts {
    /// Returns `2^bits` empty contexts, for the id in `bits` bits of the match information from
    /// `shift` on.
    ///
    /// # Errors
    /// [`Error::BadParameterValue`] if the bits exceed 64 or [`CONTEXT_BITS_MAX`] (16).
    pub(super) fn new(bits: u8, shift: u8) -> Result<Self, Error> {
        if bits > CONTEXT_BITS_MAX || u16::from(bits).saturating_add(u16::from(shift)) > 64 {
            return Err(Error::BadParameterValue);
        }
        let count = 1_usize.checked_shl(bits.into()).ok_or(Error::BadParameterValue)?;
        let shift = if bits == 0 { 0 } else { shift };
        let ones = 1_u64.checked_shl(bits.into()).unwrap_or(0).wrapping_sub(1);
        let mask = ones.checked_shl(shift.into()).unwrap_or(0);
        Ok(Self { shift, mask, all: vec![Queues::default(); count] })
    }

    /// Returns whether a mask selects one context only.
    #[inline]
    pub(super) fn covers(&self, mask: u64) -> bool {
        mask & self.mask == self.mask
    }

    /// Returns the context id of a message.
    #[inline(always)]
    fn index(&self, match_info: u64) -> usize {
        // `shift` is below 64, or `mask` is 0.
        (match_info & self.mask).wrapping_shr(self.shift.into()) as usize
    }

    #[inline(always)]
    /// Returns the queues of a message.
    pub(super) fn of(&self, match_info: u64) -> Queues {
        self.all.get(self.index(match_info)).copied().unwrap_or_default()
    }

    #[inline(always)]
    /// Returns the queues of a message, for changes.
    pub(super) fn of_mut(&mut self, match_info: u64) -> Option<&mut Queues> {
        let index = self.index(match_info);
        self.all.get_mut(index)
    }

    /// Returns the queues that a probe with this mask searches.
    pub(super) fn searched(&self, info: u64, mask: u64) -> impl Iterator<Item = &Queues> {
        let one = self.covers(mask).then(|| self.index(info));
        self.all
            .iter()
            .enumerate()
            .filter(move |(at, _)| one.is_none_or(|one| one == *at))
            .map(|(_, q)| q)
    }
}
