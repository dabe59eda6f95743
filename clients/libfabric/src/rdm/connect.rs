//! Connects to peers, and the messages that wait for a connect. Each pair of endpoints has a single
//! connection, even if the address vector has several indices for the peer.
//!
//! The daemon answers a connect within tens of microseconds if the peer is on this host, so the
//! first operation waits for the answer. A connect that takes longer is continued by a thread
//! ([`ConnectHelper`], or the progress thread of the domain), so that waiting messages are sent
//! although the application makes no further calls.
//!
//! # Limits
//! The first operation waits at most [`CONNECT_AT_ONCE`] (2 ms), under the lock of the domain, and
//! not at all while the daemon owes the endpoint another answer (to a connect, or about staging
//! memory). A connect fails after [`CONNECT_NS`] (10 s), in direct mode [`CONNECT_DIRECT_NS`] (1
//! h); waiting messages (with the requests of reads, writes and atomic operations), receives from
//! this peer alone and deferred messages fail with the connect, and the next operation connects
//! again. The provider itself repeats only a connect that ends with `EndpointUnreachable` while the
//! daemon is replaced or after it was, up to [`CONNECT_TRIES`] (4) attempts in all. Waiting
//! messages are bounded by the limits of sends and calls, and sent in order. After the loss of a
//! message that was reported as sent, the peer is *broken* for the rest of the endpoint's life:
//! nothing is sent there but a notification, after which the peer breaks likewise. All operations
//! to it, and receives from it alone, fail with `FI_ECONNRESET`: later injected sends, receives and
//! peeks in the call, the others by their completion. Receives from any sender go on. Retransmits
//! are the NIC side's.
//!
//! # Place
//! Sends, receives and peeks from one peer, and reads, writes and atomic operations call
//! [`Rdm::reach`] first, and wait there; the rare checks connect again to lost peers that receives
//! or kept messages wait for. [`Rdm::complete`] ends a connect; [`resend`](super::resend) decides
//! whether messages of an earlier connection go first.

use std::collections::VecDeque;
use std::time::Duration;

use causeway_message::library::{Completion, EndpointIdentity, Partner, RequestId};
use causeway_message::status::Status;

use super::buffer::{MessageBuffer, Payload};
use super::control::{ControlKind, ControlRequest};
use super::engine_send::EngineSend;
use super::operation::Task;
use super::service::key_of;
use super::wire::CONTROL;
use super::{AddressVector, DomainEnv, EndpointName, Rdm};
use crate::abi::{FI_EAGAIN, FI_ECONNREFUSED, FI_ECONNRESET, FI_EINVAL};
use crate::errno::{Errno, of_status};
use crate::limits::{CONNECT_AT_ONCE, CONNECT_DIRECT_NS, CONNECT_NS, CONNECT_TRIES};

/// Logs a failed connect: as a warning if messages waited for it, because some applications end
/// without any diagnostics. `ours` is true if the peer has the address of the own NIC.
fn log_connect_failure(to: EndpointName, status: Status, ours: bool, had_waiting: bool) {
    let why = crate::errno::describe(status as i32).to_string_lossy();
    let text = format!("cannot connect to {to}: {why}");
    let remedy = if ours {
        "if it is on another host, two NICs have one address: give each its own `mac`"
    } else {
        "`causeway peer list` on both hosts must show the other host's NIC as answering"
    };
    if had_waiting {
        crate::log::warn(&format!("{text}; {remedy}"), true);
    } else {
        crate::log::info(&text);
    }
}

/// Makes connects progress while the application makes no calls.
pub trait ConnectHelper: std::fmt::Debug + Send + Sync {
    /// Continues a connect of this endpoint, for which messages wait or will wait.
    fn help(&self);
}

/// The state of the connection to a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectState {
    /// Not connected.
    #[default]
    Unknown,
    /// A connect is in progress.
    Connecting,
    /// Connected again, and the peer's count of received messages has not arrived yet.
    Resuming,
    /// Connected; the engine's name of the peer.
    Known(Partner),
}

/// The state of a peer in the address vector.
#[derive(Debug, Default)]
pub struct PeerState {
    /// The endpoint at this index at the time of the connect.
    source: Option<EndpointIdentity>,
    /// The state of the connection.
    reach: ConnectState,
    /// The first index of the same endpoint; its queue holds the waiting messages.
    first: usize,
    /// Failed connects in a row that were caused by the daemon.
    tries: u8,
    /// Messages that wait for the connect.
    waiting: VecDeque<EngineSend>,
    /// Reads, writes and atomic operations in progress at this target.
    pub(super) calls: u32,
}

