//! Memory regions of an adapter: keys, page lists, rights and look-ups.
//!
//! A key is the number of the region (24 bits, [`crate::number::Table`]) above a variable byte that
//! the owner chooses. A look-up checks, in this order: key, state, protection domain, rights,
//! bounds. It returns ranges of guest addresses ([`Span`]) and touches no memory; the copy checks
//! them against the grants of the [`causeway_memory::Map`] at that time. A key therefore reaches at
//! most the memory that its adapter's owner grants at the time of the access.
//!
//! [`causeway_memory::Regions`] is not used: its regions are immutable, chosen by the table's
//! variable byte, and hold guest addresses of a single epoch. Regions of an adapter are changed by
//! work requests (fast registration), choose their variable byte, and outlive epochs.
//!
//! Limits of an adapter ([`RegionLimits`]): by default 2^20 - 2 regions, 1 TiB of registered bytes,
//! and 2^24 entries of page lists; `causeway-mlx5` sets the first two by the options of the port. A
//! registration or update beyond a limit is refused and changes nothing. Regions of all memory
//! count the bytes of their range, none if they have no length. Whether the holder of a key may use
//! it is decided by the domain and the rights, not by the secrecy of the key: keys can be guessed.
//! All of it runs in the dispatcher's thread that serves the subnet.

mod table;

use causeway_memory::Span;

use crate::limits::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN};

pub use table::{RegionLimits, Regions, key_of};

bitflags::bitflags! {
    /// The accesses that a region or queue pair permits. The bits are part of the format of
    /// records.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Rights: u8 {
        /// Permits the owner's queue pairs to read: payload of sends and writes.
        const LOCAL_READ = 1;
        /// Permits the owner's queue pairs to write: received messages and results.
        const LOCAL_WRITE = 2;
        /// Permits peers to read.
        const REMOTE_READ = 4;
        /// Permits peers to write.
        const REMOTE_WRITE = 8;
        /// Permits atomic operations of peers.
        const REMOTE_ATOMIC = 16;
        /// Permits peers to invalidate the key by a send.
        const REMOTE_INVALIDATE = 32;
    }
}

/// Why a region is not registered, not changed, or not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A limit of the adapter is reached.
    #[error("the adapter has no room for the region: {0}")]
    Limit(&'static str),
    /// The region's addresses wrap, its page size is not supported, or its page list exceeds its
    /// capacity.
    #[error("the region is malformed: {0}")]
    Malformed(&'static str),
    /// No region has the key.
    #[error("no region has this key")]
    NoKey,
    /// The region is free, or not free where an update requires it.
    #[error("the region is in the wrong state")]
    State,
    /// The region belongs to another protection domain.
    #[error("the region belongs to another protection domain")]
    Domain,
    /// The region does not permit the access.
    #[error("the region does not permit this access")]
    Rights,
    /// Bytes outside of the region.
    #[error("bytes outside of the region")]
    Outside,
}

/// The memory of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionMemory {
    /// Granted memory; addresses are guest addresses.
    Whole,
    /// Pages of `1 << shift` bytes. The first byte of the region lies in the first page, at its
    /// address modulo the page size.
    Pages {
        /// Binary logarithm of the page size.
        shift: u8,
        /// Guest addresses of the pages.
        pages: Vec<u64>,
        /// Most entries that updates may give the list.
        capacity: u32,
    },
}

/// A memory region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Protection domain.
    pub domain: u32,
    /// Address of the first byte, as work requests name it.
    pub base: u64,
    /// Length, in bytes. A [`RegionMemory::Whole`] of length 0 reaches all addresses.
    pub len: u64,
    /// Permitted accesses.
    pub rights: Rights,
    /// Accesses fail until an update makes the region valid.
    pub is_free: bool,
    /// Variable byte of the key.
    pub variable: u8,
    /// Memory.
    pub memory: RegionMemory,
}

