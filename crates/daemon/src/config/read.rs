//! Reads a `Config` from TOML: every key, its type, its range and its default.
//!
//! [`read`] parses the text, reads table by table in an order in which later tables know the
//! earlier ones (ports need the links' MTUs), and then lets `config::check` compare the tables with
//! each other. A text that is not TOML is reported alone; all other problems are collected, and a
//! table with a problem is left out of the later checks.
//!
//! The module opens no file: `Config::load` reads the text and limits its size. Keys of ports and
//! links are read by the tables of `causeway_model`; keys of the other tables are read here, in
//! `config::dispatch` and in `config::links`, and printed in `config::print`: a new key needs both.

use std::ops::Range;
use std::path::{Path, PathBuf};

use causeway_model::limits::WEIGHT_MAX;
use causeway_model::port::{self, ReadContext};
use causeway_model::{
    Forwarding, GroupKind, GroupSpec, Name, PortSpec, RuleAction, RuleSide, RuleSpec,
    weight_default,
};
use log::LevelFilter;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{self, FileValue, ParsedFile};
use super::problem::Problems;
use super::section::{Section, SpannedValue, unknown};
use super::table::TomlTable;
use super::{
    CONTROL_MODE_DEFAULT, Config, ConfigContext, DaemonConfig, HoldPolicy, KEY_FILE_DEFAULT,
    VnetConfig,
};
use super::{dispatch, links};

const TABLES: [&str; 8] =
    ["daemon", "dispatch", "control", "group", "port", "rule", "link", "route"];
const DAEMON_KEYS: [&str; 11] = [
    "control",
    "run_dir",
    "log",
    "hold",
    "key_file",
    "control_mode",
    "control_group",
    "socket_mode",
    "socket_group",
    "raw_sockets",
    "sandbox_paths",
];
const GROUP_KEYS: [&str; 4] = ["name", "forwarding", "weight", "kind"];
const RULE_KEYS: [&str; 3] = ["action", "from", "to"];
const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// Reads the whole file, or returns all its problems.
pub fn read(source: &str, around: &ConfigContext) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let (document, errors) = DeTable::parse_recoverable(source);
    for error in &errors {
        problems.add(error.span().unwrap_or(0..0), error.message());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let document = document.into_inner();
    for key in document.keys() {
        let name = key.get_ref().as_ref();
        if !TABLES.contains(&name) {
            problems.add(key.span(), unknown("file", name, &TABLES));
        }
    }
    let daemon = daemon(&document, around, &mut problems);
    let groups: Vec<FileValue<GroupSpec>> =
        array(&document, "group", "[[group]]", &GROUP_KEYS, &mut problems)
            .iter()
            .filter_map(|section| group(section, &mut problems))
            .collect();
    let rules: Vec<_> = array(&document, "rule", "[[rule]]", &RULE_KEYS, &mut problems)
        .iter()
        .filter_map(|section| rule(section, &mut problems))
        .collect();
    let links: Vec<_> = tables(&document, "link", "[[link]]", &mut problems)
        .into_iter()
        .filter_map(|table| links::link(table, &daemon.key_file, &mut problems))
        .collect();
    let carried = |group: &Name| {
        let of = links.iter().filter(|link| link.value.group == *group);
        of.map(|link| link.value.mtu(around.underlay)).min().unwrap_or(u16::MAX)
    };
    let cx = ReadContext { kinds: around.kinds, run_dir: &daemon.run_dir, links_mtu: &carried };
    let ports: Vec<_> = tables(&document, "port", "[[port]]", &mut problems)
        .into_iter()
        .filter_map(|table| port(table, &cx, &mut problems))
        .collect();
    let routes: Vec<_> = array(&document, "route", "[[route]]", &links::ROUTE_KEYS, &mut problems)
        .iter()
        .filter_map(|section| links::route(section, &mut problems))
        .collect();
    let vnet = control(&document, &mut problems);
    let found = ParsedFile { daemon, groups, ports, rules, links, routes, vnet };
    check::check(source, &found, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let leaves = |port: &&FileValue<PortSpec>| {
        let is_network = port.value.kind.kind().is_network;
        is_network && port.spans.iter().all(|(key, _)| key != "mtu")
    };
    let derived_mtus = found.ports.iter().filter(leaves).map(|p| p.value.name.clone()).collect();
    Ok(Config {
        daemon: found.daemon,
        derived_mtus,
        groups: values(found.groups),
        ports: values(found.ports),
        rules: values(found.rules),
        links: values(found.links),
        routes: values(found.routes),
        vnet: found.vnet.value,
    })
}

fn values<T>(sited: Vec<FileValue<T>>) -> Vec<T> {
    sited.into_iter().map(|sited| sited.value).collect()
}

/// Returns the sections of `[[key]]`. A plain `[key]` is refused with the correct form.
fn array<'a, 'i>(
    document: &'a DeTable<'i>,
    key: &str,
    title: &'static str,
    known: &'static [&'static str],
    problems: &mut Problems,
) -> Vec<Section<'a, 'i>> {
    items(document, key, title, problems)
        .iter()
        .filter_map(|item| Section::new(title, item, known, problems))
        .collect()
}

