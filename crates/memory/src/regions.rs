//! Registered memory: regions that peers name by a key.
//!
//! A [`Regions`] table maps a key to a [`Registration`]: memory, the address of its first byte,
//! access rights and an owner. A key is an index of 24 bits and a variable byte, as in InfiniBand.
//! The table changes the byte each time it uses an index again, so that a stale key names nothing,
//! until the byte repeats after 256 uses of the index. A look-up takes constant time; it checks
//! key, owner, access and bounds in this order.
//!
//! The memory is of any type, such as [`GuestSpans`] for guest memory and mapped files. A user of a
//! region clones its `Arc`; deregistration takes the region out of the table, and the memory is
//! released with the last clone. So accesses in progress may finish after the deregistration.
//!
//! A table has at most [`REGION_KEYS_MAX`] (16,777,216) regions, or fewer by its creator, and
//! returns [`RegionError::Full`] beyond. It has no lock. `mxoe::driver` keeps a table per endpoint,
//! looks up the keys of messages, and copies through the region, in the thread that runs the engine
//! (a dispatcher, or in direct mode the application's); the table itself touches no memory. Keys
//! can be guessed: the owner and the access rights protect a region, not the key.

use std::sync::Arc;

use crate::copy::{CopyError, copy_range};
use crate::limits::REGION_KEYS_MAX;
use crate::map::{Map, OutOfGrant};
use crate::view::View;

/// The key of a region: an index of 24 bits above a variable byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(pub u32);

impl RegionKey {
    /// Returns the key of an index. Bits above the 24th are discarded.
    pub const fn new(index: u32, variable: u8) -> Self {
        Self(index << 8 | variable as u32)
    }

    /// Returns the index, below 2^24.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Returns the variable byte.
    pub const fn variable(self) -> u8 {
        self.0 as u8
    }
}

bitflags::bitflags! {
    /// The accesses that a region permits to holders of its key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Access: u8 {
        /// Permits the owner to write (receive into the region).
        const LOCAL_WRITE = 1;
        /// Permits peers to read.
        const REMOTE_READ = 2;
        /// Permits peers to write.
        const REMOTE_WRITE = 4;
        /// Permits atomic operations of peers.
        const REMOTE_ATOMIC = 8;
    }
}

/// Why a region is not registered, or not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The table is full.
    #[error("the table of regions is full")]
    Full,
    /// Another region has the key's index.
    #[error("the key is in use")]
    Taken,
    /// The region's addresses wrap.
    #[error("the addresses of the region wrap")]
    Wraps,
    /// No region has the key.
    #[error("no region has this key")]
    NoKey,
    /// The region belongs to another owner.
    #[error("the region belongs to another owner")]
    Owner,
    /// The region does not permit the access.
    #[error("the region does not permit this access")]
    Access,
    /// Bytes outside of the region.
    #[error("{len} bytes at {address:#x} lie outside the region")]
    Outside {
        /// Address of the first byte, as peers name it.
        address: u64,
        /// Length, in bytes.
        len: u64,
    },
}

/// A registered region.
#[derive(Debug)]
pub struct Registration<M> {
    /// The bytes.
    pub memory: M,
    /// The address by which holders of the key name the first byte.
    pub base: u64,
    /// Length, in bytes.
    pub len: u64,
    /// Permitted accesses.
    pub access: Access,
    /// The owner (a protection domain); an access names the same.
    pub owner: u32,
}

impl<M> Registration<M> {
    /// Returns the offset of `len` bytes at `address`.
    ///
    /// # Errors
    /// [`RegionError::Outside`].
    #[inline]
    pub fn offset(&self, address: u64, len: u64) -> Result<u64, RegionError> {
        let outside = RegionError::Outside { address, len };
        let offset = address.checked_sub(self.base).ok_or(outside)?;
        let end = offset.checked_add(len).ok_or(outside)?;
        if end <= self.len { Ok(offset) } else { Err(outside) }
    }
}

/// An entry of the table.
#[derive(Debug)]
struct RegionSlot<M> {
    /// The variable byte of the last key with this index.
    variable: u8,
    /// `None` while the index is free.
    region: Option<Arc<Registration<M>>>,
}

/// A table of regions by key.
#[derive(Debug)]
pub struct Regions<M> {
    /// By index; grows up to `max`.
    slots: Vec<RegionSlot<M>>,
    /// Indices of the slots without a region. May hold indices that [`Self::register_as`] took.
    free: Vec<u32>,
    /// Registered regions.
    count: usize,
    /// Most regions.
    max: usize,
    /// Changes so far.
    epoch: u64,
}

