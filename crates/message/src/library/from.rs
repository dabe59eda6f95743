//! Receives from one endpoint only, and messages looked at or taken without a receive: what MX's
//! API has no calls for and others need.

use causeway_wire::mx::{Address, NicId, PeerId, Status, Token};

use super::request::{Request, State};
use super::unexpected::Content;
use super::{Buffer, Error, Library, Partner, Probed, RequestId, Transport, check_mask, pieces};

/// An endpoint as its sender knows it: where it is, and which of those that were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Its address.
    pub address: Address,
    /// Its session.
    pub session: u32,
}

/// A message that was taken without a receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Who sent it, and what of it is known.
    pub probed: Probed,
    /// Its bytes. To be given back ([`Library::give_back`]).
    pub bytes: Vec<u8>,
}

impl<B: Buffer> Library<B> {
    /// As [`Self::irecv`], from that endpoint only, whether it is a partner yet or not. Ends also
    /// when the partner is gone.
    ///
    /// # Errors
    /// As of [`Self::irecv`].
    pub fn irecv_from<T: Transport<B>>(
        &mut self,
        way: &mut T,
        from: Option<Source>,
        (info, mask): (u64, u64),
        context: u64,
        into: B,
    ) -> Result<RequestId, Error> {
        self.receive(way, from, (info, mask), context, into)
    }

    /// As [`Self::iprobe`], of messages from one endpoint if it is named. Copies the first bytes,
    /// as far as they are there; says how many.
    ///
    /// # Errors
    /// `info` has bits that `mask` does not cover.
    pub fn probe(
        &self,
        from: Option<Source>,
        (info, mask): (u64, u64),
        into: &mut [u8],
    ) -> Result<Option<(Probed, usize)>, Error> {
        check_mask(info, mask)?;
        let found = self.first_unexpected(info, mask, from);
        let Some(message) = found.and_then(|at| self.unexpected.messages.get(at)) else {
            return Ok(None);
        };
        let copied = match &message.content {
            Content::Whole(bytes) | Content::Own(_, Some(bytes)) => first(bytes, into),
            Content::Own(send, None) => {
                let data = self.requests.get(*send).and_then(|request| request.buffer.as_ref());
                data.map_or(0, |data| first(data, into))
            }
            Content::Offered(_) => 0,
        };
        let (partner, match_info) = (message.partner, message.match_info);
        Ok(Some((Probed { partner, match_info, len: message.len }, copied)))
    }

    /// Takes the first message that came and that no receive was posted for, of those that match.
    /// Messages that are only offered are turned down: their senders think that they were taken.
    ///
    /// # Errors
    /// `info` has bits that `mask` does not cover.
    pub fn take_kept<T: Transport<B>>(
        &mut self,
        way: &mut T,
        from: Option<Source>,
        (info, mask): (u64, u64),
    ) -> Result<Option<Taken>, Error> {
        check_mask(info, mask)?;
        while let Some(at) = self.first_unexpected(info, mask, from) {
            let Some(message) = self.remove_unexpected(at) else { break };
            let (partner, match_info, len) = (message.partner, message.match_info, message.len);
            let probed = Probed { partner, match_info, len };
            let (bytes, own) = match message.content {
                Content::Whole(bytes) => (bytes, None),
                Content::Own(send, Some(bytes)) => (bytes, Some(send)),
                Content::Own(send, None) => {
                    let mut bytes = self.unexpected.buffer(len as usize);
                    let data = self.requests.get(send).and_then(|request| request.buffer.as_ref());
                    let _ = data.map(|data| first(data, &mut bytes));
                    (bytes, Some(send))
                }
                Content::Offered(offer) => {
                    self.turn_down(way, partner.peer, match_info, len, offer);
                    continue;
                }
            };
            if let Some(send) = own {
                if let Some(request) = self.requests.get_mut(send) {
                    request.at = len;
                }
                self.finish(send, Status::Success);
            }
            return Ok(Some(Taken { probed, bytes }));
        }
        Ok(None)
    }

    /// Gives back the bytes of a message that was taken: more will come.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        self.unexpected.give_back(bytes);
    }

    /// Does something with the memory of a request that has not ended: its bytes must stay; and
    /// where they are, if they are more than [`MEDIUM_BYTES_MAX`](crate::limits::MEDIUM_BYTES_MAX):
    /// they may be sent from there.
    pub fn with_buffer(&mut self, id: RequestId, change: impl FnOnce(&mut B)) {
        if let Ok(at) = self.find(id)
            && let Some(buffer) = self.requests.get_mut(at).and_then(|r| r.buffer.as_mut())
        {
            change(buffer);
        }
    }

    /// The memory of a request is the application's again, although the request goes on without it:
    /// as [`Self::with_buffer`], with a change by which it has no bytes any more. Nobody else
    /// writes there from then on.
    pub fn lose_buffer<T: Transport<B>>(
        &mut self,
        way: &mut T,
        id: RequestId,
        change: impl FnOnce(&mut B),
    ) {
        let RequestId(name) = id;
        way.lose(Token(name));
        self.with_buffer(id, change);
    }

    /// What the application gives with a request from now on.
    pub fn set_context(&mut self, id: RequestId, context: u64) {
        if let Ok(at) = self.find(id)
            && let Some(request) = self.requests.get_mut(at)
        {
            request.context = context;
        }
    }

    /// A partner as others know it, also of one that is gone, until its number is used again.
    #[inline]
    pub fn source_of(&self, partner: Partner) -> Option<Source> {
        self.decompose(partner).map(|(address, session)| Source { address, session })
    }

    /// This endpoint itself.
    pub(super) fn own_source(&self) -> Source {
        Source { address: self.options.address, session: self.options.session }
    }

    /// Who has that number now.
    pub(super) fn source(&self, peer: PeerId) -> Option<Source> {
        if peer == Partner::SELF.peer {
            return Some(self.own_source());
        }
        self.partners.source(peer)
    }

    /// Whether a directed receive waits for that partner.
    #[cold]
    pub(super) fn is_from(&self, request: &Request<B>, peer: PeerId) -> bool {
        self.source(peer) == Some(wanted(request))
    }

    /// Ends receives that are posted for one endpoint only and take messages whose information is this
    /// under a mask; returns how many.
    pub fn end_receives(
        &mut self,
        from: Source,
        status: Status,
        (info, mask): (u64, u64),
    ) -> usize {
        let mut ended = 0_usize;
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            let its = request.directed && wanted(request) == from;
            if request.state == State::Posted && its && request.match_info & mask == info {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
                self.finish(at, status);
                ended = ended.saturating_add(1);
            }
        }
        ended
    }

    /// Ends receives from a partner that is gone.
    pub(super) fn end_directed(&mut self, peer: PeerId, status: Status) {
        let Some(gone) = self.source(peer) else { return };
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            if request.state == State::Posted && request.directed && wanted(request) == gone {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
                self.finish(at, status);
            }
        }
    }
}

/// Whom a directed receive waits for.
#[inline]
pub(super) fn wanted<B>(request: &Request<B>) -> Source {
    let (session, endpoint) = request.more;
    Source { address: Address { nic: NicId(request.other), endpoint }, session }
}

/// Copies the first bytes; says how many.
fn first<B: Buffer>(from: &B, into: &mut [u8]) -> usize {
    let end = from.len().min(into.len());
    let mut at = 0_usize;
    pieces(from, 0, end, |piece| {
        let next = at.saturating_add(piece.len());
        if let Some(into) = into.get_mut(at..next) {
            into.copy_from_slice(piece);
        }
        at = next;
    });
    end
}