impl Region {
    /// Checks the values of the region against each other.
    fn check(&self) -> Result<(), RegionError> {
        if self.base.checked_add(self.len).is_none() {
            return Err(RegionError::Malformed("addresses wrap"));
        }
        let RegionMemory::Pages { shift, pages, capacity } = &self.memory else { return Ok(()) };
        check_shift(*shift, self.is_free)?;
        if pages.len() > *capacity as usize {
            return Err(RegionError::Malformed("longer page list than its capacity"));
        }
        Ok(())
    }

    /// Returns the registered bytes.
    fn bytes(&self) -> u64 {
        self.len
    }

    /// Returns the entries of the page list.
    fn entries(&self) -> u64 {
        match &self.memory {
            RegionMemory::Whole => 0,
            RegionMemory::Pages { pages, .. } => pages.len() as u64,
        }
    }

    /// Checks an access without resolving it.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails.
    #[inline]
    pub fn permits(
        &self,
        domain: u32,
        (address, len): (u64, u64),
        needed: Rights,
    ) -> Result<(), RegionError> {
        if self.is_free {
            return Err(RegionError::State);
        }
        if self.domain != domain {
            return Err(RegionError::Domain);
        }
        if !self.rights.contains(needed) {
            return Err(RegionError::Rights);
        }
        let end = address.checked_add(len).ok_or(RegionError::Outside)?;
        if self.len == 0 && matches!(self.memory, RegionMemory::Whole) {
            return Ok(());
        }
        // `check` and `update` keep the end of the region from wrapping.
        if address < self.base || end > self.base.saturating_add(self.len) {
            return Err(RegionError::Outside);
        }
        Ok(())
    }

    /// Returns the guest address of bytes that [`Self::permits`] accepted, if they lie in a page.
    #[inline]
    fn contiguous(&self, (address, len): (u64, u64)) -> Option<u64> {
        let RegionMemory::Pages { shift, pages, .. } = &self.memory else { return Some(address) };
        let size = 1_u64.checked_shl(u32::from(*shift))?;
        let mask = size.wrapping_sub(1);
        let at = address.wrapping_sub(self.base & !mask);
        let inside = at & mask;
        if inside.checked_add(len)? > size {
            return None;
        }
        let index = usize::try_from(at.wrapping_shr(u32::from(*shift))).ok()?;
        pages.get(index)?.checked_add(inside)
    }

    /// Returns the guest address of bytes that [`Self::permits`] accepted, if their pages are
    /// adjacent in the guest. Compares the addresses of all pages of the range.
    #[inline]
    fn adjacent(&self, (address, len): (u64, u64)) -> Option<u64> {
        let start = self.contiguous((address, len));
        if start.is_some() {
            return start;
        }
        let RegionMemory::Pages { shift, pages, .. } = &self.memory else { return Some(address) };
        let size = 1_u64.checked_shl(u32::from(*shift))?;
        let mask = size.wrapping_sub(1);
        let at = address.wrapping_sub(self.base & !mask);
        let index = |at: u64| usize::try_from(at.wrapping_shr(u32::from(*shift))).ok();
        let (first, last) = (index(at)?, index(at.checked_add(len)?.checked_sub(1)?)?);
        let (first, others) = pages.get(first..=last)?.split_first()?;
        let mut end = *first;
        for page in others {
            end = end.checked_add(size)?;
            if *page != end {
                return None;
            }
        }
        first.checked_add(at & mask)
    }

    /// Returns the number of whole pages that `len` bytes have.
    fn pages_of(&self, len: u64) -> u64 {
        match &self.memory {
            RegionMemory::Whole => 0,
            RegionMemory::Pages { shift, .. } => len.checked_shr((*shift).into()).unwrap_or(0),
        }
    }