impl<M> Regions<M> {
    /// Returns a table of at most `max` regions, and never more than [`REGION_KEYS_MAX`]
    /// (16,777,216).
    pub fn new(max: usize) -> Self {
        let max = max.min(REGION_KEYS_MAX);
        Self { slots: Vec::new(), free: Vec::new(), count: 0, max, epoch: 0 }
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no region is registered.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of changes so far. A result of a look-up holds while it stays the same.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Registers a region under a key of the table's choice.
    ///
    /// # Errors
    /// [`RegionError::Full`] or [`RegionError::Wraps`].
    pub fn register(&mut self, region: Registration<M>) -> Result<RegionKey, RegionError> {
        while let Some(index) = self.free.pop() {
            let slot = self.slots.get(usize::try_from(index).unwrap_or(usize::MAX));
            if let Some(slot) = slot.filter(|slot| slot.region.is_none()) {
                let key = RegionKey::new(index, slot.variable.wrapping_add(1));
                return self.put(key, region).inspect_err(|_| self.free.push(index));
            }
        }
        let index = u32::try_from(self.slots.len()).map_err(|_| RegionError::Full)?;
        self.put(RegionKey::new(index, 0), region)
    }

    /// Registers a region under a key of the caller's choice.
    ///
    /// # Errors
    /// [`RegionError::Taken`] if the index is in use, [`RegionError::Full`] if it is beyond the
    /// table, or [`RegionError::Wraps`].
    pub fn register_as(
        &mut self,
        key: RegionKey,
        region: Registration<M>,
    ) -> Result<(), RegionError> {
        self.put(key, region).map(drop)
    }

    /// Registers a region under a key whose index is free.
    fn put(&mut self, key: RegionKey, region: Registration<M>) -> Result<RegionKey, RegionError> {
        let index = usize::try_from(key.index()).unwrap_or(usize::MAX);
        if index >= self.max {
            return Err(RegionError::Full);
        }
        if region.base.checked_add(region.len).is_none() {
            return Err(RegionError::Wraps);
        }
        while self.slots.len() <= index {
            // Slots below the index stay free.
            let below = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.free.extend((below < key.index()).then_some(below));
            self.slots.push(RegionSlot { variable: 0, region: None });
        }
        let slot = self.slots.get_mut(index).ok_or(RegionError::Full)?;
        if slot.region.is_some() {
            return Err(RegionError::Taken);
        }
        *slot = RegionSlot { variable: key.variable(), region: Some(Arc::new(region)) };
        self.count = self.count.saturating_add(1);
        self.epoch = self.epoch.wrapping_add(1);
        Ok(key)
    }

    /// Takes a region out of the table. Holders of clones go on using it.
    ///
    /// # Errors
    /// [`RegionError::NoKey`].
    pub fn deregister(&mut self, key: RegionKey) -> Result<Arc<Registration<M>>, RegionError> {
        let slot = usize::try_from(key.index()).ok().and_then(|index| self.slots.get_mut(index));
        let slot = slot.filter(|slot| slot.variable == key.variable());
        let region = slot.and_then(|slot| slot.region.take()).ok_or(RegionError::NoKey)?;
        // At most one entry per slot: the owner of a key may take and return an index at will.
        if self.free.len() >= self.slots.len() {
            self.free.clear();
            let slots = (0..).zip(&self.slots).filter(|(_, slot)| slot.region.is_none());
            self.free.extend(slots.map(|(index, _)| index));
        } else {
            self.free.push(key.index());
        }
        self.count = self.count.saturating_sub(1);
        self.epoch = self.epoch.wrapping_add(1);
        Ok(region)
    }

    /// Returns the region of a key.
    ///
    /// # Errors
    /// [`RegionError::NoKey`].
    #[inline]
    pub fn get(&self, key: RegionKey) -> Result<&Arc<Registration<M>>, RegionError> {
        let slot = usize::try_from(key.index()).ok().and_then(|index| self.slots.get(index));
        let slot = slot.filter(|slot| slot.variable == key.variable());
        slot.and_then(|slot| slot.region.as_ref()).ok_or(RegionError::NoKey)
    }

    /// Returns the region of a key and the offset of `len` bytes at `address`, for an access of
    /// `owner` that needs the rights `needed`.
    ///
    /// # Errors
    /// [`RegionError`]: the first check that fails.
    #[inline]
    pub fn find(
        &self,
        key: RegionKey,
        (address, len): (u64, u64),
        needed: Access,
        owner: u32,
    ) -> Result<(&Arc<Registration<M>>, u64), RegionError> {
        let region = self.get(key)?;
        if region.owner != owner {
            return Err(RegionError::Owner);
        }
        if !region.access.contains(needed) {
            return Err(RegionError::Access);
        }
        region.offset(address, len).map(|offset| (region, offset))
    }
}

/// Guest memory of a region: spans of guest addresses in one epoch, as one row of bytes.
#[derive(Debug)]
pub struct GuestSpans {
    epoch: Arc<Map>,
    /// Guest address of each span, and the offset behind its last byte.
    spans: Box<[(u64, u64)]>,
}

impl GuestSpans {
    /// Returns the row of `spans`: guest addresses and lengths. `None` if the lengths or a span
    /// wrap.
    pub fn new(epoch: Arc<Map>, spans: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let mut end = 0_u64;
        let ends = spans.into_iter().map(|(guest, len)| {
            guest.checked_add(len)?;
            end = end.checked_add(len)?;
            Some((guest, end))
        });
        let spans = ends.collect::<Option<_>>()?;
        Some(Self { epoch, spans })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.spans.last().map_or(0, |(_, end)| *end)
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a page of the epoch was lost because its file shrank.
    pub fn is_poisoned(&self) -> bool {
        self.epoch.is_poisoned()
    }

    /// Returns the guest address at `offset` and the number of bytes that follow it in its span.
    fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let index = self.spans.partition_point(|(_, end)| *end <= offset);
        let (guest, end) = *self.spans.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.spans.get(before));
        let start = start.map_or(0, |(_, end)| *end);
        let at = offset.checked_sub(start)?;
        Some((guest.checked_add(at)?, end.checked_sub(offset)?))
    }

