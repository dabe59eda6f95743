//! Large messages that are offered to this endpoint, and what was pulled of them.

use std::collections::VecDeque;

use causeway_wire::mx::{Handle, PeerId, Token, Window};
use causeway_wire::mxoe::{FRAGMENT_LEN, PULL_FRAMES_MAX};

use crate::limits::{BLOCKS_SPAN_MAX, OFFERS_MAX};
use crate::peer::Offered;

/// Bits of a handle that say which slot.
const SLOT_BITS: u32 = OFFERS_MAX.trailing_zeros();
const _: () = assert!(OFFERS_MAX.is_power_of_two());

/// One offer.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) peer: PeerId,
    pub(crate) offered: Offered,
    pub(crate) state: State,
}

/// How far it is.
#[derive(Debug)]
pub(crate) enum State {
    /// The library knows.
    Offered,
    /// To be pulled when there are fewer others.
    Waiting { token: Token, into: Window },
    /// Pulled.
    Pulling(Pull),
}

/// What is pulled.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) token: Token,
    pub(crate) into: Window,
    pub(crate) magic: u32,
    /// How many frames there are in all.
    pub(crate) frames: u32,
    /// The number of the first of `blocks`.
    pub(crate) first: u32,
    /// From the first that is not all there to the last that was asked for.
    pub(crate) blocks: VecDeque<Block>,
    pub(crate) due: u64,
    pub(crate) tries: u32,
    pub(crate) heard_at: u64,
    /// Whether it was refused since.
    pub(crate) refused: bool,
}

/// A block that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// A bit for each frame.
    pub(crate) missing: u8,
    pub(crate) asked_at: u64,
    /// Whether it was asked for again.
    pub(crate) again: bool,
    /// Whether what is missing is taken for lost, and to be asked for again.
    pub(crate) lost: bool,
}

/// Frames of a block, as the wire has them.
const BLOCK_FRAMES: u32 = PULL_FRAMES_MAX as u32;
const FRAME: u32 = FRAGMENT_LEN as u32;

/// How a message lies in frames: its window's offset shifts the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Where the message begins in its first frame.
    pub(crate) base: u32,
    /// Its length, in bytes.
    pub(crate) len: u32,
}

impl Layout {
    /// Of `len` bytes at `offset` of a window.
    pub(crate) fn new(offset: u16, len: u32) -> Self {
        Self { base: u32::from(offset) & FRAME.wrapping_sub(1), len }
    }

    /// How many frames there are.
    pub(crate) fn frames(self) -> u32 {
        let bits = u64::from(self.base).saturating_add(self.len.into());
        u32::try_from(bits.div_ceil(FRAME.into())).unwrap_or(u32::MAX)
    }

    /// Which bytes of the message a frame has, from and to.
    pub(crate) fn range(self, frame: u32) -> (u32, u32) {
        let edge = |frame: u32| {
            let at = u64::from(frame).saturating_mul(FRAME.into());
            let at = at.saturating_sub(self.base.into()).min(self.len.into());
            u32::try_from(at).unwrap_or(self.len)
        };
        (edge(frame), edge(frame.saturating_add(1)))
    }

    /// The frame that is so many bytes from this one on; or the first of two that are, and that it
    /// is two.
    pub(crate) fn frames_at(self, offset: u32, len: usize) -> Option<(u32, bool)> {
        let frame = self.frame_at(offset)?;
        let until = |frame| self.range(frame).1.saturating_sub(offset) as usize;
        let (one, both) = (until(frame), until(frame.saturating_add(1)));
        (len == one || len == both).then_some((frame, len > one))
    }

    /// The frame whose first byte this is.
    fn frame_at(self, offset: u32) -> Option<u32> {
        let frame = offset.div_ceil(FRAME);
        let (from, to) = self.range(frame);
        (from == offset && to > from).then_some(frame)
    }
}

impl Pull {
    /// A block as if nothing of it came; none behind the last.
    pub(crate) fn whole(&self, block: u32) -> Option<u8> {
        let first = block.checked_mul(BLOCK_FRAMES)?;
        let left = self.frames.checked_sub(first)?.min(BLOCK_FRAMES);
        let mask = 1_u16.wrapping_shl(left).wrapping_sub(1);
        (left > 0).then(|| mask.to_le_bytes()[0])
    }

    /// Blocks that were asked for and may still come.
    pub(crate) fn asked(&self) -> usize {
        self.blocks.iter().filter(|block| block.missing != 0 && !block.lost).count()
    }

    /// All that is missing is taken for lost.
    pub(crate) fn lose(&mut self) {
        for block in self.blocks.iter_mut().filter(|block| block.missing != 0) {
            (block.lost, block.again) = (true, true);
        }
    }

