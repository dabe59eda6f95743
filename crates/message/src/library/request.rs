//! Requests: sends, receives and connects of the application that are not collected.
//!
//! This module holds the state of a request and moves nothing. `library::send`, `library::receive`,
//! `library::connect` and, for the refusal of an offer, `library::progress` make requests; these,
//! `library::directed` and `library::time` end them; `library::complete` collects them. An endpoint
//! has at most [`REQUESTS_MAX`](crate::limits::REQUESTS_MAX) (2^20) requests, ended requests
//! included; a further send, receive or connect fails with [`Error::NoResources`](super::Error).
//!
//! [`RequestState`] determines the list in which a request stands; a change of state therefore
//! unlinks the request first. Entries have no lock: the caller of [`Library`](super::Library) holds
//! one.

use causeway_wire::mx::{PeerId, Status};

use super::Partner;

/// Name of a request until it is collected, cancelled or forgotten. Never 0, and not used again
/// before 2^32 other requests had its place. Calls with a name that is invalid fail with
/// [`Error::BadRequest`](super::Error), or have no effect where they return no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// Result of a request: `mx_status_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Status.
    pub status: Status,
    /// Status as a number, unless [`Library::set_failure_code`](super::Library::set_failure_code)
    /// replaced it.
    pub code: u32,
    /// Sender of a receive, destination of a send, peer of a connect. `None` for a receive that
    /// ended without a message.
    pub partner: Option<Partner>,
    /// Match information of the message, or of the request if it ended without a message.
    pub match_info: u64,
    /// Length of the message, in bytes.
    pub msg_length: u32,
    /// Transferred bytes; less than `msg_length` if the message was truncated or failed.
    pub xfer_length: u32,
    /// Value that the application passed with the request.
    pub context: u64,
}

/// Kind of a request; it does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A send that ends when the application may reuse its bytes.
    Send,
    /// A send that ends when a receive has taken it; always offered to a peer.
    SyncSend,
    /// A receive, posted or matched.
    Receive,
    /// A connect to an endpoint.
    Connect,
}

/// State of a request; each state implies the list that contains the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestState {
    /// A send that the transport had no room for: in the peer's list `waiting`.
    Waiting,
    /// Offered to the peer; in no list.
    Offered,
    /// Fed to the peer: in the peer's list `streams`.
    Streaming,
    /// Copied, but [`EARLY_SENDS_MAX`](crate::limits::EARLY_SENDS_MAX) (512) forbids early
    /// completion; in no list.
    Unacked,
    /// A send to this endpoint, before its handler was called: in `own`.
    OwnFresh,
    /// A send to this endpoint, named by an unexpected message or offered to the handler; in no
    /// list.
    OwnUnexpected,
    /// In the list `posted` of its context.
    Posted,
    /// Matched, but the transport had no room for the pull: in `retry`.
    WantsPull,
    /// Pulling; in no list.
    Pulling,
    /// A connect that the transport had no room for: in `retry`.
    WantsConnect,
    /// Connecting; in no list.
    Connecting,
    /// Failed and not reported: in `failed`.
    Failed,
    /// Failed, and the error handler decides about its completion code; in no list.
    Reported,
    /// Ended: in `done`, unless it is hidden.
    Done,
    /// Collected, but not confirmed by the peer; in no list.
    Detached,
}

/// A [`Partner`] in one word. Fields that are read soon after they were written are read with the
/// same width, here and in the order of [`RequestEntry`]: a load that spans two pending stores
/// cannot be forwarded from the store buffer and stalls.
#[derive(Debug, Clone, Copy)]
struct PackedPartner(u64);

impl PackedPartner {
    const NONE: Self = Self(u64::MAX);
}

/// State of a request. The order of the fields matters for speed ([`PackedPartner`]).
#[derive(Debug)]
#[repr(C)]
pub(super) struct RequestEntry<B> {
    pub kind: RequestKind,
    pub state: RequestState,
    /// The application wants no completion.
    pub forgotten: bool,
    /// Calls without the request's name, such as [`Library::test_any`](super::Library::test_any),
    /// do not find it.
    pub hidden: bool,
    /// Receive from one endpoint only; `other` and `more` hold its address and session.
    pub directed: bool,
    /// Completed early; the transport still reports the real end.
    pub unacked: bool,
    /// Result, once the request has ended.
    pub status: Status,
    /// `status` as a number, or the error handler's code.
    pub code: u32,
    partner: PackedPartner,
    pub match_info: u64,
    /// Bits of `match_info` that a message must have; for receives.
    pub mask: u64,
    pub context: u64,
    /// Memory of the application; `None` once the request no longer needs it.
    pub buffer: Option<B>,
    /// Length of the message, in bytes.
    pub len: u32,
    /// Bytes to transfer (`end`), and transferred bytes (`at`).
    pub end: u32,
    pub at: u32,
    /// The transport's number of the offer to pull, or of the pull to feed. For a connect or a
    /// directed receive: the NIC.
    pub other: u64,
    /// Key and endpoint of a connect, or session and endpoint of a directed receive.
    pub more: (u32, u8),
    /// Time at which the request times out, in ns; `u64::MAX` for never.
    pub deadline: u64,
}

impl<B> RequestEntry<B> {
    #[inline(always)]
    pub(super) fn new(
        kind: RequestKind,
        state: RequestState,
        match_info: u64,
        context: u64,
    ) -> Self {
        Self {
            kind,
            state,
            forgotten: false,
            hidden: false,
            directed: false,
            unacked: false,
            status: Status::Pending,
            code: 0,
            partner: PackedPartner::NONE,
            match_info,
            mask: u64::MAX,
            context,
            buffer: None,
            len: 0,
            at: 0,
            end: 0,
            other: 0,
            more: (0, 0),
            deadline: u64::MAX,
        }
    }

    /// Returns the peer, if it is known.
    #[inline]
    pub(super) fn partner(&self) -> Option<Partner> {
        let PackedPartner(word) = self.partner;
        let partner = Partner { peer: PeerId(word as u32), epoch: (word >> 32) as u32 };
        (word != u64::MAX).then_some(partner)
    }

    #[inline]
    pub(super) fn set_partner(&mut self, partner: Option<Partner>) {
        let word = |partner: Partner| u64::from(partner.epoch) << 32 | u64::from(partner.peer.0);
        self.partner = partner.map_or(PackedPartner::NONE, |partner| PackedPartner(word(partner)));
    }

    #[inline]
    pub(super) fn completion(&self) -> Completion {
        Completion {
            status: self.status,
            code: self.code,
            partner: self.partner(),
            match_info: self.match_info,
            msg_length: self.len,
            xfer_length: self.at,
            context: self.context,
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.kind, RequestKind::Send | RequestKind::SyncSend)
    }
}
