//! Software segmentation (TSO and USO, virtio 1.3, 5.1.6.2).
//!
//! Only headers are built here: a segment is its own headers and a range of the frame's payload,
//! which stays in place. The same code therefore cuts a frame in a private buffer and a frame that
//! is copied from guest to guest. Callers take the segments in order: `ethernet` continues in a
//! later turn by [`Segmenter::skip`], `mlx5` takes all in one call and drops the rest if a segment
//! finds no receive entry, `tap` takes all until the kernel refuses one. A segmenter is a value of
//! one frame and one thread.
//!
//! The module copies no payload, completes a checksum only on request, and checks neither `place`
//! nor `gso`: the caller must have validated both ([`Offload::check`]). Every segment except the
//! last has `gso.size` payload bytes. IPv4 identifications count up by 1; IPv6 extension headers
//! are repeated unchanged.

use std::ops::Range;

use super::{ChecksumPlace, Gso, Offload};
use crate::checksum::{self, Sum};
use crate::frame::{Frame, HEADERS_MAX, Protocol, Version};
use crate::{ipv6, tcp};

/// Cuts one frame into segments, first to last.
#[derive(Debug)]
pub struct Segmenter {
    /// Headers of the current segment.
    headers: [u8; HEADERS_MAX],
    /// Position of the checksum.
    place: ChecksumPlace,
    /// Segment size, header length and kind.
    gso: Gso,
    /// Offsets of the IP and transport headers, in bytes from the frame's start.
    network: usize,
    transport: usize,
    /// Length of the whole frame, and offset of the next segment's payload.
    len: usize,
    at: usize,
    /// Header values of the original frame.
    first: FirstHeaders,
}

/// Header values of the original frame that the segments continue.
#[derive(Debug, Clone, Copy)]
struct FirstHeaders {
    /// IPv4 identification.
    id: u16,
    /// TCP sequence number.
    sequence: u32,
    /// TCP flags.
    flags: u8,
    /// Sum over the pseudo-header, and the transport length that it covers.
    partial: u16,
    counted: u16,
}

/// Offsets of the flags and the sequence number in a TCP header.
const TCP_FLAGS: usize = 13;
const TCP_SEQUENCE: usize = 4;

/// One segment, ready to be sent.
#[derive(Debug)]
pub struct GsoSegment<'a> {
    /// The segment's headers, with an incomplete checksum.
    pub headers: &'a mut [u8],
    /// Range of its payload in the frame.
    pub payload: Range<usize>,
    /// Position of its checksum.
    pub place: ChecksumPlace,
}

impl GsoSegment<'_> {
    /// Completes the checksum over the headers and `payload`, the bytes of [`Self::payload`].
    pub fn complete(&mut self, payload: &[u8]) {
        self.place.complete_split(self.headers, payload);
    }

    /// Returns the offload of a segment whose checksum is not completed.
    pub fn offload(&self) -> Offload {
        Offload::Checksum(self.place)
    }

    /// Returns the length of the segment, in bytes.
    pub fn len(&self) -> usize {
        self.headers.len().saturating_add(self.payload.len())
    }

    /// Returns whether the payload is empty, which no segment's is.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }
}

impl Segmenter {
    /// Prepares to cut a frame of `len` bytes. Returns `None` if `start` lacks some of the headers.
    ///
    /// `start` holds the frame's first bytes with all headers. The caller must have parsed `frame`
    /// from it and checked `place` and `gso` against it.
    pub fn new(
        start: &[u8],
        frame: &Frame,
        place: ChecksumPlace,
        gso: Gso,
        len: usize,
    ) -> Option<Self> {
        let network = frame.network?;
        let transport = network.transport?;
        let header_len = usize::from(gso.header_len);
        let mut headers = [0; HEADERS_MAX];
        headers.get_mut(..header_len)?.copy_from_slice(start.get(..header_len)?);
        let first = FirstHeaders {
            id: u16::from_be_bytes(get(&headers, network.offset.saturating_add(4))),
            sequence: u32::from_be_bytes(get(
                &headers,
                transport.offset.saturating_add(TCP_SEQUENCE),
            )),
            flags: u8::from_be_bytes(get(&headers, transport.offset.saturating_add(TCP_FLAGS))),
            partial: u16::from_be_bytes(get(&headers, place.field())),
            counted: u16::try_from(len.checked_sub(transport.offset)?).ok()?,
        };
        Some(Self {
            headers,
            place,
            gso,
            network: network.offset,
            transport: transport.offset,
            len,
            at: header_len,
            first,
        })
    }

