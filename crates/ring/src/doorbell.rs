//! Doorbells and notifications: eventfds (or a Unix stream) received from the frontend.
//!
//! `attach` receives the descriptors and creates a [`Doorbell`] and a [`Notifier`] for each queue
//! of a vhost-user port, and notifiers for the interrupts of a vfio-user port; a native frontend
//! creates its own pair. The dispatcher watches doorbells by epoll, and calls [`Notifier::notify`]
//! after it published used entries or to raise an interrupt. Both carry no data and no count:
//! several signals between two polls are one.
//!
//! A hostile descriptor must not block the dispatcher or report false readiness, so only an eventfd
//! is a doorbell, and only an eventfd or a Unix stream without unread bytes is a notifier; any
//! other descriptor is a [`DoorbellError`], with which `attach` ends the attachment. An eventfd is
//! set non-blocking. The frontend shares the open file and can undo this; the thread's watchdog
//! then interrupts the write after 10 to 110 ms, the notifier stays disabled
//! ([`Notifier::is_blocked`]), and `attach` ends the attachment. The module does not decide whether
//! a signal is wanted; the queue does.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_host::fd::received_fd::{FdKind, ReceivedFd};
use causeway_host::watchdog;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketType, sockopt};

/// The reason why a descriptor is unusable as doorbell or notifier, or failed as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DoorbellError {
    /// Other files and sockets can block the thread or report false readiness.
    #[error("the descriptor is not an eventfd")]
    NotAnEventfd,
    /// Unread bytes can contain descriptors, which would be closed with the socket; closing can
    /// block.
    #[error("the socket has unread bytes in it; hand over a socket to which nothing was written")]
    Unread,
    /// The kernel refused the setup.
    #[error("the eventfd cannot be set up: {0}")]
    Kernel(Errno),
    /// The frontend cleared O_NONBLOCK and filled the counter.
    #[error("notifying was blocked: the frontend made its eventfd blocking and filled it")]
    Blocked,
}

/// Checks that `fd` is an eventfd and makes it non-blocking.
fn admit(fd: &ReceivedFd) -> Result<(), DoorbellError> {
    if fd.kind() != FdKind::Event {
        return Err(DoorbellError::NotAnEventfd);
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(DoorbellError::Kernel)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(DoorbellError::Kernel)
}

/// Returns whether `fd` is a Unix stream socket, on which a send need not block. Shuts it down for
/// reading, so that the peer can queue no bytes in it.
///
/// # Errors
/// [`DoorbellError::Unread`] if bytes are queued, [`DoorbellError::Kernel`] if a call fails.
fn admit_unix_stream(fd: &ReceivedFd) -> Result<bool, DoorbellError> {
    if fd.kind() != FdKind::Unix {
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

/// The guest's signal that a ring has new chains (vhost-user's kick).
#[derive(Debug)]
pub struct Doorbell(ReceivedFd);

impl Doorbell {
    /// Returns a doorbell on the frontend's eventfd.
    ///
    /// # Errors
    /// [`DoorbellError`] if the descriptor is not an eventfd or cannot be made non-blocking.
    pub fn new(fd: impl Into<ReceivedFd>) -> Result<Self, DoorbellError> {
        let fd = fd.into();
        admit(&fd)?;
        Ok(Self(fd))
    }

    /// Resets the counter, so that the next ring is a new event. Blocks if the counter is zero and
    /// the other side made the eventfd blocking: not for doorbells of a hostile guest. The native
    /// frontend calls it; the dispatcher watches doorbells edge-triggered and never reads them.
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

/// The daemon's signal to the guest that a ring has new used entries (vhost-user's call).
#[derive(Debug)]
pub struct Notifier {
    /// The eventfd or Unix stream.
    fd: ReceivedFd,
    /// Whether `fd` is a Unix stream, not an eventfd.
    socket: bool,
    /// Whether a notification blocked; never cleared.
    blocked: AtomicBool,
}

impl Notifier {
    /// Returns a notifier on the frontend's eventfd, or on its end of a Unix stream: user-mode
    /// Linux expects eight bytes in a stream for each notification.
    ///
    /// # Errors
    /// [`DoorbellError`] if the descriptor is unusable.
    pub fn new(fd: impl Into<ReceivedFd>) -> Result<Self, DoorbellError> {
        let fd = fd.into();
        let socket = admit_unix_stream(&fd)?;
        if !socket {
            admit(&fd)?;
        }
        Ok(Self { fd, socket, blocked: AtomicBool::new(false) })
    }

    /// Returns whether a notification blocked. The notifier is disabled then.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Notifies the guest. Does not wait: a full counter means that a notification is pending
    /// already. Errors of a Unix stream are ignored: a closed one gets no notification, and the
    /// attachment ends by its own connection.
    ///
    /// # Errors
    /// [`DoorbellError::Blocked`]: the frontend made the write block, and the thread's
    /// `causeway_host::watchdog` interrupted it. The thread must have a watchdog for this. Every
    /// later call returns the same error and writes nothing.
    pub fn notify(&self) -> Result<(), DoorbellError> {
        let one = 1_u64.to_ne_bytes();
        if self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&self.fd, &one, flags);
            return Ok(());
        }
        if self.is_blocked() {
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
