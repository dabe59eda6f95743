//! Memory that the application registered for others to read and write.

use std::collections::BTreeMap;

use super::Errno;
use super::parcel::Place;
use super::span::Span;
use crate::abi::{FI_EINVAL, FI_EKEYREJECTED, FI_ENOKEY, FI_ENOMEM};
use crate::limits::REGIONS_MAX;

/// Memory behind a key.
#[derive(Debug)]
pub struct Region {
    /// The pieces, seen as one row of bytes.
    pieces: Box<[Span]>,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    access: u64,
    /// What others call its first byte.
    base: u64,
}

impl Region {
    /// Returns the region of these pieces, which others may reach with `access` and call by addresses
    /// from `base` on.
    pub fn new(pieces: Box<[Span]>, access: u64, base: u64) -> Self {
        Self { pieces, access, base }
    }
}

/// All regions of a domain.
#[derive(Debug, Default)]
pub struct Regions {
    all: BTreeMap<u64, Region>,
    next: u64,
}

impl Regions {
    /// Registers memory under a key.
    ///
    /// # Errors
    /// The key is in use, or there are too many.
    pub fn insert(&mut self, key: u64, region: Region) -> Result<(), Errno> {
        if self.all.len() >= REGIONS_MAX {
            return Err(Errno(FI_ENOMEM));
        }
        if self.all.contains_key(&key) {
            return Err(Errno(FI_ENOKEY));
        }
        self.all.insert(key, region);
        Ok(())
    }

    /// A key that is not in use.
    pub fn free_key(&mut self) -> u64 {
        while self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let key = self.next;
        self.next = self.next.wrapping_add(1);
        key
    }

    /// Registers it no more.
    pub fn remove(&mut self, key: u64) {
        self.all.remove(&key);
    }

    /// Returns `len` bytes from what others call `address`, if they may be reached so.
    ///
    /// # Errors
    /// No such key, or not for that; bytes outside of it.
    ///
    /// # Safety
    /// As of [`Place::alias`], for this place and all others of the region.
    pub unsafe fn find(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: u64,
    ) -> Result<Place, Errno> {
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
                // SAFETY: as the caller says.
                found.push(unsafe { piece.alias() }.skip(skip).first(within));
            }
            skip = skip.saturating_sub(size);
            left = left.saturating_sub(within);
        }
        if left > 0 || skip > 0 {
            return Err(outside);
        }
        Place::of(found).ok_or(outside)
    }
}
