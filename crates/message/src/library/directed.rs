//! Receives from one endpoint only, and unexpected messages that are probed or taken without a
//! receive. MX has no such calls; the libfabric provider needs them.
//!
//! A *directed* receive matches messages of one [`EndpointIdentity`], which need not be connected.
//! The receive ends with the status of the loss when that peer is lost; it waits without a limit
//! for a peer that never connects, or that was lost before the call. With
//! [`Library::keep_directed`] a receive from a peer of another host stays posted instead, and the
//! caller cancels it or connects again. Directed receives and others share the posted queue and its
//! order.
//!
//! [`Library::take_kept`] takes only messages whose bytes are here. An offered message has no bytes
//! here: it is refused by a pull of 0 bytes, and its send ends with `Truncated`; with a full table
//! of requests the refusal is not sent, and the send waits for its time limit or the loss of the
//! peer.
//!
//! A request that has ended has no buffer any more: [`Library::with_buffer`] and
//! [`Library::lose_buffer`] then do not call their closure, nor for a request that was collected,
//! cancelled or forgotten. Names are not reused, so that a late call reaches no other request.
//!
//! `rdm` of the libfabric provider calls these functions, under the lock of its domain, in a thread
//! of the application or the provider's progress thread; matching is in `library::receive`.

use causeway_wire::mx::{Address, NicId, PeerId, Status, Token};

use super::request::{RequestEntry, RequestState};
use super::unexpected::UnexpectedContent;
use super::{
    Buffer, Error, Library, Partner, ProbedMessage, RequestId, Transport, check_mask, pieces,
};

/// Identity of an endpoint: address and session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointIdentity {
    /// Address.
    pub address: Address,
    /// Session number; differs each time the endpoint is opened.
    pub session: u32,
}

/// A message that was taken without a receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptMessage {
    /// Sender, match information and length.
    pub probed: ProbedMessage,
    /// Bytes of the message. Return them by [`Library::give_back`].
    pub bytes: Vec<u8>,
}

