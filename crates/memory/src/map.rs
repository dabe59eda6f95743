//! A guest's memory as granted: regions by guest address, translated and checked.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::dirty::DirtyLog;
use crate::kernel;
use crate::limits::{CACHE_LINE_BYTES, REGION_BYTES_MAX, REGIONS_MAX};
use crate::mapping::Mapping;
use crate::view::View;

/// The guest named bytes that it did not grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} lie outside the granted memory")]
pub struct OutOfGrant {
    /// The guest's address.
    pub addr: u64,
    /// How many bytes.
    pub len: u64,
}

/// Why regions do not make a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// More regions than allowed.
    #[error("{0} memory regions, at most {REGIONS_MAX} are allowed")]
    Many(usize),
    /// A region's guest or frontend addresses wrap, or it is too large.
    #[error("the memory region at guest address {0:#x} wraps or exceeds 16 TiB")]
    Range(u64),
    /// Two regions share guest or frontend addresses.
    #[error("the memory regions at guest addresses {0:#x} and {1:#x} overlap")]
    Overlap(u64, u64),
}

/// One granted region.
#[derive(Debug, Clone)]
pub struct Region {
    /// Guest-physical address of its first byte.
    pub guest: u64,
    /// The frontend's own address of its first byte; vhost-user names rings by these.
    pub user: u64,
    /// The memory; its length is the region's.
    pub mapping: Arc<Mapping>,
}

impl Region {
    /// Length, in bytes.
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }
}

/// Where a region lies, side by side with the others' so that a look-up touches one cache line.
#[derive(Debug, Clone, Copy)]
struct Window {
    guest: u64,
    len: u64,
    start: NonNull<u8>,
}

impl Default for Window {
    fn default() -> Self {
        Self { guest: 0, len: 0, start: NonNull::dangling() }
    }
}

impl Window {
    /// Host pointer at `addr`, and how many bytes follow it here.
    #[inline]
    fn pointer(&self, addr: u64) -> Option<(NonNull<u8>, usize)> {
        // Below the window this wraps, to more than any length.
        let at = addr.wrapping_sub(self.guest);
        if at >= self.len {
            return None;
        }
        // SAFETY: at < len, and as many bytes are mapped behind `start`. Both fit usize.
        let pointer = unsafe { self.start.add(at as usize) };
        Some((pointer, self.len.wrapping_sub(at) as usize))
    }
}

/// All regions of one guest in one epoch. Immutable; replaced as a whole.
#[derive(Debug, Default)]
pub struct Map {
    /// Of the first of `regions`, where most accesses are; none has no bytes.
    first: Window,
    /// Of the others, in their order.
    others: Vec<Window>,
    /// Largest first: most accesses hit the first one looked at.
    regions: Vec<Region>,
    /// Who is told of what is written.
    log: Option<Arc<DirtyLog>>,
}

// SAFETY: the windows point into the regions' mappings, which may be used from any thread and
// live as long as this; no reference to the bytes is ever made.
unsafe impl Send for Map {}
// SAFETY: as for Send.
unsafe impl Sync for Map {}

impl Map {
    /// Checks the regions against each other and makes the map.
    pub fn new(mut regions: Vec<Region>) -> Result<Self, MapError> {
        if regions.len() > REGIONS_MAX {
            return Err(MapError::Many(regions.len()));
        }
        for region in &regions {
            let len = region.len();
            let ends = region.guest.checked_add(len).and(region.user.checked_add(len));
            if ends.is_none() || len > REGION_BYTES_MAX {
                return Err(MapError::Range(region.guest));
            }
        }
        for key in [(|r| r.guest) as fn(&Region) -> u64, |r| r.user] {
            regions.sort_by_key(key);
            for pair in regions.windows(2) {
                if let [a, b] = pair
                    && key(a).saturating_add(a.len()) > key(b)
                {
                    return Err(MapError::Overlap(a.guest, b.guest));
                }
            }
        }
        regions.sort_by_key(|r| std::cmp::Reverse(r.len()));
        let window = |r: &Region| {
            let start = r.mapping.at(0).and_then(|(start, _)| NonNull::new(start));
            start.map(|start| Window { guest: r.guest, len: r.len(), start })
        };
        // A mapping has at least one byte, so every region has its window.
        let mut windows = regions.iter().filter_map(window);
        let first = windows.next().unwrap_or_default();
        Ok(Self { first, others: windows.collect(), regions, log: None })
    }

    /// The same regions; what is written there from now on is noted in `log`, or nowhere.
    #[must_use]
    pub fn logged(&self, log: Option<Arc<DirtyLog>>) -> Self {
        let (first, others) = (self.first, self.others.clone());
        Self { first, others, regions: self.regions.clone(), log }
    }

    /// Returns whether writes are noted in a log.
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Notes what was written.
    #[inline]
    pub(crate) fn wrote(&self, addr: u64, len: usize) {
        if let Some(log) = &self.log {
            log.mark(addr, len as u64);
        }
    }

