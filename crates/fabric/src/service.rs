//! What a service plugs into the dispatcher, and what it can reach from there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use causeway_attach::{Connection, Model, Server};
use causeway_host::fd::receive::Incoming;

use crate::bell::Bell;
use crate::mailbox::{Mailbox, Sender, with_bell};
use crate::pace::Pacing;
use crate::port::{PortId, Ports};
use crate::rules::Rules;
use crate::shard::sources::Sources;
use crate::slice::Slice;
use crate::watch::{Poller, Token, Watch, When};
use causeway_model::PortSpec;
use causeway_model::{CommandError, Dispatch, Request, TraceQuery, TraceView};

/// What serving a queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There was work, and there may be more: serve again soon.
    Worked,
    /// The queue was empty: look again for a while, then arm its doorbell and park.
    Idle,
    /// Nothing to do until the service calls [`Context::wake`] or the guest rings (the service
    /// itself has armed the doorbell if it wants to hear of it).
    Parked,
}

/// What serving a watched source came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// As for a queue; one that is [`Progress::Parked`] is served again when its descriptor is rung.
    pub progress: Progress,
    /// How many frames it gave: by their rate it is polled or parked.
    pub count: u32,
}

/// One of the services above: Ethernet, sockets, links.
///
/// Each shard has its own, and one thread at a time calls it. None may block.
pub trait Service: Send + std::fmt::Debug {
    /// The device that such a port shows.
    fn model(&self, spec: &PortSpec) -> Model;

    /// Returns the attachment of a front end that connected to such a port by `stream`: a virtio
    /// device over vhost-user, unless the service has another protocol.
    fn connect(&self, spec: &PortSpec, stream: Incoming) -> Connection {
        Server::new(self.model(spec), stream).into()
    }

    /// Returns whether the service keeps the attachments of such a port itself
    /// ([`Self::attached`]): a port that many processes attach to at a time.
    fn attaches(&self, _spec: &PortSpec) -> bool {
        false
    }

