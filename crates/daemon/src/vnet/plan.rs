//! Plans the changes of VNET commands: resolves names, and detects refusals before anything
//! changes.
//!
//! [`GroupState::read`] takes a snapshot of one group; [`GroupState::plan`] turns a command into at
//! most one [`VnetStep`] and updates the snapshot, so that the next command sees the change;
//! [`StepExecutor`] executes steps. Planning changes nothing in the fabric, but it resolves hosts
//! and then blocks the calling thread; a host that was resolved keeps its addresses for the life of
//! the snapshot, and a host that was not is tried again by each further command that names it.
//!
//! The snapshot is not kept current: a change of another client shows as a refusal of the step. Of
//! other groups only the names of links and the number of routes count. A link beyond `LINKS_MAX`
//! (1,024) of the daemon is an error of the plan, a route beyond `ROUTES_MAX` (16,384) of the plan
//! or, if routes were not read, of its step. A second link to the same address by the same
//! transport is an error of the plan, also with another port, and so is a link with a name that any
//! group has. A deletion of a route needs a snapshot with routes: without them, a deletion by
//! number is an error of the plan, and the deletion of a route that the executor did not add an
//! error of the step. A deletion of a link takes the link that has the word as its name, else the
//! first to that host in the order of the `link` service; an end of a route must name one link.
//! Peers are not notified here: [`super::session`] does that. Nothing is undone: if a step of a
//! file fails, the steps before it remain ([`super::file`](mod@super::file)).
//!
//! Callers are [`super::session`] (a snapshot per command, in the thread `vnet-session` of its
//! connection) and [`super::file`](mod@super::file) (a snapshot per file, in the thread `lifecycle`
//! at the start, and in that of a control connection for `POST /v1/vnet`). [`crate::lifecycle`]
//! also makes the snapshot of the configuration before its ports and links exist
//! ([`GroupState::before_start`]): the steps planned on it are not executed, and their routes are
//! put in force before the ports. Configuration files are planned by [`crate::plan`].

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use causeway_model::Name;
use causeway_model::commands::{links, routes};
use causeway_model::limits::{LINKS_MAX, ROUTES_MAX};
use causeway_model::{Answer, Command as FabricCommand, CommandError};
use causeway_model::{LinkKind, LinkSpec, Mac, PortSpec, RouteEnd, RouteSpec, TlsSpec};

use super::command::{EndName, RouteWords, VnetCommand, VnetTransport};
use crate::config::Config;
use crate::fabric::{FabricControl, ask};
use causeway_model::draft::host::resolve_later;
use causeway_model::draft::{HostPort, LinkDraft, LinkKindName, Resolver};

/// A change of the fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VnetStep {
    /// Add a link.
    LinkAdd(Box<LinkSpec>),
    /// Delete a link, and the routes that name it.
    LinkDel(Name),
    /// Add a route.
    RouteAdd(RouteSpec),
    /// Delete the equal route.
    RouteDel(RouteSpec),
}

impl VnetStep {
    /// Returns a description of the step.
    pub fn shown(&self) -> String {
        match self {
            Self::LinkAdd(spec) => format!("add link {}", spec.name),
            Self::LinkDel(name) => format!("delete link {name}"),
            Self::RouteAdd(route) => format!("add route {route}"),
            Self::RouteDel(route) => format!("delete route {route}"),
        }
    }
}

/// Numbers of links. As in VNET/P, links are counted from 1 and numbers are never reused.
#[derive(Debug, Default)]
pub struct LinkNumbers {
    /// The last number given.
    last: u64,
    /// The number of each existing link.
    known: HashMap<Name, u64>,
}

impl LinkNumbers {
    /// Returns the numbers of these links; links that are gone lose theirs.
    fn of(&mut self, links: &[LinkSpec]) -> Vec<(u64, Name)> {
        self.known.retain(|name, _| links.iter().any(|link| link.name == *name));
        let mut numbered: Vec<(u64, Name)> = Vec::new();
        for link in links {
            let number = self.known.get(&link.name).copied().unwrap_or_else(|| {
                self.last = self.last.saturating_add(1);
                self.known.insert(link.name.clone(), self.last);
                self.last
            });
            numbered.push((number, link.name.clone()));
        }
        // Newest first.
        numbered.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        numbered
    }
}

