//! Types of the daemon's replies, with the fields that text output needs.
//!
//! [`crate::client::view`] deserialises a reply into them. Unknown fields of newer daemons are
//! ignored, and fields that older daemons do not send have defaults; a reply that lacks another
//! field is an error. The types are read-only: requests are built from `causeway_model` types or
//! JSON, and JSON output bypasses the types. Values are the daemon's and are not checked.
//!
//! `causeway_model` has the daemon's side of these types, with all fields. The verbs in
//! [`crate::commands`] and [`crate::attach`] use them.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// A port.
#[derive(Debug, Clone, Deserialize)]
pub struct PortInfo {
    /// Name of the port.
    pub name: String,
    /// Group of the port.
    pub group: String,
    /// Kind of the port, for example `net`, `vsock` or `mx`.
    pub kind: String,
    /// Socket for frontends.
    pub socket: String,
    /// `listening`, `connected`, `running` or `faulted`.
    pub state: String,
    /// Number of its dispatcher.
    #[serde(default)]
    pub dispatcher: usize,
    /// Reason of the last protocol violation, for which the port was closed or reset.
    pub fault: Option<String>,
    /// Time since the violation, in seconds.
    pub fault_age_seconds: Option<u64>,
    /// `present` or `former`: the frontend that caused it.
    pub fault_of: Option<String>,
    /// The last event that impaired the guest although it violated no rule.
    pub notice: Option<String>,
    /// Time since the event, in seconds.
    pub notice_age_seconds: Option<u64>,
    /// `present` or `former`: the frontend that it concerned.
    pub notice_of: Option<String>,
    /// Protocol violations.
    #[serde(default)]
    pub faults_total: u64,
    /// Reason of the last failure of this host to serve a frontend.
    pub host_fault: Option<String>,
    /// Failures of this host to serve a frontend.
    #[serde(default)]
    pub host_faults_total: u64,
    /// Connections of frontends.
    #[serde(default)]
    pub connects_total: u64,
    /// Lasting conditions that impair the port.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Whether the frontend stays connected while causewayd is replaced.
    #[serde(default)]
    pub held: bool,
    /// Negotiated features, in hexadecimal.
    #[serde(default)]
    pub features: String,
    /// Granted memory, in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Queues in virtio order.
    #[serde(default)]
    pub queues: Vec<QueueInfo>,
    /// Counters by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Options of the kind, and fields that this release does not know.
    #[serde(flatten)]
    pub options: HashMap<String, Value>,
}

impl PortInfo {
    /// Returns a text option.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.options.get(key)?.as_str()
    }

    /// Returns a numeric option.
    pub fn number(&self, key: &str) -> Option<u32> {
        self.options.get(key)?.as_u64()?.try_into().ok()
    }

    /// Returns the MAC address, the CID, or `-`.
    pub fn address(&self) -> String {
        match (self.text("mac"), self.number("cid")) {
            (Some(mac), _) => mac.to_owned(),
            (None, Some(cid)) => format!("cid {cid}"),
            (None, None) => "-".into(),
        }
    }
}

/// A queue of a port.
#[derive(Debug, Clone, Deserialize)]
pub struct QueueInfo {
    /// Index in virtio order.
    pub index: usize,
    /// Number of entries.
    pub size: u32,
    /// `split` or `packed`.
    pub format: String,
    /// Whether the driver runs the queue.
    pub running: bool,
    /// `guest-driven` or `vmm-driven`.
    #[serde(default)]
    pub mode: String,
    /// Reason of the mode.
    #[serde(default)]
    pub mode_reason: String,
}

/// A NIC of another host.
#[derive(Debug, Clone, Deserialize)]
pub struct PeerInfo {
    /// The port of the NIC of this host that knows it.
    pub port: String,
    /// Address of the NIC.
    pub mac: String,
    /// Hostname of the NIC, if known.
    pub hostname: Option<String>,
    /// `static` or `announced`.
    pub known: String,
    /// `answers` or `silent`.
    pub state: String,
    /// Time since the last announcement or answer, in seconds.
    pub heard_seconds: Option<f64>,
    /// Number of connected pairs of endpoints.
    pub partners: usize,
    /// Shortest smoothed round-trip time, in microseconds.
    pub rtt_us: Option<f64>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// The connected pairs of endpoints.
    pub pairs: Vec<PairInfo>,
}

/// A connection between an endpoint of this host and an endpoint of a peer's NIC.
#[derive(Debug, Clone, Deserialize)]
pub struct PairInfo {
    /// Number of this host's endpoint.
    pub endpoint: u8,
    /// Number of the peer's endpoint.
    pub partner: u8,
    /// Messages sent and not acknowledged.
    pub in_flight: usize,
    /// Messages queued behind these.
    pub waiting: usize,
    /// Received bytes that this host's endpoint has not read yet.
    pub parked_bytes: usize,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: Option<f64>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
}

/// A dispatcher.
#[derive(Debug, Clone, Deserialize)]
pub struct DispatcherInfo {
    /// Number of the dispatcher, from 0.
    pub number: usize,
    /// The CPU to which it is bound.
    pub cpu: Option<usize>,
    /// Time for which an empty queue is polled, in microseconds.
    pub spin_us: u64,
    /// Whether `spin_us` is reduced because processors are scarce.
    pub scarce: bool,
    /// Share of the last second with work, in percent.
    pub busy_percent: u8,
    /// The shards that it serves.
    pub shards: Vec<ShardInfo>,
}

/// The ports of a group and service.
#[derive(Debug, Clone, Deserialize)]
pub struct ShardInfo {
    /// The group.
    pub group: String,
    /// Name of the service.
    pub service: String,
    /// Number of ports.
    pub ports: usize,
    /// Share of the last second, in percent.
    pub busy_percent: u8,
    /// Moves to another dispatcher.
    pub moves_total: u64,
}

