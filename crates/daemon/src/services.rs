//! The services of the daemon: the only list of them.

use causeway_fabric::Registration;

/// Every service. The first that serves a kind of port gets ports of that kind.
pub const SERVICES: &[Registration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
];
