//! Whether a user can connect to the socket of a port, by owner, group and mode.
//!
//! A connect needs write permission of the socket, and search permission of each directory above
//! it. The module reads metadata and the database of users, and connects to nothing. Access lists,
//! namespaces, AppArmor and SELinux are not considered, a file that does not exist or cannot be
//! examined is no obstacle, and root has every permission. `vmm` and `doctor` call it in the thread
//! of the command.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Uid, User, getegid, geteuid, getgrouplist, getgroups};

/// Users as which distributions let libvirt run guests: Debian and Ubuntu; Fedora and others.
const LIBVIRT_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, or the number of a user without a name.
    pub name: String,
    /// Number of the user.
    pub user: u32,
    /// All groups, the primary group first.
    pub groups: Vec<u32>,
}

impl Account {
    /// Returns the user of this process.
    pub fn current() -> Self {
        let user = geteuid();
        let name = User::from_uid(user).ok().flatten();
        let further = getgroups().unwrap_or_default();
        let groups = std::iter::once(getegid()).chain(further).map(|group| group.as_raw());
        Self {
            name: name.map_or_else(|| user.to_string(), |user| user.name),
            user: user.as_raw(),
            groups: groups.collect(),
        }
    }

    /// Returns the user as which libvirt runs guests on this host, or `None` if none of the usual
    /// names exists.
    pub fn of_libvirt() -> Option<Self> {
        LIBVIRT_USERS.iter().find_map(|name| Self::of(name))
    }

    /// Looks a user up by name; `None` if it does not exist.
    pub fn of(name: &str) -> Option<Self> {
        let user = User::from_name(name).ok().flatten()?;
        let name = CString::new(user.name.as_str()).ok()?;
        let groups = getgrouplist(&name, user.gid).unwrap_or_else(|_| vec![user.gid]);
        let groups = std::iter::once(user.gid).chain(groups).map(|group| group.as_raw());
        Some(Self { name: user.name, user: user.uid.as_raw(), groups: groups.collect() })
    }

    /// Returns the first part of a socket's path that the account cannot use: the directory nearest
    /// to the root that it cannot search, or the socket that it cannot write to.
    pub fn obstacle<'a>(&self, socket: &'a Path) -> Option<(&'a Path, FileAccess)> {
        let denied = |path: &Path, bits: u32| {
            let of = std::fs::metadata(path).ok()?;
            let access = FileAccess { user: of.uid(), group: of.gid(), mode: of.mode() & 0o777 };
            (!self.has(&access, bits)).then_some(access)
        };
        let mut directories: Vec<&Path> = socket.ancestors().skip(1).collect();
        directories.reverse();
        let directory =
            directories.into_iter().find_map(|path| Some((path, denied(path, SEARCH)?)));
        directory.or_else(|| Some((socket, denied(socket, WRITE)?)))
    }

    /// Returns whether the mode of a file with this owner and group grants one of the permissions
    /// `rwx`, given as the bits of the class of others.
    fn has(&self, file: &FileAccess, bits: u32) -> bool {
        if Uid::from_raw(self.user).is_root() {
            return true;
        }
        let shift = match (file.user == self.user, self.groups.contains(&file.group)) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        (file.mode >> shift) & bits == bits
    }
}

/// Owner, group and permissions of a file.
#[derive(Debug, Clone, Copy)]
pub struct FileAccess {
    /// Number of the owner.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
    /// The permissions.
    pub mode: u32,
}

/// Permission to write, and to search a directory.
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;
