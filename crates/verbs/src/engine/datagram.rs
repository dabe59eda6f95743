//! Datagrams: messages of a single packet to a queue pair that each work request names.
//!
//! A datagram is at most the requester's MTU long; a longer one fails with [`Status::LocalLength`].
//! The adapter is found by the Ethernet address; the queue pair by its number, where 1 is the
//! general service interface, or, for number 0xffffff, all members of the multicast group of the
//! GID. A datagram without a receiver is dropped and its work request succeeds: the receiver does
//! not exist, does not receive, has another queue key or no receive work request (all
//! [`crate::Counters::dropped`] of the receiver), no adapter has the address, or the group's policy
//! denies it (both [`crate::Counters::unroutable`] of the sender). A multicast group without
//! members, and a receiver whose receive queue is broken and then fails, are not counted. The
//! sender gets its own datagram if it is a member and does not block these. No datagram waits.
//!
//! An adapter sends datagrams to general service interfaces at a limited rate
//! ([`GENERAL_INTERVAL_NS`], [`GENERAL_BURST`]): they have few receive work requests, and any
//! member of the group may use them up. Datagrams beyond it are dropped
//! ([`crate::Counters::throttled`]).
//!
//! The receiver gets [`NETWORK_HEADER_BYTES`] of network header before the payload. A receive work
//! request that is too short ends with [`Status::LocalLength`], and its queue pair continues:
//! otherwise any sender could stop it. A receive work request that names memory without permission
//! ends with [`Status::LocalProtection`], and its queue pair fails; an error of the sender's own
//! values or memory is found before, and fails the sender alone. All of it runs in the dispatcher's
//! thread that serves the subnet.

use causeway_memory::{Cursor, Rights as GrantRights, copy::copy};

use crate::adapter::Adapter;
use crate::adapter_id::AdapterId;
use crate::attributes::{Kind, State};
use crate::budget::Budget;
use crate::engine::responder::Received;
use crate::engine::segments::{Place, capacity, payload};
use crate::engine::state::{Requester, Scratch};
use crate::engine::step::{Origin, Step};
use crate::limits::{
    DELIVERY_BYTES, GENERAL_BURST, GENERAL_INTERVAL_NS, GENERAL_SERVICE_QPN,
    GENERAL_SERVICE_QUEUE_KEY, MULTICAST_QPN, NETWORK_HEADER_BYTES, STEP_SPANS_MAX,
};
use crate::policy::multicast_address;
use crate::queues::Queues;
use crate::region::Rights;
use crate::subnet::Subnet;
use crate::transport::{Refusal, Transport};
use crate::work::{AddressVector, NetworkHeader, Operation, ReceivedData, SendWork, Status};

/// A queue key with this bit set means the key of the sending queue pair.
const OWN_QUEUE_KEY: u32 = 1 << 31;

/// A datagram on its way to a receiver.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    queue_key: u32,
    data: ReceivedData,
    header: [u8; NETWORK_HEADER_BYTES as usize],
    network: NetworkHeader,
    bytes: u64,
}

impl<Q: Queues> Subnet<Q> {
    /// Executes the work request in progress of a datagram queue pair. [`Subnet::progress`] calls
    /// it once, or, for a multicast datagram after a spent budget, again: it goes on with the next
    /// member.
    pub(super) fn datagram(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (budget, now_ns): (&mut Budget, u64),
    ) -> Step {
        let Some(to) = requester.work.destination else {
            return Step::Failed(Status::LocalQueuePairOperation);
        };
        let datagram = match self.load(origin, requester, scratch, &to) {
            Ok(datagram) => datagram,
            Err(status) => return Step::Failed(status),
        };
        if requester.transfer.member == 0 {
            requester.receivers.clear();
            // The refusal is that of the last datagram.
            requester.refusal = None;
            if self.was_sent(origin, requester) {
                return Step::Done;
            }
        }
        if to.queue_pair == MULTICAST_QPN {
            return self.multicast(origin, requester, scratch, (&datagram, &to), budget);
        }
        budget.take_payload(datagram.bytes);
        if to.queue_pair == GENERAL_SERVICE_QPN
            && let Some(adapter) = self.adapter_mut(origin.id)
            && !adapter.take_general(now_ns)
        {
            return Step::Lost;
        }
        let there = self.transport.locate(to.mac).and_then(|there| {
            self.transport.admit(origin.mac, to.mac, to.mac, budget).map(|()| there)
        });
        match there {
            Ok(there) => {
                self.receive(origin, requester, scratch, &datagram, (there, to));
                budget.take_bytes(scratch.cost());
            }
            Err(refusal) => self.refuse_datagram(origin, requester, refusal),
        }
        Step::Done
    }

