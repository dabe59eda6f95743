//! Listening Unix sockets that remove their file when they are dropped.
//!
//! Ports listen by them for frontends (`crate::shard`), and [`crate::host`] for host processes. The
//! owner watches the socket, calls [`Listener::accept`] and hands the accepted socket on.
//!
//! Binding replaces a socket file if connecting to it is refused, so that no process listens there;
//! any other file is refused. The
//! check and the replacement are two steps: two daemons that bind one path at the same time are not
//! kept apart. Dropping a listener removes its file if the path still leads to that file (device
//! and inode), and closes at most [`BACKLOG_MAX`] (4,096) waiting connections. Permissions of the
//! file are set by the daemon. No call blocks.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use causeway_host::Account;
use causeway_host::fd::receive::{self, UntrustedSocket};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen,
    shutdown, socket_with,
};

use crate::limits::BACKLOG_MAX;
use causeway_model::CommandError;

/// A non-blocking listener. Its file is removed with it, unless another file has taken its place.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: Option<(u64, u64)>,
    /// Reserve descriptor for accepting when the limit of descriptors is reached.
    spare: Option<OwnedFd>,
    /// Account of the descriptors that its peers send.
    account: Account,
}

/// Waiting connections that the socket asks for; the kernel reduces the number to its own limit.
const BACKLOG: i32 = 4096;

/// Returns the device and inode of a file, without following a symbolic link.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Connects a socket of type `kind`, which accepts no descriptors, to the listener at `path`. Never
/// blocks.
///
/// # Errors
/// Those of socket(2) and connect(2); `EAGAIN` for a full backlog.
pub(crate) fn connect_to(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    receive::refuse_descriptors(&socket);
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Returns whether a process listens at `path`. Never blocks: a full backlog counts as listening.
fn is_served(path: &Path, kind: SocketType) -> bool {
    match connect_to(path, kind) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::ConnectionRefused,
    }
}

/// Makes a non-blocking listening socket.
fn listen_at(path: &Path, kind: SocketType) -> Result<UnixListener, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Returns a reserve descriptor, if the process may open another.
fn keep_spare(socket: &UnixListener) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(socket, 0).ok()
}

impl Listener {
    /// Listens at `path`, and replaces a socket file without a listener.
    pub(crate) fn bind(path: &Path) -> Result<Self, CommandError> {
        Self::bind_as(path, SocketType::STREAM)
    }

    /// As [`Self::bind`], for sockets of type `kind`.
    pub(crate) fn bind_as(path: &Path, kind: SocketType) -> Result<Self, CommandError> {
        let wrong = |e: io::Error| CommandError::Host(format!("socket {}: {e}", path.display()));
        if let Ok(meta) = fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                let text = format!("{} exists and is not a socket: move it away", path.display());
                return Err(CommandError::Conflict(text));
            }
            if is_served(path, kind) {
                let text = format!("{}: another process listens there", path.display());
                return Err(CommandError::Conflict(text));
            }
            fs::remove_file(path).map_err(wrong)?;
        }
        let socket = listen_at(path, kind).map_err(|errno| wrong(errno.into()))?;
        let spare = keep_spare(&socket);
        Ok(Self {
            socket,
            path: path.to_owned(),
            file: identity(path),
            spare,
            account: Account::unique(),
        })
    }

    /// Accepts the next connection. If no descriptor is left, it closes the connection with the
    /// reserve descriptor: the peer must not wait forever, and the dispatcher must not be woken
    /// again and again.
    pub(crate) fn accept(&mut self) -> io::Result<UntrustedSocket> {
        let accepted = self.socket.accept();
        if let Err(error) = &accepted
            && matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
        {
            self.spare = None;
            drop(self.socket.accept().map(|(stream, _)| self.incoming(stream)));
            self.spare = keep_spare(&self.socket);
        }
        let (stream, _) = accepted?;
        stream.set_nonblocking(true)?;
        Ok(self.incoming(stream))
    }

    /// Returns an accepted socket, whose received descriptors are charged to this listener.
    fn incoming(&self, stream: UnixStream) -> UntrustedSocket {
        UntrustedSocket::from(OwnedFd::from(stream)).charged_to(self.account)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // No process can connect from now on. Waiting processes may have sent descriptors whose
        // close blocks, so they are accepted and closed by the account.
        let _ = shutdown(&self.socket, Shutdown::Read);
        for _ in 0..BACKLOG_MAX {
            // Connections for which no descriptor is left are closed one by one as well.
            if self.accept().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_sockets_are_replaced_and_others_left_alone() {
        let dir = std::env::temp_dir().join(format!("causeway-listen-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("s");
        let first = Listener::bind(&path).unwrap();
        assert!(Listener::bind(&path).is_err(), "it is served");
        let stale = UnixListener::bind(dir.join("stale")).unwrap();
        drop(stale);
        drop(Listener::bind(&dir.join("stale")).unwrap());
        assert!(!dir.join("stale").exists());
        // Another process replaces our file: it stays when the listener is dropped.
        fs::remove_file(&path).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        fs::write(dir.join("file"), "x").unwrap();
        assert!(Listener::bind(&dir.join("file")).is_err());
        assert!(dir.join("file").exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
