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
//! The daemon calls [`find`] in the thread that reads the file. Links that are added at run time are
//! checked by the shard of links instead.

use std::net::{IpAddr, SocketAddr};

use causeway_model::draft::{HostPort, LinkDraft, LinkKindName};
use causeway_model::{TableConflict, TableValues};

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

/// Returns the first conflict of each link with the links before it. A table that is no link has
/// none.
pub(super) fn find(tables: &[TableValues]) -> Vec<TableConflict> {
    let drafts: Vec<Option<LinkDraft>> = tables.iter().map(super::draft).collect();
    let sockets: Vec<_> =
        drafts.iter().map(|link| link.as_ref().and_then(LinkSocket::of)).collect();
    let mut conflicts = Vec::new();
    for (table, (link, socket)) in drafts.iter().zip(&sockets).enumerate() {
        let (Some(link), Some(socket)) = (link, socket) else { continue };
        let mut others = drafts.iter().zip(&sockets).take(table).enumerate();
        let found = others.find_map(|(other, (first, theirs))| {
            let (first, theirs) = (first.as_ref()?, theirs.as_ref()?);
            let is_same_peer = socket.is_shared(theirs);
            let is_conflict = if is_same_peer {
                peer_identity(link) == peer_identity(first)
            } else {
                socket.excludes(theirs)
            };
            is_conflict.then_some((other, first, is_same_peer))
        });
        if let Some((other, first, is_same_peer)) = found {
            let (before, after) = describe((link, socket.port), first, is_same_peer);
            let key = if is_same_peer { "remote" } else { "local" };
            conflicts.push(TableConflict { table, key, other, before, after });
        }
    }
    conflicts
}

/// Returns the text of a conflict of a link, with its UDP port, with an earlier link: before and
/// after the line of the latter.
fn describe(
    (link, port): (&LinkDraft, u16),
    first: &LinkDraft,
    is_same_peer: bool,
) -> (String, String) {
    let remedy = match (is_same_peer, link.kind) {
        (true, LinkKindName::Vnet) => "expected one link to a peer".to_owned(),
        (true, _) => "expected another vni".to_owned(),
        (false, _) => format!("expected another port than {port} in one of them"),
    };
    let text = match is_same_peer {
        true => "goes to the same peer",
        false => "needs the same UDP port in another way",
    };
    let (kind, theirs) = (link.kind.as_str(), first.kind.as_str());
    let before =
        format!("link {} (kind {kind:?}) and link {} (kind {theirs:?})", link.name, first.name);
    (before, format!(": the latter {text}; {remedy}"))
}
