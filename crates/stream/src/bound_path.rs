//! The file of a bound Unix datagram socket, removed when the port is deleted.
//!
//! Binding replaces a socket file without a process behind it; any other file, and a socket file to
//! which the daemon may not connect, is refused, and the port is then not added. The check and the
//! replacement are two steps: two daemons that bind one path at the same time are not kept apart.
//! Dropping removes the file if the path still leads to it (device and inode).
//!
//! `datagram_end` binds the file when a port is added, and holds the [`BoundPath`] as long as the
//! port exists; both in the thread of the dispatcher that owns the shard.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use causeway_model::CommandError;
use rustix::net::SocketAddrUnix;

use crate::socket::{DatagramSocket, is_gone};

/// A file that was made by binding a socket.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

/// Returns the device and inode of a file, without following a symbolic link.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Binds a datagram socket at `path`.
///
/// # Errors
/// The path has another file, or a socket of another process, or cannot be bound.
pub(crate) fn bind(path: &Path) -> Result<(DatagramSocket, BoundPath), CommandError> {
    let failed = |e: std::io::Error| CommandError::Host(format!("socket {}: {e}", path.display()));
    let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            let text = format!("{} exists and is not a socket: move it away", path.display());
            return Err(CommandError::Conflict(text));
        }
        if !is_gone(&address) {
            let text = format!("{}: another process has a socket there", path.display());
            return Err(CommandError::Conflict(text));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let socket = DatagramSocket::bind_unix(path).map_err(|errno| failed(errno.into()))?;
    let bound = BoundPath { path: path.to_owned(), file: identity(path) };
    Ok((socket, bound))
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}
