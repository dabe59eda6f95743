//! The form of messages: the bits that the engine matches, and the head before the bytes.
//!
//! The engine matches 64 bits. The upper two select the kind of a message; kinds never match each
//! other:
//!
//! | bits 63, 62 | kind | other bits |
//! |---|---|---|
//! | 0 0 | message with a tag | tag |
//! | 0 1 | message without a tag | 0 |
//! | 1 0 | control request ([`control`](super::control)) | 0 |
//! | 1 1 | bytes of a long message, or (bit 61) a reply | name of the operation |
//!
//! The *name of an operation* is a number of 29 bits by which a peer refers to an operation of this
//! endpoint ([`operation`](super::operation)); it is unrelated to the name of an endpoint
//! ([`EndpointName`](super::EndpointName)).
//!
//! A message begins with a *head* of 16 bytes: 8 bytes of immediate data, and a word of 64 bits. A
//! clear bit 63 of the word means that the bytes follow the head: the message is *eager*. If a
//! message is too long for that, a *notice* is sent: a head without bytes, with bit 63 set, the
//! name of the send operation and the length. The bytes are sent as a separate message that only
//! this name matches, at once or, if bit 61 is set, on request ([`deferred`](super::deferred)).
//!
//! The module has numbers and conversions only: it checks nothing and sends nothing. Other forms
//! are in [`control`](super::control) (requests) and [`operation`](super::operation) (the words of
//! a head).

use crate::limits::TAG_BITS;

/// Position of the bits that select the kind of a message.
pub const SPACE_SHIFT: u8 = 62;
/// Mask of the bits that select the kind of a message.
pub const SPACES: u64 = 0b11 << SPACE_SHIFT;
/// A message with a tag.
pub const TAGGED: u64 = 0;
/// A message without a tag.
pub const PLAIN: u64 = 0b01 << SPACE_SHIFT;
/// A control request.
pub const CONTROL: u64 = 0b10 << SPACE_SHIFT;
/// The bytes of a long message.
pub const BODY: u64 = 0b11 << SPACE_SHIFT;
/// A reply to a control request.
pub const REPLY: u64 = BODY | 1 << 61;
/// The bits of a tag, as `mem_tag_format` reports.
pub const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

/// The bits of an operation's name ([`Operations::name`](super::operation::Operations::name)).
pub const NAME_MASK: u32 = (1 << 29) - 1;

/// Bit of a head's second word: the bytes are sent as a message of their own.
pub const NOTICE: u64 = 1 << 63;
/// Bit of a head's second word: there is immediate data.
pub const DATA: u64 = 1 << 62;
/// Bit of a head's second word: the bytes are sent on request.
pub const DEFERRED: u64 = 1 << 61;

/// Returns the second word of a head that is followed by bytes.
#[inline]
pub fn first_word(data: Option<u64>) -> u64 {
    if data.is_some() { DATA } else { 0 }
}

/// Returns the fields of a notice: the name of the sender's operation, with [`DEFERRED`] if the
/// bytes must be requested, and their length.
pub fn parse_notice(word: u64) -> (u64, usize) {
    let name = (word >> 32) & u64::from(NAME_MASK);
    (name | word & DEFERRED, (word & 0xffff_ffff) as usize)
}
