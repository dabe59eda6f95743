//! Rates of ports, links and dispatchers between two samples; the JSON form of `causeway top`.
//!
//! Kinds of ports count their traffic under different names. Each of the rates of [`TrafficRates`]
//! sums the counters that a kind has of a list. Directions of ports are the guest's: transmitted is
//! sent by the guest. Directions of links are this host's.
//!
//! `app` and `commands::top` call [`Report::new`] for each sample, in the main thread; it has no
//! I/O. A counter that a kind does not have counts 0, and one that began anew counts from 0. The
//! state of the first sample, or of a port that was added since, has no rates or those since 0. A
//! restarted daemon is recognised by its process or its uptime; rates are then those since its
//! start. A new counter that no list here names, and whose name has no prefix of a reason, is in no
//! rate.

use std::collections::BTreeMap;

use causeway_model::SpecValues;
use causeway_model::counter::REASON_PREFIXES;
use causeway_model::draft::LinkKindName;
use serde::Serialize;

use super::sample::Sample;
use crate::rates::Period;
use crate::view::{ConnectionView, DispatcherView, LinkView, PortView, ShardView, cell};

/// Counters of frames, packets, messages and work requests that a guest sent.
const TRANSMIT_PACKETS: &[&str] =
    &["transmit_packets_total", "requests_total", "sent_frames_total", "messages_sent_total"];
/// Counters of their bytes.
const TRANSMIT_BYTES: &[&str] =
    &["transmit_bytes_total", "request_bytes_total", "sent_frame_bytes_total", "bytes_sent_total"];
/// Counters of frames, packets and messages that a guest received.
const RECEIVE_PACKETS: &[&str] = &[
    "receive_packets_total",
    "received_messages_total",
    "received_frames_total",
    "messages_received_total",
];
/// Counters of their bytes.
const RECEIVE_BYTES: &[&str] = &[
    "receive_bytes_total",
    "received_bytes_total",
    "received_frame_bytes_total",
    "bytes_received_total",
    "bytes_pulled_total",
];
/// Counters of waits: traffic that stood still for its receiver, a limit or a rate.
const WAITS: &[&str] = &[
    "receive_held_total",
    "transmit_held_total",
    "transmit_waited_total",
    "host_pauses_total",
    "rate_pauses_total",
    "uplink_waits_total",
    "waits_for_receive_total",
    "waits_for_responder_total",
];
/// Share of turns whose time [`DispatcherReport::turn_p99_us`] bounds, in percent.
const QUANTILE_PERCENT: u128 = 99;

/// The state of the daemon at one time, with rates since the last sample.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the daemon.
    pub version: String,
    /// Time since the daemon's start, in seconds.
    pub uptime_seconds: f64,
    /// Time over which rates were measured, in seconds; absent for a first sample, which has no
    /// rates.
    pub period_seconds: Option<f64>,
    /// Whether the daemon was started since the last sample.
    pub restarted: bool,
    /// All ports.
    pub ports: Vec<PortReport>,
    /// All links.
    pub links: Vec<LinkReport>,
    /// All dispatchers.
    pub dispatchers: Vec<DispatcherReport>,
    /// The first connections; absent if the daemon does not list connections.
    pub connections: Option<Vec<ConnectionView>>,
    /// Whether there are more connections.
    pub has_more_connections: bool,
}

/// Rates of a port or link; absent for a first sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TrafficRates {
    /// Frames, packets or messages a second that were sent.
    pub transmit_packets_per_second: Option<f64>,
    /// Bytes of these a second.
    pub transmit_bytes_per_second: Option<f64>,
    /// Frames, packets or messages a second that were received.
    pub receive_packets_per_second: Option<f64>,
    /// Bytes of these a second.
    pub receive_bytes_per_second: Option<f64>,
    /// Drops, refusals and resets a second, of all reasons.
    pub drops_per_second: Option<f64>,
    /// Times a second that traffic stood still.
    pub waits_per_second: Option<f64>,
}

