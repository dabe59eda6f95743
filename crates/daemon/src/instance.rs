//! Ensures one daemon per control socket, by a lock file and by the socket itself.
//!
//! [`ControlSocket::claim`] takes flock(2) on `<control>.lock`, removes a stale socket, binds and
//! listens. A socket on which a process still answers is not stale, even without a lock; a path
//! that is no socket is never removed. [`make_dir`] creates the directory of the control socket and
//! the run directory, and refuses a directory whose entries another user could replace; directories
//! of sockets elsewhere must exist.
//!
//! The claim does not wait for another daemon to end: it fails with [`ClaimError::Running`], after
//! up to 200 ms for the pid in a lock file that is being written. Two daemons with different
//! control sockets are not detected here; their ports conflict when they bind. While binding, the
//! umask of the process changes: no other thread may create files. After SIGKILL both files remain:
//! the next claim takes the lock file over and replaces the socket.
//!
//! The main thread makes the directories before the sandbox is entered ([`crate::run`]), and claims
//! before the dispatchers and the thread `lifecycle` start ([`crate::lifecycle`]). That thread
//! takes the listener, on which [`crate::http::server`] accepts, and drops the claim last.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::directory::{UnsafeDir, check_dir, lock_at};
use crate::fabric::set_socket_access;
use crate::limits::{LOCK_PID_PAUSE, LOCK_PID_TRIES};

/// Length of the line with the pid in the lock file: the pid in 10 columns, and a line feed.
const PID_LINE_BYTES: u64 = 11;

/// The reason why the control socket cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon has the lock, or answers on the socket.
    #[error(
        "another causewayd is running already{}: it serves {path}; stop it first, or give this \
         one another control socket in its configuration",
        .pid.map(|pid| format!(" with pid {pid}")).unwrap_or_default()
    )]
    Running {
        /// Process of the other daemon, if known.
        pid: Option<i32>,
        /// The control socket.
        path: PathBuf,
    },
    /// The path exists and is no socket.
    #[error(
        "{0} is there and is not a socket: expected nothing, or a socket left behind; move it away"
    )]
    NotASocket(PathBuf),
    /// A system call failed.
    #[error("{what} {path}: {error}")]
    Host {
        /// Description of the failed operation.
        what: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// Another user could replace the entries of the directory.
    #[error("{0}")]
    Unsafe(#[from] UnsafeDir),
    /// The owner, group or permissions of the socket could not be set.
    #[error("control socket: {0}")]
    Permissions(String),
}

/// The control socket, bound and locked. Dropping it removes the socket and the lock.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    // Fields are dropped in order: the socket must be removed while the lock is held.
    _socket: BoundPath,
    _lock: InstanceLock,
}

