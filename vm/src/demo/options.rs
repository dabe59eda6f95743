//! The demo's command line.

use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "usage: causeway-demo [--json FILE] [--seconds N] [--no-bridge] [--messages]
  --json FILE   where the table goes as JSON (default: demo.json in the target directory)
  --seconds N   time for each measurement (default: 2)
  --no-bridge   leave out the comparison with a Linux bridge and taps
  --messages    only the messages between processes, without guests
Environment: CAUSEWAY_QEMU (program), CAUSEWAY_ACCEL (kvm or tcg), CAUSEWAY_BIN_DIR (causewayd's folder)";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the JSON goes.
    pub json: PathBuf,
    /// Time for each measurement.
    pub limit: Duration,
    /// Whether to compare with a bridge and taps where that is possible.
    pub bridge: bool,
    /// Whether there are guests at all, or messages alone.
    pub guests: bool,
}

impl Options {
    /// Reads the arguments; none when help was asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            json: causeway_vm::place::target().join("demo.json"),
            limit: Duration::from_secs(2),
            bridge: true,
            guests: true,
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
                "--messages" => options.guests = false,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}")),
            }
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
    fn arguments_are_read() {
        let options = parse("--json /tmp/x --seconds 0.5 --no-bridge --messages").unwrap().unwrap();
        let want = Options {
            json: "/tmp/x".into(),
            limit: Duration::from_millis(500),
            bridge: false,
            guests: false,
        };
        assert_eq!(options, want);
        assert_eq!(parse("--help"), Ok(None));
        assert!(parse("--seconds -1").is_err() && parse("--seconds").is_err());
        assert!(parse("--wrong").unwrap_err().contains("--wrong"));
    }
}
