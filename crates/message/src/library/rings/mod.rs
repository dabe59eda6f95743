//! Rings: the transport to peers of other hosts, and to peers of this host without a channel, by
//! shared memory between the matching engine and the NIC side (in the daemon, or in the same
//! process). This module encodes requests and decodes events; it builds no packets, and does not
//! retransmit or find NICs.
//!
//! Large messages use memory that the NIC side can access: *staging*, which the owner of the rings
//! provides ([`Staging`]). An offered message is copied into it before the offer; a pulled message
//! is copied out of it when it is complete. Without free staging, or without room in the ring of
//! 256 entries, a call returns [`TransportError::Full`], and the library repeats it. A NIC side in
//! the process itself sends a contiguous message from the application's memory, and one behind an
//! adapter also receives into it ([`Staging::lend`]).
//!
//! A deferred message or offer goes to a pending queue, and later ones of its sender follow; the
//! NIC side is asked to hold back that sender until the queue is empty ([`Holds`]). Messages of
//! other senders and completions pass. At a limit of the queue (1,024 messages or 1 MiB of a
//! sender, 65,536 or 64 MiB of all), no event of any peer is taken from the ring.
//!
//! When the NIC side is gone, new requests fail at once with `EndpointUnreachable`; at most
//! [`EVENTS_AFTER_END_MAX`] (256) events in the ring are handled first, since their senders may
//! know that they arrived, except offers, which are dropped. Then requests in flight fail, and the
//! peers are reported as lost. A peer with pending messages is lost only after these are taken, but
//! sends to it fail at once. The rings are not opened again: `causeway-endpoint` makes new rings.
//! An event that breaks the format, and unmapped rings (detected by [`Rings::arm`]), also end them,
//! and the events in the ring are discarded; requests to other hosts then fail until the endpoint
//! has resumed with another daemon.
//!
//! Peer numbers are odd here; those of channels are even. Rings have no lock: one thread at a time
//! calls them. `library::rings::transport` implements [`Transport`](super::Transport) for them; the
//! other end is `causeway_mxoe::driver`.

mod pending;
mod pull_schedule;
mod transport;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use causeway_channel::mx_rings::{Holds, InvalidEntry, read_event, write_request};
use causeway_channel::{self as channel, BrokenChannel, EventHead, EventWriter, Receiver, Sender};
use causeway_wire::mx::{Event, Handle, PeerId, Request, Status, Token, Window};

use super::channels::PeerDoorbell;
use super::{TransportError, TransportEvent};
use crate::limits::{EVENTS_AFTER_END_MAX, PARTNERS_MAX};
use pending::PendingMessages;
use pull_schedule::{PullSchedule, QueuedPull};

/// Use of a staging window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Holds an offered message until its peer pulled it.
    Offer,
    /// Receives a pulled message.
    Pull,
}

/// Memory that the NIC side can access.
pub trait Staging {
    /// Allocates `len` bytes. Offers must not occupy the memory that pulls need: two endpoints that
    /// offer to each other would wait forever.
    ///
    /// # Errors
    /// [`TransportError::Full`] while there is none, [`TransportError::Never`] if there will be
    /// none.
    fn take(&mut self, len: u32, purpose: Purpose) -> Result<Window, TransportError>;

    /// Returns a window onto addresses of the application's memory, or `None` where the NIC side cannot
    /// access them. `_token` is that of the message, the same in each repetition. Until [`Self::give`] or [`Self::take_back`] the bytes of an offer stay unchanged,
    /// and no other code accesses those of a pull. [`Self::read`] of such a window must copy nothing.
    ///
    /// # Errors
    /// [`TransportError::Full`] if the access is being prepared: repeat later.
    fn lend(
        &mut self,
        _memory: Range<usize>,
        _purpose: Purpose,
        _token: Token,
    ) -> Result<Option<Window>, TransportError> {
        Ok(None)
    }

    /// Ends the use of a lent window, because the application gets its bytes back: nothing more is
    /// sent from it or written to it. It is not freed; [`Self::give`] follows.
    fn take_back(&mut self, _window: Window) {}

    /// Frees a window.
    fn give(&mut self, window: Window);

    /// Copies bytes into a window.
    fn write(&self, window: Window, at: usize, bytes: &[u8]);