fn items<'a, 'i>(
    document: &'a DeTable<'i>,
    key: &str,
    title: &'static str,
    problems: &mut Problems,
) -> &'a [Spanned<DeValue<'i>>] {
    let Some(value) = document.get(key) else { return &[] };
    match value.get_ref() {
        DeValue::Array(items) => items,
        other => {
            let found = other.type_str();
            let text = format!(
                "key {key:?}: expected a list of tables, written {title}; found one {found}"
            );
            problems.add(value.span(), text);
            &[]
        }
    }
}

fn daemon(document: &DeTable<'_>, around: &ConfigContext, problems: &mut Problems) -> DaemonConfig {
    let empty = Spanned::new(0..0, DeValue::Table(DeTable::new()));
    let value = document.get("daemon").unwrap_or(&empty);
    let section = Section::new("[daemon]", value, &DAEMON_KEYS, problems);
    let section = match section {
        Some(section) => section,
        None => return daemon(&DeTable::new(), around, problems),
    };
    let run_dir = section.path("run_dir", problems).map(|at| at.value);
    let control = section.socket_path("control", problems);
    let log = section.word("log", &LEVELS, problems).map_or("info", |at| at.value);
    let (control, run_dir) = places(control.map(|at| at.value), run_dir, around);
    if control.is_none() {
        let text = "[daemon]: key \"control\" must be given: there is no default (this process is \
                    not root, and XDG_RUNTIME_DIR is not set)";
        problems.add(section.span.clone(), text);
    }
    DaemonConfig {
        control: control.unwrap_or_default(),
        run_dir: run_dir.unwrap_or_default(),
        log: log.parse().unwrap_or(LevelFilter::Info),
        dispatch: dispatch(document, problems),
        hold: hold(&section, problems),
        key_file: section
            .path("key_file", problems)
            .map_or_else(|| KEY_FILE_DEFAULT.into(), |at| at.value),
        control_mode: section.mode("control_mode", problems).unwrap_or(CONTROL_MODE_DEFAULT),
        control_group: section.string("control_group", problems).map(|at| at.value),
        socket_mode: section.mode("socket_mode", problems),
        socket_group: section.string("socket_group", problems).map(|at| at.value),
        raw_sockets: section.boolean("raw_sockets", problems),
        sandbox_paths: sandbox_paths(&section, problems),
    }
}

fn sandbox_paths(section: &Section<'_, '_>, problems: &mut Problems) -> Vec<PathBuf> {
    let paths: Vec<AbsolutePath> =
        section.all_parsed("sandbox_paths", problems).unwrap_or_default();
    paths.into_iter().map(|AbsolutePath(path)| path).collect()
}

/// An absolute path.
struct AbsolutePath(PathBuf);

impl std::str::FromStr for AbsolutePath {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if path.is_absolute() && !text.contains('\0') {
            return Ok(Self(path));
        }
        Err(format!("expected an absolute path, found {text:?}"))
    }
}

fn hold(section: &Section<'_, '_>, problems: &mut Problems) -> HoldPolicy {
    let words = HoldPolicy::NAMES.map(|(word, _)| word);
    let word = section.word("hold", &words, problems).map(|at| at.value);
    let named = |word| HoldPolicy::NAMES.iter().find(|(name, _)| *name == word);
    word.and_then(named).map(|(_, hold)| *hold).unwrap_or_default()
}

