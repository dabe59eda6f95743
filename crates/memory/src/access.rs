//! Copies between private memory and guest memory, with the checks of addresses and rights.
//!
//! Each access translates the guest address ([`Map::pointer`]), checks the grant's rights, and
//! copies the bytes in one pass (`crate::kernel`). Ranges may cross from one grant into the next.
//! Writes are recorded in the dirty log, if there is one; `write_framed` then writes nothing and
//! returns `false`, and its caller uses `write_headed`.
//!
//! On an error across several grants, bytes before the missing grant have been copied; an access of
//! 0 bytes succeeds at any address. The guest may change the bytes during a copy: callers check the
//! private copy, never the guest's bytes again. A page lost from its file reads as zeros and does
//! not fail; callers check [`Map::is_poisoned`] once per batch. Copies wait for no lock and order
//! nothing: callers that publish an index need [`crate::View`].
//!
//! `ring` and the services call these functions for headers, descriptors and short payloads;
//! payloads from guest to guest go through `crate::copy::copy`. The copies run in the caller's
//! thread, on the data path a dispatcher's.

use std::sync::atomic::{Ordering, fence};

use crate::kernel;
use crate::map::{Map, OutOfGrant};
use crate::rights::Rights;

impl Map {
    /// Returns the two little-endian words at `addr`, such as a descriptor of an indirect table.
    /// Loads each once; needs no alignment.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn load_pair(&self, addr: u64) -> Result<[u64; 2], OutOfGrant> {
        const BYTES: usize = 16;
        match self.pointer(addr, Rights::READ) {
            Some((from, left)) if left >= BYTES => {
                // SAFETY: `pointer` returned `left` mapped bytes.
                Ok(unsafe { kernel::load_pair(from.as_ptr()) }.map(u64::from_le))
            }
            // The bytes lie in several grants, or in none.
            _ => {
                let mut bytes = [0; BYTES];
                self.read(addr, &mut bytes)?;
                let word = u128::from_le_bytes(bytes);
                Ok([word as u64, (word >> 64) as u64])
            }
        }
    }

    /// Copies `N` bytes at `addr` out, once, in few instructions because the length is a constant.
    /// Returns `false` and copies nothing if fewer bytes follow in the grant.
    #[inline(always)]
    pub fn read_array<const N: usize>(&self, addr: u64, into: &mut [u8; N]) -> bool {
        match self.pointer(addr, Rights::READ) {
            Some((from, left)) if left >= N => {
                // SAFETY: `pointer` returned `left` mapped bytes; `into` is private and has N.
                unsafe { kernel::copy(into.as_mut_ptr(), from.as_ptr(), N) };
                true
            }
            _ => false,
        }
    }

    /// Copies the bytes at `addr` out, once.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr, Rights::READ) {
            Some((from, left)) if into.len() <= left => {
                // SAFETY: `pointer` returned `left` mapped bytes; `into` is private.
                unsafe { kernel::copy(into.as_mut_ptr(), from.as_ptr(), into.len()) };
                Ok(())
            }
            _ => self.read_pieces(addr, into),
        }
    }

    /// As [`Self::read`], for bytes that lie in more than one grant.
    #[inline(never)]
    fn read_pieces(&self, addr: u64, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let mut into = into;
        let mut addr = addr;
        while !into.is_empty() {
            let wrong = OutOfGrant { addr, len: into.len() as u64 };
            let (from, left) = self.pointer(addr, Rights::READ).ok_or(wrong)?;
            let now = left.min(into.len());
            let (head, tail) = into.split_at_mut(now);
            // SAFETY: `pointer` returned `left` mapped bytes; `head` is private and has `now` <=
            // left.
            unsafe { kernel::copy(head.as_mut_ptr(), from.as_ptr(), now) };
            into = tail;
            addr = addr.checked_add(now as u64).ok_or(wrong)?;
        }
        Ok(())
    }

    /// Copies `from` to `addr` unless the same bytes are there already, so that an unchanged cache
    /// line stays with its reader. For headers of 8 to 12 bytes; others are always written.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn write_changed(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        self.write_headed(addr, from, &[])
    }

    /// Copies a header to `addr` as [`Self::write_changed`] does, and `body` behind it.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn write_headed(&self, addr: u64, header: &[u8], body: &[u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr, Rights::WRITE) {
            Some((there, left)) if left >= header.len().saturating_add(body.len()) => {
                let there = there.as_ptr();
                // SAFETY: `pointer` returned `left` mapped bytes, room for both; both are private.
                unsafe {
                    if !is_there(there, header) {
                        kernel::copy(there, header.as_ptr(), header.len());
                    }
                    kernel::copy(there.add(header.len()), body.as_ptr(), body.len());
                }
                self.wrote(addr, header.len().saturating_add(body.len()));
                Ok(())
            }
            // The bytes lie in several grants, or in none.
            _ => {
                self.write(addr, header)?;
                self.write(addr.wrapping_add(header.len() as u64), body)
            }
        }
    }

    /// Does the same as [`Self::write_headed`], in few instructions because both lengths are
    /// constants. Returns `false` and writes nothing if the bytes lie in several grants, or if
    /// writes are logged.
    #[inline(always)]
    pub fn write_framed<const N: usize>(
        &self,
        addr: u64,
        header: &[u8; 12],
        body: &[u8; N],
    ) -> bool {
        match self.pointer(addr, Rights::WRITE) {
            Some((there, left)) if left >= N.wrapping_add(header.len()) && !self.is_logged() => {
                let there = there.as_ptr();
                // SAFETY: `pointer` returned `left` mapped bytes, room for both; both are private.
                unsafe {
                    if !is_there(there, header) {
                        kernel::copy(there, header.as_ptr(), header.len());
                    }
                    kernel::copy(there.add(header.len()), body.as_ptr(), N);
                }
                true
            }
            _ => false,
        }
    }

    /// Copies `from` to `addr`.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        match self.pointer(addr, Rights::WRITE) {
            Some((to, left)) if from.len() <= left => {
                // SAFETY: `pointer` returned `left` mapped bytes; `from` is private.
                unsafe { kernel::copy(to.as_ptr(), from.as_ptr(), from.len()) };
                self.wrote(addr, from.len());
                Ok(())
            }
            _ => self.write_pieces(addr, from),
        }
    }

    /// Copies `from` to `addr`, the last byte behind all others: a guest that loads the last byte
    /// first, and finds it new, finds the others new too. `N` is at least 1.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    #[inline]
    pub fn write_published<const N: usize>(
        &self,
        addr: u64,
        from: &[u8; N],
    ) -> Result<(), OutOfGrant> {
        let Some((last, body)) = from.split_last() else { return Ok(()) };
        match self.pointer(addr, Rights::WRITE) {
            Some((to, left)) if N <= left => {
                let to = to.as_ptr();
                // SAFETY: `pointer` returned `left` mapped bytes; `from` is private.
                unsafe { kernel::copy(to, body.as_ptr(), body.len()) };
                fence(Ordering::Release);
                // SAFETY: as above; the last byte follows the body.
                unsafe { kernel::copy(to.add(body.len()), last, 1) };
                self.wrote(addr, N);
                Ok(())
            }
            _ => {
                self.write_pieces(addr, body)?;
                fence(Ordering::Release);
                self.write_pieces(addr.wrapping_add(body.len() as u64), &[*last])
            }
        }
    }

    /// Does the same as [`Self::write`], for bytes that lie in more than one grant.
    #[inline(never)]
    fn write_pieces(&self, addr: u64, from: &[u8]) -> Result<(), OutOfGrant> {
        let mut from = from;
        let mut addr = addr;
        while !from.is_empty() {
            let wrong = OutOfGrant { addr, len: from.len() as u64 };
            let (to, left) = self.pointer(addr, Rights::WRITE).ok_or(wrong)?;
            let now = left.min(from.len());
            let (head, tail) = from.split_at(now);
            // SAFETY: `pointer` returned `left` mapped bytes; `head` is private and has `now` <=
            // left.
            unsafe { kernel::copy(to.as_ptr(), head.as_ptr(), now) };
            self.wrote(addr, now);
            from = tail;
            addr = addr.checked_add(now as u64).ok_or(wrong)?;
        }
        Ok(())
    }
}

/// Returns whether `header`, of 8 to 12 bytes, lies at `there` already.
///
/// # Safety
/// `there` must point to as many mapped bytes.
#[inline]
unsafe fn is_there(there: *const u8, header: &[u8]) -> bool {
    let (Some(first), Some(last)) = (header.first_chunk::<8>(), header.last_chunk::<4>()) else {
        return false;
    };
    if header.len() > 12 {
        return false;
    }
    // SAFETY: the caller guarantees the bytes, of which these are the first 8 and the last 4.
    let (head, tail) = unsafe {
        let tail = there.add(header.len().wrapping_sub(4));
        (kernel::load_word(there), kernel::load_half(tail))
    };
    head == u64::from_ne_bytes(*first) && tail == u32::from_ne_bytes(*last)
}
