//! What the operator asks for: ports, groups and rules, as plain checked values.
//!
//! The configuration file, the control socket and the tests all build these.
//! Nothing here knows of TOML or JSON syntax beyond `serde`.

mod access;
mod class;
mod link;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{
    HOST_SUFFIX_BYTES, HOSTNAME_BYTES_MAX, MEMORY_MAX_MIB, MTU_MIN, MX_PEERS_MAX, MX_UDP_PEERS_MAX,
    NAME_BYTES_MAX, QUEUE_PAIRS_MAX, SOCKET_PATH_BYTES_MAX,
};

pub use access::{Mode, SocketAccess, SocketPermissions};
pub use class::{DSCP_MAX, Dscp, TrafficClass, ecn_default};
pub use link::{
    LinkKind, LinkSpec, MacMatch, PublicKey, RawSpec, RouteEnd, RouteSpec, StreamSpec, TlsSpec,
    TunnelSpec, UdpSpec, VXLAN_BYTES, datagram_mtu, metric_default, udp_headers,
};

/// Why a value of the operator is refused; the text says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);

/// The name of a port or a group: 1 to 63 of `A-Z a-z 0-9 . _ -`, starting with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_ok = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if first_ok && rest_ok && text.len() <= NAME_BYTES_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(SpecError(format!(
                "name {text:?}: expected 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-', \
                 starting with a letter or digit"
            )))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether the group bit is set: a multicast or the broadcast address.
    pub fn is_group(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 1
    }

    /// Whether it may be a station's: neither a group's nor zero.
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }
}

impl FromStr for Mac {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            SpecError(format!("MAC {text:?}: expected six hexadecimal bytes, as 52:54:00:12:34:56"))
        };
        let mut bytes = [0_u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(wrong)?;
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

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

/// What a rule does with a connect that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// Let it pass.
    Accept,
    /// Answer it with a reset.
    Reject,
}

/// One side of a rule: `GROUP/CID:PORT`, each part a value or `*`; the host is `host`.
///
/// Examples: `blue/3:*`, `*/*:22`, `host:*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(try_from = "String", into = "String")]
pub struct RuleSide {
    /// Whether this side is the host itself (CID 2).
    pub host: bool,
    /// The group, or any.
    pub group: Option<Name>,
    /// The CID, or any guest's and the host's.
    pub cid: Option<u32>,
    /// First and last port, inclusive, or any.
    pub ports: Option<(u32, u32)>,
}

impl FromStr for RuleSide {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            SpecError(format!(
                "rule side {text:?}: expected GROUP/CID:PORT or host:PORT, each part a value or '*', \
                 PORT also FIRST-LAST"
            ))
        };
        if text == "*" {
            return Ok(Self::default());
        }
        let (who, ports) = text.rsplit_once(':').unwrap_or((text, "*"));
        let ports = match ports {
            "*" => None,
            one => {
                let (first, last) = one.split_once('-').unwrap_or((one, one));
                let first: u32 = first.parse().map_err(|_| wrong())?;
                let last: u32 = last.parse().map_err(|_| wrong())?;
                if first > last {
                    return Err(wrong());
                }
                Some((first, last))
            }
        };
        if who == "host" {
            return Ok(Self { host: true, ports, ..Self::default() });
        }
        let (group, cid) = who.split_once('/').ok_or_else(wrong)?;
        let group = if group == "*" { None } else { Some(group.parse()?) };
        let cid = if cid == "*" { None } else { Some(cid.parse().map_err(|_| wrong())?) };
        Ok(Self { host: false, group, cid, ports })
    }
}

impl TryFrom<String> for RuleSide {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<RuleSide> for String {
    fn from(side: RuleSide) -> String {
        side.to_string()
    }
}

impl fmt::Display for RuleSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host {
            f.write_str("host")?;
        } else {
            match &self.group {
                Some(group) => write!(f, "{group}/")?,
                None => f.write_str("*/")?,
            }
            match self.cid {
                Some(cid) => write!(f, "{cid}")?,
                None => f.write_str("*")?,
            }
        }
        match self.ports {
            None => f.write_str(":*"),
            Some((first, last)) if first == last => write!(f, ":{first}"),
            Some((first, last)) => write!(f, ":{first}-{last}"),
        }
    }
}

/// An ordered rule over connects, in the manner of V4V's viptables: the first match decides,
/// and what no rule matches is accepted within its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// What to do.
    pub action: RuleAction,
    /// Who connects.
    #[serde(default)]
    pub from: RuleSide,
    /// To whom.
    #[serde(default)]
    pub to: RuleSide,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_sides_read_and_print() {
        for text in ["blue/3:*", "*/*:22", "host:*", "red/*:1-1024", "*/*:*"] {
            assert_eq!(text.parse::<RuleSide>().unwrap().to_string(), text);
        }
        assert_eq!("*".parse::<RuleSide>().unwrap(), RuleSide::default());
        for bad in ["", "blue", "blue/x:1", "blue/3:9-1", "blue/3:x", "bl ue/3"] {
            assert!(bad.parse::<RuleSide>().is_err(), "{bad}");
        }
    }

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

    #[test]
    fn macs_and_names_are_checked() {
        assert_eq!("52:54:00:aB:00:01".parse::<Mac>().unwrap().to_string(), "52:54:00:ab:00:01");
        for bad in
            ["", "52:54:00:ab:00", "52:54:00:ab:00:01:02", "+2:54:00:ab:00:01", "5254:00:ab:00:01"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert!("vm-1.net_0".parse::<Name>().is_ok());
        for bad in ["", "-x", "a b", "a/b", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
