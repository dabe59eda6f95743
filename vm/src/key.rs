//! A daemon's private key, created by the operator's tool.
//!
//! Tests between several hosts create a [`Key`] for each host before a daemon starts: `causeway key
//! generate` runs as a child process, and the file lies in a directory of the run, as a file of
//! `nobody` if the test is root. The key is removed on drop. A tool that cannot be built or fails
//! is an error with its output; a directory or an owner that the system refuses, with its reason.

use crate::daemon::NOBODY;
use crate::error::{Error, Result};
use crate::rundir::RunDir;
use crate::{build, process};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

/// A key in a file that the daemon may read; removed when dropped.
#[derive(Debug)]
pub struct Key {
    dir: RunDir,
    public: String,
}

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    /// When the tool cannot be built, or fails, or the file cannot be given to `nobody`.
    pub fn new() -> Result<Self> {
        let (_, cli) = build::daemon()?;
        let dir = RunDir::new()?;
        let file = dir.join("key");
        let mut command = Command::new(cli);
        command.args(["key", "generate", "--out"]).arg(&file);
        let public = process::output(&mut command)?.trim().into();
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(NOBODY), Some(NOBODY))
                .map_err(Error::io(format!("give {} to nobody", file.display())))?;
        }
        Ok(Self { dir, public })
    }

    /// Returns the file of the private key.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.join("key")
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }
}
