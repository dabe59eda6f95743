//! Directories for the sockets and files of a run.
//!
//! Each guest and each daemon has a [`RunDir`], and so have keys, extended images, programs under
//! construction, the demo and tests; it lies below the system's folder for temporary files or in
//! memory. A drop removes it, and so do SIGINT, SIGTERM and SIGHUP where [`clean_on_signals`] was
//! called (the demo and the matrix do); a directory of a killed process is removed by the next
//! process that creates one in the same folder. A process counts as ended if its number is not in
//! /proc, so that containers must not share the folder. Directories with other names are not
//! touched. Names are short, because the path of a Unix socket has at most 107 bytes. Errors of a
//! removal are ignored.

use crate::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// The folder of shared memory, on tmpfs.
const MEMORY: &str = "/dev/shm";
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A fresh directory, removed with its contents when dropped, and on signals where
/// [`clean_on_signals`] was called.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Creates a directory under the system's folder for temporary files. The path is short: a Unix
    /// socket's path is limited to 107 bytes.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new() -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&std::env::temp_dir()));
        Self::below(&std::env::temp_dir())
    }

    /// Creates a directory under `/dev/shm`, in memory.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn in_memory() -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(Path::new(MEMORY)));
        Self::below(Path::new(MEMORY))
    }

    fn below(parent: &Path) -> Result<Self> {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("causeway-{}-{n}", std::process::id()));
        let what = format!("create {}", path.display());
        fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(Error::io(what))?;
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Ok(Self { path })
    }

    /// Returns the directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `name` in the directory.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Removes directories of processes that were killed.
fn sweep(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the process ID in a run directory's name.
fn owner(name: &str) -> Option<u32> {
    let (pid, n) = name.strip_prefix("causeway-")?.split_once('-')?;
    n.parse::<u32>().ok()?;
    pid.parse().ok()
}

impl Drop for RunDir {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|p| *p != self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Installs handlers: SIGINT, SIGTERM and SIGHUP remove every [`RunDir`] and end this process with
/// 128 + the signal's number; its tied children die with it (see [`crate::process`]).
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
            eprintln!("\ninterrupted: guests and daemon are stopped, their files removed");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rundir_sweep_removes_only_directories_of_ended_processes() {
        let dir = RunDir::new().unwrap();
        // Above the kernel's largest process ID: no such process can exist.
        let dead = "causeway-4194305-0";
        let live = format!("causeway-{}-77", std::process::id());
        for name in [dead, &live, "causeway-mine", "causeway-4194305-x"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        sweep(dir.path());
        assert!(!dir.join(dead).exists());
        for kept in [&live, "causeway-mine", "causeway-4194305-x"] {
            assert!(dir.join(kept).exists(), "{kept} was swept");
        }
    }

    #[test]
    fn rundir_is_removed_with_its_contents() {
        let dir = RunDir::new().unwrap();
        let path = dir.path().to_owned();
        fs::write(dir.join("file"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
