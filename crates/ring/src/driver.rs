//! The driver side of a split ring (virtio 1.3, 2.7), for processes that attach themselves.
//!
//! The mirror image of [`crate::split`]: chains are added, shown in a batch, and
//! come back used. The device is trusted with the memory but not believed: what
//! it writes into the used ring is checked like anything else that is shared.

mod layout;
#[cfg(test)]
mod tests;

use std::sync::atomic::{Ordering, fence};

use causeway_memory::{Map, OutOfGrant, Span, View};

use crate::format::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, INDEX, NO_INTERRUPT, NO_NOTIFY, RING};
use crate::limits::{DESCRIPTOR_BYTES, QUEUE_SIZE_MAX};
pub use layout::Layout;

/// Ends the list of free descriptors.
const NONE: u16 = u16::MAX;

/// Why the driver's side cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue size is zero, above 32768, or not a power of two.
    #[error("queue size {0}: expected a power of two, 1 to 32768")]
    Size(u16),
    /// Too few free descriptors at present; take used chains first.
    #[error("the ring is full")]
    Full,
    /// A chain needs at least one buffer.
    #[error("a chain without buffers")]
    Empty,
    /// The rings are not in our own memory.
    #[error("the ring is not in memory: {0}")]
    Lost(OutOfGrant),
    /// The device moved its index by more than there are chains.
    #[error("the device's used index jumped from {from} to {to}")]
    IndexJump {
        /// Where we are.
        from: u16,
        /// What the device wrote.
        to: u16,
    },
    /// The device used a chain that it does not have.
    #[error("the device used chain {0}, which it does not have")]
    Unknown(u32),
    /// The device says that it wrote more than the chain holds.
    #[error("the device wrote {written} bytes into a chain of {room}")]
    Overrun {
        /// Bytes that it says it wrote.
        written: u32,
        /// Bytes that the chain holds.
        room: u32,
    },
}

impl From<OutOfGrant> for DriverError {
    fn from(gap: OutOfGrant) -> Self {
        Self::Lost(gap)
    }
}

/// A chain that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// What [`Driver::add`] named it.
    pub head: u16,
    /// Bytes that the device wrote.
    pub written: u32,
}

/// What the driver remembers of a chain that the device has.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Descriptors of the table that it takes; zero if the device does not have it.
    descriptors: u16,
    /// Its last descriptor.
    tail: u16,
    /// Writable bytes.
    room: u32,
}

/// The driver side of one split ring.
#[derive(Debug)]
pub struct Driver {
    layout: Layout,
    event_index: bool,
    indirect: bool,
    desc: View,
    avail: View,
    used: View,
    /// Links between descriptors; ours alone.
    next: Vec<u16>,
    held: Vec<Held>,
    free: u16,
    free_count: u16,
    /// Next available index to write, and the one shown.
    added: u16,
    shown: u16,
    /// Next used index to take, and the device's index as last seen.
    taken: u16,
    seen: u16,
    quiet: bool,
}

