//! Runs the rows and writes their results.
//!
//! `main` calls [`run`], which measures the selected rows one after another in the main thread,
//! writes a JSON file for each row as soon as it is measured, then prints the table with the aims,
//! and writes the plots. A row that cannot be measured is left out with its reason, and so is a
//! peer; the run goes on and succeeds. An aim that is missed is shown and fails nothing. Errors are
//! those of the output folder. Leftovers of killed runs are removed first (`sweep`).

use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;

use crate::effort::Effort;
use crate::options::Options;
use crate::row::{Plan, Row};
use crate::stats::Spread;
use crate::{plots, rows, sweep};

/// Runs the rows selected by `options`, prints a table, and writes JSON and plots.
pub fn run(options: &Options) -> Result<(), String> {
    let wanted = |plan: &Plan| plan.name.to_lowercase().contains(&options.only.to_lowercase());
    let plans: Vec<Plan> = rows::all().into_iter().filter(wanted).collect();
    if options.list {
        let names: String = plans.iter().map(|plan| format!("{}\n", plan.name)).collect();
        // The reader may have closed the pipe.
        let _ = std::io::stdout().write_all(names.as_bytes());
        return Ok(());
    }
    sweep::sweep();
    let effort = Effort { runs: options.runs, quick: options.quick };
    let failed = |e: std::io::Error| format!("{}: {e}", options.out.display());
    std::fs::create_dir_all(&options.out).map_err(failed)?;
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for (index, plan) in plans.iter().enumerate() {
        eprintln!("- {}/{} {}", index + 1, plans.len(), plan.name);
        match plan.measure(&effort) {
            Ok(row) => {
                for (peer, why) in &row.left_out {
                    eprintln!("  without {peer}: {why}");
                }
                write_row(&row, &options.out).map_err(failed)?;
                rows.push(row);
            }
            Err(why) => {
                eprintln!("  left out: {why}");
                missing.push((plan.name.as_str(), why));
            }
        }
    }
    print!("{}{}", table(&rows), aims(&rows));
    for (name, why) in missing {
        println!("Left out: {name}: {why}");
    }
    plots::write(&rows, &options.out).map_err(failed)?;
    println!("\nResults are in {}: a JSON file for each row, and plots.", options.out.display());
    if options.quick {
        println!("Short runs only check that all rows work: the figures are not representative.");
    }
    Ok(())
}

/// Returns a file name of letters, digits and dashes.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// Writes the JSON file of a row.
fn write_row(row: &Row, out: &Path) -> std::io::Result<()> {
    let json = serde_json::to_string_pretty(row)?;
    std::fs::write(out.join(format!("{}.json", slug(&row.name))), json + "\n")
}

/// Formats the figures, grouped by kind of guest.
fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.guest.name()).collect();
    kinds.dedup();
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for kind in kinds {
        let _ = writeln!(
            out,
            "\n{:<wide$} {:>9} {:>19}  {:<5} {:>8}  ratio to peers (above 1: Causeway is better)",
            format!("Guest: {kind}"),
            "median",
            "min..max",
            "",
            "floor us"
        );
        for row in rows.iter().filter(|row| row.guest.name() == kind) {
            let spread = format!("{:.2}..{:.2}", row.ours.min, row.ours.max);
            let ratio = |(peer, of): (&String, &Spread)| {
                format!("{peer} {:.2} ({:.2}..{:.2})", of.median, of.min, of.max)
            };
            let ratios: Vec<String> = row.ratio_spreads.iter().map(ratio).collect();
            let _ = writeln!(
                out,
                "{:<wide$} {:>9.2} {spread:>19}  {:<5} {:>8.3}{} {}",
                row.name,
                row.ours.median,
                row.unit,
                row.floor.spread.median,
                if row.rounds_unsteady > 0 { '~' } else { ' ' },
                ratios.join(", ")
            );
        }
    }
    if rows.iter().any(|row| row.rounds_unsteady > 0) {
        out.push_str(
            "~: the floor moved within rounds that count: the limit of repetitions was reached.\n",
        );
    }
    out
}

/// Lists every aim, missed aims last.
fn aims(rows: &[Row]) -> String {
    let all = || rows.iter().flat_map(|row| row.aims.iter().map(move |aim| (row, aim)));
    let (met, of) = (all().filter(|(_, aim)| aim.met).count(), all().count());
    let mut out = format!("\nAims met: {met} of {of}.\n");
    for (row, aim) in all().filter(|(_, aim)| !aim.met) {
        let _ = match aim.got {
            Some(got) => writeln!(out, "Missed: {}: {}, got {got:.2}", row.name, aim.aim),
            None => {
                writeln!(out, "Not checked: {}: {}, the peer is not available", row.name, aim.aim)
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn slug_turns_row_names_into_file_names() {
        assert_eq!(
            slug("Ethernet, 64 B: port to port (packed)"),
            "ethernet-64-b-port-to-port-packed"
        );
    }
}
