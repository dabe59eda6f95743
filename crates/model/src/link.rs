//! Links: configured paths to peers.
//!
//! [`LinkSpec`] describes a link completely, with defaults filled in and names resolved, or with an
//! unspecified address until the first resolution ([`LinkSpec::is_unresolved`]);
//! [`crate::draft::LinkDraft`] is the operator's form, from which it is made. The `link` service
//! opens the sockets of a specification and reports [`crate::LinkView`].
//!
//! Values only: no function here opens a socket, reads a key file or resolves a name.
//! [`LinkSpec::check`] checks ranges and address families, and neither reachability nor the key;
//! the draft calls it, and the controller of links again before it adds a link, in the thread of
//! the command. The MTU ([`LinkKind::mtu`]) is computed from an assumed path and may exceed that of
//! the real path. Only the kinds `causeway` and `tls` encrypt and authenticate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{INTERFACE_BYTES_MAX, LINK_IDLE_SECONDS_MAX, LINK_IDLE_SECONDS_MIN, VNI_MAX};
use crate::{Name, SpecError, TrafficClass};

/// A configured path to a peer, for the frames of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Name of the link, unique in the daemon.
    pub name: Name,
    /// Group of the frames that the link carries.
    pub group: Name,
    /// Name of the peer. Links of one group with the same peer are alternatives to each other.
    /// Without a name, the peer is identified by its key, or by its host as the operator gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Name>,
    /// Of several links to one peer that are up, one carries the frames: links without heavy loss
    /// come first, then the lowest metric, then the link that was opened first.
    #[serde(default = "metric_default")]
    pub metric: u16,
    /// Whether frames that arrived by another link may leave by this link, and frames that arrived
    /// by this link may leave by another. It suffices that one of the two links has it. Must be off
    /// where all daemons are linked to each other, or frames are duplicated.
    #[serde(default)]
    pub transit: bool,
    /// `HOST:PORT` of the peer, if it was given by name. The address in [`Self::kind`] is the last
    /// address that the name resolved to; it is unspecified before the first resolution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_host: Option<String>,
    /// Encapsulation, and the addresses of both ends.
    #[serde(flatten)]
    pub kind: LinkKind,
}

/// Returns the default metric of a link.
pub fn metric_default() -> u16 {
    100
}

/// Encapsulation of frames, with the addresses of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LinkKind {
    /// Causeway's own format: UDP, encrypted and authenticated; frames of any size, with their
    /// offloads.
    Causeway(TunnelSpec),
    /// As `causeway`, without encryption and authentication.
    CausewayPlain(UdpSpec),
    /// The Ethernet frame in UDP without a further header, as VNET/P sends it.
    Vnet(UdpSpec),
    /// VXLAN (RFC 7348).
    Vxlan(UdpSpec),
    /// Frames over TCP, in VNET/U's framing.
    Tcp(StreamSpec),
    /// VNET/U's framing over TLS, with certificates on both sides.
    Tls(TlsSpec),
    /// The network behind an interface of this host, without encapsulation.
    Raw(RawSpec),
}

impl LinkKind {
    /// Returns the name of the kind, as operators write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Causeway(_) => "causeway",
            Self::CausewayPlain(_) => "causeway-plain",
            Self::Vnet(_) => "vnet",
            Self::Vxlan(_) => "vxlan",
            Self::Tcp(_) => "tcp",
            Self::Tls(_) => "tls",
            Self::Raw(_) => "raw",
        }
    }

    /// Returns the largest payload of a frame that crosses without IP fragmentation, in bytes.
    /// `underlay` is the MTU of the IP path, in bytes. The payload excludes the Ethernet header.
    /// Kinds that fragment and reassemble frames themselves, or send a stream, carry all sizes:
    /// 65,535.
    pub fn mtu(&self, underlay: u16) -> u16 {
        match self {
            Self::Causeway(_) | Self::CausewayPlain(_) | Self::Tcp(_) | Self::Tls(_) => u16::MAX,
            Self::Vnet(udp) => datagram_mtu(underlay, udp.remote.is_ipv4(), 0),
            Self::Vxlan(udp) => datagram_mtu(underlay, udp.remote.is_ipv4(), VXLAN_BYTES),
            Self::Raw(_) => underlay,
        }
    }
}

