//! Software checksums and segmentation, verified by `etherparse` and by reassembly.

use causeway_ethernet::offload::segment::Segmenter;
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio_net::{
    ChecksumPlace, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HDR_F_NEEDS_CSUM, Header,
    Offload,
};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
struct Kind {
    v6: bool,
    tcp: bool,
    vlan: bool,
    options: bool,
}

fn kinds() -> impl Strategy<Value = Kind> {
    any::<(bool, bool, bool, bool)>().prop_map(|(v6, tcp, vlan, options)| Kind {
        v6,
        tcp,
        vlan,
        options,
    })
}

/// Returns a frame with an incomplete checksum, as a guest sends it, and the checksum's position.
fn build(kind: Kind, payload: &[u8]) -> (Vec<u8>, ChecksumPlace) {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (source, destination) = ([0xfd; 16], [0xfe; 16]);
    let v4 = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let ip = match (kind.vlan, kind.v6) {
        (false, false) => builder.ipv4(v4.0, v4.1, 64),
        (false, true) => builder.ipv6(source, destination, 64),
        (true, false) => builder.single_vlan(5.try_into().unwrap()).ipv4(v4.0, v4.1, 64),
        (true, true) => builder.single_vlan(5.try_into().unwrap()).ipv6(source, destination, 64),
    };
    let mut bytes = Vec::new();
    if kind.tcp {
        let tcp = ip.tcp(80, 4000, 0xffff_ff00, 1000).ack(7).psh().fin().cwr();
        let options: &[u8] =
            if kind.options { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] } else { &[] };
        tcp.options_raw(options).unwrap().write(&mut bytes, payload).unwrap();
    } else {
        ip.udp(80, 4000).write(&mut bytes, payload).unwrap();
    }
    let transport = Frame::parse(&bytes).unwrap().network.unwrap().transport.unwrap();
    let place = ChecksumPlace {
        start: transport.offset as u16,
        offset: transport.protocol.checksum_offset() as u16,
    };
    let len = bytes.len() - transport.offset;
    let number = transport.protocol.number();
    let pseudo = if kind.v6 {
        causeway_wire::checksum::pseudo_v6(source, destination, number, len as u32)
    } else {
        causeway_wire::checksum::pseudo_v4(v4.0, v4.1, number, len as u16)
    };
    let field = transport.offset + usize::from(place.offset);
    bytes[field..field + 2].copy_from_slice(&pseudo.partial().to_be_bytes());
    (bytes, place)
}

/// Returns whether every checksum in the frame is correct, by `etherparse`.
fn sums_are_right(bytes: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let (transport, net) = (packet.transport.unwrap(), packet.net.unwrap());
    if let NetSlice::Ipv4(ip) = &net {
        let header = ip.header().to_header();
        if header.header_checksum != header.calc_header_checksum() {
            return false;
        }
    }
    match (transport, net) {
        (TransportSlice::Tcp(tcp), NetSlice::Ipv4(ip)) => {
            let sum = tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination());
            same(sum.unwrap(), tcp.checksum())
        }
        (TransportSlice::Tcp(tcp), NetSlice::Ipv6(ip)) => {
            let sum = tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination());
            same(sum.unwrap(), tcp.checksum())
        }
        (TransportSlice::Udp(udp), NetSlice::Ipv4(ip)) => {
            let header = udp.to_header();
            let ip = ip.header().to_header();
            header.calc_checksum_ipv4(&ip, udp.payload()).unwrap() == header.checksum
        }
        (TransportSlice::Udp(udp), NetSlice::Ipv6(ip)) => {
            let header = udp.to_header();
            let ip = ip.header().to_header();
            header.calc_checksum_ipv6(&ip, udp.payload()).unwrap() == header.checksum
        }
        other => panic!("{other:?}"),
    }
}

