//! Interface between the matching engine and its peers.
//!
//! [`Transport`] moves bytes and reports [`TransportEvent`]s. A transport does not match messages
//! and does not limit the number of requests. A transport does not sleep, except for up to 2 s
//! while a peer writes into this process: at a disconnect, a lost channel, a withdrawn buffer, or a
//! direct read that the kernel refuses. A call that finds no room returns [`TransportError::Full`]
//! without effect; the matching engine keeps the request and repeats the call in a later
//! [`Library::progress`](super::Library::progress).
//!
//! Implementations: [`Channels`](super::Channels) to endpoints of this host,
//! [`Rings`](super::Rings) to the NIC side for all other peers, and `causeway_endpoint`'s union of
//! both. Calls come from the thread that holds the endpoint's lock. Messages, offers and the loss
//! of one peer come in order; ends of sends and pulls may pass deferred messages, and events of
//! different peers have no order.
//!
//! A message goes one of two ways. *Eager*: [`Transport::eager`], then [`TransportEvent::Message`].
//! *Offered* (longer than [`Transport::eager_max`], or synchronous): [`Transport::offer`],
//! [`TransportEvent::Offered`], [`Transport::pull`], the bytes, and [`TransportEvent::Sent`],
//! [`TransportEvent::Fetched`] or [`TransportEvent::Wanted`] at the sender.

use causeway_channel::ShortEvent;
use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::Buffer;

/// Result of a call that the transport accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// The operation has ended; no event with its token follows.
    Done,
    /// The bytes were copied; an event reports the end.
    Copied,
    /// The transport needs the bytes until an event reports the end.
    Kept,
}

/// Reason for which the transport refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportError {
    /// No room now; the caller retries later.
    Full,
    /// Permanent; the request ends with this status.
    Never(Status),
}

/// Event of a transport. [`Transport::copy`] returns the bytes that belong to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants describe their fields")]
pub enum TransportEvent {
    /// A new or restarted peer; precedes every other event of that peer.
    PeerSeen { peer: PeerId, address: Address, session: u32 },
    /// The peer is unreachable. The library answers with [`Transport::forget`].
    PeerGone { peer: PeerId, status: Status },
    /// Messages to the peer fail from now on; earlier events of the peer still follow.
    Unreached { peer: PeerId, status: Status },
    /// A connect ended.
    Connected { token: Token, status: Status, peer: PeerId },
    /// An eager message; its `len` bytes belong to the event.
    Message { peer: PeerId, match_info: u64, len: u32 },
    /// An offered message of `len` bytes; `offer` names it to [`Transport::pull`].
    Offered { peer: PeerId, match_info: u64, len: u32, offer: u64 },
    /// The peer pulls `len` bytes of the offer `token`; `to` names the pull to [`Transport::feed`].
    Wanted { peer: PeerId, token: Token, to: u64, len: u32 },
    /// The peer read `len` bytes of the offer `token` directly from the sender's memory.
    Fetched { peer: PeerId, token: Token, len: u32 },
    /// The peer copies the offer `token` itself and accepts help: the library passes the offer's
    /// bytes to [`Transport::push`] if the offer is still open.
    Push { peer: PeerId, token: Token },
    /// The next `len` bytes of a pull belong to the event. If [`Transport::copy`] returns fewer,
    /// the pull starts again from the first byte.
    Chunk { peer: PeerId, token: Token, len: u32 },
    /// The `len` bytes from `at` on of a pull belong to the event; parts come in any order. A short
    /// copy has the effect of a short [`TransportEvent::Chunk`].
    Part { peer: PeerId, token: Token, at: u32, len: u32 },
    /// The peer will not send the pulled bytes.
    Failed { peer: PeerId, token: Token },
    /// A send ended; `taken` bytes of an offer were pulled.
    Sent { token: Token, status: Status, taken: u32 },
    /// A pull ended; with [`Status::Success`] all its bytes are in place.
    Pulled { token: Token, status: Status },
}

/// Path to the peers. Messages and offers from one peer come in order, and those to one peer arrive
/// in order.
///
/// A transport checks only its own format. The library checks every token that a peer sends.
pub trait Transport<B: Buffer> {
    /// Returns the length of the longest eager message to `peer`, in bytes; a longer message is
    /// offered.
    fn eager_max(&self, peer: PeerId) -> usize;

    /// Sends an eager message and returns true, or returns false without effect. No event follows
    /// on success; a later failure is reported by [`TransportEvent::Sent`] with
    /// [`Token::UNREPORTED`]. The default implementation always returns false.
    #[inline]
    fn try_eager(&mut self, _peer: PeerId, _match_info: u64, _data: &B) -> bool {
        false
    }

