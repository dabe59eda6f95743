//! Scatter-gather copies: cursors over the spans of a descriptor chain, and the single copy from
//! guest to guest.
//!
//! A span is an interval of guest addresses of less than 4 GiB, as a descriptor names it. Copies
//! never allocate. Each span is translated and checked when it is copied, in the epoch of the given
//! [`Map`]; a cursor keeps guest addresses and stays valid over a change of the epoch.
//!
//! `ethernet` and `socket` call [`copy()`] after both chains are popped, and before `ring`
//! publishes the used entries; `verbs` calls it for the payload of work requests. An error leaves
//! the bytes copied so far in the destination: the caller completes the chain or request with an
//! error or a shorter length, and is not informed of a lost page, which is copied as zeros. The
//! copy is not atomic: the sender may change bytes meanwhile, and the receiver may read early.
//! Contents are not checked, and no cursor is shared between threads.

use crate::kernel;
use crate::map::{Map, OutOfGrant};
use crate::rights::Rights;

/// A range of guest memory, as a descriptor names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Guest-physical address.
    pub addr: u64,
    /// Length, in bytes.
    pub len: u32,
}

/// A position in a list of spans.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    spans: &'a [Span],
    /// Consumed bytes of the first of `spans`; below its length.
    done: u32,
}

/// The side of a copy whose memory is not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The source's spans are not all granted, or end early.
    #[error("source: {0}")]
    Source(OutOfGrant),
    /// The destination's spans are not all granted, or end early.
    #[error("destination: {0}")]
    Destination(OutOfGrant),
}

impl<'a> Cursor<'a> {
    /// Returns a position before the first byte of `spans`.
    pub fn new(spans: &'a [Span]) -> Self {
        Self { spans, done: 0 }
    }

    /// Returns a position after the first `bytes` of `spans`, or at the end if there are fewer.
    pub fn at(spans: &'a [Span], bytes: u64) -> Self {
        let mut cursor = Self::new(spans);
        cursor.skip(bytes);
        cursor
    }

    /// Returns the number of remaining bytes.
    pub fn remaining(&self) -> u64 {
        let all = self.spans.iter().fold(0_u64, |sum, s| sum.saturating_add(u64::from(s.len)));
        all.saturating_sub(u64::from(self.done))
    }

    /// Returns the next contiguous range without moving the position.
    #[inline]
    pub fn peek(&self) -> Option<Span> {
        let mut done = self.done;
        self.spans.iter().find_map(|span| {
            let len = span.len.saturating_sub(done);
            let addr = span.addr.wrapping_add(u64::from(done));
            done = 0;
            (len > 0).then_some(Span { addr, len })
        })
    }

    /// Advances by `bytes`, or to the end.
    #[inline]
    pub fn skip(&mut self, bytes: u64) {
        let mut bytes = bytes;
        while let [first, rest @ ..] = self.spans {
            let left = u64::from(first.len.saturating_sub(self.done));
            if bytes < left {
                // bytes < left <= u32::MAX, and done + bytes < first.len.
                self.done = self.done.wrapping_add(bytes as u32);
                return;
            }
            bytes = bytes.saturating_sub(left);
            self.spans = rest;
            self.done = 0;
        }
    }

    /// Returns the guest address of the next `len` bytes if they lie in the current span, and
    /// advances by them.
    #[inline]
    fn take_within(&mut self, len: usize) -> Option<u64> {
        let (first, rest) = self.spans.split_first()?;
        let left = first.len.saturating_sub(self.done);
        let addr = first.addr.wrapping_add(u64::from(self.done));
        // A length above `u32::MAX` exceeds every span.
        let len = u32::try_from(len).ok().filter(|&len| len <= left)?;
        if len < left {
            self.done = self.done.wrapping_add(len);
        } else {
            (self.spans, self.done) = (rest, 0);
        }
        Some(addr)
    }

    /// Copies the next bytes out of `map`: all of `into`.
    ///
    /// # Errors
    /// [`OutOfGrant`]; some bytes may have been copied.
    #[inline]
    pub fn read(&mut self, map: &Map, into: &mut [u8]) -> Result<(), OutOfGrant> {
        match self.take_within(into.len()) {
            Some(addr) => map.read(addr, into),
            None => self.read_spans(map, into),
        }
    }

    /// As [`Self::read`], for bytes that lie in more than one span.
    fn read_spans(&mut self, map: &Map, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let mut into = into;
        while !into.is_empty() {
            let ended = OutOfGrant { addr: 0, len: into.len() as u64 };
            let span = self.peek().ok_or(ended)?;
            let now = into.len().min(span.len as usize);
            let (head, tail) = into.split_at_mut(now);
            map.read(span.addr, head)?;
            self.skip(now as u64);
            into = tail;
        }
        Ok(())
    }