/// Compares checksums; the two zeroes of ones' complement are equal.
fn same(a: u16, b: u16) -> bool {
    a == b || (a ^ b) == 0xffff && (a == 0 || b == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn offload_completed_checksums_are_correct(kind in kinds(), payload in vec(any::<u8>(), 0..3000)) {
        let (mut frame, place) = build(kind, &payload);
        place.complete(&mut frame);
        prop_assert!(sums_are_right(&frame));
    }

    #[test]
    fn offload_segments_reassemble_to_the_frame(
        kind in kinds(),
        seed in vec(any::<u8>(), 1..50),
        len in prop_oneof![9_usize..5000, 60_000_usize..65_400],
        size in prop_oneof![8_u16..100, 500_u16..9000],
        id: u16,
    ) {
        let size = size.max((len / 2000 + 1) as u16).max(8);
        prop_assume!(len > usize::from(size));
        let payload: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
        let (mut frame, place) = build(kind, &payload);
        let parsed = Frame::parse(&frame).unwrap();
        let network = parsed.network.unwrap();
        if !kind.v6 {
            frame[network.offset + 4..network.offset + 6].copy_from_slice(&id.to_be_bytes());
        }
        let gso_type = match (kind.tcp, kind.v6) {
            (true, false) => GSO_TCPV4 | GSO_ECN,
            (true, true) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        };
        let header = Header {
            flags: HDR_F_NEEDS_CSUM,
            gso_type,
            gso_size: size,
            csum_start: place.start,
            csum_offset: place.offset,
            ..Header::default()
        };
        let offload = Offload::check(&header, u64::MAX, &parsed, frame.len()).unwrap();
        let Offload::Segment(place, gso) = offload else { panic!("{offload:?}") };

        let start = &frame[..frame.len().min(HEADERS_MAX)];
        let mut segmenter = Segmenter::new(start, &parsed, place, gso, frame.len()).unwrap();
        let (mut again, mut index) = (Vec::new(), 0_u16);
        while let Some(mut piece) = segmenter.next_segment() {
            let body = &frame[piece.payload.clone()];
            let len_promised = piece.len();
            prop_assert!(len_promised <= offload.piece_len(frame.len()));
            // As for a receiver that completes checksums itself.
            let mut lazy = [piece.headers, body].concat();
            place.complete(&mut lazy);
            piece.complete(body);
            let whole = [piece.headers, body].concat();
            prop_assert_eq!(&lazy, &whole);
            prop_assert!(sums_are_right(&whole), "piece {}", index);

            let now = Frame::parse(&whole).unwrap();
            prop_assert_eq!(now.network.unwrap().end, whole.len());
            let packet = SlicedPacket::from_ethernet(&whole).unwrap();
            let last = piece.payload.end == frame.len();
            if let Some(NetSlice::Ipv4(ip)) = &packet.net {
                prop_assert_eq!(ip.header().identification(), id.wrapping_add(index));
            }
            match packet.transport.unwrap() {
                TransportSlice::Tcp(tcp) => {
                    prop_assert_eq!(tcp.sequence_number(), 0xffff_ff00_u32.wrapping_add(again.len() as u32));
                    prop_assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr()), (last, last, index == 0));
                    prop_assert!(tcp.ack());
                }
                TransportSlice::Udp(udp) => prop_assert_eq!(usize::from(udp.length()), body.len() + 8),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert!(last || body.len() == usize::from(size));
            again.extend_from_slice(body);
            index += 1;
        }
        prop_assert_eq!(again, payload);
    }
}

#[test]
fn offload_frames_without_a_request_are_not_cut() {
    let kind = Kind { v6: false, tcp: true, vlan: false, options: false };
    let (frame, place) = build(kind, &[1; 100]);
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_NONE,
        csum_start: place.start,
        csum_offset: place.offset,
        ..Header::default()
    };
    let parsed = Frame::parse(&frame).unwrap();
    let offload = Offload::check(&header, u64::MAX, &parsed, frame.len()).unwrap();
    assert_eq!(offload, Offload::Checksum(place));
    assert_eq!(offload.piece_len(frame.len()), frame.len());
}

#[test]
fn offload_incomplete_headers_are_not_cut() {
    let kind = Kind { v6: false, tcp: true, vlan: false, options: false };
    let (frame, place) = build(kind, &[1; 1000]);
    let parsed = Frame::parse(&frame).unwrap();
    let gso = causeway_wire::virtio_net::Gso {
        kind: causeway_wire::virtio_net::GsoKind::Tcp4 { ecn: false },
        size: 100,
        header_len: 54,
    };
    assert!(Segmenter::new(&frame[..53], &parsed, place, gso, frame.len()).is_none());
    let far = causeway_wire::virtio_net::Gso { header_len: 900, ..gso };
    assert!(Segmenter::new(&frame, &parsed, place, far, frame.len()).is_none());
}
