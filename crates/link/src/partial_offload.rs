//! Frames with a partial checksum or uncut TCP, as VXLAN peers send them.
//!
//! The kernel's VXLAN device leaves the inner checksum and TCP segmentation to the interface below
//! it. A virtual interface (veth between containers, tap) does neither and notes this in metadata
//! that is lost where datagrams reach a program. The received frame then has up to 64 KiB, and its
//! checksum field holds the sum of the pseudo-header alone.
//!
//! [`missing_offload`] recognises such frames by that sum and returns the missing work as a
//! virtio-net header, which `ethernet` executes or passes on. One of 65,536 finished frames has the
//! sum by chance; completing its checksum again yields the same checksum, so false positives are
//! harmless. The module changes no frame. [`crate::io::bare`] calls it in the shard of links for
//! each frame received from a VXLAN peer. TCP is uncut if it exceeds the receiver's segment size
//! ([`crate::mss`]) or, where that is unknown, [`PACKET_BYTES_ETHERNET`] (1,500 bytes); it is then
//! cut to that size, or to the link's packet length. UDP is not segmented. A frame that cannot be
//! parsed, or with bytes behind its IP packet, counts as finished.

use causeway_fabric::carrier::OFFLOAD_BYTES;
use causeway_wire::checksum::Sum;
use causeway_wire::frame::{Frame, Network, Protocol, Transport, Version};
use causeway_wire::virtio_net::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, HDR_F_NEEDS_CSUM, Header};

use crate::limits::PACKET_BYTES_ETHERNET;
use crate::mss::SegmentSizes;

/// Offset of the flags in the header of TCP.
const TCP_FLAGS: usize = 13;
/// TCP's flag CWR.
const CWR: u8 = 0x80;

/// Returns the work left to do for a frame as an offload header; all zeroes for a finished frame.
/// TCP is cut to the segment size of its receiver, or to packets of `packet` bytes where that size
/// is not known.
pub fn missing_offload(
    frame: &[u8],
    packet: usize,
    sizes: Option<&SegmentSizes>,
) -> [u8; OFFLOAD_BYTES] {
    let [offload @ .., _, _] = find(frame, packet, sizes).unwrap_or_default().emit();
    offload
}

/// Returns the missing work of a frame; `None` for a finished frame. `most`: longest packet if the
/// receiver's segment size is unknown, in bytes.
fn find(frame: &[u8], most: usize, sizes: Option<&SegmentSizes>) -> Option<Header> {
    let network = Frame::parse(frame).ok()?.network?;
    let transport = network.transport.filter(|_| network.end == frame.len())?;
    let offset = transport.protocol.checksum_offset();
    let stands = transport.offset.checked_add(offset)?;
    let field = frame.get(stands..)?.first_chunk().copied().map(u16::from_be_bytes)?;
    if field != pseudo(frame, &network, &transport)? {
        return None;
    }
    let mut header = Header {
        flags: HDR_F_NEEDS_CSUM,
        csum_start: u16::try_from(transport.offset).ok()?,
        csum_offset: u16::try_from(offset).ok()?,
        ..Header::default()
    };
    let packet = frame.len().saturating_sub(network.offset);
    if transport.protocol != Protocol::Tcp {
        return Some(header);
    }
    let headers = transport.payload.saturating_sub(network.offset);
    let taken = sizes.and_then(|sizes| sizes.payload(frame, &network, &transport));
    let uncut = taken.map_or(PACKET_BYTES_ETHERNET, |taken| taken.saturating_add(headers));
    if packet > uncut {
        let payload = taken.or_else(|| most.checked_sub(headers))?;
        header.gso_size = u16::try_from(payload).ok().filter(|size| *size > 0)?;
        header.hdr_len = u16::try_from(transport.payload).ok()?;
        header.gso_type = match network.version {
            Version::V4 => GSO_TCPV4,
            Version::V6 => GSO_TCPV6,
        };
        if frame.get(transport.offset.saturating_add(TCP_FLAGS))? & CWR != 0 {
            header.gso_type |= GSO_ECN;
        }
    }
    Some(header)
}

