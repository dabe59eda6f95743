//! Configuration of a guest: name, memory, network devices, vsock device, PCI functions and
//! options.
//!
//! Tests, the demo and [`crate::rdma`] fill a [`GuestSpec`] (or take it from
//! [`crate::Daemon::guest`]); [`crate::qemu`] or [`crate::uml`] turns it into a command line when
//! [`crate::guest`] starts the guest, which also sets the addresses of the network devices and
//! checks their MTU. The values are plain data and are not checked: QEMU refuses impossible ones,
//! on its console. A clone of a spec may be used for another guest. User-mode Linux ignores devices
//! and options that it does not have, without an error ([`crate::uml`]).

use crate::limits::GUEST_MIB;
use std::path::PathBuf;

/// A guest to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSpec {
    /// Its name, in errors and of the QEMU process.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Network devices.
    pub nics: Vec<Nic>,
    /// Socket of its vsock port.
    pub vsock: Option<PathBuf>,
    /// Sockets of its PCI functions, by vfio-user: QEMU 10.1 or later.
    pub functions: Vec<PathBuf>,
    /// Whether the functions are behind ports from which the monitor can unplug them, as
    /// `function0` and so on.
    pub unpluggable: bool,
    /// Whether it may restart; otherwise a reboot ends it.
    pub may_restart: bool,
    /// Whether its network devices reconnect after their ports close the connection.
    pub reconnects: bool,
    /// Whether its network devices offer packed rings (virtio 1.3, 2.8).
    pub packed: bool,
    /// The process in the network namespace (and user namespace) of which the VMM runs.
    pub namespace_of: Option<u32>,
    /// Socket of its monitor (QMP), through which it can migrate.
    pub monitor: Option<PathBuf>,
    /// Socket of an incoming migration; the guest does not boot.
    pub incoming: Option<PathBuf>,
}

impl GuestSpec {
    /// Creates a guest with no devices.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            memory_mib: GUEST_MIB,
            nics: Vec::new(),
            vsock: None,
            functions: Vec::new(),
            unpluggable: false,
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

    /// Adds a vsock device on a port's socket.
    #[must_use]
    pub fn vsock(mut self, socket: PathBuf) -> Self {
        self.vsock = Some(socket);
        self
    }

    /// Adds a PCI function on a vfio-user socket, which must be listening when the guest starts.
    #[must_use]
    pub fn function(mut self, socket: PathBuf) -> Self {
        self.functions.push(socket);
        self
    }
}

/// A network device and the guest's address on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Backend of its frames.
    pub backend: NicBackend,
    /// Its MAC address, as `52:54:00:00:00:01`.
    pub mac: String,
    /// Address and prefix length, as `10.0.0.1/24`.
    pub address: String,
    /// Largest packet, in bytes.
    pub mtu: u16,
}

/// Backend of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicBackend {
    /// The socket of a Causeway port.
    VhostUser(PathBuf),
    /// A tap interface that exists in the guest's namespace.
    Tap(String),
    /// A backend of QEMU, as `-netdev` has it, without `id`.
    Qemu(String),
}
