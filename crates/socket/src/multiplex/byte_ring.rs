//! The queued bytes of a channel: a queue in a ring of initialized memory.
//!
//! [`super::outgoing`] appends bytes at the end and removes acknowledged ones from the front. In
//! contrast to [`VecDeque`](std::collections::VecDeque), the free memory can be written in place
//! ([`ByteRing::push_with`]), so a guest's bytes are copied once. The memory grows to the next power
//! of two and does not shrink; the caller bounds the number of bytes, and passes memory on between
//! channels.

use std::convert::Infallible;

/// A queue of bytes.
#[derive(Debug, Default)]
pub struct ByteRing {
    /// The memory; its length is 0 or a power of two.
    memory: Vec<u8>,
    /// Index of the first byte.
    start: usize,
    /// Number of bytes.
    len: usize,
}

impl ByteRing {
    /// Returns the number of bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes for which the queue has memory.
    pub const fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Appends `len` bytes, which `fill` writes in one or two calls, in order.
    ///
    /// # Errors
    /// That of `fill`; the queue is unchanged.
    pub fn push_with<E>(
        &mut self,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.reserve(len);
        let at = self.index(self.len);
        let first = len.min(self.memory.len().saturating_sub(at));
        fill(self.memory.get_mut(at..at.saturating_add(first)).unwrap_or(&mut []))?;
        let second = len.saturating_sub(first);
        if second > 0 {
            fill(self.memory.get_mut(..second).unwrap_or(&mut []))?;
        }
        self.len = self.len.saturating_add(len);
        Ok(())
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Ok(()) = self.push_with(bytes.len(), copy_of(bytes));
    }

    /// Returns the bytes from position `from` to position `to` in two parts, of which the second
    /// continues the first. Positions behind the last byte count as the end.
    pub fn slices(&self, from: usize, to: usize) -> (&[u8], &[u8]) {
        let to = to.min(self.len);
        let count = to.saturating_sub(from);
        let at = self.index(from);
        let first = count.min(self.memory.len().saturating_sub(at));
        let rest = count.saturating_sub(first);
        let front = self.memory.get(at..at.saturating_add(first)).unwrap_or(&[]);
        (front, self.memory.get(..rest).unwrap_or(&[]))
    }

    /// Removes the last `count` bytes.
    pub fn remove_last(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }

    /// Removes the first `count` bytes.
    pub fn remove_first(&mut self, count: usize) {
        let count = count.min(self.len);
        self.start = self.index(count);
        self.len = self.len.saturating_sub(count);
        if self.len == 0 {
            // The next bytes are contiguous, and in memory that was used last.
            self.start = 0;
        }
    }

    /// Returns the index of a position in the memory.
    const fn index(&self, position: usize) -> usize {
        self.start.wrapping_add(position) & self.memory.len().wrapping_sub(1)
    }

    /// Makes room for `more` bytes.
    fn reserve(&mut self, more: usize) {
        let wanted = self.len.saturating_add(more);
        if wanted <= self.memory.len() {
            return;
        }
        let mut memory = vec![0; wanted.max(CAPACITY_MIN).next_power_of_two()];
        let (front, back) = self.slices(0, self.len);
        let (into, rest) = memory.split_at_mut(front.len());
        into.copy_from_slice(front);
        if let Some(into) = rest.get_mut(..back.len()) {
            into.copy_from_slice(back);
        }
        (self.memory, self.start) = (memory, 0);
    }
}

/// Returns the function that writes `bytes` for [`ByteRing::push_with`].
pub fn copy_of(mut bytes: &[u8]) -> impl FnMut(&mut [u8]) -> Result<(), Infallible> {
    move |into| {
        if let Some((now, later)) = bytes.split_at_checked(into.len()) {
            into.copy_from_slice(now);
            bytes = later;
        }
        Ok(())
    }
}

/// The least memory of a queue with bytes.
const CAPACITY_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn multiplex_ring_is_unchanged_by_a_fill_that_fails() {
        let mut ring = ByteRing::default();
        ring.push(&[1; 60]);
        ring.remove_first(50);
        // The free memory of 64 bytes has two parts: 4 bytes, and 50.
        for failing in [0, 1] {
            let mut calls = 0;
            let filled = ring.push_with(20, |into| {
                into.fill(9);
                calls += 1;
                if calls > failing { Err(calls) } else { Ok(()) }
            });
            assert_eq!(filled, Err(failing + 1));
            assert_eq!((ring.len(), ring.slices(0, 99)), (10, (&[1; 10][..], &[][..])));
        }
        ring.push(&[2; 20]);
        assert_eq!(ring.slices(10, 30), (&[2; 4][..], &[2; 16][..]));
    }

    proptest! {
        /// The ring equals a `VecDeque` after any operations.
        #[test]
        fn multiplex_ring_equals_a_queue(steps in prop::collection::vec((0_u8..3, 0_usize..150), 0..80)) {
            let (mut ring, mut model, mut next) = (ByteRing::default(), VecDeque::new(), 0_u8);
            for (kind, count) in steps {
                match kind {
                    0 => {
                        let bytes: Vec<u8> = (0..count).map(|_| { next = next.wrapping_add(1); next }).collect();
                        ring.push(&bytes);
                        model.extend(bytes);
                    }
                    1 => {
                        ring.remove_first(count);
                        model.drain(..count.min(model.len()));
                    }
                    _ => {
                        ring.remove_last(count);
                        model.truncate(model.len().saturating_sub(count));
                    }
                }
                prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
                let (from, to) = (count.min(model.len()), model.len());
                let (front, back) = ring.slices(from, to + 5);
                let wanted: Vec<u8> = model.range(from..to).copied().collect();
                prop_assert_eq!([front, back].concat(), wanted);
                prop_assert!(ring.capacity() >= ring.len());
            }
        }
    }
}
