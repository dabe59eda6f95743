//! Maximum segment sizes of local TCP endpoints, learnt from their SYNs (RFC 9293, section 3.7.1).
//!
//! Large TCP segments from a VXLAN peer's kernel are cut to the receiver's size
//! ([`crate::partial_offload`]). The carriers of [`crate::io::bare`] record sizes in the threads of
//! the groups, for each SYN or SYN-ACK that leaves to the peer; the links' shard looks them up for
//! each TCP frame with a partial checksum that arrives.
//!
//! The table has [`MSS_FLOWS`] (4,096) entries, no locks and no ageing. A new flow displaces the
//! flow in its entry; a flow that was displaced, or whose SYN left before the daemon started, is
//! cut to the packet length that the link's MTU gives. Sizes below [`MSS_MIN`] (48) and SYNs
//! without the option are ignored. The module never changes a SYN (no MSS clamping), and does not
//! follow connections: a size stays until it is displaced.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_wire::frame::{Network, Protocol, Transport, Version};
use causeway_wire::tcp;

use crate::limits::{MSS_FLOWS, MSS_MIN};

/// Offset of the flags in TCP's header.
const FLAGS_AT: usize = 13;
/// TCP option: end of the list.
const END: u8 = 0;
/// TCP option: no operation.
const NOTHING: u8 = 1;
/// TCP option: maximum segment size.
const MAXIMUM: u8 = 2;

/// A lock-free table of segment sizes by flow.
#[derive(Debug)]
pub struct SegmentSizes {
    /// Random per process, because guests choose the flows.
    key: RandomState,
    /// Indexed by the low bits of the flow's hash: the rest of the hash above, the size in the
    /// lower 16 bits.
    flows: Box<[AtomicU64]>,
}

impl Default for SegmentSizes {
    fn default() -> Self {
        let flows = std::iter::repeat_with(AtomicU64::default).take(MSS_FLOWS);
        Self { key: RandomState::new(), flows: flows.collect() }
    }
}

impl SegmentSizes {
    /// Returns the hash of a frame's TCP flow; `None` if the frame is cut off. `from`: the frame
    /// comes from the endpoint whose size is recorded; otherwise it goes there.
    fn flow_hash(
        &self,
        bytes: &[u8],
        network: &Network,
        transport: &Transport,
        from: bool,
    ) -> Option<u64> {
        let (at, len) = match network.version {
            Version::V4 => (12, 4),
            Version::V6 => (8, 16),
        };
        let first = network.offset.checked_add(at)?;
        let second = first.checked_add(len)?;
        let source = bytes.get(first..second)?;
        let destination = bytes.get(second..second.checked_add(len)?)?;
        let ports: [u8; 4] = *bytes.get(transport.offset..)?.first_chunk()?;
        let [a, b, c, d] = ports;
        Some(match from {
            true => self.key.hash_one((source, [a, b], destination, [c, d])),
            false => self.key.hash_one((destination, [c, d], source, [a, b])),
        })
    }

    /// Returns the table entry of a flow.
    fn cell(&self, hash: u64) -> Option<&AtomicU64> {
        let at = usize::try_from(hash).unwrap_or(0) & (MSS_FLOWS - 1);
        self.flows.get(at)
    }

    /// Records the segment size if a leaving frame is a SYN.
    pub fn record(&self, head: &[u8], network: &Network) {
        let Some(transport) = network.transport.filter(|t| t.protocol == Protocol::Tcp) else {
            return;
        };
        let flags = head.get(transport.offset.saturating_add(FLAGS_AT)).copied().unwrap_or(0);
        if u16::from(flags) & tcp::SYN == 0 {
            return;
        }
        let options =
            head.get(transport.offset..).and_then(|header| tcp::Header::parse(header).ok());
        let size = options.and_then(|header| size(header.options));
        let hash = self.flow_hash(head, network, &transport, true);
        if let (Some(size), Some(hash)) = (size, hash)
            && let Some(cell) = self.cell(hash)
        {
            cell.store(hash & !0xffff | u64::from(size), Ordering::Relaxed);
        }
    }

