//! A [`Config`] as TOML again, with nothing left to defaults.

use std::fmt::Write as _;

use causeway_model::{Dscp, FileMode, PortKind, RouteEnd, RouteSpec, RuleAction, SocketAccess};
use causeway_model::{Forwarding, GroupKind};

use super::{Config, VnetConfig};
use causeway_model::draft::LinkDraft;

/// The whole configuration; reading it again gives the same one.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    daemon(&mut out, config);
    for group in &config.groups {
        let _ = writeln!(out, "\n[[group]]\nname = {}", quoted(group.name.as_str()));
        let forwarding = match group.forwarding {
            Forwarding::Learn => "learn",
            Forwarding::Routes => "routes",
        };
        let kind = match group.kind {
            GroupKind::Bridge => "bridge",
            GroupKind::Wire => "wire",
        };
        let weight = group.weight;
        let _ =
            writeln!(out, "forwarding = \"{forwarding}\"\nweight = {weight}\nkind = \"{kind}\"");
    }
    for port in &config.ports {
        let _ = writeln!(out, "\n[[port]]\nname = {}", quoted(port.name.as_str()));
        let _ = writeln!(out, "group = {}", quoted(port.group.as_str()));
        if let Some(mib) = port.memory_max {
            let _ = writeln!(out, "memory_max = {mib}");
        }
        match &port.kind {
            PortKind::Net(net) => {
                let _ = writeln!(out, "kind = \"net\"\nmac = \"{}\"", net.mac);
                // Left to us, it follows the links of its group.
                let ours = if config.mtu_is_ours.contains(&port.name) { "# " } else { "" };
                let _ = writeln!(out, "{ours}mtu = {}", net.mtu);
                let _ = writeln!(out, "queue_pairs = {}\nlearn = {}", net.queue_pairs, net.learn);
                let _ = writeln!(out, "offloads = \"{}\"", net.offloads.as_str());
            }
            PortKind::Vsock(vsock) => {
                let _ = writeln!(out, "kind = \"vsock\"\ncid = {}", vsock.cid);
                if let Some(host) = &vsock.host_socket {
                    let _ = writeln!(out, "host_socket = {}", quoted(&host.to_string_lossy()));
                }
            }
            PortKind::Mx(mx) => {
                let _ = writeln!(out, "kind = \"mx\"\nmac = \"{}\"", mx.mac);
                let _ = writeln!(out, "hostname = {}", quoted(&mx.hostname));
                if let Some(interface) = &mx.interface {
                    let _ = writeln!(out, "interface = {}", quoted(interface));
                    let _ = writeln!(out, "bypass = {}", mx.bypass);
                }
                if let Some(udp) = &mx.udp {
                    let peers: Vec<String> =
                        udp.peers.iter().map(|peer| format!("\"{peer}\"")).collect();
                    let (listen, peers) = (udp.listen, peers.join(", "));
                    let _ = writeln!(out, "udp = {{ listen = \"{listen}\", peers = [{peers}] }}");
                }
                if !mx.peers.is_empty() {
                    let shown = mx.peers.iter().map(|peer| match &peer.name {
                        Some(name) => {
                            format!("{{ mac = \"{}\", name = {} }}", peer.mac, quoted(name))
                        }
                        None => format!("{{ mac = \"{}\" }}", peer.mac),
                    });
                    let shown: Vec<String> = shown.collect();
                    let _ = writeln!(out, "peers = [{}]", shown.join(", "));
                }
            }
        }
        let _ = writeln!(out, "socket = {}", quoted(&port.socket.to_string_lossy()));
        access(&mut out, &port.access);
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
    config.links.iter().for_each(|one| link(&mut out, one));
    config.routes.iter().for_each(|one| route(&mut out, one));
    out
}

fn access(out: &mut String, access: &SocketAccess) {
    let mode = |mode: Option<FileMode>| mode.map(|mode| mode.to_string());
    for (key, value) in [
        ("socket_owner", access.socket_owner.clone()),
        ("socket_group", access.socket_group.clone()),
        ("socket_mode", mode(access.socket_mode)),
        ("host_socket_owner", access.host_socket_owner.clone()),
        ("host_socket_group", access.host_socket_group.clone()),
        ("host_socket_mode", mode(access.host_socket_mode)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {}", quoted(&value));
        }
    }
}

