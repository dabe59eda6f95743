//! Sources: the sockets at which a forward listens.
//!
//! [`crate::Relay::open`] calls [`Listener::open`], before the process enters its sandbox;
//! [`crate::Relay::run`] then accepts without blocking. A name with several TCP addresses is
//! listened at the first address that the kernel accepts, and at no other. A Unix socket that no
//! process listens at any more is replaced; a socket that a process serves, this process included,
//! and a file of another type are left alone and refused. The file at the path of a Unix socket is
//! removed when the listener is dropped, also if another has replaced it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, Socket, Type};

use crate::limits::BACKLOG;
use crate::{ForwardError, SocketAddress};

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The non-blocking socket.
    fd: OwnedFd,
    /// The file of a Unix socket.
    path: Option<PathBuf>,
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// [`ForwardError::Listen`], [`ForwardError::InUse`].
    pub fn open(address: &SocketAddress) -> Result<Self, ForwardError> {
        let failed = |error| ForwardError::Listen { address: address.to_string(), error };
        if let Some(path) = address.listening_path() {
            remove_stale(&path)?;
            let listener = UnixListener::bind(&path).map_err(failed)?;
            let bound = Self { fd: listener.into(), path: Some(path) };
            rustix::io::ioctl_fionbio(&bound.fd, true).map_err(|e| failed(e.into()))?;
            return Ok(bound);
        }
        let SocketAddress::Tcp(all) = address else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for at in all {
            match listen_tcp(*at) {
                Ok(fd) => return Ok(Self { fd, path: None }),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Accepts a connection; `None` if none waits, or the client left before the accept.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        use rustix::net::SocketFlags;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.fd, flags) {
            Ok(fd) => {
                if self.path.is_none() {
                    // Of a socket that ended meanwhile; reading reports it.
                    let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
                }
                Ok(Some(fd))
            }
            Err(error) => match io::Error::from(error) {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                // The client left before it was accepted.
                error if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // An operator may have removed it; the next start replaces a stale file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a TCP address.
fn listen_tcp(at: std::net::SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        // The IPv4 address of a name is a separate listener.
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket of a process that ended.
fn remove_stale(path: &Path) -> Result<(), ForwardError> {
    let in_use = || ForwardError::InUse { path: path.display().to_string() };
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(ForwardError::Listen {
            address: format!("unix:{}", path.display()),
            error: io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is there",
            ),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // A file that vanished meanwhile needs no removal.
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        _ => Err(in_use()),
    }
}
