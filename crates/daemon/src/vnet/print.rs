//! Prints VNET commands and lists as text, in VNET/P's format.
//!
//! [`line()`] is the inverse of `vnet::parse`; its text contains passwords and must not be logged.
//! Lists have no final `OK` line: [`super::session`] appends it. The functions are pure: they read
//! no state and have no limit of length. Counters of a link that the view does not have are printed
//! as 0; an address that is not known yet as `-`.
//!
//! [`super::session`] prints lists, [`super::registration`] the command that it sends to a peer's
//! server, both in the thread of a session.

use std::fmt::Write as _;

use causeway_model::{LinkKind, LinkSpec, PortSpec, RouteEnd, TlsSpec};
use causeway_model::{LinkView, RouteView};

use super::command::{EndName, ListKind, RouteWords, VnetCommand, VnetTransport};

/// Returns a line that parses as the command. It contains passwords: not for logs.
pub fn line(command: &VnetCommand) -> String {
    match command {
        VnetCommand::Hello { password, version, then } => {
            let then = then.as_ref().map(|then| format!(" {}", line(then))).unwrap_or_default();
            format!("HELLO {} {version}{then}", password.expose())
        }
        VnetCommand::Done => "DONE".into(),
        VnetCommand::AddLink { host, control_port, data_port, password, transport } => {
            let (password, transport) = (password.expose(), word(*transport));
            format!("ADDLINK {host} {control_port} {data_port} {password} {transport}")
        }
        VnetCommand::DeleteLink { host, control_port, password, transport } => {
            let (password, transport) = (password.expose(), word(*transport));
            format!("DELETELINK {host} {control_port} {password} {transport}")
        }
        VnetCommand::RegisterLink { data_port } => format!("REGISTERLINK MYSELF {data_port} UDP"),
        VnetCommand::DeregisterLink => "DEREGISTERLINK MYSELF UDP".into(),
        VnetCommand::AddRoute(route) => format!("ADDROUTE {}", route_line(route)),
        VnetCommand::DeleteRoute(route) => format!("DELETEROUTE {}", route_line(route)),
        VnetCommand::LinkAdd { host, port, transport } => {
            format!("ADD LINK {host} {port} {}", word(*transport))
        }
        VnetCommand::LinkDel(number) => format!("DEL LINK {number}"),
        VnetCommand::RouteDel(number) => format!("DEL ROUTE {number}"),
        VnetCommand::List(ListKind::Links) => "LIST LINKS".into(),
        VnetCommand::List(ListKind::Routes) => "LIST ROUTES".into(),
        VnetCommand::List(ListKind::Devices) => "LIST DEVICES".into(),
    }
}

/// Returns the word for a transport.
fn word(transport: VnetTransport) -> &'static str {
    match transport {
        VnetTransport::Udp => "UDP",
        VnetTransport::Tcp => "TCP",
    }
}

/// Returns the words of a route after its command.
fn route_line(route: &RouteWords) -> String {
    let end = |end: &EndName| match end {
        EndName::Interface(name) => format!("INTERFACE {name}"),
        EndName::Edge(name) => format!("EDGE {name}"),
    };
    let from = route.from.as_ref().map_or("ANY".to_owned(), end);
    format!("{} {} {} {from}", route.source, route.destination, end(&route.to))
}

/// Returns the peer's address and port as text; for a raw link, its interface and `-`. Both are `-`
/// if the peer's address is not known.
fn ends(spec: &LinkSpec) -> (String, String) {
    let of = |remote: Option<std::net::SocketAddr>| match remote {
        Some(remote) => (remote.ip().to_string(), remote.port().to_string()),
        None => ("-".into(), "-".into()),
    };
    match &spec.kind {
        LinkKind::Causeway(tunnel) => of(tunnel.remote),
        LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
            of(Some(udp.remote))
        }
        LinkKind::Tcp(stream) | LinkKind::Tls(TlsSpec { stream, .. }) => of(Some(stream.remote)),
        LinkKind::Raw(raw) => (raw.interface.clone(), "-".into()),
    }
}

/// Returns the links with their numbers, in VNET/P's format.
pub fn links(numbered: &[(u64, &LinkView)]) -> String {
    let mut out = String::new();
    for (number, view) in numbered {
        let (host, port) = ends(&view.spec);
        let count = |name: &str| view.counters.get(name).copied().unwrap_or(0);
        let (received, received_bytes) =
            (count("receive_packets_total"), count("receive_bytes_total"));
        let (sent, sent_bytes) = (count("transmit_packets_total"), count("transmit_bytes_total"));
        let _ = writeln!(out, "{number}:\t{host}\t{port}");
        let _ = writeln!(out, "\t\tReceived Pkts: {received}, Received Bytes {received_bytes}");
        let _ = writeln!(out, "\t\tSent Pkts: {sent}, Sent Bytes: {sent_bytes}\n");
    }
    out
}

/// Returns the routes in VNET/P's format; `edge` returns the text for a link's name, as [`edge`]
/// does.
pub fn routes(views: &[&RouteView], edge: &dyn Fn(&str) -> String) -> String {
    let end = |end: &RouteEnd| match end {
        RouteEnd::Interface(name) => format!("INTERFACE {name}"),
        RouteEnd::Edge(name) => edge(name.as_str()),
    };
    let mut out = String::new();
    for RouteView { index, spec, .. } in views {
        let from = spec.from.as_ref().map_or("ANY".to_owned(), end);
        let to = end(&spec.to);
        let (source, destination) = (spec.source, spec.destination);
        let _ = writeln!(out, "{index}:\t\nSrc:\t{source}\nDst:\t{destination}");
        let _ = writeln!(out, "Dst-Type:\t{to}\nSrc-Type:\t{from}");
    }
    out
}

/// Returns the ports that have a MAC address, one a line.
pub fn devices(ports: &[&PortSpec]) -> String {
    let mut out = String::new();
    for port in ports {
        if let Some(mac) = port.kind.mac() {
            let _ = writeln!(out, "{}\t{mac}", port.name);
        }
    }
    out
}

/// Returns a link as the end of a route: its address if it has one, the interface of a raw link.
pub fn edge(spec: &LinkSpec) -> String {
    match (&spec.kind, ends(spec).0) {
        (LinkKind::Raw(_), interface) => format!("INTERFACE {interface}"),
        (_, host) if host == "-" => format!("EDGE {}", spec.name),
        (_, host) => format!("EDGE {host}"),
    }
}
