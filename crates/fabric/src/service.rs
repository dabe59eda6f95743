//! The interface between a service and the fabric: [`Service`], which a service implements, and
//! [`Context`], which it reaches while it is called.
//!
//! A shard calls its service on the data path: for a queue with chains, a ready file descriptor, a
//! deadline or a request. Between the call and the guests stand [`crate::shard`], which publishes
//! used entries and notifies, and [`crate::port`], which holds the rings.
//!
//! Two kinds of inputs are not queues. A *watched descriptor* is a file descriptor of the service
//! that calls [`Service::ready`]. A *source* is a descriptor or mailbox that yields frames or
//! messages and is served like a queue ([`Service::serve_source`]). The service chooses a `u32`
//! value for each, by which the shard names it in calls; the values of watched descriptors and of
//! sources are independent.
//!
//! A service must not block, as other shards wait; the revocation of a session's memory waits for
//! one call of the serving shard. Another shard is reached only through mailboxes,
//! [`crate::carrier::Carrier`]s and the shared values of [`crate::station`] and
//! [`crate::guest_session`]. Used entries are published, and guests notified of them, by the shard.
//! Calls are not reentrant: wakes and faults that a service requests through its context take
//! effect after the call. Calls come in the thread of the dispatcher that owns the shard, one at a
//! time; [`Service::trace`] also in the thread of a command, on an instance without ports, if the
//! group has no shard of the service.

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
use crate::watch::{Poller, Trigger, WatchToken};
use causeway_model::PortSpec;
use causeway_model::{
    CommandError, PortState, RequestDispatch, ServiceRequest, TraceQuery, TraceView,
};

pub use crate::progress::{Progress, SourceProgress};
pub use crate::watch::ServiceWatch;

/// State of the attachments of a port that its service keeps itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentStatus {
    /// State of the port.
    pub state: PortState,
    /// Number of connections so far.
    pub connects_total: u64,
    /// Why the last attempt to connect failed; `None` if the port does not connect, or is
    /// connected.
    pub connect_error: Option<String>,
}

/// The data-path part of a service: Ethernet, sockets, links, MX.
///
/// Each shard has its own instance, which a single thread at a time calls. No method may block.
pub trait Service: Send + std::fmt::Debug {
    /// Returns the virtio device that a port with `spec` presents. Called before the port exists,
    /// and for each frontend by the default of [`Self::connect`].
    fn model(&self, spec: &PortSpec) -> Model;

    /// Returns the attachment of a frontend that connected by `stream` to a port with `spec`: a
    /// virtio device over vhost-user, unless the service has another protocol.
    ///
    /// # Errors
    /// The host lacks a resource for the attachment; the connection closes.
    fn connect(&self, spec: &PortSpec, stream: UntrustedSocket) -> std::io::Result<Connection> {
        Ok(Server::new(self.model(spec), stream).into())
    }

    /// Returns whether the service keeps the attachments of a port with `spec` itself, because many
    /// processes attach to it at the same time. If true, [`Self::attached`] is called for each
    /// connection, in place of [`Self::connect`]; the answer must not change while the port exists.
    fn attaches(&self, _spec: &PortSpec) -> bool {
        false
    }

    /// Returns whether the service itself listens or connects for a port with `spec`: at another
    /// socket than a Unix stream socket. If true, the shard opens no socket of the port; the answer
    /// must not change while the port exists.
    fn opens_socket(&self, _spec: &PortSpec) -> bool {
        false
    }

    /// Returns the state of the attachments of a port that the service keeps itself, for the
    /// operator; `None` if the shard knows it.
    fn attachment(&self, _port: PortId) -> Option<AttachmentStatus> {
        None
    }

