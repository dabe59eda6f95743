//! The command line of `causeway-bench`.
//!
//! `main` parses the arguments before a row starts; an unknown option, one without its value, or a
//! number of runs outside 1 to 99 is an error with exit status 2. `--help` ends the parsing:
//! arguments behind it are not checked. [`USAGE`] has the options and defaults. Of repeated options
//! the last counts; `--quick` sets one run, which a later `--runs` changes. The options select
//! rows, effort and the folder of the results; they change no row.

use std::path::PathBuf;

/// Output of `--help`.
pub const USAGE: &str = "\
Usage: causeway-bench [--out DIR] [--runs N] [--only WORDS] [--quick] [--list]

  --out DIR    folder of the JSON files and plots (default: bench/out)
  --runs N     runs per figure, of which the median is reported (default: 5)
  --only WORDS only rows whose name contains WORDS
  --quick      each row once, with short runs: checks that all rows work
  --list       prints the rows' names

Each row is printed and written when it has ended, with an estimate of the remaining time. An
interrupt (Ctrl-C) ends the run after the current figure, with exit status 130; a second one ends it
at once. DIR/index.html shows the table and the plots.

Example: causeway-bench --only stream --runs 3
";

/// Parsed options.
#[derive(Debug)]
pub struct Options {
    /// Folder of the results.
    pub out: PathBuf,
    /// Runs per figure.
    pub runs: usize,
    /// Part of the names of the rows, without regard to upper and lower case; empty: all rows.
    pub only: String,
    /// Short runs; one run per figure unless `--runs` follows.
    pub quick: bool,
    /// List the rows without running them.
    pub list: bool,
}

impl Options {
    /// Parses the arguments; `None` when help was requested.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let out = PathBuf::from("bench/out");
        let mut options = Self { out, runs: 5, only: String::new(), quick: false, list: false };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--out" => options.out = PathBuf::from(value()?),
                "--only" => options.only = value()?,
                "--runs" => {
                    let text = value()?;
                    let runs = text.parse().ok().filter(|n| (1..=99).contains(n));
                    options.runs = runs.ok_or(format!("--runs {text}: expected 1 to 99"))?;
                }
                "--quick" => (options.quick, options.runs) = (true, 1),
                "--list" => options.list = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {arg}")),
            }
        }
        Ok(Some(options))
    }
}
