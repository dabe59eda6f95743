//! Metrics of forwards beside their counters.
//!
//! The daemon asks for the views at each sample and passes them here
//! ([`causeway_model::MetricsDefinition`]), in the thread of the request that samples. The metrics of
//! ports of sockets are those of every port.

use causeway_model::commands::forwards;
use causeway_model::{
    CountedObject, ForwardState, ForwardView, MetricLabels, MetricSink, MetricsDefinition,
    ServiceMetrics,
};

/// Metrics of the service.
pub(crate) const METRICS: &[MetricsDefinition] = &[MetricsDefinition::of::<Forwards>()];

/// Metrics of forwards.
struct Forwards;

impl ServiceMetrics for Forwards {
    type Request = forwards::List;

    fn add(all: &Vec<ForwardView>, sink: &mut dyn MetricSink) {
        for view in all {
            let labels: MetricLabels<'_> = &[("forward", view.spec.name.as_str())];
            sink.counters(CountedObject::Forward, labels, &view.counters);
            let all = ForwardState::ALL.map(|(name, state)| (name, view.state == state));
            let help = "State of the forward: 1 for the present state, 0 for the others.";
            sink.states("causeway_forward_state", help, labels, &all);
        }
    }
}
