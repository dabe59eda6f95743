//! Registered memory regions, which peers read and write by key. The table checks key, access and
//! bounds; [`target`](super::target) performs the operations.
//!
//! The table of `causeway_memory` is not used: applications choose keys of 64 bits, and a region is
//! memory of this process without an owner. A region has up to
//! [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX) (8) pieces, addressed as consecutive bytes
//! from its base: 0, or the virtual address with `FI_MR_BASIC`.
//!
//! # Limits
//! A domain has at most [`REGIONS_MAX`] (65,536) regions (`FI_ENOMEM` beyond); a key is unique in
//! its domain (`FI_ENOKEY` for a second region), and free for another region after its removal.
//! Removal of an unknown key has no effect. A request with an unknown key or without the access
//! gets `FI_EKEYREJECTED`, one beyond the bounds `FI_EINVAL`. Any peer that can connect and knows a
//! key has the access of the region: keys are no secret. The table pins no memory and does not
//! check that it is mapped. Removal leaves the memory to operations in progress: `Rdm::release`
//! takes it from them.
//!
//! # Place
//! `shell::mr` registers and removes regions in the application's threads; every endpoint of the
//! domain finds them by [`DomainEnv`](super::DomainEnv). The lock of the domain protects the table.

use std::collections::BTreeMap;

use super::buffer::Payload;
use super::span::AppSpan;
use crate::abi::{FI_EINVAL, FI_EKEYREJECTED, FI_ENOKEY, FI_ENOMEM};
use crate::errno::Errno;
use crate::limits::REGIONS_MAX;

/// A registered region.
#[derive(Debug)]
pub struct RegisteredRegion {
    /// The pieces, addressed as consecutive bytes.
    pieces: Box<[AppSpan]>,
    /// Allowed access: `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    access: u64,
    /// The address of the first byte in requests.
    base: u64,
}

impl RegisteredRegion {
    /// Returns the region of these pieces, for accesses in `access`, with addresses from `base`
    /// on.
    pub fn new(pieces: Box<[AppSpan]>, access: u64, base: u64) -> Self {
        Self { pieces, access, base }
    }
}

/// All regions of a domain.
#[derive(Debug, Default)]
pub struct RegionTable {
    /// Regions by key.
    all: BTreeMap<u64, RegisteredRegion>,
    /// The next key that [`RegionTable::free_key`] tries.
    next: u64,
}

impl RegionTable {
    /// Registers a region under a key.
    ///
    /// # Errors
    /// The key is in use, or there are too many regions.
    pub fn insert(&mut self, key: u64, region: RegisteredRegion) -> Result<(), Errno> {
        if self.all.len() >= REGIONS_MAX {
            return Err(Errno(FI_ENOMEM));
        }
        if self.all.contains_key(&key) {
            return Err(Errno(FI_ENOKEY));
        }
        self.all.insert(key, region);
        Ok(())
    }

    /// Returns a key that is not in use.
    pub fn free_key(&mut self) -> u64 {
        while self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let key = self.next;
        self.next = self.next.wrapping_add(1);
        key
    }

    /// Deregisters a region. An unknown key has no effect.
    pub fn remove(&mut self, key: u64) {
        self.all.remove(&key);
    }

    /// Returns the `len` bytes at `address` of a region, if it allows all accesses in `access`.
    ///
    /// # Errors
    /// `FI_EKEYREJECTED` if the key is unknown or does not allow the access; `FI_EINVAL` if bytes
    /// are outside the region.
    ///
    /// # Safety
    /// As for [`Payload::alias`], for this payload and all others of the region.
    pub unsafe fn find(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: u64,
    ) -> Result<Payload, Errno> {
        let region = self.all.get(&key).ok_or(Errno(FI_EKEYREJECTED))?;
        if region.access & access != access {
            return Err(Errno(FI_EKEYREJECTED));
        }
        let outside = Errno(FI_EINVAL);
        let offset = address.checked_sub(region.base).ok_or(outside)?;
        let mut skip = usize::try_from(offset).map_err(|_| outside)?;
        let mut left = usize::try_from(len).map_err(|_| outside)?;
        let mut found = Vec::new();
        for piece in &*region.pieces {
            let size = piece.len();
            let within = size.saturating_sub(skip).min(left);
            if within > 0 {
                // SAFETY: guaranteed by the caller.
                found.push(unsafe { piece.alias() }.skip(skip).first(within));
            }
            skip = skip.saturating_sub(size);
            left = left.saturating_sub(within);
        }
        if left > 0 || skip > 0 {
            return Err(outside);
        }
        Payload::of(found).ok_or(outside)
    }
}
