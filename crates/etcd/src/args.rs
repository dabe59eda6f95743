//! Options and verbs of `causeway-directory`, for its `main`. The comments of the fields are the
//! texts of the help and of the manual page. Files and endpoints that options name are not examined
//! here.

use std::net::SocketAddr;
use std::path::PathBuf;

use causeway_cluster::limits::{TOKEN_SECONDS_MAX, TOKEN_SECONDS_MIN};
use causeway_model::limits::{LINK_IDLE_SECONDS, LINK_IDLE_SECONDS_MAX, LINK_IDLE_SECONDS_MIN};
use causeway_model::{Forwarding, Name};
use clap::{Args, Parser, Subcommand};

use crate::stream::Endpoint;

/// Examples of the help and the manual page.
pub const EXAMPLES: &str = "\
Examples:
  causeway-directory --etcd http://192.0.2.1:2379 --site lab init --group blue=7
      make the site lab in etcd, with the shared group blue
  causeway-directory --etcd http://192.0.2.1:2379 --site lab token create --host host3 --ttl 1h
      print a token by which host3 may join within an hour, once
  causeway-directory join http://192.0.2.1:2379 --token TOKEN
      join this host to the site of the token: makes the key, writes
      /etc/causeway/directory.env, and starts the service
  causeway-directory --etcd http://192.0.2.1:2379 join --endpoint 192.0.2.11 --group blue=7
      the same without a token, with a further group
  causeway-directory --etcd http://192.0.2.1:2379 group list
      list the groups that the site shares
  causeway-directory --etcd http://192.0.2.1:2379 group set blue --rules blue.toml
      state the rules of the group blue for all hosts
  causeway-directory --etcd http://192.0.2.1:2379 evict host3
      refuse the records of host3, for example because its key was stolen

`causeway cluster status` shows the state. While etcd is away, links and addresses stay as they
are. SIGTERM ends the process; links stay.

Exit status: 0 done, 1 error, 2 wrong usage, 3 not found.";

/// Connects a daemon to etcd: hosts of a site find each other's guests, and open encrypted links
/// to each other.
#[derive(Debug, Parser)]
#[command(name = "causeway-directory", version, after_help = EXAMPLES)]
pub struct DirectoryArgs {
    /// The site and its etcd.
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// The verb.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Print the manual page (roff) and exit
    #[arg(long, exclusive = true)]
    pub man: bool,
}

/// The site, and access to etcd.
#[derive(Debug, Clone, Args)]
pub struct EtcdArgs {
    /// URL of etcd, http://HOST:PORT or https://HOST:PORT; several times or with commas for the
    /// members of a cluster
    #[arg(
        long,
        value_name = "URL",
        env = "CAUSEWAY_ETCD",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379",
        global = true
    )]
    pub etcd: Vec<Endpoint>,
    /// Name of the site: the hosts of one site share its groups
    #[arg(
        long,
        value_name = "NAME",
        env = "CAUSEWAY_SITE",
        default_value = "default",
        global = true
    )]
    pub site: Name,
    /// File with the authorities of etcd's certificate (PEM), for https
    #[arg(long, value_name = "FILE", env = "CAUSEWAY_ETCD_CA", global = true)]
    pub etcd_ca: Option<PathBuf>,
    /// File with the certificate of this host (PEM)
    #[arg(
        long,
        value_name = "FILE",
        env = "CAUSEWAY_ETCD_CERT",
        requires = "etcd_key",
        global = true
    )]
    pub etcd_cert: Option<PathBuf>,
    /// File with the private key of that certificate (PEM)
    #[arg(
        long,
        value_name = "FILE",
        env = "CAUSEWAY_ETCD_KEY",
        requires = "etcd_cert",
        global = true
    )]
    pub etcd_key: Option<PathBuf>,
    /// User of etcd, if etcd has authentication
    #[arg(
        long,
        value_name = "NAME",
        env = "CAUSEWAY_ETCD_USER",
        requires = "etcd_password_file",
        global = true
    )]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(
        long,
        value_name = "FILE",
        env = "CAUSEWAY_ETCD_PASSWORD_FILE",
        requires = "etcd_user",
        global = true
    )]
    pub etcd_password_file: Option<PathBuf>,
}

