//! Requests: what the application asked for and has not collected yet.

use causeway_wire::mx::{PeerId, Status};

use super::Partner;

/// A request, until it is collected, cancelled or forgotten. Never 0, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// How a request ended: `mx_status_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// How.
    pub status: Status,
    /// The same as a number, unless [`Library::tell_failed`](super::Library::tell_failed) gave
    /// another.
    pub code: u32,
    /// With whom: who sent it, whom it was sent to, whom it connected to. None for a receive that
    /// ended without a message.
    pub partner: Option<Partner>,
    /// Of the message; of the request, where it ended without one.
    pub match_info: u64,
    /// The message, in bytes.
    pub msg_length: u32,
    /// What was transferred of it, in bytes.
    pub xfer_length: u32,
    /// What the application gave with the request.
    pub context: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    SyncSend,
    Receive,
    Connect,
}

/// Where a request stands, and in which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A send that was not handed over: in its partner's list `waiting`.
    Waiting,
    /// Offered; in no list.
    Offered,
    /// Fed to its partner: in the partner's list `streams`.
    Streaming,
    /// Copied, but too many are on their way to end it early; in no list.
    Unacked,
    /// To this endpoint itself, and the handler was not asked yet: in `own`.
    OwnFresh,
    /// To this endpoint itself: named by an unexpected message, or being asked about; in no list.
    OwnUnexpected,
    /// In its context's list `posted`.
    Posted,
    /// Matched, but the pull was not handed over: in `retry`.
    WantsPull,
    /// Pulls; in no list.
    Pulling,
    /// A connect that was not handed over: in `retry`.
    WantsConnect,
    /// Connects; in no list.
    Connecting,
    /// Failed, and who asked to hear of it first has not: in `failed`, or being told of; in no
    /// list.
    Failed,
    /// Ended: in `done`, unless it is hidden.
    Done,
    /// Collected, but its partner has not confirmed yet; in no list.
    Detached,
}

/// What is written at one time and read at another soon after is of one width each time, here and
/// in [`Request`]'s order: a processor that has to put a word together of two that are still on
/// their way to its cache waits for them to arrive there.
#[derive(Debug, Clone, Copy)]
struct Who(u64);

impl Who {
    const NOBODY: Self = Self(u64::MAX);
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Request<B> {
    pub kind: Kind,
    pub state: State,
    /// No completion is wanted.
    pub forgotten: bool,
    /// Only who has its name sees it.
    pub hidden: bool,
    /// A receive from one endpoint only: `other` and `more` are its address and session.
    pub directed: bool,
    /// Ended early: the transport still says how it really ended.
    pub unacked: bool,
    pub status: Status,
    pub code: u32,
    partner: Who,
    pub match_info: u64,
    pub mask: u64,
    pub context: u64,
    pub buffer: Option<B>,
    /// The message, in bytes.
    pub len: u32,
    /// How much is to be transferred, and how much was.
    pub end: u32,
    pub at: u32,
    /// The partner's name for it: an offer to pull, or what is fed to. The address of a connect or
    /// a directed receive.
    pub other: u64,
    /// A connect's key and endpoint, or a directed receive's session and endpoint.
    pub more: (u32, u8),
    /// When it ends unless it ended before, in nanoseconds; `u64::MAX` for never.
    pub deadline: u64,
}

impl<B> Request<B> {
    #[inline(always)]
    pub(super) fn new(kind: Kind, state: State, match_info: u64, context: u64) -> Self {
        Self {
            kind,
            state,
            forgotten: false,
            hidden: false,
            directed: false,
            unacked: false,
            status: Status::Pending,
            code: 0,
            partner: Who::NOBODY,
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

    /// With whom, if that is known.
    #[inline]
    pub(super) fn partner(&self) -> Option<Partner> {
        let Who(word) = self.partner;
        let partner = Partner { peer: PeerId(word as u32), epoch: (word >> 32) as u32 };
        (word != u64::MAX).then_some(partner)
    }

    #[inline]
    pub(super) fn set_partner(&mut self, partner: Option<Partner>) {
        let word = |partner: Partner| u64::from(partner.epoch) << 32 | u64::from(partner.peer.0);
        self.partner = partner.map_or(Who::NOBODY, |partner| Who(word(partner)));
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
        matches!(self.kind, Kind::Send | Kind::SyncSend)
    }
}
