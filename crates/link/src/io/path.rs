//! MTUs of routes and interfaces, as the host knows them.
//!
//! `super::open` and `super::view` call it in the shard of links when a `vnet` or `vxlan` link is
//! opened or shown, and `super::section` in the thread that reads a configuration; it costs a
//! few system calls and keeps no cache. An unknown route or interface gives `None`. It sends no
//! probes: a smaller MTU behind the first hop is unknown unless the kernel has learnt it. Tunnels
//! do not use it: they measure the path themselves ([`crate::health`]).

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use rustix::net::sockopt;

/// Returns the longest IP packet from `local` (any address, if unspecified) to `remote` that needs
/// no fragmentation, in bytes, at most 65535. `None` if the host has no route.
pub fn route_mtu(local: IpAddr, remote: IpAddr) -> Option<u16> {
    let socket = UdpSocket::bind((local, 0)).ok()?;
    // Connecting a UDP socket sends nothing; the port (discard) is arbitrary.
    socket.connect((remote, 9)).ok()?;
    let bytes = match remote {
        IpAddr::V4(_) => sockopt::ip_mtu(&socket),
        IpAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    };
    Some(u16::try_from(bytes.ok()?).unwrap_or(u16::MAX))
}

/// Returns the MTU of an interface, in bytes, at most 65535. `None` if the interface does not
/// exist.
pub fn interface_mtu(interface: &str) -> Option<u16> {
    if interface.contains('/') || interface.starts_with('.') {
        return None;
    }
    let file = Path::new("/sys/class/net").join(interface).join("mtu");
    let bytes: u32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Some(u16::try_from(bytes).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_of_route_and_interface_is_found() {
        // The loopback interface carries 65536 bytes, more than an IP packet can have.
        let to = |from: &str, to: &str| route_mtu(from.parse().unwrap(), to.parse().unwrap());
        assert_eq!(to("0.0.0.0", "127.0.0.1"), Some(u16::MAX));
        assert_eq!(to("::", "::1"), Some(u16::MAX));
        assert_eq!(interface_mtu("lo"), Some(u16::MAX));
        assert_eq!(interface_mtu("none-such"), None);
        assert_eq!((interface_mtu("../lo"), interface_mtu("lo/../lo")), (None, None));
        // No route from an address that is not ours.
        assert_eq!(to("192.0.2.1", "192.0.2.2"), None);
    }
}
