//! Frames of the group to an interface.
//!
//! The forwarding service (`ethernet`) pushes each frame in its own thread and turn; the carrier
//! writes the frame at once, behind a header that states the offloads that are left. A frame of the
//! group thus reaches the kernel's receive path before the turn ends, and the carrier keeps none.
//!
//! A frame is refused and counted while the interface is missing or down, if its segments exceed
//! the MTU of the port or the whole frame [`FRAME_BYTES_MAX`], and if the kernel refuses it.
//! Nothing is repeated. A frame that is cut ends at the first segment that the kernel refuses:
//! those before have been sent, and the frame counts as refused. Kernels before 6.2 take no
//! segments of UDP: the carrier cuts these frames.
//!
//! # Budget
//! One system call (`writev`) a frame, also for a segment of 64 KiB, and one copy, by the kernel:
//! from guest memory straight into its own buffer. A frame in more than 64 pieces of guest
//! memory, or whose checksum the carrier completes for a port without offloads, is copied to
//! private memory first; so is a frame of UDP that is cut, which costs a system call for each
//! segment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Body, Carrier, Outgoing, Refusal};
use causeway_host::net::tap::TapInterface;
use causeway_wire::frame::Frame;
use causeway_wire::virtio_net::segment::Segmenter;
use causeway_wire::virtio_net::{GsoKind, HOST_HEADER_LEN, Header, Offload};
use rustix::io::Errno;

use crate::limits::{FRAME_BYTES_MAX, HEADERS_BYTES_MAX, WRITE_NS};
use crate::stats::{Counter, TapStats};

/// The parts of a port that its two threads share.
#[derive(Debug, Default)]
pub(crate) struct TapShared {
    /// `None` while the interface is missing.
    interface: Mutex<Option<Arc<TapInterface>>>,
    pub(crate) stats: TapStats,
}

impl TapShared {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<TapInterface>>> {
        self.interface.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the interface.
    pub(crate) fn interface(&self) -> Option<Arc<TapInterface>> {
        self.lock().clone()
    }

    /// Replaces the interface.
    pub(crate) fn set_interface(&self, interface: Option<Arc<TapInterface>>) {
        let before = std::mem::replace(&mut *self.lock(), interface);
        // Closing an interface that is not persistent deletes it, which takes long: not under the
        // lock.
        drop(before);
    }
}

/// Writes frames to an interface.
#[derive(Debug)]
pub(crate) struct TapCarrier {
    shared: Arc<TapShared>,
    mtu: usize,
    takes_offloads: bool,
    /// Room for frames that are copied.
    scratch: Vec<u8>,
}

/// Returns the reason for which the kernel refused a frame, and its counter.
fn refusal_of(error: Errno) -> (Refusal, Counter) {
    match error {
        Errno::IO | Errno::BADFD | Errno::NETDOWN => (Refusal::Down, Counter::ReceiverDown),
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => (Refusal::NoRoom, Counter::NoBuffer),
        Errno::FAULT => (Refusal::Lost, Counter::SenderFault),
        Errno::MSGSIZE => (Refusal::TooBig, Counter::TooBig),
        _ => (Refusal::NoRoom, Counter::BadHeader),
    }
}

impl TapCarrier {
    /// Returns the carrier of a port.
    pub(crate) fn new(shared: Arc<TapShared>, mtu: u16, takes_offloads: bool) -> Self {
        Self { shared, mtu: mtu.into(), takes_offloads, scratch: Vec::new() }
    }

    /// Writes a frame as it is, with the offloads that are left to the kernel.
    fn write(&mut self, interface: &TapInterface, frame: &Outgoing<'_>) -> Result<(), Errno> {
        let header = frame.offload.to_header(0).to_host();
        let body_len = frame.len.saturating_sub(frame.head.len());
        if frame.head.len() <= frame.len && (self.takes_offloads || *frame.offload == Offload::None)
        {
            match frame.body {
                Body::Private(bytes) => {
                    let body = bytes.get(..body_len).ok_or(Errno::FAULT)?;
                    return interface.write(&header, [frame.head, body]);
                }
                Body::Guest(map, cursor) => {
                    let heads = [&header[..], frame.head];
                    if interface.write_guest(heads, (map, cursor), body_len as u64)? {
                        return Ok(());
                    }
                }
            }
        }
        let bytes = room(&mut self.scratch, frame.len);
        if self.takes_offloads {
            frame.reader().read(bytes).map_err(|_| Errno::FAULT)?;
            return interface.write(&header, [bytes, &[]]);
        }
        // The forwarding service cut the segments; the checksum is completed in the copy.
        frame.write(bytes).map_err(|_| Errno::FAULT)?;
        interface.write(&Header::default().to_host(), [bytes, &[]])
    }

