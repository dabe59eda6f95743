//! Unmapping, of large mappings in a background thread if enabled.
//!
//! The last user of a memory file frees its pages, which takes a tenth of a second per GiB. When a
//! guest or process is killed the last user is this process, and a dispatcher must not wait for it.
//! So the daemon enables the background ([`unmap_in_background`]): up to [`UNMAPPERS_MAX`] (4)
//! threads then unmap all mappings but those of small sealed files and small mirrors (at most 1
//! MiB). Before that, and in clients, the dropping thread unmaps.
//!
//! [`crate::Mapping`] calls `unmap` when it is dropped, after it left the fault handler's table.
//! Ranges wait without a limit here; from an owner with more than 7 TiB that wait, `attach` reads
//! no messages until they are unmapped (`crate::addresses`). Ranges of one owner may be unmapped in
//! any order. If no thread runs and none can be started, the dropping thread unmaps the range that
//! waits longest.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::addresses;
use crate::background::Background;
use crate::limits::UNMAPPERS_MAX;
use crate::mapping::KeptFile;
use crate::owner::Owner;
use crate::substitute;

/// A mapping to remove.
#[derive(Debug)]
pub(crate) struct Range {
    /// Address of its first byte, as [`mmap`](rustix::mm::mmap) returned it.
    pub base: usize,
    /// Length, in bytes.
    pub len: usize,
    /// The peer that granted it.
    pub owner: Owner,
    /// Start of its range in the substitute, if it was replaced.
    pub replaced: Option<u64>,
    /// The file, closed after the unmap: closing the last reference frees its pages.
    pub file: Option<Box<dyn KeptFile>>,
}

static UNMAP: Background<Range> = Background::new("causeway-unmap", UNMAPPERS_MAX, |range| {
    // SAFETY: the caller of `unmap` guarantees that no pointer into it exists.
    unsafe { unmap_counted(range) }
});
/// Set by [`unmap_in_background`].
static IN_BACKGROUND: AtomicBool = AtomicBool::new(false);

/// Unmaps large mappings in a background thread from now on. Not for processes that fork: a child
/// has no such thread.
pub fn unmap_in_background() {
    IN_BACKGROUND.store(true, Ordering::Relaxed);
}

/// Removes a mapping. `small`: its file is small and stays so, or it is a small mirror.
///
/// # Safety
/// No pointer into the mapping may exist.
pub(crate) unsafe fn unmap(range: Range, small: bool) {
    if small || !IN_BACKGROUND.load(Ordering::Relaxed) {
        // SAFETY: as the caller guarantees.
        return unsafe { unmap_now(range) };
    }
    addresses::begin(range.owner, range.len);
    if !UNMAP.hand_over(range)
        && let Some(range) = UNMAP.take_back()
    {
        // SAFETY: as the caller guarantees, or the caller that queued the range.
        unsafe { unmap_counted(range) };
    }
}

/// Removes a mapping that was counted as waiting for `munmap`.
///
/// # Safety
/// As for [`unmap`].
unsafe fn unmap_counted(range: Range) {
    let (owner, len) = (range.owner, range.len);
    // SAFETY: as the caller guarantees.
    unsafe { unmap_now(range) };
    addresses::end(owner, len);
}

/// # Safety
/// As for [`unmap`].
unsafe fn unmap_now(Range { base, len, replaced, file, .. }: Range) {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: as the caller guarantees.
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
    fn mappings_are_unmapped_in_the_background() {
        unmap_in_background();
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
        unmap_in_background();
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
            // In this order: a range is unmapped before it is no longer counted.
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
