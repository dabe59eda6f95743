//! Parsed headers: the first bytes of a frame, copied once into private memory and validated.
//!
//! `crate::classify` reads frames of guests, `crate::link_rx` frames of links. At first
//! [`HEAD_BYTES`] (64) bytes are copied; all headers (at most [`HEADERS_MAX`] (192) bytes) are
//! copied and parsed if the frame has an offload, if it goes to several receivers or to a port with
//! several receive queues, if `crate::guest_mac` exchanges addresses in them, or if a link brought
//! the frame. A header that is not complete in these 192 bytes counts as absent. Every later step
//! reads the private copy, so a guest cannot change a header after its check.
//!
//! The payload stays in the sender's memory: it may change at any time and is not checked. The
//! module checks neither the source address nor the MTU by itself, and decides nothing about
//! forwarding. Frames longer than [`FRAME_BYTES_MAX`] (65,557), frames shorter than an Ethernet
//! header, unreadable memory and invalid offload requests are refused with a [`DropReason`], under
//! which the caller drops and counts the frame. All of it runs in the dispatcher's thread of the
//! group.

use causeway_fabric::carrier::{Body, OFFLOAD_BYTES};
use causeway_memory::{Cursor, Map, Span};
use causeway_ring::Chain;
use causeway_wire::ethernet;
use causeway_wire::exchange::MacExchange;
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio::{VIRTIO_F_VERSION_1, has, mask};
use causeway_wire::virtio_net::{
    GSO_NONE, HDR_F_NEEDS_CSUM, HEADER_LEN, Header, Offload, VIRTIO_NET_F_CSUM,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
    VIRTIO_NET_F_MRG_RXBUF,
};

use crate::counters::DropReason;
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES};

/// Length of the virtio-net header without `num_buffers`, in bytes: for drivers with neither
/// VIRTIO_F_VERSION_1 nor mergeable buffers (virtio 1.3, 5.1.6.1).
const HEADER_LEN_LEGACY: usize = 10;

/// The virtio-net header and the first bytes of a frame that are always read.
const FIRST_BYTES: usize = HEADER_LEN + HEAD_BYTES;

/// The virtio-net header and all headers of a frame, in bytes.
const FIRST_BYTES_MAX: usize = HEADER_LEN + HEADERS_MAX;

/// Offloads that peers may leave to the receiver: all that a receiver may be asked for.
const ALL_OFFLOADS: u64 = mask(VIRTIO_NET_F_CSUM)
    | mask(VIRTIO_NET_F_HOST_TSO4)
    | mask(VIRTIO_NET_F_HOST_TSO6)
    | mask(VIRTIO_NET_F_HOST_ECN)
    | mask(VIRTIO_NET_F_HOST_USO);

/// Returns the length of the virtio-net header that a driver uses, in bytes.
#[inline]
pub(crate) fn header_len(features: u64) -> usize {
    let full = has(features, VIRTIO_F_VERSION_1) || has(features, VIRTIO_NET_F_MRG_RXBUF);
    if full { HEADER_LEN } else { HEADER_LEN_LEGACY }
}

/// A frame that was popped from a transmit ring, or received by a link.
#[derive(Debug, Default)]
pub(crate) struct RxFrame {
    /// The sender's descriptors; empty for a frame of a link.
    pub chain: Chain,
    /// The private headers.
    pub headers: FrameHeaders,
    /// Offset of the frame in the buffer of its link.
    pub at: usize,
    /// Links that the frame has crossed.
    pub hops: u8,
    /// Flood number, assigned when the frame is flooded to links.
    pub flood: Option<u64>,
    /// Whether the frame is pending, so that its chain is not yet returned.
    pub is_pending: bool,
}

/// The headers of a checked frame. They are private; the rest stays in the sender's memory.
#[derive(Debug, Clone)]
pub(crate) struct FrameHeaders {
    /// Room for a virtio-net header, then the frame's first bytes. A receiver gets both with one
    /// write.
    bytes: [u8; FIRST_BYTES_MAX],
    /// Number of frame bytes in `bytes`.
    head_len: usize,
    /// Length of the frame, in bytes.
    pub len: usize,
    /// Offset in the chain of the first byte after [`Self::head`].
    pub rest_at: u64,
    /// Addresses as numbers: [`ethernet::number`].
    pub destination: u64,
    /// Source address, as [`Self::destination`].
    pub source: u64,
    /// Length of the Ethernet header with its VLAN tags, in bytes.
    link_len: usize,
    /// The parsed headers, after [`Self::read_all_headers`]. Plain frames mostly do without.
    pub frame: Frame,
    /// The offload that is left to the receiver.
    pub offload: Offload,
}

impl Default for FrameHeaders {
    fn default() -> Self {
        Self {
            bytes: [0; FIRST_BYTES_MAX],
            head_len: 0,
            len: 0,
            rest_at: 0,
            destination: 0,
            source: 0,
            link_len: 0,
            frame: Frame::default(),
            offload: Offload::default(),
        }
    }
}

