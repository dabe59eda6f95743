//! The provider of libfabric: its place on this host.
//!
//! `MpiEnvironment::find` calls [`find`], in the main thread. A missing file is an error of exit
//! status 3, a file that this user cannot read one of 4. The file is opened, but neither loaded nor
//! checked: whether libfabric accepts it shows in the program.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// File name of the provider, as libfabric searches it.
const PROVIDER: &str = "libcauseway-fi.so";

/// Returns the directory of the provider: the given directory, or the first that has the file.
///
/// # Errors
/// No directory has the file, or this user may not read it.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    let folders = named.map_or_else(usual, |folder| vec![folder.to_owned()]);
    let has = |folder: &&PathBuf| folder.join(PROVIDER).exists();
    let folder = folders.iter().find(has).ok_or_else(|| missing(named))?;
    let file = folder.join(PROVIDER);
    File::open(&file).map_err(|error| {
        let text = "libfabric cannot load the provider; make it readable for this user";
        Error::NoAccess(format!("{}: {error}; {text}", file.display()))
    })?;
    Ok(absolute(folder))
}

/// Returns the directories that are searched: beside this program, and those of libfabric.
fn usual() -> Vec<PathBuf> {
    let here = std::env::current_exe().unwrap_or_default();
    let beside = here.parent().unwrap_or(Path::new("/")).to_owned();
    let arch = std::env::consts::ARCH;
    vec![
        beside.clone(),
        beside.join("../lib/libfabric"),
        "/usr/local/lib/libfabric".into(),
        format!("/usr/lib/{arch}-linux-gnu/libfabric").into(),
        "/usr/lib64/libfabric".into(),
    ]
}

/// Returns the error for a missing provider.
fn missing(named: Option<&Path>) -> Error {
    Error::NotFound(match named {
        Some(folder) => format!("no {PROVIDER} in {}", folder.display()),
        None => format!(
            "no {PROVIDER} is found: libfabric has no provider for Causeway; install the package \
             libfabric-causeway or run scripts/install-libfabric.sh, or give its directory with \
             --provider"
        ),
    })
}

/// Returns the path without symbolic links, or unchanged if it does not exist.
pub fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
