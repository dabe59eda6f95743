//! The driver side of a packed ring (virtio 1.3, 2.8).
//!
//! Implements [`super::Driver`], which `attach::native` calls in the thread that owns the port;
//! limits and errors are those of [`super`]. Chains are identified by buffer ids below the ring's
//! size, which come from a private free list, never from values in shared memory. A chain of
//! several spans uses an indirect table if that was negotiated and the table has room, and else
//! several slots. Used chains are taken in the device's order. The driver does not continue a ring
//! that another driver began: it clears the memory and starts at [`Position::START`].

use causeway_memory::{Map, Span, View};

use super::{DriverError, Layout, Used, free_list, write_indirect};
use crate::format::packed::{
    AVAIL, Descriptor, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN, PER_LINE, USED,
};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{arm_slots, load_flags, publish_slots};
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::position::Position;

/// State of a buffer id.
#[derive(Debug, Clone, Copy)]
struct IdState {
    /// The next free id, while this id is free.
    next: u16,
    /// Number of slots of its chain; zero while the id is free.
    slots: u16,
    /// Number of writable bytes of its chain.
    room: u32,
}

/// Predictor of the number of used slots, for prefetching. A packed ring has no index, and loading
/// its lines one after another would cost a transfer between two cores for each.
#[derive(Debug, Clone, Copy, Default)]
struct FetchPredictor {
    /// Length of the current run of used slots, and of the previous run.
    now: u16,
    last: u16,
    /// Number of slots after the current slot whose lines were prefetched.
    fetched: u16,
}

impl FetchPredictor {
    /// Maximum number of slots prefetched at once.
    const MOST: u16 = 32;

    /// Counts `slots` used slots. Returns the range of slots to prefetch, relative to the current
    /// slot, if any. The prediction is the length of the previous run; a longer run doubles it each
    /// time.
    #[inline]
    fn add(&mut self, slots: u16) -> Option<(u16, u16)> {
        self.fetched = self.fetched.saturating_sub(slots);
        self.now = self.now.saturating_add(slots);
        let more = match self.last.checked_sub(self.now) {
            Some(left) => left,
            None => self.now,
        };
        let (fetched, more) = (self.fetched, more.min(Self::MOST));
        // Prefetches a few lines at once, not a line per slot.
        let enough = fetched >= PER_LINE || fetched > 0 && more < fetched.wrapping_add(PER_LINE);
        if enough || more <= fetched {
            return None;
        }
        self.fetched = more;
        Some((fetched, more))
    }

    /// Ends the run: the next slot is not used.
    #[inline]
    fn end(&mut self) {
        if self.now > 0 {
            *self = Self { now: 0, last: self.now, fetched: 0 };
        }
    }
}

/// The driver side of one packed ring.
#[derive(Debug)]
pub struct PackedDriver {
    layout: Layout,
    /// Whether VIRTIO_F_EVENT_IDX was negotiated.
    event_index: bool,
    /// Whether chains of several spans may use an indirect table.
    indirect: bool,
    ring: View,
    /// The event suppression structures of the driver and of the device.
    driver_events: View,
    device_events: View,
    /// States by buffer id.
    ids: Vec<IdState>,
    free_id: u16,
    free_slots: u16,
    /// Number of chains that the device has.
    outstanding: u16,
    /// Position of the next chain, and of the first unpublished chain.
    added: Position,
    published: Position,
    /// Flags of the descriptor at `published`, once it is written.
    first_flags: u16,
    /// Position of the next used entry.
    taken: Position,
    predictor: FetchPredictor,
    /// Whether notifications are suppressed.
    disarmed: bool,
}

impl PackedDriver {
    /// Implements [`super::Driver::packed`].
    pub fn new(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        let size = layout.size;
        if size == 0 || size > QUEUE_SIZE_MAX {
            return Err(DriverError::Size(size));
        }
        let (desc, len) = layout.desc();
        let ring = map.view(desc, len)?;
        let driver_events = map.view(layout.avail().0, EVENT_BYTES)?;
        let device_events = map.view(layout.used().0, EVENT_BYTES)?;
        ring.write(0, &vec![0; len])?;
        for area in [&driver_events, &device_events] {
            area.write(0, &[0; EVENT_BYTES])?;
        }
        Ok(Self {
            event_index,
            indirect: indirect && layout.table_entries > 1,
            ring,
            driver_events,
            device_events,
            ids: free_list(size)
                .into_iter()
                .map(|next| IdState { next, slots: 0, room: 0 })
                .collect(),
            free_id: 0,
            free_slots: size,
            outstanding: 0,
            added: Position::START,
            published: Position::START,
            first_flags: 0,
            taken: Position::START,
            predictor: FetchPredictor::default(),
            disarmed: false,
            layout,
        })
    }

