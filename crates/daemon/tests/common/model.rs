//! A fabric in memory: it stores objects, refuses what the real fabric refuses, and forwards no
//! traffic.
#![allow(dead_code, missing_docs, reason = "each of those who share it uses its part")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use causeway_daemon::fabric::FabricControl;
use causeway_model::GroupSpec;
use causeway_model::commands::{cluster, forwards, hca, links, nics, peers, routes, traffic};
use causeway_model::limits::{LINKS_MAX, ROUTES_MAX};
use causeway_model::port::HcaSpec;
use causeway_model::{
    Answer, Command, CommandError, GroupView, HcaActivity, HcaQueuePairView, HcaState, HcaView,
    LinkState, LinkView, MxSpec, NicEndpointView, NicProcessView, NicView, PairView, PeerView,
    PortState, PortView, RequestDispatch, RouteView, RuleView, ServiceRequest, TraceQuery,
    TraceView, TrafficPair, TrafficView,
};
use causeway_model::{ClusterStatus, ClusterView, Name};
use causeway_model::{
    LinkKind, LinkSpec, Mac, PortSpec, RouteEnd, RouteSpec, RuleOrigin, RuleSpec,
};

#[derive(Debug, Default)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<GroupSpec>,
    ports: BTreeMap<Name, PortSpec>,
    rules: Vec<RuleSpec>,
    links: BTreeMap<Name, LinkSpec>,
    /// Routes with their numbers.
    routes: HashMap<RouteSpec, u64>,
    /// Routes whose ports and links may be missing.
    prepared: Vec<RouteSpec>,
    last_route: u64,
    /// Number of changes that succeed before all others fail.
    left: Option<usize>,
    changes: u64,
}

impl Model {
    /// Lets all changes after the next `count` fail.
    pub fn fail_after(&self, changes: usize) {
        self.state.lock().unwrap().left = Some(changes);
    }

    /// Lets changes succeed again.
    pub fn succeed_again(&self) {
        self.state.lock().unwrap().left = None;
    }

    /// Returns the number of changes so far.
    pub fn changes(&self) -> u64 {
        self.state.lock().unwrap().changes
    }
}

impl FabricControl for Model {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let mut state = self.state.lock().unwrap();
        state.call(command)
    }
}

/// Returns the view of a NIC, with a process that has one endpoint.
fn nic(port: &PortSpec) -> NicView {
    let mx: MxSpec = port.kind.get().unwrap();
    let endpoint = NicEndpointView {
        number: 3,
        state: "parked".into(),
        unread_seconds: None,
        peers: 2,
        counters: [("messages_sent_total".to_owned(), 7)].into(),
    };
    let process = NicProcessView {
        place: "guest".into(),
        session: Some(12),
        user: None,
        state: "active".into(),
        unread_messages: 0,
        regions: 1,
        region_bytes: 8192,
        endpoint_list: vec![endpoint],
    };
    NicView {
        port: port.name.clone(),
        group: port.group.clone(),
        mac: mx.mac,
        hostname: mx.hostname,
        guest: if mx.adapter.is_some() { "served" } else { "none" }.into(),
        adapter: mx.adapter,
        processes: 1,
        sessions: 1,
        endpoints: 1,
        warnings: Vec::new(),
        refusal: Some("a process of the guest was refused: 224 is the maximum".into()),
        refusal_age_seconds: Some(9),
        notice: None,
        notice_age_seconds: None,
        counters: [("messages_sent_total".to_owned(), 7)].into(),
        process_list: vec![process],
    }
}

fn missing(what: &'static str, name: impl ToString) -> CommandError {
    CommandError::NotFound { what, name: name.to_string() }
}

fn conflict(text: String) -> CommandError {
    CommandError::Conflict(text)
}

impl State {
    /// Each NIC has one peer, as if it had announced itself.
    fn peers(&self) -> Vec<PeerView> {
        let boards = self.ports.values().filter(|port| port.kind.name() == "mx");
        let peer = |port: &PortSpec| PeerView {
            port: port.name.clone(),
            group: port.group.clone(),
            mac: Mac([2, 0, 0, 0, 0, 9]),
            hostname: Some("far:0".into()),
            known: "announced".into(),
            state: "answers".into(),
            heard_seconds: Some(2.5),
            partners: 1,
            sending: 0,
            rtt_us: Some(12.25),
            counters: [("messages_sent_total".to_owned(), 7)].into(),
            pairs: vec![PairView {
                endpoint: 3,
                partner: 4,
                in_flight: 1,
                waiting: 2,
                parked_bytes: 80,
                rtt_us: Some(12.25),
                counters: [("messages_sent_total".to_owned(), 7), ("resent_total".to_owned(), 0)]
                    .into(),
            }],
        };
        boards.map(peer).collect()
    }

