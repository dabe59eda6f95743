//! Access to the sockets of a port: owner, group and permissions of the files, the users that may
//! use them, and the side that connects.
//!
//! Values only: [`SocketAccess`] is a part of [`PortSpec`](crate::PortSpec), read from the
//! configuration file or the control socket; the daemon resolves account names and applies owner,
//! group and mode after the fabric has bound the socket. [`SocketAccess::check`] checks the form of
//! a name (1 to [`ACCOUNT_BYTES_MAX`] (64) printable ASCII characters without `:` and `/`) and not
//! that the account exists. If the daemon cannot apply the access of a port or host socket, for
//! example because an account is unknown, it deletes the port again and refuses its addition. A
//! mode is octal with a leading zero, at most `0777`; access lists and the directory's permissions
//! are not managed. The types are read and checked in the thread that reads the table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SpecError;
use crate::limits::{ACCOUNT_BYTES_MAX, ALLOWED_USERS_MAX};

/// Permission bits of a socket, written in octal: `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileMode(pub u32);

impl FromStr for FileMode {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if text.len() == 4 && text.starts_with('0') => Ok(Self(mode)),
            _ => Err(SpecError(format!(
                "mode {text:?}: expected four octal digits, 0000 to 0777, as 0660"
            ))),
        }
    }
}

impl TryFrom<String> for FileMode {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<FileMode> for String {
    fn from(mode: FileMode) -> String {
        mode.to_string()
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Owner, group and permissions of one socket; `None` means those of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketPermissions {
    /// A user, by name or number.
    pub owner: Option<String>,
    /// A group, by name or number.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<FileMode>,
}

/// The access keys of one port. Without a key, the owner is the daemon's user, and group and mode
/// are those of `socket_group` and `socket_mode` in `[daemon]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketAccess {
    /// Owner of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<String>,
    /// Group of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<String>,
    /// Permission bits of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<FileMode>,
    /// Owner of the host socket of a vsock port; by default that of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_owner: Option<String>,
    /// Group of the host socket; by default that of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_group: Option<String>,
    /// Permission bits of the host socket; by default those of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_mode: Option<FileMode>,
    /// Users whose processes may use the port's socket; `None` admits all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_users: Option<Vec<String>>,
    /// Users whose processes may use the host socket; by default those of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_allowed_users: Option<Vec<String>>,
    /// Whether the daemon connects to the port's socket, at which the VMM listens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connect: bool,
    /// Numbers of the users in both lists.
    #[serde(skip)]
    pub user_ids: UserIds,
}

/// Numbers of users by name, as the daemon looked them up. They follow from the names: values with
/// different numbers are equal.
#[derive(Debug, Clone, Default)]
pub struct UserIds(Vec<(String, u32)>);

impl PartialEq for UserIds {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for UserIds {}

impl SocketAccess {
    /// Returns the access of the port's socket.
    pub fn of_socket(&self) -> SocketPermissions {
        SocketPermissions {
            owner: self.socket_owner.clone(),
            group: self.socket_group.clone(),
            mode: self.socket_mode,
        }
    }

    /// Returns the access of the host socket, with the port's values where it has none of its own.
    pub fn of_host_socket(&self) -> SocketPermissions {
        let Self { host_socket_owner: owner, host_socket_group: group, .. } = self.clone();
        let socket = self.of_socket();
        SocketPermissions {
            owner: owner.or(socket.owner),
            group: group.or(socket.group),
            mode: self.host_socket_mode.or(socket.mode),
        }
    }

    /// Looks up the numbers of all users in the lists.
    ///
    /// # Errors
    /// The error of `find`.
    pub fn resolve_users(
        &mut self,
        find: impl Fn(&str) -> Result<u32, String>,
    ) -> Result<(), String> {
        let lists = self.allowed_users.iter().chain(&self.host_allowed_users);
        let found: Result<_, String> =
            lists.flatten().map(|name| Ok((name.clone(), find(name)?))).collect();
        self.user_ids = UserIds(found?);
        Ok(())
    }

    /// Returns the numbers of the users that may use the port's socket; `None` admits all.
    pub fn socket_users(&self) -> Option<Vec<u32>> {
        self.allowed_users.as_deref().map(|names| self.ids(names))
    }

    /// Returns the numbers of the users that may use the host socket; `None` admits all.
    pub fn host_socket_users(&self) -> Option<Vec<u32>> {
        self.host_allowed_users
            .as_deref()
            .map_or_else(|| self.socket_users(), |names| Some(self.ids(names)))
    }

