//! A daemon's private key, created by the operator's tool.

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
    /// When the tool cannot be built, or fails.
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
