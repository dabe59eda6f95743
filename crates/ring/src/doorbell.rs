//! Doorbells and notifications over eventfds that the frontend handed us.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Why a descriptor cannot serve as a doorbell or notifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DoorbellError {
    /// A file or socket could block us or lie about being ready.
    #[error("the descriptor is not an eventfd")]
    NotAnEventfd,
    /// The kernel refused.
    #[error("the eventfd cannot be set up: {0}")]
    Kernel(Errno),
}

/// The name by which this process can look at, and open, what `fd` stands for.
fn name(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn is_pipe(fd: &OwnedFd) -> Result<bool, DoorbellError> {
    let stat = rustix::fs::fstat(fd).map_err(DoorbellError::Kernel)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Checks that `fd` is an eventfd and makes it non-blocking.
fn admit(fd: &OwnedFd) -> Result<(), DoorbellError> {
    let target = rustix::fs::readlink(name(fd), Vec::new()).map_err(DoorbellError::Kernel)?;
    if target.as_bytes() != b"anon_inode:[eventfd]" {
        return Err(DoorbellError::NotAnEventfd);
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(DoorbellError::Kernel)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(DoorbellError::Kernel)
}

/// The guest's "I put something in the ring" (vhost-user's kick).
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Takes the frontend's eventfd.
    pub fn new(fd: OwnedFd) -> Result<Self, DoorbellError> {
        admit(&fd)?;
        Ok(Self(fd))
    }

    /// Takes back all rings so far, so that the next one is seen as new. Never blocks.
    pub fn drain(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Our "I put something in the ring" towards the guest (vhost-user's call).
#[derive(Debug)]
pub struct Notifier(OwnedFd);

impl Notifier {
    /// Takes the frontend's eventfd, or the end of a pipe: user-mode Linux wants eight bytes
    /// in a pipe for each notification. A pipe is opened anew, so that its flags are ours alone.
    pub fn new(fd: OwnedFd) -> Result<Self, DoorbellError> {
        if !is_pipe(&fd)? {
            admit(&fd)?;
            return Ok(Self(fd));
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = rustix::fs::open(name(&fd), flags, Mode::empty());
        Ok(Self(pipe.map_err(DoorbellError::Kernel)?))
    }

    /// Notifies. Never blocks: a full counter means that a notification is pending anyway.
    pub fn notify(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