    /// Implements [`super::Driver::layout`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Implements [`super::Driver::free_descriptors`].
    pub fn free_descriptors(&self) -> u16 {
        self.free_slots
    }

    /// Implements [`super::Driver::outstanding`].
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Implements [`super::Driver::next_head`].
    #[inline]
    pub fn next_head(&self) -> Option<u16> {
        (self.free_slots > 0).then_some(self.free_id)
    }

    /// Implements [`super::Driver::add_one`].
    #[inline]
    pub fn add_one(&mut self, span: Span, writable: bool) -> Result<u16, DriverError> {
        let id = self.next_head().ok_or(DriverError::Full)?;
        let (flags, room) = if writable { (FLAG_WRITE, span.len) } else { (0, 0) };
        self.describe(self.added, span, id, flags)?;
        self.hold(id, 1, room);
        Ok(id)
    }

    /// Marks chain `id` as outstanding; the caller checked that `slots` slots are free.
    #[inline]
    fn hold(&mut self, id: u16, slots: u16, room: u32) {
        if let Some(held) = self.ids.get_mut(usize::from(id)) {
            self.free_id = held.next;
            (held.slots, held.room) = (slots, room);
        }
        self.free_slots = self.free_slots.wrapping_sub(slots);
        self.outstanding = self.outstanding.wrapping_add(1);
        self.added = self.added.advance(slots, self.layout.size);
    }

    /// Implements [`super::Driver::add`].
    #[inline(never)]
    pub fn add(
        &mut self,
        map: &Map,
        readable: &[Span],
        writable: &[Span],
    ) -> Result<u16, DriverError> {
        let count = readable.len().saturating_add(writable.len());
        if count == 0 {
            return Err(DriverError::Empty);
        }
        // A chain is not longer than the queue, indirect or not.
        let count = u16::try_from(count).map_err(|_| DriverError::Full)?;
        if count > self.layout.size {
            return Err(DriverError::Full);
        }
        let is_indirect = count > 1 && self.indirect && count <= self.layout.table_entries;
        let slots = if is_indirect { 1 } else { count };
        // There are as many ids as slots, so an id is free.
        let id = self.next_head().filter(|_| slots <= self.free_slots).ok_or(DriverError::Full)?;
        let all = readable
            .iter()
            .map(|span| (*span, 0))
            .chain(writable.iter().map(|span| (*span, FLAG_WRITE)));
        if is_indirect {
            self.write_indirect(map, id, all)?;
        } else {
            let mut at = self.added;
            for (nth, (span, flags)) in (1_u16..).zip(all) {
                let more = if nth < count { FLAG_NEXT } else { 0 };
                self.describe(at, span, id, flags | more)?;
                at = at.next(self.layout.size);
            }
        }
        let room = writable.iter().fold(0_u32, |sum, span| sum.saturating_add(span.len));
        self.hold(id, slots, room);
        Ok(id)
    }

    /// Writes a chain into the indirect table of `id`, and the table's descriptor into the ring.
    fn write_indirect(
        &mut self,
        map: &Map,
        id: u16,
        all: impl Iterator<Item = (Span, u16)>,
    ) -> Result<(), DriverError> {
        let table = self.layout.table(id);
        let mut len = 0_u32;
        for (span, flags) in all {
            let at = table.saturating_add(u64::from(len));
            write_indirect(map, at, Descriptor { span, id: 0, flags }.emit())?;
            len = len.saturating_add(DESCRIPTOR_BYTES as u32);
        }
        self.describe(self.added, Span { addr: table, len }, id, FLAG_INDIRECT)
    }

    /// Writes a descriptor with its flags, except for the first unpublished descriptor, whose flags
    /// publish the others.
    #[inline]
    fn describe(
        &mut self,
        at: Position,
        span: Span,
        id: u16,
        flags: u16,
    ) -> Result<(), DriverError> {
        let mut flags = flags | at.available();
        if at == self.published {
            // Until publication the flags stay those of a used descriptor, or of a new ring.
            self.first_flags = std::mem::replace(&mut flags, at.used() ^ (AVAIL | USED));
        }
        Ok(self.ring.store_pair(at.at(), Descriptor { span, id, flags }.emit())?)
    }

