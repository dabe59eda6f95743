//! The grammar: `causeway NOUN VERB [NAME] [--flag]`.

mod capture;
mod links;
mod mpi;

use std::path::PathBuf;

use causeway_fabric::control::SocketKind;
use causeway_fabric::spec::{RuleAction, RuleSide};
use causeway_fabric::{Mac, Name};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::limits::{CID_MIN, SECONDS_MAX, TIMEOUT_S_DEFAULT};
use crate::qemu;

pub use capture::CaptureArgs;
pub use links::{ApplyArgs, KeyVerb, LinkAdd, LinkVerb, RouteVerb, VnetArgs};
pub use mpi::{Mpi, MpiArgs};

const EXAMPLES: &str = "\
Examples:
  causeway port list
  causeway port add vm3-net --kind net --group blue
  causeway port show vm3-net --qemu
  causeway rule add reject --from 'blue/3:*' --to 'blue/4:22'
  causeway link add to-b --group blue --remote host-b --key KEY
  causeway trace connect --from vm1-vsock --cid 4 --port 22
  causeway trace connect --from vm1-vsock --cid 2 --port 9999 --type seqpacket
  causeway apply -f /etc/causeway/causeway.toml --dry-run
  causeway stats --interval 1

Nouns and verbs may be cut to a unique beginning: `causeway po l`.

Exit status: 0 done, 1 error, 2 wrong usage, 3 not found, 4 no daemon, 5 no answer in time,
65 only a part was done.";

/// Shows and changes what the causewayd of this host carries.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, after_help = EXAMPLES, infer_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub noun: Noun,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// The daemon's control socket [default: /run/causeway/control.sock, or for an ordinary
    /// user $XDG_RUNTIME_DIR/causeway/control.sock if it is there]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CAUSEWAY_CONTROL",
        hide_env_values = true
    )]
    pub control: Option<PathBuf>,
    /// How to print
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value = "table")]
    pub output: Format,
    /// The same as --output json
    #[arg(short, long, global = true)]
    pub json: bool,
    /// How long to wait for the daemon, in seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = TIMEOUT_S_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub timeout: u64,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned text for people.
    Table,
    /// JSON for programs; fields are added, never changed.
    Json,
}

/// The first word.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Ports: the devices of guests
    #[command(subcommand)]
    Port(PortVerb),
    /// Groups: ports that may reach each other
    #[command(subcommand)]
    Group(GroupVerb),
    /// Rules: which socket connects are let through
    #[command(subcommand)]
    Rule(RuleVerb),
    /// Links: paths to other hosts
    #[command(subcommand)]
    Link(LinkVerb),
    /// Routes: which frames go to which port or link, before all that is learnt
    #[command(subcommand)]
    Route(RouteVerb),
    /// Show who talks to whom in a group, the busiest first
    #[command(after_help = "Examples:\n  causeway traffic blue\n  causeway traffic blue -o json")]
    Traffic {
        /// The group
        group: Name,
    },
    /// Write frames that pass a port or a link to a file that tcpdump, tshark and Wireshark read
    #[command(after_help = "\
A frame is written if it fits all that is asked for. Ends with Ctrl-C, after --count or
--seconds, or with the port or link.

Examples:
  causeway capture vm1 --write vm1.pcapng --count 100
  causeway capture --link to-b --protocol tcp --port 80 --write - | tshark -r -
  causeway capture vm1 --ethertype arp --seconds 10 --write arp.pcapng")]
    Capture(Box<CaptureArgs>),
    /// Keys: who this host is to its peers
    #[command(subcommand)]
    Key(KeyVerb),
    /// Make groups, ports, rules, links and routes those of a file, and show what changes
    #[command(after_help = "\
Lines begin with + for what is added, - for what is deleted, ~ for what is deleted
and added anew. The first step that fails ends it, and what was done stays done.
[daemon], [dispatch] and [control] are only read when causewayd starts.

Examples:
  causeway apply -f causeway.toml --dry-run
  causeway apply -f causeway.toml")]
    Apply(ApplyArgs),
    /// Carry out a file of VNET commands: all of it is checked before anything changes
    #[command(after_help = "\
Examples:
  causeway vnet links.vnet --group blue --dry-run
  echo 'ADD LINK 10.0.0.2 9000 UDP' | causeway vnet - --group blue")]
    Vnet(VnetArgs),
    /// Print the environment by which an MPI program runs over this host's boards
    #[command(after_help = "\
The program is not rebuilt: its MPI library finds the provider of libfabric by these variables.

