//! The transmit path of links on tunnels: frames, and datagrams of the stream protocol, to a tunnel.
//!
//! Each shard that sends by a link has a carrier of its own and calls it in its own thread; the carrier
//! packs, seals and sends. While the tunnel is dormant, the carrier keeps its first frames on the
//! TX path ([`crate::tx_path`]) and sends the shard of links a notice to wake the tunnel
//! ([`Notice::Wake`]). Frames that find neither a session nor room to wait are refused and counted;
//! so are frames that the kernel refuses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_fabric::carrier::{Carrier, LinkId, Notice, Outgoing, Refusal};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::udp::{Origin, Udp};
use causeway_model::TrafficClass;
use causeway_wire::ecn::traffic_class;
use rustix::io::Errno;

use super::local_address::{LocalAddressReader, is_of_address};
use super::stats::{LinkStats, Loss};
use super::udp_batch::BatchSender;
use crate::flood;
use crate::limits::FRAME_BYTES_MAX;
use crate::pack::{Batch, Packer, PushError};
use crate::tunnel::carries_connections;
use crate::tx_path::{TunnelTxPath, WaitRefusal, WaitingFrame};

/// The shared parts of a link with which a carrier sends.
#[derive(Debug)]
pub(crate) struct CarrierOutput {
    /// The socket of the tunnel.
    pub udp: Arc<Udp>,
    /// Counters of the link.
    pub stats: Arc<LinkStats>,
    /// Set when the host rejects a datagram as too long; the tunnel reads it.
    pub too_long: Arc<AtomicBool>,
    /// For peers that identify us by our address.
    pub local_address: LocalAddressReader,
    /// The mailbox of the shard of links, and the link, to wake a dormant tunnel.
    pub wake: Option<(Sender<Notice>, LinkId)>,
}

/// Sends batches of one carrier.
#[derive(Debug)]
struct BatchOutput {
    udp: Arc<Udp>,
    stats: Arc<LinkStats>,
    /// Set when the host rejects a datagram as too long; the tunnel reads it.
    too_long: Arc<AtomicBool>,
    local_address: LocalAddressReader,
    batches: BatchSender,
    /// Datagrams that the kernel refused.
    lost: u64,
}

impl BatchOutput {
    /// Sends a batch to the peer. Counts datagrams that the kernel refuses; reports a datagram that
    /// is too long through `too_long`.
    fn send(&mut self, batch: &Batch) {
        let Some(to) = batch.to() else { return };
        let count = batch.datagrams() as u64;
        let (stats, too_long) = (&self.stats, &self.too_long);
        let mut of_address = false;
        let (from, bytes) = (self.local_address.address(), (batch.bytes(), batch.segment()));
        let refused = |error: &io::Error, count| {
            of_address |= is_of_address(error);
            let why = loss(error, from.is_some());
            if why == Loss::TooBig {
                too_long.store(true, Ordering::Relaxed);
            }
            stats.add_drops(why, count);
        };
        let origin = Origin { from, class: batch.class() };
        let lost = self.batches.send(&self.udp, to, origin, bytes, refused);
        if of_address && from.is_some() {
            self.local_address.forget();
        }
        self.stats.add_transmitted(0, 0, count.saturating_sub(lost.count));
        self.lost = self.lost.saturating_add(lost.count);
    }
}

/// Returns the counter for a send error. With a source address (`has_source`), EINVAL means that the
/// address is no longer the host's.
fn loss(error: &io::Error, has_source: bool) -> Loss {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN | Errno::NOBUFS) => Loss::NoRoom,
        Some(Errno::MSGSIZE) => Loss::TooBig,
        Some(Errno::INVAL) if !has_source => Loss::TooBig,
        _ => Loss::Unreachable,
    }
}

/// Carrier of one link, for one shard.
#[derive(Debug)]
pub struct TunnelCarrier {
    packer: Packer,
    out: BatchOutput,
    vni: u32,
    /// The configured traffic class of the outer headers.
    class: TrafficClass,
    /// The mailbox of the shard of links, and the link, to wake a dormant tunnel.
    wake: Option<(Sender<Notice>, LinkId)>,
}

impl TunnelCarrier {
    /// Returns the carrier of network `vni` on a tunnel.
    pub(crate) fn new(
        tx_path: Arc<TunnelTxPath>,
        (vni, class): (u32, TrafficClass),
        output: CarrierOutput,
    ) -> Self {
        let CarrierOutput { udp, stats, too_long, local_address, wake } = output;
        let (batches, lost) = (BatchSender::default(), 0);
        let out = BatchOutput { udp, stats, too_long, local_address, batches, lost };
        Self { packer: Packer::new(tx_path), out, vni, class, wake }
    }

    /// Keeps a frame for the session of a dormant tunnel, and wakes the tunnel.
    fn wait(&self, frame: WaitingFrame, is_traffic: bool) -> Result<(), WaitRefusal> {
        let tx_path = self.packer.tx_path();
        tx_path.wait(frame)?;
        if is_traffic {
            tx_path.note_traffic();
        }
        if let Some((notices, link)) = &self.wake
            && tx_path.begin_request()
            && notices.push(Notice::Wake(*link)).is_err()
        {
            // The next frame requests the handshake.
            tx_path.cancel_request();
        }
        Ok(())
    }

