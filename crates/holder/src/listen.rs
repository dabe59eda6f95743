//! Listening Unix sockets whose files are replaced after a crash and removed on drop.
//!
//! [`crate::holder`] listens for causewayd (SOCK_SEQPACKET), [`crate::port`] for frontends
//! (SOCK_STREAM), both in the holder's main thread. A left-over socket file without a listener is
//! replaced; a file of another type, or a socket with a listener, is an error (`AddrInUse`): at its
//! start the holder then exits, later it refuses the port with the text. Two processes that bind
//! the same path at the same time may race; the holder's lock file keeps two holders of a directory
//! apart.
//!
//! On drop the file is removed, unless another file has replaced it. Any error of the connect but
//! ECONNREFUSED counts as a listener. No call blocks. The kernel
//! queues up to [`BACKLOG`] (16) connections; a further frontend waits in connect(2), or gets
//! EAGAIN if its socket does not block. The module checks no credentials and creates no directory.
//! Accepted connections belong to the caller and outlive the listener; connections still in the
//! queue end with the listener.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::limits::BACKLOG;

/// A non-blocking listening socket. Removes its file on drop, unless the file was replaced.
#[derive(Debug)]
pub struct UnixSocketListener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

/// Returns device and inode of the file at `path`; a symbolic link is not followed.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Returns a new non-blocking Unix socket of the type `kind` (stream or seqpacket), not connected.
///
/// # Errors
/// The system call's error.
pub fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Removes a socket file without a listener; any other file is an error.
fn clear(path: &Path, kind: SocketType) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    let refuse = |text: &str| {
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {text}", path.display())))
    };
    if !meta.file_type().is_socket() {
        return refuse("exists and is not a socket: move it away");
    }
    match connect(socket(kind)?, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => refuse("another process listens there"),
    }
}

impl UnixSocketListener {
    /// Listens at `path`; the umask decides which users may connect.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there or the file is no socket; a system call's
    /// error.
    pub fn bind(path: &Path, kind: SocketType) -> io::Result<Self> {
        clear(path, kind)?;
        let socket = socket(kind)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = identity(path)?;
        let listener = Self { socket, path: path.to_owned(), file };
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// Accepts the next connection, without blocking. `None` if no connection waits.
    ///
    /// # Errors
    /// accept(2) failed, for example without a free descriptor.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(stream) => Ok(Some(stream)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns whether the path still leads to this socket: the file that this listener created is
    /// there, and was not replaced.
    pub fn is_reachable(&self) -> bool {
        identity(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for UnixSocketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UnixSocketListener {
    fn drop(&mut self) {
        if self.is_reachable() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
