//! Views of a cluster, and the messages between the daemon and the process `causeway-directory`.
//!
//! The process reads the addresses that this host has ([`ClusterLocal`], `POST
//! /v1/cluster/local`), and sends the hosts and addresses of the site ([`ClusterUpdate`], `POST
//! /v1/cluster/remote`). The link service keeps them, opens a link to each host that shares a
//! group, and fills [`ClusterView`] in for `GET /v1/cluster`.
//!
//! The messages have at most [`CLUSTER_UPDATE_MAX`](crate::limits::CLUSTER_UPDATE_MAX) entries
//! each: a longer state is sent in several updates. The module holds values only, and verifies no
//! claim: the process does. All of it runs in threads of control requests.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::LINK_IDLE_SECONDS;
use crate::{Mac, MxSpec, Name, PublicKeyText, SitePolicy};

/// A kind of addresses of which each has one owner in a group of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// AF_VSOCK: a number from 3 to 4294967294.
    Cid,
    /// Ethernet: `52:54:00:12:34:56`.
    Mac,
    /// MX: the name of a NIC.
    Nic,
    /// RDMA: a GID, in the form of an IPv6 address.
    Gid,
}

impl AddressKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Cid, Self::Mac, Self::Nic, Self::Gid];

    /// Returns the name of the kind, as keys of the directory and tools have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cid => "cid",
            Self::Mac => "mac",
            Self::Nic => "nic",
            Self::Gid => "gid",
        }
    }
}

/// Returns whether the hostname of an MX NIC can be the address of a claim. A name with a slash cannot:
/// in the keys of the directory, slashes separate.
pub fn is_claimable_nic_name(text: &str) -> bool {
    MxSpec::check_hostname(text).is_ok() && !text.contains('/')
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterAddress {
    /// Kind of the address.
    pub kind: AddressKind,
    /// Its group.
    pub group: Name,
    /// The address, as text.
    pub address: String,
}

impl ClusterAddress {
    /// Returns the Ethernet address; `None` for an address of another kind.
    pub fn mac(&self) -> Option<Mac> {
        (self.kind == AddressKind::Mac).then(|| self.address.parse().ok()).flatten()
    }

    /// Returns the CID; `None` for an address of another kind.
    pub fn cid(&self) -> Option<u32> {
        (self.kind == AddressKind::Cid).then(|| self.address.parse().ok()).flatten()
    }
}

/// An address of a guest that runs on this host, or of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The address.
    #[serde(flatten)]
    pub at: ClusterAddress,
    /// Time of day at which the address appeared here, in ns since 1970: of a CID, when its guest
    /// attached; of an Ethernet address or a NIC, when the daemon found it.
    pub since: u64,
}

/// A request for the addresses of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterLocalQuery {
    /// [`ClusterLocal::version`] of the last answer: the answer waits for a change.
    pub version: Option<u64>,
    /// [`ClusterLocal::daemon`] of the last answer.
    pub daemon: Option<u64>,
    /// Longest wait, in ms; 0 to
    /// [`CLUSTER_WAIT_MS_MAX`](crate::limits::CLUSTER_WAIT_MS_MAX) (5,000).
    pub wait_ms: u64,
    /// File of the private key of tunnels, of which the answer has the public key.
    pub private_key: PathBuf,
}

/// The groups and addresses of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLocal {
    /// Random number of the daemon: a restarted daemon has another, and knows no remote hosts.
    pub daemon: u64,
    /// Grows with each change of the groups and addresses.
    pub version: u64,
    /// The public key of tunnels.
    pub key: PublicKeyText,
    /// The groups of the daemon.
    pub groups: Vec<Name>,
    /// Addresses of guests that run, and names of NICs.
    pub addresses: Vec<LocalAddress>,
}

/// This host's end of the links that the cluster makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterTunnel {
    /// Address and UDP port at which this host receives.
    pub local: SocketAddr,
    /// File of the private key.
    pub private_key: PathBuf,
    /// Seconds without traffic after which a link goes dormant, 10 to 86400; 0 if links are always
    /// awake.
    #[serde(default = "link_idle_default")]
    pub idle: u32,
}

/// Returns the default idle time of the links of a cluster, in seconds.
const fn link_idle_default() -> u32 {
    LINK_IDLE_SECONDS
}

/// A group that a host shares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterGroup {
    /// Name.
    pub name: Name,
    /// Number of the group on the wire, 0 to 16777215; the same on every host of the site.
    pub vni: u32,
}

