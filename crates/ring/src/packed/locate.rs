//! Recovery of a packed ring's position from its descriptors.
//!
//! `attach` calls [`crate::Queue::locate`] once when a packed queue starts without an in-flight
//! record, in the dispatcher's thread. The module reads each slot of the ring, and writes none; the
//! queue corrects its position and publishes. If chains may take several slots, or are out of
//! order, the flags do not determine the position, and the result is [`RingError::PositionLost`]
//! unless the given position is consistent.
//!
//! A split ring has its indices in memory; the positions of a packed ring are known only to driver
//! and device (virtio 1.3, 2.8). A backend that replaces a killed backend gets the position from
//! the frontend. QEMU reads it from the backend when the device stops; if the backend is gone it
//! sends the last known position, that of the device's start. As long as each chain takes one slot,
//! the flags determine the true position. In pass `w` over the ring the slots are, from first to
//! last,
//!
//! - used in this pass (AVAIL = USED = w), available (AVAIL = w, USED = !w), used in the previous
//!   pass; or, if the driver is a pass ahead,
//! - available in the next pass, used in this pass, available in this pass.
//!
//! The next used entry goes to the first slot that is available in this pass, or after the used
//! slots. A backend that ended in the middle of a batch leaves used entries that the driver has not
//! seen: the flags of the first of these still mark it as available.

use causeway_memory::View;

use crate::error::RingError;
use crate::format::packed::LEN;
use crate::format::{FLAG_INDIRECT, FLAG_NEXT};
use crate::handshake::load_flags;
use crate::limits::DESCRIPTOR_BYTES;
use crate::position::Position;

/// Position of a ring, as its slots show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingPosition {
    /// First slot whose chain was not used.
    pub used: Position,
    /// First used entry that was not published, if any.
    pub unpublished: Option<Position>,
}

/// Flags of all slots of a ring.
pub(super) struct SlotFlags {
    /// Flags by slot.
    flags: Vec<u16>,
    size: u16,
}

impl SlotFlags {
    /// Reads the flags of all slots of `ring`.
    ///
    /// # Errors
    /// [`RingError::Lost`] if the ring is outside the memory.
    pub fn read(ring: &View, size: u16) -> Result<Self, RingError> {
        let mut at = Position::START;
        let mut flags = Vec::with_capacity(usize::from(size));
        for _ in 0..size {
            flags.push(load_flags(ring, at).map_err(RingError::Lost)?);
            at = at.next(size);
        }
        Ok(Self { flags, size })
    }

    /// Returns the flags of a slot; 0 beyond the ring.
    fn flags(&self, slot: u16) -> u16 {
        self.flags.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Returns whether no chain in the ring takes several slots, as far as descriptors are intact.
    pub fn are_single(&self) -> bool {
        self.flags.iter().all(|flags| flags & FLAG_NEXT == 0)
    }

    /// Returns the first slot at or after `slot` whose flags do not satisfy `is`.
    fn skip(&self, slot: u16, is: impl Fn(u16) -> bool) -> u16 {
        let mut slot = slot;
        while slot < self.size && is(self.flags(slot)) {
            slot = slot.saturating_add(1);
        }
        slot
    }

    /// Returns the position of the ring if each chain takes one slot, or `None` if no position is
    /// consistent with all slots.
    pub fn locate(&self) -> Option<RingPosition> {
        let start = Position::START;
        self.in_pass(start).or_else(|| self.in_pass(start.advance(self.size, self.size)))
    }

    /// Like [`Self::locate`], for the pass of `now`, whose slot is 0.
    fn in_pass(&self, now: Position) -> Option<RingPosition> {
        let other = now.advance(self.size, self.size);
        let ahead = self.skip(0, |flags| other.is_available(flags));
        let used = self.skip(ahead, |flags| now.is_used(flags));
        // The first entry of an unpublished batch, and the entries after it.
        let behind = used.saturating_add(1);
        let is_hidden = now.is_available(self.flags(used))
            && behind < self.size
            && now.is_used(self.flags(behind));
        let unpublished = (used < self.size && is_hidden).then(|| now.advance(used, self.size));
        let used = if is_hidden { self.skip(behind, |flags| now.is_used(flags)) } else { used };
        let rest = self.skip(used, |flags| now.is_available(flags));
        let end = self.skip(rest, |flags| other.is_used(flags));
        // The unpublished batch may have started in the previous pass.
        let begun = (ahead, unpublished) == (0, None)
            && used > 0
            && end < self.size
            && other.is_available(self.flags(end));
        let unpublished = if begun { Some(other.advance(end, self.size)) } else { unpublished };
        let end = match begun {
            true => self.skip(end.saturating_add(1), |flags| other.is_used(flags)),
            false => end,
        };
        let whole = end == self.size && (ahead == 0 || rest == self.size);
        whole.then(|| RingPosition { used: now.advance(used, self.size), unpublished })
    }

    /// Returns whether `at` is consistent with the slots for chains of any length: no slot from
    /// there on is used in that pass, and no slot before it was last used in the previous pass.
    pub fn may_stand(&self, at: Position) -> bool {
        let other = at.advance(self.size, self.size);
        let (before, behind) =
            self.flags.split_at_checked(usize::from(at.index())).unwrap_or_default();
        before.iter().all(|flags| !other.is_used(*flags))
            && behind.iter().all(|flags| !at.is_used(*flags))
    }

    /// Returns whether the slots from `from` to `to` can be those after the first slot of one
    /// chain: they are as the driver wrote them.
    pub fn is_rest_of_chain(&self, from: Position, to: Position) -> bool {
        let count = to.after(from, self.size);
        let Ok(count) = u16::try_from(count) else { return false };
        let mut at = from;
        (1..=count).all(|number| {
            let flags = self.flags(at.index());
            let stale = at.is_available(flags) && (flags & FLAG_NEXT != 0) == (number < count);
            at = at.next(self.size);
            stale
        }) && count < self.size
    }
}

/// Returns whether the descriptor at `at`, with these flags, belongs to a chain that was used
/// without publication. The length of a read-only chain is 0 then, which no descriptor has, and
/// that of an indirect table is not a multiple of a descriptor's. A written buffer merely looks
/// shorter: it is filled again.
pub(super) fn is_used_unpublished(
    ring: &View,
    at: Position,
    flags: u16,
) -> Result<bool, RingError> {
    let len = ring.read(at.at().wrapping_add(LEN)).map_err(RingError::Lost)?;
    let len = u32::from_le_bytes(len);
    let table = flags & FLAG_INDIRECT != 0;
    Ok(len == 0 || table && !len.is_multiple_of(DESCRIPTOR_BYTES as u32))
}