/// Length of an Ethernet header, in bytes.
const ETHERNET_BYTES: u16 = 14;
/// Length of a VXLAN header, in bytes.
pub const VXLAN_BYTES: u16 = 8;

/// Returns the length of the IP and UDP headers of a datagram, in bytes.
pub const fn udp_headers(is_ipv4: bool) -> u16 {
    if is_ipv4 { 28 } else { 48 }
}

/// Returns the largest payload of a frame that fits one UDP datagram with an encapsulation header
/// of `encapsulation` bytes, in bytes; 0 if none fits.
pub const fn datagram_mtu(underlay: u16, is_ipv4: bool, encapsulation: u16) -> u16 {
    let headers = udp_headers(is_ipv4).saturating_add(ETHERNET_BYTES);
    underlay.saturating_sub(headers.saturating_add(encapsulation))
}

/// The ends of an encrypted tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelSpec {
    /// Address of the peer; `None` if the peer connects to this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// Address and port of this host, for both directions.
    pub local: SocketAddr,
    /// The peer's public key: 32 bytes in base64.
    pub key: PublicKeyText,
    /// File of this host's private key. Views show the path, never the key.
    pub private_key: std::path::PathBuf,
    /// Number of the group on the wire, 0 to 16777215; the same at both ends.
    pub vni: u32,
    /// Seconds without traffic after which the link goes dormant, 10 to 86400: it has no session
    /// then, and the next frame begins one. `None` if the link is always awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<u32>,
    /// Whether both hosts know each other's addresses from the directory of a cluster; such a link
    /// with an idle time is dormant from the beginning. Never read from outside.
    #[serde(skip)]
    pub has_directory: bool,
    /// The traffic class of datagrams.
    #[serde(flatten)]
    pub class: TrafficClass,
}

/// The ends of an unencrypted UDP link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSpec {
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Address and port of this host, for both directions.
    pub local: SocketAddr,
    /// As in [`TunnelSpec::vni`]; unused by `vnet`.
    #[serde(default)]
    pub vni: u32,
    /// The traffic class of datagrams.
    #[serde(flatten)]
    pub class: TrafficClass,
}

/// The ends of a TCP link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Address of the peer. A listening link accepts connections from this address only, from any
    /// port.
    pub remote: SocketAddr,
    /// Address at which this host listens; `None` if it connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

/// The ends of a TLS link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSpec {
    /// The TCP connection.
    #[serde(flatten)]
    pub stream: StreamSpec,
    /// File of this host's certificate and its chain (PEM).
    pub certificate: std::path::PathBuf,
    /// File of the certificate's private key (PEM). Views show the path, never the key.
    pub private_key: std::path::PathBuf,
    /// File of the authorities that may have signed the peer's certificate (PEM).
    pub authorities: std::path::PathBuf,
    /// Name in the peer's certificate.
    pub peer_name: String,
}

/// An interface of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawSpec {
    /// Name of the interface, 1 to 15 bytes.
    pub interface: String,
}

impl RawSpec {
    /// Checks the name of an interface.
    ///
    /// # Errors
    /// The name is malformed; the text states the expected form.
    pub fn check_interface(name: &str) -> Result<(), String> {
        let bad = |b: u8| b == b'/' || b.is_ascii_whitespace() || b.is_ascii_control();
        let dots = name == "." || name == "..";
        let fits = !name.is_empty() && name.len() <= INTERFACE_BYTES_MAX;
        if fits && !name.bytes().any(bad) && !dots {
            return Ok(());
        }
        Err(format!("{name:?}: expected 1 to {INTERFACE_BYTES_MAX} bytes"))
    }
}

/// A peer's public key in text form: 32 bytes in base64. [`crate::keys::PublicKey`] holds the
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKeyText(String);

