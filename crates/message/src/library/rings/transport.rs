//! Implementation of [`Transport`] for [`Rings`]: requests to the NIC side, and its events.
//!
//! Every message up to [`MEDIUM_BYTES_MAX`] (32 KiB) is eager and copied into the ring; a longer or
//! synchronous message is offered from staging, or from lent memory ([`Staging::lend`]). A message,
//! offer, pull or connect without room in the ring, or without staging, returns
//! [`TransportError::Full`]; a disconnect, forget, cancel or watch cannot be refused and is queued,
//! and dropped if the rings have ended. This queue has no limit: it has an entry for each such call
//! since the ring was full. While it is not empty, no send may bypass the rings
//! ([`Rings::bypass_peer`]).
//!
//! [`Transport::next`] returns failed pulls first, then new events, deferred messages, and, after
//! the end of the NIC side, failures of the remaining requests. [`Transport::feed`] and
//! [`Transport::fail`] have no use here, because the NIC side reads offers without the library.
//! [`Transport::fail_peer`] disconnects the peer only; the rings stay.
//!
//! Callers: [`Library`](crate::library::Library), directly or through `causeway-endpoint`'s union
//! of transports, in the thread of the application that holds the endpoint.
//!
//! A second disconnect or forget of a peer, and a cancel of an ended request, are passed to the NIC
//! side again and change nothing here. [`Transport::withdraw_memory`] concerns offers: the NIC side
//! reads nothing more from memory that was lent to it. For other tokens, and ended requests, the
//! call has no effect.

use std::ops::Range;

use causeway_channel::ShortEvent;
use causeway_channel::mx_rings::{eager, short_event};
use causeway_wire::mx::{Address, PeerId, RegionId, Request, Token, Window};

use super::{
    Outstanding, PeerDoorbell, Purpose, QueuedPull, RingCursor, Rings, Staging, handle,
    library_peer, nic_peer,
};
use crate::library::{Buffer, Handover, Transport, TransportError, TransportEvent, pieces};
use crate::limits::MEDIUM_BYTES_MAX;

/// Window of an empty message, which uses no staging.
const NOTHING: Window = Window { region: RegionId(0), offset: 0, len: 0 };

/// Returns the addresses of bytes.
fn addresses(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr().expose_provenance();
    start..start.saturating_add(bytes.len())
}

/// Returns the address of the memory of a receive, if the first `len` bytes are contiguous and a
/// copy of them costs more than an access of the NIC side.
fn contiguous<B: Buffer>(into: &mut B, len: u32) -> Option<usize> {
    let len = len as usize;
    let first = into.bytes_mut(0);
    let start = first.as_mut_ptr().expose_provenance();
    (len > MEDIUM_BYTES_MAX && first.len() >= len).then_some(start)
}

impl<D: PeerDoorbell, S: Staging> Rings<D, S> {
    /// Returns a window with the message: lent if it is long and contiguous, else a copy. A short
    /// message is copied because a copy costs less, and because `fi_inject` promises that its bytes
    /// may be reused at once.
    fn place_of<B: Buffer>(
        &mut self,
        data: &B,
        len: u32,
        token: Token,
    ) -> Result<Window, TransportError> {
        let first = data.bytes(0);
        if data.len() > MEDIUM_BYTES_MAX
            && first.len() == data.len()
            && let Some(from) = self.staging.lend(addresses(first), Purpose::Offer, token)?
        {
            return Ok(from);
        }
        let from = self.staging.take(len, Purpose::Offer)?;
        let mut at = 0_usize;
        pieces(data, 0, data.len(), |piece| {
            self.staging.write(from, at, piece);
            at = at.saturating_add(piece.len());
        });
        Ok(from)
    }
}

impl<B: Buffer, D: PeerDoorbell, S: Staging> Transport<B> for Rings<D, S> {
    fn eager_max(&self, _peer: PeerId) -> usize {
        MEDIUM_BYTES_MAX
    }

