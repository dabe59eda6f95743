//! The regions of an adapter by key, with the adapter's limits.
//!
//! Commands of the driver create and destroy regions (`mlx5::command::memory_key`); the engine
//! looks them up for each access, changes them by fast registration and frees them by invalidation,
//! local or remote. An operation either succeeds as a whole or returns a [`RegionError`] and
//! changes nothing: beyond [`RegionLimits`] a creation or a growth fails with
//! [`RegionError::Limit`], a second destruction with [`RegionError::NoKey`], a second invalidation
//! with [`RegionError::State`]. A destroyed or free region fails the next step of a message in
//! progress; bytes that were copied stay. Regions of all memory ([`RegionMemory::Whole`]) cannot be
//! updated or invalidated. The thread that serves the subnet is the only user. Nothing here touches
//! guest memory or checks grants. An operation that ends or changes a lent region waits until its
//! users outside of the engine have let go ([`Revocation::revoke`]).

use std::collections::BTreeMap;
use std::sync::Weak;

use causeway_memory::Span;

use super::{Region, RegionError, RegionMemory, Rights, SPAN_MAX, append, check_shift};
use crate::limits::{
    LENDS_PER_REGION_MAX, LIST_PADDING_ENTRIES, PAGE_SHIFT_MIN, PAGES_PER_UPDATE_MAX,
    REGION_PAGES_MAX, REGIONS_MAX, REGISTERED_BYTES_MAX,
};
use crate::number::Table;
use crate::session::Revocation;
use crate::work::RegionUpdate;

/// Most regions, registered bytes and page list entries of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLimits {
    /// Regions.
    pub regions: usize,
    /// Registered bytes.
    pub bytes: u64,
    /// Entries of page lists; each takes 8 bytes of the daemon's memory. The limits of regions and
    /// bytes lower it to the entries that they need.
    pub entries: u64,
}

impl Default for RegionLimits {
    fn default() -> Self {
        Self { regions: REGIONS_MAX, bytes: REGISTERED_BYTES_MAX, entries: REGION_PAGES_MAX }
    }
}

/// The memory regions of an adapter.
#[derive(Debug)]
pub struct Regions {
    table: Table<Region>,
    limits: RegionLimits,
    /// Registered bytes.
    bytes: u64,
    /// Entries of all page lists.
    entries: u64,
    /// Users outside of the engine, by the number of the region.
    lent: BTreeMap<u32, Vec<Weak<dyn Revocation>>>,
}

/// Returns the key of a region's number and variable byte.
pub const fn key_of(number: u32, variable: u8) -> u32 {
    number << 8 | variable as u32
}

