//! The state that browsers get as JSON: `GET /api/state`.
//!
//! [`Daemon::of`] selects from a [`Sample`] and computes rates from the sample before. Every field
//! is named here: paths, keys, users and passwords of configurations have none, whatever keys a
//! newer daemon adds. Texts of faults, warnings, reasons and findings pass as they are. The page is
//! the only reader; the form may change with each release.
//!
//! [`crate::poller`] computes a state after each sample, in its thread, and keeps the JSON. At most
//! 2,000 talks ([`crate::talks`]) and [`NICS_MAX`] (2,000) NICs are in it; further NICs are missing
//! without a sign. A view without a name or an address has an empty text in its place.
//! [`Daemon::of`] does not fail, asks nobody, and keeps nothing; without a sample before there are
//! no rates.

use std::collections::BTreeMap;

use causeway_model::port::vm_name;
use causeway_model::{DispatcherView, GroupView, PeerView, ShardView, Textual};
use serde::Serialize;

use crate::cluster::{self, Cluster};
use crate::limits::NICS_MAX;
use crate::rates::{self, Counters, Drops, Rates};
use crate::sample::Sample;
use crate::source::{Finding, LinkView, PortView};
use crate::talks::{Talk, talks};

/// The state of a daemon.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// Number of the state, from 1.
    pub sequence: u64,
    /// Interval of samples, in milliseconds.
    pub interval_ms: u64,
    /// Name of this host.
    pub host: String,
    /// Why the daemon does not answer; `daemon` is then that of the last sample, without rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The daemon; absent before its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Daemon>,
}

/// The objects of a daemon.
#[derive(Debug, Clone, Serialize)]
pub struct Daemon {
    /// Version.
    pub version: String,
    /// Process.
    pub pid: u32,
    /// Time since its start, in seconds.
    pub uptime_seconds: f64,
    /// Period of the rates, in seconds; absent without two samples, as are all rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Links.
    pub links: Vec<Link>,
    /// Pairs of members with traffic.
    pub talks: Vec<Talk>,
    /// Pairs that are left out.
    pub talks_omitted: usize,
    /// The cluster; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// NICs of other hosts.
    pub nics: Vec<Nic>,
    /// Number of AF_VSOCK connections in the sample.
    pub connections: usize,
    /// Whether there are more connections.
    pub has_more_connections: bool,
    /// Number of groups without a traffic matrix in the sample.
    pub groups_unmeasured: usize,
    /// Threads.
    pub dispatchers: Vec<Dispatcher>,
    /// Problems.
    pub findings: Vec<Finding>,
}

/// A group.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    name: String,
    kind: String,
    forwarding: String,
}

/// A port.
#[derive(Debug, Clone, Serialize)]
pub struct Port {
    name: String,
    group: String,
    kind: String,
    vm: String,
    address: String,
    state: String,
    dispatcher: usize,
    held: bool,
    queues: usize,
    memory_bytes: u64,
    connects_total: u64,
    faults_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_off: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(flatten)]
    traffic: Traffic,
}

/// A link.
#[derive(Debug, Clone, Serialize)]
pub struct Link {
    name: String,
    group: String,
    kind: String,
    state: String,
    reason: String,
    /// The peer's host: its name, its address without port, or the interface of a raw link.
    peer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_percent: Option<u8>,
    mtu: u16,
    is_standby: bool,
    #[serde(flatten)]
    traffic: Traffic,
}

/// A NIC of another host, as a port of kind `mx` knows it.
#[derive(Debug, Clone, Serialize)]
pub struct Nic {
    port: String,
    group: String,
    /// Name of the NIC, or its address.
    name: String,
    /// Its host: the name up to the last colon.
    host: String,
    /// `answers` or `silent`.
    state: String,
    /// Connected pairs of endpoints.
    pairs: usize,
    /// Messages that are not acknowledged.
    sending: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<f64>,
}

/// The traffic of a port or a link.
#[derive(Debug, Clone, Serialize)]
struct Traffic {
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drops: Vec<Drops>,
}

/// A dispatcher.
#[derive(Debug, Clone, Serialize)]
pub struct Dispatcher {
    number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<usize>,
    busy_percent: u8,
    stalls_total: u64,
    stalled_seconds_total: f64,
    shards: Vec<Shard>,
}

/// The ports of a group and a service on a dispatcher.
#[derive(Debug, Clone, Serialize)]
struct Shard {
    group: String,
    service: String,
    ports: usize,
    busy_percent: u8,
}

impl Daemon {
    /// Returns the objects of a sample, with rates since the sample `before`.
    pub fn of(sample: &Sample, before: Option<&Sample>) -> Self {
        let seconds = before.and_then(|old| rates::seconds_between(&old.info, &sample.info));
        let period = Period::new(before.filter(|_| seconds.is_some()), seconds);
        let (talks, talks_omitted) = talks(sample);
        Self {
            version: sample.info.version.clone(),
            pid: sample.info.pid,
            uptime_seconds: sample.info.uptime_seconds,
            seconds,
            groups: sample.groups.iter().map(group).collect(),
            ports: sample.ports.iter().map(|view| port(view, &period)).collect(),
            links: sample.links.iter().map(|view| link(view, &period)).collect(),
            talks,
            talks_omitted,
            cluster: sample.cluster.as_ref().map(|view| Cluster::of(view, &sample.cluster_hosts)),
            nics: sample.peers.iter().take(NICS_MAX).map(nic).collect(),
            connections: sample.connections.len(),
            has_more_connections: sample.has_more_connections,
            groups_unmeasured: sample.groups.len().saturating_sub(sample.traffic.len()),
            dispatchers: sample.dispatchers.iter().map(dispatcher).collect(),
            findings: findings(sample),
        }
    }
}

