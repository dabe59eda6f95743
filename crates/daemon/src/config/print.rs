//! Prints a [`Config`] as TOML, with every default written out, for `causewayd --print-config`.
//!
//! Reading the text again gives an equal configuration. Comments and the order of tables of the
//! original file are lost: tables appear by type, objects of a type in the file's order. An MTU
//! that follows from the links is printed as a comment, because writing it would fix it. The module
//! prints the configuration of a file, not the running state, and it contains paths of secrets but
//! no secrets.
//!
//! [`crate::run`] is the caller, through `Config::to_toml`. `config::read` reads the same keys.

use std::fmt::Write as _;

use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{quoted, to_toml as print};
use causeway_model::{PortSpec, RouteEnd, RouteSpec, RuleAction};
use serde_json::Value;

use causeway_model::{Forwarding, GroupKind};

use super::{Config, VnetConfig};
use causeway_model::draft::LinkDraft;
use causeway_model::draft::link::LINK_FIELDS;

/// The first keys of a table.
const NAMES: [&str; 2] = ["name", "group"];

/// Returns the whole configuration; reading it again gives an equal configuration.
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
    config.ports.iter().for_each(|spec| port(&mut out, spec, config));
    for rule in &config.rules {
        let action = match rule.action {
            RuleAction::Accept => "accept",
            RuleAction::Reject => "reject",
        };
        let (from, to) = (rule.from.to_string(), rule.to.to_string());
        let _ =
            writeln!(out, "\n[[rule]]\naction = \"{action}\"\nfrom = \"{from}\"\nto = \"{to}\"");
    }
    config.links.iter().for_each(|draft| link(&mut out, draft));
    config.routes.iter().for_each(|spec| route(&mut out, spec));
    out
}

fn port(out: &mut String, port: &PortSpec, config: &Config) {
    let Ok(Value::Object(values)) = serde_json::to_value(port) else { return };
    let options = port.kind.kind().fields().map(|field| field.key);
    let common = PORT_FIELDS.iter().map(|field| field.key).filter(|key| !NAMES.contains(key));
    out.push_str("\n[[port]]\n");
    print(out, NAMES.into_iter().chain(["kind"]), &values);
    for key in options.chain(common) {
        // A comment, because the daemon chooses the MTU: it follows the links of the group.
        if key == "mtu" && config.derived_mtus.contains(&port.name) {
            out.push_str("# ");
        }
        print(out, [key], &values);
    }
}

fn link(out: &mut String, link: &LinkDraft) {
    out.push_str("\n[[link]]\n");
    print(out, LINK_FIELDS.iter().map(|field| field.key), &link.values());
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
    let _ = writeln!(out, "hold = \"{}\"", daemon.hold.as_str());
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
