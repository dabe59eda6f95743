//! The interface between a service and the fabric: [`Service`], which a service implements, and
//! [`Context`], which it reaches while it is called.
//!
//! A shard calls its service on the data path: for a queue with chains, a ready descriptor, a
//! deadline or a request. A service never blocks, and never reaches another shard except through
//! mailboxes and [`crate::carrier::Carrier`]s.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use causeway_attach::{Connection, Model, Server};
use causeway_host::fd::receive::UntrustedSocket;

use crate::dispatch_mode::PollConfig;
use crate::mailbox::{Mailbox, Sender, with_doorbell};
use crate::port::{PortId, Ports};
use crate::rules::Rules;
use crate::shard::sources::Sources;
use crate::slice::Slice;
use crate::source_doorbell::SourceDoorbell;
use crate::watch::{Poller, Trigger, Watch, WatchToken};
use causeway_model::PortSpec;
use causeway_model::{CommandError, RequestDispatch, ServiceRequest, TraceQuery, TraceView};

/// Result of serving a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There was work, and there may be more: the queue is served again soon.
    Worked,
    /// The queue was empty: it is polled for a while, then its doorbell is armed and it is parked.
    Idle,
    /// The queue is not served again until the service calls [`Context::wake`] or the guest rings.
    /// The service has armed the doorbell itself if it expects the guest to ring.
    Parked,
}

/// Result of serving a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceProgress {
    /// As for a queue; a [`Progress::Parked`] source is served again when its descriptor becomes
    /// ready.
    pub progress: Progress,
    /// Frames that the source yielded; their rate decides whether the source is polled or parked.
    pub count: u32,
}

/// The data-path part of a service: Ethernet, sockets, links, MX.
///
/// Each shard has its own instance, which a single thread at a time calls. No method may block.
pub trait Service: Send + std::fmt::Debug {
    /// Returns the virtio device that such a port presents.
    fn model(&self, spec: &PortSpec) -> Model;

    /// Returns the attachment of a frontend that connected to such a port by `stream`: a virtio
    /// device over vhost-user, unless the service has another protocol.
    fn connect(&self, spec: &PortSpec, stream: UntrustedSocket) -> Connection {
        Server::new(self.model(spec), stream).into()
    }

    /// Returns whether the service keeps the attachments of such a port itself
    /// ([`Self::attached`]), because many processes attach to it at the same time.
    fn attaches(&self, _spec: &PortSpec) -> bool {
        false
    }

