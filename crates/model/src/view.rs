//! Views: the state that the control plane shows, and the JSON contract of `causeway -o json`.
//!
//! The fabric and the services make views when a command asks ([`crate::Command`]), each by its
//! owner's thread; the daemon prints them as JSON. A view is a copy of one moment: it does not
//! follow later changes, and two views of one answer may be of different moments. The order of
//! lists is stated at the command; without a statement there is none.
//!
//! Fields are added, never renamed or removed. Counters end in `_total` and grow from 0 at the
//! daemon's start, or when their object was added. Units are in the name of a field or in its
//! description. Most views are written and not read here: the tool has its own types (`cli::view`).

use serde::{Deserialize, Serialize};

use crate::{
    CommandError, Forwarding, GroupKind, GroupSpec, LinkSpec, Mac, Name, PollMode, PortSpec,
    RouteSpec, RuleSpec, ServiceResponse, TypedRequest,
};

/// The answer to a [`Command`](crate::Command).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Success without a result.
    Done,
    /// Answer to `PortList`.
    Ports(Vec<PortView>),
    /// Answer to `PortShow` and `PortAdd`.
    Port(Box<PortView>),
    /// Answer to `GroupList`.
    Groups(Vec<GroupView>),
    /// Answer to `RuleList`.
    Rules(Vec<RuleView>),
    /// Answer to `Trace`.
    Trace(TraceView),
    /// Answer to `DispatcherList`.
    Dispatchers(Vec<DispatcherView>),
    /// Answer to `Service`. The caller knows its type and its JSON form.
    #[serde(skip)]
    Service(ServiceResponse),
}

impl Answer {
    /// Returns the answer to the command `T` of a service.
    ///
    /// # Errors
    /// The answer belongs to another command.
    pub fn to_service<T: TypedRequest>(self) -> Result<T::Answer, CommandError> {
        match self {
            Self::Service(response) => response.take::<T>(),
            other => Err(CommandError::Host(format!("a service's command got {other:?}"))),
        }
    }
}

/// The state of a port's attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// Waiting for a frontend to connect.
    Listening,
    /// A frontend is connected; its driver has not started the device.
    Connected,
    /// The guest's driver runs the device.
    Running,
    /// The guest or frontend violated the protocol; `fault` has the reason. A new frontend may
    /// connect.
    Faulted,
}

/// The frontend that caused an event of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventFrontend {
    /// The frontend that is connected now.
    Present,
    /// A frontend that has disconnected.
    Former,
}

/// The state of a port.
#[derive(Debug, Clone, Serialize)]
pub struct PortView {
    /// The configuration of the port.
    #[serde(flatten)]
    pub spec: PortSpec,
    /// State of the attachment.
    pub state: PortState,
    /// Number of the dispatcher that serves the port.
    pub dispatcher: usize,
    /// Reason of the last protocol violation, for which the port was closed or reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Time since the violation, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_age_seconds: Option<u64>,
    /// The frontend that caused the violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_of: Option<EventFrontend>,
    /// The last event that impaired the guest although it violated no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Time since the event, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_age_seconds: Option<u64>,
    /// The frontend that the event concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_of: Option<EventFrontend>,
    /// Protocol violations for which the port was closed or reset.
    pub faults_total: u64,
    /// Reason of the last failure of this host to serve a well-behaved frontend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_fault: Option<String>,
    /// Failures of this host to serve a frontend.
    pub host_faults_total: u64,
    /// Connections of frontends.
    pub connects_total: u64,
    /// Lasting conditions that impair the port, each with its remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Negotiated virtio features, in hexadecimal.
    pub features: String,
    /// Guest memory granted now, in bytes.
    pub memory_bytes: u64,
    /// Queues, in virtio order.
    pub queues: Vec<QueueView>,
    /// Counters by name, e.g. `receive_packets_total`; drops are `drop_<reason>_total`. Directions
    /// are the guest's: "transmit" counts frames that the guest sent.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// One queue of a port.
#[derive(Debug, Clone, Serialize)]
pub struct QueueView {
    /// Index in virtio order.
    pub index: usize,
    /// Number of entries; 0 before the driver has set the queue up.
    pub size: u16,
    /// `split` or `packed`.
    pub format: &'static str,
    /// Whether the driver runs the queue now.
    pub running: bool,
    /// `guest-driven`: the guest's doorbell starts service. `vmm-driven`: the dispatcher polls.
    pub mode: PollMode,
    /// Reason of the mode.
    pub mode_reason: String,
    /// Changes of the mode.
    pub mode_changes_total: u64,
    /// Chains a second in the last measurement period.
    pub rate: u32,
}

/// The state of a dispatcher.
#[derive(Debug, Clone, Serialize)]
pub struct DispatcherView {
    /// Number of the dispatcher, from 0.
    pub number: usize,
    /// The CPU to which the thread is bound, if it is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
    /// Time for which an empty VMM-driven queue is polled now, in microseconds.
    pub spin_us: u64,
    /// Whether `spin_us` is reduced because processors are scarce.
    pub scarce: bool,
    /// Share of the last second in which the dispatcher had work, in percent.
    pub busy_percent: u8,
    /// The shards that the dispatcher serves.
    pub shards: Vec<ShardView>,
}

/// The state of a shard: the ports of one group and service, which move between dispatchers
/// together.
#[derive(Debug, Clone, Serialize)]
pub struct ShardView {
    /// The group.
    pub group: Name,
    /// The name of the service.
    pub service: &'static str,
    /// Number of ports.
    pub ports: usize,
    /// Share of the last second in which the shard occupied its dispatcher, in percent.
    pub busy_percent: u8,
    /// Moves to another dispatcher.
    pub moves_total: u64,
}

/// The state of a group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupView {
    /// Name of the group.
    pub name: Name,
    /// Treatment of frames that no route matches.
    pub forwarding: Forwarding,
    /// Share of a dispatcher's time relative to other busy groups.
    pub weight: u32,
    /// Treatment of frames of link-layer protocols.
    pub kind: GroupKind,
    /// Names of the group's ports.
    pub ports: Vec<Name>,
    /// Names of the group's links.
    pub links: Vec<Name>,
}

