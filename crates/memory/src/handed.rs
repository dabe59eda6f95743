//! Descriptors that another process handed over, closed where nobody waits.
//!
//! The last close of a file waits for its file system, which may be somebody's own (FUSE); that of
//! a TCP socket may linger; and that of a Unix socket closes what lies in it unread. A process that
//! hands such a descriptor over must not hold up the thread that serves everyone: few threads of
//! this module do the waiting, and end when nothing waits. What they have not come to stays open,
//! and counts among the descriptors that this process may have.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, sockopt};

use crate::elsewhere::Elsewhere;
use crate::inlet;
use crate::limits::{REAPERS_MAX, UNCLOSED_MAX};
use crate::mapping::is_memory;

static CLOSE: Elsewhere<OwnedFd> = Elsewhere::new("causeway-reaper", REAPERS_MAX, let_go);

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

    /// Whether the last close of it cannot wait for anything.
    fn closes_at_once(self) -> bool {
        matches!(self, Self::Memory | Self::Event | Self::Process)
    }
}

fn is_unix(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// A descriptor that another process handed over.
#[derive(Debug)]
pub struct Handed {
    /// Taken out when this is dropped or unwrapped, and at no other time.
    fd: ManuallyDrop<OwnedFd>,
    kind: Kind,
}

impl Handed {
    /// Takes a descriptor of any kind.
    pub fn new(fd: OwnedFd) -> Self {
        Self { kind: Kind::of(&fd), fd: ManuallyDrop::new(fd) }
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

impl From<OwnedFd> for Handed {
    fn from(fd: OwnedFd) -> Self {
        Self::new(fd)
    }
}

impl AsFd for Handed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        // SAFETY: nobody sees it again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if !self.kind.closes_at_once() {
            close(fd);
        }
    }
}

/// Closes `fd`, later and elsewhere.
pub(crate) fn close(fd: OwnedFd) {
    // Without a thread it waits for the next one.
    CLOSE.hand_over(fd);
}

/// Whether so much waits to be closed that nothing more should be taken from those who handed
/// over what is slow to close.
pub fn is_behind() -> bool {
    CLOSE.waiting() > UNCLOSED_MAX
}

/// Closes `fd`, and sees to it that no socket lingers for it: not itself, nor what lies in it.
fn let_go(fd: OwnedFd) {
    match sockopt::socket_domain(&fd) {
        Ok(AddressFamily::UNIX) => inlet::look_through(&fd),
        Ok(_) => {
            let _ = sockopt::set_socket_linger(&fd, None);
        }
        Err(_) => {}
    }
}
