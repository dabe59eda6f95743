//! Large messages that are offered to this endpoint, and the progress of their pulls.
//!
//! A message consists of frames of [`FRAGMENT_LEN`] (4,096) bytes; eight frames are a block, the
//! unit of a request. This module is arithmetic and bookkeeping; [`pull`](crate::pull) sends the
//! requests.
//!
//! The table has at most [`OFFERS_MAX`] (4,096) offers per endpoint, and
//! [`OFFERS_OF_PEER_MAX`](crate::limits::OFFERS_OF_PEER_MAX) (256) of one peer; a further offer is
//! not acknowledged, and delays later messages of its peer, until an offer was removed. An offer
//! stays until its pull ends, or its peer is gone; the host side declines an offer by a pull of 0
//! bytes. A [`Handle`] contains a generation, so that an outdated handle finds nothing. Used by
//! [`pull`](crate::pull), by the steps that end or repeat pulls ([`endpoint`](crate::endpoint),
//! [`request`](crate::request), [`refusal`](crate::refusal), [`local`](crate::local)), and for the
//! arithmetic by [`pull_reply`](crate::pull_reply).

use std::collections::VecDeque;

use causeway_wire::mx::{Handle, PeerId, Token, Window};
use causeway_wire::mxoe::{FRAGMENT_LEN, PULL_FRAMES_MAX};

use crate::limits::{BLOCKS_SPAN_MAX, OFFERS_MAX};

/// Number of bits of a handle that select the slot.
const SLOT_BITS: u32 = OFFERS_MAX.trailing_zeros();
const _: () = assert!(OFFERS_MAX.is_power_of_two());

/// Contents of a rendezvous packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferHeader {
    /// Match information of the message.
    pub(crate) match_info: u64,
    /// Length of the message in bytes.
    pub(crate) len: u32,
    /// Send window of the sender.
    pub(crate) window: u8,
    /// Sequence of that window, which changes with each use.
    pub(crate) window_sequence: u8,
    /// Offset of the message in the window, in bytes.
    pub(crate) offset: u16,
}

/// An offered message.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The peer that offers the message.
    pub(crate) peer: PeerId,
    /// The rendezvous packet.
    pub(crate) offered: OfferHeader,
    /// Progress.
    pub(crate) state: OfferState,
}

/// Progress of an offered message.
#[derive(Debug)]
pub(crate) enum OfferState {
    /// Reported to the host side.
    Offered,
    /// The host side wants it. The pull starts when fewer others are active.
    Waiting { token: Token, into: Window },
    /// Being pulled.
    Pulling(ActivePull),
    /// Being copied from a peer of the same daemon, `done` bytes so far.
    Copying { token: Token, into: Window, done: u32 },
}

impl OfferState {
    /// Returns the token and the memory of a pull, or `None` if the host side has not requested it.
    pub(crate) fn pull(&self) -> Option<(Token, Window)> {
        match self {
            Self::Offered => None,
            Self::Waiting { token, into } | Self::Copying { token, into, .. } => {
                Some((*token, *into))
            }
            Self::Pulling(pull) => Some((pull.token, pull.into)),
        }
    }
}

/// An active pull.
#[derive(Debug)]
pub(crate) struct ActivePull {
    /// Token of the event at the end.
    pub(crate) token: Token,
    /// Memory into which the message is written.
    pub(crate) into: Window,
    /// Random number that each reply must repeat.
    pub(crate) magic: u32,
    /// Number of frames of the message.
    pub(crate) frames: u32,
    /// The number of the first block in `blocks`.
    pub(crate) first: u32,
    /// From the first incomplete block to the last requested block.
    pub(crate) blocks: VecDeque<Block>,
    /// Time of the next request of incomplete blocks, in ns.
    pub(crate) due: u64,
    /// Timeouts since the last data.
    pub(crate) tries: u32,
    /// Time of the latest data, in ns.
    pub(crate) heard_at: u64,
    /// A refusal arrived since the last data.
    pub(crate) refused: bool,
}