    /// Copies `from` to the next bytes of `map`: all of it.
    ///
    /// # Errors
    /// [`OutOfGrant`]; some bytes may have been copied.
    #[inline]
    pub fn write(&mut self, map: &Map, from: &[u8]) -> Result<(), OutOfGrant> {
        match self.take_within(from.len()) {
            Some(addr) => map.write(addr, from),
            None => self.write_spans(map, from),
        }
    }

    /// As [`Self::write`], for a header that is probably unchanged: see [`Map::write_changed`].
    ///
    /// # Errors
    /// As for [`Self::write`].
    #[inline]
    pub fn write_changed(&mut self, map: &Map, from: &[u8]) -> Result<(), OutOfGrant> {
        match self.take_within(from.len()) {
            Some(addr) => map.write_changed(addr, from),
            None => self.write_spans(map, from),
        }
    }

    /// As [`Self::write`], for bytes that lie in more than one span.
    fn write_spans(&mut self, map: &Map, from: &[u8]) -> Result<(), OutOfGrant> {
        let mut from = from;
        while !from.is_empty() {
            let ended = OutOfGrant { addr: 0, len: from.len() as u64 };
            let span = self.peek().ok_or(ended)?;
            let now = from.len().min(span.len as usize);
            let (head, tail) = from.split_at(now);
            map.write(span.addr, head)?;
            self.skip(now as u64);
            from = tail;
        }
        Ok(())
    }
}

/// Copies `len` bytes from one guest's spans straight into another's: the only copy of a payload.
///
/// # Errors
/// [`CopyError`]. Both cursors have then advanced by the bytes copied so far.
pub fn copy(
    from: (&Map, &mut Cursor<'_>),
    to: (&Map, &mut Cursor<'_>),
    len: u64,
) -> Result<(), CopyError> {
    let (source, from) = from;
    let (destination, to) = to;
    let mut left = len;
    while left > 0 {
        let ended = OutOfGrant { addr: 0, len: left };
        let out = from.peek().ok_or(CopyError::Source(ended))?;
        let into = to.peek().ok_or(CopyError::Destination(ended))?;
        let (src, src_len) = source
            .pointer(out.addr, Rights::READ)
            .ok_or(CopyError::Source(OutOfGrant { addr: out.addr, len: left }))?;
        let (dst, dst_len) = destination
            .pointer(into.addr, Rights::WRITE)
            .ok_or(CopyError::Destination(OutOfGrant { addr: into.addr, len: left }))?;
        let now = src_len.min(dst_len).min(out.len as usize).min(into.len as usize);
        let now = now.min(usize::try_from(left).unwrap_or(usize::MAX));
        // SAFETY: both pointers have at least `now` mapped bytes. A guest that sends to itself
        // may make the ranges overlap; the copy is made of opaque moves in address order,
        // which is defined for overlap too, if with its own result.
        unsafe { kernel::copy(dst.as_ptr(), src.as_ptr(), now) };
        destination.wrote(into.addr, now);
        from.skip(now as u64);
        to.skip(now as u64);
        left = left.saturating_sub(now as u64);
    }
    Ok(())
}

/// Copies `len` bytes at a guest address straight to an address of another guest, in few
/// instructions if they lie in one grant on both sides.
///
/// # Errors
/// [`CopyError`]. Some bytes may have been copied.
#[inline]
pub fn copy_range(
    (source, from): (&Map, u64),
    (destination, to): (&Map, u64),
    len: u32,
) -> Result<(), CopyError> {
    let bytes = len as usize;
    let here = source.pointer(from, Rights::READ).filter(|(_, left)| bytes <= *left);
    let there = destination.pointer(to, Rights::WRITE).filter(|(_, left)| bytes <= *left);
    let Some(((src, _), (dst, _))) = here.zip(there) else {
        let (here, there) = ([Span { addr: from, len }], [Span { addr: to, len }]);
        let (mut from, mut to) = (Cursor::new(&here), Cursor::new(&there));
        return copy((source, &mut from), (destination, &mut to), u64::from(len));
    };
    // SAFETY: both pointers have at least `len` mapped bytes; for overlap see `copy`.
    unsafe { kernel::copy(dst.as_ptr(), src.as_ptr(), bytes) };
    destination.wrote(to, bytes);
    Ok(())
}