    /// Each NIC has a process of its guest, with an endpoint.
    fn nics(&self) -> Vec<NicView> {
        self.ports.values().filter(|port| port.kind.name() == "mx").map(nic).collect()
    }

    /// Each adapter has a driver, and two queue pairs of which the view has the first.
    fn hcas(&self) -> Vec<HcaView> {
        self.ports.values().filter(|port| port.kind.name() == "hca").map(adapter).collect()
    }

    fn call(&mut self, command: Command) -> Result<Answer, CommandError> {
        match command {
            Command::PortList => Ok(Answer::Ports(self.ports.values().map(view).collect())),
            Command::PortShow(name) => match self.ports.get(&name) {
                Some(spec) => Ok(Answer::Port(Box::new(view(spec)))),
                None => Err(missing("port", name)),
            },
            Command::GroupList => Ok(Answer::Groups(self.groups())),
            Command::RuleList => Ok(Answer::Rules(self.rules())),
            Command::DispatcherList | Command::ShardMove { .. } => {
                Ok(Answer::Dispatchers(Vec::new()))
            }
            Command::Trace(query) => trace(&query).map(Answer::Trace),
            Command::Service(request) => match self.look(request) {
                RequestDispatch::Answered(answer) => answer.map(Answer::Service),
                RequestDispatch::Open(request) => match self.prepare(request) {
                    RequestDispatch::Answered(answer) => answer.map(Answer::Service),
                    RequestDispatch::Open(request) => self.spend().and_then(|()| {
                        let answer = self.change_of_service(request).finish()?;
                        self.changes += 1;
                        Ok(Answer::Service(answer))
                    }),
                },
            },
            change => {
                self.spend()?;
                let answer = self.change(change)?;
                self.changes += 1;
                Ok(answer)
            }
        }
    }

