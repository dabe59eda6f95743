//! Events: the NIC side (`mxoe`) writes them, the host side (`message`) reads them.
//!
//! The host side checks the format here: kind, field ranges, number of bytes. Whether a token or
//! handle is its own, `message` checks. [`read_event`] reads no bytes of a message: the caller
//! copies them out of the ring before it consumes the event. A message has at most
//! [`MEDIUM_BYTES_MAX`] (32 KiB). If the ring is full, [`write_event`] returns false and the NIC
//! side keeps the event; the values are not checked. After an [`InvalidEntry`] the host side takes
//! no more events, and its requests fail.
//!
//! The NIC side calls [`write_event`] in the thread that owns the engine (a dispatcher of
//! causewayd, or in direct mode the thread that holds the endpoint), the host side [`read_event`]
//! in the thread that holds the endpoint. Neither blocks.

use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{Event, Handle, PeerId, Status, Token};

use super::{InvalidEntry, both, halves, length, narrow, pack, unpack, zero};
use crate::{BrokenChannel, EventHead, Receiver, Sender, ShortEvent};

/// Kinds of events, as in the table of the parent module.
const CONNECTED: u8 = 1;
const PEER_SEEN: u8 = 2;
const MESSAGE: u8 = 3;
const OFFERED: u8 = 4;
const SENT: u8 = 5;
const PULLED: u8 = 6;
const PEER_GONE: u8 = 7;

/// Writes an event. Returns false if the ring has no room.
///
/// # Errors
/// [`BrokenChannel`]: the host side broke a rule of the ring.
pub fn write_event(ring: &mut Sender, event: &Event<'_>) -> Result<bool, BrokenChannel> {
    let (kind, words, data): (u8, [u64; 3], &[u8]) = match *event {
        Event::Connected { token, status, peer } => {
            (CONNECTED, [token.0, status as u64, peer.0.into()], &[])
        }
        Event::PeerSeen { peer, address, session } => {
            (PEER_SEEN, [pack(address), session.into(), peer.0.into()], &[])
        }
        Event::Message { peer, match_info, data } => {
            (MESSAGE, [match_info, 0, peer.0.into()], data)
        }
        Event::Offered { peer, match_info, len, handle } => {
            (OFFERED, [match_info, handle.0.into(), both(peer.0, len)], &[])
        }
        Event::Sent { token, status, taken } => (SENT, [token.0, status as u64, taken.into()], &[]),
        Event::Pulled { token, status } => (PULLED, [token.0, status as u64, 0], &[]),
        Event::PeerGone { peer, status } => (PEER_GONE, [peer.0.into(), status as u64, 0], &[]),
    };
    ring.send(EventHead { kind, words }, data)
}

/// Returns the status in a word.
fn status(word: u64) -> Result<Status, InvalidEntry> {
    narrow("status", word).ok().and_then(Status::of).ok_or(InvalidEntry::Field("status"))
}

/// Returns the peer in a word.
fn peer(word: u64) -> Result<PeerId, InvalidEntry> {
    narrow("peer", word).map(PeerId)
}

/// Returns the next event if it is a valid message whose bytes lie in the slot, with its bytes and
/// its match information as their word. For any other event it returns `None`, and [`read_event`]
/// decides.
#[inline]
pub fn short_event(ring: &Receiver) -> Option<(PeerId, ShortEvent)> {
    let (short, [reserved, from]) = ring.poll_short_of(MESSAGE)?;
    let peer = peer(from).ok().filter(|_| reserved == 0)?;
    Some((peer, short))
}

/// Decodes an event that has `len` bytes. The bytes of a message stay in the ring: the returned
/// event has none.
///
/// # Errors
/// [`InvalidEntry`]: the entry breaks a rule.
#[inline]
pub fn read_event(head: &EventHead, len: usize) -> Result<Event<'static>, InvalidEntry> {
    let [a, b, c] = head.words;
    if head.kind == MESSAGE {
        if len > MEDIUM_BYTES_MAX {
            return Err(InvalidEntry::Length { kind: MESSAGE, len });
        }
        zero("reserved", b)?;
        return Ok(Event::Message { peer: peer(c)?, match_info: a, data: &[] });
    }
    length(head.kind, len, 0)?;
    Ok(match head.kind {
        CONNECTED => Event::Connected { token: Token(a), status: status(b)?, peer: peer(c)? },
        PEER_SEEN => {
            let (address, session) = (unpack(a)?, narrow("session", b)?);
            Event::PeerSeen { peer: peer(c)?, address, session }
        }
        OFFERED => {
            let (peer, len) = halves(c);
            let handle = Handle(narrow("handle", b)?);
            Event::Offered { peer: PeerId(peer), match_info: a, len, handle }
        }
        SENT => Event::Sent { token: Token(a), status: status(b)?, taken: narrow("taken", c)? },
        PULLED => {
            zero("reserved", c)?;
            Event::Pulled { token: Token(a), status: status(b)? }
        }
        PEER_GONE => {
            zero("reserved", c)?;
            Event::PeerGone { peer: peer(a)?, status: status(b)? }
        }
        other => return Err(InvalidEntry::Kind(other)),
    })
}
