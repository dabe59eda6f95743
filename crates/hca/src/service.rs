//! The service for the adapters of one group.
//!
//! The fabric makes one [`HcaService`] for each group, a shard, and calls its methods in the thread
//! of the dispatcher that owns the shard. None waits, but for the end of sessions
//! ([`crate::sessions`]) and system calls for the record file. The shard serves each port as a
//! source: [`HcaService::serve_source`] runs commands that the driver rang for, executes posted
//! work of the port's queue pairs, and takes frames of its send queues. While a port has work, and
//! for the
//! *idle spin* afterwards (the time for which a dispatcher polls without work,
//! [`Context::idle_spin_ns`]), the port is served in every turn; then [`IdleSchedule`] sets the
//! time of the next poll ([`HcaService::tick`]). At the first pause of full length the port is
//! watched instead, if the function can be ([`crate::idle_watches`]): the watch has its own times,
//! and the deadlines that remain are those of the queue pairs and of delayed events. A port whose
//! driver has no queues is not polled: a command doorbell wakes it. [`crate::call`] bounds a call.
//!
//! Work of one adapter completes work of others. So interrupts of all adapters that changed are
//! raised after each call, and an adapter that received a completion is served in the next turns,
//! because its guest probably answers.
//!
//! When a frontend leaves or resets the device ([`HcaService::stopped`]), all objects of its driver
//! are destroyed, and if it left, its memory is released; reliable requests of other adapters to it
//! wait as unanswered, unreliable messages and datagrams are lost. Two ports with one address in a
//! group, and more than 4,096 adapters of a group, are refused when the port is added (the daemon
//! permits 1,024 ports of all kinds). After a restart of causewayd, [`HcaService::resumed`]
//! restores a function from its record by [`crate::resume`]. The port is then served as any other;
//! the first call confirms the record, and a record that was restored 3 times without such a call
//! is not restored again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use causeway_attach::{Connection, Model};
use causeway_fabric::capture::JoinCapture;
use causeway_fabric::carrier::Membership;
use causeway_fabric::guest_session::{CloseGuestSessions, OpenGuestSessions};
use causeway_fabric::station_control::{JoinGroup, OpenUplink};
use causeway_fabric::{Context, PortId, Ports, Progress, Rules, Service, SourceProgress};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_mlx5::{Function, FunctionConfig, RestoreError};
use causeway_model::commands::trace::Verbs;
use causeway_model::limits::{HCA_COMPLETION_QUEUES_MAX, HCA_QUEUE_PAIRS_MAX};
use causeway_model::port::HcaSpec;
use causeway_model::{
    CommandError, Name, PortSpec, RequestDispatch, RouteEnd, ServiceRequest, TraceQuery, TraceView,
    TrafficView,
};
use causeway_verbs::{Adapter, AddError, Subnet};

use crate::adapter_port::{AdapterPort, AdapterPorts, PortCounters, PortOptions};
use crate::capture::PortCaptures;
use crate::deadlines::Deadlines;
use crate::idle::IdleSchedule;
use crate::idle_watches::IdleWatches;
use crate::limits::{RESTART_WAIT_NS, SESSIONS_MAX, UAR_BYTES, VECTORS};
use crate::rate_limit::RateLimit;
use crate::recent::{RecentSums, Sums};
use crate::record_file::RecordFile;
use crate::resume::{Resumption, resume};
use crate::sessions::PortSessions;
use crate::share::{Share, Shares};
use crate::switch::Switch;
use crate::traffic::{DirectTraffic, ReadTraffic};
use crate::uplink::{Joining, Uplink};
use crate::view::{self, ViewAdapters};
use crate::{counters, device, trace};

