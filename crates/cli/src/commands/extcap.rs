//! `causeway extcap`: ports and links as interfaces of Wireshark.
//!
//! Wireshark calls programs of its extcap folder to list interfaces, their link types and options,
//! and to capture to a pipe; the lines are those of its extcap interface. Interfaces are the links
//! and the ports that can be captured: frames of ports of kind `net`, `hca`, `stream`, `dgram` and
//! `tap`, socket packets (link type VSOCK) of vsock ports, each of which has all connections of its
//! guest. A capture is that of [`super::capture`].
//!
//! Without a daemon the list is empty, with the reason at stderr and exit status 0, because
//! Wireshark starts without access too. Wireshark's capture filters are refused: the options of an
//! interface have the filters of the daemon. At most [`EXTCAP_INTERFACES_MAX`] interfaces are
//! listed. `commands::run` is the caller.

use std::collections::BTreeMap;

use causeway_model::{CaptureFormat, KindInfo, Name};

use super::capture::{CaptureTask, capture};
use super::{CommandContext, print};
use crate::args::ExtcapArgs;
use crate::client::view;
use crate::error::{Error, Result};
use crate::limits::EXTCAP_INTERFACES_MAX;
use crate::view::{LinkView, PortView, cell};

/// Starts of the names of interfaces.
const PORT: &str = "causeway-port-";
const LINK: &str = "causeway-link-";
const SEE_HELP: &str = "see `causeway extcap --help`";

/// A port or link.
struct Place {
    name: Name,
    is_link: bool,
}

/// Runs `causeway extcap`.
pub fn run(cx: &CommandContext, args: &ExtcapArgs) -> Result<()> {
    if args.extcap_interfaces {
        let (found, error) = match interfaces(cx) {
            Ok(found) => (found, None),
            Err(error) => (String::new(), Some(error)),
        };
        if let Some(error) = error {
            eprintln!("causeway: no interfaces: {error}");
        }
        let version = env!("CARGO_PKG_VERSION");
        return print(&format!("extcap {{version={version}}}{{display=Causeway}}\n{found}"));
    }
    let interface = args.extcap_interface.as_deref().unwrap_or_default();
    let place = place(interface)?;
    if args.extcap_dlts {
        return print(&link_type(format_of(cx, &place)?));
    }
    if args.extcap_config {
        return print(&options(format_of(cx, &place)?));
    }
    if args.extcap_capture_filter.as_ref().is_some_and(|filter| !filter.trim().is_empty()) {
        let text = "capture filters are not supported; use the options of the interface \
                    (in tshark, `causeway capture`) or a display filter";
        return Err(Error::Usage(text.into()));
    }
    let Some(write) = args.fifo.as_deref() else {
        return Err(Error::Usage(format!("expected --fifo FILE; {SEE_HELP}")));
    };
    let Place { name, is_link } = &place;
    let conditions = &args.conditions;
    let (count, seconds) = (None, None);
    let task = CaptureTask { name, is_link: *is_link, write, conditions, count, seconds };
    let (last, _) = capture(cx, &task)?;
    if last.dropped > 0 {
        eprintln!("{} frames were dropped because the buffer was full", last.dropped);
    }
    Ok(())
}

/// Reads the name of an interface.
fn place(interface: &str) -> Result<Place> {
    let wrong = || {
        Error::Usage(format!(
            "interface {interface:?}: expected {PORT}NAME or {LINK}NAME; {SEE_HELP}"
        ))
    };
    let (is_link, name) = match interface.strip_prefix(LINK) {
        Some(name) => (true, name),
        None => (false, interface.strip_prefix(PORT).ok_or_else(wrong)?),
    };
    Ok(Place { name: name.parse().map_err(|_| wrong())?, is_link })
}

/// Requests the formats of captures by kind of port.
fn formats(cx: &CommandContext) -> Result<BTreeMap<String, String>> {
    let kinds: Vec<KindInfo> = view(&cx.client.get("/v1/kinds")?)?;
    Ok(kinds.into_iter().filter_map(|kind| Some((kind.name, kind.captures?))).collect())
}

/// Requests the format of captures at a port or link.
fn format_of(cx: &CommandContext, place: &Place) -> Result<CaptureFormat> {
    let name = &place.name;
    if place.is_link {
        cx.client.get(&format!("/v1/links/{name}"))?;
        return Ok(CaptureFormat::Ethernet);
    }
    let port: PortView = view(&cx.client.get(&format!("/v1/ports/{name}"))?)?;
    let format = formats(cx)?.remove(&cell(&port.spec, "kind")).unwrap_or_default();
    let known = [CaptureFormat::Ethernet, CaptureFormat::Vsock];
    let found = known.into_iter().find(|known| known.as_str() == format);
    found.ok_or_else(|| Error::Usage(format!("port {name} cannot be captured")))
}

