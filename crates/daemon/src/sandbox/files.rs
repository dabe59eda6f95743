//! Directories that the daemon can reach: Landlock, landlock(7).
//!
//! Files and sockets may be created, read, written and removed below the run directory, below the
//! directories of the control socket, the state file and the ports' sockets, and below
//! `sandbox_paths` of `[daemon]`. Ports and links may be added while the daemon runs. The rules
//! therefore permit more than the configured paths: sockets and files may be created and removed,
//! but not written, where hosts keep runtime files ([`SOCKETS`] and the temporary directory); the
//! host's files below [`READ`] may be read; and the driver of TAP interfaces may be opened.
//!
//! In a chain of symbolic links to a file of the configuration, the directories of the first
//! `SYMLINKS_MAX` (8) paths are permitted: the file is found behind at most 7 links. A link in a
//! component before the last directory is followed as it is at the start. Rules are bound to
//! directories that exist now, and a path that does not exist gets no rule: a directory that is
//! created later below no permitted directory is unreachable until a restart. Permissions of the
//! file system still apply. Landlock checks opening, not descriptors that are open or received:
//! files of guests' memory are not affected. Connecting to a Unix socket is not restricted. A
//! kernel with an older ABI than [`NEWEST`] handles fewer access rights.
//!
//! `super::Sandbox` calls [`restrict`] on the main thread, after privileges were dropped and before
//! the system call filter. Threads that start later inherit the rules; only the holder's starter
//! may run already, and stays outside. A kernel without Landlock is a warning in the log, and an
//! error ends the start of the daemon.

use std::path::{Path, PathBuf};

use causeway_model::{HostNeed, PortSpec};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

use crate::config::Config;
use crate::limits::{HOLDER_DEPTH_MIN, SYMLINKS_MAX};

/// The newest access rights that are handled; an older kernel handles fewer.
const NEWEST: ABI = ABI::V5;
/// Read for name resolution, accounts, keys, certificates and the state of the host.
const READ: [&str; 12] = [
    "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/run", "/srv", "/sys", "/usr",
    "/var/lib",
];
/// Files of the C library's resolver, which hosts replace by symbolic links to other directories.
const RESOLVER: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];
/// The driver of TAP interfaces, for ports of kind `tap`, which may be added while the daemon runs.
const TAP_DRIVER: &str = "/dev/net/tun";
/// Directories for sockets of ports that are added while the daemon runs.
const SOCKETS: [&str; 2] = ["/run", "/var/lib"];

/// Restricts the calling thread. Returns false if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses the rules.
pub fn restrict(config: &Config, file: &Path) -> Result<bool, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = read | AccessFs::MakeSock | AccessFs::MakeReg | AccessFs::RemoveFile;
    let write = sockets | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeDir;
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let all = [
        (read, readable(config, file)),
        (sockets, of_sockets()),
        (write, writable(config)),
        (device, vec![PathBuf::from(TAP_DRIVER)]),
    ];
    for (access, paths) in all {
        for path in paths {
            // A path that does not exist gets no rule; access is refused if it is created later.
            if let Ok(fd) = PathFd::new(&path) {
                let access = if path.is_dir() { access } else { of_file(access) };
                rules = rules.add_rule(PathBeneath::new(fd, access))?;
            }
        }
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the rights that apply to a file that is no directory.
fn of_file(access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    access & AccessFs::from_file(NEWEST)
}

/// Returns the paths to read: of the host, of the configuration file, and of its keys and
/// certificates.
fn readable(config: &Config, file: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = READ.map(PathBuf::from).into();
    let vnet = [&config.control.vnet_file, &config.control.vnet_password_file];
    let of_objects: Vec<PathBuf> = config
        .needs()
        .filter_map(|(_, need)| match need {
            HostNeed::File { path, .. } => Some(path),
            HostNeed::Interface { .. } => None,
        })
        .collect();
    let files = vnet.into_iter().flatten().chain(&of_objects).chain([&config.daemon.key_file]);
    let files = files.map(PathBuf::as_path).chain(RESOLVER.map(Path::new)).chain([file]);
    paths.extend(files.flat_map(directories));
    paths
}

/// Returns the directories through which a file is reached, now and after the file was renewed.
///
/// A Landlock rule is bound to the opened inode. A rule for the file itself becomes void when
/// another file is renamed over it. Directories stay: that of the file, and if the file is a
/// symbolic link (`live/cert.pem -> ../archive/cert1.pem`), those of each link and of its target.
/// Of a file in `/`, only the file itself can be read, and not after it was renewed.
/// If the directory itself is a link (`current -> releases/1`), its next target is another
/// directory: the directories that contain the link and the target are added.
fn directories(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = file.to_owned();
    for _ in 0..SYMLINKS_MAX {
        let Some(dir) = parent(&at) else { break };
        found.extend(link_directories(&dir));
        let target = std::fs::read_link(&at).map(|target| dir.join(target));
        // A rule for `/` would permit everything.
        found.push(if is_root(&dir) { at } else { dir });
        match target {
            Ok(target) => at = target,
            Err(_) => break,
        }
    }
    found
}

/// Returns whether a path leads to `/`.
fn is_root(path: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|path| path == Path::new("/"))
}

