//! Offload requests of a guest for one frame, checked against the frame.
//!
//! [`Offload::check`] accepts a request only if the driver negotiated it. A checksum request needs
//! a position behind the Ethernet header and within the frame; a segmentation request needs headers
//! that were found ([`crate::frame`]), and positions and sizes that agree with them. Otherwise the
//! result is [`Invalid`], and the caller (`ethernet`, also for frames of links and stations;
//! `mlx5`) drops the frame. A frame is cut into at most [`GSO_PIECES_MAX`] (2,048) segments of at
//! least [`GSO_SIZE_MIN`] (8) bytes; a frame that fits one segment is not cut. Supported: TCP over
//! IPv4 and IPv6, with ECN, and UDP segmentation; other types are [`Invalid::GsoType`].
//!
//! This module completes checksums of private bytes, and cuts no frames: [`super::segment`] does,
//! for receivers that did not negotiate the offload. Bytes in guest memory are copied before the
//! check, once, so that the guest cannot change a checked header. All run in a dispatcher's turn.

use super::*;
use crate::checksum::Sum;
use crate::frame::{Frame, Protocol, Version};
use crate::virtio::has;

/// Smallest payload of a segment, in bytes: TCP's smallest segment of 48 less 40 bytes of options.
pub const GSO_SIZE_MIN: u16 = 8;
/// Most segments of one frame. A frame with more is refused as an invalid request.
pub const GSO_PIECES_MAX: usize = 2048;
/// Linux's `GSO_BY_FRAGS`, which is never a size.
const GSO_SIZE_RESERVED: u16 = 0xffff;

/// Position of an incomplete checksum: at `start + offset`, over the frame from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumPlace {
    /// Offset from the frame's start, in bytes.
    pub start: u16,
    /// Offset from `start`, in bytes.
    pub offset: u16,
}

impl ChecksumPlace {
    /// Returns the offset of the checksum in the frame, in bytes.
    pub fn field(self) -> usize {
        usize::from(self.start).saturating_add(usize::from(self.offset))
    }

    /// Completes the checksum of a private frame that [`Offload::check`] accepted.
    pub fn complete(self, frame: &mut [u8]) {
        self.complete_split(frame, &[]);
    }

    /// Like [`Self::complete`], for a frame in two parts of which the first contains the checksum.
    ///
    /// The initial value of the field, the sum over the pseudo-header, is part of the sum. Zero is
    /// written as its other form, 0xffff: UDP reserves 0 for "none", other protocols accept both.
    pub fn complete_split(self, head: &mut [u8], rest: &[u8]) {
        let mut sum = Sum::new();
        sum.add(head.get(usize::from(self.start)..).unwrap_or(&[]));
        sum.add(rest);
        let field = head.get_mut(self.field()..).and_then(|rest| rest.first_chunk_mut());
        if let Some(field) = field {
            *field = sum.finish_nonzero().to_be_bytes();
        }
    }
}

/// Kind of segmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4; `ecn`: CWR is set and belongs to the first segment.
    Tcp4 {
        /// Whether `gso_type` has the ECN bit.
        ecn: bool,
    },
    /// TCP over IPv6.
    Tcp6 {
        /// Whether `gso_type` has the ECN bit.
        ecn: bool,
    },
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

/// A segmentation request for a frame whose headers were all found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// Kind of segmentation.
    pub kind: GsoKind,
    /// Largest payload of a segment, in bytes.
    pub size: u16,
    /// Length of the headers that every segment repeats, in bytes; the payload follows.
    pub header_len: u16,
}

/// Work that remains for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offload {
    /// Nothing.
    #[default]
    None,
    /// Complete the checksum at this position.
    Checksum(ChecksumPlace),
    /// Segment the frame, and complete the checksum of each segment.
    Segment(ChecksumPlace, Gso),
}

