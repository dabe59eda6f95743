//! The application's memory, as the engine sees it.

/// What a request sends from or receives into: some segments, seen as one row of bytes.
///
/// It belongs to the request until that ends; then it is dropped.
pub trait Buffer {
    /// How many bytes, over all segments.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `at` to the end of the segment in which `at` lies; empty at the end.
    fn bytes(&self, at: usize) -> &[u8];

    /// All bytes, if they lie in two segments at most.
    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        let first = self.bytes(0);
        let second = self.bytes(first.len());
        (first.len().saturating_add(second.len()) == self.len()).then_some((first, second))
    }

    /// The same as [`Self::bytes`], to be written.
    fn bytes_mut(&mut self, at: usize) -> &mut [u8];

    /// The first segment, and the second where it is known without looking for it.
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

/// Calls `put` with each piece of the bytes from `at` to `end`, in order.
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

/// Fills the bytes from `at` to `end` by `take`, which is told how many it gave before and says how
/// many it gives now. Gives how many in all.
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

/// Copies as many bytes as both have; gives how many.
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