impl PeerState {
    /// Returns whether messages wait for the connect.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of waiting messages that were reported as sent.
    pub fn unsent(&self) -> usize {
        self.waiting.iter().filter(|message| message.is_copy()).count()
    }
}

impl Rdm {
    /// Returns the peer of an index if it is connected; otherwise starts a connect.
    ///
    /// # Errors
    /// The address is not in the vector; `FI_EAGAIN` without room for the request of a connect.
    #[inline]
    pub(super) fn reach(
        &mut self,
        vector: &AddressVector,
        to: u64,
    ) -> Result<Option<Partner>, Errno> {
        if let Some(partner) = self.known(vector, to) {
            return Ok(Some(partner));
        }
        let at = usize::try_from(to).map_err(|_| Errno(FI_EINVAL))?;
        self.connect(vector, to, at)
    }

    /// Returns the peer of an index if it is connected.
    #[inline]
    pub(super) fn known(&self, vector: &AddressVector, to: u64) -> Option<Partner> {
        let peer = self.peers.get(usize::try_from(to).ok()?)?;
        let ConnectState::Known(partner) = peer.reach else { return None };
        let same = peer.source == vector.get(to) && self.endpoint.library.is_reached(partner);
        same.then_some(partner)
    }

    /// Connects to the endpoint of an index, unless a connect to it is in progress or it is
    /// connected by another index: its messages then use the same connection, in order.
    #[cold]
    fn connect(
        &mut self,
        vector: &AddressVector,
        to: u64,
        at: usize,
    ) -> Result<Option<Partner>, Errno> {
        let EndpointName { source, service } = vector.name(to).ok_or(Errno(FI_EINVAL))?;
        self.note_broken();
        let number = vector.first(to);
        let first = usize::try_from(number).map_err(|_| Errno(FI_EINVAL))?;
        let end = at.max(first).saturating_add(1);
        if self.peers.len() < end {
            self.peers.resize_with(end, PeerState::default);
        }
        if self.broken.contains(source) {
            if let Some(peer) = self.peers.get_mut(at) {
                (peer.source, peer.first) = (Some(source), at);
            }
            return Ok(None);
        }
        // Messages that wait for a connect precede later ones.
        let waits = self.peers.get(first).is_some_and(PeerState::has_waiting);
        if (!waits || self.is_interrupted(source))
            && let Some(partner) = self.endpoint.library.reached(source)
        {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.first = first;
            }
            return Ok(self.resume(at, first, source, partner).then_some(partner));
        }
        if let Some(peer) = self.peers.get_mut(at) {
            peer.first = first;
        }
        let others = self.endpoint.paths.connecting();
        let Some(made) = self.dial(EndpointName { source, service }, number, first)? else {
            return Ok(None);
        };
        // The daemon answers the last of several concurrent connects after all others.
        let at_once = if others { Duration::ZERO } else { CONNECT_AT_ONCE };
        self.has_slept = true;
        if self.endpoint.await_end(made, at_once)
            && let Some(partner) = self.endpoint.library.reached(source)
        {
            return Ok(self.resume(at, first, source, partner).then_some(partner));
        }
        if let Some(helper) = &self.helper {
            helper.help();
        }
        Ok(None)
    }

    /// Connects again to endpoints of other hosts that receives wait for and that lost their
    /// connection. If an endpoint is gone, its receives fail with the connect.
    pub(super) fn find_departed(&mut self, env: DomainEnv<'_>) {
        self.note_broken();
        if self.broken.has_unnotified() {
            self.notify_broken(env);
        }
        self.note_departed();
        for source in self.flows.take_departed() {
            if let Some(partner) = self.endpoint.library.reached(source) {
                self.attach(partner);
                continue;
            }
            let waited_for = !self.operations.waiting_for(source).is_empty();
            if !waited_for && !self.is_interrupted(source) {
                continue;
            }
            let number = env.vector.find(source);
            if self.reach(env.vector, number).is_err() {
                let status = Status::EndpointUnreachable;
                self.fail_receives(source, of_status(status), status);
            }
        }
    }

    /// Assigns a peer to the index `at`; returns whether messages may be sent now. Otherwise they
    /// wait for the peer's count of received messages. `first` is the first index of the endpoint.
    fn resume(
        &mut self,
        at: usize,
        first: usize,
        source: EndpointIdentity,
        partner: Partner,
    ) -> bool {
        if self.attach(partner) {
            self.assign(at, source, partner);
            return true;
        }
        for at in [at, first] {
            if let Some(peer) = self.peers.get_mut(at) {
                (peer.reach, peer.source) = (ConnectState::Resuming, Some(source));
            }
        }
        false
    }

    /// Sends the messages that waited for a peer, in order.
    pub(super) fn flush(&mut self, env: DomainEnv<'_>, source: EndpointIdentity, partner: Partner) {
        for at in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(at) else { return };
            if peer.source != Some(source) {
                continue;
            }
            peer.reach = ConnectState::Known(partner);
            for message in std::mem::take(&mut peer.waiting) {
                self.submit_late(env, partner, message);
            }
        }
    }

    /// Marks the endpoints as broken to which the engine lost messages.
    fn note_broken(&mut self) {
        for source in self.endpoint.library.take_broken() {
            self.mark_broken(source);
        }
    }

    /// Breaks with an endpoint after a message to it was lost that was reported as sent: the
    /// receiver would take a later message in its place. Nothing is sent to the endpoint any more,
    /// and receives from that endpoint alone fail.
    #[cold]
    pub(super) fn mark_broken(&mut self, source: EndpointIdentity) {
        if !self.broken.insert(source) {
            return;
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.source == Some(source)) {
            if peer.reach != ConnectState::Connecting {
                peer.reach = ConnectState::Unknown;
            }
        }
        self.fail_receives(source, FI_ECONNRESET, Status::EndpointUnreachable);
    }

    /// Notifies endpoints of a lost message that further messages from here will not arrive.
    fn notify_broken(&mut self, env: DomainEnv<'_>) {
        for source in self.broken.take_unnotified() {
            let number = env.vector.find(source);
            let Some(first) = usize::try_from(number).ok().filter(|at| *at < self.peers.len())
            else {
                continue;
            };
            let control = ControlRequest::blank(ControlKind::Lost);
            let buffer = MessageBuffer::bare(Payload::Owned(control.emit(0).into()));
            if let Some(partner) = self.endpoint.library.reached(source) {
                let _ = self.send_near(partner, CONTROL, Task::Internal, buffer);
                continue;
            }
            let Some(name) = env.vector.name(number) else { continue };
            if self.dial(name, number, first).is_ok()
                && let Ok(operation) = self.begin(Task::Internal)
                && let Some(peer) = self.peers.get_mut(first)
            {
                peer.waiting.push_back(EngineSend::of(operation, CONTROL, buffer));
            }
        }
    }

    /// Returns whether a failed connect must be repeated, because the daemon was replaced
    /// meanwhile.
    fn must_retry(&mut self, at: usize, status: Status) -> bool {
        let way = &self.endpoint.paths;
        let renewed = way.awaits_daemon() || way.resumed() > 0;
        let Some(peer) = self.peers.get_mut(at) else { return false };
        if peer.source.is_some_and(|source| self.broken.contains(source)) {
            return false;
        }
        peer.tries = peer.tries.saturating_add(1);
        renewed && status == Status::EndpointUnreachable && peer.tries < CONNECT_TRIES
    }

    /// Disconnects an index again if its endpoint is broken: only the notification of the loss is
    /// sent there.
    fn disconnect_broken(&mut self, at: usize) {
        if let Some(peer) = self.peers.get_mut(at)
            && peer.source.is_some_and(|source| self.broken.contains(source))
        {
            peer.reach = ConnectState::Unknown;
        }
    }

    /// Starts the connect to an endpoint, whose first index is `number` and `first`. Returns `None`
    /// if a connect is in progress.
    fn dial(
        &mut self,
        EndpointName { source, service }: EndpointName,
        number: u64,
        first: usize,
    ) -> Result<Option<RequestId>, Errno> {
        let Some(peer) = self.peers.get_mut(first) else { return Err(Errno(FI_EINVAL)) };
        if peer.reach == ConnectState::Connecting {
            return Ok(None);
        }
        let operation = self.operations.add(Task::Connect(number)).ok_or(Errno(FI_EAGAIN))?;
        (peer.reach, peer.source, peer.first) = (ConnectState::Connecting, Some(source), first);
        self.endpoint.update_time();
        let (library, way) = (&mut self.endpoint.library, &mut self.endpoint.paths);
        let (address, context) = (source.address, u64::from(operation));
        // In direct mode no daemon answers for a peer that computes without calls.
        let patience = if way.goes_past() { CONNECT_DIRECT_NS } else { CONNECT_NS };
        let made = library.iconnect(way, address, key_of(service), 0, context, Some(patience));
        made.map(Some).map_err(|_| {
            self.operations.end(operation);
            if let Some(peer) = self.peers.get_mut(first) {
                peer.reach = ConnectState::Unknown;
            }
            Errno(FI_EAGAIN)
        })
    }

    /// Assigns a peer to an index.
    fn assign(&mut self, at: usize, source: EndpointIdentity, partner: Partner) {
        if let Some(peer) = self.peers.get_mut(at) {
            (peer.reach, peer.source) = (ConnectState::Known(partner), Some(source));
        }
    }

    /// Queues a message until the connect ends, with a copy of its bytes for `inject`.
    ///
    /// # Errors
    /// `FI_ECONNRESET` for an injected message to a broken peer; other messages complete with that
    /// error.
    #[cold]
    pub(super) fn queue(
        &mut self,
        to: u64,
        mut message: EngineSend,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject {
            message.copy_payload();
        }
        let at = usize::try_from(to).map_err(|_| Errno(FI_EINVAL))?;
        let (first, source) =
            self.peers.get(at).map(|peer| (peer.first, peer.source)).ok_or(Errno(FI_EINVAL))?;
        if source.is_some_and(|source| self.broken.contains(source)) {
            // An injected message has no completion, so the call itself must fail.
            if self.operations.is_injected(message.operation()) {
                self.drop_operation(message.operation());
                return Err(Errno(FI_ECONNRESET));
            }
            self.fail(message.operation(), FI_ECONNRESET, Status::EndpointUnreachable);
            return Ok(());
        }
        let peer = self.peers.get_mut(first).ok_or(Errno(FI_EINVAL))?;
        peer.waiting.push_back(message);
        Ok(())
    }

    /// Completes a connect: waiting messages are sent or fail.
    #[cold]
    pub(super) fn complete_connect(&mut self, env: DomainEnv<'_>, to: u64, ended: &Completion) {
        let Some(at) = usize::try_from(to).ok().filter(|at| *at < self.peers.len()) else { return };
        let source = ended.partner.and_then(|partner| self.endpoint.library.source_of(partner));
        if self.must_retry(at, ended.status) {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.reach = ConnectState::Unknown;
            }
            if self.connect(env.vector, to, at).is_ok() {
                return;
            }
        }
        let Some(peer) = self.peers.get_mut(at) else { return };
        peer.tries = 0;
        let waiting = std::mem::take(&mut peer.waiting);
        let right = ended.partner.filter(|_| ended.status == Status::Success);
        let right = right.filter(|_| source == peer.source);
        if let (Some(partner), Some(source)) = (right, source)
            && !self.resume(at, at, source, partner)
        {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.waiting = waiting;
            }
            return;
        }
        let Some(peer) = self.peers.get_mut(at) else { return };
        if let Some(partner) = right {
            peer.reach = ConnectState::Known(partner);
            for message in waiting {
                self.submit_late(env, partner, message);
            }
            self.disconnect_broken(at);
            return;
        }
        peer.reach = ConnectState::Unknown;
        let (err, status) = match ended.status {
            // Another endpoint has the address by now.
            Status::Success => (FI_ECONNREFUSED, Status::BadSession),
            Status::EndpointClosed => (FI_ECONNREFUSED, ended.status),
            status => (of_status(status), status),
        };
        let had_waiting = !waiting.is_empty();
        let lost = waiting.iter().any(|message| self.operations.is_injected(message.operation()));
        for message in waiting {
            self.fail(message.operation(), err, status);
        }
        if let Some(source) = self.peers.get(at).and_then(|peer| peer.source) {
            let ours = source.address.nic == self.endpoint.library.address().nic;
            if lost {
                self.mark_broken(source);
            }
            log_connect_failure(EndpointName { source, service: 0 }, status, ours, had_waiting);
            self.fail_receives(source, err, status);
            self.fail_deferred(source, err, status);
            self.give_up(source, status, false);
        }
    }

    /// Returns the state of the connection to an endpoint.
    pub(super) fn reach_of(&self, source: EndpointIdentity) -> ConnectState {
        let found = self.peers.iter().find(|peer| peer.source == Some(source));
        found.map_or(ConnectState::Unknown, |peer| peer.reach)
    }

    /// Fails the receives from an endpoint alone.
    fn fail_receives(&mut self, source: EndpointIdentity, err: i32, status: Status) {
        for operation in self.operations.waiting_for(source) {
            if self.cancel_request(operation) {
                self.fail_receive(operation, err, status);
            }
        }
    }
}
