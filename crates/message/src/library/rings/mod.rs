//! The rings to the backend half as the way to partners of other hosts.
//!
//! Large messages need memory that the backend half reaches: *staging*, which whoever owns the
//! rings lends to it ([`Staging`]). A message that is offered is copied there first, one that is
//! pulled is copied from there when it is whole. Where staging finds no place, the message waits.
//! A backend half in the process itself sends what lies in one piece from where it lies
//! ([`Staging::lend`]).
//!
//! A message that is deferred is set aside, and so is what its sender sent behind it; the backend
//! half is asked to give no more of that sender until they are taken ([`Holds`]). What others sent,
//! and what it says of our own requests, goes on.
//!
//! When the backend half is gone, what it gave before is taken first: its sender may know it to be
//! here. Then what was asked of it fails, and its partners are gone; those of which messages are
//! set aside only when these are taken, but nothing that was sent to them waits for that.
//!
//! Partners behind rings have odd numbers here, so that those of channels, which are even, are
//! apart from them.

mod aside;
mod turns;
mod way;

use std::collections::{HashMap, HashSet, VecDeque};

use causeway_channel::mx_rings::{Holds, Wrong, read_event, write_request};
use causeway_channel::{self as channel, Broken, Head, Receiver, Sender, Writing};
use causeway_wire::mx::{Event, Handle, PeerId, Request, Status, Token, Window};

use super::channels::Bell;
use super::{Arrival, Refused};
use crate::limits::{EVENTS_AFTER_END_MAX, PARTNERS_MAX};
use aside::Aside;
use turns::{Turns, Wanted};

/// What a place in staging is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A message that waits until its receiver pulled it.
    Offer,
    /// A message that is pulled.
    Pull,
}

/// Memory that the backend half reaches.
pub trait Staging {
    /// A place for so many bytes; [`Refused::Full`] while there is none. Offers must not take what
    /// pulls need: two that offer each other all they can would wait for ever.
    ///
    /// # Errors
    /// Not now, or never.
    fn take(&mut self, len: u32, purpose: Purpose) -> Result<Window, Refused>;

    /// A place that is where these bytes lie, which nobody changes until it is
    /// [given](Self::give), or [taken back](Self::take_back); none where the backend half does not
    /// reach them.
    fn lend(&mut self, _bytes: &[u8]) -> Option<Window> {
        None
    }

    /// The bytes of a place may be something else from now on: if that is where they lie, nothing
    /// of it is sent any more. It is not given yet.
    fn take_back(&mut self, _window: Window) {}

    /// A place is not needed any more.
    fn give(&mut self, window: Window);

    /// Copies bytes in.
    fn write(&self, window: Window, at: usize, bytes: &[u8]);

    /// Copies bytes out.
    fn read(&self, window: Window, at: usize, into: &mut [u8]);
}

/// What a token of ours stands for, beyond what the library half knows.
#[derive(Debug, Clone, Copy)]
enum Underway {
    /// A message is offered to it from there.
    Offer(PeerId, Window),
    /// A message is pulled to there.
    Pull(PeerId, Window),
    /// A partner is connected to.
    Connect,
}

/// What the backend half is to be told, and cannot be refused: it waits for room.
#[derive(Debug, Clone, Copy)]
enum Owed {
    Disconnect(PeerId),
    Forget(PeerId),
    Cancel(Token),
    Watch(PeerId, bool),
}

/// What is being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    Nothing,
    /// What waits to be told, not an event.
    Note,
    /// An event of the ring, whose bytes are in it.
    Event(channel::Event),
    /// The first of those that were set aside.
    Aside,
    /// The end of a pull: its bytes are in staging.
    Pulled(channel::Event, PeerId, Window),
}

/// Whether the rings are of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// Nothing more comes: what is there is still to be taken.
    Gone,
    /// What is there is nonsense.
    Broken,
}

