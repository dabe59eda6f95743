//! The folder of a world of NICs, in which daemons and processes leave the lock files of endpoints
//! for the next daemon.
//!
//! `super` creates one [`Folder`] for each world, below the system's folder for temporary files,
//! and drops it with the world, which removes the folder and its files. The lock files lie beside
//! the configured paths of the NICs' sockets, which are never bound. A simulator that is killed
//! leaves its folder behind. All in the thread of the world; a folder that exists already, or
//! cannot be made, is an error of the world.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary folder that is removed when the world ends.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder, named by process and world.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("causeway-sim-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Returns the configured path of a NIC's socket.
    pub fn socket(&self, board: usize) -> PathBuf {
        self.0.join(format!("board-{board}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
