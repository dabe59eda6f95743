//! Records of a tunnel's plaintext: frames, fragments, heartbeats, directory entries, reports of
//! delivered datagrams, and datagrams of the stream protocol.
//!
//! A record is a header of 4 bytes (type, hops, length) and a body of at most 65,535 bytes; hops
//! are 0 to 127. A record that is cut off is an error, and the caller drops the rest of the
//! datagram. The upper bit of the type, [`BARE`], marks a frame whose metadata is all zero and
//! omitted. Type 0 ends the plaintext: padding follows. Receivers skip records of unknown type. The
//! upper bit of the hops, [`FLOODED`], means that a flood sequence of 8 bytes follows the frame,
//! equal in all copies of the frame; in fragments it counts as the frame's end.
//!
//! `link` packs and unpacks the records of a datagram. Records of one datagram keep their order;
//! datagrams may be lost, repeated or reordered. Reassembly, limits on hops and duplicate detection
//! are not here. It packs frames in the thread of the sending group, and does all else in the shard
//! of links.

use crate::field::{Reader, Truncated, Writer};
use crate::virtio_net::Header as Metadata;

/// Length of a record's header, in bytes.
pub const HEADER_LEN: usize = 4;
/// Length of a frame's metadata, in bytes: a virtio-net header without `num_buffers`.
pub const METADATA_LEN: usize = 10;
/// Length of a fragment's header, in bytes.
pub const FRAGMENT_LEN: usize = 12;
/// Length of a heartbeat, in bytes.
pub const ECHO_LEN: usize = 20;
/// Length of a heartbeat's reply, in bytes.
pub const ECHO_REPLY_LEN: usize = 12;
/// Length of a directory entry, in bytes.
pub const ENTRY_LEN: usize = 14;

/// Type: the rest is padding.
pub const PAD: u8 = 0;
/// Type: metadata and a frame.
pub const FRAME: u8 = 1;
/// Type: a fragment of metadata and frame.
pub const FRAGMENT: u8 = 2;
/// Type: a heartbeat.
pub const ECHO: u8 = 3;
/// Type: a heartbeat's reply.
pub const ECHO_REPLY: u8 = 4;
/// Type: addresses that the sender advertises.
pub const HERE: u8 = 5;
/// Type: addresses that the sender withdraws.
pub const GONE: u8 = 6;
/// Type: a request to advertise all addresses.
pub const SYNC: u8 = 7;
/// Type: a report of delivered datagrams ([`Delivered`]).
pub const DELIVERED: u8 = 8;
/// Type: a datagram of the stream protocol ([`crate::multiplex`]), by which the groups of two
/// daemons carry sockets. Daemons without it skip the record.
pub const SEGMENT: u8 = 9;
/// Type: the sender's end of the tunnel is *on demand*: it goes dormant without traffic. The body
/// is one byte: [`AWAKE`], or [`DORMANT`] if the sender has just gone dormant. Daemons without it
/// skip the record, and the sender then stays awake.
pub const ON_DEMAND: u8 = 10;
/// Body of [`ON_DEMAND`]: the sender may go dormant.
pub const AWAKE: u8 = 0;
/// Body of [`ON_DEMAND`]: the sender has gone dormant and no longer answers on the session.
pub const DORMANT: u8 = 1;
/// Length of a delivery report, in bytes.
pub const DELIVERED_LEN: usize = 8;
/// Bit of the type: the frame's metadata is omitted.
pub const BARE: u8 = 0x80;

/// Bit of the hops: the last 8 bytes are a flood sequence, not part of the frame.
pub const FLOODED: u8 = 0x80;
/// Length of a flood sequence, in bytes.
pub const NUMBER_LEN: usize = 8;

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type, without [`BARE`].
    pub kind: u8,
    /// Whether the frame's metadata is omitted.
    pub bare: bool,
    /// Number of daemons that forwarded the frame so far, and [`FLOODED`].
    pub hops: u8,
    /// Length of the body, in bytes.
    pub len: u16,
}

impl Header {
    /// Encodes the header.
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let [high, low] = self.len.to_be_bytes();
        let bare = if self.bare { BARE } else { 0 };
        [self.kind | bare, self.hops, high, low]
    }

    /// Splits the next record off `text`: header and body. Returns `None` at the end and at
    /// padding.
    ///
    /// # Errors
    /// [`Truncated`] if the header or the body is incomplete.
    pub fn next<'a>(text: &mut &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Truncated> {
        let Some(&first) = text.first() else { return Ok(None) };
        if first == PAD {
            *text = &[];
            return Ok(None);
        }
        let mut r = Reader::new("record", HEADER_LEN, text)?;
        let [kind, hops] = r.take();
        let header = Self { kind: kind & !BARE, bare: kind & BARE != 0, hops, len: r.u16_be() };
        let len = usize::from(header.len);
        let behind = text.get(HEADER_LEN..).unwrap_or(&[]);
        let Some((body, rest)) = behind.split_at_checked(len) else {
            return Err(Truncated { what: "record's body", need: len, have: behind.len() });
        };
        *text = rest;
        Ok(Some((header, body)))
    }
}

