//! The Ethernet service as the dispatcher sees it: `causeway_fabric::Service` for the switch of one
//! group.
//!
//! The module keeps the state of the service and passes each call of the dispatcher on: transmit
//! queues to `forward`, receive queues to `pending`, the mailbox of links and stations to
//! `link_rx`, requests of the controller, of the link service and of the services of stations to
//! the tables. At the end of a turn ([`Service::turned`]) it flushes the carriers.
//!
//! It contains no data path of its own, publishes no ring and signals no guest: the shard publishes
//! after each call and signals at the end of the turn. Only the dispatcher that owns the shard
//! calls it, so it has no lock. A port that stops or pauses loses its learnt addresses, its pending
//! frames (those that it sent, and those for it) and the unfinished frames that it sent
//! (`crate::resume`); all lost frames are counted.

use std::collections::BTreeMap;

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_attach::Model;
use causeway_fabric::capture::Recording;
use causeway_fabric::carrier::{Carrier, LinkId, Membership};
use causeway_fabric::carrier::{Join, Leave, OpenInbox, ReadAddresses, ReadDrops};
use causeway_fabric::{Context, PortId, Ports, Progress, Rules, Service, SourceProgress};
use causeway_model::commands::trace;
use causeway_model::{CaptureSpec, Mac, Name, RouteSpec, RouteView, TrafficView};
use causeway_model::{CommandError, RequestDispatch, ServiceRequest, TraceQuery, TraceView};
use causeway_model::{NetSpec, PortSpec};

use crate::batch::EgressBatches;
use crate::deliver::Scratch;
use crate::features;
use crate::limits::CAPTURES_MAX;
use crate::link_inbox::LinkInbox;
use crate::pending::PendingFrames;
use crate::port::{NetPortState, Switch, receive_queue, transmits};
use crate::request::{
    AddRoute, BeginCapture, DeleteRoute, ListRoutes, ReadTraffic, SetRoutes, ShowRoute,
};
use crate::spare_chains::SpareChains;
use crate::transmit_turn::TransmitTurn;

/// Name of the service in shards and in the registry.
pub(crate) const NAME: &str = "net";

/// Forwards frames between the net ports and links of one group.
#[derive(Debug, Default)]
pub struct Ethernet {
    /// Ports and tables.
    pub(crate) switch: Switch,
    /// Private buffers of delivery.
    pub(crate) scratch: Scratch,
    /// Batches of frames by egress, kept for their capacity.
    pub(crate) batches: EgressBatches,
    /// Receivers of a frame, kept for the capacity of the list.
    pub(crate) targets: Vec<u32>,
    /// The frames that the present call took from a transmit queue.
    pub(crate) turn: TransmitTurn,
    /// Chains that are reused for waiting frames.
    pub(crate) spare_chains: SpareChains,
    /// Frames that wait for receive buffers.
    pub(crate) pending: PendingFrames,
    /// Frames and messages of links.
    pub(crate) links: LinkInbox,
    /// Time at which a queue or the mailbox was served last, for traces.
    pub(crate) now_ns: u64,
}

impl Ethernet {
    /// Returns a service without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Updates a port's negotiated features and running queues from its device.
    fn refresh(&mut self, cx: &Context<'_>, id: PortId) -> Option<u32> {
        let place = self.switch.place(id)?;
        let net = self.switch.get_mut(place)?;
        let port = cx.ports.get(id);
        let is_running = |queue: &usize| port.is_some_and(|p| p.is_running(*queue));
        net.features = port.map_or(0, causeway_fabric::Port::features);
        let was_running = !net.receive.is_empty();
        net.receive =
            (0..usize::from(net.spec.queue_pairs)).map(receive_queue).filter(is_running).collect();
        let (running, mac, number) = (!net.receive.is_empty(), net.spec.mac, net.mac);
        if running != was_running {
            if running {
                self.switch.away.remove(&number);
            }
            self.switch.table.invalidate();
            self.switch.uplinks.announce(mac, running);
        }
        Some(place)
    }

    /// Adds a station, or adds a link and announces the addresses of running guests and stations to
    /// its peer.
    fn join(&mut self, member: Membership) -> Result<(), CommandError> {
        let id = member.id;
        if member.station.is_some() {
            self.switch.join_station(member)?;
        } else {
            self.switch.uplinks.join(member)?;
            self.announce_all(id);
        }
        self.resolve();
        Ok(())
    }