    /// Implements [`super::Driver::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        if self.published == self.added {
            return Ok(false);
        }
        let batch = (self.published, self.added);
        self.published = self.added;
        Ok(publish_slots(
            &self.ring,
            &self.device_events,
            self.first_flags,
            batch,
            self.layout.size,
        )?)
    }

    /// Implements [`super::Driver::take`].
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        let at = self.taken;
        if at == self.published && self.free_slots > 0 {
            return Ok(None);
        }
        let flags = load_flags(&self.ring, at)?;
        if !at.is_used(flags) {
            self.predictor.end();
            return Ok(None);
        }
        let high = self.ring.load_word(at.at().wrapping_add(LEN))?;
        let Descriptor { span: Span { len: written, .. }, id, .. } = Descriptor::parse([0, high]);
        let held = self.ids.get_mut(usize::from(id)).filter(|held| held.slots > 0);
        let held = held.ok_or(DriverError::Unknown(u32::from(id)))?;
        let IdState { slots, room, .. } = *held;
        // Without the WRITE flag the length of a used entry is reserved (2.8.4): DPDK's backends
        // leave the driver's length there. But some devices that write do not set the flag, for
        // example QEMU's.
        let read = room == 0 && flags & FLAG_WRITE == 0;
        let written = if read { 0 } else { written };
        (held.next, held.slots) = (self.free_id, 0);
        self.free_id = id;
        self.free_slots = self.free_slots.wrapping_add(slots);
        self.outstanding = self.outstanding.wrapping_sub(1);
        self.taken = at.advance(slots, self.layout.size);
        if let Some((from, to)) = self.predictor.add(slots) {
            self.fetch(from, to);
        }
        if written > room {
            return Err(DriverError::Overrun { written, room });
        }
        Ok(Some(Used { head: id, written }))
    }

    /// Prefetches lines of slots that may be used, for writing: new chains go there.
    #[inline]
    fn fetch(&self, from: u16, to: u16) {
        let size = self.layout.size;
        let mut at = self.taken.advance(from.min(size), size);
        for _ in 0..to.saturating_sub(from).div_ceil(PER_LINE) {
            self.ring.prefetch_write(at.at());
            at = at.advance(PER_LINE.min(size), size);
        }
    }

    /// Implements [`super::Driver::arm_after`].
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        let size = self.layout.size;
        let held = size.saturating_sub(self.free_slots);
        let ahead = skip.min(held.saturating_sub(1));
        let at = self.event_index.then(|| self.taken.advance(ahead, size));
        self.disarmed = false;
        let flags = arm_slots(&self.driver_events, &self.ring, at, self.taken)?;
        Ok(self.outstanding > 0 && self.taken.is_used(flags))
    }

    /// Implements [`super::Driver::disarm`].
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        if self.disarmed {
            return Ok(());
        }
        self.disarmed = true;
        let order = std::sync::atomic::Ordering::Relaxed;
        Ok(self.driver_events.store(EVENT_FLAGS, EVENT_DISABLE, order)?)
    }
}

#[cfg(test)]
mod tests {
    use super::FetchPredictor;

    /// Returns the ranges prefetched in the second of two runs of `len` slots.
    fn fetched(len: u16) -> Vec<(u16, u16)> {
        let mut predictor = FetchPredictor::default();
        let mut batch = || -> Vec<_> {
            let of = |nth: u16, (from, to)| (nth + from, nth + to);
            let fetched = (1..=len).filter_map(|nth| predictor.add(1).map(|some| of(nth, some)));
            let fetched = fetched.collect();
            predictor.end();
            predictor.end();
            fetched
        };
        batch();
        batch()
    }

    #[test]
    fn packed_driver_prefetches_as_many_as_the_last_run() {
        assert_eq!(fetched(1), []);
        for len in 2..=FetchPredictor::MOST + 1 {
            assert_eq!(fetched(len), [(1, len)], "all at once, and none beyond");
        }
        let long = fetched(200);
        assert_eq!(
            (long[0], long.last().map(|last| last.1)),
            ((1, 1 + FetchPredictor::MOST), Some(200))
        );
        assert!(long.len() < 10, "{long:?}");
        for pair in long.windows(2) {
            assert_eq!(pair[0].1, pair[1].0, "each once, none left out: {long:?}");
        }
    }

    /// A long run after runs of one slot: the prediction doubles.
    #[test]
    fn packed_driver_prefetch_follows_a_longer_run() {
        let mut predictor = FetchPredictor::default();
        let fetched: Vec<_> = (1..=200_u16).filter_map(|_| predictor.add(1)).collect();
        assert!(fetched.len() < 20, "{fetched:?}");
        let all: u16 = fetched.iter().map(|(from, to)| to - from).sum();
        assert!((190..=200 + FetchPredictor::MOST).contains(&all), "{fetched:?}");
    }
}
