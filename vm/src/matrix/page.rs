//! The page with the results of all units, as Markdown.
//!
//! `main` writes the page after each unit that ran and at the end, from all stored results, also
//! those of units that are not selected; units without a result appear as *not run*. Of a reason
//! the first line is shown, cut to 200 characters and numbered below the tables. The file is
//! overwritten in place, so that edits by hand are lost; the only error is that of the file. All
//! runs in the main thread of the matrix.

use crate::store::{Record, Store};
use crate::units::{Part, Unit};
use causeway_vm::rdma::{Outcome, Suite};
use causeway_vm::{Error, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Longest reason on the page, in characters.
const REASON_MAX: usize = 200;
const HEAD: &str = "\
# RDMA: programs by kernel

`make matrix` writes this page: it runs the programs of the RDMA tests in guests of each kernel, and kills
causewayd under load. `make matrix MATRIX=\"--only trixie/verbs\"` runs a part; stored results are kept
until `--fresh`. *Not run* means that no result is stored. [rdma.md](rdma.md) describes the adapter.
";

/// Writes the page from all stored results.
pub fn write(store: &Store, path: &Path) -> Result<()> {
    let records: Vec<_> = Unit::all().map(|unit| (unit, store.load(&unit))).collect();
    let text = page(&records);
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

fn page(records: &[(Unit, Option<Record>)]) -> String {
    let mut text = String::from(HEAD);
    let mut reasons = Vec::new();
    guests(&mut text, records);
    for part in Part::ALL {
        let of_part: Vec<Option<&Record>> = Suite::ALL
            .iter()
            .map(|suite| {
                let wanted = Unit { suite: *suite, part };
                records.iter().find(|(unit, _)| *unit == wanted)?.1.as_ref()
            })
            .collect();
        let _ = write!(text, "\n## {}\n\n", title(part));
        match part {
            Part::Kills => kills(&mut text, &of_part),
            Part::Verbs | Part::Mpi | Part::Four | Part::Unplug => {}
        }
        table(&mut text, part, &of_part, &mut reasons);
    }
    if !reasons.is_empty() {
        text.push_str("\n## Reasons\n\n");
        for (number, reason) in (1..).zip(&reasons) {
            let _ = writeln!(text, "{number}. {reason}");
        }
    }
    text
}

fn title(part: Part) -> &'static str {
    match part {
        Part::Verbs => "Two guests: verbs, sockets, storage, and the driver",
        Part::Mpi => "Two guests: UCX and MPI",
        Part::Four => "Four guests, all pairs at once",
        Part::Kills => "Kills of causewayd during exchanges of two guests",
        Part::Unplug => "Hot unplug",
    }
}

/// Lists the guests of each suite.
fn guests(text: &mut String, records: &[(Unit, Option<Record>)]) {
    text.push_str("\n| suite | guests |\n|---|---|\n");
    for suite in Suite::ALL {
        let described = records.iter().filter(|(unit, _)| unit.suite == suite);
        let mut described = described.filter_map(|(_, record)| Some(&record.as_ref()?.guests));
        let guests = described.find(|guests| !guests.is_empty());
        let _ = writeln!(text, "| {} | {} |", suite.as_str(), guests.map_or("not run", |g| g));
    }
}

fn heading(text: &mut String, first: &str) {
    let suites = Suite::ALL.map(Suite::as_str).join(" | ");
    let _ = writeln!(text, "| {first} | {suites} |\n|---|{}", "---|".repeat(Suite::ALL.len()));
}

fn kills(text: &mut String, records: &[Option<&Record>]) {
    heading(text, "kills");
    let row = |name: &str, value: fn(&crate::store::Kills) -> u32| {
        let cell = |record: &Option<&Record>| {
            record
                .and_then(|record| record.kills)
                .map_or("not run".into(), |k| value(&k).to_string())
        };
        format!("| {name} | {} |\n", records.iter().map(cell).collect::<Vec<_>>().join(" | "))
    };
    text.push_str(&row("kills", |kills| kills.count));
    text.push_str(&row("exchanges", |kills| kills.exchanges));
    text.push_str(&row("kills during exchanges without an error", |kills| kills.without_error));
}

/// Appends the steps of a part: a row for each name, a column for each suite.
fn table(text: &mut String, part: Part, records: &[Option<&Record>], reasons: &mut Vec<String>) {
    let mut names: Vec<&str> = Vec::new();
    for step in records.iter().flatten().flat_map(|record| &record.steps) {
        if !names.contains(&step.name.as_str()) {
            names.push(&step.name);
        }
    }
    if names.is_empty() && part == Part::Kills {
        return;
    }
    text.push_str(if part == Part::Kills { "\n" } else { "" });
    heading(text, "step");
    if names.is_empty() {
        let _ = writeln!(text, "| all | {} |", vec!["not run"; records.len()].join(" | "));
    }
    for name in names {
        let cells: Vec<String> =
            records.iter().map(|record| cell(*record, name, reasons)).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
}

fn cell(record: Option<&Record>, name: &str, reasons: &mut Vec<String>) -> String {
    let step = record.and_then(|record| record.steps.iter().find(|step| step.name == name));
    let (word, why) = match step.map(|step| &step.outcome) {
        None => return "not run".into(),
        Some(Outcome::Passed) => return "passed".into(),
        Some(Outcome::Failed(why)) => ("failed", why),
        Some(Outcome::Unavailable(why)) => ("not available", why),
    };
    let reason: String = why.lines().next().unwrap_or_default().chars().take(REASON_MAX).collect();
    let number = match reasons.iter().position(|known| *known == reason) {
        Some(at) => at.saturating_add(1),
        None => {
            reasons.push(reason);
            reasons.len()
        }
    };
    format!("{word} ({number})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_vm::rdma::Step;

    fn step(name: &str, outcome: Outcome) -> Step {
        Step { name: name.into(), outcome, seconds: 1.0 }
    }

    #[test]
    fn page_of_the_matrix_has_a_column_for_each_kernel_and_invents_no_result() {
        let unit = |suite, part| Unit { suite, part };
        let record = |steps, kills| Record { guests: "Linux".into(), steps, kills };
        let smc = "no module".to_owned();
        let records = [
            (
                unit(Suite::Trixie, Part::Verbs),
                Some(record(
                    vec![
                        step("ping", Outcome::Passed),
                        step("rping", Outcome::Failed("refused\nlong log".into())),
                    ],
                    None,
                )),
            ),
            (
                unit(Suite::Backports, Part::Verbs),
                Some(record(vec![step("SMC-R", Outcome::Unavailable(smc))], None)),
            ),
            (
                unit(Suite::Trixie, Part::Kills),
                Some(record(
                    Vec::new(),
                    Some(crate::store::Kills { count: 20, without_error: 19, exchanges: 2 }),
                )),
            ),
        ];
        let text = page(&records);
        for want in [
            "| ping | not run | passed | not run |",
            "| rping | not run | failed (1) | not run |",
            "| SMC-R | not run | not run | not available (2) |",
            "| kills | not run | 20 | not run |",
            "| kills during exchanges without an error | not run | 19 | not run |",
            "1. refused\n2. no module\n",
            "| bookworm | not run |",
        ] {
            assert!(text.contains(want), "{want} not in\n{text}");
        }
        assert!(!text.contains("long log"));
    }
}
