//! The list of services of this daemon: the only place that names them all.
//!
//! [`SERVICES`] is passed by `main` to [`crate::run::run`], which starts a dispatcher loop that
//! knows services only by their [`ServiceRegistration`]. A new service is one line here. The order
//! has no effect on traffic. Services cannot be added, removed or disabled while the daemon runs,
//! nor by the configuration; tests pass other lists.
//!
//! [`Registered`] collects the parts of the operator's interface that the services register.
//! [`crate::run`] calls [`Registered::of`] once: each call allocates the lists for the life of the
//! process. The names of kinds, sections and nouns are not compared here: of two nouns of one name
//! the first answers.

use causeway_fabric::ServiceRegistration;
use causeway_model::{KindDefinition, MetricsDefinition, NounDefinition, SectionDefinition};

use crate::metrics::help::HelpTexts;

/// Every service.
pub const SERVICES: &[ServiceRegistration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
    causeway_hca::SERVICE,
    causeway_stream::SERVICE,
    causeway_tap::SERVICE,
];

/// The parts of the operator's interface that services register.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    /// Kinds of ports.
    pub kinds: &'static [&'static KindDefinition],
    /// Sections of the configuration file, in the order of [`SectionDefinition::order`].
    pub sections: &'static [SectionDefinition],
    /// Nouns of the control API.
    pub nouns: &'static [NounDefinition],
    /// Meanings of counters.
    pub helps: &'static HelpTexts,
    /// Metrics of the services' objects.
    pub metrics: &'static [MetricsDefinition],
}

impl Registered {
    /// Collects the parts of `services`. The lists are allocated once, until the process ends.
    pub fn of(services: &[ServiceRegistration]) -> Self {
        let kinds: Vec<_> = services.iter().flat_map(|service| service.kinds).copied().collect();
        let mut sections: Vec<_> =
            services.iter().flat_map(|service| service.sections).copied().collect();
        sections.sort_by_key(|section: &SectionDefinition| section.order);
        let helps = Box::leak(Box::new(HelpTexts::of_services(services)));
        let nouns: Vec<_> = services.iter().flat_map(|service| service.nouns).copied().collect();
        let metrics: Vec<_> =
            services.iter().flat_map(|service| service.metrics).copied().collect();
        Self {
            kinds: kinds.leak(),
            sections: sections.leak(),
            nouns: nouns.leak(),
            helps,
            metrics: metrics.leak(),
        }
    }
}
