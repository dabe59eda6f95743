//! One mapped range of a granted memory file.
//!
//! A mapping registers with the fault handler, counts against the budget of address space, and is
//! unmapped with its last user, large mappings in a background thread (`crate::unmap`). It is
//! readable, writable and shared; rights of grants are checked above it. Only memory files are
//! mapped (memfd, tmpfs, hugetlbfs; see [`is_memory`]), up to [`REGION_BYTES_MAX`] (16 TiB) of each
//! and [`MAPPINGS_MAX`] (60,000) per process; more is a [`MappingError`]. [`Mapping::private`] maps
//! memory of this process instead. Memory is not reserved: pages are allocated when touched.
//!
//! [`crate::Map`], [`crate::Grants`] and [`crate::View`] share mappings by `Arc`, a
//! [`crate::DirtyLog`] has one of its own. A mapping does not prevent the file from shrinking: with
//! the first access to a lost page it is poisoned, stays mapped as zeroed memory, and never
//! recovers. [`Mapping::withdraw`] puts zeroed memory in the file's place at the caller's wish,
//! without poison: `attach` calls it for the memory of a vfio-user port whose dispatcher is late.
//! `attach` and [`crate::Grants`] check the share of a frontend before they map memory that it
//! grants ([`crate::fits`]); a mapping checks none. Any thread may use and drop a mapping.

mod private;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::addresses;
use crate::fault::Guard;
use crate::limits::{BLOCK_BYTES, MAPPINGS_MAX, REGION_BYTES_MAX, UNMAP_INLINE_BYTES_MAX};
use crate::mirror_runs::Runs;
use crate::owner::Owner;
use crate::substitute;
use crate::unmap::{Range, unmap};

/// Why a file range could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The file's file system could block accesses, or the descriptor is no file.
    #[error("not a memory file: a memfd, or a file on tmpfs or hugetlbfs, is needed")]
    NotMemory,
    /// The range is empty, wraps, or ends behind the first 16 TiB of the file.
    #[error("a region of {len} bytes at file offset {offset} is empty, wraps or exceeds 16 TiB")]
    Range {
        /// File offset asked for.
        offset: u64,
        /// Length asked for.
        len: u64,
    },
    /// The file ends before the range does.
    #[error("the memory file has {size} bytes, the region needs {needed}")]
    Short {
        /// Size of the file.
        size: u64,
        /// Where the region ends in it.
        needed: u64,
    },
    /// The process has [`MAPPINGS_MAX`] (60,000) mappings.
    #[error("more than {MAPPINGS_MAX} mappings at a time")]
    Many,
    /// The grant exceeds the share of any peer, regardless of free addresses.
    #[error("{wanted} bytes of memory are more than one peer may grant ({share}): grant less")]
    Share {
        /// Bytes that the peer would have mapped.
        wanted: u64,
        /// Bytes that it may.
        share: u64,
    },
    /// Other peers hold so many addresses that a grant of permitted size does not fit.
    #[error(
        "this host's address space is scarce: {wanted} bytes are needed, {left} are left for one \
         peer; try again later"
    )]
    Scarce {
        /// Bytes that the peer would have mapped.
        wanted: u64,
        /// Bytes that are left for one peer.
        left: u64,
    },
    /// The kernel refused.
    #[error("the memory file cannot be mapped")]
    Kernel(#[from] Errno),
}

impl MappingError {
    /// Returns whether this host lacks a resource; otherwise the file or the range is wrong.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::NotMemory | Self::Range { .. } | Self::Short { .. } | Self::Share { .. } => false,
            Self::Many | Self::Scarce { .. } => true,
            Self::Kernel(errno) => matches!(
                *errno,
                Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOSPC
            ),
        }
    }
}

/// A memory file that a mapping keeps open. The thread that unmaps also closes it.
pub trait KeptFile: AsFd + std::fmt::Debug + Send + Sync + 'static {}

impl<F: AsFd + std::fmt::Debug + Send + Sync + 'static> KeptFile for F {}

/// A shared mapping of a granted file, unmapped with its last user.
#[derive(Debug)]
pub struct Mapping {
    /// Start of the mapped pages, page-aligned.
    base: NonNull<u8>,
    /// Length of the mapped pages, in bytes.
    mapped: usize,
    /// Offset of the requested range in the mapped pages, in bytes.
    skip: usize,
    /// Length of the requested range, in bytes.
    len: usize,
    /// Whether the file is small and sealed against growth, or the mapping is a small mirror.
    is_small: bool,
    /// The peer that granted the file.
    owner: Owner,
    /// The file, if its allocated size is to be read.
    file: Option<Box<dyn KeptFile>>,
    /// Mirrors of pages of this mapping, which are withdrawn with it.
    mirrors: Mutex<Vec<Weak<Mapping>>>,
    #[expect(dead_code, reason = "held for its drop")]
    runs: Option<Runs>,
    /// Dropped by `Drop` before the unmap.
    guard: Option<Guard>,
}