    /// Answers requests that change nothing.
    fn look(&self, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|forwards::List| Ok(Vec::new()))
            .on(|cluster::Show| {
                Ok(ClusterView {
                    state: "no-process".into(),
                    reason: String::new(),
                    site: None,
                    host: None,
                    hosts: 0,
                    hosts_seen: 0,
                    addresses: 0,
                    complete: false,
                    heard_seconds: None,
                    status: ClusterStatus::default(),
                })
            })
            .on(|links::List| Ok(self.links.values().map(link).collect()))
            .on(|links::Show(name)| self.links.get(&name).map(link).ok_or(missing("link", name)))
            .on(|routes::List| {
                let mut all: Vec<RouteView> = self.routes.iter().map(route).collect();
                all.sort_by_key(|route| Reverse(route.index));
                Ok(all)
            })
            .on(|traffic::Show(group)| self.has_group(&group).map(|()| matrix(group)))
            .on(|peers::List| Ok(self.peers()))
            .on(|nics::List| {
                let without = |nic| NicView { process_list: Vec::new(), ..nic };
                Ok(self.nics().into_iter().map(without).collect())
            })
            .on(|nics::Show(name)| {
                let found = self.nics().into_iter().find(|nic| nic.port == name);
                found.ok_or(missing("mx port", name))
            })
            .on(|hca::List| {
                let without =
                    |hca| HcaView { queue_pair_list: Vec::new(), queue_pairs_omitted: 2, ..hca };
                Ok(self.hcas().into_iter().map(without).collect())
            })
            .on(|hca::Show(name)| {
                let found = self.hcas().into_iter().find(|hca| hca.port == name);
                found.ok_or(missing("hca port", name))
            })
    }

    /// Prepares a route, which counts as a change when it is completed.
    fn prepare(&mut self, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|routes::Prepare(spec)| {
            if !self.prepared.contains(&spec) {
                self.prepared.push(spec);
            }
            Ok(())
        })
    }

    fn change_of_service(&mut self, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|links::Add(spec)| self.link_add(*spec))
            .on(|links::Keep(spec)| self.link_add(*spec))
            .on(|links::Delete(name)| {
                self.links.remove(&name).ok_or(missing("link", &name))?;
                self.forget(&RouteEnd::Edge(name));
                Ok(())
            })
            .on(|routes::Add(spec)| self.route_add(spec))
            .on(|routes::Delete(index)| {
                let before = self.routes.len();
                self.routes.retain(|_, number| *number != index);
                if self.routes.len() < before { Ok(()) } else { Err(missing("route", index)) }
            })
            .on(|routes::Remove(spec)| {
                self.routes.remove(&spec).map(drop).ok_or(missing("route", spec))
            })
    }

    fn spend(&mut self) -> Result<(), CommandError> {
        match &mut self.left {
            Some(0) => return Err(CommandError::Host("the host ran out of something".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn change(&mut self, command: Command) -> Result<Answer, CommandError> {
        match command {
            Command::PortAdd(spec) => {
                spec.check().expect("only checked ports reach the fabric");
                self.has_group(&spec.group)?;
                if self.ports.contains_key(&spec.name) {
                    return Err(conflict(format!("port {} exists", spec.name)));
                }
                self.ports.insert(spec.name.clone(), spec.clone());
                Ok(Answer::Port(Box::new(view(&spec))))
            }
            Command::PortDel(name) => {
                self.ports.remove(&name).ok_or(missing("port", &name))?;
                self.forget(&RouteEnd::Interface(name));
                Ok(Answer::Done)
            }
            Command::GroupAdd(spec) => {
                if self.groups.iter().any(|group| group.name == spec.name) {
                    return Err(conflict(format!("group {} exists", spec.name)));
                }
                self.groups.push(spec);
                Ok(Answer::Done)
            }
            Command::GroupDel(name) => {
                let at = self.groups.iter().position(|g| g.name == name);
                let at = at.ok_or(missing("group", &name))?;
                if self.ports.values().any(|p| p.group == name) {
                    return Err(conflict(format!("group {name} has ports")));
                }
                if self.links.values().any(|l| l.group == name) {
                    return Err(conflict(format!("group {name} has links")));
                }
                self.groups.remove(at);
                self.prepared.retain(|route| route.group != name);
                self.routes.retain(|route, _| route.group != name);
                Ok(Answer::Done)
            }
            Command::RuleAdd { index, rule } => {
                let at = index.unwrap_or(self.rules.len());
                if at > self.rules.len() {
                    return Err(CommandError::Invalid(format!("index {at} is beyond the end")));
                }
                self.rules.insert(at, rule);
                Ok(Answer::Rules(self.rules()))
            }
            Command::RuleDel { index } if index < self.rules.len() => {
                self.rules.remove(index);
                Ok(Answer::Done)
            }
            Command::RuleDel { index } => Err(missing("rule", index)),
            other => Err(CommandError::Invalid(format!("not modelled: {other:?}"))),
        }
    }

    fn has_group(&self, name: &Name) -> Result<(), CommandError> {
        let found = self.groups.iter().any(|group| group.name == *name);
        found.then_some(()).ok_or(missing("group", name))
    }

    fn link_add(&mut self, spec: LinkSpec) -> Result<LinkView, CommandError> {
        spec.check().expect("only checked links reach the fabric");
        self.has_group(&spec.group)?;
        if self.links.contains_key(&spec.name) {
            return Err(conflict(format!("link {} exists", spec.name)));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(CommandError::Full(format!("there are {LINKS_MAX} links already")));
        }
        self.links.insert(spec.name.clone(), spec.clone());
        Ok(link(&spec))
    }

    fn route_add(&mut self, spec: RouteSpec) -> Result<RouteView, CommandError> {
        self.has_group(&spec.group)?;
        for end in std::iter::once(&spec.to).chain(&spec.from) {
            let owner = match end {
                RouteEnd::Interface(name) => match self.ports.get(name) {
                    Some(port) if !port.kind.kind().is_network => {
                        let text = format!("port {name} carries no frames");
                        return Err(CommandError::Invalid(text));
                    }
                    Some(port) => &port.group,
                    None => return Err(missing("port", name)),
                },
                RouteEnd::Edge(name) => &self.links.get(name).ok_or(missing("link", name))?.group,
            };
            if *owner != spec.group {
                return Err(CommandError::Invalid(format!("{end}: no traffic crosses groups")));
            }
        }
        let is_prepared = self.prepared.contains(&spec);
        self.prepared.retain(|route| *route != spec);
        match self.routes.get(&spec) {
            Some(index) if is_prepared => return Ok(route((&spec, index))),
            Some(index) => return Err(conflict(format!("route {index} is the same"))),
            None => {}
        }
        if self.routes.len() >= ROUTES_MAX {
            return Err(CommandError::Full(format!("there are {ROUTES_MAX} routes already")));
        }
        self.last_route += 1;
        self.routes.insert(spec.clone(), self.last_route);
        Ok(route((&spec, &self.last_route)))
    }

    fn forget(&mut self, gone: &RouteEnd) {
        let prepared = &self.prepared;
        self.routes
            .retain(|r, _| prepared.contains(r) || r.to != *gone && r.from.as_ref() != Some(gone));
    }

    fn groups(&self) -> Vec<GroupView> {
        let view = |spec: &GroupSpec| GroupView {
            name: spec.name.clone(),
            forwarding: spec.forwarding,
            site_forwarding: None,
            weight: spec.weight,
            kind: spec.kind,
            ports: names(self.ports.values().map(|p| (&p.group, &p.name)), &spec.name),
            links: names(self.links.values().map(|l| (&l.group, &l.name)), &spec.name),
        };
        self.groups.iter().map(view).collect()
    }

    fn rules(&self) -> Vec<RuleView> {
        let rules = self.rules.iter().cloned().enumerate();
        let view = |(index, rule)| RuleView {
            index,
            origin: RuleOrigin::Host,
            group: None,
            rule,
            hits_total: 0,
        };
        rules.map(view).collect()
    }
}

fn names<'a>(all: impl Iterator<Item = (&'a Name, &'a Name)>, group: &Name) -> Vec<Name> {
    all.filter(|(owner, _)| *owner == group).map(|(_, name)| name.clone()).collect()
}

fn view(spec: &PortSpec) -> PortView {
    let counters = [("transmit_packets_total", 3), ("receive_packets_total", 4)];
    PortView {
        spec: spec.clone(),
        state: PortState::Listening,
        dispatcher: 0,
        fault: None,
        fault_age_seconds: None,
        fault_of: None,
        notice: None,
        notice_age_seconds: None,
        notice_of: None,
        faults_total: 0,
        host_fault: None,
        host_faults_total: 0,
        connects_total: 0,
        connect_error: None,
        refused_users_total: 0,
        refused_user: None,
        warnings: Vec::new(),
        held: false,
        cut_off: None,
        features: "0x0".into(),
        memory_bytes: 0,
        queues: Vec::new(),
        counters: counters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    }
}

fn link(spec: &LinkSpec) -> LinkView {
    let counters = [
        ("transmit_packets_total", 5),
        ("receive_packets_total", 6),
        ("drop_forged_total", 2),
        ("drop_runt_total", 0),
    ];
    LinkView {
        spec: spec.clone(),
        is_of_cluster: false,
        state: LinkState::Up,
        reason: "the peer answers".into(),
        endpoint: None,
        rtt_us: Some(61.5),
        loss_percent: Some(0),
        certificate_expires: matches!(spec.kind, LinkKind::Tls(_)).then_some(1_000_000_000),
        path_mtu: Some(1500),
        mtu: 65_535,
        ups_total: 1,
        counters: counters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    }
}

fn route((spec, index): (&RouteSpec, &u64)) -> RouteView {
    RouteView { index: *index, spec: spec.clone(), priority: 6, hits_total: 9 }
}

fn matrix(group: Name) -> TrafficView {
    let pair = |n: u8, rate: f64| TrafficPair {
        source: Mac([2, 0, 0, 0, 0, n]),
        destination: Mac([2, 0, 0, 0, 0, n + 1]),
        from: format!("vm{n}"),
        frames_total: 10 * u64::from(n),
        bytes_total: 1000 * u64::from(n),
        messages_total: 3 * u64::from(n),
        message_bytes_total: 300 * u64::from(n),
        bytes_per_second: rate,
    };
    let pairs = vec![pair(1, 10.0), pair(2, 2_000_000.0)];
    TrafficView { group, window_seconds: 1.0, pairs, uncounted_frames_total: 3 }
}

fn adapter(spec: &PortSpec) -> HcaView {
    let options: HcaSpec = spec.kind.get().unwrap();
    let queue_pair = HcaQueuePairView {
        number: 5,
        kind: "RC".into(),
        state: "ready to send".into(),
        peer: Some("vm2-rdma".into()),
        peer_queue_pair: Some(9),
        send_completion_queue: 2,
        receive_completion_queue: 3,
        refusal: None,
        refusals: 0,
        waits_for: None,
    };
    let counters =
        [("requests_total", 7), ("request_bytes_total", 3072), ("flushed_requests_total", 0)];
    HcaView {
        port: spec.name.clone(),
        group: spec.group.clone(),
        mac: options.mac,
        state: HcaState::Active,
        queue_pairs: 2,
        queue_pairs_max: options.queue_pairs_max as usize,
        completion_queues: 4,
        completion_queues_max: options.completion_queues_max as usize,
        regions: 8,
        regions_max: options.regions_max as usize,
        registered_bytes: 3 << 19,
        registered_bytes_max: u64::from(options.registered_max) << 20,
        counters: counters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        activity: HcaActivity::default(),
        queue_pair_list: vec![queue_pair],
        queue_pairs_omitted: 1,
    }
}

fn trace(query: &TraceQuery) -> Result<TraceView, CommandError> {
    if !["frame", "connect", "verbs"].contains(&query.what()) {
        return Err(CommandError::Invalid("trace: expected another type".into()));
    }
    let steps = vec![format!("{query:?}")];
    Ok(TraceView { verdict: "drop".into(), to: Vec::new(), steps })
}
