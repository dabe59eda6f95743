//! Frontends of ports: accepts connections, handles the events of attachments, and closes
//! connections on faults.
//!
//! The shard calls this module for events of listening sockets and of frontends' connections. A
//! frontend arrives by `accept`, or already connected by [`Shard::connect`]; `causeway_attach`
//! parses its messages; queues that start here are then served in the shard's turns ([`super`]).
//! Traffic is the service's.
//!
//! A process whose user the port's list lacks is refused, logged and counted, before any other
//! reason to refuse ([`crate::peer_user`]); the holder checks the frontends of held ports.
//!
//! A port has one frontend at a time: a second frontend is refused, which closes its connection,
//! and not queued. So is a frontend of a barred port, and one whose predecessors' descriptors are
//! still being closed. A port accepts [`CONNECTS_PER_SECOND`] (32) frontends a second; further
//! frontends wait in the socket's backlog. Where the service keeps the attachments, any number of
//! processes attach, [`ATTACHES_PER_SECOND`] (256) a second, and apart from the list of users no
//! other rule of this module applies: the service limits and closes them. A frontend bars its port
//! for [`BARRED_NS`](crate::limits::BARRED_NS) (30 s) if it stalled the dispatcher or its
//! notifications took too much time ([`crate::wakes`]), and for 30 s or more if it made the daemon
//! allocate too much memory ([`crate::footprint`]). A started queue that has neither an eventfd nor
//! doorbell messages is a fault. A ring that stays empty although its doorbell rang 8 times gets a
//! notice: the guest's memory is probably not shared.
//!
//! Three functions close a connection after an error: `fault` (the guest or frontend broke a rule),
//! `host_fault` (this host cannot serve it) and `connection_lost` (its socket failed). A connection
//! that the frontend ends is closed by `close_frontend`. The port and its listening socket stay in
//! all cases; the service drops the state of the device
//! ([`Service::stopped`](crate::Service::stopped)).

use causeway_attach::{AttachmentError, Connection, DoorbellSource, Event, FaultKind};
use causeway_host::fd::receive::UntrustedSocket;

use super::Shard;
use super::pauses::{Pausable, watch_frontend};
use crate::footprint::Footprint;
use crate::limits::{ATTACHES_PER_SECOND, CONNECTS_PER_SECOND, EMPTY_DOORBELLS_MAX, UNMAPPING_NS};
use crate::peer_user::refused_user;
use crate::port::{Port, PortId, PublishError};
use crate::watch::{Trigger, WatchToken};
use causeway_model::Name;
use causeway_model::{CommandError, PortState};

/// Reason of a fault: a memory file became shorter than its grants.
pub(super) const MEMORY_LOST: &str = "granted memory shrank: its file was truncated";

