//! The demo's command line.
//!
//! `main` parses the arguments before anything starts; an unknown option, one without its value, a
//! time outside 0.01 to 600 s, and `--keep` without the guests' table are errors, and the program
//! exits with status 2. Of repeated options, and of those that select a table, the last counts.
//! [`USAGE`] has the options, their defaults and the main environment variables.

use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "usage: causeway-demo [--json FILE] [--seconds N] [--no-bridge]
                      [--guests | --messages | --rdma] [--keep] [--quiet]
  --json FILE   path of the table as JSON (default: demo.json in the target directory)
  --seconds N   time limit of each measurement (default: 2)
  --no-bridge   omits the comparison with a Linux bridge and taps
  --guests      measures only Ethernet and AF_VSOCK between guests
  --messages    measures only messages between processes, without guests
  --rdma        shows only RDMA between guests
  --keep        leaves both guests up after the tables, and prints how to reach and to stop them
  --quiet       does not print the commands
Environment: CAUSEWAY_QEMU (program), CAUSEWAY_ACCEL (kvm or tcg), CAUSEWAY_BIN_DIR (causewayd's folder)";

/// Parsed options.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Path of the JSON output.
    pub json: PathBuf,
    /// Time limit of a ping-pong or stream of the first table; of a socket figure of the second if
    /// that is shorter than its 0.5 s.
    pub limit: Duration,
    /// Whether to compare with a bridge and taps where possible.
    pub bridge: bool,
    /// Tables to fill.
    pub part: Part,
    /// Whether the guests stay up after the tables.
    pub keep: bool,
    /// Whether the commands are printed.
    pub shows: bool,
}

/// Part of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All tables.
    All,
    /// Ethernet and AF_VSOCK between guests.
    Guests,
    /// Messages between processes.
    Messages,
    /// RDMA between guests.
    Rdma,
}

impl Options {
    /// Parses the arguments; `None` when help was requested.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            json: causeway_vm::place::target().join("demo.json"),
            limit: Duration::from_secs(2),
            bridge: true,
            part: Part::All,
            keep: false,
            shows: true,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => options.json = value()?.into(),
                "--seconds" => {
                    let text = value()?;
                    let seconds = text.parse().ok().filter(|s| (0.01..=600.0).contains(s));
                    let seconds = seconds.ok_or(format!("--seconds {text}: not 0.01 to 600"))?;
                    options.limit = Duration::from_secs_f64(seconds);
                }
                "--no-bridge" => options.bridge = false,
                "--guests" => options.part = Part::Guests,
                "--messages" => options.part = Part::Messages,
                "--rdma" => options.part = Part::Rdma,
                "--keep" => options.keep = true,
                "--quiet" => options.shows = false,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        if options.keep && matches!(options.part, Part::Messages | Part::Rdma) {
            return Err(
                "--keep leaves the guests of --guests up; omit --messages and --rdma".into()
            );
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_parse_the_arguments() {
        let options = parse("--json /tmp/x --seconds 0.5 --no-bridge --messages").unwrap().unwrap();
        let want = Options {
            json: "/tmp/x".into(),
            limit: Duration::from_millis(500),
            bridge: false,
            part: Part::Messages,
            keep: false,
            shows: true,
        };
        assert_eq!(options, want);
        assert_eq!(parse("--guests").unwrap().unwrap().part, Part::Guests);
        assert_eq!(parse("--rdma").unwrap().unwrap().part, Part::Rdma);
        let keep = parse("--keep --quiet").unwrap().unwrap();
        assert!(keep.keep && !keep.shows && parse("--keep --rdma").is_err());
        assert_eq!(parse("--help"), Ok(None));
        assert!(parse("--seconds -1").is_err() && parse("--seconds").is_err());
        assert!(parse("--wrong").unwrap_err().contains("--wrong"));
    }
}