fn dispatch(document: &DeTable<'_>, problems: &mut Problems) -> causeway_fabric::Options {
    let empty = Spanned::new(0..0, DeValue::Table(DeTable::new()));
    let value = document.get("dispatch").unwrap_or(&empty);
    let section = Section::new("[dispatch]", value, &dispatch::KEYS, problems);
    section.map(|section| dispatch::read(&section, problems)).unwrap_or_default()
}

fn control(document: &DeTable<'_>, problems: &mut Problems) -> FileValue<VnetConfig> {
    let nothing =
        || FileValue { value: VnetConfig::default(), spans: Spans::new(), whole: Range::default() };
    let Some(value) = document.get("control") else { return nothing() };
    let section = Section::new("[control]", value, &links::CONTROL_KEYS, problems);
    section.map_or_else(nothing, |section| links::control(&section, problems))
}

/// Returns the paths of the control socket and the run directory; each defaults to the
/// neighbourhood of the other.
fn places(
    control: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    around: &ConfigContext,
) -> (Option<PathBuf>, Option<PathBuf>) {
    let base = around.run_dir.clone().or_else(|| run_dir.clone());
    let beside = control.as_ref().and_then(|c| c.parent()).map(Path::to_owned);
    let run_dir = run_dir.or(beside).or_else(|| base.clone());
    (control.or_else(|| base.map(|dir| dir.join("control.sock"))), run_dir)
}

fn group(section: &Section<'_, '_>, problems: &mut Problems) -> Option<FileValue<GroupSpec>> {
    section.require("name", "expected name = \"blue\", say", problems);
    let forwarding = section.word("forwarding", &["learn", "routes"], problems);
    let forwarding = match forwarding.map(|at| at.value) {
        Some("routes") => Forwarding::Routes,
        _ => Forwarding::Learn,
    };
    let kind = match section.word("kind", &["bridge", "wire"], problems).map(|at| at.value) {
        Some("wire") => GroupKind::Wire,
        _ => GroupKind::Bridge,
    };
    let name = section.parsed::<Name>("name", problems)?;
    if name.value.as_str() == "host" {
        let text = "key \"name\": in rules \"host\" is the host itself: expected another name";
        problems.add(name.span, text);
        return None;
    }
    let weight = section.integer("weight", 1..=WEIGHT_MAX, problems);
    let weight = weight.map_or_else(weight_default, |at| at.value);
    let value = GroupSpec { name: name.value, forwarding, weight, kind };
    Some(FileValue {
        value,
        spans: vec![("name".to_owned(), name.span)],
        whole: section.span.clone(),
    })
}

/// The byte ranges of the keys of a table, collected while they are read.
pub(super) type Spans = Vec<(String, Range<usize>)>;

pub(super) fn keep<T>(
    spans: &mut Spans,
    key: &'static str,
    at: Option<SpannedValue<T>>,
) -> Option<T> {
    let SpannedValue { value, span } = at?;
    spans.push((key.to_owned(), span));
    Some(value)
}

/// Returns the tables of `[[key]]`. A plain `[key]` is refused with the correct form.
fn tables(
    document: &DeTable<'_>,
    key: &str,
    title: &'static str,
    problems: &mut Problems,
) -> Vec<TomlTable> {
    items(document, key, title, problems)
        .iter()
        .filter_map(|item| TomlTable::read(title, item, problems))
        .collect()
}

fn port(
    table: TomlTable,
    cx: &ReadContext<'_>,
    problems: &mut Problems,
) -> Option<FileValue<PortSpec>> {
    match port::read(&table.values, cx) {
        Ok(spec) => Some(table.with_spans(spec)),
        Err(found) => {
            found.iter().for_each(|problem| table.report(problem, problems));
            None
        }
    }
}

fn rule(section: &Section<'_, '_>, problems: &mut Problems) -> Option<FileValue<RuleSpec>> {
    section.require("action", "expected \"accept\" or \"reject\"", problems);
    let action = section.word("action", &["accept", "reject"], problems);
    let from = section.parsed::<RuleSide>("from", problems);
    let to = section.parsed::<RuleSide>("to", problems);
    let mut spans = Spans::new();
    let from = keep(&mut spans, "from", from).unwrap_or_default();
    let to = keep(&mut spans, "to", to).unwrap_or_default();
    let action = match action?.value {
        "accept" => RuleAction::Accept,
        _ => RuleAction::Reject,
    };
    Some(FileValue { value: RuleSpec { action, from, to }, spans, whole: section.span.clone() })
}
