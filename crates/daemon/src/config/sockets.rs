//! Links of one file that cannot be open at the same time: two that want one UDP port in different ways,
//! or one place on a socket that they share.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::check::Sited;
use super::problem::{Problems, line_of};
use causeway_model::draft::{LinkDraft, LinkWord, Place};

/// The UDP socket that a link needs.
#[derive(Debug, PartialEq, Eq)]
struct Socket<'a> {
    /// None: any address, of the family that the peer's name turns out to have.
    address: Option<IpAddr>,
    port: u16,
    /// Links whose sockets are the same in this share one.
    kind: LinkWord,
    key: Option<&'a std::path::Path>,
}

impl<'a> Socket<'a> {
    fn of(link: &'a LinkDraft) -> Option<Self> {
        let kind = link.kind;
        let datagrams =
            [LinkWord::Causeway, LinkWord::CausewayPlain, LinkWord::Vnet, LinkWord::Vxlan];
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

    /// Whether it takes datagrams to any address.
    fn is_any(&self) -> bool {
        self.address.is_none_or(|address| address.is_unspecified())
    }

    /// Encrypted tunnels at any address take both families.
    fn is_both(&self) -> bool {
        self.kind == LinkWord::Causeway && self.is_any()
    }

    /// Whether both are one socket.
    fn is_shared(&self, other: &Self) -> bool {
        let same = self.address == other.address || (self.is_both() && other.is_both());
        (self.kind, self.port, self.key) == (other.kind, other.port, other.key) && same
    }

    /// Whether the host refuses one of them.
    fn excludes(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (self.address, other.address) else {
            // Which family a name has is not known yet.
            return self.port == other.port && self.kind != other.kind;
        };
        let families = self.is_both() || other.is_both() || one.is_ipv4() == two.is_ipv4();
        let addresses = self.is_any() || other.is_any() || one == two;
        self.port == other.port && families && addresses
    }
}

/// By what a socket tells the peer of a link from others: its host, or its key; and the network.
fn place(link: &LinkDraft) -> (Option<String>, Option<&str>, Option<u32>) {
    let host = link.remote.as_ref().and_then(|remote| remote.parse::<Place>().ok());
    let (host, port) = host.map(|place| (place.host, place.port)).unzip();
    let key = link.key.as_ref().map(|key| key.as_str());
    match link.kind {
        LinkWord::Vnet => (host, None, None),
        LinkWord::Vxlan => (host, None, link.vni),
        // Tunnels are told apart by the peer's port as well.
        _ => {
            let port = port.flatten().map(|port| format!(":{port}")).unwrap_or_default();
            (host.map(|host| host + &port), key, link.vni)
        }
    }
}

/// Checks each link against those before it.
pub(super) fn check(source: &str, links: &[Sited<LinkDraft>], problems: &mut Problems) {
    let sockets: Vec<_> = links.iter().map(|link| Socket::of(&link.value)).collect();
    for (at, (link, socket)) in links.iter().zip(&sockets).enumerate() {
        let Some(socket) = socket else { continue };
        let mut others = links.iter().zip(&sockets).take(at);
        let clash = others.find_map(|(other, theirs)| {
            let theirs = theirs.as_ref()?;
            let text = if socket.is_shared(theirs) {
                (place(&link.value) == place(&other.value)).then_some("goes to the same peer")?
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

fn describe(
    source: &str,
    link: &Sited<LinkDraft>,
    port: u16,
    (other, text): (&Sited<LinkDraft>, &str),
) -> (Range<usize>, String) {
    let (name, first) = (&link.value.name, &other.value.name);
    let line = line_of(source, other.whole.start);
    let (kind, theirs) = (link.value.kind.word(), other.value.kind.word());
    let same = text.contains("same peer");
    let key = if same { "remote" } else { "local" };
    let remedy = match (same, link.value.kind) {
        (true, LinkWord::Vnet) => "expected one link to a peer".to_owned(),
        (true, _) => "expected another vni".to_owned(),
        (false, _) => format!("expected another port than {port} in one of them"),
    };
    let text = format!(
        "key {key:?}: link {name} (kind {kind:?}) and link {first} (kind {theirs:?}) on line {line}: \
         the latter {text}; {remedy}"
    );
    (link.span(key), text)
}
