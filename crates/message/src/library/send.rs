//! Sends: the calls of the application, and the queue of sends that the transport had no room for.
//!
//! A send is passed to the transport at once where it has room, else by [`Library::progress`], in
//! order per peer. A send to a lost peer ends at once with [`Status::EndpointUnreachable`]. A
//! message up to [`Transport::eager_max`] is copied by the transport; a longer or synchronous
//! message is offered, and its bytes must stay unchanged until the request ends.
//!
//! A send copied into a channel is complete at once. Of those to other hosts, at most
//! [`EARLY_SENDS_MAX`](crate::limits::EARLY_SENDS_MAX) (512) are complete before the peer's host
//! acknowledged them; further sends end with the acknowledgement. If an early completed send fails
//! later, its completion stays, and [`Library::take_lost`] reports it. A pull of a peer is *fed*:
//! the next bytes of the send are copied into its channel while there is room. Waiting sends and
//! fed pulls of one peer alternate: [`SENDS_PER_TURN`] (16) sends, then [`STREAM_BYTES_PER_TURN`]
//! (16 KiB).
//!
//! Sends to the own endpoint are matched here and reach no transport. Without a matching receive
//! and without room in the unexpected queue, the library keeps no copy of the bytes; without a free
//! entry, the send fails with [`Status::NoResources`].
//!
//! The API libraries call [`Library::isend`], [`Library::issend`] and [`Library::send_at_once`], in
//! the thread that holds the lock of the endpoint; `library::progress` hands over waiting sends and
//! begins the feed of pulls. Not here: time limits (`library::time`), confirmations
//! (`library::progress`).

use causeway_channel::{INLINE_BYTES, ShortEvent};
use causeway_wire::mx::{PeerId, Status, Token};

use super::request::{RequestEntry, RequestKind, RequestState};
use super::unexpected::{UnexpectedContent, UnexpectedMessage};
use super::{
    Buffer, Error, Handover, Library, Partner, RequestId, Transport, TransportError, fill,
};
use crate::limits::{SENDS_PER_TURN, STREAM_BYTES_PER_TURN};