fn weight_default() -> u32 {
    1
}

/// A group.
#[derive(Debug, Clone, Deserialize)]
pub struct GroupInfo {
    /// Name of the group.
    pub name: String,
    /// `learn` or `routes`.
    #[serde(default)]
    pub forwarding: String,
    /// Share of a dispatcher's time relative to other busy groups.
    #[serde(default = "weight_default")]
    pub weight: u32,
    /// `bridge` or `wire`.
    #[serde(default)]
    pub kind: String,
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Names of the links.
    #[serde(default)]
    pub links: Vec<String>,
}

/// A link.
#[derive(Debug, Clone, Deserialize)]
pub struct LinkInfo {
    /// Name of the link.
    pub name: String,
    /// Group of the link.
    pub group: String,
    /// Kind of the link.
    pub kind: String,
    /// Metric; the lowest is used.
    pub metric: u16,
    /// `down`, `up` or `open`.
    pub state: String,
    /// Reason of the state.
    #[serde(default)]
    pub reason: String,
    /// Current address of the peer.
    pub endpoint: Option<String>,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: Option<f64>,
    /// Share of unanswered heartbeats, in percent.
    pub loss_percent: Option<u8>,
    /// Expiry of this host's certificate, in seconds since 1970.
    pub certificate_expires: Option<i64>,
    /// Largest IP packet that crosses without fragmentation, in bytes.
    pub path_mtu: Option<u32>,
    /// Largest payload of a frame, in bytes.
    pub mtu: u32,
    /// Changes of the state to up.
    #[serde(default)]
    pub ups_total: u64,
    /// Counters by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Options of the kind, and fields that this release does not know.
    #[serde(flatten)]
    pub options: HashMap<String, Value>,
}

impl LinkInfo {
    /// Returns a text option.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.options.get(key)?.as_str()
    }
}

/// A route.
#[derive(Debug, Clone, Deserialize)]
pub struct RouteInfo {
    /// Number of the route.
    pub index: u64,
    /// Group of the route.
    pub group: String,
    /// Source addresses that match.
    pub source: String,
    /// Destination addresses that match.
    pub destination: String,
    /// Destination of matching frames.
    pub to: RouteEndInfo,
    /// Required origin of frames.
    pub from: Option<RouteEndInfo>,
    /// Priority by how specific the match is.
    pub priority: i8,
    /// Frames that the route forwarded.
    pub hits_total: u64,
}

/// An end of a route: a port or a link.
#[derive(Debug, Clone, Deserialize)]
pub struct RouteEndInfo {
    /// `interface` or `edge`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the port or link.
    pub name: String,
}

/// The traffic matrix of a group.
#[derive(Debug, Clone, Deserialize)]
pub struct TrafficInfo {
    /// Period over which rates were measured, in seconds.
    pub window_seconds: f64,
    /// The pairs of addresses.
    pub pairs: Vec<TrafficPairInfo>,
    /// Frames of pairs that did not fit into the matrix.
    #[serde(default)]
    pub uncounted_frames_total: u64,
}

/// An entry of the traffic matrix.
#[derive(Debug, Clone, Deserialize)]
pub struct TrafficPairInfo {
    /// Address of the sender.
    pub source: String,
    /// Address of the receiver.
    pub destination: String,
    /// The port or link behind which the sender is.
    pub from: String,
    /// Frames in total.
    pub frames_total: u64,
    /// Bytes in total.
    pub bytes_total: u64,
    /// Bytes a second in the last period.
    pub bytes_per_second: f64,
}

/// A rule.
#[derive(Debug, Clone, Deserialize)]
pub struct RuleInfo {
    /// Position, from 0.
    pub index: usize,
    /// `accept` or `reject`.
    pub action: String,
    /// The connecting side.
    pub from: String,
    /// The side that is connected to.
    pub to: String,
    /// Connects that the rule decided.
    pub hits_total: u64,
}

/// A sample of the counters of all ports and links.
#[derive(Debug, Clone, Deserialize)]
pub struct Stats {
    /// Uptime of the daemon, in seconds.
    pub uptime_seconds: f64,
    /// Counters of each port.
    pub ports: Vec<PortStats>,
    /// Counters of each link.
    #[serde(default)]
    pub links: Vec<PortStats>,
    /// Refusals at the daemon's control interfaces.
    #[serde(default)]
    pub doors: Vec<RefusalStats>,
}

/// Refusals at a control interface of the daemon.
#[derive(Debug, Clone, Deserialize)]
pub struct RefusalStats {
    /// Name of the interface.
    pub name: String,
    /// Counters by name: `refused_<reason>_total`.
    pub counters: BTreeMap<String, u64>,
}

/// Counters of a port or link.
#[derive(Debug, Clone, Deserialize)]
pub struct PortStats {
    /// Name of the port or link.
    pub name: String,
    /// State of the port or link.
    pub state: String,
    /// Protocol violations, for which the port was closed or reset.
    #[serde(default)]
    pub faults_total: u64,
    /// Counters by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// The explanation of a forwarding or connect decision.
#[derive(Debug, Clone, Deserialize)]
pub struct TraceInfo {
    /// `forward`, `flood`, `drop`, `accept` or `reject`.
    pub verdict: String,
    /// The receiving ports.
    pub to: Vec<String>,
    /// The steps of the decision.
    pub steps: Vec<String>,
}

/// The daemon's version, process and paths.
#[derive(Debug, Clone, Deserialize)]
pub struct DaemonInfo {
    /// QemuVersion of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Uptime in seconds.
    pub uptime_seconds: f64,
    /// Path of the control socket.
    pub control: String,
    /// Directory of ports' sockets.
    pub run_dir: String,
}
