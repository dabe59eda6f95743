//! The memory of a queue: a list of pages, with checked access at offsets.
//!
//! A [`PageList`] is checked once, when the queue is created or resized: it covers the whole queue.
//! Offsets of later accesses lie in the queue. Whether the pages are granted is checked at each
//! access, because the guest may revoke memory at any time ([`causeway_memory::Map`]). Pages are 4
//! KiB to 2 GiB ([`PAGE_SHIFT_MAX`]) and need not be contiguous; an access is cut at their ends,
//! and an access that fails in a later page has copied the earlier bytes. The handlers of `command`
//! create lists, and the modules of queues use them, in the dispatcher's turn.
//!
//! All lists of a function share a [`PageQuota`] of [`QUEUE_PAGES_MAX`] (2^21) pages: a list takes
//! its pages from the quota and gives them back when it is dropped. A list beyond the quota is
//! refused with *limit exceeded*. Page lists of memory keys are not counted here: the engine bounds
//! them (`verbs::region`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_memory::{Map, OutOfGrant};

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::page_list::{LOG_PAGE_MIN, address};

use crate::limits::{PAGE_SHIFT_MAX, QUEUE_PAGES_MAX};

/// Parts of a page in which the start of a queue is counted.
const OFFSET_PARTS_LOG: u8 = 6;

/// The number of pages that all lists of a function have. Clones share the number.
#[derive(Debug, Clone, Default)]
pub struct PageQuota(Arc<AtomicU64>);

impl PageQuota {
    /// Takes `pages`. Returns `None` if too few are left.
    fn take(&self, pages: u64) -> Option<PageShare> {
        let sum = |taken: u64| taken.checked_add(pages).filter(|&sum| sum <= QUEUE_PAGES_MAX);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(PageShare { quota: self.clone(), pages })
    }
}

/// The pages that a list took; given back on drop.
#[derive(Debug)]
struct PageShare {
    quota: PageQuota,
    pages: u64,
}