impl<B: Buffer> Library<B> {
    /// Sends a message. The request ends when the application may reuse the bytes; for a large
    /// message, when the peer has received it.
    ///
    /// # Errors
    /// [`Error::NoResources`] with too many requests, [`Error::BadSegmentList`] if the message is
    /// too long.
    #[inline]
    pub fn isend<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        to: Partner,
        match_info: u64,
        context: u64,
        data: B,
    ) -> Result<RequestId, Error> {
        if self.can_be_eager(transport, to, &data) {
            return self.send_whole(transport, to, match_info, context, data);
        }
        self.send(transport, RequestKind::Send, to, match_info, context, data)
    }

    /// Returns whether a message is eager and no send of the peer waits before it.
    #[inline]
    fn can_be_eager<T: Transport<B>>(&self, transport: &T, to: Partner, data: &B) -> bool {
        self.partners.of(to).is_some_and(|known| known.is_alive && known.waiting.is_empty())
            && !self.clock.has_default()
            && data.len() <= transport.eager_max(to.peer)
    }

    /// Sends a message without a request if the transport accepts it at once
    /// ([`Transport::try_eager`]). Returns false without effect otherwise: the message is too long,
    /// earlier sends wait, sends have a time limit, or there is no room.
    #[inline(always)]
    pub fn send_at_once<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        to: Partner,
        match_info: u64,
        data: &B,
    ) -> bool {
        let gone = self.can_be_eager(transport, to, data)
            && transport.try_eager(to.peer, match_info, data);
        if gone {
            self.counters.sent.count(u32::try_from(data.len()).unwrap_or(u32::MAX));
        }
        gone
    }

    /// Sends an eager message before which no send waits; mostly the transport accepts it at once.
    #[inline]
    fn send_whole<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        to: Partner,
        match_info: u64,
        context: u64,
        data: B,
    ) -> Result<RequestId, Error> {
        let len = u32::try_from(data.len()).map_err(|_| Error::BadSegmentList)?;
        let name = self.requests.next_name().ok_or(Error::NoResources)?;
        self.counters.sent.count(len);
        // Before the request is added: the peer waits for the message, no thread for the request.
        let handed = transport.eager(to.peer, Token(name), match_info, &data);
        let at = self.requests.insert_with(|| {
            let mut request =
                RequestEntry::new(RequestKind::Send, RequestState::Done, match_info, context);
            request.status = Status::Success;
            request.set_partner(Some(to));
            (request.len, request.at) = (len, len);
            request
        });
        let at = at.ok_or(Error::NoResources)?;
        if handed == Ok(Handover::Done) {
            self.ended.push_done(&mut self.requests, at);
        } else {
            self.record_eager(at, to.peer, data, handed);
        }
        Ok(RequestId(name))
    }

    /// Records an eager message that the transport did not complete at once.
    #[cold]
    fn record_eager(
        &mut self,
        at: u32,
        peer: PeerId,
        data: B,
        handed: Result<Handover, TransportError>,
    ) {
        if let Some(request) = self.requests.get_mut(at) {
            (request.state, request.status) = (RequestState::Waiting, Status::Pending);
            request.at = 0;
            request.buffer = Some(data);
        }
        if !self.record_handover(at, true, handed) {
            self.wait(at, peer);
        }
    }

    /// Sends a message; the request ends when a receive has taken it.
    ///
    /// # Errors
    /// Those of [`Self::isend`].
    pub fn issend<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        to: Partner,
        match_info: u64,
        context: u64,
        data: B,
    ) -> Result<RequestId, Error> {
        self.send(transport, RequestKind::SyncSend, to, match_info, context, data)
    }

    fn send<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        kind: RequestKind,
        to: Partner,
        match_info: u64,
        context: u64,
        data: B,
    ) -> Result<RequestId, Error> {
        let mut request = RequestEntry::new(kind, RequestState::Waiting, match_info, context);
        request.len = u32::try_from(data.len()).map_err(|_| Error::BadSegmentList)?;
        request.set_partner(Some(to));
        request.buffer = Some(data);
        if to == Partner::SELF {
            self.counters.sent.count(request.len);
            let at = self.add(request)?;
            self.send_to_self(at);
            return Ok(self.id(at));
        }
        let (alive, first) = match self.partners.of(to) {
            Some(known) => (known.is_alive, known.waiting.is_empty()),
            None => (false, false),
        };
        request.deadline = self.clock.start(None);
        self.counters.sent.count(request.len);
        let at = self.add(request)?;
        let id = self.id(at);
        if !alive {
            self.finish(at, Status::EndpointUnreachable);
        } else if !first || !self.hand_over(transport, at, to.peer) {
            self.wait(at, to.peer);
        }
        Ok(id)
    }

    /// Hands a send, which stands in no list, to the transport. Returns false if there is no room
    /// now.
    pub(super) fn hand_over<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        at: u32,
        peer: PeerId,
    ) -> bool {
        let token = self.token(at);
        let Some(request) = self.requests.get_mut(at) else { return true };
        let Some(data) = &request.buffer else { return true };
        let info = request.match_info;
        let whole = request.kind == RequestKind::Send && data.len() <= transport.eager_max(peer);
        let handed = if whole {
            transport.eager(peer, token, info, data)
        } else {
            transport.offer(peer, token, info, data).map(|()| Handover::Kept)
        };
        self.record_handover(at, whole, handed)
    }

    /// Records the transport's answer to a send, eager (`whole`) or offered. Returns false if there
    /// was no room.
    fn record_handover(
        &mut self,
        at: u32,
        whole: bool,
        handed: Result<Handover, TransportError>,
    ) -> bool {
        let Some(request) = self.requests.get_mut(at) else { return true };
        match handed {
            Ok(Handover::Done) => {
                request.at = request.len;
                self.finish(at, Status::Success);
            }
            Ok(Handover::Copied) if self.losses.begin_early() => {
                request.at = request.len;
                request.unacked = true;
                self.finish(at, Status::Success);
            }
            Ok(_) if whole => request.state = RequestState::Unacked,
            Ok(_) => request.state = RequestState::Offered,
            Err(TransportError::Full) => return false,
            Err(TransportError::Never(status)) => self.finish(at, status),
        }
        true
    }

    /// Appends a send to the waiting sends of its peer.
    fn wait(&mut self, at: u32, peer: PeerId) {
        if let Some(known) = self.partners.get_mut(peer) {
            self.requests.push(&mut known.waiting, at);
        }
        self.list(peer);
    }

    /// Lists a peer as busy.
    pub(super) fn list(&mut self, peer: PeerId) {
        if let Some(known) = self.partners.get_mut(peer)
            && !known.is_busy
        {
            known.is_busy = true;
            self.busy.push_back(peer);
        }
    }

    /// Matches a send to this endpoint, or queues it in `own` for [`Library::progress`] where the
    /// handler must see it or others wait before it.
    fn send_to_self(&mut self, at: u32) {
        let Some(request) = self.requests.get(at) else { return };
        let info = request.match_info;
        // Sends in `own` come first, and the handler sees this send unless a receive matches.
        if self.own.is_empty() && self.asked.is_none() {
            if let Some(receive) = self.take_posted(Partner::SELF.peer, info) {
                self.deliver_own(at, receive);
                return;
            }
            if !self.handler {
                self.keep_own(at);
                return;
            }
        }
        if let Some(request) = self.requests.get_mut(at) {
            request.state = RequestState::OwnFresh;
            self.requests.push(&mut self.own, at);
        }
    }

    /// Copies a send to this endpoint into its receive, and ends both.
    pub(super) fn deliver_own(&mut self, send: u32, receive: u32) {
        let Some(from) = self.requests.get_mut(send) else { return };
        let (data, len, info) = (from.buffer.take(), from.len, from.match_info);
        let taken = match (data, self.requests.get_mut(receive).and_then(|r| r.buffer.as_mut())) {
            (Some(data), Some(into)) => super::buffer::copy(&data, into),
            _ => 0,
        };
        self.end_own(send, receive, info, len, taken);
    }

    /// Ends both sides of a send to this endpoint, of which `taken` of `len` bytes were copied.
    pub(super) fn end_own(&mut self, send: u32, receive: u32, info: u64, len: u32, taken: usize) {
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        let status = if taken < len { Status::Truncated } else { Status::Success };
        if let Some(request) = self.requests.get_mut(send) {
            request.at = taken;
        }
        if let Some(request) = self.requests.get_mut(receive) {
            request.set_partner(Some(Partner::SELF));
            request.match_info = info;
            request.len = len;
            request.at = taken;
        }
        self.finish(send, status);
        self.finish(receive, status);
    }

    /// Keeps a send to this endpoint as an unexpected message, with a copy of its bytes if there is
    /// room.
    pub(super) fn keep_own(&mut self, at: u32) {
        if self.unexpected.is_full() {
            self.finish(at, Status::NoResources);
            return;
        }
        let Some(request) = self.requests.get_mut(at) else { return };
        let (info, len) = (request.match_info, request.len);
        let size = request.buffer.as_ref().map_or(0, Buffer::len);
        let copy = if self.unexpected.has_room(size)
            && let Some(data) = request.buffer.take()
        {
            let mut copy = self.unexpected.buffer(size);
            super::buffer::copy(&data, &mut copy);
            Some(copy)
        } else {
            None
        };
        request.state = RequestState::OwnUnexpected;
        let order = self.unexpected.next_order();
        let content = UnexpectedContent::Own(at, copy);
        let (partner, source) = (Partner::SELF, self.own_source());
        let message = UnexpectedMessage { partner, source, match_info: info, len, content, order };
        if let Some(queues) = self.contexts.of_mut(info) {
            self.unexpected.insert(&mut queues.unexpected, message);
        }
    }

    /// Hands over the waiting sends of a peer and feeds its pulls, alternately, so that neither
    /// delays the other. Returns false when no send and no pull is left; true when the transport
    /// has no room.
    pub(super) fn serve<T: Transport<B>>(&mut self, transport: &mut T, peer: PeerId) -> bool {
        while let Some(known) = self.partners.get_mut(peer) {
            let (send, stream) = (known.waiting.first(), known.streams.first());
            let served = match (send, stream) {
                (None, None) => return false,
                (Some(_), Some(stream)) if known.turns >= SENDS_PER_TURN => {
                    self.feed(transport, peer, stream, STREAM_BYTES_PER_TURN)
                }
                (None, Some(stream)) => self.feed(transport, peer, stream, u32::MAX),
                (Some(at), _) => {
                    known.turns = known.turns.saturating_add(1);
                    self.requests.unlink(&mut known.waiting, at);
                    let handed = self.hand_over(transport, at, peer);
                    if !handed {
                        self.wait_first(at, peer);
                    }
                    handed
                }
            };
            if !served {
                return true;
            }
        }
        false
    }

    /// Feeds at most `most` bytes to a pull. Returns false if there is no room for more.
    fn feed<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        at: u32,
        most: u32,
    ) -> bool {
        let Some(request) = self.requests.get_mut(at) else { return false };
        let Some(data) = &request.buffer else { return false };
        let (from, end) = (request.at, request.end);
        let until = end.min(from.saturating_add(most));
        match transport.feed(peer, request.other, data, from as usize, until as usize) {
            Ok(fed) => {
                if fed > 0
                    && let Some(known) = self.partners.get_mut(peer)
                {
                    known.turns = 0;
                }
                let fed = u32::try_from(fed).unwrap_or(u32::MAX);
                request.at = from.saturating_add(fed).min(end);
                if request.at < end {
                    return request.at >= until;
                }
                let status = if end < request.len { Status::Truncated } else { Status::Success };
                self.end_stream(at, peer, status);
            }
            Err(TransportError::Full) => return false,
            Err(TransportError::Never(status)) => self.end_stream(at, peer, status),
        }
        true
    }

    /// Ends a send that a peer pulls.
    fn end_stream(&mut self, at: u32, peer: PeerId, status: Status) {
        if let Some(known) = self.partners.get_mut(peer) {
            self.requests.unlink(&mut known.streams, at);
        }
        self.finish(at, status);
    }

    /// Prepends a send to the waiting sends of its peer.
    fn wait_first(&mut self, at: u32, peer: PeerId) {
        if let Some(known) = self.partners.get_mut(peer) {
            self.requests.push_first(&mut known.waiting, at);
        }
    }

    /// Returns whether the application may reuse the bytes of a send before it ends. True for a
    /// send that has ended, until it is collected.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request, or it is no send.
    pub fn ibuffered(&self, id: RequestId) -> Result<bool, Error> {
        let request = self.requests.get(self.find(id)?).ok_or(Error::BadRequest)?;
        if !request.is_send() {
            return Err(Error::BadRequest);
        }
        Ok(match request.state {
            RequestState::Done | RequestState::Failed => true,
            RequestState::Unacked | RequestState::OwnUnexpected => request.buffer.is_none(),
            _ => false,
        })
    }

    /// Copies the first bytes of a send to this endpoint that is offered to the handler, and
    /// returns their number.
    pub(super) fn own_bytes(&self, at: u32, into: &mut [u8]) -> usize {
        let Some(data) = self.requests.get(at).and_then(|r| r.buffer.as_ref()) else { return 0 };
        let mut into = Piece(into);
        super::buffer::copy(data, &mut into)
    }
}