    /// Drops a datagram that reaches no adapter.
    fn refuse_datagram(&mut self, origin: &Origin, requester: &mut Requester, refusal: Refusal) {
        requester.note_refusal(refusal);
        if let Some(adapter) = self.adapter_mut(origin.id) {
            adapter.counters.unroutable = adapter.counters.unroutable.wrapping_add(1);
        }
    }

    /// Copies a datagram to the members of a multicast group, as far as the budget reaches. Each
    /// delivery takes as much of it as a message.
    fn multicast(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        (datagram, to): (&Datagram, &AddressVector),
        budget: &mut Budget,
    ) -> Step {
        let address = multicast_address(&to.gid);
        while let Some((there, number)) = self.groups.member(&to.gid, requester.transfer.member) {
            if budget.bytes() == 0 {
                return Step::More;
            }
            budget.take_payload(datagram.bytes);
            budget.take_bytes(DELIVERY_BYTES);
            let is_own = (there, number) == (origin.id, origin.number);
            let receiver = self.adapter(there).map_or(origin.mac, |adapter| adapter.mac);
            match self.transport.admit(origin.mac, address, receiver, budget) {
                Ok(()) if is_own && origin.attributes.blocks_own_multicast => {}
                Ok(()) => {
                    let to = AddressVector { queue_pair: number, ..*to };
                    self.receive(origin, requester, scratch, datagram, (there, to));
                    budget.take_bytes(scratch.cost());
                }
                Err(refusal) => self.refuse_datagram(origin, requester, refusal),
            }
            requester.transfer.member = requester.transfer.member.saturating_add(1);
        }
        Step::Done
    }

    /// Checks the work request and resolves its payload.
    fn load(
        &self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        to: &AddressVector,
    ) -> Result<Datagram, Status> {
        let work = &requester.work;
        let data = match work.operation {
            Operation::Send => ReceivedData::Plain,
            Operation::SendImmediate(value) => ReceivedData::Immediate(value),
            _ => return Err(Status::LocalQueuePairOperation),
        };
        let in_memory = payload(&work.segments).ok_or(Status::LocalLength)?;
        let bytes = in_memory.saturating_add(work.inline.len() as u64);
        let len = u32::try_from(bytes).map_err(|_| Status::LocalLength)?;
        if len > origin.attributes.mtu {
            return Err(Status::LocalLength);
        }
        requester.transfer.total = bytes;
        let adapter = self.adapter(origin.id).ok_or(Status::LocalProtection)?;
        scratch.from.clear();
        if in_memory > 0 {
            let access = adapter.access(origin.attributes.domain, Rights::LOCAL_READ);
            let out = (STEP_SPANS_MAX, &mut scratch.from);
            let resolved = access.resolve(&work.segments, Place::default(), in_memory, out);
            if resolved.map_err(|_| Status::LocalProtection)? < in_memory {
                return Err(Status::LocalLength);
            }
            // A payload that is not granted must not use up a receive work request.
            let map = adapter.queues.map();
            let mut spans = scratch.from.iter();
            if !spans.all(|span| map.contains(span.addr, u64::from(span.len), GrantRights::READ)) {
                return Err(Status::LocalProtection);
            }
        }
        let is_own = to.queue_key & OWN_QUEUE_KEY != 0;
        let queue_key = if is_own { origin.attributes.queue_key } else { to.queue_key };
        let (header, network) = adapter.queues.network_header(to, len);
        Ok(Datagram { queue_key, data, header, network, bytes })
    }