/// Another host of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterHost {
    /// Name of the host, unique in the site.
    pub id: Name,
    /// Public key of its tunnels.
    pub key: PublicKeyText,
    /// Addresses and UDP ports at which the host receives, the preferred first.
    pub endpoints: Vec<SocketAddr>,
    /// The groups that the host shares with the site.
    pub groups: Vec<ClusterGroup>,
    /// Whether the host's lease is alive. An unseen host keeps its links and addresses.
    pub seen: bool,
    /// Time of day at which the host's process started, in ns since 1970.
    pub epoch: u64,
}

/// An address of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAddress {
    /// The address.
    #[serde(flatten)]
    pub at: ClusterAddress,
    /// The host that has it.
    pub host: Name,
    /// Time of day at which the address appeared there, in ns since 1970.
    pub epoch: u64,
}

/// The state of the process `causeway-directory` and of its connection to etcd.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// Whether etcd answers.
    pub connected: bool,
    /// Reason of the last failure; empty if etcd answers.
    pub reason: String,
    /// The last revision of etcd that the process followed.
    pub revision: u64,
    /// Time since etcd confirmed this revision, in seconds.
    pub revision_age_seconds: f64,
    /// Duration of the last full read, in seconds.
    pub resync_seconds: f64,
    /// Changes with the hosts and the addresses of the site. A reader that finds another number reads
    /// them again, and once more later: an update with many entries is sent in parts.
    pub generation: u64,
    /// Evicted hosts, the first 64 by name.
    pub evicted: Vec<Name>,
    /// Event that needs an operator, with the remedy; empty without one.
    pub alarm: String,
    /// Counters by name, for example `claims_refused_total`.
    pub counters: BTreeMap<String, u64>,
}

/// Hosts, addresses and policies of the site, from the process to the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterUpdate {
    /// Name of the site.
    pub site: Name,
    /// Name of this host.
    pub host: Name,
    /// Random number of the process: two processes have different ones.
    pub instance: u64,
    /// This host's end of links.
    pub tunnel: ClusterTunnel,
    /// Whether the update is the first of a whole state.
    #[serde(default)]
    pub begin: bool,
    /// Whether the update is the last of a whole state: hosts, addresses and policies that were not
    /// named since its first are removed.
    #[serde(default)]
    pub end: bool,
    /// New and changed hosts.
    #[serde(default)]
    pub hosts: Vec<ClusterHost>,
    /// Hosts that left the site.
    #[serde(default)]
    pub removed_hosts: Vec<Name>,
    /// New and changed addresses.
    #[serde(default)]
    pub addresses: Vec<RemoteAddress>,
    /// Addresses that their host withdrew.
    #[serde(default)]
    pub removed_addresses: Vec<ClusterAddress>,
    /// New and changed policies of groups, also of groups that the host does not have.
    #[serde(default)]
    pub policies: Vec<SitePolicy>,
    /// Groups of which the site states no policy any more.
    #[serde(default)]
    pub removed_policies: Vec<Name>,
    /// The sender reports policies; absent in reports of older releases.
    #[serde(default)]
    pub has_policies: bool,
    /// State of the process.
    #[serde(default)]
    pub status: ClusterStatus,
}

/// Another host, as `causeway cluster hosts` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterHostView {
    /// The host.
    #[serde(flatten)]
    pub host: ClusterHost,
    /// Links to the host, by name.
    pub links: Vec<Name>,
    /// Number of its addresses.
    pub addresses: usize,
    /// Why a link to the host could not be added; empty if none failed.
    #[serde(default)]
    pub reason: String,
}

/// The cluster of a daemon, as `causeway cluster status` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterView {
    /// `follows`: the process reports, and etcd answers; `frozen`: etcd does not answer, and
    /// changes are not followed; `no-process`: no process reports.
    pub state: String,
    /// Reason of the state, with the remedy; empty if the cluster is followed.
    #[serde(default)]
    pub reason: String,
    /// Name of the site; absent before the first report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<Name>,
    /// Name of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// Other hosts of the site.
    pub hosts: usize,
    /// Other hosts with a live lease.
    pub hosts_seen: usize,
    /// Addresses of other hosts.
    pub addresses: usize,
    /// Whether the daemon has had all hosts and addresses of the site since its start: before, some
    /// may be missing. True for a daemon of an older release, which does not say.
    #[serde(default = "complete_default")]
    pub complete: bool,
    /// Time since the last report of the process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<f64>,
    /// State of the process.
    pub status: ClusterStatus,
}

const fn complete_default() -> bool {
    true
}

impl ClusterView {
    /// Every state.
    pub const STATES: [&'static str; 3] = ["follows", "frozen", "no-process"];
}
