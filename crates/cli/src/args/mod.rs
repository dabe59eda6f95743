//! The command line: `causeway NOUN VERB [NAME] [--flag]`.
//!
//! Help texts, manual pages and completions are generated from these definitions. Options of ports,
//! links, groups, rules, routes and forwards derive from the tables of `causeway-model`
//! ([`options`]).
//!
//! The module only parses: `main` calls it once, and `commands::run` executes the result. clap
//! refuses a wrong command line with exit status 2 before a verb sends a request. Forms and ranges
//! that the tables state are checked here; conditions between values, and whether an object exists,
//! are checked by the daemon. A documentation comment of a type here is its help text.

mod capture;
mod cluster;
mod connections;
mod delete;
mod doctor;
#[cfg(test)]
mod document_tests;
mod extcap;
mod forward;
mod links;
mod mpi;
pub mod options;
mod top;
mod vm;
mod web;

use std::path::PathBuf;

use causeway_model::SocketKind;
use causeway_model::{GroupSpec, RuleSpec};
use causeway_model::{Mac, Name};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::limits::{SECONDS_MAX, TIMEOUT_S_DEFAULT};

pub use capture::{CaptureArgs, CaptureConditions};
pub use cluster::{ClusterVerb, ClusterWatchArgs};
pub use connections::{ConnectionList, ConnectionVerb};
pub use delete::DeleteOptions;
pub use doctor::DoctorArgs;
pub use extcap::ExtcapArgs;
pub use forward::{ForwardAdd, ForwardArgs, ForwardVerb};
pub use links::{ApplyArgs, KeyVerb, LinkAdd, LinkVerb, RouteVerb, VnetArgs};
pub use mpi::{Mpi, MpiChoice, MpiEnvArgs, MpiRunArgs};
pub use options::{PortOptionValues, TableArguments};
pub use top::{TopArgs, TopView};
pub use vm::{AttachOptions, VmVerb};
pub use web::WebArgs;

const EXAMPLES: &str = "\
Examples:
  causeway port list
  causeway port add vm3-net --kind net --group blue
  causeway port show vm3-net --for qemu
  causeway vm show vm3 --for libvirt
  causeway rule add reject --from 'blue/3:*' --to 'blue/4:22'
  causeway link add to-b --group blue --remote host-b --key KEY
  causeway trace connect --from vm1-vsock --cid 4 --port 22
  causeway trace connect --from vm1-vsock --cid 2 --port 9999 --type seqpacket
  causeway apply -f /etc/causeway/causeway.toml --dry-run
  causeway config diff
  causeway stats --interval 1
  causeway top

Nouns and verbs may be abbreviated to a unique prefix: `causeway po l`.

Exit status: 0 done, 1 error, 2 wrong usage, 3 not found, 4 no daemon, 5 no answer in time,
65 only a part of the changes was made.";

/// Shows and changes the ports, groups, rules, links and routes of this host's causewayd.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, after_help = EXAMPLES, infer_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// The noun, with its verb and arguments.
    #[command(subcommand)]
    pub noun: Noun,
    /// Options of every command.
    #[command(flatten)]
    pub common: CommonOptions,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub struct CommonOptions {
    /// The daemon's control socket [default: /run/causeway/control.sock, or for an ordinary user
    /// $XDG_RUNTIME_DIR/causeway/control.sock if it exists]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CAUSEWAY_CONTROL",
        hide_env_values = true
    )]
    pub control: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value = "table")]
    pub output: OutputFormat,
    /// Same as --output json
    #[arg(short, long, global = true)]
    pub json: bool,
    /// Time to wait for the daemon's answer, in seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = TIMEOUT_S_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub timeout: u64,
}

/// Value of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Aligned text for people
    Table,
    /// JSON for programs; fields are added, never changed
    Json,
    /// OpenMetrics 1.0, of `stats` only
    Openmetrics,
    /// Text format of Prometheus, of `stats` only
    Prometheus,
}

impl OutputFormat {
    /// Returns the format of values.
    pub fn of_values(self) -> Format {
        if self == Self::Json { Format::Json } else { Format::Table }
    }

