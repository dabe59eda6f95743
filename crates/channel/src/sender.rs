//! The half of a direction that sends.

use std::sync::atomic::Ordering;

use crate::area::Area;
use crate::layout::{INLINE_AT, Layout, Places, SLOT_BYTES, Side, UNIT};
use crate::shared::Cell;
use crate::short::Short;
use crate::{Broken, INLINE_BYTES, handshake};

/// How much of the data ring is used where the receiver keeps up: what stays in a first cache.
pub const WARM_BYTES: usize = 8192;
const WARM_UNITS: u32 = (WARM_BYTES / UNIT) as u32;
/// With the kind: the data lies at the beginning of the ring.
pub(crate) const AT_BEGIN: u16 = 1 << 8;

/// How many slots ahead of the next one a line is asked for.
const AHEAD: u32 = 4;

/// What an event says besides its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// What it is; for the two sides to agree on.
    pub kind: u8,
    /// Whatever goes with it.
    pub words: [u64; 3],
}

/// Sends events to the other side.
#[derive(Debug)]
pub struct Sender {
    area: Area,
    places: Places,
    side: Side,
    slots: u32,
    /// Of the data ring, in units.
    units: u32,
    event_bytes_max: usize,
    /// Slots ever sent, and how many of them were given back when we last looked.
    sent: u32,
    /// Where the next slot lies, and its id.
    next_at: usize,
    next_id: u16,
    taken: u32,
    /// The same of data, in units.
    put: u32,
    freed: u32,
    /// What was left out of the ring last, and the first unit behind it.
    skipped: (u32, u32),
    /// Whether it makes no fences.
    spares: bool,
    withdrawn: u64,
}

impl Sender {
    pub(crate) fn new(area: Area, layout: Layout, side: Side) -> Self {
        let places = layout.direction(side);
        let units = u32::try_from(layout.data_bytes() / UNIT).unwrap_or(0);
        Self {
            area,
            places,
            side,
            slots: layout.slots(),
            units,
            event_bytes_max: layout.event_bytes_max(),
            sent: 0,
            next_at: places.slots,
            next_id: lap_id(0, layout.slots()),
            taken: 0,
            put: 0,
            freed: 0,
            skipped: (0, 0),
            spares: false,
            withdrawn: 0,
        }
    }

    /// Which side this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The longest bytes of one event.
    pub fn event_bytes_max(&self) -> usize {
        self.event_bytes_max
    }

    /// Whether an event with `len` bytes finds room.
    ///
    /// # Errors
    /// The peer gave back what it never got.
    #[inline]
    pub fn room(&mut self, len: usize) -> Result<bool, Broken> {
        if self.fits(len) {
            return Ok(true);
        }
        self.look()?;
        Ok(self.fits(len))
    }

    /// Looks what was given back.
    #[inline]
    fn look(&mut self) -> Result<(), Broken> {
        self.note(handshake::look(&self.area, self.places.given_back()))
    }

    #[inline]
    fn fits(&self, len: usize) -> bool {
        let slots = self.sent.wrapping_sub(self.taken);
        let units = self.put.wrapping_sub(self.freed);
        slots < self.slots && units_of(len) <= self.units.wrapping_sub(units)
    }

    /// Believes what was given back only as far as it can be true.
    fn note(&mut self, given_back: u64) -> Result<(), Broken> {
        let (taken, freed) = (given_back as u32, (given_back >> 32) as u32);
        let slots_out = self.sent.wrapping_sub(taken);
        let units_out = self.put.wrapping_sub(freed);
        let was = (self.sent.wrapping_sub(self.taken), self.put.wrapping_sub(self.freed));
        if slots_out > was.0 || units_out > was.1 {
            return Err(Broken);
        }
        self.taken = taken;
        self.freed = freed;
        Ok(())
    }

    /// Sends one event if there is room; says whether there was. More bytes than
    /// [`Self::event_bytes_max`] never find room.
    ///
    /// # Errors
    /// As of [`Self::room`].
    #[inline]
    pub fn send(&mut self, head: Head, bytes: &[u8]) -> Result<bool, Broken> {
        let Some(mut writing) = self.begin(bytes.len())? else { return Ok(false) };
        writing.put(bytes);
        writing.send(head);
        Ok(true)
    }

    /// Sends an event whose bytes lie in its cache line, if there is room; says whether there was.
    /// Its other words are what lay there.
    ///
    /// # Errors
    /// As of [`Self::room`].
    #[inline]
    pub fn send_short(&mut self, kind: u8, short: &Short) -> Result<bool, Broken> {
        if !self.room(0)? {
            return Ok(false);
        }
        let line = self.area.line(self.slot());
        let [first, second, third, fourth] = short.words();
        line.put::<0>(short.word, Ordering::Relaxed);
        line.put::<2>(first, Ordering::Relaxed);
        line.put::<3>(second, Ordering::Relaxed);
        line.put::<4>(third, Ordering::Relaxed);
        line.put::<5>(fourth, Ordering::Relaxed);
        self.end(kind.into(), short.len());
        Ok(true)
    }

