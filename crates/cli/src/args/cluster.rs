//! The command line of `causeway cluster`.

use std::ffi::OsString;

use clap::Subcommand;

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
    /// List the addresses of guests on other hosts, with the host of each
    #[command(after_help = "\
Examples:
  causeway cluster addresses
  causeway cluster addresses -o json")]
    Addresses,
    /// Verbs of `causeway-directory`, the program that connects to etcd: join, group, evict, …
    #[command(external_subcommand)]
    Directory(Vec<OsString>),
}