/// A requested block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// A bit for each missing frame.
    pub(crate) missing: u8,
    /// Time of the latest request, in ns.
    pub(crate) asked_at: u64,
    /// The block was requested more than once.
    pub(crate) again: bool,
    /// The missing frames count as lost and must be requested again.
    pub(crate) lost: bool,
}

/// Frames of a block, as on the wire.
const BLOCK_FRAMES: u32 = PULL_FRAMES_MAX as u32;
const FRAME: u32 = FRAGMENT_LEN as u32;

/// The division of a message into frames. The offset of its window shortens the first frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLayout {
    /// Offset of the message in its first frame.
    pub(crate) base: u32,
    /// Length of the message in bytes.
    pub(crate) len: u32,
}

impl FrameLayout {
    /// Creates the layout of `len` bytes at `offset` of a window.
    pub(crate) fn new(offset: u16, len: u32) -> Self {
        Self { base: u32::from(offset) & FRAME.wrapping_sub(1), len }
    }

    /// Returns the number of frames.
    pub(crate) fn frames(self) -> u32 {
        let bits = u64::from(self.base).saturating_add(self.len.into());
        u32::try_from(bits.div_ceil(FRAME.into())).unwrap_or(u32::MAX)
    }

    /// Returns the byte range of a frame in the message.
    pub(crate) fn range(self, frame: u32) -> (u32, u32) {
        let edge = |frame: u32| {
            let at = u64::from(frame).saturating_mul(FRAME.into());
            let at = at.saturating_sub(self.base.into()).min(self.len.into());
            u32::try_from(at).unwrap_or(self.len)
        };
        (edge(frame), edge(frame.saturating_add(1)))
    }

    /// Returns the frame that consists of the `len` bytes at `offset`; or the first of two frames
    /// that do, and true.
    pub(crate) fn frames_at(self, offset: u32, len: usize) -> Option<(u32, bool)> {
        let frame = self.frame_at(offset)?;
        let until = |frame| self.range(frame).1.saturating_sub(offset) as usize;
        let (one, both) = (until(frame), until(frame.saturating_add(1)));
        (len == one || len == both).then_some((frame, len > one))
    }

    /// Returns the frame that starts at `offset`.
    fn frame_at(self, offset: u32) -> Option<u32> {
        let frame = offset.div_ceil(FRAME);
        let (from, to) = self.range(frame);
        (from == offset && to > from).then_some(frame)
    }
}

impl ActivePull {
    /// Returns the mask of all frames of a block, or `None` behind the last block.
    pub(crate) fn block_mask(&self, block: u32) -> Option<u8> {
        let first = block.checked_mul(BLOCK_FRAMES)?;
        let left = self.frames.checked_sub(first)?.min(BLOCK_FRAMES);
        let mask = 1_u16.wrapping_shl(left).wrapping_sub(1);
        (left > 0).then(|| mask.to_le_bytes()[0])
    }

    /// Returns the number of requested blocks that may still arrive.
    pub(crate) fn asked(&self) -> usize {
        self.blocks.iter().filter(|block| block.missing != 0 && !block.lost).count()
    }

    /// Marks all incomplete blocks as lost.
    pub(crate) fn mark_lost(&mut self) {
        for block in self.blocks.iter_mut().filter(|block| block.missing != 0) {
            (block.lost, block.again) = (true, true);
        }
    }

    /// Returns the index of the next block to request: a lost one, else a new one.
    pub(crate) fn next_block(&mut self, now: u64) -> Option<usize> {
        let lost = |block: &Block| block.lost && block.missing != 0;
        if let Some(at) = self.blocks.iter().position(lost) {
            self.blocks.get_mut(at)?.lost = false;
            return Some(at);
        }
        let at = self.blocks.len();
        let missing = self.block_mask(self.first.saturating_add(u32::try_from(at).ok()?))?;
        if at >= BLOCKS_SPAN_MAX {
            return None;
        }
        self.blocks.push_back(Block { missing, asked_at: now, again: false, lost: false });
        Some(at)
    }

