//! Frames that carry their sender and number: frames of an experimental EtherType, or TCP segments
//! for segmentation offload.
//!
//! [`super::guest`] and [`crate::lan`] make frames to send, and turn received frames into events
//! for the tape by [`read`], which finds the sender and number in the content and not in the
//! addresses. The payload is that of [`crate::bytes`]. A received frame with another EtherType than
//! the experimental one is read as TCP. A frame that is too short for its format is `None`, which
//! the caller reports as a violation; a frame with wrong headers or checksums is an event that is
//! not sound. The functions are pure. Frames are built with valid headers, whatever the length: the
//! caller keeps to the MTU, or sends a longer frame that must be dropped.

use causeway_attach::native::NET_HEADER_BYTES;
use causeway_wire::checksum;
use causeway_wire::virtio_net::{GSO_NONE, GSO_TCPV4, HDR_F_NEEDS_CSUM, Header};

use crate::bytes;
use crate::check::frames::key;
use crate::event::{Event, Place};

/// The EtherType for local experiments (IEEE 802).
const KIND: [u8; 2] = [0x88, 0xb5];
const IPV4: [u8; 2] = [8, 0];
const ETHERNET: usize = 14;
/// Length of the Ethernet, IPv4 and TCP headers.
const HEADERS: usize = ETHERNET + 20 + 20;
/// Length of the Ethernet header, sender and frame number.
const PLAIN: usize = ETHERNET + 4;
const TCP: u8 = 6;

/// Returns the MAC address of a guest, which is the same in every stage.
pub fn mac(guest: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, guest + 1]
}

/// Builds an Ethernet frame with `len` bytes of payload.
pub fn plain(from: Place, to: [u8; 6], serial: u16, len: usize) -> Vec<u8> {
    let [low, high] = serial.to_le_bytes();
    let head = [from.stage, from.guest, low, high];
    let mut frame = [&to[..], &mac(from.guest), &KIND, &head].concat();
    bytes::append(key(from, serial), 0, len, &mut frame);
    frame
}

/// Builds a TCP segment with `len` bytes of payload and a partial checksum. If `size` is not 0, the
/// segment is to be split into segments of `size` bytes. The TCP sequence number carries the frame
/// number and the payload offset.
pub fn tcp(from: Place, to: [u8; 6], serial: u16, len: usize, size: u16) -> (Header, Vec<u8>) {
    let source = [10, from.stage, 0, from.guest];
    let destination = [10, from.stage, 1, to[5]];
    let total = (HEADERS - ETHERNET + len) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0].to_vec();
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip.extend(source);
    ip.extend(destination);
    let sum = checksum::of(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut segment = [0, 7, 0, 7].to_vec();
    segment.extend((u32::from(serial) << 16).to_be_bytes());
    segment.extend([0, 0, 0, 1, 0x50, 0x10, 16, 0, 0, 0, 0, 0]);
    let pseudo = checksum::pseudo_v4(source, destination, TCP, total - 20).partial();
    segment[16..18].copy_from_slice(&pseudo.to_be_bytes());
    let mut frame = [&to[..], &mac(from.guest), &IPV4, &ip, &segment].concat();
    bytes::append(key(from, serial), 0, len, &mut frame);
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: if size == 0 { GSO_NONE } else { GSO_TCPV4 },
        hdr_len: HEADERS as u16,
        gso_size: size,
        csum_start: (ETHERNET + 20) as u16,
        csum_offset: 16,
        num_buffers: 0,
    };
    (header, frame)
}

/// Parses a received frame into an event. `takes_partial` and `takes_large`: the receiver
/// negotiated partial checksums and large frames.
pub fn read(
    at: Place,
    header: &[u8; NET_HEADER_BYTES],
    frame: &[u8],
    (takes_partial, takes_large): (bool, bool),
) -> Option<Event> {
    let header = Header::parse(header).ok()?;
    let large = header.gso_type != GSO_NONE;
    let partial = header.flags & HDR_F_NEEDS_CSUM != 0;
    let mut sound = (takes_partial || !partial) && (takes_large || !large);
    let kind = frame.get(12..14)?;
    if kind == KIND {
        let [stage, guest, low, high] = *frame.get(ETHERNET..)?.first_chunk()?;
        let payload = frame.get(PLAIN..)?;
        sound &= !partial && !large;
        return Some(Event::FrameGot {
            at,
            from: Place { stage, guest },
            serial: u16::from_le_bytes([low, high]),
            offset: 0,
            len: payload.len() as u32,
            sum: bytes::sum(payload),
            sound,
        });
    }
    let source: [u8; 4] = *frame.get(26..)?.first_chunk()?;
    let destination: [u8; 4] = *frame.get(30..)?.first_chunk()?;
    let ip = frame.get(ETHERNET..ETHERNET + 20)?;
    let segment = frame.get(ETHERNET + 20..)?;
    let payload = frame.get(HEADERS..)?;
    let [s0, s1, o0, o1] = *segment.get(4..)?.first_chunk()?;
    let mut sum = checksum::pseudo_v4(source, destination, TCP, segment.len() as u16);
    let field = u16::from_be_bytes(*segment.get(16..)?.first_chunk()?);
    let right = if partial {
        field == sum.partial()
    } else {
        sum.add(segment);
        sum.finish() == 0
    };
    let total = u16::from_be_bytes(*ip.get(2..)?.first_chunk()?);
    sound &= right && checksum::of(ip) == 0 && usize::from(total) + ETHERNET == frame.len();
    Some(Event::FrameGot {
        at,
        from: Place { stage: source[1], guest: source[3] },
        serial: u16::from_be_bytes([s0, s1]),
        offset: u32::from(u16::from_be_bytes([o0, o1])),
        len: payload.len() as u32,
        sum: bytes::sum(payload),
        sound,
    })
}
