//! Errors of calls that the matching engine refuses.
//!
//! An [`Error`] means that the call made no request and had no effect except on counters. Failures
//! of a request itself (timeout, lost peer, truncation) are no errors of a call: they are the
//! [`Status`](causeway_wire::mx::Status) of its completion. The numbers are those of `mx_return_t`,
//! so that `libmyriexpress` returns them unchanged; the list has only the codes that this crate
//! returns.

/// Reason for which a call is refused: `mx_return_t`, with the numbers of MX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Error {
    /// The message is too long.
    #[error("the segments are longer than 4 GiB - 1")]
    BadSegmentList = 10,
    /// The request does not exist, or the call does not apply to it.
    #[error("no such request of this endpoint, or the call does not apply to it")]
    BadRequest = 13,
    /// The match information has bits that the mask does not cover.
    #[error("the match information has bits that the mask does not cover; clear them")]
    BadMatchMask = 14,
    /// A limit is reached.
    #[error("too many requests in progress: complete some")]
    NoResources = 15,
    /// The context id does not fit.
    #[error(
        "the context id exceeds {CONTEXT_BITS_MAX} bits or the 64 bits of the match information"
    )]
    BadParameterValue = 26,
    /// The mask of a receive spans several contexts.
    #[error("the mask must cover the bits of the context id")]
    BadMatchingForContextIdMask = 42,
}

use crate::limits::CONTEXT_BITS_MAX;
