//! The state file as text: reads and prints the objects that were added while the daemon ran.
//!
//! The file has the tables of the configuration file for groups, ports, rules and
//! the sections of services; a `[[rule]]` has the key `index` in addition. The table `[state]` has
//! the version of the format and the ports whose guests the last daemon cut off: its stop
//! disconnected them, and their VMM does not connect again (`crate::kept` shows this in the ports'
//! views). The last line marks the end (`END`): a file without it was cut off.
//!
//! [`read`] refuses a text as a whole if it is not TOML, incomplete, or of another version. A table
//! with a problem (its first is shown), or a section that this daemon does not have, is an entry of
//! [`StateText::problems`]: the other tables are used. The objects are compared neither with each
//! other nor with the configuration; [`crate::kept::restore`] and the fabric refuse those that do
//! not fit.
//!
//! [`crate::kept`] reads the file in the thread `lifecycle` and prints it in the thread `state`.
//! Nothing here opens a file or resolves a name, or bounds the length of the text;
//! [`crate::kept::store`] refuses more than 16 MiB.

use std::fmt::Write as _;
use std::path::Path;

use causeway_model::port::{self, PORT_FIELDS, ReadContext};
use causeway_model::schema::{Field, Problem, quoted, read as read_as, to_toml};
use causeway_model::{
    GROUP_FIELDS, GroupSpec, KindDefinition, Name, PortSpec, RULE_FIELDS, RULE_INDEX, RuleSpec,
    SectionDefinition,
};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::ConfigObject;
use super::problem::{Problems, line_of};
use super::table::TomlTable;

/// The version of the format.
const VERSION: i64 = 1;
/// The last line of a complete file.
const END: &str = "# End of the state.";
/// The first lines.
const HEAD: &str = "\
# Objects that were added to causewayd while it ran; it adds them again when it starts.
# causewayd replaces this file at each change. To edit it, stop causewayd first. If an object
# is in the configuration file too, that file decides. Print everything with
# `causeway config export`; `causeway config diff` compares it with the configuration file.
";

/// An object of the state file.
#[derive(Debug, Clone, PartialEq)]
pub enum StateObject {
    /// A `[[group]]`.
    Group(GroupSpec),
    /// A `[[port]]`.
    Port(Box<PortSpec>),
    /// A `[[rule]]`, with its position among all rules.
    Rule(Option<usize>, RuleSpec),
    /// A table of a section that a service registered.
    Section(ConfigObject),
}

/// The contents of a state file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateText {
    /// The objects in the order of their types, each with its line.
    pub objects: Vec<(usize, StateObject)>,
    /// Problems of single tables, with file, line and key.
    pub problems: Vec<String>,
    /// Ports whose guests the last daemon cut off.
    pub cut_off: Vec<Name>,
}

/// The definitions by which a state file is read.
#[derive(Debug, Clone, Copy)]
pub struct StateContext<'a> {
    /// Path of the file, for messages.
    pub file: &'a Path,
    /// The kinds of ports of this daemon.
    pub kinds: &'static [&'static KindDefinition],
    /// The sections that services registered.
    pub sections: &'static [SectionDefinition],
    /// Directory of ports' sockets.
    pub run_dir: &'a Path,
    /// File of the private key of objects that name none.
    pub key_file: &'a Path,
}

/// Reads the text of a state file.
///
/// # Errors
/// The file cannot be used as a whole; the text gives the reason.
pub fn read(source: &str, cx: &StateContext<'_>) -> Result<StateText, String> {
    if !source.lines().any(|line| line == END) {
        return Err("it was cut off: the last line is missing".into());
    }
    let document = DeTable::parse(source).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("line {}: {}", line_of(source, at), error.message())
    })?;
    let document = document.into_inner();
    let mut text = StateText { cut_off: read_head(&document)?, ..StateText::default() };
    let known = ["group", "rule", "port"];
    let sections = cx.sections.iter().map(|section| section.name);
    for name in known.into_iter().chain(sections) {
        let Some(value) = document.get(name) else { continue };
        let DeValue::Array(tables) = value.get_ref() else {
            let line = line_of(source, value.span().start);
            text.problems.push(format!("{}:{line}: expected [[{name}]]", cx.file.display()));
            continue;
        };
        for table in tables {
            let mut problems = Problems::default();
            let object = TomlTable::read("a table", table, &mut problems)
                .and_then(|table| table.parse(|values| object(name, values, cx), &mut problems));
            // A value that is no JSON is a problem, and left out of a table that may be valid.
            match object.filter(|_| problems.is_empty()) {
                Some(object) => {
                    text.objects.push((line_of(source, object.whole.start), object.value));
                }
                None => {
                    let shown = problems.render(cx.file, source);
                    text.problems.extend(shown.lines().next().map(str::to_owned));
                }
            }
        }
    }
    for (key, value) in &document {
        let name = key.get_ref().as_ref();
        let is_known = name == "state" || known.contains(&name);
        if !is_known && cx.sections.iter().all(|section| section.name != name) {
            let line = line_of(source, value.span().start);
            let file = cx.file.display();
            text.problems.push(format!("{file}:{line}: this daemon has no section {name:?}"));
        }
    }
    Ok(text)
}

