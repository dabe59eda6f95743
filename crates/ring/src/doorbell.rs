//! Doorbells and notifications over descriptors that the frontend handed us.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_host::fd::received_fd::{Kind, ReceivedFd};
use causeway_host::watchdog;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketType, sockopt};

/// What is wrong with a descriptor that should serve as a doorbell or notifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DoorbellError {
    /// A file or socket could block us or lie about being ready.
    #[error("the descriptor is not an eventfd")]
    NotAnEventfd,
    /// Descriptors among the bytes would be closed with the socket, and their closes may block.
    #[error("the socket has unread bytes in it; hand over one to which nothing was written")]
    Unread,
    /// The kernel refused.
    #[error("the eventfd cannot be set up: {0}")]
    Kernel(Errno),
    /// The frontend took O_NONBLOCK back and filled the counter.
    #[error("notifying was held up: the frontend made its eventfd blocking and filled it")]
    Blocked,
}

/// Checks that `fd` is an eventfd and makes it non-blocking.
fn admit(fd: &ReceivedFd) -> Result<(), DoorbellError> {
    if fd.kind() != Kind::Event {
        return Err(DoorbellError::NotAnEventfd);
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(DoorbellError::Kernel)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(DoorbellError::Kernel)
}

/// Returns whether `fd` is a Unix stream socket, on which a send need not block. From then on nothing
/// can be written to it.
///
/// # Errors
/// [`DoorbellError::Unread`].
fn admit_unix_stream(fd: &ReceivedFd) -> Result<bool, DoorbellError> {
    if fd.kind() != Kind::Unix {
        return Ok(false);
    }
    let kind = sockopt::socket_type(fd).map_err(DoorbellError::Kernel)?;
    if kind != SocketType::STREAM {
        return Ok(false);
    }
    rustix::net::shutdown(fd, Shutdown::Read).map_err(DoorbellError::Kernel)?;
    match rustix::io::ioctl_fionread(fd).map_err(DoorbellError::Kernel)? {
        0 => Ok(true),
        _ => Err(DoorbellError::Unread),
    }
}

/// The guest's "I put something in the ring" (vhost-user's kick).
#[derive(Debug)]
pub struct Doorbell(ReceivedFd);

impl Doorbell {
    /// Takes the frontend's eventfd.
    pub fn new(fd: impl Into<ReceivedFd>) -> Result<Self, DoorbellError> {
        let fd = fd.into();
        admit(&fd)?;
        Ok(Self(fd))
    }

    /// Takes back all rings so far, so that the next one is seen as new. Waits for one if there
    /// is none and the other side made the eventfd blocking: not for rings of a hostile guest.
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
pub struct Notifier {
    fd: ReceivedFd,
    socket: bool,
    blocked: AtomicBool,
}

impl Notifier {
    /// Takes the frontend's eventfd, or its end of a Unix stream: user-mode Linux wants eight
    /// bytes in one for each notification.
    pub fn new(fd: impl Into<ReceivedFd>) -> Result<Self, DoorbellError> {
        let fd = fd.into();
        let socket = admit_unix_stream(&fd)?;
        if !socket {
            admit(&fd)?;
        }
        Ok(Self { fd, socket, blocked: AtomicBool::new(false) })
    }

    /// Whether it held us up. It is not used any more then.
    pub fn blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Notifies. Does not wait: a full counter means that a notification is pending anyway.
    ///
    /// # Errors
    /// [`DoorbellError::Blocked`]: the frontend made it wait, and a
    /// `causeway_host::Rescue` freed the thread, which has to have one for that.
    pub fn notify(&self) -> Result<(), DoorbellError> {
        let one = 1_u64.to_ne_bytes();
        if self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&self.fd, &one, flags);
            return Ok(());
        }
        if self.blocked() {
            return Err(DoorbellError::Blocked);
        }
        if let Err(Errno::INTR) = watchdog::marked(|| rustix::io::write(&self.fd, &one)) {
            self.blocked.store(true, Ordering::Relaxed);
            return Err(DoorbellError::Blocked);
        }
        Ok(())
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