    /// The place of the next block to be asked for: one that was lost, else a new one.
    pub(crate) fn next_block(&mut self, now: u64) -> Option<usize> {
        let lost = |block: &Block| block.lost && block.missing != 0;
        if let Some(at) = self.blocks.iter().position(lost) {
            self.blocks.get_mut(at)?.lost = false;
            return Some(at);
        }
        let at = self.blocks.len();
        let missing = self.whole(self.first.saturating_add(u32::try_from(at).ok()?))?;
        if at >= BLOCKS_SPAN_MAX {
            return None;
        }
        self.blocks.push_back(Block { missing, asked_at: now, again: false, lost: false });
        Some(at)
    }

    /// Lets go of the first blocks, as far as they are there; says whether that is all there is.
    pub(crate) fn is_over(&mut self) -> bool {
        while self.blocks.front().is_some_and(|block| block.missing == 0) {
            self.blocks.pop_front();
            self.first = self.first.saturating_add(1);
        }
        self.blocks.is_empty() && self.whole(self.first).is_none()
    }

    /// Block and bits of a frame, or of two of one block, of which any is missing.
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

    /// Frames and their number that are to be asked for, so that a block is all there.
    pub(crate) fn hole(&self, at: usize) -> Option<(u32, u32)> {
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

/// A place: how often it was used, and by what.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    offer: Option<Offer>,
}

/// All offers.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    freed: bool,
}

impl Offers {
    /// Adds one, if there is room.
    pub(crate) fn add(&mut self, peer: PeerId, offered: Offered) -> Option<Handle> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < OFFERS_MAX => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len().saturating_sub(1)).ok()?
            }
            None => return None,
        };
        let slot = self.slots.get_mut(at as usize)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.offer = Some(Offer { peer, offered, state: State::Offered });
        Some(Handle(slot.generation.wrapping_shl(SLOT_BITS) | at))
    }

    fn slot(&mut self, handle: Handle) -> Option<&mut Slot> {
        let at = handle.0 & 1_u32.wrapping_shl(SLOT_BITS).wrapping_sub(1);
        let slot = self.slots.get_mut(at as usize)?;
        (slot.generation.wrapping_shl(SLOT_BITS) | at == handle.0).then_some(slot)
    }

    /// One that is there.
    pub(crate) fn get(&mut self, handle: Handle) -> Option<&mut Offer> {
        self.slot(handle)?.offer.as_mut()
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Offer> {
        let offer = self.slot(handle)?.offer.take()?;
        self.freed = true;
        self.free.push(handle.0 & 1_u32.wrapping_shl(SLOT_BITS).wrapping_sub(1));
        Some(offer)
    }

    /// All that are so.
    pub(crate) fn all(&self, so: impl Fn(&Offer) -> bool) -> Vec<Handle> {
        let numbered = (0_u32..).zip(&self.slots);
        let there = numbered.filter(|(_, slot)| slot.offer.as_ref().is_some_and(&so));
        there.map(|(at, slot)| Handle(slot.generation.wrapping_shl(SLOT_BITS) | at)).collect()
    }

    /// Whether any was taken out since this was asked last: another may come.
    pub(crate) fn freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// The first that is so.
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
    fn frames_cover_the_message_wherever_it_begins() {
        for (offset, len) in [(0, 1), (0, 4096), (0, 4097), (5, 4091), (5, 4092), (4095, 100_000)] {
            let layout = Layout::new(offset, len);
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
        assert_eq!(Layout::new(0, u32::MAX).frames(), 1 << 20);
        assert_eq!(Layout::new(0, u32::MAX).range(u32::MAX), (u32::MAX, u32::MAX));
    }

    #[test]
    fn hostile_handles_are_of_one_offer_only() {
        let mut offers = Offers::default();
        let offered = Offered { match_info: 1, len: 2, window: 3, window_sequence: 4, offset: 5 };
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
    fn what_is_missing_of_a_block_is_asked_for() {
        let mut pull = Pull {
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
        assert_eq!(pull.whole(1), Some(0xff));
        assert_eq!(pull.whole(2), Some(7));
        assert_eq!(pull.whole(3), None);
        pull.blocks.push_back(Block {
            missing: 0b0010_0100,
            asked_at: 0,
            again: false,
            lost: false,
        });
        assert_eq!(pull.hole(0), Some((10, 4)));
        assert!(pull.missing(8, false).is_none() && pull.missing(2, false).is_none());
        let (at, block, bit) = pull.missing(10, false).unwrap();
        assert_eq!((at, bit), (0, 4));
        block.missing &= !bit;
        assert_eq!(pull.hole(0), Some((13, 1)));
        assert_eq!(pull.hole(1), None);
        assert_eq!(pull.missing(12, true).unwrap().2, 0b0011_0000);
        assert!(pull.missing(10, true).is_none() && pull.missing(15, true).is_none());
    }
}