    /// More is sent soon: asks for the line of an event some way ahead, which the other side has since
    /// the last lap. It must not be looking there already, so this is for those who send many in a
    /// row; a line that is asked for beside the one that somebody waits for holds that up.
    #[inline]
    pub fn stream(&self) {
        let at = self.sent.wrapping_add(AHEAD) & self.slots.wrapping_sub(1);
        let slot = (at as usize).wrapping_mul(SLOT_BYTES);
        self.area.prefetch_write(self.places.slots.wrapping_add(slot));
    }

    /// Begins an event of `len` bytes that come in pieces; `None` if there is no room.
    ///
    /// # Errors
    /// As of [`Self::room`].
    #[inline]
    pub fn begin(&mut self, len: usize) -> Result<Option<Writing<'_>>, Broken> {
        if len > self.event_bytes_max || !self.room(len)? {
            return Ok(None);
        }
        let skip = if len > INLINE_BYTES { self.back_to_begin(units_of(len))? } else { 0 };
        Ok(Some(Writing { sender: self, len, at: 0, skip }))
    }

    /// Where data would leave the first [`WARM_BYTES`] of the ring, and these are free again: how
    /// much of the ring is left out so that it lies at the beginning. Memory that few bytes were
    /// written to and read from over and over again is handed over much faster than other.
    #[inline]
    fn back_to_begin(&mut self, units: u32) -> Result<u32, Broken> {
        let at = self.put & self.units.wrapping_sub(1);
        if at.saturating_add(units) <= WARM_UNITS {
            return Ok(0);
        }
        self.look()?;
        let skip = self.units.wrapping_sub(at);
        let free = self.units.wrapping_sub(self.put.wrapping_sub(self.freed));
        Ok(if at > 0 && skip.saturating_add(units) <= free { skip } else { 0 })
    }

    /// How many bytes of data the other side has not given back, as far as that was looked at.
    #[inline]
    pub fn data_out(&self) -> usize {
        let (skip, behind) = self.skipped;
        let units = self.put.wrapping_sub(self.freed);
        // What was left out is given back with what lies behind it.
        let passed = self.put.wrapping_sub(behind) >= units;
        let units = if passed { units } else { units.saturating_sub(skip) };
        (units as usize).wrapping_mul(UNIT)
    }

    /// As [`Self::data_out`], looked at now.
    ///
    /// # Errors
    /// As of [`Self::room`].
    #[inline]
    pub fn look_data_out(&mut self) -> Result<usize, Broken> {
        self.look()?;
        Ok(self.data_out())
    }

    /// Whether to ring the other side's doorbell for what was sent since this was last asked.
    /// Once for any number of events, after the last.
    #[inline]
    pub fn must_wake(&self) -> bool {
        let sleeps = self.places.receiver_sleeps();
        if self.spares {
            handshake::must_wake_sparing(&self.area, sleeps)
        } else {
            handshake::must_wake(&self.area, sleeps)
        }
    }

    /// From now on [`Self::must_wake`] makes no fence: a receiver that is about to sleep makes
    /// one here. Only where [`allow_fences`](crate::allow_fences) was true, and the receiver asks
    /// by [`Receiver::wish`](crate::Receiver::wish).
    pub fn spare(&mut self) {
        handshake::spare(&self.area, self.places.sender_spares());
        self.spares = true;
    }

    /// As [`Self::must_wake`], but true once for each time that the receiver asks: a receiver whose
    /// doorbell is expensive to ring costs its sender one ring for each sleep.
    #[inline]
    pub fn take_wish(&self) -> bool {
        let sleeps = self.places.receiver_sleeps();
        if self.spares {
            handshake::take_wish_sparing(&self.area, sleeps)
        } else {
            handshake::take_wish(&self.area, sleeps)
        }
    }

    /// Before sleeping because there is no room for `len` bytes: asks to be woken, and looks once
    /// more. True: there is room, do not sleep.
    ///
    /// # Errors
    /// As of [`Self::room`].
    pub fn ask_room(&mut self, len: usize) -> Result<bool, Broken> {
        let (waits, given_back) = (self.places.sender_waits(), self.places.given_back());
        let given_back = handshake::ask(&self.area, waits, given_back);
        self.note(given_back)?;
        Ok(self.fits(len))
    }

    /// Takes back what [`Self::ask_room`] asked.
    pub fn awake(&mut self) {
        handshake::awake(&self.area, self.places.sender_waits());
    }

    /// Something that events pointed to, outside of the channel, is not what it was from now on:
    /// whoever looked at it and then finds the same count as before
    /// ([`Receiver::withdrawn`](crate::Receiver::withdrawn)) saw it as it was.
    pub fn withdraw(&mut self) {
        self.withdrawn = self.withdrawn.wrapping_add(1);
        self.area.put(self.places.sender_withdrew(), self.withdrawn, Ordering::Release);
        // Before anything is changed there.
        <Area as handshake::Words>::full_fence();
    }

    /// How often [`Self::withdraw`] was called.
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn
    }

    /// The word by which a message that this side sends is shared.
    pub fn shared(&self) -> impl Cell + '_ {
        self.area.cell(self.places.shared())
    }

    /// Tells that nothing more comes. What was sent can still be taken.
    pub fn close(&mut self) {
        self.withdraw();
        self.area.put(self.places.sender_closed(), 1, Ordering::Release);
    }

    /// Copies bytes into the data ring, `at` bytes after what was put last and so many units that are
    /// left out.
    fn put_data(&self, skip: u32, at: usize, bytes: &[u8]) {
        let size = (self.units as usize).wrapping_mul(UNIT);
        let start = (self.put.wrapping_add(skip) as usize).wrapping_mul(UNIT).wrapping_add(at);
        let start = start & size.wrapping_sub(1);
        let (before, after) = bytes.split_at(bytes.len().min(size.wrapping_sub(start)));
        self.area.write(self.places.data.wrapping_add(start), before);
        if !after.is_empty() {
            self.area.write(self.places.data, after);
        }
    }

    #[inline]
    fn slot(&self) -> usize {
        self.next_at
    }

    /// Writes the slot, its last word last.
    #[inline]
    fn show(&mut self, head: Head, len: usize, skip: u32) {
        let line = self.area.line(self.slot());
        let [a, b, c] = head.words;
        line.put::<0>(a, Ordering::Relaxed);
        line.put::<1>(b, Ordering::Relaxed);
        line.put::<6>(c, Ordering::Relaxed);
        self.put = self.put.wrapping_add(skip);
        if skip > 0 {
            self.skipped = (skip, self.put);
        }
        self.put = self.put.wrapping_add(units_of(len));
        let kind = u16::from(head.kind) | if skip > 0 { AT_BEGIN } else { 0 };
        self.end(kind, len);
    }

    /// Writes the last word of the slot, by which all of it is shown; goes on to the next.
    #[inline]
    fn end(&mut self, kind: u16, len: usize) {
        let line = self.area.line(self.slot());
        let last = u64::from(self.next_id) | u64::from(kind) << 16 | (len as u64) << 32;
        // As `handshake::show`: whoever sees it sees all of the above.
        line.put::<7>(last, Ordering::Release);
        self.sent = self.sent.wrapping_add(1);
        let index = (self.sent & self.slots.wrapping_sub(1)) as usize;
        self.next_at = self.places.slots.wrapping_add(index.wrapping_mul(SLOT_BYTES));
        if index == 0 {
            self.next_id = lap_id(self.sent, self.slots);
        }
    }
}

