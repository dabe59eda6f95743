//! The rings to the backend half as the way to partners of other hosts.
//!
//! Large messages need memory that the backend half reaches: *staging*, which whoever owns the
//! rings lends to it ([`Staging`]). A message that is offered is copied there first, one that is
//! pulled is copied from there when it is whole. Where staging finds no place, the message waits.
//!
//! A message that is deferred is set aside, and so are those behind it; the backend half is asked
//! to send no more of them until they are taken. What it says of our own requests goes on.
//!
//! Partners behind rings have odd numbers here, so that those of channels, which are even, are
//! apart from them.

mod way;

use std::collections::{HashMap, VecDeque};

use causeway_ring::channel::{self, Broken, Head, Receiver, Sender, Writing};

use super::channels::Bell;
use super::{Arrival, Refused};
use crate::limits::{ASIDE_BYTES_MAX, ASIDE_MAX};
use crate::rings::{Wrong, hold, read_event, write_request};
use crate::split::{Event, Handle, PeerId, Request, Token, Window};
use crate::status::Status;

/// Memory that the backend half reaches.
pub trait Staging {
    /// A place for so many bytes; [`Refused::Full`] while there is none.
    ///
    /// # Errors
    /// Not now, or never.
    fn take(&mut self, len: u32) -> Result<Window, Refused>;

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
    /// A message is offered from there.
    Offer(Window),
    /// A message is pulled to there.
    Pull(PeerId, Window),
}

/// What the backend half is to be told, and cannot be refused: it waits for room.
#[derive(Debug, Clone, Copy)]
enum Owed {
    Disconnect(PeerId),
    Forget(PeerId),
    Cancel(Token),
    Hold(bool),
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
    Pulled(channel::Event, Token, Window),
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
    /// Partners that are not forgotten, to be told of when the rings end.
    peers: Vec<PeerId>,
    owed: VecDeque<Owed>,
    current: Current,
    arrival: Arrival,
    /// What found no room last, in bytes.
    full: Option<usize>,
    /// Messages and offers that were deferred, and those that came after, with their bytes: at
    /// most what the ring holds, and what comes until the other half heard of it.
    aside: VecDeque<(Arrival, Vec<u8>)>,
    aside_bytes: usize,
    /// The first of them was deferred: it is given again after nothing was.
    deferred: bool,
    /// The other half was asked to hold, or is to be.
    held: bool,
    /// Of no use any more.
    ended: bool,
}

impl<D: Bell, S: Staging> Rings<D, S> {
    /// At the first side of a channel.
    pub fn new(sender: Sender, receiver: Receiver, bell: D, staging: S) -> Self {
        Self {
            sender,
            receiver,
            bell,
            staging,
            underway: HashMap::new(),
            peers: Vec::new(),
            owed: VecDeque::new(),
            current: Current::Nothing,
            arrival: Arrival::Failed { peer: PeerId(0), token: Token(0) },
            full: None,
            aside: VecDeque::new(),
            aside_bytes: 0,
            deferred: false,
            held: false,
            ended: false,
        }
    }