/// The reason why a frame's header is refused. The frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The frame requests a feature that the driver did not negotiate.
    #[error("asks for {0}, which its driver did not negotiate")]
    NotNegotiated(&'static str),
    /// The checksum lies outside the frame or in its Ethernet header.
    #[error("csum_start {start} and csum_offset {offset} point outside a frame of {len} bytes")]
    ChecksumPlace {
        /// `csum_start`.
        start: u16,
        /// `csum_offset`.
        offset: u16,
        /// The frame's length, in bytes.
        len: usize,
    },
    /// Segmentation requires an incomplete checksum (5.1.6.2.1).
    #[error("gso_type {0} without NEEDS_CSUM")]
    GsoWithoutChecksum(u8),
    /// The type is unknown, or ECN is combined with a type without ECN.
    #[error("gso_type {0:#x} is unknown")]
    GsoType(u8),
    /// The size is zero, below [`GSO_SIZE_MIN`], or yields too many segments.
    #[error("gso_size {size} for a frame of {len} bytes")]
    GsoSize {
        /// `gso_size`.
        size: u16,
        /// The frame's length, in bytes.
        len: usize,
    },
    /// `hdr_len` is longer than the frame.
    #[error("hdr_len {hdr_len} in a frame of {len} bytes")]
    HeaderLen {
        /// `hdr_len`.
        hdr_len: u16,
        /// The frame's length, in bytes.
        len: usize,
    },
    /// The frame's headers contradict `gso_type`, or the checksum is not at that protocol's offset.
    #[error("gso_type {0:#x} does not agree with the frame's headers")]
    Disagrees(u8),
    /// The length field of the IP packet differs from the frame's length.
    #[error("a frame of {len} bytes whose IP packet ends at byte {end}")]
    Length {
        /// End of the IP packet by its length field, in bytes from the frame's start.
        end: usize,
        /// The frame's length, in bytes.
        len: usize,
    },
}

impl Offload {
    /// Checks `header` against the frame and the features that the sender's driver negotiated.
    ///
    /// `frame` holds the headers parsed from the frame's first bytes, `len` is the length of the
    /// whole frame in bytes. Flags other than NEEDS_CSUM are ignored (5.1.6.2.2), and so is
    /// `num_buffers`.
    ///
    /// # Errors
    /// [`Invalid`] names the wrong field.
    pub fn check(
        header: &Header,
        features: u64,
        frame: &Frame,
        len: usize,
    ) -> Result<Self, Invalid> {
        let asked = checksum_place(header, features, frame, len)?;
        if header.gso_type == GSO_NONE {
            return Ok(asked.map_or(Self::None, Self::Checksum));
        }
        let asked = asked.ok_or(Invalid::GsoWithoutChecksum(header.gso_type))?;
        if usize::from(header.hdr_len) > len {
            return Err(Invalid::HeaderLen { hdr_len: header.hdr_len, len });
        }
        let gso = gso(header, features, frame, len, asked)?;
        // A frame that fits into one segment needs no segmentation.
        let payload = len.saturating_sub(usize::from(gso.header_len));
        if payload <= usize::from(gso.size) {
            return Ok(Self::Checksum(asked));
        }
        Ok(Self::Segment(asked, gso))
    }

    /// Returns the length of the longest resulting frame, in bytes, for a frame of `len` bytes.
    pub fn piece_len(&self, len: usize) -> usize {
        match self {
            Self::None | Self::Checksum(_) => len,
            Self::Segment(_, gso) => {
                len.min(usize::from(gso.header_len).saturating_add(usize::from(gso.size)))
            }
        }
    }

    /// Returns the header for a receiver that accepts the frame unchanged.
    pub fn to_header(&self, num_buffers: u16) -> Header {
        let (asked, gso) = match *self {
            Self::None => return Header { num_buffers, ..Header::default() },
            Self::Checksum(asked) => (asked, None),
            Self::Segment(asked, gso) => (asked, Some(gso)),
        };
        Header {
            flags: HDR_F_NEEDS_CSUM,
            gso_type: gso.map_or(GSO_NONE, |g| g.kind.raw()),
            hdr_len: gso.map_or(0, |g| g.header_len),
            gso_size: gso.map_or(0, |g| g.size),
            csum_start: asked.start,
            csum_offset: asked.offset,
            num_buffers,
        }
    }
}

impl GsoKind {
    /// Returns the value of `gso_type`.
    pub const fn raw(self) -> u8 {
        match self {
            Self::Tcp4 { ecn: false } => GSO_TCPV4,
            Self::Tcp4 { ecn: true } => GSO_TCPV4 | GSO_ECN,
            Self::Tcp6 { ecn: false } => GSO_TCPV6,
            Self::Tcp6 { ecn: true } => GSO_TCPV6 | GSO_ECN,
            Self::Udp4 | Self::Udp6 => GSO_UDP_L4,
        }
    }

