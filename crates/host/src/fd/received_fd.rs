//! Descriptors that another process sent. Those whose close may block are closed in other threads
//! (`fd::deferred_close`).

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, sockopt};

use crate::fd::account::Account;
use crate::fd::deferred_close;
use causeway_memory::is_memory;
use causeway_memory::limits::{BLOCK_BYTES, UNMAPPED_AT_ONCE_MAX};

/// What a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A memory file.
    Memory,
    /// An eventfd.
    Event,
    /// A process.
    Process,
    /// A Unix socket.
    Unix,
    /// Anything else, which nobody hands over who means well.
    Odd,
}

impl Kind {
    /// By the kernel's own name for it: asking the file itself could block.
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

pub(crate) fn is_unix(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// Whether a memory file is as large as takes a while to free.
fn is_large(fd: &OwnedFd) -> bool {
    let blocks = rustix::fs::fstat(fd).map_or(u64::MAX, |stat| stat.st_blocks.unsigned_abs());
    blocks.saturating_mul(BLOCK_BYTES) > UNMAPPED_AT_ONCE_MAX as u64
}

/// A descriptor that another process handed over.
#[derive(Debug)]
pub struct ReceivedFd {
    /// Taken out when this is dropped or unwrapped, and at no other time.
    fd: ManuallyDrop<OwnedFd>,
    kind: Kind,
    giver: Account,
}

impl ReceivedFd {
    /// Takes a descriptor of any kind.
    pub fn new(fd: OwnedFd) -> Self {
        Self { kind: Kind::of(&fd), giver: Account::now(), fd: ManuallyDrop::new(fd) }
    }

    /// What it stands for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The descriptor itself, which from here on is closed by whoever has it: of one who is
    /// trusted, or of a kind that closes at once.
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
        // SAFETY: nobody sees it again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        match self.kind {
            Kind::Memory if is_large(&fd) => deferred_close::memory(fd),
            Kind::Memory | Kind::Event | Kind::Process => {}
            // Others may write to it until it is closed.
            Kind::Unix | Kind::Odd => deferred_close::slow(self.giver, fd),
        }
    }
}
