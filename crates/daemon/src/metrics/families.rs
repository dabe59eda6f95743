//! Metrics from views: names, labels and help texts.
//!
//! A counter of a port becomes `causeway_port_NAME`, that of a link `causeway_link_NAME`, that of a
//! forward `causeway_forward_NAME`. Counters that differ by their reason become one family with the
//! label `reason` ([`REASON_PREFIXES`]). Help texts come from the tables of services
//! ([`HelpTexts`]). Nothing here lists the counters of a service: a new counter has a metric
//! without a change of this module.
//!
//! [`super::Metrics`] calls a function for each object of a sample, once: a second call for the
//! same object would add its samples again. The functions ask no service and cannot fail. They run
//! in the thread of the request that samples ([`super`]).

use std::collections::BTreeMap;

use causeway_model::counter::REASON_PREFIXES;
use causeway_model::{
    ClusterView, CountedObject, DispatcherView, ForwardState, ForwardView, HcaView, LinkState,
    LinkView, PortState, PortView,
};

use super::encode::{Labels, MetricSet, MetricType};
use super::help::HelpTexts;

/// Names and counters of a control interface: `refused_REASON_total`.
pub type Refusals<'a> = (&'a str, BTreeMap<String, u64>);

/// Metrics of links of which some have no value: a link that is down has no round trip.
pub const MEASURED_OF_LINKS: [&str; 4] = [
    "causeway_link_round_trip_seconds",
    "causeway_link_loss_ratio",
    "causeway_link_path_mtu_bytes",
    "causeway_link_certificate_expiry_timestamp_seconds",
];

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

/// Returns the type of a metric by its name.
fn type_of(name: &str) -> MetricType {
    if name.ends_with("_total") { COUNTER } else { GAUGE }
}

/// Splits a counter whose name has a reason: `drop_no_route_total` becomes `drops_total` and
/// `no_route`.
fn reason_of(name: &str) -> Option<(String, &str)> {
    let of = |(prefix, all): &(&str, &str)| {
        let reason = name.strip_prefix(prefix)?.strip_suffix("_total")?;
        Some((format!("{all}_total"), reason))
    };
    REASON_PREFIXES.iter().find_map(of)
}

/// Returns the beginning of the names of an object's metrics.
fn area(of: CountedObject) -> &'static str {
    match of {
        CountedObject::Port => "causeway_port_",
        CountedObject::Link => "causeway_link_",
        CountedObject::Forward => "causeway_forward_",
    }
}

/// Returns the metric of a counter, with its reason as a label if it has one.
pub fn metric_of(of: CountedObject, name: &str) -> String {
    let area = area(of);
    match reason_of(name) {
        Some((family, reason)) => format!("{area}{family}{{reason=\"{reason}\"}}"),
        None => format!("{area}{name}"),
    }
}

/// Adds the counters of a port, a link or a forward.
fn counters(
    set: &mut MetricSet,
    (of, helps): (CountedObject, &HelpTexts),
    labels: Labels<'_>,
    all: &BTreeMap<String, u64>,
) {
    let area = area(of);
    for (name, value) in all {
        match reason_of(name) {
            Some((family, reason)) => {
                let metric = format!("{area}{family}");
                let labels = [labels, &[("reason", reason)]].concat();
                let help = || helps.of_reasons(of, &family);
                set.add((&metric, COUNTER), help, &labels, *value);
            }
            None => {
                let metric = format!("{area}{name}");
                set.add((&metric, type_of(name)), || helps.of(of, name), labels, *value);
            }
        }
    }
}

/// Adds a metric of the daemon itself.
fn plain(set: &mut MetricSet, name: &str, help: &str, labels: Labels<'_>, value: f64) {
    set.add((name, type_of(name)), || help.to_owned(), labels, value);
}

/// Adds 1 for the present state of an object, and 0 for each other state.
fn states(set: &mut MetricSet, name: &str, help: &str, labels: Labels<'_>, all: &[(&str, bool)]) {
    for (state, is_present) in all {
        let labels = [labels, &[("state", state)]].concat();
        set.add((name, GAUGE), || help.to_owned(), &labels, u8::from(*is_present));
    }
}

