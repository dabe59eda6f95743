//! The command line of the matrix.
//!
//! `main` parses the arguments before anything starts; an unknown option, one without its value, or
//! a number of kills outside 1 to 100,000 is an error, and the program exits with status 2. Of
//! repeated options the last counts. [`USAGE`] has the options, their defaults and the main
//! environment variables. The options select units; they change no stored result of others.

use causeway_vm::place;
use std::path::PathBuf;

pub const USAGE: &str =
    "usage: causeway-matrix [--only A,B] [--kills N] [--fresh] [--page FILE]
  --only A,B   runs only units with A or B in their names: SUITE/PART, where SUITE is bookworm, trixie
               or backports, and PART is verbs, mpi, four, kills or unplug
  --kills N    kills of causewayd for each kernel (default: 200)
  --fresh      runs units again whose results are stored
  --page FILE  the page with all results (default: docs/design/rdma-matrix.md)
Environment: CAUSEWAY_BIN_DIR (causewayd's folder), CAUSEWAY_PATIENCE (factor of time limits),
             CAUSEWAY_RDMA_STEPS=A,B (with --fresh: runs steps again, and keeps the others)";

/// Parsed options.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Parts of names of units; empty: all units.
    pub only: Vec<String>,
    /// Kills of causewayd for each kernel.
    pub kills: u32,
    /// Whether units with stored results run again.
    pub fresh: bool,
    /// Path of the page.
    pub page: PathBuf,
}

impl Options {
    /// Parses the arguments; `None` when help was requested.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let page = place::workspace().join("docs/design/rdma-matrix.md");
        let mut options = Self { only: Vec::new(), kills: 200, fresh: false, page };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--only" => options.only = value()?.split(',').map(String::from).collect(),
                "--kills" => {
                    let text = value()?;
                    let kills = text.parse().ok().filter(|count| (1..=100_000).contains(count));
                    options.kills = kills.ok_or(format!("--kills {text}: not 1 to 100000"))?;
                }
                "--fresh" => options.fresh = true,
                "--page" => options.page = value()?.into(),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        Ok(Some(options))
    }

    /// Returns whether a unit of this name runs.
    pub fn selects(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_of_the_matrix_are_parsed() {
        let options = parse("--only kills,trixie/mpi --kills 30 --fresh --page /tmp/x").unwrap();
        let options = options.unwrap();
        assert_eq!((options.kills, options.fresh), (30, true));
        assert_eq!(options.page, PathBuf::from("/tmp/x"));
        assert!(options.selects("bookworm/kills") && options.selects("trixie/mpi"));
        assert!(!options.selects("trixie/verbs"));
        assert!(parse("").unwrap().unwrap().selects("trixie/verbs"));
        assert_eq!(parse("--help"), Ok(None));
        assert!(parse("--kills 0").is_err() && parse("--only").is_err() && parse("-x").is_err());
    }
}
