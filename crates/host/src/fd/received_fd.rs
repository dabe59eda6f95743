//! Descriptors that another process sent, by kind.
//!
//! [`crate::fd::receive`] wraps each received descriptor in a [`ReceivedFd`]; attachments keep it
//! as long as they use the file. Its drop closes eventfds, pidfds and memory files with at most 1
//! MiB of pages at once, and all others in other threads (`fd::deferred_close`): larger memory
//! files because freeing their pages takes long, other files because their close may block.
//!
//! The kind is determined once, from properties that the kernel knows without a query of the file's
//! file system; a file whose kind cannot be read is [`FdKind::Odd`]. The module never reads or maps
//! the files, and does not check sizes or seals: [`causeway_memory::Mapping`] does. A value can be
//! moved to any thread; it stays charged to the account of the thread that received it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, sockopt};

use crate::fd::account::Account;
use crate::fd::deferred_close;
use causeway_memory::is_memory;
use causeway_memory::limits::{BLOCK_BYTES, UNMAP_INLINE_BYTES_MAX};

/// The kind of file that a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdKind {
    /// A memory file: a memfd, or a file on tmpfs or hugetlbfs.
    Memory,
    /// An eventfd.
    Event,
    /// A process (pidfd).
    Process,
    /// A Unix socket.
    Unix,
    /// Any other file. A well-behaved peer sends none.
    Odd,
}

impl FdKind {
    /// Reads the kind from the kernel's name of the file, because a query of the file itself could
    /// block.
    fn of(fd: &OwnedFd) -> Self {
        if is_memory(fd.as_fd()) {
            return Self::Memory;
        }
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let Ok(target) = rustix::fs::readlink(name, Vec::new()) else { return Self::Odd };
        // Files have names that begin with a slash.
        match target.as_bytes() {
            b"anon_inode:[eventfd]" => Self::Event,
            b"anon_inode:[pidfd]" => Self::Process,
            name if name.starts_with(b"socket:[") && is_unix(fd) => Self::Unix,
            _ => Self::Odd,
        }
    }
}

/// Returns whether a descriptor is a Unix socket.
pub(crate) fn is_unix(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// Returns whether a memory file has more than 1 MiB of pages, which take long to free.
fn is_large(fd: &OwnedFd) -> bool {
    let blocks = rustix::fs::fstat(fd).map_or(u64::MAX, |stat| stat.st_blocks.unsigned_abs());
    blocks.saturating_mul(BLOCK_BYTES) > UNMAP_INLINE_BYTES_MAX as u64
}

/// A descriptor that another process sent.
#[derive(Debug)]
pub struct ReceivedFd {
    /// Taken when the value is dropped or unwrapped, and at no other time.
    fd: ManuallyDrop<OwnedFd>,
    kind: FdKind,
    /// The account that the receiving thread served.
    account: Account,
}

impl ReceivedFd {
    /// Wraps a descriptor of any kind, and charges it to the account that this thread serves.
    pub fn new(fd: OwnedFd) -> Self {
        Self { kind: FdKind::of(&fd), account: Account::now(), fd: ManuallyDrop::new(fd) }
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> FdKind {
        self.kind
    }

    /// Returns the descriptor, which the caller closes from now on. The sender must be trusted, or
    /// the kind must close at once.
    pub fn into_fd(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut this.fd) }
    }
}

impl From<OwnedFd> for ReceivedFd {
    fn from(fd: OwnedFd) -> Self {
        Self::new(fd)
    }
}

impl AsFd for ReceivedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ReceivedFd {
    fn drop(&mut self) {
        // SAFETY: the field is not used after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        match self.kind {
            FdKind::Memory if is_large(&fd) => deferred_close::close_memory(fd),
            FdKind::Memory | FdKind::Event | FdKind::Process => {}
            // A peer may add messages or data until the close.
            FdKind::Unix | FdKind::Odd => deferred_close::close_slow(self.account, fd),
        }
    }
}
