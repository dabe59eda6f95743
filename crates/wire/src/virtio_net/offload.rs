//! What a guest may ask of the host for one frame, checked against the frame.

use super::*;
use crate::checksum::Sum;
use crate::frame::{Frame, Protocol, Version};
use crate::virtio::has;

/// Smallest payload of a piece, in bytes: TCP's smallest segment of 48 with 40 bytes of options.
pub const GSO_SIZE_MIN: u16 = 8;
/// Most pieces that one frame may be cut into.
pub const GSO_PIECES_MAX: usize = 2048;
/// Linux's mark for "cut by fragments", never a size.
const GSO_SIZE_RESERVED: u16 = 0xffff;

/// An incomplete checksum: it stands at `start + offset` and covers the frame from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumPlace {
    /// Bytes from the frame's start.
    pub start: u16,
    /// Bytes from `start`.
    pub offset: u16,
}

impl ChecksumPlace {
    /// Where in a frame the checksum stands.
    pub fn field(self) -> usize {
        usize::from(self.start).saturating_add(usize::from(self.offset))
    }

    /// Completes the checksum of a private frame that was checked with its header.
    pub fn complete(self, frame: &mut [u8]) {
        self.complete_split(frame, &[]);
    }

    /// As [`Self::complete`], for a frame in two parts of which the first holds the checksum.
    ///
    /// The field's own value, the sum over the pseudo-header, is part of what is summed. Zero is
    /// written as its other form, 0xffff: to UDP it would mean "none", to the others both are one.
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

/// How a frame is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4; `ecn`: CWR is set and belongs to the first piece.
    Tcp4 {
        /// Whether the header announced CWR.
        ecn: bool,
    },
    /// TCP over IPv6.
    Tcp6 {
        /// Whether the header announced CWR.
        ecn: bool,
    },
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

/// A frame to be cut into pieces, all of whose headers were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// How.
    pub kind: GsoKind,
    /// Most payload bytes of one piece.
    pub size: u16,
    /// Bytes of headers that every piece repeats; the payload begins there.
    pub header_len: u16,
}

/// What is left to do for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offload {
    /// Nothing.
    #[default]
    None,
    /// Complete the checksum.
    Checksum(ChecksumPlace),
    /// Cut the frame, and complete the checksum of every piece.
    Segment(ChecksumPlace, Gso),
}

/// Why a frame's header is refused. The frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A feature that the driver did not negotiate.
    #[error("asks for {0}, which its driver did not negotiate")]
    NotNegotiated(&'static str),
    /// The checksum stands outside the frame or in its Ethernet header.
    #[error("csum_start {start} and csum_offset {offset} point outside a frame of {len} bytes")]
    ChecksumPlace {
        /// `csum_start`.
        start: u16,
        /// `csum_offset`.
        offset: u16,
        /// The frame's length, in bytes.
        len: usize,
    },
    /// A frame to be cut must have an incomplete checksum (5.1.6.2.1).
    #[error("gso_type {0} without NEEDS_CSUM")]
    GsoWithoutChecksum(u8),
    /// No such type, or ECN with a type that has none.
    #[error("gso_type {0:#x} is unknown")]
    GsoType(u8),
    /// Zero, below [`GSO_SIZE_MIN`], or so small that there were too many pieces.
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
    /// The frame is not what `gso_type` says, or its checksum is not where that protocol has it.
    #[error("gso_type {0:#x} does not agree with the frame's headers")]
    Disagrees(u8),
    /// The IP packet's length field is not the frame's.
    #[error("a frame of {len} bytes whose IP packet ends at byte {end}")]
    Length {
        /// Where the IP packet ends by its own account.
        end: usize,
        /// The frame's length, in bytes.
        len: usize,
    },
}

impl Offload {
    /// Checks `header` against the frame and the features that the sender's driver negotiated.
    ///
    /// `frame` was made from the frame's first bytes, `len` is the length of the whole frame.
    /// Flags other than NEEDS_CSUM are ignored (5.1.6.2.2), and so is `num_buffers`.
    ///
    /// # Errors
    /// [`Invalid`] names the field that is wrong.
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
        // One piece is no piece: what fits whole needs no cutting.
        let payload = len.saturating_sub(usize::from(gso.header_len));
        if payload <= usize::from(gso.size) {
            return Ok(Self::Checksum(asked));
        }
        Ok(Self::Segment(asked, gso))
    }

    /// The longest frame that leaves after cutting, in bytes, for one of `len` bytes.
    pub fn piece_len(&self, len: usize) -> usize {
        match self {
            Self::None | Self::Checksum(_) => len,
            Self::Segment(_, gso) => {
                len.min(usize::from(gso.header_len).saturating_add(usize::from(gso.size)))
            }
        }
    }

    /// The header for a receiver that takes the frame as it is.
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
    /// The value of `gso_type`.
    pub const fn raw(self) -> u8 {
        match self {
            Self::Tcp4 { ecn: false } => GSO_TCPV4,
            Self::Tcp4 { ecn: true } => GSO_TCPV4 | GSO_ECN,
            Self::Tcp6 { ecn: false } => GSO_TCPV6,
            Self::Tcp6 { ecn: true } => GSO_TCPV6 | GSO_ECN,
            Self::Udp4 | Self::Udp6 => GSO_UDP_L4,
        }
    }

    /// The transport protocol.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp4 { .. } | Self::Tcp6 { .. } => Protocol::Tcp,
            Self::Udp4 | Self::Udp6 => Protocol::Udp,
        }
    }

    /// The network protocol.
    pub const fn version(self) -> Version {
        match self {
            Self::Tcp4 { .. } | Self::Udp4 => Version::V4,
            Self::Tcp6 { .. } | Self::Udp6 => Version::V6,
        }
    }

    /// Whether CWR was announced.
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

    /// The feature that a sender must have negotiated, by name and number.
    const fn host_feature(self) -> (&'static str, u32) {
        match self {
            Self::Tcp4 { .. } => ("HOST_TSO4", VIRTIO_NET_F_HOST_TSO4),
            Self::Tcp6 { .. } => ("HOST_TSO6", VIRTIO_NET_F_HOST_TSO6),
            Self::Udp4 | Self::Udp6 => ("HOST_USO", VIRTIO_NET_F_HOST_USO),
        }
    }

    /// The feature that a receiver must have negotiated to get such a frame uncut.
    pub const fn guest_feature(self) -> u32 {
        match self {
            Self::Tcp4 { .. } => VIRTIO_NET_F_GUEST_TSO4,
            Self::Tcp6 { .. } => VIRTIO_NET_F_GUEST_TSO6,
            Self::Udp4 => VIRTIO_NET_F_GUEST_USO4,
            Self::Udp6 => VIRTIO_NET_F_GUEST_USO6,
        }
    }
}

/// Where the header puts the checksum, if it asks for one.
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