    /// Announces the addresses of running guests and of stations to the peer of a link.
    fn announce_all(&self, id: LinkId) {
        self.switch.uplinks.announce_by(id, self.addresses());
    }

    /// Returns the addresses of running guests and of stations.
    fn addresses(&self) -> impl Iterator<Item = Mac> {
        let running = self.switch.iter().filter(|port| !port.receive.is_empty());
        let stations = self.switch.uplinks.stations().map(|(_, _, station)| station.address);
        running.map(|port| port.spec.mac).chain(stations)
    }

    /// Replaces the carrier of a link. Its peer may have lost our addresses, so they are announced
    /// again.
    pub(crate) fn replace(&mut self, id: LinkId, carrier: Box<dyn Carrier>) {
        self.switch.uplinks.replace(id, carrier);
        self.announce_all(id);
    }

    /// Removes a link, and the state that depends on it.
    fn leave(&mut self, now_ns: u64, id: LinkId) {
        let switch = &mut self.switch;
        let at = switch.uplinks.place_of(id);
        if let Some(place) = at.filter(|place| switch.uplinks.is_station(*place)) {
            switch.leave_station(place, id);
        } else if let Some(place) = switch.uplinks.leave(id) {
            switch.table.unlearn(place);
            switch.flood_sequences.forget(place);
            switch.away.retain(|_, (at, _)| *at != place);
        } else if let Some(place) = at {
            // Other links to the peer remain, but the advertisements may have come by this link.
            switch.table.demote(place);
            for (_, advertised) in switch.away.values_mut().filter(|(at, _)| *at == place) {
                *advertised = false;
            }
        }
        self.resolve();
        self.elect_forwarders(now_ns);
    }

    /// Resolves routes and captures again after ports or links came or went.
    fn resolve(&mut self) {
        self.switch.table.invalidate();
        let mut routes = std::mem::take(&mut self.switch.routes);
        routes.resolve(|end| self.switch.end(end));
        self.switch.routes = routes;
        let mut mirrors = std::mem::take(&mut self.switch.mirrors);
        mirrors.resolve(|end| self.switch.end(end));
        self.switch.mirrors = mirrors;
        self.switch.publish_policy();
    }

    /// Replaces all routes and the group's forwarding mode.
    fn set_routes(&mut self, SetRoutes { routes, forwarding, kind }: SetRoutes) {
        self.switch.kind = kind;
        let mut all = std::mem::take(&mut self.switch.routes);
        all.replace(routes, forwarding, |end| self.switch.end(end));
        self.switch.routes = all;
        self.switch.table.invalidate();
        self.switch.publish_policy();
    }

    /// Adds one route.
    fn add_route(&mut self, number: u64, spec: RouteSpec) -> RouteView {
        let mut all = std::mem::take(&mut self.switch.routes);
        let view = all.add(number, spec, |end| self.switch.end(end));
        self.switch.routes = all;
        self.switch.table.invalidate();
        self.switch.publish_policy();
        view
    }

    /// Returns the traffic matrix.
    fn traffic(&mut self, now_ns: u64, group: Name) -> TrafficView {
        let mut traffic = std::mem::take(&mut self.switch.traffic);
        let view = traffic.view(group, now_ns, |place| self.switch.name(place));
        self.switch.traffic = traffic;
        view
    }

    /// Begins to copy the frames that pass a port or a link.
    fn capture(&mut self, now_ns: u64, spec: CaptureSpec) -> Result<Recording, CommandError> {
        let absent = || CommandError::NotFound { what: "port or link", name: spec.at.to_string() };
        let place = self.switch.end(&spec.at).ok_or_else(absent)?;
        let name = self.switch.name(place);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let begun = self.switch.mirrors.begin(spec, place, &name, wall.wrapping_sub(now_ns));
        let many = || format!("there are {CAPTURES_MAX} captures in this group already: end one");
        self.switch.publish_policy();
        begun.ok_or_else(|| CommandError::Full(many()))
    }
}

