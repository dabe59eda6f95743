//! The table of commands in `docs/design/mlx5-commands.md` follows the function.
//!
//! `CAUSEWAY_UPDATE_DOCUMENTS=1` makes the test write the rows: names and answers from the function's
//! table of handlers, the kernels from [`SEEN`]; descriptions stay. A command that the page does not
//! list is an error: add a row with its opcode to the section where it belongs.

use std::collections::BTreeSet;

use causeway_mlx5::table::{CommandSupport, support};
use causeway_wire::mlx5::command::Opcode;

use crate::seen::SEEN;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/mlx5-commands.md");
const UPDATE: &str =
    "CAUSEWAY_UPDATE_DOCUMENTS=1 cargo test -p causeway-mlx5 --test function table";

/// Returns the row of a command. `effect` is the page's description.
fn row(opcode: Opcode, effect: &str) -> String {
    let answer = match support(opcode) {
        CommandSupport::Performed => "performed",
        CommandSupport::Accepted => "accepted",
        CommandSupport::Refused => "refused",
    };
    let mark = |codes: &[u16]| if codes.contains(&opcode.raw()) { "×" } else { "" };
    let kernels: String = SEEN.iter().map(|(_, codes)| format!(" {} |", mark(codes))).collect();
    format!("| {:#x} | {opcode} | {effect} | {answer} |{kernels}", opcode.raw())
}

/// Returns the opcode and the description in a line of the page, if the line is a row.
fn parse(line: &str) -> Option<(u16, &str)> {
    let mut cells = line.strip_prefix("| 0x")?.split('|').map(str::trim);
    let opcode = u16::from_str_radix(cells.next()?, 16).ok()?;
    Some((opcode, cells.nth(1)?))
}

#[test]
fn table_of_commands_in_the_documents_equals_the_handlers() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut listed = BTreeSet::new();
    let mut lines = Vec::new();
    for line in page.lines() {
        let Some((code, effect)) = parse(line) else {
            lines.push(line.to_owned());
            continue;
        };
        assert!(listed.insert(code), "{code:#x} has two rows");
        let opcode = Opcode::from_raw(code);
        lines.push(row(opcode.unwrap_or_else(|| panic!("{code:#x} is no command")), effect));
    }
    let all: BTreeSet<u16> = Opcode::ALL.iter().map(|opcode| opcode.raw()).collect();
    let missing: Vec<String> = all.difference(&listed).map(|code| format!("{code:#x}")).collect();
    assert!(missing.is_empty(), "the page has no row for {missing:?}");
    let text = lines.join("\n") + "\n";
    if std::env::var_os("CAUSEWAY_UPDATE_DOCUMENTS").is_some() {
        std::fs::write(PAGE, &text).unwrap();
    }
    let now = std::fs::read_to_string(PAGE).unwrap();
    assert!(now == text, "docs/design/mlx5-commands.md differs from the handlers: run {UPDATE}");
}

#[test]
fn table_answers_each_command_that_a_kernel_sends() {
    for (kernel, codes) in SEEN {
        for code in *codes {
            let opcode = Opcode::from_raw(*code).unwrap();
            assert_ne!(support(opcode), CommandSupport::Refused, "Linux {kernel}: {opcode}");
        }
    }
}
