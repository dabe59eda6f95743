//! Checks across keys and tables: duplicates, undefined names, too many objects, and rules that
//! cannot match.
//!
//! [`check`] runs once after all tables were read, on the values that have no problem of their own,
//! and adds its findings to the `Problems` with the byte ranges that [`FileValue`] keeps. It
//! compares values of the file only: not with the host, and not with a running daemon. Conflicts of
//! links' UDP sockets are `config::sockets`.
//!
//! Limits of a file: 1,024 groups and ports each, 4,096 links and rules each, and 16,384 routes
//! ([`causeway_model::limits`]); a longer list is a problem of the file. Names of groups, ports and
//! links, socket paths and the addresses of a group must be unique; a rule must not name two
//! groups. Of a service's section, only names are compared.
//!
//! `config::read` calls it last, in its thread; without problems the values become the `Config`.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::path::Path;

use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::limits::{GROUPS_MAX, LINKS_MAX, PORTS_MAX, ROUTES_MAX, RULES_MAX};
use causeway_model::schema::nearest;
use causeway_model::settings::ControlSettings;
use causeway_model::{PortSpec, RouteEnd, RouteSpec, RuleSpec};
use serde_json::Value;

use super::file_value::FileValue;
use super::problem::{Problems, line_of};
use super::sockets;
use super::{ConfigObject, DaemonConfig};
use causeway_model::draft::LinkDraft;

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
    /// `[[link]]`.
    pub links: Vec<FileValue<LinkDraft>>,
    /// `[[route]]`.
    pub routes: Vec<FileValue<RouteSpec>>,
    /// `[control]`.
    pub control: Option<FileValue<ControlSettings>>,
}

/// Checks conditions between different parts of the file.
pub fn check(source: &str, found: &ParsedFile, problems: &mut Problems) {
    let ParsedFile { daemon, groups, ports, rules, links, routes, control } = found;
    too_many("[[group]]", groups, GROUPS_MAX, problems);
    too_many("[[port]]", ports, PORTS_MAX, problems);
    too_many("[[rule]]", rules, RULES_MAX, problems);
    too_many("[[link]]", links, LINKS_MAX, problems);
    too_many("[[route]]", routes, ROUTES_MAX, problems);
    let mut seen = UniqueValues::new(source);
    for group in groups {
        let name = &group.value.name;
        seen.insert("name", name, group.span("name"), problems, |v| format!("group {v}"));
    }
    duplicates(source, daemon, ports, problems);
    let defined: Vec<&str> = groups.iter().map(|g| g.value.name.as_str()).collect();
    for port in ports {
        known_group(&port.value.group, port.span("group"), "group", &defined, problems);
    }
    check_rules(rules, &defined, problems);
    let mut names = UniqueValues::new(source);
    for link in links {
        let (name, at) = (&link.value.name, link.span("name"));
        names.insert("name", name, at, problems, |n| format!("link {n}"));
        known_group(&link.value.group, link.span("group"), "group", &defined, problems);
    }
    sockets::check(source, links, problems);
    check_routes(source, found, &defined, problems);
    if let Some(control) = control
        && let Some(group) = &control.value.vnet_group
    {
        known_group(group, control.span("vnet_group"), "vnet_group", &defined, problems);
    }
}

