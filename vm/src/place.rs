//! Paths: the workspace, the build's target directory, the cache.
//!
//! Modules of the crate, the demo, the matrix and tests find files of the workspace and of the
//! build here; files of a run are in [`crate::rundir`]. The cache is the folder `vm` of cargo's
//! target directory; it keeps kernels, images and stored results until it is removed, as by `cargo
//! clean` or `make clean-guests`. [`lock`] serialises processes and threads that fill the cache;
//! the kernel releases the lock when its process ends. A lock blocks without a time limit, and a
//! thread that takes a name twice blocks for ever. A folder that cannot be created, and a lock file
//! that cannot be opened, are errors.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::path::PathBuf;

/// Returns the root of the workspace of this crate.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Returns cargo's target directory; a relative `CARGO_TARGET_DIR` counts from the workspace.
#[must_use]
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => workspace().join(dir),
        _ => workspace().join("target"),
    }
}

/// Returns the folder of downloaded and built files, created when missing.
///
/// # Errors
/// When it cannot be created.
pub fn cache() -> Result<PathBuf> {
    let dir = target().join("vm");
    fs::create_dir_all(&dir).map_err(Error::io(format!("create {}", dir.display())))?;
    Ok(dir)
}

/// A lock on the cache, across processes, held until dropped: tests run in several processes, and
/// one process fills the cache for all.
#[derive(Debug)]
pub struct CacheLock {
    _file: File,
}

/// Takes the lock named `name`; blocks while it is held.
///
/// # Errors
/// When the lock file cannot be created or locked.
pub fn lock(name: &str) -> Result<CacheLock> {
    let path = cache()?.join(format!("{name}.lock"));
    let what = format!("lock {}", path.display());
    let file = File::create(&path).map_err(Error::io(what.clone()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|e| Error::io(what)(e.into()))?;
    Ok(CacheLock { _file: file })
}
