//! What an event of a channel says.
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 message | match information | the message |
//! | 2 offer | match information, the sender's name for it, length | none, or where it lies |
//! | 3 pull | the offer's name, the receiver's name for it, length | |
//! | 4 chunk | the receiver's name | the next bytes |
//! | 5 fail | the receiver's name | |
//! | 6 taken | the offer's name, length | |
//! | 7 help | the offer's name, the receiver's name for it, length | where it goes |
//! | 8 put | the receiver's name | |
//!
//! A pull is answered by chunks in order, or by one fail. The sender of a large message has done
//! its part when the last chunk is in the channel, so no event says that they arrived.
//!
//! An offer's bytes ([`super::direct`]): how often the sender withdrew something, then for each
//! place where it lies the address and the length, 8 bytes each. Who read it there does not pull
//! it, and says that it was taken.
//!
//! Help, too, says where: the number of what is shared, then the places. It may be left alone. Who
//! helped, and finds nothing left to do, says that it put its part there.

use causeway_channel::{Event, Head};
use causeway_wire::mx::{PeerId, Token};

use crate::library::Arrival;

pub(super) const MESSAGE: u8 = 1;
pub(super) const OFFER: u8 = 2;
pub(super) const PULL: u8 = 3;
const CHUNK: u8 = 4;
pub(super) const FAIL: u8 = 5;
const TAKEN: u8 = 6;
pub(super) const HELP: u8 = 7;
pub(super) const PUT: u8 = 8;

/// A message; its bytes go with it.
#[inline]
pub(super) fn message(match_info: u64) -> Head {
    Head { kind: MESSAGE, words: [match_info, 0, 0] }
}

/// A message to be pulled.
pub(super) fn offer(match_info: u64, token: Token, len: usize) -> Head {
    Head { kind: OFFER, words: [match_info, token.0, len as u64] }
}

/// Pulls what was offered by that name.
pub(super) fn pull(offer: u64, token: Token, len: u32) -> Head {
    Head { kind: PULL, words: [offer, token.0, u64::from(len)] }
}

/// Bytes of what is pulled by that name.
pub(super) fn chunk(to: u64) -> Head {
    Head { kind: CHUNK, words: [to, 0, 0] }
}

/// What is pulled by that name does not come.
pub(super) fn fail(to: u64) -> Head {
    Head { kind: FAIL, words: [to, 0, 0] }
}

/// What was offered by that name was read, so many bytes of it.
pub(super) fn taken(offer: u64, len: usize) -> Head {
    Head { kind: TAKEN, words: [offer, len as u64, 0] }
}

/// Some of what was offered by that name may be put where the event says.
pub(super) fn help(offer: u64, token: Token, len: usize) -> Head {
    Head { kind: HELP, words: [offer, token.0, len as u64] }
}

/// What is received by that name has nothing left to be put there.
pub(super) fn put(to: u64) -> Head {
    Head { kind: PUT, words: [to, 0, 0] }
}

/// What an event says to the library half; none if that is nonsense.
#[inline(always)]
pub(super) fn arrival(peer: PeerId, event: &Event) -> Option<Arrival> {
    let [a, b, c] = event.head.words;
    let len = u32::try_from(event.len).ok()?;
    Some(match event.head.kind {
        MESSAGE => Arrival::Message { peer, match_info: a, len },
        OFFER => Arrival::Offered { peer, match_info: a, offer: b, len: u32::try_from(c).ok()? },
        PULL => Arrival::Wanted { peer, token: Token(a), to: b, len: u32::try_from(c).ok()? },
        CHUNK => Arrival::Chunk { peer, token: Token(a), len },
        FAIL => Arrival::Failed { peer, token: Token(a) },
        TAKEN => Arrival::Fetched { peer, token: Token(a), len: u32::try_from(b).ok()? },
        _ => return None,
    })
}
