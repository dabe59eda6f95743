//! The ports of a shard: adds and deletes them, and makes the views for the operator.
//!
//! The registry (`crate::registry`) calls these functions by an order, in the dispatcher's thread
//! and between two turns (for a trace also on a shard without ports, in the thread of the command);
//! a dispatcher that stops closes all ports; tests call the functions directly. The registry has
//! checked the specification, and that its name and paths are unique; this module does not check
//! them again. Frontends of an added port are handled by [`super::frontend`].
//!
//! A shard takes at most [`PORTS_MAX`] (1,024) ports. No socket is opened here for a port whose
//! service opens its own (`Service::opens_socket`). A failed addition leaves no port. Deleting a
//! port closes its frontend at once: data in flight is lost. A view does not know the number of its
//! dispatcher; the registry fills it in.

use std::collections::BTreeMap;
use std::path::Path;

use causeway_host::Account;
use causeway_wire::virtio::{VIRTIO_F_RING_PACKED, has};

use super::Shard;
use super::pauses::watch_listener;
use crate::connector::Connector;
use crate::footprint::Footprint;
use crate::listen::Listener;
use crate::log_limit::LogLimit;
use crate::peer_user::RefusedUsers;
use crate::port::{ListeningSocket, Port, PortEvent, PortId, QueueWork};
use crate::rate::Bucket;
use crate::wakes::WakeAccount;
use causeway_model::PollMode;
use causeway_model::limits::PORTS_MAX;
use causeway_model::port::HELD_EXTENSION;
use causeway_model::{
    CommandError, EventFrontend, PortState, PortView, QueueView, TraceQuery, TraceView,
};
use causeway_model::{Name, PortSpec};

/// Returns the error of a command that names a missing port.
pub(crate) fn no_port(name: &Name) -> CommandError {
    CommandError::NotFound { what: "port", name: name.to_string() }
}

/// Returns the error of a command that names a missing group.
pub(crate) fn no_group(name: &Name) -> CommandError {
    CommandError::NotFound { what: "group", name: name.to_string() }
}

/// Returns whether a socket is that of a port behind the holder.
pub(super) fn is_held(socket: &Path) -> bool {
    socket.extension().is_some_and(|extension| extension == HELD_EXTENSION)
}

/// Reason of the mode of a queue that does not run.
const STOPPED: &str = "the queue is stopped";

impl Shard {
    /// Adds a port with checked values. If `listening`, frontends connect to its socket, or the
    /// port connects to theirs ([`SocketAccess::connect`](causeway_model::SocketAccess::connect));
    /// otherwise the caller passes them in by [`Shard::connect`].
    ///
    /// # Errors
    /// The group is missing, the socket cannot be bound, the service refuses, or the limit of ports
    /// ([`PORTS_MAX`], 1,024) is reached.
    pub fn port_add(&mut self, spec: PortSpec, listening: bool) -> Result<PortView, CommandError> {
        let queues = self.service.model(&spec).queues;
        let group = self.ports.group(&spec.group).ok_or_else(|| no_group(&spec.group))?;
        let id = self.ports.free_slot(PORTS_MAX).ok_or_else(too_many_ports)?;
        let listening = listening && !self.service.opens_socket(&spec);
        let connects = listening && spec.access.connect;
        let listener = if listening && !connects { Some(self.listen(id, &spec)?) } else { None };
        // The peer at a held port's inner socket is the holder, which checks its frontends.
        let is_inner = is_held(&spec.socket);
        let users = spec.access.socket_users().filter(|_| !is_inner);
        self.ports.insert(Port {
            spec,
            group,
            id,
            descriptor_account: Account::unique(),
            state: if connects { PortState::Connecting } else { PortState::Listening },
            fault: None,
            notice: None,
            faults_total: 0,
            host_fault: None,
            host_faults_total: 0,
            connects_total: 0,
            barred_until_ns: 0,
            log: LogLimit::default(),
            listener,
            connector: connects.then(Connector::default),
            users,
            refused_users: RefusedUsers::default(),
            connects: Bucket::default(),
            connection: None,
            messages: Bucket::default(),
            connection_watch: None,
            files: BTreeMap::new(),
            files_shrank_ns: None,
            footprint: Footprint::default(),
            footprint_faults: 0,
            wakes: WakeAccount::default(),
            wakes_paused_until_ns: 0,
            queues: std::iter::repeat_with(QueueWork::default).take(queues).collect(),
        });
        let added = self.with(|s, cx| s.added(cx, id));
        self.apply_and_notify();
        if let Err(error) = added {
            self.ports.remove(id);
            return Err(error);
        }
        self.connect_out(id);
        if is_inner {
            self.expect_return(id);
        }
        let port = self.ports.get(id).ok_or_else(too_many_ports)?;
        let (name, kind) = (port.spec.name.as_str(), port.spec.kind.name());
        match port.spec.kind.kind().has_frontend {
            true => {
                let socket = port.spec.socket.display();
                log::info!(port = name, socket:% = socket; "port added");
            }
            false => log::info!(port = name, kind; "port added"),
        }
        Ok(self.view(port))
    }

