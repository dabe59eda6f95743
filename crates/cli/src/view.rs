//! What the daemon shows, as far as tables need it; fields that newer daemons add are passed over.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// A port.
#[derive(Debug, Clone, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// `net`, `vsock` or `mx`.
    pub kind: String,
    /// Where frontends connect.
    pub socket: String,
    /// `listening`, `connected`, `running` or `faulted`.
    pub state: String,
    /// Which dispatcher serves it.
    #[serde(default)]
    pub dispatcher: usize,
    /// Why it was last closed or reset.
    pub fault: Option<String>,
    /// How long ago that was, in seconds.
    pub fault_age_seconds: Option<u64>,
    /// `present` or `former`: which frontend it was.
    pub fault_of: Option<String>,
    /// The last event that cost the guest something although it broke no rule.
    pub notice: Option<String>,
    /// How long ago that was, in seconds.
    pub notice_age_seconds: Option<u64>,
    /// `present` or `former`: which frontend it was.
    pub notice_of: Option<String>,
    /// How often it was closed or reset.
    #[serde(default)]
    pub faults_total: u64,
    /// Why this host last could not serve a frontend.
    pub host_fault: Option<String>,
    /// How often it could not.
    #[serde(default)]
    pub host_faults_total: u64,
    /// How often a frontend connected.
    #[serde(default)]
    pub connects_total: u64,
    /// Lasting conditions that the operator should know of.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Whether its frontend stays connected while causewayd is replaced.
    #[serde(default)]
    pub held: bool,
    /// Negotiated features, hexadecimal.
    #[serde(default)]
    pub features: String,
    /// Granted memory.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its queues.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// Its counters.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// The options of its kind, and values that this release does not know.
    #[serde(flatten)]
    pub options: HashMap<String, Value>,
}

impl Port {
    /// An option that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.options.get(key)?.as_str()
    }

    /// An option that is a number.
    pub fn number(&self, key: &str) -> Option<u32> {
        self.options.get(key)?.as_u64()?.try_into().ok()
    }

    /// The MAC, or the CID.
    pub fn address(&self) -> String {
        match (self.text("mac"), self.number("cid")) {
            (Some(mac), _) => mac.to_owned(),
            (None, Some(cid)) => format!("cid {cid}"),
            (None, None) => "-".into(),
        }
    }
}

/// A queue.
#[derive(Debug, Clone, Deserialize)]
pub struct Queue {
    /// In virtio order.
    pub index: usize,
    /// Entries.
    pub size: u32,
    /// `split` or `packed`.
    pub format: String,
    /// Whether the driver runs it.
    pub running: bool,
    /// `guest-driven` or `vmm-driven`.
    #[serde(default)]
    pub mode: String,
    /// Why.
    #[serde(default)]
    pub mode_reason: String,
}

/// A board of another host.
#[derive(Debug, Clone, Deserialize)]
pub struct Peer {
    /// The port of ours that knows it.
    pub port: String,
    /// Its address.
    pub mac: String,
    /// What it is called.
    pub hostname: Option<String>,
    /// `static` or `announced`.
    pub known: String,
    /// `answers` or `silent`.
    pub state: String,
    /// When it was heard of last, in seconds before now.
    pub heard_seconds: Option<f64>,
    /// Pairs of endpoints that are connected.
    pub partners: usize,
    /// The shortest round trip, in microseconds.
    pub rtt_us: Option<f64>,
    /// Its counters.
    pub counters: BTreeMap<String, u64>,
    /// Pairs of endpoints, ours and its.
    pub pairs: Vec<Pair>,
}

/// An endpoint of ours and one of another board.
#[derive(Debug, Clone, Deserialize)]
pub struct Pair {
    /// The number of ours.
    pub endpoint: u8,
    /// The number of the other.
    pub partner: u8,
    /// Messages on their way.
    pub in_flight: usize,
    /// Messages that wait.
    pub waiting: usize,
    /// Bytes that our endpoint did not take yet.
    pub parked_bytes: usize,
    /// The round trip, in microseconds.
    pub rtt_us: Option<f64>,
    /// Their counters.
    pub counters: BTreeMap<String, u64>,
}

/// A dispatcher.
#[derive(Debug, Clone, Deserialize)]
pub struct Dispatcher {
    /// From 0.
    pub number: usize,
    /// The CPU it is bound to.
    pub cpu: Option<usize>,
    /// How long it polls in vain.
    pub spin_us: u64,
    /// Whether that was cut.
    pub scarce: bool,
    /// Of the last second.
    pub busy_percent: u8,
    /// What it serves.
    pub shards: Vec<Shard>,
}

/// What a dispatcher serves.
#[derive(Debug, Clone, Deserialize)]
pub struct Shard {
    /// The group.
    pub group: String,
    /// `net`, `vsock` or `mx`.
    pub service: String,
    /// How many ports.
    pub ports: usize,
    /// Of the last second.
    pub busy_percent: u8,
    /// How often it moved.
    pub moves_total: u64,
}

