//! Arguments of `causeway link`, `route`, `traffic`, `vnet`, `apply` and `key`.
//!
//! The options of `link add` are not written here: they derive from the table of links
//! ([`super::options`]). Ends of routes are parsed (`ValueType::Choice` of `model`) as `edge:LINK`
//! or `interface:PORT`, without a check that the object exists: the daemon refuses a missing
//! object. Each verb has a module in [`crate::commands`],
//! which uses the values in the main thread.

use std::path::PathBuf;

use super::{DeleteOptions, TableArguments};
use causeway_model::draft::LinkDraft;
use causeway_model::{Name, RouteSpec};
use clap::{Args, Subcommand};

/// `causeway link …`
#[derive(Debug, Subcommand)]
pub enum LinkVerb {
    /// List all links with their state, round-trip time and loss
    #[command(after_help = "Examples:\n  causeway link list\n  causeway link list --group blue -j")]
    List {
        /// Only links of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Show a link: its ends, path MTU, round-trip time, loss and counters
    #[command(after_help = "Example:\n  causeway link show to-b")]
    Show {
        /// Name of the link
        name: Name,
    },
    /// Add a link to a peer; it is opened at once
    #[command(after_help = "\
Kinds: causeway (encrypted, the default), causeway-plain, vnet (bare frames in UDP),
vxlan (RFC 7348), tcp, tls and raw (an interface of this host). Kinds without encryption
must be requested by name. Hosts are names or addresses, with :PORT unless it is the
default: 51871 causeway, 9000 vnet, 4789 vxlan, 9001 tcp, 9002 tls.

Examples:
  causeway link add to-b --group blue --remote host-b --key \"$(cat host-b.pub)\"
  causeway link add to-c --group blue --kind vxlan --remote 10.0.0.3 --vni 42
  causeway link add to-d --group blue --kind vnet --remote [fd00::4]:9000
  causeway link add lan --group blue --kind raw --interface eth1")]
    Add(Box<LinkAdd>),
    /// Delete a link, and the routes that name it
    #[command(after_help = "Example:\n  causeway link del to-b --if-exists")]
    Del {
        /// Name of the link
        name: Name,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// `causeway link add`
#[derive(Debug, Args)]
pub struct LinkAdd {
    /// Name, group, kind and values of the link.
    #[command(flatten)]
    pub values: TableArguments<LinkDraft>,
    /// Succeed if a link of this name, group and kind exists already
    #[arg(long)]
    pub may_exist: bool,
    /// Only until the next start of causewayd: not in its state file
    #[arg(long)]
    pub ephemeral: bool,
}

/// `causeway route …`
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// List all routes with their number of uses, newest first
    #[command(
        after_help = "Examples:\n  causeway route list\n  causeway route list --group blue -j"
    )]
    List {
        /// Only routes of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Add a route: the best matching routes forward a frame
    #[command(after_help = "\
An address is any, none, a MAC address, or not-MAC. If several routes match equally well,
each gets a copy of the frame.

Examples:
  causeway route add --group blue --destination 52:54:00:00:00:02 --to edge:to-b
  causeway route add --group blue --to edge:to-b --from interface:vm1-net")]
    Add {
        /// Values of the route.
        #[command(flatten)]
        values: TableArguments<RouteSpec>,
        /// Succeed if the same route exists already
        #[arg(long)]
        may_exist: bool,
        /// Only until the next start of causewayd: not in its state file
        #[arg(long)]
        ephemeral: bool,
    },
    /// Delete a route
    #[command(after_help = "Example:\n  causeway route del 7 --if-exists")]
    Del {
        /// Number of the route in `causeway route list`
        index: u64,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// `causeway vnet`
#[derive(Debug, Args)]
pub struct VnetArgs {
    /// The file of commands, or - for standard input
    pub file: PathBuf,
    /// Group of the links and routes
    #[arg(long, value_name = "NAME")]
    pub group: Name,
    /// Only check the file and show the changes
    #[arg(long)]
    pub dry_run: bool,
    /// Make the changes until the next start of causewayd only: not in its state file
    #[arg(long)]
    pub ephemeral: bool,
}

/// `causeway apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The configuration file, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only show the changes
    #[arg(long)]
    pub dry_run: bool,
    /// Make the changes until the next start of causewayd only: not in its state file
    #[arg(long)]
    pub ephemeral: bool,
}

/// `causeway key …`
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Generate a private key and print it, or write it to a file and print its public key
    #[command(after_help = "\
Examples:
  causeway key generate --out /etc/causeway/key
  causeway key generate > key")]
    Generate {
        /// A new file that only its owner can read; an existing file is not overwritten
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the public key of a private key, for the configuration of peers' links
    #[command(after_help = "\
Examples:
  causeway key public
  causeway key generate | causeway key public -")]
    Public {
        /// File of the private key, or - for standard input
        #[arg(default_value = "/etc/causeway/key")]
        file: PathBuf,
    },
}