impl<B: Buffer> Library<B> {
    /// Receives a message as [`Self::irecv`] does, only from `from` if it is given. The endpoint
    /// need not be connected. The receive also ends when that peer is lost; a receive that is
    /// posted after the loss takes unexpected messages of the lost peer, and waits otherwise.
    ///
    /// # Errors
    /// Those of [`Self::irecv`].
    pub fn irecv_from<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        from: Option<EndpointIdentity>,
        (info, mask): (u64, u64),
        context: u64,
        into: B,
    ) -> Result<RequestId, Error> {
        self.receive(transport, from, (info, mask), context, into)
    }

    /// Probes as [`Self::iprobe`] does, for messages of one endpoint if `from` names it. Copies the
    /// first bytes as far as they have arrived, and returns their number; 0 for an offered message.
    /// A repeated call returns the same message.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`] if `info` has bits that `mask` does not cover.
    pub fn probe(
        &self,
        from: Option<EndpointIdentity>,
        (info, mask): (u64, u64),
        into: &mut [u8],
    ) -> Result<Option<(ProbedMessage, usize)>, Error> {
        check_mask(info, mask)?;
        let found = self.first_unexpected(info, mask, from);
        let Some(message) = found.and_then(|at| self.unexpected.get(at)) else {
            return Ok(None);
        };
        let copied = match &message.content {
            UnexpectedContent::Whole(bytes) | UnexpectedContent::Own(_, Some(bytes)) => {
                first(bytes, into)
            }
            UnexpectedContent::Own(send, None) => {
                let data = self.requests.get(*send).and_then(|request| request.buffer.as_ref());
                data.map_or(0, |data| first(data, into))
            }
            UnexpectedContent::Offered(_) => 0,
        };
        let (partner, match_info) = (message.partner, message.match_info);
        Ok(Some((ProbedMessage { partner, match_info, len: message.len }, copied)))
    }

    /// Takes the oldest matching unexpected message, or returns `None` if no message with bytes
    /// matches. Matching messages that are only offered are refused, also if none is returned;
    /// their sends end with [`Status::Truncated`]. A message is returned once; its send from the
    /// own endpoint ends.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`] if `info` has bits that `mask` does not cover.
    pub fn take_kept<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        from: Option<EndpointIdentity>,
        (info, mask): (u64, u64),
    ) -> Result<Option<KeptMessage>, Error> {
        check_mask(info, mask)?;
        while let Some(at) = self.first_unexpected(info, mask, from) {
            let Some(message) = self.remove_unexpected(at) else { break };
            let (partner, match_info, len) = (message.partner, message.match_info, message.len);
            let probed = ProbedMessage { partner, match_info, len };
            let (bytes, own) = match message.content {
                UnexpectedContent::Whole(bytes) => (bytes, None),
                UnexpectedContent::Own(send, Some(bytes)) => (bytes, Some(send)),
                UnexpectedContent::Own(send, None) => {
                    let mut bytes = self.unexpected.buffer(len as usize);
                    let data = self.requests.get(send).and_then(|request| request.buffer.as_ref());
                    let _ = data.map(|data| first(data, &mut bytes));
                    (bytes, Some(send))
                }
                UnexpectedContent::Offered(offer) => {
                    self.turn_down(transport, partner.peer, match_info, len, offer);
                    continue;
                }
            };
            if let Some(send) = own {
                if let Some(request) = self.requests.get_mut(send) {
                    request.at = len;
                }
                self.finish(send, Status::Success);
            }
            return Ok(Some(KeptMessage { probed, bytes }));
        }
        Ok(None)
    }

    /// Returns the bytes of a taken message to the pool. Bytes that are dropped instead cost an
    /// allocation for a later message.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        self.unexpected.give_back(bytes);
    }

    /// Changes the memory of a request that has not ended. The content must stay; so must the
    /// address if the length exceeds [`MEDIUM_BYTES_MAX`](crate::limits::MEDIUM_BYTES_MAX) (32
    /// KiB), since the transport may send from there. `change` is not called if the request has
    /// ended, needs its memory no more (a send whose bytes were copied), or was collected,
    /// cancelled or forgotten.
    pub fn with_buffer(&mut self, id: RequestId, change: impl FnOnce(&mut B)) {
        if let Ok(at) = self.find(id)
            && let Some(buffer) = self.requests.get_mut(at).and_then(|r| r.buffer.as_mut())
        {
            change(buffer);
        }
    }

    /// Returns the memory of a running request to the application: no process writes to it
    /// afterwards. The request goes on and must be collected. `change` replaces the memory in the
    /// buffer by none: the buffer keeps its length, gives no bytes to write, and other bytes to
    /// read (`MessageBuffer::release` of the libfabric provider: zeros). No effect for a request
    /// that has ended. Not for a request that was forgotten before: the transport gives its memory
    /// up, but `change` is not called.
    ///
    /// A pull in progress continues, drops its bytes, and ends with the status that it would have
    /// had. A posted receive still matches: it drops the bytes of an eager message and ends with
    /// [`Status::Truncated`] if there are any. A send sends the other bytes.
    ///
    /// Waits up to 2 s for a peer of this host that copies into the memory at that moment
    /// (`channels::cooperative_copy`). For a send, the caller invalidates the addresses of its
    /// offers to peers of this host before ([`Channels::withdraw`](super::Channels::withdraw)):
    /// this call does not.
    pub fn lose_buffer<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        id: RequestId,
        change: impl FnOnce(&mut B),
    ) {
        let RequestId(name) = id;
        transport.withdraw_memory(Token(name));
        self.with_buffer(id, change);
    }

    /// Returns the identity of a peer; also of a lost peer until its number is reused.
    #[inline]
    pub fn source_of(&self, partner: Partner) -> Option<EndpointIdentity> {
        self.decompose(partner).map(|(address, session)| EndpointIdentity { address, session })
    }

    /// Returns the identity of this endpoint.
    pub(super) fn own_source(&self) -> EndpointIdentity {
        EndpointIdentity { address: self.options.address, session: self.options.session }
    }

    /// Returns the identity of the endpoint that has this number now.
    pub(super) fn source(&self, peer: PeerId) -> Option<EndpointIdentity> {
        if peer == Partner::SELF.peer {
            return Some(self.own_source());
        }
        self.partners.source(peer)
    }

    /// Returns whether a directed receive waits for that peer.
    #[cold]
    pub(super) fn is_from(&self, request: &RequestEntry<B>, peer: PeerId) -> bool {
        self.source(peer) == Some(expected_source(request))
    }

    /// Ends posted receives from `from` whose match information under `mask` equals `info`. Returns
    /// their number; a second call returns 0. Receives that have matched a message, that take
    /// messages of any sender, or that have ended are not affected. Linear in the requests of the
    /// endpoint.
    pub fn end_receives(
        &mut self,
        from: EndpointIdentity,
        status: Status,
        (info, mask): (u64, u64),
    ) -> usize {
        let mut ended = 0_usize;
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            let its = request.directed && expected_source(request) == from;
            if request.state == RequestState::Posted && its && request.match_info & mask == info {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
                self.finish(at, status);
                ended = ended.saturating_add(1);
            }
        }
        ended
    }

    /// Ends directed receives from a lost peer.
    pub(super) fn end_directed(&mut self, peer: PeerId, status: Status) {
        let Some(gone) = self.source(peer) else { return };
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            if request.state == RequestState::Posted
                && request.directed
                && expected_source(request) == gone
            {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
                self.finish(at, status);
            }
        }
    }
}

/// Returns the endpoint for which a directed receive waits.
#[inline]
pub(super) fn expected_source<B>(request: &RequestEntry<B>) -> EndpointIdentity {
    let (session, endpoint) = request.more;
    EndpointIdentity { address: Address { nic: NicId(request.other), endpoint }, session }
}

/// Copies the first bytes, and returns their number.
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
