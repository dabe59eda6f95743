//! Interface to the application's memory, and copies between segments.
//!
//! [`Buffer`] shows the segments of a request as one sequence of bytes. The library reads and
//! writes application memory only by this trait; implementations are in the API libraries (`memory`
//! of `libmyriexpress`, `rdm::buffer` of the libfabric provider) and here (`Vec<u8>`, for
//! unexpected messages, tests and examples). An offset behind the end gives no bytes, never a
//! panic.
//!
//! A buffer has no lock and no pinning: its memory must stay valid until the request has ended.
//! Transports that read or write memory of another process use its address, so a buffer must not
//! move the bytes meanwhile. Bytes of a send that change before it ends may arrive old, new or
//! mixed; a receive may write any part of its buffer before it ends, also if it fails. A copy is
//! bounded by the shorter side.

/// Memory of a request: segments, seen as one sequence of bytes.
///
/// The request owns the buffer until the request ends, and drops it then.
pub trait Buffer {
    /// Returns the length of all segments, in bytes.
    fn len(&self) -> usize;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from `at` to the end of the segment that contains `at`; empty at the end.
    fn bytes(&self, at: usize) -> &[u8];

    /// Returns all bytes if they lie in at most two segments.
    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        let first = self.bytes(0);
        let second = self.bytes(first.len());
        (first.len().saturating_add(second.len()) == self.len()).then_some((first, second))
    }

    /// Returns the bytes of [`Self::bytes`] for writing.
    fn bytes_mut(&mut self, at: usize) -> &mut [u8];

    /// Returns the first segment for writing, and the second if the implementation knows it without
    /// a search.
    #[inline]
    fn two_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        (self.bytes_mut(0), &mut [])
    }
}

impl Buffer for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn bytes(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }

    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        self.get_mut(at..).unwrap_or_default()
    }
}

/// Calls `put` with each piece of the bytes `at..end`, in order.
#[inline]
pub fn pieces<B: Buffer>(buffer: &B, at: usize, end: usize, mut put: impl FnMut(&[u8])) {
    let mut at = at;
    while at < end {
        let piece = buffer.bytes(at);
        let piece = piece.get(..end.saturating_sub(at)).unwrap_or(piece);
        if piece.is_empty() {
            return;
        }
        put(piece);
        at = at.saturating_add(piece.len());
    }
}

/// Fills the bytes `at..end` by `take`, and returns the number of filled bytes. `take` is given the
/// count so far and the piece to fill; it returns the bytes that it wrote, and a short count ends
/// the loop.
#[inline]
pub fn fill<B: Buffer>(
    buffer: &mut B,
    at: usize,
    end: usize,
    mut take: impl FnMut(usize, &mut [u8]) -> usize,
) -> usize {
    let mut done = 0_usize;
    loop {
        let from = at.saturating_add(done);
        let left = end.saturating_sub(from);
        let piece = buffer.bytes_mut(from);
        let len = piece.len().min(left);
        let Some(piece) = piece.get_mut(..len).filter(|piece| !piece.is_empty()) else {
            return done;
        };
        let taken = take(done, piece);
        done = done.saturating_add(taken.min(len));
        if taken < len {
            return done;
        }
    }
}

/// Copies as many bytes as both have, and returns their number.
pub(super) fn copy<A: Buffer, B: Buffer>(from: &A, into: &mut B) -> usize {
    let end = from.len().min(into.len());
    fill(into, 0, end, |at, into| {
        let mut done = 0_usize;
        pieces(from, at, at.saturating_add(into.len()), |piece| {
            let end = done.saturating_add(piece.len());
            if let Some(to) = into.get_mut(done..end) {
                to.copy_from_slice(piece);
            }
            done = end;
        });
        done
    })
}