    /// Takes the connection of a process to a port for which [`Self::attaches`] is true. The
    /// connection closes if the service drops `stream`. The shard has checked the user of the
    /// process and the rate of connections, and nothing else: the service bounds their number, and
    /// closes them at the latest in [`Self::removed`].
    fn attached(&mut self, _cx: &mut Context<'_>, _port: PortId, _stream: UntrustedSocket) {}

    /// Adds a port.
    ///
    /// # Errors
    /// A refusal removes the port again.
    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError>;

    /// Forgets a port that is being deleted, and is still in `cx.ports`; if the port had a
    /// frontend, `stopped` was called before.
    fn removed(&mut self, cx: &mut Context<'_>, port: PortId);

    /// Starts queue `queue` of the port; [`Self::serve`] follows. Services whose ports have no
    /// queues need none of `started`, `paused`, `memory_changed` and `doorbell`.
    fn started(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// Stops queue `queue`, as when a VM is paused. The attachment has returned its chains in
    /// flight to the guest, but their bytes stay readable during this call. The queue may start
    /// again where it stopped; if the guest restarts its driver or leaves, [`Self::stopped`]
    /// follows.
    fn paused(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// Reacts to a new memory map of the frontend, which running queues use already. Pending work
    /// that keeps guest addresses needs no call.
    fn memory_changed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Handles doorbell `doorbell`, which the guest rang by a message of the attachment instead of
    /// an eventfd. Doorbells are numbered as queues unless the service numbers them otherwise.
    fn doorbell(&mut self, cx: &mut Context<'_>, port: PortId, doorbell: usize) {
        cx.wake(port, doorbell);
    }

    /// Restores the device of a port for a frontend that an earlier daemon served, or makes the
    /// device report the loss to its driver. The guest memory is granted again, and the registers
    /// have the driver's last writes.
    fn resumed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Drops all state of the device of a port: the driver reset it, the frontend disconnected, or
    /// the port faulted. The port itself stays.
    fn stopped(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Serves at most `budget` chains of a queue, until [`Context::is_over`]. The service charges
    /// its work by [`Context::charge`] and resumes long work in the next call. It reports each
    /// queue, of any port, to which it pushed used entries by [`Context::touch`]; they are
    /// published after the call.
    fn serve(
        &mut self,
        _cx: &mut Context<'_>,
        _port: PortId,
        _queue: usize,
        _budget: usize,
    ) -> Progress {
        Progress::Parked
    }

    /// Handles a watched descriptor ([`Context::watch`]) that is ready; `value` is the number that
    /// the service gave it. An error or hang-up counts as readable and writable.
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

    /// Ends a turn: sends output that was collected over several queues. Called once per turn, also
    /// if the turn had no work.
    fn turned(&mut self) {}

    /// Answers a request of a controller, or returns a request of an unknown type unanswered.
    fn ask(&mut self, _cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
    }

    /// Returns the next deadline, in nanoseconds of [`Context::now_ns`].
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Handles the deadlines of [`Self::deadline_ns`] that have passed.
    fn tick(&mut self, _cx: &mut Context<'_>) {}

    /// Returns the counters of a port by name.
    fn counters(&self, port: PortId) -> BTreeMap<String, u64>;

    /// Returns lasting conditions that impair a port, each with its remedy, for the operator.
    fn warnings(&self, _port: PortId) -> Vec<String> {
        Vec::new()
    }

    /// Explains a decision without making it; called for queries of the types that the service
    /// registered ([`crate::ServiceRegistration::traces`]). Returns `None` for any other type.
    fn trace(
        &self,
        _ports: &Ports,
        _rules: &Rules,
        _query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        None
    }
}

/// Makes a service without ports, for a new shard or for a trace without one. Called in the thread
/// of a command, not in a dispatcher.
pub type Maker = fn() -> Box<dyn Service>;

/// The parts of a shard that a service reaches while it is called.
///
/// Four methods report an event of a port:
///
/// | method | shown as | log level | frontend of the port |
/// |---|---|---|---|
/// | [`Self::fault`] | fault, counted | warning | is closed |
/// | [`Self::note`] | fault, counted | warning | stays open |
/// | [`Self::remark`] | notice | information | stays open |
/// | [`Self::warn`] | log line only | warning | stays open |
#[derive(Debug)]
pub struct Context<'a> {
    /// All ports of the shard.
    pub ports: &'a mut Ports,
    /// Connect rules.
    pub rules: &'a mut Rules,
    /// Monotonic time of the last read of the clock, in nanoseconds; it does not advance during a
    /// call.
    pub now_ns: u64,
    pub(crate) poll_config: &'a PollConfig,
    /// Idle spin now.
    pub(crate) spin_ns: u64,
    pub(crate) poller: &'a Poller,
    /// Queues with used entries to publish.
    pub(crate) dirty: &'a mut Vec<(PortId, usize)>,
    /// Interrupts to raise, for attachments without virtqueues.
    pub(crate) interrupts: &'a mut Vec<(PortId, usize)>,
    /// Queues to serve.
    pub(crate) woken: &'a mut Vec<(PortId, usize)>,
    pub(crate) sources: &'a mut Sources,
    /// Ports to close, each with the reason.
    pub(crate) faults: &'a mut Vec<(PortId, String)>,
    /// Remaining time of the turn.
    pub slice: &'a mut Slice,
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

    /// Raises interrupt `vector` of a port's attachment at the end of the turn, once for several
    /// calls. A port has as many vectors as its [`Service::model`] has queues; others are ignored.
    pub fn interrupt(&mut self, port: PortId, vector: usize) {
        self.interrupts.push((port, vector));
    }

    /// Schedules a queue to be served after this call; no effect if it is active already or does
    /// not run.
    pub fn wake(&mut self, port: PortId, queue: usize) {
        self.woken.push((port, queue));
    }

    /// Returns whether an empty queue is still polled, so that its doorbell need not be armed. A
    /// service that waits for more chains than a queue has returns [`Progress::Idle`] while true;
    /// after that it arms the doorbell itself and returns [`Progress::Parked`].
    pub fn polls(&self, port: PortId, queue: usize) -> bool {
        let work = self.ports.get(port).and_then(|p| p.queues.get(queue));
        work.is_some_and(|w| w.is_polled(self.poll_config, self.now_ns, self.spin_ns))
    }

    /// Closes the frontend of a port after this call, because its guest broke a rule. The operator
    /// sees `reason` as the fault of the port, which goes on listening. No effect on a port without
    /// a frontend.
    pub fn fault(&mut self, port: PortId, reason: impl std::fmt::Display) {
        self.faults.push((port, reason.to_string()));
    }

    /// Records a violation by the guest that does not close its port. The operator sees `reason` as
    /// the fault of the port.
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

    /// Records an event that affects a guest although the guest broke no rule. The operator sees
    /// `event` as the notice of the port; it is not counted as a fault.
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

    /// Returns the time for which an idle queue is polled now, in nanoseconds: the configured idle
    /// spin, or less while processors are scarce.
    pub fn idle_spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// Watches `fd`, edge-triggered: [`Service::ready`] is called with `value` whenever reading or
    /// writing becomes possible, so the service must go on until the descriptor would block.
    ///
    /// # Errors
    /// The host has no descriptor or no memory for the watch.
    pub fn watch(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = WatchToken::Service { value };
        self.poller.watch(fd, token, Trigger::AnyEdge).map(ServiceWatch::new)
    }

    /// As [`Self::watch`], for reading alone: a socket that is rarely written is then not reported
    /// each time that its peer reads.
    ///
    /// # Errors
    /// As for [`Self::watch`].
    pub fn watch_heard(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = WatchToken::Service { value };
        self.poller.watch(fd, token, Trigger::NewData).map(ServiceWatch::new)
    }

    /// Watches a source: [`Service::serve_source`] is called with `value` from when `fd` becomes
    /// readable until it returns [`Progress::Parked`].
    ///
    /// # Errors
    /// As for [`Self::watch`].
    pub fn watch_source(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        self.poller
            .watch(fd, WatchToken::Source { value }, Trigger::Doorbell)
            .map(ServiceWatch::new)
    }

    /// Returns a mailbox for `room` messages, at least 1: [`Service::serve_source`] is called with
    /// `value` when a message arrives after the reader called [`Mailbox::arm`]. A new mailbox is
    /// armed.
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

    /// Reports that the service notified a process that may need this very processor: the
    /// dispatcher yields as soon as it has no other work.
    pub fn yield_to_process(&mut self) {
        self.sources.has_notified = true;
    }

    /// Returns whether an empty source is still polled: its rate is high, and its idle spin has not
    /// passed. While true, the service returns [`Progress::Idle`]; after that it arms the source.
    pub fn polls_source(&self, value: u32) -> bool {
        self.sources.is_polled(value, self.poll_config, self.now_ns, self.spin_ns)
    }

    /// Returns whether an empty source is still polled, or is awaited: its answers arrive so soon
    /// that spinning pays even while processors are scarce.
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
        self.poller.watch(fd, token, Trigger::Readable).map(ServiceWatch::new)
    }
}
