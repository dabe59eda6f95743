//! Channels as the way to partners of this host: what an event of a channel says, and who is
//! looked at next.
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | 1 message | match information | the message |
//! | 2 offer | match information, the sender's name for it, length | |
//! | 3 pull | the offer's name, the receiver's name for it, length | |
//! | 4 chunk | the receiver's name | the next bytes |
//! | 5 fail | the receiver's name | |
//!
//! A pull is answered by chunks in order, or by one fail. The sender of a large message has done
//! its part when the last chunk is in the channel, so no event says that they arrived.

use std::collections::VecDeque;

use causeway_ring::channel::{Broken, Event, Head, Receiver, Sender};

use super::{Arrival, Buffer, Handed, Refused, Transport, pieces};
use crate::limits::{CHANNEL_CHUNK_BYTES, CHANNEL_EAGER_BYTES_MAX, CHANNELS_MAX};
use crate::split::{Address, PeerId, Token};
use crate::status::Status;

const MESSAGE: u8 = 1;
const OFFER: u8 = 2;
const PULL: u8 = 3;
const CHUNK: u8 = 4;
const FAIL: u8 = 5;

/// How many events of one channel are taken before another is looked at.
const TURN: u32 = 16;
/// How often nothing is found before it is looked whether the others closed.
const IDLE_LOOKS: u32 = 256;

/// Wakes the process at the other end of a channel.
pub trait Bell {
    /// Rings; must not wait.
    fn ring(&self);
}

impl<F: Fn()> Bell for F {
    fn ring(&self) {
        self();
    }
}

/// A channel to a partner, as it was set up.
#[derive(Debug)]
pub struct Channel<D> {
    /// The number that the partner is to have.
    pub peer: PeerId,
    /// Its address.
    pub address: Address,
    /// Its session.
    pub session: u32,
    /// Our half of the direction to it.
    pub sender: Sender,
    /// Our half of the direction from it.
    pub receiver: Receiver,
    /// Its doorbell.
    pub bell: D,
}

#[derive(Debug)]
struct Link<D> {
    peer: PeerId,
    sender: Sender,
    receiver: Receiver,
    bell: D,
    /// Its next event cannot be taken now.
    deferred: bool,
    /// What found no room last, in bytes.
    full: Option<usize>,
    /// Nothing more is written into it.
    lost: Option<Status>,
    /// Of no use any more; the library half is told.
    dead: bool,
    /// Names of pulls that are to be failed, where there was no room to say so.
    failing: VecDeque<u64>,
}

impl<D> Link<D> {
    /// How it ended, if nothing more comes.
    fn ended(&self) -> Option<Status> {
        // In this order: what was sent before the end is there when the end is seen.
        let closed = self.receiver.closed().then_some(Status::EndpointClosed);
        self.lost.or(closed).filter(|_| !self.dead && !self.receiver.ready())
    }
}

/// What is being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    Nothing,
    Note,
    Event(usize),
}

/// All channels of an endpoint. `D` rings the doorbell of a partner.
#[derive(Debug)]
pub struct Channels<D> {
    links: Vec<Option<Link<D>>>,
    /// The link of a partner, by its number.
    by_peer: Vec<Option<u32>>,
    /// Partners that came and went, not told yet.
    notes: VecDeque<Arrival>,
    current: Current,
    /// The event that is looked at, and what it says.
    event: Event,
    arrival: Arrival,
    /// Whose turn it is, and how much of it is left.
    at: usize,
    turn: u32,
    idle: u32,
    /// Some link has something that is not looked at each time.
    attention: bool,
    /// Some link's next event was deferred; and since then nothing else was found.
    deferring: bool,
    rested: bool,
}

impl<D> Default for Channels<D> {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            by_peer: Vec::new(),
            notes: VecDeque::new(),
            current: Current::Nothing,
            event: Event::default(),
            arrival: Arrival::Failed { peer: PeerId(0), token: Token(0) },
            at: 0,
            turn: TURN,
            idle: 0,
            attention: false,
            deferring: false,
            rested: false,
        }
    }
}

