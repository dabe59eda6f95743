//! The receiving side of a direction: polling, copying and consuming events, and requests for
//! wake-ups.
//!
//! [`open`](crate::open) creates a [`Receiver`]; `message` and `mxoe` own it. The receiver calls
//! [`Receiver::poll`], copies the bytes of the event ([`Receiver::copy`]), and consumes it
//! ([`Receiver::advance`]), which makes room for the sender. Each slot is copied before it is
//! checked.
//!
//! It never blocks and rings no doorbell: after [`Receiver::arm`] the caller sleeps, and if
//! `advance` returns true the caller must ring the sender's doorbell. Consumed slots and bytes are
//! reported to the sender in steps of a quarter of their ring (bytes: at most 4 KiB), so a sender
//! may see less room than there is. Bytes of an event can be read only until it is consumed, and a
//! hostile sender can change them until then. After [`BrokenChannel`], or once
//! [`Receiver::is_poisoned`] returns true, the caller must drop the channel. One thread uses a
//! receiver at a time.

use std::sync::atomic::{Ordering, fence};

use crate::area::Area;
use crate::cooperative_copy::Cell;
use crate::layout::{DirectionOffsets, INLINE_AT, Layout, SLOT_BYTES, UNIT};
use crate::sender::{AT_BEGIN, EventHead, WARM_BYTES, pass_id, units_of};
use crate::short::ShortEvent;
use crate::{BrokenChannel, INLINE_BYTES, handshake};

/// Number of data units after which the consumed counts are published: half of the area that a
/// sender reuses.
const KEPT_UNITS: u32 = (WARM_BYTES / 2 / UNIT) as u32;

/// An event, copied from shared memory once. Its bytes are still in the channel, for
/// [`Receiver::copy`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// Kind and words.
    pub head: EventHead,
    /// Number of bytes, at most the channel's maximum.
    pub len: usize,
    /// Whether the bytes start at the beginning of the data ring.
    at_begin: bool,
}

/// The receiving side of a direction.
#[derive(Debug)]
pub struct Receiver {
    /// The memory of the channel.
    area: Area,
    /// Offsets of the direction.
    offsets: DirectionOffsets,
    /// Number of slots.
    slots: u32,
    /// Size of the data ring, in units.
    units: u32,
    /// Maximum number of bytes of an event.
    event_bytes_max: usize,
    /// Number of slots ever consumed, modulo 2^32. `freed` is the number of data units ever
    /// consumed, and `consumed` are both numbers (slots, units) as last published.
    taken: u32,
    /// Offset of the next slot, and its expected id.
    next_at: usize,
    next_id: u16,
    freed: u32,
    consumed: (u32, u32),
    /// The counts (slots, units) when this side last checked whether the sender waits.
    checked: (u32, u32),
}

impl Receiver {
    /// Returns the receiver of the direction at `offsets`, before its first event.
    pub(crate) fn new(area: Area, layout: Layout, offsets: DirectionOffsets) -> Self {
        let units = u32::try_from(layout.data_bytes() / UNIT).unwrap_or(0);
        Self {
            area,
            offsets,
            slots: layout.slots(),
            units,
            event_bytes_max: layout.event_bytes_max(),
            taken: 0,
            next_at: offsets.slots,
            next_id: pass_id(0, layout.slots()),
            freed: 0,
            consumed: (0, 0),
            checked: (0, 0),
        }
    }

    /// Returns the offset of the next slot.
    #[inline]
    fn slot(&self) -> usize {
        self.next_at
    }

    /// Returns whether the last word of a slot has the id of the next event.
    #[inline]
    fn is_next(&self, last: u64) -> bool {
        last as u16 == self.next_id
    }

    /// Returns whether the next event is there.
    #[inline]
    pub fn ready(&self) -> bool {
        self.is_next(handshake::load_word(&self.area, self.slot().wrapping_add(56)))
    }

