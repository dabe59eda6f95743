//! Directories that the daemon still reaches: Landlock, landlock(7).
//!
//! Ports and links may be added while the daemon runs, so that not only the configured paths are
//! open: sockets may be made where the host keeps its runtime files, and the host's configuration
//! may be read. `sandbox_paths` in `[daemon]` opens more.

use std::path::{Path, PathBuf};

use causeway_fabric::spec::PortSpec;
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

use crate::config::Config;

/// The newest rights that are handled; an older kernel handles fewer.
const NEWEST: ABI = ABI::V5;
/// Read for name resolution, accounts, keys, certificates and the state of the host.
const READ: [&str; 12] = [
    "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/run", "/srv", "/sys", "/usr",
    "/var/lib",
];
/// Sockets of ports that are added while the daemon runs may be made there.
const SOCKETS: [&str; 2] = ["/run", "/var/lib"];

/// Restricts the calling thread; false where this kernel has no Landlock.
pub fn restrict(config: &Config) -> Result<bool, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = read | AccessFs::MakeSock | AccessFs::MakeReg | AccessFs::RemoveFile;
    let write = sockets | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeDir;
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.create()?;
    let all = [(read, readable(config)), (sockets, of_sockets()), (write, writable(config))];
    for (access, paths) in all {
        for path in paths {
            // What is not there needs no rule; it is refused when it is made later.
            if let Ok(fd) = PathFd::new(&path) {
                let access = if path.is_dir() { access } else { of_file(access) };
                rules = rules.add_rule(PathBeneath::new(fd, access))?;
            }
        }
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

fn of_file(access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    access & AccessFs::from_file(NEWEST)
}

fn readable(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = READ.map(PathBuf::from).into();
    let vnet = [&config.vnet.file, &config.vnet.password_file];
    let links = config.links.iter().flat_map(|link| {
        [&link.certificate, &link.private_key, &link.authorities].into_iter().flatten()
    });
    let files = vnet.into_iter().flatten().chain(links).chain([&config.daemon.key_file]);
    // Their directories: a renewed file may replace the one that is there.
    paths.extend(files.filter_map(|file| parent(file)));
    paths
}

fn of_sockets() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SOCKETS.map(PathBuf::from).into();
    paths.push(std::env::temp_dir());
    paths
}

fn writable(config: &Config) -> Vec<PathBuf> {
    let daemon = &config.daemon;
    let mut paths = vec![daemon.run_dir.clone()];
    paths.extend(parent(&daemon.control));
    paths.extend(config.ports.iter().flat_map(PortSpec::paths).filter_map(parent));
    paths.extend(daemon.sandbox_paths.iter().cloned());
    paths
}

fn parent(path: &Path) -> Option<PathBuf> {
    path.parent().map(Path::to_owned)
}
