//! Buffers for messages that wait, used again.

use crate::limits::SPARE_BUFFERS;

/// Spare buffers, by class.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: [Vec<Vec<u8>>; SPARE_BUFFERS.len()],
}

impl Pool {
    /// An empty buffer with room for `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let classes = SPARE_BUFFERS.iter().zip(&mut self.spare);
        for ((bytes, _), spare) in classes {
            if len <= *bytes {
                return spare.pop().unwrap_or_else(|| Vec::with_capacity(*bytes));
            }
        }
        Vec::with_capacity(len)
    }

    /// A buffer with these bytes.
    pub(crate) fn with(&mut self, data: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(data.len());
        buffer.extend_from_slice(data);
        buffer
    }

    /// A buffer is not needed any more.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let classes = SPARE_BUFFERS.iter().zip(&mut self.spare);
        for ((bytes, most), spare) in classes {
            if buffer.capacity() == *bytes && spare.len() < *most {
                buffer.clear();
                spare.push(buffer);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_are_used_again() {
        let mut pool = Pool::default();
        let first = pool.with(&[7; 100]);
        let at = first.as_ptr();
        pool.give(first);
        let second = pool.take(128);
        assert_eq!((second.as_ptr(), second.len()), (at, 0));
        assert!(pool.take(129).capacity() >= 129);
        for _ in 0..3 * SPARE_BUFFERS[2].1 {
            pool.give(Vec::with_capacity(SPARE_BUFFERS[2].0));
        }
        assert_eq!(pool.spare[2].len(), SPARE_BUFFERS[2].1);
    }
}