impl Driver {
    /// Sets up an empty ring at `layout` in `map`. `event_index` and `indirect` say what was
    /// negotiated.
    pub fn new(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        let size = layout.size;
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(DriverError::Size(size));
        }
        let view = |(at, len): (u64, usize)| map.view(at, len);
        let (desc, avail, used) =
            (view(layout.desc())?, view(layout.avail())?, view(layout.used())?);
        for (view, len) in [(&avail, layout.avail().1), (&used, layout.used().1)] {
            view.write(0, &vec![0; len])?;
        }
        let mut next: Vec<u16> = (1..=size).collect();
        if let Some(last) = next.last_mut() {
            *last = NONE;
        }
        Ok(Self {
            event_index,
            indirect: indirect && layout.table_entries > 1,
            desc,
            avail,
            used,
            next,
            held: vec![Held::default(); usize::from(size)],
            free: 0,
            free_count: size,
            added: 0,
            shown: 0,
            taken: 0,
            seen: 0,
            quiet: false,
            layout,
        })
    }

    /// Where the ring lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Free descriptors.
    pub fn free_descriptors(&self) -> u16 {
        self.free_count
    }

    /// Chains that the device has, shown or not.
    pub fn outstanding(&self) -> u16 {
        self.added.wrapping_sub(self.taken)
    }

    /// Adds a chain of what the device may read, then of what it may write, and names it.
    /// The device sees it at the next [`Self::publish`].
    #[inline]
    pub fn add(
        &mut self,
        map: &Map,
        readable: &[Span],
        writable: &[Span],
    ) -> Result<u16, DriverError> {
        let count = readable.len().saturating_add(writable.len());
        let room = writable.iter().fold(0_u32, |sum, span| sum.saturating_add(span.len));
        let all = readable
            .iter()
            .map(|span| (*span, 0))
            .chain(writable.iter().map(|span| (*span, FLAG_WRITE)));
        let fits_table = count <= usize::from(self.layout.table_entries);
        if count > usize::from(self.layout.size) {
            return Err(DriverError::Full);
        }
        let (head, tail, descriptors) = if count == 0 {
            return Err(DriverError::Empty);
        } else if count > 1 && self.indirect && fits_table {
            let head = self.allocate(1)?;
            let table = self.layout.table(head);
            for (at, (span, flags)) in (0_u16..).zip(all) {
                let (flags, next) = link(flags, at, count);
                let to = table.wrapping_add(u64::from(at).wrapping_mul(DESCRIPTOR_BYTES as u64));
                map.write(to, &descriptor(span, flags, next))?;
            }
            let len = u32::try_from(count.saturating_mul(DESCRIPTOR_BYTES)).unwrap_or(u32::MAX);
            self.describe(head, Span { addr: table, len }, FLAG_INDIRECT, 0)?;
            (head, head, 1)
        } else {
            let descriptors = u16::try_from(count).map_err(|_| DriverError::Full)?;
            let head = self.allocate(descriptors)?;
            let (mut at, mut tail) = (head, head);
            for (nth, (span, flags)) in (1_usize..).zip(all) {
                let next = self.next.get(usize::from(at)).copied().unwrap_or(NONE);
                let last = nth == count;
                let (flags, link) = if last { (flags, 0) } else { (flags | FLAG_NEXT, next) };
                self.describe(at, span, flags, link)?;
                (tail, at) = (at, next);
            }
            (head, tail, descriptors)
        };
        if let Some(held) = self.held.get_mut(usize::from(head)) {
            *held = Held { descriptors, tail, room };
        }
        self.avail.store(self.avail_slot(self.added), head, Ordering::Relaxed)?;
        self.added = self.added.wrapping_add(1);
        Ok(head)
    }

    /// Takes `count` linked descriptors off the free list.
    #[inline]
    fn allocate(&mut self, count: u16) -> Result<u16, DriverError> {
        self.free_count = self.free_count.checked_sub(count).ok_or(DriverError::Full)?;
        let head = self.free;
        for _ in 0..count {
            self.free = self.next.get(usize::from(self.free)).copied().unwrap_or(NONE);
        }
        Ok(head)
    }

    #[inline]
    fn describe(&self, at: u16, span: Span, flags: u16, next: u16) -> Result<(), OutOfGrant> {
        let offset = usize::from(at).wrapping_mul(DESCRIPTOR_BYTES);
        self.desc.write(offset, &descriptor(span, flags, next))
    }

    #[inline]
    fn avail_slot(&self, index: u16) -> usize {
        let slot = index & self.layout.size.wrapping_sub(1);
        usize::from(slot).wrapping_mul(2).wrapping_add(RING)
    }

    /// Shows the device all that was added; says whether it wants its doorbell rung for it.
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        if self.shown == self.added {
            return Ok(false);
        }
        // Release: descriptors and data are visible before the index.
        self.avail.store(INDEX, self.added, Ordering::Release)?;
        let before = std::mem::replace(&mut self.shown, self.added);
        // The index must be visible before we look whether the device sleeps (2.7.13.3).
        fence(Ordering::SeqCst);
        if !self.event_index {
            return Ok(self.used.load(0, Ordering::Relaxed)? & NO_NOTIFY == 0);
        }
        let at = usize::from(self.layout.size).wrapping_mul(8).wrapping_add(RING);
        let event = self.used.load(at, Ordering::Relaxed)?;
        let passed = self.shown.wrapping_sub(event).wrapping_sub(1);
        // From the last publish on: the last doorbell may lie a whole turn of the index back.
        Ok(passed < self.shown.wrapping_sub(before))
    }

    /// Takes the next used chain, if there is one.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        if self.taken == self.seen {
            self.refresh()?;
            if self.taken == self.seen {
                return Ok(None);
            }
        }
        let slot = self.taken & self.layout.size.wrapping_sub(1);
        let at = usize::from(slot).wrapping_mul(8).wrapping_add(RING);
        let [i0, i1, i2, i3, w0, w1, w2, w3] = self.used.read::<8>(at)?;
        let id = u32::from_le_bytes([i0, i1, i2, i3]);
        let written = u32::from_le_bytes([w0, w1, w2, w3]);
        let head = u16::try_from(id).map_err(|_| DriverError::Unknown(id))?;
        let held = self.held.get_mut(usize::from(head)).map(std::mem::take);
        let held = held.filter(|h| h.descriptors > 0).ok_or(DriverError::Unknown(id))?;
        self.release(head, held);
        self.taken = self.taken.wrapping_add(1);
        if written > held.room {
            return Err(DriverError::Overrun { written, room: held.room });
        }
        Ok(Some(Used { head, written }))
    }

    /// Puts a chain's descriptors at the front of the free list, where they are still in cache.
    #[inline]
    fn release(&mut self, head: u16, held: Held) {
        if let Some(link) = self.next.get_mut(usize::from(held.tail)) {
            *link = self.free;
        }
        self.free = head;
        self.free_count = self.free_count.saturating_add(held.descriptors);
    }

    /// Loads the device's index.
    #[inline]
    fn refresh(&mut self) -> Result<(), DriverError> {
        // Acquire: what the device wrote before its index is visible after this load.
        let index = self.used.load(INDEX, Ordering::Acquire)?;
        if index.wrapping_sub(self.taken) > self.shown.wrapping_sub(self.taken) {
            return Err(DriverError::IndexJump { from: self.taken, to: index });
        }
        self.seen = index;
        Ok(())
    }

    /// Asks for a notification when the next chain is used; says whether one is there already,
    /// in which case the caller must look again instead of waiting.
    pub fn arm(&mut self) -> Result<bool, DriverError> {
        self.arm_after(0)
    }

    /// As [`Self::arm`], for the used chain after the next `skip` ones (with event index; without,
    /// the next one notifies). For senders, who care only that there is room again.
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        if self.event_index {
            let at = self.avail_slot(0).wrapping_add(usize::from(self.layout.size).wrapping_mul(2));
            let ahead = skip.min(self.outstanding().saturating_sub(1));
            self.avail.store(at, self.taken.wrapping_add(ahead), Ordering::Relaxed)?;
        } else {
            self.avail.store(0, 0, Ordering::Relaxed)?;
            self.quiet = false;
        }
        // Our request must be visible before we look for the last time (2.7.10).
        fence(Ordering::SeqCst);
        self.refresh()?;
        Ok(self.seen != self.taken)
    }

    /// Says that no notification is needed for now. With event index nothing is written: the
    /// device notifies once when it passes what was asked for.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        if self.event_index || self.quiet {
            return Ok(());
        }
        self.quiet = true;
        Ok(self.avail.store(0, NO_INTERRUPT, Ordering::Relaxed)?)
    }
}

/// Flags and next field of entry `at` in an indirect table of `count`.
fn link(flags: u16, at: u16, count: usize) -> (u16, u16) {
    let next = at.wrapping_add(1);
    if usize::from(next) < count { (flags | FLAG_NEXT, next) } else { (flags, 0) }
}

/// A descriptor's bytes.
#[inline]
fn descriptor(span: Span, flags: u16, next: u16) -> [u8; DESCRIPTOR_BYTES] {
    let low = u128::from(span.addr);
    let high = u128::from(span.len)
        | u128::from(flags).wrapping_shl(32)
        | u128::from(next).wrapping_shl(48);
    (low | high.wrapping_shl(64)).to_le_bytes()
}
