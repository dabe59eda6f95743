//! Positions in lists of segments, and the guest addresses behind them.
//!
//! A list may have any number of segments, of any length, as far as the queue's entries have room.
//! A list of more than 2^31 bytes ([`MESSAGE_BYTES_MAX`]) is no message: [`payload`] returns
//! `None`, and the request fails with a length error; a list for received messages may be longer. A
//! position is an index and an offset, so that a message that continues over steps does not begin
//! its list again. Segments without bytes are skipped without a look-up of their key (InfiniBand
//! specification, 10.7.2.2).
//!
//! The module resolves keys to guest addresses and copies nothing; whether these are granted is
//! checked by the copy. The other modules of the engine use it on both sides of a message. All of
//! it runs in the dispatcher's thread that serves the subnet.

use causeway_memory::Span;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::region::{RegionError, Regions, Rights};
use crate::work::Segment;

/// A position in a list of segments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the segment.
    index: usize,
    /// Consumed bytes of this segment.
    offset: u32,
}

impl Place {
    /// Advances by `bytes`, or to the end.
    #[inline]
    pub fn advance(&mut self, segments: &[Segment], bytes: u64) {
        let mut bytes = bytes;
        while let Some(segment) = segments.get(self.index) {
            let left = u64::from(segment.len.saturating_sub(self.offset));
            if bytes < left {
                // bytes < left <= u32::MAX, and offset + bytes < len.
                self.offset = self.offset.wrapping_add(bytes as u32);
                return;
            }
            bytes = bytes.saturating_sub(left);
            (self.index, self.offset) = (self.index.saturating_add(1), 0);
        }
    }
}

/// An owner's side of a copy: regions, domain, and the rights that the access needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access<'a> {
    /// Regions of the owner's adapter.
    pub regions: &'a Regions,
    /// Protection domain that the regions must have.
    pub domain: u32,
    /// Rights that the regions must have.
    pub needed: Rights,
}

impl Access<'_> {
    /// Appends the guest addresses of the next `len` bytes, until `out` has `most` entries. Returns
    /// the number of resolved bytes; fewer than `len` if the list ends.
    ///
    /// # Errors
    /// [`RegionError`] of a segment.
    #[inline]
    pub fn resolve(
        &self,
        segments: &[Segment],
        from: Place,
        len: u64,
        (most, out): (usize, &mut Vec<Span>),
    ) -> Result<u64, RegionError> {
        let mut done = 0_u64;
        let mut offset = from.offset;
        for segment in segments.get(from.index..).unwrap_or_default() {
            let now = u64::from(segment.len.saturating_sub(offset)).min(len.saturating_sub(done));
            if now > 0 {
                let address = segment.address.checked_add(u64::from(offset));
                let range = (address.ok_or(RegionError::Outside)?, now);
                let resolved = self.regions.resolve_some(
                    segment.key,
                    self.domain,
                    range,
                    self.needed,
                    (most, out),
                )?;
                done = done.saturating_add(resolved);
                if resolved < now || done >= len {
                    break;
                }
            }
            offset = 0;
        }
        Ok(done)
    }

    /// Checks all segments.
    ///
    /// # Errors
    /// [`RegionError`] of a segment.
    pub fn check(&self, segments: &[Segment]) -> Result<(), RegionError> {
        segments.iter().filter(|segment| segment.len > 0).try_for_each(|segment| {
            let range = (segment.address, u64::from(segment.len));
            self.regions.check(segment.key, self.domain, range, self.needed)
        })
    }
}

/// Returns the number of bytes of a list, or `None` above the longest message.
#[inline]
pub(super) fn payload(segments: &[Segment]) -> Option<u64> {
    let sum = capacity(segments);
    (sum <= MESSAGE_BYTES_MAX).then_some(sum)
}

/// Returns the number of bytes of a list.
#[inline]
pub(super) fn capacity(segments: &[Segment]) -> u64 {
    segments.iter().fold(0, |sum, segment| sum.saturating_add(u64::from(segment.len)))
}
