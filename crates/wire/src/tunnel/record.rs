//! The records of a tunnel's text: frames, pieces of frames, heartbeats and the directory.
//!
//! A record is a header of 4 bytes (type, hops, length) and its body. The upper bit of the type,
//! [`BARE`], says of a frame that its metadata is all zero and left out. A type of 0 ends the
//! text: what follows is padding. Records of unknown type are looked past. The upper bit of the
//! hops, [`FLOODED`], says that a number of 8 bytes follows the frame, which is the same in all
//! copies of it: in fragments it counts as the frame's end.

use crate::field::{Reader, Truncated, Writer};
use crate::virtio_net::Header as Metadata;

/// Length of a record's header, in bytes.
pub const HEADER_LEN: usize = 4;
/// Length of a frame's metadata, in bytes: a virtio-net header without `num_buffers`.
pub const METADATA_LEN: usize = 10;
/// Length of a fragment's own header, in bytes.
pub const FRAGMENT_LEN: usize = 12;
/// Length of a heartbeat, in bytes.
pub const ECHO_LEN: usize = 20;
/// Length of a heartbeat's answer, in bytes.
pub const ECHO_REPLY_LEN: usize = 12;
/// Length of one entry of the directory, in bytes.
pub const ENTRY_LEN: usize = 14;

/// Type: the rest is padding.
pub const PAD: u8 = 0;
/// Type: metadata and a frame.
pub const FRAME: u8 = 1;
/// Type: a piece of metadata and frame.
pub const FRAGMENT: u8 = 2;
/// Type: a heartbeat.
pub const ECHO: u8 = 3;
/// Type: a heartbeat's answer.
pub const ECHO_REPLY: u8 = 4;
/// Type: these addresses are behind me.
pub const HERE: u8 = 5;
/// Type: these addresses are no longer behind me.
pub const GONE: u8 = 6;
/// Type: tell me all addresses behind you.
pub const SYNC: u8 = 7;
/// How many datagrams came of those that were sent: [`Delivered`].
pub const DELIVERED: u8 = 8;
/// Length of a report of deliveries, in bytes.
pub const DELIVERED_LEN: usize = 8;
/// Bit of the type: the frame has no metadata.
pub const BARE: u8 = 0x80;

/// Bit of the hops: the last 8 bytes are not the frame's, but its number.
pub const FLOODED: u8 = 0x80;
/// Length of a flooded frame's number, in bytes.
pub const NUMBER_LEN: usize = 8;

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type, without [`BARE`].
    pub kind: u8,
    /// Whether a frame goes without metadata.
    pub bare: bool,
    /// Daemons that passed a frame on so far, and [`FLOODED`].
    pub hops: u8,
    /// Length of the body, in bytes.
    pub len: u16,
}

impl Header {
    /// The header's bytes.
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let [high, low] = self.len.to_be_bytes();
        let bare = if self.bare { BARE } else { 0 };
        [self.kind | bare, self.hops, high, low]
    }

    /// Takes the next record off `text`: its header and body. None at the end and at padding.
    ///
    /// # Errors
    /// [`Truncated`] when the header or the body is not all there.
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

/// A frame's metadata as carried; `num_buffers` is left out.
pub fn emit_metadata(metadata: &Metadata) -> [u8; METADATA_LEN] {
    let [bytes @ .., _, _] = metadata.emit();
    bytes
}

/// Takes metadata off the front of a frame's body, or of a frame put together again.
///
/// # Errors
/// [`Truncated`] when there are fewer than 10 bytes.
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

/// Where a fragment belongs; its bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The sender's number for the frame.
    pub id: u32,
    /// Where the bytes stand in metadata and frame, in bytes.
    pub offset: u32,
    /// Length of metadata and frame, in bytes.
    pub total: u32,
}

impl Fragment {
    /// Reads the header of a fragment, and gives the bytes that follow it.
    ///
    /// # Errors
    /// [`Truncated`] when there are fewer than 12 bytes.
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), Truncated> {
        let mut r = Reader::new("fragment", FRAGMENT_LEN, body)?;
        let fragment = Self { id: r.u32_be(), offset: r.u32_be(), total: r.u32_be() };
        Ok((fragment, body.get(FRAGMENT_LEN..).unwrap_or(&[])))
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; FRAGMENT_LEN] {
        let mut bytes = [0; FRAGMENT_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.id.to_be_bytes());
        w.put(self.offset.to_be_bytes());
        w.put(self.total.to_be_bytes());
        bytes
    }
}

/// A heartbeat. The record may be followed by padding, to try out a datagram's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The sender's clock, in ns; comes back as it is.
    pub time: u64,
    /// Length of the datagram, in bytes; comes back as it is.
    pub size: u32,
    /// Sum over the addresses behind the sender.
    pub digest: u64,
}

impl Echo {
    /// Reads a heartbeat.
    ///
    /// # Errors
    /// [`Truncated`] when there are fewer than 20 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("heartbeat", ECHO_LEN, body)?;
        Ok(Self {
            time: u64::from_be_bytes(r.take()),
            size: r.u32_be(),
            digest: u64::from_be_bytes(r.take()),
        })
    }

    /// The heartbeat's bytes.
    pub fn emit(&self) -> [u8; ECHO_LEN] {
        let mut bytes = [0; ECHO_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.time.to_be_bytes());
        w.put(self.size.to_be_bytes());
        w.put(self.digest.to_be_bytes());
        bytes
    }
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoReply {
    /// [`Echo::time`].
    pub time: u64,
    /// [`Echo::size`].
    pub size: u32,
}

impl EchoReply {
    /// Reads an answer.
    ///
    /// # Errors
    /// [`Truncated`] when there are fewer than 12 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("heartbeat's answer", ECHO_REPLY_LEN, body)?;
        Ok(Self { time: u64::from_be_bytes(r.take()), size: r.u32_be() })
    }

    /// The answer's bytes.
    pub fn emit(&self) -> [u8; ECHO_REPLY_LEN] {
        let mut bytes = [0; ECHO_REPLY_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.time.to_be_bytes());
        w.put(self.size.to_be_bytes());
        bytes
    }
}

/// How many datagrams came since the report before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// How many were sent, by their counters.
    pub sent: u32,
    /// How many of them came.
    pub came: u32,
}

impl Delivered {
    /// Reads a report.
    ///
    /// # Errors
    /// [`Truncated`] when there are fewer than 8 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("report of deliveries", DELIVERED_LEN, body)?;
        Ok(Self { sent: r.u32_be(), came: r.u32_be() })
    }

    /// The report's bytes.
    pub fn emit(&self) -> [u8; DELIVERED_LEN] {
        let mut bytes = [0; DELIVERED_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.sent.to_be_bytes());
        w.put(self.came.to_be_bytes());
        bytes
    }
}

/// An address, and since when it is where its sender says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// Grows with every move of the address; the largest is right.
    pub epoch: u64,
}

impl Entry {
    /// The entries of a body of [`HERE`] or [`GONE`], one after another.
    ///
    /// # Errors
    /// [`Truncated`] when the last is not all there.
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

    /// The entry's bytes.
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
    fn records_follow_each_other_until_padding() {
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
    fn metadata_is_virtios_own() {
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
