//! The reference of causeway.toml, from the tables of the model.

use std::fmt::Write as _;

use causeway_daemon::services::{Registered, SERVICES};
use causeway_model::draft::link::LinkKindName;
use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{Field, FieldInfo, TypeInfo, ValueType};
use causeway_model::settings::{CONTROL_FIELDS, DAEMON_FIELDS, DISPATCH_FIELDS};
use causeway_model::{GROUP_FIELDS, RULE_FIELDS};

/// Returns the generated part of the page.
pub fn page() -> String {
    let mut text = String::new();
    for (title, about, fields) in [
        ("`[daemon]`", "The process. Read at the start.", DAEMON_FIELDS),
        ("`[dispatch]`", "The threads that carry traffic. Read at the start.", DISPATCH_FIELDS),
        ("`[control]`", "The VNET language over TCP. Read at the start.", CONTROL_FIELDS),
        ("`[[group]]`", "A tenant: ports exchange traffic in their group only.", GROUP_FIELDS),
    ] {
        section(&mut text, title, about, fields.iter());
    }
    section(&mut text, "`[[port]]`", "Keys of every port.", PORT_FIELDS.iter());
    for kind in Registered::of(SERVICES).kinds {
        let title = format!("`[[port]]` of kind `{}`", kind.name);
        section(&mut text, &title, &format!("{}.", kind.help), kind.fields());
    }
    section(
        &mut text,
        "`[[rule]]`",
        "The first matching rule decides about a connect.",
        RULE_FIELDS.iter(),
    );
    for registered in Registered::of(SERVICES).sections {
        let title = format!("`{}`", registered.title);
        let about = match registered.about {
            "" => "Registered by a service.",
            about => about,
        };
        section(&mut text, &title, about, registered.fields.iter());
        if registered.name == "link" {
            kinds_of_links(&mut text);
        }
    }
    text
}

/// Appends a heading and the table of keys, then the tables of keys that are tables.
fn section(
    text: &mut String,
    title: &str,
    about: &str,
    fields: impl Iterator<Item = &'static Field>,
) {
    let _ = write!(text, "\n## {title}\n\n{about}\n\n");
    table(text, fields);
}

fn table(text: &mut String, fields: impl Iterator<Item = &'static Field>) {
    text.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    let mut inner = Vec::new();
    for field in fields {
        let info = FieldInfo::from(field);
        let requires = info.requires.as_deref();
        let requires = requires.map(|key| format!(" Needs `{key}`.")).unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {}{requires} |",
            info.key,
            value(&info),
            default(&info),
            cell(&info.help),
        );
        if let ValueType::Table(fields) | ValueType::Tables(fields) | ValueType::Choice(fields) =
            field.value
        {
            inner.push((info.key, fields));
        }
    }
    for (key, fields) in inner {
        let _ = write!(text, "\nKeys of `{key}`:\n\n");
        table(text, fields.iter());
    }
}

/// Returns the type and range of a value.
fn value(info: &FieldInfo) -> String {
    let unit = |unit: &str| match unit {
        "" | "N" | "CID" => String::new(),
        unit => format!(" {}", unit.to_lowercase()),
    };
    match info.value {
        TypeInfo::Boolean => "`true`, `false`".into(),
        TypeInfo::Integer => {
            let (min, max) = (info.min.unwrap_or(0), info.max.unwrap_or(u64::MAX));
            format!("{min} to {max}{}", unit(&info.placeholder))
        }
        TypeInfo::Word => {
            let words: Vec<String> = info.words.iter().map(|word| format!("`{word:?}`")).collect();
            words.join(", ")
        }
        TypeInfo::NumberOrText => format!("number or text: {}", cell(&info.placeholder)),
        TypeInfo::Text => format!("text: {}", cell(&info.placeholder)),
        TypeInfo::Path => "absolute path".into(),
        TypeInfo::Texts => format!("list of texts: {}", cell(&info.placeholder)),
        TypeInfo::Table => "table".into(),
        TypeInfo::Tables => "list of tables".into(),
        TypeInfo::Choice => "table with one of the keys".into(),
    }
}

fn default(info: &FieldInfo) -> String {
    match (&info.default, info.required, info.value) {
        (_, true, _) => "required".into(),
        (Some(text), ..) => cell(text),
        (None, false, TypeInfo::Boolean) => "false".into(),
        (None, false, _) => "none".into(),
    }
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Appends the keys of each kind of links.
fn kinds_of_links(text: &mut String) {
    text.push_str("\nKeys of each kind beside name, group, kind, peer, metric and transit:\n\n");
    text.push_str("| kind | required | optional |\n|---|---|---|\n");
    for name in LinkKindName::NAMES {
        let kind: LinkKindName = serde_json::from_value(name.into()).unwrap();
        let keys = |required: bool| {
            let keys = kind.keys().iter().filter(|(_, needed)| *needed == required);
            keys.map(|(key, _)| format!("`{key}`")).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(text, "| `{name}` | {} | {} |", keys(true), keys(false));
    }
}
