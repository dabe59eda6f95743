//! Checks of the daemon: version, limits, the holder, and ports and links that do not work.
//!
//! [`super::examine`] calls [`reachable`] and [`state`] in the main thread of the tool;
//! `commands::web` has [`problems`] called in a thread of its server. [`problems`] judges the given
//! views alone; [`state`] also reads /proc/PID/limits. Nothing is requested or changed here: the
//! state was requested before, and a port or link that came since is not examined.

use causeway_model::InfoView;

use super::{DaemonState, Finding, Severity};
use crate::error::{Error, Result};
use crate::view::{LinkView, PortView};

/// Descriptors of a port: two for each queue, and its sockets and memory.
const DESCRIPTORS_PER_PORT: u64 = 20;
/// Descriptors of the daemon itself.
const DESCRIPTORS_OWN: u64 = 256;

/// Checks whether the daemon answers, and has the version of this tool.
pub fn reachable(state: &Result<DaemonState>) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    match state {
        Ok(state) if state.info.version == own => {
            let (version, pid) = (&state.info.version, state.info.pid);
            vec![Finding::ok("daemon", format!("causewayd {version} answers (pid {pid})"))]
        }
        Ok(state) => {
            let version = &state.info.version;
            let text = format!("causewayd has version {version}, this tool {own}");
            let remedy = "systemctl restart causewayd: guests of held ports stay connected";
            vec![Finding::warn("daemon", text, remedy)]
        }
        Err(error) => {
            let text = error.to_string();
            let (first, remedy) = text.split_once('\n').unwrap_or((&text, ""));
            let remedy = match (error, remedy) {
                (Error::Timeout { .. }, _) => {
                    "a dispatcher may hang: see journalctl -u causewayd, then systemctl restart \
                     causewayd"
                }
                (_, "") => "see journalctl -u causewayd",
                (_, remedy) => remedy,
            };
            vec![Finding::fail("daemon", first, remedy)]
        }
    }
}

/// Checks the state of the daemon.
pub fn state(state: &DaemonState) -> Vec<Finding> {
    let mut findings = vec![descriptors(state), holder(&state.info, &state.ports)];
    let before = findings.len();
    findings.extend(state.ports.iter().flat_map(port));
    if findings.len() == before {
        findings
            .push(Finding::ok("ports", format!("{} ports without problems", state.ports.len())));
    }
    let before = findings.len();
    findings.extend(state.links.iter().filter_map(link));
    findings.extend(state.links.iter().flat_map(|link| mtu(link, &state.ports)));
    if findings.len() == before {
        findings
            .push(Finding::ok("links", format!("{} links without problems", state.links.len())));
    }
    findings
}

/// Returns the problems of the holder, ports and links, for which nothing else is read.
pub fn problems(info: &InfoView, ports: &[PortView], links: &[LinkView]) -> Vec<Finding> {
    let mut findings = vec![holder(info, ports)];
    findings.extend(ports.iter().flat_map(port));
    findings.extend(links.iter().filter_map(link));
    findings.extend(links.iter().flat_map(|link| mtu(link, ports)));
    findings.retain(|finding| finding.severity >= Severity::Warn);
    findings
}

/// Checks the limit on descriptors of the daemon.
fn descriptors(state: &DaemonState) -> Finding {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", state.info.pid));
    let Some(most) = limits.ok().as_deref().and_then(open_files) else {
        return Finding::skipped(
            "limits",
            "the limits of causewayd are not readable for this user",
        );
    };
    let ports = state.ports.len() as u64;
    let needed = ports.saturating_mul(DESCRIPTORS_PER_PORT).saturating_add(DESCRIPTORS_OWN);
    if needed > most {
        let text = format!("causewayd may open {most} descriptors, {ports} ports need {needed}");
        return Finding::fail("limits", text, "raise LimitNOFILE= in causewayd.service");
    }
    Finding::ok("limits", format!("causewayd may open {most} descriptors"))
}

/// Returns the soft limit on open files of /proc/PID/limits.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns whether a guest is connected to a port.
fn has_guest(port: &PortView) -> bool {
    matches!(port.state.as_str(), "running" | "connected")
}

/// Returns whether the frontends of a port do not connect again after they lost the daemon.
fn never_reconnects(port: &PortView) -> bool {
    matches!(port.spec.text("kind"), Some("vsock" | "hca"))
}

/// Checks whether the guests that cannot reconnect are held.
fn holder(info: &InfoView, ports: &[PortView]) -> Finding {
    let lost = |port: &&PortView| has_guest(port) && never_reconnects(port) && !port.held;
    let names: Vec<&str> =
        ports.iter().filter(lost).filter_map(|port| port.spec.text("name")).collect();
    if !names.is_empty() {
        let text =
            format!("guests of {} lose their device if causewayd restarts", names.join(", "));
        let remedy = "set hold = \"needed\" in [daemon], the default, and reboot these guests once";
        return Finding::warn("holder", text, remedy);
    }
    match info.holder_pid {
        Some(pid) => Finding::ok("holder", format!("causeway-holder runs (pid {pid})")),
        None => Finding::ok("holder", "not running: no guest needs it"),
    }
}