/// Returns the problems of a sample, with those of the cluster.
fn findings(sample: &Sample) -> Vec<Finding> {
    let cluster = sample.cluster.as_ref().map(cluster::findings).unwrap_or_default();
    cluster.into_iter().chain(sample.findings.iter().cloned()).collect()
}

/// The time over which rates are measured, with the counters at its begin.
struct Period<'a> {
    ports: BTreeMap<&'a str, &'a Counters>,
    links: BTreeMap<&'a str, &'a Counters>,
    seconds: Option<f64>,
}

impl<'a> Period<'a> {
    fn new(before: Option<&'a Sample>, seconds: Option<f64>) -> Self {
        let mut period = Self { ports: BTreeMap::new(), links: BTreeMap::new(), seconds };
        if let Some(before) = before {
            let ports = before.ports.iter();
            period.ports =
                ports.filter_map(|p| Some((p.spec.text("name")?, &p.counters))).collect();
            let links = before.links.iter();
            period.links =
                links.filter_map(|l| Some((l.spec.text("name")?, &l.counters))).collect();
        }
        period
    }

    /// Returns the traffic of an object with the counters `now`, and `before` unless it is new.
    fn traffic(&self, before: Option<&&Counters>, now: &Counters) -> Traffic {
        let none = Counters::new();
        let before = before.map_or(&none, |before| *before);
        Traffic {
            rates: self.seconds.map(|seconds| rates::rates(before, now, seconds)),
            drops: rates::drops(self.seconds.map(|seconds| (before, seconds)), now),
        }
    }
}

fn group(view: &GroupView<Textual>) -> Group {
    // That of the site is in force, if it states one.
    let forwarding = view.site_forwarding.as_ref().unwrap_or(&view.forwarding).clone();
    Group { name: view.name.clone(), kind: view.kind.clone(), forwarding }
}

fn port(view: &PortView, period: &Period<'_>) -> Port {
    let text = |key: &str| view.spec.text(key).unwrap_or_default().to_owned();
    let name = text("name");
    let address = match (view.spec.text("mac"), view.spec.number("cid")) {
        (Some(mac), _) => mac.to_owned(),
        (None, Some(cid)) => format!("cid {cid}"),
        (None, None) => String::new(),
    };
    let traffic = period.traffic(period.ports.get(name.as_str()), &view.counters);
    Port {
        group: text("group"),
        kind: text("kind"),
        vm: vm_name(&name, view.spec.text("vm")).to_owned(),
        address,
        state: view.state.clone(),
        dispatcher: view.dispatcher,
        held: view.held,
        queues: view.queues.iter().filter(|queue| queue.running).count(),
        memory_bytes: view.memory_bytes,
        connects_total: view.connects_total,
        faults_total: view.faults_total,
        fault: view.fault.clone(),
        cut_off: view.cut_off.clone(),
        warnings: view.warnings.clone(),
        traffic,
        name,
    }
}

fn link(view: &LinkView, period: &Period<'_>) -> Link {
    let text = |key: &str| view.spec.text(key).unwrap_or_default().to_owned();
    let name = text("name");
    let traffic = period.traffic(period.links.get(name.as_str()), &view.counters);
    Link {
        group: text("group"),
        kind: text("kind"),
        state: view.state.clone(),
        reason: view.reason.clone(),
        peer: peer(view),
        endpoint: view.endpoint.clone(),
        rtt_us: view.rtt_us,
        loss_percent: view.loss_percent,
        mtu: view.mtu,
        is_standby: view.counters.get("standby") == Some(&1),
        traffic,
        name,
    }
}

/// Returns the host at the far end of a link.
fn peer(view: &LinkView) -> String {
    let address = |text: &str| {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        host.trim_matches(['[', ']']).to_owned()
    };
    let named = view.spec.text("peer").map(str::to_owned);
    let host = view.spec.text("remote_host").map(address);
    let known = view.endpoint.as_deref().or(view.spec.text("remote")).map(address);
    let interface = view.spec.text("interface").map(|name| format!("network at {name}"));
    named.or(host).or(known).or(interface).unwrap_or_else(|| "unknown host".to_owned())
}

fn nic(view: &PeerView<Textual>) -> Nic {
    let name = view.hostname.clone().unwrap_or_else(|| view.mac.clone());
    // An address has colons of its own.
    let host = view.hostname.as_deref().and_then(|name| name.rsplit_once(':'));
    Nic {
        port: view.port.clone(),
        group: view.group.clone(),
        host: host.map_or(name.as_str(), |(host, _)| host).to_owned(),
        state: view.state.clone(),
        pairs: view.partners,
        sending: view.sending,
        rtt_us: view.rtt_us,
        name,
    }
}

fn dispatcher(view: &DispatcherView<Textual>) -> Dispatcher {
    let shard = |shard: &ShardView<Textual>| Shard {
        group: shard.group.clone(),
        service: shard.service.clone(),
        ports: shard.ports,
        busy_percent: shard.busy_percent,
    };
    Dispatcher {
        number: view.number,
        cpu: view.cpu,
        busy_percent: view.busy_percent,
        stalls_total: view.stalls_total,
        stalled_seconds_total: view.stalled_seconds_total,
        shards: view.shards.iter().map(shard).collect(),
    }
}
