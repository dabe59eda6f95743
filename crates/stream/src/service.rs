//! The service for the stream and datagram ports of one group.
//!
//! The fabric makes one [`StreamService`] for each group, a shard, and calls all methods in the
//! thread of the dispatcher that owns the shard; none waits. Each port is a station of the service
//! that forwards the group's frames (`fabric::station`): frames from the peer's socket go there in
//! batches, frames to the peer come by a carrier ([`crate::output`]). A port has two values, of
//! sources and of watched descriptors: the peer's socket, and a listener or the notice of a stalled
//! output.
//!
//! A port whose sockets cannot be opened is refused with the reason, and the service goes on
//! without it. A request for a membership fails for an unknown port, and before the forwarding
//! service has opened its inbox (`fabric::station_control::OpenUplink`); a second inbox replaces
//! the first. A value without a port and the removal of an unknown port have no effect.
//! [`Service::tick`] is linear in the ports of the group.

use std::collections::BTreeMap;

use causeway_attach::Model;
use causeway_fabric::carrier::{Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::station::PolicyCell;
use causeway_fabric::station_control::{JoinGroup, OpenUplink};
use causeway_fabric::{AttachmentStatus, Context, PortId, Progress, Service, SourceProgress};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_model::{CommandError, PortSpec, RequestDispatch, ServiceRequest};

use crate::counters::by_name;
use crate::ingress::UplinkSender;
use crate::port::{End, Port};
use crate::socket::StreamSocket;

/// Name of the service.
pub(crate) const NAME: &str = "stream";

/// The stream and datagram ports of one group.
#[derive(Debug, Default)]
pub struct StreamService {
    ports: BTreeMap<PortId, Port>,
    /// Ports by their first value.
    values: BTreeMap<u32, PortId>,
    /// Inbox of the forwarding service; `None` until that service opens it.
    to: Option<Sender<Message>>,
    policy: PolicyCell,
    /// The earliest deadline of a port.
    deadline_ns: Option<u64>,
}

/// Returns the first value of a port.
fn value_of(port: PortId) -> u32 {
    u32::try_from(port.slot().saturating_mul(2)).unwrap_or(!1)
}

impl StreamService {
    /// Creates the service without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `call` with the port that has a value, and whether it is the first of the port's
    /// values.
    fn with_port<R>(&mut self, value: u32, call: impl FnOnce(&mut Port, bool) -> R) -> Option<R> {
        let id = self.values.get(&(value & !1))?;
        let port = self.ports.get_mut(id)?;
        let before = port.deadline_ns();
        let result = call(port, value & 1 == 0);
        if port.deadline_ns() != before {
            self.update_deadline();
        }
        Some(result)
    }

    fn update_deadline(&mut self) {
        self.deadline_ns = self.ports.values().filter_map(Port::deadline_ns).min();
    }

    /// Returns the membership of a port in the forwarding service.
    fn join(
        &mut self,
        cx: &mut Context<'_>,
        JoinGroup { port: name, id }: JoinGroup,
    ) -> Result<Membership, CommandError> {
        let missing = || CommandError::NotFound { what: "port", name: name.to_string() };
        let port = self.ports.values_mut().find(|port| port.core.name == name);
        let port = port.ok_or_else(missing)?;
        let to = self.to.clone();
        let to = to.ok_or_else(|| CommandError::Host("the group has no uplink".into()))?;
        port.core.sender = Some(UplinkSender::new(id, to));
        cx.wake_source(value_of(port.core.id));
        Ok(port.core.membership(id, self.policy.clone()))
    }
}

impl Service for StreamService {
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn attaches(&self, _spec: &PortSpec) -> bool {
        true
    }

    fn opens_socket(&self, spec: &PortSpec) -> bool {
        !spec.listens_at_socket() || spec.kind.get::<causeway_model::port::DgramSpec>().is_some()
    }

    fn attachment(&self, port: PortId) -> Option<AttachmentStatus> {
        self.ports.get(&port).map(Port::status)
    }

    fn attached(&mut self, cx: &mut Context<'_>, port: PortId, stream: UntrustedSocket) {
        let Some(Port { core, end: End::Stream(end) }) = self.ports.get_mut(&port) else { return };
        causeway_host::fd::receive::refuse_descriptors(&stream);
        end.accepted(cx, core, StreamSocket::Unix(stream));
    }

    fn added(&mut self, cx: &mut Context<'_>, id: PortId) -> Result<(), CommandError> {
        let gone = || CommandError::Host("the port is gone".into());
        let spec = cx.ports.get(id).ok_or_else(gone)?.spec.clone();
        let value = value_of(id);
        let port = Port::open(cx, id, &spec, value)?;
        self.ports.insert(id, port);
        self.values.insert(value, id);
        // A port that connects makes its first attempt at once.
        self.tick(cx);
        Ok(())
    }

    fn removed(&mut self, _cx: &mut Context<'_>, id: PortId) {
        if let Some(port) = self.ports.remove(&id) {
            // The carrier may live until the forwarding service forgets the station.
            port.core.output.detach();
        }
        self.values.remove(&value_of(id));
        self.update_deadline();
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, _readable: bool, writable: bool) {
        self.with_port(value, |Port { core, end }, is_first| match (end, is_first) {
            (End::Stream(end), true) => end.ready(cx, core, writable),
            (End::Stream(end), false) => end.accept(cx, core),
            (End::Datagram(_), _) => cx.wake_source(value),
        });
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> SourceProgress {
        let served = self.with_port(value, |Port { core, end }, is_first| match (end, is_first) {
            (End::Stream(end), true) => end.serve(cx, core, budget),
            (End::Datagram(end), true) => end.serve(cx, core, budget),
            (End::Datagram(end), false) => end.stalled(cx.now_ns),
            (End::Stream(_), false) => SourceProgress { progress: Progress::Parked, count: 0 },
        });
        served.unwrap_or(SourceProgress { progress: Progress::Parked, count: 0 })
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|OpenUplink(to)| {
                self.to = Some(to);
                Ok(())
            })
            .on(|request: JoinGroup| self.join(cx, request))
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        for port in self.ports.values_mut() {
            port.tick(cx);
        }
        self.update_deadline();
    }

    fn warnings(&self, id: PortId) -> Vec<String> {
        let denied = self.ports.get(&id).and_then(|port| port.core.output.denied());
        let text = |errno| {
            format!(
                "frames to the peer are dropped, because its socket refuses them ({}): let causewayd's \
                 user write to the peer's socket, by its group or permissions",
                std::io::Error::from(errno)
            )
        };
        denied.map(text).into_iter().collect()
    }

    fn counters(&self, id: PortId) -> BTreeMap<String, u64> {
        let Some(port) = self.ports.get(&id) else { return BTreeMap::new() };
        let receive = port.core.output.counters();
        by_name(&receive, &port.core.ingress.counters, port.refused_total())
    }
}
