//! Arguments of `causeway forward`: the forwards of the daemon, and forwards by hand.
//!
//! Without a verb the process forwards by itself: pairs of sources and targets, a file, a single
//! connection, or with `--all` the daemon's list. Addresses are parsed here; names are resolved,
//! and sockets opened, by `commands::forward`. A source without a target, or a target without a
//! source, is refused with exit status 2.

use std::path::PathBuf;

use causeway_forward::Address;
use causeway_model::limits::FORWARD_CONNECTIONS_MAX;
use causeway_model::{ForwardSpec, Name};
use clap::{Args, Subcommand};

use super::{DeleteOptions, TableArguments};
use crate::limits::SECONDS_MAX;

/// Examples of the help text.
pub const EXAMPLES: &str = "\
An address is tcp:HOST:PORT, unix:PATH, or vsock:NAME:PORT: a port of causewayd (kind vsock, with
host_socket), or a VM with one port of that kind, and the AF_VSOCK port of the guest.
vsock:/PATH:PORT names the host socket itself and needs no causewayd. From vsock, connections of
the guest to CID 2 are accepted; to vsock, a program in the guest must listen. Names are resolved
once, at the start.

The verbs add, del and list change and show the forwards of causewayd ([[forward]] in its
configuration). The process `causeway forward --all`, which the service causeway-forward starts,
runs them, and follows changes within a second. It starts a process for each forward, which
restricts itself to its sockets (Landlock, no capability beyond access to sockets of other users).

Without a verb and without --all the process forwards by itself until SIGINT or SIGTERM, restricted
in the same way.

Examples:
  causeway forward add ssh-vm1 --from tcp:127.0.0.1:2222 --to vsock:vm1:22
  causeway forward list
  causeway forward --all
  causeway forward --from tcp:127.0.0.1:2222 --to vsock:vm1:22
  causeway forward --from vsock:vm1:5000 --to unix:/run/log.sock --stats 60
  ssh -o ProxyCommand='causeway forward --stdio vsock:vm1:22' user@vm1

A file for --file has a table for each forward:
  [[forward]]
  from = \"tcp:127.0.0.1:2222\"
  to = \"vsock:vm1:22\"";

/// `causeway forward`.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct ForwardArgs {
    /// What to do with the daemon's forwards.
    #[command(subcommand)]
    pub verb: Option<ForwardVerb>,
    /// Where to listen; each --from is followed by its --to
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["stdio", "file", "all"])]
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
    /// Run the forwards of the daemon, and follow their changes
    #[arg(long, conflicts_with_all = ["from", "to", "file", "stdio", "stats", "connections_max"])]
    pub all: bool,
    /// Print the counters at this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub stats: Option<u64>,
    /// Most connections at a time of all forwards of the process; further clients wait [default: 1024]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(FORWARD_CONNECTIONS_MAX)))]
    pub connections_max: Option<u16>,
    /// Do not restrict the process
    #[arg(long)]
    pub no_sandbox: bool,
    /// Report to the forwarder at stdout, and end with stdin: for processes of --all
    #[arg(long, hide = true)]
    pub report: bool,
}

impl ForwardArgs {
    /// Returns whether an option is given that belongs to no verb. clap would count the common
    /// options too.
    pub fn has_own_options(&self) -> bool {
        let Self { from, to, file, stdio, all, stats, connections_max, no_sandbox, report, .. } =
            self;
        let has_address = !from.is_empty() || !to.is_empty() || file.is_some() || stdio.is_some();
        let has_value = stats.is_some() || connections_max.is_some();
        has_address || has_value || *all || *no_sandbox || *report
    }
}

/// `causeway forward …`
#[derive(Debug, Subcommand)]
pub enum ForwardVerb {
    /// List the daemon's forwards with their state and connections
    #[command(after_help = "\
STATE is listening, target-down (the last connection did not reach its target), refused (the guest
refused it), failed (the source cannot be listened at), starting, or no-forwarder: no process
`causeway forward --all` runs. The reasons follow the table. All counters are in -o json.

Examples:
  causeway forward list
  causeway forward list -o json")]
    List,
    /// Add a forward to the daemon; the forwarder listens at once
    #[command(after_help = "\
Examples:
  causeway forward add ssh-vm1 --from tcp:127.0.0.1:2222 --to vsock:vm1:22
  causeway forward add log --from vsock:vm1:5000 --to unix:/run/log.sock --connections-max 8
  causeway forward add try --from tcp:127.0.0.1:8080 --to vsock:vm1:80 --ephemeral")]
    Add(Box<ForwardAdd>),
    /// Delete a forward, and close its connections
    #[command(after_help = "Example:\n  causeway forward del ssh-vm1 --if-exists")]
    Del {
        /// Name of the forward
        name: Name,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// `causeway forward add`
#[derive(Debug, Args)]
pub struct ForwardAdd {
    /// Name, source and target of the forward.
    #[command(flatten)]
    pub values: TableArguments<ForwardSpec>,
    /// Succeed if the same forward exists already
    #[arg(long)]
    pub may_exist: bool,
    /// Only until the next start of causewayd: not in its state file
    #[arg(long)]
    pub ephemeral: bool,
}
