//! The connection over the Unix socket of a NIC.
//!
//! Opening waits for room in the daemon's listen backlog, up to the limit of the caller;
//! [`Connection::again`] does not wait and fails where the backlog is full or the path is unknown.
//! Then nothing blocks. A command for which the socket has no room is queued, and sent before the
//! next message is read; with 1,024 queued commands the next send fails with [`Error::DaemonGone`].
//! An invalid message and a close are the same error. The number and type of descriptors are not
//! checked here: the daemon is trusted, and `paths::open` checks the files.
//!
//! `nic::connect` opens it, or `Conversation::over` wraps a connected socket;
//! [`Conversation`](crate::nic::Conversation) owns it, in the thread that holds the lock of the
//! endpoint or queries the daemon. An adapter takes its place in a guest ([`crate::adapter`]).

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_attach::local::{LocalAttachment, LocalMessage};
use causeway_host::ReceivedFd;
use causeway_wire::local::{ClientMessage, DaemonMessage};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::unix::net::UnixStream;

use super::{Attached, Connection, Grant};
use crate::error::Error;
use crate::process_memory;
use crate::waiter::Awaited;

/// A connection over a socket.
#[derive(Debug)]
pub struct SocketConnection {
    /// Socket, with the queue of commands that the socket has not accepted yet.
    local: LocalAttachment,
    /// Path of the socket; without it [`Connection::again`] fails.
    path: Option<PathBuf>,
}

/// Connects to a Unix stream socket. A connect waits while the listen backlog is full, `limit` at
/// most.
fn connect_within(path: &Path, limit: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &address)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

impl SocketConnection {
    /// Connects to a socket; blocks for at most `limit`.
    ///
    /// # Errors
    /// [`Error::NoPermission`], or [`Error::NoDaemon`] if the socket refuses.
    pub fn open(path: &Path, limit: Duration) -> Result<Self, Error> {
        let stream = connect_within(path, limit).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Error::NoPermission,
            _ => Error::NoDaemon,
        })?;
        Ok(Self::over(stream, Some(path.to_owned())))
    }

    /// Uses a connected socket.
    pub fn over(stream: UnixStream, path: Option<PathBuf>) -> Self {
        Self { local: LocalAttachment::new(stream.into()), path }
    }
}

impl Connection for SocketConnection {
    fn send(&mut self, command: ClientMessage, grant: Grant) -> Result<(), Error> {
        let files = match grant {
            Grant::File(file) => vec![file],
            Grant::Nothing => Vec::new(),
            // The daemon of a socket reaches files only.
            Grant::Memory(_) | Grant::Ended(_) => return Err(Error::NoResources),
        };
        self.local.send(command.emit(), files).map_err(|_| Error::DaemonGone)
    }

    fn receive(&mut self) -> Result<Option<(DaemonMessage, Attached)>, Error> {
        let _ = self.local.flush();
        match self.local.receive() {
            Ok(Some(LocalMessage { bytes, fds })) => match DaemonMessage::parse(&bytes) {
                Ok(message) => {
                    // Processes trust the daemon's descriptors.
                    let files = fds.into_iter().map(ReceivedFd::into_fd).collect();
                    Ok(Some((message, Attached::Files(files))))
                }
                Err(_) => Err(Error::DaemonGone),
            },
            Ok(None) => Ok(None),
            Err(_) => Err(Error::DaemonGone),
        }
    }

    fn awaited(&self) -> Awaited {
        match self.local.backlog() {
            0 => Awaited::Words,
            _ if self.local.is_at_descriptor_limit() => Awaited::Descriptors,
            _ => Awaited::Room,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.local.as_fd()
    }

    fn again(&self) -> Result<Box<dyn Connection>, Error> {
        let path = self.path.clone().ok_or(Error::NoDaemon)?;
        let failed = |_: Errno| Error::NoDaemon;
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        Ok(Box::new(Self { local: LocalAttachment::new(socket), path: Some(path) }))
    }

    fn permits_direct_reads(&self) -> bool {
        process_memory::is_wanted()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn connection_to_a_full_backlog_ends_in_time() {
        let path = std::env::temp_dir().join(format!("causeway-nic-{}", std::process::id()));
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(50);
        let first = connect_within(&path, limit);
        let since = Instant::now();
        let second = connect_within(&path, limit);
        std::fs::remove_file(&path).unwrap();
        assert!(first.is_ok());
        assert_eq!(second.unwrap_err(), Errno::AGAIN);
        assert!(since.elapsed() >= limit);
    }
}