/// Checks that rules name defined groups, and one group each.
fn check_rules(rules: &[FileValue<RuleSpec>], defined: &[&str], problems: &mut Problems) {
    for rule in rules {
        let (from, to) = (&rule.value.from, &rule.value.to);
        for (key, side) in [("from", from), ("to", to)] {
            if let Some(group) = &side.group {
                known_group(group, rule.span(key), key, defined, problems);
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

/// Checks that routes name ports and links of their own group.
fn check_routes(source: &str, found: &ParsedFile, defined: &[&str], problems: &mut Problems) {
    let net = |port: &&FileValue<PortSpec>| port.value.kind.kind().is_network;
    let net_ports = found.ports.iter().filter(net);
    let ports: HashMap<&str, &Name> =
        net_ports.map(|port| (port.value.name.as_str(), &port.value.group)).collect();
    let links: HashMap<&str, &Name> =
        found.links.iter().map(|link| (link.value.name.as_str(), &link.value.group)).collect();
    let mut seen = UniqueValues::new(source);
    for route in &found.routes {
        let RouteSpec { group, to, from, .. } = &route.value;
        known_group(group, route.span("group"), "group", defined, problems);
        let whole = route.whole.clone();
        seen.insert("to", &route.value, whole, problems, |_| "the same route".to_owned());
        for (key, end) in [("to", Some(to)), ("from", from.as_ref())] {
            let Some(end) = end else { continue };
            let (what, name, all) = match end {
                RouteEnd::Interface(name) => ("net port", name, &ports),
                RouteEnd::Edge(name) => ("link", name, &links),
            };
            let text = match all.get(name.as_str()) {
                Some(owner) if *owner == group => continue,
                Some(owner) => format!(
                    "key {key:?}: {what} {name} is in group {owner}: expected one of group \
                     {group}, as no traffic crosses groups"
                ),
                None => match nearest(name.as_str(), all.keys().copied()) {
                    Some(near) => {
                        format!("key {key:?}: {what} {name} is not defined; did you mean {near:?}?")
                    }
                    None => format!("key {key:?}: {what} {name} is not defined"),
                },
            };
            problems.add(route.span(key), text);
        }
    }
}

/// Reports the first table beyond `max`.
pub fn too_many<T>(title: &str, list: &[FileValue<T>], max: usize, problems: &mut Problems) {
    if let Some(first_over) = list.get(max) {
        let (whole, n) = (first_over.whole.clone(), list.len());
        problems.add(whole, format!("{n} tables {title}: expected at most {max}"));
    }
}

/// Reports names that several tables of a service's section have.
pub fn unique_objects(source: &str, found: &[FileValue<ConfigObject>], problems: &mut Problems) {
    let mut names = UniqueValues::new(source);
    for object in found {
        let ConfigObject { section, values } = &object.value;
        if let Some(name) = values.get("name").and_then(Value::as_str) {
            let shown = |name: &String| format!("{} {name}", section.name);
            names.insert("name", &name.to_owned(), object.span("name"), problems, shown);
        }
    }
}

/// Reports a group that is not defined.
fn known_group(
    group: &Name,
    span: Range<usize>,
    key: &str,
    defined: &[&str],
    problems: &mut Problems,
) {
    if defined.contains(&group.as_str()) {
        return;
    }
    let hint = match nearest(group.as_str(), defined.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("add [[group]] name = \"{group}\""),
    };
    problems.add(span, format!("key {key:?}: group {group} is not defined; {hint}"));
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

/// Values that must be unique, with the position of their first occurrence.
struct UniqueValues<'s, T> {
    /// Text of the file, for line numbers.
    source: &'s str,
    /// Position of the first occurrence of each value.
    at: HashMap<T, Range<usize>>,
}

impl<'s, T: Eq + Hash + Clone> UniqueValues<'s, T> {
    fn new(source: &'s str) -> Self {
        Self { source, at: HashMap::new() }
    }

    /// Adds a value; reports a value that was added before, with its line.
    fn insert(
        &mut self,
        key: &str,
        value: &T,
        span: Range<usize>,
        problems: &mut Problems,
        shown: impl Fn(&T) -> String,
    ) {
        match self.at.get(value) {
            None => {
                self.at.insert(value.clone(), span);
            }
            Some(first) => {
                let (line, what) = (line_of(self.source, first.start), shown(value));
                let here = line_of(self.source, span.start);
                let text = format!(
                    "key {key:?}: {what} on line {here} is already defined on line {line}: \
                     expected a different one"
                );
                problems.add(span, text);
            }
        }
    }
}
