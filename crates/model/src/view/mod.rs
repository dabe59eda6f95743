//! Views: the state that the control plane shows, and the JSON contract of `causeway -o json`.
//!
//! The daemon writes a view in the form [`Typed`]; tools read the same view in the form
//! [`Textual`].
//!
//! Fields are added, never renamed or removed: a reader ignores fields of newer daemons, and a
//! field that older daemons omit has a default. Counters end in `_total` and grow from 0 at the
//! creation of their object (port, link, route, pair of endpoints); they end with it, and nothing
//! resets them, except that counters of register accesses of an `hca` port begin at 0 again after
//! its frontend disconnected. Views are samples: values of different objects are not read at the
//! same moment. The registry of the fabric and the services fill views in, in answers to commands
//! ([`crate::Command`]), in the threads of the command and of the shards; no view changes anything.

mod cluster;
mod connection;
mod form;
mod forward;
mod hca;
mod nic;
mod peer;
mod stats;
#[cfg(test)]
mod tests;

pub use cluster::{
    AddressKind, ClusterAddress, ClusterGroup, ClusterHost, ClusterHostView, ClusterLocal,
    ClusterLocalQuery, ClusterStatus, ClusterTunnel, ClusterUpdate, ClusterView, LocalAddress,
    RemoteAddress, is_claimable_nic_name,
};
pub use connection::{ConnectionEnd, ConnectionPage, ConnectionState, ConnectionView};
pub use form::{SpecValues, Textual, Typed, ViewForm, ViewText, ViewValue};
pub use forward::{ForwardReport, ForwardState, ForwardTask, ForwardView, ForwarderReport};
pub use hca::{HcaActivity, HcaObjects, HcaQueuePairView, HcaRates, HcaState, HcaView};
pub use nic::{NicEndpointView, NicProcessView, NicView};
pub use peer::{PairView, PeerView};
pub use stats::{InfoView, LinkStats, LogStats, ObjectStats, PortStats, RefusalStats, StatsView};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{
    CommandError, Forwarding, GroupKind, GroupSpec, LinkSpec, Mac, Name, PollMode, PortSpec,
    RouteSpec, RuleOrigin, RuleSpec, ServiceResponse, TypedRequest, weight_default,
};

/// The answer to a [`Command`](crate::Command).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Success without a result: answer to all other commands.
    Done,
    /// Answer to `PortList`.
    Ports(Vec<PortView>),
    /// Answer to `PortShow` and `PortAdd`.
    Port(Box<PortView>),
    /// Answer to `GroupList`.
    Groups(Vec<GroupView>),
    /// Answer to `RuleList` and `RuleAdd`: all rules.
    Rules(Vec<RuleView>),
    /// Answer to `Trace`.
    Trace(TraceView),
    /// Answer to `DispatcherList` and `ShardMove`: all dispatchers.
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
    /// Connecting to the socket of the VMM, again and again until it accepts; or waiting for the
    /// interface (kind `tap`).
    Connecting,
    /// A frontend is connected; its driver has not started the device.
    Connected,
    /// The guest's driver runs the device; or the interface is open (kind `tap`).
    Running,
    /// The guest or frontend violated the protocol, and its connection was closed; `fault` has the
    /// reason. A new frontend may connect, but only after 30 s or more if the last stalled the
    /// daemon or made it allocate too much memory.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F::Spec<PortSpec>: Deserialize<'de>"))]
