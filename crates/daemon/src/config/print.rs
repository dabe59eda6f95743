//! Prints a [`Config`] as TOML, with every default written out, for `causewayd --print-config` and
//! `causeway config export`.
//!
//! Reading the text again on this host gives an equal configuration, except for paths that are not
//! UTF-8. Comments and the order of tables of the original file are lost: tables appear by type,
//! objects of a type in the file's order. An MTU that follows from the links is printed as a
//! comment, because writing it would fix it. The module prints the values that it is given, of a
//! file or of the running state, and reads neither; the text has paths of secrets but no secrets.
//! It cannot fail, and the length of the text is not bounded.
//!
//! The callers use `Config::to_toml`: [`crate::run`] on the main thread, and
//! [`crate::kept::Kept::export`], which puts the running objects in place of those of the file, in
//! the thread of a connection. `config::read` reads the same keys.

use std::fmt::Write as _;
use std::path::Path;

use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{Field, to_toml as print, values};
use causeway_model::settings::{
    CONTROL_FIELDS, ControlSettings, DAEMON_FIELDS, DISPATCH_FIELDS, DaemonSettings,
    METRICS_FIELDS, MetricsSettings,
};
use causeway_model::{FileMode, GROUP_FIELDS, PortSpec, RULE_FIELDS};
use serde_json::{Map, Value};

use super::{Config, DaemonConfig, dispatch};

/// The first keys of a table.
const NAMES: [&str; 2] = ["name", "group"];

/// Returns the whole configuration.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    table(&mut out, "[daemon]", DAEMON_FIELDS, &values(&daemon(&config.daemon)));
    let dispatch = dispatch::settings(&config.daemon.dispatch);
    table(&mut out, "[dispatch]", DISPATCH_FIELDS, &values(&dispatch));
    if config.control != ControlSettings::default() {
        table(&mut out, "[control]", CONTROL_FIELDS, &values(&config.control));
    }
    if config.metrics != MetricsSettings::default() {
        table(&mut out, "[metrics]", METRICS_FIELDS, &values(&config.metrics));
    }
    for group in &config.groups {
        table(&mut out, "[[group]]", GROUP_FIELDS, &values(group));
    }
    config.ports.iter().for_each(|spec| port(&mut out, spec, config));
    for rule in &config.rules {
        table(&mut out, "[[rule]]", RULE_FIELDS, &values(rule));
    }
    for object in &config.objects {
        table(&mut out, object.section.title, object.section.fields, &object.values());
    }
    out
}

/// Prints a table with its keys in the order of its fields.
pub fn table(out: &mut String, title: &str, fields: &[Field], values: &Map<String, Value>) {
    let space = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{space}{title}");
    print(out, fields.iter().map(|field| field.key), values);
}

/// Prints a port; an MTU that follows from the links is a comment.
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

/// Returns the settings of `[daemon]` that give this configuration.
fn daemon(daemon: &DaemonConfig) -> DaemonSettings {
    // The paths may be derived from the environment, which need not be UTF-8.
    let path = |path: &Path| Some(path.to_string_lossy().into_owned().into());
    DaemonSettings {
        control: path(&daemon.control),
        run_dir: path(&daemon.run_dir),
        state_file: path(&daemon.state_file),
        log: daemon.log.as_str().to_lowercase(),
        hold: daemon.hold,
        key_file: daemon.key_file.clone(),
        control_mode: FileMode(daemon.control_mode),
        control_group: daemon.control_group.clone(),
        socket_mode: daemon.socket_mode.map(FileMode),
        socket_group: daemon.socket_group.clone(),
        raw_sockets: daemon.raw_sockets,
        sandbox_paths: daemon.sandbox_paths.clone(),
    }
}