impl GroupView {
    /// Returns the view of a group with these ports; services add their objects afterwards.
    pub fn new(spec: &GroupSpec, ports: Vec<Name>) -> Self {
        let GroupSpec { ref name, forwarding, weight, kind } = *spec;
        Self { name: name.clone(), forwarding, weight, kind, ports, links: Vec::new() }
    }
}

/// Whether a link carries frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The peer does not answer, or has not answered yet.
    Down,
    /// The link carries frames, and the peer answers.
    Up,
    /// The link carries frames; this kind cannot detect whether the peer is alive.
    Open,
}

/// The state of a link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkView {
    /// The configuration of the link.
    #[serde(flatten)]
    pub spec: LinkSpec,
    /// Whether the link carries frames.
    pub state: LinkState,
    /// Reason of the state, as text.
    pub reason: String,
    /// The peer's current address, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<std::net::SocketAddr>,
    /// Smoothed round-trip time, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Share of the last heartbeats that were not answered, in percent; for TCP, share of the
    /// connection's segments that were retransmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<u8>,
    /// Expiry of this host's certificate, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<i64>,
    /// Largest IP packet that crosses without fragmentation, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u16>,
    /// Largest payload of a guest's frame that crosses, in bytes.
    pub mtu: u16,
    /// Changes of the state to up.
    pub ups_total: u64,
    /// Counters by name, e.g. `receive_packets_total`; drops are `drop_<reason>_total`.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// The state of a route.
#[derive(Debug, Clone, Serialize)]
pub struct RouteView {
    /// Number of the route: from 1, never reused.
    pub index: u64,
    /// The configuration of the route.
    #[serde(flatten)]
    pub spec: RouteSpec,
    /// Priority by how specific the match is (VNET/P, `priority_map`); -1 for a route that never
    /// applies.
    pub priority: i8,
    /// Frames that the route forwarded.
    pub hits_total: u64,
}

/// A running capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureView {
    /// Number of the capture, never reused.
    pub capture: u64,
}

/// The traffic between the addresses of a group: VTTIF's matrix.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficView {
    /// The group.
    pub group: Name,
    /// Period over which rates were measured, in seconds.
    pub window_seconds: f64,
    /// The recently active pairs, the busiest first.
    pub pairs: Vec<TrafficPair>,
    /// Frames of pairs that did not fit into the matrix.
    pub uncounted_frames_total: u64,
}

/// One entry of the matrix.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficPair {
    /// Address of the sender.
    pub source: Mac,
    /// Address of the receiver.
    pub destination: Mac,
    /// The port or link behind which the sender is.
    pub from: String,
    /// Frames since the pair entered the matrix.
    pub frames_total: u64,
    /// Bytes of these frames.
    pub bytes_total: u64,
    /// Bytes a second in the last period.
    pub bytes_per_second: f64,
}

/// A NIC of another host, as a NIC of this host knows it.
#[derive(Debug, Clone, Serialize)]
pub struct PeerView {
    /// The port of the NIC of this host.
    pub port: Name,
    /// Group of that port.
    pub group: Name,
    /// Address of the peer's NIC.
    pub mac: Mac,
    /// Hostname of the peer's NIC, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Source of the entry: `static` (configured by the operator) or `announced`.
    pub known: &'static str,
    /// `answers`, or `silent`: the peer did not answer the query for its name.
    pub state: &'static str,
    /// Time since the last announcement or answer of the peer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<f64>,
    /// Number of connected pairs of endpoints.
    pub partners: usize,
    /// Messages that the peer has not acknowledged.
    pub sending: usize,
    /// Shortest smoothed round-trip time of all pairs, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of these pairs by name, e.g. `messages_sent_total`.
    pub counters: std::collections::BTreeMap<String, u64>,
    /// The connected pairs of endpoints.
    pub pairs: Vec<PairView>,
}

/// A connection between an endpoint of a NIC of this host and an endpoint of a peer's NIC.
#[derive(Debug, Clone, Serialize)]
pub struct PairView {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of the connection by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// A rule, and the number of connects that it decided.
#[derive(Debug, Clone, Serialize)]
pub struct RuleView {
    /// Position of the rule, from 0.
    pub index: usize,
    /// The rule.
    #[serde(flatten)]
    pub rule: RuleSpec,
    /// Connects that the rule decided.
    pub hits_total: u64,
}

/// The explanation of a forwarding or connect decision.
#[derive(Debug, Clone, Serialize)]
pub struct TraceView {
    /// `forward`, `flood`, `drop`, `accept` or `reject`.
    pub verdict: String,
    /// The ports that would receive the frame or connect; `host` is the host.
    pub to: Vec<String>,
    /// The steps of the decision, in order.
    pub steps: Vec<String>,
}