    /// Returns the next event, if it is there. It stays the next event until [`Self::advance`].
    ///
    /// # Errors
    /// [`BrokenChannel`] if its length exceeds the maximum.
    #[inline]
    pub fn poll(&self) -> Result<Option<Event>, BrokenChannel> {
        let slot = self.area.line(self.slot());
        // Acquire like `handshake::load_word`: earlier writes are visible.
        let last = slot.get::<7>(Ordering::Acquire);
        if !self.is_next(last) {
            return Ok(None);
        }
        let len = (last >> 32) as usize;
        if len > self.event_bytes_max {
            return Err(BrokenChannel);
        }
        let words = [
            slot.get::<0>(Ordering::Relaxed),
            slot.get::<1>(Ordering::Relaxed),
            slot.get::<6>(Ordering::Relaxed),
        ];
        let head = EventHead { kind: (last >> 16) as u8, words };
        let at_begin = (last >> 16) as u16 & AT_BEGIN != 0;
        Ok(Some(Event { head, len, at_begin }))
    }

    /// Returns a copy of the first word and the bytes of the next event, if it is of this kind and
    /// its bytes are in its cache line. Any other event is left to [`Self::poll`].
    #[inline(always)]
    pub fn poll_short(&self, kind: u8) -> Option<ShortEvent> {
        self.poll_short_of(kind).map(|(short, _)| short)
    }

    /// Like [`Self::poll_short`], with the event's other two words.
    #[inline(always)]
    pub fn poll_short_of(&self, kind: u8) -> Option<(ShortEvent, [u64; 2])> {
        let slot = self.area.line(self.slot());
        let last = slot.get::<7>(Ordering::Acquire);
        let len = (last >> 32) as usize;
        if !self.is_next(last) || (last >> 16) as u16 != u16::from(kind) || len > INLINE_BYTES {
            return None;
        }
        let bytes = [
            slot.get::<2>(Ordering::Relaxed),
            slot.get::<3>(Ordering::Relaxed),
            slot.get::<4>(Ordering::Relaxed),
            slot.get::<5>(Ordering::Relaxed),
        ];
        let others = [slot.get::<1>(Ordering::Relaxed), slot.get::<6>(Ordering::Relaxed)];
        Some((ShortEvent::new(slot.get::<0>(Ordering::Relaxed), len, bytes), others))
    }

    /// Consumes the event of [`Self::poll_short`], like [`Self::advance`].
    #[inline]
    pub fn advance_short(&mut self) -> bool {
        self.advance_slot();
        // A short event has no data units.
        self.taken.wrapping_sub(self.consumed.0) >= self.slots / 4 && self.publish_consumed()
    }

    /// Copies bytes of `event`, the next event, from offset `at`. Returns their number, which is
    /// smaller than `into` at the end of the event. A hostile peer may have changed the bytes, so
    /// the caller must copy bytes that it checks only once.
    #[inline]
    pub fn copy(&self, event: &Event, at: usize, into: &mut [u8]) -> usize {
        let len = event.len.saturating_sub(at).min(into.len());
        let Some(into) = into.get_mut(..len) else { return 0 };
        if event.len <= INLINE_BYTES {
            self.area.read(self.slot().wrapping_add(INLINE_AT).wrapping_add(at), into);
            return len;
        }
        let size = (self.units as usize).wrapping_mul(UNIT);
        let start = (self.data_start(event) as usize).wrapping_mul(UNIT).wrapping_add(at);
        let start = start & size.wrapping_sub(1);
        let (before, after) = into.split_at_mut(len.min(size.wrapping_sub(start)));
        self.area.read(self.offsets.data.wrapping_add(start), before);
        if !after.is_empty() {
            self.area.read(self.offsets.data, after);
        }
        len
    }