// SAFETY: the memory is shared with another process anyway; every access goes through
// `kernel` or atomics, and none hands out a reference.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` at `offset`, readable and writable, shared.
    ///
    /// The file must be a memory file (see [`is_memory`]) that already has the bytes. It may shrink
    /// later; see [`crate::fault`].
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<Self, MappingError> {
        let range = || MappingError::Range { offset, len };
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or_else(range)?;
        if end > REGION_BYTES_MAX {
            return Err(range());
        }
        let Ok(seals) = memory_seals(file) else { return Err(MappingError::NotMemory) };
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if size < end {
            return Err(MappingError::Short { size, needed: end });
        }
        let page = page_bytes(file)?;
        let skip = offset.checked_rem(page).ok_or_else(range)?;
        let start = offset.checked_sub(skip).ok_or_else(range)?;
        let mapped = len.checked_add(skip).and_then(|n| n.checked_next_multiple_of(page));
        let mapped = mapped.and_then(|n| usize::try_from(n).ok()).ok_or_else(range)?;
        substitute::prepare()?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                start,
            )
        }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(range()) };
        // A core dump must not contain guests' RAM. Only the dump suffers if the kernel refuses.
        // SAFETY: the range was mapped above; this advice leaves its contents as they are.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), mapped, Advice::LinuxDontDump) };
        let guard = Guard::new(base.as_ptr() as usize, mapped);
        let full = guard.is_none();
        let skip = usize::try_from(skip).map_err(|_| range())?;
        let len = usize::try_from(len).map_err(|_| range())?;
        // Built even when the table is full, so that Drop unmaps.
        let is_small = size <= UNMAP_INLINE_BYTES_MAX as u64 && seals.contains(SealFlags::GROW);
        let (owner, mirrors) = (Owner::now(), Mutex::default());
        let (file, runs) = (None, None);
        let mapping = Self { base, mapped, skip, len, is_small, owner, file, mirrors, runs, guard };
        addresses::take(mapped);
        if full { Err(MappingError::Many) } else { Ok(mapping) }
    }

    /// Reserves `len` bytes of addresses, in whole pages, for a mirror of `runs`. The caller maps
    /// all of them before they are used.
    ///
    /// # Errors
    /// [`MappingError`].
    pub(crate) fn reserve(len: usize, runs: Runs) -> Result<Self, MappingError> {
        substitute::prepare()?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)
        }?;
        let range = || MappingError::Range { offset: 0, len: len as u64 };
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(range()) };
        let guard = Guard::new(base.as_ptr() as usize, len);
        let is_full = guard.is_none();
        let (owner, mirrors) = (Owner::now(), Mutex::default());
        let (file, runs) = (None, Some(runs));
        let mapping = Self {
            base,
            mapped: len,
            skip: 0,
            len,
            // Its pages belong to files that others map too, or are freed with few of them.
            is_small: len <= UNMAP_INLINE_BYTES_MAX,
            owner,
            file,
            mirrors,
            runs,
            guard,
        };
        addresses::take(len);
        if is_full { Err(MappingError::Many) } else { Ok(mapping) }
    }

    /// Withdraws `mirror` with this mapping from now on.
    pub(crate) fn add_mirror(&self, mirror: &Arc<Self>) {
        let mut mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        mirrors.retain(|mirror| mirror.strong_count() > 0);
        if !mirrors.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(mirror))) {
            mirrors.push(Arc::downgrade(mirror));
        }
    }

    /// Maps a file as [`Self::new`] does, and keeps it for [`Self::allocated`].
    ///
    /// # Errors
    /// [`MappingError`]; the file is dropped.
    pub fn of(file: impl KeptFile, offset: u64, len: u64) -> Result<Self, MappingError> {
        let mut mapping = Self::new(file.as_fd(), offset, len)?;
        mapping.file = Some(Box::new(file));
        Ok(mapping)
    }

    /// Returns the inode of the file and the bytes that it has allocated, if the file was kept.
    pub fn allocated(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::fstat(self.file.as_ref()?.as_fd()).ok()?;
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        Some((stat.st_ino, blocks.saturating_mul(BLOCK_BYTES)))
    }

    /// Returns the length, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `false`: a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether a page was lost because the file shrank.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_poisoned)
    }

    /// Takes the file's memory away from all users of the mapping, which find zeroed memory of this
    /// process in its place: after the return no thread reads or writes the file through it. The
    /// mapping is not poisoned. Its mirrors are withdrawn, too. Returns false if the kernel refuses
    /// for the mapping or a mirror, or after 2^62 bytes in the life of the process: that part of
    /// the file's memory then stays.
    pub fn withdraw(&self) -> bool {
        let base = self.base.as_ptr().expose_provenance();
        // SAFETY: `new` mapped `base` for `mapped` bytes, the guard was made for this range, and no
        // access holds a reference into it.
        let own =
            self.guard.as_ref().is_some_and(|guard| unsafe { guard.withdraw(base, self.mapped) });
        let mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        let mirrors = mirrors.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        mirrors.iter().fold(own, |all, mirror| mirror.withdraw() && all)
    }

    /// Returns whether [`Self::withdraw`] replaced the mapping.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.replaced().is_some())
    }

    #[cfg(test)]
    pub(crate) fn guard(&self) -> &Guard {
        self.guard.as_ref().unwrap()
    }

    /// Marks the mapping as lost, for a missing page that a system call reported.
    pub(crate) fn poison(&self) {
        if let Some(guard) = &self.guard {
            guard.poison();
        }
    }

    /// Returns the address of byte `at` and the number of bytes from there on; `None` past the end.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> Option<(*mut u8, usize)> {
        let left = self.len.checked_sub(at).filter(|&n| n > 0)?;
        // SAFETY: skip + at < skip + len <= mapped, so the result lies in the mapping.
        Some((unsafe { self.base.as_ptr().add(self.skip.wrapping_add(at)) }, left))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let replaced = self.guard.as_ref().and_then(Guard::replaced);
        self.guard = None;
        let range = Range {
            base: self.base.as_ptr().expose_provenance(),
            len: self.mapped,
            owner: self.owner,
            replaced,
            file: self.file.take(),
        };
        // SAFETY: mmap returned base for mapped bytes, no pointer into them is left
        // (views and maps hold this by Arc), and the handler no longer knows the range.
        unsafe { unmap(range, self.is_small) };
    }
}