/// The state of a group for planning. Each planned command updates it for the next.
#[derive(Debug)]
pub struct GroupState {
    group: Name,
    /// Resolves names of hosts; may block.
    resolve: Resolver,
    /// Net ports of the group.
    ports: Vec<PortSpec>,
    /// Links of the group.
    links: Vec<LinkSpec>,
    /// Names of the links of all groups.
    taken: HashSet<Name>,
    /// Numbers and names of the links of the group, newest first.
    numbers: Vec<(u64, Name)>,
    /// Routes of all groups with their numbers, `None` for planned routes; `None` as a whole if
    /// routes were not read.
    routes: Option<HashMap<RouteSpec, Option<u64>>>,
    /// Addresses of the hosts that were resolved.
    known: HashMap<String, Vec<IpAddr>>,
}

/// Returns the error for an answer of an unexpected type.
fn wrong_answer() -> CommandError {
    CommandError::Host("the fabric returned an answer of an unexpected type".into())
}

impl GroupState {
    /// Reads the state of a group. Routes can be many and are read only if `with_routes`; otherwise
    /// the fabric detects duplicate routes.
    ///
    /// # Errors
    /// The group does not exist, or the fabric does not answer.
    pub fn read(
        fabric: &dyn FabricControl,
        group: &Name,
        resolve: Resolver,
        numbers: &mut LinkNumbers,
        with_routes: bool,
    ) -> Result<Self, CommandError> {
        let Answer::Groups(groups) = fabric.call(FabricCommand::GroupList)? else {
            return Err(wrong_answer());
        };
        if !groups.iter().any(|view| view.name == *group) {
            return Err(CommandError::NotFound { what: "group", name: group.to_string() });
        }
        let Answer::Ports(ports) = fabric.call(FabricCommand::PortList)? else {
            return Err(wrong_answer());
        };
        let ports = ports.into_iter().map(|view| view.spec).filter(|port| port.group == *group);
        let all = ask(fabric, links::List)?;
        let taken = all.iter().map(|view| view.spec.name.clone()).collect();
        let links = all.into_iter().map(|view| view.spec).filter(|link| link.group == *group);
        let links: Vec<LinkSpec> = links.collect();
        let routes = if with_routes {
            let views = ask(fabric, routes::List)?;
            Some(views.into_iter().map(|view| (view.spec, Some(view.index))).collect())
        } else {
            None
        };
        Ok(Self {
            group: group.clone(),
            resolve,
            ports: ports.filter(|port| port.kind.kind().is_network).collect(),
            numbers: numbers.of(&links),
            links,
            taken,
            routes,
            known: HashMap::new(),
        })
    }

    /// Returns the state of a group before the ports, links and routes of a configuration are added.
    pub fn before_start(group: &Name, resolve: Resolver, config: &Config) -> Self {
        let is_here = |port: &&PortSpec| port.group == *group && port.kind.kind().is_network;
        let key_file = &config.daemon.key_file;
        let link = |table| LinkDraft::read(&table).ok()?.into_spec(key_file, resolve_later).ok();
        let links: Vec<LinkSpec> = config.tables_of("link").filter_map(link).collect();
        let routes = config.tables_of("route").filter_map(|table| RouteSpec::read(&table).ok());
        Self {
            group: group.clone(),
            resolve,
            ports: config.ports.iter().filter(is_here).cloned().collect(),
            taken: links.iter().map(|link| link.name.clone()).collect(),
            links: links.into_iter().filter(|link| link.group == *group).collect(),
            numbers: Vec::new(),
            routes: Some(routes.map(|route| (route, None)).collect()),
            known: HashMap::new(),
        }
    }

    /// Returns the ports of the group that send and receive frames.
    pub fn ports(&self) -> impl Iterator<Item = &PortSpec> {
        self.ports.iter()
    }

    /// Returns the links of the group with their numbers, newest first.
    pub fn numbers(&self) -> &[(u64, Name)] {
        &self.numbers
    }