    /// Appends the guest addresses of bytes that [`Self::permits`] accepted. Stops at `most`
    /// entries of `out`. Returns the number of resolved bytes.
    #[inline]
    fn spans(
        &self,
        (address, len): (u64, u64),
        most: usize,
        out: &mut Vec<Span>,
    ) -> Result<u64, RegionError> {
        let (shift, pages) = match &self.memory {
            RegionMemory::Whole => return Ok(whole((address, len), most, out)),
            RegionMemory::Pages { shift, pages, .. } => (u32::from(*shift), pages),
        };
        let size = 1_u64.checked_shl(shift).ok_or(RegionError::Malformed("page size"))?;
        let mask = size.wrapping_sub(1);
        // The offset from the start of the first page; below 2^64 because the region does not wrap.
        let mut at = address.wrapping_sub(self.base & !mask);
        let mut left = len;
        while left > 0 {
            let index = usize::try_from(at.wrapping_shr(shift)).unwrap_or(usize::MAX);
            let page = *pages.get(index).ok_or(RegionError::Outside)?;
            let inside = at & mask;
            let now = size.wrapping_sub(inside).min(left).min(SPAN_MAX);
            let start = page.checked_add(inside).ok_or(RegionError::Outside)?;
            if !append(start, now, most, out) {
                break;
            }
            at = at.wrapping_add(now);
            left = left.wrapping_sub(now);
        }
        Ok(len.wrapping_sub(left))
    }
}

/// Checks the page size. A free region may have small pages until an update makes it valid.
fn check_shift(shift: u8, is_free: bool) -> Result<(), RegionError> {
    let least = if is_free { 0 } else { PAGE_SHIFT_MIN };
    let is_valid = (least..=PAGE_SHIFT_MAX).contains(&shift);
    if is_valid { Ok(()) } else { Err(RegionError::Malformed("page size")) }
}

/// Most bytes of a span; longer memory is several spans.
const SPAN_MAX: u64 = 1 << 31;

/// Appends `len` bytes at a guest address, or extends the last span by them. Returns false if `out`
/// has `most` entries.
#[inline]
fn append(start: u64, len: u64, most: usize, out: &mut Vec<Span>) -> bool {
    let len = len as u32; // At most SPAN_MAX.
    if let Some(last) = out.last_mut()
        && last.addr.checked_add(u64::from(last.len)) == Some(start)
        && let Some(sum) = last.len.checked_add(len)
    {
        last.len = sum;
        return true;
    }
    if out.len() >= most {
        return false;
    }
    out.push(Span { addr: start, len });
    true
}

/// Resolves bytes of [`RegionMemory::Whole`].
fn whole((address, len): (u64, u64), most: usize, out: &mut Vec<Span>) -> u64 {
    let mut done = 0_u64;
    while done < len {
        let now = len.wrapping_sub(done).min(SPAN_MAX);
        if !append(address.wrapping_add(done), now, most, out) {
            break;
        }
        done = done.wrapping_add(now);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_region_finds_adjacent_pages_of_a_range() {
        // Pages 0 to 2 and 3 to 4 are adjacent in the guest.
        let pages = vec![0x10_0000, 0x10_1000, 0x10_2000, 0x20_0000, 0x20_1000];
        let memory = RegionMemory::Pages { shift: 12, capacity: 5, pages };
        let region = Region {
            domain: 1,
            base: 0x7_0100,
            len: 0x4f00,
            rights: Rights::empty(),
            is_free: false,
            variable: 0,
            memory,
        };
        for first in (0x7_0100..0x7_5000).step_by(0x1c0) {
            for len in [1, 0xf00, 0x1000, 0x1001, 0x2f00, 0x4f00] {
                let range = (first, len);
                if region.permits(1, range, Rights::empty()).is_err() {
                    continue;
                }
                let mut spans = Vec::new();
                region.spans(range, usize::MAX, &mut spans).unwrap();
                let single = match spans[..] {
                    [span] => Some(span.addr),
                    _ => None,
                };
                assert_eq!(region.adjacent(range), single, "{range:x?}");
            }
        }
        assert_eq!(region.adjacent((u64::MAX, 2)), None);
        let wrapped = Region {
            base: 0,
            memory: RegionMemory::Pages { shift: 12, capacity: 2, pages: vec![!0xfff, 0] },
            ..region
        };
        assert_eq!(wrapped.adjacent((0, 0x2000)), None);
    }
}
