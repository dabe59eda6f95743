//! What the control plane asks of the running fabric, and what it answers.
//!
//! The daemon's control socket turns requests into [`Command`]s, hands them to
//! the dispatcher (`crate::dispatch`) and sends the [`Answer`] back. Views
//! are the JSON contract of `causeway -o json`: fields are added, never changed.

use serde::{Deserialize, Serialize};

use crate::capture::{CaptureSpec, Fetched};
use crate::orders::{Forwarding, GroupKind, GroupSpec};
use crate::pace::Mode;
use crate::spec::{LinkSpec, Mac, Name, PortSpec, RouteSpec, RuleSpec};

/// One request to the fabric.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and moved, never kept in numbers")]
pub enum Command {
    /// Every port, in order of their names.
    PortList,
    /// One port.
    PortShow(Name),
    /// Add a port and listen on its socket. Its group must exist.
    PortAdd(PortSpec),
    /// Close a port, its connections and its socket.
    PortDel(Name),
    /// Every group.
    GroupList,
    /// Add a group.
    GroupAdd(GroupSpec),
    /// Delete a group that has no ports and no links.
    GroupDel(Name),
    /// The rules in their order.
    RuleList,
    /// Insert a rule before the rule now at `index` (0 = first), or at the end.
    RuleAdd {
        /// Position, 0 to the number of rules; `None`: at the end.
        index: Option<usize>,
        /// The rule.
        rule: RuleSpec,
    },
    /// Delete the rule at `index`.
    RuleDel {
        /// Position, from 0.
        index: usize,
    },
    /// Every link, in order of their names.
    LinkList,
    /// One link.
    LinkShow(Name),
    /// Add a link. Its group must exist.
    LinkAdd(Box<LinkSpec>),
    /// As [`Self::LinkAdd`], but a link that cannot be opened now is kept: it is down, with the
    /// reason, until opening it works.
    LinkKeep(Box<LinkSpec>),
    /// Read keys and certificates of links again, and open at once links that could not be opened.
    LinkReload,
    /// Close a link, and delete the routes that name it.
    LinkDel(Name),
    /// The routes, newest first.
    RouteList,
    /// Add a route. What it names must exist.
    RouteAdd(RouteSpec),
    /// Delete the route with this number.
    RouteDel(u64),
    /// Who talks to whom in a group.
    Traffic(Name),
    /// Begin to copy frames that pass a port or a link.
    CaptureBegin(CaptureSpec),
    /// Fetch what a capture has; its number was given when it began. One that is not fetched from
    /// for [`crate::limits::CAPTURE_IDLE`] ends.
    CaptureFetch(u64),
    /// Copy no more frames for a capture; what waits can be fetched.
    CaptureStop(u64),
    /// End a capture.
    CaptureEnd(u64),
    /// Explain where a frame or a connect would go, and why, without sending it.
    Trace(TraceQuery),
    /// The boards of other hosts that our boards know.
    PeerList,
    /// The dispatchers, and the shards that each serves.
    DispatcherList,
    /// Have another dispatcher serve a group.
    ShardMove {
        /// The group.
        group: Name,
        /// `net` or `vsock` for that part of it; all of it if none.
        service: Option<String>,
        /// Number of the dispatcher, from 0.
        dispatcher: usize,
    },
}

/// What to explain.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum TraceQuery {
    /// A frame that port `from` would send.
    Frame {
        /// The sending port.
        from: Name,
        /// Source address; the port's own when left out.
        source: Option<Mac>,
        /// Destination address.
        destination: Mac,
    },
    /// A socket connect that port `from` (or the host, when left out) would make.
    Connect {
        /// The connecting port; the host when left out, then `group` names whose guests.
        from: Option<Name>,
        /// The group, for a connect from the host.
        group: Option<Name>,
        /// Destination CID.
        cid: u32,
        /// Destination port number.
        port: u32,
        /// Socket type; a stream when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket_type: Option<SocketKind>,
    },
}

/// Type of a vsock socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_SEQPACKET.
    Seqpacket,
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, Serialize)]
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
    /// To `LinkList`.
    Links(Vec<LinkView>),
    /// To `LinkShow`, `LinkAdd`.
    Link(Box<LinkView>),
    /// To `RouteList`.
    Routes(Vec<RouteView>),
    /// To `RouteAdd`.
    Route(Box<RouteView>),
    /// To `Traffic`.
    Traffic(TrafficView),
    /// To `CaptureBegin`: its number.
    Capture(CaptureView),
    /// To `CaptureFetch`.
    #[serde(skip)]
    Fetched(Fetched),
    /// To `PeerList`.
    Peers(Vec<PeerView>),
    /// To `DispatcherList`.
    Dispatchers(Vec<DispatcherView>),
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such thing.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// `port`, `group`, `rule`, `link` or `route`.
        what: &'static str,
        /// What was asked for.
        name: String,
    },
    /// The thing is already there, or in use.
    #[error("{0}")]
    Conflict(String),
    /// There are as many as there may be.
    #[error("{0}")]
    Full(String),
    /// A value is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The host refused: a socket could not be bound, say.
    #[error("{0}")]
    Host(String),
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
    pub mode: Mode,
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
    /// `net` or `vsock`.
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