/// Adds the metrics of a port.
pub fn port(set: &mut MetricSet, helps: &HelpTexts, view: &PortView) {
    let spec = &view.spec;
    let (group, name, kind) = (spec.group.as_str(), spec.name.as_str(), spec.kind.name());
    let labels: Labels<'_> = &[("group", group), ("port", name), ("kind", kind)];
    counters(set, (CountedObject::Port, helps), labels, &view.counters);
    let all = [
        ("listening", view.state == PortState::Listening),
        ("connected", view.state == PortState::Connected),
        ("running", view.state == PortState::Running),
        ("faulted", view.state == PortState::Faulted),
    ];
    let help = "State of the port: 1 for the present state, 0 for the others.";
    states(set, "causeway_port_state", help, labels, &all);
    let help = "Protocol violations of guest or frontend, also those that left the port open.";
    plain(set, "causeway_port_faults_total", help, labels, view.faults_total as f64);
    let help = "Failures of this host to serve a well-behaved frontend.";
    plain(set, "causeway_port_host_faults_total", help, labels, view.host_faults_total as f64);
    let help = "Connections of frontends (VMMs) to the port's socket.";
    plain(set, "causeway_port_frontend_connects_total", help, labels, view.connects_total as f64);
    let help = "Guest memory that the daemon may access now.";
    plain(set, "causeway_port_memory_bytes", help, labels, view.memory_bytes as f64);
    let help = "Conditions that impair the port; causeway port show names them.";
    plain(set, "causeway_port_warnings", help, labels, view.warnings.len() as f64);
    let help = "1 if the frontend stays connected while causewayd is replaced.";
    plain(set, "causeway_port_held", help, labels, f64::from(u8::from(view.held)));
    let polled = view.queues.iter().filter(|queue| queue.running);
    let changes: u64 = polled.map(|queue| queue.mode_changes_total).sum();
    let help = "Changes between guest-driven and VMM-driven service of the port's queues.";
    plain(set, "causeway_port_poll_mode_changes_total", help, labels, changes as f64);
    let dispatcher = view.dispatcher.to_string();
    let labels = [labels, &[("dispatcher", &dispatcher)]].concat();
    let help = "1, with the dispatcher that serves the port.";
    plain(set, "causeway_port_info", help, &labels, 1.0);
}

/// Adds the metrics of a link.
pub fn link(set: &mut MetricSet, helps: &HelpTexts, view: &LinkView) {
    let spec = &view.spec;
    let (group, name, kind) = (spec.group.as_str(), spec.name.as_str(), spec.kind.name());
    let labels: Labels<'_> = &[("group", group), ("link", name), ("kind", kind)];
    counters(set, (CountedObject::Link, helps), labels, &view.counters);
    let all = [
        ("down", view.state == LinkState::Down),
        ("up", view.state == LinkState::Up),
        ("open", view.state == LinkState::Open),
    ];
    let help = "State of the link: 1 for the present state, 0 for the others; a link that is open \
                carries frames and cannot detect whether its peer is alive.";
    states(set, "causeway_link_state", help, labels, &all);
    let help = "Changes of the link's state to up.";
    plain(set, "causeway_link_ups_total", help, labels, view.ups_total as f64);
    let [round_trip, loss, path_mtu, expiry] = MEASURED_OF_LINKS;
    if let Some(rtt_us) = view.rtt_us {
        let help = "Smoothed round-trip time to the peer.";
        plain(set, round_trip, help, labels, rtt_us / 1e6);
    }
    if let Some(percent) = view.loss_percent {
        let help = "Share of the last heartbeats without an answer; of tcp and tls links, share of \
                    segments that were sent again.";
        plain(set, loss, help, labels, f64::from(percent) / 100.0);
    }
    if let Some(bytes) = view.path_mtu {
        let help = "Largest IP packet that crosses to the peer without fragmentation.";
        plain(set, path_mtu, help, labels, f64::from(bytes));
    }
    if let Some(at) = view.certificate_expires {
        let help = "Expiry of this host's certificate, in seconds since 1970.";
        plain(set, expiry, help, labels, at as f64);
    }
}