/// Checks the version, and returns the ports whose guests were cut off.
fn read_head(document: &DeTable<'_>) -> Result<Vec<Name>, String> {
    let head = match document.get("state").map(|value| value.get_ref()) {
        Some(DeValue::Table(head)) => head,
        _ => return Err("the table [state] with the version is missing".into()),
    };
    let version = match head.get("version").map(|value| value.get_ref()) {
        Some(DeValue::Integer(n)) => i64::from_str_radix(n.as_str(), n.radix()).ok(),
        _ => None,
    };
    match version {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => {
            return Err(format!(
                "it has version {newer}, this causewayd reads version {VERSION}: a newer causewayd \
                 wrote it"
            ));
        }
        _ => return Err(format!("key \"version\" in [state]: expected {VERSION}")),
    }
    let ports = match head.get("cut_off").map(|value| value.get_ref()) {
        Some(DeValue::Array(ports)) => ports.iter(),
        _ => return Ok(Vec::new()),
    };
    let name = |value: &DeValue<'_>| match value {
        DeValue::String(text) => text.parse().ok(),
        _ => None,
    };
    Ok(ports.filter_map(|port| name(port.get_ref())).collect())
}

/// Reads a table of the section `name`.
fn object(
    name: &str,
    values: &Map<String, Value>,
    cx: &StateContext<'_>,
) -> Result<StateObject, Vec<Problem>> {
    match name {
        "group" => read_as(GROUP_FIELDS, values).map(StateObject::Group),
        "rule" => RuleSpec::read_with_index(values).map(|(at, rule)| StateObject::Rule(at, rule)),
        "port" => {
            let StateContext { kinds, run_dir, .. } = *cx;
            let cx = ReadContext { kinds, run_dir, links_mtu: &|_| u16::MAX };
            port::read(values, &cx).map(|port| StateObject::Port(Box::new(port)))
        }
        _ => {
            let section = cx.sections.iter().find(|section| section.name == name);
            let missing = || vec![Problem::wrong("", "no such section")];
            let section = section.ok_or_else(missing)?;
            let values = section.fill(values, cx.key_file)?;
            Ok(StateObject::Section(ConfigObject::new(section, &values)))
        }
    }
}

/// Returns the text of a state file with these tables, each with its section.
pub fn print<'a>(
    tables: impl IntoIterator<Item = (&'a str, Map<String, Value>)>,
    cut_off: &[Name],
    sections: &[SectionDefinition],
) -> String {
    let mut out = format!("{HEAD}\n[state]\nversion = {VERSION}\n");
    if !cut_off.is_empty() {
        let names: Vec<String> = cut_off.iter().map(|name| quoted(name.as_str())).collect();
        let _ = writeln!(out, "cut_off = [{}]", names.join(", "));
    }
    for (section, values) in tables {
        let _ = writeln!(out, "\n[[{section}]]");
        let mut keys = keys(section, sections);
        let given = values.keys().map(String::as_str);
        keys.extend(given.filter(|key| !keys.contains(key)).collect::<Vec<_>>());
        to_toml(&mut out, keys, &values);
    }
    let _ = writeln!(out, "\n{END}");
    out
}

