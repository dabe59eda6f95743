//! Safety check of the directories in which sockets are created: no other user may be able to
//! replace a socket.
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

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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
}
