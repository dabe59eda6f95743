//! The application's memory: what a request sends from or receives into.
//!
//! Whether a buffer is memory at all is asked of the kernel, once: pages that were found are known
//! for a while. An application that unmaps memory and then passes it again is its own fault
//! unless it says so (`mx__regcache_clean`), as with MX's registration cache.
//!
//! That is all that is left of it here: the memory of the application is never registered. Messages
//! to other hosts are copied by way of memory that is ours (`causeway_endpoint::staging`), which is
//! lent once and used again; or, past the daemon, sent by the kernel from where they lie.
//! `MX_RCACHE=0` turns this cache off: the kernel is asked of every buffer.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_message::library::Buffer;
use causeway_message::limits::SEGMENTS_MAX;
use rustix::mm::{Advice, madvise};

use crate::abi::{Given, Segment, get, get_at};
use crate::code::Return;
use crate::limits::{KNOWN_PAGES, KNOWN_SETS, RUN_PAGES, RUNS_OF_SET};

const PAGE: usize = 4096;

/// Segments of the application's memory that belong to a request. Only [`Known::segments`] makes
/// them, of what the application gave with a call.
#[derive(Debug)]
pub struct Segments(Kind);

/// Where the segments lie, and how many bytes they have.
#[derive(Debug)]
enum Kind {
    One(*mut u8, usize),
    Many(Box<[(*mut u8, usize)]>, usize),
}

// SAFETY: the application lends the memory to the request until that ends, in whichever thread.
unsafe impl Send for Segments {}