/// Returns the directories that contain a symbolic link to a directory and its target. `/` and its
/// direct entries are omitted, because they would permit too much.
fn link_directories(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = dir.to_owned();
    for _ in 0..SYMLINKS_MAX {
        let Ok(target) = std::fs::read_link(&at) else { break };
        let Some(holder) = parent(&at) else { break };
        let target = holder.join(target);
        found.extend([Some(holder), parent(&target)].into_iter().flatten());
        at = target;
    }
    found.retain(|dir| {
        std::fs::canonicalize(dir).is_ok_and(|dir| dir.components().count() >= HOLDER_DEPTH_MIN)
    });
    found
}

/// Returns the directories in which sockets may be created and removed.
fn of_sockets() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SOCKETS.map(PathBuf::from).into();
    paths.push(std::env::temp_dir());
    paths
}

/// Returns the directories of the configuration in which files may be written.
fn writable(config: &Config) -> Vec<PathBuf> {
    let daemon = &config.daemon;
    let mut paths = vec![daemon.run_dir.clone()];
    paths.extend(parent(&daemon.control));
    paths.extend(parent(&daemon.state_file));
    paths.extend(config.ports.iter().flat_map(PortSpec::paths).filter_map(parent));
    paths.extend(daemon.sandbox_paths.iter().cloned());
    paths
}

/// Returns the directory of a path; `None` for `/`.
fn parent(path: &Path) -> Option<PathBuf> {
    path.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dir(name: &str) -> PathBuf {
        let name = format!("causeway-files-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::canonicalize(dir).unwrap()
    }

    fn found(file: &Path) -> Vec<PathBuf> {
        let found = directories(file);
        found.iter().filter_map(|dir| std::fs::canonicalize(dir).ok()).collect()
    }

    #[test]
    fn sandbox_reads_the_directories_of_links_and_of_their_targets() {
        let dir = dir("links");
        for sub in ["live/host", "archive/host", "releases/1"] {
            std::fs::create_dir_all(dir.join(sub)).unwrap();
        }
        symlink("../../archive/host/cert1.pem", dir.join("live/host/cert.pem")).unwrap();
        let live = found(&dir.join("live/host/cert.pem"));
        assert_eq!(live, [dir.join("live/host"), dir.join("archive/host")]);
        symlink("releases/1", dir.join("current")).unwrap();
        let current = found(&dir.join("current/cert.pem"));
        assert_eq!(current, [dir.clone(), dir.join("releases"), dir.join("releases/1")]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn sandbox_permits_no_directory_near_the_root() {
        let dir = dir("root");
        symlink("/", dir.join("root")).unwrap();
        symlink("/proc", dir.join("proc")).unwrap();
        assert_eq!(found(&dir.join("proc/cpuinfo")), [dir.clone(), PathBuf::from("/proc")]);
        assert_eq!(directories(Path::new("/key")), [PathBuf::from("/key")]);
        symlink("/key", dir.join("key")).unwrap();
        assert_eq!(directories(&dir.join("key")), [dir.clone(), PathBuf::from("/key")]);
        // A loop of links ends.
        symlink("loop", dir.join("loop")).unwrap();
        assert!(found(&dir.join("loop")).len() <= SYMLINKS_MAX);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
