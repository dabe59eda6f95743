//! The results of a session: events, the bytes of messages, and refusals.
//!
//! [`super::PeerSession`] appends events to [`Received`] in the thread of the shard; `socket::remote`
//! processes and clears them after each call. A message that one datagram carries whole stays there;
//! others are copied once, into memory that [`Received`] takes back. Nothing here is limited: a
//! datagram has at most 64 KiB, and each message of it is one event.

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

/// The bytes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageBytes {
    /// This range of the datagram that was passed to the session.
    InDatagram(Range<usize>),
    /// These bytes, behind the length of the message.
    Kept(Vec<u8>),
}

impl MessageBytes {
    /// Returns the bytes. `datagram` is the datagram with which the event came.
    pub fn read<'a>(&'a self, datagram: &'a [u8]) -> &'a [u8] {
        match self {
            Self::InDatagram(at) => datagram.get(at.clone()),
            Self::Kept(bytes) => bytes.get(LENGTH_LEN..),
        }
        .unwrap_or(&[])
    }
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
    /// Memory of earlier messages, for the next ones.
    pub(super) spares: Vec<Vec<u8>>,
}

impl Received {
    /// Removes all events; keeps allocations of ordinary size.
    pub fn clear(&mut self) {
        for event in self.events.drain(..) {
            if let PeerEvent::Message(_, MessageBytes::Kept(bytes)) = event
                && self.spares.len() < MESSAGES_KEPT
                && bytes.capacity() <= MESSAGE_BYTES_MAX.saturating_mul(2)
            {
                self.spares.push(bytes);
            }
        }
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
    /// There is no room for bytes behind a gap, or for another channel.
    #[error("there is no room for it")]
    NoRoom,
    /// It broke the protocol; the session ended.
    #[error("it broke the protocol")]
    Breach,
}

/// Events for which [`Received`] keeps memory: of a datagram of 64 KiB with messages of 64 bytes.
const EVENTS_KEPT: usize = 1024;
/// Messages for which it keeps memory: of a datagram of 64 KiB with messages of 4 KiB.
const MESSAGES_KEPT: usize = 16;
