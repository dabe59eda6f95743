//! A sample of the daemon: all views that the page shows, read one after the other.
//!
//! A sample is a fixed number of requests, one for each of at most [`TRAFFIC_GROUPS_MAX`] (64)
//! groups, and at most [`CONNECTION_PAGES_MAX`] (8) pages of connections. Views of links,
//! the cluster, dispatchers, peers, traffic and connections that a daemon refuses, because a service or a group
//! is missing or has no ports, are empty; any other failed request, a refused view of the process,
//! the ports or the groups included, fails the sample.
//!
//! [`crate::poller`] takes a sample each interval, in its thread, and waits for each reply as long
//! as the [`ControlSource`] does. The views are not of one moment: the daemon goes on in between.

use causeway_model::{
    ClusterHostView, ClusterView, ConnectionPage, ConnectionView, DispatcherView, GroupView,
    InfoView, PeerView, Textual, TrafficView,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::limits::{CONNECTION_PAGES_MAX, TRAFFIC_GROUPS_MAX};
use crate::source::{ControlSource, Finding, LinkView, PortView, SourceError};

/// The views of a daemon.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The process.
    pub info: InfoView,
    /// All ports.
    pub ports: Vec<PortView>,
    /// All groups.
    pub groups: Vec<GroupView<Textual>>,
    /// All links.
    pub links: Vec<LinkView>,
    /// All dispatchers.
    pub dispatchers: Vec<DispatcherView<Textual>>,
    /// The traffic of the first groups.
    pub traffic: Vec<TrafficView<Textual>>,
    /// The cluster; absent without one.
    pub cluster: Option<ClusterView>,
    /// The other hosts of the cluster.
    pub cluster_hosts: Vec<ClusterHostView>,
    /// NICs of other hosts, as NICs of MX endpoints know them.
    pub peers: Vec<PeerView<Textual>>,
    /// AF_VSOCK connections.
    pub connections: Vec<ConnectionView<Textual>>,
    /// Whether there are more connections than these.
    pub has_more_connections: bool,
    /// Problems.
    pub findings: Vec<Finding>,
}

impl Sample {
    /// Reads a sample.
    ///
    /// # Errors
    /// The daemon does not answer in time, refuses, or answers with another form.
    pub fn take(source: &dyn ControlSource) -> Result<Self, SourceError> {
        let info: InfoView = required(source, "/v1/info")?;
        let ports: Vec<PortView> = required(source, "/v1/ports")?;
        let groups: Vec<GroupView<Textual>> = required(source, "/v1/groups")?;
        let links: Vec<LinkView> = optional(source, "/v1/links")?.unwrap_or_default();
        let dispatchers = optional(source, "/v1/dispatchers")?.unwrap_or_default();
        let peers = optional(source, "/v1/peers")?.unwrap_or_default();
        let cluster: Option<ClusterView> = optional(source, "/v1/cluster")?;
        let cluster = cluster.filter(|cluster| cluster.site.is_some());
        let cluster_hosts = match &cluster {
            Some(_) => optional(source, "/v1/cluster/hosts")?.unwrap_or_default(),
            None => Vec::new(),
        };
        let mut traffic = Vec::new();
        for group in groups.iter().take(TRAFFIC_GROUPS_MAX) {
            // A group without ports, or one that was deleted meanwhile, has no traffic.
            traffic.extend(optional(source, &format!("/v1/traffic/{}", group.name))?);
        }
        let (connections, has_more_connections) = connections(source)?;
        let findings = source.findings(&info, &ports, &links);
        Ok(Self {
            info,
            ports,
            groups,
            links,
            dispatchers,
            traffic,
            cluster,
            cluster_hosts,
            peers,
            connections,
            has_more_connections,
            findings,
        })
    }
}

/// Reads a view that every daemon has.
fn required<T: DeserializeOwned>(source: &dyn ControlSource, path: &str) -> Result<T, SourceError> {
    parsed(path, source.get(path)?)
}

/// Reads a view; `None` if the daemon refuses it.
fn optional<T: DeserializeOwned>(
    source: &dyn ControlSource,
    path: &str,
) -> Result<Option<T>, SourceError> {
    match source.get(path) {
        Ok(value) => parsed(path, value).map(Some),
        Err(error) if error.is_refused => Ok(None),
        Err(error) => Err(error),
    }
}

fn parsed<T: DeserializeOwned>(path: &str, value: serde_json::Value) -> Result<T, SourceError> {
    serde_json::from_value(value).map_err(|error| SourceError {
        is_refused: false,
        text: format!("{path}: unexpected reply of the daemon: {error}"),
    })
}

/// Reads the first pages of connections; also returns whether there are more.
fn connections(
    source: &dyn ControlSource,
) -> Result<(Vec<ConnectionView<Textual>>, bool), SourceError> {
    let mut all = Vec::new();
    let mut filter = json!({});
    for _ in 0..CONNECTION_PAGES_MAX {
        let value = match source.connections(&filter) {
            Ok(value) => value,
            Err(error) if error.is_refused => return Ok((all, false)),
            Err(error) => return Err(error),
        };
        let page: ConnectionPage<Textual> = parsed("/v1/connections", value)?;
        all.extend(page.connections);
        match page.next {
            Some(next) => filter = json!({ "after": next }),
            None => return Ok((all, false)),
        }
    }
    Ok((all, true))
}
