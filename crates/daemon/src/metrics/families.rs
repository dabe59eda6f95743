//! Metrics from views: names, labels and help texts.
//!
//! A counter of a port becomes `causeway_port_NAME`, that of a link `causeway_link_NAME`, that of a
//! forward `causeway_forward_NAME`. Counters that differ by their reason become one family with the
//! label `reason` ([`split_reason`]). Help texts come from the tables of services ([`HelpTexts`]).
//! Nothing here lists the counters or objects of a service: services add the metrics of their
//! objects by [`ServiceSink`].
//!
//! [`super::Metrics`] calls a function for each object of a sample, once: a second call for the
//! same object would add its samples again. The functions ask no service and cannot fail. They run
//! in the thread of the request that samples ([`super`]).

use std::collections::BTreeMap;

use causeway_model::counter::split_reason;
use causeway_model::{CountedObject, DispatcherView, MetricSink, PortState, PortView};

use super::encode::{Labels, MetricSet, MetricType};
use super::help::HelpTexts;

/// Names and counters of a control interface: `refused_REASON_total`.
pub type Refusals<'a> = (&'a str, BTreeMap<String, u64>);

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

/// Returns the type of a metric by its name.
fn type_of(name: &str) -> MetricType {
    if name.ends_with("_total") { COUNTER } else { GAUGE }
}

/// Returns the beginning of the names of an object's metrics.
fn area(of: CountedObject) -> String {
    format!("causeway_{}_", of.name())
}

/// Returns the metric of a counter, with its reason as a label if it has one.
pub fn metric_of(of: CountedObject, name: &str) -> String {
    let area = area(of);
    match split_reason(name) {
        Some((family, reason)) => format!("{area}{family}{{reason=\"{reason}\"}}"),
        None => format!("{area}{name}"),
    }
}

/// Adds the counters of an object.
fn counters(
    set: &mut MetricSet,
    (of, helps): (CountedObject, &HelpTexts),
    labels: Labels<'_>,
    all: &BTreeMap<String, u64>,
) {
    let area = area(of);
    for (name, value) in all {
        match split_reason(name) {
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

/// Adds the metrics of services to a set.
#[derive(Debug)]
pub struct ServiceSink<'a> {
    /// The set.
    pub set: &'a mut MetricSet,
    /// Help texts of counters.
    pub helps: &'a HelpTexts,
}

impl MetricSink for ServiceSink<'_> {
    fn value(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        plain(self.set, name, help, labels, value);
    }

    fn counters(&mut self, of: CountedObject, labels: Labels<'_>, all: &BTreeMap<String, u64>) {
        counters(self.set, (of, self.helps), labels, all);
    }
}

/// Adds a sample of a metric; the end of its name decides its type.
fn plain(set: &mut MetricSet, name: &str, help: &str, labels: Labels<'_>, value: f64) {
    set.add((name, type_of(name)), || help.to_owned(), labels, value);
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
    ServiceSink { set, helps }.states("causeway_port_state", help, labels, &all);
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

/// Adds the refusals at a control interface.
pub fn refusals(set: &mut MetricSet, (interface, all): &Refusals<'_>) {
    for (name, count) in all {
        let Some((_, reason)) = split_reason(name) else { continue };
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
