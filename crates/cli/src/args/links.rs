//! `causeway link …`, `causeway route …`, `causeway traffic`, `causeway vnet`.

use std::path::PathBuf;

use causeway_model::Name;
use causeway_model::{Dscp, MacMatch, PublicKey, RouteEnd};
use clap::{Args, Subcommand, ValueEnum};

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
    /// Whose frames it carries
    #[arg(long, value_name = "NAME")]
    pub group: Name,
    /// How frames cross
    #[arg(long, value_enum, default_value = "causeway")]
    pub kind: LinkKind,
    /// Where the peer is; causeway: may be left out if the peer comes to us
    #[arg(long, value_name = "HOST[:PORT]")]
    pub remote: Option<String>,
    /// UDP: where we are [default: any address, the kind's port]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub local: Option<String>,
    /// causeway: the peer's public key, as its `causeway key public` prints it
    #[arg(long, value_name = "KEY")]
    pub key: Option<PublicKey>,
    /// causeway: file of our private key [default: the daemon's key_file]; tls: of the certificate
    #[arg(long, value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// Tells groups apart on the wire, the same at both ends [default: derived from the group's
    /// name; vxlan: must be given]
    #[arg(long, value_name = "N")]
    pub vni: Option<u32>,
    /// UDP: the DSCP of outer headers, a number or that of the packet inside [default: 0]
    #[arg(long, value_name = "inherit|0-63")]
    pub dscp: Option<Dscp>,
    /// UDP: whether outer headers have the ECN field of the packet inside; false for a peer that
    /// does not bring marks to it, as VNET/P [default: true]
    #[arg(long, value_name = "true|false")]
    pub ecn: Option<bool>,
    /// tcp and tls: listen here instead of connecting
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Option<String>,
    /// tls: file of our certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// tls: file of the authorities that the peer's certificate may be of (PEM)
    #[arg(long, value_name = "FILE")]
    pub authorities: Option<PathBuf>,
    /// tls: the name in the peer's certificate [default: the host of --remote]
    #[arg(long, value_name = "HOST")]
    pub peer_name: Option<String>,
    /// raw: the interface
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Who is at the other end: links to one peer stand in for each other
    #[arg(long, value_name = "NAME")]
    pub peer: Option<Name>,
    /// Of several links to a peer the lowest that is up is used [default: 100]
    #[arg(long, value_name = "N")]
    pub metric: Option<u16>,
    /// Let frames that came by other links leave by this one
    #[arg(long)]
    pub transit: bool,
    /// Accept that a link of this name, group and kind is there already
    #[arg(long)]
    pub may_exist: bool,
}

/// How frames cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LinkKind {
    /// UDP, encrypted and authenticated.
    Causeway,
    /// The same without.
    CausewayPlain,
    /// The bare frame in UDP, as VNET/P.
    Vnet,
    /// RFC 7348.
    Vxlan,
    /// VNET/U's framing over TCP.
    Tcp,
    /// The same over TLS.
    Tls,
    /// An interface of this host.
    Raw,
}

impl LinkKind {
    /// As the daemon writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Causeway => "causeway",
            Self::CausewayPlain => "causeway-plain",
            Self::Vnet => "vnet",
            Self::Vxlan => "vxlan",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Raw => "raw",
        }
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