    /// Plans a command; `client` is the address of the client. Returns `None` for commands that
    /// change nothing.
    ///
    /// # Errors
    /// The reason why the command would be refused.
    pub fn plan(
        &mut self,
        command: &VnetCommand,
        client: Option<IpAddr>,
    ) -> Result<Option<VnetStep>, String> {
        let step = match command {
            VnetCommand::AddLink { host, data_port, transport, .. } => {
                self.link_add(host, *data_port, *transport)?
            }
            VnetCommand::LinkAdd { host, port, transport } => {
                self.link_add(host, *port, *transport)?
            }
            VnetCommand::RegisterLink { data_port } => {
                let host = client.ok_or("REGISTERLINK: only for servers, over TCP")?;
                self.link_add(&host.to_canonical().to_string(), *data_port, VnetTransport::Udp)?
            }
            VnetCommand::DeleteLink { host, transport, .. } => self.link_del(host, *transport)?,
            VnetCommand::DeregisterLink => {
                let host = client.ok_or("DEREGISTERLINK: only for servers, over TCP")?;
                self.link_del(&host.to_canonical().to_string(), VnetTransport::Udp)?
            }
            VnetCommand::LinkDel(number) => {
                let found = self.numbers.iter().find(|(n, _)| n == number);
                let name = found.map(|(_, name)| name.clone());
                VnetStep::LinkDel(name.ok_or_else(|| format!("link {number} does not exist"))?)
            }
            VnetCommand::AddRoute(route) => self.route_add(route)?,
            VnetCommand::DeleteRoute(route) => {
                let spec = self.route(route)?;
                let there = self.routes.as_ref().is_none_or(|all| all.contains_key(&spec));
                if !there {
                    return Err(format!("route {spec} does not exist"));
                }
                VnetStep::RouteDel(spec)
            }
            VnetCommand::RouteDel(number) => VnetStep::RouteDel(self.numbered_route(*number)?),
            VnetCommand::Hello { .. } | VnetCommand::Done | VnetCommand::List(_) => {
                return Ok(None);
            }
        };
        self.note(&step);
        Ok(Some(step))
    }

    /// Updates the state for the next command.
    fn note(&mut self, step: &VnetStep) {
        match step {
            VnetStep::LinkAdd(spec) => {
                self.taken.insert(spec.name.clone());
                self.links.push(spec.as_ref().clone());
            }
            VnetStep::LinkDel(name) => {
                self.taken.remove(name);
                self.links.retain(|link| link.name != *name);
                self.numbers.retain(|(_, numbered)| numbered != name);
                let end = RouteEnd::Edge(name.clone());
                if let Some(routes) = &mut self.routes {
                    routes.retain(|r, _| {
                        r.group != self.group || (r.to != end && r.from.as_ref() != Some(&end))
                    });
                }
            }
            VnetStep::RouteAdd(route) => {
                self.routes.as_mut().map(|routes| routes.insert(route.clone(), None));
            }
            VnetStep::RouteDel(route) => {
                self.routes.as_mut().map(|routes| routes.remove(route));
            }
        }
    }

