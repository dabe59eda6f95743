//! The MTU of the IP path of a link, as far as this host knows it, in bytes.
//!
//! [`underlay`] asks the kernel for the MTU of the link's interface or of the route to its peer, at
//! each call. It sends no packet and discovers no path MTU: a smaller MTU beyond the first hop is
//! unknown. Names of peers are not resolved. `None` lets the caller assume its default.
//!
//! `super` registers the function with the section `[[link]]`: the daemon calls it for the links of
//! the group of each port, in the thread that reads a configuration file or the text of a request.
//! The shard of links measures path MTUs at run time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use causeway_model::TableValues;
use causeway_model::draft::HostPort;
use serde_json::Value;

use crate::io::path;

/// Returns the MTU of a link's interface, or of the route to its peer, in bytes. `None` if this
/// host does not know it: the peer is given by name, or no route leads there.
pub(super) fn underlay(table: &TableValues) -> Option<u16> {
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if let Some(interface) = text("interface") {
        return path::interface_mtu(interface);
    }
    let address = |key| text(key)?.parse::<HostPort>().ok()?.address();
    let remote = address("remote")?;
    path::route_mtu(address("local").unwrap_or(any_address(remote)), remote)
}

/// Returns the unspecified address of the family of `like`.
fn any_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
