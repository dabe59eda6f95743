//! The cluster: links to the hosts of a site, and the addresses that this host has.
//!
//! The process `causeway-directory` reports the other hosts of the site and their addresses, which
//! it reads from etcd and verifies ([`Remote`]). The controller opens an encrypted link to each
//! host and group that both sides share, with the key of the host's record, and passes addresses to
//! the shards that follow them ([`super::verified`]), before those that tunnels report. Policies of
//! the site about groups go to the fabric ([`super::policies`]). The process reads the addresses
//! that this host has ([`Local`]): Ethernet addresses, CIDs and names of MX NICs. Names of NICs are
//! claimed so that the site knows each NIC's host and detects a name that two NICs have; no shard
//! follows them.
//!
//! Without reports, after the end of the process or of etcd, links, addresses and policies stay as
//! they are: only an update removes them. A link that cannot be opened stays down and is retried.
//! Links of the cluster are links like others (`causeway link list`), and are not written to any
//! file. An operator's deletion of such a link lasts until the next change of its host. All of it
//! runs in threads of the control socket, under the lock of the registry; no frame passes here.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway_fabric::carrier::{CARRIES_SOCKETS, FORWARDS_FRAMES, LinkId, ReadAddresses, ReadCids};
use causeway_fabric::{Control, ShardKey};
use causeway_model::commands::cluster::{
    Addresses, Hosts, Local, LocalChanges, Policies, Remote, RestorePolicies, Show,
};
use causeway_model::limits::{
    CLUSTER_ADDRESSES_MAX, CLUSTER_HOSTS_MAX, CLUSTER_LOOK_MS, CLUSTER_READ_MS,
    CLUSTER_REPORT_SECONDS_MAX, CLUSTER_UPDATE_MAX, CLUSTER_WAIT_MS_MAX,
};
use causeway_model::{
    AddressKind, ClusterAddress, ClusterGroup, ClusterHost, ClusterHostView, ClusterLocal,
    ClusterLocalQuery, ClusterStatus, ClusterTunnel, ClusterUpdate, ClusterView, CommandError,
    LinkKind, LinkSpec, LocalAddress, MxSpec, Name, NounCall, NounDefinition, NounError,
    NounResult, PublicKeyText, RemoteAddress, RequestDispatch, TrafficClass, TunnelSpec,
    is_claimable_nic_name, metric_default,
};

use super::control::LinkController;
use super::limits::ADDRESSES_READ;
use super::open::read_key;
use super::policies::{self, PolicyReports};
use super::request::OnFailure;
use super::service::wall_ns;
use super::verified::HostClaims;

/// The noun of the cluster.
pub(super) const NOUN: NounDefinition = NounDefinition::new("cluster", cluster).for_reports();

/// Answers `/v1/cluster`.
fn cluster(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(Show),
        (["hosts"], "GET") => call.show(Hosts),
        (["addresses"], "GET") => call.show(Addresses),
        (["local"], "POST") => local(call),
        (["remote"], "POST") => call.show(Remote(Box::new(call.body()?))),
        ([] | ["hosts" | "addresses"], _) => Err(NounError::Method("GET")),
        (["local" | "remote"], _) => Err(NounError::Method("POST")),
        _ => Err(NounError::Path),
    }
}

/// Waits for a change of this host's addresses, in the thread of the connection.
fn local(call: &NounCall<'_>) -> NounResult {
    let query: ClusterLocalQuery = call.body()?;
    let wait = Duration::from_millis(query.wait_ms.min(CLUSTER_WAIT_MS_MAX));
    let begun = Instant::now();
    let changes = call.ask(LocalChanges)?;
    loop {
        let (count, read) = (changes.load(Ordering::Acquire), Instant::now());
        let now = call.ask(Local { private_key: query.private_key.clone() })?;
        let is_known = query.version == Some(now.version) && query.daemon == Some(now.daemon);
        if !is_known || begun.elapsed() >= wait {
            return call.show(Local { private_key: query.private_key });
        }
        // A reading takes the lock of the registry, a look does not.
        while changes.load(Ordering::Acquire) == count
            && read.elapsed() < Duration::from_millis(CLUSTER_READ_MS)
            && begun.elapsed() < wait
        {
            std::thread::sleep(Duration::from_millis(CLUSTER_LOOK_MS));
        }
    }
}