    /// Returns the type of content of a format for metrics, `None` for the other formats.
    pub fn of_metrics(self) -> Option<&'static str> {
        match self {
            Self::Openmetrics => Some("application/openmetrics-text; version=1.0.0"),
            Self::Prometheus => Some("text/plain; version=0.0.4"),
            Self::Table | Self::Json => None,
        }
    }
}

/// Output format of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned text for people.
    Table,
    /// JSON for programs.
    Json,
}

/// The noun of a command line.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Ports: the attached devices of guests
    #[command(subcommand)]
    Port(PortVerb),
    /// VMs: guests with their ports
    #[command(subcommand)]
    Vm(VmVerb),
    /// Groups: ports that may exchange traffic
    #[command(subcommand)]
    Group(GroupVerb),
    /// Rules: which socket connects are accepted
    #[command(subcommand)]
    Rule(RuleVerb),
    /// Links: paths to peers (other hosts)
    #[command(subcommand)]
    Link(LinkVerb),
    /// Routes: which frames go to which port or link, before learnt addresses apply
    #[command(subcommand)]
    Route(RouteVerb),
    /// Connections: AF_VSOCK connections between guests, and with host processes
    #[command(subcommand)]
    Connection(ConnectionVerb),
    /// Show the traffic between the addresses of a group, the busiest pairs first
    #[command(after_help = "Examples:\n  causeway traffic blue\n  causeway traffic blue -o json")]
    Traffic {
        /// Name of the group
        group: Name,
    },
    /// Write frames that pass a port or a link, or packets of a vsock port, to a file for Wireshark
    #[command(after_help = "\
A frame is written if it passes all given filters. At an adapter (kind hca) the messages of its
queue pairs are written, as packets of RoCE version 2; at a vsock port the socket packets of its
guest (link type VSOCK), which are selected by --port alone. The capture ends with Ctrl-C, after
--count or --seconds, or when the port or link is deleted.

Examples:
  causeway capture vm1 --write vm1.pcapng --count 100
  causeway capture --link to-b --protocol tcp --port 80 --write - | tshark -r -
  causeway capture vm1 --ethertype arp --seconds 10 --write arp.pcapng
  causeway capture vm1-rdma --snap 128 --write verbs.pcapng
  causeway capture vm1-vsock --port 22 --write ssh.pcapng")]
    Capture(Box<CaptureArgs>),
    /// Serve Wireshark as an extcap program: ports and links in its list of interfaces
    #[command(after_help = extcap::EXAMPLES)]
    Extcap(Box<ExtcapArgs>),
    /// Keys: the identity of this host towards its peers
    #[command(subcommand)]
    Key(KeyVerb),
    /// Change groups, ports, rules, links, routes and forwards to those of a file, and show the changes
    #[command(after_help = "\
Lines begin with + for an added object, - for a deleted one, ~ for one that is deleted and
added again. The first step that fails ends the command; changes made before it remain.
[daemon], [dispatch] and [control] are only read when causewayd starts. Objects of another file
than that of causewayd are kept in its state file, unless --ephemeral is given.

Examples:
  causeway apply -f causeway.toml --dry-run
  causeway apply -f causeway.toml")]
    Apply(ApplyArgs),
    /// Configuration: print the running state as a file, and compare it with a file
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Execute a file of VNET commands; all lines are checked before anything changes
    #[command(after_help = "\
