//! Reads a [`Config`] from TOML by the tables of the model.
//!
//! [`read`] parses the text, reads each table by the fields of the model, and lets `config::check`
//! compare them. Errors of the TOML syntax end the reading; every other problem is collected, and a
//! table with a problem is left out of the further checks (of `[daemon]`, `[dispatch]`, `[control]`
//! and `[metrics]` only the key). Either the whole configuration is returned, or all problems.
//!
//! Defaults are filled in here: the control socket and the run directory each from the other, the
//! state file from the run directory, and the MTU of a port from the links of its group. The module
//! opens no file and resolves no name; it asks the host for the MTU of links, by [`ConfigContext`],
//! and by `config::dispatch` for the number of CPUs. `Config::parse` is the caller, in the main
//! thread at the start, and in the thread of a connection for `/v1/apply` and `/v1/config/diff`.

use std::path::{Path, PathBuf};

use causeway_model::port::{self, ReadContext};
use causeway_model::schema::read as read_as;
use causeway_model::settings::{
    ControlSettings, DaemonSettings, DispatchSettings, MetricsSettings,
};
use causeway_model::{FileMode, GROUP_FIELDS, Name, PortSpec, RULE_FIELDS};
use log::LevelFilter;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{self, ParsedFile};
use super::file_value::FileValue;
use super::problem::{Problems, unknown};
use super::sections::{FileSection, group_mtus};
use super::table::TomlTable;
use super::{Config, ConfigContext, DaemonConfig, dispatch};

/// The tables of the fabric and of the daemon; services register others.
const TABLES: [&str; 7] = ["daemon", "dispatch", "control", "metrics", "group", "port", "rule"];

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
    check_names(&document, around, &mut problems);
    let Some(daemon) = daemon(&document, around, &mut problems) else { return Err(problems) };
    let all = |key, title, problems: &mut Problems| tables(&document, key, title, problems);
    let groups: Vec<_> = all("group", "[[group]]", &mut problems)
        .into_iter()
        .filter_map(|table| table.parse(|v| read_as(GROUP_FIELDS, v), &mut problems))
        .collect();
    let rules: Vec<_> = all("rule", "[[rule]]", &mut problems)
        .into_iter()
        .filter_map(|table| table.parse(|v| read_as(RULE_FIELDS, v), &mut problems))
        .collect();
    let sections = sections(&document, around, &daemon.key_file, &mut problems);
    let mtus = group_mtus(&sections, around.underlay);
    let carried = |group: &Name| mtus.get(group.as_str()).copied().unwrap_or(u16::MAX);
    let cx = ReadContext { kinds: around.kinds, run_dir: &daemon.run_dir, links_mtu: &carried };
    let ports: Vec<_> = all("port", "[[port]]", &mut problems)
        .into_iter()
        .filter_map(|table| table.parse(|values| port::read(values, &cx), &mut problems))
        .collect();
    let control = TomlTable::optional("[control]", document.get("control"), &mut problems)
        .parse_valid(ControlSettings::read, &mut problems);
    let metrics = TomlTable::optional("[metrics]", document.get("metrics"), &mut problems)
        .parse_valid(MetricsSettings::read, &mut problems);
    let found = ParsedFile { daemon, groups, ports, rules, sections, control };
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
        control: found.control.map(|control| control.value).unwrap_or_default(),
        metrics: metrics.map(|metrics| metrics.value).unwrap_or_default(),
        objects: found.sections.iter().flat_map(FileSection::objects).collect(),
    })
}

/// Reports tables of unknown names.
fn check_names(document: &DeTable<'_>, around: &ConfigContext, problems: &mut Problems) {
    for key in document.keys() {
        let name = key.get_ref().as_ref();
        let registered = || around.sections.iter().map(|section| section.name);
        if !TABLES.contains(&name) && registered().all(|section| section != name) {
            let known: Vec<&str> = TABLES.into_iter().chain(registered()).collect();
            problems.add(key.span(), unknown("file", name, &known));
        }
    }
}

/// Reads the tables of the sections that services registered.
fn sections(
    document: &DeTable<'_>,
    around: &ConfigContext,
    key_file: &Path,
    problems: &mut Problems,
) -> Vec<FileSection> {
    let mut all = Vec::new();
    for section in around.sections {
        let found: Vec<_> = tables(document, section.name, section.title, problems)
            .into_iter()
            .filter_map(|table| table.parse(|values| section.fill(values, key_file), problems))
            .collect();
        all.push(FileSection { section, tables: found });
    }
    all
}

/// Returns the values without their positions.
fn values<T>(sited: Vec<FileValue<T>>) -> Vec<T> {
    sited.into_iter().map(|sited| sited.value).collect()
}

/// Returns the elements of `[[key]]`; reports a key of another type.
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

/// Reads `[daemon]` and `[dispatch]`.
fn daemon(
    document: &DeTable<'_>,
    around: &ConfigContext,
    problems: &mut Problems,
) -> Option<DaemonConfig> {
    let table = TomlTable::optional("[daemon]", document.get("daemon"), problems);
    let FileValue { value: settings, whole, .. } =
        table.parse_valid(DaemonSettings::read, problems)?;
    let (control, run_dir) = places(settings.control, settings.run_dir, around);
    if control.is_none() {
        let text = "[daemon]: key \"control\" must be given: there is no default (this process is \
                    not root, and XDG_RUNTIME_DIR is not set)";
        problems.add(whole, text);
    }
    let state_file = settings.state_file.or_else(|| {
        let is_default = run_dir.is_some() && run_dir == around.run_dir;
        let dir = around.state_dir.as_ref().filter(|_| is_default).or(run_dir.as_ref());
        dir.map(|dir| dir.join("state.toml"))
    });
    let table = TomlTable::optional("[dispatch]", document.get("dispatch"), problems);
    let dispatch = table.parse_valid(DispatchSettings::read, problems)?;
    Some(DaemonConfig {
        control: control.unwrap_or_default(),
        run_dir: run_dir.unwrap_or_default(),
        state_file: state_file.unwrap_or_default(),
        log: settings.log.parse().unwrap_or(LevelFilter::Info),
        dispatch: dispatch::options(dispatch.value),
        hold: settings.hold,
        key_file: settings.key_file,
        control_mode: settings.control_mode.0,
        control_group: settings.control_group,
        socket_mode: settings.socket_mode.map(|FileMode(mode)| mode),
        socket_group: settings.socket_group,
        raw_sockets: settings.raw_sockets,
        sandbox_paths: settings.sandbox_paths,
    })
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
