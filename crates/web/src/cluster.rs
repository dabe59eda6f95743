//! The cluster in the state that browsers get: the hosts of the site, and what is wrong with it.
//!
//! Keys of hosts have no field here. Hosts that are evicted are known by name only. At most
//! [`HOSTS_MAX`] (1,000) hosts are in a state. `state` calls the functions in the poller's thread;
//! they are pure.

use causeway_model::{ClusterHostView, ClusterView};
use serde::Serialize;

use crate::limits::HOSTS_MAX;
use crate::source::{Finding, Weight};

/// The cluster.
#[derive(Debug, Clone, Serialize)]
pub struct Cluster {
    site: String,
    /// `follows`, `frozen` or `no-process`.
    state: String,
    /// Other hosts.
    hosts: Vec<Member>,
}

/// Another host of the site.
#[derive(Debug, Clone, Serialize)]
struct Member {
    name: String,
    /// `seen`, `unseen` or `evicted`.
    state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    endpoint: String,
    groups: Vec<String>,
    /// Names of the links to the host.
    links: Vec<String>,
    /// Number of its addresses.
    addresses: usize,
    /// Why a link to the host could not be added.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Cluster {
    /// Returns the cluster of a view.
    pub fn of(view: &ClusterView, hosts: &[ClusterHostView]) -> Self {
        let evicted = view.status.evicted.iter().map(|name| Member {
            name: name.to_string(),
            state: "evicted",
            endpoint: String::new(),
            groups: Vec::new(),
            links: Vec::new(),
            addresses: 0,
            reason: String::new(),
        });
        let site = view.site.as_ref().map(ToString::to_string).unwrap_or_default();
        let hosts = hosts.iter().map(member).chain(evicted).take(HOSTS_MAX).collect();
        Self { site, state: view.state.clone(), hosts }
    }
}

fn member(view: &ClusterHostView) -> Member {
    Member {
        name: view.host.id.to_string(),
        state: if view.host.seen { "seen" } else { "unseen" },
        endpoint: view.host.endpoints.first().map(ToString::to_string).unwrap_or_default(),
        groups: view.host.groups.iter().map(|group| group.name.to_string()).collect(),
        links: view.links.iter().map(ToString::to_string).collect(),
        addresses: view.addresses,
        reason: view.reason.clone(),
    }
}

/// Returns the problems of a cluster.
pub fn findings(view: &ClusterView) -> Vec<Finding> {
    let finding = |weight, text: String, remedy: Option<&str>| Finding {
        weight,
        text,
        remedy: remedy.map(str::to_owned),
        object: None,
    };
    let mut all = Vec::new();
    if !view.status.alarm.is_empty() {
        all.push(finding(Weight::Fail, format!("cluster: {}", view.status.alarm), None));
    }
    if view.state != "follows" {
        let remedy = "causeway cluster status";
        all.push(finding(Weight::Warn, format!("cluster: {}", view.reason), Some(remedy)));
    }
    all
}
