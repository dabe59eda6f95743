//! Watches memory of the application for changes of its mapping, by `userfaultfd(2)`: registered
//! memory is pinned, and after `munmap`, `mremap` or `MADV_DONTNEED` the pinned pages are no longer
//! those of the address.
//!
//! The kernel reports such a change to a thread before the call that made it returns, so no hook of
//! the C library, of the allocator or of system calls is needed. Ranges are watched in the mode for
//! write protection, and no page is ever protected: there are no page faults to serve. The call of
//! the application waits until the thread, which only counts, has read the report.
//!
//! # Limits
//! Linux 5.19 or later, anonymous memory, tmpfs and huge pages; [`WatchedRange::new`] fails for any
//! other memory, as after a policy that forbids `userfaultfd(2)`. A hole that is punched into a
//! file, or its truncation, is not seen. One thread for the process, which ends with the process.
//! In a child of `fork(2)` nothing is watched; the child starts a watch of its own when it needs
//! one.
//!
//! # Place
//! The cache of registrations ([`super::cache`]) watches what it keeps; its calls run under the
//! lock of an endpoint. The benchmark of registrations uses [`MemoryWatch`], too.

use std::ops::Range;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};
use rustix::process::{Pid, getpid};

use crate::limits::PAGE_BYTES;
use crate::threads::spawn_unsignalled;

/// Flag of `userfaultfd(2)`: no faults of the kernel, which permits the call without privileges.
const USER_MODE_ONLY: libc::c_int = 1;
/// Version of the interface.
const API: u64 = 0xaa;
/// Reports of `mremap`, `MADV_DONTNEED` and `munmap`, and write protection of tmpfs and huge pages.
const FEATURES: u64 = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 12;
/// Mode of a watched range: write protection.
const MODE_WP: u64 = 1 << 1;
/// Length of a report, in bytes.
const REPORT_BYTES: usize = 32;

/// Argument of `UFFDIO_API`.
#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Argument of `UFFDIO_REGISTER`.
#[repr(C)]
struct RegisterArgument {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Argument of `UFFDIO_UNREGISTER`.
#[repr(C)]
struct RangeArgument {
    start: u64,
    len: u64,
}

/// Argument of `UFFDIO_WRITEPROTECT`.
#[repr(C)]
struct ProtectArgument {
    start: u64,
    len: u64,
    mode: u64,
}

/// Encodes the number of a request that reads and writes an argument of `len` bytes.
const fn request(number: u32, len: usize) -> u32 {
    3 << 30 | (len as u32) << 16 | 0xaa << 8 | number
}

const UFFDIO_API: u32 = request(0x3f, size_of::<ApiArgument>());
const UFFDIO_REGISTER: u32 = request(0x00, size_of::<RegisterArgument>());
/// Only reads its argument.
const UFFDIO_UNREGISTER: u32 = 2 << 30 | (size_of::<RangeArgument>() as u32) << 16 | 0xaa << 8 | 1;
const UFFDIO_WRITEPROTECT: u32 = request(0x06, size_of::<ProtectArgument>());

/// The watch of a process.
#[derive(Debug)]
pub struct MemoryWatch {
    descriptor: OwnedFd,
    /// The process of which memory is watched.
    process: Pid,
    /// Number of reports.
    changes: AtomicU64,
    /// The ranges of all [`WatchedRange`]s; they may overlap.
    ranges: Mutex<Vec<Range<usize>>>,
}

/// A range of whole pages that is watched until this value is dropped.
#[derive(Debug)]
pub struct WatchedRange {
    watch: Arc<MemoryWatch>,
    range: Range<usize>,
    /// Value of [`MemoryWatch::changes`] before the watch of the range began.
    changes: u64,
}

impl WatchedRange {
    /// Watches a range; `None` if the kernel refuses the memory.
    pub fn new(watch: &Arc<MemoryWatch>, range: Range<usize>) -> Option<Self> {
        let changes = watch.changes();
        let mut ranges = watch.ranges();
        watch.add(&range).ok()?;
        ranges.push(range.clone());
        Some(Self { watch: Arc::clone(watch), range, changes })
    }