impl Segments {
    #[inline]
    fn find(&self, at: usize) -> (*mut u8, usize) {
        match &self.0 {
            Kind::One(start, len) => {
                let at = at.min(*len);
                (start.wrapping_add(at), len.saturating_sub(at))
            }
            Kind::Many(all, _) => {
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

impl Buffer for Segments {
    #[inline]
    fn len(&self) -> usize {
        match self.0 {
            Kind::One(_, len) | Kind::Many(_, len) => len,
        }
    }

    #[inline]
    fn bytes(&self, at: usize) -> &[u8] {
        let (start, len) = self.find(at);
        if len == 0 {
            return &[];
        }
        // SAFETY: `Known::segments` found the memory mapped and not null; the application lends it to
        // the request until that ends, and `self` is dropped then.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        match self.0 {
            Kind::One(..) => Some((self.bytes(0), &[])),
            Kind::Many(..) => None,
        }
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let (start, len) = self.find(at);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and it was found writable.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Counts how often memory was said to be unmapped.
static CLEANED: AtomicU32 = AtomicU32::new(0);

/// Forgets what is known of the application's memory.
pub fn clean() {
    CLEANED.fetch_add(1, Ordering::AcqRel);
}

/// Pages that are known to be mapped: readable, or (lowest bit) writable.
#[derive(Debug)]
pub struct Known {
    pages: [usize; KNOWN_PAGES],
    /// Sets of runs: first byte (lowest bit as above), and length. What was found last is first.
    runs: [[(usize, usize); RUNS_OF_SET]; KNOWN_SETS],
    cleaned: u32,
    /// Whether what was found is known from then on.
    keeps: bool,
    /// How often the kernel was asked.
    pub asked: u64,
}

impl Known {
    /// Nothing yet; and nothing later where `MX_RCACHE` is 0.
    pub fn new() -> Self {
        Self::keeping(std::env::var_os("MX_RCACHE").is_none_or(|kept| kept != "0"))
    }

    const fn keeping(keeps: bool) -> Self {
        let (pages, runs) = ([0; KNOWN_PAGES], [[(0, 0); RUNS_OF_SET]; KNOWN_SETS]);
        Self { pages, runs, cleaned: 0, keeps, asked: 0 }
    }

    /// The memory of a message, checked. `write`: it is written to.
    #[inline]
    pub fn segments(
        &mut self,
        list: Given<Segment>,
        count: u32,
        write: bool,
    ) -> Result<Segments, Return> {
        match count {
            0 => Ok(Segments(Kind::One(std::ptr::null_mut(), 0))),
            1 => {
                let Segment { ptr, len } = get(list, Return::BadSegList)?;
                self.check(ptr, len as usize, write)?;
                Ok(Segments(Kind::One(ptr.cast(), len as usize)))
            }
            _ => self.many(list, count as usize, write),
        }
    }

    #[cold]
    fn many(
        &mut self,
        list: Given<Segment>,
        count: usize,
        write: bool,
    ) -> Result<Segments, Return> {
        if count > SEGMENTS_MAX {
            return Err(Return::BadSegCnt);
        }
        let mut all = Vec::with_capacity(count);
        let mut sum = 0_usize;
        for at in 0..count {
            // SAFETY: the caller says that so many are there.
            let Segment { ptr, len } = unsafe { get_at(list, at, Return::BadSegList) }?;
            self.check(ptr, len as usize, write)?;
            sum = sum.saturating_add(len as usize);
            all.push((ptr.cast(), len as usize));
        }
        if u32::try_from(sum).is_err() {
            return Err(Return::BadSegList);
        }
        Ok(Segments(Kind::Many(all.into(), sum)))
    }

    /// Whether all of it is memory.
    #[inline]
    fn check(&mut self, ptr: *mut c_void, len: usize, write: bool) -> Result<(), Return> {
        let within = ptr.addr() & PAGE.wrapping_sub(1);
        let start = ptr.addr().wrapping_sub(within);
        let known = self.pages.get(mixed(start) % KNOWN_PAGES).copied().unwrap_or(0);
        // One page, which is known: the lowest bit counts where it is written to.
        if len.wrapping_sub(1) < PAGE.wrapping_sub(within)
            && known | usize::from(!write) == start | 1
            && start != 0
            && self.cleaned == CLEANED.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        self.find_out(ptr, len, write)
    }

    fn find_out(&mut self, ptr: *mut c_void, len: usize, write: bool) -> Result<(), Return> {
        if len == 0 {
            return Ok(());
        }
        let cleaned = CLEANED.load(Ordering::Relaxed);
        if cleaned != self.cleaned {
            *self = Self { cleaned, asked: self.asked, ..Self::keeping(self.keeps) };
        }
        let start = ptr.addr() & !(PAGE.wrapping_sub(1));
        let end = ptr.addr().checked_add(len).ok_or(Return::BadSegMem)?;
        let tag = start | usize::from(write);
        if end.wrapping_sub(start) <= PAGE {
            self.asked = self.asked.wrapping_add(1);
            ask(start, PAGE, write)?;
            if let Some(place) = self.pages.get_mut(mixed(start) % KNOWN_PAGES)
                && self.keeps
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
        let len = end.wrapping_sub(start).checked_next_multiple_of(PAGE);
        let len = len.ok_or(Return::BadSegMem)?;
        if len / PAGE < RUN_PAGES {
            let mut page = start;
            while page < end {
                self.check(std::ptr::without_provenance_mut(page), 1, write)?;
                page = page.wrapping_add(PAGE);
            }
            return Ok(());
        }
        let Some(set) = self.runs.get_mut(mixed(start) % KNOWN_SETS) else {
            return Err(Return::BadSegMem);
        };
        let holds = |&(known, size): &(usize, usize)| {
            (known == tag || known == start | 1) && size >= len && start != 0
        };
        if set.iter().any(holds) {
            return Ok(());
        }
        self.asked = self.asked.wrapping_add(1);
        ask(start, len, write)?;
        if self.keeps {
            set.rotate_right(1);
            if let Some(first) = set.first_mut() {
                *first = (tag, len);
            }
        }
        Ok(())
    }
}

/// A page's number by which it is looked for: buffers lie powers of two apart, so all of it counts.
#[inline]
fn mixed(start: usize) -> usize {
    (((start / PAGE) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// Whether the kernel can be asked: not before Linux 5.14.
fn can_ask() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let here = 0_u8;
        populate((&raw const here).addr() & !(PAGE.wrapping_sub(1)), PAGE, true)
    })
}

fn populate(start: usize, len: usize, write: bool) -> bool {
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: this advice makes pages present as a touch would, and changes no byte; addresses
    // that are not mapped are an error.
    unsafe { madvise(std::ptr::without_provenance_mut(start), len, advice) }.is_ok()
}

#[cold]
fn ask(start: usize, len: usize, write: bool) -> Result<(), Return> {
    if start == 0 || (can_ask() && !populate(start, len, write)) {
        return Err(Return::BadSegMem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As buffers lie that an allocator gave one after the other: a power of two apart.
    #[test]
    fn buffers_that_lie_powers_of_two_apart_are_all_known() {
        for (apart, len) in [(64, 40), (256, 256), (1024, 300)] {
            let memory = vec![1_u8; (4 * apart + len) * PAGE];
            let mut known = Known::keeping(true);
            for _ in 0..10 {
                for at in 0..4 {
                    let start = memory.as_ptr().wrapping_add(at * apart * PAGE);
                    for write in [true, false] {
                        known.check(start.cast_mut().cast(), len * PAGE, write).unwrap();
                    }
                }
            }
            // What may be written to may be read.
            assert_eq!(known.asked, 4, "{apart} pages apart");
        }
    }
}