impl Drop for PageShare {
    fn drop(&mut self) {
        self.quota.0.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// The pages of a queue.
#[derive(Debug)]
pub struct PageList {
    pages: Box<[u64]>,
    _share: PageShare,
    shift: u8,
    offset: u64,
}

impl PageList {
    /// Returns the list of a queue of `bytes` that starts `page_offset` parts (of 64 in a page)
    /// behind the start of the first page. `list` has 8 bytes per page, big-endian; `log_page` is
    /// the binary logarithm of the page size in units of 4 KiB. Superfluous pages are ignored.
    ///
    /// # Errors
    /// [`Status::BadParameter`] if the pages are too large, or too few for the queue, or the offset
    /// is outside the first page; [`Status::ExceededLimit`] if the quota has too few pages left.
    pub fn new(
        quota: &PageQuota,
        list: &[u8],
        (log_page, page_offset): (u8, u8),
        bytes: u64,
    ) -> Result<Self, Status> {
        let (shift, offset) = position(log_page, page_offset).ok_or(Status::BadParameter)?;
        let pages = cover(list, shift, offset, bytes).ok_or(Status::BadParameter)?;
        let share = quota.take(pages.len() as u64).ok_or(Status::ExceededLimit)?;
        let pages = pages.iter().map(|page| address(*page)).collect();
        Ok(Self { pages, _share: share, shift, offset })
    }

    /// Returns the guest address at `at` and the number of contiguous bytes there.
    #[inline]
    fn locate(&self, at: u64) -> Option<(u64, u64)> {
        let at = at.checked_add(self.offset)?;
        let page = *self.pages.get(usize::try_from(at >> self.shift).ok()?)?;
        let size = 1_u64 << self.shift;
        let inside = at & size.wrapping_sub(1);
        Some((page.checked_add(inside)?, size.wrapping_sub(inside)))
    }

    /// Copies an entry to the bytes at `at`: the last byte, which hands the entry over, behind the
    /// others.
    ///
    /// # Errors
    /// [`OutOfGrant`] if they lie outside the queue or in memory that is not granted.
    #[inline]
    pub fn publish(&self, map: &Map, at: u64, entry: &[u8; 64]) -> Result<(), OutOfGrant> {
        match self.locate(at) {
            Some((address, left)) if left >= entry.len() as u64 => {
                map.write_published(address, entry)
            }
            _ => self.publish_pieces(map, at, entry),
        }
    }

    /// As [`Self::publish`], for an entry that lies in more than one page.
    #[cold]
    fn publish_pieces(&self, map: &Map, at: u64, entry: &[u8; 64]) -> Result<(), OutOfGrant> {
        let (last, body) = entry.split_last().unwrap_or((&0, &[]));
        self.write(map, at, body)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.write(map, at.wrapping_add(body.len() as u64), &[*last])
    }

    /// Copies `N` bytes at `at` out, once, in few instructions because the length is a constant.
    ///
    /// # Errors
    /// [`OutOfGrant`] if they lie outside the queue or in memory that is not granted.
    #[inline]
    pub fn read_array<const N: usize>(
        &self,
        map: &Map,
        at: u64,
        into: &mut [u8; N],
    ) -> Result<(), OutOfGrant> {
        match self.locate(at) {
            Some((address, left)) if left >= N as u64 && map.read_array(address, into) => Ok(()),
            _ => self.read(map, at, into),
        }
    }

    /// Copies the bytes at `at` out, once.
    ///
    /// # Errors
    /// [`OutOfGrant`] if they lie outside the queue or in memory that is not granted.
    #[inline]
    pub fn read(&self, map: &Map, at: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let (mut into, mut at) = (into, at);
        while !into.is_empty() {
            let wrong = OutOfGrant { addr: at, len: into.len() as u64 };
            let (address, left) = self.locate(at).ok_or(wrong)?;
            let now = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (head, tail) = into.split_at_mut_checked(now).ok_or(wrong)?;
            map.read(address, head)?;
            at = at.checked_add(now as u64).ok_or(wrong)?;
            into = tail;
        }
        Ok(())
    }

    /// Copies `from` to the bytes at `at`.
    ///
    /// # Errors
    /// [`OutOfGrant`] if they lie outside the queue or in memory that is not granted.
    #[inline]
    pub fn write(&self, map: &Map, at: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        let (mut from, mut at) = (from, at);
        while !from.is_empty() {
            let wrong = OutOfGrant { addr: at, len: from.len() as u64 };
            let (address, left) = self.locate(at).ok_or(wrong)?;
            let now = from.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (head, tail) = from.split_at_checked(now).ok_or(wrong)?;
            map.write(address, head)?;
            at = at.checked_add(now as u64).ok_or(wrong)?;
            from = tail;
        }
        Ok(())
    }
}

/// Returns the binary logarithm of the page size, and the offset of the queue in the first page.
fn position(log_page: u8, page_offset: u8) -> Option<(u8, u64)> {
    let shift =
        log_page.checked_add(LOG_PAGE_MIN as u8).filter(|&shift| shift <= PAGE_SHIFT_MAX)?;
    let part = shift.checked_sub(OFFSET_PARTS_LOG)?;
    let page = 1_u64.checked_shl(u32::from(shift))?;
    let offset = u64::from(page_offset).checked_shl(u32::from(part))?;
    (offset < page).then_some((shift, offset))
}

/// Returns the entries of a list that cover a queue.
fn cover(list: &[u8], shift: u8, offset: u64, bytes: u64) -> Option<&[[u8; 8]]> {
    let page = 1_u64.checked_shl(u32::from(shift))?;
    let count = offset.checked_add(bytes)?.div_ceil(page);
    let (chunks, _) = list.as_chunks::<8>();
    chunks.get(..usize::try_from(count).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::{Mapping, Region, create};
    use std::os::fd::AsFd;
    use std::sync::Arc;

    fn map(pages: usize) -> Map {
        let file = create("pages", (pages as u64) << 12).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, (pages as u64) << 12).unwrap());
        Map::new(vec![Region { guest: 0x10_0000, user: 0, mapping }]).unwrap()
    }

    fn new(list: &[u8], log_page: u8, page_offset: u8, bytes: u64) -> Option<PageList> {
        PageList::new(&PageQuota::default(), list, (log_page, page_offset), bytes).ok()
    }

    fn list(pages: &[u64]) -> Vec<u8> {
        pages.iter().flat_map(|page| page.to_be_bytes()).collect()
    }

    #[test]
    fn page_list_crosses_pages_in_their_order() {
        let map = map(4);
        // Flags in the low bits are ignored.
        let pages = new(&list(&[0x10_2003, 0x10_0003]), 0, 63, 128).unwrap();
        pages.write(&map, 32, &[7; 64]).unwrap();
        let mut bytes = [0; 32];
        map.read(0x10_2fe0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 32]);
        map.read(0x10_0000, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 32]);
        let mut all = [0; 64];
        pages.read(&map, 32, &mut all).unwrap();
        assert_eq!(all, [7; 64]);
    }

    #[test]
    fn page_list_that_is_too_short_is_refused() {
        assert!(new(&list(&[0x10_0000]), 0, 0, 4096).is_some());
        assert!(new(&list(&[0x10_0000]), 0, 1, 4096).is_none());
        assert!(new(&list(&[0x10_0000]), 0, 0, 4097).is_none());
        assert!(new(&[0; 7], 0, 0, 1).is_none());
        assert!(new(&list(&[0]), 0, 64, 1).is_none());
        assert!(new(&list(&[0]), 31, 0, 1).is_none());
        assert!(new(&list(&[0]), 0, 0, u64::MAX).is_none());
    }

    #[test]
    fn page_list_access_outside_memory_fails() {
        let map = map(1);
        let pages = new(&list(&[0x10_0000, u64::MAX]), 0, 0, 8192).unwrap();
        let mut bytes = [0; 8];
        assert!(pages.read(&map, 4092, &mut bytes).is_err());
        assert!(pages.read(&map, 8192, &mut bytes).is_err());
        assert!(pages.write(&map, u64::MAX, &bytes).is_err());
        assert!(pages.read(&map, 4088, &mut bytes).is_ok());
    }

    #[test]
    fn page_list_counts_against_the_quota_until_it_is_dropped() {
        let quota = PageQuota::default();
        let list = vec![0; QUEUE_PAGES_MAX as usize / 2 * 8];
        let new = |pages: u64| PageList::new(&quota, &list, (0, 0), pages << 12);
        let half = new(QUEUE_PAGES_MAX / 2).unwrap();
        let other = new(QUEUE_PAGES_MAX / 2).unwrap();
        assert_eq!(new(1).err(), Some(Status::ExceededLimit));
        drop(half);
        assert!(new(QUEUE_PAGES_MAX / 2).is_ok());
        assert_eq!(new(QUEUE_PAGES_MAX / 2 + 1).err(), Some(Status::BadParameter));
        drop(other);
        assert_eq!(quota.0.load(Ordering::Relaxed), 0);
    }
}
