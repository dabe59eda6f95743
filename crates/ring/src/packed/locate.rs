//! Where a packed ring stands, by its descriptors alone.
//!
//! A split ring has its indices in memory; a packed ring has them with the driver and the device only
//! (virtio 1.3, 2.8). A backend that replaces one which was killed is given the position by the
//! frontend. QEMU asks for it when the device stops, and where the backend is gone it sends the one
//! that it had before: that of the device's start. The flags show the true one as long as each chain
//! takes one slot. In turn `w` around the ring the slots are then, from the first to the last,
//!
//! - used in this turn (AVAIL = USED = w), available (AVAIL = w, USED = !w), used in the last turn; or,
//!   where the driver is a turn ahead,
//! - available in the next turn, used in this turn, available in this turn.
//!
//! The next used entry goes to the first slot that is available in this turn, or behind those that were
//! used. A backend that ends in the middle of a batch leaves used entries that the driver was not
//! shown: the flags of the first still say that it is available.

use causeway_memory::View;

use crate::error::RingError;
use crate::format::packed::LEN;
use crate::format::{FLAG_INDIRECT, FLAG_NEXT};
use crate::handshake::look_slot;
use crate::limits::DESCRIPTOR_BYTES;
use crate::position::Position;

/// What the slots of a ring say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    /// The first slot whose chain was not used.
    pub used: Position,
    /// The first of the used entries that the driver was not shown, if there are any.
    pub unshown: Option<Position>,
}

/// The flags of all slots.
pub(super) struct Slots {
    flags: Vec<u16>,
    size: u16,
}

impl Slots {
    pub fn read(ring: &View, size: u16) -> Result<Self, RingError> {
        let mut at = Position::START;
        let mut flags = Vec::with_capacity(usize::from(size));
        for _ in 0..size {
            flags.push(look_slot(ring, at).map_err(RingError::Lost)?);
            at = at.next(size);
        }
        Ok(Self { flags, size })
    }

    fn flags(&self, slot: u16) -> u16 {
        self.flags.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Whether no chain in the ring takes several slots, as far as descriptors are still there.
    pub fn are_single(&self) -> bool {
        self.flags.iter().all(|flags| flags & FLAG_NEXT == 0)
    }

    /// The first slot at or behind `slot` whose flags are not as `is` wants them.
    fn skip(&self, slot: u16, is: impl Fn(u16) -> bool) -> u16 {
        let mut slot = slot;
        while slot < self.size && is(self.flags(slot)) {
            slot = slot.saturating_add(1);
        }
        slot
    }

    /// Where the ring stands if each chain takes one slot; `None` if no position fits all slots.
    pub fn locate(&self) -> Option<Located> {
        let start = Position::START;
        self.in_turn(start).or_else(|| self.in_turn(start.advance(self.size, self.size)))
    }

    /// The same for one turn, that of `now`, of slot 0.
    fn in_turn(&self, now: Position) -> Option<Located> {
        let other = now.advance(self.size, self.size);
        let ahead = self.skip(0, |flags| other.is_available(flags));
        let used = self.skip(ahead, |flags| now.is_used(flags));
        // The first of a batch that the driver was not shown, and those behind it.
        let behind = used.saturating_add(1);
        let gated = now.is_available(self.flags(used))
            && behind < self.size
            && now.is_used(self.flags(behind));
        let unshown = (used < self.size && gated).then(|| now.advance(used, self.size));
        let used = if gated { self.skip(behind, |flags| now.is_used(flags)) } else { used };
        let rest = self.skip(used, |flags| now.is_available(flags));
        let end = self.skip(rest, |flags| other.is_used(flags));
        // The batch that was not shown may have begun in the turn before.
        let begun = (ahead, unshown) == (0, None)
            && used > 0
            && end < self.size
            && other.is_available(self.flags(end));
        let unshown = if begun { Some(other.advance(end, self.size)) } else { unshown };
        let end = match begun {
            true => self.skip(end.saturating_add(1), |flags| other.is_used(flags)),
            false => end,
        };
        let whole = end == self.size && (ahead == 0 || rest == self.size);
        whole.then(|| Located { used: now.advance(used, self.size), unshown })
    }

    /// Whether a ring may stand at `at`, however many slots chains take: no slot from there on is used
    /// in that turn, and none before it was last used in the turn before.
    pub fn may_stand(&self, at: Position) -> bool {
        let other = at.advance(self.size, self.size);
        let (before, behind) =
            self.flags.split_at_checked(usize::from(at.index())).unwrap_or_default();
        before.iter().all(|flags| !other.is_used(*flags))
            && behind.iter().all(|flags| !at.is_used(*flags))
    }

    /// Whether the slots from `from` to `to` may be those behind the first of one chain: they are as
    /// the driver wrote them.
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

/// Whether the descriptor at `at`, with these flags, is of a chain that was used and not shown. The
/// length of what was only read is 0 then, which no descriptor has, and that of a table no multiple of
/// a descriptor's. A buffer that was written to only looks shorter: it is filled again.
pub(super) fn is_used_up(ring: &View, at: Position, flags: u16) -> Result<bool, RingError> {
    let len = ring.read(at.at().wrapping_add(LEN)).map_err(RingError::Lost)?;
    let len = u32::from_le_bytes(len);
    let table = flags & FLAG_INDIRECT != 0;
    Ok(len == 0 || table && !len.is_multiple_of(DESCRIPTOR_BYTES as u32))
}
