//! A [`Config`] as TOML again, with nothing left to defaults.

use std::fmt::Write as _;

use causeway_fabric::spec::{PortKind, RuleAction};

use super::Config;

/// The whole configuration; reading it again gives the same one.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    daemon(&mut out, config);
    for group in &config.groups {
        let _ = writeln!(out, "\n[[group]]\nname = {}", quoted(group.as_str()));
    }
    for port in &config.ports {
        let _ = writeln!(out, "\n[[port]]\nname = {}", quoted(port.name.as_str()));
        let _ = writeln!(out, "group = {}", quoted(port.group.as_str()));
        match &port.kind {
            PortKind::Net(net) => {
                let _ = writeln!(out, "kind = \"net\"\nmac = \"{}\"\nmtu = {}", net.mac, net.mtu);
                let _ = writeln!(out, "queue_pairs = {}\nlearn = {}", net.queue_pairs, net.learn);
            }
            PortKind::Vsock(vsock) => {
                let _ = writeln!(out, "kind = \"vsock\"\ncid = {}", vsock.cid);
                if let Some(host) = &vsock.host_socket {
                    let _ = writeln!(out, "host_socket = {}", quoted(&host.to_string_lossy()));
                }
            }
        }
        let _ = writeln!(out, "socket = {}", quoted(&port.socket.to_string_lossy()));
    }
    for rule in &config.rules {
        let action = match rule.action {
            RuleAction::Accept => "accept",
            RuleAction::Reject => "reject",
        };
        let (from, to) = (rule.from.to_string(), rule.to.to_string());
        let _ =
            writeln!(out, "\n[[rule]]\naction = \"{action}\"\nfrom = \"{from}\"\nto = \"{to}\"");
    }
    out
}

fn daemon(out: &mut String, config: &Config) {
    let daemon = &config.daemon;
    let _ = writeln!(out, "[daemon]\ncontrol = {}", quoted(&daemon.control.to_string_lossy()));
    let _ = writeln!(out, "run_dir = {}", quoted(&daemon.run_dir.to_string_lossy()));
    let _ = writeln!(out, "log = \"{}\"", daemon.log.as_str().to_lowercase());
    let _ = writeln!(out, "hold = \"{}\"", daemon.hold.word());
    let _ = writeln!(out, "control_mode = \"{:04o}\"", daemon.control_mode);
    if let Some(group) = &daemon.control_group {
        let _ = writeln!(out, "control_group = {}", quoted(group));
    }
    if let Some(mode) = daemon.socket_mode {
        let _ = writeln!(out, "socket_mode = \"{mode:04o}\"");
    }
    if let Some(group) = &daemon.socket_group {
        let _ = writeln!(out, "socket_group = {}", quoted(group));
    }
    super::dispatch::print(out, &daemon.dispatch);
}

/// A basic TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
