//! Unix sockets between a service and processes of this host: listeners and streams.
//!
//! The socket service bridges guests to processes by them; it accepts with [`HostListener::accept`]
//! or connects with [`HostStream::connect`], watches the socket by
//! [`Context::watch`](crate::Context::watch), and owns the stream until it drops it. The sockets of
//! *ports*, to which frontends connect, are `crate::listen`; [`HostListener`] is the same listener
//! with the type of the socket chosen, and without file descriptors in messages. A path on which a
//! process listens is refused; a socket file without a listener is replaced. If the process has no
//! descriptor left, a waiting connection is accepted and closed.
//!
//! All calls are non-blocking: `Ok(None)` means that the socket has no data or no room now.
//! [`HostStream::send`] and [`HostStream::receive`] move bytes directly between a socket and guest
//! memory, with one copy by the kernel, for SOCK_STREAM; messages pass through private memory
//! ([`HostStream::send_bytes`], [`HostStream::receive_bytes`]). Sending
//! is partial for SOCK_STREAM, and the caller keeps the rest; a SOCK_SEQPACKET message is sent
//! whole or not at all, and a receive with less room loses the rest of the message
//! ([`HostStream::message_bytes`] has the length). The sockets carry no file descriptors. A process
//! whose wake-ups repeatedly take too long counts as gone ([`crate::wakes`]). Listeners are bound,
//! and streams used, in the thread of the shard, a dispatcher's: a listener when its port is added.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use causeway_host::fd::receive::{self, UntrustedSocket};
use causeway_host::net::guest_io;
use causeway_memory::{Cursor, Map};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketType;

use crate::limits::{WAKE_BYTE_NS, WAKE_USUAL_NS};
use crate::listen::{Listener, connect_to};
use crate::peer_user::refused_user;
use crate::wakes::{Verdict, WakeAccount};
use causeway_model::CommandError;

/// A listening Unix socket; its file is removed when it is dropped, unless another file has taken
/// its place.
#[derive(Debug)]
pub struct HostListener(Listener);

impl HostListener {
    /// Listens at `path` by SOCK_STREAM, and replaces a socket file without a listener.
    ///
    /// # Errors
    /// The socket cannot be bound; another process listens there; the file is no socket.
    pub fn bind(path: &Path) -> Result<Self, CommandError> {
        Self::bind_as(path, SocketType::STREAM)
    }

