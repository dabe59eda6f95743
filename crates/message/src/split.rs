//! What crosses between the two halves of an endpoint, as values.
//!
//! The library half makes requests, the backend half gives events. Both come in order. Whatever
//! one half names to the other ([`PeerId`], [`Token`], [`RegionId`], [`Handle`]) is checked by the
//! one that gave it out.
//!
//! An event that finds no room waits in the backend half, and nothing is acknowledged to its
//! sender meanwhile: an application that does not call in slows its peers and loses nothing.

use crate::status::Status;

/// A board's address: its MAC, the first byte most significant of 48 bits (`nic_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NicId(pub u64);

impl NicId {
    /// Of a MAC.
    pub fn of(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

/// An endpoint anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Of which board.
    pub nic: NicId,
    /// 0 to 254.
    pub endpoint: u8,
}

/// A partner of this endpoint. Chosen by the backend half, small, used again after
/// [`Event::PeerGone`] was answered by [`Request::Forget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// No partner: of a connect that failed.
    pub const NONE: Self = Self(u32::MAX);
}

/// A request of the library half; it comes back with the event that ends the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// A message that ended, for the library half, when it was handed over: it is told of it only
    /// if that was too early. No request has that name.
    pub const UNTOLD: Self = Self(u64::MAX);
}

/// Registered memory, 0 to 255. Chosen by the backend half when it is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u8);

/// A large message that a peer offers, until it was pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// Where bytes lie in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// In which one.
    pub region: RegionId,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub len: u32,
}

/// What the library half asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are what their types say")]
pub enum Request<'a> {
    /// Connects to an endpoint; ends with [`Event::Connected`].
    Connect { token: Token, to: Address, key: u32, timeout_ns: Option<u64> },
    /// Forgets a partner; what waits for it ends with [`Status::EndpointUnreachable`], and then
    /// comes [`Event::PeerGone`].
    Disconnect { peer: PeerId },
    /// A [`PeerId`] that is gone is not used here any more.
    Forget { peer: PeerId },
    /// Sends a message of at most [`MEDIUM_BYTES_MAX`](crate::limits::MEDIUM_BYTES_MAX); ends with
    /// [`Event::Sent`] when the peer's backend half has it.
    Eager { peer: PeerId, token: Token, match_info: u64, data: &'a [u8] },
    /// Offers a message that the peer pulls when it has matched it; ends with [`Event::Sent`] when
    /// it was pulled. Of any length, also none (a synchronous send).
    Offer { peer: PeerId, token: Token, match_info: u64, from: Window },
    /// Pulls an offered message, or its first bytes; ends with [`Event::Pulled`], and the sender
    /// hears how much was taken.
    Pull { handle: Handle, token: Token, into: Window },
    /// Something waits for what only this partner can do: until it is said to be over, the partner is
    /// asked now and then whether it is there, though nothing is sent to it.
    Watch { peer: PeerId, on: bool },
    /// Gives up a send, a connect or a pull; it ends with [`Status::Cancelled`] unless it ended
    /// already.
    Cancel { token: Token },
}

/// What the backend half tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are what their types say")]
pub enum Event<'a> {
    /// A connect ended; without success `peer` is [`PeerId::NONE`].
    Connected { token: Token, status: Status, peer: PeerId },
    /// A partner that was not known; before anything else about it. `session` is new when the
    /// peer's endpoint was opened anew.
    PeerSeen { peer: PeerId, address: Address, session: u32 },
    /// A message, whole.
    Message { peer: PeerId, match_info: u64, data: &'a [u8] },
    /// A message that is to be pulled.
    Offered { peer: PeerId, match_info: u64, len: u32, handle: Handle },
    /// A send ended. `taken`: how many bytes the receiver took, where it was pulled.
    Sent { token: Token, status: Status, taken: u32 },
    /// A pull ended.
    Pulled { token: Token, status: Status },
    /// The partner is not reached any more, or began anew: offers of it are void.
    PeerGone { peer: PeerId, status: Status },
}
