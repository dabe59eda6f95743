//! Arguments of `causeway forward`: pairs of sources and targets.
//!
//! Addresses are parsed here; names are resolved, and sockets opened, by `commands::forward`. A
//! source without a target, or a target without a source, is refused with exit status 2.

use std::path::PathBuf;

use causeway_forward::Address;
use clap::Args;

use crate::limits::SECONDS_MAX;

/// Examples of the help text.
pub const EXAMPLES: &str = "\
An address is tcp:HOST:PORT, unix:PATH, or vsock:NAME:PORT: a port of causewayd (kind vsock, with
host_socket) and the AF_VSOCK port of its guest. vsock:/PATH:PORT names the host socket itself and
needs no causewayd. From vsock, connections of the guest to CID 2 are accepted; to vsock, a program
in the guest must listen. Names are resolved once, at the start.

The process serves until SIGINT or SIGTERM, and restricts itself to its sockets (Landlock, no
capability beyond access to sockets of other users).

Examples:
  causeway forward --from tcp:127.0.0.1:2222 --to vsock:vm1:22
  causeway forward --from vsock:vm1:5000 --to unix:/run/log.sock --stats 60
  causeway forward --file /etc/causeway/forwards.toml
  ssh -o ProxyCommand='causeway forward --stdio vsock:vm1:22' user@vm1

A file has a table for each forward:
  [[forward]]
  from = \"tcp:127.0.0.1:2222\"
  to = \"vsock:vm1:22\"";

/// `causeway forward`.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Where to listen; each --from is followed by its --to
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["stdio", "file"])]
    pub from: Vec<Address>,
    /// Where the connections go
    #[arg(long, value_name = "ADDRESS")]
    pub to: Vec<Address>,
    /// Read forwards from a TOML file
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "from")]
    pub file: Option<PathBuf>,
    /// Connect once, and copy standard input and output
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["from", "to", "file"])]
    pub stdio: Option<Address>,
    /// Print the counters at this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub stats: Option<u64>,
    /// Do not restrict the process
    #[arg(long)]
    pub no_sandbox: bool,
}
