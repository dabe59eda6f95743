//! The virtio-net header, and cutting and checksums in software, against a plain model: sums
//! modulo 65535, one word at a time.

use causeway_ethernet::offload::segment::Segmenter;
use causeway_ethernet::offload::{OffloadPlan, plan};
use causeway_wire::frame::{Frame, HEADERS_MAX, Protocol, Version};
use causeway_wire::virtio_net::{ChecksumPlace, GSO_PIECES_MAX, Gso, Header, Offload};

use crate::Input;

/// Every feature that a driver can have.
pub(crate) const ALL: u64 = u64::MAX;

/// A frame of any kind, mostly with sense; `payload` bytes behind its headers.
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
    // And then what no builder would write.
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

/// A header that asks for something, mostly what `bytes` could have.
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

/// The sum of all big-endian words, modulo 65535; an odd last byte is a word's first half.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let word = |two: &[u8]| u64::from(two[0]) << 8 | two.get(1).map_or(0, |&low| u64::from(low));
    bytes.chunks(2).map(word).sum::<u64>() % 65_535
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Plays one input.
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
    // What we tell a receiver, we would take ourselves, to the same end.
    let told = offload.to_header(1);
    assert_eq!(Offload::check(&told, ALL, &frame, bytes.len()), Ok(offload));
    match plan(&offload, theirs) {
        OffloadPlan::Pass => {}
        OffloadPlan::Complete(place) => complete(bytes, place),
        OffloadPlan::Cut { place, gso, complete } => {
            cut(&bytes, &frame, &offload, place, gso, complete)
        }
    }
}

/// Completes a frame's checksum, which is right then.
pub(crate) fn complete(mut bytes: Vec<u8>, place: ChecksumPlace) {
    let (start, field) = (usize::from(place.start), usize::from(place.start + place.offset));
    let before = bytes.clone();
    let whole = sum(&before[start..]);
    place.complete(&mut bytes);
    let field_value = word(&bytes, field);
    assert_eq!((field_value + whole) % 65_535, 0, "the checksum");
    assert_ne!(field_value, 0, "zero means none");
    bytes[field..field + 2].copy_from_slice(&before[field..field + 2]);
    assert!(bytes == before, "nothing but the checksum was written");
}

/// Cuts a frame into pieces, which say together what it says.
pub(crate) fn cut(
    bytes: &[u8],
    frame: &Frame,
    offload: &Offload,
    place: ChecksumPlace,
    gso: Gso,
    complete: bool,
) {
    let network = frame.network.expect("it was checked");
    let transport = network.transport.expect("it was checked");
    let start = &bytes[..bytes.len().min(HEADERS_MAX)];
    let mut segmenter =
        Segmenter::new(start, frame, place, gso, bytes.len()).expect("the headers are there");
    let head = usize::from(gso.header_len);
    let field = usize::from(place.start + place.offset);
    let counted = (bytes.len() - transport.offset) as u64;
    let (mut at, mut pieces) = (head, 0_usize);
    let longest = offload.piece_len(bytes.len());
    while let Some(mut piece) = segmenter.next_segment() {
        assert_eq!(piece.payload.start, at, "pieces follow each other");
        at = piece.payload.end;
        let payload = &bytes[piece.payload.clone()];
        assert!(!payload.is_empty() && piece.len() <= longest);
        if complete {
            piece.complete(payload);
        }
        let whole = [&*piece.headers, payload].concat();
        let len = (whole.len() - transport.offset) as u64;
        // The sum over the pseudo-header, with this piece's length in place of the frame's.
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

/// The headers that change from piece to piece.
fn check_headers(bytes: &[u8], piece: &[u8], network: usize, frame: &Frame, nth: usize, gso: Gso) {
    let transport = frame.network.and_then(|network| network.transport).expect("it was checked");
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

/// Frames of every kind, to be cut and completed.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..8_u8 {
        for (choice, size) in [(0_u8, 100_u8), (0, 8), (2, 60)] {
            let mut story = vec![choice];
            if choice & 2 != 0 {
                story.extend(2_u64.to_le_bytes());
            }
            story.push(kind | 0x10);
            if kind & 1 != 0 {
                story.push(7);
            }
            story.extend(3000_u16.to_le_bytes());
            if kind & 4 == 0 {
                story.push(0x18);
            }
            story.extend([0, 1, 1 | 4 | 8 | 16, size]);
            all.push(story);
        }
    }
    all
}
