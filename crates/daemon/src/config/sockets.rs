//! Checks for links of a file that cannot be open at the same time: two links that use a UDP port
//! in conflicting ways, or that a shared socket cannot distinguish.
//!
//! Only links over UDP are compared: streams and raw links pass. Each link is compared with the
//! links before it, and the first conflict is reported: quadratic in the number of links. Names of
//! peers are not resolved, so that two names of the same host pass. A link to a name, without an
//! address in `local`, has no address family yet: it conflicts with links of other kinds at its UDP
//! port, and with such a link of its kind to the same peer. Ports that other programs use are found
//! at the opening of the link.
//!
//! `config::check` calls [`check`], in the thread that reads the file. Links that are added at run
//! time are checked by the `link` service instead.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::file_value::FileValue;
use super::problem::{Problems, line_of};
use causeway_model::draft::{HostPort, LinkDraft, LinkKindName};

/// The UDP socket of a link.
#[derive(Debug, PartialEq, Eq)]
struct LinkSocket<'a> {
    /// `None` is the unspecified address, of the family of the peer's resolved address.
    address: Option<IpAddr>,
    /// The UDP port.
    port: u16,
    /// Links with equal sockets of this kind share a socket.
    kind: LinkKindName,
    /// File of the private key, for encrypted tunnels.
    key: Option<&'a std::path::Path>,
}

impl<'a> LinkSocket<'a> {
    /// Returns the UDP socket of a link; `None` for streams and raw links.
    fn of(link: &'a LinkDraft) -> Option<Self> {
        let kind = link.kind;
        let datagrams = [
            LinkKindName::Causeway,
            LinkKindName::CausewayPlain,
            LinkKindName::Vnet,
            LinkKindName::Vxlan,
        ];
        if !datagrams.contains(&kind) {
            return None;
        }
        let key = link.private_key.as_deref();
        let local = link.local.as_deref();
        let port = local.and_then(|text| text.strip_prefix(':')).and_then(|port| port.parse().ok());
        let end: Option<SocketAddr> = local.and_then(|text| text.parse().ok());
        let port = end.map(|end| end.port()).or(port).unwrap_or_else(|| kind.port());
        Some(Self { address: end.map(|end| end.ip()), port, kind, key })
    }

    /// Returns whether the socket receives datagrams to any address.
    fn is_any(&self) -> bool {
        self.address.is_none_or(|address| address.is_unspecified())
    }

    /// Returns whether the socket receives both families: encrypted tunnels at the unspecified
    /// address do.
    fn is_both(&self) -> bool {
        self.kind == LinkKindName::Causeway && self.is_any()
    }

    /// Returns whether both links share one socket.
    fn is_shared(&self, other: &Self) -> bool {
        let same = self.address == other.address || (self.is_both() && other.is_both());
        (self.kind, self.port, self.key) == (other.kind, other.port, other.key) && same
    }

    /// Returns whether the host refuses to bind both sockets.
    fn excludes(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (self.address, other.address) else {
            // The family of an unresolved name is not known yet.
            return self.port == other.port && self.kind != other.kind;
        };
        let families = self.is_both() || other.is_both() || one.is_ipv4() == two.is_ipv4();
        let addresses = self.is_any() || other.is_any() || one == two;
        self.port == other.port && families && addresses
    }
}

/// Returns the values by which a shared socket distinguishes its links: the peer's host or key, and
/// the VNI.
fn peer_identity(link: &LinkDraft) -> (Option<String>, Option<&str>, Option<u32>) {
    let host = link.remote.as_ref().and_then(|remote| remote.parse::<HostPort>().ok());
    let (host, port) = host.map(|place| (place.host, place.port)).unzip();
    let key = link.key.as_ref().map(|key| key.as_str());
    match link.kind {
        LinkKindName::Vnet => (host, None, None),
        LinkKindName::Vxlan => (host, None, link.vni),
        // Tunnels are distinguished by the peer's port as well.
        _ => {
            let port = port.flatten().map(|port| format!(":{port}")).unwrap_or_default();
            (host.map(|host| host + &port), key, link.vni)
        }
    }
}

/// Checks each link against the links before it.
pub(super) fn check(source: &str, links: &[FileValue<LinkDraft>], problems: &mut Problems) {
    let sockets: Vec<_> = links.iter().map(|link| LinkSocket::of(&link.value)).collect();
    for (at, (link, socket)) in links.iter().zip(&sockets).enumerate() {
        let Some(socket) = socket else { continue };
        let mut others = links.iter().zip(&sockets).take(at);
        let clash = others.find_map(|(other, theirs)| {
            let theirs = theirs.as_ref()?;
            let text = if socket.is_shared(theirs) {
                (peer_identity(&link.value) == peer_identity(&other.value))
                    .then_some("goes to the same peer")?
            } else {
                socket.excludes(theirs).then_some("needs the same UDP port in another way")?
            };
            Some((other, text))
        });
        if let Some((other, text)) = clash {
            let (span, text) = describe(source, link, socket.port, (other, text));
            problems.add(span, text);
        }
    }
}

/// Returns the position and the text of a conflict of a link with an earlier link.
fn describe(
    source: &str,
    link: &FileValue<LinkDraft>,
    port: u16,
    (other, text): (&FileValue<LinkDraft>, &str),
) -> (Range<usize>, String) {
    let (name, first) = (&link.value.name, &other.value.name);
    let line = line_of(source, other.whole.start);
    let (kind, theirs) = (link.value.kind.as_str(), other.value.kind.as_str());
    let same = text.contains("same peer");
    let key = if same { "remote" } else { "local" };
    let remedy = match (same, link.value.kind) {
        (true, LinkKindName::Vnet) => "expected one link to a peer".to_owned(),
        (true, _) => "expected another vni".to_owned(),
        (false, _) => format!("expected another port than {port} in one of them"),
    };
    let text = format!(
        "key {key:?}: link {name} (kind {kind:?}) and link {first} (kind {theirs:?}) on line {line}: \
         the latter {text}; {remedy}"
    );
    (link.span(key), text)
}
