//! Copies of messages for a capture, which shows each message as packets between the adapters.
//!
//! While adapters are observed ([`Subnet::observe`]), the engine appends an [`ObservedMessage`] for
//! each message of these adapters, sent or received, that ended with success or that its responder
//! refused, with up to a number of bytes of its payload. It names the adapters that received the
//! message: none, if a datagram or a message of an unreliable connection was denied, lost or not
//! accepted. The captures of `causeway-hca` choose the adapters, and take the messages in the same
//! turn of the dispatcher ([`Subnet::take_observations`]); at most [`OBSERVATIONS_MAX`] (1,024)
//! wait, and further ones are counted only. Messages that are not sent, because the requester's own
//! memory or work request is invalid, are not observed, nor are retries and messages that ended
//! without an answer (retries exhausted, flushed). A message of an unknown destination is counted
//! with those that found no room. The payload is read after the message, from the requester's
//! memory; bytes that cannot be read appear as zeroes. While no adapter is observed the engine
//! takes one branch for each message. A further call of [`Subnet::observe`] replaces the adapters
//! and keeps the messages that were not taken; without adapters it drops them. An adapter that no
//! longer exists has no effect, and an adapter that is listed twice counts once.

use causeway_memory::Cursor;

use crate::adapter_id::AdapterId;
use crate::attributes::Kind;
use crate::budget::Budget;
use crate::engine::observer::{Endpoint, Observation, ObservedMessage, Observer};
use crate::engine::segments::Place;
use crate::engine::state::Requester;
use crate::engine::step::Origin;
use crate::limits::{GENERAL_SERVICE_QPN, OBSERVATIONS_MAX, STEP_SPANS_MAX};
use crate::queue_pair::QueuePair;
use crate::queues::Queues;
use crate::region::Rights;
use crate::subnet::Subnet;
use crate::work::{AddressVector, NetworkHeader, Operation, Status};

impl<Q: Queues> Subnet<Q> {
    /// Observes the messages of these adapters, with up to `payload_max` bytes each, in place of
    /// those that were observed before. An empty list ends the observation; messages that were not
    /// taken are lost then.
    pub fn observe(&mut self, adapters: Vec<AdapterId>, payload_max: usize) {
        let observer = self.observer.take().filter(|_| !adapters.is_empty());
        let observer = observer.map(|observer| *observer).unwrap_or_default();
        let is_used = !adapters.is_empty();
        let observer = Observer { adapters, payload_max, ..observer };
        self.observer = is_used.then(|| Box::new(observer));
    }

    /// Takes the observed messages, and the number of those that found no room or have an unknown
    /// destination, since the last call.
    pub fn take_observations(&mut self) -> (Vec<ObservedMessage>, u64) {
        match &mut self.observer {
            Some(observer) => {
                (std::mem::take(&mut observer.messages), std::mem::take(&mut observer.missed))
            }
            None => (Vec::new(), 0),
        }
    }

    /// Observes the message of a requester that ended with a status, or was lost. Takes the copied
    /// bytes from the budget.
    #[cold]
    pub(super) fn observe_message(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (status, is_lost): (Status, bool),
        budget: &mut Budget,
    ) {
        let was_answered = matches!(
            status,
            Status::Success
                | Status::RemoteInvalidRequest
                | Status::RemoteAccess
                | Status::RemoteOperation
        );
        let is_message = !requester.work.operation.is_local();
        let receivers = receivers(origin, requester, is_lost);
        let Some(observer) = &self.observer else { return };
        let is_observed = |id: &AdapterId| observer.adapters.contains(id);
        let is_wanted = is_observed(&origin.id) || receivers.iter().any(is_observed);
        if !was_answered || !is_message || !is_wanted {
            return;
        }
        let has_room = observer.messages.len() < OBSERVATIONS_MAX;
        let payload_max = observer.payload_max;
        let found =
            if has_room { self.observation(origin, requester, status, payload_max) } else { None };
        let Some(observer) = &mut self.observer else { return };
        match found {
            Some(message) => {
                budget.take_bytes(message.payload.len() as u64);
                observer.messages.push(ObservedMessage { message, sender: origin.id, receivers });
            }
            None => observer.missed = observer.missed.wrapping_add(1),
        }
    }