pub struct PortView<F: ViewForm = Typed> {
    /// The configuration of the port.
    #[serde(flatten)]
    pub spec: F::Spec<PortSpec>,
    /// State of the attachment.
    pub state: F::Text<PortState>,
    /// Number of the dispatcher that serves the port.
    #[serde(default)]
    pub dispatcher: usize,
    /// Reason of the last protocol violation, whether the port was closed for it or stayed open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Time since the violation, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_age_seconds: Option<u64>,
    /// The frontend that caused the violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_of: Option<F::Text<EventFrontend>>,
    /// The last event that impaired the guest although it violated no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Time since the event, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_age_seconds: Option<u64>,
    /// The frontend that the event concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_of: Option<F::Text<EventFrontend>>,
    /// Protocol violations, also those that left the port open.
    #[serde(default)]
    pub faults_total: u64,
    /// Reason of the last failure of this host to serve a well-behaved frontend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_fault: Option<String>,
    /// Failures of this host to serve a frontend.
    #[serde(default)]
    pub host_faults_total: u64,
    /// Connections of frontends.
    #[serde(default)]
    pub connects_total: u64,
    /// Why the last attempt to connect to the VMM's socket failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_error: Option<String>,
    /// Processes that were refused because `allowed_users` lacks their user.
    #[serde(default)]
    pub refused_users_total: u64,
    /// The user of the last such process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_user: Option<u32>,
    /// Lasting conditions that impair the port, each with its remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the frontend stays connected while causewayd is replaced.
    #[serde(default)]
    pub held: bool,
    /// Reason why the port's guest is cut off until an operator acts, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<String>,
    /// Negotiated virtio features, in hexadecimal.
    #[serde(default)]
    pub features: String,
    /// Guest memory granted now, in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Queues, in virtio order.
    #[serde(default)]
    pub queues: Vec<QueueView<F>>,
    /// Counters by name, e.g. `receive_packets_total`; drops are `drop_<reason>_total`. Directions
    /// are the guest's: "transmit" counts frames that the guest sent.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// One queue of a port.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct QueueView<F: ViewForm = Typed> {
    /// Index in virtio order.
    pub index: usize,
    /// Number of entries; 0 before the driver has set the queue up.
    pub size: u16,
    /// `split` or `packed`.
    pub format: F::Text<Cow<'static, str>>,
    /// Whether the driver runs the queue now.
    pub running: bool,
    /// `guest-driven`: the guest's doorbell starts service. `vmm-driven`: the dispatcher polls.
    #[serde(default = "F::missing::<PollMode>")]
    pub mode: F::Text<PollMode>,
    /// Reason of the mode.
    #[serde(default)]
    pub mode_reason: String,
    /// Changes of the mode.
    #[serde(default)]
    pub mode_changes_total: u64,
    /// Chains a second in the last measurement period.
    #[serde(default)]
    pub rate: u32,
}

/// The state of a dispatcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct DispatcherView<F: ViewForm = Typed> {
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
    /// Times that a port put the dispatcher's thread to sleep.
    #[serde(default)]
    pub stalls_total: u64,
    /// Time that the thread slept in these stalls, in seconds.
    #[serde(default)]
    pub stalled_seconds_total: f64,
    /// Times of the turns of shards that had work.
    #[serde(default)]
    pub turns: TurnTimesView,
    /// The shards that the dispatcher serves.
    pub shards: Vec<ShardView<F>>,
}

/// The times of a dispatcher's turns, as a histogram.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTimesView {
    /// Numbers of turns by their time, in order of the bounds.
    pub buckets: Vec<TurnBucket>,
    /// All turns.
    pub turns_total: u64,
    /// Time of all turns, in seconds.
    pub seconds_total: f64,
}

/// The turns up to a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBucket {
    /// Longest time of these turns, in microseconds.
    pub at_most_us: u64,
    /// Turns that took no longer.
    pub turns_total: u64,
}

/// The state of a shard: the ports of one group and service, which move between dispatchers
/// together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ShardView<F: ViewForm = Typed> {
    /// The group.
    pub group: F::Text<Name>,
    /// The name of the service.
    pub service: F::Text<Cow<'static, str>>,
    /// Number of ports.
    pub ports: usize,
    /// Share of the last second in which the shard occupied its dispatcher, in percent.
    pub busy_percent: u8,
    /// Time in which the shard occupied a dispatcher, in seconds; at most a second old.
    #[serde(default)]
    pub busy_seconds_total: f64,
    /// Moves to another dispatcher.
    pub moves_total: u64,
}

/// The state of a group.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct GroupView<F: ViewForm = Typed> {
    /// Name of the group.
    pub name: F::Text<Name>,
    /// Treatment of frames that no route matches.
    #[serde(default = "F::missing::<Forwarding>")]
    pub forwarding: F::Text<Forwarding>,
    /// The same by the site, which is in force instead; absent if the site states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_forwarding: Option<F::Text<Forwarding>>,
    /// Share of a dispatcher's time relative to other busy groups.
    #[serde(default = "weight_default")]
    pub weight: u32,
    /// Treatment of frames of link-layer protocols.
    #[serde(default = "F::missing::<GroupKind>")]
    pub kind: F::Text<GroupKind>,
    /// Names of the group's ports.
    pub ports: Vec<F::Text<Name>>,
    /// Names of the group's links.
    #[serde(default)]
    pub links: Vec<F::Text<Name>>,
}

