//! The reference of limits, from the constants and their comments.

use std::fmt::Write as _;

use super::read;

/// Files of constants that an operator meets, with the title of their table.
const FILES: &[(&str, &str)] = &[
    ("Configuration", "crates/model/src/limits.rs"),
    ("Control socket, VNET language and log", "crates/daemon/src/limits.rs"),
    ("Ethernet", "crates/ethernet/src/limits.rs"),
    ("Sockets", "crates/socket/src/limits.rs"),
    ("RDMA adapters", "crates/hca/src/limits.rs"),
    ("Links", "crates/link/src/limits.rs"),
    ("NICs", "crates/mx/src/limits.rs"),
    ("Frontends", "crates/attach/src/limits.rs"),
    ("Holder", "crates/holder/src/limits.rs"),
];

/// Returns the generated part of the page.
pub fn page() -> String {
    let mut text = String::new();
    for (title, file) in FILES {
        let rows = constants(&read(file));
        assert!(rows.len() > 3, "{file} has constants: {rows:?}");
        let _ = write!(text, "\n## {title}\n\n| limit | value |\n|---|---|\n");
        for (about, value) in rows {
            let _ = writeln!(text, "| {about} | {value} |");
        }
    }
    text
}

/// Returns the comments and values of the public constants of a file.
fn constants(source: &str) -> Vec<(String, String)> {
    let (mut rows, mut comment) = (Vec::new(), Vec::new());
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with("pub const ") {
            let mut whole = line.to_owned();
            while !whole.ends_with(';') {
                whole.push_str(lines.next().expect("a constant ends").trim());
            }
            let value = whole.split_once(" = ").expect("a constant has a value").1;
            rows.push((cell(&comment.join(" ")), shown(value.trim_end_matches(';'))));
            comment.clear();
        } else {
            comment.clear();
        }
    }
    rows.retain(|(about, _)| !about.is_empty());
    rows
}

/// Returns a comment for a cell: links of rustdoc become plain names.
fn cell(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// Returns a value as an operator writes it; expressions stay.
fn shown(value: &str) -> String {
    let calls = [("Duration::from_secs(", "s"), ("Duration::from_millis(", "ms"), ("Duration::from_micros(", "us")];
    for (call, unit) in calls {
        if let Some(number) = value.strip_prefix(call).and_then(|rest| rest.strip_suffix(')')) {
            return format!("{} {unit}", number.replace('_', ","));
        }
    }
    let is_number = value.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if is_number { value.replace('_', ",") } else { format!("`{value}`") }
}
