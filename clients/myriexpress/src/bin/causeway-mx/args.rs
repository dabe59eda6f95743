//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};

/// Longest message, in bytes; 256 MiB.
pub const LEN_MAX: u32 = 256 << 20;

/// Boards of MX endpoints, and how fast messages go between them.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
    causeway-mx info\n  \
    causeway-mx serve &\n  \
    causeway-mx pingpong localhost --sizes 8,1K,64K\n  \
    causeway-mx stream node2:0 --sizes 1M --both --json"
)]
pub struct Args {
    /// Library of the MX API [default: libmyriexpress.so beside this program or in ../lib, then where the
    /// system looks]
    #[arg(long, global = true, value_name = "FILE")]
    pub library: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows the boards of this host
    Info(Info),
    /// Answers peers that measure, until it is told to end
    Serve(Serve),
    /// Measures half round trips to a peer that serves
    Pingpong(Measure),
    /// Measures throughput to a peer that serves
    Stream(Stream),
}

/// See [`Command::Info`].
#[derive(Debug, Group)]
pub struct Info {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How an endpoint is opened.
#[derive(Debug, Group)]
pub struct Own {
    /// Board to use, by its number
    #[arg(long, default_value_t = 0)]
    pub board: u32,
    /// Core to stay on
    #[arg(long)]
    pub core: Option<usize>,
    /// Sleep while nothing comes, instead of looking again and again
    #[arg(long)]
    pub blocking: bool,
    /// Seconds without a message after which the peer is given up
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: u32,
}

/// See [`Command::Serve`].
#[derive(Debug, Group)]
pub struct Serve {
    #[command(flatten)]
    pub own: Own,
    /// Endpoint to open
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=254))]
    pub endpoint: u8,
    /// End when the first peer is done
    #[arg(long)]
    pub once: bool,
}

/// See [`Command::Pingpong`].
#[derive(Debug, Group)]
pub struct Measure {
    /// The peer's board: its name as causeway-mx info and causeway peer list show it, or its MAC
    pub peer: String,
    #[command(flatten)]
    pub own: Own,
    /// The peer's endpoint
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=254))]
    pub endpoint: u8,
    /// Lengths of messages, in bytes; K and M are 1024 and 1024 K
    #[arg(long, value_delimiter = ',', value_parser = length,
          default_value = "0,8,64,1K,4K,32K,64K,1M,4M")]
    pub sizes: Vec<u32>,
    /// Messages of each length [default: as many as take about a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: Option<u32>,
    /// Synchronous sends: each ends when the peer has matched it
    #[arg(long)]
    pub sync: bool,
    /// Fill each message anew and look at each byte of what comes
    #[arg(long)]
    pub verify: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Stream`].
#[derive(Debug, Group)]
pub struct Stream {
    #[command(flatten)]
    pub measure: Measure,
    /// Both ways at a time
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
        format!("a length is a number up to {LEN_MAX}, perhaps with K or M behind it")
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
        Args::command().debug_assert();
    }
}
