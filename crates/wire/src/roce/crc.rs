//! The invariant CRC of a RoCE version 2 packet (InfiniBand specification, 7.8.1; annex A17.3.3).
//!
//! The CRC is that of Ethernet, over eight bytes of ones in place of a local route header, the IP
//! and UDP headers, the transport headers and the payload with its padding. Fields that routers
//! change count as ones: type of service, time to live and checksum of IPv4; traffic class, flow
//! label and hop limit of IPv6; the UDP checksum; and the byte with the congestion bits of the base
//! transport header. It is sent with its least significant byte first.
//!
//! The module reads private bytes and does not check them; a header that is too short has the CRC
//! of its bytes. Two table look-ups a byte: 4 KiB take about 10 us. `hca::packets` is the caller,
//! for each packet of a capture; received packets do not exist. It runs in the dispatcher's turn.

use super::{BASE_LEN, UDP_LEN};

/// Remainders of the reflected polynomial 0xedb88320, by 4 bits.
const REMAINDERS: [u32; 16] = [
    0x0000_0000,
    0x1db7_1064,
    0x3b6e_20c8,
    0x26d9_30ac,
    0x76dc_4190,
    0x6b6b_51f4,
    0x4db2_6158,
    0x5005_713c,
    0xedb8_8320,
    0xf00f_9344,
    0xd6d6_a3e8,
    0xcb61_b38c,
    0x9b64_c2b0,
    0x86d3_d2d4,
    0xa00a_e278,
    0xbdbd_f21c,
];

/// Adds bytes to a CRC.
fn add(crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        let remainder = REMAINDERS.get((crc & 15) as usize).copied().unwrap_or(0);
        remainder ^ (crc >> 4)
    };
    bytes.iter().fold(crc, |crc, byte| step(step(crc ^ u32::from(*byte))))
}

/// Returns a header with ones in the given bytes.
fn masked<const N: usize>(header: [u8; N], ones: &[usize]) -> [u8; N] {
    let mut header = header;
    for index in ones {
        if let Some(byte) = header.get_mut(*index) {
            *byte = 0xff;
        }
    }
    header
}

/// Adds an IP header, with ones in the fields that routers change.
fn add_network(crc: u32, header: &[u8]) -> u32 {
    let version = header.first().map_or(0, |byte| byte >> 4);
    let Some(start) = header.first_chunk::<12>() else { return add(crc, header) };
    let (mut start, rest) = (*start, header.get(12..).unwrap_or_default());
    if version == 6 {
        start = masked(start, &[1, 2, 3, 7]);
        // The lower half of the first byte is part of the traffic class.
        if let Some(first) = start.first_mut() {
            *first |= 0x0f;
        }
    } else {
        start = masked(start, &[1, 8, 10, 11]);
    }
    add(add(crc, &start), rest)
}

/// Returns the CRC of a packet, as it is sent: IP header (with options), UDP header, base transport
/// header, and the pieces that follow, padding included.
pub fn invariant_crc(
    network: &[u8],
    udp: &[u8; UDP_LEN],
    base: &[u8; BASE_LEN],
    pieces: &[&[u8]],
) -> [u8; 4] {
    let crc = add_network(add(u32::MAX, &[0xff; 8]), network);
    let crc = add(crc, &masked(*udp, &[6, 7]));
    let crc = add(crc, &masked(*base, &[4]));
    (!pieces.iter().fold(crc, |crc, piece| add(crc, piece))).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A congestion notification of a ConnectX-4 Lx, from the IPv4 header on.
    const HARDWARE: [u8; 60] = [
        0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
        0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
        0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
    ];

    fn crc(packet: &[u8]) -> [u8; 4] {
        let (udp, base) = (packet[20..28].try_into().unwrap(), packet[28..40].try_into().unwrap());
        invariant_crc(&packet[..20], udp, base, &[&packet[40..50], &packet[50..56]])
    }

    #[test]
    fn roce_crc_is_that_of_an_adapter() {
        assert_eq!(crc(&HARDWARE), HARDWARE[56..]);
    }

    #[test]
    fn roce_crc_ignores_only_what_routers_change() {
        for at in 0..56 {
            let mut changed = HARDWARE;
            changed[at] ^= 0x40;
            let is_ignored = [1, 8, 10, 11, 26, 27, 32].contains(&at);
            // A change of the version would select the fields of IPv6.
            if at > 0 {
                assert_eq!(crc(&changed) == HARDWARE[56..], is_ignored, "byte {at}");
            }
        }
        assert_eq!(add(u32::MAX, b"123456789"), !0xcbf4_3926, "check value of the CRC");
    }

    #[test]
    fn roce_crc_of_ipv6_ignores_class_label_and_hops() {
        let mut network = [3; 40];
        network[0] = 0x60;
        let of = |network: &[u8]| invariant_crc(network, &[1; 8], &[2; 12], &[b"abc"]);
        let expected = of(&network);
        for (at, is_ignored) in [(0, true), (1, true), (3, true), (4, false), (7, true), (8, false)]
        {
            let mut changed = network;
            changed[at] ^= 0x01;
            assert_eq!(of(&changed) == expected, is_ignored, "byte {at}");
        }
        assert_ne!(of(&network[..11]), of(&network[..10]), "short headers are counted as they are");
    }
}
