//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: causeway-bench [--out DIR] [--runs N] [--only WORD]

  --out DIR    where JSON and plots go (bench/out)
  --runs N     runs per row, the median counts (5)
  --only WORD  only rows whose name has WORD in it

Example: causeway-bench --only stream --runs 3
";

/// As parsed.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// Runs per row.
    pub runs: usize,
    /// Rows to run; all where empty.
    pub only: String,
}

impl Options {
    /// `None`: help was asked for.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self { out: PathBuf::from("bench/out"), runs: 5, only: String::new() };
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
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("{arg} is not known")),
            }
        }
        Ok(Some(options))
    }
}
