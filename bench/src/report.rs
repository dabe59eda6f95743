//! Runs the rows and writes their results.
//!
//! `main` calls [`run`], which measures the selected rows one after another in the main thread.
//! [`run`] prints an estimate of the remaining time before each row, and the row after it, and
//! writes the row's JSON file, the plots and `index.html`: a run that is interrupted, or killed,
//! has all rows that ended. At the end the table is printed, and the aims that are not met. A row
//! that cannot be measured is left out with its reason, and so is a peer; the run goes on and
//! succeeds. The JSON file of such a row from an earlier run stays. An aim that is missed is shown
//! and fails nothing. A selection without rows gives an empty table; `--list` prints the names and
//! measures nothing. A run that a signal ended has exit status 130; errors (status 1) are those of
//! the files of the results and of the signal handlers. Leftovers of killed runs are removed first
//! (`sweep`).

use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::effort::Effort;
use crate::options::Options;
use crate::progress::{self, Progress, is_stopped};
use crate::results::Results;
use crate::row::{Plan, Row};
use crate::stats::Spread;
use crate::{index, machine, plots, rows, sweep, words};

/// Writes plots and page.
fn write_results(results: &Results, out: &Path) -> std::io::Result<()> {
    let plots = plots::write(&results.rows, &results.conditions, out)?;
    index::write(results, &plots, out)
}

/// Runs the rows selected by `options`, prints a table, and writes JSON, plots and page. The status
/// tells an interrupted run from a whole one.
///
/// # Errors
/// The output folder cannot be written, or signals cannot be handled.
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let wanted = |plan: &Plan| plan.name.to_lowercase().contains(&options.only.to_lowercase());
    let plans: Vec<Plan> = rows::all().into_iter().filter(wanted).collect();
    if options.list {
        let names: String = plans.iter().map(|plan| format!("{}\n", plan.name)).collect();
        // The reader may have closed the pipe.
        let _ = std::io::stdout().write_all(names.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    sweep::sweep();
    progress::stop_on_signals()?;
    let failed = |e: std::io::Error| format!("{}: {e}", options.out.display());
    std::fs::create_dir_all(&options.out).map_err(failed)?;
    let results = measure(options, &plans).map_err(failed)?;
    print!("{}{}", table(&results.rows), aims(&results.rows));
    for (name, why) in &results.missing {
        println!("Left out: {name}: {why}");
    }
    let page = options.out.join("index.html");
    println!("\nTable and plots: {}; a JSON file for each row is beside it.", page.display());
    if options.quick {
        println!("Short runs only check that all rows work: the figures are not representative.");
    }
    if results.is_complete() {
        return Ok(ExitCode::SUCCESS);
    }
    let done = results.rows.len() + results.missing.len();
    println!("Interrupted: {done} of {} rows have ended.", results.wanted);
    Ok(ExitCode::from(progress::INTERRUPTED))
}

/// Measures the rows, and writes the results after each.
fn measure(options: &Options, plans: &[Plan]) -> std::io::Result<Results> {
    let effort = Effort { runs: options.runs, quick: options.quick };
    let mut results = Results {
        conditions: conditions(options),
        wanted: plans.len(),
        rows: Vec::new(),
        missing: Vec::new(),
    };
    let known = |plan: &Plan| {
        progress::last_seconds(&file(&options.out, &plan.name), options.quick, options.runs)
    };
    let mut progress = Progress::new(plans.iter().map(known).collect());
    for (index, plan) in plans.iter().enumerate() {
        eprintln!("- {}/{} {} ({})", index + 1, plans.len(), plan.name, progress.text());
        let since = Instant::now();
        let measured = plan.measure(&effort);
        let seconds = since.elapsed().as_secs_f64();
        if is_stopped() {
            break;
        }
        progress.ended(seconds);
        match measured {
            Ok(row) => {
                let row = Row { seconds, runs: options.runs, quick: options.quick, ..row };
                for (peer, why) in &row.left_out {
                    eprintln!("  without {peer}: {why}");
                }
                print!("{}", line(&row, 0));
                write_row(&row, &options.out)?;
                results.rows.push(row);
            }
            Err(why) => {
                eprintln!("  left out: {why}");
                results.missing.push((plan.name.clone(), why));
            }
        }
        write_results(&results, &options.out)?;
    }
    write_results(&results, &options.out)?;
    Ok(results)
}

/// Returns the machine, the date and the effort.
fn conditions(options: &Options) -> Vec<String> {
    let effort = if options.quick {
        "one short run: the figures are not representative".to_owned()
    } else {
        format!("median of {} rounds; whiskers from the smallest to the largest", options.runs)
    };
    vec![format!("{}; {effort}", machine::date()), machine::describe()]
}

/// Returns a file name of small letters, digits and dashes.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// Returns the JSON file of a row.
fn file(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{}.json", slug(name)))
}

/// Writes the JSON file of a row.
fn write_row(row: &Row, out: &Path) -> std::io::Result<()> {
    let json = serde_json::to_string_pretty(row)?;
    std::fs::write(file(out, &row.name), json + "\n")
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
            "\n{:<wide$} {:>9} {:>19}  {:<5} {:>8}  Causeway is",
            format!("Guest: {kind}"),
            "median",
            "min..max",
            "",
            "floor us"
        );
        for row in rows.iter().filter(|row| row.guest.name() == kind) {
            out.push_str(&line(row, wide));
        }
    }
    if rows.iter().any(|row| row.rounds_unsteady > 0) {
        out.push_str(
            "~: the floor moved within rounds that count: the limit of repetitions was reached.\n",
        );
    }
    out
}

/// Formats the line of a row, its name at least `wide` characters.
fn line(row: &Row, wide: usize) -> String {
    let spread = format!("{:.2}..{:.2}", row.ours.min, row.ours.max);
    let ratio = |(peer, of): (&String, &Spread)| {
        let range = words::range(row.unit, of.min, of.max);
        format!("{} {peer}{range}", words::compared(row.unit, of.median))
    };
    let ratios: Vec<String> = row.ratio_spreads.iter().map(ratio).collect();
    format!(
        "{:<wide$} {:>9.2} {spread:>19}  {:<5} {:>8.3}{} {}\n",
        row.name,
        row.ours.median,
        row.unit,
        row.floor.spread.median,
        if row.rounds_unsteady > 0 { '~' } else { ' ' },
        ratios.join(", ")
    )
}

/// Counts the aims that are met, and lists the others.
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
    use std::collections::BTreeSet;

    use super::slug;
    use crate::rows;

    #[test]
    fn each_row_has_a_file_of_its_own() {
        let mut files = BTreeSet::new();
        for plan in rows::all() {
            assert!(files.insert(slug(&plan.name)), "two rows have the file of {}", plan.name);
        }
    }

    #[test]
    fn slug_turns_row_names_into_file_names() {
        assert_eq!(
            slug("Ethernet, 64 B: port to port (packed)"),
            "ethernet-64-b-port-to-port-packed"
        );
    }
}
