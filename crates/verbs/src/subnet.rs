//! A subnet: the adapters of a group that may exchange messages.
//!
//! A [`Subnet`] owns its adapters and is used by a single thread at a time: the dispatcher that
//! serves the group's `hca` shard. Queue pairs of different subnets cannot reach each other:
//! nothing names an adapter of another subnet. Adapters are found by the Ethernet address that the
//! operator assigned; an address is unique in the subnet. A subnet has at most [`ADAPTERS_MAX`]
//! (4,096) adapters and refuses more.
//!
//! The methods here create, change and destroy objects; `causeway-hca` adds and removes adapters
//! and sets the policy; the commands of `causeway-mlx5` change the objects of an adapter. Messages
//! are executed by [`Subnet::progress`] in [`crate::engine`]. A queue pair that is reset or
//! destroyed, also with its adapter, gets no completions; a message that it was sending is cut, and
//! the peer's receive work request is flushed with the peer in the error state. Messages of others
//! to a queue pair that does not exist or does not receive, the error state included, find no
//! responder: reliable requests wait as unanswered, unreliable messages and datagrams are lost.

use crate::adapter::{Adapter, AdapterConfig, Retired};
use crate::adapter_id::AdapterId;
use crate::attributes::{Attributes, Change, Kind, QueuePairError, State};
use crate::engine::observer::Observer;
use crate::engine::state::{Responder, Scratch};
use crate::limits::{ADAPTERS_MAX, RETIRED_MAX};
use crate::multicast::{Groups, MulticastError};
use crate::policy::Policy;
use crate::queue_pair::QueuePair;
use crate::queues::{AsyncEvent, Queues};
use crate::transport::Local;

/// Why an adapter is not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// Another adapter of the subnet has the Ethernet address.
    #[error("another adapter of the group has the Ethernet address")]
    AddressInUse,
    /// The subnet has [`ADAPTERS_MAX`] (4,096) adapters.
    #[error("the group has {ADAPTERS_MAX} adapters already")]
    Full,
}

/// The adapters of a group.
#[derive(Debug)]
pub struct Subnet<Q> {
    /// By the slot of [`AdapterId`].
    pub(crate) adapters: Vec<Option<Box<Adapter<Q>>>>,
    /// Look-up of adapters by Ethernet address, and the policy.
    pub(crate) transport: Local,
    /// Multicast groups.
    pub(crate) groups: Groups,
    /// Lists of addresses, reused by each copy.
    pub(crate) scratch: Scratch,
    /// Copies of messages, while a capture runs.
    pub(crate) observer: Option<Box<Observer>>,
    /// Adapters that were changed since the last [`Self::visit_touched`], each once.
    touched: Vec<AdapterId>,
    /// Serial number of the next adapter.
    serial: u32,
}

impl<Q: Queues> Default for Subnet<Q> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q: Queues> Subnet<Q> {
    /// Returns a subnet without adapters.
    pub fn new() -> Self {
        Self {
            adapters: Vec::new(),
            transport: Local::default(),
            groups: Groups::default(),
            scratch: Scratch::default(),
            observer: None,
            touched: Vec::new(),
            serial: 0,
        }
    }