/// Another host of the site.
#[derive(Debug)]
struct RemoteHost {
    host: ClusterHost,
    /// Links to the host, by group.
    links: BTreeMap<Name, Name>,
    /// Why a link could not be added.
    reason: String,
}

/// The process that reports.
#[derive(Debug)]
struct Process {
    instance: u64,
    heard: Instant,
    site: Name,
    host: Name,
    tunnel: ClusterTunnel,
    status: ClusterStatus,
}

/// Hosts and addresses that an update of the whole state has not named yet.
#[derive(Debug)]
struct Sweep {
    hosts: BTreeSet<Name>,
    addresses: BTreeSet<ClusterAddress>,
}

/// Claims to apply, by link.
type PendingClaims = BTreeMap<LinkId, HostClaims>;

/// The cluster as this daemon knows it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Random number of this daemon.
    daemon: u64,
    /// Grows with each change of the groups and addresses of this host.
    version: u64,
    /// Changes of addresses, counted by the groups' shards.
    changes: Arc<AtomicU64>,
    /// The count with which `local` was read, and when.
    read: Option<(u64, Instant)>,
    /// Addresses of this host, with the time of day of their appearance.
    local: BTreeMap<ClusterAddress, u64>,
    groups: Vec<Name>,
    /// The public key of a file, and when the file was changed.
    key: Option<(PathBuf, PublicKeyText, SystemTime)>,
    process: Option<Process>,
    hosts: BTreeMap<Name, RemoteHost>,
    addresses: BTreeMap<ClusterAddress, (Name, u64)>,
    sweep: Option<Sweep>,
    /// Whether a whole state has been taken.
    is_complete: bool,
    policies: PolicyReports,
}

impl Default for Cluster {
    fn default() -> Self {
        // The keys of a hasher are random.
        let daemon = std::hash::RandomState::new().build_hasher().finish();
        Self {
            daemon,
            version: 1,
            changes: Arc::default(),
            read: None,
            local: BTreeMap::new(),
            groups: Vec::new(),
            key: None,
            process: None,
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            sweep: None,
            is_complete: false,
            policies: PolicyReports::default(),
        }
    }
}

impl Cluster {
    /// Returns whether the cluster made a link.
    pub fn has_link(&self, name: &Name) -> bool {
        self.hosts.values().any(|host| host.links.values().any(|link| link == name))
    }

    /// Returns the public key of a file. A file is read again after a change.
    fn public_key(&mut self, path: PathBuf) -> Result<PublicKeyText, CommandError> {
        let changed = std::fs::metadata(&path).and_then(|file| file.modified());
        let changed = changed.unwrap_or(UNIX_EPOCH);
        if let Some((known, key, at)) = &self.key
            && *known == path
            && *at == changed
        {
            return Ok(key.clone());
        }
        let key = read_key(&path).map_err(CommandError::Host)?.public().to_string();
        let key: PublicKeyText =
            key.parse().map_err(|error| CommandError::Host(format!("public key: {error}")))?;
        self.key = Some((path, key.clone(), changed));
        Ok(key)
    }

    /// Reads the addresses of this host from the groups' shards, if they may have changed. Returns
    /// whether the groups are others than before.
    fn read_local(&mut self, control: &Control<'_>) -> Result<bool, CommandError> {
        let count = self.changes.load(Ordering::Acquire);
        let groups: Vec<Name> = control.groups().map(|group| group.name.clone()).collect();
        let is_fresh =
            |(read, at): &(u64, Instant)| *read == count && at.elapsed() < ADDRESSES_READ;
        if self.read.as_ref().is_some_and(is_fresh) && self.groups == groups {
            return Ok(false);
        }
        let mut local = BTreeMap::new();
        for group in &groups {
            self.read_group(control, group, &mut local)?;
        }
        self.read = Some((count, Instant::now()));
        let has_groups_changed = self.groups != groups;
        if has_groups_changed || self.local != local {
            self.version = self.version.wrapping_add(1);
        }
        (self.local, self.groups) = (local, groups);
        Ok(has_groups_changed)
    }

