//! Ports: the devices of guests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits::{
    HOST_SUFFIX_BYTES, HOSTNAME_BYTES_MAX, MEMORY_MAX_MIB, MTU_MIN, MX_PEERS_MAX, MX_UDP_PEERS_MAX,
    QUEUE_PAIRS_MAX, SOCKET_PATH_BYTES_MAX,
};
use crate::{Mac, Name, RawSpec, SocketAccess, SpecError};

/// One port, as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSpec {
    /// Unique in the daemon.
    pub name: Name,
    /// The tenant that the port belongs to.
    pub group: Name,
    /// Where the daemon listens for the frontend.
    pub socket: PathBuf,
    /// Most memory of its guest that the daemon touches before the guest does and so pays for, in
    /// MiB; `None`: [`crate::limits::FOOTPRINT_MAX_DEFAULT`] or less, where the daemon knows what it
    /// pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u32>,
    /// Users that may connect there, and to the host socket.
    #[serde(flatten)]
    pub access: SocketAccess,
    /// What device the guest sees there.
    #[serde(flatten)]
    pub kind: PortKind,
}

/// The device of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PortKind {
    /// virtio-net.
    Net(NetSpec),
    /// virtio-vsock.
    Vsock(VsockSpec),
    /// A board of MX endpoints, for processes.
    Mx(MxSpec),
}

impl PortKind {
    /// Its name, as operators write it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Net(_) => "net",
            Self::Vsock(_) => "vsock",
            Self::Mx(_) => "mx",
        }
    }
}

/// A virtio-net port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetSpec {
    /// The one source address that the port may send from, unless it learns.
    pub mac: Mac,
    /// Largest payload of a frame, in bytes, 68 to 65535.
    pub mtu: u16,
    /// Queue pairs, 1 to 8.
    pub queue_pairs: u16,
    /// Whether other source addresses are accepted and learnt (a bridge or nested guests behind it).
    pub learn: bool,
    /// What its guest may leave to the device, or take from it, unfinished.
    #[serde(default)]
    pub offloads: Offloads,
}

/// The offloads that a net port offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offloads {
    /// All, in both directions.
    #[default]
    All,
    /// None towards the guest: each frame comes with its checksum and uncut. For guests that attach
    /// XDP programs: QEMU lets a guest turn offloads off while it runs, and does not tell the
    /// backend, so that the guest drops what goes on coming unfinished.
    Xdp,
}

impl Offloads {
    /// Each with its name.
    pub const WORDS: [(&str, Self); 2] = [("all", Self::All), ("xdp", Self::Xdp)];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Xdp => "xdp",
        }
    }
}

/// A virtio-vsock port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VsockSpec {
    /// The guest's context id, 3 to 4294967294; unique in its group.
    pub cid: u32,
    /// Where host processes connect (`CONNECT <port>\n`); guests reach `<path>_<port>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket: Option<PathBuf>,
}

/// A board of MX endpoints, to which processes attach by its socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MxSpec {
    /// Its address (`nic_id`).
    pub mac: Mac,
    /// What peers call it, 1 to [`HOSTNAME_BYTES_MAX`] bytes: by custom `host:board`.
    pub hostname: String,
    /// The interface of this host by which boards of other hosts are reached; none: they are not.
    /// MXoE's frames do not say of which group they are: all boards on the network behind it reach
    /// each other, so groups that are to be apart need an interface each, as of a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Whether processes send and receive at the interface themselves, past the daemon. They may send
    /// anything by it then, and are trusted not to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bypass: bool,
    /// Datagrams to other hosts, in place of an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<MxUdp>,
    /// Boards of other hosts that need not announce themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<MxPeer>,
}

/// How frames are carried in datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MxUdp {
    /// Where they come to.
    pub listen: SocketAddr,
    /// From whom, and to whom: where boards of other hosts listen.
    pub peers: Vec<SocketAddr>,
}

impl MxUdp {
    /// What is wrong with it, if anything is.
    fn wrong(&self) -> Option<String> {
        if self.peers.is_empty() || self.peers.len() > MX_UDP_PEERS_MAX {
            let count = self.peers.len();
            return Some(format!("{count} peers: expected 1 to {MX_UDP_PEERS_MAX}"));
        }
        let other = |peer: &&SocketAddr| {
            peer.is_ipv4() != self.listen.is_ipv4()
                || peer.port() == 0
                || peer.ip().is_unspecified()
                || **peer == self.listen
        };
        let peer = self.peers.iter().find(other)?;
        Some(format!("peer {peer}: expected another host's address, of the family of listen"))
    }
}