Examples:
  eval \"$(causeway mpi-env)\" && mpirun -n 4 ./program
  causeway mpi-env --mpi mpich
  causeway mpi-env --slurm --board /run/causeway/mx0.sock --json")]
    MpiEnv(MpiArgs),
    /// Peers: boards of other hosts that this host's boards (kind mx) know
    #[command(subcommand)]
    Peer(PeerVerb),
    /// Dispatchers: the threads that serve ports
    #[command(subcommand)]
    Dispatcher(DispatcherVerb),
    /// Show the counters of all ports, or their rates
    #[command(after_help = "\
Examples:
  causeway stats                        totals since the daemon started
  causeway stats --interval 1           rates, every second until interrupted
  causeway stats --interval 5 --count 1 rates over five seconds, once")]
    Stats(StatsArgs),
    /// Explain where a frame or a connect would go, and why, without sending it
    #[command(subcommand)]
    Trace(TraceVerb),
    /// Show the daemon itself
    #[command(after_help = "Example:\n  causeway info")]
    Info,
    /// Stop the daemon; guests of held ports stay connected and wait for the next one
    #[command(after_help = "\
Held are the ports that `hold` in [daemon] names, vsock devices by default: QEMU never connects
these again, so that a guest that is disconnected has no sockets until it reboots.

Examples:
  causeway shutdown
  causeway shutdown --release")]
    Shutdown {
        /// Disconnect the guests of held ports too: for a stop that no start follows
        #[arg(long)]
        release: bool,
    },
    /// Print the completions of a shell
    #[command(after_help = "\
Example:
  causeway completion bash > /usr/share/bash-completion/completions/causeway")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory, or print the first one
    #[command(after_help = "Example:\n  causeway man /usr/share/man/man1")]
    Man {
        /// Where to write them
        dir: Option<PathBuf>,
    },
}

/// `causeway port …`
#[derive(Debug, Subcommand)]
pub enum PortVerb {
    /// List all ports
    #[command(after_help = "Examples:\n  causeway port list\n  causeway port list --group blue -j")]
    List {
        /// Only those of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Show one port, or how to attach a guest to it
    #[command(after_help = "\
Examples:
  causeway port show vm1-net
  causeway port show vm1-net --qemu
  causeway port show vm1-net --qemu=11.1
  causeway port show vm1-vsock --libvirt")]
    Show {
        /// The port
        name: Name,
        /// Print the arguments that attach a QEMU of this version [default: the one installed here]
        #[arg(long, value_name = "VERSION", conflicts_with = "libvirt", num_args = 0..=1,
              require_equals = true, default_missing_value = "installed")]
        qemu: Option<qemu::Target>,
        /// Print the XML that attaches a libvirt domain
        #[arg(long)]
        libvirt: bool,
    },
    /// Add a port; it listens at once
    #[command(after_help = "\
Examples:
  causeway port add vm3-net --kind net --group blue
  causeway port add vm3-vsock --kind vsock --group blue --cid 5
  causeway port add a --kind vsock --group blue --cid 6 --host-socket /run/a.vsock
  causeway port add mx0 --kind mx --group blue")]
    Add(Box<PortAdd>),
    /// Remove a port: its connections and its socket are closed
    #[command(after_help = "Example:\n  causeway port del vm3-net --if-exists")]
    Del {
        /// The port
        name: Name,
        /// Do nothing if it is not there
        #[arg(long)]
        if_exists: bool,
    },
}

