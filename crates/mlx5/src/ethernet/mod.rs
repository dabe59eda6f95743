//! The function as an Ethernet adapter: the queues of frames, and the rules that steer them.
//!
//! ```text
//!   send queue ──▶ next_frame ──▶ Frame ──▶ the caller's switch ──▶ FrameRef ──▶ receive_frame
//!                                                                                     │
//!              complete_frame ◀── (copied)       address filter ─▶ flow tables ─▶ TIR ┤
//!                                                                                     ▼
//!                                                          (RQT by hash) ─▶ receive queue
//! ```
//!
//! [`next_frame`] takes frames from the send queues of the adapter's driver in turn. The caller
//! (`hca::switch`, in the dispatcher's turn) decides which adapters receive a frame and offers it
//! to them with [`receive_frame`], straight from the sender's memory; then [`complete_frame`]
//! returns the entry to the sender's driver. Checksums and the cutting of long frames are done by
//! the receiver, so that a frame may also leave uncut, to a virtio receiver.
//!
//! The source address of a frame is the caller's to check. Frames are never merged: a driver has to
//! prepare its buffers for merged frames. Rates, priorities and the loopback switches of transport
//! interfaces have no effect.
//!
//! # Limits
//! The numbers are in [`limits`]. A frame without a posted receive entry, and every other frame
//! that cannot be delivered (`receive`), is dropped and counted: Ethernet does not wait, and the
//! sender's entry completes as usual. [`Frame::looks`] and [`Deliveries`] tell the caller what a
//! call cost. Rules that a driver creates cost a receiver bounded time per frame (`flow`).

pub(crate) mod command;
mod counters;
mod filter;
pub(crate) mod flow;
mod frame;
mod hash;
mod headers;
pub(crate) mod interface;
pub mod limits;
mod offload;
mod receive;
mod receive_queue;
mod send_queue;
mod transmit;
mod verify;

use causeway_memory::WordWatch;
use causeway_verbs::number::Table;
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::work_queue::QueueState;

pub use counters::{EthernetCounters, Traffic, TrafficByCast};
pub use frame::{Body, Deliveries, Frame, FrameRef};
pub use receive::receive_frame;
pub use transmit::{complete_frame, has_frames, next_frame};

use crate::function::Function;
use flow::FlowTables;
use interface::Interfaces;
use receive::Scratch;
use receive_queue::ReceiveQueue;
use send_queue::{Rotation, SendQueue};
use transmit::Sending;

/// Result of [`next_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A frame was taken.
    Frame,
    /// No polled send queue has a posted entry, as far as the call looked.
    Empty,
    /// Entries were taken, and none of them had a frame that can be forwarded. More may be posted.
    Dropped,
}

/// Result of [`receive_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The frame, or its first pieces, is in receive queues.
    Delivered {
        /// Number of frames in receive queues.
        frames: u32,
    },
    /// The receive queue had no posted entry.
    NoBuffer,
    /// The frame is longer than the driver's MTU, or than its receive entry.
    TooLong,
    /// No filter or flow entry accepts the frame, or its headers are malformed.
    Filtered,
    /// The receive queue does not exist, is not ready, or failed at this frame.
    Down,
    /// The sender's memory was revoked.
    Lost,
    /// The frame had [`limits::DELIVERIES_PER_FRAME_MAX`] (4,096) deliveries already.
    OverLimit,
}

impl Function {
    /// Returns the counters of frames since the function was made.
    pub fn ethernet_counters(&self) -> EthernetCounters {
        self.objects.ethernet.counters()
    }
}

/// The Ethernet side of a function.
#[derive(Debug)]
pub(crate) struct Ethernet {
    send_queues: Table<SendQueue>,
    receive_queues: Table<ReceiveQueue>,
    interfaces: Interfaces,
    flows: FlowTables,
    flow_counters: Table<()>,
    /// Send queues that are polled.
    rotation: Rotation,
    /// Entry of the frame that the caller forwards.
    sending: Option<Sending>,
    /// Memory of receptions, which takes it out of its place meanwhile.
    scratch: Option<Box<Scratch>>,
    counters: EthernetCounters,
    /// Frames without a receive entry, by counter set.
    out_of_buffer: Vec<u32>,
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

    fn count_out_of_buffer(&mut self, set: u8) {
        let set = usize::from(set);
        if set >= self.out_of_buffer.len() {
            self.out_of_buffer.resize(set.saturating_add(1), 0);
        }
        if let Some(count) = self.out_of_buffer.get_mut(set) {
            *count = count.wrapping_add(1);
        }
    }
}
