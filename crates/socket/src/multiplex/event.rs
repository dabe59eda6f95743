//! The results of a session: events, the bytes of messages, and refusals.
//!
//! [`super::PeerSession`] appends events to [`Received`] in the thread of the shard; `socket::remote`
//! processes and clears them after each call. A message that arrives in order and whole stays in its
//! datagram, and a message that waited whole stays in the memory in which it waited. A message that
//! crosses in several pieces is copied together, in memory that [`Received`] keeps for the next
//! such message. The number of events is not limited here: a datagram has at most 64 KiB, and
//! messages behind gaps pass in portions (`HELD_MESSAGES_PER_TURN`).

use std::ops::Range;

use causeway_wire::multiplex::{Error, LENGTH_LEN, VERSION};

use crate::limits::MESSAGE_BYTES_MAX;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    /// The peer has begun another session: its daemon restarted or has another version, or it ended
    /// this session.
    #[error("the peer began a new session")]
    Peer,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol")]
    Breach,
    /// The peer acknowledged nothing for 10 s while bytes were in flight.
    #[error("the peer acknowledged nothing for 10 s")]
    Silent,
    /// The caller ended the session.
    #[error("the link went down")]
    Link,
    /// The caller ended the session: the peer acknowledged too little.
    #[error("the peer acknowledged too little")]
    Slow,
    /// The caller ended the session: all numbers of channels were used.
    #[error("all numbers of channels were used")]
    Exhausted,
}

/// The bytes of a message ([`Received::read`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageBytes {
    /// This range of the datagram that was passed to the session.
    InDatagram(Range<usize>),
    /// This range of a piece that had waited, by the number of the piece.
    InHeldPiece(usize, Range<usize>),
    /// These bytes, behind the length of the message.
    Collected(Vec<u8>),
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// A session was agreed: channels can be opened.
    Up,
    /// The session ended with all its channels.
    Down(DownReason),
    /// A message of a channel.
    Message(u32, MessageBytes),
    /// The peer sends no more on this channel.
    Ended(u32),
}

/// The output of a session. The caller processes and clears it.
#[derive(Debug, Default)]
pub struct Received {
    /// Events in order.
    pub events: Vec<PeerEvent>,
    /// Memory of messages.
    pub(super) memory: MessageMemory,
}

/// Memory of messages that are not in a datagram.
#[derive(Debug, Default)]
pub struct MessageMemory {
    /// Pieces that had waited and were passed on.
    pub held: Vec<Vec<u8>>,
    /// Memory of earlier messages that crossed in several pieces, for the next ones.
    pub spares: Vec<Vec<u8>>,
}

impl Received {
    /// Returns the bytes of a message of [`Self::events`]. `datagram` is the datagram that was passed to
    /// the session; a time that was passed has none.
    pub fn read<'a>(&'a self, message: &'a MessageBytes, datagram: &'a [u8]) -> &'a [u8] {
        match message {
            MessageBytes::InDatagram(at) => datagram.get(at.clone()),
            MessageBytes::InHeldPiece(piece, at) => {
                self.memory.held.get(*piece).and_then(|piece| piece.get(at.clone()))
            }
            MessageBytes::Collected(bytes) => bytes.get(LENGTH_LEN..),
        }
        .unwrap_or(&[])
    }

    /// Removes all events; keeps allocations of ordinary size.
    pub fn clear(&mut self) {
        for event in self.events.drain(..) {
            if let PeerEvent::Message(_, MessageBytes::Collected(bytes)) = event
                && self.memory.spares.len() < MESSAGES_KEPT
                && bytes.capacity() <= MESSAGE_BYTES_MAX.saturating_mul(2)
            {
                self.memory.spares.push(bytes);
            }
        }
        self.memory.held.clear();
        self.memory.held.shrink_to(EVENTS_KEPT);
        self.events.shrink_to(EVENTS_KEPT);
    }
}

/// Why a datagram, or the rest of it, had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketRefusal {
    /// It is no datagram of this protocol.
    #[error(transparent)]
    Format(#[from] Error),
    /// The peer has another version.
    #[error("the peer has version {0} of the stream protocol, this daemon version {VERSION}")]
    Version(u8),
    /// It belongs to another session.
    #[error("it belongs to another session")]
    Foreign,
    /// It begins a session less than 250 ms after the last began.
    #[error("it begins a session less than 250 ms after the last began")]
    Early,
    /// There is no room for bytes that have to wait, or for another channel.
    #[error("there is no room for it")]
    NoRoom,
    /// It broke the protocol; the session ended.
    #[error("it broke the protocol")]
    Breach,
}

/// Events for which [`Received`] keeps memory.
const EVENTS_KEPT: usize = 1024;
/// Messages for which it keeps memory: of a datagram of 64 KiB with messages of 4 KiB.
const MESSAGES_KEPT: usize = 16;
