//! A pool of buffers for waiting messages. It saves an allocation for each message that waits for
//! an acknowledgement, an earlier message, or room in the event ring.
//!
//! The pool keeps at most [`SPARE_BUFFERS`] free buffers (1,024 of 128 bytes, 256 of 4 KiB, 128 of
//! 32 KiB) and frees others. The pool bounds no memory in use (the limits of sends and pending
//! messages do), and an empty pool allocates. One pool serves all endpoints of a NIC, without a
//! lock: the thread that calls the NIC. [`request`](crate::request) takes buffers for sends, and
//! [`receive_order`](crate::receive_order) for pending messages.

use crate::limits::SPARE_BUFFERS;

/// Spare buffers by size class. The number of each class is limited by [`SPARE_BUFFERS`].
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: [Vec<Vec<u8>>; SPARE_BUFFERS.len()],
}

impl BufferPool {
    /// Returns an empty buffer with a capacity of at least `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let classes = SPARE_BUFFERS.iter().zip(&mut self.spare);
        for ((bytes, _), spare) in classes {
            if len <= *bytes {
                return spare.pop().unwrap_or_else(|| Vec::with_capacity(*bytes));
            }
        }
        Vec::with_capacity(len)
    }

    /// Returns a buffer with a copy of `data`.
    pub(crate) fn with(&mut self, data: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(data.len());
        buffer.extend_from_slice(data);
        buffer
    }

    /// Returns a buffer to the pool, which drops it if its class is full, or if its capacity is
    /// that of no class.
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
    fn pool_reuses_buffers_empty() {
        let mut pool = BufferPool::default();
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
