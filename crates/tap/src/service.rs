//! The service for the TAP ports of one group.
//!
//! The fabric makes one [`TapService`] for each group, a shard, and calls all methods in the thread
//! of the dispatcher that owns the shard. Each port is a source: the shard's epoll reports an
//! interface with frames, or a deleted interface, and [`Service::serve_source`] reads. A busy
//! interface is polled for the idle spin, as the socket of a link. A port without interface, and a
//! port whose frames wait for room in the forwarding service, is served again by a deadline. An
//! idle interface costs nothing. Deletion of a port with an interface that is not persistent waits
//! for the kernel, which deletes the interface: milliseconds, once.
//!
//! Frames of the group to an interface do not pass here: the forwarding service (`ethernet`) writes
//! them in its own thread, by the carrier of the port's membership (`crate::carrier`). The
//! controller ([`StationControl`](causeway_fabric::station_control::StationControl)) asks for the
//! membership by [`JoinGroup`] and passes it on. No frame is read before this request. It fails
//! before the controller has sent the forwarding service's mailbox ([`OpenUplink`]), and for an
//! unknown port. A second request for a port begins a new membership; a batch of the first that
//! waits for room is lost. While no batch has room, further frames stay in the kernel's transmit
//! queue of the interface, and the kernel drops frames for which the queue has no room.
//!
//! An interface that cannot be opened does not refuse the port (`crate::port`); the service refuses
//! only a port of another kind, and the controller a port whose address another member of the group
//! has. An interface that fails is closed and opened anew a second later. A source value without a
//! port has no effect. The number of ports is limited by the fabric alone (1,024 of a daemon).

use std::collections::BTreeMap;

use causeway_attach::Model;
use causeway_fabric::carrier::{Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::station::PolicyCell;
use causeway_fabric::station_control::{JoinGroup, OpenUplink};
use causeway_fabric::{AttachmentStatus, Context, PortId, Progress, Service, SourceProgress};
use causeway_model::port::TapSpec;
use causeway_model::{CommandError, PortSpec, PortState, RequestDispatch, ServiceRequest};

use crate::limits::{OPEN_NS, ROOM_PAUSE_NS};
use crate::port::TapPort;
use crate::receive::ReadEnd;

/// Name of the service.
pub(crate) const NAME: &str = "tap";

/// The TAP ports of one group.
#[derive(Debug, Default)]
pub struct TapService {
    /// By the value of their source.
    ports: BTreeMap<u32, (PortId, TapPort)>,
    /// The group's policy, of which these ports need nothing: all frames pass the forwarding
    /// service.
    policy: PolicyCell,
    /// Mailbox of the forwarding service.
    uplink: Option<Sender<Message>>,
}

/// Returns the source value of a port.
fn source_of(port: PortId) -> u32 {
    u32::try_from(port.slot()).unwrap_or(u32::MAX)
}

impl TapService {
    /// Creates the service without ports.
    pub fn new() -> Self {
        Self::default()
    }

    fn port(&self, id: PortId) -> Option<&TapPort> {
        self.ports.get(&source_of(id)).filter(|(of, _)| *of == id).map(|(_, port)| port)
    }

    /// Opens the interface of a port.
    fn open(cx: &mut Context<'_>, value: u32, port: &mut TapPort) {
        cx.charge(OPEN_NS);
        if port.open(cx, value) {
            // Frames may have come before the watch.
            cx.wake_source(value);
        }
    }

    fn join(&mut self, cx: &mut Context<'_>, join: JoinGroup) -> Result<Membership, CommandError> {
        let JoinGroup { port: name, id } = join;
        let to = self.uplink.clone();
        let to = to.ok_or_else(|| CommandError::Host("the group forwards no frames".into()))?;
        let missing = || CommandError::NotFound { what: "tap port", name: name.to_string() };
        let found = self.ports.iter_mut().find(|(_, (_, port))| port.name == name);
        let (value, (_, port)) = found.ok_or_else(missing)?;
        cx.wake_source(*value);
        Ok(port.join(id, to, self.policy.clone()))
    }
}

impl Service for TapService {
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn opens_socket(&self, _spec: &PortSpec) -> bool {
        true
    }

    fn attachment(&self, id: PortId) -> Option<AttachmentStatus> {
        let port = self.port(id)?;
        let is_open = port.shared.interface().is_some();
        let state = if is_open { PortState::Running } else { PortState::Connecting };
        let (connects_total, connect_error) = (port.opens, port.error.clone());
        Some(AttachmentStatus { state, connects_total, connect_error })
    }

    fn added(&mut self, cx: &mut Context<'_>, id: PortId) -> Result<(), CommandError> {
        let gone = || CommandError::Host("the port is gone".into());
        let spec = &cx.ports.get(id).ok_or_else(gone)?.spec;
        let options: TapSpec = spec.kind.get().ok_or_else(gone)?;
        let mut port = TapPort::new(spec.name.clone(), options);
        let value = source_of(id);
        Self::open(cx, value, &mut port);
        self.ports.insert(value, (id, port));
        Ok(())
    }

    fn removed(&mut self, _cx: &mut Context<'_>, id: PortId) {
        if self.port(id).is_some()
            && let Some((_, mut port)) = self.ports.remove(&source_of(id))
        {
            port.end();
        }
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> SourceProgress {
        let parked = SourceProgress { progress: Progress::Parked, count: 0 };
        let Some((_, port)) = self.ports.get_mut(&value) else { return parked };
        let Some(interface) = port.shared.interface() else { return parked };
        let TapPort { reader: Some(reader), shared, .. } = port else { return parked };
        let (count, end) = reader.read(cx, &interface, &shared.stats, budget);
        let progress = match end {
            ReadEnd::Budget => Progress::Worked,
            ReadEnd::Empty if cx.polls_source(value) => Progress::Idle,
            // The kernel reports the next frame: the interface was found empty.
            ReadEnd::Empty => Progress::Parked,
            ReadEnd::NoRoom => {
                if port.due_ns.is_none() {
                    shared.stats.add(crate::stats::Counter::TransmitWaits, 1);
                }
                port.due_ns = Some(cx.now_ns.saturating_add(ROOM_PAUSE_NS));
                Progress::Parked
            }
            ReadEnd::Failed(error) => {
                port.close(cx.now_ns, &error);
                Progress::Parked
            }
        };
        if matches!(end, ReadEnd::Budget | ReadEnd::Empty) {
            port.due_ns = None;
        }
        SourceProgress { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|OpenUplink(to)| {
                self.uplink = Some(to);
                Ok(())
            })
            .on(|join: JoinGroup| self.join(cx, join))
    }

    fn deadline_ns(&self) -> Option<u64> {
        let due = self.ports.values().filter_map(|(_, port)| port.due_ns).min();
        due.filter(|due_ns| *due_ns != u64::MAX)
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        for (value, (_, port)) in &mut self.ports {
            if port.due_ns.is_none_or(|due_ns| due_ns > cx.now_ns) {
                continue;
            }
            match port.shared.interface() {
                // The next call counts no further wait if there is still no room.
                Some(_) => {
                    port.due_ns = Some(u64::MAX);
                    cx.wake_source(*value);
                }
                None => Self::open(cx, *value, port),
            }
        }
    }

    fn counters(&self, id: PortId) -> BTreeMap<String, u64> {
        self.port(id).map(|port| port.shared.stats.by_name()).unwrap_or_default()
    }

    fn warnings(&self, id: PortId) -> Vec<String> {
        self.port(id).map(TapPort::warnings).unwrap_or_default()
    }
}