/// Adds the metrics of a forward.
pub fn forward(set: &mut MetricSet, helps: &HelpTexts, view: &ForwardView) {
    let labels: Labels<'_> = &[("forward", view.spec.name.as_str())];
    counters(set, (CountedObject::Forward, helps), labels, &view.counters);
    let all = ForwardState::ALL.map(|(name, state)| (name, view.state == state));
    let help = "State of the forward: 1 for the present state, 0 for the others.";
    states(set, "causeway_forward_state", help, labels, &all);
}

/// Adds the metrics of the cluster; 0 before the first report of the process.
pub fn cluster(set: &mut MetricSet, view: &ClusterView) {
    let all = ClusterView::STATES.map(|state| (state, view.state == state));
    let help = "State of the connection to the site's etcd: 1 for the present state, 0 for the \
                others.";
    states(set, "causeway_cluster_state", help, &[], &all);
    let hosts = view.hosts as f64;
    plain(set, "causeway_cluster_hosts", "Other hosts of the site.", &[], hosts);
    let help = "Other hosts of the site with a live lease.";
    plain(set, "causeway_cluster_hosts_seen", help, &[], view.hosts_seen as f64);
    let help = "Addresses of other hosts.";
    plain(set, "causeway_cluster_addresses", help, &[], view.addresses as f64);
    let status = &view.status;
    let help = "Time between the last confirmation of etcd and the last report.";
    let age = status.revision_age_seconds;
    plain(set, "causeway_cluster_revision_age_seconds", help, &[], age);
    let help = "Duration of the last full read of the site.";
    plain(set, "causeway_cluster_resync_seconds", help, &[], status.resync_seconds);
    let help = "1 while removals are held, or another host uses the name of this host.";
    let alarm = f64::from(u8::from(!status.alarm.is_empty()));
    plain(set, "causeway_cluster_alarm", help, &[], alarm);
    for (name, count) in &status.counters {
        if let Some((_, reason)) = reason_of(name) {
            let help = "Records of etcd that were refused, by reason.";
            let labels = [("reason", reason)];
            plain(set, "causeway_cluster_refusals_total", help, &labels, *count as f64);
        }
    }
    for (name, help) in [
        ("claims_refused", "Claims on addresses that were refused."),
        ("claims_lost", "Claims of this host that another host took over while the guest ran."),
        (
            "removals_held",
            "Steps in which more than 20 % of the records, and at least 5, all groups or everything \
             disappeared.",
        ),
        ("resyncs", "Full reads of the site."),
    ] {
        let count = status.counters.get(&format!("{name}_total")).copied().unwrap_or(0);
        plain(set, &format!("causeway_cluster_{name}_total"), help, &[], count as f64);
    }
}

/// Adds the metrics of a dispatcher and of its shards.
pub fn dispatcher(set: &mut MetricSet, view: &DispatcherView) {
    let number = view.number.to_string();
    let labels: Labels<'_> = &[("dispatcher", &number)];
    let help = "Share of the last second in which the dispatcher had work.";
    plain(
        set,
        "causeway_dispatcher_busy_ratio",
        help,
        labels,
        f64::from(view.busy_percent) / 100.0,
    );
    let help = "Time for which an empty queue is polled before its doorbell is armed.";
    plain(set, "causeway_dispatcher_spin_seconds", help, labels, view.spin_us as f64 / 1e6);
    let help = "1 if the spin is reduced because processors are scarce.";
    let scarce = f64::from(u8::from(view.scarce));
    plain(set, "causeway_dispatcher_processors_scarce", help, labels, scarce);
    let help = "Times that a port put the dispatcher's thread to sleep.";
    plain(set, "causeway_dispatcher_stalls_total", help, labels, view.stalls_total as f64);
    let help = "Time that the dispatcher's thread slept in such stalls.";
    let name = "causeway_dispatcher_stalled_seconds_total";
    plain(set, name, help, labels, view.stalled_seconds_total);
    let turns = &view.turns;
    let bounds: Vec<_> = turns
        .buckets
        .iter()
        .map(|bucket| (bucket.at_most_us as f64 / 1e6, bucket.turns_total))
        .collect();
    let help =
        "Time of a shard's turn that had work; the other shards of the dispatcher wait for it.";
    let all = (turns.turns_total, turns.seconds_total);
    set.add_histogram("causeway_dispatcher_turn_seconds", help, labels, &bounds, all);
    for shard in &view.shards {
        let labels: Labels<'_> = &[("group", shard.group.as_str()), ("service", &shard.service)];
        let help = "Time in which the group's traffic occupied a dispatcher.";
        let name = "causeway_shard_busy_seconds_total";
        plain(set, name, help, labels, shard.busy_seconds_total);
        let help = "Moves of the group's ports to another dispatcher.";
        plain(set, "causeway_shard_moves_total", help, labels, shard.moves_total as f64);
        let labels = [labels, &[("dispatcher", &number)]].concat();
        let help = "Ports of the group and service, with the dispatcher that serves them.";
        plain(set, "causeway_shard_ports", help, &labels, shard.ports as f64);
    }
}