/// `causeway port add`
#[derive(Debug, Args)]
pub struct PortAdd {
    /// The port's name, unique in the daemon
    pub name: Name,
    /// The device that the guest sees
    #[arg(long, value_enum)]
    pub kind: PortKind,
    /// The group that it belongs to
    #[arg(long, value_name = "NAME")]
    pub group: Name,
    /// Where the daemon listens for the frontend [default: <run_dir>/<name>.sock]
    #[allow(rustdoc::invalid_html_tags, reason = "clap prints the line as it is")]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// net, vsock: most memory of the guest that the daemon may have to allocate, in MiB [default:
    /// 1024, or less where the daemon itself may have less than four times that]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory_max: Option<u32>,
    /// net, mx: the guest's or the board's address [default: derived from the
    /// machine, the group and the name]
    #[arg(long)]
    pub mac: Option<Mac>,
    /// net: largest payload of a frame, in bytes, 68 to 65535 [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u16>,
    /// net: queue pairs, 1 to 8 [default: 1]
    #[arg(long, value_name = "N")]
    pub queue_pairs: Option<u16>,
    /// net: accept other source addresses and learn them
    #[arg(long)]
    pub learn: bool,
    /// net: what frames to the guest may leave unfinished: all, or for guests that use XDP (AF_XDP,
    /// Cilium) nothing: xdp [default: all]
    #[arg(long, value_name = "WHICH", value_parser = ["all", "xdp"])]
    pub offloads: Option<String>,
    /// vsock: the guest's context id, 3 or more
    #[arg(long, value_parser = clap::value_parser!(u32).range(CID_MIN..))]
    pub cid: Option<u32>,
    /// vsock: where host processes reach the guest, and it them
    #[arg(long, value_name = "PATH")]
    pub host_socket: Option<PathBuf>,
    /// Owner of the sockets, a user's name or number [default: the daemon's user]
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<String>,
    /// Group of the sockets [default: socket_group in the daemon's configuration]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Permissions of the sockets, in octal, as 0660 [default: socket_mode in the daemon's
    /// configuration]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<String>,
    /// vsock: owner of the host socket [default: as --socket-owner]
    #[arg(long, value_name = "USER", requires = "host_socket")]
    pub host_socket_owner: Option<String>,
    /// vsock: group of the host socket [default: as --socket-group]
    #[arg(long, value_name = "GROUP", requires = "host_socket")]
    pub host_socket_group: Option<String>,
    /// vsock: permissions of the host socket [default: as --socket-mode]
    #[arg(long, value_name = "MODE", requires = "host_socket")]
    pub host_socket_mode: Option<String>,
    /// mx: what peers call the board [default: the port's name]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// mx: the host's interface by which boards of other hosts are reached [default: none]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// mx, with --interface: let processes send and receive at it themselves, past the daemon: faster
    /// between hosts, and for processes that you trust not to send anything else
    #[arg(long, requires = "interface")]
    pub bypass: bool,
    /// Accept that the same port is there already
    #[arg(long)]
    pub may_exist: bool,
}

/// The device of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PortKind {
    /// A network card (virtio-net).
    Net,
    /// A socket device (virtio-vsock).
    Vsock,
    /// A board of MX endpoints, for processes.
    Mx,
}

impl PortKind {
    /// As the daemon writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Vsock => "vsock",
            Self::Mx => "mx",
        }
    }
}

/// `causeway group …`
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all groups
    #[command(after_help = "Example:\n  causeway group list")]
    List,
    /// Show one group
    #[command(after_help = "Example:\n  causeway group show blue")]
    Show {
        /// The group
        name: Name,
    },
    /// Add a group
    #[command(after_help = "Example:\n  causeway group add blue --may-exist")]
    Add {
        /// The group's name, unique in the daemon
        name: Name,
        /// What becomes of frames that no route is for: learn (as a switch) or routes (dropped)
        #[arg(long, value_name = "HOW", default_value = "learn", value_parser = ["learn", "routes"])]
        forwarding: String,
        /// Its share of a dispatcher's time while other groups are busy: 2 has twice as much as 1
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
        weight: u32,
        /// Frames to 01:80:C2:00:00:00-0F (BPDU, LACP, LLDP, PAUSE): dropped (bridge) or forwarded (wire)
        #[arg(long, value_name = "KIND", default_value = "bridge", value_parser = ["bridge", "wire"])]
        kind: String,
        /// Accept that it is there already
        #[arg(long)]
        may_exist: bool,
    },
    /// Remove a group that has no ports and no links
    #[command(after_help = "Example:\n  causeway group del blue --if-exists")]
    Del {
        /// The group
        name: Name,
        /// Do nothing if it is not there
        #[arg(long)]
        if_exists: bool,
    },
}

/// `causeway peer …`
#[derive(Debug, Subcommand)]
pub enum PeerVerb {
    /// List them: how each is known, whether it answers, and what was exchanged
    #[command(after_help = "\
KNOWN is `announced` where the board said by itself that it is there, `static` where the
configuration names it. Counters of each are in `causeway peer show` and in `-o json`.

Example:
  causeway peer list")]
    List,
    /// Show one: its endpoints that are connected to ours, and the counters of each pair
    #[command(after_help = "\
Of a pair, IN FLIGHT is how many messages are on their way to the partner, WAITING how many wait
behind them, PARKED how many bytes came that the endpoint of ours did not take yet. Counters that
are 0 are left out; they are in `-o json`.

Examples:
  causeway peer show far:0
  causeway peer show 02:00:00:00:00:0b -o json")]
    Show {
        /// Its hostname or address, as `causeway peer list` prints it
        board: String,
    },
}