impl Service for Ethernet {
    fn model(&self, spec: &PortSpec) -> Model {
        let Some(net) = spec.kind.get::<NetSpec>() else { return Model::new(0, 0, Vec::new()) };
        let queues = receive_queue(usize::from(net.queue_pairs));
        Model::new(queues, features::offered(&net), features::config(&net).to_vec()).in_pairs()
    }

    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError> {
        let gone = || CommandError::Host("the port is gone".into());
        let port = cx.ports.get(port).ok_or_else(gone)?;
        let spec: NetSpec = port.spec.kind.get().ok_or_else(gone)?;
        let name = &port.spec.name;
        let mac = spec.mac;
        self.switch.insert(NetPortState::new(port.id(), name.clone(), spec)).map_err(|_| {
            let owner = self.switch.owner_name(mac).map_or("?", Name::as_str);
            let group = &port.spec.group;
            let text = format!("port {name}: mac {mac} is that of port {owner} in group {group}");
            CommandError::Conflict(text)
        })?;
        self.resolve();
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, port: PortId) {
        if let Some(place) = self.switch.place(port) {
            self.purge_port(cx, place);
            self.switch.remove(place);
            self.resolve();
        }
    }

    fn started(&mut self, cx: &mut Context<'_>, port: PortId, _queue: usize) {
        self.refresh(cx, port);
    }

    fn paused(&mut self, cx: &mut Context<'_>, port: PortId, _queue: usize) {
        // The ring may move to another process, so pending frames are dropped with it.
        self.stopped(cx, port);
    }

    fn stopped(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(place) = self.refresh(cx, port) else { return };
        self.purge_port(cx, place);
        self.switch.table.unlearn(place);
    }

    fn serve(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        queue: usize,
        budget: usize,
    ) -> Progress {
        self.now_ns = cx.now_ns;
        match self.switch.place(port) {
            Some(place) if transmits(queue) => self.serve_transmit_queue(cx, place, queue, budget),
            // Buffers are popped when frames need them; new buffers matter only to pending frames.
            Some(place) => self.drain_pending(cx, place, queue, budget),
            None => Progress::Parked,
        }
    }

    fn serve_source(
        &mut self,
        cx: &mut Context<'_>,
        _value: u32,
        _budget: usize,
    ) -> SourceProgress {
        self.serve_links(cx)
    }

    /// Flushes the carriers, so that frames of several guests leave together.
    fn turned(&mut self) {
        self.switch.uplinks.flush();
        if !self.switch.observed_stations.is_empty() {
            self.switch.end_observation();
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|OpenInbox| {
                let host = |e: std::io::Error| CommandError::Host(format!("mailbox: {e}"));
                self.links.sender(cx).map_err(host)
            })
            .on(|Join(member)| self.join(member))
            .on(|Leave(id)| {
                self.leave(cx.now_ns, id);
                Ok(())
            })
            .on(|ReadDrops(id)| Ok(self.switch.uplinks.drops(id)))
            .on(|ReadAddresses(changes)| {
                self.switch.uplinks.count_address_changes(changes);
                Ok(self.addresses().collect())
            })
            .on(|request| {
                self.set_routes(request);
                Ok(())
            })
            .on(|AddRoute(number, spec)| Ok(self.add_route(number, spec)))
            .on(|DeleteRoute(number)| {
                self.switch.routes.remove(number);
                self.switch.table.invalidate();
                self.switch.publish_policy();
                Ok(())
            })
            .on(|ShowRoute(number)| Ok(self.switch.routes.view_of(number)))
            .on(|ListRoutes| Ok(self.switch.routes.views()))
            .on(|ReadTraffic(group)| Ok(self.traffic(cx.now_ns, group)))
            .on(|BeginCapture(spec)| self.capture(cx.now_ns, spec))
    }

    fn deadline_ns(&self) -> Option<u64> {
        [self.pending.deadline_ns(), self.switch.election.deadline_ns()].into_iter().flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.expire_pending(cx);
        self.send_due_hellos(cx.now_ns);
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let port = self.switch.place(port).and_then(|place| self.switch.get(place));
        port.map(|p| p.counters.by_name()).unwrap_or_default()
    }

    fn warnings(&self, port: PortId) -> Vec<String> {
        let port = self.switch.place(port).and_then(|place| self.switch.get(place));
        port.and_then(|port| self.switch.contest_warning(port)).into_iter().collect()
    }

    fn trace(
        &self,
        _ports: &Ports,
        _rules: &Rules,
        query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        let frame = query.get::<trace::Frame>()?;
        Some(frame.and_then(|frame| self.trace_frame(&frame.from, frame.source, frame.destination)))
    }
}