/// Adds the objects and errors of an adapter; its counters are those of its port.
pub fn adapter(set: &mut MetricSet, view: &HcaView) {
    let labels: Labels<'_> = &[("group", view.group.as_str()), ("port", view.port.as_str())];
    let activity = &view.activity;
    let own = [
        ("queue_pairs", view.queue_pairs, view.queue_pairs_max),
        ("completion_queues", view.completion_queues, view.completion_queues_max),
        ("memory_regions", view.regions, view.regions_max),
        ("waiting_requests", activity.waiting_requests, activity.waiting_requests_max),
    ];
    let more = activity.objects.iter().map(|(name, objects)| (&**name, objects.count, objects.max));
    for (object, count, max) in own.into_iter().chain(more) {
        let labels = [labels, &[("object", object)]].concat();
        let help = "Objects of the guest's driver, by type.";
        plain(set, "causeway_adapter_objects", help, &labels, count as f64);
        let help = "Most objects of the guest's driver, by type.";
        plain(set, "causeway_adapter_objects_max", help, &labels, max as f64);
    }
    let (bytes, most) = (view.registered_bytes as f64, view.registered_bytes_max as f64);
    let help = "Guest memory in the adapter's memory regions; memory in two regions counts twice.";
    plain(set, "causeway_adapter_registered_bytes", help, labels, bytes);
    let help = "Most guest memory in the adapter's memory regions.";
    plain(set, "causeway_adapter_registered_max_bytes", help, labels, most);
    for (status, count) in &activity.errors {
        let labels = [labels, &[("reason", &**status)]].concat();
        let help = "Failed work requests, by the status of their completion.";
        plain(set, "causeway_adapter_errors_total", help, &labels, *count as f64);
    }
}

/// Adds the refusals at a control interface.
pub fn refusals(set: &mut MetricSet, (interface, all): &Refusals<'_>) {
    for (name, count) in all {
        let Some((_, reason)) = reason_of(name) else { continue };
        let labels = [("interface", *interface), ("reason", reason)];
        let help = "Refused requests and clients of the daemon's control interfaces.";
        plain(set, "causeway_control_refusals_total", help, &labels, *count as f64);
    }
}

/// The process of the daemon.
#[derive(Debug, Clone, Copy)]
pub struct ProcessState {
    /// Time since its start, in seconds.
    pub uptime_seconds: f64,
    /// Whether a holder runs.
    pub has_holder: bool,
    /// Lines of the log that were dropped.
    pub dropped_lines_total: u64,
    /// Time that the collection of the metrics took, in seconds.
    pub collect_seconds: f64,
}

/// Adds the metrics of the process.
pub fn process(set: &mut MetricSet, state: &ProcessState) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    plain(set, "causeway_build_info", "1, with the version of causewayd.", &version, 1.0);
    let help = "Time since the start of causewayd.";
    plain(set, "causeway_uptime_seconds", help, &[], state.uptime_seconds);
    let help =
        "1 if causeway-holder runs, which keeps guests connected while causewayd is replaced.";
    plain(set, "causeway_holder_running", help, &[], f64::from(u8::from(state.has_holder)));
    let help = "Lines of the log that were dropped because the log was not read.";
    let lines = state.dropped_lines_total as f64;
    plain(set, "causeway_log_dropped_lines_total", help, &[], lines);
    let help = "Time that the collection of these metrics took.";
    plain(set, "causeway_metrics_collect_seconds", help, &[], state.collect_seconds);
}
