//! Resolves nodes and services, as `fi_getinfo` gets them, to endpoint addresses. A node is the
//! name of a NIC, this host (also if no node is given), or another host of the network, which means
//! its NIC `host:0`. Without a service, or with the service 0, the result is the address of a NIC,
//! whose endpoints are not examined.
//!
//! # Limits
//! Names of other hosts are resolved by the daemon, which knows the NICs that it discovered; an IP
//! address is accepted for this host only. The resolution blocks: for the answer of each local
//! NIC's daemon in turn (at most 10 s per connect and answer), for the resolver of the C library,
//! and for the search of a service (`rdm::service`) from each matching local NIC. A local NIC at
//! which no endpoint can be opened finds no service. A search without a result is repeated for
//! [`SERVICE_WAIT`] (1 s) if the hints select this provider by name (`FI_PROVIDER` does not count)
//! and the node has one NIC; otherwise each NIC is searched once. Nothing is cached.
//!
//! # Place
//! `info` calls [`find`] in the application's thread; `rdm::service` looks up services, and
//! [`nic::find`] asks the daemons.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use causeway_endpoint::nic;

use super::hints::Hints;
use crate::address::{self, Address};
use crate::limits::SERVICE_WAIT;
use crate::log;
use crate::nics::LocalNic;
use crate::rdm::service;

/// The reason why a node or a service has no address; `fi_getinfo` then gives `-FI_ENODATA`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// No NIC has the name.
    #[error(
        "no NIC of this network is named {0} or {0}:0: use a name that `causeway peer list` shows"
    )]
    Node(String),
    /// The NIC exists, but no endpoint has the service.
    #[error("no endpoint of {node} has the service {service}: start its process first")]
    Service {
        /// The node of the request.
        node: String,
        /// The service of the request.
        service: String,
    },
}

/// Returns the name of this host, empty if the kernel does not report it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns whether a node is this host: by name, or by an address of an interface.
pub fn is_this_host(node: &str) -> bool {
    let own = host_name();
    if node == "localhost" || node == own || own.split('.').next() == Some(node) {
        return true;
    }
    // The kernel binds sockets to addresses of this host only.
    let is_local = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    match node.parse::<IpAddr>() {
        Ok(ip) => is_local(ip),
        // Only names of NICs contain a colon.
        Err(_) if node.contains(':') => false,
        Err(_) => (node, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|at| is_local(at.ip()))),
    }
}

/// Looks up the destination in the hints: an endpoint that was opened for a service, or, without a
/// service, a NIC.
///
/// # Errors
/// No NIC or endpoint matches.
pub fn find(hints: &Hints, local: &[LocalNic]) -> Result<Address, Unknown> {
    let node = hints.node.as_deref().unwrap_or("localhost");
    let nics = nics_of(node, local);
    let first = nics.first().ok_or_else(|| Unknown::Node(node.to_owned()))?;
    let service = hints.service.as_deref().unwrap_or("");
    let number = if service.is_empty() { 0 } else { service::number(service) };
    if number == 0 {
        return Ok(address::of_nic(*first));
    }
    let by_name = hints.provider.as_deref().is_some_and(log::names_this_provider);
    // With several NICs, each is queried once.
    let patience = if by_name && nics.len() == 1 { SERVICE_WAIT } else { Duration::ZERO };
    let from = local.iter().filter(|nic| super::matches_hints(hints, nic));
    for source in from {
        for nic in &nics {
            if let Ok(Some(name)) = service::find(source.index, *nic, number, patience) {
                return Ok(name.emit());
            }
        }
    }
    Err(Unknown::Service { node: node.to_owned(), service: service.to_owned() })
}

/// Returns the addresses of the NICs of a node: the NIC of that name, all NICs of this host, or the
/// first NIC of another host. Empty if there is none.
fn nics_of(node: &str, nics: &[LocalNic]) -> Vec<u64> {
    if let Some(nic) = nics.iter().find(|nic| nic.name == node) {
        return vec![nic.address];
    }
    if is_this_host(node) {
        return nics.iter().map(|nic| nic.address).collect();
    }
    let found = nic::find(node).or_else(|_| nic::find(&format!("{node}:0")));
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{host_name, is_this_host};

    #[test]
    fn this_host_is_known_by_name_and_address() {
        for node in ["localhost", "127.0.0.1", &host_name()] {
            assert!(is_this_host(node), "{node}");
        }
        for node in ["192.0.2.1", "a:0"] {
            assert!(!is_this_host(node), "{node}");
        }
    }
}
