//! Request and event rings of an MX endpoint: encoding of requests and events as entries of a
//! [channel](crate). The host side has the first side of the channel, the NIC side the second. The
//! format is the same for a process of the host and for one of a guest (a guest session).
//!
//! `message` and `mxoe` own the rings, of [`ENTRIES`] (256) entries and 256 KiB of data each.
//! [`Request`](causeway_wire::mx::Request) and [`Event`](causeway_wire::mx::Event) define the
//! effect of each kind. This module encodes and checks single entries; it keeps no state of
//! requests, matches no answers to requests, and does not wait: a full ring returns false, and the
//! caller keeps the entry. Requests and events are in order within their ring. The host side uses
//! the rings in the application's thread that holds the endpoint, the NIC side in a dispatcher or,
//! in direct mode, in the same thread.
//!
//! # Requests
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 connect | token, address, key | time limit u64 in ns, all ones for none |
//! | 2 disconnect | peer | |
//! | 3 forget | peer | |
//! | 4 eager | match information, token, peer | the message |
//! | 5 offer | match information, token, peer and region | offset u64, length u32, 0 u32 |
//! | 6 pull | handle and region, token, offset | length u32 |
//! | 7 cancel | token | |
//! | 8 watch | peer, 1 to start or 0 to stop | |
//!
//! A host side that cannot take messages of a peer sets the peer's bit in [`Holds`]: messages and
//! offers of that peer wait in the NIC side, and all other traffic continues.
//!
//! # Events
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 connected | token, status, peer | |
//! | 2 peer seen | address, session, peer | |
//! | 3 message | match information, 0, peer | the message |
//! | 4 offered | match information, handle, peer and length | |
//! | 5 sent | token, status, bytes taken | |
//! | 6 pulled | token, status | |
//! | 7 peer gone | peer, status | |
//!
//! An address is a MAC in the lower 48 bits and the endpoint in the next 8. Where two values share
//! a word, the second has the upper half. Other words and bits are zero; all numbers are
//! little-endian. An entry that breaks these rules is [`InvalidEntry`], and the reader closes the
//! ring.

mod events;
mod holds;
mod requests;
#[cfg(test)]
mod tests;

pub use events::{read_event, short_event, write_event};
pub use holds::Holds;
pub use requests::{eager, read_request, write_request};

use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{Address, NicId};

use crate::Layout;

/// An entry that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// The kind is unknown.
    #[error("entry kind {0} is unknown")]
    Kind(u8),
    /// The value of a field is invalid.
    #[error("field {0} has an invalid value")]
    Field(&'static str),
    /// The number of bytes does not fit the kind.
    #[error("an entry of kind {kind} with {len} bytes")]
    Length {
        /// Kind of the entry.
        kind: u8,
        /// Number of bytes.
        len: usize,
    },
}

/// Entries of each ring of an endpoint.
pub const ENTRIES: usize = 256;
/// Bytes of each ring of an endpoint: the longest eager message fits several times.
const DATA_BYTES: u32 = 256 << 10;
const _: () = assert!(DATA_BYTES as usize >= 4 * MEDIUM_BYTES_MAX);

/// Returns the layout of the rings of an endpoint.
pub fn layout() -> Layout {
    Layout::new(ENTRIES as u32, DATA_BYTES).unwrap_or(Layout::DEFAULT)
}

/// Returns an address as a word.
fn pack(address: Address) -> u64 {
    (address.nic.0 & 0xffff_ffff_ffff) | u64::from(address.endpoint) << 48
}

/// Returns the address in a word; other bits must be 0.
fn unpack(word: u64) -> Result<Address, InvalidEntry> {
    let [0, endpoint, a, b, c, d, e, f] = word.to_be_bytes() else {
        return Err(InvalidEntry::Field("address"));
    };
    Ok(Address { nic: NicId::of([a, b, c, d, e, f]), endpoint })
}

/// Joins two halves to a word.
fn both(lower: u32, upper: u32) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

/// Returns the lower and the upper half of a word.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Returns a word that must fit 32 bits.
fn narrow(field: &'static str, word: u64) -> Result<u32, InvalidEntry> {
    u32::try_from(word).map_err(|_| InvalidEntry::Field(field))
}

/// Checks that a word is 0.
fn zero(field: &'static str, word: u64) -> Result<(), InvalidEntry> {
    if word == 0 { Ok(()) } else { Err(InvalidEntry::Field(field)) }
}

/// Checks the number of bytes of an entry.
fn length(kind: u8, len: usize, expected: usize) -> Result<(), InvalidEntry> {
    if len == expected { Ok(()) } else { Err(InvalidEntry::Length { kind, len }) }
}
