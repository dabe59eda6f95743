//! Reads `[[link]]`, `[[route]]` and the `[control]` table from TOML.
//!
//! A link stays a draft: its peer's name is resolved when the link is added. A route is checked for
//! its syntax here, and for the existence of its group and ends in `config::check`. A table with a
//! problem yields `None`, after the problem was reported, and is left out. The functions read no
//! other table and open no file.
//!
//! `config::read` calls them once per table, links before ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use causeway_model::Name;
use causeway_model::{MacMatch, RouteEnd, RouteSpec};

use super::VnetConfig;
use super::check::FileValue;
use super::problem::Problems;
use super::read::{Spans, keep};
use super::section::{Section, SpannedValue};
use super::table::TomlTable;
use causeway_model::draft::LinkDraft;

pub(super) const ROUTE_KEYS: [&str; 5] = ["group", "source", "destination", "to", "from"];
pub(super) const CONTROL_KEYS: [&str; 4] =
    ["vnet_listen", "vnet_password_file", "vnet_group", "vnet_file"];
const END_KEYS: [&str; 2] = ["edge", "interface"];

pub(super) fn link(
    table: TomlTable,
    key_file: &Path,
    problems: &mut Problems,
) -> Option<FileValue<LinkDraft>> {
    match LinkDraft::read(&table.values) {
        Ok(draft) => Some(table.with_spans(draft.filled(key_file))),
        Err(found) => {
            found.iter().for_each(|problem| table.report(problem, problems));
            None
        }
    }
}

pub(super) fn route(
    section: &Section<'_, '_>,
    problems: &mut Problems,
) -> Option<FileValue<RouteSpec>> {
    section.require("group", "expected the name of a [[group]]", problems);
    section.require("to", "expected { edge = \"LINK\" } or { interface = \"PORT\" }", problems);
    let before = problems.len();
    let mut spans = Spans::new();
    let group = keep(&mut spans, "group", section.parsed::<Name>("group", problems));
    let source = section.parsed::<MacMatch>("source", problems);
    let destination = section.parsed::<MacMatch>("destination", problems);
    let to = keep(&mut spans, "to", end(section, "to", problems));
    let from = keep(&mut spans, "from", end(section, "from", problems));
    if problems.len() > before {
        return None;
    }
    let any = |at: Option<SpannedValue<MacMatch>>| at.map_or(MacMatch::Any, |at| at.value);
    let (source, destination) = (any(source), any(destination));
    let value = RouteSpec { group: group?, source, destination, to: to?, from };
    Some(FileValue { value, spans, whole: section.span.clone() })
}

/// Reads `{ edge = "LINK" }` or `{ interface = "PORT" }`.
fn end(
    section: &Section<'_, '_>,
    key: &'static str,
    problems: &mut Problems,
) -> Option<SpannedValue<RouteEnd>> {
    let table = section.table(key, &END_KEYS, problems)?;
    let before = problems.len();
    let link = table.parsed::<Name>("edge", problems);
    let port = table.parsed::<Name>("interface", problems);
    let span = table.span.clone();
    match (link, port) {
        (Some(link), None) => Some(SpannedValue { value: RouteEnd::Edge(link.value), span }),
        (None, Some(port)) => Some(SpannedValue { value: RouteEnd::Interface(port.value), span }),
        _ => {
            if problems.len() == before {
                let expected = "expected { edge = \"LINK\" } or { interface = \"PORT\" }";
                problems.add(span, format!("key {key:?}: {expected}"));
            }
            None
        }
    }
}

/// Reads `[control]`. The positions of its keys are kept for the check of its group.
pub(super) fn control(section: &Section<'_, '_>, problems: &mut Problems) -> FileValue<VnetConfig> {
    let mut spans = Spans::new();
    let listen = section.parsed::<SocketAddr>("vnet_listen", problems);
    let listen = keep(&mut spans, "vnet_listen", listen);
    let mut path = |key| -> Option<PathBuf> { keep(&mut spans, key, section.path(key, problems)) };
    let (password_file, file) = (path("vnet_password_file"), path("vnet_file"));
    let group = keep(&mut spans, "vnet_group", section.parsed::<Name>("vnet_group", problems));
    if listen.is_some() {
        let expected = "clients of vnet_listen must give a password";
        section.require("vnet_password_file", expected, problems);
    }
    if listen.is_some() || file.is_some() {
        section.require(
            "vnet_group",
            "VNET commands apply to the links and routes of one group",
            problems,
        );
    }
    let value = VnetConfig { listen, password_file, group, file };
    FileValue { value, spans, whole: section.span.clone() }
}
