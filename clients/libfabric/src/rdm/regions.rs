//! Memory that the application registered for others to read and write.

use std::collections::BTreeMap;

use super::Errno;
use super::parcel::Place;
use crate::abi::{FI_EINVAL, FI_EKEYREJECTED, FI_ENOKEY, FI_ENOMEM};
use crate::limits::REGIONS_MAX;

/// Memory behind a key.
#[derive(Debug, Clone)]
pub struct Region {
    /// Its pieces, seen as one row of bytes.
    pub pieces: Box<[(*mut u8, usize)]>,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    pub access: u64,
    /// What others call its first byte.
    pub base: u64,
}

// SAFETY: the application registered the memory for any thread to reach.
unsafe impl Send for Region {}

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

    /// `len` bytes from what others call `address`, if they may be reached so.
    ///
    /// # Errors
    /// No such key, or not for that; bytes outside of it.
    pub fn find(&self, key: u64, address: u64, len: u64, access: u64) -> Result<Place, Errno> {
        let region = self.all.get(&key).ok_or(Errno(FI_EKEYREJECTED))?;
        if region.access & access != access {
            return Err(Errno(FI_EKEYREJECTED));
        }
        let outside = Errno(FI_EINVAL);
        let offset = address.checked_sub(region.base).ok_or(outside)?;
        let mut skip = usize::try_from(offset).map_err(|_| outside)?;
        let mut left = usize::try_from(len).map_err(|_| outside)?;
        let mut found = Vec::new();
        for &(start, size) in &*region.pieces {
            let within = size.saturating_sub(skip).min(left);
            if within > 0 {
                found.push((start.wrapping_add(skip), within));
            }
            skip = skip.saturating_sub(size);
            left = left.saturating_sub(within);
        }
        if left > 0 || skip > 0 {
            return Err(outside);
        }
        Ok(match *found {
            [] => Place::NOWHERE,
            [(start, len)] => Place::One(start, len),
            _ => {
                let sum = found.iter().fold(0_usize, |sum, (_, len)| sum.saturating_add(*len));
                Place::Many(found.into(), sum)
            }
        })
    }
}