    /// Drops the complete blocks at the front. Returns whether the message is complete.
    pub(crate) fn drop_complete(&mut self) -> bool {
        while self.blocks.front().is_some_and(|block| block.missing == 0) {
            self.blocks.pop_front();
            self.first = self.first.saturating_add(1);
        }
        self.blocks.is_empty() && self.block_mask(self.first).is_none()
    }

    /// Returns the block and the bits of a frame, or of two frames of a block, if any is missing.
    pub(crate) fn missing(&mut self, frame: u32, two: bool) -> Option<(usize, &mut Block, u8)> {
        let at = frame.wrapping_shr(BLOCK_FRAMES.trailing_zeros()).checked_sub(self.first)?;
        let place = frame & BLOCK_FRAMES.wrapping_sub(1);
        let bits = (if two { 0b11_u8 } else { 1 }).checked_shl(place)?;
        if two && place == BLOCK_FRAMES.wrapping_sub(1) {
            return None;
        }
        let block = self.blocks.get_mut(at as usize)?;
        (block.missing & bits != 0).then_some((at as usize, block, bits))
    }

    /// Returns the first frame and the number of frames that complete a block.
    pub(crate) fn missing_frames(&self, at: usize) -> Option<(u32, u32)> {
        let missing = self.blocks.get(at)?.missing;
        if missing == 0 {
            return None;
        }
        let block = self.first.checked_add(u32::try_from(at).ok()?)?;
        let first = block.checked_mul(BLOCK_FRAMES)?.checked_add(missing.trailing_zeros())?;
        let both = missing.trailing_zeros().saturating_add(missing.leading_zeros());
        Some((first, BLOCK_FRAMES.saturating_sub(both)))
    }
}

/// A slot of the offer table. The generation counts its uses.
#[derive(Debug, Default)]
struct OfferSlot {
    generation: u32,
    offer: Option<Offer>,
}

/// The offer table of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct OfferTable {
    slots: Vec<OfferSlot>,
    /// Indices of free slots.
    free: Vec<u32>,
    /// An offer was removed since the last [`Self::take_freed`].
    freed: bool,
}