/// A counter of drops, refusals, resets or waits that is not 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// Name of the counter.
    pub counter: String,
    /// Value of the counter.
    pub total: u64,
    /// Growth a second; absent for a first sample.
    pub per_second: Option<f64>,
}

/// A port.
#[derive(Debug, Clone, Serialize)]
pub struct PortReport {
    /// Name.
    pub name: String,
    /// Group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// State; `cut off` if the guest stays without the device until an operator acts.
    pub state: String,
    /// Whether a guest or another frontend is attached.
    pub guest_attached: bool,
    /// Rates.
    #[serde(flatten)]
    pub rates: TrafficRates,
    /// Protocol violations.
    pub faults_total: u64,
    /// Connections of frontends.
    pub connects_total: u64,
    /// Reasons of drops and waits, the fastest first.
    pub reasons: Vec<Reason>,
    /// Conditions that impair the port: why it is cut off, its last fault, and warnings.
    pub notes: Vec<String>,
}

/// A link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkReport {
    /// Name.
    pub name: String,
    /// Group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// State.
    pub state: String,
    /// Reason of the state.
    pub reason: String,
    /// Protocol that encrypts the link; absent if frames cross in the clear.
    pub encryption: Option<String>,
    /// Rates.
    #[serde(flatten)]
    pub rates: TrafficRates,
    /// Round-trip time, in microseconds.
    pub rtt_us: Option<f64>,
    /// Loss, in percent.
    pub loss_percent: Option<u8>,
    /// Reasons of drops, the fastest first.
    pub reasons: Vec<Reason>,
}

/// A dispatcher.
#[derive(Debug, Clone, Serialize)]
pub struct DispatcherReport {
    /// Number.
    pub number: usize,
    /// The CPU to which the thread is bound.
    pub cpu: Option<usize>,
    /// Share of the last second with work, in percent.
    pub busy_percent: u8,
    /// Turns a second.
    pub turns_per_second: Option<f64>,
    /// Mean time of these turns, in microseconds; absent without turns.
    pub turn_mean_us: Option<f64>,
    /// Bound of the histogram that 99 % of these turns kept, in microseconds; absent without turns,
    /// or if more turns exceeded the last bound.
    pub turn_p99_us: Option<u64>,
    /// Times a second that a port put the thread to sleep.
    pub stalls_per_second: Option<f64>,
    /// The same, since the daemon's start.
    pub stalls_total: u64,
    /// Time in which the thread slept, in milliseconds a second.
    pub stalled_ms_per_second: Option<f64>,
    /// Number of ports.
    pub ports: usize,
    /// The groups and services that the dispatcher serves, with their share of its time.
    pub shards: Vec<String>,
}

impl Report {
    /// Computes the report of a sample, with rates since `before`.
    pub fn new(before: Option<&Sample>, now: &Sample) -> Self {
        let period = before.map(|before| {
            let (old, new) = (&before.info, &now.info);
            if old.pid != new.pid {
                return Period::since_start(new.uptime_seconds);
            }
            let elapsed = now.taken.saturating_duration_since(before.taken);
            Period::between(old.uptime_seconds, new.uptime_seconds, elapsed)
        });
        let ports = before.map(|before| by_name(before.ports.iter(), |port| &port.spec));
        let links = before.map(|before| by_name(before.links.iter(), |link| &link.spec));
        let old_port =
            |port: &PortView| Some(&ports.as_ref()?.get(port.spec.text("name")?)?.counters);
        let old_link =
            |link: &LinkView| Some(&links.as_ref()?.get(link.spec.text("name")?)?.counters);
        let old_dispatcher = |number| before?.dispatchers.iter().find(|old| old.number == number);
        Self {
            version: now.info.version.clone(),
            uptime_seconds: now.info.uptime_seconds,
            period_seconds: period.map(|period| period.seconds),
            restarted: period.is_some_and(|period| period.is_restarted),
            ports: now.ports.iter().map(|of| port(period, old_port(of), of)).collect(),
            links: now.links.iter().map(|of| link(period, old_link(of), of)).collect(),
            dispatchers: (now.dispatchers.iter())
                .map(|of| dispatcher(period, old_dispatcher(of.number), of))
                .collect(),
            connections: now.connections.clone(),
            has_more_connections: now.has_more_connections,
        }
    }
}