    /// Returns the numbers of `names`. A name that was not looked up admits no user, unless it is a
    /// number.
    fn ids(&self, names: &[String]) -> Vec<u32> {
        let known = |name: &String| {
            let found = self.user_ids.0.iter().find(|(known, _)| known == name);
            found.map(|(_, id)| *id).or_else(|| name.parse().ok())
        };
        names.iter().filter_map(known).collect()
    }

    /// Checks the names of users and groups, and the lists of users.
    ///
    /// # Errors
    /// A name is empty, has more than 64 bytes, or contains a character that is invalid in account
    /// names; a list is empty or has more than [`ALLOWED_USERS_MAX`] (64) users.
    pub fn check(&self) -> Result<(), SpecError> {
        let names = [
            ("socket_owner", &self.socket_owner),
            ("socket_group", &self.socket_group),
            ("host_socket_owner", &self.host_socket_owner),
            ("host_socket_group", &self.host_socket_group),
        ];
        for (key, name) in names {
            if let Some(Err(text)) = name.as_deref().map(check_account) {
                return Err(SpecError(format!("{key} {text}")));
            }
        }
        let lists = [
            ("allowed_users", &self.allowed_users),
            ("host_allowed_users", &self.host_allowed_users),
        ];
        for (key, list) in lists {
            let Some(users) = list else { continue };
            if users.is_empty() || users.len() > ALLOWED_USERS_MAX {
                return Err(SpecError(format!(
                    "{key}: {} users: expected 1 to {ALLOWED_USERS_MAX}; without the key all users \
                     are admitted that the permissions of the socket admit",
                    users.len()
                )));
            }
            if let Some(text) = users.iter().find_map(|user| check_account(user).err()) {
                return Err(SpecError(format!("{key} {text}")));
            }
        }
        Ok(())
    }
}

/// Checks the form of the name or number of a user or a group; the account need not exist.
///
/// # Errors
/// The name is malformed; the text states the expected form.
pub(crate) fn check_account(text: &str) -> Result<(), String> {
    let is_plain = |b: u8| b.is_ascii_graphic() && b != b':' && b != b'/';
    if (1..=ACCOUNT_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{text:?}: expected the name or the number of an account, 1 to {ACCOUNT_BYTES_MAX} \
         characters"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_access_of_the_host_socket_falls_back_to_the_port() {
        let access = SocketAccess {
            socket_owner: Some("a".into()),
            socket_mode: Some(FileMode(0o600)),
            host_socket_owner: Some("b".into()),
            ..SocketAccess::default()
        };
        let host = access.of_host_socket();
        assert_eq!(
            (host.owner.as_deref(), host.group, host.mode),
            (Some("b"), None, Some(FileMode(0o600)))
        );
        assert!(access.check().is_ok());
        for bad in ["", "a:b", "a b", "../x"] {
            let access = SocketAccess { socket_owner: Some(bad.into()), ..SocketAccess::default() };
            assert!(access.check().unwrap_err().0.contains("socket_owner"));
        }
    }

    #[test]
    fn socket_users_of_the_host_socket_fall_back_to_the_port() {
        let list = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
        let mut access =
            SocketAccess { allowed_users: list(&["qemu", "7"]), ..SocketAccess::default() };
        assert_eq!(access.socket_users(), Some(vec![7]), "an unknown name admits no user");
        access.resolve_users(|name| name.parse().or(Ok(107))).unwrap();
        assert_eq!(access.socket_users(), Some(vec![107, 7]));
        assert_eq!(access.host_socket_users(), access.socket_users());
        access.host_allowed_users = list(&["9"]);
        assert_eq!(access.host_socket_users(), Some(vec![9]));
        assert!(access.resolve_users(|name| Err(name.to_owned())).is_err());
        assert_eq!(SocketAccess::default().host_socket_users(), None);
        for wrong in [list(&[]), list(&["a:b"]), list(&vec!["1"; 65])] {
            let access = SocketAccess { allowed_users: wrong, ..SocketAccess::default() };
            assert!(access.check().unwrap_err().0.contains("allowed_users"));
        }
    }

    #[test]
    fn socket_modes_are_octal() {
        assert_eq!("0660".parse::<FileMode>().unwrap(), FileMode(0o660));
        assert_eq!(FileMode(0o7).to_string(), "0007");
        for bad in ["660", "0x1", "01000", "08", "", "0", "000660", "0+66", "0689"] {
            assert!(bad.parse::<FileMode>().is_err(), "{bad}");
        }
    }
}