impl FrameHeaders {
    /// Reads a plain frame: one descriptor, no offload, no VLAN tag, not at the end of a region.
    /// Returns `false` without effect for any other frame.
    ///
    /// The read may extend beyond the descriptor. The surplus bytes belong to the same guest and
    /// are not used.
    #[inline(always)]
    pub fn read_plain(&mut self, map: &Map, chain: &Chain, features: u64) -> bool {
        let Some(Span { addr, len }) = chain.only_readable() else { return false };
        let len = len as usize;
        let long = HEADER_LEN.wrapping_add(ethernet::HEADER_LEN);
        let most = HEADER_LEN.wrapping_add(FRAME_BYTES_MAX);
        if header_len(features) != HEADER_LEN || !(long..=most).contains(&len) {
            return false;
        }
        let Some(first) = self.bytes.first_chunk_mut::<FIRST_BYTES>() else { return false };
        if !map.read_array(addr, first) {
            return false;
        }
        let [flags, gso, _, _, _, _, _, _, _, _, _, _, frame @ ..] = first;
        let (asks, gso) = (*flags & HDR_F_NEEDS_CSUM, *gso);
        let Some((destination, source, follows)) = ethernet::numbers(frame) else { return false };
        if asks != 0 || gso != GSO_NONE || ethernet::is_tag(follows) {
            return false;
        }
        (self.destination, self.source) = (destination, source);
        self.len = len.wrapping_sub(HEADER_LEN);
        self.head_len = self.len.min(HEAD_BYTES);
        self.rest_at = HEADER_LEN.wrapping_add(self.head_len) as u64;
        self.link_len = ethernet::HEADER_LEN;
        self.offload = Offload::None;
        true
    }

    /// Copies the first bytes of a chain and checks them against the negotiated features.
    ///
    /// Works in place because it runs for every frame that is not plain.
    ///
    /// # Errors
    /// Returns why the frame is refused. Only its length is valid then.
    #[inline(never)]
    pub fn read_checked(
        &mut self,
        map: &Map,
        chain: &Chain,
        features: u64,
    ) -> Result<(), DropReason> {
        let header_len = header_len(features);
        let bytes = usize::try_from(chain.readable_bytes()).unwrap_or(usize::MAX);
        self.len = bytes.saturating_sub(header_len);
        self.head_len = self.len.min(HEAD_BYTES);
        if self.len > FRAME_BYTES_MAX {
            return Err(DropReason::TooBig);
        }
        if bytes < header_len {
            return Err(DropReason::Runt);
        }
        let first = HEADER_LEN.saturating_sub(header_len)..HEADER_LEN.saturating_add(self.head_len);
        let first = self.bytes.get_mut(first).unwrap_or(&mut []);
        chain.reader().read(map, first).map_err(|_| DropReason::SenderFault)?;
        self.rest_at = first.len() as u64;
        // `flags` and `gso_type` are the first two bytes (virtio 1.3, 5.1.6).
        let plain = matches!(first, [flags, GSO_NONE, ..] if *flags & HDR_F_NEEDS_CSUM == 0);
        let header = if plain { None } else { Some(header(first, header_len)) };
        let Some((destination, source, follows)) = ethernet::numbers(self.head()) else {
            return Err(DropReason::Runt);
        };
        (self.destination, self.source) = (destination, source);
        self.link_len = ethernet::HEADER_LEN;
        if ethernet::is_tag(follows) {
            self.link_len = Frame::parse(self.head()).map_or(self.link_len, |f| f.header_len);
        }
        self.offload = Offload::None;
        let Some(header) = header else { return Ok(()) };
        self.read_all_headers(Body::Guest(map, Cursor::at(chain.readable(), self.rest_at)))?;
        let offload = Offload::check(&header, features, &self.frame, self.len);
        self.offload = offload.map_err(|_| DropReason::BadHeader)?;
        Ok(())
    }

    /// As [`Self::read_checked`], for a frame that a link brought with its offload.
    ///
    /// # Errors
    /// Returns why the frame is refused.
    pub fn read_from_link(
        &mut self,
        frame: &[u8],
        offload: &[u8; OFFLOAD_BYTES],
    ) -> Result<(), DropReason> {
        self.len = frame.len();
        self.head_len = self.len.min(HEAD_BYTES);
        if self.len > FRAME_BYTES_MAX {
            return Err(DropReason::TooBig);
        }
        let first = HEADER_LEN..HEADER_LEN.saturating_add(self.head_len);
        if let (Some(room), Some(head)) = (self.bytes.get_mut(first), frame.get(..self.head_len)) {
            room.copy_from_slice(head);
        }
        self.rest_at = self.head_len as u64;
        let Some((destination, source, follows)) = ethernet::numbers(self.head()) else {
            return Err(DropReason::Runt);
        };
        (self.destination, self.source) = (destination, source);
        self.link_len = ethernet::HEADER_LEN;
        if ethernet::is_tag(follows) {
            self.link_len = Frame::parse(self.head()).map_or(self.link_len, |f| f.header_len);
        }
        self.offload = Offload::None;
        // Forwarding may choose a receive queue by flow, which needs the transport headers.
        self.read_all_headers(Body::Private(frame.get(self.head_len..).unwrap_or(&[])))?;
        if *offload == [0; OFFLOAD_BYTES] {
            return Ok(());
        }
        let header = header(offload, OFFLOAD_BYTES);
        let offload = Offload::check(&header, ALL_OFFLOADS, &self.frame, self.len);
        self.offload = offload.map_err(|_| DropReason::BadHeader)?;
        Ok(())
    }

