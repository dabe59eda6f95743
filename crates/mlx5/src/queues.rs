//! The function as the queues of an adapter: the engine's view of rings and completions.
//!
//! `causeway_verbs` calls [`Queues`] during a pass of `poll`, in the dispatcher's thread, for the
//! adapter that is polled and for the adapters that its messages reach. The module finds the ring
//! of a number ([`crate::work_queues`], [`crate::receive_pool`]), and translates completions and
//! events to the driver's format. A number without a ring is a [`QueueError`] where an entry is
//! taken, and has no posted entries; a completion queue that is full, broken or missing an
//! [`Overrun`], and the completion is lost.
//!
//! Each type of event is reported once per queue pair until its reset, and may wait
//! (`crate::paced_events`); events of shared receive queues and completion queues are reported each
//! time, at once. An event that no event queue selects is lost and counted. All completions of
//! queue pairs are written here; the module keeps no order between queues and checks no key, state
//! or right.

use causeway_memory::Map;
use causeway_verbs::region::Region;
use causeway_verbs::work::{
    AddressVector, Completion, CompletionKind, NetworkHeader, ReceiveQueue, ReceiveWork,
    ReceivedData, SendWork, Status,
};
use causeway_verbs::{AsyncEvent, Overrun, QueueError, Queues, State, XrcQueue};
use causeway_wire::mlx5::completion_queue::{
    CompletionEntry, CompletionOpcode, Entry, ErrorEntry, NETWORK_GRH, NETWORK_IPV4, NETWORK_IPV6,
    Syndrome,
};
use causeway_wire::mlx5::event_queue::{Event, EventType};
use causeway_wire::mlx5::page_list;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};

use crate::function::Function;
use crate::network_header;
use crate::paced_events::QUEUE_PAIR;
use crate::record::progress::{EventSource, Owner};

/// Partition key that completions of management datagrams report: the default partition.
const DEFAULT_PARTITION: u32 = 0xffff;
/// The network header lies in the buffer.
const GRH_IN_BUFFER: u8 = 1;

impl Queues for Function {
    #[inline]
    fn map(&self) -> &Map {
        &self.map
    }

    fn shared_map(&self) -> std::sync::Arc<Map> {
        Self::shared_map(self)
    }

    fn next_send(&mut self, queue_pair: u32, work: &mut SendWork) -> Result<bool, QueueError> {
        let queues = self.objects.queue_pairs.get_mut(queue_pair);
        let result = match queues {
            Some(queues) => queues.next_send(&self.map, work, &mut self.scratch),
            None => Err(QueueError("the queue pair has no rings")),
        };
        self.count_malformed(&result);
        result
    }

    fn next_receive(
        &mut self,
        queue: ReceiveQueue,
        work: &mut ReceiveWork,
    ) -> Result<bool, QueueError> {
        let objects = &mut self.objects;
        let result = match queue {
            ReceiveQueue::Own(number) => match objects.queue_pairs.get_mut(number) {
                Some(queues) => queues.next_receive(&self.map, work, &mut self.scratch),
                None => Err(QueueError("the queue pair has no rings")),
            },
            ReceiveQueue::Shared(number) => match objects.receive_pools.get_mut(number) {
                Some(pool) => pool.next(&self.map, work, &mut self.scratch),
                None => Err(QueueError("the shared receive queue does not exist")),
            },
        };
        self.count_malformed(&result);
        result
    }

    fn posted(&self, queue: ReceiveQueue) -> u32 {
        let objects = &self.objects;
        match queue {
            ReceiveQueue::Own(number) => {
                objects.queue_pairs.get(number).map_or(0, |own| own.waiting_receives(&self.map))
            }
            ReceiveQueue::Shared(number) => {
                objects.receive_pools.get(number).map_or(0, |pool| pool.waiting(&self.map))
            }
        }
    }

    fn xrc_queue(&self, number: u32) -> Option<XrcQueue> {
        let pool = self.objects.receive_pools.get(number)?;
        let xrc = pool.xrc?;
        Some(XrcQueue {
            number,
            xrc_domain: xrc.xrc_domain,
            domain: pool.domain(),
            completion_queue: xrc.completion_queue,
        })
    }

