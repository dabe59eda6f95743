//! Prints a [`Config`] as TOML, with every default written out.

use std::fmt::Write as _;

use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{Field, quoted, to_toml as print, values};
use causeway_model::{GROUP_FIELDS, PortSpec, ROUTE_FIELDS, RULE_FIELDS};
use serde_json::{Map, Value};

use super::{Config, VnetConfig};
use causeway_model::draft::link::LINK_FIELDS;

/// The first keys of a table.
const NAMES: [&str; 2] = ["name", "group"];

/// Returns the whole configuration; reading it again gives an equal configuration.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    daemon(&mut out, config);
    for group in &config.groups {
        table(&mut out, "[[group]]", GROUP_FIELDS, &values(group));
    }
    config.ports.iter().for_each(|spec| port(&mut out, spec, config));
    for rule in &config.rules {
        table(&mut out, "[[rule]]", RULE_FIELDS, &values(rule));
    }
    for link in &config.links {
        table(&mut out, "[[link]]", LINK_FIELDS, &link.values());
    }
    for route in &config.routes {
        table(&mut out, "[[route]]", ROUTE_FIELDS, &route.values());
    }
    out
}

/// Prints a table with its keys in the order of its fields.
fn table(out: &mut String, title: &str, fields: &[Field], values: &Map<String, Value>) {
    let _ = writeln!(out, "\n{title}");
    print(out, fields.iter().map(|field| field.key), values);
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