fn link(out: &mut String, link: &LinkDraft) {
    let (name, group) = (quoted(link.name.as_str()), quoted(link.group.as_str()));
    let kind = link.kind.word();
    let _ = writeln!(out, "\n[[link]]\nname = {name}\ngroup = {group}\nkind = \"{kind}\"");
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    for (key, value) in [
        ("peer", link.peer.as_ref().map(ToString::to_string)),
        ("remote", link.remote.clone()),
        ("local", link.local.clone()),
        ("key", link.key.as_ref().map(|key| key.as_str().to_owned())),
        ("listen", link.listen.clone()),
        ("certificate", path(&link.certificate)),
        ("private_key", path(&link.private_key)),
        ("authorities", path(&link.authorities)),
        ("peer_name", link.peer_name.clone()),
        ("interface", link.interface.clone()),
    ] {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {}", quoted(&value));
        }
    }
    if let Some(vni) = link.vni {
        let _ = writeln!(out, "vni = {vni}");
    }
    if let Some(dscp) = link.dscp {
        let _ = match dscp {
            Dscp::Fixed(number) => writeln!(out, "dscp = {number}"),
            Dscp::Inherit => writeln!(out, "dscp = \"{dscp}\""),
        };
    }
    if let Some(ecn) = link.ecn {
        let _ = writeln!(out, "ecn = {ecn}");
    }
    if let Some(metric) = link.metric {
        let _ = writeln!(out, "metric = {metric}");
    }
    if let Some(transit) = link.transit {
        let _ = writeln!(out, "transit = {transit}");
    }
}

fn route(out: &mut String, route: &RouteSpec) {
    let RouteSpec { group, source, destination, to, from } = route;
    let _ = writeln!(out, "\n[[route]]\ngroup = {}", quoted(group.as_str()));
    let _ = writeln!(out, "source = \"{source}\"\ndestination = \"{destination}\"");
    for (key, end) in [("to", Some(to)), ("from", from.as_ref())] {
        let _ = match end {
            Some(RouteEnd::Edge(link)) => writeln!(out, "{key} = {{ edge = \"{link}\" }}"),
            Some(RouteEnd::Interface(port)) => {
                writeln!(out, "{key} = {{ interface = \"{port}\" }}")
            }
            None => Ok(()),
        };
    }
}

fn control(out: &mut String, vnet: &VnetConfig) {
    if *vnet == VnetConfig::default() {
        return;
    }
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    out.push_str("\n[control]\n");
    for (key, value) in [
        ("vnet_listen", vnet.listen.map(|listen| listen.to_string())),
        ("vnet_password_file", path(&vnet.password_file)),
        ("vnet_group", vnet.group.as_ref().map(ToString::to_string)),
        ("vnet_file", path(&vnet.file)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {}", quoted(&value));
        }
    }
}

fn daemon(out: &mut String, config: &Config) {
    let daemon = &config.daemon;
    let _ = writeln!(out, "[daemon]\ncontrol = {}", quoted(&daemon.control.to_string_lossy()));
    let _ = writeln!(out, "run_dir = {}", quoted(&daemon.run_dir.to_string_lossy()));
    let _ = writeln!(out, "log = \"{}\"", daemon.log.as_str().to_lowercase());
    let _ = writeln!(out, "hold = \"{}\"", daemon.hold.word());
    let _ = writeln!(out, "key_file = {}", quoted(&daemon.key_file.to_string_lossy()));
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
    if let Some(raw) = daemon.raw_sockets {
        let _ = writeln!(out, "raw_sockets = {raw}");
    }
    if !daemon.sandbox_paths.is_empty() {
        let paths = daemon.sandbox_paths.iter().map(|path| quoted(&path.to_string_lossy()));
        let paths: Vec<String> = paths.collect();
        let _ = writeln!(out, "sandbox_paths = [{}]", paths.join(", "));
    }
    super::dispatch::print(out, &daemon.dispatch);
    control(out, &config.vnet);
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