    /// Reads the addresses of this host in a group.
    fn read_group(
        &self,
        control: &Control<'_>,
        group: &Name,
        local: &mut BTreeMap<ClusterAddress, u64>,
    ) -> Result<(), CommandError> {
        let at = |kind, address| ClusterAddress { kind, group: group.clone(), address };
        let now = wall_ns();
        let mut note = |at: ClusterAddress| {
            let since = self.local.get(&at).copied().unwrap_or(now);
            local.insert(at, since);
        };
        let shard = ShardKey::new(group, control.provider(FORWARDS_FRAMES)?);
        if control.has_shard(&shard) {
            for mac in control.ask(&shard, ReadAddresses(self.changes.clone()))? {
                note(at(AddressKind::Mac, mac.to_string()));
            }
        }
        for spec in control.ports().filter(|spec| spec.group == *group) {
            if let Some(mx) = spec.kind.get::<MxSpec>()
                && is_claimable_nic_name(&mx.hostname)
            {
                note(at(AddressKind::Nic, mx.hostname));
            }
        }
        // A daemon without sockets has no such service.
        let Ok(sockets) = control.provider(CARRIES_SOCKETS) else { return Ok(()) };
        let shard = ShardKey::new(group, sockets);
        if control.has_shard(&shard) {
            let cids = control.ask(&shard, ReadCids(self.changes.clone()))?;
            local.extend(
                cids.iter().map(|(cid, since)| (at(AddressKind::Cid, cid.to_string()), *since)),
            );
        }
        Ok(())
    }

    /// Returns the name of the link by which an address is reached.
    fn link_of(&self, at: &ClusterAddress, host: &Name) -> Option<&Name> {
        self.hosts.get(host)?.links.get(&at.group)
    }

    /// Takes the entries of an update, without its effect on links. Returns claims to apply, by
    /// link.
    fn take(
        &mut self,
        update: &ClusterUpdate,
        links: &BTreeMap<Name, (LinkSpec, LinkId)>,
    ) -> PendingClaims {
        let mut claims = PendingClaims::new();
        for host in &update.hosts {
            let known = self.hosts.entry(host.id.clone()).or_insert_with(|| RemoteHost {
                host: host.clone(),
                links: BTreeMap::new(),
                reason: String::new(),
            });
            known.host = host.clone();
        }
        let mut removed = update.removed_addresses.clone();
        if let Some(sweep) = &mut self.sweep {
            sweep.hosts.retain(|id| update.hosts.iter().all(|host| host.id != *id));
            for new in &update.addresses {
                sweep.addresses.remove(&new.at);
            }
        }
        self.is_complete |= update.end;
        if update.end
            && let Some(sweep) = self.sweep.take()
        {
            removed.extend(sweep.addresses);
            for id in sweep.hosts {
                self.forget_host(&id);
            }
        }
        for id in &update.removed_hosts {
            self.forget_host(id);
        }
        let mut note = |cluster: &Self, at: &ClusterAddress, host: &Name, epoch, is_here| {
            let link = cluster.link_of(at, host).and_then(|name| links.get(name));
            if let Some((_, id)) = link {
                claims.entry(*id).or_default().add(at, epoch, is_here);
            }
        };
        for at in removed {
            if let Some((host, epoch)) = self.addresses.remove(&at) {
                note(self, &at, &host, epoch, false);
            }
        }
        for RemoteAddress { at, host, epoch } in &update.addresses {
            let owner = (host.clone(), *epoch);
            let before = self.addresses.insert(at.clone(), owner);
            // A claim replaces that of another host at once, so that the address is never free.
            let is_linked = self.link_of(at, host).is_some_and(|link| links.contains_key(link));
            if let Some((old, epoch)) = before.filter(|(old, _)| old != host && !is_linked) {
                note(self, at, &old, epoch, false);
            }
            note(self, at, host, *epoch, true);
        }
        claims
    }

