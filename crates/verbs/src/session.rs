//! Sessions: queue pairs that are connected to a service of the daemon in place of a queue pair.
//!
//! A reliable queue pair whose peer is its own adapter and the number [`SERVICE_QPN`] has a
//! *session* with the adapter's [`SessionService`] from its first message on. Its sends, with or
//! without immediate data and of at most [`SESSION_MESSAGE_BYTES`] (160) bytes, go to the
//! [`Session`]; the messages of the session go into the queue pair's receive queue
//! ([`Subnet::answer_sessions`](crate::Subnet::answer_sessions)). The owner of the subnet
//! (`causeway-hca`) sets the service; without one, and for other operations and longer messages, a
//! request fails with [`Status::RemoteInvalidRequest`](crate::work::Status). A session without room
//! makes the request wait, as a responder without receive work requests does. In return a process
//! without posted receive work requests gets no messages.
//!
//! A session ends, and its [`Session`] is dropped, before any of these returns: a move of the queue
//! pair to the reset or error state, its destruction, a reset or removal of the adapter, a change
//! of the service. A work request that cannot be executed and a malformed receive queue move it to
//! the error state. After a restart of the daemon the queue pair is in the error state too: its
//! process connects again.
//!
//! A message may name registered memory. The session *borrows* it ([`Regions::lend`]): the
//! [`Revocation`] is called before the destruction, invalidation or change of the region, or a
//! reset of the adapter, returns. All of it runs in the dispatcher's thread that serves the subnet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use causeway_memory::Map;

use crate::attributes::{Attributes, Kind};
use crate::limits::{SERVICE_QPN, SESSION_MESSAGE_BYTES};
use crate::region::Regions;

/// A user of registered memory. Dropping it, or its [`std::sync::Weak`], asks for nothing.
pub trait Revocation: Send + Sync + fmt::Debug {
    /// Ends all accesses to the memory. After the return no thread reads or writes it for the user.
    fn revoke(&self);
}

/// The result of passing a message to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The session has the message.
    Taken,
    /// The session has no room: the request waits and is passed again.
    Full,
    /// The session refuses the message: the request fails, and the queue pair with it.
    Refused,
}

/// The memory that a message of a queue pair may name.
#[derive(Debug)]
pub struct SessionMemory<'a> {
    /// Regions of the adapter.
    pub regions: &'a mut Regions,
    /// Memory of the adapter's owner in its present epoch.
    pub map: Arc<Map>,
    /// Protection domain of the queue pair.
    pub domain: u32,
    /// Ranges of guest addresses that the session looked up, for the budget of the call.
    pub looked_up: u64,
}

/// The daemon's end of a session. The drop ends it.
pub trait Session: Send + fmt::Debug {
    /// Takes a message of the process, with its immediate data if it has some.
    fn receive(
        &mut self,
        message: &[u8],
        immediate: Option<u32>,
        memory: &mut SessionMemory<'_>,
    ) -> Delivery;

    /// Returns the next message for the process, which stays the next until [`Self::sent`].
    fn next(&mut self) -> Option<[u8; SESSION_MESSAGE_BYTES]>;

    /// Notes that the process has the message of [`Self::next`].
    fn sent(&mut self);

    /// Returns whether the service ended the session: once [`Self::next`] has no message, the queue
    /// pair moves to the error state.
    fn has_ended(&self) -> bool;
}

/// The service behind [`SERVICE_QPN`] of an adapter.
pub trait SessionService: Send + fmt::Debug {
    /// Begins a session of a queue pair. `None` refuses it.
    fn begin(&mut self, queue_pair: u32) -> Option<Box<dyn Session>>;
}

/// The service and the sessions of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) service: Option<Box<dyn SessionService>>,
    /// By queue pair.
    open: BTreeMap<u32, Box<dyn Session>>,
}

impl Sessions {
    /// Returns whether there is no session.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the queue pairs with sessions.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.keys().copied()
    }

    /// Returns the session of a queue pair.
    pub(crate) fn get_mut(&mut self, queue_pair: u32) -> Option<&mut Box<dyn Session>> {
        self.open.get_mut(&queue_pair)
    }

    /// Returns the session of a queue pair, which begins if there is none. `None` if it is refused.
    pub(crate) fn get_or_begin(&mut self, queue_pair: u32) -> Option<&mut Box<dyn Session>> {
        if !self.open.contains_key(&queue_pair) {
            let session = self.service.as_mut()?.begin(queue_pair)?;
            self.open.insert(queue_pair, session);
        }
        self.open.get_mut(&queue_pair)
    }

    /// Ends the session of a queue pair, if it has one.
    #[inline]
    pub(crate) fn end(&mut self, queue_pair: u32) {
        if !self.open.is_empty() {
            drop(self.open.remove(&queue_pair));
        }
    }

    /// Ends all sessions.
    pub(crate) fn end_all(&mut self) {
        self.open.clear();
    }
}

/// Returns whether a queue pair of the adapter with address `mac` is connected to the service.
pub fn names_service(mac: [u8; 6], kind: Kind, attributes: &Attributes) -> bool {
    kind == Kind::Rc
        && attributes.peer.is_some_and(|peer| peer.queue_pair == SERVICE_QPN && peer.mac == mac)
}
