//! Offload requests of a send queue entry, made into those of a frame.
//!
//! The driver leaves checksums to the device, and with segmentation also the lengths. This module
//! writes them to the private head of the frame: IP and UDP lengths, the checksum of the IPv4
//! header, and the sum over the pseudo-header where the transport checksum belongs. What the
//! request of a frame must satisfy is checked by [`Offload::check`]. `super::transmit` calls
//! [`prepare`] for each frame in the dispatcher's turn, and drops and counts
//! (`drop_offload_frames_total`) a frame whose segmentation request does not fit its headers. A
//! checksum request that fits no header is ignored. The payload is not read, and nothing is cut
//! here.

use causeway_wire::checksum::{self, Sum, pseudo_v4, pseudo_v6};
use causeway_wire::frame::{Frame, Network, Protocol, Transport, Version};
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::{
    ChecksumPlace, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HDR_F_NEEDS_CSUM, Header,
    Offload, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
};
use causeway_wire::{ipv6, tcp};

/// The offloads that the function offers to its driver.
const FEATURES: u64 = mask(VIRTIO_NET_F_CSUM)
    | mask(VIRTIO_NET_F_HOST_TSO4)
    | mask(VIRTIO_NET_F_HOST_TSO6)
    | mask(VIRTIO_NET_F_HOST_ECN)
    | mask(VIRTIO_NET_F_HOST_USO);
/// Offset of the checksum in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;
/// Offset of the addresses in an IPv4 header.
const IPV4_ADDRESSES: usize = 12;
/// Offset of the addresses in an IPv6 header.
const IPV6_ADDRESSES: usize = 8;

/// The offloads that an entry requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Request {
    /// Write the checksum of the IPv4 header.
    pub checksum_l3: bool,
    /// Write the checksum of TCP or UDP.
    pub checksum_l4: bool,
    /// Cut the frame into segments with this payload, in bytes.
    pub segment_size: Option<u16>,
}

/// Completes the headers of a frame of `len` bytes as far as the request asks. Returns the work
/// that is left, or `None` if the request does not agree with the headers.
///
/// A checksum request for a frame without TCP or UDP header is ignored, as hardware does.
pub(crate) fn prepare(head: &mut [u8], len: usize, request: &Request) -> Option<Offload> {
    if *request == Request::default() {
        return Some(Offload::None);
    }
    let frame = Frame::parse(head).ok()?;
    let Some(network) = frame.network else {
        return request.segment_size.is_none().then_some(Offload::None);
    };
    match request.segment_size {
        Some(size) => segmentation(head, len, &network, size),
        None => {
            if request.checksum_l3 {
                fill_ipv4_checksum(head, &network);
            }
            let transport = network.transport.filter(|_| request.checksum_l4);
            let place = transport.and_then(|transport| fill_pseudo(head, &network, &transport));
            Some(place.map_or(Offload::None, Offload::Checksum))
        }
    }
}

/// Prepares a frame that is to be cut.
fn segmentation(head: &mut [u8], len: usize, network: &Network, size: u16) -> Option<Offload> {
    let transport = network.transport?;
    fill_lengths(head, len, network, &transport)?;
    fill_ipv4_checksum(head, network);
    // The lengths have changed.
    let frame = Frame::parse(head).ok()?;
    let network = frame.network?;
    let place = fill_pseudo(head, &network, &transport)?;
    let bytes = head.get(transport.offset..)?;
    let gso_type = match (transport.protocol, network.version) {
        (Protocol::Udp, _) => GSO_UDP_L4,
        (Protocol::Tcp, version) => {
            let is_reduced = tcp::Header::parse(bytes).ok()?.flags & tcp::CWR != 0;
            let ecn = if is_reduced { GSO_ECN } else { GSO_NONE };
            ecn | if version == Version::V4 { GSO_TCPV4 } else { GSO_TCPV6 }
        }
    };
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type,
        hdr_len: u16::try_from(transport.payload).ok()?,
        gso_size: size,
        csum_start: place.start,
        csum_offset: place.offset,
        num_buffers: 0,
    };
    Offload::check(&header, FEATURES, &frame, len).ok()
}

/// Writes the lengths of the IP packet and UDP datagram in a frame of `len` bytes.
fn fill_lengths(
    head: &mut [u8],
    len: usize,
    network: &Network,
    transport: &Transport,
) -> Option<()> {
    let packet = len.checked_sub(network.offset)?;
    let (at, value) = match network.version {
        Version::V4 => (2, packet),
        Version::V6 => (4, packet.checked_sub(ipv6::HEADER_LEN)?),
    };
    put(head, network.offset.checked_add(at)?, u16::try_from(value).ok()?)?;
    if transport.protocol == Protocol::Udp {
        let datagram = u16::try_from(len.checked_sub(transport.offset)?).ok()?;
        put(head, transport.offset.checked_add(4)?, datagram)?;
    }
    Some(())
}

/// Writes the checksum of an IPv4 header.
fn fill_ipv4_checksum(head: &mut [u8], network: &Network) {
    let header = head.get_mut(network.offset..network.header_end);
    let Some(header) = header.filter(|_| network.version == Version::V4) else { return };
    if put(header, IPV4_CHECKSUM, 0).is_some() {
        let sum = checksum::of(header);
        put(header, IPV4_CHECKSUM, sum);
    }
}

/// Writes the sum over the pseudo-header to the checksum field of a transport header. Returns the
/// field's place.
fn fill_pseudo(head: &mut [u8], network: &Network, transport: &Transport) -> Option<ChecksumPlace> {
    let place = ChecksumPlace {
        start: u16::try_from(transport.offset).ok()?,
        offset: u16::try_from(transport.protocol.checksum_offset()).ok()?,
    };
    let counted = network.end.checked_sub(transport.offset)?;
    let sum = pseudo(head, network, transport.protocol, counted)?;
    put(head, place.field(), sum.partial())?;
    Some(place)
}

/// Returns the sum over the pseudo-header of a packet with `counted` bytes of transport header and
/// payload.
///
/// Behind an IPv6 routing header the destination differs from that of the IPv6 header; such packets
/// get a checksum that their receiver refuses.
pub(crate) fn pseudo(
    head: &[u8],
    network: &Network,
    protocol: Protocol,
    counted: usize,
) -> Option<Sum> {
    let header = head.get(network.offset..network.header_end)?;
    let number = protocol.number();
    Some(match network.version {
        Version::V4 => {
            let [source, destination] = addresses::<4>(header.get(IPV4_ADDRESSES..)?)?;
            pseudo_v4(source, destination, number, u16::try_from(counted).ok()?)
        }
        Version::V6 => {
            let [source, destination] = addresses::<16>(header.get(IPV6_ADDRESSES..)?)?;
            pseudo_v6(source, destination, number, u32::try_from(counted).ok()?)
        }
    })
}

/// Returns the source and destination address at the begin of `bytes`.
fn addresses<const N: usize>(bytes: &[u8]) -> Option<[[u8; N]; 2]> {
    let (source, rest) = bytes.split_first_chunk()?;
    Some([*source, *rest.first_chunk()?])
}

/// Writes a big-endian word at `at`.
fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}
