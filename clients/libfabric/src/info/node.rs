//! Nodes and services of other endpoints, as `fi_getinfo` is given them.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use causeway_endpoint::board;

use super::asked::Asked;
use crate::address::{self, Address};
use crate::boards::Board;
use crate::limits::SERVICE_WAIT;
use crate::rdm::service;
use crate::say;

/// Why a node or a service has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// No board has the name.
    #[error(
        "no board of this network is called {0} or {0}:0: name one that `causeway peer list` shows"
    )]
    Node(String),
    /// The board is there.
    #[error("no endpoint of {node} was opened for the service {service}: start its process first")]
    Service {
        /// As it was asked for.
        node: String,
        /// Likewise.
        service: String,
    },
}

/// The name of this host, empty if the kernel does not give it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Whether a node is this host: by name, or by an address of one of its interfaces.
pub fn is_this_host(node: &str) -> bool {
    let own = host_name();
    if node == "localhost" || node == own || own.split('.').next() == Some(node) {
        return true;
    }
    // The kernel binds sockets to addresses of this host only.
    let is_local = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    match node.parse::<IpAddr>() {
        Ok(ip) => is_local(ip),
        // Names with a colon are those of boards.
        Err(_) if node.contains(':') => false,
        Err(_) => (node, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|at| is_local(at.ip()))),
    }
}

/// Looks up what an application asks for as destination: an endpoint that was opened for a service,
/// or, without a service, a board.
///
/// # Errors
/// There is none.
pub fn find(asked: &Asked, boards: &[Board]) -> Result<Address, Unknown> {
    let node = asked.node.as_deref().unwrap_or("localhost");
    let nics = nics(node, boards);
    let first = nics.first().ok_or_else(|| Unknown::Node(node.to_owned()))?;
    let service = asked.service.as_deref().unwrap_or("");
    let number = if service.is_empty() { 0 } else { service::number(service) };
    if number == 0 {
        return Ok(address::of_board(*first));
    }
    let by_name = asked.provider.as_deref().is_some_and(say::is_us);
    // Of several boards each is asked once.
    let patience = if by_name && nics.len() == 1 { SERVICE_WAIT } else { Duration::ZERO };
    let from = boards.iter().filter(|board| super::is_wanted(asked, board));
    for board in from {
        for nic in &nics {
            if let Ok(Some(name)) = service::find(board.number, *nic, number, patience) {
                return Ok(name.emit());
            }
        }
    }
    Err(Unknown::Service { node: node.to_owned(), service: service.to_owned() })
}

/// The boards of a node: the one of that name, those of this host, or the first of a host.
fn nics(node: &str, boards: &[Board]) -> Vec<u64> {
    if let Some(board) = boards.iter().find(|board| board.name == node) {
        return vec![board.nic];
    }
    if is_this_host(node) {
        return boards.iter().map(|board| board.nic).collect();
    }
    let found = board::find(node).or_else(|_| board::find(&format!("{node}:0")));
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
