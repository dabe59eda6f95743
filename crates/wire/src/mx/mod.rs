//! Requests and events between the two sides of an MX endpoint, as values.
//!
//! The *host side* (the library in an application) makes [requests](Request); the *NIC side* (the
//! MXoE engine) answers with [events](Event). Both streams are ordered. Each side verifies every
//! identifier that it issued ([`PeerId`], [`Token`], [`RegionId`], [`Handle`]) when the identifier
//! returns, because the other side may be hostile. An endpoint has at most 2,048 peers, 16,384
//! sends and 256 regions, and a message at most 256 segments ([`limits`]); `mxoe` and `message`
//! enforce these, not the types here. The encoding as ring entries is `channel::mx_rings`; matching
//! and retransmission are not here.
//!
//! A request without room waits in the host side, an event without room in the NIC side. A message
//! without room is not acknowledged to its sender meanwhile: an application that makes no calls
//! slows its peers and loses nothing.
//!
//! Channels between two endpoints of one host give the same events, without a NIC side. The host
//! side runs in the application's thread that holds the endpoint, the NIC side in a dispatcher's
//! turn or, in direct mode, in the same thread.

pub mod limits;
mod status;

pub use status::Status;

/// Address of a NIC: its MAC, first byte most significant, in 48 bits (`nic_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NicId(pub u64);

impl NicId {
    /// Returns the address of the NIC with this MAC.
    #[inline]
    pub fn of(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

/// Address of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// NIC of the endpoint.
    pub nic: NicId,
    /// Number of the endpoint in the NIC, 0 to 254.
    pub endpoint: u8,
}

/// Number of a peer of this endpoint. The NIC side chooses small numbers and reuses a number after
/// [`Event::PeerGone`] was answered by [`Request::Forget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// No peer: the connect failed.
    pub const NONE: Self = Self(u32::MAX);
}

/// Identifier of a request. The event that ends the request carries the same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Token of a send that the host side completed when it passed the message on. The NIC side
    /// reports the end of such a send only on failure. No request has this token.
    pub const UNREPORTED: Self = Self(u64::MAX);
}

/// Number of a registered region, 0 to 255. The NIC side chooses it at registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u8);

/// Identifier of a large message that a peer offers. Valid until the message is pulled or the peer
/// is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A range of bytes in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Region that contains the range.
    pub region: RegionId,
    /// First byte, counted from the start of the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A request of the host side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields are their meaning")]
pub enum Request<'a> {
    /// Connects to an endpoint; ends with [`Event::Connected`].
    Connect { token: Token, to: Address, key: u32, timeout_ns: Option<u64> },
    /// Disconnects a peer. Operations that wait for the peer end with
    /// [`Status::EndpointUnreachable`]; then follows [`Event::PeerGone`].
    Disconnect { peer: PeerId },
    /// Releases the number of a peer that is gone.
    Forget { peer: PeerId },
    /// Sends a message of at most [`limits::MEDIUM_BYTES_MAX`] bytes; ends with [`Event::Sent`]
    /// when the peer's NIC side has the message.
    Eager { peer: PeerId, token: Token, match_info: u64, data: &'a [u8] },
    /// Offers a message that the peer pulls after it matched the message; ends with [`Event::Sent`]
    /// after the pull. Any length is valid; a length of zero makes a synchronous send.
    Offer { peer: PeerId, token: Token, match_info: u64, from: Window },
    /// Pulls an offered message, or its first bytes; ends with [`Event::Pulled`]. The sender learns
    /// how many bytes were pulled.
    Pull { handle: Handle, token: Token, into: Window },
    /// Starts or stops watching a peer that the host side waits for. While it is watched, the NIC
    /// side probes the peer even if it has nothing to send.
    Watch { peer: PeerId, on: bool },
    /// Cancels a send, a connect or a pull. The operation ends with [`Status::Cancelled`] unless it
    /// ended before.
    Cancel { token: Token },
}

/// An event of the NIC side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields are their meaning")]
pub enum Event<'a> {
    /// A connect ended. If it failed, `peer` is [`PeerId::NONE`].
    Connected { token: Token, status: Status, peer: PeerId },
    /// Introduces a peer before any other event names it. `session` differs from the previous one
    /// after the peer opened its endpoint again.
    PeerSeen { peer: PeerId, address: Address, session: u32 },
    /// A complete message.
    Message { peer: PeerId, match_info: u64, data: &'a [u8] },
    /// A message that the host side is to pull.
    Offered { peer: PeerId, match_info: u64, len: u32, handle: Handle },
    /// A send ended. `taken` is the number of bytes that the peer's NIC side has: the length of an
    /// eager message, or the pulled bytes of an offer; 0 after a failure.
    Sent { token: Token, status: Status, taken: u32 },
    /// A pull ended.
    Pulled { token: Token, status: Status },
    /// The peer is unreachable or opened its endpoint again: its offers are void.
    PeerGone { peer: PeerId, status: Status },
}