    /// Cuts a frame of UDP into datagrams and writes each, with checksums that the kernel
    /// completes.
    fn write_cut(&mut self, interface: &TapInterface, frame: &Outgoing<'_>) -> Result<(), Errno> {
        let bytes = room(&mut self.scratch, frame.len);
        frame.reader().read(bytes).map_err(|_| Errno::FAULT)?;
        cut(bytes, frame.offload, |header, parts| interface.write(header, parts))?;
        self.shared.stats.add(Counter::ReceiveCut, 1);
        Ok(())
    }

    /// Counts a refused frame.
    fn refuse(&self, (refusal, counter): (Refusal, Counter)) -> Result<(), Refusal> {
        self.shared.stats.add(counter, 1);
        Err(refusal)
    }
}

/// Cuts a frame, and passes each segment with its header to `write`, until that fails.
fn cut(
    bytes: &[u8],
    offload: &Offload,
    mut write: impl FnMut(&[u8; HOST_HEADER_LEN], [&[u8]; 2]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Offload::Segment(place, gso) = *offload else { return Err(Errno::INVAL) };
    let parsed = Frame::parse(bytes).map_err(|_| Errno::INVAL)?;
    let mut segmenter =
        Segmenter::new(bytes, &parsed, place, gso, bytes.len()).ok_or(Errno::INVAL)?;
    while let Some(segment) = segmenter.next_segment() {
        let payload = bytes.get(segment.payload.clone()).unwrap_or(&[]);
        let header = segment.offload().to_header(0).to_host();
        write(&header, [segment.headers, payload])?;
    }
    Ok(())
}

/// Returns the first `len` bytes of a vector, which grows if it is shorter.
fn room(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    scratch.get_mut(..len).unwrap_or_default()
}

impl Carrier for TapCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let Some(interface) = self.shared.interface() else {
            return self.refuse((Refusal::Down, Counter::ReceiverDown));
        };
        let longest = self.mtu.saturating_add(HEADERS_BYTES_MAX);
        if frame.len > FRAME_BYTES_MAX || frame.offload.piece_len(frame.len) > longest {
            return self.refuse((Refusal::TooBig, Counter::TooBig));
        }
        let is_udp = matches!(
            frame.offload,
            Offload::Segment(_, gso) if matches!(gso.kind, GsoKind::Udp4 | GsoKind::Udp6)
        );
        let written = match is_udp && !interface.takes_udp_segments {
            true => self.write_cut(&interface, frame),
            false => self.write(&interface, frame),
        };
        if let Err(error) = written {
            return self.refuse(refusal_of(error));
        }
        self.shared.stats.add(Counter::ReceivePackets, 1);
        self.shared.stats.add(Counter::ReceiveBytes, frame.len);
        Ok(())
    }

    fn flush(&mut self) -> u64 {
        0
    }

    fn takes_offloads(&self) -> bool {
        self.takes_offloads
    }

    fn frame_ns(&self) -> u64 {
        WRITE_NS
    }

    fn count_drop(&mut self, counter: &'static str) {
        self.shared.stats.add_drop(counter);
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::virtio_net::{ChecksumPlace, Gso};
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};

    use super::*;

    #[test]
    fn tap_udp_segments_are_cut_for_kernels_that_take_none() {
        let payload: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1000, 2000)
            .write(&mut bytes, &payload)
            .unwrap();
        let place = ChecksumPlace { start: 34, offset: 6 };
        let gso = Gso { kind: GsoKind::Udp4, size: 1400, header_len: 42 };
        let mut datagrams = Vec::new();
        let cut_all = cut(&bytes, &Offload::Segment(place, gso), |header, [head, body]| {
            assert_eq!(Header::from_host(header).gso_type, 0);
            let frame = [head, body].concat();
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("{packet:?}") };
            datagrams.push(udp.payload().to_vec());
            Ok(())
        });
        assert_eq!(cut_all, Ok(()));
        let lengths: Vec<usize> = datagrams.iter().map(Vec::len).collect();
        assert_eq!((lengths, datagrams.concat()), (vec![1400, 1400, 200], payload));
        assert_eq!(cut(&bytes, &Offload::None, |_, _| Ok(())), Err(Errno::INVAL));
    }

    #[test]
    fn tap_refusals_of_the_kernel_have_a_counter_each() {
        for (error, refusal) in [
            (Errno::IO, Refusal::Down),
            (Errno::BADFD, Refusal::Down),
            (Errno::AGAIN, Refusal::NoRoom),
            (Errno::FAULT, Refusal::Lost),
            (Errno::INVAL, Refusal::NoRoom),
        ] {
            assert_eq!(refusal_of(error).0, refusal, "{error}");
        }
    }
}
