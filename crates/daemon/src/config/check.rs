//! Checks across keys and tables: duplicates, undefined names, too many objects, and rules that
//! cannot match.
//!
//! [`check`] runs once after all tables were read, on the values that have no problem of their own,
//! and adds its findings to the `Problems` with the byte ranges that [`FileValue`] keeps. It
//! compares values of the file only: not with the host, and not with a running daemon. Tables of the
//! sections that services registered are checked by `config::sections`.
//!
//! Limits of a file: 1,024 groups and ports each, and 4,096 rules
//! ([`causeway_model::limits`]); a longer list is a problem of the file. Names of groups and
//! ports, socket paths and the addresses of a group must be unique; a rule must not name two
//! groups.
//!
//! `config::read` calls it last, in its thread; without problems the values become the `Config`.

use std::path::Path;

use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::limits::{GROUPS_MAX, PORTS_MAX, RULES_MAX};
use causeway_model::settings::ControlSettings;
use causeway_model::{PortSpec, RuleSpec};

use super::DaemonConfig;
use super::conditions::{UniqueValues, known_group, too_many};
use super::file_value::FileValue;
use super::problem::Problems;
use super::sections::{self, FileSection};

/// All tables of the file.
#[derive(Debug)]
pub struct ParsedFile {
    /// `[daemon]`.
    pub daemon: DaemonConfig,
    /// `[[group]]`.
    pub groups: Vec<FileValue<GroupSpec>>,
    /// `[[port]]`.
    pub ports: Vec<FileValue<PortSpec>>,
    /// `[[rule]]`.
    pub rules: Vec<FileValue<RuleSpec>>,
    /// The sections that services registered.
    pub sections: Vec<FileSection>,
    /// `[control]`.
    pub control: Option<FileValue<ControlSettings>>,
}

/// Checks conditions between different parts of the file.
pub fn check(source: &str, found: &ParsedFile, problems: &mut Problems) {
    let ParsedFile { daemon, groups, ports, rules, sections, control } = found;
    too_many("[[group]]", groups, GROUPS_MAX, problems);
    too_many("[[port]]", ports, PORTS_MAX, problems);
    too_many("[[rule]]", rules, RULES_MAX, problems);
    let mut seen = UniqueValues::new(source);
    for group in groups {
        let name = &group.value.name;
        seen.insert("name", name, group.span("name"), problems, |v| format!("group {v}"));
    }
    duplicates(source, daemon, ports, problems);
    let defined: Vec<&str> = groups.iter().map(|g| g.value.name.as_str()).collect();
    for port in ports {
        known_group(port.value.group.as_str(), port.span("group"), "group", &defined, problems);
    }
    check_rules(rules, &defined, problems);
    sections::check(source, sections, (&defined, ports), problems);
    if let Some(control) = control
        && let Some(group) = &control.value.vnet_group
    {
        known_group(group.as_str(), control.span("vnet_group"), "vnet_group", &defined, problems);
    }
}

/// Checks that rules name defined groups, and one group each.
fn check_rules(rules: &[FileValue<RuleSpec>], defined: &[&str], problems: &mut Problems) {
    for rule in rules {
        let (from, to) = (&rule.value.from, &rule.value.to);
        for (key, side) in [("from", from), ("to", to)] {
            if let Some(group) = &side.group {
                known_group(group.as_str(), rule.span(key), key, defined, problems);
            }
        }
        if let (Some(a), Some(b)) = (&from.group, &to.group)
            && a != b
        {
            let text = format!(
                "key \"to\": this rule goes from group {a} to group {b}: expected one group, as no \
                 traffic crosses groups"
            );
            problems.add(rule.span("to"), text);
        }
    }
}

/// Reports names, socket paths and addresses that several ports have.
fn duplicates(
    source: &str,
    daemon: &DaemonConfig,
    ports: &[FileValue<PortSpec>],
    problems: &mut Problems,
) {
    let (mut names, mut paths) = (UniqueValues::new(source), UniqueValues::new(source));
    let mut addresses = UniqueValues::new(source);
    for port in ports {
        let spec = &port.value;
        names.insert("name", &spec.name, port.span("name"), problems, |n| format!("port {n}"));
        let mut path = |key, path: &Path| {
            if path == daemon.control {
                let text = format!("key {key:?}: {} is the control socket", path.display());
                problems.add(port.span(key), text);
            }
            let shown = |p: &std::path::PathBuf| format!("socket {}", p.display());
            paths.insert(key, &path.to_owned(), port.span(key), problems, shown);
        };
        if spec.kind.kind().has_frontend {
            path("socket", &spec.socket);
        }
        for (key, socket) in spec.kind.sockets() {
            path(key, socket);
        }
        for (key, value) in spec.kind.unique() {
            let own = (spec.kind.name(), &spec.group, key, value);
            let shown = |(_, group, key, value): &(_, &Name, _, String)| {
                format!("{key} {value} in group {group}")
            };
            addresses.insert(key, &own, port.span(key), problems, shown);
        }
    }
}