impl ControlSocket {
    /// Takes the lock, replaces a stale socket, and listens. The socket gets the permission bits
    /// `mode` and the group `group`.
    ///
    /// # Errors
    /// Another daemon runs, the path is no socket, or a system call fails.
    pub fn claim(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, ClaimError> {
        if let Some(dir) = path.parent() {
            make_dir(dir)?;
        }
        let lock = InstanceLock::take(path)?;
        clear(path)?;
        let (listener, socket) = bind(path)?;
        set_socket_access(path, Some(mode), (None, group)).map_err(ClaimError::Permissions)?;
        Ok(Self { listener, _socket: socket, _lock: lock })
    }

    /// Returns the listening socket.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// Creates a runtime directory and its parents with mode 0755, so that frontends of other users can
/// enter it.
///
/// # Errors
/// A system call fails, or another user could replace the sockets in the directory ([`check_dir`]).
pub fn make_dir(dir: &Path) -> Result<(), ClaimError> {
    let host = |what, error| ClaimError::Host { what, path: dir.to_owned(), error };
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|error| host("cannot make directory", error))?;
    let meta = std::fs::metadata(dir).map_err(|error| host("cannot look at", error))?;
    Ok(check_dir(dir, &meta, rustix::process::geteuid().as_raw())?)
}

/// Binds the socket so that no other user can connect before the permissions are set.
fn bind(path: &Path) -> Result<(UnixListener, BoundPath), ClaimError> {
    let host = |error| ClaimError::Host { what: "cannot listen on", path: path.to_owned(), error };
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    rustix::process::umask(umask);
    let listener = bound.map_err(host)?;
    let meta = std::fs::symlink_metadata(path).map_err(host)?;
    let socket = BoundPath { path: path.to_owned(), file: (meta.dev(), meta.ino()) };
    Ok((listener, socket))
}

/// Writes the pid of this process into the lock file. On a full file system only the pid is
/// missing: the flock itself is held.
fn note_pid(file: &mut File, path: &Path) -> io::Result<()> {
    match write_pid(file) {
        Err(error) if is_full(&error) => {
            let path = path.display();
            log::warn!(
                path:% = path, error:% = error;
                "the file system is full: the lock file does not contain the pid of this process"
            );
            Ok(())
        }
        other => other,
    }
}

/// Returns whether the file system, or the quota of the user, is exhausted.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a stale socket; refuses every other file.
fn clear(path: &Path) -> Result<(), ClaimError> {
    let host = |what, error| ClaimError::Host { what, path: path.to_owned(), error };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(host("cannot look at", e)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(ClaimError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    // A daemon whose lock file was deleted still answers on its socket.
    if let Some(pid) = listener_pid(path) {
        return Err(ClaimError::Running { pid, path: path.to_owned() });
    }
    std::fs::remove_file(path).map_err(|e| host("cannot remove the old socket", e))
}

/// Returns the pid of the process that listens on `path`: `None` if no process listens,
/// `Some(None)` if its pid is unknown.
fn listener_pid(path: &Path) -> Option<Option<i32>> {
    let address = SocketAddrUnix::new(path).ok()?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {
            let stream = UnixStream::from(socket);
            let peer = rustix::net::sockopt::socket_peercred(&stream).ok();
            Some(peer.map(|c| c.pid.as_raw_nonzero().get()))
        }
        // The accept queue is full, so a process listens.
        Err(rustix::io::Errno::AGAIN) => Some(None),
        Err(_) => None,
    }
}

/// A path that this process bound; removed on drop if it is still the same socket.
#[derive(Debug)]
struct BoundPath {
    path: PathBuf,
    /// Device and inode of the socket.
    file: (u64, u64),
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!(
                path:% = self.path.display(), error:% = error;
                "cannot remove a socket file; remove it by hand"
            );
        }
    }
}

/// The file `<control>.lock`, locked by flock(2); it contains the pid of the daemon.
#[derive(Debug)]
struct InstanceLock {
    path: PathBuf,
    /// Holds the lock while it is open.
    _file: File,
}

impl InstanceLock {
    /// Takes the lock without waiting.
    fn take(control: &Path) -> Result<Self, ClaimError> {
        let mut name = control.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let host = |what, error| ClaimError::Host { what, path: path.clone(), error };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .mode(0o644)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(&path)
                .map_err(|e| host("cannot open the lock", e))?;
            match lock_at(&file, &path) {
                Ok(true) => {}
                // The previous holder of the lock removed the file between open and flock.
                Ok(false) => continue,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let pid = lock_owner(&mut file);
                    return Err(ClaimError::Running { pid, path: control.to_owned() });
                }
                Err(e) => return Err(host("cannot take the lock", e.into())),
            }
            note_pid(&mut file, &path).map_err(|e| host("cannot write the lock", e))?;
            return Ok(Self { path, _file: file });
        }
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // Removed while locked, so that a lock of another process is not removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes the line with the pid of this process.
fn write_pid(file: &mut File) -> io::Result<()> {
    // Overwrites the previous line of the same length, whose block exists even on a full file
    // system.
    file.write_all(format!("{:<10}\n", std::process::id()).as_bytes())?;
    file.set_len(PID_LINE_BYTES)
}

/// Returns the pid in the lock file. Retries [`LOCK_PID_TRIES`] (20) times while the process that
/// holds the lock has not written its pid; `None` after that.
fn lock_owner(file: &mut File) -> Option<i32> {
    for _ in 0..LOCK_PID_TRIES {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.take(32).read_to_string(&mut text));
        if read.is_ok() && text.ends_with('\n') {
            return text.trim().parse().ok();
        }
        thread::sleep(LOCK_PID_PAUSE);
    }
    None
}
