//! Fast registration and local invalidation: work requests that change the requester's regions.
//!
//! Only queue pairs with [`crate::Attributes::can_register`] and those of kind
//! [`Kind::Registration`] may change regions, because a page list names guest addresses: a guest's
//! kernel keeps this right from its processes. The former change regions of their own protection
//! domain only. A page list in memory has at most [`PAGES_PER_UPDATE_MAX`] (131,072) entries, more
//! fail with [`Status::LocalLength`], and is read once, into private memory; a list in the work
//! request is as short as the request. The bytes of either count against the call's [`Budget`]
//! afterwards: an update is never split, and a spent budget ends the call after it. A request of a
//! queue pair without the right fails with [`Status::LocalQueuePairOperation`], memory of the list
//! without permission with [`Status::LocalProtection`], and any refusal of the region
//! (`crate::region`) with [`Status::MemoryWindowBind`]. After each of these failures no region has
//! changed.
//!
//! [`Subnet::progress`] calls [`Subnet::change_region`] for these operations, in the dispatcher's
//! turn; the completion follows as for any request.

use causeway_memory::Cursor;

use crate::adapter::Adapter;
use crate::attributes::Kind;
use crate::budget::Budget;
use crate::engine::segments::Place;
use crate::engine::state::Scratch;
use crate::engine::step::{Origin, Step};
use crate::limits::PAGES_PER_UPDATE_MAX;
use crate::queues::Queues;
use crate::region::{RegionError, Rights};
use crate::subnet::Subnet;
use crate::work::{Operation, PageEntries, PageUpdate, Segment, SendWork, Status};

/// Bytes of a page list entry.
const ENTRY_BYTES: u32 = 8;

/// Entries that are decoded at once.
const CHUNK_ENTRIES: usize = 64;

impl<Q: Queues> Subnet<Q> {
    /// Executes a work request that changes a region.
    pub(super) fn change_region(
        &mut self,
        origin: &Origin,
        work: &SendWork,
        scratch: &mut Scratch,
        budget: &mut Budget,
    ) -> Step {
        let is_kernel = origin.kind == Kind::Registration;
        if !is_kernel && !origin.attributes.can_register {
            return Step::Failed(Status::LocalQueuePairOperation);
        }
        let Some(adapter) = self.adapter_mut(origin.id) else { return Step::More };
        let domain = (!is_kernel).then_some(origin.attributes.domain);
        let done = match &work.operation {
            Operation::Invalidate(key) => {
                let owner = adapter.regions.get(*key).map(|region| region.domain);
                let domain = domain.or(owner.ok()).unwrap_or_default();
                adapter.invalidate(*key, domain, Rights::empty())
            }
            Operation::Register(update) => {
                let pages = update.pages.as_ref();
                let read = pages.map_or(Ok(()), |pages| adapter.read_pages(origin, pages, scratch));
                if let Err(status) = read {
                    return Step::Failed(status);
                }
                let entries = match pages.map(|pages| &pages.entries) {
                    Some(PageEntries::Inline(entries)) => first(entries, pages),
                    Some(PageEntries::Memory(_)) => scratch.pages.as_slice(),
                    None => &[],
                };
                budget.take_bytes(size_of_val(entries) as u64);
                let updated = adapter.regions.update(update, entries, domain);
                if updated.is_ok() {
                    adapter.note_region(update.key);
                }
                updated
            }
            _ => return Step::Failed(Status::LocalQueuePairOperation),
        };
        match done {
            Ok(()) => Step::Done,
            Err(_) => Step::Failed(Status::MemoryWindowBind),
        }
    }
}

/// Returns the entries that an update counts.
fn first<'a>(entries: &'a [u64], pages: Option<&PageUpdate>) -> &'a [u64] {
    let count = pages.map_or(0, |pages| pages.count as usize);
    entries.get(..count).unwrap_or(entries)
}

impl<Q: Queues> Adapter<Q> {
    /// Frees the region of a key, as [`crate::region::Regions::invalidate`] does.
    pub(super) fn invalidate(
        &mut self,
        key: u32,
        domain: u32,
        needed: Rights,
    ) -> Result<(), RegionError> {
        self.regions.invalidate(key, domain, needed)?;
        self.note_region(key);
        Ok(())
    }

    /// Passes a changed region on to the queues.
    fn note_region(&mut self, key: u32) {
        let number = key.wrapping_shr(8);
        if let Some(region) = self.regions.region(number) {
            self.queues.region_changed(number, region);
        }
    }

    /// Reads and decodes the entries of a page list.
    fn read_pages(
        &self,
        origin: &Origin,
        pages: &PageUpdate,
        scratch: &mut Scratch,
    ) -> Result<(), Status> {
        let segment = match &pages.entries {
            PageEntries::Memory(segment) => *segment,
            PageEntries::Inline(_) => return Ok(()),
        };
        // Drivers round the count up to whole units; the segment has the exact length.
        let count = pages.count.min(segment.len / ENTRY_BYTES);
        if count > PAGES_PER_UPDATE_MAX {
            return Err(Status::LocalLength);
        }
        let bytes = u64::from(count).saturating_mul(u64::from(ENTRY_BYTES));
        self.resolve_pages(origin, segment, bytes, scratch)?;
        scratch.pages.clear();
        let mut from = Cursor::new(&scratch.from);
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(CHUNK_ENTRIES);
            let mut chunk = [[0; ENTRY_BYTES as usize]; CHUNK_ENTRIES];
            let chunk = chunk.get_mut(..now).unwrap_or_default();
            let read = from.read(self.queues.map(), chunk.as_flattened_mut());
            read.map_err(|_| Status::LocalProtection)?;
            scratch.pages.extend(chunk.iter().map(|entry| self.queues.decode_page(*entry)));
            left = left.saturating_sub(now);
        }
        Ok(())
    }

    /// Resolves the memory of a page list.
    fn resolve_pages(
        &self,
        origin: &Origin,
        segment: Segment,
        bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<(), Status> {
        // The kernel's queue pair for registration has no protection domain: its lists lie in
        // memory of any domain of the guest.
        let domain = match origin.kind {
            Kind::Registration => {
                self.regions.get(segment.key).map_err(|_| Status::LocalProtection)?.domain
            }
            _ => origin.attributes.domain,
        };
        let access = self.access(domain, Rights::LOCAL_READ);
        scratch.from.clear();
        let out = (usize::MAX, &mut scratch.from);
        match access.resolve(&[segment], Place::default(), bytes, out) {
            Ok(resolved) if resolved == bytes => Ok(()),
            _ => Err(Status::LocalProtection),
        }
    }
}