    /// As [`Self::bind`], by SOCK_SEQPACKET.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub fn bind_messages(path: &Path) -> Result<Self, CommandError> {
        Self::bind_as(path, SocketType::SEQPACKET)
    }

    /// As [`Self::bind`], for sockets of type `kind`.
    fn bind_as(path: &Path, kind: SocketType) -> Result<Self, CommandError> {
        let listener = Listener::bind_as(path, kind)?;
        // Accepted sockets inherit the option from the listener.
        receive::refuse_descriptors(&listener);
        Ok(Self(listener))
    }

    /// Accepts the next connection; `None` if no process waits.
    ///
    /// # Errors
    /// A connection could not be accepted, and is closed if no descriptor is left; others may wait.
    pub fn accept(&mut self) -> io::Result<Option<HostStream>> {
        match self.0.accept() {
            Ok(stream) => Ok(Some(stream.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for HostListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A connected, non-blocking Unix socket. The process at its other end may send no file
/// descriptors, because their last close could block this process: the kernel refuses them by a
/// socket option, and on a kernel without that option a received descriptor ends the stream.
#[derive(Debug)]
pub struct HostStream {
    socket: UntrustedSocket,
    /// Cost of waking the process.
    wakes: WakeAccount,
}

impl From<UntrustedSocket> for HostStream {
    fn from(socket: UntrustedSocket) -> Self {
        Self { socket, wakes: WakeAccount::default() }
    }
}

impl HostStream {
    /// Connects to the listener at `path`. Never blocks: a listener whose backlog is full counts as
    /// refusing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Self::connect_as(path, SocketType::STREAM)
    }

    /// As [`Self::connect`], to a SOCK_SEQPACKET listener: the socket sends and receives messages.
    ///
    /// # Errors
    /// The kernel's; `EPROTOTYPE`: the process listens with another socket type.
    pub fn connect_messages(path: &Path) -> io::Result<Self> {
        Self::connect_as(path, SocketType::SEQPACKET)
    }

    /// As [`Self::connect`], to a listener of type `kind`. Called by the two functions above.
    pub(crate) fn connect_as(path: &Path, kind: SocketType) -> io::Result<Self> {
        Ok(UntrustedSocket::from(connect_to(path, kind)?).into())
    }

    /// Returns the user of the process at the other end, if `users` lacks it; `None` admits all.
    pub fn refused_user(&self, users: Option<&[u32]>) -> Option<u32> {
        refused_user(&self.socket, users)
    }

    /// Receives at most `limit` bytes into guest memory, and advances `into`. `Ok(None)`: no data
    /// now; `Ok(Some(0))`: the process closed its writing side, or the first address of `into` is
    /// not writable guest memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(
        &self,
        map: &Map,
        into: &mut Cursor<'_>,
        limit: u64,
    ) -> Result<Option<usize>, Errno> {
        none_if_blocked(guest_io::receive(self.socket.as_fd(), map, into, limit))
    }

    /// Sends at most `limit` bytes of guest memory, and advances `from`. `Ok(None)`: no room now.
    ///
    /// # Errors
    /// The kernel's; [`Errno::TIME`]: wake-ups of the process exceeded its share 4 times, and the
    /// caller closes the stream.
    pub fn send(
        &mut self,
        map: &Map,
        from: &mut Cursor<'_>,
        limit: u64,
    ) -> Result<Option<usize>, Errno> {
        let usual = WAKE_USUAL_NS.saturating_add(limit.saturating_mul(WAKE_BYTE_NS));
        let socket = self.socket.as_fd();
        let send = || none_if_blocked(guest_io::send(socket, map, from, limit));
        check_verdict(self.wakes.charge_beyond(usual, send))
    }

    /// As [`Self::receive`], into private memory.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn receive_bytes(&self, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        none_if_blocked(receive::receive_bytes(&self.socket, into))
    }

    /// As [`Self::receive_bytes`], without removing the bytes from the socket.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn peek_bytes(&self, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
        none_if_blocked(rustix::net::recv(&self.socket, into, flags).map(|(n, _)| n))
    }

    /// Returns the length of the next message, which stays in the socket. `Ok(None)`: no message
    /// now; `Ok(Some(0))`: the message is empty, or the process closed its writing side
    /// ([`Self::is_ended`]).
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn message_bytes(&self) -> Result<Option<usize>, Errno> {
        let peek = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::TRUNC;
        let flags = rustix::net::RecvFlags::DONTWAIT | peek;
        none_if_blocked(
            rustix::net::recv(&self.socket, &mut [0_u8; 1][..], flags).map(|(_, whole)| whole),
        )
    }

    /// Returns whether the process closed its writing side and only empty messages are left to
    /// read.
    pub fn is_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let polled = poll(&mut fds, Some(&now));
        let [fd] = fds;
        // An error of the host ends the stream too.
        let is_closed = polled.is_err() || fd.revents().intersects(closed);
        is_closed && rustix::io::ioctl_fionread(&self.socket).unwrap_or(0) == 0
    }

    /// As [`Self::send`], from private memory.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_bytes(&mut self, from: &[u8]) -> Result<Option<usize>, Errno> {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let bytes = from.len() as u64;
        let usual = WAKE_USUAL_NS.saturating_add(bytes.saturating_mul(WAKE_BYTE_NS));
        let socket = &self.socket;
        let send = || none_if_blocked(rustix::net::send(socket, from, flags));
        check_verdict(self.wakes.charge_beyond(usual, send))
    }

    /// Ends the sending direction: the process reads the end of the stream.
    pub fn finish(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

impl AsFd for HostStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the outcome of a send, or an error if the account of the process demands that it be
/// closed. A verdict of [`Verdict::Pause`] is ignored, because a stream cannot be paused: its bytes
/// wait for room, which the kernel reports once.
fn check_verdict(
    (sent, verdict): (Result<Option<usize>, Errno>, Verdict),
) -> Result<Option<usize>, Errno> {
    if verdict == Verdict::Excess { Err(Errno::TIME) } else { sent }
}

/// Returns `None` for a call that would block or was interrupted.
fn none_if_blocked(outcome: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    match outcome {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}
