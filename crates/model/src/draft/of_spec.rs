//! The draft of a link that exists: the inverse of [`LinkDraft::into_spec`].
//!
//! The state file, `causeway config export` and `causeway config diff` need the operator's form of
//! a running link. Every value is given, except this host's address where the draft that made the
//! link may have omitted it: an unspecified address is `:PORT`, because its family follows the
//! peer's. A peer by name keeps its name, and not the address that the name had.
//!
//! `daemon::kept` is the caller, in threads of the control socket and of the start. The module
//! resolves nothing and cannot fail. Two drafts of the same link become equal by way of the
//! specification.

use std::net::SocketAddr;

use super::{LinkDraft, LinkKindName};
use crate::{LinkKind, LinkSpec, StreamSpec, TlsSpec, TrafficClass};

impl LinkDraft {
    /// Returns a draft that gives the link `spec`.
    pub fn of_spec(spec: &LinkSpec) -> Self {
        let (name, group) = (spec.name.clone(), spec.group.clone());
        let mut draft = Self::new(name, group, kind_name(&spec.kind));
        draft.peer = spec.peer.clone();
        draft.metric = Some(spec.metric);
        draft.transit = Some(spec.transit);
        draft.remote =
            spec.remote_host.clone().or_else(|| spec.remote().map(|remote| remote.to_string()));
        let local = |end: SocketAddr| Some(own_end(end, spec));
        match &spec.kind {
            LinkKind::Causeway(tunnel) => {
                draft.local = local(tunnel.local);
                draft.key = Some(tunnel.key.clone());
                draft.private_key = Some(tunnel.private_key.clone());
                draft.vni = Some(tunnel.vni);
                draft.idle = tunnel.idle;
                draft.set_class(tunnel.class);
            }
            LinkKind::CausewayPlain(udp) | LinkKind::Vxlan(udp) => {
                draft.local = local(udp.local);
                draft.vni = Some(udp.vni);
                draft.set_class(udp.class);
            }
            LinkKind::Vnet(udp) => {
                draft.local = local(udp.local);
                draft.set_class(udp.class);
            }
            LinkKind::Tcp(stream) => draft.listen = stream.listen.and_then(local),
            LinkKind::Tls(tls) => {
                let TlsSpec { stream, certificate, private_key, authorities, peer_name } = tls;
                let StreamSpec { listen, .. } = stream;
                draft.listen = listen.and_then(local);
                draft.certificate = Some(certificate.clone());
                draft.private_key = Some(private_key.clone());
                draft.authorities = Some(authorities.clone());
                draft.peer_name = Some(peer_name.clone());
            }
            LinkKind::Raw(raw) => draft.interface = Some(raw.interface.clone()),
        }
        draft
    }

    fn set_class(&mut self, class: TrafficClass) {
        self.dscp = Some(class.dscp);
        self.ecn = Some(class.ecn);
    }
}

/// Returns the name of a link's kind.
fn kind_name(kind: &LinkKind) -> LinkKindName {
    match kind {
        LinkKind::Causeway(_) => LinkKindName::Causeway,
        LinkKind::CausewayPlain(_) => LinkKindName::CausewayPlain,
        LinkKind::Vnet(_) => LinkKindName::Vnet,
        LinkKind::Vxlan(_) => LinkKindName::Vxlan,
        LinkKind::Tcp(_) => LinkKindName::Tcp,
        LinkKind::Tls(_) => LinkKindName::Tls,
        LinkKind::Raw(_) => LinkKindName::Raw,
    }
}

/// Returns this host's end: `:PORT` for an unspecified address of the family that a draft without
/// an address gets.
fn own_end(end: SocketAddr, spec: &LinkSpec) -> String {
    // Without a peer's address the default is that of IPv6, which receives both families.
    let follows = spec.remote_host.is_some()
        || spec.remote().map_or(end.is_ipv6(), |remote| remote.is_ipv4() == end.is_ipv4());
    match end.ip().is_unspecified() && follows {
        true => format!(":{}", end.port()),
        false => end.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value, json};

    use super::super::host::{assume_resolved, resolve_later};
    use super::*;

    #[test]
    fn link_draft_of_a_link_gives_the_same_link() {
        let key = format!("{}=", "A".repeat(43));
        for table in [
            json!({ "remote": "10.0.0.2", "key": key }),
            json!({ "remote": "[fd00::2]:7000", "key": key, "private_key": "/k", "vni": 9 }),
            json!({ "key": key, "local": "0.0.0.0:7000", "transit": true }),
            json!({ "key": key }),
            json!({ "kind": "causeway-plain", "remote": "far.example", "local": ":77" }),
            json!({ "kind": "causeway-plain", "remote": "10.0.0.2", "local": "10.0.0.1" }),
            json!({ "kind": "vnet", "remote": "far.example:9", "dscp": "inherit", "ecn": false }),
            json!({ "kind": "vxlan", "remote": "10.0.0.2", "vni": 7, "dscp": 5, "metric": 3 }),
            json!({ "kind": "tcp", "remote": "10.0.0.2", "listen": ":9001", "peer": "b" }),
            json!({ "kind": "tcp", "remote": "far.example" }),
            json!({ "kind": "tls", "remote": "far.example", "certificate": "/c",
                "private_key": "/k", "authorities": "/a", "listen": "10.0.0.1:9" }),
            json!({ "kind": "raw", "interface": "eth1" }),
        ] {
            let mut values: Map<String, Value> = table.as_object().unwrap().clone();
            values.insert("name".into(), "l".into());
            values.insert("group".into(), "g".into());
            for resolve in [assume_resolved, resolve_later] {
                let spec = |draft: LinkDraft| draft.into_spec(Path::new("/key"), resolve).unwrap();
                let first = spec(LinkDraft::read(&values).unwrap());
                let draft = LinkDraft::of_spec(&first);
                assert_eq!(draft.problems(), [], "{table}");
                assert_eq!(LinkDraft::read(&draft.values()).unwrap(), draft, "{table}");
                assert_eq!(spec(draft), first, "{table}");
            }
        }
    }
}
