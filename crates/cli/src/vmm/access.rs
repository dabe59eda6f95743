//! Whether the user who runs a VMM can connect to the socket of a port.
//!
//! A connect needs write permission of the socket, and search permission of each directory above
//! it. [`warning`] compares owner, group and mode with an [`Account`]: that of this process, or
//! libvirt's user for guests. It reads metadata only and connects to nothing. Access lists,
//! namespaces, AppArmor and SELinux are not considered, and a socket that does not exist or cannot
//! be examined gives no warning: the port may belong to a daemon of another mount namespace.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Group, Uid, User, getegid, geteuid, getgrouplist, getgroups};

/// Users as which distributions let libvirt run guests: Debian and Ubuntu; Fedora and others.
const LIBVIRT_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    name: String,
    user: u32,
    /// All groups, the primary group first.
    groups: Vec<u32>,
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
        let user = LIBVIRT_USERS.iter().find_map(|name| User::from_name(name).ok().flatten())?;
        let name = CString::new(user.name.as_str()).ok()?;
        let groups = getgrouplist(&name, user.gid).unwrap_or_else(|_| vec![user.gid]);
        let groups = std::iter::once(user.gid).chain(groups).map(|group| group.as_raw());
        Some(Self { name: user.name, user: user.uid.as_raw(), groups: groups.collect() })
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
struct FileAccess {
    user: u32,
    group: u32,
    mode: u32,
}

/// Permission to write, and to search a directory.
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// Returns a warning if an account cannot connect to a socket, with the remedy.
pub fn warning(socket: &Path, account: &Account) -> Option<String> {
    let denied = |path: &Path, bits: u32| {
        let of = std::fs::metadata(path).ok()?;
        let access = FileAccess { user: of.uid(), group: of.gid(), mode: of.mode() & 0o777 };
        (!account.has(&access, bits)).then_some(access)
    };
    let mut directories: Vec<&Path> = socket.ancestors().skip(1).collect();
    directories.reverse();
    let directory = directories.into_iter().find_map(|path| Some((path, denied(path, SEARCH)?)));
    let (path, access) = directory.or_else(|| Some((socket, denied(socket, WRITE)?)))?;
    let (name, shown) = (&account.name, path.display());
    let group = account.groups.first().copied().unwrap_or_default();
    let remedy = if path == socket {
        format!(
            "give the port, or [daemon] for all ports, socket_group = \"{}\" (a group of {name})",
            group_name(group)
        )
    } else {
        format!("let {name} search the directory, or give the port a socket in another directory")
    };
    Some(format!(
        "User {name} cannot connect to {}: {shown} belongs to {}:{} with mode {:04o}; {remedy}.",
        socket.display(),
        user_name(access.user),
        group_name(access.group),
        access.mode,
    ))
}

/// Returns the name of a user, or its number.
fn user_name(user: u32) -> String {
    let found = User::from_uid(Uid::from_raw(user)).ok().flatten();
    found.map_or_else(|| user.to_string(), |user| user.name)
}

/// Returns the name of a group, or its number.
fn group_name(group: u32) -> String {
    let found = Group::from_gid(nix::unistd::Gid::from_raw(group)).ok().flatten();
    found.map_or_else(|| group.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn account(user: u32, groups: &[u32]) -> Account {
        Account { name: "guest-user".into(), user, groups: groups.to_vec() }
    }

    #[test]
    fn attach_warns_of_a_socket_that_the_user_cannot_reach() {
        let dir = std::env::temp_dir().join(format!("causeway-access-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let socket = dir.join("p.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let own = std::fs::metadata(&socket).unwrap();
        let (owner, group) = (own.uid(), own.gid());
        let (stranger, member) =
            (account(owner + 77, &[group + 77]), account(owner + 77, &[group]));
        set(&dir, 0o711);
        set(&socket, 0o660);
        let text = warning(&socket, &stranger).unwrap();
        assert!(text.contains("mode 0660") && text.contains("socket_group"), "{text}");
        assert_eq!(warning(&socket, &member), None);
        assert_eq!(warning(&socket, &account(owner, &[group + 77])), None);
        set(&socket, 0o606);
        assert!(warning(&socket, &member).is_some(), "the class of the group decides");
        set(&dir, 0o700);
        set(&socket, 0o666);
        let text = warning(&socket, &stranger).unwrap();
        assert!(text.contains("search the directory"), "{text}");
        assert_eq!(warning(&socket, &account(0, &[0])), None, "root passes every mode");
        assert_eq!(warning(&dir.join("missing"), &account(owner, &[group])), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
