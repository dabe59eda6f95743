//! Ports: the devices of guests, and the attachments of processes.
//!
//! A port is of a [`KindDefinition`]. A kind belongs to one service and describes its options by
//! fields ([`crate::schema`]), from which the configuration file, the control API, the command line
//! and manual pages derive. The fabric and the daemon know a kind only through [`KindDefinition`],
//! so a service adds a kind without a change elsewhere.
//!
//! [`read()`] makes a [`PortSpec`] of an operator's table; the registry of the fabric checks that
//! names and paths are unique and adds the port; its service reads the options ([`PortKind::get`]).
//! A specification does not change while its port exists. [`PortSpec::check`] checks each value and
//! conditions between them, and neither other ports nor the host's files. At most
//! [`PORTS_MAX`](crate::limits::PORTS_MAX) (1,024) ports of all kinds: the registry refuses a
//! further one.

mod dgram;
mod hca;
mod kind;
mod mx;
mod net;
mod read;
mod stream;
mod tap;
mod vm;
mod vsock;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::access::check_account;
use crate::limits::{MEMORY_MAX_MIB, SOCKET_PATH_BYTES_MAX};
use crate::schema::{DefaultValue, Field, Form, ValueType, parses, text};
use crate::{FileMode, Mac, Name, SocketAccess, SpecError};

pub use dgram::{DGRAM, DGRAM_FIELDS, DgramSpec};
pub use hca::{HCA, HCA_FIELDS, HcaDoorbell, HcaSpec};
pub use kind::{
    DeviceInfo, FrontendProtocol, HELD_EXTENSION, KindDefinition, KindInfo, PortContext, PortKind,
    PortOptions,
};
pub use mx::{MX, MX_FIELDS, MxPeer, MxSpec, MxUdp};
pub use net::{MTU_DEFAULT, NET, NET_FIELDS, NetSpec, Offloads};
pub use read::{ReadContext, default_socket, read};
pub use stream::{STREAM, STREAM_FIELDS, StreamSpec};
pub use tap::{TAP, TAP_FIELDS, TapOffloads, TapSpec};
pub use vm::{VM_KEY, vm_name};
pub use vsock::{
    CID_GUEST_MIN, CID_HOST, VSOCK, VSOCK_FIELDS, VSOCK_RING_SIZE_MAX, VsockSpec, message_socket,
};

/// The kinds of ports of this release. A daemon with further services has more.
pub static KINDS: [&KindDefinition; 7] = [&NET, &VSOCK, &MX, &HCA, &STREAM, &DGRAM, &TAP];

/// The keys of every port. Of these, a port without frontends has name and group only.
pub const PORT_FIELDS: &[Field] = &[
    Field::new(
        "name",
        "Name of the port, unique in the daemon.",
        text::<Name>("NAME"),
        DefaultValue::Required("expected a name unique in this file"),
    ),
    Field::new(
        "group",
        "Group of the port.",
        text::<Name>("NAME"),
        DefaultValue::Required("expected the name of a [[group]]"),
    ),
    Field::new(
        "socket",
        "Socket at which the daemon listens for the frontend, or the VMM if connect is set.",
        ValueType::SocketPath(SOCKET_PATH_BYTES_MAX),
        DefaultValue::Derived("<run_dir>/<name>.sock"),
    ),
    Field::new(
        "socket_owner",
        "Owner of the sockets, a user's name or number.",
        account("USER"),
        DefaultValue::NoneMeans("the daemon's user"),
    ),
    Field::new(
        "socket_group",
        "Group of the sockets, a name or number.",
        account("GROUP"),
        DefaultValue::NoneMeans("socket_group in [daemon]"),
    ),
    Field::new(
        "socket_mode",
        "Permissions of the sockets, in octal, as 0660.",
        text::<FileMode>("MODE"),
        DefaultValue::NoneMeans("socket_mode in [daemon]"),
    ),
    Field::new(
        "allowed_users",
        "Users, by name or number, whose processes may attach; the kernel reports the user of each \
         process (SO_PEERCRED).",
        accounts("USER,..."),
        DefaultValue::NoneMeans("all users that may open the socket"),
    ),
];

/// The keys of ports whose frontends speak vhost-user.
pub const VHOST_USER_FIELDS: &[Field] = &[Field::new(
    "connect",
    "Connect to the socket, at which the VMM listens (mode 'server' of QEMU and libvirt, \
     dpdkvhostuserclient of Open vSwitch), instead of listening there. The daemon connects again, \
     at most once a second, while the VMM is away.",
    ValueType::Boolean,
    DefaultValue::Boolean(false),
)
.with("socket")];

/// The keys of ports with a guest, whose memory the daemon maps.
pub const GUEST_FIELDS: &[Field] = &[
    Field::new(
        "memory_max",
        "Limit of guest memory that the daemon may have to allocate, in MiB.",
        ValueType::Integer { min: 1, max: MEMORY_MAX_MIB as u64, unit: "MIB" },
        DefaultValue::NoneMeans("1024, or a quarter of the memory that the daemon may have"),
    ),
    vm::VM_FIELD,
];

