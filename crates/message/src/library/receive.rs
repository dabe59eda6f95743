//! Receives and probes: matching with unexpected messages, and pulls of offered messages.
//!
//! A receive takes the oldest matching unexpected message at once, or is posted until a message
//! arrives in [`Library::progress`]. A buffer shorter than the message takes the first bytes, and
//! the receive ends with [`Status::Truncated`]. A receive of an offered message ends after the
//! pull; if the transport has no room, the pull is repeated by [`Library::progress`].
//!
//! A receive has no time limit unless [`Library::set_timeout`] sets one for this request; a posted
//! receive of any sender survives the loss of every peer. A receive that pulls ends with the status
//! of its sender's loss; if the sender ended the send, with [`Status::Aborted`] or, from another
//! host, [`Status::BadRdmaWindow`]. Its buffer then has undefined content. A probe takes nothing: a
//! later receive or another thread's receive may take the probed message.
//!
//! Called by the API libraries (`irecv`, `iprobe`), in the thread that holds the lock of the
//! endpoint, and by `library::progress` for arriving messages. Receives from one sender only:
//! `library::directed`.

use causeway_wire::mx::{PeerId, Status};

use super::directed::expected_source;
use super::request::{RequestEntry, RequestKind, RequestState};
use super::send::fill_from;
use super::unexpected::{UnexpectedContent, UnexpectedMessage};
use super::{
    Buffer, EndpointIdentity, Error, Handover, Library, Partner, RequestId, Transport,
    TransportError, check_mask,
};

/// Result of a probe: a message that no receive has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbedMessage {
    /// Sender.
    pub partner: Partner,
    /// Match information.
    pub match_info: u64,
    /// Length, in bytes.
    pub len: u32,
}