    /// Copies bytes out of a window.
    fn read(&self, window: Window, at: usize, into: &mut [u8]);
}

/// An operation in flight, beyond the state in the matching engine.
#[derive(Debug, Clone, Copy)]
enum Outstanding {
    /// A message in this window is offered to the peer.
    Offer(PeerId, Window),
    /// A message is pulled from the peer into this window.
    Pull(PeerId, Window),
    /// A connect.
    Connect,
}

/// Requests that cannot be refused: they wait for room in the ring.
#[derive(Debug, Clone, Copy)]
enum QueuedRequest {
    /// Disconnect from the peer.
    Disconnect(PeerId),
    /// Free the number of the lost peer.
    Forget(PeerId),
    /// Withdraw the send or connect.
    Cancel(Token),
    /// Check the peer by keepalives (true), or no longer.
    Watch(PeerId, bool),
}

/// Origin of the event that the library handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RingCursor {
    /// No event is current.
    Nothing,
    /// A report that this module made (a lost peer, a refused pull); no event of the ring.
    Note,
    /// An event of the ring, which holds its bytes.
    Event(channel::Event),
    /// The first pending message.
    Pending,
    /// The end of a pull; its bytes are in staging.
    Pulled(channel::Event, PeerId, Window),
}

/// State of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RingState {
    /// Requests and events pass.
    Open,
    /// The NIC side is gone; events in the ring are still handled.
    Gone,
    /// The ring is invalid: no event is taken any more, and requests fail.
    Broken,
}

/// Matching engine's end of the rings. `D` is the doorbell of the NIC side.
#[derive(Debug)]
pub struct Rings<D, S> {
    sender: Sender,
    receiver: Receiver,
    /// Doorbell of the NIC side.
    doorbell: D,
    /// Memory for large messages.
    pub staging: S,
    /// Operations in flight.
    outstanding: HashMap<Token, Outstanding>,
    /// Running and waiting pulls of each peer.
    pulls: PullSchedule,
    /// Peers with a next pull that found no room.
    stalled: Vec<PeerId>,
    /// Pulls that will never start, with the reason; not reported.
    refused: VecDeque<(Token, Status)>,
    /// Peers that must be reported as lost when the rings end.
    peers: Vec<PeerId>,
    /// Requests that wait for room in the ring, oldest first.
    queued: VecDeque<QueuedRequest>,
    /// Origin of the event that the library handles.
    current: RingCursor,
    /// That event as the library sees it.
    arrival: TransportEvent,
    /// Bytes of the request that found no room last; a sleeping thread waits for so much room.
    full: Option<usize>,
    /// Peers that the NIC side is asked to hold back.
    holds: Holds,
    /// Deferred messages; per peer at most the content of the ring and the messages that come
    /// before the NIC side sees the request.
    pending: PendingMessages,
    state: RingState,
    /// Events that are handled after the end, however long the pending queue is.
    events_left: usize,
    /// Peers that were reported as unreachable.
    unreached: HashSet<PeerId>,
    /// Eager messages by the NIC side's peer number.
    received: Vec<u64>,
    /// Sender of the last short message.
    short_sender: PeerId,
}

impl<D: PeerDoorbell, S: Staging> Rings<D, S> {
    /// Returns the library's end of `sender` and `receiver`, which are the first side of a channel.
    pub fn new(sender: Sender, receiver: Receiver, holds: Holds, doorbell: D, staging: S) -> Self {
        Self {
            sender,
            receiver,
            doorbell,
            staging,
            outstanding: HashMap::new(),
            pulls: PullSchedule::default(),
            stalled: Vec::new(),
            refused: VecDeque::new(),
            peers: Vec::new(),
            queued: VecDeque::new(),
            current: RingCursor::Nothing,
            arrival: TransportEvent::Failed { peer: PeerId(0), token: Token(0) },
            full: None,
            holds,
            pending: PendingMessages::default(),
            state: RingState::Open,
            events_left: EVENTS_AFTER_END_MAX,
            unreached: HashSet::new(),
            received: Vec::new(),
            short_sender: PeerId::NONE,
        }
    }

