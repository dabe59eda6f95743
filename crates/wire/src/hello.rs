//! Hello frames, by which daemons detect links to network segments that close a loop.
//!
//! A hello is a frame to a locally administered group address with IEEE's EtherType for local
//! experiments: magic and version, flags, hops, a count, the attachment of its sender, a serial
//! number, the largest attachment on its path, and at most [`RIVALS_MAX`] (32) *rivals*: other
//! attachments whose hellos the sender received on the segment. An attachment is one link of one
//! daemon to a segment. A frame of another type or version is [`Error::Foreign`], and further
//! rivals are left out. A hello that is cut off or foreign is ignored. Hellos have no
//! authentication. This module reads and writes single hellos; `ethernet::standby` sends and
//! receives them, in the thread of the group's shard, and decides which link stops forwarding;
//! `hca::switch` recognises their address.

use crate::ethernet;
use crate::field::{Reader, Truncated, Writer};

/// Destination of hellos: a locally administered group address.
pub const ADDRESS: [u8; 6] = [0x03, 0x43, 0x57, 0x53, 0x45, 0x47];
/// EtherType of hellos: IEEE 802 local experimental 1.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Magic and version.
const MAGIC: [u8; 4] = *b"CWS\x01";
/// Length of the bytes before the rivals.
const HEAD_LEN: usize = 14 + 36;
/// Length of an attachment, in bytes.
const ATTACHMENT_LEN: usize = 12;
/// Most rivals of one hello; further rivals are ignored.
pub const RIVALS_MAX: usize = 32;
/// Length of the longest hello, in bytes.
pub const LEN_MAX: usize = HEAD_LEN + RIVALS_MAX * ATTACHMENT_LEN;
/// Shortest Ethernet frame without its check sequence, in bytes.
const LEN_MIN: usize = 60;

/// Flag: the hello left by the link of its attachment, and is not forwarded.
const FLAG_NEAR: u8 = 1;

/// One link of one daemon to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SegmentAttachment {
    /// Number of the daemon, random for each group.
    pub daemon: u64,
    /// Number of the link in the daemon.
    pub link: u32,
}

/// A hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Whether the hello left by the link of its attachment.
    pub near: bool,
    /// Number of daemons that forwarded the hello.
    pub hops: u8,
    /// Attachment that sent the hello.
    pub from: SegmentAttachment,
    /// Serial number among the hellos of that attachment.
    pub serial: u32,
    /// The largest attachment on the path, both ends of each segment included; zero if none.
    pub crossed: SegmentAttachment,
}

/// The reason why a frame is not a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The hello is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The frame has another type or version.
    #[error("hello: another type or version")]
    Foreign,
}

/// Returns whether a destination address, by its [`ethernet::number`], is that of hellos.
pub const fn is_hello(destination: u64) -> bool {
    destination == ethernet::number(ADDRESS)
}

fn attachment(bytes: [u8; ATTACHMENT_LEN]) -> SegmentAttachment {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    SegmentAttachment {
        daemon: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        link: u32::from_be_bytes([i, j, k, l]),
    }
}

fn put(w: &mut Writer<'_>, attachment: SegmentAttachment) {
    w.put(attachment.daemon.to_be_bytes());
    w.put(attachment.link.to_be_bytes());
}

/// Parses a frame. Returns the hello, and the rivals that its sender knows on the segment.
///
/// # Errors
/// [`Error`] if the frame is cut off or not a hello.
pub fn parse(frame: &[u8]) -> Result<(Hello, impl Iterator<Item = SegmentAttachment> + '_), Error> {
    let mut r = Reader::new("hello", HEAD_LEN, frame)?;
    let _addresses: [u8; 12] = r.take();
    let (kind, magic): ([u8; 2], [u8; 4]) = (r.take(), r.take());
    if kind != TYPE || magic != MAGIC {
        return Err(Error::Foreign);
    }
    let [flags, hops, a, b] = r.take();
    let count = usize::from(u16::from_be_bytes([a, b])).min(RIVALS_MAX);
    let from = attachment(r.take());
    let serial = r.u32_be();
    let crossed = attachment(r.take());
    let rest = frame.get(HEAD_LEN..).unwrap_or(&[]);
    Truncated::check("rivals of a hello", count.saturating_mul(ATTACHMENT_LEN), rest.len())?;
    let rivals = rest.as_chunks().0.iter().take(count).map(|bytes| attachment(*bytes));
    let near = flags & FLAG_NEAR != 0;
    Ok((Hello { near, hops, from, serial, crossed }, rivals))
}

/// Writes a frame with the first [`RIVALS_MAX`] rivals, and returns its length in bytes.
pub fn emit(hello: &Hello, rivals: &[SegmentAttachment], frame: &mut [u8; LEN_MAX]) -> usize {
    let rivals = rivals.get(..RIVALS_MAX).unwrap_or(rivals);
    let count = u16::try_from(rivals.len()).unwrap_or(0);
    *frame = [0; LEN_MAX];
    let mut w = Writer::new(frame);
    w.put(ADDRESS);
    // A locally administered address of this daemon.
    let [_, _, _, a, b, c, d, e] = hello.from.daemon.to_be_bytes();
    w.put([0x02, a, b, c, d, e]);
    w.put(TYPE);
    w.put(MAGIC);
    w.put([if hello.near { FLAG_NEAR } else { 0 }, hello.hops]);
    w.put(count.to_be_bytes());
    put(&mut w, hello.from);
    w.put(hello.serial.to_be_bytes());
    put(&mut w, hello.crossed);
    for rival in rivals {
        put(&mut w, *rival);
    }
    LEN_MIN.max(HEAD_LEN.saturating_add(rivals.len().saturating_mul(ATTACHMENT_LEN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(daemon: u64, link: u32) -> SegmentAttachment {
        SegmentAttachment { daemon, link }
    }

    fn hello(near: bool) -> Hello {
        Hello { near, hops: 3, from: at(9, 2), serial: 4, crossed: at(u64::MAX, 7) }
    }

    #[test]
    fn hello_round_trips() {
        for count in [0, 1, RIVALS_MAX] {
            let rivals: Vec<_> = (0..count as u64).map(|n| at(n, 5)).collect();
            let mut frame = [0; LEN_MAX];
            let len = emit(&hello(count == 1), &rivals, &mut frame);
            assert!((LEN_MIN..=LEN_MAX).contains(&len));
            let (read, others) = parse(&frame[..len]).unwrap();
            assert_eq!((read, others.collect()), (hello(count == 1), rivals));
        }
    }

    #[test]
    fn hostile_frames_are_no_hellos() {
        let mut frame = [0; LEN_MAX];
        let len = emit(&hello(true), &[at(7, 7); 20], &mut frame);
        for len in 0..len {
            assert!(parse(&frame[..len]).is_err(), "{len}");
        }
        frame[14] ^= 1;
        assert!(matches!(parse(&frame[..len]), Err(Error::Foreign)));
    }
}
