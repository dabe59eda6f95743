//! What calls are refused with.

/// Why a call was refused: `mx_return_t`, with MX's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Error {
    /// Lengths that a message cannot have.
    #[error("the segments are longer than 4 GiB - 1")]
    BadSegmentList = 10,
    /// No such request, or one for which the call has no meaning.
    #[error("no such request of this endpoint, or not one for this call")]
    BadRequest = 13,
    /// Bits of the match information that the mask leaves free.
    #[error("the match information has bits that the mask does not cover; clear them")]
    BadMatchMask = 14,
    /// A limit is reached.
    #[error("too many requests at a time; complete some")]
    NoResources = 15,
    /// A context id that does not fit.
    #[error("context ids of {CONTEXT_BITS_MAX} bits at most, within the 64 bits to match")]
    BadParameterValue = 26,
    /// A receive that would match in several contexts.
    #[error("the mask must cover the bits of the context id")]
    BadMatchingForContextIdMask = 42,
}

use crate::limits::CONTEXT_BITS_MAX;
