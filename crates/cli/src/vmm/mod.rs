//! How a guest of each supported VMM attaches to ports.
//!
//! A [`Machine`] has the devices of a guest in a form that no VMM shares ([`device`]), and the size
//! of its memory. [`attach`] turns it into an [`Attachment`]: arguments of QEMU, Cloud Hypervisor
//! or crosvm, XML of libvirt, or calls of libkrun in C, each from a module of its own. The memory
//! options appear once for all devices. A device that a VMM lacks is refused, with the alternative;
//! then there is no output for the other devices either.
//!
//! A port of kind `stream` or `dgram` has no shared memory, and one peer: [`attach_frames`] makes
//! its options ([`frames`]), also for vfkit, krunkit and passt. For a port of kind `tap`,
//! [`attach_tap`] makes the commands that connect it with a guest of Firecracker ([`firecracker`]).
//!
//! Nothing is edited or connected, and an attached guest does not change the output. For QEMU and
//! libvirt, [`attach`] and [`attach_frames`] run an installed QEMU with `--version`, at each call,
//! unless the operator gave a version ([`version`]). [`attach`] adds warnings about sockets that
//! the VMM's user cannot reach ([`access`]); [`attach_frames`] does not. The arguments of QEMU and
//! the XML of libvirt are tried by tests; those of Cloud Hypervisor, crosvm, libkrun, vfkit and
//! Firecracker follow their documentation, and a note of the output states it.
//!
//! `commands::vm::print_attachment` is the caller, for `causeway vm show --for` and, through
//! `commands::port`, for `causeway port show --for`. It runs in the main thread of the tool, and
//! prints the [`Attachment`] in one of its forms ([`output`]). `crate::args` parses [`Vmm`],
//! [`MemorySize`] and [`QemuTarget`].

mod access;
mod cloud_hypervisor;
mod crosvm;
mod device;
mod firecracker;
mod frames;
mod libkrun;
mod libvirt;
mod memory;
mod output;
mod qemu;
mod quote;
mod version;

use std::path::Path;

use clap::ValueEnum;

pub use device::Device;
pub use firecracker::TapPort;
pub use frames::FramePort;
pub use memory::MemorySize;
pub use output::Attachment;
pub use version::QemuTarget;

use crate::account::Account;
use device::{DeviceKind, NetDevice};
use version::QemuVersion;

/// A program or library that runs guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Vmm {
    /// QEMU 7.2 or later: arguments
    Qemu,
    /// libvirt 9.0 or later with QEMU: XML of a domain
    Libvirt,
    /// Cloud Hypervisor 53 or later: arguments (by its documentation, not tried)
    #[value(alias = "ch")]
    CloudHypervisor,
    /// crosvm: arguments (by its documentation, not tried)
    Crosvm,
    /// libkrun with vhost-user: calls in C (by its documentation, not tried)
    Libkrun,
    /// vfkit and krunkit, for ports of kind stream and dgram: argument (by their documentation, not
    /// tried)
    #[value(alias = "krunkit")]
    Vfkit,
    /// passt, for ports of kind stream: arguments
    Passt,
    /// Firecracker, for ports of kind tap: commands (by its documentation, not tried)
    Firecracker,
}

/// Note about a guest with an RDMA adapter, for QEMU and libvirt.
const ADAPTER_NOTE: &str = "Do not migrate this guest, and do not unplug its RDMA adapter: QEMU neither \
                            saves the adapter's state nor refuses the migration, and QEMU 11.1 aborts \
                            at device_del.";

/// Note about a guest with a socket device, for QEMU and libvirt.
const SOCKET_NOTE: &str = "Move this guest to another host by stop and start: QEMU does not migrate \
                           its socket device.";

/// The devices and the memory of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    devices: Vec<Device>,
    /// The size of the memory, if the operator gave one.
    memory: Option<MemorySize>,
}