/// The adapters of one group.
#[derive(Debug, Default)]
pub struct HcaService {
    /// The adapters with their functions, queue pairs and regions.
    pub(crate) subnet: Subnet<Function>,
    /// The ports of the group.
    pub(crate) ports: AdapterPorts,
    /// Ports by the value of their source.
    sources: BTreeMap<u32, PortId>,
    /// Ethernet frames of the adapters.
    pub(crate) switch: Switch,
    /// The path to the service that forwards the group's frames; `None` in a daemon without that
    /// service.
    pub(crate) uplink: Option<Uplink>,
    /// Times at which ports must be served.
    pub(crate) deadlines: Deadlines<PortId>,
    /// Idle ports with pauses of full length that are watched instead of polled.
    pub(crate) idle_watches: IdleWatches<PortId>,
    /// Watched ports with changes; empty between calls, keeps its capacity.
    pub(crate) changed: Vec<PortId>,
    /// Traffic that the forwarding service does not see.
    pub(crate) traffic: DirectTraffic,
    /// Captures of queue pairs.
    captures: PortCaptures,
    /// The ports' shares of the turns.
    pub(crate) shares: Shares,
    /// Ports whose functions were restored, and whose records the next call must confirm.
    unconfirmed: BTreeSet<PortId>,
}

/// Returns the source value of a port.
pub(crate) fn source_of(port: PortId) -> u32 {
    u32::try_from(port.slot()).unwrap_or(u32::MAX)
}

impl HcaService {
    /// Creates the service without adapters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the function of a port; `None` for an unknown port.
    pub(crate) fn function_mut(&mut self, port: PortId) -> Option<&mut Function> {
        let adapter = self.ports.get(&port)?.adapter;
        Some(self.subnet.adapter_mut(adapter)?.queues_mut())
    }

    /// Sets the time at which a port must be served.
    pub(crate) fn set_deadline(&mut self, id: PortId) {
        let Self { subnet, ports, deadlines, .. } = self;
        let Some(port) = ports.get(&id) else { return };
        let Some(adapter) = subnet.adapter(port.adapter) else { return };
        deadlines.set(id, deadline(port, adapter));
    }

    /// Raises the interrupts of the adapters that changed, serves those that received completions
    /// or have failed queue pairs, and sets their deadlines.
    pub(crate) fn after(&mut self, cx: &mut Context<'_>) {
        let Self { subnet, ports, switch, captures, deadlines, traffic, .. } = self;
        if !captures.is_empty() {
            cx.charge(captures.write(subnet, cx.now_ns));
        }
        subnet.visit_touched(|adapter_id, adapter| {
            let Some(id) = switch.port_of(adapter_id) else { return };
            let Some(port) = ports.get_mut(&id) else { return };
            let has_failed = adapter.has_failed();
            if port.recent.offer(cx.now_ns, || Sums::of(adapter)) {
                traffic.collect(adapter, port.collected(cx.now_ns));
            }
            let function = adapter.queues_mut();
            for vector in function.take_interrupts() {
                cx.interrupt(id, usize::from(vector));
            }
            if function.take_completed() || has_failed {
                function.expect_work();
                port.worked_ns = cx.now_ns;
                port.schedule.stop();
                cx.wake_source(source_of(id));
            }
            if let Some(reason) = function.take_fault() {
                cx.note(id, reason);
            }
            deadlines.set(id, deadline(port, adapter));
        });
    }

    /// Takes the messages of all adapters to the traffic matrix.
    fn collect_traffic(&mut self, now_ns: u64) {
        let Self { subnet, ports, traffic, .. } = self;
        for port in ports.values_mut() {
            if let Some(adapter) = subnet.adapter_mut(port.adapter) {
                traffic.collect(adapter, port.collected(now_ns));
            }
        }
    }

    /// Returns the traffic matrix.
    fn read_traffic(&mut self, now_ns: u64, group: Name) -> TrafficView {
        self.collect_traffic(now_ns);
        self.traffic.view(group, &self.ports, now_ns)
    }