    /// The regions, largest first.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Granted bytes in all.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().fold(0, |sum, r| sum.saturating_add(r.len()))
    }

    /// Returns the bytes that each of the regions' files has allocated, by its inode.
    pub fn allocated(&self) -> BTreeMap<u64, u64> {
        self.regions.iter().filter_map(|region| region.mapping.allocated()).collect()
    }

    /// Whether a page of any region was lost because its file shrank. Look once a batch.
    #[inline]
    pub fn poisoned(&self) -> bool {
        self.regions.iter().any(|r| r.mapping.poisoned())
            || self.log.as_ref().is_some_and(|log| log.poisoned())
    }

    /// The guest address of the frontend's address `user`.
    pub fn user_to_guest(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|r| {
            let at = user.checked_sub(r.user).filter(|&at| at < r.len())?;
            r.guest.checked_add(at)
        })
    }

    /// Where guest address `addr` lies, and how many bytes follow it in the same region.
    #[inline]
    fn locate(&self, addr: u64) -> Option<(&Region, usize, usize)> {
        self.regions.iter().find_map(|r| {
            let at = usize::try_from(addr.checked_sub(r.guest)?).ok()?;
            let left = r.mapping.len().checked_sub(at).filter(|&n| n > 0)?;
            Some((r, at, left))
        })
    }

    /// Host pointer and contiguous length at `addr`, for this crate's copies.
    #[inline]
    pub(crate) fn pointer(&self, addr: u64) -> Option<(NonNull<u8>, usize)> {
        match self.first.pointer(addr) {
            None => self.elsewhere(addr),
            found => found,
        }
    }

    #[inline(never)]
    fn elsewhere(&self, addr: u64) -> Option<(NonNull<u8>, usize)> {
        self.others.iter().find_map(|window| window.pointer(addr))
    }

    /// Marks the region of `addr` as lost.
    pub(crate) fn poison(&self, addr: u64) {
        if let Some((region, ..)) = self.locate(addr) {
            region.mapping.poison();
        }
    }

    /// Whether all `len` bytes at `addr` are granted.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        match self.pointer(addr) {
            Some((_, left)) => len <= left as u64 || self.goes_on(addr, len),
            None => false,
        }
    }

    /// As [`Self::contains`], over more regions than one.
    #[inline(never)]
    fn goes_on(&self, addr: u64, len: u64) -> bool {
        let mut addr = addr;
        let mut len = len;
        loop {
            let Some((_, left)) = self.pointer(addr) else { return false };
            let left = left as u64;
            if len <= left {
                return true;
            }
            let Some(next) = addr.checked_add(left) else { return false };
            addr = next;
            len = len.saturating_sub(left);
        }
    }

    /// A window of `len` bytes at `addr`, which must lie in one region.
    pub fn view(&self, addr: u64, len: usize) -> Result<View, OutOfGrant> {
        let wrong = OutOfGrant { addr, len: len as u64 };
        let (region, at, _) = self.locate(addr).ok_or(wrong)?;
        View::new(Arc::clone(&region.mapping), at, len).map_err(|_| wrong)
    }

    /// Whether all `len` bytes at `addr` are granted, as [`Self::contains`]; if so, their first two
    /// cache lines are on their way, the second to be written where `write` says so. Of a receive
    /// buffer the first often holds the header only, which seldom changes: others may keep it.
    #[inline(always)]
    pub fn fetch(&self, addr: u64, len: u64, write: bool) -> bool {
        let Some((first, left)) = self.pointer(addr) else { return false };
        let first = first.as_ptr();
        let second = first.wrapping_add(CACHE_LINE_BYTES);
        kernel::prefetch(first);
        if write {
            kernel::prefetch_write(second);
        } else {
            kernel::prefetch(second);
        }
        len <= left as u64 || self.goes_on(addr, len)
    }

    /// The two little-endian words at `addr`, each loaded once: a descriptor of a table that lies
    /// anywhere. They need no alignment.
    #[inline]
    pub fn load_pair(&self, addr: u64) -> Result<[u64; 2], OutOfGrant> {
        const BYTES: usize = 16;
        match self.pointer(addr) {
            Some((from, left)) if left >= BYTES => {
                // SAFETY: `pointer` gives `left` mapped bytes.
                Ok(unsafe { kernel::load_pair(from.as_ptr()) }.map(u64::from_le))
            }
            // It goes on in another region, or not at all.
            _ => {
                let mut bytes = [0; BYTES];
                self.read(addr, &mut bytes)?;
                let word = u128::from_le_bytes(bytes);
                Ok([word as u64, (word >> 64) as u64])
            }
        }
    }

    /// Copies the `N` bytes at `addr` out, once, in few instructions, because their number is known;
    /// `false`, and nothing done, where fewer follow in the region.
    #[inline(always)]
    pub fn read_array<const N: usize>(&self, addr: u64, into: &mut [u8; N]) -> bool {
        match self.pointer(addr) {
            Some((from, left)) if left >= N => {
                // SAFETY: `pointer` gives `left` mapped bytes; `into` is private and has N.
                unsafe { kernel::copy(into.as_mut_ptr(), from.as_ptr(), N) };
                true
            }
            _ => false,
        }
    }

    /// Copies the bytes at `addr` out, once.
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr) {
            Some((from, left)) if into.len() <= left => {
                // SAFETY: `pointer` gives `left` mapped bytes; `into` is private.
                unsafe { kernel::copy(into.as_mut_ptr(), from.as_ptr(), into.len()) };
                Ok(())
            }
            _ => self.read_on(addr, into),
        }
    }

    /// As [`Self::read`], from more regions than one.
    #[inline(never)]
    fn read_on(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let mut into = into;
        let mut addr = addr;
        while !into.is_empty() {
            let wrong = OutOfGrant { addr, len: into.len() as u64 };
            let (from, left) = self.pointer(addr).ok_or(wrong)?;
            let now = left.min(into.len());
            let (head, tail) = into.split_at_mut(now);
            // SAFETY: `pointer` gives `left` mapped bytes; `head` is private and has `now` <= left.
            unsafe { kernel::copy(head.as_mut_ptr(), from.as_ptr(), now) };
            into = tail;
            addr = addr.checked_add(now as u64).ok_or(wrong)?;
        }
        Ok(())
    }

    /// Copies `from` in at `addr` unless it is there already: what does not change does not have
    /// to move between processors. For headers of 8 to 12 bytes; others are always written.
    #[inline]
    pub fn write_changed(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        self.write_headed(addr, from, &[])
    }

    /// Copies a header in at `addr` as [`Self::write_changed`], and what it heads behind it.
    #[inline]
    pub fn write_headed(&self, addr: u64, header: &[u8], body: &[u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr) {
            Some((there, left)) if left >= header.len().saturating_add(body.len()) => {
                let there = there.as_ptr();
                // SAFETY: `pointer` gives `left` mapped bytes, room for both; both are private.
                unsafe {
                    if !is_there(there, header) {
                        kernel::copy(there, header.as_ptr(), header.len());
                    }
                    kernel::copy(there.add(header.len()), body.as_ptr(), body.len());
                }
                self.wrote(addr, header.len().saturating_add(body.len()));
                Ok(())
            }
            // It goes on in another region, or not at all.
            _ => {
                self.write(addr, header)?;
                self.write(addr.wrapping_add(header.len() as u64), body)
            }
        }
    }

    /// As [`Self::write_headed`], in few instructions, because both lengths are known; `false`, and
    /// nothing done, where the memory goes on in another region, or what is written is noted.
    #[inline(always)]
    pub fn write_framed<const N: usize>(
        &self,
        addr: u64,
        header: &[u8; 12],
        body: &[u8; N],
    ) -> bool {
        match self.pointer(addr) {
            Some((there, left)) if left >= N.wrapping_add(header.len()) && self.log.is_none() => {
                let there = there.as_ptr();
                // SAFETY: `pointer` gives `left` mapped bytes, room for both; both are private.
                unsafe {
                    if !is_there(there, header) {
                        kernel::copy(there, header.as_ptr(), header.len());
                    }
                    kernel::copy(there.add(header.len()), body.as_ptr(), N);
                }
                true
            }
            _ => false,
        }
    }

    /// Copies `from` in at `addr`.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr) {
            Some((to, left)) if from.len() <= left => {
                // SAFETY: `pointer` gives `left` mapped bytes; `from` is private.
                unsafe { kernel::copy(to.as_ptr(), from.as_ptr(), from.len()) };
                self.wrote(addr, from.len());
                Ok(())
            }
            _ => self.write_on(addr, from),
        }
    }

    /// As [`Self::write`], to more regions than one.
    #[inline(never)]
    fn write_on(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        let mut from = from;
        let mut addr = addr;
        while !from.is_empty() {
            let wrong = OutOfGrant { addr, len: from.len() as u64 };
            let (to, left) = self.pointer(addr).ok_or(wrong)?;
            let now = left.min(from.len());
            let (head, tail) = from.split_at(now);
            // SAFETY: `pointer` gives `left` mapped bytes; `head` is private and has `now` <= left.
            unsafe { kernel::copy(to.as_ptr(), head.as_ptr(), now) };
            self.wrote(addr, now);
            from = tail;
            addr = addr.checked_add(now as u64).ok_or(wrong)?;
        }
        Ok(())
    }
}

/// Whether `header`, of 8 to 12 bytes, lies at `there` already.
///
/// # Safety
/// As many bytes must be mapped there.
#[inline]
unsafe fn is_there(there: *const u8, header: &[u8]) -> bool {
    let (Some(first), Some(last)) = (header.first_chunk::<8>(), header.last_chunk::<4>()) else {
        return false;
    };
    if header.len() > 12 {
        return false;
    }
    // SAFETY: the caller vouches for the bytes, of which these are the first 8 and the last 4.
    let (head, tail) = unsafe {
        let tail = there.add(header.len().wrapping_sub(4));
        (kernel::load_word(there), kernel::load_half(tail))
    };
    head == u64::from_ne_bytes(*first) && tail == u32::from_ne_bytes(*last)
}
