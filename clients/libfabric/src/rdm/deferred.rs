//! Long messages to other hosts that are offered on request.
//!
//! An offer to another host occupies scarce resources until it is pulled: memory that the daemon
//! reaches, and windows of the network. An application may start any number of sends, and its
//! receiver may need the last of them first. So a bounded number is offered at once, and the
//! notices of the others have the deferred bit: the receiver requests the bytes when it has a
//! receive. A requested message is pulled soon, so that its resources become free independently of
//! the applications.
//!
//! A receiver that died sends no requests, and a sender that died sends no bytes, so peers of other
//! hosts are watched while operations depend on them.
//!
//! # Limits
//! At most [`OFFERED_MAX`] (64) messages with [`OFFERED_BYTES_MAX`] (64 MiB) together are offered
//! without a request at a time, per endpoint and not per peer; a message longer than 64 MiB to
//! another host is therefore always deferred. The deferred messages are bounded only by the limit
//! of sends. A request with an unknown name is ignored. Messages to peers with a channel are never
//! deferred; a peer of this host without one, and a peer that is not connected yet, count as
//! remote. A dead peer is found by the engine's watch, not here; its deferred messages fail with
//! `FI_EHOSTUNREACH` at the next *rare check*, which an endpoint runs about every 200 us, and only
//! within calls.
//!
//! # Place
//! [`send`](super::send) defers a message; [`target`](super::target) passes the receiver's request
//! to `send_deferred`; [`receive`](super::receive) requests the bytes. [`Rdm::progress`] calls
//! `check_partners` after each rare check. All run under the lock of the domain.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use causeway_message::library::{EndpointIdentity, Partner, is_remote};
use causeway_message::status::Status;

use super::buffer::{MessageBuffer, Payload};
use super::connect::ConnectState;
use super::control::{ControlKind, ControlRequest};
use super::engine_send::EngineSend;
use super::operation::Task;
use super::wire::CONTROL;
use super::{DomainEnv, Rdm};
use crate::abi::FI_EINVAL;
use crate::errno::{Errno, of_status};
use crate::limits::{OFFERED_BYTES_MAX, OFFERED_MAX};

/// Interval between two updates of the set of watched peers.
pub const PARTNER_CHECK: Duration = Duration::from_millis(250);

/// The state of offered and deferred messages. See the [module](self).
#[derive(Debug, Default)]
pub struct DeferredSends {
    /// Messages that were offered without a request: their lengths by operation.
    offered: HashMap<u32, usize>,
    /// The sum of the lengths in `offered`, in bytes.
    bytes: usize,
    /// Deferred messages, by receiver and operation.
    waiting: HashMap<EndpointIdentity, BTreeMap<u32, EngineSend>>,
    /// Peers of other hosts that are watched.
    watched: HashMap<EndpointIdentity, Partner>,
    /// Time of the last update of the watched peers.
    checked_at: Option<Instant>,
    /// The number of operations that had started at that update.
    started: u64,
    /// The value of [`Endpoint::looked`](causeway_endpoint::Endpoint::looked) at the last
    /// [`Rdm::check_partners`].
    pub seen: u64,
}

impl DeferredSends {
    /// Forgets an operation that ended.
    #[inline]
    pub fn forget(&mut self, operation: u32) {
        if !self.offered.is_empty()
            && let Some(len) = self.offered.remove(&operation)
        {
            self.bytes = self.bytes.saturating_sub(len);
        }
    }

    /// Returns whether `len` further bytes may be offered at once.
    fn has_room(&self, len: usize) -> bool {
        self.offered.len() < OFFERED_MAX && self.bytes.saturating_add(len) <= OFFERED_BYTES_MAX
    }

    /// Counts an offered message of `len` bytes.
    fn count_offer(&mut self, operation: u32, len: usize) {
        self.offered.insert(operation, len);
        self.bytes = self.bytes.saturating_add(len);
    }

    /// Removes a deferred message to `source`; `None` if the operation has none for that receiver.
    fn take(&mut self, source: EndpointIdentity, operation: u32) -> Option<EngineSend> {
        let of = self.waiting.get_mut(&source)?;
        let message = of.remove(&operation)?;
        if of.is_empty() {
            self.waiting.remove(&source);
        }
        Some(message)
    }
}

impl Rdm {
    /// Returns whether a long message must be deferred. Otherwise it is counted as offered.
    pub(super) fn must_defer(
        &mut self,
        partner: Option<Partner>,
        operation: u32,
        len: usize,
    ) -> bool {
        // The distance of a peer is unknown before it is connected.
        let far = |partner: Partner| partner != Partner::SELF && is_remote(partner.peer);
        if len == 0 || !partner.is_none_or(far) {
            return false;
        }
        let must_defer = !self.deferred.has_room(len);
        if !must_defer {
            self.deferred.count_offer(operation, len);
        }
        must_defer
    }