    /// Copies the bytes at `offset` out, once.
    ///
    /// # Errors
    /// [`OutOfGrant`]: bytes outside of the row, or no longer granted. Some bytes may have been
    /// copied.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let (mut offset, mut into) = (offset, into);
        while !into.is_empty() {
            let outside = OutOfGrant { addr: offset, len: into.len() as u64 };
            let (guest, left) = self.locate(offset).ok_or(outside)?;
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
            let (head, tail) = into.split_at_mut(now);
            self.epoch.read(guest, head)?;
            (offset, into) = (offset.saturating_add(now as u64), tail);
        }
        Ok(())
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        let (mut offset, mut from) = (offset, from);
        while !from.is_empty() {
            let outside = OutOfGrant { addr: offset, len: from.len() as u64 };
            let (guest, left) = self.locate(offset).ok_or(outside)?;
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(from.len());
            let (head, tail) = from.split_at(now);
            self.epoch.write(guest, head)?;
            (offset, from) = (offset.saturating_add(now as u64), tail);
        }
        Ok(())
    }

    /// Copies `len` bytes at `offset` straight to `at` of another row: one copy.
    ///
    /// # Errors
    /// [`CopyError`]: bytes outside of a row, or no longer granted. Some bytes may have been
    /// copied.
    pub fn copy_to(&self, offset: u64, (to, at): (&Self, u64), len: u64) -> Result<(), CopyError> {
        let (mut offset, mut at, mut rest) = (offset, at, len);
        while rest > 0 {
            let outside = |addr| OutOfGrant { addr, len: rest };
            let from = self.locate(offset).ok_or(CopyError::Source(outside(offset)))?;
            let into = to.locate(at).ok_or(CopyError::Destination(outside(at)))?;
            let now = from.1.min(into.1).min(rest).min(u32::MAX.into());
            let bytes = u32::try_from(now).unwrap_or(u32::MAX);
            copy_range((&self.epoch, from.0), (&to.epoch, into.0), bytes)?;
            (offset, at) = (offset.saturating_add(now), at.saturating_add(now));
            rest = rest.saturating_sub(now);
        }
        Ok(())
    }

    /// Returns a view of `len` bytes at `offset`, which must lie in one span and one grant.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    pub fn view(&self, offset: u64, len: usize) -> Result<View, OutOfGrant> {
        let outside = OutOfGrant { addr: offset, len: len as u64 };
        let (guest, left) = self.locate(offset).ok_or(outside)?;
        if len as u64 > left {
            return Err(outside);
        }
        self.epoch.view(guest, len)
    }
}
