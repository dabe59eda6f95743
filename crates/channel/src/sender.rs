//! The sending side of a direction: room, slots, data ring and wake-up requests.
//!
//! [`open`](crate::open) creates a [`Sender`]; `message` and `mxoe` own it, send events, and then
//! call [`Sender::must_wake`] or [`Sender::take_wake_request`] once to learn whether the receiver's
//! doorbell must ring. The module reads only the counts and flags of its receiver, and checks them.
//!
//! It never blocks, never rings a doorbell itself and queues nothing: without a free slot, or
//! without room in the data ring, [`Sender::send`] and [`Sender::send_short`] return false and
//! [`Sender::begin`] `None`, and the caller sends again later or sleeps after [`Sender::arm_room`];
//! an event beyond [`Sender::event_bytes_max`] never finds room. An event is visible to the
//! receiver at once, and cannot be recalled. [`Sender::close`] is not checked by later sends; a
//! second call only counts another withdrawal. One thread uses a sender at a time.

use std::sync::atomic::Ordering;

use crate::area::Area;
use crate::cooperative_copy::Cell;
use crate::layout::{DirectionOffsets, INLINE_AT, Layout, SLOT_BYTES, Side, UNIT};
use crate::short::ShortEvent;
use crate::{BrokenChannel, INLINE_BYTES, handshake};

/// Number of bytes of the data ring in use while the receiver keeps up: they stay in a first-level
/// cache.
pub const WARM_BYTES: usize = 8192;
const WARM_UNITS: u32 = (WARM_BYTES / UNIT) as u32;
/// Flag beside the kind: the data starts at the beginning of the ring.
pub(crate) const AT_BEGIN: u16 = 1 << 8;

/// Distance of the prefetched slot from the next slot.
const AHEAD: u32 = 4;

/// Kind and words of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventHead {
    /// Kind of the event; its meaning belongs to the users of the channel.
    pub kind: u8,
    /// Words with a meaning that depends on the kind.
    pub words: [u64; 3],
}

/// The sending side of a direction.
#[derive(Debug)]
pub struct Sender {
    /// The memory of the channel.
    area: Area,
    /// Offsets of the direction.
    offsets: DirectionOffsets,
    /// The side that sends.
    side: Side,
    /// Number of slots.
    slots: u32,
    /// Size of the data ring, in units.
    units: u32,
    /// Maximum number of bytes of an event.
    event_bytes_max: usize,
    /// Number of slots ever sent, modulo 2^32. `taken` is the number of consumed slots, as last
    /// read.
    sent: u32,
    /// Offset of the next slot, and its id.
    next_at: usize,
    next_id: u16,
    taken: u32,
    /// Data units ever written (`put`), and consumed as last read (`freed`), modulo 2^32.
    put: u32,
    freed: u32,
    /// Length of the part of the ring that was skipped last, and the first unit behind it.
    skipped: (u32, u32),
    /// Whether the sender omits fences.
    omits_fences: bool,
    /// Number of withdrawals.
    withdrawn: u64,
}

impl Sender {
    /// Returns the sender of the direction of `side`, before its first event.
    pub(crate) fn new(area: Area, layout: Layout, side: Side) -> Self {
        let offsets = layout.direction(side);
        let units = u32::try_from(layout.data_bytes() / UNIT).unwrap_or(0);
        Self {
            area,
            offsets,
            side,
            slots: layout.slots(),
            units,
            event_bytes_max: layout.event_bytes_max(),
            sent: 0,
            next_at: offsets.slots,
            next_id: pass_id(0, layout.slots()),
            taken: 0,
            put: 0,
            freed: 0,
            skipped: (0, 0),
            omits_fences: false,
            withdrawn: 0,
        }
    }

    /// Returns the side that sends.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the maximum number of bytes of an event.
    pub fn event_bytes_max(&self) -> usize {
        self.event_bytes_max
    }

    /// Returns whether there is room for an event with `len` bytes.
    ///
    /// # Errors
    /// [`BrokenChannel`] if the peer consumed more than was sent.
    #[inline]
    pub fn room(&mut self, len: usize) -> Result<bool, BrokenChannel> {
        if self.fits(len) {
            return Ok(true);
        }
        self.read_consumed()?;
        Ok(self.fits(len))
    }

    /// Reads the consumed counts.
    #[inline]
    fn read_consumed(&mut self) -> Result<(), BrokenChannel> {
        self.accept_consumed(handshake::load_word(&self.area, self.offsets.consumed()))
    }

    /// Returns whether there is room for `len` bytes, by the counts last read.
    #[inline]
    fn fits(&self, len: usize) -> bool {
        let slots = self.sent.wrapping_sub(self.taken);
        let units = self.put.wrapping_sub(self.freed);
        slots < self.slots && units_of(len) <= self.units.wrapping_sub(units)
    }

