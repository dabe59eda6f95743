//! Numbers of users and groups of the host by name, from the sources of nsswitch.conf(5): local
//! files and directory services.
//!
//! A lookup may load a module of the C library and connect to a service of the host (sssd,
//! systemd-userdbd, nslcd, winbindd). [`resolve_ahead`] therefore looks up the names of the
//! configuration before the sandbox is entered, and keeps the numbers until the process ends: a
//! later change of such an account has no effect. Names that were not found, those of the state
//! file and those that are given later are looked up inside the sandbox, each time. The sandbox
//! allows Unix sockets, and reading below /etc, /run, /usr and /var/lib. If a module needs more,
//! the lookup fails, and the operator gives the number. A text of digits is a number and is not
//! looked up.
//!
//! A lookup blocks its thread for as long as the directory service takes; there is no time limit
//! and no negative cache. [`resolve_ahead`] keeps the numbers of its first call; a second call has
//! no effect. A static build with musl has no modules: it reads /etc/passwd and /etc/group, and
//! asks nscd if that runs.
//!
//! [`crate::run`] resolves ahead, and [`crate::lifecycle`] asks for the groups of `[daemon]`, both
//! on the main thread; so does `causewayd --check-config`. [`crate::fabric::SocketOwner`] asks for
//! the owners, groups and `allowed_users` of a port in the thread that adds the port.

use std::collections::HashMap;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::unistd::{Group, User};

/// Numbers of the names in the configuration.
#[derive(Debug, Default)]
struct Resolved {
    users: HashMap<String, u32>,
    groups: HashMap<String, u32>,
}

/// Set once by [`resolve_ahead`].
static RESOLVED: OnceLock<Resolved> = OnceLock::new();

/// Looks up users and groups and keeps the numbers that are found, for the life of the process.
/// Must be called once, before the sandbox is entered. A name that is not found is looked up again
/// when its number is needed.
pub fn resolve_ahead<'a>(
    users: impl Iterator<Item = &'a str>,
    groups: impl Iterator<Item = &'a str>,
) {
    let keep = |names: &mut dyn Iterator<Item = &'a str>, find: fn(&str) -> Result<u32, String>| {
        names.filter_map(|name| Some((name.to_owned(), find(name).ok()?))).collect()
    };
    let found = Resolved {
        users: keep(&mut { users }, find_user),
        groups: keep(&mut { groups }, find_group),
    };
    RESOLVED.get_or_init(|| found);
}

/// Returns the number of a group, by name, or the number itself.
///
/// # Errors
/// No source has the name, or a source fails: a sentence with the remedy.
pub fn group_id(name: &str) -> Result<u32, String> {
    match RESOLVED.get().and_then(|all| all.groups.get(name)) {
        Some(number) => Ok(*number),
        None => find_group(name),
    }
}

/// Returns the number of a user, by name, or the number itself.
///
/// # Errors
/// As for [`group_id`].
pub fn user_id(name: &str) -> Result<u32, String> {
    match RESOLVED.get().and_then(|all| all.users.get(name)) {
        Some(number) => Ok(*number),
        None => find_user(name),
    }
}

/// Looks a group up, or parses its number.
fn find_group(name: &str) -> Result<u32, String> {
    find("group", name, || Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
}

/// Looks a user up, or parses its number.
fn find_user(name: &str) -> Result<u32, String> {
    find("user", name, || Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

/// Parses a number, or calls `lookup`. `kind` is `user` or `group`, for the error.
fn find(
    kind: &str,
    name: &str,
    lookup: impl FnOnce() -> Result<Option<u32>, Errno>,
) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match lookup() {
        Ok(Some(number)) => Ok(number),
        // Some sources return these errors for an unknown name, getgrnam(3).
        Ok(None) | Err(Errno::ENOENT | Errno::ESRCH) => {
            Err(format!("this host has no {kind} {name:?}; add it with: {kind}add {name}"))
        }
        Err(error) => Err(format!(
            "cannot look up {kind} {name:?}: {}; give its number instead",
            error.desc()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        assert_eq!((user_id("root"), group_id("root")), (Ok(0), Ok(0)));
        assert_eq!((user_id("78"), group_id("77")), (Ok(78), Ok(77)));
        assert!(user_id("no-such-user-here").unwrap_err().contains("useradd"));
        assert!(group_id("no-such-group-here").unwrap_err().contains("groupadd"));
        assert!(user_id("nul\0inside").unwrap_err().contains("useradd"));
    }

    #[test]
    fn accounts_of_a_source_that_fails_name_the_remedy() {
        let failed = find("group", "vm", || Err(Errno::EIO)).unwrap_err();
        assert!(failed.contains("I/O error") && failed.contains("number"), "{failed}");
        let absent = find("group", "vm", || Err(Errno::ENOENT)).unwrap_err();
        assert!(absent.contains("groupadd vm"), "{absent}");
    }

    #[test]
    fn accounts_of_the_configuration_are_kept_and_others_are_looked_up() {
        resolve_ahead(["root"].into_iter(), ["root", "no-such-group-here"].into_iter());
        let kept = RESOLVED.get().unwrap();
        assert_eq!(kept.users.get("root"), Some(&0));
        assert_eq!(kept.groups.len(), 1);
        assert_eq!(user_id("79"), Ok(79));
    }
}
