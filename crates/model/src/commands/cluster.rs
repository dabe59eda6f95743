//! Commands about the cluster of a site, answered by the link service.
//!
//! The process `causeway-directory` sends [`Local`] and [`Remote`]; operators send [`Show`],
//! [`Hosts`] and [`Addresses`]. The link service executes them in the threads of the control
//! socket. A daemon without the process answers [`Show`] with the state `no-process`, and the lists
//! are empty; nothing else of the daemon changes. At most
//! [`CLUSTER_HOSTS_MAX`](crate::limits::CLUSTER_HOSTS_MAX) (1,000) hosts and
//! [`CLUSTER_ADDRESSES_MAX`](crate::limits::CLUSTER_ADDRESSES_MAX) (65,536) addresses; an update
//! beyond is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::view::{ClusterHostView, ClusterLocal, ClusterUpdate, ClusterView, RemoteAddress};
use crate::{SitePolicy, TypedRequest};

/// Lists the groups and the addresses of this host, and its public key. Refused if the key cannot
/// be read.
#[derive(Debug)]
pub struct Local {
    /// File of the private key of tunnels.
    pub private_key: PathBuf,
}

impl TypedRequest for Local {
    type Answer = ClusterLocal;
}

/// Returns the counter to which shards add 1 after each change of the addresses of this host: a reader
/// that waits for changes need not repeat [`Local`].
#[derive(Debug)]
pub struct LocalChanges;

impl TypedRequest for LocalChanges {
    type Answer = Arc<AtomicU64>;
}

/// Takes hosts and addresses of the site, and opens and closes links accordingly. Refused while
/// another process reports.
#[derive(Debug)]
pub struct Remote(pub Box<ClusterUpdate>);

impl TypedRequest for Remote {
    type Answer = ClusterView;
}

/// Lists the policies of the site about groups that are in force, in order of the groups; also
/// about groups that do not exist here.
#[derive(Debug)]
pub struct Policies;

impl TypedRequest for Policies {
    type Answer = Vec<SitePolicy>;
}

/// Puts policies of the site in force that were kept on disk, until the process reports. Refused
/// for the first policy that is wrong; the others are in force.
#[derive(Debug)]
pub struct RestorePolicies(pub Vec<SitePolicy>);

impl TypedRequest for RestorePolicies {
    type Answer = ();
}

/// Shows the state of the cluster.
#[derive(Debug, Default)]
pub struct Show;

impl TypedRequest for Show {
    type Answer = ClusterView;
}

/// Lists the other hosts of the site, in order of the names.
#[derive(Debug)]
pub struct Hosts;

impl TypedRequest for Hosts {
    type Answer = Vec<ClusterHostView>;
}

/// Lists the addresses of other hosts, in order of kind, group and address.
#[derive(Debug)]
pub struct Addresses;

impl TypedRequest for Addresses {
    type Answer = Vec<RemoteAddress>;
}