/// Returns the keys of a section in the order of printing; options of kinds of ports follow those.
fn keys<'a>(section: &str, sections: &'a [SectionDefinition]) -> Vec<&'a str> {
    let of = |fields: &'static [Field]| fields.iter().map(|field| field.key).collect();
    match section {
        "group" => of(GROUP_FIELDS),
        "port" => ["name", "group", "kind"]
            .into_iter()
            .chain(PORT_FIELDS.iter().map(|field| field.key).skip(2))
            .collect(),
        "rule" => [RULE_INDEX.key].into_iter().chain(RULE_FIELDS.iter().map(|f| f.key)).collect(),
        other => match sections.iter().find(|section| section.name == other) {
            Some(section) => section.fields.iter().map(|field| field.key).collect(),
            None => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::port::KINDS;

    use super::*;
    use crate::services::{Registered, SERVICES};

    fn cx() -> StateContext<'static> {
        let (file, run_dir) = (Path::new("/s/state.toml"), Path::new("/run/causeway"));
        let sections = Registered::of(SERVICES).sections;
        StateContext { file, kinds: &KINDS, sections, run_dir, key_file: Path::new("/key") }
    }

    const TABLES: &str = r#"
[[group]]
name = "blue"
[[port]]
name = "a"
group = "blue"
kind = "vsock"
cid = 5
[[rule]]
index = 3
action = "reject"
from = "blue/3:*"
[[link]]
name = "l"
group = "blue"
kind = "vnet"
remote = "far.example"
[[route]]
group = "blue"
to = { edge = "l" }
"#;

    fn text(tables: &str) -> String {
        format!("[state]\nversion = 1\ncut_off = [\"b\"]\n{tables}\n{END}\n")
    }

    /// Returns the printed form of an object.
    fn values(object: &StateObject) -> (&'static str, Map<String, Value>) {
        use causeway_model::schema::values;
        match object {
            StateObject::Group(spec) => ("group", values(spec)),
            StateObject::Port(spec) => ("port", values(&**spec)),
            StateObject::Section(object) => (object.section.name, object.values()),
            StateObject::Rule(at, rule) => {
                let mut values = values(rule);
                values.insert("index".into(), (*at).into());
                ("rule", values)
            }
        }
    }

    #[test]
    fn state_text_is_read_as_it_was_printed() {
        let first = read(&text(TABLES), &cx()).unwrap();
        assert_eq!((first.objects.len(), first.problems.len()), (5, 0), "{first:?}");
        let tables = first.objects.iter().map(|(_, object)| values(object));
        let printed = print(tables, &first.cut_off, cx().sections);
        let second = read(&printed, &cx()).unwrap();
        let objects = |text: StateText| -> Vec<_> {
            text.objects.into_iter().map(|(_, object)| object).collect()
        };
        assert_eq!(second.cut_off, first.cut_off);
        assert_eq!(objects(second), objects(first), "{printed}");
    }

    #[test]
    fn state_text_that_was_cut_off_anywhere_is_refused() {
        let whole = text(TABLES);
        for length in 0..whole.len().saturating_sub(1) {
            let error = read(&whole[..length], &cx()).unwrap_err();
            assert!(error.contains("cut off"), "{length}: {error}");
        }
        assert!(read(&whole[..whole.len() - 1], &cx()).is_ok(), "only the line feed is missing");
    }

    #[test]
    fn state_text_with_any_changed_byte_is_read_or_refused() {
        let whole = text(TABLES);
        for at in 0..whole.len() {
            for byte in [b'"', b'[', b'\n', b'=', b'9', 0] {
                let mut changed = whole.clone().into_bytes();
                changed[at] = byte;
                let Ok(changed) = String::from_utf8(changed) else { continue };
                let objects = read(&changed, &cx()).map_or(0, |read| read.objects.len());
                assert!(objects <= 5, "{changed}");
            }
        }
    }

    #[test]
    fn state_text_of_another_version_or_form_is_refused() {
        for (head, expected) in [
            ("[state]\nversion = 2", "version 2, this causewayd reads version 1: a newer"),
            ("[state]\nversion = 0", "expected 1"),
            ("[state]\nversion = \"1\"", "expected 1"),
            ("", "[state] with the version is missing"),
            ("state = 1", "[state] with the version is missing"),
            ("[state]\nversion = 1\n[[group]", "line 3"),
        ] {
            let error = read(&format!("{head}\n{END}\n"), &cx()).unwrap_err();
            assert!(error.contains(expected), "{head}: {error}");
        }
    }

    #[test]
    fn state_table_with_a_problem_costs_no_other_table() {
        let wrong = TABLES.replace("cid = 5", "cid = 1").replace("[[route]]", "[[road]]");
        let read_wrong = read(&text(&wrong), &cx()).unwrap();
        assert_eq!(read_wrong.objects.len(), 3, "{read_wrong:?}");
        let problems = &read_wrong.problems;
        assert!(problems[0].starts_with("/s/state.toml:11:7: key \"cid\""), "{problems:?}");
        assert!(problems[1].contains("this daemon has no section \"road\""), "{problems:?}");
        // Keys that may be omitted, with values that no key has.
        for value in ["1979-05-27", "99999999999999999999"] {
            let wrong = TABLES.replacen("[[port]]", &format!("weight = {value}\n[[port]]"), 1);
            let read = read(&text(&wrong), &cx()).unwrap();
            assert_eq!((read.objects.len(), read.problems.len()), (4, 1), "{read:?}");
        }
    }
}