    /// A frontend of a port that the service attaches itself has connected. It is dropped if the
    /// service does not keep it.
    fn attached(&mut self, _cx: &mut Context<'_>, _port: PortId, _stream: Incoming) {}

    /// A port was added. A refusal undoes it.
    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError>;

    /// A port is being deleted; it is still in `cx.ports`. `stopped` was called before.
    fn removed(&mut self, cx: &mut Context<'_>, port: PortId);

    /// Queue `queue` of the port has started. Services whose ports have no queues leave this and
    /// the next three as they are.
    fn started(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// Queue `queue` has stopped, as when a VM is paused. Its chains in flight were given back,
    /// but their bytes stay readable during this call. It may start again where it stood; if the
    /// guest begins anew instead, or leaves, [`Self::stopped`] follows.
    fn paused(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    /// The front end replaced its memory map; running queues use the new one. Waiting work that
    /// keeps guest addresses needs no call.
    fn memory_changed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// The guest rang doorbell `doorbell` by a message. Doorbells are numbered as queues unless the
    /// service has others.
    fn doorbell(&mut self, cx: &mut Context<'_>, port: PortId, doorbell: usize) {
        cx.wake(port, doorbell);
    }

    /// The port's device is going: reset, disconnected, faulted. Nothing of it may be kept.
    fn stopped(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    /// Serves at most `budget` chains of one queue, and ends when [`Context::is_over`] says so: the
    /// work is charged by [`Context::charge`], and what is long is resumed in the next call. Used
    /// entries pushed here or elsewhere are published after the call if they were reported by
    /// [`Context::touch`].
    fn serve(
        &mut self,
        _cx: &mut Context<'_>,
        _port: PortId,
        _queue: usize,
        _budget: usize,
    ) -> Progress {
        Progress::Parked
    }

    /// A watched descriptor (see [`Context::watch`]) is ready.
    fn ready(&mut self, _cx: &mut Context<'_>, _value: u32, _readable: bool, _writable: bool) {}

    /// Serves at most `budget` frames of a source (see [`Context::watch_source`]). An empty one is
    /// [`Progress::Idle`] while [`Context::polls_source`] says so; then it is to be armed, looked
    /// at once more and parked.
    fn serve_source(&mut self, _cx: &mut Context<'_>, _value: u32, _budget: usize) -> Served {
        Served { progress: Progress::Parked, count: 0 }
    }

    /// A turn is over. What goes better together, out of several queues, is sent now.
    fn turned(&mut self) {}

    /// Answers a request of a controller.
    ///
    /// A request of a type that the service does not know is given back unanswered.
    fn ask(&mut self, _cx: &mut Context<'_>, request: Request) -> Dispatch {
        Dispatch::new(request)
    }

    /// When [`Self::tick`] wants to be called next, in nanoseconds of [`Context::now_ns`].
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// The deadline has passed.
    fn tick(&mut self, _cx: &mut Context<'_>) {}

    /// Counters of one port, by name.
    fn counters(&self, port: PortId) -> BTreeMap<String, u64>;

    /// Returns the conditions of one port that last and that the operator should know of.
    fn warnings(&self, _port: PortId) -> Vec<String> {
        Vec::new()
    }

    /// Explains a query if it is of this service.
    fn trace(
        &self,
        _ports: &Ports,
        _rules: &Rules,
        _query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        None
    }
}

/// What a service can reach while it is called.
#[derive(Debug)]
pub struct Context<'a> {
    /// All ports.
    pub ports: &'a mut Ports,
    /// The rules.
    pub rules: &'a mut Rules,
    /// Monotonic time of this round, in nanoseconds.
    pub now_ns: u64,
    pub(crate) pacing: &'a Pacing,
    pub(crate) spin_ns: u64,
    pub(crate) poller: &'a Poller,
    pub(crate) dirty: &'a mut Vec<(PortId, usize)>,
    pub(crate) woken: &'a mut Vec<(PortId, usize)>,
    pub(crate) sources: &'a mut Sources,
    pub(crate) faults: &'a mut Vec<(PortId, String)>,
    /// What is left of the turn's time.
    pub slice: &'a mut Slice,
}

/// A descriptor that a service watches; unwatched when dropped.
#[derive(Debug)]
pub struct ServiceWatch(Watch);

impl ServiceWatch {
    /// Has it heard of no more, but of errors, while it is looked at anyway: who writes to it does
    /// not pay for waking us. False: the host fails us, and it is heard of as before.
    pub fn hush(&self) -> bool {
        self.0.hush().is_ok()
    }

    /// Has it heard of again, and at once of what is there. False: the host fails us.
    pub fn listen(&self) -> bool {
        self.0.listen().is_ok()
    }
}

impl Context<'_> {
    /// Counts work of about `ns` nanoseconds against the turn ([`crate::slice::cost`] has the
    /// estimates).
    #[inline]
    pub fn charge(&mut self, ns: u64) {
        self.slice.charge(ns);
    }

    /// Whether the turn has taken its time: the service leaves the rest for its next turn.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.slice.is_over()
    }

    /// How many steps of about `ns` nanoseconds fit in the time that is left, one at least.
    pub fn steps(&self, ns: u64) -> usize {
        let steps = self.slice.left_ns().checked_div(ns).unwrap_or(1).max(1);
        usize::try_from(steps).unwrap_or(usize::MAX)
    }

    /// What is left of the turn's time, in nanoseconds.
    #[inline]
    pub fn left_ns(&self) -> u64 {
        self.slice.left_ns()
    }

    /// Reports that used entries were pushed to a queue, so that they are published.
    #[inline]
    pub fn touch(&mut self, port: PortId, queue: usize) {
        let work = self.ports.get_mut(port).and_then(|p| p.queues.get_mut(queue));
        if let Some(work) = work
            && !work.dirty
        {
            work.dirty = true;
            self.dirty.push((port, queue));
        }
    }

    /// Has a queue served again.
    pub fn wake(&mut self, port: PortId, queue: usize) {
        self.woken.push((port, queue));
    }

    /// Whether a queue that is waited for is polled, so that its doorbell need not be armed: serve
    /// it with [`Progress::Idle`] until this says no.
    pub fn polls(&self, port: PortId, queue: usize) -> bool {
        let work = self.ports.get(port).and_then(|p| p.queues.get(queue));
        work.is_some_and(|w| w.polled(self.pacing, self.now_ns, self.spin_ns))
    }

    /// Closes a port because its guest broke a rule; the reason is shown to the operator.
    pub fn fault(&mut self, port: PortId, reason: impl std::fmt::Display) {
        self.faults.push((port, reason.to_string()));
    }

    /// Notes what a guest did wrong when it costs less than its port; shown to the operator.
    pub fn note(&mut self, port: PortId, reason: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        let reason = reason.to_string();
        port.faults_total = port.faults_total.saturating_add(1);
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::warn!(port = name, reason = reason.as_str(), suppressed = more; "a guest broke a rule");
        }
        port.fault = Some(port.noted(now, reason));
    }

    /// Notes an event that costs a guest something although it broke no rule; shown to the operator
    /// beside faults and not counted as one.
    pub fn remark(&mut self, port: PortId, event: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        let event = event.to_string();
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::info!(port = name, event = event.as_str(), suppressed = more; "an event affected a guest");
        }
        port.notice = Some(port.noted(now, event));
    }

    /// Logs an event at a port that is no fault of its guest, at most as often as the port may log.
    pub fn warn(&mut self, port: PortId, event: impl std::fmt::Display) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(port) else { return };
        if let Some(more) = port.log.admit(now) {
            let name = port.spec.name.as_str();
            log::warn!(port = name, suppressed = more; "{event}");
        }
    }

    /// Watches `fd`: [`Service::ready`] is called with `value` once whenever reading or writing
    /// becomes possible, so keep on until the descriptor would block.
    pub fn watch(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = Token::Service { value };
        self.poller.watch(fd, token, When::Either).map(ServiceWatch)
    }

    /// As [`Self::watch`], for reading alone: who writes rarely waits for room, and is not called
    /// each time that the other side has read.
    pub fn watch_heard(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = Token::Service { value };
        self.poller.watch(fd, token, When::Heard).map(ServiceWatch)
    }

    /// Watches what is served like a queue: [`Service::serve_source`] is called with `value` from
    /// when `fd` becomes readable until it says that there is no more.
    pub fn watch_source(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        self.poller.watch(fd, Token::Source { value }, When::Rung).map(ServiceWatch)
    }

    /// A mailbox with room for `room` messages, at least one: [`Service::serve_source`] is called
    /// with `value` when messages come that it is armed for.
    ///
    /// # Errors
    /// The host gives no descriptor.
    pub fn mailbox<T>(
        &mut self,
        room: usize,
        value: u32,
    ) -> std::io::Result<(Sender<T>, Mailbox<T>)> {
        let bell = Arc::new(Bell::new(value)?);
        let watch = self.watch_source(bell.as_fd(), value)?;
        self.sources.bells.add(&bell);
        Ok(with_bell(room, bell, Some(watch)))
    }

    /// Has a source served, whether its descriptor was rung or not.
    pub fn wake_source(&mut self, value: u32) {
        self.sources.wake(value);
    }

    /// A process was told something, and may need this very processor to hear it: the dispatcher
    /// lets it in as soon as it has nothing else to do.
    pub fn let_in(&mut self) {
        self.sources.let_in = true;
    }

    /// Whether a source that gives nothing is to be polled on.
    pub fn polls_source(&self, value: u32) -> bool {
        self.sources.polled(value, self.pacing, self.now_ns, self.spin_ns)
    }

    /// As [`Self::polls_source`], and also whether a source gives its answers so soon that it is
    /// waited for, however scarce processors are.
    pub fn awaits_source(&self, value: u32) -> bool {
        self.polls_source(value) || self.sources.awaited(value, self.pacing, self.now_ns)
    }

    /// Watches a listener: [`Service::ready`] is called with `value` again and again while
    /// someone waits to be accepted.
    pub fn watch_listener(&self, fd: BorrowedFd<'_>, value: u32) -> std::io::Result<ServiceWatch> {
        let token = Token::Service { value };
        self.poller.watch(fd, token, When::Readable).map(ServiceWatch)
    }
}
