//! Whether the user who runs a VMM can connect to the socket of a port.
//!
//! A connect needs write permission of the socket, and search permission of each directory above
//! it. [`warning`] compares owner, group and mode with an [`Account`]: that of this process, or
//! libvirt's user for guests. It reads metadata and the databases of users and groups, and connects
//! to nothing. Access lists, namespaces, AppArmor and SELinux are not considered, and a socket that
//! does not exist or cannot be examined gives no warning: the port may belong to a daemon of
//! another mount namespace.
//!
//! [`super::attach`] calls [`warning`] for each socket at which the daemon listens; a warning
//! becomes a note of the output and refuses nothing. Without a user of libvirt on this host,
//! `--for libvirt` has no such warnings. Sockets of ports of kind `stream` and `dgram` are not
//! examined. Nothing is cached.

use std::path::Path;

use nix::unistd::{Group, Uid, User};

use crate::account::Account;

/// Returns a warning if an account cannot connect to a socket, with the remedy.
pub fn warning(socket: &Path, account: &Account) -> Option<String> {
    let (path, access) = account.obstacle(socket)?;
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
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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
