//! Memory in place of a mapping: the fault handler puts it there when the file shrank, and
//! [`crate::Mapping::withdraw`] at the wish of a caller.
//!
//! Private memory is no substitute: it counts against the commit limit, the data limit and the
//! address limit of the process, and the kernel refuses it where one of them is reached
//! (`vm.overcommit_memory=2`). A shared mapping of a file that replaces another mapping counts
//! against none. So this process keeps a sparse memory file, and each replaced mapping gets a range
//! of it that no other has or had: bytes of one peer never appear in another's range.
//!
//! The file's pages are allocated when they are touched, and the kernel can refuse that too. A page
//! that it refuses is replaced by the *sink*, one page that was allocated at the start. All such
//! pages share the sink, the one exception to the separation of peers: bytes written there are
//! lost, or seen by other peers whose pages are gone too.
//!
//! The SIGBUS handler (`crate::fault`) calls [`replace`] and [`replace_page`], which are
//! async-signal-safe, in the thread whose access found the page missing; a withdrawal calls
//! [`replace`], and `crate::unmap` calls [`release`]. Each range of the file is used once: after
//! [`SUBSTITUTE_BYTES_MAX`] (2^62) bytes, or the process's limit of file sizes if that is less, the
//! handler replaces only single pages. [`prepare`] creates the file before the first mapping; if
//! that fails, the mapping is refused with the error.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::limits::{PAGE_BYTES, SUBSTITUTE_BYTES_MAX};

/// The resources of the handler.
#[derive(Debug)]
struct Substitute {
    /// The sparse memory file; its first page is the sink.
    file: OwnedFd,
    /// Device and inode of `file`: an application that closes all descriptors may have another file
    /// under that number by now.
    identity: (u64, u64),
    /// Length of the file, in bytes.
    size: u64,
    /// Start of the range for the next replaced mapping.
    next: AtomicU64,
    /// Address of the sink.
    sink: usize,
}

/// Set once, and never freed: the handler reads it.
static SUBSTITUTE: AtomicPtr<Substitute> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the resources of the handler, or `None` before [`prepare`].
fn substitute() -> Option<&'static Substitute> {
    // SAFETY: null, or a leaked value that is only read.
    unsafe { SUBSTITUTE.load(Ordering::Acquire).as_ref() }
}

/// Creates the resources of the handler, unless they exist.
///
/// # Errors
/// This host lacks a descriptor or memory: then no file may be mapped.
pub(crate) fn prepare() -> Result<(), Errno> {
    static MAKING: Mutex<()> = Mutex::new(());
    if substitute().is_some() {
        return Ok(());
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if substitute().is_none() {
        let made = Box::into_raw(Box::new(Substitute::new()?));
        SUBSTITUTE.store(made, Ordering::Release);
    }
    Ok(())
}

impl Substitute {
    fn new() -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create("causeway-substitute", MemfdFlags::CLOEXEC)?;
        // A file beyond the limit would end the process by SIGXFSZ.
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let size = SUBSTITUTE_BYTES_MAX.min(limit);
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, PAGE_BYTES as u64)?;
        let stat = rustix::fs::fstat(&file)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let sink = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let sink = sink.expose_provenance();
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Self { file, identity, size, next: AtomicU64::new(PAGE_BYTES as u64), sink })
    }

    /// Returns whether the descriptor still refers to the file. Async-signal-safe.
    fn is_there(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }
}

/// Replaces `[base, base + len)` by a range of the file; returns where it begins there, or `None`
/// and has replaced nothing. Async-signal-safe.
///
/// # Safety
/// The range is one mapping of this crate, which holds no reference into it.
pub(crate) unsafe fn replace(base: usize, len: usize) -> Option<u64> {
    let substitute = substitute().filter(|substitute| substitute.is_there())?;
    let at = substitute.next.fetch_add(len as u64, Ordering::Relaxed);
    // Beyond the end the counter stays, far from wrapping.
    at.checked_add(len as u64).filter(|end| *end <= substitute.size)?;
    let offset = libc::off_t::try_from(at).ok()?;
    // SAFETY: replacing the mapping keeps every pointer into it valid.
    let replaced = unsafe {
        libc::mmap(
            base as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
            substitute.file.as_raw_fd(),
            offset,
        )
    };
    (replaced != libc::MAP_FAILED).then_some(at)
}

/// Puts the sink, filled with zeros, in place of the page at `address`; returns whether it is.
/// Async-signal-safe; needs neither descriptor nor memory.
///
/// # Safety
/// As for [`replace`], of the page.
pub(crate) unsafe fn replace_page(address: usize) -> bool {
    let Some(substitute) = substitute() else { return false };
    let page = (address & !(PAGE_BYTES - 1)) as *mut libc::c_void;
    let sink = substitute.sink as *mut libc::c_void;
    // SAFETY: the sink is a page that this module alone has. An old length of zero maps the
    // same page a second time; replacing the page at `address` keeps pointers into it valid.
    unsafe {
        libc::memset(sink, 0, PAGE_BYTES);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        libc::mremap(sink, 0, PAGE_BYTES, flags, page) != libc::MAP_FAILED
    }
}

/// Frees the pages of a range that [`replace`] returned, whose mapping is gone.
pub(crate) fn release(at: u64, len: usize) {
    if let Some(substitute) = substitute().filter(|substitute| substitute.is_there()) {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        // The range is not used again: if the kernel keeps its pages, only memory is lost.
        let _ = rustix::fs::fallocate(&substitute.file, flags, at, len as u64);
    }
}
