//! Views: the state that the control plane shows, the JSON contract of `causeway -o json`. Fields are
//! added, never changed.

use serde::{Deserialize, Serialize};

use crate::{
    Ask, CommandError, Forwarding, GroupKind, GroupSpec, LinkSpec, Mac, Name, PollMode, PortSpec,
    Response, RouteSpec, RuleSpec,
};

/// The answer to a [`Command`](crate::Command).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Done, nothing to tell.
    Done,
    /// To `PortList`.
    Ports(Vec<PortView>),
    /// To `PortShow`, `PortAdd`.
    Port(Box<PortView>),
    /// To `GroupList`.
    Groups(Vec<GroupView>),
    /// To `RuleList`.
    Rules(Vec<RuleView>),
    /// To `Trace`.
    Trace(TraceView),
    /// To `DispatcherList`.
    Dispatchers(Vec<DispatcherView>),
    /// To `Service`. The caller knows the type, and its JSON form.
    #[serde(skip)]
    Service(Response),
}

impl Answer {
    /// Returns the answer to the command `T` of a service.
    ///
    /// # Errors
    /// The answer belongs to another command.
    pub fn to_service<T: Ask>(self) -> Result<T::Answer, CommandError> {
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
    /// The guest or frontend broke a rule; `fault` says which. A new frontend may connect.
    Faulted,
}

/// The frontend that an event of a port concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// The one that is connected now.
    Present,
    /// One that has left.
    Former,
}

/// One port, as shown.
#[derive(Debug, Clone, Serialize)]
pub struct PortView {
    /// As configured.
    #[serde(flatten)]
    pub spec: PortSpec,
    /// Where the attachment stands.
    pub state: PortState,
    /// Number of the dispatcher that serves it.
    pub dispatcher: usize,
    /// Why the port was last closed or reset for breaking a rule, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// How long ago that was, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_age_seconds: Option<u64>,
    /// Which frontend it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_of: Option<Whose>,
    /// The last event that cost the guest something although it broke no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// How long ago that was, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_age_seconds: Option<u64>,
    /// Which frontend it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_of: Option<Whose>,
    /// How often the port was closed or reset for breaking a rule.
    pub faults_total: u64,
    /// Why this host last could not serve a frontend that broke no rule, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_fault: Option<String>,
    /// How often this host could not serve a frontend.
    pub host_faults_total: u64,
    /// How often a frontend has connected.
    pub connects_total: u64,
    /// Conditions that last and that the operator should know of, each with its remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Negotiated virtio features, hexadecimal.
    pub features: String,
    /// Guest memory granted now, in bytes.
    pub memory_bytes: u64,
    /// Queues, in virtio order.
    pub queues: Vec<QueueView>,
    /// Counters by name, e.g. `receive_packets_total`; drops as `drop_<reason>_total`.
    /// Directions are the guest's: "transmit" is what the guest sent.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// One queue of a port.
#[derive(Debug, Clone, Serialize)]
pub struct QueueView {
    /// Index in virtio order.
    pub index: usize,
    /// Entries; 0 when the driver has not set it up.
    pub size: u16,
    /// `split` or `packed`.
    pub format: &'static str,
    /// Whether the driver runs it now.
    pub running: bool,
    /// `guest-driven`: its guest rings. `vmm-driven`: it is polled.
    pub mode: PollMode,
    /// Why it is so.
    pub mode_reason: String,
    /// How often it changed.
    pub mode_changes_total: u64,
    /// Chains a second in the last period that was measured.
    pub rate: u32,
}

/// One dispatcher.
#[derive(Debug, Clone, Serialize)]
pub struct DispatcherView {
    /// From 0.
    pub number: usize,
    /// The CPU it is bound to, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
    /// How long a VMM-driven queue is polled in vain now, in microseconds.
    pub spin_us: u64,
    /// Whether that was cut because processors are scarce.
    pub scarce: bool,
    /// Percent of the last second in which it had work.
    pub busy_percent: u8,
    /// What it serves.
    pub shards: Vec<ShardView>,
}

/// The ports of one group and service: what moves between dispatchers.
#[derive(Debug, Clone, Serialize)]
pub struct ShardView {
    /// The group.
    pub group: Name,
    /// The name of the service.
    pub service: &'static str,
    /// How many ports.
    pub ports: usize,
    /// Percent of the last second that it kept its dispatcher busy.
    pub busy_percent: u8,
    /// How often it moved to another dispatcher.
    pub moves_total: u64,
}

/// One group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: Name,
    /// What becomes of frames that no route is for.
    pub forwarding: Forwarding,
    /// Its share of a dispatcher's time beside other groups that are busy.
    pub weight: u32,
    /// What becomes of frames of the link layer's own protocols.
    pub kind: GroupKind,
    /// Its ports' names.
    pub ports: Vec<Name>,
    /// Its links' names.
    pub links: Vec<Name>,
}

