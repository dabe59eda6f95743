//! Network headers before the payload of received datagrams: 40 bytes.
//!
//! No packet exists between two adapters of a host, so the header is made from the address vector
//! of the sender and its entry of the GID table, as a receiver of the packet would see it. The type
//! is that of the GID table's entry: IPv4 in the last 20 bytes, IPv6, or the global route header of
//! RoCE version 1. An entry that is not set gives a header of version 1 with a zero source.
//!
//! `queues` calls [`emit`] for each datagram, in the dispatcher's thread. The header does not carry
//! the bytes behind it (UDP and transport headers), only counts them in its length, and nothing
//! checks that the sender owns its GID: receivers must not trust the addresses. Connected messages
//! have no header.

use causeway_verbs::work::{AddressVector, NetworkHeader};
use causeway_wire::checksum;
use causeway_wire::mlx5::vport::{L3_IPV4, RoceAddress, RoceVersion};

const IPV4_LEN: usize = 20;
/// Bytes behind the IP header beside the payload: UDP 8, base transport header 12, datagram
/// extended header 8, invariant CRC 4.
const UDP_OVERHEAD: u32 = 8 + 12 + 8 + 4;
/// The same without UDP, for RoCE version 1.
const GRH_OVERHEAD: u32 = 12 + 8 + 4;
const PROTOCOL_UDP: u8 = 17;
/// Next header of a global route header: a base transport header.
const PROTOCOL_IBA: u8 = 0x1b;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// Returns the header of a datagram of `payload` bytes from the sender with the GID `source`.
pub(crate) fn emit(
    source: RoceAddress,
    to: &AddressVector,
    payload: u32,
) -> ([u8; 40], NetworkHeader) {
    let is_v2 = RoceVersion::from_raw(source.version) == Some(RoceVersion::V2);
    if is_v2 && source.layer3 == L3_IPV4 {
        return (ipv4(&source, to, payload), NetworkHeader::Ipv4);
    }
    let (protocol, overhead, kind) = if is_v2 {
        (PROTOCOL_UDP, UDP_OVERHEAD, NetworkHeader::Ipv6)
    } else {
        (PROTOCOL_IBA, GRH_OVERHEAD, NetworkHeader::Grh)
    };
    let first = 6 << 28 | u32::from(to.traffic_class) << 20 | (to.flow_label & 0xf_ffff);
    let len = payload.saturating_add(overhead) as u16;
    let mut header = [0; 40];
    let parts: [&[u8]; 5] =
        [&first.to_be_bytes(), &len.to_be_bytes(), &[protocol, to.hop_limit], &source.gid, &to.gid];
    fill(&mut header, parts.into_iter().flatten());
    (header, kind)
}

/// Returns the header with IPv4 in its last 20 bytes.
fn ipv4(source: &RoceAddress, to: &AddressVector, payload: u32) -> [u8; 40] {
    let address = |gid: &[u8; 16]| gid.last_chunk::<4>().copied().unwrap_or_default();
    let len = payload.saturating_add(UDP_OVERHEAD).saturating_add(IPV4_LEN as u32) as u16;
    let with = |checksum: u16| {
        let mut ip = [0; IPV4_LEN];
        let parts: [&[u8]; 8] = [
            &[0x45, to.traffic_class],
            &len.to_be_bytes(),
            &[0, 0],
            &DO_NOT_FRAGMENT.to_be_bytes(),
            &[to.hop_limit, PROTOCOL_UDP],
            &checksum.to_be_bytes(),
            &address(&source.gid),
            &address(&to.gid),
        ];
        fill(&mut ip, parts.into_iter().flatten());
        ip
    };
    let ip = with(checksum::of(&with(0)));
    let mut header = [0; 40];
    fill(&mut header, [0; IPV4_LEN].iter().chain(&ip));
    header
}

fn fill<'a>(into: &mut [u8], from: impl Iterator<Item = &'a u8>) {
    for (to, from) in into.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(last: [u8; 4]) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&last);
        gid
    }

    #[test]
    fn network_header_of_ipv4_has_a_valid_checksum_in_its_last_20_bytes() {
        let source = RoceAddress { gid: gid([10, 0, 0, 1]), version: 2, ..RoceAddress::default() };
        let to = AddressVector { gid: gid([10, 0, 0, 2]), hop_limit: 64, ..Default::default() };
        let (header, kind) = emit(source, &to, 100);
        assert_eq!(kind, NetworkHeader::Ipv4);
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header[20], 0x45);
        assert_eq!(header[22..24], 152_u16.to_be_bytes());
        assert_eq!(header[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(checksum::of(&header[20..]), 0);
    }

    #[test]
    fn network_header_of_ipv6_and_version_1_differ_in_the_protocol() {
        let to = AddressVector { gid: [9; 16], flow_label: 5, ..Default::default() };
        let v2 = RoceAddress { gid: [1; 16], layer3: 1, version: 2, ..RoceAddress::default() };
        let (header, kind) = emit(v2, &to, 4);
        assert_eq!((kind, header[6]), (NetworkHeader::Ipv6, 17));
        assert_eq!(header[..6], [0x60, 0, 0, 5, 0, 36]);
        let v1 = RoceAddress { version: 0, ..v2 };
        let (header, kind) = emit(v1, &to, 4);
        assert_eq!((kind, header[6], header[5]), (NetworkHeader::Grh, 0x1b, 28));
        assert_eq!((header[8], header[24]), (1, 9));
    }
}