    /// Ends the rings: the NIC side is gone, and all peers are lost. The events that remain, and
    /// then the failures, come by [`Transport::next`](crate::library::Transport::next). A second
    /// call has no effect.
    pub fn end(&mut self) {
        if self.state == RingState::Open {
            self.state = RingState::Gone;
        }
        // Requests fail even if the NIC side still moves their bytes.
        for outstanding in self.outstanding.values() {
            if let Outstanding::Offer(_, window) | Outstanding::Pull(_, window) = outstanding {
                self.staging.take_back(*window);
            }
        }
    }

    /// Returns whether the NIC side is gone and every request has ended.
    pub fn is_over(&self) -> bool {
        self.has_ended()
            && self.current == RingCursor::Nothing
            && self.pending.is_empty()
            && self.refused.is_empty()
            && self.peers.is_empty()
            && self.outstanding.is_empty()
    }

    /// Returns the NIC side's number of a peer for a send that bypasses the rings; `None` while a
    /// request waits for room, because the send must not overtake it.
    #[inline]
    pub fn bypass_peer(&self, peer: PeerId) -> Option<PeerId> {
        (self.queued.is_empty() && !self.has_ended()).then(|| nic_peer(peer))
    }

    /// Returns whether [`Transport::next`](crate::library::Transport::next) may have work, by a
    /// cheap check.
    #[inline]
    pub fn may_have_event(&self) -> bool {
        self.receiver.ready() || !self.is_direct() || self.current != RingCursor::Nothing
    }

    /// Returns whether an event of the ring goes to the library without a detour.
    #[inline]
    fn is_direct(&self) -> bool {
        self.queued.is_empty()
            && self.stalled.is_empty()
            && self.refused.is_empty()
            && self.pending.is_empty()
            && !self.has_ended()
    }

