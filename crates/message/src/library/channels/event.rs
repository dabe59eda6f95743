//! Format of the events of a channel between two endpoints.
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 message | match information | the message |
//! | 2 offer | match information, the sender's name for the offer (its token), length | none, or addresses |
//! | 3 pull | the offer's name, the receiver's name for the pull, length | |
//! | 4 chunk | the receiver's name | the next bytes |
//! | 5 fail | the receiver's name | |
//! | 6 taken | the offer's name, length | |
//! | 7 help | the offer's name, the receiver's name for the copy, length | addresses |
//! | 8 put | the receiver's name | |
//!
//! Chunks in order answer a pull; a fail instead, or after some of them, ends it. The sender of a
//! large message is done when the last chunk is in the channel; no event confirms the chunks.
//!
//! The bytes of an offer ([`super::direct_read`]): the sender's count of withdrawals, then address
//! and length of each segment, 8 bytes each, little-endian. A receiver that reads the segments
//! directly sends no pull; it sends *taken* at the end.
//!
//! The bytes of a help event: the number of the cooperative copy, then the receiver's segments. The
//! sender may ignore it. A sender that helped sends *put* when no part is left.
//!
//! This module encodes and decodes the heads of events. It does not check that a name or length is
//! valid for the receiver: the library does. An unknown kind or a length above 2^32 - 1 is invalid,
//! and the caller closes the channel; a help event with invalid addresses is ignored, and an offer
//! with such is pulled. The format has no version: both ends are of one daemon's installation.
//! `channels::transport`, `channels::read_schedule` and `channels::cooperative_copy` write the
//! events; `Channels` reads them. All run in a thread of the application that holds the endpoint,
//! at each end of the channel.

use causeway_channel::{Event, EventHead};
use causeway_wire::mx::{PeerId, Token};

use crate::library::TransportEvent;

pub(super) const MESSAGE: u8 = 1;
pub(super) const OFFER: u8 = 2;
pub(super) const PULL: u8 = 3;
const CHUNK: u8 = 4;
pub(super) const FAIL: u8 = 5;
const TAKEN: u8 = 6;
pub(super) const HELP: u8 = 7;
pub(super) const PUT: u8 = 8;

/// Returns the head of an eager message.
#[inline]
pub(super) fn message(match_info: u64) -> EventHead {
    EventHead { kind: MESSAGE, words: [match_info, 0, 0] }
}

/// Returns the head of an offer.
pub(super) fn offer(match_info: u64, token: Token, len: usize) -> EventHead {
    EventHead { kind: OFFER, words: [match_info, token.0, len as u64] }
}

/// Returns the head of a pull.
pub(super) fn pull(offer: u64, token: Token, len: u32) -> EventHead {
    EventHead { kind: PULL, words: [offer, token.0, u64::from(len)] }
}

/// Returns the head of a chunk for the pull `to`.
pub(super) fn chunk(to: u64) -> EventHead {
    EventHead { kind: CHUNK, words: [to, 0, 0] }
}

/// Returns the head of a failure of the pull `to`.
pub(super) fn fail(to: u64) -> EventHead {
    EventHead { kind: FAIL, words: [to, 0, 0] }
}

/// Returns the head that ends an offer of which `len` bytes were read directly.
pub(super) fn taken(offer: u64, len: usize) -> EventHead {
    EventHead { kind: TAKEN, words: [offer, len as u64, 0] }
}

/// Returns the head that invites the sender of an offer to a cooperative copy.
pub(super) fn help(offer: u64, token: Token, len: usize) -> EventHead {
    EventHead { kind: HELP, words: [offer, token.0, len as u64] }
}

/// Returns the head that ends the sender's part of the copy `to`.
pub(super) fn put(to: u64) -> EventHead {
    EventHead { kind: PUT, words: [to, 0, 0] }
}

/// Returns the library's view of an event, or `None` for an invalid event.
#[inline(always)]
pub(super) fn arrival(peer: PeerId, event: &Event) -> Option<TransportEvent> {
    let [a, b, c] = event.head.words;
    let len = u32::try_from(event.len).ok()?;
    Some(match event.head.kind {
        MESSAGE => TransportEvent::Message { peer, match_info: a, len },
        OFFER => {
            TransportEvent::Offered { peer, match_info: a, offer: b, len: u32::try_from(c).ok()? }
        }
        PULL => {
            TransportEvent::Wanted { peer, token: Token(a), to: b, len: u32::try_from(c).ok()? }
        }
        CHUNK => TransportEvent::Chunk { peer, token: Token(a), len },
        FAIL => TransportEvent::Failed { peer, token: Token(a) },
        TAKEN => TransportEvent::Fetched { peer, token: Token(a), len: u32::try_from(b).ok()? },
        _ => return None,
    })
}