impl GroupView {
    /// Shows a group with these ports, before services add their objects.
    pub fn new(spec: &GroupSpec, ports: Vec<Name>) -> Self {
        let GroupSpec { ref name, forwarding, weight, kind } = *spec;
        Self { name: name.clone(), forwarding, weight, kind, ports, links: Vec::new() }
    }
}

/// Whether a link carries frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The peer has not been heard of, or no longer.
    Down,
    /// It carries frames, and the peer answers.
    Up,
    /// It carries frames; whether anyone is there cannot be told by this kind.
    Open,
}

/// One link, as shown.
#[derive(Debug, Clone, Serialize)]
pub struct LinkView {
    /// As configured.
    #[serde(flatten)]
    pub spec: LinkSpec,
    /// Where it stands.
    pub state: LinkState,
    /// Why it does, in words.
    pub reason: String,
    /// Where the peer is now, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<std::net::SocketAddr>,
    /// Round trip in microseconds, smoothed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Percent of the last heartbeats that were not answered; of TCP, of the connection's segments
    /// that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<u8>,
    /// When our certificate expires, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<i64>,
    /// The largest IP packet that crosses uncut, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u16>,
    /// The largest payload of a guest's frame that crosses, in bytes.
    pub mtu: u16,
    /// How often it came up.
    pub ups_total: u64,
    /// Counters by name, e.g. `receive_packets_total`; refusals as `drop_<reason>_total`.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// One route, as shown.
#[derive(Debug, Clone, Serialize)]
pub struct RouteView {
    /// Its number: from 1, never used again.
    pub index: u64,
    /// As configured.
    #[serde(flatten)]
    pub spec: RouteSpec,
    /// How well it fits what it is for (VNET/P, `priority_map`); -1 for a route that never applies.
    pub priority: i8,
    /// How many frames it sent.
    pub hits_total: u64,
}

/// A capture that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureView {
    /// Its number, never used again.
    pub capture: u64,
}

/// Who talks to whom in a group: VTTIF's matrix.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficView {
    /// The group.
    pub group: Name,
    /// Over how long the rates were taken, in seconds.
    pub window_seconds: f64,
    /// Each pair that talked lately, the busiest first.
    pub pairs: Vec<TrafficPair>,
    /// Frames of pairs that found no room in the matrix.
    pub uncounted_frames_total: u64,
}

/// One pair of the matrix.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficPair {
    /// Who sends.
    pub source: Mac,
    /// To whom.
    pub destination: Mac,
    /// Where the sender is: a port or a link.
    pub from: String,
    /// All frames so far.
    pub frames_total: u64,
    /// And their bytes.
    pub bytes_total: u64,
    /// Bytes a second in the last window.
    pub bytes_per_second: f64,
}

/// A board of another host, as one of ours knows it.
#[derive(Debug, Clone, Serialize)]
pub struct PeerView {
    /// Which board of ours: its port.
    pub port: Name,
    /// Its group.
    pub group: Name,
    /// The other's address.
    pub mac: Mac,
    /// What it is called, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// How it is known: `static` (the operator named it) or `announced`.
    pub known: &'static str,
    /// `answers`, or `silent`: it did not say its name when it was asked.
    pub state: &'static str,
    /// When it said something of itself last, in seconds before now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<f64>,
    /// Pairs of endpoints that are connected.
    pub partners: usize,
    /// Messages that it was not heard to have.
    pub sending: usize,
    /// The shortest round trip of all partners, in microseconds, smoothed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of these partners by name, e.g. `messages_sent_total`.
    pub counters: std::collections::BTreeMap<String, u64>,
    /// The pairs.
    pub pairs: Vec<PairView>,
}

/// An endpoint of a board of ours and one of another board, which are connected.
#[derive(Debug, Clone, Serialize)]
pub struct PairView {
    /// The number of ours.
    pub endpoint: u8,
    /// The number of the other.
    pub partner: u8,
    /// Messages on their way to it.
    pub in_flight: usize,
    /// Messages that wait before them.
    pub waiting: usize,
    /// Bytes that came from it and that our endpoint did not take yet.
    pub parked_bytes: usize,
    /// The round trip, in microseconds, smoothed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Counters of the two by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// One rule and how often it decided.
#[derive(Debug, Clone, Serialize)]
pub struct RuleView {
    /// Position, from 0.
    pub index: usize,
    /// The rule.
    #[serde(flatten)]
    pub rule: RuleSpec,
    /// How many connects it decided.
    pub hits_total: u64,
}

/// Why a frame or connect would go where it goes.
#[derive(Debug, Clone, Serialize)]
pub struct TraceView {
    /// `forward`, `flood`, `drop`, `accept` or `reject`.
    pub verdict: String,
    /// The ports that would receive it; `host` for the host.
    pub to: Vec<String>,
    /// The steps of the decision, in order.
    pub steps: Vec<String>,
}
