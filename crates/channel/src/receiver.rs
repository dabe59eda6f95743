//! The half of a direction that receives.

use std::sync::atomic::{Ordering, fence};

use crate::area::Area;
use crate::layout::{INLINE_AT, Layout, Places, SLOT_BYTES, UNIT};
use crate::sender::{AT_BEGIN, Head, WARM_BYTES, lap_id, units_of};
use crate::shared::Cell;
use crate::short::Short;
use crate::{Broken, INLINE_BYTES, handshake};

/// How many units of data are given back at a time: half of what a sender fills again and again.
const KEPT_UNITS: u32 = (WARM_BYTES / 2 / UNIT) as u32;

/// An event as it was found, copied from shared memory once. Its bytes are still there, for
/// [`Receiver::copy`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// Its kind and words.
    pub head: Head,
    /// How many bytes it has; at most what the channel allows.
    pub len: usize,
    /// They lie at the beginning of the ring.
    at_begin: bool,
}

/// Receives events from the other side.
#[derive(Debug)]
pub struct Receiver {
    area: Area,
    places: Places,
    slots: u32,
    /// Of the data ring, in units.
    units: u32,
    event_bytes_max: usize,
    /// Slots and data units ever taken, and how much of it was given back.
    taken: u32,
    /// Where the next slot lies, and what its id will be: known before it is looked for.
    next_at: usize,
    next_id: u16,
    freed: u32,
    given_back: (u32, u32),
    /// The same when it was last looked whether the sender waits for it.
    offered: (u32, u32),
}

impl Receiver {
    pub(crate) fn new(area: Area, layout: Layout, places: Places) -> Self {
        let units = u32::try_from(layout.data_bytes() / UNIT).unwrap_or(0);
        Self {
            area,
            places,
            slots: layout.slots(),
            units,
            event_bytes_max: layout.event_bytes_max(),
            taken: 0,
            next_at: places.slots,
            next_id: lap_id(0, layout.slots()),
            freed: 0,
            given_back: (0, 0),
            offered: (0, 0),
        }
    }

    #[inline]
    fn slot(&self) -> usize {
        self.next_at
    }

    #[inline]
    fn is_next(&self, last: u64) -> bool {
        last as u16 == self.next_id
    }

    /// Whether the next event is there.
    #[inline]
    pub fn ready(&self) -> bool {
        self.is_next(handshake::look(&self.area, self.slot().wrapping_add(56)))
    }

    /// The next event, if it is there. It stays the next one until [`Self::advance`].
    ///
    /// # Errors
    /// It has more bytes than an event may.
    #[inline]
    pub fn poll(&self) -> Result<Option<Event>, Broken> {
        let slot = self.area.line(self.slot());
        // As `handshake::look`: what was written before is visible.
        let last = slot.get::<7>(Ordering::Acquire);
        if !self.is_next(last) {
            return Ok(None);
        }
        let len = (last >> 32) as usize;
        if len > self.event_bytes_max {
            return Err(Broken);
        }
        let words = [
            slot.get::<0>(Ordering::Relaxed),
            slot.get::<1>(Ordering::Relaxed),
            slot.get::<6>(Ordering::Relaxed),
        ];
        let head = Head { kind: (last >> 16) as u8, words };
        let at_begin = (last >> 16) as u16 & AT_BEGIN != 0;
        Ok(Some(Event { head, len, at_begin }))
    }

    /// The next event, if it is there and of that kind, and its bytes lie in its cache line: its
    /// first word and all its bytes, copied. Anything else is for [`Self::poll`].
    #[inline(always)]
    pub fn poll_short(&self, kind: u8) -> Option<Short> {
        self.poll_short_of(kind).map(|(short, _)| short)
    }

    /// As [`Self::poll_short`], with its other two words.
    #[inline(always)]
    pub fn poll_short_of(&self, kind: u8) -> Option<(Short, [u64; 2])> {
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
        Some((Short::new(slot.get::<0>(Ordering::Relaxed), len, bytes), others))
    }

    /// Lets the event go that [`Self::poll_short`] gave; as [`Self::advance`].
    #[inline]
    pub fn advance_short(&mut self) -> bool {
        self.pass_slot();
        // It had no data.
        self.taken.wrapping_sub(self.given_back.0) >= self.slots / 4 && self.give_back()
    }

