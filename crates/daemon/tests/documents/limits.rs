//! The reference of limits, from the constants and their comments.

use std::fmt::Write as _;

use super::read;

/// Files of constants that an operator meets, with the title of their table.
const FILES: &[(&str, &str)] = &[
    ("Configuration", "crates/model/src/limits.rs"),
    ("Control socket, VNET language and log", "crates/daemon/src/limits.rs"),
    ("HTTP: control socket, metrics and web page", "crates/http/src/limits.rs"),
    ("Web page", "crates/web/src/limits.rs"),
    ("Ethernet", "crates/ethernet/src/limits.rs"),
    ("Sockets", "crates/socket/src/limits.rs"),
    ("RDMA adapters", "crates/hca/src/limits.rs"),
    ("TAP interfaces", "crates/tap/src/limits.rs"),
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

/// Returns a value as an operator writes it; expressions with names stay.
fn shown(value: &str) -> String {
    let calls = [
        ("Duration::from_secs(", " s"),
        ("Duration::from_millis(", " ms"),
        ("Duration::from_micros(", " us"),
    ];
    let call = |(call, unit)| Some((value.strip_prefix(call)?.strip_suffix(')')?, unit));
    let (inner, unit) = calls.into_iter().find_map(call).unwrap_or((value, ""));
    match number(inner) {
        Some(number) => format!("{}{unit}", grouped(number)),
        None => format!("`{value}`"),
    }
}

/// Returns the value of an integer, a product or a shift.
fn number(text: &str) -> Option<u64> {
    if let Some((left, right)) = text.split_once(" << ") {
        return Some(number(left)? << number(right)?);
    }
    if let Some((left, right)) = text.split_once(" * ") {
        return Some(number(left)? * number(right)?);
    }
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Returns a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let separate = |(at, digit): (usize, char)| {
        let is_group = at > 0 && (digits.len() - at).is_multiple_of(3);
        is_group.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(separate).collect()
}

#[test]
fn limits_are_shown_as_numbers() {
    for (value, wanted) in [
        ("1 << 20", "1,048,576"),
        ("64 * 1024", "65,536"),
        ("0xff_ffff", "16,777,215"),
        ("Duration::from_millis(250)", "250 ms"),
        ("OTHER / 2", "`OTHER / 2`"),
    ] {
        assert_eq!(shown(value), wanted);
    }
}
