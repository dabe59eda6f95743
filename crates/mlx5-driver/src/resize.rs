//! Changes of completion queues by MODIFY_CQ, and the driver's part of a resize.
//!
//! A resize gives the function a ring of another size. The function writes its next completions to
//! the new ring, and an entry with the opcode *resize* as the last one to the old ring. The driver
//! copies the entries that it has not taken to the new ring, one position later, and then polls the
//! new ring. [`Driver::resize_cq`] ends after one round over the old ring. The function refuses a
//! resize if either ring has no room ([`DriverError::Refused`]); the old ring then goes on. The
//! memory of the old ring is not reused. The thread that owns the [`Driver`] calls the module;
//! tests are the only callers.

use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::{
    CONTEXT, CompletionOpcode, CompletionQueueContext, ENTRY_LEN, MODIFY_RESIZE, PAGES,
};
use causeway_wire::mlx5::event_queue::owner_bit;

use crate::event_ring::entry_at;
use crate::{Bar, CompletionRing, Driver, DriverError};

/// Selects the page list, size and offset of the context.
const RESIZE_FIELDS: u32 = 7;
/// Bit of the owner in the last byte of an entry.
const OWNER: u8 = 1;

impl Driver {
    /// Changes a completion queue: `fields` selects values of the context.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn modify_cq(
        &self,
        bar: &mut dyn Bar,
        (number, modifier, fields): (u32, u16, u32),
        (context, pages): (&CompletionQueueContext, &[u64]),
    ) -> Result<(), DriverError> {
        let header = InputHeader {
            modifier,
            argument: fields,
            ..InputHeader::new(Opcode::ModifyCompletionQueue, number)
        };
        let bytes = context.to_bytes();
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        let len = PAGES.saturating_add(list.len());
        self.with_values(bar, &header, len, &[(CONTEXT, &bytes), (PAGES, &list)]).map(drop)
    }

    /// Gives a completion queue a ring of 2^`log` entries.
    ///
    /// # Errors
    /// As [`Driver::create_cq`], and [`DriverError::Malformed`] if the old ring has no entry of the
    /// resize; the queue is then unusable.
    pub fn resize_cq(
        &mut self,
        bar: &mut dyn Bar,
        cq: &mut CompletionRing,
        log: u8,
    ) -> Result<(), DriverError> {
        let (context, pages) = self.cq_context(log)?;
        self.modify_cq(bar, (cq.number, MODIFY_RESIZE, RESIZE_FIELDS), (&context, &pages))?;
        let ring = pages.first().copied().unwrap_or(0);
        let new = CompletionRing { ring, log, ..*cq };
        for ahead in 0..=1_u32.checked_shl(u32::from(cq.log)).unwrap_or(0) {
            let position = cq.taken.wrapping_add(ahead);
            let at = entry_at(cq.ring, cq.log, ENTRY_LEN as u64, position);
            let mut entry: [u8; ENTRY_LEN] = self.memory().read_array(at)?;
            let [.., mark] = &mut entry;
            if *mark & OWNER != u8::from(owner_bit(position, cq.log)) {
                break;
            }
            if *mark >> 4 == CompletionOpcode::Resize.raw() {
                *cq = CompletionRing { taken: cq.taken.wrapping_add(1), ..new };
                return Ok(());
            }
            let next = position.wrapping_add(1);
            *mark = *mark & !OWNER | u8::from(owner_bit(next, log));
            self.memory().write(entry_at(ring, log, ENTRY_LEN as u64, next), &entry)?;
        }
        Err(DriverError::Malformed("ring of a completion queue without an entry of the resize"))
    }
}
