//! Tests of offload checks with each field of the virtio-net header wrong.

use causeway_wire::frame::Frame;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;
use etherparse::PacketBuilder;
use proptest::collection::vec;
use proptest::prelude::*;

const ALL: u64 = u64::MAX;

/// Returns a TCP over IPv4 frame with 3000 bytes of payload, and a header that requests
/// segmentation.
fn tcp4() -> (Vec<u8>, Header) {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1, 2, 3, 4)
        .write(&mut bytes, &[7; 3000])
        .unwrap();
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    (bytes, header)
}

fn check(bytes: &[u8], header: &Header, features: u64) -> Result<Offload, Invalid> {
    Offload::check(header, features, &Frame::parse(bytes).unwrap(), bytes.len())
}

#[test]
fn offload_of_a_valid_header_is_accepted() {
    let (bytes, header) = tcp4();
    let offload = check(&bytes, &header, ALL).unwrap();
    let Offload::Segment(place, gso) = offload else { panic!("{offload:?}") };
    assert_eq!((place.start, place.offset), (34, 16));
    assert_eq!(gso, Gso { kind: GsoKind::Tcp4 { ecn: false }, size: 1000, header_len: 54 });
    assert_eq!(offload.piece_len(bytes.len()), 1054);
    assert_eq!(offload.to_header(1), Header { num_buffers: 1, ..header });
}

#[test]
fn offload_of_one_segment_is_not_segmented() {
    let (bytes, header) = tcp4();
    let header = Header { gso_size: 3000, ..header };
    let offload = check(&bytes, &header, ALL).unwrap();
    assert_eq!(offload, Offload::Checksum(ChecksumPlace { start: 34, offset: 16 }));
}

#[test]
fn offload_ignores_flags_for_the_driver() {
    let (bytes, _) = tcp4();
    let header = Header { flags: HDR_F_DATA_VALID | 4, num_buffers: 9, ..Header::default() };
    let offload = check(&bytes, &header, 0).unwrap();
    assert_eq!(offload, Offload::None);
    assert_eq!(offload.to_header(1), Header { num_buffers: 1, ..Header::default() });
}

#[test]
fn hostile_csum_place_is_refused() {
    let (bytes, header) = tcp4();
    let len = u16::try_from(bytes.len()).unwrap();
    for gso_type in [GSO_NONE, GSO_TCPV4] {
        for (csum_start, csum_offset) in
            [(0, 16), (13, 0), (len, 0), (len - 1, 0), (34, len - 35), (0xffff, 0xffff)]
        {
            let header = Header { csum_start, csum_offset, gso_type, ..header };
            let error = check(&bytes, &header, ALL).unwrap_err();
            assert!(matches!(error, Invalid::ChecksumPlace { .. }), "{error}");
        }
    }
    let last = Header { csum_start: len - 2, csum_offset: 0, gso_type: GSO_NONE, ..header };
    assert!(check(&bytes, &last, ALL).is_ok());
}

#[test]
fn hostile_gso_without_checksum_is_refused() {
    let (bytes, header) = tcp4();
    let header = Header { flags: 0, ..header };
    assert_eq!(check(&bytes, &header, ALL), Err(Invalid::GsoWithoutChecksum(GSO_TCPV4)));
}

