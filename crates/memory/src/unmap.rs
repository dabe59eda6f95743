//! Gives mappings back, large ones in a thread of its own where that is asked for.
//!
//! Whoever lets go of a memory file last frees its pages, a tenth of a second and more for each
//! GiB. When a guest or a process is killed that is us, and a dispatcher must not do it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::elsewhere::Elsewhere;

/// Where each begins, and its length.
type Range = (usize, usize);

static UNMAP: Elsewhere<Range> = Elsewhere::new("causeway-unmap", 1, |(base, len)| {
    // SAFETY: who handed it over promised that nobody holds a pointer into it.
    unsafe { now(base, len) }
});
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// From now on this process gives large mappings back in a thread that does nothing else. Not for
/// those that fork: a child has no such thread.
pub fn unmap_elsewhere() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Gives `len` bytes at `base` back, which [`mmap`](rustix::mm::mmap) gave; `small`: the file, too,
/// is small and stays so.
///
/// # Safety
/// Nobody may hold a pointer into them.
pub(crate) unsafe fn unmap(base: usize, len: usize, small: bool) {
    if small || !ELSEWHERE.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        unsafe { now(base, len) };
    } else if !UNMAP.hand_over((base, len))
        && let Some((base, len)) = UNMAP.take_back()
    {
        // SAFETY: as the caller promises, or the one whose range it is.
        unsafe { now(base, len) };
    }
}

/// # Safety
/// As for [`unmap`].
unsafe fn now(base: usize, len: usize) {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: as the caller promises.
    let _ = unsafe { rustix::mm::munmap(base, len) };
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
}