    /// Nobody is at the other end any more: all partners are gone.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Before sleeping: asks to be woken, and looks once more. False: there is something to do, do
    /// not sleep. [`Self::disarm`] comes after either.
    pub fn arm(&mut self) -> bool {
        if self.ended {
            return self.peers.is_empty();
        }
        // What is set aside waits for the application alone.
        let arrived = self.receiver.ask() && !self.is_stuffed();
        let room = self.full.map_or(Ok(false), |len| self.sender.ask_room(len));
        match room {
            // Said once: who waited for it may be gone.
            Ok(true) => self.full = None,
            Ok(false) => {}
            Err(Broken) => self.ended = true,
        }
        if self.receiver.poisoned() {
            self.ended = true;
        }
        !arrived && room == Ok(false) && !self.ended
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
                self.ended = true;
                Err(Self::gone())
            }
        }
    }

    fn request(&mut self, request: &Request<'_>) -> Result<(), Refused> {
        if self.ended {
            return Err(Self::gone());
        }
        let written = write_request(&mut self.sender, request);
        self.written(written, 0)
    }

    /// Tells the backend half, now or when there is room.
    fn owe(&mut self, owed: Owed) {
        if !self.ended {
            self.owed.push_back(owed);
            self.pay();
        }
    }

    /// Tells what waits.
    fn pay(&mut self) {
        while let Some(owed) = self.owed.front() {
            if let Owed::Hold(yes) = *owed {
                if self.message(hold(yes), 0, |_| ()) == Err(Refused::Full) {
                    return;
                }
                self.owed.pop_front();
                continue;
            }
            let request = match *owed {
                Owed::Disconnect(peer) => Request::Disconnect { peer: inner(peer) },
                Owed::Forget(peer) => Request::Forget { peer: inner(peer) },
                Owed::Cancel(token) => Request::Cancel { token },
                Owed::Hold(_) => return,
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
        if self.ended {
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

    /// Looks at the next event.
    #[inline]
    fn look(&mut self) -> Option<Arrival> {
        while !self.is_stuffed() {
            let event = match self.receiver.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(Broken) => {
                    self.ended = true;
                    return None;
                }
            };
            match read_event(&event.head, event.len) {
                Ok(said) => {
                    if let Some(arrival) = self.arrived(event, &said) {
                        // That a partner is gone is heard after what it sent.
                        let behind = matches!(
                            arrival,
                            Arrival::Message { .. }
                                | Arrival::Offered { .. }
                                | Arrival::PeerGone { .. }
                        );
                        if behind && !self.aside.is_empty() {
                            self.set_aside(event, arrival);
                            continue;
                        }
                        self.arrival = arrival;
                        return Some(arrival);
                    }
                    // Nobody is to hear of it.
                    self.take(event);
                }
                Err(Wrong::Kind(_) | Wrong::Field(_) | Wrong::Length { .. }) => {
                    self.ended = true;
                    return None;
                }
            }
        }
        None
    }

    /// Whether as much is set aside as may be: then the ring waits too.
    fn is_stuffed(&self) -> bool {
        self.aside_bytes >= ASIDE_BYTES_MAX || self.aside.len() >= ASIDE_MAX
    }

    /// Copies an event out of the ring, behind those that wait.
    #[cold]
    fn set_aside(&mut self, event: channel::Event, arrival: Arrival) {
        let mut bytes = vec![0; event.len];
        self.receiver.copy(&event, 0, &mut bytes);
        self.aside_bytes = self.aside_bytes.saturating_add(bytes.len());
        self.aside.push_back((arrival, bytes));
        if !std::mem::replace(&mut self.held, true) {
            self.owe(Owed::Hold(true));
        }
        self.take(event);
    }

    /// The first of those that were set aside was taken.
    fn taken_from_aside(&mut self) {
        if let Some((_, bytes)) = self.aside.pop_front() {
            self.aside_bytes = self.aside_bytes.saturating_sub(bytes.len());
        }
        if self.aside.is_empty() && std::mem::take(&mut self.held) {
            self.owe(Owed::Hold(false));
        }
    }

    /// The first of those that were set aside.
    fn next_aside(&mut self) -> Option<Arrival> {
        let (arrival, _) = self.aside.front()?;
        self.arrival = *arrival;
        self.current = Current::Aside;
        Some(self.arrival)
    }

    /// What an event says to the library half, if anything.
    #[inline]
    fn arrived(&mut self, event: channel::Event, said: &Event<'_>) -> Option<Arrival> {
        self.current = Current::Event(event);
        Some(match *said {
            Event::Message { peer, match_info, .. } => {
                let len = u32::try_from(event.len).ok()?;
                Arrival::Message { peer: outer(peer), match_info, len }
            }
            Event::Offered { peer, match_info, len, handle } => {
                let peer = outer(peer);
                Arrival::Offered { peer, match_info, len, offer: handle.0.into() }
            }
            Event::Sent { token, status, taken } => {
                if let Some(Underway::Offer(window)) = self.underway.remove(&token) {
                    self.staging.give(window);
                }
                Arrival::Sent { token, status, taken }
            }
            Event::Pulled { token, status } => {
                let Some(Underway::Pull(peer, window)) = self.underway.remove(&token) else {
                    return Some(Arrival::Pulled { token, status });
                };
                if status != Status::Success || peer == PeerId::NONE {
                    self.staging.give(window);
                    return (peer != PeerId::NONE).then_some(Arrival::Pulled { token, status });
                }
                self.current = Current::Pulled(event, token, window);
                Arrival::Chunk { peer, token, len: window.len }
            }
            Event::Connected { token, status, peer } => {
                Arrival::Connected { token, status, peer: outer(peer) }
            }
            Event::PeerSeen { peer, address, session } => {
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
        if self.receiver.advance(&event) {
            self.bell.ring();
        }
    }

    /// The rings are of no use: partners go, one after the other.
    #[cold]
    fn next_gone(&mut self) -> Option<Arrival> {
        let peer = *self.peers.last()?;
        self.current = Current::Note;
        self.arrival = Arrival::PeerGone { peer, status: Status::EndpointUnreachable };
        Some(self.arrival)
    }

    /// Pulls from a partner are of no interest any more.
    fn orphan(&mut self, peer: PeerId) {
        for underway in self.underway.values_mut() {
            if let Underway::Pull(of, _) = underway
                && *of == peer
            {
                *of = PeerId::NONE;
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