    /// Copies bytes of the next event, which [`Self::poll`] gave, from its byte `at` on. Gives how
    /// many: fewer than `into` takes if the event has no more. A peer that breaks the rules may
    /// have changed them since; so what is to be checked is copied once.
    #[inline]
    pub fn copy(&self, event: &Event, at: usize, into: &mut [u8]) -> usize {
        let len = event.len.saturating_sub(at).min(into.len());
        let Some(into) = into.get_mut(..len) else { return 0 };
        if event.len <= INLINE_BYTES {
            self.area.read(self.slot().wrapping_add(INLINE_AT).wrapping_add(at), into);
            return len;
        }
        let size = (self.units as usize).wrapping_mul(UNIT);
        let start = (self.begin_of(event) as usize).wrapping_mul(UNIT).wrapping_add(at);
        let start = start & size.wrapping_sub(1);
        let (before, after) = into.split_at_mut(len.min(size.wrapping_sub(start)));
        self.area.read(self.places.data.wrapping_add(start), before);
        if !after.is_empty() {
            self.area.read(self.places.data, after);
        }
        len
    }

    /// Lets the event go that [`Self::poll`] gave. True: ring the other side's doorbell, it waits
    /// for room.
    #[inline]
    pub fn advance(&mut self, event: &Event) -> bool {
        self.pass_slot();
        self.freed = self.begin_of(event).wrapping_add(units_of(event.len));
        let (slots, units) = self.given_back;
        // Some at a time: the sender's line with the counts stays with it meanwhile. What was left
        // out at once, so that there is always room for the longest event.
        let due = self.taken.wrapping_sub(slots) >= self.slots / 4
            || self.freed.wrapping_sub(units) >= (self.units / 4).min(KEPT_UNITS);
        due && self.give_back()
    }

    /// The next slot is the one behind.
    #[inline]
    fn pass_slot(&mut self) {
        self.taken = self.taken.wrapping_add(1);
        let index = (self.taken & self.slots.wrapping_sub(1)) as usize;
        self.next_at = self.places.slots.wrapping_add(index.wrapping_mul(SLOT_BYTES));
        if index == 0 {
            self.next_id = lap_id(self.taken, self.slots);
        }
    }

    /// Where an event's data begins, in units: what is left out before it counts as taken.
    #[inline]
    fn begin_of(&self, event: &Event) -> u32 {
        let within = self.units.wrapping_sub(1);
        let left_out = self.freed.wrapping_neg() & within;
        if event.at_begin { self.freed.wrapping_add(left_out) } else { self.freed }
    }

    fn give_back(&mut self) -> bool {
        self.given_back = (self.taken, self.freed);
        let counts = u64::from(self.taken) | u64::from(self.freed) << 32;
        handshake::show(&self.area, self.places.given_back(), counts);
        // Who waits has filled at least half; a quarter at a time wakes it early enough, and seldom.
        let (slots, units) = self.offered;
        let much = self.taken.wrapping_sub(slots) >= self.slots / 4
            || self.freed.wrapping_sub(units) >= self.units / 4;
        if !much {
            return false;
        }
        self.offered = self.given_back;
        handshake::must_wake(&self.area, self.places.sender_waits())
    }

    /// Before sleeping: asks to be woken by the next event, and looks once more. True: it is
    /// there, do not sleep.
    pub fn ask(&mut self) -> bool {
        let at = self.slot().wrapping_add(56);
        let last = handshake::ask(&self.area, self.places.receiver_sleeps(), at);
        self.is_next(last)
    }

    /// As the first half of [`Self::ask`], of any number of channels, whose senders may spare
    /// their fences: asks. True: one of those does, and a [`far_fence`](crate::far_fence) is needed
    /// before the other half, which is [`Self::ready`].
    pub fn wish(&mut self) -> bool {
        handshake::wish(&self.area, self.places.receiver_sleeps(), self.places.sender_spares())
    }

    /// Takes back what [`Self::ask`] asked.
    pub fn awake(&mut self) {
        handshake::awake(&self.area, self.places.receiver_sleeps());
    }

    /// Whether the other side closed. What it sent before can still be taken; look at this first
    /// and then whether there is an event.
    pub fn closed(&self) -> bool {
        self.area.get(self.places.sender_closed(), Ordering::Acquire) != 0
    }

    /// How often the other side withdrew something, after all that was looked at before this.
    pub fn withdrawn(&self) -> u64 {
        fence(Ordering::Acquire);
        self.area.get(self.places.sender_withdrew(), Ordering::Acquire)
    }

    /// The word by which a message that the other side sends is shared.
    pub fn shared(&self) -> impl Cell + '_ {
        self.area.cell(self.places.shared())
    }

    /// Whether a page of the memory was lost: the channel is of no use any more.
    pub fn poisoned(&self) -> bool {
        self.area.poisoned()
    }
}
