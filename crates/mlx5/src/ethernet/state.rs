//! The Ethernet side of a function: its queues, rules and counters, and the frame in progress.
//!
//! The commands of the driver make and destroy the objects; [`receive`](super::receive) and
//! [`transmit`](super::transmit) move frames. The state is that of one function, in the dispatcher's
//! turn of its group; it knows neither the memory of the guest nor the engine.

use causeway_memory::{Span, WordWatch};
use causeway_verbs::number::Table;
use causeway_verbs::work::ReceiveWork;
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::work_queue::QueueState;

use super::counters::EthernetCounters;
use super::flow::FlowTables;
use super::interface::Interfaces;
use super::receive_queue::ReceiveQueue;
use super::send_queue::{Rotation, SendQueue};

/// The Ethernet side of a function.
#[derive(Debug)]
pub(crate) struct Ethernet {
    pub(super) send_queues: Table<SendQueue>,
    pub(super) receive_queues: Table<ReceiveQueue>,
    pub(super) interfaces: Interfaces,
    pub(super) flows: FlowTables,
    pub(super) flow_counters: Table<()>,
    /// Send queues that are polled.
    pub(super) rotation: Rotation,
    /// Entry of the frame that the caller forwards.
    pub(super) sending: Option<Sending>,
    /// Memory of receptions, which takes it out of its place meanwhile.
    pub(super) scratch: Option<Box<Scratch>>,
    pub(super) counters: EthernetCounters,
    /// Frames without a receive entry, by counter set.
    pub(super) out_of_buffer: Vec<u32>,
}

impl Ethernet {
    /// Returns the number of send queues.
    pub fn send_queues(&self) -> usize {
        self.send_queues.len()
    }

    /// Returns the side without objects, for at most `capacity` objects of each kind.
    pub fn new(capacity: usize) -> Self {
        Self {
            send_queues: Table::new(capacity),
            receive_queues: Table::new(capacity),
            interfaces: Interfaces::new(capacity),
            flows: FlowTables::default(),
            flow_counters: Table::new(capacity),
            rotation: Rotation::default(),
            sending: None,
            scratch: None,
            counters: EthernetCounters::default(),
            out_of_buffer: Vec::new(),
        }
    }

    /// Returns the number of send queues that are polled.
    pub fn polled(&self) -> usize {
        self.rotation.len()
    }

    /// Adds the words of which one changes before a send queue has an entry. Returns `None` if one
    /// has an entry already.
    pub fn watch(&self, watch: &mut WordWatch) -> Option<()> {
        self.rotation.queues().try_for_each(|number| self.send_queues.get(number)?.watch(watch))
    }

    /// Returns whether a send queue must be polled.
    pub fn is_active(&self) -> bool {
        self.rotation.len() > 0
    }

    /// Returns the counters.
    pub fn counters(&self) -> EthernetCounters {
        self.counters
    }

    /// Sets the counters, which outlive the objects.
    pub fn set_counters(&mut self, counters: EthernetCounters) {
        self.counters = counters;
    }

    /// Returns a send queue.
    pub fn send_queue(&self, number: u32) -> Option<&SendQueue> {
        self.send_queues.get(number)
    }

    /// Returns a receive queue.
    pub fn receive_queue(&self, number: u32) -> Option<&ReceiveQueue> {
        self.receive_queues.get(number)
    }

    /// Returns whether a send queue is polled.
    pub fn polls(&self, number: u32) -> bool {
        self.rotation.contains(number)
    }

    /// Reserves the number of the object that a command makes. Returns false if it is not free.
    pub fn prepare(&mut self, opcode: Opcode, number: u32) -> bool {
        match opcode {
            Opcode::CreateSendQueue => self.send_queues.prepare(number),
            Opcode::CreateReceiveQueue => self.receive_queues.prepare(number),
            Opcode::CreateTir => self.interfaces.receive.prepare(number),
            Opcode::CreateTis => self.interfaces.send.prepare(number),
            Opcode::CreateReceiveQueueTable => self.interfaces.tables.prepare(number),
            Opcode::CreateFlowTable => self.flows.prepare_table(number),
            Opcode::CreateFlowGroup => self.flows.prepare_group(number),
            Opcode::AllocateFlowCounter => self.flow_counters.prepare(number),
            _ => false,
        }
    }

    /// Sets the positions and states of all queues to recorded values; `None` leaves a queue as it
    /// is.
    pub fn resume_queues(
        &mut self,
        send: impl Fn(u32) -> Option<(u16, QueueState, bool)>,
        receive: impl Fn(u32) -> Option<(u16, QueueState, bool)>,
    ) {
        for (number, queue) in self.send_queues.iter_mut() {
            if let Some((taken, state, is_polled)) = send(number) {
                queue.resume(taken, state);
                self.rotation.set(number, is_polled);
            }
        }
        for (number, queue) in self.receive_queues.iter_mut() {
            if let Some((taken, state, _)) = receive(number) {
                queue.resume(taken, state);
            }
        }
    }

    pub(super) fn count_out_of_buffer(&mut self, set: u8) {
        let set = usize::from(set);
        if set >= self.out_of_buffer.len() {
            self.out_of_buffer.resize(set.saturating_add(1), 0);
        }
        if let Some(count) = self.out_of_buffer.get_mut(set) {
            *count = count.wrapping_add(1);
        }
    }
}

/// Memory that is reused from one frame to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// First bytes of the piece.
    pub(super) head: Vec<u8>,
    /// Copy of the receive entry.
    pub(super) entry: Vec<u8>,
    pub(super) work: ReceiveWork,
    /// Buffers of the piece.
    pub(super) spans: Vec<Span>,
    /// Bytes between their two copies.
    pub(super) chunk: Vec<u8>,
}

/// The entry of the frame that the caller forwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    /// Number of the send queue.
    pub(super) queue: u32,
    pub(super) index: u16,
    pub(super) opcode: u8,
    pub(super) is_signaled: bool,
}
