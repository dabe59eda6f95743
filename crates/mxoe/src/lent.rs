//! Bytes of a region for another NIC of the same daemon.
//!
//! [`LentBytes`] live for one step of [`local::perform`](crate::local::perform): they keep the
//! region mapped, but not registered, and the owner of the region may change the bytes.
//! [`EndpointIo`](crate::driver::EndpointIo) checks the bounds and lends the region in place, so
//! that the copy from region to region is the only one; the default of
//! [`Outside::lend`](crate::Outside::lend) copies first. A failed copy may have written a part;
//! [`CopyFault`] names the side that ends its message: `local::perform` ends both the offer and the
//! pull for [`CopyFault::Source`], and only the pull for [`CopyFault::Destination`], with
//! `BadRdmaWindow`.
//!
//! Each NIC lends and copies through its [`Outside`](crate::Outside), on the dispatcher's thread.
//! Nothing is lent to a NIC of another daemon.

use std::borrow::Cow;
use std::sync::Arc;

use causeway_memory::copy::CopyError;
use causeway_memory::{GuestSpans, Registration};

use crate::RegionFault;

/// The memory that a copy could not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CopyFault {
    /// The memory of the sender.
    #[error("the memory of the sender cannot be reached: it was unmapped while it was registered")]
    Source,
    /// The memory of the receiver.
    #[error(
        "the memory of the receiver cannot be reached: it was unmapped while it was registered"
    )]
    Destination,
}

/// Bytes of a region.
#[derive(Debug)]
pub struct LentBytes(Lent);

#[derive(Debug)]
enum Lent {
    /// A copy.
    Copied(Vec<u8>),
    /// The region, and offset and length of the bytes.
    InPlace(Arc<Registration<GuestSpans>>, u64, usize),
}

impl LentBytes {
    /// Returns bytes that were copied already.
    pub fn copied(bytes: Vec<u8>) -> Self {
        Self(Lent::Copied(bytes))
    }

    /// Returns bytes in a region, which the caller has checked.
    pub(crate) fn in_place(region: Arc<Registration<GuestSpans>>, at: u64, len: usize) -> Self {
        Self(Lent::InPlace(region, at, len))
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.0 {
            Lent::Copied(bytes) => bytes.len() as u64,
            Lent::InPlace(_, _, len) => *len as u64,
        }
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// [`RegionFault`]: their memory was unmapped.
    pub fn to_bytes(&self) -> Result<Cow<'_, [u8]>, RegionFault> {
        match &self.0 {
            Lent::Copied(bytes) => Ok(Cow::Borrowed(bytes)),
            Lent::InPlace(region, at, len) => {
                let mut bytes = vec![0; *len];
                region.memory.read(*at, &mut bytes).map_err(|_| RegionFault)?;
                if region.memory.is_poisoned() { Err(RegionFault) } else { Ok(Cow::Owned(bytes)) }
            }
        }
    }

    /// Copies the bytes to `at` of a region.
    pub(crate) fn copy_to(&self, into: &GuestSpans, at: u64) -> Result<(), CopyFault> {
        let copied = match &self.0 {
            Lent::Copied(bytes) => into.write(at, bytes).map_err(|_| CopyFault::Destination),
            Lent::InPlace(region, from, len) => {
                let copied = region.memory.copy_to(*from, (into, at), *len as u64);
                if region.memory.is_poisoned() {
                    return Err(CopyFault::Source);
                }
                copied.map_err(|error| match error {
                    CopyError::Source(_) => CopyFault::Source,
                    CopyError::Destination(_) => CopyFault::Destination,
                })
            }
        };
        if into.is_poisoned() { Err(CopyFault::Destination) } else { copied }
    }
}