    /// Marks a host as left: its links go with the next change of links.
    fn forget_host(&mut self, id: &Name) {
        if let Some(known) = self.hosts.get_mut(id) {
            known.host.groups.clear();
            known.host.endpoints.clear();
        }
    }

    /// Returns the links that the cluster needs now: host, group, and specification or the reason
    /// why there is none.
    fn wanted(&self) -> Vec<(Name, ClusterGroup, Result<LinkSpec, String>)> {
        let Some(Process { tunnel, .. }) = &self.process else { return Vec::new() };
        let mut wanted = Vec::new();
        for (id, RemoteHost { host, .. }) in &self.hosts {
            for group in host.groups.iter().filter(|group| self.groups.contains(&group.name)) {
                wanted.push((id.clone(), group.clone(), spec_of(tunnel, host, group)));
            }
        }
        wanted
    }

    /// Returns the view of the cluster.
    fn view(&self, control: &Control<'_>) -> ClusterView {
        let seen = self.hosts.values().filter(|known| known.host.seen).count();
        let mut view = ClusterView {
            state: "no-process".into(),
            reason: "no process connects the daemon to etcd: start `causeway-directory run`, or \
                     enable the service causeway-directory; links and addresses stay as they are"
                .into(),
            site: None,
            host: None,
            hosts: self.hosts.len(),
            hosts_seen: seen,
            addresses: self.addresses.len(),
            complete: self.is_complete,
            heard_seconds: None,
            status: ClusterStatus::default(),
        };
        let Some(process) = &self.process else { return view };
        let silent = process.heard.elapsed();
        view.site = Some(process.site.clone());
        view.host = Some(process.host.clone());
        view.heard_seconds = Some(silent.as_secs_f64());
        view.status = process.status.clone();
        if view.status.alarm.is_empty() {
            view.status.alarm = self.policies.alarm(control).unwrap_or_default();
        }
        if silent.as_secs() >= CLUSTER_REPORT_SECONDS_MAX {
            return view;
        }
        (view.state, view.reason) = if process.status.connected {
            ("follows".into(), String::new())
        } else {
            let text = format!(
                "etcd does not answer ({}): links and addresses stay as they are, and changes are \
                 followed when it answers",
                process.status.reason
            );
            ("frozen".into(), text)
        };
        view
    }

    /// Returns the views of the other hosts.
    fn host_views(&self) -> Vec<ClusterHostView> {
        let mut addresses: BTreeMap<&Name, usize> = BTreeMap::new();
        for (host, _) in self.addresses.values() {
            let count = addresses.entry(host).or_default();
            *count = count.saturating_add(1);
        }
        let view = |known: &RemoteHost| ClusterHostView {
            host: known.host.clone(),
            links: known.links.values().cloned().collect(),
            addresses: addresses.get(&known.host.id).copied().unwrap_or(0),
            reason: known.reason.clone(),
        };
        self.hosts.values().map(view).collect()
    }
}

/// Returns the specification of the link to a host for a group.
fn spec_of(
    tunnel: &ClusterTunnel,
    host: &ClusterHost,
    group: &ClusterGroup,
) -> Result<LinkSpec, String> {
    let name = format!("cluster-{}-{}", host.id, group.vni);
    let name: Name = name.parse().map_err(|error| format!("link: {error}"))?;
    let remote = host.endpoints.first().copied();
    let remote = remote.ok_or_else(|| "the host has no endpoint".to_owned())?;
    let kind = LinkKind::Causeway(TunnelSpec {
        remote: Some(remote),
        local: tunnel.local,
        key: host.key.clone(),
        private_key: tunnel.private_key.clone(),
        vni: group.vni,
        idle: Some(tunnel.idle).filter(|idle| *idle > 0),
        has_directory: true,
        class: TrafficClass::default(),
    });
    let spec = LinkSpec {
        name,
        group: group.name.clone(),
        peer: Some(host.id.clone()),
        metric: metric_default(),
        transit: false,
        remote_host: None,
        kind,
    };
    let spec = spec.with_remote(remote);
    spec.check().map_err(|error| error.to_string())?;
    Ok(spec)
}