    fn complete(&mut self, completion_queue: u32, completion: &Completion) -> Result<(), Overrun> {
        let message = completion.message;
        let is_send = completion.kind == CompletionKind::Send;
        self.note_progress(completion.queue_pair, |progress, [send, receive]| {
            match is_send {
                true => progress.end_send(send, message),
                false => progress.end_receive(receive, message),
            }
            false
        });
        let queues = self.objects.queue_pairs.get(completion.queue_pair);
        let context = queues.map(|queues| &queues.context);
        let user_index = match completion.kind {
            CompletionKind::Receive { shared: Some(number), .. }
                if context.is_some_and(QueuePairContext::is_xrc_target) =>
            {
                self.xrc_user_index(number)
            }
            _ => context.map_or(0, |context| context.user_index),
        };
        let is_gsi = context.is_some_and(|c| c.service() == Some(Service::GeneralServices));
        let entry = match completion.status {
            Status::Success => success(completion, user_index, is_gsi),
            status => failure(completion, user_index, syndrome(status)),
        };
        let owner = Owner::QueuePair(completion.queue_pair);
        if self.push_completion(completion_queue, entry, owner) { Ok(()) } else { Err(Overrun) }
    }

    fn report(&mut self, event: AsyncEvent) {
        use AsyncEvent as A;
        let (kind, number) = match event {
            A::CommunicationEstablished(number) => (EventType::CommunicationEstablished, number),
            A::SendQueueDrained(number) => (EventType::SendQueueDrained, number),
            A::QueuePairFatal(number) => (EventType::WorkQueueCatastrophic, number),
            A::InvalidRequest(number) => (EventType::InvalidRequest, number),
            A::AccessViolation(number) => (EventType::AccessError, number),
            A::LastWorkRequest(number) => (EventType::LastWorkRequest, number),
            A::SharedReceiveLimit(number) | A::SharedReceiveError(number) => {
                let kind = match event {
                    A::SharedReceiveLimit(_) => EventType::SharedReceiveQueueLimit,
                    _ => EventType::SharedReceiveQueueError,
                };
                let queue_type = QUEUE_PAIR;
                if let Some(pool) = self.objects.receive_pools.get_mut(number)
                    && kind == EventType::SharedReceiveQueueLimit
                {
                    pool.armed = 0;
                }
                let event = Event::Queue { event_type: kind, queue_type, number };
                self.report_event(kind, event, EventSource::ReceivePool(number));
                return;
            }
            A::CompletionQueueError(number) => return self.report_broken_queue(number),
        };
        // An event of a queue pair is reported once until the queue pair is reset, so that a driver
        // cannot be made to miss events by a flood of them.
        let Some(queues) = self.objects.queue_pairs.get_mut(number) else { return };
        let bit = 1_u64.checked_shl(u32::from(kind.raw())).unwrap_or(0);
        if queues.reported & bit == 0 {
            queues.reported |= bit;
            self.report_paced(kind, number);
        }
    }

    #[inline]
    fn ended(&mut self, queue_pair: u32, message: u16) {
        self.note_progress(queue_pair, |progress, [send, _]| {
            progress.end_send(send, message);
            true
        });
    }

    fn begins(&mut self, queue_pair: u32) {
        self.note_begin(queue_pair);
    }

    fn fails(&mut self, queue_pair: u32, state: State, is_now: bool) {
        self.note_progress(queue_pair, |progress, _| progress.set_state(state) && is_now);
    }

    fn holds(&mut self, queue_pair: u32, shared: u32, index: u16) {
        self.note_held(queue_pair, shared, index);
    }

    fn region_changed(&mut self, number: u32, region: &Region) {
        if let Some(record) = &mut self.record {
            record.stage_region(number, region);
        }
    }

    fn decode_page(&self, entry: [u8; 8]) -> u64 {
        page_list::address(entry)
    }

    fn network_header(&self, to: &AddressVector, payload: u32) -> ([u8; 40], NetworkHeader) {
        let source = self.objects.vport.gid(to.source_gid_index);
        network_header::emit(source, to, payload)
    }
}

