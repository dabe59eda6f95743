//! The services of the daemon. No other file lists them.

use causeway_fabric::ServiceRegistration;
use causeway_model::KindDefinition;

/// Every service.
pub const SERVICES: &[ServiceRegistration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
];

/// Returns the kinds of ports of `services`.
pub fn kinds(services: &[ServiceRegistration]) -> Vec<&'static KindDefinition> {
    services.iter().flat_map(|service| service.kinds).copied().collect()
}