    #[inline]
    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handover, TransportError> {
        let len = data.len();
        let head = eager(nic_peer(peer), token, match_info);
        self.message(head, len, |writing| pieces(data, 0, len, |piece| writing.put(piece)))?;
        Ok(Handover::Copied)
    }

    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), TransportError> {
        if self.has_ended() {
            return Err(Self::gone());
        }
        if self.full.is_some() && self.sender.room(0) == Ok(false) {
            return Err(TransportError::Full);
        }
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let from = if len > 0 { self.place_of(data, len, token)? } else { NOTHING };
        let asked = self.request(&Request::Offer { peer: nic_peer(peer), token, match_info, from });
        match asked {
            Ok(()) if len > 0 => {
                self.outstanding.insert(token, Outstanding::Offer(peer, from));
            }
            Err(_) if len > 0 => self.staging.give(from),
            _ => {}
        }
        asked
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handover, TransportError> {
        let memory = into.and_then(|into| contiguous(into, len));
        let wanted = QueuedPull { offer, token, len, memory };
        let asked = if len == 0 {
            self.request(&Request::Pull { handle: handle(offer), token, into: NOTHING })
        } else if self.pulls.try_start(peer, wanted) {
            self.begin_pull(peer, wanted)
        } else {
            Ok(())
        };
        asked.map(|()| Handover::Kept)
    }

    /// Unreachable: the NIC side reads offers from staging.
    fn feed(
        &mut self,
        _peer: PeerId,
        _to: u64,
        _data: &B,
        _at: usize,
        _end: usize,
    ) -> Result<usize, TransportError> {
        Err(Self::gone())
    }

    fn fail(&mut self, _peer: PeerId, _to: u64) {}

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), TransportError> {
        self.request(&Request::Connect { token, to, key, timeout_ns })?;
        self.outstanding.insert(token, Outstanding::Connect);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.detach(peer);
        self.send_or_queue(super::QueuedRequest::Disconnect(peer));
    }

    fn forget(&mut self, peer: PeerId) {
        self.detach(peer);
        self.peers.retain(|other| *other != peer);
        self.unreached.remove(&peer);
        if self.has_ended() {
            self.end_underway(peer);
        }
        self.holds.set(nic_peer(peer), false);
        self.send_or_queue(super::QueuedRequest::Forget(peer));
    }

    fn cancel(&mut self, token: Token) {
        <Self as Transport<B>>::withdraw_memory(self, token);
        if let Some(Outstanding::Connect) = self.outstanding.get(&token) {
            self.outstanding.remove(&token);
        }
        self.send_or_queue(super::QueuedRequest::Cancel(token));
    }

    fn withdraw_memory(&mut self, token: Token) {
        if let Some(Outstanding::Offer(_, window)) = self.outstanding.get(&token) {
            self.staging.take_back(*window);
        }
    }

    fn watch(&mut self, peer: PeerId, on: bool) {
        self.send_or_queue(super::QueuedRequest::Watch(peer, on));
    }

    fn received(&self, peer: PeerId) -> u64 {
        self.received.get(nic_peer(peer).0 as usize).copied().unwrap_or(0)
    }

    fn fail_peer(&mut self, peer: PeerId) {
        <Self as Transport<B>>::disconnect(self, peer);
    }

    #[inline]
    fn next(&mut self) -> Option<TransportEvent> {
        if self.current != RingCursor::Nothing {
            return Some(self.arrival);
        }
        if !self.queued.is_empty() {
            self.flush_queued();
        }
        if !(self.stalled.is_empty() && self.refused.is_empty())
            && let Some(refused) = self.next_refused()
        {
            return Some(refused);
        }
        // Deferred messages come after all new events.
        let next = self.poll().or_else(|| self.next_pending());
        if next.is_none() && self.has_ended() { self.next_last() } else { next }
    }

    #[inline]
    fn short(&mut self) -> Option<(PeerId, ShortEvent)> {
        if self.current != RingCursor::Nothing || !self.is_direct() {
            return None;
        }
        let (peer, short) = short_event(&self.receiver)?;
        self.short_sender = peer;
        Some((library_peer(peer), short))
    }

    #[inline]
    fn short_done(&mut self) -> bool {
        self.count_received(self.short_sender);
        if self.receiver.advance_short() {
            self.doorbell.ring();
        }
        self.receiver.ready()
    }

    #[inline]
    fn more(&self) -> bool {
        self.may_have_event()
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        match self.current {
            RingCursor::Event(event) => self.receiver.copy(&event, at, into),
            RingCursor::Pulled(_, _, window) => {
                let len = (window.len as usize).saturating_sub(at).min(into.len());
                let Some(into) = into.get_mut(..len) else { return 0 };
                self.staging.read(window, at, into);
                len
            }
            RingCursor::Pending => self.pending.copy(at, into),
            RingCursor::Nothing | RingCursor::Note => 0,
        }
    }

    #[inline]
    fn done(&mut self) {
        match self.current {
            RingCursor::Event(event) => self.take(event),
            RingCursor::Pulled(event, peer, window) => {
                self.staging.give(window);
                self.take(event);
                self.pull_more(peer);
            }
            RingCursor::Pending => {
                self.current = RingCursor::Nothing;
                self.end_pending();
            }
            RingCursor::Note => {
                self.current = RingCursor::Nothing;
                // The library answers with `forget`.
            }
            RingCursor::Nothing => {}
        }
    }

    fn defer(&mut self) {
        // Only messages and offers are deferred.
        match std::mem::replace(&mut self.current, RingCursor::Nothing) {
            RingCursor::Event(event) => {
                let arrival = self.arrival;
                self.push_pending(event, arrival);
            }
            RingCursor::Pending => self.pending.defer(),
            RingCursor::Nothing | RingCursor::Note | RingCursor::Pulled(..) => {}
        }
    }
}
