//! The identity of an adapter, by which all other objects refer to it.
//!
//! [`crate::Subnet`] gives the identities and finds adapters by them; an identity does not keep its
//! adapter, and names nothing after the removal.

/// The identity of an adapter in its subnet. An identity is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId {
    /// Index in the subnet's list of adapters; reused after a removal.
    pub(crate) slot: u32,
    /// Serial number of the adapter, which distinguishes successive adapters of a slot.
    pub(crate) serial: u32,
}
