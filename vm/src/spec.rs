//! What a guest is made of.

use crate::limits::GUEST_MIB;
use std::path::PathBuf;

/// A guest to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSpec {
    /// Its name, in errors and on the QEMU process.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Network devices.
    pub nics: Vec<Nic>,
    /// The socket of its vsock port.
    pub vsock: Option<PathBuf>,
    /// Whether it may restart; one that may not ends when it tries.
    pub may_restart: bool,
    /// Whether its network devices connect again when their ports hang up.
    pub reconnects: bool,
    /// Whether its network devices offer packed rings (virtio 1.3, 2.8).
    pub packed: bool,
    /// The process whose network namespace (and user namespace) it runs in.
    pub namespace_of: Option<u32>,
    /// Where it can be told to leave for another process (QMP).
    pub monitor: Option<PathBuf>,
    /// It does not boot: it comes here from another process.
    pub incoming: Option<PathBuf>,
}

impl GuestSpec {
    /// A guest with no devices.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            memory_mib: GUEST_MIB,
            nics: Vec::new(),
            vsock: None,
            may_restart: false,
            reconnects: false,
            packed: false,
            namespace_of: None,
            monitor: None,
            incoming: None,
        }
    }

    /// Adds a network device.
    #[must_use]
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.push(nic);
        self
    }

    /// Gives it a vsock device on a port's socket.
    #[must_use]
    pub fn vsock(mut self, socket: PathBuf) -> Self {
        self.vsock = Some(socket);
        self
    }
}

/// A network device and the address the guest gives itself on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Where its frames go.
    pub backend: NicBackend,
    /// Its address on the wire, as `52:54:00:00:00:01`.
    pub mac: String,
    /// Address and prefix length, as `10.0.0.1/24`.
    pub address: String,
    /// Largest packet, in bytes.
    pub mtu: u16,
}

/// What carries a network device's frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicBackend {
    /// The socket of a Causeway port.
    VhostUser(PathBuf),
    /// A tap interface that exists in the guest's namespace.
    Tap(String),
}
