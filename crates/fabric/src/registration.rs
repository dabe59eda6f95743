//! Registration: the values by which a service is added to the fabric.
//!
//! The daemon lists its [`ServiceRegistration`]s and passes them to
//! [`Fabric::start`](crate::Fabric::start), once; the registry then makes the service's controller,
//! and a service for each shard that it opens. The fabric needs no other knowledge of the service.
//!
//! Services cannot be added or removed later. Names and kinds must be unique; this is not checked:
//! of two registrations with one name or kind, the shards and ports go to the first. The order of
//! registrations is the order in which controllers are asked. `controller` is called in the thread
//! that starts the fabric; `make` under the lock of the registry, in the thread of the command. A
//! service then runs in the thread of its dispatcher; one that is made to answer a trace in a group
//! without a shard runs in the thread of the command and is dropped.

use causeway_model::{
    CounterTable, KindDefinition, MetricsDefinition, NounDefinition, SectionDefinition,
    TraceDefinition,
};

use crate::capability::Capability;
use crate::registry::controller::{Controller, NoCommands};
use crate::service::Maker;

/// The fabric's view of a service.
#[derive(Debug, Clone, Copy)]
pub struct ServiceRegistration {
    /// Unique name by which operators know the service.
    pub name: &'static str,
    /// Kinds of ports that the service serves; empty for a service without ports.
    pub kinds: &'static [&'static KindDefinition],
    /// Makes the service of a shard.
    pub make: Maker,
    /// Makes the controller, once in a process.
    pub controller: fn() -> Box<dyn Controller>,
    /// Abilities whose requests the service's shards answer for other services.
    pub capabilities: &'static [Capability],
    /// Nouns of the control API.
    pub nouns: &'static [NounDefinition],
    /// Sections of the configuration file.
    pub sections: &'static [SectionDefinition],
    /// Questions about the destination of traffic that the service's shards answer.
    pub traces: &'static [TraceDefinition],
    /// Names and meanings of the service's counters.
    pub counters: &'static [CounterTable],
    /// Metrics of the service's objects beside their counters.
    pub metrics: &'static [MetricsDefinition],
    /// Called once, in the thread that starts the daemon and before the dispatchers are started,
    /// for example to start threads without the dispatchers' restrictions.
    pub start: Option<fn()>,
}

impl ServiceRegistration {
    /// Registers a service without commands and capabilities.
    pub const fn new(name: &'static str, make: Maker) -> Self {
        Self {
            name,
            kinds: &[],
            make,
            controller: || Box::new(NoCommands),
            capabilities: &[],
            nouns: &[],
            sections: &[],
            traces: &[],
            counters: &[],
            metrics: &[],
            start: None,
        }
    }

    /// Sets the kinds of ports.
    #[must_use]
    pub const fn with_kinds(self, kinds: &'static [&'static KindDefinition]) -> Self {
        Self { kinds, ..self }
    }

    /// Sets the controller.
    #[must_use]
    pub const fn with_controller(self, controller: fn() -> Box<dyn Controller>) -> Self {
        Self { controller, ..self }
    }

    /// Sets the capabilities.
    #[must_use]
    pub const fn with_capabilities(self, capabilities: &'static [Capability]) -> Self {
        Self { capabilities, ..self }
    }

    /// Sets the nouns of the control API.
    #[must_use]
    pub const fn with_nouns(self, nouns: &'static [NounDefinition]) -> Self {
        Self { nouns, ..self }
    }

    /// Sets the sections of the configuration file.
    #[must_use]
    pub const fn with_sections(self, sections: &'static [SectionDefinition]) -> Self {
        Self { sections, ..self }
    }

    /// Sets the questions about the destination of traffic.
    #[must_use]
    pub const fn with_traces(self, traces: &'static [TraceDefinition]) -> Self {
        Self { traces, ..self }
    }

    /// Sets the names and meanings of the counters.
    #[must_use]
    pub const fn with_counters(self, counters: &'static [CounterTable]) -> Self {
        Self { counters, ..self }
    }

    /// Sets the metrics of objects beside their counters.
    #[must_use]
    pub const fn with_metrics(self, metrics: &'static [MetricsDefinition]) -> Self {
        Self { metrics, ..self }
    }

    /// Sets the function that is called before the dispatchers are started.
    #[must_use]
    pub const fn with_start(self, start: fn()) -> Self {
        Self { start: Some(start), ..self }
    }
}