/// A device that a VMM cannot attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The port is for processes.
    #[error(
        "port {port} is of kind mx, to which processes attach, not guests: see `causeway mpi-env`"
    )]
    Processes {
        /// Name of the port.
        port: String,
    },
    /// The port is an interface of the host.
    #[error(
        "port {port} is a TAP interface of the host, to which no VMM attaches by a socket: a bridge \
         connects it with an interface of the VMM, see `causeway port show {port} --for firecracker`"
    )]
    Interface {
        /// Name of the port.
        port: String,
    },
    /// This release has no options for the kind.
    #[error(
        "port {port} is of kind {kind}, for which this causeway has no options of a VMM; use the \
         causeway of the daemon's release, or see the documentation of the kind"
    )]
    UnknownKind {
        /// Name of the port.
        port: String,
        /// The kind.
        kind: String,
    },
    /// The version of QEMU has no vfio-user.
    #[error(
        "port {port} is an RDMA adapter, which QEMU {version} cannot attach: it has no \
         vfio-user-pci. QEMU 10.1 or later is needed; --qemu-version 11.1 prints its options"
    )]
    NoVfioUser {
        /// Name of the port.
        port: String,
        /// The version.
        version: QemuVersion,
    },
    /// The port connects to its VMM, and the VMM connects to its ports.
    #[error(
        "port {port} connects to a socket of its VMM, but {vmm} cannot listen; add the port \
         without connect"
    )]
    CannotListen {
        /// Name of the port.
        port: String,
        /// The VMM or its device.
        vmm: &'static str,
    },
    /// The peer has no such socket.
    #[error("port {port} cannot have {vmm} as its peer: {reason}")]
    WrongSocket {
        /// Name of the port.
        port: String,
        /// The peer.
        vmm: &'static str,
        /// The reason, with the remedy.
        reason: &'static str,
    },
    /// The program attaches by frames on a socket only.
    #[error(
        "port {port} is a device of virtio or PCI, and {vmm} attaches to ports of kind stream or dgram"
    )]
    FramesOnly {
        /// Name of the port.
        port: String,
        /// The program.
        vmm: &'static str,
    },
    /// Firecracker shares no memory.
    #[error(
        "port {port} is a device in shared memory of the guest, which Firecracker does not have: add a \
         port of kind tap with learn"
    )]
    NoSharedMemory {
        /// Name of the port.
        port: String,
    },
    /// Several ports, of which one has frames on a socket.
    #[error("port {port} has a peer of its own: print its options by `causeway port show`")]
    Alone {
        /// Name of the port.
        port: String,
    },
    /// The VMM has no vfio-user.
    #[error(
        "port {port} is an RDMA adapter, which {vmm} cannot attach: it has no vfio-user. Use QEMU \
         10.1 or later (--for qemu), or delete the port"
    )]
    NoAdapters {
        /// Name of the port.
        port: String,
        /// Name of the VMM.
        vmm: &'static str,
    },
}

impl Machine {
    /// Returns a machine; without a size of its memory, the options have an example.
    pub fn new(devices: Vec<Device>, memory: Option<MemorySize>) -> Self {
        Self { devices, memory }
    }

    /// Returns the size of the memory, or the example.
    fn memory(&self) -> MemorySize {
        self.memory.unwrap_or(MemorySize::EXAMPLE)
    }

    /// Returns the error of Firecracker.
    fn no_shared_memory(&self) -> AttachError {
        let port = self.devices.first().map(|device| device.port.clone());
        AttachError::NoSharedMemory { port: port.unwrap_or_default() }
    }

    /// Returns the error of a program that attaches by frames on a socket only.
    fn frames_only(&self, vmm: &'static str) -> AttachError {
        let port = self.devices.first().map(|device| device.port.clone());
        AttachError::FramesOnly { port: port.unwrap_or_default(), vmm }
    }

    /// Returns the network devices.
    fn nets(&self) -> impl Iterator<Item = (&Device, &NetDevice)> {
        self.devices.iter().filter_map(|device| match &device.kind {
            DeviceKind::Net(net) => Some((device, net)),
            _ => None,
        })
    }

    /// Returns whether a device is an RDMA adapter.
    fn has_adapter(&self) -> bool {
        self.devices.iter().any(|device| device.kind == DeviceKind::Adapter)
    }

