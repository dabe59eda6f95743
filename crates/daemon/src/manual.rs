//! causeway.toml(5), the manual page of the configuration file.
//!
//! The page lists the tables of the file with their keys: types, ranges, defaults and meaning. The
//! keys are read from the fields of [`causeway_model::schema`] and from the kinds of ports and
//! sections that the services registered, so a new key needs no change here; a new table of the
//! daemon does. `causewayd --man=causeway.toml` prints the page; the page of causewayd itself is
//! [`crate::args::Args::man_page`].
//!
//! [`crate::run`] calls [`configuration_page`] on the main thread and prints the text. The function
//! reads no file and cannot fail.

use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{Field, FieldInfo, TypeInfo, ValueType};
use causeway_model::settings::{CONTROL_FIELDS, DAEMON_FIELDS, DISPATCH_FIELDS, METRICS_FIELDS};
use causeway_model::{GROUP_FIELDS, RULE_FIELDS};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::config::CONFIG_DEFAULT;
use crate::services::Registered;

/// Depth at which the keys of tables within tables are no longer listed.
const NESTING_MAX: usize = 3;

const DESCRIPTION: &str = "\
The file is TOML. causewayd reads it when it starts, and refuses it as a whole, with the line of each \
problem, if a key is unknown or a value is wrong. causeway-apply(1) changes the running daemon to the \
groups, ports, rules, links and routes of a file; the tables [daemon], [dispatch], [control] and [metrics] \
apply from the next start on.";

const EXAMPLE: &str = r#"[[group]]
name = "blue"

[[port]]
name = "vm1-net"
group = "blue"
kind = "net"

[[port]]
name = "vm1-vsock"
group = "blue"
kind = "vsock"
cid = 3
"#;

/// Returns causeway.toml(5) in roff, with the kinds of ports and sections in `registered`.
pub fn configuration_page(registered: Registered) -> String {
    let mut page = Roff::new();
    let source = concat!("Causeway ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["causeway.toml", "5", " ", source]);
    heading(&mut page, "NAME");
    page.text([roman("causeway.toml - configuration of causewayd, the host daemon of Causeway")]);
    heading(&mut page, "DESCRIPTION");
    page.text([roman(DESCRIPTION)]);
    table(&mut page, "[daemon]", "Sockets, log and sandbox of the daemon.", DAEMON_FIELDS);
    table(&mut page, "[dispatch]", "The threads that serve ports and links.", DISPATCH_FIELDS);
    table(&mut page, "[control]", "Commands in the VNET language.", CONTROL_FIELDS);
    let about = "The address at which the daemon serves its metrics.";
    table(&mut page, "[metrics]", about, METRICS_FIELDS);
    let about = "A tenant: its ports exchange traffic with each other, and with no other group.";
    table(&mut page, "[[group]]", about, GROUP_FIELDS);
    let about = "A device of a guest, or of a host process. The keys of its kind follow below.";
    table(&mut page, "[[port]]", about, PORT_FIELDS);
    for kind in registered.kinds {
        let title = format!("[[port]] of kind {}", kind.name);
        table(&mut page, &title, &format!("{}.", kind.help), &[]);
        for fields in kind.fields {
            keys(&mut page, fields, 0);
        }
    }
    let about = "Accepts or rejects socket connects. The first matching rule decides.";
    table(&mut page, "[[rule]]", about, RULE_FIELDS);
    for section in registered.sections {
        table(&mut page, section.title, section.about, section.fields);
    }
    heading(&mut page, "EXAMPLES");
    page.control("nf", []);
    page.text([roman(EXAMPLE.trim_end())]);
    page.control("fi", []);
    heading(&mut page, "FILES");
    page.text([italic(CONFIG_DEFAULT)]);
    heading(&mut page, "SEE ALSO");
    page.text([roman("causewayd(8), causeway(1), causeway-apply(1), causeway-port-add(1)")]);
    page.render()
}

fn heading(page: &mut Roff, text: &str) {
    page.control("SH", [text]);
}

/// Writes a section with the keys of a table.
fn table(page: &mut Roff, title: &str, about: &str, fields: &'static [Field]) {
    heading(page, title);
    if !about.is_empty() {
        page.text([roman(about)]);
    }
    keys(page, fields, 0);
}

/// Writes a paragraph for each key; those of a table within the table are indented.
fn keys(page: &mut Roff, fields: &'static [Field], depth: usize) {
    for field in fields {
        let info = FieldInfo::from(field);
        page.control("TP", []);
        page.text([bold(info.key.clone()), roman(format!(" = {}", value(&info)))]);
        page.text(meaning(&info));
        let (ValueType::Table(inner) | ValueType::Tables(inner) | ValueType::Choice(inner)) =
            field.value
        else {
            continue;
        };
        if depth < NESTING_MAX {
            page.control("RS", []);
            keys(page, inner, depth.saturating_add(1));
            page.control("RE", []);
        }
    }
}

/// Returns the form of a value, as it is written in TOML.
fn value(info: &FieldInfo) -> String {
    let quoted = |text: &str| format!("\"{text}\"");
    match info.value {
        TypeInfo::Boolean => "true | false".to_owned(),
        TypeInfo::Integer => {
            let (min, max) = (info.min.unwrap_or(0), info.max.unwrap_or(u64::MAX));
            format!("{min} to {max}")
        }
        TypeInfo::Word => {
            info.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" | ")
        }
        TypeInfo::NumberOrText => format!("{} or a number", quoted(&info.placeholder)),
        TypeInfo::Texts => format!("[{}, ...]", quoted(&info.placeholder)),
        TypeInfo::Table => "{ ... }".to_owned(),
        TypeInfo::Tables => "[{ ... }, ...]".to_owned(),
        TypeInfo::Choice => info
            .words
            .iter()
            .map(|key| format!("{{ {key} = ... }}"))
            .collect::<Vec<_>>()
            .join(" | "),
        TypeInfo::Text | TypeInfo::Path => quoted(&info.placeholder),
    }
}

/// Returns the help of a key, its default and its condition.
fn meaning(info: &FieldInfo) -> Vec<Inline> {
    let mut text = info.help.clone();
    if info.required {
        text.push_str(" Required.");
    }
    if let Some(default) = &info.default {
        text.push_str(&format!(" Default: {default}."));
    }
    if let Some(other) = &info.requires {
        text.push_str(&format!(" Requires {other}."));
    }
    vec![roman(text.trim())]
}