/// Returns whether `file` is a memfd, or a file on tmpfs or hugetlbfs.
///
/// Other file systems may block a page fault, an `fstat` or a close for any time, a file system in
/// user space (FUSE) for ever. So the file system is not asked: only files of these kinds have
/// seals, which the kernel reports by itself.
pub fn is_memory(file: BorrowedFd<'_>) -> bool {
    memory_seals(file).is_ok()
}

/// Returns the seals of a memory file; an error for any other file.
fn memory_seals(file: BorrowedFd<'_>) -> Result<SealFlags, Errno> {
    rustix::fs::fcntl_get_seals(file)
}

/// Returns the page size that mappings of `file` need: that of huge pages on hugetlbfs.
fn page_bytes(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    const HUGETLBFS_MAGIC: u64 = 0x958_458f6;
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let fs = rustix::fs::fstatfs(file)?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    let huge = fs.f_type as u64 & 0xffff_ffff == HUGETLBFS_MAGIC;
    Ok(if huge { u64::try_from(fs.f_bsize).unwrap_or(page).max(page) } else { page })
}

/// Returns a new anonymous memory file of `len` bytes, sealed against shrinking and growing.
///
/// # Errors
/// A system call failed.
pub fn create(name: &str, len: u64) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, len)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod withdraw_tests {
    use super::*;

    #[test]
    fn mapping_that_was_withdrawn_does_not_reach_its_file() {
        let file = create("causeway-withdrawn", 8192).unwrap();
        rustix::io::pwrite(&file, b"guest", 5000).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 8192).unwrap();
        let (byte, _) = mapping.at(5000).unwrap();
        // SAFETY: mapped bytes of this test alone.
        unsafe { assert_eq!(byte.read_volatile(), b'g') };
        assert!(mapping.withdraw() && mapping.withdraw());
        // SAFETY: as above.
        unsafe {
            assert_eq!(byte.read_volatile(), 0);
            byte.write_volatile(7);
            assert_eq!(byte.read_volatile(), 7);
        }
        let mut bytes = [0; 5];
        rustix::io::pread(&file, &mut bytes, 5000).unwrap();
        assert_eq!(&bytes, b"guest");
        assert!(!mapping.is_poisoned());
    }
}

#[cfg(test)]
mod dump_tests {
    use super::*;

    #[test]
    fn mappings_are_left_out_of_core_dumps() {
        let file = create("causeway-dump-test", 8192).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 8192).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", mapping.base.as_ptr() as usize);
        let own = maps.lines().skip_while(|line| !line.starts_with(&begin));
        let flags = own.into_iter().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
}