impl GroupView {
    /// Returns the view of a group with these ports; services add their objects afterwards.
    pub fn new(spec: &GroupSpec, ports: Vec<Name>) -> Self {
        let GroupSpec { ref name, forwarding, weight, kind } = *spec;
        let (name, site_forwarding, links) = (name.clone(), None, Vec::new());
        Self { name, forwarding, site_forwarding, weight, kind, ports, links }
    }
}

/// Whether a link carries frames, by its own connection. A standby link has the same states;
/// [`LinkView::counters`] shows that it stands by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The peer does not answer, or has not answered yet.
    Down,
    /// The link carries frames, and the peer answers.
    Up,
    /// The link has no session with its peer, for want of traffic; the next frame begins one.
    Dormant,
    /// The link carries frames; this kind cannot detect whether the peer is alive.
    Open,
}

/// The state of a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F::Spec<LinkSpec>: Deserialize<'de>"))]
pub struct LinkView<F: ViewForm = Typed> {
    /// The configuration of the link.
    #[serde(flatten)]
    pub spec: F::Spec<LinkSpec>,
    /// Whether the cluster made the link: the configuration file does not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_cluster: bool,
    /// Whether the link carries frames.
    pub state: F::Text<LinkState>,
    /// Reason of the state, as text.
    #[serde(default)]
    pub reason: String,
    /// The peer's current address, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<F::Text<SocketAddr>>,
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
    #[serde(default)]
    pub ups_total: u64,
    /// Counters by name, e.g. `receive_packets_total`; drops are `drop_<reason>_total`, and of
    /// several links to one peer the active link has the drops of all. `standby` is no counter: it
    /// is 1 while the link stands by, else 0.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// The state of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F::Spec<RouteSpec>: Deserialize<'de>"))]
pub struct RouteView<F: ViewForm = Typed> {
    /// Number of the route: from 1, not reused while the daemon runs.
    pub index: u64,
    /// The configuration of the route.
    #[serde(flatten)]
    pub spec: F::Spec<RouteSpec>,
    /// Priority by how specific the match is (VNET/P, `priority_map`); -1 for a route that never
    /// applies.
    pub priority: i8,
    /// Frames that the route forwarded.
    pub hits_total: u64,
}

/// A running capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureView {
    /// Number of the capture, not reused while the daemon runs.
    pub capture: u64,
}

/// The traffic between the addresses of a group: VTTIF's matrix.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct TrafficView<F: ViewForm = Typed> {
    /// The group.
    pub group: F::Text<Name>,
    /// Period over which rates were measured, in seconds.
    pub window_seconds: f64,
    /// The recently active pairs, the busiest first.
    pub pairs: Vec<TrafficPair<F>>,
    /// Frames and RDMA messages of pairs that did not fit into the matrix.
    #[serde(default)]
    pub uncounted_frames_total: u64,
}

/// One entry of the matrix.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct TrafficPair<F: ViewForm = Typed> {
    /// Address of the sender.
    pub source: F::Text<Mac>,
    /// Address of the receiver.
    pub destination: F::Text<Mac>,
    /// The port or link behind which the sender is.
    pub from: String,
    /// Frames since the pair entered the matrix.
    pub frames_total: u64,
    /// Bytes of these frames.
    pub bytes_total: u64,
    /// RDMA messages since the pair entered the matrix.
    #[serde(default)]
    pub messages_total: u64,
    /// Bytes of payload of these messages.
    #[serde(default)]
    pub message_bytes_total: u64,
    /// Bytes of frames and messages a second in the last period.
    pub bytes_per_second: f64,
}

/// A rule, and the number of connects that it decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F::Spec<RuleSpec>: Deserialize<'de>"))]
pub struct RuleView<F: ViewForm = Typed> {
    /// Position of the rule, from 0, among the rules of this host, or among those of the site about
    /// `group`.
    pub index: usize,
    /// Author of the rule.
    #[serde(default = "F::missing::<RuleOrigin>")]
    pub origin: F::Text<RuleOrigin>,
    /// The group of a rule of the site; absent for a rule of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<F::Text<Name>>,
    /// The rule.
    #[serde(flatten)]
    pub rule: F::Spec<RuleSpec>,
    /// Connects that the rule decided.
    pub hits_total: u64,
}

/// The explanation of a forwarding or connect decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TraceView {
    /// `forward`, `flood`, `drop`, `accept` or `reject`; of queue pairs `connected`, `possible` or
    /// `refused`.
    pub verdict: String,
    /// The ports and links that would receive the frame, or the port that would receive the
    /// connect; `host` is the host.
    pub to: Vec<String>,
    /// The steps of the decision, in order.
    pub steps: Vec<String>,
}
