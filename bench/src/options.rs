//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: causeway-bench [--out DIR] [--runs N] [--only WORDS] [--quick] [--list]

  --out DIR    where JSON and plots go (bench/out)
  --runs N     runs per figure, the median counts (5)
  --only WORDS only rows whose name has these words in it, as they stand
  --quick      each row once, and short: to see that all rows work
  --list       the rows' names

Example: causeway-bench --only stream --runs 3
";

/// As parsed.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// Runs per figure.
    pub runs: usize,
    /// Rows to run; all where empty.
    pub only: String,
    /// Each row once, and short.
    pub quick: bool,
    /// Only name the rows.
    pub list: bool,
}

impl Options {
    /// `None`: help was asked for.
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
                _ => return Err(format!("{arg} is not known")),
            }
        }
        Ok(Some(options))
    }
}