/// Checks a port: faults, lasting conditions, and guests that were cut off.
fn port(port: &PortView) -> Vec<Finding> {
    let name = port.spec.text("name").unwrap_or("?");
    let mut findings = Vec::new();
    if port.state == "faulted" {
        let reason = port.fault.as_deref().unwrap_or("the reason is unknown");
        let text = format!("port {name}: its guest was disconnected: {reason}");
        let remedy = format!("restart the guest's VMM; causeway port show {name} has the details");
        findings.push(Finding::warn("ports", text, remedy));
    }
    if let Some(reason) = &port.cut_off {
        let remedy = format!("causeway port show {name} has the details");
        findings.push(Finding::warn("ports", format!("port {name}: {reason}"), remedy));
    } else if port.state == "listening" && port.connects_total > 0 && never_reconnects(port) {
        let text = format!("port {name}: its guest was cut off, and its VMM does not reconnect");
        findings.push(Finding::warn("ports", text, "reboot the guest if it still runs"));
    }
    if let Some(reason) = &port.host_fault {
        let text = format!("port {name}: this host failed to serve a frontend: {reason}");
        let remedy = format!("causeway port show {name} has the details");
        findings.push(Finding::warn("ports", text, remedy));
    }
    // A VMM at a socket may be away for good reasons, an interface not.
    if let (Some(error), None) = (&port.connect_error, port.spec.text("socket")) {
        let text = format!("port {name}: {error}");
        let remedy = format!("correct that; causeway port show {name} shows whether it works");
        findings.push(Finding::warn("ports", text, remedy));
    }
    for warning in &port.warnings {
        let remedy = format!("causeway port show {name} has the details");
        findings.push(Finding::warn("ports", format!("port {name}: {warning}"), remedy));
    }
    findings.into_iter().map(|finding| finding.of("port", name)).collect()
}

/// Checks whether a link works.
fn link(link: &LinkView) -> Option<Finding> {
    let name = link.spec.text("name").unwrap_or("?");
    if link.state == "down" {
        let text = format!("link {name} is down: {}", link.reason);
        let remedy = format!(
            "check that the peer has a link to this host with our key, and that no firewall drops \
             its datagrams; causeway link show {name} has the counters"
        );
        return Some(Finding::warn("links", text, remedy).of("link", name));
    }
    let lossy = link.loss_percent.filter(|percent| *percent >= 5)?;
    let text = format!("link {name} loses {lossy} % of its heartbeats");
    let remedy = "check the path to the peer with ping and mtr";
    Some(Finding::warn("links", text, remedy).of("link", name))
}

/// Compares the MTU of a group's ports with the largest frame that a link carries.
fn mtu(link: &LinkView, ports: &[PortView]) -> Vec<Finding> {
    let group = link.spec.text("group");
    let wider = |port: &&PortView| {
        port.spec.text("group") == group
            && port.spec.number("mtu").is_some_and(|mtu| mtu > u32::from(link.mtu))
    };
    let of = |port: &PortView| {
        let (name, mtu) = (port.spec.text("name")?, port.spec.number("mtu")?);
        let (link, carried) = (link.spec.text("name")?, link.mtu);
        let text = format!("port {name} has MTU {mtu}, link {link} carries {carried}");
        let remedy = format!(
            "set mtu = {carried} for the port, or raise the MTU of the interfaces between the hosts"
        );
        Some(Finding::warn("mtu", text, remedy).of("port", name))
    };
    ports.iter().filter(wider).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::view;

    #[test]
    fn doctor_reads_the_limit_on_open_files() {
        let text = "Limit  Soft Limit\nMax open files            1024      524288   files\n";
        assert_eq!(open_files(text), Some(1024));
        assert_eq!(open_files("Max open files unlimited unlimited files"), Some(u64::MAX));
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn doctor_names_faulted_ports_and_guests_that_were_cut_off() {
        let of = |kind: &str, state: &str, connects: u64| -> PortView {
            view(&json!({
                "name": "p", "group": "g", "kind": kind, "state": state, "connects_total": connects,
                "fault": "wrong ring", "warnings": [],
            }))
            .unwrap()
        };
        assert!(port(&of("net", "faulted", 1))[0].text.contains("wrong ring"));
        assert!(port(&of("vsock", "listening", 1))[0].text.contains("cut off"));
        assert!(port(&of("vsock", "listening", 0)).is_empty());
        assert!(port(&of("net", "listening", 3)).is_empty(), "its VMM connects again");
    }

    #[test]
    fn doctor_compares_the_mtu_of_ports_with_their_links() {
        let link: LinkView = view(&json!({
            "name": "l", "group": "g", "kind": "vxlan", "metric": 1, "state": "up", "mtu": 1450,
        }))
        .unwrap();
        let port = |group: &str, mtu: u32| -> PortView {
            let value = json!({
                "name": "p", "group": group, "kind": "net", "state": "running", "mtu": mtu,
            });
            view(&value).unwrap()
        };
        let found = mtu(&link, &[port("g", 1500), port("g", 1450), port("other", 9000)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].remedy.as_deref().unwrap().contains("mtu = 1450"), "{found:?}");
    }
}