impl<D: Bell> Channels<D> {
    /// Adds a channel; its partner is seen by the next progress. False: the number is taken or too
    /// high, or there are too many.
    pub fn add(&mut self, channel: Channel<D>) -> bool {
        let Channel { peer, address, session, sender, receiver, bell } = channel;
        let at = peer.0 as usize;
        let free = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        if at >= crate::limits::PEER_NUMBERS_MAX || free >= CHANNELS_MAX || self.of(peer).is_some()
        {
            return false;
        }
        let link = Link {
            peer,
            sender,
            receiver,
            bell,
            deferred: false,
            full: None,
            lost: None,
            dead: false,
            failing: VecDeque::new(),
        };
        match self.links.get_mut(free) {
            Some(place) => *place = Some(link),
            None => self.links.push(Some(link)),
        }
        if self.by_peer.len() <= at {
            self.by_peer.resize(at.saturating_add(1), None);
        }
        if let Some(place) = self.by_peer.get_mut(at) {
            *place = u32::try_from(free).ok();
        }
        self.notes.push_back(Arrival::PeerSeen { peer, address, session });
        true
    }

    /// The partner's process is gone, says who knows. What it sent before is taken first.
    pub fn lost(&mut self, peer: PeerId, status: Status) {
        let Some(at) = self.of(peer) else { return };
        match self.links.get_mut(at) {
            Some(Some(link)) if link.receiver.ready() => {
                link.lost = Some(status);
                self.attention = true;
            }
            _ => self.bury(at, status),
        }
    }

    /// Whether a partner is reached by a channel.
    pub fn has(&self, peer: PeerId) -> bool {
        self.of(peer).is_some()
    }

