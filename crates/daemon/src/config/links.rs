//! `[[link]]`, `[[route]]` and the `[control]` table, from TOML.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use causeway_model::Name;
use causeway_model::limits::VNI_MAX;
use causeway_model::{Dscp, MacMatch, PublicKey, RouteEnd, RouteSpec};

use super::VnetConfig;
use super::check::Sited;
use super::problem::Problems;
use super::read::{Spans, keep};
use super::section::{At, Section};
use causeway_model::draft::{LinkDraft, LinkWord};

pub(super) const LINK_KEYS: [&str; 18] = [
    "name",
    "group",
    "kind",
    "peer",
    "metric",
    "transit",
    "remote",
    "local",
    "key",
    "private_key",
    "vni",
    "dscp",
    "ecn",
    "listen",
    "certificate",
    "authorities",
    "peer_name",
    "interface",
];
pub(super) const ROUTE_KEYS: [&str; 5] = ["group", "source", "destination", "to", "from"];
pub(super) const CONTROL_KEYS: [&str; 4] =
    ["vnet_listen", "vnet_password_file", "vnet_group", "vnet_file"];
const END_KEYS: [&str; 2] = ["edge", "interface"];

pub(super) fn link(
    section: &Section<'_, '_>,
    key_file: &Path,
    problems: &mut Problems,
) -> Option<Sited<LinkDraft>> {
    section.require("name", "expected a name unique in this file", problems);
    section.require("group", "expected the name of a [[group]]", problems);
    let words = LinkWord::WORDS.map(|(word, _)| word);
    let mut spans = Spans::new();
    let name = keep(&mut spans, "name", section.parsed::<Name>("name", problems));
    let group = keep(&mut spans, "group", section.parsed::<Name>("group", problems));
    let before = problems.len();
    let kind = keep(&mut spans, "kind", section.word("kind", &words, problems));
    let kind = LinkWord::WORDS.iter().find(|(word, _)| Some(*word) == kind).map(|(_, kind)| *kind);
    let metric = section.integer("metric", 0..=u32::from(u16::MAX), problems);
    let vni = keep(&mut spans, "vni", section.integer("vni", 0..=VNI_MAX, problems));
    let transit = section.boolean("transit", problems);
    let dscp = keep(&mut spans, "dscp", section.number_or_word::<Dscp>("dscp", problems));
    let ecn = section.boolean("ecn", problems);
    let peer = section.parsed::<Name>("peer", problems).map(|at| at.value);
    let key = keep(&mut spans, "key", section.parsed::<PublicKey>("key", problems));
    let mut text = |key| keep(&mut spans, key, section.string(key, problems));
    let (remote, local, listen) = (text("remote"), text("local"), text("listen"));
    let (peer_name, interface) = (text("peer_name"), text("interface"));
    let mut path = |key| keep(&mut spans, key, section.path(key, problems));
    let private_key = path("private_key");
    let (certificate, authorities) = (path("certificate"), path("authorities"));
    if problems.len() > before {
        // What a value of the wrong type would have said is not known.
        return None;
    }
    let draft = LinkDraft {
        name: name?,
        group: group?,
        kind: kind.unwrap_or_default(),
        peer,
        metric: metric.and_then(|at| u16::try_from(at.value).ok()),
        transit,
        remote,
        local,
        key,
        private_key,
        vni,
        dscp,
        ecn,
        listen,
        certificate,
        authorities,
        peer_name,
        interface,
    };
    let site = Sited { value: (), spans, whole: section.span.clone() };
    let wrong = draft.problems();
    for problem in &wrong {
        let key = problem.key;
        let text = match problem.missing {
            true => format!("[[link]]: key {key:?} is missing: {}", problem.text),
            false => format!("key {key:?}: {}", problem.text),
        };
        problems.add(site.span(key), text);
    }
    let Sited { spans, whole, .. } = site;
    wrong.is_empty().then(|| Sited { value: draft.filled(key_file), spans, whole })
}

pub(super) fn route(
    section: &Section<'_, '_>,
    problems: &mut Problems,
) -> Option<Sited<RouteSpec>> {
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
    let any = |at: Option<At<MacMatch>>| at.map_or(MacMatch::Any, |at| at.value);
    let (source, destination) = (any(source), any(destination));
    let value = RouteSpec { group: group?, source, destination, to: to?, from };
    Some(Sited { value, spans, whole: section.span.clone() })
}

/// `{ edge = "LINK" }` or `{ interface = "PORT" }`.
fn end(
    section: &Section<'_, '_>,
    key: &'static str,
    problems: &mut Problems,
) -> Option<At<RouteEnd>> {
    let table = section.table(key, &END_KEYS, problems)?;
    let before = problems.len();
    let link = table.parsed::<Name>("edge", problems);
    let port = table.parsed::<Name>("interface", problems);
    let span = table.span.clone();
    match (link, port) {
        (Some(link), None) => Some(At { value: RouteEnd::Edge(link.value), span }),
        (None, Some(port)) => Some(At { value: RouteEnd::Interface(port.value), span }),
        _ => {
            if problems.len() == before {
                let expected = "expected { edge = \"LINK\" } or { interface = \"PORT\" }";
                problems.add(span, format!("key {key:?}: {expected}"));
            }
            None
        }
    }
}

/// Where the keys of `[control]` stand is kept for the check of its group.
pub(super) fn control(section: &Section<'_, '_>, problems: &mut Problems) -> Sited<VnetConfig> {
    let mut spans = Spans::new();
    let listen = section.parsed::<SocketAddr>("vnet_listen", problems);
    let listen = keep(&mut spans, "vnet_listen", listen);
    let mut path = |key| -> Option<PathBuf> { keep(&mut spans, key, section.path(key, problems)) };
    let (password_file, file) = (path("vnet_password_file"), path("vnet_file"));
    let group = keep(&mut spans, "vnet_group", section.parsed::<Name>("vnet_group", problems));
    if listen.is_some() {
        let expected = "whoever connects to vnet_listen must know a password";
        section.require("vnet_password_file", expected, problems);
    }
    if listen.is_some() || file.is_some() {
        section.require("vnet_group", "the VNET language speaks of one group's routes", problems);
    }
    let value = VnetConfig { listen, password_file, group, file };
    Sited { value, spans, whole: section.span.clone() }
}