    /// Continues after the first `pieces` segments of the frame, which were delivered before.
    pub fn skip(&mut self, pieces: usize) {
        let done = pieces.saturating_mul(usize::from(self.gso.size));
        self.at = usize::from(self.gso.header_len).saturating_add(done);
    }

    /// Returns whether a segment is left.
    pub fn has_more(&self) -> bool {
        self.at < self.len
    }

    /// Returns the next segment, or `None` after the last.
    pub fn next_segment(&mut self) -> Option<GsoSegment<'_>> {
        if self.at >= self.len {
            return None;
        }
        let header_len = usize::from(self.gso.header_len);
        let end = self.at.saturating_add(usize::from(self.gso.size)).min(self.len);
        let payload = self.at..end;
        let done = self.at.saturating_sub(header_len);
        let len = header_len.saturating_add(payload.len());
        self.at = end;

        let counted = clamp(len.saturating_sub(self.transport));
        // The sum is adjusted, not recomputed: behind an IPv6 routing header, the pseudo-header has
        // another destination than the IPv6 header.
        let partial = !checksum::update(!self.first.partial, self.first.counted, counted);
        put(&mut self.headers, self.place.field(), partial.to_be_bytes());
        match self.gso.kind.protocol() {
            Protocol::Tcp => self.tcp(done, end == self.len),
            Protocol::Udp => self.udp(len),
        }
        match self.gso.kind.version() {
            Version::V4 => self.ipv4(done, len),
            Version::V6 => self.ipv6(len),
        }
        let headers = self.headers.get_mut(..header_len)?;
        Some(GsoSegment { headers, payload, place: self.place })
    }

    /// Sets sequence number and flags of a segment at payload offset `done`.
    fn tcp(&mut self, done: usize, last: bool) {
        let sequence = self.first.sequence.wrapping_add(u32::try_from(done).unwrap_or(0));
        put(&mut self.headers, self.transport.saturating_add(TCP_SEQUENCE), sequence.to_be_bytes());
        let [_, end_flags] = (tcp::FIN | tcp::PSH).to_be_bytes();
        let [_, cwr] = tcp::CWR.to_be_bytes();
        let mut flags = self.first.flags;
        if !last {
            flags &= !end_flags;
        }
        if done > 0 {
            flags &= !cwr;
        }
        put(&mut self.headers, self.transport.saturating_add(TCP_FLAGS), [flags]);
    }

    /// Sets the length of a UDP header; `len` is the length of the segment.
    fn udp(&mut self, len: usize) {
        let len = clamp(len.saturating_sub(self.transport));
        put(&mut self.headers, self.transport.saturating_add(4), len.to_be_bytes());
    }

    /// Sets length, identification and checksum of an IPv4 header.
    fn ipv4(&mut self, done: usize, len: usize) {
        let total = clamp(len.saturating_sub(self.network));
        let index = done.checked_div(usize::from(self.gso.size)).unwrap_or(0);
        let id = self.first.id.wrapping_add(clamp(index));
        put(&mut self.headers, self.network.saturating_add(2), total.to_be_bytes());
        put(&mut self.headers, self.network.saturating_add(4), id.to_be_bytes());
        let field = self.network.saturating_add(10);
        put(&mut self.headers, field, [0, 0]);
        let mut sum = Sum::new();
        sum.add(self.headers.get(self.network..self.transport).unwrap_or(&[]));
        put(&mut self.headers, field, sum.finish().to_be_bytes());
    }

    /// Sets the payload length of an IPv6 header.
    fn ipv6(&mut self, len: usize) {
        let payload = len.saturating_sub(self.network).saturating_sub(ipv6::HEADER_LEN);
        put(&mut self.headers, self.network.saturating_add(4), clamp(payload).to_be_bytes());
    }
}

/// Converts a length to a 16-bit field; every length here is at most that of the frame.
fn clamp(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// Overwrites the bytes from offset `at` on. No effect if the headers end before them.
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *place = value;
    }
}

/// Returns the bytes from offset `at` on, or zeroes if the headers end before them.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}
