//! What carries messages between the library half and its partners: channels to endpoints of this
//! host, or the backend half.

use causeway_channel::Short;
use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::Buffer;

/// What became of something that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    /// It has ended; no arrival follows for its token.
    Done,
    /// The bytes were copied; an arrival says how it ended.
    Copied,
    /// The bytes are needed until an arrival says how it ended.
    Kept,
}

/// Why something was not handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room now: again later.
    Full,
    /// It will never be: the request ends so.
    Never(Status),
}

/// What came in. Bytes that belong to it are taken by [`Transport::copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are what their types say")]
pub enum Arrival {
    /// A partner that was not known, or began anew; before anything else of it.
    PeerSeen { peer: PeerId, address: Address, session: u32 },
    /// The partner is not reached any more. Answered by [`Transport::forget`].
    PeerGone { peer: PeerId, status: Status },
    /// Nothing reaches the partner any more; what came of it before is still to be taken.
    Unreached { peer: PeerId, status: Status },
    /// A connect ended.
    Connected { token: Token, status: Status, peer: PeerId },
    /// A message, whole: `len` bytes go with it.
    Message { peer: PeerId, match_info: u64, len: u32 },
    /// A message of `len` bytes that is to be pulled; `offer` names it to [`Transport::pull`].
    Offered { peer: PeerId, match_info: u64, len: u32, offer: u64 },
    /// The partner takes `len` bytes of what was offered by `token`: they are to be fed, and `to`
    /// names it to [`Transport::feed`].
    Wanted { peer: PeerId, token: Token, to: u64, len: u32 },
    /// The partner read `len` bytes of what was offered by `token` where they lay.
    Fetched { peer: PeerId, token: Token, len: u32 },
    /// The partner takes what was offered by `token` itself, and may be helped: its bytes are to be
    /// had by [`Transport::push`], if they are still offered.
    Push { peer: PeerId, token: Token },
    /// The next `len` bytes of what is being pulled go with it. If it has fewer, all comes again,
    /// from the beginning.
    Chunk { peer: PeerId, token: Token, len: u32 },
    /// The `len` bytes from `at` on of what is being pulled go with it, in any order; else as
    /// [`Arrival::Chunk`].
    Part { peer: PeerId, token: Token, at: u32, len: u32 },
    /// The partner will not send what is being pulled.
    Failed { peer: PeerId, token: Token },
    /// A send ended; `taken` bytes were taken, where it was offered.
    Sent { token: Token, status: Status, taken: u32 },
    /// A pull ended, and all its bytes are in place.
    Pulled { token: Token, status: Status },
}

/// The way to the partners. Events of one partner come in order, and what is sent to one arrives
/// in order.
///
/// Nothing that a partner says is believed here but by the rules of the way itself; the library
/// half checks what it names.
pub trait Transport<B: Buffer> {
    /// Longest message to `peer` that goes whole, in bytes; longer ones are offered.
    fn eager_max(&self, peer: PeerId) -> usize;

    /// Sends a message whole if it is gone at once; of [`Token::UNREPORTED`] it is heard if it does not
    /// get there after all. False: nothing was done.
    #[inline]
    fn at_once(&mut self, _peer: PeerId, _match_info: u64, _data: &B) -> bool {
        false
    }

    /// Sends a message whole.
    ///
    /// # Errors
    /// Not now, or never.
    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handed, Refused>;

    /// Offers a message of any length. Ends by [`Arrival::Wanted`] or [`Arrival::Sent`].
    ///
    /// # Errors
    /// Not now, or never.
    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), Refused>;

    /// Pulls the first `len` bytes of an offered message. They come as chunks, or are in place
    /// when [`Arrival::Pulled`] says so; none come if `len` is 0 and it is [`Handed::Done`].
    ///
    /// # Errors
    /// Not now, or never.
    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handed, Refused>;

    /// Feeds bytes from `at` on, at most to `end`, to the partner that wanted them; gives how many.
    ///
    /// # Errors
    /// Not now, or never.
    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, Refused>;

    /// Puts some of what [`Arrival::Push`] named where the partner takes it.
    fn push(&mut self, _data: &B) {}

    /// Tells the partner that what it wanted does not come (any more).
    fn fail(&mut self, peer: PeerId, to: u64);

    /// Connects to an endpoint; ends by [`Arrival::Connected`].
    ///
    /// # Errors
    /// Not now, or never.
    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), Refused>;

    /// Parts from a partner. Nothing of it may come any more.
    fn disconnect(&mut self, peer: PeerId);

    /// After [`Arrival::PeerGone`]: its number is not used here any more.
    fn forget(&mut self, peer: PeerId);

    /// A send, pull or connect was given up here; an arrival for it is of no interest.
    fn cancel(&mut self, token: Token);

    /// The memory of a send or a pull is lost: of a send nothing more is sent that is read there,
    /// and the bytes of a pull go nowhere. Nobody writes there any more when this returns.
    fn lose(&mut self, _token: Token) {}

    /// Whether something here waits for what only this partner can do: that it is gone is to be
    /// heard, though nothing is sent to it. Where that is heard anyway, nothing is to be done.
    fn watch(&mut self, _peer: PeerId, _on: bool) {}

    /// Returns how many whole messages came from a partner of another host since it was seen. They are
    /// here: none is lost when the daemon goes.
    fn received(&self, _peer: PeerId) -> u64 {
        0
    }

    /// A partner broke the rules: it is to be gone.
    fn broken(&mut self, peer: PeerId);

    /// What came in. The same again until [`Self::done`] or [`Self::defer`].
    fn next(&mut self) -> Option<Arrival>;

    /// What is next, if that is a message of a few bytes; with these. It is taken by
    /// [`Self::short_done`]; or not, and then [`Self::next`] gives it, perhaps after what others sent.
    #[inline]
    fn short(&mut self) -> Option<(PeerId, Short)> {
        None
    }

    /// What [`Self::short`] gave was taken. Says whether something else of the same partner is
    /// there.
    #[inline]
    fn short_done(&mut self) -> bool {
        false
    }

    /// After [`Self::done`]: whether there may be something next. Cheaper than [`Self::next`], for
    /// who has enough to do with what came.
    #[inline]
    fn more(&self) -> bool {
        true
    }

    /// Copies bytes of what [`Self::next`] gave last, from its byte `at` on; gives how many.
    fn copy(&self, at: usize, into: &mut [u8]) -> usize;

    /// What [`Self::next`] gave last was taken.
    fn done(&mut self);

    /// What [`Self::next`] gave last cannot be taken now. It comes again; first what others sent,
    /// where there is a choice.
    fn defer(&mut self);
}