/// A verb.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make the site in an etcd, or check that it exists; share groups, and prepare roles of etcd
    #[command(after_help = INIT_HELP)]
    Init(InitArgs),
    /// Tokens by which hosts join, once and within a time
    #[command(subcommand)]
    Token(TokenVerb),
    /// Join this host to the site: make the key if there is none, write the settings of the
    /// service, and start it
    #[command(after_help = JOIN_HELP)]
    Join(JoinArgs),
    /// Connect this host to the site, until a signal: the service runs it
    Run(RunArgs),
    /// Groups that the site shares
    #[command(subcommand)]
    Group(GroupVerb),
    /// Refuse the records and claims of a host, and close the links to it
    Evict {
        /// Name of the host
        host: Name,
        /// Reason, as text
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// End the eviction of a host
    Readmit {
        /// Name of the host
        host: Name,
    },
    /// Confirm removals that this host holds because too many records disappeared in one step
    Release {
        /// Directory of the process's state
        #[arg(
            long,
            value_name = "DIR",
            env = "CAUSEWAY_DIRECTORY_STATE",
            default_value = "/var/lib/causeway/directory"
        )]
        state: PathBuf,
    },
    /// Print all records of the site as JSON
    Export,
    /// Write the groups and evictions of an export; hosts and claims return by themselves
    Import {
        /// The file
        file: PathBuf,
    },
}

const INIT_HELP: &str = "\
The verb can be repeated: what exists stays, and a group with another number is an error.

Examples:
  causeway cluster init --etcd http://192.0.2.1:2379 --site lab --group blue=7
  causeway cluster init --etcd http://192.0.2.1:2379 --site lab --role host1 --role host2
      prints the commands of etcdctl that make a role for each host
  causeway cluster init --etcd http://192.0.2.1:2379 --site lab --role host1 --apply-roles
      makes the role by etcd's API; with authentication, give --etcd-user root";

const JOIN_HELP: &str = "\
A refused token changes nothing on this host. After a token was used, a repetition of the verb needs
another one. A repetition keeps CAUSEWAY_LOCAL, CAUSEWAY_LINK_IDLE, CAUSEWAY_CONTROL and
CAUSEWAY_DIRECTORY_STATE in the settings.

Examples:
  causeway cluster join http://192.0.2.1:2379 --token TOKEN
  CAUSEWAY_TOKEN=TOKEN causeway cluster join http://192.0.2.1:2379 --endpoint 192.0.2.13
      the token does not appear in the list of processes
  causeway cluster join --etcd http://192.0.2.1:2379 --site lab --endpoint 192.0.2.11 --group blue=7
      without a token";

const GROUP_SET_HELP: &str = "\
A value that is not given stays. Rules of the site come before those of each host, which decide only
connects that no rule of the site matches; their sides name the group, */ or host. A host applies a
change when its causeway-directory sees it in etcd, usually within a second; without etcd it keeps
the values before. Open connections go on. A host of an older release applies neither rules nor
forwarding of the site.

Examples:
  causeway cluster group set blue --forwarding routes --etcd http://192.0.2.1:2379 --site lab
  causeway cluster group set blue --rules blue.toml --etcd http://192.0.2.1:2379 --site lab
      with this in blue.toml:
        [[rule]]
        action = \"accept\"
        from = \"blue/3:*\"
        to = \"blue/*:22\"
        [[rule]]
        action = \"reject\"
        to = \"blue/*:22\"
  causeway cluster group set blue --no-rules --etcd http://192.0.2.1:2379 --site lab";

const GROUP_SHOW_HELP: &str = "\
Examples:
  causeway cluster group show blue --etcd http://192.0.2.1:2379 --site lab
  causeway rule list
      the rules as a host has them in force, with the connects that each decided";

const TOKEN_HELP: &str = "\
Examples:
  causeway cluster token create --etcd http://192.0.2.1:2379 --site lab --host host3 --ttl 1h
  causeway cluster token list --etcd http://192.0.2.1:2379 --site lab
  causeway cluster token delete 0123456789abcdef --etcd http://192.0.2.1:2379 --site lab";

