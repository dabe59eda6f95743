//! A transport that records the calls of the library and returns the events that a test queued.
//!
//! [`FakeTransport`] delivers nothing: calls are appended to `calls`, and those that may be refused
//! fail with `Full` after `room` calls. Events must be valid for the library; the fake checks none.
//! For tests of `causeway_message` that need exact control of the transport; pairs of real channels
//! are in [`super`].

use std::collections::VecDeque;

use causeway_message::library::{Buffer, Handover, Transport, TransportError, TransportEvent};
use causeway_wire::mx::{Address, PeerId, Token};

use super::Pad;

/// A call of the library. `Eager`: peer, token, match information and bytes; `Offer`: peer, token,
/// match information and length; `Pull`: peer, offer, token and length; `Connect`: token, address,
/// key and time limit in ns; `Fail`: peer and its pull that fails; all others: the peer or the
/// token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the calls of `Transport` with their arguments")]
pub enum TransportCall {
    Eager(PeerId, Token, u64, Vec<u8>),
    Offer(PeerId, Token, u64, usize),
    Pull(PeerId, u64, Token, u32),
    Connect(Token, Address, u32, Option<u64>),
    Disconnect(PeerId),
    Forget(PeerId),
    Cancel(Token),
    Fail(PeerId, u64),
    FailPeer(PeerId),
}

/// A transport that records calls.
#[derive(Debug)]
pub struct FakeTransport {
    /// The calls so far.
    pub calls: Vec<TransportCall>,
    /// Queued events, with the bytes of messages.
    pub arrivals: VecDeque<(TransportEvent, Vec<u8>)>,
    /// Number of calls that it accepts before it is full.
    pub room: usize,
    /// Result of an eager send.
    pub eager: Handover,
    deferred: bool,
}

impl Default for FakeTransport {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            arrivals: VecDeque::new(),
            room: usize::MAX,
            eager: Handover::Copied,
            deferred: false,
        }
    }
}

impl FakeTransport {
    /// Queues an event.
    pub fn queue_event(&mut self, arrival: TransportEvent) {
        self.arrivals.push_back((arrival, Vec::new()));
    }

    /// Queues a message.
    pub fn queue_message(&mut self, peer: PeerId, match_info: u64, bytes: &[u8]) {
        let arrival = TransportEvent::Message { peer, match_info, len: bytes.len() as u32 };
        self.arrivals.push_back((arrival, bytes.to_vec()));
    }

    fn take(&mut self, calls: TransportCall) -> Result<(), TransportError> {
        self.room = self.room.checked_sub(1).ok_or(TransportError::Full)?;
        self.calls.push(calls);
        Ok(())
    }

    /// Returns the tokens of the requests, in order.
    pub fn tokens(&self) -> Vec<Token> {
        let token = |calls: &TransportCall| match calls {
            TransportCall::Eager(_, token, ..) | TransportCall::Offer(_, token, ..) => Some(*token),
            TransportCall::Pull(_, _, token, _) | TransportCall::Connect(token, ..) => Some(*token),
            _ => None,
        };
        self.calls.iter().filter_map(token).collect()
    }
}

impl Transport<Pad> for FakeTransport {
    fn eager_max(&self, _peer: PeerId) -> usize {
        100
    }

    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        info: u64,
        data: &Pad,
    ) -> Result<Handover, TransportError> {
        let mut bytes = Vec::new();
        causeway_message::library::pieces(data, 0, data.len(), |piece| bytes.extend(piece));
        self.take(TransportCall::Eager(peer, token, info, bytes))?;
        Ok(self.eager)
    }

    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        info: u64,
        data: &Pad,
    ) -> Result<(), TransportError> {
        self.take(TransportCall::Offer(peer, token, info, data.len()))
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut Pad>,
        len: u32,
    ) -> Result<Handover, TransportError> {
        self.take(TransportCall::Pull(peer, offer, token, len))?;
        if let Some(into) = into {
            causeway_message::library::fill(into, 0, len as usize, |_, piece| {
                piece.fill(0x55);
                piece.len()
            });
        }
        Ok(Handover::Kept)
    }

    fn feed(
        &mut self,
        _: PeerId,
        _: u64,
        _: &Pad,
        _: usize,
        _: usize,
    ) -> Result<usize, TransportError> {
        unreachable!("a fake offers no message that a peer could pull in chunks")
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        self.calls.push(TransportCall::Fail(peer, to));
    }

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), TransportError> {
        self.take(TransportCall::Connect(token, to, key, timeout_ns))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.calls.push(TransportCall::Disconnect(peer));
    }

    fn forget(&mut self, peer: PeerId) {
        self.calls.push(TransportCall::Forget(peer));
    }

    fn cancel(&mut self, token: Token) {
        self.calls.push(TransportCall::Cancel(token));
    }

    fn fail_peer(&mut self, peer: PeerId) {
        self.calls.push(TransportCall::FailPeer(peer));
    }

    fn next(&mut self) -> Option<TransportEvent> {
        if std::mem::take(&mut self.deferred) {
            return None;
        }
        self.arrivals.front().map(|(arrival, _)| *arrival)
    }

    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        let Some((_, bytes)) = self.arrivals.front() else { return 0 };
        let from = bytes.get(at..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        len
    }

    fn done(&mut self) {
        self.arrivals.pop_front();
    }

    fn defer(&mut self) {
        self.deferred = true;
    }
}