Examples:
  causeway vnet links.vnet --group blue --dry-run
  echo 'ADD LINK 10.0.0.2 9000 UDP' | causeway vnet - --group blue")]
    Vnet(VnetArgs),
    /// Print the environment with which an MPI program uses this host's NICs (kind mx)
    #[command(after_help = mpi::ENV_EXAMPLES)]
    MpiEnv(MpiEnvArgs),
    /// Run an MPI program over this host's NICs (kind mx), or nothing if they cannot be used
    #[command(after_help = mpi::RUN_EXAMPLES)]
    MpiRun(MpiRunArgs),
    /// Forward connections between TCP, Unix sockets and AF_VSOCK ports of guests
    #[command(after_help = forward::EXAMPLES)]
    Forward(Box<ForwardArgs>),
    /// Serve a read-only web page with groups, ports, links and their traffic, live
    #[command(after_help = web::EXAMPLES)]
    Web(WebArgs),
    /// Cluster: the other hosts of the site, which this host finds through etcd
    #[command(
        subcommand,
        after_help = "Verbs of causeway-directory(8), the program that connects to etcd, work here too: init, token, \
                      join, group, evict, readmit, release, export, import. Each has --help."
    )]
    Cluster(ClusterVerb),
    /// Peers: NICs of other hosts that this host's NICs (kind mx) know
    #[command(subcommand)]
    Peer(PeerVerb),
    /// NICs: those of this host (kind mx), with their processes in guests and on the host
    #[command(subcommand)]
    Nic(NicVerb),
    /// HCAs: host channel adapters of guests (kind hca), with their queue pairs
    #[command(subcommand)]
    Hca(HcaVerb),
    /// Dispatchers: the threads that serve ports and links
    #[command(subcommand)]
    Dispatcher(DispatcherVerb),
    /// Show the counters of all ports, or their rates
    #[command(after_help = "\
Examples:
  causeway stats                        totals since the daemon started
  causeway stats --interval 1           rates, every second until interrupted
  causeway stats --interval 5 --count 1 rates over five seconds, once
  causeway stats -o openmetrics         all metrics, as Prometheus scrapes them")]
    Stats(StatsArgs),
    /// Show ports, links, dispatchers and connections live, with their rates
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),
    /// Explain the destination of a frame or a connect, or the connections of adapters
    #[command(subcommand)]
    Trace(TraceVerb),
    /// Check this host and the daemon for problems, and name the remedy of each
    #[command(after_help = "\
Checked are KVM, QEMU, shared memory, sockets and their groups, AppArmor, keys, the MTU of links,
the firewall, the clock, limits of the process, the daemon's version, the holder, and ports and
links that do not work. A check that needs the daemon is left out without one. Nothing is changed.

Exit status: 0 without a failed check, 1 otherwise; warnings do not count.

Examples:
  causeway doctor
  causeway doctor --user libvirt-qemu
  causeway doctor -o json")]
    Doctor(DoctorArgs),
    /// Show version, process and paths of the daemon
    #[command(after_help = "Example:\n  causeway info")]
    Info,
    /// Stop the daemon; guests of held ports stay connected until the next start
    #[command(after_help = "\
The key hold in [daemon] selects the held ports, vsock devices by default: QEMU does not
reconnect these, so that a disconnected guest has no sockets until it reboots.

Examples:
  causeway shutdown
  causeway shutdown --release")]
    Shutdown {
        /// Disconnect the guests of held ports too, for a stop without a later start
        #[arg(long)]
        release: bool,
    },
    /// Print the completions of a shell
    #[command(after_help = "\
Example:
  causeway completion bash > /usr/share/bash-completion/completions/causeway")]
    Completion {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory, or print the first one
    #[command(after_help = "Example:\n  causeway man /usr/share/man/man1")]
    Man {
        /// Directory of the manual pages
        dir: Option<PathBuf>,
    },
}

