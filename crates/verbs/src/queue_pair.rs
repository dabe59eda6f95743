//! Queue pairs: their state, and the transitions between states.
//!
//! [`crate::Subnet::modify`] checks a transition and the attributes that it requires
//! ([`Attributes`]), and changes nothing on an error. A reset forgets the peer and the work
//! requests, without completions; the other attributes stay. The engine itself moves a failed queue
//! pair to [`State::Error`], or, after a failed send work request of UC and datagrams, to
//! [`State::SendQueueError`].
//!
//! An adapter has at most 16,384 queue pairs ([`crate::limits::QUEUE_PAIRS_MAX`]), or fewer by its
//! configuration. A queue pair keeps the progress of its work between calls; the module executes no
//! work request, [`crate::engine`] does. All of it runs in the dispatcher's thread that serves the
//! subnet.

use crate::attributes::{Attributes, Change, Kind, QueuePairError, State};
use crate::engine::state::{Requester, Responder, WaitReason};
use crate::transport::Refusal;

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    kind: Kind,
    state: State,
    attributes: Attributes,
    /// Send work request in progress. Taken out while the engine executes it.
    pub(crate) requester: Option<Box<Requester>>,
    /// Receive work request in progress.
    pub(crate) responder: Box<Responder>,
    /// The queue pair is in the adapter's list of failed queue pairs.
    pub(crate) is_listed: bool,
    /// An event reported that a message arrived before the queue pair was ready to send.
    pub(crate) is_established: bool,
    /// An event reported that the shared receive queue is no longer used.
    pub(crate) has_left_shared: bool,
}

impl QueuePair {
    /// Returns a queue pair in the state [`State::Reset`].
    ///
    /// # Errors
    /// [`QueuePairError::Attribute`].
    pub fn new(kind: Kind, attributes: Attributes) -> Result<Self, QueuePairError> {
        check(&attributes)?;
        Ok(Self {
            kind,
            state: State::Reset,
            attributes,
            requester: Some(Box::default()),
            responder: Box::default(),
            is_listed: false,
            is_established: false,
            has_left_shared: false,
        })
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the reason why the last request found no responder. A later message of a connected
    /// queue pair that finds its responder clears the reason; a later datagram does not.
    pub fn refusal(&self) -> Option<Refusal> {
        self.requester.as_ref().and_then(|own| own.refusal())
    }

    /// Returns the number of requests that found no responder, since the last reset. A request that
    /// waits and is tried again counts once.
    pub fn refusals(&self) -> u64 {
        self.requester.as_ref().map_or(0, |own| own.refusals())
    }

    /// Returns why the request in progress waits. A queue pair waits with at most one request; the
    /// later ones stay in guest memory.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        self.requester.as_ref().and_then(|own| own.wait_reason())
    }

    /// Moves to a state without a check, for the engine.
    pub(crate) fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// Moves to a state and changes attributes without a check of the transition: a queue pair that
    /// was created again.
    ///
    /// # Errors
    /// [`QueuePairError::Attribute`]; nothing has changed.
    pub(crate) fn resume(&mut self, to: State, change: &Change) -> Result<(), QueuePairError> {
        let mut attributes = self.attributes;
        apply(&mut attributes, change);
        check(&attributes)?;
        (self.state, self.attributes) = (to, attributes);
        Ok(())
    }

    /// Moves to a state and changes attributes.
    ///
    /// # Errors
    /// [`QueuePairError`]; nothing has changed.
    pub(crate) fn modify(&mut self, to: State, change: &Change) -> Result<(), QueuePairError> {
        let from = self.state;
        if !from.may_become(to, self.kind) {
            return Err(QueuePairError::Transition { from, to });
        }
        let mut attributes = self.attributes;
        if !matches!(to, State::Reset | State::Error) {
            apply(&mut attributes, change);
            check(&attributes)?;
        }
        if to == State::ReadyToReceive && self.kind.is_connected() && attributes.peer.is_none() {
            return Err(QueuePairError::Attribute("peer"));
        }
        if to == State::Reset {
            (self.is_established, self.has_left_shared) = (false, false);
            attributes.peer = None;
        }
        (self.state, self.attributes) = (to, attributes);
        Ok(())
    }
}

/// Replaces the attributes that a change names.
fn apply(attributes: &mut Attributes, change: &Change) {
    fn set<T: Copy>(place: &mut T, value: Option<T>) {
        *place = value.unwrap_or(*place);
    }
    set(&mut attributes.mtu, change.mtu);
    set(&mut attributes.rights, change.rights);
    set(&mut attributes.queue_key, change.queue_key);
    set(&mut attributes.retry_count, change.retry_count);
    set(&mut attributes.rnr_retry, change.rnr_retry);
    set(&mut attributes.min_rnr_timer, change.min_rnr_timer);
    set(&mut attributes.timeout, change.timeout);
    set(&mut attributes.send_psn, change.send_psn);
    set(&mut attributes.receive_psn, change.receive_psn);
    set(&mut attributes.max_reads, change.max_reads);
    set(&mut attributes.max_peer_reads, change.max_peer_reads);
    attributes.peer = change.peer.or(attributes.peer);
}

/// Checks the ranges of attributes.
fn check(attributes: &Attributes) -> Result<(), QueuePairError> {
    let ranges = [
        (attributes.retry_count <= 7, "retry_count"),
        (attributes.rnr_retry <= 7, "rnr_retry"),
        (attributes.min_rnr_timer <= 31, "min_rnr_timer"),
        (attributes.timeout <= 31, "timeout"),
        ((256..=9216).contains(&attributes.mtu), "mtu"),
        (attributes.send_psn >> 24 == 0, "send_psn"),
        (attributes.receive_psn >> 24 == 0, "receive_psn"),
    ];
    match ranges.iter().find(|(is_valid, _)| !is_valid) {
        Some((_, name)) => Err(QueuePairError::Attribute(name)),
        None => Ok(()),
    }
}