impl<B: Buffer> Library<B> {
    /// Receives the oldest message, present or future, whose match information under `mask` equals
    /// `info`.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`] if `info` has bits that `mask` does not cover;
    /// [`Error::BadMatchingForContextIdMask`] if the mask does not cover the context id;
    /// [`Error::NoResources`] with too many requests.
    #[inline]
    pub fn irecv<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        info: u64,
        mask: u64,
        context: u64,
        into: B,
    ) -> Result<RequestId, Error> {
        self.receive(transport, None, (info, mask), context, into)
    }

    /// Receives as [`Self::irecv`] does, only from the endpoint `from` if it is given.
    #[inline]
    pub(super) fn receive<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        from: Option<EndpointIdentity>,
        (info, mask): (u64, u64),
        context: u64,
        into: B,
    ) -> Result<RequestId, Error> {
        check_mask(info, mask)?;
        if !self.contexts.covers(mask) {
            return Err(Error::BadMatchingForContextIdMask);
        }
        let at = self.requests.insert_with(|| {
            let mut request =
                RequestEntry::new(RequestKind::Receive, RequestState::Posted, info, context);
            request.mask = mask;
            request.buffer = Some(into);
            if let Some(EndpointIdentity { address, session }) = from {
                request.directed = true;
                (request.other, request.more) = (address.nic.0, (session, address.endpoint));
            }
            request
        });
        let at = at.ok_or(Error::NoResources)?;
        let id = self.id(at);
        let queues = self.contexts.of(info);
        if !queues.unexpected.is_empty()
            && let Some(message) = self.first_unexpected(info, mask, from)
        {
            self.take_unexpected(transport, at, message);
        } else if let Some(queues) = self.contexts.of_mut(info) {
            self.requests.push(&mut queues.posted, at);
        }
        Ok(id)
    }

    /// Returns the oldest matching unexpected message without taking it.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`] if `info` has bits that `mask` does not cover.
    pub fn iprobe(&self, info: u64, mask: u64) -> Result<Option<ProbedMessage>, Error> {
        check_mask(info, mask)?;
        let found = self.first_unexpected(info, mask, None);
        let message = found.and_then(|at| self.unexpected.get(at));
        Ok(message.map(|message| ProbedMessage {
            partner: message.partner,
            match_info: message.match_info,
            len: message.len,
        }))
    }

    /// Returns the index of the oldest unexpected message that matches, of any sender or of `from`.
    pub(super) fn first_unexpected(
        &self,
        info: u64,
        mask: u64,
        from: Option<EndpointIdentity>,
    ) -> Option<u32> {
        let messages = &self.unexpected;
        let firsts = self.contexts.searched(info, mask).filter_map(|queues| {
            messages.iter(&queues.unexpected).find(|(_, m)| {
                m.match_info & mask == info && from.is_none_or(|from| from == m.source)
            })
        });
        firsts.min_by_key(|(_, message)| message.order).map(|(at, _)| at)
    }

    /// Removes the oldest posted receive that matches a message from its queue, and returns its
    /// index.
    #[inline(always)]
    pub(super) fn take_posted(&mut self, peer: PeerId, match_info: u64) -> Option<u32> {
        let queues = self.contexts.of_mut(match_info)?;
        let first = queues.posted.first()?;
        let request = self.requests.get(first)?;
        // Mostly the first receive matches.
        if match_info & request.mask == request.match_info
            && (!request.directed || self.partners.source(peer) == Some(expected_source(request)))
        {
            self.requests.shift(&mut queues.posted);
            return Some(first);
        }
        self.find_posted(peer, match_info)
    }

    /// Searches the posted receives of a context, if the first receive does not match.
    fn find_posted(&mut self, peer: PeerId, match_info: u64) -> Option<u32> {
        let mut next = self.contexts.of(match_info).posted.first();
        while let Some(at) = next {
            let request = self.requests.get(at)?;
            if match_info & request.mask == request.match_info
                && (!request.directed || self.is_from(request, peer))
            {
                let queues = self.contexts.of_mut(match_info)?;
                self.requests.unlink(&mut queues.posted, at);
                return Some(at);
            }
            next = self.requests.after(at);
        }
        None
    }

    /// Removes an unexpected message from its queue.
    pub(super) fn remove_unexpected(&mut self, at: u32) -> Option<UnexpectedMessage> {
        let info = self.unexpected.get(at)?.match_info;
        let queues = self.contexts.of_mut(info)?;
        let message = self.unexpected.remove(&mut queues.unexpected, at)?;
        if let Some(known) = self.partners.get_mut(message.partner.peer)
            && message.partner.epoch >= known.kept_since
        {
            known.kept.messages = known.kept.messages.saturating_sub(1);
            known.kept.bytes = known.kept.bytes.saturating_sub(message.content.bytes());
        }
        Some(message)
    }

    /// Delivers an unexpected message to a receive.
    fn take_unexpected<T: Transport<B>>(&mut self, transport: &mut T, at: u32, message: u32) {
        let Some(message) = self.remove_unexpected(message) else { return };
        let Some(request) = self.requests.get_mut(at) else { return };
        match message.content {
            UnexpectedContent::Whole(bytes) => {
                let taken = request.buffer.as_mut().map_or(0, |into| fill_from(into, &bytes));
                self.unexpected.give_back(bytes);
                self.end_whole(at, message.partner, message.match_info, message.len, taken);
            }
            UnexpectedContent::Own(send, Some(bytes)) => {
                let taken = request.buffer.as_mut().map_or(0, |into| fill_from(into, &bytes));
                self.unexpected.give_back(bytes);
                self.end_own(send, at, message.match_info, message.len, taken);
            }
            UnexpectedContent::Own(send, None) => self.deliver_own(send, at),
            UnexpectedContent::Offered(offer) => {
                self.match_offer(at, message.partner, message.match_info, message.len, offer);
                self.pull(transport, at);
            }
        }
    }

    /// Ends a receive with an eager message of `len` bytes, of which `taken` were copied.
    #[inline]
    pub(super) fn end_whole(
        &mut self,
        at: u32,
        partner: Partner,
        match_info: u64,
        len: u32,
        taken: usize,
    ) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.set_partner(Some(partner));
        request.match_info = match_info;
        request.len = len;
        request.at = u32::try_from(taken).unwrap_or(u32::MAX);
        let status = if request.at < len { Status::Truncated } else { Status::Success };
        self.finish(at, status);
    }

    /// Records in a receive the offer that it matched.
    pub(super) fn match_offer(
        &mut self,
        at: u32,
        partner: Partner,
        match_info: u64,
        len: u32,
        offer: u64,
    ) {
        let Some(request) = self.requests.get_mut(at) else { return };
        let room = request.buffer.as_ref().map_or(0, Buffer::len);
        request.set_partner(Some(partner));
        request.match_info = match_info;
        request.len = len;
        request.end = u32::try_from(room).unwrap_or(u32::MAX).min(len);
        request.other = offer;
        request.deadline = u64::MAX;
    }

    /// Pulls the offer of a receive; queues the pull for a retry if there is no room.
    pub(super) fn pull<T: Transport<B>>(&mut self, transport: &mut T, at: u32) {
        let token = self.token(at);
        let Some(request) = self.requests.get_mut(at) else { return };
        let Some(partner) = request.partner() else { return };
        if self.partners.of(partner).is_none_or(|known| !known.is_alive) {
            self.finish(at, Status::EndpointUnreachable);
            return;
        }
        let (offer, len) = (request.other, request.end);
        match transport.pull(partner.peer, offer, token, request.buffer.as_mut(), len) {
            Ok(Handover::Done) => self.end_pull(at, len),
            Ok(_) => request.state = RequestState::Pulling,
            Err(TransportError::Full) => {
                request.state = RequestState::WantsPull;
                self.requests.push(&mut self.retry, at);
            }
            Err(TransportError::Never(status)) => self.finish(at, status),
        }
    }

    /// Ends a receive of an offered message: the `taken` bytes that were pulled are in place.
    pub(super) fn end_pull(&mut self, at: u32, taken: u32) {
        let Some(request) = self.requests.get_mut(at) else { return };
        request.at = taken;
        let status = if taken < request.len { Status::Truncated } else { Status::Success };
        self.finish(at, status);
    }
}