    /// Before sleeping: asks all to ring our doorbell, and looks once more. False: there is
    /// something to do, do not sleep. [`Self::disarm`] comes after either.
    pub fn arm(&mut self) -> bool {
        let mut idle = self.notes.is_empty();
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            if link.dead {
                continue;
            }
            // What is deferred waits for the application alone.
            let arrived = link.receiver.ask() && !link.deferred;
            let room = match (link.full, link.failing.is_empty()) {
                (None, true) => Ok(false),
                (full, _) => link.sender.ask_room(full.unwrap_or(0)),
            };
            let ended = link.ended();
            idle &= !arrived && !matches!(room, Ok(true));
            if room.is_err() || link.receiver.poisoned() {
                self.bury(at, Status::EndpointUnreachable);
                idle = false;
            } else if let Some(status) = ended {
                self.bury(at, status);
                idle = false;
            }
        }
        idle
    }

    /// Takes back what [`Self::arm`] asked.
    pub fn disarm(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.receiver.awake();
            link.sender.awake();
        }
    }

    fn of(&self, peer: PeerId) -> Option<usize> {
        self.by_peer.get(peer.0 as usize).copied().flatten().map(|at| at as usize)
    }

    #[inline]
    fn link(&mut self, peer: PeerId) -> Result<(usize, &mut Link<D>), Refused> {
        let gone = Refused::Never(Status::EndpointUnreachable);
        let at = self.of(peer).ok_or(gone)?;
        let link = self.links.get_mut(at).and_then(Option::as_mut).ok_or(gone)?;
        if link.dead { Err(gone) } else { Ok((at, link)) }
    }

    /// A link is of no use any more; the library half is told once.
    fn bury(&mut self, at: usize, status: Status) {
        let Some(Some(link)) = self.links.get_mut(at) else { return };
        if !link.dead {
            link.dead = true;
            link.sender.close();
            link.bell.ring();
            self.notes.push_back(Arrival::PeerGone { peer: link.peer, status });
        }
    }

    fn remove(&mut self, peer: PeerId) {
        let Some(at) = self.of(peer) else { return };
        if let Some(place) = self.by_peer.get_mut(peer.0 as usize) {
            *place = None;
        }
        if let Some(place) = self.links.get_mut(at)
            && let Some(mut link) = place.take()
        {
            link.sender.close();
            link.bell.ring();
        }
        if self.current == Current::Event(at) {
            self.current = Current::Nothing;
        }
    }

    /// Sends one event, in pieces that `put` gives.
    #[inline]
    fn send(
        &mut self,
        peer: PeerId,
        head: Head,
        len: usize,
        put: impl FnOnce(&mut causeway_ring::channel::Writing<'_>),
    ) -> Result<(), Refused> {
        let (at, link) = self.link(peer)?;
        match link.sender.begin(len) {
            Ok(Some(mut writing)) => {
                put(&mut writing);
                writing.send(head);
                link.full = None;
                if link.sender.must_wake() {
                    link.bell.ring();
                }
                Ok(())
            }
            Ok(None) => {
                link.full = Some(len);
                Err(Refused::Full)
            }
            Err(Broken) => {
                self.bury(at, Status::EndpointUnreachable);
                Err(Refused::Never(Status::EndpointUnreachable))
            }
        }
    }

    /// Looks whether the next event of a link is there.
    #[inline]
    fn look(&mut self, at: usize) -> bool {
        let Some(Some(link)) = self.links.get(at) else { return false };
        if link.dead || link.deferred {
            return false;
        }
        match link.receiver.poll() {
            Ok(None) => return false,
            Ok(Some(event)) => {
                if let Some(arrival) = arrival(link.peer, &event) {
                    self.event = event;
                    self.arrival = arrival;
                    self.current = Current::Event(at);
                    return true;
                }
            }
            Err(Broken) => {}
        }
        self.bury(at, Status::EndpointUnreachable);
        false
    }

    /// Looks at all links from the one whose turn it is.
    #[inline]
    fn look_round(&mut self) -> bool {
        if self.turn > 0 && self.look(self.at) {
            self.turn = self.turn.saturating_sub(1);
            return true;
        }
        self.turn = TURN;
        for _ in 1..self.links.len() {
            self.at = self.at.saturating_add(1);
            if self.at >= self.links.len() {
                self.at = 0;
            }
            if self.look(self.at) {
                return true;
            }
        }
        false
    }

    /// Nothing was found: it is time for what is rare.
    #[inline]
    fn idle(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        let rare = self.idle.is_multiple_of(IDLE_LOOKS);
        self.rested = self.deferring;
        if rare || self.attention {
            self.attend(rare);
        }
    }

    /// What was deferred may come again.
    #[cold]
    fn offer_again(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.deferred = false);
        (self.deferring, self.rested) = (false, false);
    }

    fn attend(&mut self, rare: bool) {
        self.attention = false;
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            if !link.failing.is_empty() {
                let (peer, failing) = (link.peer, std::mem::take(&mut link.failing));
                failing.into_iter().for_each(|to| <Self as Fail>::fail(self, peer, to));
            }
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            self.attention |= link.lost.is_some() || !link.failing.is_empty();
            if (rare || link.lost.is_some())
                && let Some(status) = link.ended()
            {
                self.bury(at, status);
            }
        }
    }
}

/// Telling a partner that what it pulls does not come.
trait Fail {
    fn fail(&mut self, peer: PeerId, to: u64);
}

impl<D: Bell> Fail for Channels<D> {
    fn fail(&mut self, peer: PeerId, to: u64) {
        let head = Head { kind: FAIL, words: [to, 0, 0] };
        if self.send(peer, head, 0, |_| ()) == Err(Refused::Full)
            && let Ok((at, link)) = self.link(peer)
        {
            // Only as many as there are pulls: else the partner made them up.
            if link.failing.len() < crate::limits::FAILS_MAX {
                link.failing.push_back(to);
                self.attention = true;
            } else {
                self.bury(at, Status::EndpointUnreachable);
            }
        }
    }
}