    /// Returns whether any watched memory has changed since.
    pub fn has_changed(&self) -> bool {
        self.watch.changes() != self.changes
    }

    /// Returns whether no watched memory has changed since, or is being changed. `page` is the
    /// address of a page in the range.
    pub fn is_unchanged(&self, page: usize) -> bool {
        // In this order: a change that began before the first check and ended after it is counted by
        // then.
        self.watch.is_settled(page) && !self.has_changed()
    }
}

impl Drop for WatchedRange {
    fn drop(&mut self) {
        if self.watch.process != getpid() {
            return;
        }
        let mut ranges = self.watch.ranges();
        if let Some(at) = ranges.iter().position(|range| *range == self.range) {
            ranges.swap_remove(at);
        }
        // Overlapping memory stays watched.
        let overlaps =
            |other: &Range<usize>| other.start < self.range.end && self.range.start < other.end;
        if !ranges.iter().any(overlaps) {
            self.watch.remove(&self.range);
        }
    }
}

/// The watch of this process; that of the parent in a new child.
static WATCH: Mutex<Option<Arc<MemoryWatch>>> = Mutex::new(None);

impl MemoryWatch {
    /// Returns the watch of this process, which is started by the first call; `None` where the
    /// kernel refuses.
    pub fn of_process() -> Option<Arc<Self>> {
        // A thread of the parent may have held the lock at the fork: then the child has no watch.
        let mut known = WATCH.try_lock().ok()?;
        if let Some(watch) = known.as_ref().filter(|watch| watch.process == getpid()) {
            return Some(Arc::clone(watch));
        }
        let watch = Arc::new(Self::start()?);
        let watching = Arc::clone(&watch);
        let name = std::thread::Builder::new().name("causeway-watch".into());
        // Handlers of signals belong to the application's threads.
        spawn_unsignalled(|| name.spawn(move || watching.count())).ok()?;
        *known = Some(Arc::clone(&watch));
        Some(watch)
    }

