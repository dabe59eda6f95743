//! The services of the daemon: the only list of them.

use causeway_fabric::Registration;

/// Every service, in the order in which the kinds of ports are looked up.
pub const SERVICES: &[Registration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
];
