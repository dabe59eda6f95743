//! Metrics of links and of the cluster beside their counters: states, round trips, age of the
//! directory.
//!
//! The daemon asks for the views at each sample and passes them here
//! ([`causeway_model::MetricsDefinition`]). It runs in the thread of the request that samples; the
//! views are complete, and nothing here fails or waits.

use causeway_model::commands::{cluster, links};
use causeway_model::counter::split_reason;
use causeway_model::{
    ClusterView, CountedObject, LinkState, LinkView, MetricLabels, MetricSink, MetricsDefinition,
    ServiceMetrics,
};

/// Metrics of the service.
pub(super) const METRICS: &[MetricsDefinition] =
    &[MetricsDefinition::of::<Links>(), MetricsDefinition::of::<Cluster>()];

const ROUND_TRIP: &str = "causeway_link_round_trip_seconds";
const LOSS: &str = "causeway_link_loss_ratio";
const PATH_MTU: &str = "causeway_link_path_mtu_bytes";
const EXPIRY: &str = "causeway_link_certificate_expiry_timestamp_seconds";

/// Metrics of links.
struct Links;

impl ServiceMetrics for Links {
    type Request = links::List;
    /// A link that is down has no round trip.
    const SOMETIMES: &'static [&'static str] = &[ROUND_TRIP, LOSS, PATH_MTU, EXPIRY];

    fn add(all: &Vec<LinkView>, sink: &mut dyn MetricSink) {
        all.iter().for_each(|view| add_link(view, sink));
    }
}

fn add_link(view: &LinkView, sink: &mut dyn MetricSink) {
    let spec = &view.spec;
    let (group, name, kind) = (spec.group.as_str(), spec.name.as_str(), spec.kind.name());
    let labels: MetricLabels<'_> = &[("group", group), ("link", name), ("kind", kind)];
    sink.counters(CountedObject::Link, labels, &view.counters);
    let all = [
        ("down", view.state == LinkState::Down),
        ("up", view.state == LinkState::Up),
        ("open", view.state == LinkState::Open),
        ("dormant", view.state == LinkState::Dormant),
    ];
    let help = "State of the link: 1 for the present state, 0 for the others; a link that is open \
                carries frames and cannot detect whether its peer is alive, a link that is dormant \
                carries no frames now and begins a session with the next.";
    sink.states("causeway_link_state", help, labels, &all);
    let help = "Changes of the link's state to up.";
    sink.value("causeway_link_ups_total", help, labels, view.ups_total as f64);
    if let Some(rtt_us) = view.rtt_us {
        let help = "Smoothed round-trip time to the peer.";
        sink.value(ROUND_TRIP, help, labels, rtt_us / 1e6);
    }
    if let Some(percent) = view.loss_percent {
        let help = "Share of the last heartbeats without an answer; of tcp and tls links, share of \
                    segments that were sent again.";
        sink.value(LOSS, help, labels, f64::from(percent) / 100.0);
    }
    if let Some(bytes) = view.path_mtu {
        let help = "Largest IP packet that crosses to the peer without fragmentation.";
        sink.value(PATH_MTU, help, labels, f64::from(bytes));
    }
    if let Some(at) = view.certificate_expires {
        let help = "Expiry of this host's certificate, in seconds since 1970.";
        sink.value(EXPIRY, help, labels, at as f64);
    }
}

/// Metrics of the cluster; 0 before the first report of the process.
struct Cluster;

impl ServiceMetrics for Cluster {
    type Request = cluster::Show;

    fn add(view: &ClusterView, sink: &mut dyn MetricSink) {
        let all = ClusterView::STATES.map(|state| (state, view.state == state));
        let help = "State of the connection to the site's etcd: 1 for the present state, 0 for the \
                    others.";
        sink.states("causeway_cluster_state", help, &[], &all);
        let status = &view.status;
        let help = "1 while an operator is needed: removals are held, the host is evicted, keys or \
                    names of hosts conflict, or etcd refuses writes of this host.";
        let alarm = f64::from(u8::from(!status.alarm.is_empty()));
        sink.value("causeway_cluster_alarm", help, &[], alarm);
        for (name, help, value) in [
            ("hosts", "Other hosts of the site.", view.hosts as f64),
            ("hosts_seen", "Other hosts of the site with a live lease.", view.hosts_seen as f64),
            ("addresses", "Addresses of other hosts.", view.addresses as f64),
            (
                "revision_age_seconds",
                "Time between the last confirmation of etcd and the last report.",
                status.revision_age_seconds,
            ),
            (
                "resync_seconds",
                "Duration of the last full read of the site.",
                status.resync_seconds,
            ),
        ] {
            sink.value(&format!("causeway_cluster_{name}"), help, &[], value);
        }
        add_cluster_counters(view, sink);
    }
}

fn add_cluster_counters(view: &ClusterView, sink: &mut dyn MetricSink) {
    let counters = &view.status.counters;
    for (name, count) in counters {
        if let Some((_, reason)) = split_reason(name) {
            let help = "Records of etcd that were refused, by reason.";
            let labels = [("reason", reason)];
            sink.value("causeway_cluster_refusals_total", help, &labels, *count as f64);
        }
    }
    for (name, help) in [
        ("claims_refused", "Claims on addresses that were refused."),
        ("claims_lost", "Claims of this host that another host took over while the guest ran."),
        (
            "removals_held",
            "Steps that were held: more than 20 % of the records and at least 5, all groups, or \
             everything disappeared from etcd.",
        ),
        ("resyncs", "Full reads of the site."),
        ("writes_refused", "Writes of this host that etcd refused."),
    ] {
        let count = counters.get(&format!("{name}_total")).copied().unwrap_or(0);
        sink.value(&format!("causeway_cluster_{name}_total"), help, &[], count as f64);
    }
}
