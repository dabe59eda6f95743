//! `causeway link …`, `causeway route …`, `causeway traffic`, `causeway vnet`.

use std::path::PathBuf;

use super::LinkOptions;
use causeway_model::Name;
use causeway_model::{MacMatch, RouteEnd};
use clap::{Args, Subcommand};

/// `causeway link …`
#[derive(Debug, Subcommand)]
pub enum LinkVerb {
    /// List all links, whether they are up and how well they carry
    #[command(after_help = "Examples:\n  causeway link list\n  causeway link list --group blue -j")]
    List {
        /// Only those of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Show one link: its ends, path MTU, round trip, loss and counters
    #[command(after_help = "Example:\n  causeway link show to-b")]
    Show {
        /// The link
        name: Name,
    },
    /// Add a link to a peer; it is tried at once
    #[command(after_help = "\
Kinds: causeway (encrypted, the default), causeway-plain, vnet (bare frames in UDP),
vxlan (RFC 7348), tcp, tls and raw (an interface of this host). Those that do not
encrypt must be asked for by name. Hosts are names or addresses, with :PORT if it is
not the kind's own: 51871 causeway, 9000 vnet, 4789 vxlan, 9001 tcp, 9002 tls.

Examples:
  causeway link add to-b --group blue --remote host-b --key \"$(cat host-b.pub)\"
  causeway link add to-c --group blue --kind vxlan --remote 10.0.0.3 --vni 42
  causeway link add to-d --group blue --kind vnet --remote [fd00::4]:9000
  causeway link add lan --group blue --kind raw --interface eth1")]
    Add(Box<LinkAdd>),
    /// Remove a link, and the routes that name it
    #[command(after_help = "Example:\n  causeway link del to-b --if-exists")]
    Del {
        /// The link
        name: Name,
        /// Do nothing if it is not there
        #[arg(long)]
        if_exists: bool,
    },
}

/// `causeway link add`
#[derive(Debug, Args)]
pub struct LinkAdd {
    /// The link's name, unique in the daemon
    pub name: Name,
    /// Group, kind and values of the link.
    #[command(flatten)]
    pub values: LinkOptions,
    /// Accept that a link of this name, group and kind is there already
    #[arg(long)]
    pub may_exist: bool,
}

impl LinkAdd {
    /// An option that is a text; empty if it is not given.
    pub fn text(&self, key: &str) -> &str {
        self.values.0.get(key).and_then(serde_json::Value::as_str).unwrap_or_default()
    }
}

/// `causeway route …`
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// List all routes, the newest first, and how often each was used
    #[command(
        after_help = "Examples:\n  causeway route list\n  causeway route list --group blue -j"
    )]
    List {
        /// Only those of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Add a route: frames that it fits best go where it says
    #[command(after_help = "\
An address is any, none, a MAC address, or not- and one. A place is edge:LINK or
interface:PORT. All routes that fit a frame equally well get a copy of it.

Examples:
  causeway route add --group blue --destination 52:54:00:00:00:02 --to edge:to-b
  causeway route add --group blue --to edge:to-b --from interface:vm1-net")]
    Add {
        /// Whose frames
        #[arg(long, value_name = "NAME")]
        group: Name,
        /// From which addresses
        #[arg(long, value_name = "ADDRESS", default_value = "any")]
        source: MacMatch,
        /// To which
        #[arg(long, value_name = "ADDRESS", default_value = "any")]
        destination: MacMatch,
        /// Where they go
        #[arg(long, value_name = "PLACE", value_parser = place)]
        to: RouteEnd,
        /// Where they must have come from [default: anywhere]
        #[arg(long, value_name = "PLACE", value_parser = place)]
        from: Option<RouteEnd>,
        /// Accept that the same route is there already
        #[arg(long)]
        may_exist: bool,
    },
    /// Remove a route
    #[command(after_help = "Example:\n  causeway route del 7 --if-exists")]
    Del {
        /// Its number in `causeway route list`
        index: u64,
        /// Do nothing if there is no such route
        #[arg(long)]
        if_exists: bool,
    },
}

fn place(text: &str) -> Result<RouteEnd, String> {
    let wrong = || "expected edge:LINK or interface:PORT".to_owned();
    let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
    let name: Name = name.parse().map_err(|e: causeway_model::SpecError| e.to_string())?;
    match kind {
        "edge" => Ok(RouteEnd::Edge(name)),
        "interface" => Ok(RouteEnd::Interface(name)),
        _ => Err(wrong()),
    }
}

/// `causeway vnet`
#[derive(Debug, Args)]
pub struct VnetArgs {
    /// The file of commands; - for standard input
    pub file: PathBuf,
    /// Whose links and routes
    #[arg(long, value_name = "NAME")]
    pub group: Name,
    /// Only check it and show what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// `causeway apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The configuration; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// `causeway key …`
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a private key; print it, or write it to a file and print its public key
    #[command(after_help = "\
Examples:
  causeway key generate --out /etc/causeway/key
  causeway key generate > key")]
    Generate {
        /// A new file that only its owner can read; an old one is not overwritten
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the public key of a private one: peers' links are told it
    #[command(after_help = "\
Examples:
  causeway key public
  causeway key generate | causeway key public -")]
    Public {
        /// The private key's file; - for standard input
        #[arg(default_value = "/etc/causeway/key")]
        file: PathBuf,
    },
}