impl LinkController {
    /// Answers the commands about the cluster.
    pub(super) fn ask_cluster(
        &mut self,
        control: &mut Control<'_>,
        request: RequestDispatch,
    ) -> RequestDispatch {
        request
            .on(|Show| Ok(self.cluster.view(control)))
            .on(|Hosts| Ok(self.cluster.host_views()))
            .on(|Addresses| {
                let all = self.cluster.addresses.iter();
                let view = |(at, (host, epoch)): (&ClusterAddress, &(Name, u64))| RemoteAddress {
                    at: at.clone(),
                    host: host.clone(),
                    epoch: *epoch,
                };
                Ok(all.map(view).collect())
            })
            .on(|Policies| Ok(policies::list(control)))
            .on(|RestorePolicies(all)| policies::restore(control, all))
            .on(|LocalChanges| Ok(self.cluster.changes.clone()))
            .on(|Local { private_key }| self.local(control, private_key))
            .on(|Remote(update)| self.remote(control, &update))
    }

    /// Returns the groups and addresses of this host.
    fn local(
        &mut self,
        control: &mut Control<'_>,
        private_key: PathBuf,
    ) -> Result<ClusterLocal, CommandError> {
        let key = self.cluster.public_key(private_key)?;
        if self.cluster.read_local(control)? {
            self.follow_hosts(control);
        }
        let Cluster { daemon, version, groups, local, .. } = &self.cluster;
        let address =
            |(at, since): (&ClusterAddress, &u64)| LocalAddress { at: at.clone(), since: *since };
        Ok(ClusterLocal {
            daemon: *daemon,
            version: *version,
            key,
            groups: groups.clone(),
            addresses: local.iter().map(address).collect(),
        })
    }

    /// Takes an update of the process.
    fn remote(
        &mut self,
        control: &mut Control<'_>,
        update: &ClusterUpdate,
    ) -> Result<ClusterView, CommandError> {
        self.cluster.check(update)?;
        policies::check(control, update)?;
        let cluster = &mut self.cluster;
        let is_new = cluster.process.as_ref().is_none_or(|known| known.tunnel != update.tunnel);
        cluster.process = Some(Process {
            instance: update.instance,
            heard: Instant::now(),
            site: update.site.clone(),
            host: update.host.clone(),
            tunnel: update.tunnel.clone(),
            status: update.status.clone(),
        });
        if update.begin {
            let (hosts, addresses) = (cluster.hosts.keys(), cluster.addresses.keys());
            cluster.sweep = Some(Sweep {
                hosts: hosts.cloned().collect(),
                addresses: addresses.cloned().collect(),
            });
        }
        // Before links: no connect arrives by a new link without the rules of the site.
        cluster.policies.follow(control, update);
        let claims = cluster.take(update, &self.links);
        if is_new || update.end || !(update.hosts.is_empty() && update.removed_hosts.is_empty()) {
            self.follow_hosts(control);
        }
        for (link, claims) in claims {
            claims.apply(control, &self.links, link)?;
        }
        Ok(self.cluster.view(control))
    }