impl PublicKeyText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PublicKeyText {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (body, end) = text.split_at_checked(43).unwrap_or((text, ""));
        let digits = body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
        if text.len() == 44 && digits && end == "=" {
            Ok(Self(text.to_owned()))
        } else {
            Err(SpecError(
                "key: expected the 44 characters that `causeway key public` prints".into(),
            ))
        }
    }
}

impl TryFrom<String> for PublicKeyText {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<PublicKeyText> for String {
    fn from(key: PublicKeyText) -> String {
        key.0
    }
}

impl LinkSpec {
    /// Checks the values that the types do not restrict: the VNI, the addresses and the interface.
    ///
    /// # Errors
    /// The first invalid value, with its expected form.
    pub fn check(&self) -> Result<(), SpecError> {
        let fail = |text: String| Err(SpecError(format!("link {}: {text}", self.name)));
        let vni = match &self.kind {
            LinkKind::Causeway(tunnel) => tunnel.vni,
            LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => udp.vni,
            LinkKind::Tcp(_) | LinkKind::Tls(_) | LinkKind::Raw(_) => 0,
        };
        if vni > VNI_MAX {
            return fail(format!("vni {vni}: expected 0 to {VNI_MAX}"));
        }
        if let LinkKind::Causeway(TunnelSpec { idle: Some(idle), remote, .. }) = &self.kind {
            let (min, max) = (LINK_IDLE_SECONDS_MIN, LINK_IDLE_SECONDS_MAX);
            if !(min..=max).contains(idle) {
                return fail(format!("idle {idle}: expected {min} to {max} seconds"));
            }
            if remote.is_none() {
                return fail("idle: a dormant link needs remote, to reach the peer first".into());
            }
        }
        if self.is_unresolved() {
            return Ok(());
        }
        if let Some((local, Some(remote))) = self.ends() {
            if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
                return fail(format!("remote {remote}: expected the address of one peer"));
            }
            if local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
                return fail(format!("remote {remote}: its family is not that of our end"));
            }
        }
        if let LinkKind::Raw(raw) = &self.kind
            && let Err(why) = RawSpec::check_interface(&raw.interface)
        {
            return fail(format!("interface {why}"));
        }
        Ok(())
    }

    /// Returns whether the peer was given by a name that has not been resolved yet.
    pub fn is_unresolved(&self) -> bool {
        self.remote_host.is_some() && self.remote().is_some_and(|at| at.ip().is_unspecified())
    }

    /// Returns the peer's address, or `None` if the link has none.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.ends().and_then(|(_, remote)| remote)
    }

    /// Returns this host's address, or `None` if the link binds none.
    pub fn local(&self) -> Option<SocketAddr> {
        self.ends().and_then(|(local, _)| local)
    }

    /// Returns the same link to a peer at another address. If this host's end is the unspecified
    /// address, it takes the family of the peer's address.
    #[must_use]
    pub fn with_remote(&self, to: SocketAddr) -> Self {
        let follow = |local: &mut SocketAddr| {
            if local.ip().is_unspecified() && local.is_ipv4() != to.is_ipv4() {
                let any = if to.is_ipv4() {
                    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
                } else {
                    IpAddr::V6(Ipv6Addr::UNSPECIFIED)
                };
                local.set_ip(any);
            }
        };
        let mut spec = self.clone();
        match &mut spec.kind {
            LinkKind::Causeway(tunnel) => {
                tunnel.remote = Some(to);
                follow(&mut tunnel.local);
            }
            LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
                udp.remote = to;
                follow(&mut udp.local);
            }
            LinkKind::Tcp(stream) | LinkKind::Tls(TlsSpec { stream, .. }) => {
                stream.remote = to;
                stream.listen.iter_mut().for_each(follow);
            }
            LinkKind::Raw(_) => {}
        }
        spec
    }

    /// Returns the addresses of this host's end and of the peer's end, in this order; `None` for a
    /// link without addresses.
    fn ends(&self) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        match &self.kind {
            LinkKind::Causeway(tunnel) => Some((Some(tunnel.local), tunnel.remote)),
            LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
                Some((Some(udp.local), Some(udp.remote)))
            }
            LinkKind::Tcp(stream) | LinkKind::Tls(TlsSpec { stream, .. }) => {
                Some((stream.listen, Some(stream.remote)))
            }
            LinkKind::Raw(_) => None,
        }
    }

    /// Returns the text that identifies the peer: the same for links that are alternatives to each
    /// other.
    pub fn peer_label(&self) -> String {
        if let Some(peer) = &self.peer {
            return peer.to_string();
        }
        // The address behind a name may change while the link is in use, so it cannot identify the
        // peer.
        if let (Some(host), false) = (&self.remote_host, matches!(self.kind, LinkKind::Causeway(_)))
        {
            return host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host).to_owned();
        }
        match &self.kind {
            LinkKind::Causeway(tunnel) => tunnel.key.as_str().to_owned(),
            LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
                udp.remote.ip().to_string()
            }
            LinkKind::Tcp(stream) | LinkKind::Tls(TlsSpec { stream, .. }) => {
                stream.remote.ip().to_string()
            }
            // Each interface leads to another network.
            LinkKind::Raw(raw) => format!("interface {}", raw.interface),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(remote: &str, local: &str, vni: u32) -> LinkSpec {
        let (remote, local) = (remote.parse().unwrap(), local.parse().unwrap());
        LinkSpec {
            name: "l".parse().unwrap(),
            group: "g".parse().unwrap(),
            peer: None,
            metric: 100,
            transit: false,
            remote_host: None,
            kind: LinkKind::Vxlan(UdpSpec { remote, local, vni, class: TrafficClass::default() }),
        }
    }

    #[test]
    fn link_ends_are_checked() {
        assert!(udp("10.0.0.2:4789", "0.0.0.0:4789", 7).check().is_ok());
        assert!(udp("[fd00::2]:4789", "[::]:4789", 7).check().is_ok());
        for (bad, expected) in [
            (udp("10.0.0.2:0", "0.0.0.0:4789", 7), "one peer"),
            (udp("0.0.0.0:1", "0.0.0.0:4789", 7), "one peer"),
            (udp("224.0.0.1:1", "0.0.0.0:4789", 7), "one peer"),
            (udp("10.0.0.2:1", "[::]:4789", 7), "family"),
            (udp("10.0.0.2:1", "0.0.0.0:1", 1 << 24), "16777215"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn link_mtu_follows_the_underlay() {
        let v4 = udp("10.0.0.2:4789", "0.0.0.0:4789", 7);
        let v6 = udp("[fd00::2]:4789", "[::]:4789", 7);
        // As the kernel's own devices have it.
        assert_eq!((v4.kind.mtu(1500), v6.kind.mtu(1500)), (1450, 1430));
        let LinkKind::Vxlan(ends) = v4.kind else { panic!() };
        assert_eq!(LinkKind::Vnet(ends.clone()).mtu(1500), 1458);
        assert_eq!(LinkKind::CausewayPlain(ends).mtu(1500), 65535);
    }

    #[test]
    fn link_reads_and_prints_as_json() {
        let spec = udp("10.0.0.2:4789", "0.0.0.0:4789", 7);
        let json = serde_json::to_value(&spec).unwrap();
        assert_eq!(json["kind"], "vxlan");
        assert_eq!((&json["dscp"], &json["ecn"]), (&0.into(), &true.into()));
        assert_eq!(serde_json::from_value::<LinkSpec>(json).unwrap(), spec);
    }

    #[test]
    fn link_keys_are_checked() {
        let good = format!("{}=", "A".repeat(43));
        assert!(good.parse::<PublicKeyText>().is_ok());
        for bad in ["", "x", &"A".repeat(44), &format!("{}=", "!".repeat(43))] {
            assert!(bad.parse::<PublicKeyText>().is_err(), "{bad}");
        }
    }
}
