//! The driver side of a packed ring (virtio 1.3, 2.8).
//!
//! Chains are named by buffer ids below the ring's size, which it keeps in a list of its own.

use causeway_memory::{Map, Span, View};

use super::{DriverError, Layout, Used, links};
use crate::format::packed::{Descriptor, EVENT_BYTES, EVENT_DISABLE, EVENT_FLAGS, LEN};
use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use crate::handshake::{ask_slot, look_slot, show_slot};
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
use crate::position::Position;

/// Ends the list of free buffer ids.
const NONE: u16 = u16::MAX;

/// What the driver remembers of a chain that the device has.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Slots of the ring that it takes; zero if the device does not have it.
    slots: u16,
    /// Writable bytes.
    room: u32,
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
    /// Links between free buffer ids.
    next: Vec<u16>,
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
            next: links(size),
            held: vec![Held::default(); usize::from(size)],
            free_id: 0,
            free_slots: size,
            outstanding: 0,
            added: Position::START,
            shown: Position::START,
            gate: 0,
            taken: Position::START,
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

    /// See [`super::Driver::add`].
    #[inline]
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
        let left = self.free_slots.checked_sub(slots).ok_or(DriverError::Full)?;
        // As many ids as slots: there is a free one.
        let id = self.free_id;
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
                at = at.advance(1, self.layout.size);
            }
        }
        let room = writable.iter().fold(0_u32, |sum, span| sum.saturating_add(span.len));
        if let Some(held) = self.held.get_mut(usize::from(id)) {
            *held = Held { slots, room };
        }
        self.free_id = self.next.get(usize::from(id)).copied().unwrap_or(NONE);
        self.free_slots = left;
        self.outstanding = self.outstanding.saturating_add(1);
        self.added = self.added.advance(slots, self.layout.size);
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
            map.write(at, &Descriptor { span, id: 0, flags }.emit())?;
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
        let flags = flags | at.available();
        let bytes = Descriptor { span, id, flags }.emit();
        if at == self.shown {
            self.gate = flags;
            let [body @ .., _, _] = bytes;
            Ok(self.ring.write(at.at(), &body)?)
        } else {
            Ok(self.ring.write(at.at(), &bytes)?)
        }
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
            return Ok(None);
        }
        let [l0, l1, l2, l3, i0, i1] = self.ring.read::<6>(at.at().wrapping_add(LEN))?;
        let written = u32::from_le_bytes([l0, l1, l2, l3]);
        let id = u16::from_le_bytes([i0, i1]);
        let held = self.held.get_mut(usize::from(id)).map(std::mem::take);
        let unknown = DriverError::Unknown(u32::from(id));
        let held = held.filter(|held| held.slots > 0).ok_or(unknown)?;
        // Where it is not said that anything was written the length means nothing, by the standard:
        // DPDK's backends leave there what we wrote. But some that write do not say so, as QEMU's.
        let read = held.room == 0 && flags & FLAG_WRITE == 0;
        let written = if read { 0 } else { written };
        if let Some(link) = self.next.get_mut(usize::from(id)) {
            *link = self.free_id;
        }
        self.free_id = id;
        self.free_slots = self.free_slots.saturating_add(held.slots);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.taken = at.advance(held.slots, self.layout.size);
        if written > held.room {
            return Err(DriverError::Overrun { written, room: held.room });
        }
        Ok(Some(Used { head: id, written }))
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
