//! Buffers of the application: validation, and access during a request.
//!
//! The kernel validates buffers, and pages that were found mapped are cached. As with the
//! registration cache of MX, an application that unmaps memory and passes it again must call
//! `mx__regcache_clean`. `MX_RCACHE=0` disables the cache.
//!
//! This module never registers memory of the application. Messages to other hosts are copied
//! through memory of the library (`causeway_endpoint::staging`), which also registers memory of the
//! application behind an adapter; or they are sent in place by the kernel in direct mode.
//!
//! A request has at most [`SEGMENTS_MAX`] (256) buffers. The cache holds [`KNOWN_PAGES`] (256)
//! single pages and [`KNOWN_SETS`] (32) sets of page runs; an entry that does not fit replaces
//! another, and the buffer of the replaced entry is validated again. On kernels before Linux 5.14
//! only NULL is found. Otherwise a call with a buffer that is not mapped, or not writable for a
//! receive, fails with `MX_BAD_SEG_MEM`; too many buffers give `MX_BAD_SEG_CNT`, and a missing list
//! or more than 2^32 - 1 bytes `MX_BAD_SEG_LIST`. A failed call makes no request. A validated
//! buffer can be unmapped later, or be stale in the cache: then an access by this library raises
//! SIGSEGV or SIGBUS, as with MX. Called by `call::transfer` for each send and receive, in the
//! application's thread, with the lock of the endpoint.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_endpoint::limits::PAGE_BYTES;
use causeway_message::library::Buffer;
use causeway_message::limits::SEGMENTS_MAX;
use rustix::mm::{Advice, madvise};

use crate::abi::{CallerPtr, MxSegment, get, get_at};
use crate::code::Return;
use crate::limits::{KNOWN_PAGES, KNOWN_SETS, RUN_PAGES, RUNS_OF_SET};

/// Buffers of the application for one request. Only [`MappedPages::segments`] creates them, from
/// arguments of a call.
#[derive(Debug)]
pub struct MessageSegments(SegmentList);

/// Position and length of the buffers, in bytes.
#[derive(Debug)]
enum SegmentList {
    /// One buffer: first byte and length.
    One(*mut u8, usize),
    /// Several buffers, in order, and the sum of their lengths.
    Many(Box<[(*mut u8, usize)]>, usize),
}

// SAFETY: the application lends the memory to the request until its end, in any thread.
unsafe impl Send for MessageSegments {}

impl MessageSegments {
    #[inline]
    fn find(&self, at: usize) -> (*mut u8, usize) {
        match &self.0 {
            SegmentList::One(start, len) => {
                let at = at.min(*len);
                (start.wrapping_add(at), len.saturating_sub(at))
            }
            SegmentList::Many(all, _) => {
                let mut at = at;
                for &(start, len) in all {
                    if at < len {
                        return (start.wrapping_add(at), len.saturating_sub(at));
                    }
                    at = at.saturating_sub(len);
                }
                (std::ptr::null_mut(), 0)
            }
        }
    }
}

impl Buffer for MessageSegments {
    #[inline]
    fn len(&self) -> usize {
        match self.0 {
            SegmentList::One(_, len) | SegmentList::Many(_, len) => len,
        }
    }

