//! Gives mappings back, large ones in a thread of its own where that is asked for.
//!
//! Whoever lets go of a memory file last frees its pages, a tenth of a second and more for each
//! GiB. When a guest or a process is killed that is us, and a dispatcher must not do it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::addresses;
use crate::background::Background;
use crate::limits::UNMAPPERS_MAX;
use crate::mapping::KeptFile;
use crate::owner::Owner;
use crate::substitute;

/// A mapping that is to be removed.
#[derive(Debug)]
pub(crate) struct Range {
    /// Address of its first byte, as [`mmap`](rustix::mm::mmap) returned it.
    pub base: usize,
    /// Length, in bytes.
    pub len: usize,
    /// The peer that granted it.
    pub owner: Owner,
    /// Where the range of the substitute begins that replaced it, if one did.
    pub replaced: Option<u64>,
    /// The file, closed afterwards: its pages are freed by whoever lets go of it last.
    pub file: Option<Box<dyn KeptFile>>,
}

static UNMAP: Background<Range> = Background::new("causeway-unmap", UNMAPPERS_MAX, |range| {
    // SAFETY: who handed it over promised that nobody holds a pointer into it.
    unsafe { later(range) }
});
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// From now on this process gives large mappings back in a thread that does nothing else. Not for
/// those that fork: a child has no such thread.
pub fn unmap_elsewhere() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Removes a mapping; `small`: its file is small and stays so.
///
/// # Safety
/// Nobody may hold a pointer into it.
pub(crate) unsafe fn unmap(range: Range, small: bool) {
    if small || !ELSEWHERE.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        return unsafe { now(range) };
    }
    addresses::begin(range.owner, range.len);
    if !UNMAP.hand_over(range)
        && let Some(range) = UNMAP.take_back()
    {
        // SAFETY: as the caller promises, or the one whose range it is.
        unsafe { later(range) };
    }
}

/// Removes a mapping that was counted as waiting.
///
/// # Safety
/// As for [`unmap`].
unsafe fn later(range: Range) {
    let (owner, len) = (range.owner, range.len);
    // SAFETY: as the caller promises.
    unsafe { now(range) };
    addresses::end(owner, len);
}

/// # Safety
/// As for [`unmap`].
unsafe fn now(Range { base, len, replaced, file, .. }: Range) {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: as the caller promises.
    let unmapped = unsafe { rustix::mm::munmap(base, len) };
    // A range that the kernel keeps stays counted: its addresses are not free.
    if unmapped.is_ok() {
        addresses::give_back(len);
        if let Some(at) = replaced {
            substitute::release(at, len);
        }
    }
    drop(file);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Mapping, create};

    fn mapped(name: &str) -> bool {
        std::fs::read_to_string("/proc/self/maps").unwrap().contains(name)
    }

    #[test]
    fn large_mappings_are_given_back_in_the_end() {
        unmap_elsewhere();
        for len in [4096, 64 << 20] {
            let name = format!("unmapped-{len}");
            let file = create(&name, len).unwrap();
            let mapping = Mapping::new(file.as_fd(), 0, len).unwrap();
            assert!(mapped(&name));
            drop(mapping);
            let since = Instant::now();
            while mapped(&name) {
                assert!(since.elapsed() < Duration::from_secs(20), "{name} stays");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn addresses_are_counted_until_they_are_unmapped() {
        // Freeing the first part takes milliseconds, which makes the order visible.
        const HUGE: u64 = 4 << 40;
        const FILLED: u64 = 64 << 20;
        unmap_elsewhere();
        let name = "counted-until-unmapped";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, HUGE).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILLED).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, HUGE).unwrap();
        for at in (0..FILLED).step_by(4096) {
            let (byte, _) = mapping.at(usize::try_from(at).unwrap()).unwrap();
            // SAFETY: a mapped byte of this test alone.
            unsafe { byte.write_volatile(1) };
        }
        drop(file);
        drop(mapping);
        let since = Instant::now();
        loop {
            // In this order: what is not counted any more was unmapped before.
            let is_counted = addresses::mapped() >= HUGE;
            let is_mapped = mapped(name);
            assert!(is_counted || !is_mapped, "addresses were given back before they were free");
            if !is_counted {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "{name} stays");
        }
    }
}
