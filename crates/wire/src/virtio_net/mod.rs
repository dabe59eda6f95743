//! virtio-net: the header before every frame, and its constants (virtio 1.3, section 5.1).
//!
//! [`Header`] is the structure in guest memory, unchecked: each field holds any value. [`Offload`]
//! is the checked request, made by [`Offload::check`] from a header that requests work and the
//! headers of the frame. [`segment`] makes the headers of the frames into which a frame is cut.
//!
//! The parser checks the length alone (12 bytes). The header of 10 bytes without `num_buffers`
//! (legacy drivers) has no parser here: `ethernet` lengthens it with zeroes. Hash reports, RSS and
//! the control queue have no format here. Callers are `ethernet`, `tap`, `link`, `hca`, `mlx5` and
//! `fabric::carrier`, in a dispatcher's turn, and tests and benchmarks.

mod offload;
pub mod segment;

pub use offload::{ChecksumPlace, GSO_PIECES_MAX, GSO_SIZE_MIN, Gso, GsoKind, Invalid, Offload};

use crate::field::{Reader, Truncated};

/// Length of [`Header`] with VERSION_1 or MRG_RXBUF, in bytes.
pub const HEADER_LEN: usize = 12;
/// Length of the header of the kernel's interfaces (packet sockets, TAP), in bytes: without
/// `num_buffers`.
pub const HOST_HEADER_LEN: usize = 10;
/// Offset of `num_buffers` in the header, in bytes.
pub const NUM_BUFFERS_OFFSET: usize = 10;

/// Feature bit: the device completes checksums.
pub const VIRTIO_NET_F_CSUM: u32 = 0;
/// Feature bit: the driver accepts frames with incomplete checksums.
pub const VIRTIO_NET_F_GUEST_CSUM: u32 = 1;
/// Feature bit: the driver can change its offloads at run time.
pub const VIRTIO_NET_F_CTRL_GUEST_OFFLOADS: u32 = 2;
/// Feature bit: the device reports its largest MTU.
pub const VIRTIO_NET_F_MTU: u32 = 3;
/// Feature bit: the device reports its address.
pub const VIRTIO_NET_F_MAC: u32 = 5;
/// Feature bit: the driver accepts unsegmented TCP over IPv4.
pub const VIRTIO_NET_F_GUEST_TSO4: u32 = 7;
/// Feature bit: the driver accepts unsegmented TCP over IPv6.
pub const VIRTIO_NET_F_GUEST_TSO6: u32 = 8;
/// Feature bit: the driver accepts unsegmented TCP with ECN.
pub const VIRTIO_NET_F_GUEST_ECN: u32 = 9;
/// Feature bit: the driver accepts UDP packets that are to be fragmented.
pub const VIRTIO_NET_F_GUEST_UFO: u32 = 10;
/// Feature bit: the device accepts unsegmented TCP over IPv4.
pub const VIRTIO_NET_F_HOST_TSO4: u32 = 11;
/// Feature bit: the device accepts unsegmented TCP over IPv6.
pub const VIRTIO_NET_F_HOST_TSO6: u32 = 12;
/// Feature bit: the device accepts unsegmented TCP with ECN.
pub const VIRTIO_NET_F_HOST_ECN: u32 = 13;
/// Feature bit: the device accepts UDP packets that are to be fragmented.
pub const VIRTIO_NET_F_HOST_UFO: u32 = 14;
/// Feature bit: a frame may span several receive buffers.
pub const VIRTIO_NET_F_MRG_RXBUF: u32 = 15;
/// Feature bit: the configuration space has a link status.
pub const VIRTIO_NET_F_STATUS: u32 = 16;
/// Feature bit: the device has a control queue.
pub const VIRTIO_NET_F_CTRL_VQ: u32 = 17;
/// Feature bit: the device has several queue pairs.
pub const VIRTIO_NET_F_MQ: u32 = 22;
/// Feature bit: the driver accepts unsegmented UDP over IPv4.
pub const VIRTIO_NET_F_GUEST_USO4: u32 = 54;
/// Feature bit: the driver accepts unsegmented UDP over IPv6.
pub const VIRTIO_NET_F_GUEST_USO6: u32 = 55;
/// Feature bit: the device accepts unsegmented UDP.
pub const VIRTIO_NET_F_HOST_USO: u32 = 56;

/// Flag: the checksum at `csum_start + csum_offset` covers the pseudo-header only.
pub const HDR_F_NEEDS_CSUM: u8 = 1;
/// Flag, to the driver only: the checksum was verified.
pub const HDR_F_DATA_VALID: u8 = 2;

/// `gso_type`: a frame to be sent unchanged.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: UDP to be fragmented; never offered here.
pub const GSO_UDP: u8 = 3;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: UDP to be segmented into datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// Bit of `gso_type`: the TCP segment has ECN's CWR flag.
pub const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr_v1`, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// `HDR_F_*`.
    pub flags: u8,
    /// `GSO_*`.
    pub gso_type: u8,
    /// Length of the headers that every segment repeats, in bytes: a hint.
    pub hdr_len: u16,
    /// Largest payload of a segment, in bytes.
    pub gso_size: u16,
    /// Start of the bytes that the checksum covers, in bytes from the frame's start.
    pub csum_start: u16,
    /// Offset of the checksum, in bytes from `csum_start`.
    pub csum_offset: u16,
    /// Number of receive buffers that the frame spans; 0 from the driver.
    pub num_buffers: u16,
}

impl Header {
    /// Parses a header from the first [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("virtio-net header", HEADER_LEN, bytes)?;
        // Whole words: this runs on the data path.
        let (low, high) = (r.u64_le(), r.u32_le());
        Ok(Self {
            flags: low as u8,
            gso_type: (low >> 8) as u8,
            hdr_len: (low >> 16) as u16,
            gso_size: (low >> 32) as u16,
            csum_start: (low >> 48) as u16,
            csum_offset: high as u16,
            num_buffers: (high >> 16) as u16,
        })
    }

    /// Parses the header that the kernel writes before a frame (`PACKET_VNET_HDR`, `IFF_VNET_HDR`):
    /// host byte order, without `num_buffers`. Of the flags only [`HDR_F_NEEDS_CSUM`] is kept: the
    /// others request no work.
    pub const fn from_host(bytes: &[u8; HOST_HEADER_LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = *bytes;
        Self {
            flags: flags & HDR_F_NEEDS_CSUM,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
            num_buffers: 0,
        }
    }

    /// Encodes the header for the kernel, as [`Self::from_host`] parses it.
    pub const fn to_host(&self) -> [u8; HOST_HEADER_LEN] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let field = |value: u16, at: u32| u128::from(value).wrapping_shl(at);
        let word = u128::from(self.flags)
            | u128::from(self.gso_type).wrapping_shl(8)
            | field(self.hdr_len, 16)
            | field(self.gso_size, 32)
            | field(self.csum_start, 48)
            | field(self.csum_offset, 64)
            | field(self.num_buffers, 80);
        let [bytes @ .., _, _, _, _] = word.to_le_bytes();
        bytes
    }
}