/// What an event says; none if that is nonsense.
#[inline]
fn arrival(peer: PeerId, event: &Event) -> Option<Arrival> {
    let [a, b, c] = event.head.words;
    let len = u32::try_from(event.len).ok()?;
    Some(match event.head.kind {
        MESSAGE => Arrival::Message { peer, match_info: a, len },
        OFFER => Arrival::Offered { peer, match_info: a, offer: b, len: u32::try_from(c).ok()? },
        PULL => Arrival::Wanted { peer, token: Token(a), to: b, len: u32::try_from(c).ok()? },
        CHUNK => Arrival::Chunk { peer, token: Token(a), len },
        FAIL => Arrival::Failed { peer, token: Token(a) },
        _ => return None,
    })
}

impl<B: Buffer, D: Bell> Transport<B> for Channels<D> {
    fn eager_max(&self, _peer: PeerId) -> usize {
        CHANNEL_EAGER_BYTES_MAX
    }

    #[inline]
    fn eager(
        &mut self,
        peer: PeerId,
        _token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handed, Refused> {
        let head = Head { kind: MESSAGE, words: [match_info, 0, 0] };
        let len = data.len();
        self.send(peer, head, len, |writing| pieces(data, 0, len, |piece| writing.put(piece)))?;
        Ok(Handed::Done)
    }

    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), Refused> {
        let words = [match_info, token.0, data.len() as u64];
        self.send(peer, Head { kind: OFFER, words }, 0, |_| ())
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        _into: Option<&mut B>,
        len: u32,
    ) -> Result<Handed, Refused> {
        let words = [offer, token.0, u64::from(len)];
        self.send(peer, Head { kind: PULL, words }, 0, |_| ())?;
        Ok(if len == 0 { Handed::Done } else { Handed::Kept })
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, Refused> {
        let (_, link) = self.link(peer)?;
        let chunk = CHANNEL_CHUNK_BYTES.min(link.sender.event_bytes_max());
        let mut from = at;
        while from < end {
            let len = chunk.min(end.saturating_sub(from));
            let head = Head { kind: CHUNK, words: [to, 0, 0] };
            let until = from.saturating_add(len);
            let sent = self.send(peer, head, len, |writing| {
                pieces(data, from, until, |piece| writing.put(piece));
            });
            match sent {
                Ok(()) => from = until,
                Err(Refused::Full) => break,
                Err(never) => return Err(never),
            }
        }
        Ok(from.saturating_sub(at))
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        <Self as Fail>::fail(self, peer, to);
    }

    /// Channels are set up by others: there is nobody here to ask.
    fn connect(
        &mut self,
        _token: Token,
        _to: Address,
        _key: u32,
        _timeout_ns: Option<u64>,
    ) -> Result<(), Refused> {
        Err(Refused::Never(Status::EndpointUnknown))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.remove(peer);
    }

    fn forget(&mut self, peer: PeerId) {
        self.remove(peer);
    }

    fn cancel(&mut self, _token: Token) {}

    fn broken(&mut self, peer: PeerId) {
        if let Some(at) = self.of(peer) {
            self.bury(at, Status::EndpointUnreachable);
        }
    }

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        if self.current != Current::Nothing {
            return Some(self.arrival);
        }
        if let Some(&note) = self.notes.front() {
            self.arrival = note;
            self.current = Current::Note;
            return Some(note);
        }
        if self.rested {
            self.offer_again();
        }
        if self.look_round() {
            return Some(self.arrival);
        }
        self.idle();
        None
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        let Current::Event(link) = self.current else { return 0 };
        let Some(Some(link)) = self.links.get(link) else { return 0 };
        link.receiver.copy(&self.event, at, into)
    }

    #[inline]
    fn done(&mut self) {
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Note => drop(self.notes.pop_front()),
            Current::Event(at) => {
                if let Some(Some(link)) = self.links.get_mut(at)
                    && link.receiver.advance(&self.event)
                {
                    link.bell.ring();
                }
            }
            Current::Nothing => {}
        }
    }

    fn defer(&mut self) {
        if let Current::Event(at) = std::mem::replace(&mut self.current, Current::Nothing)
            && let Some(Some(link)) = self.links.get_mut(at)
        {
            link.deferred = true;
            self.deferring = true;
        }
    }
}
