//! A popped chain of descriptors, copied and checked.
//!
//! The pops of both formats fill a [`Chain`]; the services read and write its buffers through
//! `memory`'s cursors, and give its head back by [`Queue::push`](crate::Queue::push),
//! [`Queue::push_batch`](crate::Queue::push_batch) or
//! [`Queue::put_back`](crate::Queue::put_back), in the thread that owns the queue: the
//! dispatcher's. A chain has at most 2^32 bytes in both directions together ([`CHAIN_BYTES_MAX`])
//! and as many spans as the queue has entries; a longer one breaks the queue.
//!
//! The chain holds guest addresses, never references: every access is checked against a memory map
//! again, and the buffers' content may change at any time. Dropping or copying a chain does not
//! return it to the driver; a copy has the same head and must not be pushed twice.

use causeway_memory::{Cursor, Map, OutOfGrant, Rights, Span};

use crate::error::RingError;
use crate::format::{FLAG_INDIRECT, FLAG_WRITE};
use crate::limits::CHAIN_BYTES_MAX;

/// A chain of descriptors as plain values: the device-readable spans, then the device-writable
/// spans.
///
/// Reuse one value for many pops: its vectors keep their capacity.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// Identifies the chain when it is pushed back.
    pub(crate) head: u16,
    /// The fields that hold the spans.
    spans: SpanStorage,
    /// The span of a chain with a single span.
    only: [Span; 1],
    /// The spans of any other chain.
    readable: Vec<Span>,
    writable: Vec<Span>,
    /// Sums of the lengths in the two vectors.
    readable_bytes: u64,
    writable_bytes: u64,
}

/// Storage of a chain's spans: most chains have one span, which needs no vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SpanStorage {
    /// Any number of spans, in the two vectors.
    #[default]
    Many,
    /// A single device-readable span, in `only`.
    Readable,
    /// A single device-writable span, in `only`.
    Writable,
}

impl Chain {
    /// Returns an empty chain for [`Queue::pop`](crate::Queue::pop) to fill.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number by which the driver knows this chain: the index of its first descriptor
    /// in a split ring, its buffer id in a packed ring.
    #[inline]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Returns a cursor at the first device-readable byte.
    #[inline]
    pub fn reader(&self) -> Cursor<'_> {
        Cursor::new(self.readable())
    }

    /// Returns a cursor at the first device-writable byte.
    #[inline]
    pub fn writer(&self) -> Cursor<'_> {
        Cursor::new(self.writable())
    }

    /// Returns the device-readable spans.
    #[inline]
    pub fn readable(&self) -> &[Span] {
        match self.spans {
            SpanStorage::Many => &self.readable,
            SpanStorage::Readable => &self.only,
            SpanStorage::Writable => &[],
        }
    }

    /// Returns the device-writable spans.
    #[inline]
    pub fn writable(&self) -> &[Span] {
        match self.spans {
            SpanStorage::Many => &self.writable,
            SpanStorage::Readable => &[],
            SpanStorage::Writable => &self.only,
        }
    }

    /// Returns the span of a chain that consists of a single device-readable span.
    #[inline]
    pub fn only_readable(&self) -> Option<Span> {
        let [only] = self.only;
        (self.spans == SpanStorage::Readable).then_some(only)
    }

    /// Returns the span of a chain that consists of a single device-writable span.
    #[inline]
    pub fn only_writable(&self) -> Option<Span> {
        let [only] = self.only;
        (self.spans == SpanStorage::Writable).then_some(only)
    }

    /// Returns the number of device-readable bytes, at most 2^32.
    #[inline]
    pub fn readable_bytes(&self) -> u64 {
        let [only] = self.only;
        match self.spans {
            SpanStorage::Many => self.readable_bytes,
            SpanStorage::Readable => u64::from(only.len),
            SpanStorage::Writable => 0,
        }
    }

    /// Returns the number of device-writable bytes, at most 2^32.
    #[inline]
    pub fn writable_bytes(&self) -> u64 {
        let [only] = self.only;
        match self.spans {
            SpanStorage::Many => self.writable_bytes,
            SpanStorage::Readable => 0,
            SpanStorage::Writable => u64::from(only.len),
        }
    }

    /// Copies another chain into this chain, without a new allocation if the capacity suffices.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear(other.head);
        (self.spans, self.only) = (other.spans, other.only);
        self.readable.extend_from_slice(&other.readable);
        self.writable.extend_from_slice(&other.writable);
        (self.readable_bytes, self.writable_bytes) = (other.readable_bytes, other.writable_bytes);
    }

    /// Makes this the chain `head` without spans.
    pub(crate) fn clear(&mut self, head: u16) {
        self.head = head;
        self.spans = SpanStorage::Many;
        self.readable.clear();
        self.writable.clear();
        self.readable_bytes = 0;
        self.writable_bytes = 0;
    }

    /// Makes this a chain of a single span, and prefetches the first lines of its buffer. Returns
    /// `false` and changes nothing if the span is empty or not granted; [`Self::add`] then adds the
    /// empty span, or finds the error.
    #[inline]
    pub(crate) fn only(&mut self, map: &Map, head: u16, span: Span, writable: bool) -> bool {
        let len = u64::from(span.len);
        if len == 0 || !map.fetch(span.addr, len, writable) {
            return false;
        }
        (self.head, self.only) = (head, [span]);
        self.spans = if writable { SpanStorage::Writable } else { SpanStorage::Readable };
        true
    }

    /// Adds the span of a descriptor, which must be granted.
    #[inline]
    pub(crate) fn add(&mut self, map: &Map, span: Span, writable: bool) -> Result<(), RingError> {
        if !writable && !self.writable.is_empty() {
            return Err(RingError::Order);
        }
        let len = u64::from(span.len);
        // Cannot overflow: the sum so far is at most 2^32.
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

/// Prefetches the first two lines of a descriptor's buffer: the header and first bytes of a frame
/// or packet, a receive buffer, or an indirect table.
#[inline]
pub(crate) fn prefetch_buffer(map: &Map, span: Span, flags: u16) {
    let writes = flags & (FLAG_WRITE | FLAG_INDIRECT) == FLAG_WRITE;
    let _ = map.fetch(span.addr, 0, writes);
}