/// An event that is being written. Without [`Self::send`] it was never there.
#[derive(Debug)]
pub struct Writing<'a> {
    sender: &'a mut Sender,
    len: usize,
    at: usize,
    skip: u32,
}

impl Writing<'_> {
    /// The next bytes. What goes beyond the length that was begun is left out.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        let room = self.len.saturating_sub(self.at);
        let bytes = bytes.get(..room).unwrap_or(bytes);
        if self.len > INLINE_BYTES {
            self.sender.put_data(self.skip, self.at, bytes);
        } else {
            let slot = self.sender.slot().wrapping_add(INLINE_AT);
            self.sender.area.write(slot.wrapping_add(self.at), bytes);
        }
        self.at = self.at.saturating_add(bytes.len());
    }

    /// Sends it. Bytes that were not put are what lay there: bytes that this channel carried.
    #[inline]
    pub fn send(self, head: Head) {
        self.sender.show(head, self.len, self.skip);
    }
}

/// How many units bytes take in the data ring.
#[inline]
pub(crate) fn units_of(len: usize) -> u32 {
    if len <= INLINE_BYTES { 0 } else { u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX) }
}

/// The id of the slot with that number, counted from the first: its lap, never 0.
#[inline]
pub(crate) fn lap_id(number: u32, slots: u32) -> u16 {
    let lap = number.checked_shr(slots.trailing_zeros()).unwrap_or(0);
    // 15 bits, so that laps go on alike when the count wraps.
    (lap as u16 & 0x7fff) | 0x8000
}