/// Returns the sum of the pseudo-header, which stands in place of a checksum that is not computed
/// yet.
fn pseudo(frame: &[u8], network: &Network, transport: &Transport) -> Option<u16> {
    let (from, len) = match network.version {
        Version::V4 => (12, 8),
        Version::V6 => (8, 32),
    };
    let start = network.offset.checked_add(from)?;
    let covered = frame.len().checked_sub(transport.offset)?;
    let mut sum = Sum::new();
    sum.add(frame.get(start..start.checked_add(len)?)?);
    sum.add(&u32::try_from(covered).ok()?.to_be_bytes());
    sum.add_u16(u16::from(transport.protocol.number()));
    Some(sum.partial())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PACKET_BYTES_VXLAN;
    use etherparse::PacketBuilder;

    fn tcp(payload: usize, six: bool) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = match six {
            false => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => builder.ipv6([1; 16], [2; 16], 64),
        };
        let mut frame = Vec::new();
        builder.tcp(1000, 2000, 7, 512).write(&mut frame, &vec![0x5a; payload]).unwrap();
        frame
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut frame = Vec::new();
        builder.udp(1000, 2000).write(&mut frame, payload).unwrap();
        frame
    }

    /// Writes the pseudo-header's sum into the checksum field, as kernels do.
    fn unfinish(mut frame: Vec<u8>) -> Vec<u8> {
        let network = Frame::parse(&frame).unwrap().network.unwrap();
        let transport = network.transport.unwrap();
        let at = transport.offset + transport.protocol.checksum_offset();
        let sum = pseudo(&frame, &network, &transport).unwrap();
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// As [`missing_offload`], for packets that fit VXLAN over IPv4 on an ordinary Ethernet.
    fn of(frame: &[u8]) -> [u8; OFFLOAD_BYTES] {
        missing_offload(frame, PACKET_BYTES_VXLAN, None)
    }

    fn header(frame: &[u8]) -> Header {
        let mut bytes = [0; 12];
        bytes[..OFFLOAD_BYTES].copy_from_slice(&of(frame));
        Header::parse(&bytes).unwrap()
    }

    #[test]
    fn offload_is_empty_for_a_finished_frame() {
        for frame in [tcp(0, false), tcp(1400, true), tcp(9000, false), udp(b"x")] {
            assert_eq!(of(&frame), [0; OFFLOAD_BYTES]);
        }
        let mut none = udp(b"no checksum at all");
        none[40..42].fill(0);
        assert_eq!(of(&none), [0; OFFLOAD_BYTES]);
        assert_eq!(of(&[0; 14]), [0; OFFLOAD_BYTES]);
    }

    #[test]
    fn offload_completes_a_partial_checksum() {
        for (frame, start, offset) in
            [(tcp(100, false), 34, 16), (tcp(100, true), 54, 16), (udp(b"datagram"), 34, 6)]
        {
            let found = header(&unfinish(frame.clone()));
            assert_eq!((found.flags, found.gso_type), (HDR_F_NEEDS_CSUM, 0));
            assert_eq!((found.csum_start, found.csum_offset), (start, offset));
            // Completing the sum yields the original checksum.
            let mut done = unfinish(frame.clone());
            let sum = causeway_wire::checksum::of(&done[usize::from(start)..]);
            let at = usize::from(start + offset);
            done[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(done, frame);
        }
    }

    #[test]
    fn offload_cuts_uncut_tcp() {
        for (frame, kind, headers) in
            [(tcp(20_000, false), GSO_TCPV4, 40), (tcp(20_000, true), GSO_TCPV6, 60)]
        {
            let found = header(&unfinish(frame));
            assert_eq!((found.flags, found.gso_type), (HDR_F_NEEDS_CSUM, kind));
            assert_eq!(usize::from(found.gso_size) + headers, PACKET_BYTES_VXLAN);
            assert_eq!(usize::from(found.hdr_len), headers + 14);
        }
        let mut frame = unfinish(tcp(20_000, false));
        frame[34 + TCP_FLAGS] |= CWR;
        assert_eq!(header(&frame).gso_type, GSO_TCPV4 | GSO_ECN);
        assert_eq!(header(&unfinish(tcp(1460, false))).gso_type, 0);
    }

    #[test]
    fn tcp_is_cut_to_what_its_receiver_takes_and_the_link_carries() {
        let payload = |frame: &[u8], sizes: &SegmentSizes| {
            let mut bytes = [0; 12];
            bytes[..OFFLOAD_BYTES].copy_from_slice(&missing_offload(frame, 1_430, Some(sizes)));
            usize::from(Header::parse(&bytes).unwrap().gso_size)
        };
        let sizes = SegmentSizes::default();
        let superframe = unfinish(tcp(20_000, false));
        assert_eq!(payload(&superframe, &sizes), 1_430 - 40);
        // The receiver's SYN, as it leaves.
        let builder =
            PacketBuilder::ethernet2([4; 6], [2; 6]).ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64);
        let builder = builder.tcp(2000, 1000, 7, 512).syn();
        let option = etherparse::TcpOptionElement::MaximumSegmentSize(1_220);
        let mut syn = Vec::new();
        builder.options(&[option]).unwrap().write(&mut syn, &[]).unwrap();
        sizes.record(&syn, &Frame::parse(&syn).unwrap().network.unwrap());
        assert_eq!(payload(&superframe, &sizes), 1_220);
        assert_eq!(
            payload(&unfinish(tcp(1_300, false)), &sizes),
            1_220,
            "shorter than an Ethernet's"
        );
        assert_eq!(payload(&unfinish(tcp(1_220, false)), &sizes), 0, "as it is");
    }

    #[test]
    fn hostile_frames_are_left_alone() {
        let whole = unfinish(tcp(100, false));
        for len in 0..whole.len() {
            assert_eq!(of(&whole[..len]), [0; OFFLOAD_BYTES], "{len} bytes");
        }
        // The bytes behind the packet would be part of the sum.
        let padded = [&whole[..], &[1; 4]].concat();
        assert_eq!(of(&padded), [0; OFFLOAD_BYTES]);
    }
}