    /// Accepts the consumed counts if they are plausible.
    fn accept_consumed(&mut self, consumed: u64) -> Result<(), BrokenChannel> {
        let (taken, freed) = (consumed as u32, (consumed >> 32) as u32);
        let slots_out = self.sent.wrapping_sub(taken);
        let units_out = self.put.wrapping_sub(freed);
        let was = (self.sent.wrapping_sub(self.taken), self.put.wrapping_sub(self.freed));
        if slots_out > was.0 || units_out > was.1 {
            return Err(BrokenChannel);
        }
        self.taken = taken;
        self.freed = freed;
        Ok(())
    }

    /// Sends an event. Returns false if there is no room; there never is for more bytes than
    /// [`Self::event_bytes_max`].
    ///
    /// # Errors
    /// [`BrokenChannel`] as for [`Self::room`].
    #[inline]
    pub fn send(&mut self, head: EventHead, bytes: &[u8]) -> Result<bool, BrokenChannel> {
        let Some(mut writing) = self.begin(bytes.len())? else { return Ok(false) };
        writing.put(bytes);
        writing.send(head);
        Ok(true)
    }

    /// Sends an event whose bytes fit its cache line. Returns false if there is no room. The second
    /// and third word of the event keep the old content of the slot.
    ///
    /// # Errors
    /// [`BrokenChannel`] as for [`Self::room`].
    #[inline]
    pub fn send_short(&mut self, kind: u8, short: &ShortEvent) -> Result<bool, BrokenChannel> {
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
        self.publish_slot(kind.into(), short.len());
        Ok(true)
    }

    /// Prefetches the slot of a later event for writing; the receiver has had its line since the
    /// last pass. For senders of many events in a row only: the receiver must not poll that line
    /// already, and a prefetch next to a polled line would delay it.
    #[inline]
    pub fn stream(&self) {
        let at = self.sent.wrapping_add(AHEAD) & self.slots.wrapping_sub(1);
        let slot = (at as usize).wrapping_mul(SLOT_BYTES);
        self.area.prefetch_write(self.offsets.slots.wrapping_add(slot));
    }

