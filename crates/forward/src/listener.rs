//! Sources: the sockets at which a forward listens.
//!
//! [`crate::Relay::open`] calls [`Listener::open`], before the process enters its sandbox;
//! [`crate::Relay::run`] then accepts without blocking. A name with several TCP addresses is
//! listened at the first address that the kernel accepts, and at no other. A Unix socket that no
//! process listens at any more is replaced; a socket that a process serves, this process included,
//! and a file of another type are left alone and refused. The file of a Unix socket is removed when
//! the listener is dropped, unless another file has replaced it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::limits::BACKLOG;
use crate::{ForwardError, SocketAddress};

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The non-blocking socket.
    fd: OwnedFd,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
}

/// The file of a Unix socket, which another process may replace.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode; `None` if the file was gone at once.
    identity: Option<(u64, u64)>,
}

/// Returns device and inode of the file at a path.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
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
            let identity = identity_of(&path);
            let file = Some(SocketFile { path, identity });
            let bound = Self { fd: listener.into(), file };
            rustix::io::ioctl_fionbio(&bound.fd, true).map_err(|e| failed(e.into()))?;
            return Ok(bound);
        }
        let SocketAddress::Tcp(all) = address else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for at in all {
            match listen_tcp(*at) {
                Ok(fd) => return Ok(Self { fd, file: None }),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Accepts a connection; `None` if none waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionAborted`] if the client left before it was accepted, and
    /// [`io::ErrorKind::Interrupted`]: others may wait. Otherwise the kernel has no room.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        use rustix::net::SocketFlags;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.fd, flags) {
            Ok(fd) => {
                if self.file.is_none() {
                    // Of a socket that ended meanwhile; reading reports it.
                    let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
                }
                Ok(Some(fd))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
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
        if let Some(SocketFile { path, identity: Some(own) }) = &self.file
            && identity_of(path) == Some(*own)
        {
            // The next start replaces a file that stays.
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

/// Connects to a Unix socket, without waiting for room in the queue of its listener.
fn connect(path: &Path) -> io::Result<()> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?.connect(&SockAddr::unix(path)?)
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
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // A file that vanished meanwhile needs no removal.
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        _ => Err(in_use()),
    }
}