    #[inline]
    fn bytes(&self, at: usize) -> &[u8] {
        let (start, len) = self.find(at);
        if len == 0 {
            return &[];
        }
        // SAFETY: `MappedPages::segments` found the memory mapped and not null. The application
        // lends it to the request until its end, and `self` is dropped then.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        match self.0 {
            SegmentList::One(..) => Some((self.bytes(0), &[])),
            SegmentList::Many(..) => None,
        }
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let (start, len) = self.find(at);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`; and the memory was found writable.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Number of calls of [`clean`].
static CLEANED: AtomicU32 = AtomicU32::new(0);

/// Invalidates the caches of mapped memory.
pub fn clean() {
    CLEANED.fetch_add(1, Ordering::AcqRel);
}

/// A cache of mapped memory: pages that are readable, or writable (lowest bit).
#[derive(Debug)]
pub struct MappedPages {
    /// Single pages, by the hash of their number; 0 for none.
    pages: [usize; KNOWN_PAGES],
    /// Sets of runs: address of the first byte (lowest bit as for pages), and length. The latest is
    /// first.
    runs: [[(usize, usize); RUNS_OF_SET]; KNOWN_SETS],
    /// Value of [`CLEANED`] to which the cache belongs; with another value it is emptied.
    cleaned: u32,
    /// The cache is enabled.
    is_enabled: bool,
    /// Number of checks by the kernel.
    pub checks: u64,
}

impl MappedPages {
    /// Creates an empty cache, which is disabled if `MX_RCACHE` is 0.
    pub fn new() -> Self {
        Self::with_cache(std::env::var_os("MX_RCACHE").is_none_or(|kept| kept != "0"))
    }

    const fn with_cache(is_enabled: bool) -> Self {
        let (pages, runs) = ([0; KNOWN_PAGES], [[(0, 0); RUNS_OF_SET]; KNOWN_SETS]);
        Self { pages, runs, cleaned: 0, is_enabled, checks: 0 }
    }

    /// Validates the buffers of a request. `write`: the request writes to them.
    #[inline]
    pub fn segments(
        &mut self,
        list: CallerPtr<MxSegment>,
        count: u32,
        write: bool,
    ) -> Result<MessageSegments, Return> {
        match count {
            0 => Ok(MessageSegments(SegmentList::One(std::ptr::null_mut(), 0))),
            1 => {
                let MxSegment { ptr, len } = get(list, Return::BadSegList)?;
                self.check(ptr, len as usize, write)?;
                Ok(MessageSegments(SegmentList::One(ptr.cast(), len as usize)))
            }
            _ => self.many(list, count as usize, write),
        }
    }

    #[cold]
    fn many(
        &mut self,
        list: CallerPtr<MxSegment>,
        count: usize,
        write: bool,
    ) -> Result<MessageSegments, Return> {
        if count > SEGMENTS_MAX {
            return Err(Return::BadSegCnt);
        }
        let mut all = Vec::with_capacity(count);
        let mut sum = 0_usize;
        for at in 0..count {
            // SAFETY: the caller guarantees `count` segments.
            let MxSegment { ptr, len } = unsafe { get_at(list, at, Return::BadSegList) }?;
            self.check(ptr, len as usize, write)?;
            sum = sum.saturating_add(len as usize);
            all.push((ptr.cast(), len as usize));
        }
        if u32::try_from(sum).is_err() {
            return Err(Return::BadSegList);
        }
        Ok(MessageSegments(SegmentList::Many(all.into(), sum)))
    }

    /// Validates a buffer.
    #[inline]
    fn check(&mut self, ptr: *mut c_void, len: usize, write: bool) -> Result<(), Return> {
        let within = ptr.addr() & PAGE_BYTES.wrapping_sub(1);
        let start = ptr.addr().wrapping_sub(within);
        let known = self.pages.get(page_hash(start) % KNOWN_PAGES).copied().unwrap_or(0);
        // A single cached page. The lowest bit must be set if the request writes.
        if len.wrapping_sub(1) < PAGE_BYTES.wrapping_sub(within)
            && known | usize::from(!write) == start | 1
            && start != 0
            && self.cleaned == CLEANED.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        self.ask_kernel(ptr, len, write)
    }

    fn ask_kernel(&mut self, ptr: *mut c_void, len: usize, write: bool) -> Result<(), Return> {
        if len == 0 {
            return Ok(());
        }
        let cleaned = CLEANED.load(Ordering::Relaxed);
        if cleaned != self.cleaned {
            *self = Self { cleaned, checks: self.checks, ..Self::with_cache(self.is_enabled) };
        }
        let start = ptr.addr() & !(PAGE_BYTES.wrapping_sub(1));
        let end = ptr.addr().checked_add(len).ok_or(Return::BadSegMem)?;
        let tag = start | usize::from(write);
        if end.wrapping_sub(start) <= PAGE_BYTES {
            self.checks = self.checks.wrapping_add(1);
            check_mapped(start, PAGE_BYTES, write)?;
            if let Some(place) = self.pages.get_mut(page_hash(start) % KNOWN_PAGES)
                && self.is_enabled
            {
                *place = tag;
            }
            return Ok(());
        }
        self.check_run(start, end, tag, write)
    }

    fn check_run(
        &mut self,
        start: usize,
        end: usize,
        tag: usize,
        write: bool,
    ) -> Result<(), Return> {
        let len = end.wrapping_sub(start).checked_next_multiple_of(PAGE_BYTES);
        let len = len.ok_or(Return::BadSegMem)?;
        if len / PAGE_BYTES < RUN_PAGES {
            let mut page = start;
            while page < end {
                self.check(std::ptr::without_provenance_mut(page), 1, write)?;
                page = page.wrapping_add(PAGE_BYTES);
            }
            return Ok(());
        }
        let Some(set) = self.runs.get_mut(page_hash(start) % KNOWN_SETS) else {
            return Err(Return::BadSegMem);
        };
        let holds = |&(known, size): &(usize, usize)| {
            (known == tag || known == start | 1) && size >= len && start != 0
        };
        if set.iter().any(holds) {
            return Ok(());
        }
        self.checks = self.checks.wrapping_add(1);
        check_mapped(start, len, write)?;
        if self.is_enabled {
            set.rotate_right(1);
            if let Some(first) = set.first_mut() {
                *first = (tag, len);
            }
        }
        Ok(())
    }
}

/// Hashes the page number. Buffers are often powers of two apart, so all bits must contribute.
#[inline]
fn page_hash(start: usize) -> usize {
    (((start / PAGE_BYTES) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// Returns whether the kernel supports the check (Linux 5.14).
fn is_supported() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let here = 0_u8;
        populate((&raw const here).addr() & !(PAGE_BYTES.wrapping_sub(1)), PAGE_BYTES, true)
    })
}

fn populate(start: usize, len: usize, write: bool) -> bool {
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: this advice makes pages present as an access does, and changes no byte. It fails for
    // unmapped addresses.
    unsafe { madvise(std::ptr::without_provenance_mut(start), len, advice) }.is_ok()
}

#[cold]
fn check_mapped(start: usize, len: usize, write: bool) -> Result<(), Return> {
    if start == 0 || (is_supported() && !populate(start, len, write)) {
        return Err(Return::BadSegMem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers of an allocator are often a power of two apart.
    #[test]
    fn page_cache_holds_buffers_powers_of_two_apart() {
        for (apart, len) in [(64, 40), (256, 256), (1024, 300)] {
            let memory = vec![1_u8; (4 * apart + len) * PAGE_BYTES];
            let mut known = MappedPages::with_cache(true);
            for _ in 0..10 {
                for at in 0..4 {
                    let start = memory.as_ptr().wrapping_add(at * apart * PAGE_BYTES);
                    for write in [true, false] {
                        known.check(start.cast_mut().cast(), len * PAGE_BYTES, write).unwrap();
                    }
                }
            }
            // Writable memory is also readable.
            assert_eq!(known.checks, 4, "{apart} pages apart");
        }
    }
}
