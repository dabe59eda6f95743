//! Metrics of services beside their counters: states and values of their objects.
//!
//! A service registers a [`MetricsDefinition`] for each list of objects. The daemon asks the service
//! for the list at each sample and passes the answer back to the definition, which adds names,
//! labels, help texts and values to a [`MetricSink`]. So the daemon knows the objects of no service,
//! and a new metric is a change of its service alone.
//!
//! Names begin with `causeway_` and the kind of the object; a name that ends with `_total` is a
//! counter that only grows, any other a gauge; the last word but `_total` is the unit if it is one
//! (`_seconds`, `_bytes`). None of this is checked. The definitions run in the thread of the request
//! that samples, not in a dispatcher.

use std::collections::BTreeMap;

use crate::{CommandError, CountedObject, ServiceRequest, ServiceResponse, TypedRequest};

/// Names and values of the labels of a sample.
pub type MetricLabels<'a> = &'a [(&'a str, &'a str)];

/// Collects the samples of one scrape. Each combination of name and labels may be added once.
pub trait MetricSink {
    /// Adds a sample. The help text of a name is that of its first sample.
    fn value(&mut self, name: &str, help: &str, labels: MetricLabels<'_>, value: f64);

    /// Adds the counters of an object; their help texts come from the registered tables.
    fn counters(
        &mut self,
        of: CountedObject,
        labels: MetricLabels<'_>,
        all: &BTreeMap<String, u64>,
    );

    /// Adds a sample for each possible state of an object, with the label `state`: 1 for the present
    /// state, 0 for the others.
    fn states(&mut self, name: &str, help: &str, labels: MetricLabels<'_>, all: &[(&str, bool)]) {
        for (state, is_present) in all {
            let labels = [labels, &[("state", state)]].concat();
            self.value(name, help, &labels, f64::from(u8::from(*is_present)));
        }
    }
}

/// The metrics that follow from the answer to one request.
pub trait ServiceMetrics {
    /// The request, without parameters.
    type Request: TypedRequest + Default;
    /// Names that appear only while an object has a value for them.
    const SOMETIMES: &'static [&'static str] = &[];

    /// Adds the metrics of all objects of an answer.
    fn add(answer: &<Self::Request as TypedRequest>::Answer, sink: &mut dyn MetricSink);
}

/// Registered metrics of a service.
#[derive(Debug, Clone, Copy)]
pub struct MetricsDefinition {
    request: fn() -> ServiceRequest,
    add: fn(ServiceResponse, &mut dyn MetricSink) -> Result<(), CommandError>,
    /// Names that appear only while an object has a value for them.
    pub sometimes: &'static [&'static str],
}

impl MetricsDefinition {
    /// Erases the type of the metrics.
    pub const fn of<M: ServiceMetrics>() -> Self {
        Self {
            request: || ServiceRequest::new(M::Request::default()),
            add: |response, sink| {
                M::add(&response.take::<M::Request>()?, sink);
                Ok(())
            },
            sometimes: M::SOMETIMES,
        }
    }

    /// Asks for the objects by `ask` and adds their metrics.
    ///
    /// # Errors
    /// `ask` fails, or answers another request.
    pub fn sample(
        &self,
        ask: impl FnOnce(ServiceRequest) -> Result<ServiceResponse, CommandError>,
        sink: &mut dyn MetricSink,
    ) -> Result<(), CommandError> {
        (self.add)(ask((self.request)())?, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct List;
    impl TypedRequest for List {
        type Answer = Vec<bool>;
    }

    struct Doors;
    impl ServiceMetrics for Doors {
        type Request = List;

        fn add(answer: &Vec<bool>, sink: &mut dyn MetricSink) {
            for (index, is_open) in answer.iter().enumerate() {
                let door = index.to_string();
                let all = [("open", *is_open), ("closed", !is_open)];
                sink.states("door_state", "State.", &[("door", &door)], &all);
            }
        }
    }

    #[derive(Default)]
    struct Lines(Vec<String>);
    impl MetricSink for Lines {
        fn value(&mut self, name: &str, _help: &str, labels: MetricLabels<'_>, value: f64) {
            self.0.push(format!("{name} {labels:?} {value}"));
        }

        fn counters(
            &mut self,
            _of: CountedObject,
            _labels: MetricLabels<'_>,
            _all: &BTreeMap<String, u64>,
        ) {
        }
    }

    #[test]
    fn metrics_of_a_service_follow_from_its_answer() {
        let mut lines = Lines::default();
        let metrics = MetricsDefinition::of::<Doors>();
        let answer = |request: ServiceRequest| {
            assert!(request.is::<List>());
            Ok(ServiceResponse::new::<List>(vec![true]))
        };
        metrics.sample(answer, &mut lines).unwrap();
        let expected = [
            "door_state [(\"door\", \"0\"), (\"state\", \"open\")] 1",
            "door_state [(\"door\", \"0\"), (\"state\", \"closed\")] 0",
        ];
        assert_eq!(lines.0, expected);
        let other = |_| Ok(ServiceResponse::done());
        assert!(metrics.sample(other, &mut lines).is_err(), "the answer to another request");
    }
}