impl Regions {
    /// Returns a table without regions.
    pub fn new(limits: RegionLimits) -> Self {
        let table = Table::new(limits.regions);
        let padding = LIST_PADDING_ENTRIES.saturating_mul(table.capacity() as u64);
        // Linux keeps lists for later regions, of which each has more than half of their pages.
        let pages = limits.bytes.wrapping_shr(u32::from(PAGE_SHIFT_MIN));
        let needed = pages.saturating_mul(2).saturating_add(padding);
        let limits = RegionLimits { entries: limits.entries.min(needed), ..limits };
        Self { table, limits, bytes: 0, entries: 0, lent: BTreeMap::new() }
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the registered bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes and entries after a region changes from the `old` to the `new` size.
    fn charge(&self, old: (u64, u64), new: (u64, u64)) -> Result<(u64, u64), RegionError> {
        let change = |sum: u64, old: u64, new: u64| sum.saturating_sub(old).checked_add(new);
        let bytes = change(self.bytes, old.0, new.0);
        let bytes = bytes.filter(|&sum| new.0 <= old.0 || sum <= self.limits.bytes);
        let bytes = bytes.ok_or(RegionError::Limit("registered bytes"))?;
        let entries = change(self.entries, old.1, new.1);
        let entries = entries.filter(|&sum| new.1 <= old.1 || sum <= self.limits.entries);
        Ok((bytes, entries.ok_or(RegionError::Limit("page list entries"))?))
    }

    /// Reserves a number for the next region, as [`Table::prepare`] does.
    pub fn prepare(&mut self, number: u32) -> bool {
        self.table.prepare(number)
    }

    /// Registers a region. Returns its number; the key is [`key_of`] the number and variable byte.
    ///
    /// # Errors
    /// [`RegionError::Limit`] or [`RegionError::Malformed`].
    pub fn create(&mut self, region: Region) -> Result<u32, RegionError> {
        region.check()?;
        let (bytes, entries) = self.charge((0, 0), (region.bytes(), region.entries()))?;
        let number = self.table.insert(region).map_err(|_| RegionError::Limit("regions"))?;
        (self.bytes, self.entries) = (bytes, entries);
        Ok(number)
    }

    /// Removes a region by its number.
    ///
    /// # Errors
    /// [`RegionError::NoKey`].
    pub fn destroy(&mut self, number: u32) -> Result<Region, RegionError> {
        let region = self.table.remove(number).ok_or(RegionError::NoKey)?;
        self.revoke(number);
        self.bytes = self.bytes.saturating_sub(region.bytes());
        self.entries = self.entries.saturating_sub(region.entries());
        Ok(region)
    }

    /// Lends bytes of a region to a user outside of the engine, as [`Self::resolve_some`] resolves
    /// them. The user is called before a destruction, invalidation or change of the region, or a
    /// reset of the adapter, returns, and once only.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails, or [`RegionError::Limit`] if the bytes have
    /// more than `most` pages, or the region has [`LENDS_PER_REGION_MAX`] (64) users. Nothing is
    /// lent then.
    pub fn lend(
        &mut self,
        key: u32,
        domain: u32,
        range: (u64, u64),
        needed: Rights,
        (most, out): (usize, &mut Vec<Span>),
        user: Weak<dyn Revocation>,
    ) -> Result<(), RegionError> {
        // Each page is looked up in this call.
        if self.get(key)?.pages_of(range.1) > most as u64 {
            return Err(RegionError::Limit("pages of lent memory"));
        }
        let number = key.wrapping_shr(8);
        if let Some(users) = self.lent.get_mut(&number) {
            users.retain(|user| user.strong_count() > 0);
            if users.len() >= LENDS_PER_REGION_MAX {
                return Err(RegionError::Limit("users of lent memory"));
            }
        }
        if self.resolve_some(key, domain, range, needed, (most, out))? < range.1 {
            return Err(RegionError::Limit("ranges of lent memory"));
        }
        self.lent.entry(number).or_default().push(user);
        Ok(())
    }

    /// Ends the uses of a region outside of the engine.
    fn revoke(&mut self, number: u32) {
        if self.lent.is_empty() {
            return;
        }
        let users = self.lent.remove(&number).unwrap_or_default();
        users.iter().filter_map(Weak::upgrade).for_each(|user| user.revoke());
    }

    /// Takes all regions out, in a time that depends on the lent ones only.
    #[must_use = "the drop takes time for each region"]
    pub fn retire(&mut self) -> Self {
        for users in std::mem::take(&mut self.lent).into_values() {
            users.iter().filter_map(Weak::upgrade).for_each(|user| user.revoke());
        }
        let (table, limits) = (self.table.retire(), self.limits);
        let (bytes, entries) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.entries));
        Self { table, limits, bytes, entries, lent: BTreeMap::new() }
    }

    /// Returns a region by its number.
    pub fn region(&self, number: u32) -> Option<&Region> {
        self.table.get(number)
    }

    /// Returns the region of a key.
    ///
    /// # Errors
    /// [`RegionError::NoKey`].
    #[inline]
    pub fn get(&self, key: u32) -> Result<&Region, RegionError> {
        let region = self.table.get(key.wrapping_shr(8)).ok_or(RegionError::NoKey)?;
        if region.variable == key as u8 { Ok(region) } else { Err(RegionError::NoKey) }
    }

    /// Checks an access of `domain` to the region of a key that needs the rights `needed`.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails.
    pub fn check(
        &self,
        key: u32,
        domain: u32,
        range: (u64, u64),
        needed: Rights,
    ) -> Result<(), RegionError> {
        self.get(key)?.permits(domain, range, needed)
    }

    /// Returns the guest address of bytes whose pages are adjacent in the guest, if the access is
    /// permitted. `None` decides nothing: [`Self::resolve`] has the reason, or more than a span.
    /// The time follows from the number of pages in the range.
    #[inline]
    pub(crate) fn adjacent(
        &self,
        key: u32,
        domain: u32,
        range: (u64, u64),
        needed: Rights,
    ) -> Option<u64> {
        let region = self.get(key).ok()?;
        region.permits(domain, range, needed).ok()?;
        region.adjacent(range)
    }

    /// Appends to `out` the guest addresses of `len` bytes at `address`. Neighbouring pages become
    /// a single span.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails. `out` may then have grown.
    #[inline]
    pub fn resolve(
        &self,
        key: u32,
        domain: u32,
        range: (u64, u64),
        needed: Rights,
        out: &mut Vec<Span>,
    ) -> Result<(), RegionError> {
        self.resolve_some(key, domain, range, needed, (usize::MAX, out)).map(drop)
    }

    /// As [`Self::resolve`], until `out` has `most` entries. Returns the number of resolved bytes,
    /// all of which passed the checks.
    ///
    /// # Errors
    /// As for [`Self::resolve`].
    #[inline]
    pub fn resolve_some(
        &self,
        key: u32,
        domain: u32,
        range: (u64, u64),
        needed: Rights,
        (most, out): (usize, &mut Vec<Span>),
    ) -> Result<u64, RegionError> {
        let region = self.get(key)?;
        region.permits(domain, range, needed)?;
        // Most ranges are short and lie in a page.
        if let Some(start) = region.contiguous(range)
            && (1..=SPAN_MAX).contains(&range.1)
        {
            let is_added = append(start, range.1, most, out);
            return Ok(if is_added { range.1 } else { 0 });
        }
        region.spans(range, most, out)
    }

    /// Frees the region of a key for a queue pair of `domain`: accesses fail until an update. The
    /// rights `needed` must be permitted.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails.
    pub fn invalidate(&mut self, key: u32, domain: u32, needed: Rights) -> Result<(), RegionError> {
        let region = self.get(key)?;
        if region.is_free {
            return Err(RegionError::State);
        }
        if region.domain != domain {
            return Err(RegionError::Domain);
        }
        if !region.rights.contains(needed) || matches!(region.memory, RegionMemory::Whole) {
            return Err(RegionError::Rights);
        }
        let region = self.table.get_mut(key.wrapping_shr(8)).ok_or(RegionError::NoKey)?;
        region.is_free = true;
        self.revoke(key.wrapping_shr(8));
        Ok(())
    }

    /// Applies a fast registration, all of it or nothing. `pages` holds the decoded entries of
    /// [`RegionUpdate::pages`]. A queue pair with a `domain` changes regions of this domain only.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails.
    pub fn update(
        &mut self,
        update: &RegionUpdate,
        pages: &[u64],
        domain: Option<u32>,
    ) -> Result<(), RegionError> {
        let number = update.key.wrapping_shr(8);
        let region = self.table.get(number).ok_or(RegionError::NoKey)?;
        let RegionMemory::Pages { shift, pages: list, capacity } = &region.memory else {
            return Err(RegionError::Rights);
        };
        if update.required_free.is_some_and(|required| required != region.is_free) {
            return Err(RegionError::State);
        }
        if domain.is_some_and(|own| own != region.domain || update.domain.unwrap_or(own) != own) {
            return Err(RegionError::Domain);
        }
        let shift = update.page_shift.unwrap_or(*shift);
        let base = update.base.unwrap_or(region.base);
        let len = update.len.unwrap_or(region.len);
        let is_free = update.is_free.unwrap_or(region.is_free);
        if base.checked_add(len).is_none() {
            return Err(RegionError::Malformed("addresses wrap"));
        }
        check_shift(shift, is_free)?;
        let (first, entries) = entries_after(update, pages, (list.len(), *capacity))?;
        let old = (region.bytes(), region.entries());
        let (sum, sum_entries) = self.charge(old, (len, entries as u64))?;
        let region = self.table.get_mut(number).ok_or(RegionError::NoKey)?;
        if let RegionMemory::Pages { shift: own, pages: list, .. } = &mut region.memory {
            *own = shift;
            // The update sets every entry that is added.
            list.resize(entries, 0);
            let places = list.get_mut(first..).unwrap_or_default();
            places.iter_mut().zip(pages).for_each(|(place, page)| *place = *page);
        }
        (region.base, region.len) = (base, len);
        region.domain = update.domain.unwrap_or(region.domain);
        region.variable = update.variable.unwrap_or(region.variable);
        region.is_free = is_free;
        if let Some((rights, mask)) = update.rights {
            region.rights = region.rights.difference(mask).union(rights.intersection(mask));
        }
        (self.bytes, self.entries) = (sum, sum_entries);
        self.revoke(number);
        Ok(())
    }
}

/// Returns the index of an update's first entry and the number of entries after it, of a page list
/// with `present` entries and room for `capacity`. Drivers pad their lists: entries beyond the room
/// are discarded. An update that leaves a gap after the present entries is refused: drivers fill a
/// list in order, and the time of an update must follow from its own length.
fn entries_after(
    update: &RegionUpdate,
    pages: &[u64],
    (present, capacity): (usize, u32),
) -> Result<(usize, usize), RegionError> {
    let Some(place) = &update.pages else { return Ok((present, present)) };
    if pages.len() > PAGES_PER_UPDATE_MAX as usize {
        return Err(RegionError::Limit("entries of an update"));
    }
    let first = place.first as usize;
    if first > present {
        return Err(RegionError::Outside);
    }
    let end = first.saturating_add(pages.len()).min(capacity as usize);
    Ok((first, present.max(end)))
}
