//! Positions of the network and transport headers of an Ethernet frame.
//!
//! Used on each frame from a link or a station and each that an adapter receives. A frame of a
//! virtio guest is parsed only if that is necessary, for example for an offload, a VLAN tag or a
//! choice of queue by flow. A switch forwards frames of unknown protocols, so the only error is a
//! frame without an Ethernet header. Segmentation offloads, however, are accepted only for frames
//! whose headers were found (see [`crate::virtio_net`]). Checksums and addresses are not verified
//! here. At most [`HEADERS_MAX`] (192) bytes are needed; a header that is not complete in the given
//! bytes counts as not found. Callers: `ethernet`, `mlx5`, `link` (offloads, segment sizes, choice
//! of a UDP source port by flow), `fabric::capture` (filters), `tap` (frames that it cuts). All run
//! in a dispatcher's turn.

use crate::field::Truncated;
use crate::{ethernet, ipv4, ipv6, tcp, udp};

/// Length of the longest run of headers that is parsed, in bytes: Ethernet with two tags, IPv6 with
/// room for extension headers, or IPv4 and TCP with all options.
pub const HEADERS_MAX: usize = 192;

/// Key that distinguishes flows, made by [`Frame::flow_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey([u8; 40]);

impl Default for FlowKey {
    fn default() -> Self {
        Self([0; 40])
    }
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The transport protocols that offloads support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Returns the offset of the checksum in the transport header, in bytes.
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => tcp::CHECKSUM_OFFSET,
            Self::Udp => udp::CHECKSUM_OFFSET,
        }
    }

    /// Returns the IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => tcp::PROTOCOL,
            Self::Udp => udp::PROTOCOL,
        }
    }
}

/// An IP packet inside a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Version of IP.
    pub version: Version,
    /// Offset of the IP header, in bytes from the frame's start.
    pub offset: usize,
    /// Offset behind the IP header with its options, before IPv6 extension headers, in bytes from
    /// the frame's start. The header is complete in the parsed bytes.
    pub header_end: usize,
    /// End of the packet by its own length field, in bytes from the frame's start.
    pub end: usize,
    /// Whether the packet is a fragment.
    pub fragment: bool,
    /// The transport header, if it was found complete.
    pub transport: Option<Transport>,
}

/// A TCP or UDP header inside a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Offset of the transport header, in bytes from the frame's start.
    pub offset: usize,
    /// Offset of the payload, in bytes from the frame's start.
    pub payload: usize,
}

/// A frame's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// Length of the Ethernet header with its tags, in bytes.
    pub header_len: usize,
    /// The IP packet, if its header was found complete.
    pub network: Option<Network>,
}

impl Frame {
    /// Parses the headers of a frame. The first [`HEADERS_MAX`] bytes suffice.
    ///
    /// # Errors
    /// [`Truncated`] if the Ethernet header is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let (header, known) = match ethernet::Header::parse(bytes) {
            Ok(header) => (header, true),
            // A cut-off tag: still an Ethernet frame, of an unknown protocol.
            Err(_) => (ethernet::Header::untagged(bytes)?, false),
        };
        let header_len = header.len();
        let packet = bytes.get(header_len..).unwrap_or(&[]);
        let network = match header.ether_type {
            ethernet::TYPE_IPV4 if known => network_v4(packet, header_len),
            ethernet::TYPE_IPV6 if known => network_v6(packet, header_len),
            _ => None,
        };
        Ok(Self { destination: header.destination, source: header.source, header_len, network })
    }

    /// Returns the key of this frame's flow: addresses, ports and protocol, with zeroes for absent
    /// fields. All fragments of a packet have the same key, without ports.
    pub fn flow_key(&self, bytes: &[u8]) -> FlowKey {
        let mut key = FlowKey::default();
        let mut w = crate::field::Writer::new(&mut key.0);
        let Some(network) = self.network else {
            w.put(self.destination);
            w.put(self.source);
            return key;
        };
        let (from, len) = match network.version {
            Version::V4 => (12, 8),
            Version::V6 => (8, 32),
        };
        let start = network.offset.saturating_add(from);
        w.slice(bytes.get(start..start.saturating_add(len)).unwrap_or(&[]));
        if let Some(transport) = network.transport {
            let ports = bytes.get(transport.offset..transport.offset.saturating_add(4));
            w.slice(ports.unwrap_or(&[]));
            w.put([transport.protocol.number()]);
        }
        key
    }
}

fn network_v4(packet: &[u8], offset: usize) -> Option<Network> {
    let header = ipv4::Header::parse(packet).ok()?;
    let fragment = header.is_fragment();
    let start = header.header_len();
    let transport = (!fragment).then(|| transport(header.protocol, packet, start, offset));
    Some(Network {
        version: Version::V4,
        offset,
        header_end: offset.saturating_add(start),
        end: offset.saturating_add(usize::from(header.total_len)),
        fragment,
        transport: transport.flatten(),
    })
}

fn network_v6(packet: &[u8], offset: usize) -> Option<Network> {
    let header = ipv6::Header::parse(packet).ok()?;
    let rest = packet.get(ipv6::HEADER_LEN..).unwrap_or(&[]);
    let walk = ipv6::walk_extensions(header.next_header, rest).ok();
    let fragment = walk.is_some_and(|w| w.fragment);
    let transport = walk.filter(|w| !w.fragment).and_then(|w| {
        transport(w.protocol, packet, ipv6::HEADER_LEN.saturating_add(w.offset), offset)
    });
    let len = ipv6::HEADER_LEN.saturating_add(usize::from(header.payload_len));
    Some(Network {
        version: Version::V6,
        offset,
        header_end: offset.saturating_add(ipv6::HEADER_LEN),
        end: offset.saturating_add(len),
        fragment,
        transport,
    })
}

/// Parses the transport header at `start` of `packet`, which starts at `offset` of the frame.
fn transport(protocol: u8, packet: &[u8], start: usize, offset: usize) -> Option<Transport> {
    let bytes = packet.get(start..)?;
    let (protocol, header_len) = match protocol {
        tcp::PROTOCOL => (Protocol::Tcp, tcp::Header::parse(bytes).ok()?.header_len()),
        udp::PROTOCOL => {
            udp::Header::parse(bytes).ok()?;
            (Protocol::Udp, udp::HEADER_LEN)
        }
        _ => return None,
    };
    let offset = offset.saturating_add(start);
    Some(Transport { protocol, offset, payload: offset.saturating_add(header_len) })
}
