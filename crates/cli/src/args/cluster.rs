//! The command line of `causeway cluster`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::limits::{CLUSTER_WATCH_S_MAX, CLUSTER_WATCH_S_MIN};

const WATCH_HELP: &str = "\
The changes are those that this host's daemon follows, so the command needs no access to etcd, and
goes on while etcd is away. A change that lasts shorter than the interval may be missed. With
-o json, each change is an object in a line of its own.

Events: state, host-added, host-seen, host-unseen, host-evicted, host-readmitted, host-removed,
claimed, moved, withdrawn, link-added, link-up, link-down, link-removed, removals-held, alarm,
alarm-ended, daemon-lost, daemon-back.

Examples:
  causeway cluster watch
  causeway cluster watch -o json -n 1
      wait for the next change";

/// Options of `causeway cluster watch`.
#[derive(Debug, Args)]
pub struct ClusterWatchArgs {
    /// Time between two looks, in seconds, 0.1 to 60
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// End after this many changes
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// Parses an interval in seconds.
fn interval(text: &str) -> Result<f64, String> {
    let range = CLUSTER_WATCH_S_MIN..=CLUSTER_WATCH_S_MAX;
    let seconds = text.parse().ok().filter(|seconds| range.contains(seconds));
    seconds.ok_or_else(|| {
        format!("expected {CLUSTER_WATCH_S_MIN} to {CLUSTER_WATCH_S_MAX} seconds, such as 0.5")
    })
}

/// `causeway cluster …`
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Show the state of the connection to the site, with the process's counters
    #[command(after_help = "\
States: `follows` (etcd answers), `frozen` (etcd does not answer: links and addresses stay as they
are), `no-process` (causeway-directory does not run: the same holds).

Examples:
  causeway cluster status
  causeway cluster status -o json")]
    Status,
    /// List the other hosts of the site: keys, endpoints, leases, links and addresses
    #[command(after_help = "\
A host that is not seen has no live lease at etcd. Its links and addresses stay: whether it answers
is the state of its links (`causeway link list`).

Examples:
  causeway cluster hosts
  causeway cluster hosts -o json")]
    Hosts,
    /// List the addresses of guests and NICs on other hosts, with the host of each
    #[command(after_help = "\
Examples:
  causeway cluster addresses
  causeway cluster addresses -o json")]
    Addresses,
    /// Print changes of the cluster as they come, until Ctrl-C: hosts, addresses, links, alarms
    #[command(after_help = WATCH_HELP)]
    Watch(ClusterWatchArgs),
    /// Verbs of `causeway-directory`, the program that connects to etcd: join, group, evict, …
    #[command(external_subcommand)]
    Directory(Vec<OsString>),
}
