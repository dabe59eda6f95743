//! A frame on its way to an adapter, in a buffer of the pool of its sender.

use causeway_fabric::carrier::PooledBuffer;
use causeway_wire::virtio_net::Offload;

/// A frame for an adapter.
#[derive(Debug)]
pub(crate) struct InboundFrame {
    bytes: PooledBuffer,
    len: usize,
    /// Offloads that the receiver has to complete.
    pub offload: Offload,
}

impl InboundFrame {
    /// Returns the frame of the first `len` bytes of a buffer.
    pub(crate) fn new(bytes: PooledBuffer, len: usize, offload: Offload) -> Self {
        Self { bytes, len, offload }
    }

    /// Returns the bytes of the frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
