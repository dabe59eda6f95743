//! Safety check of the directories in which sockets are created: no other user may be able to
//! replace a socket. Locks of files in them.
//!
//! [`check_dir`] accepts a directory of root or of the daemon's user that is not writable for all,
//! or has the sticky bit. It checks the given directory only: not its parents and not ACLs. A
//! directory that is writable for its group passes: the operator is assumed to trust its members.
//! The state can change after the check.
//!
//! [`crate::instance::make_dir`] calls it, in the main thread, after the directory was created and
//! before a socket is bound; a refusal ends the start of the daemon.
//! [`crate::kept::store::make_dir`] calls it for the directory of the state file, in the main
//! thread, where a refusal is ignored, and again in the thread `lifecycle`, where a refusal means
//! that changes are not kept. All this precedes the first connection.
//!
//! [`lock_at`] locks a lock file without waiting, for [`crate::instance`] and
//! [`crate::kept::store::StateLock`], each of which opens the file anew if it is gone.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The sticky bit, inode(7): only the owner of an entry removes or renames it.
const STICKY: u32 = 0o1000;
/// All users may create and remove entries.
const WORLD_WRITABLE: u32 = 0o002;

/// The reason why a directory is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeDir {
    /// The owner could replace the sockets in it.
    #[error(
        "directory {path} belongs to user {owner}, who could replace the sockets in it: expected \
         root or user {own}; correct it with `chown {own} {path}`, or configure another run_dir \
         and control socket"
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Owner of the directory.
        owner: u32,
        /// The daemon's user.
        own: u32,
    },
    /// Any user could replace the sockets in it.
    #[error(
        "directory {path} is writable for all users, who could replace the sockets in it; correct \
         it with `chmod o-w {path}`, or configure another run_dir and control socket"
    )]
    Writable {
        /// The directory.
        path: PathBuf,
    },
}

/// Checks that no user but root and `own`, and members of the directory's group, can replace
/// entries of a directory.
///
/// # Errors
/// The owner is another user, or the directory is writable for all users without the sticky bit.
pub fn check_dir(path: &Path, meta: &Metadata, own: u32) -> Result<(), UnsafeDir> {
    let path = path.to_owned();
    if meta.uid() != 0 && meta.uid() != own {
        return Err(UnsafeDir::Owner { path, owner: meta.uid(), own });
    }
    if meta.mode() & WORLD_WRITABLE != 0 && meta.mode() & STICKY == 0 {
        return Err(UnsafeDir::Writable { path });
    }
    Ok(())
}

/// Takes the exclusive lock of an opened file by flock(2), without waiting. Returns whether the file
/// is still the one at `path`: its previous holder may have removed it since it was opened.
///
/// # Errors
/// `WOULDBLOCK` if another open file has the lock, or the system call fails.
pub fn lock_at(file: &File, path: &Path) -> Result<bool, Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    Ok(file.metadata().map(identity).is_ok_and(|own| there.is_ok_and(|there| own == there)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn directory_that_others_can_change_is_refused() {
        let dir = std::env::temp_dir().join(format!("causeway-dir-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let check = |mode, own| {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            check_dir(&dir, &std::fs::metadata(&dir).unwrap(), own)
        };
        for mode in [0o755, 0o700, 0o770, 0o1777] {
            assert_eq!(check(mode, own), Ok(()), "{mode:o}");
        }
        let error = check(0o777, own).unwrap_err().to_string();
        assert!(error.contains("chmod o-w"), "{error}");
        if own == 0 {
            std::os::unix::fs::chown(&dir, Some(4711), None).unwrap();
            assert!(check(0o755, 4711).is_ok());
            let error = check(0o755, 0).unwrap_err().to_string();
            assert!(error.contains("user 4711") && error.contains("chown 0"), "{error}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn lock_of_a_file_that_was_removed_is_no_lock_at_its_path() {
        let path = std::env::temp_dir().join(format!("causeway-lock-{}", std::process::id()));
        let removed = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lock_at(&removed, &path), Ok(false));
        let file = File::create(&path).unwrap();
        assert_eq!(lock_at(&removed, &path), Ok(false), "another file is there");
        assert_eq!(lock_at(&file, &path), Ok(true));
        let second = File::open(&path).unwrap();
        assert_eq!(lock_at(&second, &path), Err(Errno::WOULDBLOCK));
        std::fs::remove_file(&path).unwrap();
    }
}