/// `causeway port …`
#[derive(Debug, Subcommand)]
pub enum PortVerb {
    /// List all ports
    #[command(after_help = "Examples:\n  causeway port list\n  causeway port list --group blue -j")]
    List {
        /// Only ports of this group
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
    },
    /// Show a port, or the options that attach a guest to it
    #[command(after_help = "\
The options attach this port only; `causeway vm show VM --for VMM` prints those of all ports of a
VM. Notes in the output state for which version they are, and what the guest needs.

Examples:
  causeway port show vm1-net
  causeway port show vm1-net --for qemu
  causeway port show vm1-net --for qemu --qemu-version 11.1 --memory 2G
  causeway port show vm1-vsock --for libvirt
  causeway port show vm1-net --for cloud-hypervisor -o json")]
    Show {
        /// Name of the port
        name: Name,
        /// The VMM and the form of its options.
        #[command(flatten)]
        attach: AttachOptions,
    },
    /// Add a port; it listens at once
    #[command(after_help = "\
Examples:
  causeway port add vm3-net --kind net --group blue
  causeway port add try --kind net --group blue --ephemeral
  causeway port add vm3-vsock --kind vsock --group blue --cid 5
  causeway port add a --kind vsock --group blue --cid 6 --host-socket /run/a.vsock
  causeway port add mx0 --kind mx --group blue
  causeway port add vm3-rdma --kind hca --group blue --queue-pairs-max 1024")]
    Add(Box<PortAdd>),
    /// Delete a port, and close its connections and its socket
    #[command(after_help = "\
On a terminal, a port with a connected guest is deleted only after a confirmation, which states the
guest's loss. Without a terminal at standard input and standard error, and with JSON output, there
is no question: scripts go on as before.

Examples:
  causeway port del vm3-net
  causeway port del vm3-net --force
  causeway port del vm3-net --if-exists -j")]
    Del {
        /// Name of the port
        name: Name,
        /// Delete the port without a confirmation
        #[arg(short, long)]
        force: bool,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// `causeway port add`
#[derive(Debug, Args)]
pub struct PortAdd {
    /// Name of the port, unique in the daemon
    pub name: Name,
    /// Kind and values of the port.
    #[command(flatten)]
    pub values: PortOptionValues,
    /// Succeed if the same port exists already
    #[arg(long)]
    pub may_exist: bool,
    /// Only until the next start of causewayd: not in its state file
    #[arg(long)]
    pub ephemeral: bool,
}

/// `causeway group …`
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all groups
    #[command(after_help = "Example:\n  causeway group list")]
    List,
    /// Show a group
    #[command(after_help = "Example:\n  causeway group show blue")]
    Show {
        /// Name of the group
        name: Name,
    },
    /// Add a group
    #[command(after_help = "Example:\n  causeway group add blue --may-exist")]
    Add {
        /// Name and values of the group.
        #[command(flatten)]
        values: TableArguments<GroupSpec>,
        /// Succeed if the same group exists already
        #[arg(long)]
        may_exist: bool,
        /// Only until the next start of causewayd: not in its state file
        #[arg(long)]
        ephemeral: bool,
    },
    /// Delete a group that has no ports and no links
    #[command(after_help = "Example:\n  causeway group del blue --if-exists")]
    Del {
        /// Name of the group
        name: Name,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// `causeway peer …`
#[derive(Debug, Subcommand)]
pub enum PeerVerb {
    /// List the peers' NICs: source of the entry, state, and exchanged messages
    #[command(after_help = "\
KNOWN is `announced` if the NIC announced itself, `static` if the configuration names it.
The counters of each NIC are in `causeway peer show` and in `-o json`.

Example:
  causeway peer list")]
    List,
    /// Show a NIC: its connections to endpoints of this host, and their counters
    #[command(after_help = "\
IN FLIGHT is the number of messages sent and not acknowledged, WAITING the number queued
behind them, PARKED the bytes received that this host's endpoint has not read yet. Counters
that are 0 are omitted; `-o json` has them.

Examples:
  causeway peer show far:0
  causeway peer show 02:00:00:00:00:0b -o json")]
    Show {
        /// Hostname or address of the NIC, as `causeway peer list` prints it
        nic: String,
    },
}

/// `causeway nic …`
#[derive(Debug, Subcommand)]
pub enum NicVerb {
    /// List this host's NICs: the guest that they serve, processes, endpoints, and messages
    #[command(after_help = "\
GUEST is the port of the guest's adapter (`--adapter`), with `(waits)` while that port does not
exist. PROCESSES counts those of the host and of the guest, SESSIONS those of the guest. SENT and
RECEIVED count messages through the daemon, of closed endpoints too; messages between processes
of one host do not pass the daemon, unless CAUSEWAY_MX_CHANNELS=0. WARNINGS and the reason of the
last refusal are in `causeway nic show`.

Example:
  causeway nic list")]
    List,
    /// Show a NIC: processes with their sessions and endpoints, warnings, and the last refusal
    #[command(after_help = "\
A process of a guest has a SESSION: its connection by the guest's adapter, with a new number each
time. STATE of a process is `attaching`, `active`, `paused` (at its rate of requests), `not
reading` (16 messages wait for it) or `ending`.

RINGS of an endpoint are `polled`, `parked` (the dispatcher waits for the doorbell), `deferred`
(the next request waits for a limit), `unread` with the time for which the process has read no
events, `closing`, `direct` (bypass) or `channels` (the daemon serves no rings: messages go from
process to process). BYTES SENT of a long message count when its receiver has pulled it.

REFUSAL is the last rule that a process broke, or limit that it met; NOTICE the last request that
found too few resources. `-o json` has the counters of each endpoint.

Examples:
  causeway nic show vm1-mx
  causeway nic show vm1-mx -o json")]
    Show {
        /// Name of the port, as `causeway nic list` prints it
        port: Name,
    },
}

/// `causeway hca …`
#[derive(Debug, Subcommand)]
pub enum HcaVerb {
    /// List the adapters: state of the guest's driver, objects, and messages
    #[command(after_help = "\
STATE is `no driver` until the guest's driver finds the adapter, `starting` until the driver
has made queues, then `active`. QPS, CQS and MRS are the numbers of queue pairs, completion
queues and memory regions, REGISTERED the bytes in these regions. REQUESTS and BYTES count the
guest's finished send work requests and their payload, ERRORS the failed work requests.

Example:
  causeway hca list")]
    List,
    /// Show an adapter: its objects and limits, rates, errors, queue pairs with their peers, counters
    #[command(after_help = "\
PEER is the port of the connected queue pair, or its MAC address if no adapter of the group
has the address: RDMA does not leave the group and this host. `(service)` is a service of
causewayd, as the NIC of the guest's processes (kind mx). WAITS is `responder` or
`receive` (a receive work request of the peer) while a reliable request waits; a queue pair
waits with one request. REFUSAL is the reason why the last request found no responder, and
the number of such requests. RATES are means a second over the last seconds. At most 256
queue pairs are shown. Counters that are 0 are omitted; `-o json` has them.

Examples:
  causeway hca show vm1-rdma
  causeway hca show vm1-rdma -o json")]
    Show {
        /// Name of the port, as `causeway hca list` prints it
        port: Name,
    },
}

/// `causeway dispatcher …`
#[derive(Debug, Subcommand)]
pub enum DispatcherVerb {
    /// List the dispatchers with their load and their shards
    #[command(after_help = "\
Groups are moved to another dispatcher to relieve a busy one. SPIN is the time for which an
empty queue is polled before its doorbell is armed; it is reduced while processors are scarce.

Example:
  causeway dispatcher list")]
    List,
    /// Move a group to another dispatcher; nothing is lost or reordered
    #[command(after_help = "\
Examples:
  causeway dispatcher move blue 1
  causeway dispatcher move blue 0 --service vsock")]
    Move {
        /// Name of the group
        group: Name,
        /// Number of the dispatcher, from 0
        dispatcher: usize,
        /// Only the ports of this kind
        #[arg(long, value_name = "KIND")]
        service: Option<String>,
    },
}

/// `causeway rule …`
#[derive(Debug, Subcommand)]
pub enum RuleVerb {
    /// List all rules in their order: those of the cluster about its groups come first
    #[command(after_help = "\
A rule of the origin `cluster` is in the record of its group, and is changed on all hosts by
`causeway cluster group set GROUP --rules FILE`. The rules of the origin `host` decide connects that
no such rule matches.

Examples:
  causeway rule list
  causeway rule list -o json")]
    List,
    /// Add a rule; the first rule that matches a connect decides it
    #[command(after_help = "\
A side is GROUP/CID:PORT or host:PORT. Each part may be *, and PORT may be FIRST-LAST.

Examples:
  causeway rule add reject --from 'blue/3:*' --to 'blue/4:22'
  causeway rule add accept --from 'host:*' --to 'blue/*:1-1023' --index 0")]
    Add {
        /// Values of the rule, and its number.
        #[command(flatten)]
        values: TableArguments<RuleSpec>,
        /// Succeed if the same rule exists already, at any position
        #[arg(long)]
        may_exist: bool,
        /// Only until the next start of causewayd: not in its state file
        #[arg(long)]
        ephemeral: bool,
    },
    /// Delete a rule; the rules after it move up
    #[command(after_help = "Example:\n  causeway rule del 0")]
    Del {
        /// Number of the rule in `causeway rule list`; a rule of the cluster cannot be deleted here
        #[arg(value_parser = rule_number)]
        index: String,
        /// Missing objects, and the state file.
        #[command(flatten)]
        options: DeleteOptions,
    },
}

/// Parses the number of a rule, `GROUP:NUMBER` for one of the cluster.
fn rule_number(text: &str) -> Result<String, String> {
    let number = text
        .rsplit_once(':')
        .map_or(Some(text), |(group, number)| group.parse::<Name>().is_ok().then_some(number));
    let is_valid = number.is_some_and(|number| number.parse::<usize>().is_ok());
    is_valid.then(|| text.to_owned()).ok_or_else(|| "expected a number, from 0".to_owned())
}

/// `causeway config …`
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Print the whole running state as a configuration file of causewayd
    #[command(after_help = "\
Objects that were added while causewayd runs are included, also those that it does not keep.
Comments of the configuration file are not.

Examples:
  causeway config export
  causeway config export > causeway.toml && causewayd --config causeway.toml --check-config")]
    Export,
    /// Show the differences of the running state from the configuration file
    #[command(after_help = "\
Lines begin with + for an object that is not in the file, - for an object that is only in the
file, ~ for one with other values. `(kept)` marks objects of the state file of causewayd, which
the next start adds; with - such an object does not run now. The other differences end with the
process: the next start follows the file.

Exit status: 0 no difference, 1 differences, 2 and more as for other commands.

Examples:
  causeway config diff
  causeway config diff -f new.toml")]
    Diff {
        /// The configuration file, or - for standard input [default: that of the daemon]
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// `causeway stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Show rates over this time instead of totals, repeatedly, in seconds
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
    /// Explain an Ethernet frame that a port would send
    #[command(after_help = "\
Examples:
  causeway trace frame --from vm1-net --to 52:54:00:00:00:02
  causeway trace frame --from vm1-net --to ff:ff:ff:ff:ff:ff --source 52:54:00:00:00:09")]
    Frame {
        /// Name of the sending port
        #[arg(long, value_name = "PORT")]
        from: Name,
        /// Destination address
        #[arg(long, value_name = "MAC")]
        to: Mac,
        /// Source address [default: the port's own]
        #[arg(long, value_name = "MAC")]
        source: Option<Mac>,
    },
    /// Explain whether queue pairs of an adapter reach those of another (kind hca)
    #[command(after_help = "\
The verdict is `connected` if a queue pair of the first adapter sends to one of the second that
names it in return and receives, and the rules of the group permit it. It is `possible` if no
queue pair does, both guests have a driver, and the rules permit traffic to the second adapter;
else `refused`. Each queue pair that names the other adapter is explained: its state, that of its
peer, and the reason of its last refused request.

Examples:
  causeway trace verbs vm1-rdma vm2-rdma
  causeway trace verbs vm1-rdma vm2-rdma -o json")]
    Verbs {
        /// Port of the adapter that sends
        from: Name,
        /// Port of the adapter that receives
        to: Name,
    },
    /// Explain a socket connect by a port, or by the host
    #[command(after_help = "\
Examples:
  causeway trace connect --from vm1-vsock --cid 4 --port 22
  causeway trace connect --group blue --cid 4 --port 22     from the host")]
    Connect {
        /// Name of the connecting port [default: the host]
        #[arg(long, value_name = "PORT", required_unless_present = "group")]
        from: Option<Name>,
        /// For a connect by the host: group of the destination
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

/// Parses `stream` or `seqpacket`.
fn socket_kind(text: &str) -> Result<SocketKind, String> {
    match text {
        "stream" => Ok(SocketKind::Stream),
        "seqpacket" => Ok(SocketKind::Seqpacket),
        _ => Err("expected stream or seqpacket".into()),
    }
}
