//! Ports of kind `vsock`: virtio-vsock devices.
//!
//! The socket service reads the options in its shard's thread when the port is added. A CID from
//! [`CID_GUEST_MIN`] (3) identifies the guest in its group; the socket service refuses a CID in
//! use, and equal CIDs in two groups do not meet; `guest_cid` may be the same for many ports.
//! Without `host_socket` the guest has no connections with processes of this host in either
//! direction. The path leaves room for the suffixes `_<port>` and `_seqpacket`; the checks do not
//! touch the file. Rings have at most [`VSOCK_RING_SIZE_MAX`] (1,024) entries.

use std::path::{Path, PathBuf};

use super::{
    DeviceInfo, FrontendProtocol, GUEST_FIELDS, HOST_SOCKET_FIELDS, KindDefinition, PortOptions,
    VHOST_USER_FIELDS,
};
use crate::CaptureFormat;
use crate::limits::{HOST_SUFFIX_BYTES, SOCKET_PATH_BYTES_MAX};
use crate::schema::{DefaultValue, ValueType, table};

/// The lowest CID a guest may have (0 to 2: hypervisor, local, host; virtio 1.3, 5.10.4).
pub const CID_GUEST_MIN: u32 = 3;
/// The host's CID.
pub const CID_HOST: u32 = 2;
/// Most entries of a virtqueue of a vsock device. A frontend with a larger ring is disconnected.
pub const VSOCK_RING_SIZE_MAX: u16 = 1024;

/// Ports that carry AF_VSOCK sockets.
pub static VSOCK: KindDefinition = KindDefinition::new::<VsockSpec>(
    "vsock",
    "A socket device (virtio-vsock)",
    &[VSOCK_FIELDS, HOST_SOCKET_FIELDS, GUEST_FIELDS, VHOST_USER_FIELDS],
)
.losing_frontend()
.captured_as(CaptureFormat::Vsock);

table! {
    /// A virtio-vsock port.
    pub struct VsockSpec, pub const VSOCK_FIELDS {
        /// Context ID (CID) of the guest, unique in its group.
        cid: u32 => ValueType::Integer { min: CID_GUEST_MIN as u64, max: u32::MAX as u64 - 1, unit: "CID" },
            DefaultValue::Required("a port of kind \"vsock\" needs one, 3 or more"), .unique();
        /// CID that the guest has, if it differs from cid: for the clones of one snapshot. The daemon
        /// exchanges the two in each packet of the guest and for the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guest_cid: Option<u32> => ValueType::Integer { min: CID_GUEST_MIN as u64, max: u32::MAX as u64 - 1, unit: "CID" },
            DefaultValue::NoneMeans("cid");
        /// Unix socket through which host processes connect to the guest (`CONNECT PORT`). Connects
        /// of the guest to the host go to PATH_PORT.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_socket: Option<PathBuf> =>
            ValueType::SocketPath(SOCKET_PATH_BYTES_MAX - HOST_SUFFIX_BYTES), DefaultValue::None;
        /// Host processes have the CID, and no guest attaches: by the host socket they connect to the
        /// guests of the group, on other hosts too (`CONNECT CID:PORT`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        processes: bool => ValueType::Boolean, DefaultValue::Boolean(false), .with("host_socket");
    }
}

impl VsockSpec {
    /// Returns the CID in the guest's configuration space.
    pub fn shown_cid(&self) -> u32 {
        self.guest_cid.unwrap_or(self.cid)
    }
}

impl PortOptions for VsockSpec {
    fn kind() -> &'static KindDefinition {
        &VSOCK
    }

    fn device(&self) -> Option<DeviceInfo> {
        if self.processes {
            return None;
        }
        let identity = format!("vsock {}", self.shown_cid());
        let (protocol, queues) = (FrontendProtocol::VhostUser, 3);
        Some(DeviceInfo { protocol, queues, ring_size_max: VSOCK_RING_SIZE_MAX, identity })
    }
}

/// Returns the path at which host processes connect by SOCK_SEQPACKET, if `host_socket` is the path
/// for SOCK_STREAM.
pub fn message_socket(host_socket: &Path) -> PathBuf {
    let mut path = host_socket.as_os_str().to_owned();
    path.push("_seqpacket");
    path.into()
}
