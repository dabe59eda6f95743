//! Places at which this process finds NICs: sockets and adapters.
//!
//! `CAUSEWAY_MX` names them: `adapter`, `adapter:DEVICE` or `adapter:DEVICE:PORT` for an adapter of
//! this machine, `socket:PATH` or just paths for sockets, separated by colons. Without the
//! variable, these are all sockets `/run/causeway/mx*.sock` in sorted order, or, on a machine
//! without any, its active adapters. Only the first 64 sockets count ([`NICS_MAX`]). A value of
//! `CAUSEWAY_MX` is not checked here: a path without a socket, an unknown device and port 0 (any
//! number that cannot be read) fail when the NIC is used. A value with the first word `adapter`
//! names one adapter and nothing else.
//!
//! This module lists places and connects to none, keeps nothing, and blocks only for the file
//! system. [`nic`](crate::nic) calls it in the thread that lists NICs or opens an endpoint, and
//! chooses among several adapters the first through which a daemon answers, if any does.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::adapter::find_active;
use crate::limits::NICS_MAX;

/// Directory of the sockets, unless `CAUSEWAY_MX` lists them.
const DIRECTORY: &str = "/run/causeway";

/// The place of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket of this host.
    Socket(PathBuf),
    /// An adapter of this machine, which is a guest.
    Adapter {
        /// Name of the RDMA device; `None` for the first with an active port.
        device: Option<String>,
        /// Number of the port; `None` for the first that is active.
        port: Option<u8>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Adapter { device: None, .. } => f.write_str("adapter"),
            Self::Adapter { device: Some(device), port: None } => write!(f, "adapter {device}"),
            Self::Adapter { device: Some(device), port: Some(port) } => {
                write!(f, "adapter {device} port {port}")
            }
        }
    }
}

/// Returns the places in the value of `CAUSEWAY_MX`.
pub(crate) fn named(value: &OsStr) -> Vec<Place> {
    let text = value.to_str().unwrap_or_default();
    let mut words = text.split(':');
    if words.next() == Some("adapter") {
        let device = words.next().filter(|device| !device.is_empty()).map(str::to_owned);
        // No adapter has a port 0: an invalid number is reported when the NIC is used.
        let port = words.next().map(|port| port.parse().unwrap_or(0));
        return vec![Place::Adapter { device, port }];
    }
    let paths = value.as_bytes().strip_prefix(b"socket:").map_or(value, OsStr::from_bytes);
    std::env::split_paths(paths)
        .filter(|path| !path.as_os_str().is_empty())
        .take(NICS_MAX)
        .map(Place::Socket)
        .collect()
}

/// Returns the sockets in the default directory.
pub(crate) fn sockets() -> Vec<Place> {
    let is_nic = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("mx") && name.ends_with(".sock"))
    };
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_nic).collect();
    paths.sort();
    paths.truncate(NICS_MAX);
    paths.into_iter().map(Place::Socket).collect()
}

/// Returns the active adapters of this machine.
pub(crate) fn adapters() -> Vec<Place> {
    let all = find_active().into_iter();
    all.map(|(device, port)| Place::Adapter { device: Some(device), port: Some(port) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_the_variable_is_an_adapter_or_sockets() {
        let of = |text: &str| named(OsStr::new(text));
        let adapter = |device: Option<&str>, port| {
            vec![Place::Adapter { device: device.map(str::to_owned), port }]
        };
        let socket = |path: &str| Place::Socket(path.into());
        assert_eq!(of("adapter"), adapter(None, None));
        assert_eq!(of("adapter:mlx5_1"), adapter(Some("mlx5_1"), None));
        assert_eq!(of("adapter:mlx5_1:2"), adapter(Some("mlx5_1"), Some(2)));
        assert_eq!(of("socket:/a/mx0.sock"), [socket("/a/mx0.sock")]);
        assert_eq!(of("/a:/b:"), [socket("/a"), socket("/b")]);
        assert_eq!(of("./adapter"), [socket("./adapter")]);
        assert_eq!(of(""), []);
        assert_eq!(adapter(Some("mlx5_1"), Some(2))[0].to_string(), "adapter mlx5_1 port 2");
    }
}
