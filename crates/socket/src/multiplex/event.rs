//! The results of a session: events, the bytes of messages, and refusals.
//!
//! [`super::PeerSession`] appends events to [`Received`] in the thread of the shard; `socket::remote`
//! processes and clears them after each call. Nothing here is limited: a datagram has at most 64 KiB,
//! and each message of it is one event.

use std::ops::Range;

use causeway_wire::multiplex::{Error, VERSION};

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

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// A session was agreed: channels can be opened.
    Up,
    /// The session ended with all its channels.
    Down(DownReason),
    /// A message of a channel, whose bytes are at this place in [`Received::bytes`].
    Message(u32, Range<usize>),
    /// The peer sends no more on this channel.
    Ended(u32),
}

/// The output of a session. The caller processes and clears it.
#[derive(Debug, Default)]
pub struct Received {
    /// Events in order.
    pub events: Vec<PeerEvent>,
    /// Bytes of messages.
    pub bytes: Vec<u8>,
}

impl Received {
    /// Removes all events and bytes; keeps allocations of ordinary size.
    pub fn clear(&mut self) {
        self.events.clear();
        self.bytes.clear();
        self.events.shrink_to(EVENTS_KEPT);
        self.bytes.shrink_to(EVENT_BYTES_KEPT);
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
/// Bytes of messages for which it keeps memory.
const EVENT_BYTES_KEPT: usize = 256 << 10;
