//! Metrics of adapters: objects and errors of the guest's driver.
//!
//! The daemon asks for the views at each sample and passes them here
//! ([`causeway_model::MetricsDefinition`]), in the thread of the request that samples. The counters of
//! an adapter are those of its port.

use causeway_model::commands::hca;
use causeway_model::{HcaView, MetricLabels, MetricSink, MetricsDefinition, ServiceMetrics};

/// Metrics of the service.
pub(crate) const METRICS: &[MetricsDefinition] = &[MetricsDefinition::of::<Adapters>()];

/// Metrics of adapters.
struct Adapters;

impl ServiceMetrics for Adapters {
    type Request = hca::List;

    fn add(all: &Vec<HcaView>, sink: &mut dyn MetricSink) {
        all.iter().for_each(|view| add_adapter(view, sink));
    }
}

fn add_adapter(view: &HcaView, sink: &mut dyn MetricSink) {
    let labels: MetricLabels<'_> = &[("group", view.group.as_str()), ("port", view.port.as_str())];
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
        sink.value("causeway_adapter_objects", help, &labels, count as f64);
        let help = "Most objects of the guest's driver, by type.";
        sink.value("causeway_adapter_objects_max", help, &labels, max as f64);
    }
    let (bytes, most) = (view.registered_bytes as f64, view.registered_bytes_max as f64);
    let help = "Guest memory in the adapter's memory regions; memory in two regions counts twice.";
    sink.value("causeway_adapter_registered_bytes", help, labels, bytes);
    let help = "Most guest memory in the adapter's memory regions.";
    sink.value("causeway_adapter_registered_max_bytes", help, labels, most);
    for (status, count) in &activity.errors {
        let labels = [labels, &[("reason", &**status)]].concat();
        let help = "Failed work requests, by the status of their completion.";
        sink.value("causeway_adapter_errors_total", help, &labels, *count as f64);
    }
}
