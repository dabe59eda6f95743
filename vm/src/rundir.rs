//! Directories of a run: sockets and files that go away with it.

use crate::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A fresh directory, removed with all in it when dropped, and on signals
/// where [`clean_on_signals`] was called.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes one under the system's folder for temporary files. Its path is
    /// short: a Unix socket's path has room for 107 bytes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> Result<Self> {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("causeway-{}-{n}", std::process::id()));
        let what = format!("create {}", path.display());
        // Taken by a process of the same number that was killed long ago.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(Error::io(what))?;
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|p| *p != self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP remove every [`RunDir`] and end this
/// process with 128 + the signal's number; its children die with it (see
/// [`crate::process`]).
///
/// # Errors
/// When the handlers cannot be installed.
pub fn clean_on_signals() -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("install signal handlers"))?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let dirs = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for dir in dirs {
                let _ = fs::remove_dir_all(dir);
            }
            eprintln!("\ninterrupted: guests, daemon and files are gone");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_goes_with_its_content() {
        let dir = RunDir::new().unwrap();
        let path = dir.path().to_owned();
        fs::write(dir.join("file"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