    /// As [`Self::wait`], for a frame of a guest that found no session. Returns the counter and the
    /// reason for which the frame is dropped.
    fn wait_for_session(&self, frame: &Outgoing<'_>) -> Result<(), (Loss, Refusal)> {
        let kept = flood::keep(self.vni, frame).map_err(|_| (Loss::SenderFault, Refusal::Lost))?;
        self.wait(kept, frame.flood.is_none()).map_err(|refusal| match refusal {
            WaitRefusal::Full => (Loss::NoRoom, Refusal::NoRoom),
            // A session that was agreed meanwhile carries the guest's next frame.
            WaitRefusal::Down | WaitRefusal::Open => (Loss::Down, Refusal::Down),
        })
    }
}

impl Carrier for TunnelCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let class = self.class.outer(traffic_class(frame.head));
        let out = &mut self.out;
        // Losses of pending frames are counted as in `flush`.
        if self.packer.classify(class, |batch| out.send(batch)).is_err() {
            out.stats.add_drops(Loss::Down, 1);
        }
        let packed = flood::pack(&mut self.packer, self.vni, frame, |batch| out.send(batch));
        let is_on_demand = self.packer.tx_path().is_on_demand();
        let (loss, refusal) = match packed {
            Err(PushError::NoPath) if is_on_demand => match self.wait_for_session(frame) {
                Ok(()) => {
                    self.out.stats.add_transmitted(1, frame.len as u64, 0);
                    return Ok(());
                }
                Err(refused) => refused,
            },
            Ok(()) => {
                if frame.flood.is_none() {
                    self.packer.tx_path().note_traffic();
                }
                self.out.stats.add_transmitted(1, frame.len as u64, 0);
                return Ok(());
            }
            Err(PushError::NoPath | PushError::Seal(_)) => (Loss::Down, Refusal::Down),
            Err(PushError::Oversized(_)) => (Loss::TooBig, Refusal::TooBig),
            Err(PushError::Source(_)) => (Loss::SenderFault, Refusal::Lost),
        };
        self.out.stats.add_drops(loss, 1);
        Err(refusal)
    }

    fn flush(&mut self) -> u64 {
        let out = &mut self.out;
        if self.packer.finish(|batch| out.send(batch)).is_err() {
            self.out.stats.add_drops(Loss::Down, 1);
        }
        std::mem::take(&mut self.out.lost)
    }

    fn takes_offloads(&self) -> bool {
        !self.packer.is_lossy()
    }

    fn release(&mut self) {
        // Without a path the packer frees its buffers.
        let _ = self.packer.is_open();
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

/// Carrier of one link for datagrams of the stream protocol: each crosses whole, in a record of its
/// own kind. A datagram longer than [`Carrier::longest`] is refused.
#[derive(Debug)]
pub(crate) struct SegmentCarrier(TunnelCarrier);

impl SegmentCarrier {
    /// Returns the carrier for datagrams of the stream protocol on the tunnel of `carrier`.
    pub(crate) const fn new(carrier: TunnelCarrier) -> Self {
        Self(carrier)
    }
}

impl Carrier for SegmentCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let TunnelCarrier { packer, out, vni, .. } = &mut self.0;
        let read = |into: &mut [u8]| frame.reader().read(into);
        let mut packed = packer.push_segment(*vni, frame.len, read, |batch| out.send(batch));
        if self.0.packer.tx_path().is_on_demand() {
            let is_traffic = carries_connections(frame.head);
            match packed {
                Ok(()) if is_traffic => self.0.packer.tx_path().note_traffic(),
                Err(PushError::NoPath) => {
                    let kept = flood::keep(self.0.vni, frame).map_err(|_| Refusal::Lost)?;
                    let kept = WaitingFrame { is_segment: true, ..kept };
                    packed = self.0.wait(kept, is_traffic).map_err(|_| PushError::NoPath);
                }
                _ => {}
            }
        }
        packed.map_err(|error| match error {
            PushError::NoPath | PushError::Seal(_) => Refusal::Down,
            PushError::Oversized(_) => Refusal::TooBig,
            PushError::Source(_) => Refusal::Lost,
        })
    }

    fn flush(&mut self) -> u64 {
        self.0.flush()
    }

    fn takes_offloads(&self) -> bool {
        false
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn longest(&self) -> usize {
        self.0.packer.segment_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_errors_of_a_lost_source_address_shorten_no_datagrams() {
        let of = |errno: Errno, has_source| loss(&errno.into(), has_source);
        assert_eq!(of(Errno::INVAL, true), Loss::Unreachable);
        assert_eq!(of(Errno::INVAL, false), Loss::TooBig);
        assert_eq!(of(Errno::MSGSIZE, true), Loss::TooBig);
        assert_eq!(of(Errno::NOBUFS, false), Loss::NoRoom);
    }
}
