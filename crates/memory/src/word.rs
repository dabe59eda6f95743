//! Accesses of whole, aligned words of guest memory, in the byte order of the host.
//!
//! A word is 4 or 8 bytes at an address that is a multiple of its size, within a single grant. Each
//! access is a single instruction: a word never tears, neither against the guest's processors nor
//! against other threads of this process. An address that is unaligned, in the guest or in this
//! process, or not granted for the access, returns [`OutOfGrant`] and accesses nothing. Writes are
//! recorded in the dirty log. A page lost from its file reads as zeros, as in `crate::access`.
//!
//! `causeway-verbs` executes atomic operations by these functions; `causeway-mlx5` loads the
//! records that a driver keeps in guest memory, such as doorbell records. Both run in the
//! dispatcher's turn. Copies of longer data are in `crate::access`.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::map::{Map, OutOfGrant};
use crate::rights::Rights;
use crate::trace;

impl Map {
    /// Returns the pointer to an aligned word of `T`.
    #[inline]
    fn word<T>(&self, addr: u64, needed: Rights) -> Result<*mut T, OutOfGrant> {
        let len = size_of::<T>();
        let wrong = OutOfGrant { addr, len: len as u64 };
        let (at, left) = self.pointer(addr, needed).ok_or(wrong)?;
        let at = at.as_ptr().cast::<T>();
        if left < len || !at.is_aligned() || !addr.is_multiple_of(len as u64) {
            return Err(wrong);
        }
        Ok(at)
    }

    /// Returns the place of the 4 bytes at `addr`, which may be read while the map lives.
    pub(crate) fn word_pointer(&self, addr: u64) -> Result<NonNull<u32>, OutOfGrant> {
        let at = self.word::<u32>(addr, Rights::READ)?;
        NonNull::new(at).ok_or(OutOfGrant { addr, len: size_of::<u32>() as u64 })
    }

    /// Loads the 4 bytes at `addr`. Later loads of the caller see the writes before the loaded one.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `addr` is unaligned.
    #[inline]
    pub fn load_u32(&self, addr: u64) -> Result<u32, OutOfGrant> {
        let at = self.word::<u32>(addr, Rights::READ)?;
        trace::read(at.cast::<u8>(), size_of::<u32>());
        // SAFETY: `word` found 4 aligned, mapped bytes, which live as long as `self`. Other
        // accesses of this process to them are copies by opaque instructions or atomic.
        Ok(unsafe { AtomicU32::from_ptr(at) }.load(Ordering::Acquire))
    }

    /// Loads the 8 bytes at `addr`. Later loads of the caller see the writes before the loaded one.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `addr` is unaligned.
    #[inline]
    pub fn load_u64(&self, addr: u64) -> Result<u64, OutOfGrant> {
        let at = self.word::<u64>(addr, Rights::READ)?;
        trace::read(at.cast::<u8>(), size_of::<u64>());
        // SAFETY: as in `load_u32`, with 8 bytes.
        Ok(unsafe { AtomicU64::from_ptr(at) }.load(Ordering::Acquire))
    }

    /// Replaces the 8 bytes at `addr` by `new` if they equal `expected`. Returns the old value.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `addr` is unaligned.
    pub fn compare_exchange_u64(
        &self,
        addr: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, OutOfGrant> {
        let at = self.word::<u64>(addr, Rights::READ_WRITE)?;
        trace::written(at.cast::<u8>(), size_of::<u64>());
        // SAFETY: as in `load_u64`; the grant permits writing.
        let word = unsafe { AtomicU64::from_ptr(at) };
        let old = word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        self.wrote(addr, size_of::<u64>());
        Ok(old.unwrap_or_else(|old| old))
    }

    /// Adds to the 8 bytes at `addr`; the sum wraps. Returns the old value.
    ///
    /// # Errors
    /// [`OutOfGrant`], also if `addr` is unaligned.
    pub fn fetch_add_u64(&self, addr: u64, summand: u64) -> Result<u64, OutOfGrant> {
        let at = self.word::<u64>(addr, Rights::READ_WRITE)?;
        trace::written(at.cast::<u8>(), size_of::<u64>());
        // SAFETY: as in `compare_exchange_u64`.
        let old = unsafe { AtomicU64::from_ptr(at) }.fetch_add(summand, Ordering::AcqRel);
        self.wrote(addr, size_of::<u64>());
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;
    use crate::{Mapping, Region, create};

    fn map() -> Map {
        let file = create("word", 8192).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 8192).unwrap());
        Map::new(vec![Region { guest: 0x1000, user: 0, mapping }]).unwrap()
    }

    #[test]
    fn word_loads_see_writes_in_host_order() {
        let map = map();
        map.write(0x1008, &0x1122_3344_5566_7788_u64.to_ne_bytes()).unwrap();
        assert_eq!(map.load_u64(0x1008).unwrap(), 0x1122_3344_5566_7788);
        map.write(0x100c, &7_u32.to_ne_bytes()).unwrap();
        assert_eq!(map.load_u32(0x100c).unwrap(), 7);
    }

    #[test]
    fn word_refuses_unaligned_and_missing_memory() {
        let map = map();
        for addr in [0x1001, 0x1004, 0x2ffc, 0x3000, 0xff8, 0, u64::MAX, u64::MAX - 7] {
            assert!(map.load_u64(addr).is_err(), "{addr:#x}");
            assert!(map.fetch_add_u64(addr, 1).is_err(), "{addr:#x}");
            assert!(map.compare_exchange_u64(addr, 0, 1).is_err(), "{addr:#x}");
        }
        assert!(map.load_u32(0x1002).is_err());
        assert!(map.load_u32(0x2ffc).is_ok());
    }

    #[test]
    fn word_exchanges_and_adds_return_the_old_value() {
        let map = map();
        assert_eq!(map.compare_exchange_u64(0x1010, 0, 5).unwrap(), 0);
        assert_eq!(map.compare_exchange_u64(0x1010, 0, 9).unwrap(), 5);
        assert_eq!(map.fetch_add_u64(0x1010, u64::MAX).unwrap(), 5);
        assert_eq!(map.load_u64(0x1010).unwrap(), 4);
    }
}
