//! Pairs of ports, links and the host that exchange traffic, from the traffic matrices of groups
//! and the list of AF_VSOCK connections.
//!
//! A frame's destination address belongs to the port with this address, or to the port or link that
//! sends from it. Frames to several receivers and to unknown addresses have no pair. Both
//! directions of a pair, and all of its addresses and connections, are one [`Talk`] of each kind.
//! Frames of a member to itself are left out.
//!
//! [`crate::state`] calls [`talks`] once for a sample, in the poller's thread. At most
//! [`TALKS_MAX`] (2,000) pairs are returned, the busiest first, with the number of the others.

use std::collections::{BTreeMap, BTreeSet};

use causeway_model::{ConnectionEnd, Textual, TrafficView};
use serde::Serialize;

use crate::limits::TALKS_MAX;
use crate::sample::Sample;

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "type", content = "name", rename_all = "lowercase")]
pub enum End {
    /// A port.
    Port(String),
    /// A link: senders or receivers on the peer's host.
    Link(String),
    /// Processes of this host.
    Host,
}

/// The kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TalkKind {
    /// Ethernet frames.
    Ethernet,
    /// RDMA messages.
    Rdma,
    /// AF_VSOCK connections.
    Vsock,
}

/// Traffic between two members of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Talk {
    /// The group.
    pub group: String,
    /// The kind.
    pub kind: TalkKind,
    /// One member.
    pub from: End,
    /// The other member.
    pub to: End,
    /// Bytes a second in the last period of the matrix, from `from` to `to`.
    pub forth: f64,
    /// Bytes a second from `to` to `from`.
    pub back: f64,
    /// Open connections; 0 for other kinds than AF_VSOCK.
    pub connections: u64,
}

/// Returns the pairs of a sample, the busiest first, at most [`TALKS_MAX`]; also returns the number
/// of omitted pairs.
pub fn talks(sample: &Sample) -> (Vec<Talk>, usize) {
    let mut all = TalkTable::default();
    for traffic in &sample.traffic {
        all.add_traffic(sample, traffic);
    }
    for connection in &sample.connections {
        let (caller, callee) = (end(&connection.caller), end(&connection.callee));
        let (talk, _) = all.entry(&connection.group, TalkKind::Vsock, caller, callee);
        talk.connections = talk.connections.saturating_add(1);
    }
    let mut all: Vec<Talk> = all.0.into_values().collect();
    let weight = |talk: &Talk| talk.forth + talk.back;
    all.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(b.connections.cmp(&a.connections)));
    let omitted = all.len().saturating_sub(TALKS_MAX);
    all.truncate(TALKS_MAX);
    (all, omitted)
}

/// Returns the member at a side of a connection.
fn end(side: &ConnectionEnd<Textual>) -> End {
    match (&side.port, &side.link) {
        (Some(port), _) => End::Port(port.clone()),
        (None, Some(link)) => End::Link(link.clone()),
        (None, None) => End::Host,
    }
}

/// Pairs by group, kind and members, the lesser member first.
#[derive(Debug, Default)]
struct TalkTable(BTreeMap<(String, TalkKind, End, End), Talk>);

impl TalkTable {
    /// Returns the pair of two members, and whether `a` is its `to`.
    fn entry(&mut self, group: &str, kind: TalkKind, a: End, b: End) -> (&mut Talk, bool) {
        let is_reverse = b < a;
        let (from, to) = if is_reverse { (b, a) } else { (a, b) };
        let key = (group.to_owned(), kind, from.clone(), to.clone());
        let talk = self.0.entry(key).or_insert_with(|| Talk {
            group: group.to_owned(),
            kind,
            from,
            to,
            forth: 0.0,
            back: 0.0,
            connections: 0,
        });
        (talk, is_reverse)
    }

    /// Adds the matrix of a group.
    fn add_traffic(&mut self, sample: &Sample, traffic: &TrafficView<Textual>) {
        let group = traffic.group.as_str();
        let links: BTreeSet<&str> = sample
            .links
            .iter()
            .filter(|link| link.spec.text("group") == Some(group))
            .filter_map(|link| link.spec.text("name"))
            .collect();
        let member = |name: &str| match links.contains(name) {
            true => End::Link(name.to_owned()),
            false => End::Port(name.to_owned()),
        };
        let mut owners: BTreeMap<String, End> = BTreeMap::new();
        for pair in &traffic.pairs {
            owners.insert(pair.source.to_lowercase(), member(&pair.from));
        }
        for port in sample.ports.iter().filter(|port| port.spec.text("group") == Some(group)) {
            if let (Some(mac), Some(name)) = (port.spec.text("mac"), port.spec.text("name")) {
                owners.insert(mac.to_lowercase(), End::Port(name.to_owned()));
            }
        }
        for pair in &traffic.pairs {
            let Some(to) = owners.get(&pair.destination.to_lowercase()) else { continue };
            let from = member(&pair.from);
            if from == *to {
                continue;
            }
            let is_rdma = pair.messages_total > 0 && pair.frames_total == 0;
            let kind = if is_rdma { TalkKind::Rdma } else { TalkKind::Ethernet };
            let (talk, is_reverse) = self.entry(group, kind, from, to.clone());
            let direction = if is_reverse { &mut talk.back } else { &mut talk.forth };
            *direction += pair.bytes_per_second.max(0.0);
        }
    }
}
