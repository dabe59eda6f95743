//! One daemon per control socket: the lock beside it, and the socket itself.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::directory::{UnsafeDir, check_dir};
use crate::fabric::give;
use crate::limits::{LOCK_PID_PAUSE, LOCK_PID_TRIES};

/// Length of the line with the pid.
const PID_LINE_BYTES: u64 = 11;

/// Why the control socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon has it.
    #[error(
        "another causewayd is running already{}: it serves {path}; stop it first, or give this \
         one another control socket in its configuration",
        .pid.map(|pid| format!(" with pid {pid}")).unwrap_or_default()
    )]
    Running {
        /// Its process, where known.
        pid: Option<i32>,
        /// The control socket.
        path: PathBuf,
    },
    /// A file that is no socket is in the way.
    #[error(
        "{0} is there and is not a socket: expected nothing, or a socket left behind; move it away"
    )]
    NotASocket(PathBuf),
    /// The host refused.
    #[error("{what} {path}: {error}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// Another user could replace what is in a directory.
    #[error("{0}")]
    Unsafe(#[from] UnsafeDir),
    /// The socket could not be handed to its group.
    #[error("control socket: {0}")]
    Permissions(String),
}

/// The control socket, bound and locked; both are removed when this is dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    // The socket goes before the lock that guards it: fields are dropped in this order.
    _socket: BoundPath,
    _lock: Lock,
}

impl Control {
    /// Takes the lock, replaces a socket left behind, and listens.
    pub fn claim(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, ClaimError> {
        if let Some(dir) = path.parent() {
            make_dir(dir)?;
        }
        let lock = Lock::take(path)?;
        clear(path)?;
        let (listener, socket) = bind(path)?;
        give(path, Some(mode), (None, group)).map_err(ClaimError::Permissions)?;
        Ok(Self { listener, _socket: socket, _lock: lock })
    }

    /// The listening socket.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// Makes a runtime directory and its parents; others may enter it, as frontends must.
///
/// # Errors
/// The host refuses, or another user could replace the sockets there ([`check_dir`]).
pub fn make_dir(dir: &Path) -> Result<(), ClaimError> {
    let host = |what, error| ClaimError::Host { what, path: dir.to_owned(), error };
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|error| host("cannot make directory", error))?;
    let meta = std::fs::metadata(dir).map_err(|error| host("cannot look at", error))?;
    Ok(check_dir(dir, &meta, rustix::process::geteuid().as_raw())?)
}

/// Binds so that nobody else can connect before the permissions are set.
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

/// Writes the pid of this process into its lock. A full file system costs only the number: what
/// counts is the lock itself.
fn note_pid(file: &mut File, path: &Path) -> io::Result<()> {
    match write_pid(file) {
        Err(error) if is_full(&error) => {
            let path = path.display();
            log::warn!(
                path:% = path, error:% = error;
                "the file system is full: the lock does not name this process"
            );
            Ok(())
        }
        other => other,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a socket that nobody serves; refuses everything else.
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
    // A daemon whose lock file was deleted still answers here.
    if let Some(pid) = listener_pid(path) {
        return Err(ClaimError::Running { pid, path: path.to_owned() });
    }
    std::fs::remove_file(path).map_err(|e| host("cannot remove the old socket", e))
}

/// The process listening on `path`: `None` if there is none, `Some(None)` if it is unknown.
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
        // Its backlog is full: someone is there.
        Err(rustix::io::Errno::AGAIN) => Some(None),
        Err(_) => None,
    }
}

/// A path that this process bound; removed on drop if it still is that socket.
#[derive(Debug)]
struct BoundPath {
    path: PathBuf,
    file: (u64, u64),
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!(path:% = self.path.display(), error:% = error; "socket not removed");
        }
    }
}

/// `<control>.lock`, held by flock(2), with the holder's pid inside.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
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
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let pid = holder(&mut file);
                    return Err(ClaimError::Running { pid, path: control.to_owned() });
                }
                Err(e) => return Err(host("cannot take the lock", e.into())),
            }
            // The holder before us may have removed the file between our open and our lock.
            if !same_file(&file, &path) {
                continue;
            }
            note_pid(&mut file, &path).map_err(|e| host("cannot write the lock", e))?;
            return Ok(Self { path, _file: file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While still locked, so that nobody else's lock is removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    // Over the last one, which has the same length: its block is there even on a full file system.
    file.write_all(format!("{:<10}\n", std::process::id()).as_bytes())?;
    file.set_len(PID_LINE_BYTES)
}

/// The pid in the lock file, given its holder a moment to write it.
fn holder(file: &mut File) -> Option<i32> {
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