/// Options of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Group to share, with its number on the wire, such as blue=7; may be repeated
    #[arg(long, value_name = "NAME=VNI", value_parser = group_and_vni)]
    pub group: Vec<(Name, u32)>,
    /// Host for which etcd gets a role of this name, with the rights that a host needs; may be
    /// repeated
    #[arg(long, value_name = "HOST")]
    pub role: Vec<Name>,
    /// Make the roles by etcd's API, instead of printing the commands of etcdctl
    #[arg(long, requires = "role")]
    pub apply_roles: bool,
}

/// A verb about tokens.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and print it: etcd keeps a digest only, and the token cannot be shown again
    #[command(after_help = TOKEN_HELP)]
    Create {
        /// Only host that may use the token; without it, any host
        #[arg(long, value_name = "NAME")]
        host: Option<Name>,
        /// Time until the token expires: a number with s, m, h or d; 1s to 30d
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = token_time)]
        ttl: u64,
    },
    /// List tokens, and the numbers of refused joins by reason
    #[command(after_help = TOKEN_HELP)]
    List,
    /// Delete a token, so that no host joins with it
    #[command(after_help = TOKEN_HELP)]
    Delete {
        /// The 16 digits of the token between its dots, as list shows them
        id: String,
    },
}

/// A verb about groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Share a group: hosts that have a group of this name are linked
    Add {
        /// Name of the group
        name: Name,
        /// Number of the group on the wire, unique in the site
        #[arg(long, value_parser = clap::value_parser!(u32).range(0..=16_777_215))]
        vni: u32,
    },
    /// Do not share a group any more
    Del {
        /// Name of the group
        name: Name,
    },
    /// Set the forwarding and the rules of a group on all hosts of the site; share it if it is not
    #[command(after_help = GROUP_SET_HELP)]
    Set(GroupSet),
    /// Show a group: number, forwarding and rules
    #[command(after_help = GROUP_SHOW_HELP)]
    Show {
        /// Name of the group
        name: Name,
    },
    /// List the groups
    List,
}

/// Options of `group set`.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("value").required(true).multiple(true)))]
pub struct GroupSet {
    /// Name of the group
    pub name: Name,
    /// Number of the group on the wire, unique in the site; required for a new group
    #[arg(long, group = "value", value_parser = clap::value_parser!(u32).range(0..=16_777_215))]
    pub vni: Option<u32>,
    /// Frames that no route matches: learn (forward as a switch) or routes (drop), on every host
    /// instead of its own value
    #[arg(long, value_name = "WORD", group = "value", value_parser = forwarding)]
    pub forwarding: Option<Forwarding>,
    /// Leave the forwarding to each host
    #[arg(long, group = "value", conflicts_with = "forwarding")]
    pub no_forwarding: bool,
    /// File of the group's rules as `[[rule]]` tables, - for standard input; replaces all rules of
    /// the site about the group, at most 64
    #[arg(long, value_name = "FILE", group = "value")]
    pub rules: Option<PathBuf>,
    /// Delete the rules of the site about the group
    #[arg(long, group = "value", conflicts_with = "rules")]
    pub no_rules: bool,
}

/// Options of the process.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of this host, unique in the site; by default the host name up to its first dot
    #[arg(long, value_name = "NAME", env = "CAUSEWAY_HOST")]
    pub host: Option<Name>,
    /// Address and UDP port at which other hosts reach this one, the preferred first; without a
    /// port, that of --local
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "CAUSEWAY_ENDPOINT",
        value_delimiter = ',',
        required = true
    )]
    pub endpoint: Vec<String>,
    /// Address and UDP port at which this host receives
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "CAUSEWAY_LOCAL",
        default_value = "0.0.0.0:51871"
    )]
    pub local: SocketAddr,
    /// File of the private key of tunnels, as `causeway key generate` makes it
    #[arg(long, value_name = "FILE", env = "CAUSEWAY_KEY", default_value = "/etc/causeway/key")]
    pub key: PathBuf,
    /// Time without traffic after which a link to another host goes dormant, until the next frame, 10
    /// to 86400; 0 for links that are always awake, which multicast between hosts needs
    #[arg(
        long,
        value_name = "SECONDS",
        env = "CAUSEWAY_LINK_IDLE",
        value_parser = idle_seconds,
        default_value_t = LINK_IDLE_SECONDS
    )]
    pub idle: u32,
    /// Control socket of causewayd
    #[arg(
        long,
        value_name = "PATH",
        env = "CAUSEWAY_CONTROL",
        default_value = "/run/causeway/control.sock"
    )]
    pub control: PathBuf,
    /// Directory for the signing key and the snapshot
    #[arg(
        long,
        value_name = "DIR",
        env = "CAUSEWAY_DIRECTORY_STATE",
        default_value = "/var/lib/causeway/directory"
    )]
    pub state: PathBuf,
    /// Do not restrict the process
    #[arg(long)]
    pub no_sandbox: bool,
}