    /// Takes a frontend that connected to a port of [`Self::attaches`]. The connection closes if
    /// the service drops `stream`.
    fn attached(&mut self, _cx: &mut Context<'_>, _port: PortId, _stream: UntrustedSocket) {}

    /// Adds a port.
    ///
    /// # Errors
    /// A refusal removes the port again.
    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError>;

    /// Forgets a port that is being deleted. It is still in `cx.ports`; `stopped` was called
    /// before.
    fn removed(&mut self, cx: &mut Context<'_>, port: PortId);

    /// Starts queue `queue` of the port. Services whose ports have no queues need neither this
    /// method nor the next three.
    fn started(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// Stops queue `queue`, as when a VM is paused. Its chains in flight were returned, but their
    /// bytes stay readable during this call. The queue may start again where it stopped; if the
    /// guest restarts its driver or leaves, [`Self::stopped`] follows.
    fn paused(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// Reacts to a new memory map of the frontend, which running queues use already. Pending work
    /// that keeps guest addresses needs no call.
    fn memory_changed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Handles doorbell `doorbell`, which the guest rang by a message. Doorbells are numbered as
    /// queues unless the service numbers them otherwise.
    fn doorbell(&mut self, cx: &mut Context<'_>, port: PortId, doorbell: usize) {
        cx.wake(port, doorbell);
    }

    /// Drops all state of the port's device, which is going: reset, disconnected or faulted.
    fn stopped(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Serves at most `budget` chains of a queue, until [`Context::is_over`]. The service charges
    /// its work by [`Context::charge`] and resumes long work in the next call. Used entries pushed
    /// here or elsewhere are published after the call if [`Context::touch`] reported them.
    fn serve(
        &mut self,
        _cx: &mut Context<'_>,
        _port: PortId,
        _queue: usize,
        _budget: usize,
    ) -> Progress {
        Progress::Parked
    }

    /// Handles a ready descriptor of [`Context::watch`].
    fn ready(&mut self, _cx: &mut Context<'_>, _value: u32, _readable: bool, _writable: bool) {}

    /// Serves at most `budget` frames of a source ([`Context::watch_source`]). An empty source is
    /// [`Progress::Idle`] while [`Context::polls_source`] returns true; after that the service arms
    /// it, polls it once more and parks it.
    fn serve_source(
        &mut self,
        _cx: &mut Context<'_>,
        _value: u32,
        _budget: usize,
    ) -> SourceProgress {
        SourceProgress { progress: Progress::Parked, count: 0 }
    }

    /// Ends a turn: sends output that was collected over several queues.
    fn turned(&mut self) {}

    /// Answers a request of a controller.
    ///
    /// Returns a request of an unknown type unanswered.
    fn ask(&mut self, _cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
    }

    /// Returns the next deadline, in nanoseconds of [`Context::now_ns`].
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Handles a deadline that has passed.
    fn tick(&mut self, _cx: &mut Context<'_>) {}

    /// Returns the counters of a port by name.
    fn counters(&self, port: PortId) -> BTreeMap<String, u64>;

    /// Returns lasting conditions of a port that the operator should know.
    fn warnings(&self, _port: PortId) -> Vec<String> {
        Vec::new()
    }

    /// Explains a query, or returns `None` if it does not concern this service.
    fn trace(
        &self,
        _ports: &Ports,
        _rules: &Rules,
        _query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        None
    }
}

/// The parts of a shard that a service reaches while it is called.
#[derive(Debug)]
pub struct Context<'a> {
    /// All ports.
    pub ports: &'a mut Ports,
    /// Connect rules.
    pub rules: &'a mut Rules,
    /// Monotonic time of this round, in nanoseconds.
    pub now_ns: u64,
    pub(crate) poll_config: &'a PollConfig,
    pub(crate) spin_ns: u64,
    pub(crate) poller: &'a Poller,
    pub(crate) dirty: &'a mut Vec<(PortId, usize)>,
    pub(crate) woken: &'a mut Vec<(PortId, usize)>,
    pub(crate) sources: &'a mut Sources,
    pub(crate) faults: &'a mut Vec<(PortId, String)>,
    /// Remaining time of the turn.
    pub slice: &'a mut Slice,
}

/// A watched descriptor of a service; unwatched when dropped.
#[derive(Debug)]
pub struct ServiceWatch(Watch);

impl ServiceWatch {
    /// Disables events other than errors while the service polls the descriptor, so that its writer
    /// pays no wake-up. Returns false if the host fails; the events then stay enabled.
    pub fn mute(&self) -> bool {
        self.0.mute().is_ok()
    }

    /// Enables events again, and reports a descriptor that is ready already. Returns false if the
    /// host fails.
    pub fn unmute(&self) -> bool {
        self.0.unmute().is_ok()
    }
}

impl Context<'_> {
    /// Charges work of about `ns` nanoseconds to the turn ([`crate::slice::cost`] has the
    /// estimates).
    #[inline]
    pub fn charge(&mut self, ns: u64) {
        self.slice.charge(ns);
    }

    /// Returns whether the turn has used its time: the service leaves the rest for its next turn.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.slice.is_over()
    }

    /// Returns how many steps of about `ns` nanoseconds fit in the remaining time, at least 1.
    pub fn steps(&self, ns: u64) -> usize {
        let steps = self.slice.left_ns().checked_div(ns).unwrap_or(1).max(1);
        usize::try_from(steps).unwrap_or(usize::MAX)
    }

    /// Returns the remaining time of the turn, in nanoseconds.
    #[inline]
    pub fn left_ns(&self) -> u64 {
        self.slice.left_ns()
    }

    /// Reports that used entries were pushed to a queue, so that they are published.
    #[inline]
    pub fn touch(&mut self, port: PortId, queue: usize) {
        let work = self.ports.get_mut(port).and_then(|p| p.queues.get_mut(queue));
        if let Some(work) = work
            && !work.is_dirty
        {
            work.is_dirty = true;
            self.dirty.push((port, queue));
        }
    }

    /// Schedules a queue to be served.
    pub fn wake(&mut self, port: PortId, queue: usize) {
        self.woken.push((port, queue));
    }

    /// Returns whether an empty queue is still polled, so that its doorbell need not be armed.
    /// While true, the service returns [`Progress::Idle`].
    pub fn polls(&self, port: PortId, queue: usize) -> bool {
        let work = self.ports.get(port).and_then(|p| p.queues.get(queue));
        work.is_some_and(|w| w.is_polled(self.poll_config, self.now_ns, self.spin_ns))
    }

    /// Closes a port because its guest broke a rule; the operator sees the reason.
    pub fn fault(&mut self, port: PortId, reason: impl std::fmt::Display) {
        self.faults.push((port, reason.to_string()));
    }

    /// Records a guest's violation that does not close its port; the operator sees the reason.
    pub fn note(&mut self, port: PortId, reason: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        let reason = reason.to_string();
        port.faults_total = port.faults_total.saturating_add(1);
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::warn!(port = name, reason = reason.as_str(), suppressed = more; "a guest violated a rule: its port stays open");
        }
        port.fault = Some(port.event_now(now, reason));
    }

    /// Records an event that affects a guest although it broke no rule; the operator sees it beside
    /// faults, and it is not counted as a fault.
    pub fn remark(&mut self, port: PortId, event: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        let event = event.to_string();
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::info!(port = name, event = event.as_str(), suppressed = more; "an event affected a guest");
        }
        port.notice = Some(port.event_now(now, event));
    }

    /// Logs an event of a port that is not its guest's fault, within the log limit of the port.
    pub fn warn(&mut self, port: PortId, event: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::warn!(port = name, suppressed = more; "{event}");
        }
    }

    /// Watches `fd`, edge-triggered: [`Service::ready`] is called with `value` whenever reading or
    /// writing becomes possible, so the service must go on until the descriptor would block.
    ///
    /// # Errors
    /// The host has no descriptor or no memory for the watch.
    pub fn watch(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = WatchToken::Service { value };
        self.poller.watch(fd, token, Trigger::AnyEdge).map(ServiceWatch)
    }

    /// As [`Self::watch`], for reading alone. A descriptor that is rarely written is thus not
    /// reported each time that its peer reads.
    ///
    /// # Errors
    /// As for [`Self::watch`].
    pub fn watch_heard(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = WatchToken::Service { value };
        self.poller.watch(fd, token, Trigger::NewData).map(ServiceWatch)
    }

    /// Watches a source: [`Service::serve_source`] is called with `value` from when `fd` becomes
    /// readable until it returns [`Progress::Parked`].
    ///
    /// # Errors
    /// As for [`Self::watch`].
    pub fn watch_source(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        self.poller.watch(fd, WatchToken::Source { value }, Trigger::Doorbell).map(ServiceWatch)
    }

    /// Returns a mailbox for `room` messages, at least 1: [`Service::serve_source`] is called with
    /// `value` when a message arrives after the mailbox was armed.
    ///
    /// # Errors
    /// The host has no descriptor.
    pub fn mailbox<T>(
        &mut self,
        room: usize,
        value: u32,
    ) -> std::io::Result<(Sender<T>, Mailbox<T>)> {
        let doorbell = Arc::new(SourceDoorbell::new(value)?);
        let watch = self.watch_source(doorbell.as_fd(), value)?;
        self.sources.doorbells.add(&doorbell);
        Ok(with_doorbell(room, doorbell, Some(watch)))
    }

    /// Schedules a source to be served, without its descriptor being ready.
    pub fn wake_source(&mut self, value: u32) {
        self.sources.wake(value);
    }

    /// Reports that a process was notified which may need this very processor: the dispatcher
    /// yields as soon as it has no other work.
    pub fn yield_to_process(&mut self) {
        self.sources.has_notified = true;
    }

    /// Returns whether an empty source is still polled.
    pub fn polls_source(&self, value: u32) -> bool {
        self.sources.is_polled(value, self.poll_config, self.now_ns, self.spin_ns)
    }

    /// Returns whether an empty source is still polled, also because its answers arrive so soon
    /// that spinning for them pays although processors are scarce.
    pub fn awaits_source(&self, value: u32) -> bool {
        self.polls_source(value) || self.sources.is_awaited(value, self.poll_config, self.now_ns)
    }

    /// Watches a listener, level-triggered: [`Service::ready`] is called with `value` while a
    /// connection waits to be accepted.
    ///
    /// # Errors
    /// As for [`Self::watch`].
    pub fn watch_listener(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = WatchToken::Service { value };
        self.poller.watch(fd, token, Trigger::Readable).map(ServiceWatch)
    }
}