/// Returns a line for each port and link that can be captured.
fn interfaces(cx: &CommandContext) -> Result<String> {
    let formats = formats(cx)?;
    let ports: Vec<PortView> = view(&cx.client.get("/v1/ports")?)?;
    let links: Vec<LinkView> = view(&cx.client.get("/v1/links")?)?;
    let port = |port: &PortView| {
        let of = |key| cell(&port.spec, key);
        let format = formats.get(&of("kind"))?;
        let content = if format == "vsock" { "socket packets, " } else { "" };
        let text = format!("{} ({content}group {}, {})", of("name"), of("group"), port.state);
        Some(interface(PORT, &of("name"), &format!("Causeway port {text}")))
    };
    let link = |link: &LinkView| {
        let of = |key| cell(&link.spec, key);
        let text =
            format!("{} ({}, group {}, {})", of("name"), of("kind"), of("group"), link.state);
        interface(LINK, &of("name"), &format!("Causeway link {text}"))
    };
    let lines: Vec<String> = ports.iter().filter_map(port).chain(links.iter().map(link)).collect();
    if let Some(omitted) = lines.len().checked_sub(EXTCAP_INTERFACES_MAX).filter(|n| *n > 0) {
        eprintln!("causeway: {omitted} further ports and links are not listed");
    }
    Ok(lines.into_iter().take(EXTCAP_INTERFACES_MAX).collect())
}

/// Returns the line of an interface.
fn interface(start: &str, name: &str, display: &str) -> String {
    let display: String =
        display.chars().map(|c| if c.is_control() || "{}".contains(c) { '?' } else { c }).collect();
    format!("interface {{value={start}{name}}}{{display={display}}}\n")
}

/// Returns the line of a link type.
fn link_type(format: CaptureFormat) -> String {
    let (number, name, display) = match format {
        CaptureFormat::Ethernet => (1, "EN10MB", "Ethernet"),
        CaptureFormat::Vsock => (271, "VSOCK", "AF_VSOCK packets"),
    };
    format!("dlt {{number={number}}}{{name={name}}}{{display={display}}}\n")
}

/// Returns the lines of the options that select frames or packets.
fn options(format: CaptureFormat) -> String {
    // Option, title, type, explanation.
    let snap = ("--snap", "Bytes to keep of each frame", "unsigned", "0 keeps whole frames");
    let port = ("--port", "Port number", "unsigned", "Only packets from or to this port number");
    let frames = [
        ("--mac", "Ethernet address", "string", "Only frames from or to this address"),
        ("--ethertype", "EtherType", "string", "A number such as 0x0806, or arp, ipv4, ipv6"),
        ("--host", "IP address", "string", "Only frames from or to this address"),
        ("--protocol", "IP protocol", "string", "A number, or icmp, tcp, udp, icmpv6"),
    ];
    let frames = if format == CaptureFormat::Ethernet { &frames[..] } else { &[] };
    let all = [snap, port].into_iter().chain(frames.iter().copied());
    let line = |(number, (call, display, kind, tooltip)): (usize, (&str, &str, &str, &str))| {
        format!(
            "arg {{number={number}}}{{call={call}}}{{display={display}}}{{type={kind}}}\
             {{required=false}}{{tooltip={tooltip}}}\n"
        )
    };
    all.enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extcap_interfaces_name_a_port_or_a_link() {
        let place = |text: &str| place(text).map(|p| (p.name.to_string(), p.is_link)).ok();
        assert_eq!(place("causeway-port-vm1"), Some(("vm1".into(), false)));
        assert_eq!(place("causeway-link-link-x"), Some(("link-x".into(), true)));
        for wrong in ["", "eth0", "causeway-port-", "causeway-port-a/b", "causeway-vm1"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
        let line = interface(PORT, "vm1", "a {b}\nc");
        assert_eq!(line, "interface {value=causeway-port-vm1}{display=a ?b??c}\n");
    }

    #[test]
    fn extcap_options_of_socket_packets_have_no_frame_fields() {
        assert_eq!(options(CaptureFormat::Vsock).lines().count(), 2);
        let frames = options(CaptureFormat::Ethernet);
        assert!(frames.contains("arg {number=2}{call=--mac}"), "{frames}");
        assert!(link_type(CaptureFormat::Vsock).starts_with("dlt {number=271}"));
    }
}