    fn start() -> Option<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes flags only and returns a new descriptor.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let descriptor = i32::try_from(descriptor).ok().filter(|raw| *raw >= 0)?;
        // SAFETY: the kernel just opened the descriptor, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut api = ApiArgument { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: the request takes this structure.
        let api = unsafe { Updater::<UFFDIO_API, _>::new(&mut api) };
        // SAFETY: the request writes only its argument.
        unsafe { ioctl(&descriptor, api) }.ok()?;
        let (changes, ranges) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        Some(Self { descriptor, process: getpid(), changes, ranges })
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts reports until the process ends.
    fn count(&self) {
        let mut report = [0; REPORT_BYTES];
        loop {
            let ready = poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], None);
            // Counted before the report is read: the reporting call then still waits.
            self.changes.fetch_add(1, Ordering::SeqCst);
            match (ready, rustix::io::read(&self.descriptor, &mut report)) {
                (Ok(_) | Err(Errno::INTR), Ok(1..) | Err(Errno::AGAIN | Errno::INTR)) => {}
                _ => return,
            }
        }
    }

    /// Returns a number that differs after any change of a watched range.
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Watches a range of whole pages, until [`Self::remove`] or a change of the mapping. Memory
    /// that is watched already may be a part.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    fn add(&self, range: &Range<usize>) -> Result<(), Errno> {
        let (start, len) = (range.start as u64, range.len() as u64);
        let mut register = RegisterArgument { start, len, mode: MODE_WP, ioctls: 0 };
        // SAFETY: the request takes this structure.
        let register = unsafe { Updater::<UFFDIO_REGISTER, _>::new(&mut register) };
        // SAFETY: the request writes only its argument; the memory stays as it is, because no page is
        // write-protected.
        unsafe { ioctl(self.descriptor.as_fd(), register) }
    }

    /// Ends the watch of a range; of memory that is gone, nothing remains to end.
    fn remove(&self, range: &Range<usize>) {
        let mut range = RangeArgument { start: range.start as u64, len: range.len() as u64 };
        // SAFETY: the request takes this structure.
        let range = unsafe { Updater::<UFFDIO_UNREGISTER, _>::new(&mut range) };
        // SAFETY: the request changes no byte of the memory.
        let _ = unsafe { ioctl(self.descriptor.as_fd(), range) };
    }

    /// Returns whether a page is watched, and no change of watched memory is in progress: one that
    /// was made, without a read of its report yet. Meanwhile another thread may have mapped other
    /// memory at the address.
    fn is_settled(&self, page: usize) -> bool {
        let mut protect = ProtectArgument { start: page as u64, len: PAGE_BYTES as u64, mode: 0 };
        // SAFETY: the request takes this structure.
        let protect = unsafe { Updater::<UFFDIO_WRITEPROTECT, _>::new(&mut protect) };
        // SAFETY: the request ends the write protection of a page that has none. The kernel refuses it
        // while a change is in progress.
        unsafe { ioctl(self.descriptor.as_fd(), protect) }.is_ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rustix::mm::{
        Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap,
    };

    use super::*;

    const LEN: usize = 16 * PAGE_BYTES;
    /// Held by tests that count changes, or compare such counts: all of a process share them.
    pub static ALONE: Mutex<()> = Mutex::new(());

    /// Maps private memory, at `place` if there is one.
    fn map(place: Option<usize>) -> Range<usize> {
        let flags = match place {
            Some(_) => MapFlags::PRIVATE | MapFlags::FIXED,
            None => MapFlags::PRIVATE,
        };
        let at = std::ptr::without_provenance_mut(place.unwrap_or(0));
        // SAFETY: new memory, or in place of memory that this test has mapped.
        let at = unsafe { mmap_anonymous(at, LEN, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = at.unwrap().addr();
        start..start + LEN
    }

    fn pointer(range: &Range<usize>) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(range.start)
    }

    #[test]
    fn staging_watch_sees_memory_that_is_unmapped_moved_or_dropped() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watch) = MemoryWatch::of_process() else {
            eprintln!("skipped: the kernel refuses userfaultfd(2)");
            return;
        };
        type Change = fn(&Range<usize>);
        // SAFETY: the memory of this test, to which nothing refers.
        let changes: [(&str, Change); 4] = [
            ("munmap", |at| unsafe { munmap(pointer(at), LEN) }.unwrap()),
            ("munmap of a page", |at| unsafe { munmap(pointer(at), PAGE_BYTES) }.unwrap()),
            ("mremap", |at| {
                let to = map(None);
                // SAFETY: as above.
                unsafe {
                    let flags = MremapFlags::MAYMOVE;
                    mremap_fixed(pointer(at), LEN, LEN, flags, pointer(&to)).unwrap();
                    munmap(pointer(&to), LEN).unwrap();
                }
            }),
            ("MADV_DONTNEED", |at| {
                // SAFETY: as above.
                unsafe { madvise(pointer(at), LEN, Advice::LinuxDontNeed) }.unwrap();
            }),
        ];
        for (name, change) in changes {
            let range = map(None);
            watch.add(&range).unwrap();
            let before = watch.changes();
            assert!(watch.is_settled(range.start), "{name}");
            // SAFETY: the memory is mapped, and writable.
            unsafe { pointer(&range).cast::<u8>().write(7) };
            assert_eq!(watch.changes(), before, "a write is no change");
            change(&range);
            assert_ne!(watch.changes(), before, "{name}");
            // Other memory at the same address is not watched.
            let again = map(Some(range.start));
            assert!(!watch.is_settled(again.start) || name == "MADV_DONTNEED", "{name}");
            // SAFETY: as above.
            unsafe { munmap(pointer(&again), LEN) }.unwrap();
        }
        let range = map(None);
        watch.add(&range).unwrap();
        watch.remove(&range);
        assert!(!watch.is_settled(range.start));
        let before = watch.changes();
        // SAFETY: as above.
        unsafe { munmap(pointer(&range), LEN) }.unwrap();
        assert_eq!(watch.changes(), before, "memory that is not watched");
    }
}