/// The library half's end of the rings.
#[derive(Debug)]
pub struct Rings<D, S> {
    sender: Sender,
    receiver: Receiver,
    /// Rings the backend half's doorbell.
    bell: D,
    /// The memory for large messages.
    pub staging: S,
    underway: HashMap<Token, Underway>,
    turns: Turns,
    /// Partners whose turn it is, for whose next message there was no room.
    stalled: Vec<PeerId>,
    /// Messages that will never be pulled, and why: the library half is yet to be told.
    refused: VecDeque<(Token, Status)>,
    /// Partners that are not forgotten, to be told of when the rings end.
    peers: Vec<PeerId>,
    owed: VecDeque<Owed>,
    current: Current,
    arrival: Arrival,
    /// What found no room last, in bytes.
    full: Option<usize>,
    /// Whose messages the other half is asked to keep.
    holds: Holds,
    /// What was deferred: of each partner at most what the ring holds, and what comes until the
    /// other half heard of it.
    aside: Aside,
    end: End,
    /// Events that are taken after that, however much is set aside.
    left: usize,
    /// Partners that were said not to be reached.
    unreached: HashSet<PeerId>,
    /// Whole messages of each partner, by its number at the other end.
    received: Vec<u64>,
    /// The partner of the short message that was given last.
    short_of: PeerId,
}

impl<D: Bell, S: Staging> Rings<D, S> {
    /// At the first side of a channel.
    pub fn new(sender: Sender, receiver: Receiver, holds: Holds, bell: D, staging: S) -> Self {
        Self {
            sender,
            receiver,
            bell,
            staging,
            underway: HashMap::new(),
            turns: Turns::default(),
            stalled: Vec::new(),
            refused: VecDeque::new(),
            peers: Vec::new(),
            owed: VecDeque::new(),
            current: Current::Nothing,
            arrival: Arrival::Failed { peer: PeerId(0), token: Token(0) },
            full: None,
            holds,
            aside: Aside::default(),
            end: End::NotYet,
            left: EVENTS_AFTER_END_MAX,
            unreached: HashSet::new(),
            received: Vec::new(),
            short_of: PeerId::NONE,
        }
    }

    /// Nobody is at the other end any more: all partners are gone.
    pub fn end(&mut self) {
        if self.end == End::NotYet {
            self.end = End::Gone;
        }
        // What was sent fails, whoever still pulls it.
        for underway in self.underway.values() {
            if let Underway::Offer(_, window) = underway {
                self.staging.take_back(*window);
            }
        }
    }

    /// Whether nobody is at the other end, and all that was asked or sent there has ended.
    pub fn is_over(&self) -> bool {
        self.ended()
            && self.current == Current::Nothing
            && self.aside.is_empty()
            && self.refused.is_empty()
            && self.peers.is_empty()
            && self.underway.is_empty()
    }

    /// How a partner is named at the other end, if nothing waits to be said there: what is sent
    /// past the rings is not to be before what was asked earlier.
    #[inline]
    pub fn past(&self, peer: PeerId) -> Option<PeerId> {
        (self.owed.is_empty() && !self.ended()).then(|| inner(peer))
    }

    /// Whether [`Transport::next`](crate::library::Transport::next) may give anything or has
    /// anything to do, as a glance shows.
    #[inline]
    pub fn comes(&self) -> bool {
        self.receiver.ready() || !self.is_clear() || self.current != Current::Nothing
    }

    /// Whether nothing waits here: what comes goes straight to the library half.
    #[inline]
    fn is_clear(&self) -> bool {
        self.owed.is_empty()
            && self.stalled.is_empty()
            && self.refused.is_empty()
            && self.aside.is_empty()
            && !self.ended()
    }

