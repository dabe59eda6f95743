//! Requests: the host side (`message`) writes them, the NIC side (`mxoe`) reads them.
//!
//! The NIC side checks the format here: kind, field ranges, number of bytes. Whether a peer, region
//! or handle exists, it checks in `mxoe`. The caller must copy an entry's bytes out of the ring
//! before [`read_request`] checks them. An eager message has at most [`MEDIUM_BYTES_MAX`] (32 KiB);
//! longer messages are offered from a region. [`write_request`] does not check the values that it
//! encodes. If the ring is full, it returns false and the host side keeps the request. After an
//! [`InvalidEntry`] the NIC side closes the endpoint.
//!
//! The threads are those of [`super::events`], with the sides exchanged. Neither call blocks.

use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{Handle, PeerId, RegionId, Request, Token, Window};

use super::{InvalidEntry, both, halves, length, narrow, pack, unpack, zero};
use crate::{BrokenChannel, EventHead, Sender};

/// Kinds of requests, as in the table of the parent module.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const FORGET: u8 = 3;
const EAGER: u8 = 4;
const OFFER: u8 = 5;
const PULL: u8 = 6;
const CANCEL: u8 = 7;
const WATCH: u8 = 8;

/// Returns the head of an eager message. The bytes of the message follow it.
#[inline]
pub fn eager(peer: PeerId, token: Token, match_info: u64) -> EventHead {
    EventHead { kind: EAGER, words: [match_info, token.0, peer.0.into()] }
}

/// Writes a request. Returns false if the ring has no room.
///
/// # Errors
/// [`BrokenChannel`]: the NIC side broke a rule of the ring.
pub fn write_request(ring: &mut Sender, request: &Request<'_>) -> Result<bool, BrokenChannel> {
    let head = |kind, words| EventHead { kind, words };
    match *request {
        Request::Connect { token, to, key, timeout_ns } => {
            let time_limit = timeout_ns.unwrap_or(u64::MAX).to_le_bytes();
            ring.send(head(CONNECT, [token.0, pack(to), key.into()]), &time_limit)
        }
        Request::Disconnect { peer } => ring.send(head(DISCONNECT, [peer.0.into(), 0, 0]), &[]),
        Request::Forget { peer } => ring.send(head(FORGET, [peer.0.into(), 0, 0]), &[]),
        Request::Eager { peer, token, match_info, data } => {
            ring.send(eager(peer, token, match_info), data)
        }
        Request::Offer { peer, token, match_info, from } => {
            let words = [match_info, token.0, both(peer.0, from.region.0.into())];
            let [a, b, c, d, e, f, g, h] = from.offset.to_le_bytes();
            let [i, j, k, l] = from.len.to_le_bytes();
            let place = [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0];
            ring.send(head(OFFER, words), &place)
        }
        Request::Pull { handle, token, into } => {
            let words = [both(handle.0, into.region.0.into()), token.0, into.offset];
            ring.send(head(PULL, words), &into.len.to_le_bytes())
        }
        Request::Watch { peer, on } => ring.send(head(WATCH, [peer.0.into(), on.into(), 0]), &[]),
        Request::Cancel { token } => ring.send(head(CANCEL, [token.0, 0, 0]), &[]),
    }
}

/// Returns the region with this number, at most 255.
fn region(number: u32) -> Result<RegionId, InvalidEntry> {
    u8::try_from(number).map(RegionId).map_err(|_| InvalidEntry::Field("region"))
}

/// Returns the peer in a word.
fn peer(word: u64) -> Result<PeerId, InvalidEntry> {
    narrow("peer", word).map(PeerId)
}

/// Decodes a request and its bytes, which the caller copied out of the ring.
///
/// # Errors
/// [`InvalidEntry`]: the entry breaks a rule.
pub fn read_request<'a>(head: &EventHead, bytes: &'a [u8]) -> Result<Request<'a>, InvalidEntry> {
    let [a, b, c] = head.words;
    let wrong = InvalidEntry::Length { kind: head.kind, len: bytes.len() };
    let bare = || {
        length(head.kind, bytes.len(), 0)?;
        zero("reserved", b | c)
    };
    Ok(match head.kind {
        CONNECT => {
            let time_limit: [u8; 8] = bytes.try_into().map_err(|_| wrong)?;
            let time_limit = u64::from_le_bytes(time_limit);
            let timeout_ns = Some(time_limit).filter(|&time_limit| time_limit != u64::MAX);
            let (to, key) = (unpack(b)?, narrow("key", c)?);
            Request::Connect { token: Token(a), to, key, timeout_ns }
        }
        DISCONNECT => {
            bare()?;
            Request::Disconnect { peer: peer(a)? }
        }
        FORGET => {
            bare()?;
            Request::Forget { peer: peer(a)? }
        }
        EAGER if bytes.len() > MEDIUM_BYTES_MAX => return Err(wrong),
        EAGER => Request::Eager { peer: peer(c)?, token: Token(b), match_info: a, data: bytes },
        OFFER => {
            let (peer, number) = halves(c);
            let (offset, rest) = bytes.split_first_chunk::<8>().ok_or(wrong)?;
            let (len, rest) = rest.split_first_chunk::<4>().ok_or(wrong)?;
            if rest != [0; 4] {
                return Err(wrong);
            }
            let (offset, len) = (u64::from_le_bytes(*offset), u32::from_le_bytes(*len));
            let from = Window { region: region(number)?, offset, len };
            Request::Offer { peer: PeerId(peer), token: Token(b), match_info: a, from }
        }
        PULL => {
            let len: [u8; 4] = bytes.try_into().map_err(|_| wrong)?;
            let (handle, number) = halves(a);
            let len = u32::from_le_bytes(len);
            let into = Window { region: region(number)?, offset: c, len };
            Request::Pull { handle: Handle(handle), token: Token(b), into }
        }
        WATCH => {
            length(head.kind, bytes.len(), 0)?;
            zero("reserved", c)?;
            let on = match b {
                0 => false,
                1 => true,
                _ => return Err(InvalidEntry::Field("on")),
            };
            Request::Watch { peer: peer(a)?, on }
        }
        CANCEL => {
            bare()?;
            Request::Cancel { token: Token(a) }
        }
        other => return Err(InvalidEntry::Kind(other)),
    })
}