    /// Returns the membership of a port in the forwarding service.
    fn join(
        &mut self,
        cx: &mut Context<'_>,
        request: JoinGroup,
    ) -> Result<Membership, CommandError> {
        let JoinGroup { port: name, id } = request;
        let missing = || CommandError::NotFound { what: "hca port", name: name.to_string() };
        let port = self.ports.iter_mut().find(|(_, port)| port.name == name);
        let (port_id, port) = port.ok_or_else(missing)?;
        let uplink = self
            .uplink
            .as_ref()
            .ok_or_else(|| CommandError::Host("the adapters of the group have no uplink".into()))?;
        let source = source_of(*port_id);
        let joining = Joining { id, name: &port.name, mac: port.mac, source };
        let (station, inbox, membership) = uplink.join(cx, &joining)?;
        self.switch.set_inbox(port.adapter, inbox);
        port.station = Some(station);
        Ok(membership)
    }

    /// Makes a port carry sessions of its guest's processes.
    fn open_sessions(
        &mut self,
        cx: &mut Context<'_>,
        request: OpenGuestSessions,
    ) -> Result<(), CommandError> {
        let OpenGuestSessions { port: name, end } = request;
        let Self { ports, subnet, .. } = self;
        let missing = || CommandError::NotFound { what: "hca port", name: name.to_string() };
        let port = ports.iter_mut().find(|(_, port)| port.name == name);
        let (id, port) = port.ok_or_else(missing)?;
        if port.sessions.is_some() {
            let text = format!("port {name} carries the sessions of its processes to another NIC");
            return Err(CommandError::Conflict(text));
        }
        let host = |e: io::Error| CommandError::Host(format!("mailbox of an adapter: {e}"));
        let mailbox = cx.mailbox(SESSIONS_MAX, source_of(*id)).map_err(host)?;
        port.sessions = Some(PortSessions::open(subnet, port.adapter, end, mailbox));
        Ok(())
    }

    /// Ends the sessions of a port, and refuses further ones.
    fn close_sessions(&mut self, cx: &mut Context<'_>, name: &Name) {
        let Self { ports, subnet, .. } = self;
        if let Some((id, port)) = ports.iter_mut().find(|(_, port)| port.name == *name)
            && port.sessions.take().is_some()
        {
            subnet.set_session_service(port.adapter, None);
            cx.wake_source(source_of(*id));
        }
    }

    /// Begins a capture of the queue pairs of a port.
    fn join_capture(&mut self, now_ns: u64, join: JoinCapture) -> Result<(), CommandError> {
        let is_at = |port: &&AdapterPort| matches!(&join.spec.at, RouteEnd::Interface(name) if *name == port.name);
        let port = self.ports.values().find(is_at);
        let missing = || CommandError::NotFound { what: "port", name: join.spec.at.to_string() };
        let adapter = port.ok_or_else(missing)?.adapter;
        self.captures.join(&mut self.subnet, (now_ns, adapter), join)
    }
}

/// Returns the time at which a port must be served: the end of its pause, of a waiting time of its
/// queue pairs, or of the time in which moderation delays an event.
fn deadline(port: &AdapterPort, adapter: &Adapter<Function>) -> Option<u64> {
    let all = [port.schedule.ends_ns(), adapter.deadline_ns(), adapter.queues().deadline_ns()];
    all.into_iter().flatten().min()
}

// The function clamps to its own limits; a port that is accepted has the numbers of its options.
const _: () = assert!(
    HCA_QUEUE_PAIRS_MAX as usize == causeway_mlx5::limits::QUEUE_PAIRS_MAX
        && HCA_COMPLETION_QUEUES_MAX as usize == causeway_mlx5::limits::COMPLETION_QUEUES_MAX
);

/// Returns the configuration of the function of a port.
fn function_config(spec: &HcaSpec) -> FunctionConfig {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    FunctionConfig {
        mac: spec.mac.0,
        mtu: spec.mtu_max,
        vectors: VECTORS,
        uar_bytes: UAR_BYTES,
        queue_pairs_max: count(spec.queue_pairs_max),
        completion_queues_max: count(spec.completion_queues_max),
        regions_max: count(spec.regions_max),
        registered_bytes_max: u64::from(spec.registered_max) << 20,
    }
}

