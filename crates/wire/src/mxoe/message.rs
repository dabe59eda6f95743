//! Messages that are sent at once: tiny, small, and the fragments of medium messages.
//!
//! Maximum lengths: 32 bytes (tiny), 128 bytes (small), and 32,768 bytes (medium, in fragments).
//! Longer messages are offered ([`Rendezvous`](super::Rendezvous)). [`parse`](super::parse) calls
//! the parsers for received frames of their kinds, in the thread of the NIC side (`mxoe`). The
//! parsers check lengths and positions, and a packet that is cut off or too long is an [`Error`];
//! the engine counts and drops it. Order, duplicates and reassembly belong to the engine. Data is
//! borrowed from the frame and not copied.

use super::{EndpointPair, Error, FRAGMENTS_MAX, MEDIUM_LEN_MAX, behind_type, data};
use crate::field::Reader;

/// Length of a tiny or small packet's header, in bytes.
pub(super) const EAGER_LEN: usize = 24;
/// Length of a fragment's header, in bytes.
pub(super) const FRAGMENT_HEADER_LEN: usize = 32;
/// Largest `log2` of a fragment's length.
const PIPELINE_MAX: u8 = 15;

/// A complete tiny or small message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eager<'a> {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// Sequence number: 14 bits, and 2 bits that count the receiver's restarts.
    pub sequence: u16,
    /// Acknowledgement: all messages of the other direction before this number arrived.
    pub acknowledged: u16,
    /// Match information.
    pub match_info: u64,
    /// Session of the receiving endpoint.
    pub session: u32,
    /// Data of the message.
    pub data: &'a [u8],
}

/// A fragment of a medium message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The fields of a message; `data` is the fragment's.
    pub eager: Eager<'a>,
    /// Position of the data in the message.
    pub place: FragmentPlace,
}

/// Position of a fragment in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentPlace {
    /// Length of the message, in bytes: 1 to [`MEDIUM_LEN_MAX`].
    pub message_len: u16,
    /// Index of the fragment.
    pub number: u8,
    /// `log2` of the length of all fragments but the last.
    pub pipeline: u8,
}

impl FragmentPlace {
    /// Returns offset and length of the fragment in the message, in bytes, or `None` if it starts
    /// past the message's end.
    pub fn range(self) -> Option<(usize, usize)> {
        let full = 1_usize.checked_shl(u32::from(self.pipeline))?;
        let offset = full.checked_mul(usize::from(self.number))?;
        let left = usize::from(self.message_len).checked_sub(offset)?;
        (left > 0).then(|| (offset, left.min(full)))
    }

    /// Returns the number of fragments of the message.
    pub fn count(self) -> usize {
        let full = 1_usize.checked_shl(u32::from(self.pipeline)).unwrap_or(usize::MAX);
        usize::from(self.message_len).div_ceil(full)
    }
}

/// The fields from sequence number to session, which all messages share.
pub(super) struct MessageFields {
    /// As [`Eager::sequence`].
    pub(super) sequence: u16,
    /// As [`Eager::acknowledged`].
    pub(super) acknowledged: u16,
    /// Match information, which the receiver compares.
    pub(super) match_info: u64,
    /// Session of the destination endpoint.
    pub(super) session: u32,
}

impl MessageFields {
    pub(super) fn take(r: &mut Reader<'_>) -> Self {
        let (sequence, acknowledged) = (r.u16_be(), r.u16_be());
        let match_info = u64::from_be_bytes(r.take());
        Self { sequence, acknowledged, match_info, session: r.u32_be() }
    }

    pub(super) fn with(self, ends: EndpointPair, data: &[u8]) -> Eager<'_> {
        let Self { sequence, acknowledged, match_info, session } = self;
        Eager { ends, sequence, acknowledged, match_info, session, data }
    }
}

impl<'a> Eager<'a> {
    pub(super) fn parse(what: &'static str, longest: usize, body: &'a [u8]) -> Result<Self, Error> {
        let mut r = behind_type(what, EAGER_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        let len = r.u16_be();
        let _checksum = r.u16_be();
        if usize::from(len) > longest {
            let expected = if what == "tiny" { "0 to 32" } else { "0 to 128" };
            return Err(Error::Length { what, is: len.into(), expected });
        }
        let common = MessageFields::take(&mut r);
        Ok(common.with(ends, data(what, body, EAGER_LEN, len.into())?))
    }
}

impl<'a> Fragment<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let mut r = behind_type("medium", FRAGMENT_HEADER_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        let message_len = r.u16_be();
        let _ = r.u16_be();
        let common = MessageFields::take(&mut r);
        let len = r.u16_be();
        let [number, pipeline] = r.take();
        let place = FragmentPlace { message_len, number, pipeline };
        if usize::from(message_len) > MEDIUM_LEN_MAX || message_len == 0 {
            let is = message_len.into();
            return Err(Error::Length { what: "medium message", is, expected: "1 to 32768" });
        }
        if pipeline > PIPELINE_MAX || place.count() > FRAGMENTS_MAX {
            return Err(Error::Value { what: "fragment pipeline", is: pipeline.into() });
        }
        let Some((_, expected)) = place.range() else {
            return Err(Error::Value { what: "fragment number", is: number.into() });
        };
        if usize::from(len) != expected {
            let expected = "the rest of the message, or a full fragment";
            return Err(Error::Length { what: "fragment", is: len.into(), expected });
        }
        let data = data("medium", body, FRAGMENT_HEADER_LEN, len.into())?;
        Ok(Self { eager: common.with(ends, data), place })
    }
}