impl Shard {
    /// Accepts a frontend, or a process of a service that keeps its attachments, that connects to a
    /// port's socket.
    pub(super) fn accept(&mut self, id: PortId) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let Some(listening) = port.listener.as_mut() else { return };
        let (rate, text) = if self.service.attaches(&port.spec) {
            (
                ATTACHES_PER_SECOND,
                "processes attach too fast: new processes wait for the rate limit of the port",
            )
        } else {
            (
                CONNECTS_PER_SECOND,
                "frontends connect too fast: new frontends wait for the rate limit of the port",
            )
        };
        if !port.connects.take(now, rate) {
            self.pause_listener(id);
            self.warn(id, text);
            return;
        }
        match listening.listener.accept() {
            Ok(stream) => {
                if let Err(why) = self.admit(id, stream) {
                    self.warn(id, &why);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => self.warn(id, &format!("cannot accept a frontend: {error}")),
        }
    }

    /// Logs an event of a port, within the log limit of the port.
    pub(super) fn warn(&mut self, id: PortId, event: &str) {
        let now = self.now_ns;
        if let Some(port) = self.ports.get_mut(id)
            && let Some(more) = port.log.admit(now)
        {
            log::warn!(port = port.spec.name.as_str(), suppressed = more; "{event}");
        }
    }

    /// Attaches a frontend that is connected already by `stream`, which must be non-blocking.
    ///
    /// # Errors
    /// The port does not exist, or the frontend is refused as the module describes; `stream` is
    /// closed.
    pub fn connect(&mut self, name: &Name, stream: UntrustedSocket) -> Result<(), CommandError> {
        let port = self.ports.by_name(name).ok_or_else(|| super::ports::no_port(name))?;
        self.admit(port.id, stream).map_err(CommandError::Conflict)
    }

    /// Attaches a frontend, or passes it to a service that keeps its attachments itself. An error
    /// is the reason of a refusal, which closes `stream`.
    pub(super) fn admit(&mut self, id: PortId, stream: UntrustedSocket) -> Result<(), String> {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return Ok(()) };
        let stream = stream.charged_to(port.descriptor_account);
        if let Some(user) = refused_user(&stream, port.users.as_deref()) {
            port.refused_users.count(user);
            return Err(format!("a process of user {user} was refused: allowed_users lacks it"));
        }
        if self.service.attaches(&port.spec) {
            port.connects_total = port.connects_total.saturating_add(1);
            self.with(|s, cx| s.attached(cx, id, stream));
            self.apply_and_notify();
            return Ok(());
        }
        if port.connection.is_some() {
            return Err(
                "a second frontend was refused: the port serves one frontend at a time".into()
            );
        }
        if now < port.barred_until_ns {
            let text = "a frontend was refused for a while: the last frontend stalled the dispatcher, \
                        or made it allocate memory";
            return Err(text.into());
        }
        if port.descriptor_account.is_behind() {
            let text =
                "a frontend was refused: descriptors of earlier frontends are still being closed";
            return Err(text.into());
        }
        let connection = self.service.connect(&port.spec, stream);
        let connection =
            connection.map_err(|error| format!("cannot attach a frontend: {error}"))?;
        let watch = watch_frontend(&self.poller, id, &connection);
        port.connection_watch =
            Some(watch.map_err(|error| format!("cannot watch a frontend: {error}"))?);
        port.connection = Some(connection);
        port.state = PortState::Connected;
        port.connects_total = port.connects_total.saturating_add(1);
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::info!(port = name, suppressed = more; "frontend connected");
        }
        // The last frontend may have exceeded the message limit of the port.
        self.charge(id, 0);
        Ok(())
    }

    /// Handles the messages of a port's frontend, or the end of its connection.
    pub(super) fn receive(&mut self, id: PortId) {
        let mut events = Vec::new();
        let Some(port) = self.ports.get_mut(id) else { return };
        let allocated = port.sample_files(self.now_ns);
        let Some(connection) = port.connection.as_mut() else { return };
        let attachment = connection.attachment_mut();
        let before = attachment.cost();
        let outcome = attachment.poll(&mut events);
        let cost = attachment.cost().saturating_sub(before);
        let must_wait = attachment.must_wait();
        self.charge(id, cost);
        if must_wait {
            self.pause_frontend(id, UNMAPPING_NS);
        }
        let closed = events.contains(&Event::Closed);
        for event in events {
            self.handle(id, event, allocated);
        }
        match outcome {
            Err(error) => self.attachment_ended(id, &error),
            Ok(()) if closed => self.close_frontend(id, PortState::Listening, None),
            Ok(()) => {}
        }
        self.apply_and_notify();
    }

    /// Handles an event of an attachment. The frontend's memory files had allocated `allocated`
    /// bytes before its messages were read.
    fn handle(&mut self, id: PortId, event: Event, allocated: u64) {
        match event {
            Event::QueueStarted(queue) => self.queue_started(id, queue),
            Event::QueueStopped(queue) => self.queue_stopped(id, queue),
            Event::MemoryChanged => self.memory_changed(id, allocated),
            Event::Doorbell(doorbell) => self.handle_doorbell(id, doorbell),
            Event::Reset => self.device_reset(id),
            Event::Resumed => self.device_resumed(id),
            // The caller closes the connection after all events. Services that keep their
            // attachments read their messages themselves.
            Event::Closed | Event::Message => {}
        }
    }

    /// Resumes a device for a frontend that an earlier daemon served.
    fn device_resumed(&mut self, id: PortId) {
        if self.ports.get(id).is_some_and(|port| port.connection.is_some()) {
            self.with(|s, cx| s.resumed(cx, id));
        }
    }

    /// Handles a doorbell that the guest rang by a message.
    fn handle_doorbell(&mut self, id: PortId, doorbell: usize) {
        if self.ports.get(id).is_some_and(|port| port.connection.is_some()) {
            self.check_shared(id, doorbell);
            self.with(|s, cx| s.doorbell(cx, id, doorbell));
        }
    }

    /// Closes the connection of an attachment that ended with an error.
    fn attachment_ended(&mut self, id: PortId, error: &AttachmentError) {
        if error.is_barred()
            && let Some(port) = self.ports.get_mut(id)
        {
            port.bar(self.now_ns);
        }
        match error.kind() {
            FaultKind::Guest => self.fault(id, error.to_string()),
            FaultKind::Host => self.host_fault(id, &error.to_string()),
            FaultKind::Connection => self.connection_lost(id, &error.to_string()),
        }
    }

    /// Watches the doorbell of a started queue, and serves the queue for the first time.
    fn queue_started(&mut self, id: PortId, queue: usize) {
        let Some(port) = self.ports.get_mut(id) else { return };
        if !port.is_running(queue) {
            // A later message of the same batch stopped the queue or closed the port.
            return;
        }
        port.state = PortState::Running;
        if let Some(connector) = port.connector.as_mut() {
            connector.running();
        }
        let Some(attachment) = port.connection.as_ref().map(Connection::attachment) else { return };
        let watch = match attachment.doorbell(queue) {
            DoorbellSource::Descriptor(doorbell) => {
                let token = WatchToken::Doorbell {
                    slot: id.slot,
                    queue: u16::try_from(queue).unwrap_or(u16::MAX),
                    serial: id.serial,
                };
                self.poller.watch(doorbell, token, Trigger::Doorbell).map(Some)
            }
            DoorbellSource::Event => Ok(None),
            DoorbellSource::Absent => {
                // The queue would never be served again after it was empty.
                self.fault(id, format!("queue {queue}: the frontend gave no doorbell, and a queue without a doorbell is not served"));
                return;
            }
        };
        match watch {
            Ok(watch) => {
                let taken = port.queue(queue).map_or(0, |(_, ring)| ring.popped());
                if let Some(work) = port.queues.get_mut(queue) {
                    work.empty_doorbells = 0;
                    work.doorbell = watch;
                    work.queue_mode.start(self.now_ns, taken);
                }
            }
            Err(error) => {
                let reason = format!("queue {queue}: its doorbell cannot be watched: {error}");
                self.host_fault(id, &reason);
                return;
            }
        }
        self.with(|s, cx| s.started(cx, id, queue));
        self.withhold(id, queue);
        self.activate(id, queue);
        self.notify_restored(id, queue);
    }

    /// Notifies the guest of a restored queue. A process that died between publishing and notifying
    /// left its guest asleep; a superfluous notification is harmless.
    fn notify_restored(&mut self, id: PortId, queue: usize) {
        let Some(port) = self.ports.get_mut(id) else { return };
        if port.queue(queue).is_none_or(|(_, ring)| ring.is_fresh()) {
            return;
        }
        self.notify_at_end(id, queue);
    }

    /// Handles the outcome of a notification or of a failed publish.
    pub(super) fn notified(
        &mut self,
        id: PortId,
        queue: usize,
        outcome: Result<Option<u64>, PublishError>,
    ) {
        match outcome {
            Ok(None) => {}
            Ok(Some(pause)) => {
                self.pause(id, Pausable::Notifications, pause);
                self.warn(
                    id,
                    "notifications of the guest take too much of the dispatcher's time: they are delayed",
                );
            }
            Err(error) => {
                if let Some(port) = self.ports.get_mut(id).filter(|_| error.is_barred()) {
                    port.bar(self.now_ns);
                }
                self.faults.push((id, format!("queue {queue}: {error}")));
            }
        }
    }

    /// Counts doorbells of a ring that never had a chain. Many of them show that the guest's writes
    /// do not reach this process: its memory is private to the frontend.
    #[inline]
    pub(super) fn check_shared(&mut self, id: PortId, queue: usize) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let count = port.queues.get(queue).map_or(u8::MAX, |work| work.empty_doorbells);
        if count >= EMPTY_DOORBELLS_MAX {
            return;
        }
        let empty = port
            .queue(queue)
            .is_some_and(|(_, ring)| ring.is_fresh() && ring.available().is_ok_and(|n| n == 0));
        let count = if empty { count.saturating_add(1) } else { u8::MAX };
        if let Some(work) = port.queues.get_mut(queue) {
            work.empty_doorbells = count;
        }
        if count == EMPTY_DOORBELLS_MAX {
            let text = format!(
                "queue {queue}: its doorbell rings and its ring stays empty, so the guest's memory \
                 is probably not shared; use memory-backend-memfd with share=on"
            );
            if let Some(more) = port.log.admit(now) {
                let name = port.spec.name.as_str();
                log::warn!(port = name, notice = text.as_str(), suppressed = more; "the port carries no traffic: the memory of its guest seems private");
            }
            port.notice = Some(port.event_now(now, text));
        }
    }

    /// Handles the stop of a queue by the frontend, which keeps the state of its connections.
    fn queue_stopped(&mut self, id: PortId, queue: usize) {
        let Some(port) = self.ports.get_mut(id) else { return };
        if let Some(work) = port.queues.get_mut(queue) {
            work.doorbell = None;
            work.is_withheld = false;
        }
        let count = port.queues.len();
        if (0..count).all(|q| !port.is_running(q)) {
            port.state = PortState::Connected;
        }
        self.with(|s, cx| s.paused(cx, id, queue));
    }

    /// Handles a reset by the guest's driver.
    fn device_reset(&mut self, id: PortId) {
        if self.ports.get(id).is_some() {
            self.with(|s, cx| s.stopped(cx, id));
        }
    }

    /// Handles a new memory map. Pending work is checked in the new epoch when it runs, so nothing
    /// is dropped; every running queue is served again.
    fn memory_changed(&mut self, id: PortId, allocated: u64) {
        let Some(port) = self.ports.get_mut(id) else { return };
        // Pages that a file lost meanwhile were not in use.
        port.files.clear();
        let after = port.sample_files(self.now_ns);
        port.footprint.replace(allocated, after);
        self.with(|s, cx| s.memory_changed(cx, id));
        let count = self.ports.get(id).map_or(0, |p| p.queues.len());
        for queue in 0..count {
            if self.ports.get(id).is_some_and(|p| p.is_running(queue)) {
                self.activate(id, queue);
            }
        }
    }

    /// Closes and bars the ports that may have stalled the dispatcher for `slept_ns` since
    /// `before_ns`. A page fault in a range that is being punched out of a memory file blocks for
    /// the length of the punch, and no signal interrupts it; so ports whose files lost pages are
    /// suspects.
    pub(crate) fn bar_stalling_ports(&mut self, since_ns: u64, slept_ns: u64) {
        let now = self.now_ns;
        for id in self.ports.iter().map(|port| port.id).collect::<Vec<_>>() {
            let Some(port) = self.ports.get_mut(id) else { continue };
            if port.shrank_since(since_ns, now) {
                port.bar(now);
                let ms = slept_ns / 1_000_000;
                let why = format!(
                    "holes were punched into its memory while the daemon used it, which stalled \
                     the dispatcher for {ms} ms"
                );
                self.faults.push((id, why));
            }
        }
        self.apply_and_notify();
    }

    /// Closes the frontend of a port if more memory of its guest is charged to this process than
    /// the limit permits (by default 1 GiB, [`crate::footprint`]).
    pub(super) fn check_memory(&mut self, id: PortId) {
        let now = self.now_ns;
        if let Some(why) = self.ports.get_mut(id).and_then(|port| port.check_memory(now)) {
            self.faults.push((id, why));
        }
    }

    /// Closes the connection of a port whose guest or frontend broke a rule. Other ports are not
    /// affected.
    pub(super) fn fault(&mut self, id: PortId, reason: String) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        if port.connection.is_none() {
            return;
        }
        // Lost memory reads as zeros, which cause other faults: report the cause.
        let reason = if port.memory_lost() { MEMORY_LOST.to_owned() } else { reason };
        port.faults_total = port.faults_total.saturating_add(1);
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::warn!(port = name, reason = reason.as_str(), suppressed = more; "port closed: its guest or frontend violated a rule; other ports are not affected");
        }
        self.close_frontend(id, PortState::Faulted, Some(reason));
    }

    /// Closes the connection of a port that this host cannot serve. The frontend broke no rule: the
    /// port's fault stays as it is, and the port goes on listening.
    fn host_fault(&mut self, id: PortId, reason: &str) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id).filter(|port| port.connection.is_some()) else {
            return;
        };
        port.host_faults_total = port.host_faults_total.saturating_add(1);
        port.host_fault = Some(reason.to_owned());
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::error!(port = name, reason, suppressed = more; "this host cannot serve a frontend: its connection was closed, and it may connect again");
        }
        self.close_frontend(id, PortState::Listening, None);
    }

    /// Closes a connection with a failed socket.
    fn connection_lost(&mut self, id: PortId, reason: &str) {
        self.warn(id, &format!("the connection to a frontend was lost: {reason}"));
        self.close_frontend(id, PortState::Listening, None);
    }

    /// Drops the frontend and its grants; the socket goes on listening.
    pub(super) fn close_frontend(&mut self, id: PortId, state: PortState, fault: Option<String>) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        if port.connection.is_none() {
            return;
        }
        drop_frontend(port);
        port.state = match state {
            PortState::Listening if port.connector.is_some() => PortState::Connecting,
            state => state,
        };
        if let Some(fault) = fault {
            port.fault = Some(port.event_now(now, fault));
        } else if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::info!(port = name, suppressed = more; "frontend disconnected");
        }
        self.with(|s, cx| s.stopped(cx, id));
        self.connect_later(id);
    }
}

/// Drops the attachment and its accounts; the counters and the last fault of the port stay.
fn drop_frontend(port: &mut Port) {
    for work in &mut port.queues {
        work.doorbell = None;
        work.is_withheld = false;
        work.is_dirty = false;
        work.notify_due = false;
        work.notify_later = false;
    }
    port.footprint = Footprint::default();
    port.files.clear();
    port.files_shrank_ns = None;
    port.connection_watch = None;
    port.connection = None;
}