/// Returns objects by the names of their configurations.
fn by_name<'a, T>(
    objects: impl Iterator<Item = &'a T>,
    spec: impl Fn(&'a T) -> &'a SpecValues,
) -> BTreeMap<&'a str, &'a T> {
    objects.filter_map(|object| Some((spec(object).text("name")?, object))).collect()
}

type Counters = BTreeMap<String, u64>;

/// Counters of one object in two samples.
#[derive(Clone, Copy)]
struct Growth<'a> {
    period: Option<Period>,
    before: Option<&'a Counters>,
    now: &'a Counters,
}

impl Growth<'_> {
    /// Returns the growth of a counter a second.
    fn rate(&self, name: &str) -> Option<f64> {
        let now = self.now.get(name).copied().unwrap_or(0);
        let before = self.before.and_then(|before| before.get(name)).copied();
        self.period.map(|period| period.rate(before, now))
    }

    /// Returns the growth of several counters together.
    fn sum(&self, names: &[&str]) -> Option<f64> {
        names.iter().map(|name| self.rate(name)).sum()
    }

    /// Returns the rates of the traffic.
    fn traffic(&self) -> TrafficRates {
        let losses: Vec<&str> = self.now.keys().map(String::as_str).filter(is_loss).collect();
        TrafficRates {
            transmit_packets_per_second: self.sum(TRANSMIT_PACKETS),
            transmit_bytes_per_second: self.sum(TRANSMIT_BYTES),
            receive_packets_per_second: self.sum(RECEIVE_PACKETS),
            receive_bytes_per_second: self.sum(RECEIVE_BYTES),
            drops_per_second: self.sum(&losses),
            waits_per_second: self.sum(WAITS),
        }
    }

    /// Returns the counters of losses and waits that are not 0, the fastest first.
    fn reasons(&self) -> Vec<Reason> {
        let counted = self.now.iter().filter(|(name, total)| {
            **total > 0 && (is_loss(&name.as_str()) || WAITS.contains(&name.as_str()))
        });
        let reason = |(name, total): (&String, &u64)| Reason {
            counter: name.clone(),
            total: *total,
            per_second: self.rate(name),
        };
        let mut reasons: Vec<Reason> = counted.map(reason).collect();
        let rate = |reason: &Reason| reason.per_second.unwrap_or(0.0);
        reasons.sort_by(|a, b| {
            rate(b).total_cmp(&rate(a)).then(b.total.cmp(&a.total)).then(a.counter.cmp(&b.counter))
        });
        reasons
    }
}

/// Returns whether a counter counts drops, refusals or resets of a reason.
fn is_loss(name: &&str) -> bool {
    name.ends_with("_total") && REASON_PREFIXES.iter().any(|(start, _)| name.starts_with(start))
}

/// Returns the report of a port.
fn port(period: Option<Period>, before: Option<&Counters>, port: &PortView) -> PortReport {
    let growth = Growth { period, before, now: &port.counters };
    let fault = port.fault.as_ref().map(|fault| format!("last fault: {fault}"));
    let host_fault = port.host_fault.as_ref().map(|fault| format!("host fault: {fault}"));
    let notes = port.cut_off.iter().cloned().chain(fault).chain(host_fault);
    PortReport {
        name: cell(&port.spec, "name"),
        group: cell(&port.spec, "group"),
        kind: cell(&port.spec, "kind"),
        state: if port.cut_off.is_some() { "cut off".to_owned() } else { port.state.clone() },
        guest_attached: matches!(port.state.as_str(), "connected" | "running"),
        rates: growth.traffic(),
        faults_total: port.faults_total,
        connects_total: port.connects_total,
        reasons: growth.reasons(),
        notes: notes.chain(port.warnings.iter().cloned()).collect(),
    }
}