    /// Returns the payload bytes that a segment to the receiver of a frame may have; `None` if the
    /// receiver's SYN was not seen.
    pub fn payload(&self, frame: &[u8], network: &Network, transport: &Transport) -> Option<usize> {
        let hash = self.flow_hash(frame, network, transport, false)?;
        let value = self.cell(hash)?.load(Ordering::Relaxed);
        let size = usize::try_from(value & 0xffff).ok().filter(|size| *size > 0)?;
        if value & !0xffff != hash & !0xffff {
            return None;
        }
        // TCP options reduce the payload (RFC 6691).
        let header = transport.payload.checked_sub(transport.offset)?;
        size.checked_sub(header.saturating_sub(tcp::HEADER_LEN)).filter(|payload| *payload > 0)
    }
}

/// Returns the segment size among a SYN's options.
fn size(mut options: &[u8]) -> Option<u16> {
    loop {
        match options {
            [] | [END, ..] => return None,
            [NOTHING, rest @ ..] => options = rest,
            [MAXIMUM, 4, a, b, ..] => {
                return Some(u16::from_be_bytes([*a, *b])).filter(|size| *size >= MSS_MIN);
            }
            [_, len, ..] => options = options.get(usize::from(*len).max(2)..)?,
            [_] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::frame::Frame;
    use etherparse::{PacketBuilder, TcpOptionElement};

    use super::*;

    fn frame(from: [u8; 4], to: [u8; 4], syn: Option<u16>) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
        let (a, b) = if from[3] == 1 { (1000, 2000) } else { (2000, 1000) };
        let builder = builder.tcp(a, b, 7, 512);
        let builder = match syn {
            Some(size) => builder
                .syn()
                .options(&[
                    TcpOptionElement::Noop,
                    TcpOptionElement::WindowScale(7),
                    TcpOptionElement::MaximumSegmentSize(size),
                ])
                .unwrap(),
            None => builder,
        };
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[]).unwrap();
        bytes
    }

    const ONE: [u8; 4] = [10, 0, 0, 1];
    const TWO: [u8; 4] = [10, 0, 0, 2];

    fn lookup(sizes: &SegmentSizes, bytes: &[u8]) -> Option<usize> {
        let network = Frame::parse(bytes).unwrap().network.unwrap();
        sizes.payload(bytes, &network, &network.transport.unwrap())
    }

    #[test]
    fn segment_sizes_are_those_of_the_receiver() {
        let sizes = SegmentSizes::default();
        let note = |bytes: &[u8]| {
            sizes.record(bytes, &Frame::parse(bytes).unwrap().network.unwrap());
        };
        assert_eq!(lookup(&sizes, &frame(TWO, ONE, None)), None);
        note(&frame(ONE, TWO, None));
        assert_eq!(lookup(&sizes, &frame(TWO, ONE, None)), None, "no SYN");
        note(&frame(ONE, TWO, Some(1_200)));
        assert_eq!(lookup(&sizes, &frame(TWO, ONE, None)), Some(1_200));
        assert_eq!(lookup(&sizes, &frame(ONE, TWO, None)), None, "the other way");
        note(&frame(ONE, TWO, Some(3)));
        assert_eq!(lookup(&sizes, &frame(TWO, ONE, None)), Some(1_200), "nonsense");
    }

    #[test]
    fn hostile_options_end() {
        for options in
            [&[2_u8][..], &[2, 4, 5], &[3, 0, 0, 0], &[9, 255, 1], &[1, 1, 1], &[5, 1, 2, 4]]
        {
            size(options);
        }
        assert_eq!(size(&[1, 3, 3, 7, 2, 4, 5, 180, 0]), Some(1_460));
    }
}