    /// Returns the transport protocol.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp4 { .. } | Self::Tcp6 { .. } => Protocol::Tcp,
            Self::Udp4 | Self::Udp6 => Protocol::Udp,
        }
    }

    /// Returns the IP version.
    pub const fn version(self) -> Version {
        match self {
            Self::Tcp4 { .. } | Self::Udp4 => Version::V4,
            Self::Tcp6 { .. } | Self::Udp6 => Version::V6,
        }
    }

    /// Returns whether `gso_type` has the ECN bit.
    pub const fn ecn(self) -> bool {
        matches!(self, Self::Tcp4 { ecn: true } | Self::Tcp6 { ecn: true })
    }

    fn from_raw(raw: u8, version: Version) -> Result<Self, Invalid> {
        let ecn = raw & GSO_ECN != 0;
        match (raw & !GSO_ECN, version) {
            (GSO_TCPV4, Version::V4) => Ok(Self::Tcp4 { ecn }),
            (GSO_TCPV6, Version::V6) => Ok(Self::Tcp6 { ecn }),
            (GSO_UDP_L4, Version::V4) if !ecn => Ok(Self::Udp4),
            (GSO_UDP_L4, Version::V6) if !ecn => Ok(Self::Udp6),
            (GSO_TCPV4 | GSO_TCPV6, _) => Err(Invalid::Disagrees(raw)),
            _ => Err(Invalid::GsoType(raw)),
        }
    }

    /// Returns name and number of the feature that the sender must have negotiated.
    const fn host_feature(self) -> (&'static str, u32) {
        match self {
            Self::Tcp4 { .. } => ("HOST_TSO4", VIRTIO_NET_F_HOST_TSO4),
            Self::Tcp6 { .. } => ("HOST_TSO6", VIRTIO_NET_F_HOST_TSO6),
            Self::Udp4 | Self::Udp6 => ("HOST_USO", VIRTIO_NET_F_HOST_USO),
        }
    }

    /// Returns the feature that a receiver must have negotiated to accept such a frame unsegmented.
    pub const fn guest_feature(self) -> u32 {
        match self {
            Self::Tcp4 { .. } => VIRTIO_NET_F_GUEST_TSO4,
            Self::Tcp6 { .. } => VIRTIO_NET_F_GUEST_TSO6,
            Self::Udp4 => VIRTIO_NET_F_GUEST_USO4,
            Self::Udp6 => VIRTIO_NET_F_GUEST_USO6,
        }
    }
}

/// Returns the position of the checksum, if the header requests one.
fn checksum_place(
    header: &Header,
    features: u64,
    frame: &Frame,
    len: usize,
) -> Result<Option<ChecksumPlace>, Invalid> {
    if header.flags & HDR_F_NEEDS_CSUM == 0 {
        return Ok(None);
    }
    if !has(features, VIRTIO_NET_F_CSUM) {
        return Err(Invalid::NotNegotiated("CSUM"));
    }
    let asked = ChecksumPlace { start: header.csum_start, offset: header.csum_offset };
    let start = usize::from(asked.start);
    let end = start.saturating_add(usize::from(asked.offset)).saturating_add(2);
    if start < frame.header_len || end > len {
        let (start, offset) = (asked.start, asked.offset);
        return Err(Invalid::ChecksumPlace { start, offset, len });
    }
    Ok(Some(asked))
}

fn gso(
    header: &Header,
    features: u64,
    frame: &Frame,
    len: usize,
    asked: ChecksumPlace,
) -> Result<Gso, Invalid> {
    let raw = header.gso_type;
    if !matches!(raw & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4) {
        return Err(Invalid::GsoType(raw));
    }
    let network = frame.network.ok_or(Invalid::Disagrees(raw))?;
    let transport = network.transport.ok_or(Invalid::Disagrees(raw))?;
    let kind = GsoKind::from_raw(raw, network.version)?;
    let (name, feature) = kind.host_feature();
    if !has(features, feature) {
        return Err(Invalid::NotNegotiated(name));
    }
    if kind.ecn() && !has(features, VIRTIO_NET_F_HOST_ECN) {
        return Err(Invalid::NotNegotiated("HOST_ECN"));
    }
    let in_place = usize::from(asked.start) == transport.offset
        && usize::from(asked.offset) == kind.protocol().checksum_offset();
    if network.fragment || transport.protocol != kind.protocol() || !in_place {
        return Err(Invalid::Disagrees(raw));
    }
    if network.end != len || transport.payload > len {
        return Err(Invalid::Length { end: network.end, len });
    }
    let size = header.gso_size;
    let payload = len.saturating_sub(transport.payload);
    let pieces_max = usize::from(size).saturating_mul(GSO_PIECES_MAX);
    if !(GSO_SIZE_MIN..GSO_SIZE_RESERVED).contains(&size) || payload > pieces_max {
        return Err(Invalid::GsoSize { size, len });
    }
    let header_len = u16::try_from(transport.payload).map_err(|_| Invalid::Disagrees(raw))?;
    Ok(Gso { kind, size, header_len })
}