/// Options of `join`.
#[derive(Debug, Clone, Args)]
pub struct JoinArgs {
    /// URL of etcd, several with commas; without it, that of --etcd
    #[arg(value_name = "URL", value_delimiter = ',')]
    pub url: Vec<Endpoint>,
    /// Token of `token create`, which names the site; used once
    #[arg(long, value_name = "TOKEN", env = "CAUSEWAY_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Name of this host, unique in the site; by default that of the token, or the host name up to
    /// its first dot
    #[arg(long, value_name = "NAME")]
    pub host: Option<Name>,
    /// Address and UDP port at which other hosts reach this one, the preferred first; by default
    /// the address from which this host reaches etcd
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub endpoint: Vec<String>,
    /// Group to share, with its number on the wire, such as blue=7; may be repeated
    #[arg(long, value_name = "NAME=VNI", value_parser = group_and_vni)]
    pub group: Vec<(Name, u32)>,
    /// File of the private key of tunnels; made if it does not exist
    #[arg(long, value_name = "FILE", env = "CAUSEWAY_KEY", default_value = "/etc/causeway/key")]
    pub key: PathBuf,
    /// File for the settings of the service
    #[arg(
        long,
        value_name = "FILE",
        env = "CAUSEWAY_DIRECTORY_SETTINGS",
        default_value = "/etc/causeway/directory.env"
    )]
    pub settings: PathBuf,
    /// Write the files only, and do not start the service
    #[arg(long, conflicts_with = "run")]
    pub no_start: bool,
    /// Become the process instead of starting the service: in a container, and where systemd does not
    /// run
    #[arg(long)]
    pub run: bool,
}

/// Reads the idle time of links.
fn idle_seconds(text: &str) -> Result<u32, String> {
    let valid =
        |idle: &u32| *idle == 0 || (LINK_IDLE_SECONDS_MIN..=LINK_IDLE_SECONDS_MAX).contains(idle);
    text.parse().ok().filter(valid).ok_or_else(|| {
        format!("expected 0, or {LINK_IDLE_SECONDS_MIN} to {LINK_IDLE_SECONDS_MAX} seconds")
    })
}

/// Reads a forwarding mode.
fn forwarding(text: &str) -> Result<Forwarding, String> {
    let known = serde_json::from_value(text.into());
    known.map_err(|_| format!("expected {}", Forwarding::NAMES.join(" or ")))
}

/// Reads `NAME=VNI`.
fn group_and_vni(text: &str) -> Result<(Name, u32), String> {
    let wrong = || format!("{text:?}: expected NAME=VNI, with a VNI from 0 to 16777215");
    let (name, vni) = text.split_once('=').ok_or_else(wrong)?;
    let vni = vni.parse().ok().filter(|vni| *vni <= 16_777_215).ok_or_else(wrong)?;
    Ok((name.parse().map_err(|error: causeway_model::SpecError| error.to_string())?, vni))
}

/// Reads a time such as `90s`, `10m`, `1h` or `2d`, in seconds.
fn token_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?}: expected a number with s, m, h or d, from 1s to 30d");
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => return Err(wrong()),
    };
    let count = text.get(..text.len().saturating_sub(1)).and_then(|n| n.parse::<u64>().ok());
    let seconds = count.and_then(|count| count.checked_mul(unit)).ok_or_else(wrong)?;
    let range = TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX;
    range.contains(&seconds).then_some(seconds).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_times_have_a_unit_and_a_range() {
        assert_eq!(token_time("90s"), Ok(90));
        assert_eq!((token_time("10m"), token_time("1h")), (Ok(600), Ok(3_600)));
        assert_eq!(token_time("30d"), Ok(2_592_000));
        for text in ["", "1", "h", "0s", "31d", "-1h", "1.5h", "18446744073709551615d", "1\u{e9}"] {
            assert!(token_time(text).is_err(), "{text}");
        }
    }
}
