//! The holder's directory: where it is, the names of its files, and its lock.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Name of the control socket in the holder's directory.
pub const CONTROL: &str = "control";
/// Name of the lock file in the holder's directory.
pub(crate) const LOCK: &str = "lock";

/// Returns the holder's directory within the run directory `run_dir`.
pub fn holder_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("held")
}

/// Locks the file at `path` until the returned descriptor is closed.
///
/// # Errors
/// `AddrInUse` if another process has the lock; a system call's error.
pub(crate) fn lock(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(Errno::WOULDBLOCK) => {
            let text = format!("{}: another holder has this directory", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(errno) => Err(errno.into()),
    }
}
