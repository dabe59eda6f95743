//! Files that are replaced as a whole: written beside, synchronized, renamed. After a crash the old
//! or the new content is there.
//!
//! The keys, the snapshot and the settings of the service are such files. The process that writes
//! one must be the only one: the name beside is that of the file with the extension `new`. The
//! daemon's state file has rules of its own (`kept::store` in `causeway-daemon`); this crate does not
//! import the data path's `causeway-host`, so the two have no common face. Blocks for as long as
//! the file system does, in the caller's thread.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// New content beside a file; removed on drop.
#[derive(Debug)]
pub struct NewFile<'a> {
    path: &'a Path,
    beside: PathBuf,
}

impl<'a> NewFile<'a> {
    /// Writes the content beside the file, with these permissions less the process's umask. The rest
    /// of a process that ended too early is replaced.
    ///
    /// # Errors
    /// The content cannot be written; the file is unchanged.
    pub fn write(path: &'a Path, content: &[u8], mode: u32) -> Result<Self> {
        let new = Self { path, beside: path.with_extension("new") };
        match std::fs::remove_file(&new.beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new.beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(new)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The file cannot be replaced. If only the directory cannot be synchronized, the new content is
    /// there and may be lost with the host.
    pub fn replace(self) -> Result<()> {
        std::fs::rename(&self.beside, self.path)?;
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // Not there after the replacement.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// Replaces a file at once.
///
/// # Errors
/// As of [`NewFile::write`] and [`NewFile::replace`].
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    NewFile::write(path, content, mode)?.replace()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use causeway_testing::folder::Folder;

    use super::*;

    #[test]
    fn file_has_the_old_content_until_it_is_replaced() {
        let folder = Folder::new("new-file");
        let (path, beside) = (folder.join("file.env"), folder.join("file.new"));
        // The rest of a crash.
        std::fs::write(&beside, b"rest").unwrap();
        replace(&path, b"old", 0o600).unwrap();
        let new = NewFile::write(&path, b"new", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(new);
        assert!(!beside.exists());
        replace(&path, b"new", 0o600).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), beside.exists()), (b"new".to_vec(), false));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(replace(&folder.join("none/file"), b"x", 0o600).is_err());
    }
}