    /// Adds an adapter.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(&mut self, config: &AdapterConfig, queues: Q) -> Result<AdapterId, AddError> {
        let free = self.adapters.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.adapters.len());
        let number = u32::try_from(slot).ok().filter(|_| slot < ADAPTERS_MAX);
        let id = AdapterId { slot: number.ok_or(AddError::Full)?, serial: self.serial };
        if !self.transport.insert(config.mac, id) {
            return Err(AddError::AddressInUse);
        }
        self.serial = self.serial.wrapping_add(1);
        let adapter = Some(Box::new(Adapter::new(id, config, queues)));
        match self.adapters.get_mut(slot) {
            Some(place) => *place = adapter,
            None => self.adapters.push(adapter),
        }
        Ok(id)
    }

    /// Removes an adapter with all its objects. Returns its queues.
    pub fn remove(&mut self, id: AdapterId) -> Option<Q> {
        drop(self.clear(id));
        while self.adapter(id).is_some_and(Adapter::has_unfinished) {
            drop(self.cut_retired(id, usize::MAX));
        }
        let mac = self.adapter(id)?.mac;
        self.transport.remove(mac);
        let adapter = self.adapters.get_mut(id.slot as usize)?.take()?;
        Some(adapter.queues)
    }

    /// Takes all queue pairs, regions, limits and memberships out of an adapter: a device reset.
    /// The time follows from the memberships, sessions and lent regions, and from the messages of
    /// the oldest reset if [`RETIRED_MAX`] resets have messages left. Returns the objects, or keeps
    /// them for [`Self::cut_retired`] if messages of them may have to be ended.
    #[must_use = "the drop takes time for each object"]
    pub fn clear(&mut self, id: AdapterId) -> Option<Retired> {
        self.groups.forget(id);
        // A driver that resets faster than the caller ends messages pays for the rest itself.
        while self.adapter(id)?.retired.len() >= RETIRED_MAX {
            drop(self.cut_retired(id, usize::MAX));
        }
        let adapter = self.adapter_mut(id)?;
        let retired = adapter.retire();
        if retired.unfinished.is_empty() {
            return Some(retired);
        }
        adapter.retired.push_back(retired);
        None
    }

    /// Replaces the rules for traffic between adapters; `None` denies nothing. The rules apply to
    /// work requests from the next call of [`Self::progress`] on, also of connected queue pairs.
    pub fn set_policy(&mut self, policy: Option<Box<dyn Policy>>) {
        self.transport.set_policy(policy);
    }

    /// Returns an adapter.
    #[inline]
    pub fn adapter(&self, id: AdapterId) -> Option<&Adapter<Q>> {
        let adapter = self.adapters.get(id.slot as usize)?.as_deref()?;
        if adapter.id == id { Some(adapter) } else { None }
    }

    /// Returns an adapter, for changes.
    #[inline]
    pub fn adapter_mut(&mut self, id: AdapterId) -> Option<&mut Adapter<Q>> {
        let adapter = self.adapters.get_mut(id.slot as usize)?.as_deref_mut()?;
        if adapter.id != id {
            return None;
        }
        if !adapter.is_touched {
            adapter.is_touched = true;
            self.touched.push(id);
        }
        Some(adapter)
    }

    /// Returns two different adapters, the second for changes; `None` if either does not exist.
    #[inline]
    pub fn adapter_pair(
        &mut self,
        first: AdapterId,
        second: AdapterId,
    ) -> Option<(&Adapter<Q>, &mut Adapter<Q>)> {
        let slots = [first.slot as usize, second.slot as usize];
        let [own, other] = self.adapters.get_disjoint_mut(slots).ok()?;
        let own = own.as_deref().filter(|own| own.id == first)?;
        let other = other.as_deref_mut().filter(|other| other.id == second)?;
        if !other.is_touched {
            other.is_touched = true;
            self.touched.push(second);
        }
        Some((own, other))
    }

    /// Calls `visit` with each adapter that may have changed since the last call, once. Work of an
    /// adapter changes its peers too, so a caller finds here whose interrupts and completions it
    /// has to look at. What `visit` changes does not count as a change.
    pub fn visit_touched(&mut self, mut visit: impl FnMut(AdapterId, &mut Adapter<Q>)) {
        for id in self.touched.drain(..) {
            let adapter = self.adapters.get_mut(id.slot as usize).and_then(Option::as_deref_mut);
            if let Some(adapter) = adapter.filter(|adapter| adapter.id == id) {
                adapter.is_touched = false;
                visit(id, adapter);
            }
        }
    }

    /// Returns all adapters.
    pub fn adapters(&self) -> impl Iterator<Item = &Adapter<Q>> {
        self.adapters.iter().flatten().map(Box::as_ref)
    }

    /// Creates a queue pair in the state [`State::Reset`]. Returns its number. The newest queue
    /// pair of kind [`Kind::Gsi`] receives the datagrams to queue pair number 1.
    ///
    /// # Errors
    /// [`QueuePairError`].
    pub fn create_queue_pair(
        &mut self,
        id: AdapterId,
        kind: Kind,
        attributes: Attributes,
    ) -> Result<u32, QueuePairError> {
        let queue_pair = QueuePair::new(kind, attributes)?;
        let adapter = self.adapter_mut(id).ok_or(QueuePairError::NoAdapter)?;
        let number = adapter.queue_pairs.insert(queue_pair).map_err(|_| QueuePairError::Limit)?;
        if kind == Kind::Gsi {
            adapter.general_all.insert(number);
            adapter.general = Some(number);
        }
        Ok(number)
    }

    /// Moves a queue pair to a state and changes attributes.
    ///
    /// [`State::Error`] makes the queue pair due ([`Self::next_due`]); [`Self::progress`] then
    /// flushes its work requests. [`State::Reset`] forgets all work requests without completions;
    /// the queues of the adapter must forget theirs too. `change` has no effect with these two
    /// states.
    ///
    /// # Errors
    /// [`QueuePairError`]; nothing has changed.
    pub fn modify(
        &mut self,
        id: AdapterId,
        number: u32,
        to: State,
        change: &Change,
    ) -> Result<(), QueuePairError> {
        if to == State::Reset {
            // The peer is named by attributes that the transition forgets.
            self.abandon(id, number);
        }
        let adapter = self.adapter_mut(id).ok_or(QueuePairError::NoAdapter)?;
        let pair = adapter.queue_pairs.get_mut(number).ok_or(QueuePairError::NoQueuePair)?;
        pair.modify(to, change)?;
        match to {
            State::Error => adapter.fail(number),
            State::Reset => {
                adapter.sessions.end(number);
                let fresh = pair.requester.take().map(|old| old.renewed()).unwrap_or_default();
                pair.requester = Some(Box::new(fresh));
                *pair.responder = Responder::default();
            }
            State::Drained if pair.requester.as_ref().is_none_or(|own| !own.is_busy()) => {
                adapter.queues.report(AsyncEvent::SendQueueDrained(number));
            }
            _ => adapter.check_session(number),
        }
        Ok(())
    }

    /// Destroys a queue pair. Its work requests get no completions.
    ///
    /// # Errors
    /// [`QueuePairError::NoAdapter`] or [`QueuePairError::NoQueuePair`].
    pub fn destroy_queue_pair(&mut self, id: AdapterId, number: u32) -> Result<(), QueuePairError> {
        self.abandon(id, number);
        self.groups.detach_all((id, number));
        let adapter = self.adapter_mut(id).ok_or(QueuePairError::NoAdapter)?;
        adapter.sessions.end(number);
        adapter.queue_pairs.remove(number).ok_or(QueuePairError::NoQueuePair)?;
        if adapter.general_all.remove(&number) && adapter.general == Some(number) {
            adapter.general = adapter.general_all.last().copied();
        }
        Ok(())
    }

    /// Attaches a datagram queue pair to a multicast group.
    ///
    /// # Errors
    /// [`MulticastError`].
    pub fn attach_multicast(
        &mut self,
        id: AdapterId,
        number: u32,
        gid: [u8; 16],
    ) -> Result<(), MulticastError> {
        let pair = self.adapter(id).and_then(|adapter| adapter.queue_pairs.get(number));
        if pair.is_none_or(|pair| !pair.kind().is_datagram()) {
            return Err(MulticastError::NoQueuePair);
        }
        self.groups.attach(gid, (id, number))
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// [`MulticastError::NotAttached`].
    pub fn detach_multicast(
        &mut self,
        id: AdapterId,
        number: u32,
        gid: [u8; 16],
    ) -> Result<(), MulticastError> {
        self.groups.detach(gid, (id, number))
    }

    /// Returns the next queue pair that failed or waited until `now_ns`. The caller calls
    /// [`Self::progress`] for it.
    pub fn next_due(&mut self, id: AdapterId, now_ns: u64) -> Option<u32> {
        let adapter = self.adapter_mut(id)?;
        while let Some(number) = adapter.failed.pop_front() {
            if let Some(pair) = adapter.queue_pairs.get_mut(number) {
                pair.is_listed = false;
                return Some(number);
            }
        }
        let (deadline, number) = *adapter.deadlines.first()?;
        if deadline > now_ns {
            return None;
        }
        adapter.deadlines.pop_first();
        Some(number)
    }

    /// Returns the earliest time at which a waiting queue pair of an adapter is due.
    pub fn deadline(&self, id: AdapterId) -> Option<u64> {
        self.adapter(id)?.deadline_ns()
    }
}
