//! The driver side of a packed ring (virtio 1.3, 2.8).
//!
//! Chains are named by buffer ids below the ring's size, which it keeps in a list of its own.

use causeway_memory::{Map, Span, View};

use super::{DriverError, Layout, Used, links, tabulate};
use crate::format::packed::{
    AVAIL, Descriptor, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN, PER_LINE, USED,
};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{ask_slot, look_slot, show_slot};
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::position::Position;

/// What the driver remembers of a buffer id.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The next free id, while it is free.
    next: u16,
    /// Slots of the ring that its chain takes; zero if the device does not have it.
    slots: u16,
    /// Writable bytes of the chain.
    room: u32,
}

/// Slots that have been taken one after the other, to tell how many more may be used: a packed ring
/// says it nowhere, and where each line is awaited on its own, the way between two processors is what
/// a slot costs.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// So far, and when none was there the last time.
    now: u16,
    last: u16,
    /// Behind the present one, those whose lines are on their way.
    fetched: u16,
}

impl Run {
    /// Most that are fetched at a time.
    const MOST: u16 = 32;

    /// Another is taken. Says which slots behind it to fetch: behind how many, and up to how many. As
    /// many are expected as the last time; once there are more, as many again as there were.
    #[inline]
    fn add(&mut self, slots: u16) -> Option<(u16, u16)> {
        self.fetched = self.fetched.saturating_sub(slots);
        self.now = self.now.saturating_add(slots);
        let more = match self.last.checked_sub(self.now) {
            Some(left) => left,
            None => self.now,
        };
        let (fetched, more) = (self.fetched, more.min(Self::MOST));
        // A few lines at a time, not one for each slot.
        let enough = fetched >= PER_LINE || fetched > 0 && more < fetched.wrapping_add(PER_LINE);
        if enough || more <= fetched {
            return None;
        }
        self.fetched = more;
        Some((fetched, more))
    }

    /// None is there.
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
    event_index: bool,
    indirect: bool,
    ring: View,
    /// Our event suppression structure, and the device's.
    ours: View,
    theirs: View,
    /// By buffer id.
    held: Vec<Held>,
    free_id: u16,
    free_slots: u16,
    outstanding: u16,
    /// Where the next chain goes, and the first one that is not shown.
    added: Position,
    shown: Position,
    /// Flags of the descriptor at `shown`, once there is one.
    gate: u16,
    /// Where the next used entry is.
    taken: Position,
    run: Run,
    quiet: bool,
}

