//! A frame on its way to an adapter, in a buffer of the pool of its sender.
//!
//! `uplink` makes it in the thread of the forwarding service, copies the frame into the buffer, and
//! puts it into the inbox of the adapter (512 frames; a further one is refused, and the forwarding
//! service counts it). `switch` takes it in a call of the adapter's port, in the dispatcher's
//! thread of the adapters' shard, and copies it to the receive queues. The buffer returns to the
//! pool when the frame is dropped. The module checks neither the frame nor its offload.

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
