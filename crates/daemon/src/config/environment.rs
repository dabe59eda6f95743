//! Checks whether this host has the files, CPUs and accounts of a configuration, without changing
//! anything.
//!
//! An error is a finding with which the daemon does not start; a warning is a missing key file,
//! certificate or interface of an object of a section, with which it starts and leaves the object
//! down. Files of the configuration are opened and closed, not read, except the VNET password. Of
//! accounts only `control_group` and `socket_group` are checked, not those of ports; of interfaces
//! only those of sections, not those of MX ports. Directories of sockets, addresses in use,
//! privileges and memory are not checked, and the host can change afterwards.
//!
//! `causewayd --check-config` calls [`Config::check_host`], in the main thread; a normal start does
//! not, and reports the same errors where they occur.

use std::fs::File;
use std::path::Path;

use super::Config;
use crate::accounts::group_id;
use crate::vnet::password::Password;
use causeway_model::HostNeed;

/// The results of the check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HostFindings {
    /// Problems because of which the daemon does not start.
    pub errors: Vec<String>,
    /// Missing files and interfaces because of which an object stays down.
    pub warnings: Vec<String>,
}

impl Config {
    /// Checks the requirements of the configuration on this host.
    pub fn check_host(&self) -> HostFindings {
        let mut found = HostFindings::default();
        let daemon = &self.daemon;
        for (key, name) in
            [("control_group", &daemon.control_group), ("socket_group", &daemon.socket_group)]
        {
            if let Some(Err(text)) = name.as_deref().map(group_id) {
                found.errors.push(format!("[daemon]: key {key:?}: {text}"));
            }
        }
        let present = present_cpus();
        let absent = daemon
            .dispatch
            .cpus
            .iter()
            .filter(|cpu| present.as_ref().is_some_and(|present| !present.contains(cpu)));
        for cpu in absent {
            found.errors.push(format!("[dispatch]: key \"cpus\": this host has no CPU {cpu}"));
        }
        if let (Some(_), Some(file)) = (&self.control.vnet_listen, &self.control.vnet_password_file)
            && let Err(text) = Password::load(file)
        {
            found.errors.push(format!("[control]: key \"vnet_password_file\": {text}"));
        }
        if let Some(file) = &self.control.vnet_file
            && let Err(error) = File::open(file)
        {
            found.errors.push(format!("[control]: key \"vnet_file\": {}: {error}", file.display()));
        }
        let missing = self.needs().filter_map(|(what, need)| {
            let text = problem(&need)?;
            Some(format!("{what}: {text}"))
        });
        found.warnings.extend(missing);
        found
    }
}

/// Returns the problem of a part of the host that is missing.
fn problem(need: &HostNeed) -> Option<String> {
    match need {
        HostNeed::File { key, path } => {
            let error = File::open(path).err()?;
            Some(format!("key {key:?}: {}: {error}", path.display()))
        }
        HostNeed::Interface { key, name } => {
            let is_there = Path::new("/sys/class/net").join(name).exists();
            (!is_there).then(|| format!("key {key:?}: this host has no interface {name}"))
        }
    }
}

/// Returns the online CPUs of this host, or `None` if the kernel does not list them.
fn present_cpus() -> Option<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}