/// `causeway dispatcher …`
#[derive(Debug, Subcommand)]
pub enum DispatcherVerb {
    /// List the dispatchers, how busy they are and what each serves
    #[command(after_help = "\
Groups are moved to another dispatcher when that relieves a busy one. SPIN is how long a polled
queue may give nothing before its doorbell is waited for; it is cut while processors are scarce.

Example:
  causeway dispatcher list")]
    List,
    /// Have another dispatcher serve a group; nothing is lost or reordered
    #[command(after_help = "\
Examples:
  causeway dispatcher move blue 1
  causeway dispatcher move blue 0 --service vsock")]
    Move {
        /// The group
        group: Name,
        /// Number of the dispatcher, from 0
        dispatcher: usize,
        /// Only the ports of this kind
        #[arg(long, value_enum)]
        service: Option<PortKind>,
    },
}

/// `causeway rule …`
#[derive(Debug, Subcommand)]
pub enum RuleVerb {
    /// List all rules in their order
    #[command(after_help = "Example:\n  causeway rule list")]
    List,
    /// Add a rule: the first that matches a connect decides it
    #[command(after_help = "\
A side is GROUP/CID:PORT or host:PORT. Each part may be *, and PORT may be FIRST-LAST.

Examples:
  causeway rule add reject --from 'blue/3:*' --to 'blue/4:22'
  causeway rule add accept --from 'host:*' --to 'blue/*:1-1023' --index 0")]
    Add {
        /// What to do with a connect that matches
        #[arg(value_parser = action)]
        action: RuleAction,
        /// Who connects [default: anyone]
        #[arg(long, value_name = "SIDE")]
        from: Option<RuleSide>,
        /// To whom [default: anyone]
        #[arg(long, value_name = "SIDE")]
        to: Option<RuleSide>,
        /// Insert before the rule that now has this number [default: at the end]
        #[arg(long, value_name = "N")]
        index: Option<usize>,
        /// Do nothing if the same rule is there already, wherever it stands
        #[arg(long)]
        may_exist: bool,
    },
    /// Remove a rule; those after it move up
    #[command(after_help = "Example:\n  causeway rule del 0")]
    Del {
        /// Its number in `causeway rule list`
        index: usize,
        /// Do nothing if there is no such rule
        #[arg(long)]
        if_exists: bool,
    },
}

fn action(text: &str) -> Result<RuleAction, String> {
    match text {
        "accept" => Ok(RuleAction::Accept),
        "reject" => Ok(RuleAction::Reject),
        _ => Err("expected accept or reject".into()),
    }
}

/// `causeway stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Show rates over this time instead of totals, again and again, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub interval: Option<u64>,
    /// Stop after this many reports
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Only this port
    #[arg(long, value_name = "NAME")]
    pub port: Option<Name>,
}

/// `causeway trace …`
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// An Ethernet frame that a port would send
    #[command(after_help = "\
Examples:
  causeway trace frame --from vm1-net --to 52:54:00:00:00:02
  causeway trace frame --from vm1-net --to ff:ff:ff:ff:ff:ff --source 52:54:00:00:00:09")]
    Frame {
        /// The sending port
        #[arg(long, value_name = "PORT")]
        from: Name,
        /// Destination address
        #[arg(long, value_name = "MAC")]
        to: Mac,
        /// Source address [default: the port's own]
        #[arg(long, value_name = "MAC")]
        source: Option<Mac>,
    },
    /// A socket connect that a port, or the host, would make
    #[command(after_help = "\
Examples:
  causeway trace connect --from vm1-vsock --cid 4 --port 22
  causeway trace connect --group blue --cid 4 --port 22     from the host")]
    Connect {
        /// The connecting port [default: the host]
        #[arg(long, value_name = "PORT", required_unless_present = "group")]
        from: Option<Name>,
        /// For a connect from the host: whose guests are meant
        #[arg(long, value_name = "NAME", conflicts_with = "from")]
        group: Option<Name>,
        /// Destination CID
        #[arg(long)]
        cid: u32,
        /// Destination port number
        #[arg(long, value_name = "N")]
        port: u32,
        /// Socket type [default: stream]
        #[arg(long = "type", value_name = "TYPE", value_parser = socket_kind)]
        socket_type: Option<SocketKind>,
    },
}

/// `stream` or `seqpacket`.
fn socket_kind(text: &str) -> Result<SocketKind, String> {
    match text {
        "stream" => Ok(SocketKind::Stream),
        "seqpacket" => Ok(SocketKind::Seqpacket),
        _ => Err("expected stream or seqpacket".into()),
    }
}