/// Encodes a frame's metadata, without `num_buffers`.
pub fn emit_metadata(metadata: &Metadata) -> [u8; METADATA_LEN] {
    let [bytes @ .., _, _] = metadata.emit();
    bytes
}

/// Splits the metadata off a frame's body or off a reassembled frame.
///
/// # Errors
/// [`Truncated`] if the frame is not `bare` and `body` is shorter than 10 bytes.
pub fn split_metadata(bare: bool, body: &[u8]) -> Result<(Metadata, &[u8]), Truncated> {
    if bare {
        return Ok((Metadata::default(), body));
    }
    let Some((first, frame)) = body.split_first_chunk::<METADATA_LEN>() else {
        return Err(Truncated { what: "metadata", need: METADATA_LEN, have: body.len() });
    };
    let mut r = Reader::new("metadata", METADATA_LEN, first)?;
    let [flags, gso_type] = r.take();
    let metadata = Metadata {
        flags,
        gso_type,
        hdr_len: r.u16_le(),
        gso_size: r.u16_le(),
        csum_start: r.u16_le(),
        csum_offset: r.u16_le(),
        num_buffers: 0,
    };
    Ok((metadata, frame))
}

/// The header of a fragment; its bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The sender's identifier of the frame.
    pub id: u32,
    /// Offset of the bytes in metadata and frame, in bytes.
    pub offset: u32,
    /// Length of metadata and frame, in bytes.
    pub total: u32,
}

impl Fragment {
    /// Parses a fragment's header. Returns it with the bytes that follow.
    ///
    /// # Errors
    /// [`Truncated`] if `body` is shorter than 12 bytes.
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), Truncated> {
        let mut r = Reader::new("fragment", FRAGMENT_LEN, body)?;
        let fragment = Self { id: r.u32_be(), offset: r.u32_be(), total: r.u32_be() };
        Ok((fragment, body.get(FRAGMENT_LEN..).unwrap_or(&[])))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; FRAGMENT_LEN] {
        let mut bytes = [0; FRAGMENT_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.id.to_be_bytes());
        w.put(self.offset.to_be_bytes());
        w.put(self.total.to_be_bytes());
        bytes
    }
}

/// A heartbeat. Padding may follow the record, to probe a datagram length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The sender's clock, in nanoseconds; returned unchanged in the reply.
    pub time: u64,
    /// Length of the datagram, in bytes; returned unchanged in the reply.
    pub size: u32,
    /// Digest of the addresses that the sender advertises.
    pub digest: u64,
}

impl Echo {
    /// Parses a heartbeat.
    ///
    /// # Errors
    /// [`Truncated`] if `body` is shorter than 20 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("heartbeat", ECHO_LEN, body)?;
        Ok(Self {
            time: u64::from_be_bytes(r.take()),
            size: r.u32_be(),
            digest: u64::from_be_bytes(r.take()),
        })
    }

    /// Encodes the heartbeat.
    pub fn emit(&self) -> [u8; ECHO_LEN] {
        let mut bytes = [0; ECHO_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.time.to_be_bytes());
        w.put(self.size.to_be_bytes());
        w.put(self.digest.to_be_bytes());
        bytes
    }
}

/// The reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoReply {
    /// [`Echo::time`].
    pub time: u64,
    /// [`Echo::size`].
    pub size: u32,
}

impl EchoReply {
    /// Parses a reply.
    ///
    /// # Errors
    /// [`Truncated`] if `body` is shorter than 12 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("heartbeat's answer", ECHO_REPLY_LEN, body)?;
        Ok(Self { time: u64::from_be_bytes(r.take()), size: r.u32_be() })
    }

    /// Encodes the reply.
    pub fn emit(&self) -> [u8; ECHO_REPLY_LEN] {
        let mut bytes = [0; ECHO_REPLY_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.time.to_be_bytes());
        w.put(self.size.to_be_bytes());
        bytes
    }
}

/// Delivery report: datagrams received since the previous report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Number of datagrams that the peer sent, by their counters.
    pub sent: u32,
    /// Number of these that arrived.
    pub came: u32,
}

