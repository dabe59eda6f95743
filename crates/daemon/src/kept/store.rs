//! The state file on disk: atomic replacement, bounded reads, and files that cannot be used.
//!
//! [`replace`] writes a new file beside the old one, flushes it, renames it over the old one and
//! flushes the directory: after a crash the file has the old or the new text. The file has mode
//! 0600 and at most [`STATE_BYTES_MAX`] (16 MiB); a longer text is not written, and the old file
//! stays. [`load`] refuses a file that another user could have written. A file that cannot be used
//! is moved to `<name>.bad`, then `.bad-2` and so on, up to [`STATE_ASIDE_MAX`] (9) files; a
//! further one replaces the last.
//!
//! [`StateLock`] excludes a second use of the same file, in this process or another, by flock(2) on
//! `<name>.lock`: the second is refused at once.
//!
//! Calls block for as long as the file system does. [`super::restore`] makes the directory, reads
//! and sets aside in the thread `lifecycle`, [`super::writer`] replaces in the thread `state`;
//! [`crate::lifecycle::make_dirs`] creates the directory before, on the main thread, and ignores a
//! failure. No dispatcher calls them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};

use crate::directory::{check_dir, lock_at};
use crate::limits::{STATE_ASIDE_MAX, STATE_BYTES_MAX};

/// Write permission for users other than the owner.
const OTHERS_WRITE: u32 = 0o022;

/// The reason why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// A system call failed.
    #[error("cannot {what} {path}: {error}")]
    Host {
        /// The operation.
        what: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// The file is no regular file, has more than 16 MiB, is no UTF-8, or another user could write
    /// it or replace it in its directory.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another [`StateLock`] of the file is held.
    #[error(
        "{path} is in use by another causewayd; give this daemon another state_file in [daemon]"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// Returns an error constructor for a failed operation.
fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> StateFileError {
    let path = path.to_owned();
    move |error| StateFileError::Host { what, path: path.clone(), error }
}

/// Creates the directory of the state file with mode 0700, if it does not exist.
///
/// # Errors
/// The directory cannot be created, or another user could replace its files.
pub fn make_dir(file: &Path) -> Result<(), StateFileError> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(failed("make the directory", dir))?;
    let meta = std::fs::metadata(dir).map_err(failed("look at", dir))?;
    let own = rustix::process::geteuid().as_raw();
    check_dir(dir, &meta, own).map_err(|error| StateFileError::Unusable {
        path: file.to_owned(),
        reason: error.to_string(),
    })
}

/// The exclusive use of a state file, until the value is dropped.
#[derive(Debug)]
pub struct StateLock {
    path: PathBuf,
    /// Holds the lock while it is open.
    _file: File,
}

impl StateLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// Another process, or this process, has it, or a system call fails.
    pub fn take(file: &Path) -> Result<Self, StateFileError> {
        let path = with_suffix(file, ".lock");
        loop {
            let opened = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(&path)
                .map_err(failed("open", &path))?;
            match lock_at(&opened, &path) {
                Ok(true) => return Ok(Self { path, _file: opened }),
                // The previous holder removed the file after it was opened.
                Ok(false) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StateFileError::InUse { path: file.to_owned() });
                }
                Err(error) => return Err(failed("lock", &path)(error.into())),
            }
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Removed while locked: a lock of another process is not removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads the file; `None` if there is none.
///
/// # Errors
/// The file cannot be read, has more than 16 MiB or is no UTF-8, or another user could have written
/// it.
pub fn load(path: &Path) -> Result<Option<String>, StateFileError> {
    let unusable = |reason: String| StateFileError::Unusable { path: path.to_owned(), reason };
    // A FIFO in its place must not block the start.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    let meta = file.metadata().map_err(failed("look at", path))?;
    if !meta.is_file() {
        return Err(unusable("expected a regular file".into()));
    }
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != own {
        return Err(unusable(format!("it belongs to user {}, expected {own}", meta.uid())));
    }
    if meta.mode() & OTHERS_WRITE != 0 {
        return Err(unusable("other users can write it; expected mode 0600".into()));
    }
    let mut bytes = Vec::new();
    file.take(STATE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() as u64 > STATE_BYTES_MAX {
        return Err(unusable(format!("expected at most {STATE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| unusable("expected text in UTF-8".into()))
}

/// Replaces the text of the file, atomically.
///
/// # Errors
/// The text has more than 16 MiB, or the new file cannot be written; the old file is unchanged
/// then. If only the directory cannot be flushed, the new text is there and may be lost with the
/// host.
pub fn replace(path: &Path, text: &str) -> Result<(), StateFileError> {
    if text.len() as u64 > STATE_BYTES_MAX {
        let reason = format!("{} bytes: expected at most {STATE_BYTES_MAX}", text.len());
        return Err(StateFileError::Unusable { path: path.to_owned(), reason });
    }
    let new = with_suffix(path, ".new");
    let written = write(&new, text).and_then(|()| {
        renameat_with(CWD, &new, CWD, path, RenameFlags::empty())
            .map_err(|error| failed("replace", path)(error.into()))
    });
    if written.is_err() {
        // The next attempt replaces a file that cannot be removed.
        let _ = std::fs::remove_file(&new);
    }
    written?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let flushed = File::open(dir).and_then(|dir| dir.sync_all());
    flushed.map_err(failed("flush", dir))
}

/// Writes a new file and flushes it.
fn write(path: &Path, text: &str) -> Result<(), StateFileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed("remove", path)(error));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(failed("create", path))?;
    file.write_all(text.as_bytes()).map_err(failed("write", path))?;
    file.sync_all().map_err(failed("flush", path))
}

/// Moves a file that cannot be used aside, and returns its new path.
///
/// # Errors
/// The file cannot be moved.
pub fn set_aside(path: &Path) -> Result<PathBuf, StateFileError> {
    let aside = aside(path);
    renameat_with(CWD, path, CWD, &aside, RenameFlags::empty())
        .map_err(|error| failed("move aside", path)(error.into()))?;
    Ok(aside)
}

/// Copies a text aside that the file loses, and returns the path of the copy.
///
/// # Errors
/// The copy cannot be written.
pub fn copy_aside(path: &Path, text: &str) -> Result<PathBuf, StateFileError> {
    let aside = aside(path);
    write(&aside, text)?;
    Ok(aside)
}

/// Returns the first free path for a file that is kept aside, or the last.
fn aside(path: &Path) -> PathBuf {
    let first = with_suffix(path, ".bad");
    let further = (2..=STATE_ASIDE_MAX).map(|n| with_suffix(path, &format!(".bad-{n}")));
    let mut last = first.clone();
    for candidate in std::iter::once(first).chain(further) {
        if std::fs::symlink_metadata(&candidate).is_err() {
            return candidate;
        }
        last = candidate;
    }
    last
}

/// Appends a suffix to a file name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
