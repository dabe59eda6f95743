//! Checks of access: the sockets of ports for QEMU's user, AppArmor, and the keys of links.
//!
//! [`super::examine`] calls the three checks, once in a run. They read metadata and files, connect
//! to nothing and change nothing; permissions are judged by mode, owner and group alone. A key file
//! that this user may not examine is skipped, and a socket of which nothing can be read is no
//! obstacle. The check of AppArmor searches the path as text in libvirt's profile.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use super::{DaemonState, Finding};
use crate::account::Account;
use crate::view::endpoint;

/// Checks whether the sockets of ports exist, and whether QEMU's user reaches them.
pub fn sockets(state: &DaemonState, user: Option<&str>) -> Vec<Finding> {
    let found = match user {
        Some(name) => match Account::of(name) {
            Some(account) => Some(account),
            None => {
                let text = format!("user {name} does not exist: access to sockets is not checked");
                return vec![Finding::fail("sockets", text, "name the user of QEMU with --user")];
            }
        },
        None => Account::of_libvirt(),
    };
    let user = found.as_ref().map_or_else(|| "this user".into(), |a| format!("user {}", a.name));
    let account = found.unwrap_or_else(Account::current);
    let (mut findings, mut checked) = (Vec::new(), 0_usize);
    for port in &state.ports {
        let (Some(name), Some(socket)) = (port.spec.text("name"), port.spec.text("socket")) else {
            continue;
        };
        // The peer makes the socket of a port that connects; other ports have an address instead.
        if port.spec.0.get("connect") == Some(&true.into()) || endpoint(&port.spec) != socket {
            continue;
        }
        checked = checked.saturating_add(1);
        let path = Path::new(socket);
        match std::fs::symlink_metadata(path) {
            Ok(file) if file.file_type().is_socket() => {}
            Ok(_) => {
                let text = format!("port {name}: {socket} is no socket");
                let remedy = format!("move the file away and add the port again: {socket}");
                findings.push(Finding::fail("sockets", text, remedy));
                continue;
            }
            // Without access to the directory, the next check names it.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                let text = format!("port {name}: {socket}: {error}: no guest can attach");
                let remedy = format!("add the port again: causeway port del {name}, then port add");
                findings.push(Finding::fail("sockets", text, remedy));
                continue;
            }
        }
        if let Some((at, _)) = account.obstacle(path) {
            let at = at.display();
            let text = format!("port {name}: {user} has no access to {at}");
            let remedy = "give the group of QEMU's user in socket_group of [daemon] or of the port \
                          (socket_mode is then 0660), and let others search the directories";
            findings.push(Finding::fail("sockets", text, remedy));
        }
    }
    if findings.is_empty() {
        let text = format!("{checked} sockets are there, and {user} reaches them");
        findings.push(Finding::ok("sockets", text));
    }
    findings
}

/// Checks whether AppArmor permits libvirt's guests to use the sockets.
pub fn apparmor(run_dir: &str) -> Finding {
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    if !enabled.is_ok_and(|text| text.trim() == "Y") {
        return Finding::ok("apparmor", "not in use");
    }
    let profile = "/etc/apparmor.d/abstractions/libvirt-qemu";
    if !Path::new(profile).exists() {
        return Finding::ok("apparmor", "in use, without profiles of libvirt");
    }
    let local = "/etc/apparmor.d/local/abstractions/libvirt-qemu";
    let permits = |file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(run_dir));
    if permits(profile) || permits(local) {
        return Finding::ok("apparmor", format!("libvirt's profile names {run_dir}"));
    }
    Finding::warn(
        "apparmor",
        format!("libvirt's profile does not name {run_dir}: its guests may not reach the sockets"),
        format!("add the line `{run_dir}/** rw,` to {local}, and start the guests again"),
    )
}

/// Checks the files of links' private keys.
pub fn keys(state: &DaemonState) -> Vec<Finding> {
    let daemon = std::fs::metadata(format!("/proc/{}", state.info.pid)).map(|file| file.uid());
    let mut files: Vec<&str> =
        state.links.iter().filter_map(|link| link.spec.text("private_key")).collect();
    files.sort_unstable();
    files.dedup();
    files.into_iter().map(|file| key(file, daemon.as_ref().ok().copied())).collect()
}

/// Checks one key file, which the user `daemon` must read and no other user may.
fn key(file: &str, daemon: Option<u32>) -> Finding {
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("{file} does not exist: its links are down");
            return Finding::fail("keys", text, format!("causeway key generate --out {file}"));
        }
        Err(error) => return Finding::skipped("keys", format!("{file}: {error}")),
    };
    let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
    if mode & 0o007 != 0 {
        let text = format!("{file} has mode {mode:04o}: every user of this host can read the key");
        let remedy = format!("chmod 0600 {file}; then make a new key, as this one may be known");
        return Finding::fail("keys", text, remedy);
    }
    if let Some(daemon) =
        daemon.filter(|daemon| *daemon != owner && *daemon != 0 && mode & 0o040 == 0)
    {
        let text =
            format!("{file} belongs to user {owner}: causewayd (user {daemon}) cannot read it");
        return Finding::fail("keys", text, format!("chown {daemon} {file}"));
    }
    Finding::ok("keys", format!("{file} has mode {mode:04o}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::Severity;

    /// Makes a directory of this test.
    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("causeway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn doctor_finds_the_directory_or_socket_that_a_user_cannot_use() {
        let dir = folder("doctor-sockets");
        let socket = dir.join("port.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let group = std::fs::metadata(&socket).unwrap().gid();
        let stranger = Account { name: "x".into(), user: 4_000_000, groups: vec![4_000_000] };
        let member = Account { groups: vec![group], ..stranger.clone() };
        let obstacle = |of: &Account| of.obstacle(&socket).map(|(path, _)| path.to_owned());
        set_mode(&dir, 0o755);
        set_mode(&socket, 0o660);
        assert_eq!((obstacle(&stranger), obstacle(&member)), (Some(socket.clone()), None));
        set_mode(&dir, 0o750);
        assert_eq!((obstacle(&stranger), obstacle(&member)), (Some(dir.clone()), None));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn doctor_finds_keys_that_are_missing_or_open_to_others() {
        let dir = folder("doctor-keys");
        let file = dir.join("key");
        let name = file.to_str().unwrap();
        let found = || key(name, Some(0)).severity;
        assert_eq!(found(), Severity::Fail);
        std::fs::write(&file, "x").unwrap();
        set_mode(&file, 0o600);
        assert_eq!(found(), Severity::Ok);
        let owner = std::fs::metadata(&file).unwrap().uid();
        assert_eq!(key(name, Some(owner + 1)).severity, Severity::Fail);
        set_mode(&file, 0o644);
        assert_eq!(found(), Severity::Fail);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