    /// Copies the headers that follow the first bytes, from the start of `rest`, and parses all
    /// headers.
    ///
    /// # Errors
    /// Returns why the frame is refused.
    pub fn read_all_headers(&mut self, mut rest: Body<'_>) -> Result<(), DropReason> {
        let head_len = self.len.min(HEADERS_MAX);
        let new = HEADER_LEN.saturating_add(self.head_len)..HEADER_LEN.saturating_add(head_len);
        // No byte is read twice, so checked bytes cannot change.
        if let Some(new) = self.bytes.get_mut(new) {
            rest.read(new).map_err(|_| DropReason::SenderFault)?;
            self.rest_at = self.rest_at.saturating_add(new.len() as u64);
            self.head_len = head_len;
        }
        self.frame = Frame::parse(self.head()).map_err(|_| DropReason::Runt)?;
        Ok(())
    }

    /// Exchanges two addresses in the copied headers.
    pub fn exchange(&mut self, exchange: &MacExchange) {
        let end = HEADER_LEN.saturating_add(self.head_len);
        let incomplete = match self.offload {
            Offload::None => None,
            Offload::Checksum(place) | Offload::Segment(place, _) => Some(place.field()),
        };
        if let Some(head) = self.bytes.get_mut(HEADER_LEN..end) {
            exchange.apply(head, incomplete);
        }
        if let Some((destination, source, _)) = ethernet::numbers(self.head()) {
            (self.destination, self.source) = (destination, source);
            self.frame.destination = ethernet::address(destination);
            self.frame.source = ethernet::address(source);
        }
    }

    /// Returns the frame's first bytes.
    #[inline]
    pub fn head(&self) -> &[u8] {
        let bytes = self.bytes.get(HEADER_LEN..).unwrap_or(&[]);
        bytes.get(..self.head_len).unwrap_or(&[])
    }

    /// Returns the head of a frame that is at least [`HEAD_BYTES`] long and has no more bytes
    /// copied.
    #[inline]
    pub fn full_head(&self) -> Option<&[u8; HEAD_BYTES]> {
        let head = self.bytes.get(HEADER_LEN..)?.first_chunk();
        head.filter(|_| self.head_len == HEAD_BYTES)
    }

    /// Returns a virtio-net header of `header_len` bytes for `buffers` receive buffers, followed by
    /// the head.
    #[inline]
    pub fn header_and_head(&mut self, buffers: usize, header_len: usize) -> &[u8] {
        let header = header_for(&self.offload, buffers);
        put_header(&mut self.bytes, header, header_len);
        let end = HEADER_LEN.saturating_add(self.head_len);
        self.bytes.get(HEADER_LEN.saturating_sub(header_len)..end).unwrap_or(&[])
    }

    /// Returns whether the frame, or each segment of it, fits an MTU.
    #[inline]
    pub fn fits_mtu(&self, mtu: u16) -> bool {
        let payload = self.offload.piece_len(self.len).saturating_sub(self.link_len);
        payload <= usize::from(mtu)
    }
}

/// Parses a virtio-net header of `header_len` bytes; missing fields are zero.
#[inline]
fn header(first: &[u8], header_len: usize) -> Header {
    if let Some(full) = first.first_chunk::<HEADER_LEN>()
        && header_len == HEADER_LEN
    {
        return Header::parse(full).unwrap_or_default();
    }
    let mut full = [0; HEADER_LEN];
    for (to, from) in full.iter_mut().zip(first.iter().take(header_len)) {
        *to = *from;
    }
    Header::parse(&full).unwrap_or_default()
}

/// Returns the virtio-net header of a frame in `buffers` receive buffers.
#[inline]
pub(crate) fn header_for(offload: &Offload, buffers: usize) -> [u8; HEADER_LEN] {
    offload.to_header(u16::try_from(buffers).unwrap_or(u16::MAX)).emit()
}

/// Writes the first `header_len` bytes of a header directly before byte [`HEADER_LEN`].
#[inline]
pub(crate) fn put_header(bytes: &mut [u8], header: [u8; HEADER_LEN], header_len: usize) {
    let room = bytes.get_mut(HEADER_LEN.saturating_sub(header_len)..HEADER_LEN);
    if let (Some(room), Some(header)) = (room, header.get(..header_len)) {
        room.copy_from_slice(header);
    }
}