/// Returns the report of a link.
fn link(period: Option<Period>, before: Option<&Counters>, link: &LinkView) -> LinkReport {
    let growth = Growth { period, before, now: &link.counters };
    let kind = cell(&link.spec, "kind");
    let known = LinkKindName::NAMES.contains(&kind.as_str());
    let known = known.then(|| serde_json::from_value::<LinkKindName>(kind.clone().into()).ok());
    let encryption = match known.flatten() {
        Some(kind) => kind.encryption().map(str::to_owned),
        None => Some("unknown".to_owned()),
    };
    LinkReport {
        name: cell(&link.spec, "name"),
        group: cell(&link.spec, "group"),
        kind,
        state: link.state.clone(),
        reason: link.reason.clone(),
        encryption,
        rates: growth.traffic(),
        rtt_us: link.rtt_us,
        loss_percent: link.loss_percent,
        reasons: growth.reasons(),
    }
}

/// Returns the report of a dispatcher.
fn dispatcher(
    period: Option<Period>,
    before: Option<&DispatcherView>,
    now: &DispatcherView,
) -> DispatcherReport {
    let before = before.filter(|_| period.is_some_and(|period| !period.is_restarted));
    let rate = |before: Option<u64>, now| period.map(|period| period.rate(before, now));
    // Sleeps and turns are counted in seconds with fractions, which never fall within one process.
    let seconds = |of: fn(&DispatcherView) -> f64| (of(now) - before.map_or(0.0, of)).max(0.0);
    let turns = now.turns.turns_total;
    let turns = turns.saturating_sub(before.map_or(0, |before| before.turns.turns_total));
    let has_turns = period.is_some() && turns > 0;
    let mean = seconds(|of| of.turns.seconds_total) * 1e6 / turns.max(1) as f64;
    let stalled = seconds(|of| of.stalled_seconds_total) * 1e3;
    let shard = |of: &ShardView| {
        format!(
            "group {}, {}: {} ports, busy {} %",
            of.group, of.service, of.ports, of.busy_percent
        )
    };
    DispatcherReport {
        number: now.number,
        cpu: now.cpu,
        busy_percent: now.busy_percent,
        turns_per_second: rate(before.map(|of| of.turns.turns_total), now.turns.turns_total),
        turn_mean_us: has_turns.then_some(mean),
        turn_p99_us: if has_turns { quantile_us(before, now, turns) } else { None },
        stalls_per_second: rate(before.map(|of| of.stalls_total), now.stalls_total),
        stalls_total: now.stalls_total,
        stalled_ms_per_second: period.map(|period| stalled / period.seconds),
        ports: now.shards.iter().map(|shard| shard.ports).sum(),
        shards: now.shards.iter().map(shard).collect(),
    }
}

/// Returns the first bound of the histogram that 99 % of the turns since `before` kept.
fn quantile_us(before: Option<&DispatcherView>, now: &DispatcherView, turns: u64) -> Option<u64> {
    let old = |at_most_us| {
        let buckets = before.map(|before| &before.turns.buckets[..]).unwrap_or_default();
        let bucket = buckets.iter().find(|bucket| bucket.at_most_us == at_most_us);
        bucket.map_or(0, |bucket| bucket.turns_total)
    };
    let kept = |within: u64| u128::from(within) * 100 >= u128::from(turns) * QUANTILE_PERCENT;
    let mut buckets = now.turns.buckets.iter();
    let found =
        buckets.find(|bucket| kept(bucket.turns_total.saturating_sub(old(bucket.at_most_us))));
    found.map(|bucket| bucket.at_most_us)
}