/// The keys of ports with a host socket beside their own.
pub const HOST_SOCKET_FIELDS: &[Field] = &[
    Field::new(
        "host_socket_owner",
        "Owner of the host socket.",
        account("USER"),
        DefaultValue::NoneMeans("socket_owner"),
    )
    .with("host_socket"),
    Field::new(
        "host_socket_group",
        "Group of the host socket.",
        account("GROUP"),
        DefaultValue::NoneMeans("socket_group"),
    )
    .with("host_socket"),
    Field::new(
        "host_socket_mode",
        "Permissions of the host socket.",
        text::<FileMode>("MODE"),
        DefaultValue::NoneMeans("socket_mode"),
    )
    .with("host_socket"),
    Field::new(
        "host_allowed_users",
        "Users, by name or number, whose processes may connect by the host socket.",
        accounts("USER,..."),
        DefaultValue::NoneMeans("allowed_users"),
    )
    .with("host_socket"),
];

/// Returns the type of a user or group of the host, by name or number.
const fn account(placeholder: &'static str) -> ValueType {
    ValueType::Text(Form { placeholder, check: check_account })
}

/// Returns the type of a list of users or groups of the host.
const fn accounts(placeholder: &'static str) -> ValueType {
    ValueType::Texts(Form { placeholder, check: check_account })
}

/// Returns the type of a station's address: neither a group address nor zero.
pub const fn unicast() -> ValueType {
    ValueType::Text(Form { placeholder: "MAC", check: check_unicast })
}

fn check_unicast(text: &str) -> Result<(), String> {
    parses::<Mac>(text)?;
    match text.parse::<Mac>() {
        Ok(mac) if mac.is_unicast() => Ok(()),
        _ => Err(format!("expected a unicast address, not zero; found {text}")),
    }
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// The configuration of a port, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortSpec {
    /// Name of the port, unique in the daemon.
    pub name: Name,
    /// The group (tenant) of the port.
    pub group: Name,
    /// Socket at which the daemon listens for the frontend, or to which it connects
    /// ([`SocketAccess::connect`]); empty for a port without frontends.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub socket: PathBuf,
    /// Limit of guest memory that the daemon touches before the guest does, and is therefore
    /// charged for, in MiB; `None` is the default of the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u32>,
    /// Owners and permissions of the sockets.
    #[serde(flatten)]
    pub access: SocketAccess,
    /// Kind and options.
    #[serde(flatten)]
    pub kind: PortKind,
}

impl PortSpec {
    /// Returns the paths of this port: at all of them the daemon listens, but at the first it
    /// connects if [`SocketAccess::connect`] is set.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = Some(self.socket.as_path()).filter(|path| !is_empty(path));
        own.into_iter().chain(self.kind.sockets().map(|(_, path)| path))
    }

    /// Returns whether the daemon listens at [`Self::socket`]: the port is not the client, has no
    /// network address instead, and is no port without frontends.
    pub fn listens_at_socket(&self) -> bool {
        !self.access.connect && self.kind.address().is_none() && !is_empty(&self.socket)
    }

    /// Checks ranges, and conditions between options.
    ///
    /// # Errors
    /// The first invalid value, with its expected form.
    pub fn check(&self) -> Result<(), SpecError> {
        let fail = |text: String| Err(SpecError(format!("port {}: {text}", self.name)));
        if self.socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let path = self.socket.display();
            return fail(format!("socket {path}: at most {SOCKET_PATH_BYTES_MAX} bytes fit"));
        }
        if self.memory_max.is_some_and(|mib| mib == 0 || mib > MEMORY_MAX_MIB) {
            return fail(format!("memory_max: expected 1 to {MEMORY_MAX_MIB} MiB"));
        }
        if let Err(SpecError(text)) = self.access.check() {
            return fail(text);
        }
        let kind = self.kind.kind();
        if self.access.connect && !kind.fields().any(|field| field.key == "connect") {
            return fail(format!("connect: frontends of a port of kind {} connect", kind.name));
        }
        self.kind.check().or_else(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_paths_must_fit_a_socket_address() {
        let spec = |socket: usize, host: usize| PortSpec {
            name: "a".parse().unwrap(),
            group: "g".parse().unwrap(),
            socket: "s".repeat(socket).into(),
            memory_max: None,
            access: SocketAccess::default(),
            kind: PortKind::of(VsockSpec {
                cid: 3,
                guest_cid: None,
                host_socket: Some(format!("/{}", "h".repeat(host - 1)).into()),
                processes: false,
            }),
        };
        assert!(spec(107, 96).check().is_ok());
        assert!(spec(108, 96).check().unwrap_err().0.contains("at most 107 bytes"));
        assert!(spec(107, 97).check().unwrap_err().0.contains("at most 96"));
        assert_eq!(spec(107, 96).paths().count(), 2);
    }

    #[test]
    fn port_addresses_are_unicast() {
        for (text, is_fit) in [
            ("02:00:00:00:00:01", true),
            ("01:00:5e:00:00:01", false),
            ("00:00:00:00:00:00", false),
            ("52:54", false),
        ] {
            assert_eq!(check_unicast(text).is_ok(), is_fit, "{text}");
        }
    }
}