    /// Counts a whole message of a partner, by its number at the other end.
    #[inline]
    fn count_received(&mut self, peer: PeerId) {
        if let Some(count) = self.received.get_mut(peer.0 as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// A partner is new: none of its messages came yet.
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

    /// Whether nobody is at the other end.
    pub fn has_ended(&self) -> bool {
        self.ended()
    }

    fn ended(&self) -> bool {
        self.end != End::NotYet
    }

    /// The application did something by which it may take what it could not take before. Says
    /// whether there is anything of that.
    pub fn stir(&mut self) -> bool {
        self.aside.stir()
    }

    /// Before sleeping: asks to be woken, and looks once more. False: there is something to do, do
    /// not sleep. [`Self::disarm`] comes after either.
    pub fn arm(&mut self) -> bool {
        // What is set aside waits for the application alone, once each was tried.
        if !self.aside.is_vain() || !self.refused.is_empty() {
            return false;
        }
        if self.ended() {
            return !(self.has_last() || self.takes_more() && self.receiver.ready());
        }
        let arrived = self.receiver.ask() && !self.aside.is_stuffed();
        let room = self.full.map_or(Ok(false), |len| self.sender.ask_room(len));
        match room {
            // Said once: who waited for it may be gone.
            Ok(true) => self.full = None,
            Ok(false) => {}
            Err(Broken) => self.end = End::Broken,
        }
        if self.receiver.poisoned() {
            self.end = End::Broken;
        }
        !arrived && room == Ok(false) && !self.ended()
    }

    /// Takes back what [`Self::arm`] asked.
    pub fn disarm(&mut self) {
        self.receiver.awake();
        self.sender.awake();
    }

    fn gone() -> Refused {
        Refused::Never(Status::EndpointUnreachable)
    }

    /// Says how writing went, and rings.
    fn written(&mut self, written: Result<bool, Broken>, len: usize) -> Result<(), Refused> {
        match written {
            Ok(true) => {
                self.full = None;
                if self.sender.must_wake() {
                    self.bell.ring();
                }
                Ok(())
            }
            Ok(false) => {
                self.full = Some(len);
                Err(Refused::Full)
            }
            Err(Broken) => {
                self.end = End::Broken;
                Err(Self::gone())
            }
        }
    }

    fn request(&mut self, request: &Request<'_>) -> Result<(), Refused> {
        if self.ended() {
            return Err(Self::gone());
        }
        let written = write_request(&mut self.sender, request);
        self.written(written, 0)
    }

    /// Tells the backend half, now or when there is room.
    fn owe(&mut self, owed: Owed) {
        if !self.ended() {
            self.owed.push_back(owed);
            self.pay();
        }
    }

    /// Tells what waits.
    fn pay(&mut self) {
        while let Some(owed) = self.owed.front() {
            let request = match *owed {
                Owed::Disconnect(peer) => Request::Disconnect { peer: inner(peer) },
                Owed::Forget(peer) => Request::Forget { peer: inner(peer) },
                Owed::Cancel(token) => Request::Cancel { token },
                Owed::Watch(peer, on) => Request::Watch { peer: inner(peer), on },
            };
            if self.request(&request) == Err(Refused::Full) {
                return;
            }
            self.owed.pop_front();
        }
    }

    /// A request with bytes that come in pieces.
    #[inline]
    fn message(
        &mut self,
        head: Head,
        len: usize,
        put: impl FnOnce(&mut Writing<'_>),
    ) -> Result<(), Refused> {
        if self.ended() {
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

    /// Whether events are taken from the ring. Of a backend half that is gone all are: they may be
    /// of any partner, or say how anything ended.
    #[inline]
    fn takes_more(&self) -> bool {
        match self.end {
            End::NotYet => !self.aside.is_stuffed(),
            End::Gone => self.left > 0,
            End::Broken => false,
        }
    }

    /// Looks at the next event.
    #[inline]
    fn look(&mut self) -> Option<Arrival> {
        while self.takes_more() {
            let event = match self.receiver.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(Broken) => {
                    self.end = End::Broken;
                    return None;
                }
            };
            match read_event(&event.head, event.len) {
                Ok(said) => {
                    if let Some(arrival) = self.arrived(event, &said) {
                        if self.goes_behind(&arrival) {
                            self.set_aside(event, arrival);
                            continue;
                        }
                        if self.is_void(&arrival) {
                            self.take(event);
                            continue;
                        }
                        self.arrival = arrival;
                        return Some(arrival);
                    }
                    // Nobody is to hear of it.
                    self.take(event);
                }
                Err(Wrong::Kind(_) | Wrong::Field(_) | Wrong::Length { .. }) => {
                    self.end = End::Broken;
                    return None;
                }
            }
        }
        None
    }

    /// Whether it is heard after what waits of the same partner: also that the partner is gone.
    #[inline]
    fn goes_behind(&self, arrival: &Arrival) -> bool {
        match *arrival {
            Arrival::Message { peer, .. }
            | Arrival::Offered { peer, .. }
            | Arrival::PeerGone { peer, .. } => self.aside.has(peer),
            _ => false,
        }
    }

    /// Whether nothing can come of it any more: of an offer nobody said that it is here.
    #[inline]
    fn is_void(&self, arrival: &Arrival) -> bool {
        self.ended() && matches!(arrival, Arrival::Offered { .. })
    }

    /// Copies an event out of the ring, behind what waits of the same partner.
    #[cold]
    fn set_aside(&mut self, event: channel::Event, arrival: Arrival) {
        if let Arrival::Message { peer, .. }
        | Arrival::Offered { peer, .. }
        | Arrival::PeerGone { peer, .. } = arrival
        {
            let mut bytes = vec![0; event.len];
            self.receiver.copy(&event, 0, &mut bytes);
            if self.aside.push(peer, arrival, bytes) {
                self.holds.set(inner(peer), true);
            }
        }
        self.take(event);
    }

    /// The first of those that were set aside was taken.
    #[cold]
    fn taken_from_aside(&mut self) {
        if let Some(peer) = self.aside.done()
            && self.holds.set(inner(peer), false)
            && !self.ended()
        {
            self.bell.ring();
        }
    }

    /// One of those that were set aside.
    fn next_aside(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.aside.next()?;
            if !self.is_void(&arrival) {
                self.arrival = arrival;
                self.current = Current::Aside;
                return Some(arrival);
            }
            self.taken_from_aside();
        }
    }

    /// What an event says to the library half, if anything.
    #[inline]
    fn arrived(&mut self, event: channel::Event, said: &Event<'_>) -> Option<Arrival> {
        self.current = Current::Event(event);
        Some(match *said {
            Event::Message { peer, match_info, .. } => {
                self.count_received(peer);
                let len = u32::try_from(event.len).ok()?;
                Arrival::Message { peer: outer(peer), match_info, len }
            }
            Event::Offered { peer, match_info, len, handle } => {
                let peer = outer(peer);
                Arrival::Offered { peer, match_info, len, offer: handle.0.into() }
            }
            Event::Sent { token, status, taken } => {
                // Of short messages nothing is kept.
                if !self.underway.is_empty()
                    && let Some(Underway::Offer(_, window)) = self.underway.remove(&token)
                {
                    self.staging.give(window);
                }
                Arrival::Sent { token, status, taken }
            }
            Event::Pulled { token, status } => {
                let Some(Underway::Pull(peer, window)) = self.underway.remove(&token) else {
                    return Some(Arrival::Pulled { token, status });
                };
                self.turns.over(peer, window.len);
                if status != Status::Success || peer == PeerId::NONE {
                    self.staging.give(window);
                    self.pull_more(peer);
                    return (peer != PeerId::NONE).then_some(Arrival::Pulled { token, status });
                }
                self.current = Current::Pulled(event, peer, window);
                Arrival::Chunk { peer, token, len: window.len }
            }
            Event::Connected { token, status, peer } => {
                self.underway.remove(&token);
                Arrival::Connected { token, status, peer: outer(peer) }
            }
            Event::PeerSeen { peer, address, session } => {
                self.begin_count(peer);
                let peer = outer(peer);
                if !self.peers.contains(&peer) {
                    self.peers.push(peer);
                }
                Arrival::PeerSeen { peer, address, session }
            }
            Event::PeerGone { peer, status } => Arrival::PeerGone { peer: outer(peer), status },
        })
    }

    /// An event was taken.
    #[inline]
    fn take(&mut self, event: channel::Event) {
        self.current = Current::Nothing;
        if self.ended() {
            self.left = self.left.saturating_sub(1);
        }
        if self.receiver.advance(&event) {
            self.bell.ring();
        }
    }

    /// A partner of which nothing more is to be taken.
    fn last_peer(&self) -> Option<PeerId> {
        self.peers.iter().rev().find(|peer| !self.aside.has(**peer)).copied()
    }

    /// A connect that nobody answers any more.
    fn last_connect(&self) -> Option<Token> {
        let connects = self.underway.iter().filter(|(_, what)| matches!(what, Underway::Connect));
        connects.map(|(token, _)| *token).next()
    }

    /// A partner of which messages are still to be taken, and that was not said not to be reached.
    fn last_unreached(&self) -> Option<PeerId> {
        let new = |peer: &&PeerId| self.aside.has(**peer) && !self.unreached.contains(*peer);
        self.peers.iter().find(new).copied()
    }

    fn has_last(&self) -> bool {
        self.last_peer().is_some()
            || self.last_connect().is_some()
            || self.last_unreached().is_some()
    }

    /// The rings are of no use: what was asked fails and partners go, one after the other.
    #[cold]
    fn next_last(&mut self) -> Option<Arrival> {
        let status = Status::EndpointUnreachable;
        self.arrival = if let Some(token) = self.last_connect() {
            self.underway.remove(&token);
            Arrival::Connected { token, status, peer: PeerId::NONE }
        } else if let Some(peer) = self.last_unreached() {
            self.unreached.insert(peer);
            Arrival::Unreached { peer, status }
        } else {
            Arrival::PeerGone { peer: self.last_peer()?, status }
        };
        self.current = Current::Note;
        Some(self.arrival)
    }

    /// Begins a pull.
    fn begin_pull(&mut self, peer: PeerId, wanted: Wanted) -> Result<(), Refused> {
        let Wanted { offer, token, len } = wanted;
        let into = self.staging.take(len, Purpose::Pull)?;
        let asked = self.request(&Request::Pull { handle: handle(offer), token, into });
        match asked {
            Ok(()) => {
                self.turns.began(peer, len);
                self.underway.insert(token, Underway::Pull(peer, into));
            }
            Err(_) => self.staging.give(into),
        }
        asked
    }

    /// Pulls what waits for its turn of a partner.
    fn pull_more(&mut self, peer: PeerId) {
        while let Some(wanted) = self.turns.next(peer) {
            match self.begin_pull(peer, wanted) {
                Ok(()) => {}
                Err(Refused::Full) => {
                    if !self.stalled.contains(&peer) {
                        self.stalled.push(peer);
                    }
                    return;
                }
                Err(Refused::Never(status)) => self.refused.push_back((wanted.token, status)),
            }
            self.turns.taken(peer);
        }
    }

    /// Tries again what had no room, and says what will never have any.
    #[cold]
    fn next_refused(&mut self) -> Option<Arrival> {
        for peer in std::mem::take(&mut self.stalled) {
            self.pull_more(peer);
        }
        let (token, status) = self.refused.pop_front()?;
        self.arrival = Arrival::Pulled { token, status };
        self.current = Current::Note;
        Some(self.arrival)
    }

    /// Nobody says any more how offers to a partner and pulls from it end: the library half ended them.
    fn end_underway(&mut self, peer: PeerId) {
        self.underway.retain(|_, underway| match underway {
            Underway::Offer(to, _) => *to != peer,
            Underway::Pull(from, _) => *from != peer && *from != PeerId::NONE,
            Underway::Connect => true,
        });
    }

    /// Pulls from a partner are of no interest any more, and what is offered to it may be something
    /// else soon.
    fn orphan(&mut self, peer: PeerId) {
        self.turns.forget(peer);
        for underway in self.underway.values_mut() {
            match underway {
                Underway::Pull(of, _) if *of == peer => *of = PeerId::NONE,
                Underway::Offer(to, window) if *to == peer => self.staging.take_back(*window),
                _ => {}
            }
        }
    }
}

/// Whether a partner is reached by rings.
#[inline]
pub fn is_remote(peer: PeerId) -> bool {
    peer.0 & 1 == 1 && peer != PeerId::NONE
}

/// A partner as the library half knows it.
#[inline]
fn outer(peer: PeerId) -> PeerId {
    if peer == PeerId::NONE { peer } else { PeerId(peer.0.saturating_mul(2).saturating_add(1)) }
}

/// A partner as the backend half knows it.
#[inline]
fn inner(peer: PeerId) -> PeerId {
    PeerId(peer.0 / 2)
}

/// The name of an offer, as the library half has it.
fn handle(offer: u64) -> Handle {
    Handle(u32::try_from(offer).unwrap_or(u32::MAX))
}
