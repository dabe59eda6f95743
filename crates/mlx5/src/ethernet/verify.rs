//! Checksums of a received frame: completed in its headers, and reported in its completion.
//!
//! The driver takes two reports from a completion: the sum over the IP packet, which it verifies
//! against the packet for most frames, and bits for correct checksums, for the others. Both derive
//! from one sum over the payload that was taken while the payload was copied. A checksum that a
//! sender left to the device is completed first, so that the frame in the receiver's memory is
//! correct on every further way. A wrong checksum is reported, not dropped. `super::receive` calls
//! the module for each piece, in the dispatcher's turn. A frame without IP gets neither the sum nor
//! bits of IP and transport, and a packet that is not whole in the frame, or a UDP datagram without
//! checksum, no bit for its transport checksum.

use causeway_wire::checksum::Sum;
use causeway_wire::frame::{Frame, Protocol, Transport, Version};
use causeway_wire::mlx5::completion_queue::{
    CHECK_L2, CHECK_L3, CHECK_L4, CompletionEntry, L3_IPV4, L3_IPV6, L4_TCP, L4_TCP_ACK,
    L4_TCP_ACK_DATA, L4_UDP,
};
use causeway_wire::virtio_net::ChecksumPlace;
use causeway_wire::{tcp, udp};

use super::offload::pseudo;

/// A frame during the copy of its payload.
#[derive(Debug)]
pub(crate) struct Verifier {
    frame: Frame,
    /// Offset of the first byte behind the IP packet, or the frame's length.
    end: usize,
    len: usize,
}

impl Verifier {
    /// Returns the verifier of a frame of `len` bytes with these headers.
    pub fn new(frame: Frame, len: usize) -> Self {
        let end = frame.network.map_or(len, |network| network.end.min(len));
        Self { frame, end, len }
    }

    /// Returns the number of bytes behind the first `head` bytes that the payload's sum covers:
    /// those of the IP packet.
    pub fn covered(&self, head: usize) -> usize {
        self.end.saturating_sub(head)
    }

    /// Completes the checksum at `place`. `payload` is the sum over the covered bytes behind
    /// `head`.
    pub fn complete(&self, head: &mut [u8], place: ChecksumPlace, payload: &Sum) {
        let sum = self.sum(head, usize::from(place.start), payload);
        let field = head.get_mut(place.field()..).and_then(|rest| rest.first_chunk_mut());
        if let Some(field) = field {
            *field = sum.finish_nonzero().to_be_bytes();
        }
    }

    /// Writes the reports about the frame to its completion.
    pub fn report(&self, head: &[u8], payload: &Sum, entry: &mut CompletionEntry) {
        entry.checks = CHECK_L2;
        let Some(network) = &self.frame.network else { return };
        // The sum over the packet is that over the IP header and that over the rest.
        let header = head.get(network.offset..network.header_end).unwrap_or(&[]);
        let header = Sum::of(header);
        let rest = self.sum(head, network.header_end, payload);
        let mut packet = rest;
        packet.add_u16(header.partial());
        entry.checksum = packet.partial();
        entry.layer3 = match network.version {
            Version::V4 => L3_IPV4,
            Version::V6 => L3_IPV6,
        };
        // An IPv6 header has no checksum.
        if network.version == Version::V6 || header.finish() == 0 {
            entry.checks |= CHECK_L3;
        }
        let Some(transport) = &network.transport else { return };
        entry.layer4 = self.layer4(head, transport);
        let counted = network.end.saturating_sub(transport.offset);
        let is_whole = network.end <= self.len;
        if let Some(mut sum) = pseudo(head, network, transport.protocol, counted)
            && is_whole
            && has_checksum(head, transport)
        {
            let segment = match transport.offset == network.header_end {
                true => rest,
                false => self.sum(head, transport.offset, payload),
            };
            sum.add_u16(segment.partial());
            if sum.finish() == 0 {
                entry.checks |= CHECK_L4;
            }
        }
    }

    /// Returns the sum over the bytes from `from` to the end of the IP packet.
    fn sum(&self, head: &[u8], from: usize, payload: &Sum) -> Sum {
        let end = self.end.min(head.len());
        let bytes = head.get(from..end).unwrap_or(&[]);
        // The payload's own sum stands for its bytes, which follow those of the head.
        let mut sum = Sum::of(bytes);
        sum.join(payload);
        sum
    }

    /// Returns the code of the transport header.
    fn layer4(&self, head: &[u8], transport: &Transport) -> u8 {
        if transport.protocol == Protocol::Udp {
            return L4_UDP;
        }
        let header = tcp::Header::parse(head.get(transport.offset..).unwrap_or(&[]));
        let has_ack = header.is_ok_and(|header| header.flags & tcp::ACK != 0);
        match (has_ack, self.end > transport.payload) {
            (false, _) => L4_TCP,
            (true, false) => L4_TCP_ACK,
            (true, true) => L4_TCP_ACK_DATA,
        }
    }
}

/// Returns whether a transport header has a checksum: UDP over IPv4 may omit it.
fn has_checksum(head: &[u8], transport: &Transport) -> bool {
    let at = transport.offset.saturating_add(udp::CHECKSUM_OFFSET);
    transport.protocol != Protocol::Udp
        || head.get(at..).and_then(<[u8]>::first_chunk) != Some(&[0; 2])
}