    /// Counts an eager message, by the NIC side's peer number.
    #[inline]
    fn count_received(&mut self, peer: PeerId) {
        if let Some(count) = self.received.get_mut(peer.0 as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// Clears the message counter of a new peer.
    fn begin_count(&mut self, peer: PeerId) {
        let at = peer.0 as usize;
        if at >= PARTNERS_MAX {
            return;
        }
        if self.received.len() <= at {
            self.received.resize(at.saturating_add(1), 0);
        }
        if let Some(count) = self.received.get_mut(at) {
            *count = 0;
        }
    }

    /// Returns whether the NIC side is gone.
    pub fn has_ended(&self) -> bool {
        self.state != RingState::Open
    }

    /// Retries pending messages, after the application posted a receive or collected a request.
    /// Returns whether there are any.
    pub fn nudge(&mut self) -> bool {
        self.pending.nudge()
    }

    /// Prepares to sleep: asks for a wake-up, and polls once more. Returns false if there is work;
    /// then do not sleep. Call [`Self::disarm`] in both cases.
    pub fn arm(&mut self) -> bool {
        // Pending messages wait for the application only, once each was tried.
        if !self.pending.is_exhausted() || !self.refused.is_empty() {
            return false;
        }
        if self.has_ended() {
            return !(self.has_last() || self.takes_more() && self.receiver.ready());
        }
        let arrived = self.receiver.arm() && !self.pending.is_full();
        let room = self.full.map_or(Ok(false), |len| self.sender.arm_room(len));
        match room {
            // Reported once: the request that needed the room may have ended.
            Ok(true) => self.full = None,
            Ok(false) => {}
            Err(BrokenChannel) => self.state = RingState::Broken,
        }
        if self.receiver.is_poisoned() {
            self.state = RingState::Broken;
        }
        !arrived && room == Ok(false) && !self.has_ended()
    }

    /// Withdraws the requests of [`Self::arm`].
    pub fn disarm(&mut self) {
        self.receiver.disarm();
        self.sender.disarm();
    }

    /// Returns the refusal of requests after the end.
    fn gone() -> TransportError {
        TransportError::Never(Status::EndpointUnreachable)
    }

    /// Turns the result of a write into that of a request, and rings the doorbell.
    fn written(
        &mut self,
        written: Result<bool, BrokenChannel>,
        len: usize,
    ) -> Result<(), TransportError> {
        match written {
            Ok(true) => {
                self.full = None;
                if self.sender.must_wake() {
                    self.doorbell.ring();
                }
                Ok(())
            }
            Ok(false) => {
                self.full = Some(len);
                Err(TransportError::Full)
            }
            Err(BrokenChannel) => {
                self.state = RingState::Broken;
                Err(Self::gone())
            }
        }
    }

    /// Writes a request to the ring.
    fn request(&mut self, request: &Request<'_>) -> Result<(), TransportError> {
        if self.has_ended() {
            return Err(Self::gone());
        }
        let written = write_request(&mut self.sender, request);
        self.written(written, 0)
    }

    /// Sends a request now, or queues it.
    fn send_or_queue(&mut self, queued: QueuedRequest) {
        if !self.has_ended() {
            self.queued.push_back(queued);
            self.flush_queued();
        }
    }

    /// Sends queued requests.
    fn flush_queued(&mut self) {
        while let Some(queued) = self.queued.front() {
            let request = match *queued {
                QueuedRequest::Disconnect(peer) => Request::Disconnect { peer: nic_peer(peer) },
                QueuedRequest::Forget(peer) => Request::Forget { peer: nic_peer(peer) },
                QueuedRequest::Cancel(token) => Request::Cancel { token },
                QueuedRequest::Watch(peer, on) => Request::Watch { peer: nic_peer(peer), on },
            };
            if self.request(&request) == Err(TransportError::Full) {
                return;
            }
            self.queued.pop_front();
        }
    }

    /// Sends a request with the bytes that `put` writes.
    #[inline]
    fn message(
        &mut self,
        head: EventHead,
        len: usize,
        put: impl FnOnce(&mut EventWriter<'_>),
    ) -> Result<(), TransportError> {
        if self.has_ended() {
            return Err(Self::gone());
        }
        let written = self.sender.begin(len).map(|writing| {
            writing.is_some_and(|mut writing| {
                put(&mut writing);
                writing.send(head);
                true
            })
        });
        self.written(written, len)
    }

    /// Returns whether events are taken from the ring. After the end all are taken: they may be of
    /// any peer, or complete any request.
    #[inline]
    fn takes_more(&self) -> bool {
        match self.state {
            RingState::Open => !self.pending.is_full(),
            RingState::Gone => self.events_left > 0,
            RingState::Broken => false,
        }
    }

    /// Polls the ring.
    #[inline]
    fn poll(&mut self) -> Option<TransportEvent> {
        while self.takes_more() {
            let event = match self.receiver.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(BrokenChannel) => {
                    self.state = RingState::Broken;
                    return None;
                }
            };
            match read_event(&event.head, event.len) {
                Ok(event_value) => {
                    if let Some(arrival) = self.arrival_of(event, &event_value) {
                        if self.belongs_behind(&arrival) {
                            self.push_pending(event, arrival);
                            continue;
                        }
                        if self.is_obsolete(&arrival) {
                            self.take(event);
                            continue;
                        }
                        self.arrival = arrival;
                        return Some(arrival);
                    }
                    // The library has no use for it.
                    self.take(event);
                }
                Err(
                    InvalidEntry::Kind(_) | InvalidEntry::Field(_) | InvalidEntry::Length { .. },
                ) => {
                    self.state = RingState::Broken;
                    return None;
                }
            }
        }
        None
    }

    /// Returns whether an event belongs behind the pending messages of its peer; the loss of the
    /// peer does, too.
    #[inline]
    fn belongs_behind(&self, arrival: &TransportEvent) -> bool {
        match *arrival {
            TransportEvent::Message { peer, .. }
            | TransportEvent::Offered { peer, .. }
            | TransportEvent::PeerGone { peer, .. } => self.pending.has(peer),
            _ => false,
        }
    }

    /// Returns whether an event is obsolete: an offer after the end cannot be pulled.
    #[inline]
    fn is_obsolete(&self, arrival: &TransportEvent) -> bool {
        self.has_ended() && matches!(arrival, TransportEvent::Offered { .. })
    }

    /// Copies an event out of the ring into the pending queue.
    #[cold]
    fn push_pending(&mut self, event: channel::Event, arrival: TransportEvent) {
        if let TransportEvent::Message { peer, .. }
        | TransportEvent::Offered { peer, .. }
        | TransportEvent::PeerGone { peer, .. } = arrival
        {
            let mut bytes = vec![0; event.len];
            self.receiver.copy(&event, 0, &mut bytes);
            if self.pending.push(peer, arrival, bytes) {
                self.holds.set(nic_peer(peer), true);
            }
        }
        self.take(event);
    }

    /// Removes the current pending message.
    #[cold]
    fn end_pending(&mut self) {
        if let Some(peer) = self.pending.done()
            && self.holds.set(nic_peer(peer), false)
            && !self.has_ended()
        {
            self.doorbell.ring();
        }
    }

    /// Makes the next pending message the current event.
    fn next_pending(&mut self) -> Option<TransportEvent> {
        loop {
            let arrival = self.pending.next()?;
            if !self.is_obsolete(&arrival) {
                self.arrival = arrival;
                self.current = RingCursor::Pending;
                return Some(arrival);
            }
            self.end_pending();
        }
    }

    /// Returns the library's view of an event, if there is any.
    #[inline]
    fn arrival_of(
        &mut self,
        event: channel::Event,
        event_value: &Event<'_>,
    ) -> Option<TransportEvent> {
        self.current = RingCursor::Event(event);
        Some(match *event_value {
            Event::Message { peer, match_info, .. } => {
                self.count_received(peer);
                let len = u32::try_from(event.len).ok()?;
                TransportEvent::Message { peer: library_peer(peer), match_info, len }
            }
            Event::Offered { peer, match_info, len, handle } => {
                let peer = library_peer(peer);
                TransportEvent::Offered { peer, match_info, len, offer: handle.0.into() }
            }
            Event::Sent { token, status, taken } => {
                // Eager messages have no entry.
                if !self.outstanding.is_empty()
                    && let Some(Outstanding::Offer(_, window)) = self.outstanding.remove(&token)
                {
                    self.staging.give(window);
                }
                TransportEvent::Sent { token, status, taken }
            }
            Event::Pulled { token, status } => {
                let Some(Outstanding::Pull(peer, window)) = self.outstanding.remove(&token) else {
                    return Some(TransportEvent::Pulled { token, status });
                };
                self.pulls.ended(peer, window.len);
                if status != Status::Success || peer == PeerId::NONE {
                    self.staging.give(window);
                    self.pull_more(peer);
                    return (peer != PeerId::NONE)
                        .then_some(TransportEvent::Pulled { token, status });
                }
                self.current = RingCursor::Pulled(event, peer, window);
                TransportEvent::Chunk { peer, token, len: window.len }
            }
            Event::Connected { token, status, peer } => {
                self.outstanding.remove(&token);
                TransportEvent::Connected { token, status, peer: library_peer(peer) }
            }
            Event::PeerSeen { peer, address, session } => {
                self.begin_count(peer);
                let peer = library_peer(peer);
                if !self.peers.contains(&peer) {
                    self.peers.push(peer);
                }
                TransportEvent::PeerSeen { peer, address, session }
            }
            Event::PeerGone { peer, status } => {
                TransportEvent::PeerGone { peer: library_peer(peer), status }
            }
        })
    }

    /// Takes an event out of the ring.
    #[inline]
    fn take(&mut self, event: channel::Event) {
        self.current = RingCursor::Nothing;
        if self.has_ended() {
            self.events_left = self.events_left.saturating_sub(1);
        }
        if self.receiver.advance(&event) {
            self.doorbell.ring();
        }
    }

    /// Returns a peer without pending messages.
    fn last_peer(&self) -> Option<PeerId> {
        self.peers.iter().rev().find(|peer| !self.pending.has(**peer)).copied()
    }

    /// Returns a connect that will not be answered.
    fn last_connect(&self) -> Option<Token> {
        let connects =
            self.outstanding.iter().filter(|(_, what)| matches!(what, Outstanding::Connect));
        connects.map(|(token, _)| *token).next()
    }

    /// Returns a peer with pending messages that was not reported as unreachable.
    fn last_unreached(&self) -> Option<PeerId> {
        let new = |peer: &&PeerId| self.pending.has(**peer) && !self.unreached.contains(*peer);
        self.peers.iter().find(new).copied()
    }

    /// Returns whether [`Self::next_last`] has a report.
    fn has_last(&self) -> bool {
        self.last_peer().is_some()
            || self.last_connect().is_some()
            || self.last_unreached().is_some()
    }

    /// Fails requests and reports lost peers after the end, one per call.
    #[cold]
    fn next_last(&mut self) -> Option<TransportEvent> {
        let status = Status::EndpointUnreachable;
        self.arrival = if let Some(token) = self.last_connect() {
            self.outstanding.remove(&token);
            TransportEvent::Connected { token, status, peer: PeerId::NONE }
        } else if let Some(peer) = self.last_unreached() {
            self.unreached.insert(peer);
            TransportEvent::Unreached { peer, status }
        } else {
            TransportEvent::PeerGone { peer: self.last_peer()?, status }
        };
        self.current = RingCursor::Note;
        Some(self.arrival)
    }

    /// Allocates staging and sends the pull.
    fn begin_pull(&mut self, peer: PeerId, wanted: QueuedPull) -> Result<(), TransportError> {
        if self.has_ended() {
            return Err(Self::gone());
        }
        let QueuedPull { offer, token, len, memory } = wanted;
        let lent = match memory {
            Some(start) => {
                let memory = start..start.saturating_add(len as usize);
                self.staging.lend(memory, Purpose::Pull, token)?
            }
            None => None,
        };
        let into = match lent {
            Some(window) => window,
            None => self.staging.take(len, Purpose::Pull)?,
        };
        let asked = self.request(&Request::Pull { handle: handle(offer), token, into });
        match asked {
            Ok(()) => {
                self.pulls.started(peer, len);
                self.outstanding.insert(token, Outstanding::Pull(peer, into));
            }
            Err(_) => self.staging.give(into),
        }
        asked
    }

    /// Starts waiting pulls of a peer while the schedule permits.
    fn pull_more(&mut self, peer: PeerId) {
        while let Some(wanted) = self.pulls.next(peer) {
            match self.begin_pull(peer, wanted) {
                Ok(()) => {}
                Err(TransportError::Full) => {
                    if !self.stalled.contains(&peer) {
                        self.stalled.push(peer);
                    }
                    return;
                }
                Err(TransportError::Never(status)) => {
                    self.refused.push_back((wanted.token, status))
                }
            }
            self.pulls.dequeue(peer);
        }
    }

    /// Retries pulls that found no room, and reports pulls that will never start.
    #[cold]
    fn next_refused(&mut self) -> Option<TransportEvent> {
        for peer in std::mem::take(&mut self.stalled) {
            self.pull_more(peer);
        }
        let (token, status) = self.refused.pop_front()?;
        self.arrival = TransportEvent::Pulled { token, status };
        self.current = RingCursor::Note;
        Some(self.arrival)
    }

    /// Drops offers to a peer and pulls from it, which the library has ended.
    fn end_underway(&mut self, peer: PeerId) {
        self.outstanding.retain(|_, outstanding| match outstanding {
            Outstanding::Offer(to, _) => *to != peer,
            Outstanding::Pull(from, _) => *from != peer && *from != PeerId::NONE,
            Outstanding::Connect => true,
        });
    }

    /// Detaches pulls of a peer from their requests, and withdraws the memory of these and of offers to
    /// it.
    fn detach(&mut self, peer: PeerId) {
        self.pulls.forget(peer);
        for outstanding in self.outstanding.values_mut() {
            match outstanding {
                Outstanding::Pull(of, window) if *of == peer => {
                    *of = PeerId::NONE;
                    self.staging.take_back(*window);
                }
                Outstanding::Offer(to, window) if *to == peer => self.staging.take_back(*window),
                _ => {}
            }
        }
    }
}

/// Returns whether a peer is reached through rings: a peer of another host, or one of this host
/// without a channel.
#[inline]
pub fn is_remote(peer: PeerId) -> bool {
    peer.0 & 1 == 1 && peer != PeerId::NONE
}

/// Returns the library's number of a peer.
#[inline]
fn library_peer(peer: PeerId) -> PeerId {
    if peer == PeerId::NONE { peer } else { PeerId(peer.0.saturating_mul(2).saturating_add(1)) }
}

/// Returns the NIC side's number of a peer.
#[inline]
fn nic_peer(peer: PeerId) -> PeerId {
    PeerId(peer.0 / 2)
}

/// Returns the NIC side's name of an offer.
fn handle(offer: u64) -> Handle {
    Handle(u32::try_from(offer).unwrap_or(u32::MAX))
}