/// A board of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MxPeer {
    /// Its address.
    pub mac: Mac,
    /// What it is called; none: it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl MxSpec {
    /// A board that reaches no other host.
    pub fn local(mac: Mac, hostname: String) -> Self {
        Self { mac, hostname, interface: None, bypass: false, udp: None, peers: Vec::new() }
    }

    /// What is wrong with how it reaches others, if anything is.
    fn wrong_network(&self) -> Option<String> {
        if let Some(why) = self.interface.as_deref().and_then(RawSpec::wrong_interface) {
            return Some(format!("interface {why}"));
        }
        if let Some(why) = self.udp.as_ref().and_then(MxUdp::wrong) {
            return Some(format!("udp: {why}"));
        }
        if self.udp.is_some() && self.interface.is_some() {
            return Some(
                "udp: expected no interface beside it: another board may have that".into(),
            );
        }
        if self.bypass && self.interface.is_none() {
            return Some("bypass: expected interface, at which processes are to be".into());
        }
        if self.interface.is_none() && self.udp.is_none() && !self.peers.is_empty() {
            return Some("peers: expected interface or udp, by which they are reached".into());
        }
        if self.peers.len() > MX_PEERS_MAX {
            return Some(format!("peers: {} of them: at most {MX_PEERS_MAX}", self.peers.len()));
        }
        self.peers.iter().find_map(|peer| {
            if !peer.mac.is_unicast() || peer.mac == self.mac {
                let mac = peer.mac;
                return Some(format!("peers: mac {mac}: expected another board's, not zero"));
            }
            let why = peer.name.as_deref().and_then(Self::wrong_hostname)?;
            Some(format!("peers: name {why}"))
        })
    }

    /// What is wrong with a hostname, if anything is.
    pub fn wrong_hostname(text: &str) -> Option<String> {
        let fits = !text.is_empty() && text.len() <= HOSTNAME_BYTES_MAX;
        if fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            return None;
        }
        let most = HOSTNAME_BYTES_MAX;
        Some(format!("{text:?}: expected 1 to {most} printable characters without spaces"))
    }
}

/// The lowest CID a guest may have (0 to 2: hypervisor, local, host; virtio 1.3, 5.10.4).
pub const CID_GUEST_MIN: u32 = 3;
/// The host's CID.
pub const CID_HOST: u32 = 2;

/// Where host processes connect by SOCK_SEQPACKET if they connect by SOCK_STREAM at `host_socket`.
pub fn message_socket(host_socket: &Path) -> PathBuf {
    let mut path = host_socket.as_os_str().to_owned();
    path.push("_seqpacket");
    path.into()
}

impl PortSpec {
    /// Where the daemon listens for this port.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let host = match &self.kind {
            PortKind::Vsock(vsock) => vsock.host_socket.as_deref(),
            PortKind::Net(_) | PortKind::Mx(_) => None,
        };
        std::iter::once(self.socket.as_path()).chain(host)
    }

    /// Checks the ranges that the types leave open.
    pub fn check(&self) -> Result<(), SpecError> {
        let fail = |text: String| Err(SpecError(format!("port {}: {text}", self.name)));
        let too_long = |path: &Path, most: usize| path.as_os_str().len() > most;
        if too_long(&self.socket, SOCKET_PATH_BYTES_MAX) {
            let path = self.socket.display();
            return fail(format!("socket {path}: at most {SOCKET_PATH_BYTES_MAX} bytes fit"));
        }
        if self.memory_max.is_some_and(|mib| mib == 0 || mib > MEMORY_MAX_MIB) {
            return fail(format!("memory_max: expected 1 to {MEMORY_MAX_MIB} MiB"));
        }
        if let Err(SpecError(text)) = self.access.check() {
            return fail(text);
        }
        match &self.kind {
            PortKind::Net(net) => {
                if !net.mac.is_unicast() {
                    return fail(format!("mac {}: expected a unicast address, not zero", net.mac));
                }
                if net.mtu < MTU_MIN {
                    return fail(format!("mtu {}: expected {MTU_MIN} to 65535", net.mtu));
                }
                if net.queue_pairs == 0 || net.queue_pairs > QUEUE_PAIRS_MAX {
                    let n = net.queue_pairs;
                    return fail(format!("queue_pairs {n}: expected 1 to {QUEUE_PAIRS_MAX}"));
                }
            }
            PortKind::Vsock(vsock) => {
                let most = SOCKET_PATH_BYTES_MAX.saturating_sub(HOST_SUFFIX_BYTES);
                if let Some(path) = vsock.host_socket.as_ref().filter(|p| too_long(p, most)) {
                    let path = path.display();
                    return fail(format!(
                        "host_socket {path}: at most {most} bytes fit, with _PORT behind it"
                    ));
                }
                if vsock.cid < CID_GUEST_MIN || vsock.cid == u32::MAX {
                    return fail(format!("cid {}: expected 3 to 4294967294", vsock.cid));
                }
            }
            PortKind::Mx(mx) => {
                if !mx.mac.is_unicast() {
                    return fail(format!("mac {}: expected a unicast address, not zero", mx.mac));
                }
                if let Some(why) = MxSpec::wrong_hostname(&mx.hostname) {
                    return fail(format!("hostname {why}"));
                }
                if let Some(why) = mx.wrong_network() {
                    return fail(why);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_must_fit_a_socket_address() {
        let spec = |socket: usize, host: usize| PortSpec {
            name: "a".parse().unwrap(),
            group: "g".parse().unwrap(),
            socket: "s".repeat(socket).into(),
            memory_max: None,
            access: SocketAccess::default(),
            kind: PortKind::Vsock(VsockSpec { cid: 3, host_socket: Some("h".repeat(host).into()) }),
        };
        assert!(spec(107, 96).check().is_ok());
        assert!(spec(108, 96).check().unwrap_err().0.contains("at most 107 bytes"));
        assert!(spec(107, 97).check().unwrap_err().0.contains("at most 96 bytes"));
    }
}