    /// Returns the observation of a message; `None` if its destination is unknown.
    fn observation(
        &self,
        origin: &Origin,
        requester: &Requester,
        status: Status,
        payload_max: usize,
    ) -> Option<Observation> {
        let (work, attributes) = (&requester.work, &origin.attributes);
        let payload = self.read_payload(origin, requester, payload_max);
        let (source_gid, responder, queue_key) = match (origin.kind.is_datagram(), work.destination)
        {
            (true, Some(to)) => {
                let adapter = self.adapter(origin.id)?;
                let (header, kind) = adapter.queues.network_header(&to, 0);
                let responder = datagram_end(&to);
                (source_of(&header, kind), responder, to.queue_key)
            }
            _ => {
                let peer = attributes.peer?;
                let there = requester
                    .route
                    .and_then(|route| self.peer_pair(route.adapter, peer.queue_pair));
                let back = there.and_then(|pair| pair.attributes().peer);
                let responder = Endpoint {
                    mac: peer.mac,
                    gid: peer.gid,
                    queue_pair: peer.queue_pair,
                    sequence: there.map_or(0, |pair| pair.attributes().send_psn),
                };
                (back.map_or([0; 16], |back| back.gid), responder, 0)
            }
        };
        // Receivers see the well-known number of the general service interface.
        let is_general = origin.kind == Kind::Gsi;
        let requester_end = Endpoint {
            mac: origin.mac,
            gid: source_gid,
            queue_pair: if is_general { GENERAL_SERVICE_QPN } else { origin.number },
            sequence: attributes.send_psn,
        };
        Some(Observation {
            kind: origin.kind,
            requester: requester_end,
            responder,
            operation: work.operation.clone(),
            mtu: attributes.mtu,
            queue_key,
            xrc_queue: work.xrc_queue,
            is_solicited: work.is_solicited,
            status,
            total: requester.transfer.total,
            payload,
        })
    }

    /// Returns the queue pair of a peer.
    fn peer_pair(&self, id: AdapterId, number: u32) -> Option<&QueuePair> {
        self.adapter(id)?.queue_pairs.get(number)
    }

    /// Returns the first bytes of the requester's memory of a message.
    fn read_payload(&self, origin: &Origin, requester: &Requester, most: usize) -> Vec<u8> {
        let work = &requester.work;
        let total = usize::try_from(requester.transfer.total).unwrap_or(usize::MAX);
        let most = match work.operation {
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => 8,
            _ => most.min(total),
        };
        let mut payload = vec![0; most];
        let inline = if work.is_inline { work.inline.as_slice() } else { &[] };
        let inline = inline.get(..most).unwrap_or(inline);
        let (first, rest) =
            payload.split_at_mut_checked(inline.len()).unwrap_or((&mut [], &mut []));
        first.copy_from_slice(inline);
        if rest.is_empty() {
            return payload;
        }
        let needed = match work.operation {
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
                Rights::LOCAL_WRITE
            }
            _ => Rights::LOCAL_READ,
        };
        let mut spans = Vec::new();
        let Some(adapter) = self.adapter(origin.id) else { return payload };
        let access = adapter.access(origin.attributes.domain, needed);
        let out = (STEP_SPANS_MAX, &mut spans);
        let resolved = access.resolve(&work.segments, Place::default(), rest.len() as u64, out);
        let len = usize::try_from(resolved.unwrap_or(0)).unwrap_or(0);
        if let Some(room) = rest.get_mut(..len) {
            let _ = Cursor::new(&spans).read(adapter.queues.map(), room);
        }
        payload
    }
}

/// Returns the adapters that received the message of a requester, each once.
fn receivers(origin: &Origin, requester: &mut Requester, is_lost: bool) -> Vec<AdapterId> {
    if origin.kind.is_datagram() {
        let mut receivers = std::mem::take(&mut requester.receivers);
        receivers.sort_unstable();
        receivers.dedup();
        return receivers;
    }
    let route = requester.route.filter(|_| !is_lost);
    route.map(|route| route.adapter).into_iter().collect()
}

/// Returns the receiver of a datagram.
fn datagram_end(to: &AddressVector) -> Endpoint {
    Endpoint { mac: to.mac, gid: to.gid, queue_pair: to.queue_pair, sequence: 0 }
}

/// Returns the source GID of a network header.
fn source_of(header: &[u8; 40], kind: NetworkHeader) -> [u8; 16] {
    let mut gid = [0; 16];
    let (into, from) = match kind {
        NetworkHeader::Ipv4 => (gid.get_mut(12..), header.get(32..36)),
        NetworkHeader::Grh | NetworkHeader::Ipv6 => (gid.get_mut(..), header.get(8..24)),
    };
    if let (Some(into), Some(from)) = (into, from) {
        into.copy_from_slice(from);
    }
    if kind == NetworkHeader::Ipv4
        && let Some(prefix) = gid.get_mut(10..12)
    {
        prefix.fill(0xff);
    }
    gid
}