    /// Returns the addresses of a host; a later call for the host returns the same.
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        if let Some(known) = self.known.get(host) {
            return Ok(known.clone());
        }
        let found = (self.resolve)(host, 1)?;
        let found: Vec<IpAddr> = found.iter().map(|end| end.ip().to_canonical()).collect();
        self.known.insert(host.to_owned(), found.clone());
        Ok(found)
    }

    /// Plans a new link to the first address of `host`. Refused are a second link of the group to
    /// this address by the same transport, a name that exists in any group, and a link beyond
    /// [`LINKS_MAX`] (4,096).
    fn link_add(
        &mut self,
        host: &str,
        port: u16,
        transport: VnetTransport,
    ) -> Result<VnetStep, String> {
        let addresses = self.addresses(host)?;
        let address = *addresses.first().ok_or_else(|| format!("host {host:?} has no address"))?;
        let same =
            |link: &&LinkSpec| kind_of(link) == Some(transport) && remote_of(link) == Some(address);
        if let Some(link) = self.links.iter().find(same) {
            return Err(format!("link {} goes there already", link.name));
        }
        let name = link_name(address, transport)?;
        if self.taken.contains(&name) {
            return Err(format!("link {name} exists already"));
        }
        if self.taken.len() >= LINKS_MAX {
            return Err(format!("there are {LINKS_MAX} links already"));
        }
        let kind = match transport {
            VnetTransport::Udp => LinkKindName::Vnet,
            VnetTransport::Tcp => LinkKindName::Tcp,
        };
        let remote = HostPort { host: address.to_string(), port: Some(port) }.to_string();
        let mut draft = LinkDraft::new(name, self.group.clone(), kind);
        draft.remote = Some(remote);
        // An address needs neither a key file nor a resolver.
        let spec = draft.into_spec(std::path::Path::new("/"), causeway_model::draft::host::resolve);
        spec.map(|spec| VnetStep::LinkAdd(Box::new(spec))).map_err(|error| error.to_string())
    }

    /// Plans the deletion of a link by its name, or by the name or address of its host.
    fn link_del(&mut self, host: &str, transport: VnetTransport) -> Result<VnetStep, String> {
        let fits = |link: &&LinkSpec| kind_of(link) == Some(transport);
        let named = |link: &&LinkSpec| link.name.as_str() == host;
        if let Some(link) = self.links.iter().filter(fits).find(named) {
            return Ok(VnetStep::LinkDel(link.name.clone()));
        }
        let addresses = self.addresses(host)?;
        let there = |link: &&LinkSpec| remote_of(link).is_some_and(|r| addresses.contains(&r));
        let link = self.links.iter().filter(fits).find(there);
        let link = link.ok_or_else(|| format!("no such link to {host}"))?;
        Ok(VnetStep::LinkDel(link.name.clone()))
    }

    /// Plans a new route; duplicates are detected if routes were read.
    fn route_add(&mut self, route: &RouteWords) -> Result<VnetStep, String> {
        let spec = self.route(route)?;
        if let Some(routes) = &self.routes {
            if routes.contains_key(&spec) {
                return Err("the same route exists already".into());
            }
            if routes.len() >= ROUTES_MAX {
                return Err(format!("there are {ROUTES_MAX} routes already: no more are taken"));
            }
        }
        Ok(VnetStep::RouteAdd(spec))
    }

    /// Resolves the ends of a route.
    fn route(&mut self, route: &RouteWords) -> Result<RouteSpec, String> {
        Ok(RouteSpec {
            group: self.group.clone(),
            source: route.source,
            destination: route.destination,
            to: self.end(&route.to)?,
            from: route.from.as_ref().map(|from| self.end(from)).transpose()?,
        })
    }

    /// Returns the route of the group with this number; routes must have been read.
    fn numbered_route(&self, number: u64) -> Result<RouteSpec, String> {
        let group = &self.group;
        let mut routes = self.routes.iter().flatten();
        let found = routes.find(|(spec, n)| **n == Some(number) && spec.group == *group);
        let spec = found.map(|(spec, _)| spec.clone());
        spec.ok_or_else(|| format!("route {number} does not exist"))
    }

    /// Resolves an end of a route.
    fn end(&mut self, end: &EndName) -> Result<RouteEnd, String> {
        match end {
            EndName::Interface(word) => self.interface(word),
            EndName::Edge(word) => self.edge(word),
        }
    }

    /// Returns the port with this name or MAC address, or the raw link with this name or interface.
    fn interface(&self, word: &str) -> Result<RouteEnd, String> {
        let mac: Option<Mac> = word.parse().ok();
        let fits = |port: &&PortSpec| {
            port.name.as_str() == word || (mac.is_some() && port.kind.mac() == mac)
        };
        if let Some(port) = self.ports.iter().find(fits) {
            return Ok(RouteEnd::Interface(port.name.clone()));
        }
        let raw = |link: &&LinkSpec| match &link.kind {
            LinkKind::Raw(raw) => link.name.as_str() == word || raw.interface == word,
            _ => false,
        };
        let link = self.links.iter().find(raw).map(|link| RouteEnd::Edge(link.name.clone()));
        let group = &self.group;
        link.ok_or_else(|| {
            format!("interface {word:?} is no port and no raw link of group {group}")
        })
    }

    /// Returns the link with this name, or the only link to this host.
    fn edge(&mut self, word: &str) -> Result<RouteEnd, String> {
        if let Some(link) = self.links.iter().find(|link| link.name.as_str() == word) {
            return Ok(RouteEnd::Edge(link.name.clone()));
        }
        if !causeway_model::draft::host::is_host(word) {
            return Err(format!("edge {word:?}: expected a link's name, or its host"));
        }
        let addresses = self.addresses(word)?;
        let there = |link: &&LinkSpec| remote_of(link).is_some_and(|r| addresses.contains(&r));
        let mut fits = self.links.iter().filter(there);
        match (fits.next(), fits.next()) {
            (Some(link), None) => Ok(RouteEnd::Edge(link.name.clone())),
            (Some(first), Some(other)) => Err(format!(
                "edge {word:?}: links {} and {} go there: expected one of their names",
                first.name, other.name
            )),
            (None, _) => Err(format!("edge {word:?}: no link of group {} goes there", self.group)),
        }
    }
}

