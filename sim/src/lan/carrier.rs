//! The TX path of a link: datagrams packed by the tunnel go to the host's outbox.
//!
//! The Ethernet shard of a group calls [`LinkTxPath`] as its [`Carrier`], in the thread of the
//! world; [`super::host`] takes the datagrams from the [`Outbox`] and gives them to the simulated
//! network. In the daemon `link` sends by sockets here. A frame that the tunnel cannot carry now is
//! refused as in the daemon (`link::tunnel`). The outbox has no limit; the host empties it in each
//! round ([`super::host::Host::post`]).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Carrier, Outgoing, Refusal};
use causeway_link::limits::FRAME_BYTES_MAX;
use causeway_link::{Batch, Packer, PushError, TunnelTxPath, flood};

/// Datagrams of one host that wait for the network.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Mutex<Vec<Parcel>>>);

/// A datagram: underlay, destination address, bytes.
pub type Parcel = (usize, SocketAddr, Vec<u8>);

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Parcel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a datagram.
    pub fn put(&self, parcel: Parcel) {
        self.lock().push(parcel);
    }

    /// Removes and returns all datagrams.
    pub fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *self.lock())
    }

    /// Appends the datagrams of a batch.
    fn cut(&self, under: usize, batch: &Batch) {
        let Some(to) = batch.to() else { return };
        let pieces = batch.bytes().chunks(batch.segment().max(1));
        self.lock().extend(pieces.map(|bytes| (under, to, bytes.to_vec())));
    }
}

/// The TX path of one link.
#[derive(Debug)]
pub struct LinkTxPath {
    packer: Packer,
    outbox: Outbox,
    under: usize,
    /// The virtual network of the group.
    vni: u32,
}

impl LinkTxPath {
    /// Creates the path of network `vni` over a tunnel.
    pub fn new(tx_path: Arc<TunnelTxPath>, outbox: Outbox, under: usize, vni: u32) -> Self {
        Self { packer: Packer::new(tx_path), outbox, under, vni }
    }
}

impl Carrier for LinkTxPath {
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
