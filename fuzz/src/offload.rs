//! The virtio-net header, software segmentation and checksums, compared with a simple model: sums
//! modulo 65535, word by word. Target `offload`; `unfinished` uses the same checks. Segments
//! together must carry the payload of the frame, and each checksum must be right by the model.

use causeway_ethernet::offload::segment::Segmenter;
use causeway_ethernet::offload::{OffloadPlan, plan};
use causeway_wire::frame::{Frame, HEADERS_MAX, Protocol, Version};
use causeway_wire::virtio_net::{ChecksumPlace, GSO_PIECES_MAX, Gso, Header, Offload};

use crate::Input;

/// All driver features.
pub(crate) const ALL: u64 = u64::MAX;

/// Builds a frame of any kind, usually valid, with `payload` bytes after its headers.
pub(crate) fn frame(input: &mut Input<'_>, source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
    let shape = input.u8();
    let mut bytes = [destination, source].concat();
    if shape & 1 != 0 {
        bytes.extend([0x81, 0x00, 0x00, input.u8()]);
    }
    let (v6, udp) = (shape & 2 != 0, shape & 4 != 0);
    let payload = match shape >> 3 & 7 {
        0 => 0,
        1 => usize::from(input.u8()),
        2..=5 => usize::from(input.u16() & 0x0fff),
        _ => usize::from(input.u16()),
    };
    let options = if shape & 0x40 != 0 { 4 * input.below(4) } else { 0 };
    let transport = if udp { 8 } else { 20 + options };
    let protocol = if udp { 17 } else { 6 };
    let len = (transport + payload).min(65_535 - 60);
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([1; 32]);
    } else {
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend((20 + len as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    let mut body = vec![0; len];
    for (at, byte) in body.iter_mut().enumerate() {
        *byte = (at.wrapping_mul(31) >> 3) as u8;
    }
    if udp {
        body[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    } else {
        body[12] = ((transport / 4) as u8) << 4;
        body[13] = input.u8();
    }
    bytes.extend(body);
    // Alterations that no builder would make.
    for _ in 0..input.below(4) {
        let at = usize::from(input.u8()) % bytes.len().min(HEADERS_MAX);
        bytes[at] = input.u8();
    }
    if shape & 0x80 != 0 {
        let len = usize::from(input.u16()) % (bytes.len() + 1);
        bytes.truncate(len);
    }
    bytes
}

/// Builds a header that requests an offload, usually an offload that `bytes` can have.
pub(crate) fn header(input: &mut Input<'_>, bytes: &[u8]) -> Header {
    let network = Frame::parse(bytes).ok().and_then(|frame| frame.network);
    let transport = network.and_then(|network| network.transport);
    let (Some(network), Some(transport), false) = (network, transport, input.below(8) == 0) else {
        return Header::parse(&input.array::<12>()).expect("twelve bytes");
    };
    let kind = match (transport.protocol, network.version) {
        (Protocol::Udp, _) => 5,
        (Protocol::Tcp, Version::V4) => 1,
        (Protocol::Tcp, Version::V6) => 4,
    };
    let flags = input.u8();
    Header {
        flags: flags & 3,
        gso_type: if flags & 4 != 0 { kind | flags & 0x80 } else { 0 },
        hdr_len: if flags & 8 != 0 { transport.payload as u16 } else { input.u16() },
        gso_size: if flags & 16 != 0 { u16::from(input.u8()) * 8 } else { input.u16() },
        csum_start: transport.offset as u16,
        csum_offset: match flags & 32 {
            0 => transport.protocol.checksum_offset() as u16,
            _ => input.u16(),
        },
        num_buffers: 0,
    }
}

/// Returns the sum of all big-endian words, modulo 65535; an odd last byte is the upper half of a
/// word.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let word = |two: &[u8]| u64::from(two[0]) << 8 | two.get(1).map_or(0, |&low| u64::from(low));
    bytes.chunks(2).map(word).sum::<u64>() % 65_535
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.u8();
    let features = if choice & 1 == 0 { ALL } else { input.u64() };
    let theirs = if choice & 2 == 0 { 0 } else { input.u64() };
    let bytes = match choice & 4 {
        0 => frame(&mut input, [2; 6], [4; 6]),
        _ => input.rest().to_vec(),
    };
    let header = match choice & 4 {
        0 => header(&mut input, &bytes),
        _ => Header::parse(bytes.get(..12).unwrap_or(&[0; 12])).expect("twelve bytes"),
    };
    let start = &bytes[..bytes.len().min(HEADERS_MAX)];
    let Ok(frame) = Frame::parse(start) else {
        assert!(start.len() < 14, "an Ethernet header is enough");
        return;
    };
    assert!(frame.header_len <= bytes.len());
    let Ok(offload) = Offload::check(&header, features, &frame, bytes.len()) else { return };
    // A header that is sent to a receiver must be accepted by the own check, with the same result.
    let derived = offload.to_header(1);
    assert_eq!(Offload::check(&derived, ALL, &frame, bytes.len()), Ok(offload));
    match plan(&offload, theirs) {
        OffloadPlan::Pass => {}
        OffloadPlan::Complete(place) => complete(bytes, place),
        OffloadPlan::Cut { place, gso, complete } => {
            cut(&bytes, &frame, &offload, place, gso, complete)
        }
    }
}

/// Completes the checksum of a frame and checks the result.
pub(crate) fn complete(mut bytes: Vec<u8>, place: ChecksumPlace) {
    let (start, field) = (usize::from(place.start), usize::from(place.start + place.offset));
    let before = bytes.clone();
    let whole = sum(&before[start..]);
    place.complete(&mut bytes);
    let field_value = word(&bytes, field);
    assert_eq!((field_value + whole) % 65_535, 0, "the checksum");
    assert_ne!(field_value, 0, "zero means none");
    bytes[field..field + 2].copy_from_slice(&before[field..field + 2]);
    assert!(bytes == before, "bytes other than the checksum were written");
}

/// Splits a frame into segments and checks that they carry the payload of the frame.
pub(crate) fn cut(
    bytes: &[u8],
    frame: &Frame,
    offload: &Offload,
    place: ChecksumPlace,
    gso: Gso,
    complete: bool,
) {
    let network = frame.network.expect("a checked frame");
    let transport = network.transport.expect("a checked frame");
    let start = &bytes[..bytes.len().min(HEADERS_MAX)];
    let mut segmenter =
        Segmenter::new(start, frame, place, gso, bytes.len()).expect("complete headers");
    let head = usize::from(gso.header_len);
    let field = usize::from(place.start + place.offset);
    let counted = (bytes.len() - transport.offset) as u64;
    let (mut at, mut pieces) = (head, 0_usize);
    let longest = offload.piece_len(bytes.len());
    while let Some(mut piece) = segmenter.next_segment() {
        assert_eq!(piece.payload.start, at, "segments are contiguous");
        at = piece.payload.end;
        let payload = &bytes[piece.payload.clone()];
        assert!(!payload.is_empty() && piece.len() <= longest);
        if complete {
            piece.complete(payload);
        }
        let whole = [&*piece.headers, payload].concat();
        let len = (whole.len() - transport.offset) as u64;
        // The sum over the pseudo-header, with the length of this segment instead of the frame's.
        let pseudo = word(bytes, field) + len + 65_535 - counted;
        if complete {
            let all = sum(&whole[usize::from(place.start)..]) + pseudo;
            assert_eq!(all % 65_535, 0, "the checksum of piece {pieces}");
        } else {
            assert_eq!(word(&whole, field) % 65_535, pseudo % 65_535, "the pseudo-header");
        }
        check_headers(bytes, &whole, network.offset, frame, pieces, gso);
        pieces += 1;
    }
    assert_eq!(at, bytes.len(), "all of the payload");
    assert!((2..=GSO_PIECES_MAX).contains(&pieces), "{pieces} pieces");
}

/// Checks the headers that differ between segments.
fn check_headers(bytes: &[u8], piece: &[u8], network: usize, frame: &Frame, nth: usize, gso: Gso) {
    let transport = frame.network.and_then(|network| network.transport).expect("a checked frame");
    let at = transport.offset;
    match gso.kind.version() {
        Version::V4 => {
            assert_eq!(word(piece, network + 2), (piece.len() - network) as u64, "IPv4's length");
            assert_eq!(sum(&piece[network..at]), 0, "IPv4's checksum");
            let id = (word(bytes, network + 4) + nth as u64) & 0xffff;
            assert_eq!(word(piece, network + 4), id, "IPv4's identification");
        }
        Version::V6 => {
            assert_eq!(word(piece, network + 4), (piece.len() - network - 40) as u64);
        }
    }
    match transport.protocol {
        Protocol::Udp => assert_eq!(word(piece, at + 4), (piece.len() - at) as u64),
        Protocol::Tcp => {
            let number = |bytes: &[u8]| word(bytes, at + 4) << 16 | word(bytes, at + 6);
            let done = nth as u64 * u64::from(gso.size);
            assert_eq!(number(piece), (number(bytes) + done) & 0xffff_ffff, "TCP's sequence");
        }
    }
}

/// Returns frames of every kind, for segmentation and checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..8_u8 {
        for (choice, size) in [(0_u8, 100_u8), (0, 8), (2, 60)] {
            let mut scenario = vec![choice];
            if choice & 2 != 0 {
                scenario.extend(2_u64.to_le_bytes());
            }
            scenario.push(kind | 0x10);
            if kind & 1 != 0 {
                scenario.push(7);
            }
            scenario.extend(3000_u16.to_le_bytes());
            if kind & 4 == 0 {
                scenario.push(0x18);
            }
            scenario.extend([0, 1, 1 | 4 | 8 | 16, size]);
            all.push(scenario);
        }
    }
    all
}
