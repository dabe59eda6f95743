//! `GET /metrics`: all counters and states of the daemon for Prometheus and its like.
//!
//! The control socket and, if configured, a TCP address of this host ([`listener`]) answer. The
//! format is OpenMetrics 1.0 if the client accepts it, else the text format of Prometheus
//! ([`encode`]). Names and labels of ports and dispatchers derive from their views ([`families`]);
//! services add those of their objects ([`MetricsDefinition`]). Help texts of counters come from the
//! tables of services ([`help`]).
//!
//! A sample costs the dispatchers a few microseconds for each port, in pieces between turns. The
//! daemon takes one sample in [`METRICS_AGE_MAX`] (1 s) at most, whatever the number of scrapes:
//! further requests get the text of the last. One thread samples at a time, and others wait for it.
//! Samples of different objects are taken one after the other, not at one moment.
//!
//! [`Metrics::reply`] runs in the thread of a connection, which blocks until the dispatchers
//! answer, without a time limit. If the fabric refuses a list, the reply is an error 500, and the
//! next request samples again. [`crate::api`] and [`listener`] share one [`Metrics`], which
//! [`crate::lifecycle`] makes.

pub mod encode;
pub mod families;
pub mod help;
pub mod listener;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use causeway_model::{Answer, Command, CommandError, MetricsDefinition};

use crate::api::replies::unexpected;
use crate::fabric::{FabricControl, ask_service};
use crate::http::HttpReply;
use crate::limits::METRICS_AGE_MAX;
use crate::logger;
use crate::refusals::ControlRefusals;
use encode::{MetricSet, TextFormat};
use families::{ProcessState, ServiceSink};
use help::HelpTexts;

/// The last sample, as text.
#[derive(Debug, Clone)]
struct MetricsText {
    taken: Instant,
    open_metrics: Arc<str>,
    prometheus: Arc<str>,
}

/// The metrics of the daemon.
#[derive(Debug)]
pub struct Metrics {
    started: Instant,
    refusals: Arc<ControlRefusals>,
    helps: HelpTexts,
    services: &'static [MetricsDefinition],
    last: Mutex<Option<MetricsText>>,
}

impl Metrics {
    /// Makes metrics without a sample, of a daemon that started at this time and counts refused
    /// clients there. The objects are those of `services`, with help texts of `helps`.
    pub fn new(
        (started, refusals): (Instant, Arc<ControlRefusals>),
        helps: HelpTexts,
        services: &'static [MetricsDefinition],
    ) -> Self {
        Self { started, refusals, helps, services, last: Mutex::default() }
    }

    /// Returns the reply to a request with this value of the header Accept.
    pub fn reply(&self, fabric: &dyn FabricControl, accept: &str) -> HttpReply {
        let format = TextFormat::accepted(accept);
        match self.text(fabric) {
            Ok(text) => {
                let text = match format {
                    TextFormat::OpenMetrics => text.open_metrics,
                    TextFormat::Prometheus => text.prometheus,
                };
                HttpReply::text(text, format.content_type())
            }
            Err(refusal) => refusal,
        }
    }

    /// Returns the last sample, or a new one if that is too old.
    fn text(&self, fabric: &dyn FabricControl) -> Result<MetricsText, HttpReply> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = last.as_ref().filter(|text| text.taken.elapsed() < METRICS_AGE_MAX) {
            return Ok(text.clone());
        }
        let set = self.sample(fabric)?;
        let text = MetricsText {
            taken: Instant::now(),
            open_metrics: set.encode(TextFormat::OpenMetrics).into(),
            prometheus: set.encode(TextFormat::Prometheus).into(),
        };
        *last = Some(text.clone());
        Ok(text)
    }

    /// Samples every object.
    fn sample(&self, fabric: &dyn FabricControl) -> Result<MetricSet, HttpReply> {
        let (mut set, begun) = (MetricSet::default(), Instant::now());
        let refused = |error: CommandError| HttpReply::error(500, "host", error.to_string());
        match fabric.call(Command::PortList).map_err(refused)? {
            Answer::Ports(ports) => {
                for mut port in ports {
                    port.held = fabric.is_held(&port.spec.name);
                    families::port(&mut set, &self.helps, &port);
                }
            }
            other => return Err(unexpected(&other)),
        }
        match fabric.call(Command::DispatcherList).map_err(refused)? {
            Answer::Dispatchers(all) => {
                all.iter().for_each(|dispatcher| families::dispatcher(&mut set, dispatcher));
            }
            other => return Err(unexpected(&other)),
        }
        let mut sink = ServiceSink { set: &mut set, helps: &self.helps };
        for metrics in self.services {
            metrics.sample(|request| ask_service(fabric, request), &mut sink).map_err(refused)?;
        }
        for interface in self.refusals.by_interface() {
            families::refusals(&mut set, &interface);
        }
        let state = ProcessState {
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            has_holder: fabric.holder().is_some(),
            dropped_lines_total: logger::dropped_total(),
            collect_seconds: begun.elapsed().as_secs_f64(),
        };
        families::process(&mut set, &state);
        Ok(set)
    }
}