    /// Consumes the event of [`Self::poll`]. Returns true if the sender waits for room: the caller
    /// must ring its doorbell then.
    #[inline]
    pub fn advance(&mut self, event: &Event) -> bool {
        self.advance_slot();
        self.freed = self.data_start(event).wrapping_add(units_of(event.len));
        let (slots, units) = self.consumed;
        // The counts are published in steps, so that their line stays with the sender in between. A
        // skipped part counts at once, so that there is always room for the longest event.
        let due = self.taken.wrapping_sub(slots) >= self.slots / 4
            || self.freed.wrapping_sub(units) >= (self.units / 4).min(KEPT_UNITS);
        due && self.publish_consumed()
    }

    /// Moves to the next slot.
    #[inline]
    fn advance_slot(&mut self) {
        self.taken = self.taken.wrapping_add(1);
        let index = (self.taken & self.slots.wrapping_sub(1)) as usize;
        self.next_at = self.offsets.slots.wrapping_add(index.wrapping_mul(SLOT_BYTES));
        if index == 0 {
            self.next_id = pass_id(self.taken, self.slots);
        }
    }

    /// Returns the position of an event's data, in units. A skipped part before it counts as
    /// consumed.
    #[inline]
    fn data_start(&self, event: &Event) -> u32 {
        let within = self.units.wrapping_sub(1);
        let left_out = self.freed.wrapping_neg() & within;
        if event.at_begin { self.freed.wrapping_add(left_out) } else { self.freed }
    }

    /// Publishes the consumed counts. Returns whether the sender waits for room.
    fn publish_consumed(&mut self) -> bool {
        self.consumed = (self.taken, self.freed);
        let counts = u64::from(self.taken) | u64::from(self.freed) << 32;
        handshake::publish(&self.area, self.offsets.consumed(), counts);
        // A waiting sender has filled at least half of the ring, so a check per quarter wakes it in
        // time and seldom.
        let (slots, units) = self.checked;
        let much = self.taken.wrapping_sub(slots) >= self.slots / 4
            || self.freed.wrapping_sub(units) >= self.units / 4;
        if !much {
            return false;
        }
        self.checked = self.consumed;
        handshake::must_wake(&self.area, self.offsets.sender_waits())
    }

    /// Requests a wake-up by the next event, before the caller sleeps. Returns true if the event is
    /// there: the caller must not sleep then. For a sender that keeps its fences; otherwise
    /// [`Self::request_wake`].
    pub fn arm(&mut self) -> bool {
        let at = self.slot().wrapping_add(56);
        let last = handshake::arm(&self.area, self.offsets.receiver_sleeps(), at);
        self.is_next(last)
    }

    /// First half of [`Self::arm`], for any number of channels whose senders may omit fences.
    /// Returns true if this sender does: then a [`far_fence`](crate::far_fence) is needed before
    /// the second half, [`Self::ready`].
    pub fn request_wake(&mut self) -> bool {
        handshake::request_wake(
            &self.area,
            self.offsets.receiver_sleeps(),
            self.offsets.sender_omits_fences(),
        )
    }

    /// Withdraws the request of [`Self::arm`].
    pub fn disarm(&mut self) {
        handshake::disarm(&self.area, self.offsets.receiver_sleeps());
    }

    /// Returns whether the sender closed the direction. Check this before polling for a last event:
    /// events sent before can still be taken.
    pub fn closed(&self) -> bool {
        self.area.get(self.offsets.sender_closed(), Ordering::Acquire) != 0
    }

    /// Returns the number of the sender's withdrawals, as of after all earlier reads of the caller.
    pub fn withdrawn(&self) -> u64 {
        fence(Ordering::Acquire);
        self.area.get(self.offsets.withdrawals(), Ordering::Acquire)
    }

    /// Returns the word for the cooperative copy of a message that the other side sends.
    pub fn shared(&self) -> impl Cell + '_ {
        self.area.cell(self.offsets.copy_progress())
    }

    /// Returns whether a page of the memory was lost: the channel is unusable then.
    pub fn is_poisoned(&self) -> bool {
        self.area.is_poisoned()
    }
}