/// One segment of private memory.
struct Piece<'a>(&'a mut [u8]);

impl Buffer for Piece<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, at: usize) -> &[u8] {
        self.0.get(at..).unwrap_or_default()
    }

    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        self.0.get_mut(at..).unwrap_or_default()
    }
}

/// Copies the bytes of a short message into a buffer, and returns their number: less than the
/// message if the buffer is shorter.
#[inline(always)]
pub(super) fn fill_short<B: Buffer>(into: &mut B, short: &ShortEvent) -> usize {
    // Most buffers have one segment with room for all, or a header and one segment.
    let (first, second) = into.two_mut();
    if first.len().saturating_add(second.len()) >= short.len() {
        return short.copy_to(first, second);
    }
    let mut bytes = [0; INLINE_BYTES];
    let len = short.copy_to(&mut bytes, &mut []);
    fill_from(into, bytes.get(..len).unwrap_or_default())
}

/// Copies bytes of the library into the start of a buffer, and returns their number: fewer if the
/// buffer is shorter.
#[inline]
pub(super) fn fill_from<B: Buffer>(into: &mut B, bytes: &[u8]) -> usize {
    // Most buffers have one segment with room for all, or a header and one segment.
    let (first, second) = into.two_mut();
    if let Some(piece) = first.get_mut(..bytes.len()) {
        piece.copy_from_slice(bytes);
        return bytes.len();
    }
    if let Some((head, body)) = bytes.split_at_checked(first.len())
        && let Some(piece) = second.get_mut(..body.len())
    {
        first.copy_from_slice(head);
        piece.copy_from_slice(body);
        return bytes.len();
    }
    fill(into, 0, bytes.len(), |at, piece| {
        let Some(from) = bytes.get(at..at.saturating_add(piece.len())) else { return 0 };
        piece.copy_from_slice(from);
        piece.len()
    })
}
