//! The list of services of this daemon: the only place that names them all.
//!
//! [`SERVICES`] is passed by `main` to [`crate::run::run`], which starts a dispatcher loop that
//! knows services only by their [`ServiceRegistration`]. A new service is one line here. The order
//! has no effect on traffic. Services cannot be added, removed or disabled while the daemon runs,
//! nor by the configuration; tests pass other lists.

use causeway_fabric::ServiceRegistration;
use causeway_model::KindDefinition;

/// Every service.
pub const SERVICES: &[ServiceRegistration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
    causeway_hca::SERVICE,
];

/// Returns the kinds of ports of `services`.
pub fn kinds(services: &[ServiceRegistration]) -> Vec<&'static KindDefinition> {
    services.iter().flat_map(|service| service.kinds).copied().collect()
}
