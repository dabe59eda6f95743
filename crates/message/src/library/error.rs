//! Errors of calls that the matching engine refuses.

/// Reason for which a call is refused: `mx_return_t`, with the numbers of MX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Error {
    /// The message is too long.
    #[error("the segments are longer than 4 GiB - 1")]
    BadSegmentList = 10,
    /// The request does not exist, or the call does not apply to it.
    #[error("no such request of this endpoint, or not one for this call")]
    BadRequest = 13,
    /// The match information has bits that the mask does not cover.
    #[error("the match information has bits that the mask does not cover; clear them")]
    BadMatchMask = 14,
    /// A limit is reached.
    #[error("too many requests at a time; complete some")]
    NoResources = 15,
    /// The context id does not fit.
    #[error("context ids of {CONTEXT_BITS_MAX} bits at most, within the 64 bits to match")]
    BadParameterValue = 26,
    /// The mask of a receive spans several contexts.
    #[error("the mask must cover the bits of the context id")]
    BadMatchingForContextIdMask = 42,
}

use crate::limits::CONTEXT_BITS_MAX;
