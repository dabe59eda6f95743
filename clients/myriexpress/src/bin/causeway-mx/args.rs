//! The command line of `causeway-mx`: commands, options and their ranges.
//!
//! Parsing checks ranges (lengths up to [`LEN_MAX`] (256 MiB)) and not the existence of NICs,
//! endpoints or the library. `main` dispatches a [`ToolCommand`]. There is no configuration file
//! and no environment variable of the tool itself; `libmyriexpress` reads its own. A wrong command
//! line ends the program in the parser, with status 2, before the library is loaded. Everything
//! runs in the only thread.

use std::path::PathBuf;

use clap::{Args as ArgGroup, Parser, Subcommand};

/// Maximum length of a message in bytes: 256 MiB.
pub const LEN_MAX: u32 = 256 << 20;

/// Shows the NICs of this host, and measures messages between them.
#[derive(Debug, Parser)]
#[command(
    name = "causeway-mx",
    version,
    after_help = "Examples:\n  \
    causeway-mx info\n  \
    causeway-mx serve &\n  \
    causeway-mx pingpong localhost --sizes 8,1K,64K\n  \
    causeway-mx stream node2:0 --sizes 1M --both --json"
)]
pub struct CommandLine {
    /// Library of the MX API [default: libmyriexpress.so beside this program or in ../lib, then the
    /// search path of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub library: Option<PathBuf>,
    #[command(subcommand)]
    pub command: ToolCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Shows the NICs of this host
    Info(InfoArgs),
    /// Answers peers that measure, until it is stopped
    Serve(ServeArgs),
    /// Measures half round trips to a peer that serves
    Pingpong(MeasureArgs),
    /// Measures throughput to a peer that serves
    Stream(StreamArgs),
    /// Writes the manual pages (roff) of the tool and its commands into a folder
    Man(ManArgs),
}

/// Arguments of [`ToolCommand::Info`].
#[derive(Debug, ArgGroup)]
pub struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of [`ToolCommand::Man`].
#[derive(Debug, ArgGroup)]
pub struct ManArgs {
    /// The folder; it is created if it does not exist
    pub folder: PathBuf,
}

/// Parameters of the local endpoint.
#[derive(Debug, ArgGroup)]
pub struct EndpointArgs {
    /// Number of the NIC to use
    #[arg(long, default_value_t = 0)]
    pub board: u32,
    /// Processor core to run on
    #[arg(long)]
    pub core: Option<usize>,
    /// Sleep while no message arrives, instead of polling
    #[arg(long)]
    pub blocking: bool,
    /// Seconds without a message after which the peer counts as gone
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: u32,
}

/// Arguments of [`ToolCommand::Serve`].
#[derive(Debug, ArgGroup)]
pub struct ServeArgs {
    #[command(flatten)]
    pub own: EndpointArgs,
    /// Number of the endpoint to open
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=254))]
    pub endpoint: u8,
    /// End when the first peer has finished
    #[arg(long)]
    pub once: bool,
}

/// Arguments of [`ToolCommand::Pingpong`].
#[derive(Debug, ArgGroup)]
pub struct MeasureArgs {
    /// NIC of the peer: its name as causeway-mx info and causeway peer list show it, or its MAC
    pub peer: String,
    #[command(flatten)]
    pub own: EndpointArgs,
    /// Number of the peer's endpoint
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=254))]
    pub endpoint: u8,
    /// Lengths of messages in bytes; K is 1024 bytes, M is 1024 K
    #[arg(long, value_delimiter = ',', value_parser = length,
          default_value = "0,8,64,1K,4K,32K,64K,1M,4M")]
    pub sizes: Vec<u32>,
    /// Number of messages of each length [default: as many as take about a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: Option<u32>,
    /// Synchronous sends: each ends when the peer has matched it
    #[arg(long)]
    pub sync: bool,
    /// Fill each message with new content, and verify each received byte
    #[arg(long)]
    pub verify: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of [`ToolCommand::Stream`].
#[derive(Debug, ArgGroup)]
pub struct StreamArgs {
    #[command(flatten)]
    pub measure: MeasureArgs,
    /// Send in both directions at the same time
    #[arg(long)]
    pub both: bool,
}

fn length(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.trim_end_matches(['k', 'K', 'm', 'M']) {
        digits if digits.len() == text.len() => (digits, 1),
        digits if text.ends_with(['k', 'K']) => (digits, 1 << 10),
        digits => (digits, 1 << 20),
    };
    let number: Option<u32> = digits.parse().ok();
    let len = number.and_then(|number| number.checked_mul(unit)).filter(|len| *len <= LEN_MAX);
    len.ok_or_else(|| {
        format!("a length is a number up to {LEN_MAX}, optionally followed by K or M")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units() {
        assert_eq!(length("0"), Ok(0));
        assert_eq!(length("64K"), Ok(65536));
        assert_eq!(length("1m"), Ok(1 << 20));
        for wrong in ["", "K", "x", "-1", "1G", "257M", "99999M"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        CommandLine::command().debug_assert();
    }
}
