//! Event queues: rings that the function writes, with an owner bit in each entry.
//!
//! The thread that owns the [`Driver`] creates queues and takes events; no call blocks on an event.
//! A ring has at most 2^20 entries; more is [`DriverError::Size`]. The driver reads in order. The
//! function does not read the driver's position: each command adds an event to its queue, so that
//! events of commands that are not taken are overwritten after 2^5 commands; events of other
//! objects are bounded by the objects' rules (`causeway_mlx5`). The position of the driver is
//! reported to the doorbell page, which the function does not read. An event of an unknown type is
//! taken, and is [`DriverError::Malformed`].

use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::event_queue::{
    CREATE_CONTEXT, CREATE_EVENT_MASK, CREATE_PAGES, ENTRY_LEN, Event, EventQueueContext,
    OWNER_OFFSET, owner_bit,
};
use causeway_wire::mlx5::registers::UAR_ARM_EVENT;

use crate::limits::LOG_ENTRIES_MAX;
use crate::memory::page_list;
use crate::{Bar, Driver, DriverError};

/// An event queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventRing {
    /// Number of the queue.
    pub number: u32,
    /// Address of the ring.
    ring: u64,
    /// The ring has 2^`log` entries.
    log: u8,
    /// Number of events that the driver took, modulo 2^32.
    taken: u32,
}

/// Returns the number of entries of a ring.
pub(crate) fn entries(log: u8) -> Result<u32, DriverError> {
    if log > LOG_ENTRIES_MAX {
        return Err(DriverError::Size("number of entries"));
    }
    Ok(1_u32.checked_shl(u32::from(log)).unwrap_or(0))
}

/// Returns the address of the entry of `len` bytes with running number `number`.
#[inline]
pub(crate) fn entry_at(ring: u64, log: u8, len: u64, number: u32) -> u64 {
    let mask = 1_u32.checked_shl(u32::from(log)).unwrap_or(0).wrapping_sub(1);
    ring.wrapping_add(u64::from(number & mask).wrapping_mul(len))
}

impl Driver {
    /// Allocates a ring of entries of 64 bytes, each with `mark` as its last byte.
    pub(crate) fn marked_ring(
        &mut self,
        log: u8,
        mark: u8,
    ) -> Result<(u64, Vec<u64>), DriverError> {
        let entries = entries(log)?;
        let bytes = u64::from(entries).saturating_mul(ENTRY_LEN as u64);
        let ring = self.allocate(bytes)?;
        for index in 0..entries {
            let at = entry_at(ring, log, ENTRY_LEN as u64, index);
            self.memory().write(at.wrapping_add(OWNER_OFFSET as u64), &[mark])?;
        }
        Ok((ring, page_list(ring, bytes)))
    }

    /// Creates an event queue of 2^`log` entries for the event types in `mask`.
    ///
    /// # Errors
    /// As [`Driver::execute`], [`DriverError::MemoryFull`], and [`DriverError::Size`] beyond 2^20
    /// entries.
    pub fn create_events(
        &mut self,
        bar: &mut dyn Bar,
        log: u8,
        vector: u16,
        mask: u64,
    ) -> Result<EventRing, DriverError> {
        const CONTEXT_LEN: usize = CREATE_EVENT_MASK + 8 - CREATE_CONTEXT;
        let (ring, pages) = self.marked_ring(log, 1)?;
        let context = EventQueueContext { log_size: log, vector, ..Default::default() };
        let mut bytes = context.to_bytes().to_vec();
        bytes.resize(CONTEXT_LEN.saturating_sub(8), 0);
        bytes.extend(mask.to_be_bytes());
        let context = (CREATE_CONTEXT, &bytes[..]);
        let opcode = Opcode::CreateEventQueue;
        let number = self.create(bar, opcode, context, (CREATE_PAGES, &pages))?;
        Ok(EventRing { number, ring, log, taken: 0 })
    }

    /// Takes the next event of a queue; `None` if there is none.
    ///
    /// # Errors
    /// [`DriverError::Malformed`] if the type of the event is unknown.
    pub fn take_event(&self, ring: &mut EventRing) -> Result<Option<Event>, DriverError> {
        let at = entry_at(ring.ring, ring.log, ENTRY_LEN as u64, ring.taken);
        let is_new = self.memory().load_mark(at)? & 1 == u8::from(owner_bit(ring.taken, ring.log));
        if !is_new {
            return Ok(None);
        }
        let (event, _) = Event::parse(&self.memory().read_array::<ENTRY_LEN>(at)?)?;
        ring.taken = ring.taken.wrapping_add(1);
        let [_, a, b, c] = ring.taken.to_be_bytes();
        let [.., number] = ring.number.to_be_bytes();
        self.ring(UAR_ARM_EVENT, [number, a, b, c, 0, 0, 0, 0])?;
        event.map(Some).ok_or(DriverError::Malformed("event"))
    }
}