#[test]
fn hostile_gso_size_is_refused() {
    let (bytes, header) = tcp4();
    for gso_size in [0, 1, GSO_SIZE_MIN - 1, 0xffff] {
        let header = Header { gso_size, ..header };
        let error = check(&bytes, &header, ALL).unwrap_err();
        assert_eq!(error, Invalid::GsoSize { size: gso_size, len: bytes.len() });
    }
    let mut long = Vec::new();
    PacketBuilder::ethernet2([2; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1, 2, 3, 4)
        .write(&mut long, &vec![7; 65_000])
        .unwrap();
    let header = Header { gso_size: 31, ..header };
    assert!(matches!(check(&long, &header, ALL), Err(Invalid::GsoSize { .. })));
    let header = Header { gso_size: 32, ..header };
    assert!(check(&long, &header, ALL).is_ok());
}

#[test]
fn hostile_gso_type_is_refused() {
    let (bytes, header) = tcp4();
    for gso_type in [2, GSO_UDP, 6, 0x20, 0x7f, GSO_ECN, GSO_ECN | GSO_UDP] {
        let error = check(&bytes, &Header { gso_type, ..header }, ALL).unwrap_err();
        assert_eq!(error, Invalid::GsoType(gso_type));
    }
    for gso_type in [GSO_TCPV6, GSO_UDP_L4] {
        let error = check(&bytes, &Header { gso_type, ..header }, ALL).unwrap_err();
        assert_eq!(error, Invalid::Disagrees(gso_type));
    }
}

#[test]
fn hostile_header_that_disagrees_with_the_frame_is_refused() {
    let (mut bytes, header) = tcp4();
    for wrong in [
        Header { csum_start: 35, ..header },
        Header { csum_offset: 6, ..header },
        Header { csum_start: 54, csum_offset: 2, ..header },
    ] {
        assert_eq!(check(&bytes, &wrong, ALL), Err(Invalid::Disagrees(GSO_TCPV4)));
    }
    let wrong = Header { hdr_len: 4000, ..header };
    assert!(matches!(check(&bytes, &wrong, ALL), Err(Invalid::HeaderLen { .. })));
    // A fragment with more to follow.
    bytes[20] |= 0x20;
    assert_eq!(check(&bytes, &header, ALL), Err(Invalid::Disagrees(GSO_TCPV4)));
    // Not IP.
    bytes[12] = 0x12;
    assert_eq!(check(&bytes, &header, ALL), Err(Invalid::Disagrees(GSO_TCPV4)));
}

#[test]
fn hostile_ip_length_is_refused() {
    let (mut bytes, header) = tcp4();
    bytes[17] ^= 1;
    assert!(matches!(check(&bytes, &header, ALL), Err(Invalid::Length { .. })));
    let (mut bytes, header) = tcp4();
    bytes.push(0);
    assert!(matches!(check(&bytes, &header, ALL), Err(Invalid::Length { .. })));
}

#[test]
fn hostile_offload_that_was_not_negotiated_is_refused() {
    let (bytes, header) = tcp4();
    let without = |bit| check(&bytes, &header, ALL & !mask(bit)).unwrap_err();
    assert_eq!(without(VIRTIO_NET_F_CSUM), Invalid::NotNegotiated("CSUM"));
    assert_eq!(without(VIRTIO_NET_F_HOST_TSO4), Invalid::NotNegotiated("HOST_TSO4"));
    let header = Header { gso_type: GSO_TCPV4 | GSO_ECN, ..header };
    assert!(check(&bytes, &header, ALL).is_ok());
    let error = check(&bytes, &header, ALL & !mask(VIRTIO_NET_F_HOST_ECN)).unwrap_err();
    assert_eq!(error, Invalid::NotNegotiated("HOST_ECN"));
}

fn any_header() -> impl Strategy<Value = Header> {
    (any::<[u8; 12]>(), 0_u8..8, 0_u16..80, 0_u16..20).prop_map(|(raw, gso, start, offset)| {
        let raw = Header::parse(&raw).unwrap();
        let flags = raw.flags | HDR_F_NEEDS_CSUM;
        let gso_type = gso | raw.gso_type & GSO_ECN;
        Header { flags, gso_type, csum_start: start, csum_offset: offset, ..raw }
    })
}

proptest! {
    #[test]
    fn virtio_net_headers_round_trip(raw: [u8; 12]) {
        prop_assert_eq!(Header::parse(&raw).unwrap().emit(), raw);
        prop_assert!(Header::parse(&raw[..11]).is_err());
    }

    #[test]
    fn accepted_offloads_are_inside_the_frame(
        header in any_header(),
        features: u64,
        mut bytes in vec(any::<u8>(), 14..300),
        real: bool,
        more in 0_usize..70_000,
    ) {
        if real {
            bytes = tcp4().0;
        }
        let len = if real { bytes.len() } else { bytes.len() + more };
        let frame = Frame::parse(&bytes[..bytes.len().min(192)]).unwrap();
        if let Ok(offload) = Offload::check(&header, features | mask(0) | mask(11), &frame, len) {
            let place = match offload {
                Offload::None => None,
                Offload::Checksum(place) => Some(place),
                Offload::Segment(place, gso) => {
                    prop_assert!(usize::from(gso.header_len) < len);
                    let payload = len - usize::from(gso.header_len);
                    prop_assert!(payload > usize::from(gso.size));
                    prop_assert!(payload.div_ceil(usize::from(gso.size)) <= GSO_PIECES_MAX);
                    Some(place)
                }
            };
            if let Some(place) = place {
                prop_assert!(usize::from(place.start) >= frame.header_len);
                prop_assert!(usize::from(place.start) + usize::from(place.offset) + 2 <= len);
            }
        }
    }
}
