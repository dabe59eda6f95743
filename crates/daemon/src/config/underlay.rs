//! The MTU of the IP path of a link, as far as this host knows it, in bytes.
//!
//! [`underlay`] asks the kernel for the MTU of the link's interface or of the route to its peer, at
//! each call. It sends no packet and discovers no path MTU: a smaller MTU beyond the first hop is
//! unknown. Names of peers are not resolved. `None` lets the caller assume its default.
//!
//! The function is passed to [`crate::config::ConfigContext`], so that tests replace the host;
//! `config::read` calls it for the links of the group of each port, in its thread, for the daemon's
//! file and for the text of `POST /v1/apply` and `POST /v1/config/diff`. The `link` service
//! measures path MTUs at run time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use causeway_link::io::path;
use causeway_model::draft::{HostPort, LinkDraft};

/// Returns the MTU of a link's interface, or of the route to its peer, in bytes. `None` if this
/// host does not know it: the peer is given by name, or no route leads there.
pub fn underlay(link: &LinkDraft) -> Option<u16> {
    if let Some(interface) = &link.interface {
        return path::interface_mtu(interface);
    }
    let address = |text: &Option<String>| text.as_ref()?.parse::<HostPort>().ok()?.address();
    let remote = address(&link.remote)?;
    path::route_mtu(address(&link.local).unwrap_or(any_address(remote)), remote)
}

/// Returns the unspecified address of the family of `like`.
fn any_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