impl OfferTable {
    /// Adds an offer. Returns `None` if the table is full.
    pub(crate) fn add(&mut self, peer: PeerId, offered: OfferHeader) -> Option<Handle> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < OFFERS_MAX => {
                self.slots.push(OfferSlot::default());
                u32::try_from(self.slots.len().saturating_sub(1)).ok()?
            }
            None => return None,
        };
        let slot = self.slots.get_mut(at as usize)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.offer = Some(Offer { peer, offered, state: OfferState::Offered });
        Some(Handle(slot.generation.wrapping_shl(SLOT_BITS) | at))
    }

    fn slot(&mut self, handle: Handle) -> Option<&mut OfferSlot> {
        let at = handle.0 & 1_u32.wrapping_shl(SLOT_BITS).wrapping_sub(1);
        let slot = self.slots.get_mut(at as usize)?;
        (slot.generation.wrapping_shl(SLOT_BITS) | at == handle.0).then_some(slot)
    }

    /// Returns the offer of a handle.
    pub(crate) fn get(&mut self, handle: Handle) -> Option<&mut Offer> {
        self.slot(handle)?.offer.as_mut()
    }

    /// Removes an offer.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Offer> {
        let offer = self.slot(handle)?.offer.take()?;
        self.freed = true;
        self.free.push(handle.0 & 1_u32.wrapping_shl(SLOT_BITS).wrapping_sub(1));
        Some(offer)
    }

    /// Returns all offers that match.
    pub(crate) fn all(&self, so: impl Fn(&Offer) -> bool) -> Vec<Handle> {
        let numbered = (0_u32..).zip(&self.slots);
        let there = numbered.filter(|(_, slot)| slot.offer.as_ref().is_some_and(&so));
        there.map(|(at, slot)| Handle(slot.generation.wrapping_shl(SLOT_BITS) | at)).collect()
    }

    /// Returns whether offers were removed since the last call: then others fit.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Returns the first offer that matches.
    pub(crate) fn find(&self, so: impl Fn(&Offer) -> bool) -> Option<Handle> {
        let mut numbered = (0_u32..).zip(&self.slots);
        let (at, slot) = numbered.find(|(_, slot)| slot.offer.as_ref().is_some_and(&so))?;
        Some(Handle(slot.generation.wrapping_shl(SLOT_BITS) | at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_covers_the_message_at_any_offset() {
        for (offset, len) in [(0, 1), (0, 4096), (0, 4097), (5, 4091), (5, 4092), (4095, 100_000)] {
            let layout = FrameLayout::new(offset, len);
            let mut covered = 0;
            for frame in 0..layout.frames() {
                let (from, to) = layout.range(frame);
                assert_eq!(from, covered);
                assert_eq!(layout.frame_at(from), Some(frame));
                assert!(to > from && layout.frame_at(from + 1) != Some(frame));
                let (_, both) = layout.range(frame + 1);
                let found = |to: u32| layout.frames_at(from, (to - from) as usize);
                assert_eq!(found(to), Some((frame, false)));
                assert_eq!(found(both), Some((frame, both > to)));
                assert_eq!(found(to + 1), (both == to + 1).then_some((frame, true)));
                covered = to;
            }
            assert_eq!(covered, len);
            assert_eq!(layout.frame_at(len), None);
        }
        assert_eq!(FrameLayout::new(0, u32::MAX).frames(), 1 << 20);
        assert_eq!(FrameLayout::new(0, u32::MAX).range(u32::MAX), (u32::MAX, u32::MAX));
    }

    #[test]
    fn hostile_handles_belong_to_one_offer() {
        let mut offers = OfferTable::default();
        let offered =
            OfferHeader { match_info: 1, len: 2, window: 3, window_sequence: 4, offset: 5 };
        let first = offers.add(PeerId(1), offered).unwrap();
        assert!(offers.get(Handle(first.0 + 1)).is_none());
        offers.remove(first).unwrap();
        assert!(offers.remove(first).is_none());
        let second = offers.add(PeerId(1), offered).unwrap();
        assert!(first != second && offers.get(first).is_none());
        for _ in 1..OFFERS_MAX {
            offers.add(PeerId(1), offered).unwrap();
        }
        assert!(offers.add(PeerId(1), offered).is_none());
        assert_eq!(offers.find(|_| true), Some(second));
    }

    #[test]
    fn pull_requests_missing_frames_of_a_block() {
        let mut pull = ActivePull {
            token: Token(0),
            into: Window { region: causeway_wire::mx::RegionId(0), offset: 0, len: 0 },
            magic: 0,
            frames: 19,
            first: 1,
            blocks: VecDeque::new(),
            due: 0,
            tries: 0,
            heard_at: 0,
            refused: false,
        };
        assert_eq!(pull.block_mask(1), Some(0xff));
        assert_eq!(pull.block_mask(2), Some(7));
        assert_eq!(pull.block_mask(3), None);
        pull.blocks.push_back(Block {
            missing: 0b0010_0100,
            asked_at: 0,
            again: false,
            lost: false,
        });
        assert_eq!(pull.missing_frames(0), Some((10, 4)));
        assert!(pull.missing(8, false).is_none() && pull.missing(2, false).is_none());
        let (at, block, bit) = pull.missing(10, false).unwrap();
        assert_eq!((at, bit), (0, 4));
        block.missing &= !bit;
        assert_eq!(pull.missing_frames(0), Some((13, 1)));
        assert_eq!(pull.missing_frames(1), None);
        assert_eq!(pull.missing(12, true).unwrap().2, 0b0011_0000);
        assert!(pull.missing(10, true).is_none() && pull.missing(15, true).is_none());
    }
}