    /// Opens links to new hosts, and closes those that no host needs. A failure is kept with the
    /// host, and the next change of hosts tries again.
    fn follow_hosts(&mut self, control: &mut Control<'_>) {
        let wanted = self.cluster.wanted();
        let specs = wanted.iter().filter_map(|(_, _, spec)| spec.as_ref().ok());
        let needed: BTreeMap<&Name, &LinkSpec> = specs.map(|spec| (&spec.name, spec)).collect();
        let is_wanted = |link: &Name, known: &BTreeMap<Name, (LinkSpec, LinkId)>| {
            known.get(link).is_some_and(|(spec, _)| needed.get(link).copied() == Some(spec))
        };
        let all = self.cluster.hosts.values().flat_map(|host| host.links.values());
        let old: Vec<Name> = all.filter(|link| !is_wanted(link, &self.links)).cloned().collect();
        for link in old {
            if self.links.contains_key(&link)
                && let Err(error) = self.delete(control, &link)
            {
                log::warn!(link = link.as_str(), error:% = error; "cannot delete a link of the cluster: the link stays until the next change of its host");
                continue;
            }
            for known in self.cluster.hosts.values_mut() {
                known.links.retain(|_, name| *name != link);
            }
        }
        self.cluster.hosts.values_mut().for_each(|known| known.reason.clear());
        for (id, group, spec) in wanted {
            let added = spec.and_then(|spec| self.add_for(control, &id, &group.name, spec));
            if let (Err(reason), Some(known)) = (added, self.cluster.hosts.get_mut(&id)) {
                known.reason = format!("group {}: {reason}", group.name);
            }
        }
        let has_left =
            |known: &RemoteHost| known.host.endpoints.is_empty() && known.links.is_empty();
        self.cluster.hosts.retain(|_, known| !has_left(known));
    }

    /// Adds the link to a host for a group, if there is none, and applies the host's addresses.
    fn add_for(
        &mut self,
        control: &mut Control<'_>,
        host: &Name,
        group: &Name,
        spec: LinkSpec,
    ) -> Result<(), String> {
        let link = spec.name.clone();
        let known = self.cluster.hosts.get(host).and_then(|known| known.links.get(group));
        if known == Some(&link) && self.links.contains_key(&link) {
            return Ok(());
        }
        self.add(control, spec, OnFailure::Retry).map_err(|error| error.to_string())?;
        if let Some(known) = self.cluster.hosts.get_mut(host) {
            known.links.insert(group.clone(), link.clone());
        }
        let Some((_, id)) = self.links.get(&link) else { return Ok(()) };
        let of = self.cluster.addresses.iter();
        let of = of.filter(|(at, (owner, _))| owner == host && at.group == *group);
        let mut claims = HostClaims::default();
        of.for_each(|(at, (_, epoch))| claims.add(at, *epoch, true));
        claims.apply(control, &self.links, *id).map_err(|error| error.to_string())
    }
}

impl Cluster {
    /// Checks the sender and the size of an update.
    fn check(&self, update: &ClusterUpdate) -> Result<(), CommandError> {
        if let Some(process) = &self.process
            && process.instance != update.instance
            && process.heard.elapsed().as_secs() < CLUSTER_REPORT_SECONDS_MAX
        {
            return Err(CommandError::Conflict(format!(
                "another causeway-directory reports for host {}: stop it first, or wait \
                 {CLUSTER_REPORT_SECONDS_MAX} s after its end",
                process.host
            )));
        }
        let ClusterUpdate { hosts, removed_hosts, addresses, removed_addresses, .. } = update;
        let ClusterUpdate { policies, removed_policies, .. } = update;
        let lists = [hosts.len(), removed_hosts.len(), addresses.len(), removed_addresses.len()];
        let lists = lists.into_iter().chain([policies.len(), removed_policies.len()]);
        let entries = lists.fold(0_usize, usize::saturating_add);
        if entries > CLUSTER_UPDATE_MAX {
            return Err(CommandError::Invalid(format!(
                "{entries} entries: expected at most {CLUSTER_UPDATE_MAX} in an update"
            )));
        }
        let new = hosts.iter().filter(|host| !self.hosts.contains_key(&host.id)).count();
        if self.hosts.len().saturating_add(new) > CLUSTER_HOSTS_MAX {
            return Err(CommandError::Full(format!(
                "a site has at most {CLUSTER_HOSTS_MAX} hosts"
            )));
        }
        let new = addresses.iter().filter(|new| !self.addresses.contains_key(&new.at)).count();
        if self.addresses.len().saturating_add(new) > CLUSTER_ADDRESSES_MAX {
            let text = format!("a site has at most {CLUSTER_ADDRESSES_MAX} addresses");
            return Err(CommandError::Full(text));
        }
        Ok(())
    }
}
