//! One available chain, copied out and checked.

use causeway_memory::{Cursor, Map, OutOfGrant, Rights, Span};

use crate::error::RingError;
use crate::format::{FLAG_INDIRECT, FLAG_WRITE};
use crate::limits::CHAIN_BYTES_MAX;

/// A chain of descriptors as plain values: what the device may read, then what it may write.
///
/// Reuse one value over many pops: its vectors keep their room.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// Names the chain to the driver when it is used.
    pub(crate) head: u16,
    spans: Spans,
    /// Where there is but one span.
    only: [Span; 1],
    /// Where there are others.
    readable: Vec<Span>,
    writable: Vec<Span>,
    readable_bytes: u64,
    writable_bytes: u64,
}

/// Where a chain's spans stand: most have one, which is told in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Spans {
    #[default]
    Many,
    Readable,
    Writable,
}

impl Chain {
    /// An empty chain, to be filled by a pop.
    pub fn new() -> Self {
        Self::default()
    }

    /// What names this chain to the driver: the index of its first descriptor in a split ring,
    /// its buffer id in a packed one.
    #[inline]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// From the first byte that the device may read.
    #[inline]
    pub fn reader(&self) -> Cursor<'_> {
        Cursor::new(self.readable())
    }

    /// From the first byte that the device may write.
    #[inline]
    pub fn writer(&self) -> Cursor<'_> {
        Cursor::new(self.writable())
    }

    /// Spans that the device may read.
    #[inline]
    pub fn readable(&self) -> &[Span] {
        match self.spans {
            Spans::Many => &self.readable,
            Spans::Readable => &self.only,
            Spans::Writable => &[],
        }
    }

    /// Spans that the device may write.
    #[inline]
    pub fn writable(&self) -> &[Span] {
        match self.spans {
            Spans::Many => &self.writable,
            Spans::Readable => &[],
            Spans::Writable => &self.only,
        }
    }

    /// The chain's only span, if that is all there is and the device may read it.
    #[inline]
    pub fn only_readable(&self) -> Option<Span> {
        let [only] = self.only;
        (self.spans == Spans::Readable).then_some(only)
    }

    /// The chain's only span, if that is all there is and the device may write to it.
    #[inline]
    pub fn only_writable(&self) -> Option<Span> {
        let [only] = self.only;
        (self.spans == Spans::Writable).then_some(only)
    }

    /// Bytes that the device may read; at most 2^32.
    #[inline]
    pub fn readable_bytes(&self) -> u64 {
        let [only] = self.only;
        match self.spans {
            Spans::Many => self.readable_bytes,
            Spans::Readable => u64::from(only.len),
            Spans::Writable => 0,
        }
    }

    /// Bytes that the device may write; at most 2^32.
    #[inline]
    pub fn writable_bytes(&self) -> u64 {
        let [only] = self.only;
        match self.spans {
            Spans::Many => self.writable_bytes,
            Spans::Readable => 0,
            Spans::Writable => u64::from(only.len),
        }
    }

    /// Makes it a copy of another chain, in the room that it has.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear(other.head);
        (self.spans, self.only) = (other.spans, other.only);
        self.readable.extend_from_slice(&other.readable);
        self.writable.extend_from_slice(&other.writable);
        (self.readable_bytes, self.writable_bytes) = (other.readable_bytes, other.writable_bytes);
    }

    pub(crate) fn clear(&mut self, head: u16) {
        self.head = head;
        self.spans = Spans::Many;
        self.readable.clear();
        self.writable.clear();
        self.readable_bytes = 0;
        self.writable_bytes = 0;
    }

    /// Makes it a chain of one descriptor, as most are, and has the first lines of what that names
    /// on their way; `false`, and nothing done, where [`Self::add`] has more to say.
    #[inline]
    pub(crate) fn only(&mut self, map: &Map, head: u16, span: Span, writable: bool) -> bool {
        let len = u64::from(span.len);
        if len == 0 || !map.fetch(span.addr, len, writable) {
            return false;
        }
        (self.head, self.only) = (head, [span]);
        self.spans = if writable { Spans::Writable } else { Spans::Readable };
        true
    }

    /// Adds one descriptor's bytes, which have to be granted.
    #[inline]
    pub(crate) fn add(&mut self, map: &Map, span: Span, writable: bool) -> Result<(), RingError> {
        if !writable && !self.writable.is_empty() {
            return Err(RingError::Order);
        }
        let len = u64::from(span.len);
        // No overflow: the sum before is at most 2^32.
        let all = self.readable_bytes.saturating_add(self.writable_bytes).saturating_add(len);
        if all > CHAIN_BYTES_MAX {
            return Err(RingError::Bytes);
        }
        let needed = if writable { Rights::WRITE } else { Rights::READ };
        if len > 0 && !map.contains(span.addr, len, needed) {
            return Err(RingError::Descriptor(OutOfGrant { addr: span.addr, len }));
        }
        if writable {
            self.writable.push(span);
            self.writable_bytes = self.writable_bytes.saturating_add(len);
        } else {
            self.readable.push(span);
            self.readable_bytes = self.readable_bytes.saturating_add(len);
        }
        Ok(())
    }
}

/// Has the first two lines of what a descriptor names on their way: the header and the first bytes
/// of a frame or packet, a receive buffer's, or an indirect table's.
#[inline]
pub(crate) fn prefetch(map: &Map, span: Span, flags: u16) {
    let writes = flags & (FLAG_WRITE | FLAG_INDIRECT) == FLAG_WRITE;
    let _ = map.fetch(span.addr, 0, writes);
}