    /// Returns the note about a guest that QEMU cannot migrate.
    fn migration_note(&self) -> Option<String> {
        let is_socket = |device: &Device| device.kind == DeviceKind::Vsock;
        let note = match self.has_adapter() {
            true => ADAPTER_NOTE,
            false if self.devices.iter().any(is_socket) => SOCKET_NOTE,
            false => return None,
        };
        Some(note.to_owned())
    }

    /// Returns the devices that are no network devices.
    fn further(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| !matches!(device.kind, DeviceKind::Net(_)))
    }

    /// Returns a note about the size of the memory.
    fn memory_note(&self) -> String {
        let size = self.memory();
        match self.memory {
            Some(_) => format!("The guest has {size} of memory, shared with causewayd."),
            None => format!(
                "The guest has {size} of memory, shared with causewayd; --memory SIZE prints \
                 another size."
            ),
        }
    }
}

/// Returns the note of a VMM that no test runs.
fn untried(subject: &str, source: &str) -> String {
    format!(
        "These options follow the documentation of {source}; they were not tried with {subject}."
    )
}

/// Returns the options that attach a machine. `target` is the version of QEMU, which only QEMU and
/// libvirt use.
///
/// # Errors
/// [`AttachError`]: the VMM cannot attach a device.
pub fn attach(vmm: Vmm, machine: &Machine, target: QemuTarget) -> Result<Attachment, AttachError> {
    let mut attachment = match vmm {
        Vmm::Qemu => qemu::attachment(machine, &target.choose())?,
        Vmm::Libvirt => libvirt::attachment(machine, &target.choose(), version::has_kvm())?,
        Vmm::CloudHypervisor => cloud_hypervisor::attachment(machine)?,
        Vmm::Crosvm => crosvm::attachment(machine)?,
        Vmm::Libkrun => libkrun::attachment(machine)?,
        Vmm::Vfkit => return Err(machine.frames_only("vfkit")),
        Vmm::Passt => return Err(machine.frames_only("passt")),
        Vmm::Firecracker => return Err(machine.no_shared_memory()),
    };
    attachment.notes.extend(warnings(vmm, machine));
    Ok(attachment)
}

/// Returns the options that attach the peer of a port of kind `stream` or `dgram`. `target` is the
/// version of QEMU, which only QEMU and libvirt use.
///
/// # Errors
/// [`AttachError`]: the peer has no such socket.
pub fn attach_frames(
    vmm: Vmm,
    port: &FramePort,
    target: QemuTarget,
) -> Result<Attachment, AttachError> {
    let choice = match vmm {
        Vmm::Qemu | Vmm::Libvirt => target.choose(),
        _ => version::QemuChoice::Unknown,
    };
    frames::attachment(vmm, port, &choice)
}

/// Returns the commands that connect a port of kind `tap` with a guest.
///
/// # Errors
/// [`AttachError`]: the VMM is not Firecracker, or the port cannot be used by its guest.
pub fn attach_tap(vmm: Vmm, port: &TapPort) -> Result<Attachment, AttachError> {
    match vmm {
        Vmm::Firecracker => firecracker::attachment(port),
        _ => Err(AttachError::Interface { port: port.name.clone() }),
    }
}

/// Returns warnings about devices that the guest or the VMM's user cannot use.
fn warnings(vmm: Vmm, machine: &Machine) -> Vec<String> {
    let account = match vmm {
        Vmm::Libvirt => Account::of_libvirt(),
        _ => Some(Account::current()),
    };
    let denied = |account: &Account| {
        // The VMM creates the socket at which it listens.
        let theirs = machine.devices.iter().filter(|device| !device.is_listener);
        let sockets = theirs.map(|device| Path::new(&device.socket));
        sockets.filter_map(|socket| access::warning(socket, account)).collect::<Vec<_>>()
    };
    let mut warnings = account.as_ref().map(denied).unwrap_or_default();
    let vsocks = machine.devices.iter().filter(|device| device.kind == DeviceKind::Vsock).count();
    if vsocks > 1 {
        warnings.push(format!(
            "The guest gets {vsocks} socket devices, of which Linux uses the first only."
        ));
    }
    warnings
}