    /// Starts an event of `len` bytes, which the caller writes in pieces. Returns `None` if there
    /// is no room.
    ///
    /// # Errors
    /// [`BrokenChannel`] as for [`Self::room`].
    #[inline]
    pub fn begin(&mut self, len: usize) -> Result<Option<EventWriter<'_>>, BrokenChannel> {
        if len > self.event_bytes_max || !self.room(len)? {
            return Ok(None);
        }
        let skip = if len > INLINE_BYTES { self.units_to_skip(units_of(len))? } else { 0 };
        Ok(Some(EventWriter { sender: self, len, at: 0, skip }))
    }

    /// Returns the number of units to skip so that data of `units` starts at the beginning of the
    /// ring: the rest of the ring, if the data would leave the first [`WARM_BYTES`] and these are
    /// consumed. A small area that is reused constantly crosses much faster between caches.
    #[inline]
    fn units_to_skip(&mut self, units: u32) -> Result<u32, BrokenChannel> {
        let at = self.put & self.units.wrapping_sub(1);
        if at.saturating_add(units) <= WARM_UNITS {
            return Ok(0);
        }
        self.read_consumed()?;
        let skip = self.units.wrapping_sub(at);
        let free = self.units.wrapping_sub(self.put.wrapping_sub(self.freed));
        Ok(if at > 0 && skip.saturating_add(units) <= free { skip } else { 0 })
    }

    /// Returns the number of data bytes that the receiver has not consumed, by the counts last
    /// read.
    #[inline]
    pub fn data_out(&self) -> usize {
        let (skip, behind) = self.skipped;
        let units = self.put.wrapping_sub(self.freed);
        // A skipped part is consumed together with the data behind it.
        let passed = self.put.wrapping_sub(behind) >= units;
        let units = if passed { units } else { units.saturating_sub(skip) };
        (units as usize).wrapping_mul(UNIT)
    }

    /// Like [`Self::data_out`], by the current counts.
    ///
    /// # Errors
    /// [`BrokenChannel`] as for [`Self::room`].
    #[inline]
    pub fn refresh_data_out(&mut self) -> Result<usize, BrokenChannel> {
        self.read_consumed()?;
        Ok(self.data_out())
    }

    /// Returns whether the caller must ring the receiver's doorbell for the events sent since the
    /// last call. Call it once for any number of events, after the last.
    #[inline]
    pub fn must_wake(&self) -> bool {
        let sleeps = self.offsets.receiver_sleeps();
        if self.omits_fences {
            handshake::must_wake_unfenced(&self.area, sleeps)
        } else {
            handshake::must_wake(&self.area, sleeps)
        }
    }

    /// Omits the fence of [`Self::must_wake`] from now on: a receiver that is about to sleep
    /// executes a fence in this process instead. Requires that
    /// [`allow_fences`](crate::allow_fences) returned true, and that the receiver sleeps by
    /// [`Receiver::request_wake`](crate::Receiver::request_wake).
    pub fn omit_fences(&mut self) {
        handshake::omit_fences(&self.area, self.offsets.sender_omits_fences());
        self.omits_fences = true;
    }

    /// Like [`Self::must_wake`], but returns true only once for each request of the receiver. For
    /// receivers with an expensive doorbell: each sleep costs the sender a single ring.
    #[inline]
    pub fn take_wake_request(&self) -> bool {
        let sleeps = self.offsets.receiver_sleeps();
        if self.omits_fences {
            handshake::take_wake_request_unfenced(&self.area, sleeps)
        } else {
            handshake::take_wake_request(&self.area, sleeps)
        }
    }

    /// Requests a wake-up when there is room, before the caller sleeps because `len` bytes do not
    /// fit. Returns true if they fit now: the caller must not sleep then.
    ///
    /// # Errors
    /// [`BrokenChannel`] as for [`Self::room`].
    pub fn arm_room(&mut self, len: usize) -> Result<bool, BrokenChannel> {
        let (waits, consumed) = (self.offsets.sender_waits(), self.offsets.consumed());
        let consumed = handshake::arm(&self.area, waits, consumed);
        self.accept_consumed(consumed)?;
        Ok(self.fits(len))
    }

    /// Withdraws the request of [`Self::arm_room`].
    pub fn disarm(&mut self) {
        handshake::disarm(&self.area, self.offsets.sender_waits());
    }

    /// Announces that memory outside the channel to which events refer is about to change. A
    /// receiver that reads that memory and then finds an unchanged count
    /// ([`Receiver::withdrawn`](crate::Receiver::withdrawn)) has read the old content.
    pub fn withdraw(&mut self) {
        self.withdrawn = self.withdrawn.wrapping_add(1);
        self.area.put(self.offsets.withdrawals(), self.withdrawn, Ordering::Release);
        // The count is visible before any change of that memory.
        <Area as handshake::ChannelWords>::full_fence();
    }

    /// Returns the number of calls of [`Self::withdraw`].
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn
    }

    /// Returns the word for the cooperative copy of a message that this side sends.
    pub fn shared(&self) -> impl Cell + '_ {
        self.area.cell(self.offsets.copy_progress())
    }

    /// Closes the direction, and counts as a withdrawal ([`Self::withdraw`]). The receiver can
    /// still take the events sent before.
    pub fn close(&mut self) {
        self.withdraw();
        self.area.put(self.offsets.sender_closed(), 1, Ordering::Release);
    }

    /// Copies bytes into the data ring, at offset `at` behind the data sent so far and `skip`
    /// skipped units.
    fn put_data(&self, skip: u32, at: usize, bytes: &[u8]) {
        let size = (self.units as usize).wrapping_mul(UNIT);
        let start = (self.put.wrapping_add(skip) as usize).wrapping_mul(UNIT).wrapping_add(at);
        let start = start & size.wrapping_sub(1);
        let (before, after) = bytes.split_at(bytes.len().min(size.wrapping_sub(start)));
        self.area.write(self.offsets.data.wrapping_add(start), before);
        if !after.is_empty() {
            self.area.write(self.offsets.data, after);
        }
    }

    /// Returns the offset of the next slot.
    #[inline]
    fn slot(&self) -> usize {
        self.next_at
    }

    /// Writes the words of the slot, then publishes it.
    #[inline]
    fn publish(&mut self, head: EventHead, len: usize, skip: u32) {
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
        self.publish_slot(kind, len);
    }

    /// Publishes the slot by its last word, and moves to the next slot.
    #[inline]
    fn publish_slot(&mut self, kind: u16, len: usize) {
        let line = self.area.line(self.slot());
        let last = u64::from(self.next_id) | u64::from(kind) << 16 | (len as u64) << 32;
        // Release like `handshake::publish`: all words above are visible with this word.
        line.put::<7>(last, Ordering::Release);
        self.sent = self.sent.wrapping_add(1);
        let index = (self.sent & self.slots.wrapping_sub(1)) as usize;
        self.next_at = self.offsets.slots.wrapping_add(index.wrapping_mul(SLOT_BYTES));
        if index == 0 {
            self.next_id = pass_id(self.sent, self.slots);
        }
    }
}

/// An event being written. It is discarded without [`Self::send`].
#[derive(Debug)]
pub struct EventWriter<'a> {
    sender: &'a mut Sender,
    /// Length of the event, in bytes.
    len: usize,
    /// Number of bytes that were written.
    at: usize,
    /// Units of the data ring to skip before the event.
    skip: u32,
}

impl EventWriter<'_> {
    /// Appends bytes. Those beyond the length of [`Sender::begin`] are ignored.
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

    /// Sends the event. Bytes that were not written have old content of this channel.
    #[inline]
    pub fn send(self, head: EventHead) {
        self.sender.publish(head, self.len, self.skip);
    }
}

/// Returns the number of units of `len` bytes in the data ring; 0 for inline bytes.
#[inline]
pub(crate) fn units_of(len: usize) -> u32 {
    if len <= INLINE_BYTES { 0 } else { u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX) }
}

/// Returns the id of slot `number`, counted from the first event: that of its pass, never 0.
#[inline]
pub(crate) fn pass_id(number: u32, slots: u32) -> u16 {
    let pass = number.checked_shr(slots.trailing_zeros()).unwrap_or(0);
    // 15 bits, so that passes continue uniformly when the count wraps.
    (pass as u16 & 0x7fff) | 0x8000
}