fn one() -> u32 {
    1
}

/// A group.
#[derive(Debug, Clone, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// `learn` or `routes`.
    #[serde(default)]
    pub forwarding: String,
    /// Its share of a dispatcher's time beside other groups that are busy.
    #[serde(default = "one")]
    pub weight: u32,
    /// `bridge` or `wire`.
    #[serde(default)]
    pub kind: String,
    /// Its ports.
    pub ports: Vec<String>,
    /// Its links.
    #[serde(default)]
    pub links: Vec<String>,
}

/// A link.
#[derive(Debug, Clone, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// `causeway`, `vnet` and so on.
    pub kind: String,
    /// The lowest is used.
    pub metric: u16,
    /// `down`, `up` or `open`.
    pub state: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Where the peer is now.
    pub endpoint: Option<String>,
    /// Round trip.
    pub rtt_us: Option<f64>,
    /// Of the last heartbeats.
    pub loss_percent: Option<u8>,
    /// When our certificate expires, in seconds since 1970.
    pub certificate_expires: Option<i64>,
    /// The largest IP packet that crosses uncut.
    pub path_mtu: Option<u32>,
    /// The largest payload of a frame.
    pub mtu: u32,
    /// How often it came up.
    #[serde(default)]
    pub ups_total: u64,
    /// Its counters.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// The options of its kind, and values that this release does not know.
    #[serde(flatten)]
    pub options: HashMap<String, Value>,
}

impl Link {
    /// An option that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.options.get(key)?.as_str()
    }
}

/// A route.
#[derive(Debug, Clone, Deserialize)]
pub struct Route {
    /// Its number.
    pub index: u64,
    /// Its group.
    pub group: String,
    /// From which addresses.
    pub source: String,
    /// To which.
    pub destination: String,
    /// Where they go.
    pub to: RouteEnd,
    /// Where they come from.
    pub from: Option<RouteEnd>,
    /// How well it fits.
    pub priority: i8,
    /// How many frames it sent.
    pub hits_total: u64,
}

/// A port or a link.
#[derive(Debug, Clone, Deserialize)]
pub struct RouteEnd {
    /// `interface` or `edge`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Who talks to whom.
#[derive(Debug, Clone, Deserialize)]
pub struct Traffic {
    /// Over how long rates were taken.
    pub window_seconds: f64,
    /// Each pair.
    pub pairs: Vec<TrafficPair>,
    /// Frames of pairs that found no room.
    #[serde(default)]
    pub uncounted_frames_total: u64,
}

/// One pair.
#[derive(Debug, Clone, Deserialize)]
pub struct TrafficPair {
    /// Who sends.
    pub source: String,
    /// To whom.
    pub destination: String,
    /// Where the sender is.
    pub from: String,
    /// All so far.
    pub frames_total: u64,
    /// Their bytes.
    pub bytes_total: u64,
    /// In the last window.
    pub bytes_per_second: f64,
}

/// A rule.
#[derive(Debug, Clone, Deserialize)]
pub struct Rule {
    /// Position, from 0.
    pub index: usize,
    /// `accept` or `reject`.
    pub action: String,
    /// Who connects.
    pub from: String,
    /// To whom.
    pub to: String,
    /// How many connects it decided.
    pub hits_total: u64,
}

/// Counters of all ports at one time.
#[derive(Debug, Clone, Deserialize)]
pub struct Stats {
    /// The daemon's clock.
    pub uptime_seconds: f64,
    /// Each port.
    pub ports: Vec<PortStats>,
    /// Each link.
    #[serde(default)]
    pub links: Vec<PortStats>,
    /// What was refused to those who control the daemon, by the way that they took.
    #[serde(default)]
    pub doors: Vec<DoorStats>,
}

/// What was refused at one of the daemon's control doors.
#[derive(Debug, Clone, Deserialize)]
pub struct DoorStats {
    /// Which.
    pub name: String,
    /// By name: `refused_<reason>_total`.
    pub counters: BTreeMap<String, u64>,
}

/// Counters of one port or link.
#[derive(Debug, Clone, Deserialize)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: String,
    /// How often a port was closed or reset.
    #[serde(default)]
    pub faults_total: u64,
    /// By name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// Why a frame or connect would go where it goes.
#[derive(Debug, Clone, Deserialize)]
pub struct Trace {
    /// `forward`, `flood`, `drop`, `accept` or `reject`.
    pub verdict: String,
    /// The receiving ports.
    pub to: Vec<String>,
    /// The steps of the decision.
    pub steps: Vec<String>,
}

/// The daemon.
#[derive(Debug, Clone, Deserialize)]
pub struct Info {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How long it runs.
    pub uptime_seconds: f64,
    /// Its control socket.
    pub control: String,
    /// Where ports' sockets go by default.
    pub run_dir: String,
}