    /// Delivers a datagram to a queue pair, or drops it.
    fn receive(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        datagram: &Datagram,
        (there, to): (AdapterId, AddressVector),
    ) {
        scratch.to.clear();
        let work = &requester.work;
        let Some(number) = self.accept(there, &to, datagram.queue_key) else { return };
        let bytes = datagram.bytes.saturating_add(u64::from(NETWORK_HEADER_BYTES));
        let status = self.scatter(origin, work, scratch, datagram, (there, number));
        let source = if origin.kind == Kind::Gsi { GENERAL_SERVICE_QPN } else { origin.number };
        let Some(adapter) = self.adapter_mut(there) else { return };
        let received = Received {
            status,
            data: datagram.data,
            source,
            network: Some(datagram.network),
            bytes: if status == Status::Success { bytes } else { 0 },
            is_solicited: work.is_solicited,
        };
        if status == Status::LocalProtection {
            adapter.queues.fails(number, State::Error, false);
        }
        adapter.complete_receive(number, &received);
        if status == Status::LocalProtection {
            adapter.fail(number);
        }
        if status != Status::Success {
            return;
        }
        let peer = (there, adapter.mac);
        if self.observer.is_some() {
            requester.receivers.push(there);
        }
        if let Some(own) = self.adapter_mut(origin.id) {
            own.traffic.count(peer, false, datagram.bytes);
        }
    }

    /// Finds the queue pair of a datagram and takes a receive work request. Returns its number, or
    /// `None` if the datagram is dropped.
    fn accept(&mut self, there: AdapterId, to: &AddressVector, queue_key: u32) -> Option<u32> {
        let adapter = self.adapter_mut(there)?;
        let general = (to.queue_pair == GENERAL_SERVICE_QPN).then_some(adapter.general);
        let number = general.unwrap_or(Some(to.queue_pair));
        let pair = number.and_then(|number| adapter.queue_pairs.get(number));
        let is_accepted = pair.is_some_and(|pair| {
            let expected = match pair.kind() {
                Kind::Gsi => GENERAL_SERVICE_QUEUE_KEY,
                _ => pair.attributes().queue_key,
            };
            // The general service interface is reached by its well-known number only.
            let is_addressed = match pair.kind() {
                Kind::Gsi => general.is_some(),
                kind => kind.is_datagram(),
            };
            is_addressed && pair.state().is_receiving() && expected == queue_key
        });
        let taken = number.filter(|_| is_accepted).map(|number| adapter.take_receive(number));
        match taken {
            Some(Ok(true)) => number,
            Some(Err(_)) => {
                // The receive queue of this receiver is broken; no work request can be completed.
                adapter.fail(number?);
                None
            }
            _ => {
                adapter.counters.dropped = adapter.counters.dropped.wrapping_add(1);
                None
            }
        }
    }

    /// Copies header and payload into the receive work request that was taken.
    fn scatter(
        &self,
        origin: &Origin,
        work: &SendWork,
        scratch: &mut Scratch,
        datagram: &Datagram,
        (there, number): (AdapterId, u32),
    ) -> Status {
        let (Some(own), Some(adapter)) = (self.adapter(origin.id), self.adapter(there)) else {
            return Status::LocalProtection;
        };
        let Some(pair) = adapter.queue_pairs.get(number) else { return Status::LocalProtection };
        let segments = &pair.responder.work.segments;
        let bytes = datagram.bytes.saturating_add(u64::from(NETWORK_HEADER_BYTES));
        if capacity(segments) < bytes {
            return Status::LocalLength;
        }
        let access = adapter.access(pair.receive_domain(), Rights::LOCAL_WRITE);
        let out = (STEP_SPANS_MAX, &mut scratch.to);
        if access.resolve(segments, Place::default(), bytes, out) != Ok(bytes) {
            return Status::LocalProtection;
        }
        let mut to = Cursor::new(&scratch.to);
        let map = adapter.queues.map();
        let copied =
            to.write(map, &datagram.header).is_ok() && to.write(map, &work.inline).is_ok() && {
                let in_memory = datagram.bytes.saturating_sub(work.inline.len() as u64);
                let mut from = Cursor::new(&scratch.from);
                copy((own.queues.map(), &mut from), (map, &mut to), in_memory).is_ok()
            };
        if copied { Status::Success } else { Status::LocalProtection }
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Takes a datagram to a general service interface from the adapter's rate. Returns false if
    /// none is left; the datagram is then counted as throttled.
    fn take_general(&mut self, now_ns: u64) -> bool {
        let used_ns = self.general_used_ns.max(now_ns).saturating_add(GENERAL_INTERVAL_NS);
        let burst_ns = GENERAL_INTERVAL_NS.saturating_mul(GENERAL_BURST);
        if used_ns > now_ns.saturating_add(burst_ns) {
            self.counters.throttled = self.counters.throttled.wrapping_add(1);
            return false;
        }
        self.general_used_ns = used_ns;
        true
    }
}