impl Delivered {
    /// Parses a report.
    ///
    /// # Errors
    /// [`Truncated`] if `body` is shorter than 8 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("report of deliveries", DELIVERED_LEN, body)?;
        Ok(Self { sent: r.u32_be(), came: r.u32_be() })
    }

    /// Encodes the report.
    pub fn emit(&self) -> [u8; DELIVERED_LEN] {
        let mut bytes = [0; DELIVERED_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.sent.to_be_bytes());
        w.put(self.came.to_be_bytes());
        bytes
    }
}

/// A directory entry: an address that its sender advertises, with its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// Epoch: grows with every move of the address; the largest epoch is valid.
    pub epoch: u64,
}

impl Entry {
    /// Returns the entries of a body of [`HERE`] or [`GONE`].
    ///
    /// # Errors
    /// [`Truncated`] if the last entry is incomplete.
    pub fn all(body: &[u8]) -> Result<impl Iterator<Item = Self> + '_, Truncated> {
        let chunks = body.chunks_exact(ENTRY_LEN);
        match chunks.remainder().len() {
            0 => {}
            have => return Err(Truncated { what: "directory entry", need: ENTRY_LEN, have }),
        }
        Ok(chunks.filter_map(|chunk| {
            let mut r = Reader::new("directory entry", ENTRY_LEN, chunk).ok()?;
            Some(Self { mac: r.take(), epoch: u64::from_be_bytes(r.take()) })
        }))
    }

    /// Encodes the entry.
    pub fn emit(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.mac);
        w.put(self.epoch.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tunnel_records_follow_each_other_until_padding() {
        let mut text = Vec::new();
        text.extend(Header { kind: FRAME, bare: true, hops: 3, len: 2 }.emit());
        text.extend([7, 8]);
        text.extend(Header { kind: 99, bare: false, hops: 0, len: 0 }.emit());
        text.extend([PAD, 1, 2, 3, 4]);
        let mut rest = &text[..];
        let (first, body) = Header::next(&mut rest).unwrap().unwrap();
        assert_eq!(first, Header { kind: FRAME, bare: true, hops: 3, len: 2 });
        assert_eq!(body, [7, 8]);
        assert_eq!(Header::next(&mut rest).unwrap().unwrap().0.kind, 99);
        assert_eq!(Header::next(&mut rest), Ok(None));
        assert_eq!(Header::next(&mut rest), Ok(None));
    }

    #[test]
    fn hostile_lengths_are_refused() {
        for (text, need) in [(&[1, 0, 0][..], 4), (&[1, 0, 0, 3, 1, 2][..], 3)] {
            let error = Header::next(&mut &*text).unwrap_err();
            assert_eq!(error.need, need);
        }
        assert!(split_metadata(false, &[0; 9]).is_err());
        assert!(split_metadata(true, &[]).is_ok());
        assert!(Fragment::parse(&[0; 11]).is_err());
        assert!(Echo::parse(&[0; 19]).is_err());
        assert!(EchoReply::parse(&[0; 11]).is_err());
        assert!(Entry::all(&[0; 15]).is_err());
    }

    #[test]
    fn metadata_is_a_virtio_net_header_without_num_buffers() {
        let metadata = Metadata {
            flags: 1,
            gso_type: 1,
            hdr_len: 54,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 0,
        };
        let bytes = emit_metadata(&metadata);
        assert_eq!(bytes[..], metadata.emit()[..10]);
        assert_eq!(split_metadata(false, &bytes), Ok((metadata, &[][..])));
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((fragment, rest)) = Fragment::parse(&bytes) {
                prop_assert_eq!([&fragment.emit()[..], rest].concat(), bytes.clone());
            }
            if let Ok(echo) = Echo::parse(&bytes) {
                prop_assert_eq!(&echo.emit()[..], &bytes[..ECHO_LEN]);
            }
            if let Ok(reply) = EchoReply::parse(&bytes) {
                prop_assert_eq!(&reply.emit()[..], &bytes[..ECHO_REPLY_LEN]);
            }
            if let Ok(entries) = Entry::all(&bytes) {
                prop_assert_eq!(entries.flat_map(|e| e.emit()).collect::<Vec<_>>(), bytes.clone());
            }
            if let Ok((metadata, frame)) = split_metadata(false, &bytes) {
                prop_assert_eq!([&emit_metadata(&metadata)[..], frame].concat(), bytes.clone());
            }
            let mut rest = &bytes[..];
            while let Ok(Some((header, body))) = Header::next(&mut rest) {
                prop_assert_eq!(usize::from(header.len), body.len());
            }
        }
    }
}