impl Service for HcaService {
    /// The queues of this model are the interrupt vectors of the function.
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(usize::from(VECTORS), 0, Vec::new())
    }

    fn connect(&self, spec: &PortSpec, stream: UntrustedSocket) -> io::Result<Connection> {
        let port = self.ports.values().find(|port| port.name == spec.name);
        let port = port.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        device::attach(spec, stream, &port.registers, port.options.doorbell)
    }

    fn added(&mut self, cx: &mut Context<'_>, id: PortId) -> Result<(), CommandError> {
        let gone = || CommandError::Host("the port is gone".into());
        let spec = &cx.ports.get(id).ok_or_else(gone)?.spec;
        let options: HcaSpec = spec.kind.get().ok_or_else(gone)?;
        let mac = options.mac.0;
        let config = function_config(&options);
        let mut adapter_config = causeway_mlx5::adapter_config(&config);
        if let Some(most) = options.waiting_requests_max {
            adapter_config.waiting_requests = usize::try_from(most).unwrap_or(usize::MAX);
        }
        let record = RecordFile::of(&spec.socket, &config).unwrap_or_else(|error| {
            log::warn!(
                port = spec.name.as_str(), error:% = error;
                "cannot open the record of the adapter: after a restart of causewayd the guest's driver has to set it up again"
            );
            None
        });
        let function = Function::new(config);
        let registers = function.registers();
        let adapter = self.subnet.add(&adapter_config, function).map_err(|error| match error {
            AddError::AddressInUse => CommandError::Conflict(format!(
                "port {}: another adapter of the group has address {}",
                spec.name, options.mac
            )),
            AddError::Full => CommandError::Full(error.to_string()),
        })?;
        self.switch.add(mac, adapter, id);
        let schedule = IdleSchedule::new(options.idle_poll_us);
        let port = AdapterPort {
            name: spec.name.clone(),
            adapter,
            registers,
            mac,
            station: None,
            sessions: None,
            schedule,
            is_watched: false,
            worked_ns: 0,
            collected_ns: cx.now_ns,
            counters: PortCounters::default(),
            record,
            options: PortOptions::of(&options),
            limit: RateLimit::new(options.byte_rate_max, options.message_rate_max),
            share: Share::new(source_of(id), options.weight),
            recent: RecentSums::default(),
        };
        self.ports.insert(id, port);
        self.sources.insert(source_of(id), id);
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, id: PortId) {
        self.collect_traffic(cx.now_ns);
        self.unwatch(id);
        let Some(mut port) = self.ports.remove(&id) else { return };
        self.shares.leave(&mut port.share);
        self.sources.remove(&source_of(id));
        self.unconfirmed.remove(&id);
        self.deadlines.set(id, None);
        self.switch.remove(port.mac, port.adapter);
        // The objects are dropped in the background.
        causeway_mlx5::reset(&mut self.subnet, port.adapter);
        self.subnet.remove(port.adapter);
        self.captures.port_removed(&mut self.subnet, &port.name);
        if let Some(file) = port.record {
            file.remove();
        }
        self.after(cx);
    }

    fn memory_changed(&mut self, cx: &mut Context<'_>, id: PortId) {
        // A watch keeps the old memory.
        self.unwatch(id);
        let map = cx.ports.get(id).and_then(causeway_fabric::Port::shared_map);
        let Self { ports, subnet, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return };
        // Sessions use memory of the map that ends now.
        subnet.end_sessions(port.adapter);
        let Some(adapter) = subnet.adapter_mut(port.adapter) else { return };
        let function = adapter.queues_mut();
        // The record of an earlier guest must not outlive the first memory of the next.
        if map.is_some()
            && !port.registers.is_resuming()
            && let Some(file) = &mut port.record
        {
            file.begin(function);
        }
        function.set_map(map.unwrap_or_default());
        cx.wake_source(source_of(id));
    }

    fn doorbell(&mut self, cx: &mut Context<'_>, id: PortId, _doorbell: usize) {
        if let Some(function) = self.function_mut(id) {
            function.expect_work();
        }
        cx.wake_source(source_of(id));
    }

    fn stopped(&mut self, cx: &mut Context<'_>, id: PortId) {
        let is_connected = cx.ports.get(id).is_some_and(|port| port.map().is_some());
        if let Some(port) = self.ports.get_mut(&id) {
            port.schedule.stop();
            self.shares.leave(&mut port.share);
            if is_connected {
                causeway_mlx5::reset(&mut self.subnet, port.adapter);
            } else if let Some(new) = causeway_mlx5::disconnect(&mut self.subnet, port.adapter) {
                // The next frontend must not meet the command queue of the last.
                port.registers = new;
            }
            if let (Some(file), Some(own)) =
                (&mut port.record, self.subnet.adapter_mut(port.adapter))
            {
                file.end(own.queues_mut());
                if is_connected {
                    file.begin(own.queues_mut());
                }
            }
        }
        self.memory_changed(cx, id);
        self.after(cx);
    }

    fn resumed(&mut self, cx: &mut Context<'_>, id: PortId) {
        let Self { ports, subnet, unconfirmed, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return };
        match resume(port, subnet) {
            Resumption::Unused => {}
            Resumption::Restored(restored) => {
                log::info!(
                    port = port.name.as_str(),
                    queue_pairs = restored.queue_pairs,
                    entries = restored.entries;
                    "the function continues from its record after a restart of causewayd"
                );
                if let Some(adapter) = subnet.adapter_mut(port.adapter) {
                    adapter.await_peers(cx.now_ns.saturating_add(RESTART_WAIT_NS));
                    adapter.queues_mut().expect_work();
                }
                cx.wake_source(source_of(id));
                unconfirmed.insert(id);
            }
            Resumption::Failed(Some(error @ RestoreError::Interrupted { .. })) => log::error!(
                port = port.name.as_str(),
                file:% = port.record.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default(),
                reason:% = error;
                "the record of the function is discarded and the function reports an internal error: the guest's driver recovers by itself; report the crash with the log of the causewayd that ended"
            ),
            Resumption::Failed(error) => log::warn!(
                port = port.name.as_str(),
                reason = error.map_or_else(|| "it has no record".into(), |error| error.to_string());
                "the function reports an internal error after a restart of causewayd: the guest's driver recovers by itself"
            ),
        }
        self.after(cx);
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, _budget: usize) -> SourceProgress {
        match self.sources.get(&value).copied() {
            Some(id) => {
                let progress = self.serve_port(cx, id);
                if self.unconfirmed.remove(&id)
                    && let Some(record) = self.function_mut(id).and_then(Function::record_mut)
                {
                    record.confirm();
                }
                progress
            }
            None => SourceProgress { progress: Progress::Parked, count: 0 },
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|OpenUplink(to)| {
                self.uplink = Some(Uplink::new(to));
                Ok(())
            })
            .on(|request: JoinGroup| self.join(cx, request))
            .on(|request: OpenGuestSessions| self.open_sessions(cx, request))
            .on(|CloseGuestSessions(port)| {
                self.close_sessions(cx, &port);
                Ok(())
            })
            .on(|join: JoinCapture| self.join_capture(cx.now_ns, join))
            .on(|ReadTraffic(group)| Ok(self.read_traffic(cx.now_ns, group)))
            .on(|request: ViewAdapters| Ok(view::views(cx, &self.subnet, &self.ports, &request)))
    }

    fn deadline_ns(&self) -> Option<u64> {
        [self.deadlines.first(), self.idle_watches.first_ns()].into_iter().flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.wake_due(cx);
    }

    fn trace(
        &self,
        ports: &Ports,
        _rules: &Rules,
        query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        let query = query.get::<Verbs>()?;
        let policy = self.uplink.as_ref().map(|uplink| &uplink.policy);
        Some(query.and_then(|Verbs { from, to }| {
            trace::verbs((&self.subnet, policy), &self.ports, ports, (&from, &to))
        }))
    }

    fn counters(&self, id: PortId) -> BTreeMap<String, u64> {
        let Some(port) = self.ports.get(&id) else { return BTreeMap::new() };
        let mut counters = self.subnet.adapter(port.adapter).map(counters::of).unwrap_or_default();
        port.extend_counters(&mut counters);
        counters
    }
}