impl Function {
    /// Returns the number that completions of a shared receive queue of an XRC domain carry: a
    /// driver finds the queue by this number, and not by the target queue pair.
    fn xrc_user_index(&self, number: u32) -> u32 {
        let xrc = self.objects.receive_pools.get(number).and_then(|pool| pool.xrc);
        xrc.and_then(|xrc| xrc.user_index).unwrap_or(number)
    }

    fn count_malformed(&mut self, result: &Result<bool, QueueError>) {
        if let Err(QueueError(reason)) = result {
            self.fault = Some(reason);
            self.counters.malformed_entries = self.counters.malformed_entries.wrapping_add(1);
        }
    }
}

/// Returns the entry of a success. The owner bit is the completion queue's part.
fn success(completion: &Completion, user_index: u32, is_gsi: bool) -> Entry {
    let mut entry = CompletionEntry {
        user_index,
        bytes: completion.bytes,
        queue: completion.queue_pair,
        counter: completion.token.index,
        ..CompletionEntry::default()
    };
    let opcode = match completion.kind {
        CompletionKind::Send => {
            entry.request_opcode = completion.token.opcode;
            CompletionOpcode::Request
        }
        CompletionKind::Receive { data, source, network, .. } => {
            entry.source_queue_pair = source;
            entry.is_solicited = completion.is_solicited;
            if let Some(network) = network {
                entry.grh = GRH_IN_BUFFER;
                entry.network = match network {
                    NetworkHeader::Grh => NETWORK_GRH,
                    NetworkHeader::Ipv6 => NETWORK_IPV6,
                    NetworkHeader::Ipv4 => NETWORK_IPV4,
                };
            }
            let (opcode, value) = match data {
                ReceivedData::Plain if is_gsi => (CompletionOpcode::ReceiveSend, DEFAULT_PARTITION),
                ReceivedData::Plain => (CompletionOpcode::ReceiveSend, 0),
                ReceivedData::Immediate(value) => (CompletionOpcode::ReceiveSendImmediate, value),
                ReceivedData::Invalidated(key) => (CompletionOpcode::ReceiveSendInvalidate, key),
                ReceivedData::WriteImmediate(value) => {
                    (CompletionOpcode::ReceiveWriteImmediate, value)
                }
            };
            entry.immediate = value;
            opcode
        }
    };
    entry.opcode = opcode.raw();
    Entry::Success(entry)
}

/// Returns the entry of a failure.
fn failure(completion: &Completion, user_index: u32, syndrome: Syndrome) -> Entry {
    let opcode = match completion.kind {
        CompletionKind::Send => CompletionOpcode::RequestError,
        CompletionKind::Receive { .. } => CompletionOpcode::ResponderError,
    };
    Entry::Error(ErrorEntry {
        user_index,
        vendor_syndrome: 0,
        syndrome: syndrome.raw(),
        request_opcode: completion.token.opcode,
        queue: completion.queue_pair,
        counter: completion.token.index,
        opcode: opcode.raw(),
        owner: false,
    })
}

/// Returns the code of a failed work request.
fn syndrome(status: Status) -> Syndrome {
    match status {
        Status::LocalLength => Syndrome::LocalLength,
        // A success has an entry of its own.
        Status::LocalQueuePairOperation | Status::Success => Syndrome::LocalQueuePairOperation,
        Status::LocalProtection => Syndrome::LocalProtection,
        Status::Flushed => Syndrome::Flushed,
        Status::MemoryWindowBind => Syndrome::MemoryWindowBind,
        Status::BadResponse => Syndrome::BadResponse,
        Status::LocalAccess => Syndrome::LocalAccess,
        Status::RemoteInvalidRequest => Syndrome::RemoteInvalidRequest,
        Status::RemoteAccess => Syndrome::RemoteAccess,
        Status::RemoteOperation => Syndrome::RemoteOperation,
        Status::RetryExceeded => Syndrome::RetryExceeded,
        Status::ReceiverNotReadyExceeded => Syndrome::ReceiverNotReadyExceeded,
    }
}