/// Returns the address of a link's peer.
fn remote_of(link: &LinkSpec) -> Option<IpAddr> {
    let remote = match &link.kind {
        LinkKind::Causeway(tunnel) => tunnel.remote,
        LinkKind::CausewayPlain(udp) | LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
            Some(udp.remote)
        }
        LinkKind::Tcp(stream) | LinkKind::Tls(TlsSpec { stream, .. }) => Some(stream.remote),
        LinkKind::Raw(_) => None,
    };
    remote.map(|remote| remote.ip().to_canonical())
}

/// Returns the transport of a link, or `None` for kinds that the language does not have.
fn kind_of(link: &LinkSpec) -> Option<VnetTransport> {
    match link.kind {
        LinkKind::Vnet(_) => Some(VnetTransport::Udp),
        LinkKind::Tcp(_) => Some(VnetTransport::Tcp),
        _ => None,
    }
}

/// Returns the name of a new link: `10.0.0.2` or `v6-fd00--2`, with the suffix `-tcp` for TCP.
fn link_name(address: IpAddr, transport: VnetTransport) -> Result<Name, String> {
    let host = match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("v6-{v6}").replace(':', "-"),
    };
    let kind = if transport == VnetTransport::Tcp { "-tcp" } else { "" };
    format!("{host}{kind}").parse().map_err(|error: causeway_model::SpecError| error.0)
}

/// Executes steps, and records the numbers of added routes.
#[derive(Debug, Default)]
pub struct StepExecutor {
    /// Numbers of the routes, by which the fabric deletes them.
    routes: HashMap<RouteSpec, u64>,
}

impl StepExecutor {
    /// Returns an executor that has the routes of `world`.
    pub fn of(world: &GroupState) -> Self {
        let known = world.routes.iter().flatten();
        let known = known.filter_map(|(spec, number)| Some((spec.clone(), (*number)?)));
        Self { routes: known.collect() }
    }

    /// Executes a step.
    ///
    /// # Errors
    /// The fabric's error.
    pub fn execute(
        &mut self,
        fabric: &dyn FabricControl,
        step: &VnetStep,
    ) -> Result<(), CommandError> {
        match step.clone() {
            VnetStep::LinkAdd(spec) => ask(fabric, links::Add(spec)).map(drop),
            VnetStep::LinkDel(name) => ask(fabric, links::Delete(name)),
            VnetStep::RouteAdd(route) => {
                let view = ask(fabric, routes::Add(route))?;
                self.routes.insert(view.spec, view.index);
                Ok(())
            }
            VnetStep::RouteDel(route) => match self.routes.remove(&route) {
                Some(number) => ask(fabric, routes::Delete(number)),
                None => {
                    let name = route.to_string();
                    Err(CommandError::NotFound { what: "route", name })
                }
            },
        }
    }
}
