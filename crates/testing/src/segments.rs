//! Frames between stations with the addresses of [`mac`]: of an unknown EtherType, and TCP and UDP
//! segments with the offloads of virtio-net.
//!
//! The functions panic instead of returning errors: input that is no such frame fails the test.
//! Nothing is sent: tests pass the bytes to a native guest. A TCP or UDP payload beyond the length
//! field of its packet (64 KiB) panics; [`plain`] has no limit. Users: integration tests of
//! `ethernet` and `tap`, in their threads.

use causeway_wire::frame::Frame;
use causeway_wire::virtio_net::{
    GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HDR_F_NEEDS_CSUM, Header,
};
use etherparse::PacketBuilder;

/// Returns the Ethernet address of station `n`.
pub const fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

/// Returns a frame of an unknown EtherType from station `from`.
pub fn plain(from: u8, to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&to[..], &mac(from)[..], &[0x88, 0xb5], payload].concat()
}

/// Returns a TCP segment with an incomplete checksum, and the header for segments of `size`.
pub fn tcp(from: u8, to: u8, v6: bool, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let builder = PacketBuilder::ethernet2(mac(from), mac(to));
    let ip = match v6 {
        false => builder.ipv4([10, 0, 0, from], [10, 0, 0, to], 64),
        true => builder.ipv6([from; 16], [to; 16], 64),
    };
    let mut bytes = Vec::new();
    ip.tcp(1000, 2000, 77, 4096).ack(5).psh().write(&mut bytes, payload).unwrap();
    ask(bytes, if v6 { GSO_TCPV6 } else { GSO_TCPV4 }, size)
}

/// Returns a UDP datagram with an incomplete checksum, and the header for segments of `size`.
pub fn udp(from: u8, to: u8, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .udp(1000, 2000)
        .write(&mut bytes, payload)
        .unwrap();
    ask(bytes, GSO_UDP_L4, size)
}

/// Makes the checksum incomplete and builds the header; a size of 0 requests no segmentation.
fn ask(mut bytes: Vec<u8>, gso_type: u8, size: u16) -> (Header, Vec<u8>) {
    let network = Frame::parse(&bytes).unwrap().network.unwrap();
    let transport = network.transport.unwrap();
    let field = transport.offset + transport.protocol.checksum_offset();
    // The complement of the checksum, minus everything except the pseudo-header.
    bytes[field..field + 2].fill(0);
    let mut pseudo = causeway_wire::checksum::Sum::new();
    let addresses = match bytes[network.offset] >> 4 {
        4 => network.offset + 12..network.offset + 20,
        _ => network.offset + 8..network.offset + 40,
    };
    pseudo.add(&bytes[addresses]);
    pseudo.add_u16(u16::from(transport.protocol.number()));
    pseudo.add_u16((bytes.len() - transport.offset) as u16);
    bytes[field..field + 2].copy_from_slice(&pseudo.partial().to_be_bytes());
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: if size == 0 { GSO_NONE } else { gso_type },
        hdr_len: transport.payload as u16,
        gso_size: size,
        csum_start: transport.offset as u16,
        csum_offset: transport.protocol.checksum_offset() as u16,
        num_buffers: 0,
    };
    (header, bytes)
}

/// Returns whether the transport checksum is correct, by summing pseudo-header and payload.
pub fn checksum_is_right(bytes: &[u8]) -> bool {
    let network = Frame::parse(bytes).unwrap().network.unwrap();
    let transport = network.transport.unwrap();
    let addresses = match bytes[network.offset] >> 4 {
        4 => network.offset + 12..network.offset + 20,
        _ => network.offset + 8..network.offset + 40,
    };
    let mut sum = causeway_wire::checksum::Sum::new();
    sum.add(&bytes[addresses]);
    sum.add_u16(u16::from(transport.protocol.number()));
    sum.add_u16((bytes.len() - transport.offset) as u16);
    sum.add(&bytes[transport.offset..]);
    sum.finish() == 0
}

/// Returns the bytes behind a frame's transport header.
pub fn payload_of(bytes: &[u8]) -> &[u8] {
    &bytes[Frame::parse(bytes).unwrap().network.unwrap().transport.unwrap().payload..]
}

/// Returns `len` bytes of a repeating pattern.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) >> 3) as u8).collect()
}
