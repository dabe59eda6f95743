//! The services of the daemon. No other file lists them.

use causeway_fabric::Registration;
use causeway_model::Kind;

/// Every service.
pub const SERVICES: &[Registration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
];

/// Returns the kinds of ports of `services`.
pub fn kinds(services: &[Registration]) -> Vec<&'static Kind> {
    services.iter().flat_map(|service| service.kinds).copied().collect()
}