    /// Binds and watches the socket of a port.
    fn listen(&self, id: PortId, spec: &PortSpec) -> Result<ListeningSocket, CommandError> {
        let listener = Listener::bind(&spec.socket)?;
        let watch = watch_listener(&self.poller, id, &listener);
        let watch = watch.map_err(|e| CommandError::Host(format!("port {}: {e}", spec.name)))?;
        Ok(ListeningSocket { listener, watch: Some(watch) })
    }

    /// Closes a port, its connections and its socket.
    ///
    /// # Errors
    /// No port has this name.
    pub fn port_delete(&mut self, name: &Name) -> Result<(), CommandError> {
        let id = self.ports.by_name(name).ok_or_else(|| no_port(name))?.id;
        self.close_frontend(id, PortState::Listening, None);
        self.with(|s, cx| s.removed(cx, id));
        self.ports.remove(id);
        self.forget_return(id);
        self.apply_and_notify();
        log::info!(port = name.as_str(); "port deleted");
        Ok(())
    }

    /// Closes every port.
    pub(crate) fn close_all(&mut self) {
        let names: Vec<Name> = self.ports.iter().map(|p| p.spec.name.clone()).collect();
        for name in names {
            let _ = self.port_delete(&name);
        }
    }

    /// Returns every port, in no particular order.
    pub fn port_views(&self) -> Vec<PortView> {
        self.ports.iter().map(|p| self.view(p)).collect()
    }

    /// Returns one port.
    ///
    /// # Errors
    /// No port has this name.
    pub fn port_view(&self, name: &Name) -> Result<PortView, CommandError> {
        let port = self.ports.by_name(name).ok_or_else(|| no_port(name))?;
        Ok(self.view(port))
    }

    /// Returns the forwarding decision for a query; `None` if the query does not concern this
    /// service.
    pub fn trace(&self, query: &TraceQuery) -> Option<Result<TraceView, CommandError>> {
        self.service.trace(&self.ports, &self.rules, query)
    }

    /// Returns the view of a port now; `dispatcher` is 0.
    fn view(&self, port: &Port) -> PortView {
        let device = port.device();
        let packed = has(port.features(), VIRTIO_F_RING_PACKED);
        let format = if packed { "packed" } else { "split" };
        let queue = |(index, work): (usize, &QueueWork)| {
            let ring = device.and_then(|d| d.queues.get(index)?.ring.as_ref());
            // The rate of a sleeping queue is not updated until it wakes; the view shows the rate
            // of now.
            let mut queue_mode = work.queue_mode;
            if let Some(ring) = ring {
                queue_mode.update(&self.poll_config, self.now_ns, ring.popped());
            }
            QueueView {
                index,
                size: ring.map_or(0, causeway_ring::Queue::size),
                format: ring.map_or(format, causeway_ring::Queue::format).into(),
                running: ring.is_some(),
                mode: if ring.is_some() {
                    queue_mode.mode(&self.poll_config)
                } else {
                    PollMode::GuestDriven
                },
                mode_reason: match ring {
                    Some(_) => queue_mode.reason(&self.poll_config),
                    None => STOPPED.to_owned(),
                },
                mode_changes_total: queue_mode.changes(),
                rate: if ring.is_some() { queue_mode.rate() } else { 0 },
            }
        };
        let age = |event: &PortEvent| event.age_seconds(self.now_ns);
        let of = |event: &PortEvent| match port.connection.is_some()
            && event.frontend == port.connects_total
        {
            true => EventFrontend::Present,
            false => EventFrontend::Former,
        };
        let kept = self.service.attachment(port.id);
        let connect_error = port.connector.as_ref().and_then(|c| c.error().map(str::to_owned));
        PortView {
            spec: port.spec.clone(),
            state: kept.as_ref().map_or(port.state, |kept| kept.state),
            dispatcher: 0,
            fault: port.fault.as_ref().map(|fault| fault.text.clone()),
            fault_age_seconds: port.fault.as_ref().map(age),
            fault_of: port.fault.as_ref().map(of),
            notice: port.notice.as_ref().map(|notice| notice.text.clone()),
            notice_age_seconds: port.notice.as_ref().map(age),
            notice_of: port.notice.as_ref().map(of),
            faults_total: port.faults_total,
            host_fault: port.host_fault.clone(),
            host_faults_total: port.host_faults_total,
            connects_total: kept.as_ref().map_or(port.connects_total, |kept| kept.connects_total),
            connect_error: kept.map_or(connect_error, |kept| kept.connect_error),
            refused_users_total: port.refused_users.total(),
            refused_user: port.refused_users.last(),
            warnings: self.service.warnings(port.id),
            held: false,
            cut_off: None,
            features: format!("{:#x}", port.features()),
            memory_bytes: port.map().map_or(0, causeway_memory::Map::bytes),
            queues: port.queues.iter().enumerate().map(queue).collect(),
            counters: self.service.counters(port.id),
        }
    }
}

/// Returns the error of a port beyond [`PORTS_MAX`] (1,024).
pub(crate) fn too_many_ports() -> CommandError {
    CommandError::Full(format!("there are {PORTS_MAX} ports already"))
}
