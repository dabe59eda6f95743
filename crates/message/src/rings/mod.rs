//! The rings between the two halves: how requests and events lie in the entries of a
//! [channel](causeway_channel) whose first side is the library half, and whose second the
//! backend half. It serves a process and a guest's device alike.
//!
//! # Requests
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 connect | token, address, key | patience u64 in ns, all ones for endless |
//! | 2 disconnect | peer | |
//! | 3 forget | peer | |
//! | 4 eager | match information, token, peer | the message |
//! | 5 offer | match information, token, peer and region | offset u64, length u32, 0 u32 |
//! | 6 pull | handle and region, token, offset | length u32 |
//! | 7 cancel | token | |
//!
//! A library half that cannot take messages of a partner says so in the words of [`Holds`]: its
//! messages and offers wait in the backend half then, and all else goes on.
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
//! An address is a MAC in the lower 48 bits, the endpoint in the next 8. Where two things share a
//! word, the second has the upper half. Words and bits that are not named are zero, all numbers
//! little-endian. An entry that is not so is [`Wrong`], and its writer loses the ring.

mod events;
mod holds;
mod requests;
#[cfg(test)]
mod tests;

use causeway_channel::Layout;

pub use events::{read_event, short_event, write_event};
pub use holds::Holds;
pub use requests::{eager, read_request, write_request};

use crate::limits::{EVENTS_AFTER_END_MAX, MEDIUM_BYTES_MAX};
use crate::split::{Address, NicId};

/// An entry that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// There is no such entry.
    #[error("entries of kind {0} are not known")]
    Kind(u8),
    /// A field has a value that it cannot have.
    #[error("field {0} has a value that it cannot have")]
    Field(&'static str),
    /// It has more or fewer bytes than such an entry has.
    #[error("an entry of kind {kind} with {len} bytes")]
    Length {
        /// Of which kind.
        kind: u8,
        /// How many bytes.
        len: usize,
    },
}

/// Entries and bytes of each ring of an endpoint: the longest eager message fits several times.
const SIZES: (u32, u32) = (256, 256 << 10);
// Or what the backend half said before it was gone is not all taken.
const _: () = assert!(EVENTS_AFTER_END_MAX == SIZES.0 as usize);
const _: () = assert!(SIZES.1 as usize >= 4 * MEDIUM_BYTES_MAX);

/// How large the rings of an endpoint are.
pub fn layout() -> Layout {
    let (entries, bytes) = SIZES;
    Layout::new(entries, bytes).unwrap_or(Layout::DEFAULT)
}

fn pack(address: Address) -> u64 {
    (address.nic.0 & 0xffff_ffff_ffff) | u64::from(address.endpoint) << 48
}

fn unpack(word: u64) -> Result<Address, Wrong> {
    let [0, endpoint, a, b, c, d, e, f] = word.to_be_bytes() else {
        return Err(Wrong::Field("address"));
    };
    Ok(Address { nic: NicId::of([a, b, c, d, e, f]), endpoint })
}

fn both(lower: u32, upper: u32) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn narrow(field: &'static str, word: u64) -> Result<u32, Wrong> {
    u32::try_from(word).map_err(|_| Wrong::Field(field))
}

fn zero(field: &'static str, word: u64) -> Result<(), Wrong> {
    if word == 0 { Ok(()) } else { Err(Wrong::Field(field)) }
}

fn length(kind: u8, len: usize, expected: usize) -> Result<(), Wrong> {
    if len == expected { Ok(()) } else { Err(Wrong::Length { kind, len }) }
}
