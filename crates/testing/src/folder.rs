//! Temporary folders for tests: sockets, configuration files, lock files.
//!
//! A [`Folder`] is created below the system's temporary directory, with a name of process and
//! number, and is removed with its content when the value is dropped. A test that is killed leaves
//! its folder; a later process with the same number uses it as it is. Paths stay short enough for
//! Unix sockets if the path of the temporary directory is short. Users: integration tests of the
//! services and of `forward`. A folder that cannot be made panics; a removal that fails is ignored.
//! Names are unique in a process, so that tests in several threads do not meet.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A new folder that is removed when the value is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the folder. The name contains `area`, the process and a number.
    ///
    /// # Panics
    /// The folder cannot be created.
    pub fn new(area: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("causeway-{area}-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of an entry of the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that moved or removed the folder has nothing left to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