impl PackedDriver {
    /// See [`super::Driver::packed`].
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
        let ours = map.view(layout.avail().0, EVENT_BYTES)?;
        let theirs = map.view(layout.used().0, EVENT_BYTES)?;
        ring.write(0, &vec![0; len])?;
        for area in [&ours, &theirs] {
            area.write(0, &[0; EVENT_BYTES])?;
        }
        Ok(Self {
            event_index,
            indirect: indirect && layout.table_entries > 1,
            ring,
            ours,
            theirs,
            held: links(size).into_iter().map(|next| Held { next, slots: 0, room: 0 }).collect(),
            free_id: 0,
            free_slots: size,
            outstanding: 0,
            added: Position::START,
            shown: Position::START,
            gate: 0,
            taken: Position::START,
            run: Run::default(),
            quiet: false,
            layout,
        })
    }

    /// See [`super::Driver::layout`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// See [`super::Driver::free_descriptors`].
    pub fn free_descriptors(&self) -> u16 {
        self.free_slots
    }

    /// See [`super::Driver::outstanding`].
    pub fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// See [`super::Driver::next_head`].
    #[inline]
    pub fn next_head(&self) -> Option<u16> {
        (self.free_slots > 0).then_some(self.free_id)
    }

    /// See [`super::Driver::add_one`].
    #[inline]
    pub fn add_one(&mut self, span: Span, writable: bool) -> Result<u16, DriverError> {
        let id = self.next_head().ok_or(DriverError::Full)?;
        let (flags, room) = if writable { (FLAG_WRITE, span.len) } else { (0, 0) };
        self.describe(self.added, span, id, flags)?;
        self.hold(id, 1, room);
        Ok(id)
    }

    /// Notes that the device is given chain `id`, of as many slots as there are free ones at most.
    #[inline]
    fn hold(&mut self, id: u16, slots: u16, room: u32) {
        if let Some(held) = self.held.get_mut(usize::from(id)) {
            self.free_id = held.next;
            (held.slots, held.room) = (slots, room);
        }
        self.free_slots = self.free_slots.wrapping_sub(slots);
        self.outstanding = self.outstanding.wrapping_add(1);
        self.added = self.added.advance(slots, self.layout.size);
    }

    /// See [`super::Driver::add`].
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
        // Chains are no longer than the queue, tables included.
        let count = u16::try_from(count).map_err(|_| DriverError::Full)?;
        if count > self.layout.size {
            return Err(DriverError::Full);
        }
        let tabled = count > 1 && self.indirect && count <= self.layout.table_entries;
        let slots = if tabled { 1 } else { count };
        // As many ids as slots: there is a free one.
        let id = self.next_head().filter(|_| slots <= self.free_slots).ok_or(DriverError::Full)?;
        let all = readable
            .iter()
            .map(|span| (*span, 0))
            .chain(writable.iter().map(|span| (*span, FLAG_WRITE)));
        if tabled {
            self.tabulate(map, id, all)?;
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

    /// Puts a chain into the indirect table of `id`, and the table into the ring.
    fn tabulate(
        &mut self,
        map: &Map,
        id: u16,
        all: impl Iterator<Item = (Span, u16)>,
    ) -> Result<(), DriverError> {
        let table = self.layout.table(id);
        let mut len = 0_u32;
        for (span, flags) in all {
            let at = table.saturating_add(u64::from(len));
            tabulate(map, at, Descriptor { span, id: 0, flags }.emit())?;
            len = len.saturating_add(DESCRIPTOR_BYTES as u32);
        }
        self.describe(self.added, Span { addr: table, len }, id, FLAG_INDIRECT)
    }

    /// Writes one descriptor. All have their flags at once but the first one that is not shown:
    /// its flags show the others too.
    #[inline]
    fn describe(
        &mut self,
        at: Position,
        span: Span,
        id: u16,
        flags: u16,
    ) -> Result<(), DriverError> {
        let mut flags = flags | at.available();
        if at == self.shown {
            // Until then it stays what the device made it a turn ago, or what it was at first: used.
            self.gate = std::mem::replace(&mut flags, at.used() ^ (AVAIL | USED));
        }
        Ok(self.ring.store_pair(at.at(), Descriptor { span, id, flags }.emit())?)
    }

    /// See [`super::Driver::publish`].
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        if self.shown == self.added {
            return Ok(false);
        }
        let batch = (self.shown, self.added);
        self.shown = self.added;
        Ok(show_slot(&self.ring, &self.theirs, self.gate, batch, self.layout.size)?)
    }

    /// See [`super::Driver::take`].
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        let at = self.taken;
        if at == self.shown && self.free_slots > 0 {
            return Ok(None);
        }
        let flags = look_slot(&self.ring, at)?;
        if !at.is_used(flags) {
            self.run.end();
            return Ok(None);
        }
        let high = self.ring.load_word(at.at().wrapping_add(LEN))?;
        let Descriptor { span: Span { len: written, .. }, id, .. } = Descriptor::parse([0, high]);
        let held = self.held.get_mut(usize::from(id)).filter(|held| held.slots > 0);
        let held = held.ok_or(DriverError::Unknown(u32::from(id)))?;
        let Held { slots, room, .. } = *held;
        // Where it is not said that anything was written the length means nothing, by the standard:
        // DPDK's backends leave there what we wrote. But some that write do not say so, as QEMU's.
        let read = room == 0 && flags & FLAG_WRITE == 0;
        let written = if read { 0 } else { written };
        (held.next, held.slots) = (self.free_id, 0);
        self.free_id = id;
        self.free_slots = self.free_slots.wrapping_add(slots);
        self.outstanding = self.outstanding.wrapping_sub(1);
        self.taken = at.advance(slots, self.layout.size);
        if let Some((from, to)) = self.run.add(slots) {
            self.fetch(from, to);
        }
        if written > room {
            return Err(DriverError::Overrun { written, room });
        }
        Ok(Some(Used { head: id, written }))
    }

    /// Has lines of slots that may be used on their way, to be written too: chains will go there.
    #[inline]
    fn fetch(&self, from: u16, to: u16) {
        let size = self.layout.size;
        let mut at = self.taken.advance(from.min(size), size);
        for _ in 0..to.saturating_sub(from).div_ceil(PER_LINE) {
            self.ring.prefetch_write(at.at());
            at = at.advance(PER_LINE.min(size), size);
        }
    }

    /// See [`super::Driver::arm_after`].
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        let size = self.layout.size;
        let held = size.saturating_sub(self.free_slots);
        let ahead = skip.min(held.saturating_sub(1));
        let at = self.event_index.then(|| self.taken.advance(ahead, size));
        self.quiet = false;
        let flags = ask_slot(&self.ours, &self.ring, at, self.taken)?;
        Ok(self.outstanding > 0 && self.taken.is_used(flags))
    }

    /// See [`super::Driver::disarm`].
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        if self.quiet {
            return Ok(());
        }
        self.quiet = true;
        let order = std::sync::atomic::Ordering::Relaxed;
        Ok(self.ours.store(EVENT_FLAGS, EVENT_DISABLE, order)?)
    }
}

#[cfg(test)]
mod tests {
    use super::Run;

    /// Of batches of `len` slots, from the second on: which slots are fetched.
    fn fetched(len: u16) -> Vec<(u16, u16)> {
        let mut run = Run::default();
        let mut batch = || -> Vec<_> {
            let of = |nth: u16, (from, to)| (nth + from, nth + to);
            let fetched = (1..=len).filter_map(|nth| run.add(1).map(|some| of(nth, some)));
            let fetched = fetched.collect();
            run.end();
            run.end();
            fetched
        };
        batch();
        batch()
    }

    #[test]
    fn as_many_are_fetched_as_came_the_last_time() {
        assert_eq!(fetched(1), []);
        for len in 2..=Run::MOST + 1 {
            assert_eq!(fetched(len), [(1, len)], "all at once, and none beyond");
        }
        let long = fetched(200);
        assert_eq!((long[0], long.last().map(|last| last.1)), ((1, 1 + Run::MOST), Some(200)));
        assert!(long.len() < 10, "{long:?}");
        for pair in long.windows(2) {
            assert_eq!(pair[0].1, pair[1].0, "each once, none left out: {long:?}");
        }
    }

    /// After batches of one, one of many: what is expected doubles.
    #[test]
    fn a_longer_batch_is_followed() {
        let mut run = Run::default();
        let fetched: Vec<_> = (1..=200_u16).filter_map(|_| run.add(1)).collect();
        assert!(fetched.len() < 20, "{fetched:?}");
        let all: u16 = fetched.iter().map(|(from, to)| to - from).sum();
        assert!((190..=200 + Run::MOST).contains(&all), "{fetched:?}");
    }
}