    /// Sends an eager message.
    ///
    /// # Errors
    /// [`TransportError`]: no room now, or never.
    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handover, TransportError>;

    /// Offers a message of any length. One of these events follows: [`TransportEvent::Wanted`],
    /// after which the library feeds the bytes, or [`TransportEvent::Fetched`] or
    /// [`TransportEvent::Sent`], which end the offer.
    ///
    /// # Errors
    /// [`TransportError`]: no room now, or never.
    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), TransportError>;

    /// Pulls the first `len` bytes of an offer. They come as chunks or parts, or are in place at
    /// [`TransportEvent::Pulled`]. None come if `len` is 0 and the result is [`Handover::Done`].
    ///
    /// # Errors
    /// [`TransportError`]: no room now, or never.
    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handover, TransportError>;

    /// Feeds the bytes `at..end` of `data`, or the first of them, to the pull `to` of the peer,
    /// after [`TransportEvent::Wanted`]. Returns the number of fed bytes, which may be 0.
    ///
    /// # Errors
    /// [`TransportError`]: no room now, or never.
    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, TransportError>;

    /// Copies some bytes of the offer that [`TransportEvent::Push`] named into the peer's memory.
    /// The transport chooses the bytes. The default implementation copies nothing.
    fn push(&mut self, _data: &B) {}

    /// Reports to the peer that its pull `to` fails.
    fn fail(&mut self, peer: PeerId, to: u64);

    /// Connects to an endpoint; ends with [`TransportEvent::Connected`]. Without `timeout_ns`, the
    /// transport decides when an attempt has failed.
    ///
    /// # Errors
    /// [`TransportError`]: no room now, or never.
    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), TransportError>;

    /// Disconnects from a peer. The library ignores its messages and offers that still come, and
    /// answers a [`TransportEvent::PeerGone`] as usual. Channels remove the peer at once and report
    /// nothing.
    fn disconnect(&mut self, peer: PeerId);

    /// Frees the number of a peer after [`TransportEvent::PeerGone`].
    fn forget(&mut self, peer: PeerId);

    /// Withdraws a send or connect. Events with its token may still come; the library ignores them.
    /// The token of an ended request is permitted.
    fn cancel(&mut self, token: Token);

    /// Withdraws the memory of a send or a pull: nothing more of the send is read from it, and the
    /// bytes of a pull are dropped. No process writes to the memory after the call. Channels
    /// withdraw only the memory of a pull here; before that of a send, the caller calls
    /// [`Channels::withdraw`](super::Channels::withdraw). No effect for the token of an ended
    /// request. The default implementation has no effect.
    fn withdraw_memory(&mut self, _token: Token) {}

    /// Sets whether a request waits for this peer without sending to it, so that a lost peer is
    /// detected by keepalives. No effect on a transport that detects a lost peer anyway.
    fn watch(&mut self, _peer: PeerId, _on: bool) {}

    /// Returns the number of eager messages that came from a remote peer since
    /// [`TransportEvent::PeerSeen`]. They survive a daemon restart.
    fn received(&self, _peer: PeerId) -> u64 {
        0
    }

    /// Disconnects a peer that broke the protocol.
    fn fail_peer(&mut self, peer: PeerId);

    /// Returns the next event; the same event again until [`Self::done`] or [`Self::defer`].
    fn next(&mut self) -> Option<TransportEvent>;

    /// Returns the next event if it is a short message, with its bytes. The caller takes it by
    /// [`Self::short_done`], or leaves it: then [`Self::next`] returns it, perhaps after events of
    /// other peers.
    #[inline]
    fn short(&mut self) -> Option<(PeerId, ShortEvent)> {
        None
    }

    /// Takes the message that [`Self::short`] returned. Returns whether another event of the same
    /// peer is ready.
    #[inline]
    fn short_done(&mut self) -> bool {
        false
    }

    /// Returns, after [`Self::done`], whether another event may be ready. Cheaper than
    /// [`Self::next`].
    #[inline]
    fn more(&self) -> bool {
        true
    }

    /// Copies bytes of the event that [`Self::next`] returned, from byte `at` on. Returns their
    /// number.
    fn copy(&self, at: usize, into: &mut [u8]) -> usize;

    /// Takes the event that [`Self::next`] returned.
    fn done(&mut self);

    /// Defers the event that [`Self::next`] returned. It comes again, after events of other peers
    /// where there are any.
    fn defer(&mut self);
}
