//! The state of a capture: the observed adapters, and the messages that were not taken yet.
//!
//! A [`crate::Subnet`] owns the state, and [`observe`](super::observe) fills it. An observed message
//! is a copy: it refers to no memory of a guest.

use crate::adapter_id::AdapterId;
use crate::attributes::Kind;
use crate::work::{Operation, Status};

/// A queue pair of an observed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Ethernet address of the adapter; of a datagram's destination as the work request names it.
    pub mac: [u8; 6],
    /// GID, as the peer or the address vector has it; zero if the guest named none.
    pub gid: [u8; 16],
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// First sequence number that the queue pair sends.
    pub sequence: u32,
}

/// A message of an observed adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedMessage {
    /// The message.
    pub message: Observation,
    /// Adapter of the requester.
    pub sender: AdapterId,
    /// Adapters that received the message, each once.
    pub receivers: Vec<AdapterId>,
}

/// A message between two queue pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Transport service.
    pub kind: Kind,
    /// Sender of the request.
    pub requester: Endpoint,
    /// Receiver of the request.
    pub responder: Endpoint,
    /// Operation, without [`Operation::Nop`], [`Operation::Invalidate`] and
    /// [`Operation::Register`].
    pub operation: Operation,
    /// Most payload bytes of a packet.
    pub mtu: u32,
    /// Queue key of a datagram, as the work request names it.
    pub queue_key: u32,
    /// Shared receive queue that a request of an extended reliable connection names.
    pub xrc_queue: u32,
    /// The responder reports a solicited event.
    pub is_solicited: bool,
    /// Success, or the responder's refusal.
    pub status: Status,
    /// Length of the payload.
    pub total: u64,
    /// The first bytes of the payload; of a read, of the answer; of an atomic operation, the value
    /// before it in the byte order of the guest's memory.
    pub payload: Vec<u8>,
}

/// The state of the observation of a subnet.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// The observed adapters.
    pub(super) adapters: Vec<AdapterId>,
    /// Most payload bytes that are copied of a message.
    pub(super) payload_max: usize,
    pub(super) messages: Vec<ObservedMessage>,
    /// Messages that found no room, or of unknown destination.
    pub(super) missed: u64,
}