    /// Keeps a message until its receiver requests it.
    pub(super) fn defer(
        &mut self,
        env: DomainEnv<'_>,
        to: u64,
        mut message: EngineSend,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject {
            message.copy_payload();
        }
        let source = env.vector.get(to).ok_or(Errno(FI_EINVAL))?;
        self.deferred.waiting.entry(source).or_default().insert(message.operation(), message);
        Ok(())
    }

    /// Sends a deferred message that its receiver requests by operation name. A peer may request
    /// any name; unknown names are ignored.
    pub(super) fn send_deferred(&mut self, env: DomainEnv<'_>, partner: Partner, name: u32) {
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let Some(operation) = self.operations.named(name) else { return };
        let Some(message) = self.deferred.take(source, operation) else { return };
        self.submit_late(env, partner, message);
    }

    /// Requests the bytes of a deferred message from its sender.
    pub(super) fn request_body(&mut self, partner: Partner, name: u32) -> Result<(), Errno> {
        let control = ControlRequest { name, ..ControlRequest::blank(ControlKind::Want) };
        let buffer = MessageBuffer::bare(Payload::Owned(control.emit(0).into()));
        self.send_near(partner, CONTROL, Task::Internal, buffer)
    }

    /// Watches the peers that operations depend on, and fails the operations of peers that are
    /// gone.
    #[cold]
    pub fn check_partners(&mut self) {
        self.deferred.seen = self.endpoint.looked();
        let due = self.deferred.checked_at.is_none_or(|at| at.elapsed() >= PARTNER_CHECK);
        if due {
            self.deferred.checked_at = Some(Instant::now());
            self.watch_partners();
        }
        self.count_lost();
        if !self.deferred.waiting.is_empty() {
            let sources: Vec<EndpointIdentity> = self.deferred.waiting.keys().copied().collect();
            let sources = sources.into_iter().filter(|source| !self.is_interrupted(*source));
            let gone = sources.filter(|source| match self.reach_of(*source) {
                ConnectState::Connecting | ConnectState::Resuming => false,
                ConnectState::Known(partner) => !self.endpoint.library.is_reached(partner),
                ConnectState::Unknown => true,
            });
            for source in gone.collect::<Vec<_>>() {
                let status = Status::EndpointUnreachable;
                self.fail_deferred(source, of_status(status), status);
            }
        }
    }

    /// Counts and reports messages that were reported as sent and are lost: small messages to other
    /// hosts complete when they leave.
    pub(super) fn count_lost(&mut self) {
        let Some(status) = self.endpoint.library.take_lost() else { return };
        self.stats.count_loss(status as u32);
    }

    /// Watches the peers that receives wait for or that have deferred messages, and no others.
    /// After a new connect a peer is watched again.
    fn watch_partners(&mut self) {
        self.deferred.started = self.operations.started();
        let mut wanted = self.operations.waited_for();
        wanted.extend(self.deferred.waiting.keys());
        // Peers without a connection are watched after the connect.
        let known = |source| match self.reach_of(source) {
            ConnectState::Known(partner) => Some((source, partner)),
            _ => None,
        };
        let wanted: HashMap<EndpointIdentity, Partner> =
            wanted.into_iter().filter_map(known).collect();
        let before = std::mem::replace(&mut self.deferred.watched, wanted.clone());
        for (source, partner) in &wanted {
            if before.get(source) != Some(partner) {
                self.watch(*partner, true);
            }
        }
        for (source, partner) in before {
            if wanted.get(&source) != Some(&partner) {
                self.watch(partner, false);
            }
        }
    }

    /// Returns whether the set of watched peers must be updated before a thread sleeps long.
    pub fn must_check_partners(&self) -> bool {
        let lately = self.deferred.checked_at.is_some_and(|at| at.elapsed() < PARTNER_CHECK);
        lately && self.operations.started() != self.deferred.started
    }

    /// Asks the NIC side to report the end of a remote peer, or no longer to.
    fn watch(&mut self, partner: Partner, on: bool) {
        let endpoint = &mut self.endpoint;
        endpoint.library.watch(&mut endpoint.paths, partner, on);
    }

    /// Fails the deferred messages of a receiver that will not request them.
    pub(super) fn fail_deferred(&mut self, source: EndpointIdentity, err: i32, status: Status) {
        for (operation, _) in self.deferred.waiting.remove(&source).unwrap_or_default() {
            self.fail(operation, err, status);
        }
    }
}
