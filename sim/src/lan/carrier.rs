//! A link's way out: what the packer of its tunnel gives goes to the host's outbox.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Carrier, Outgoing, Refusal};
use causeway_link::limits::FRAME_BYTES_MAX;
use causeway_link::{Batch, Packer, PushError, TunnelTxPath, flood};

/// Datagrams of one host for the network: on which one, to whom, and the bytes.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Mutex<Vec<Parcel>>>);

/// One of them.
pub type Parcel = (usize, SocketAddr, Vec<u8>);

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Parcel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a datagram behind the others.
    pub fn put(&self, parcel: Parcel) {
        self.lock().push(parcel);
    }

    /// All that are in it.
    pub fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *self.lock())
    }

    /// As the kernel cuts a batch.
    fn cut(&self, under: usize, batch: &Batch) {
        let Some(to) = batch.to() else { return };
        let pieces = batch.bytes().chunks(batch.segment().max(1));
        self.lock().extend(pieces.map(|bytes| (under, to, bytes.to_vec())));
    }
}

/// See the module.
#[derive(Debug)]
pub struct Way {
    packer: Packer,
    outbox: Outbox,
    under: usize,
    vni: u32,
}

impl Way {
    /// Frames of network `vni` by a tunnel.
    pub fn new(tx_path: Arc<TunnelTxPath>, outbox: Outbox, under: usize, vni: u32) -> Self {
        Self { packer: Packer::new(tx_path), outbox, under, vni }
    }
}

impl Carrier for Way {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let Self { packer, outbox, under, vni } = self;
        let packed = flood::pack(packer, *vni, frame, |batch| outbox.cut(*under, batch));
        packed.map_err(|error| match error {
            PushError::NoPath | PushError::Seal(_) => Refusal::Down,
            PushError::Oversized(_) => Refusal::TooBig,
            PushError::Source(_) => Refusal::Lost,
        })
    }

    fn flush(&mut self) -> u64 {
        let Self { packer, outbox, under, .. } = self;
        u64::from(packer.finish(|batch| outbox.cut(*under, batch)).is_err())
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}
