//! Channels: the transport to peers of this host, by shared memory between two processes. This
//! module holds the table of channels and the polling order. It does not set channels up; the
//! daemon does.

mod direct;
mod event;
mod help;
mod race;
mod read;
mod way;

use std::collections::{BTreeMap, VecDeque};

use causeway_channel::{
    Broken, Event, Head, Receiver, Sender, Short, WARM_BYTES, Writing, far_fence,
};

pub use direct::{Direct, Fetched, Never, Place};

use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::{Arrival, Refused};
use crate::limits::{
    CHANNEL_LOOKS_AT_ONCE, CHANNEL_PACED_LOOKS, CHANNELS_MAX, LINKS_GLANCED_AT_MAX,
    STREAM_MESSAGES_MIN,
};
use direct::{Offered, Reading};
use help::{Push, Share};
use race::{Race, Timed};
use read::Load;

/// Events of one channel before another channel is polled, and events of all channels before a step
/// of a direct read.
const TURN: u32 = 16;
/// Empty polls before the channels are checked for a close.
const IDLE_LOOKS: u32 = 256;

/// Doorbell of the process at the other end of a channel.
pub trait Bell {
    /// Rings; must not block.
    fn ring(&self);
}

impl<F: Fn()> Bell for F {
    fn ring(&self) {
        self();
    }
}

/// Parameters of a new channel.
#[derive(Debug)]
pub struct Channel<D> {
    /// Number for the peer.
    pub peer: PeerId,
    /// Address of the peer.
    pub address: Address,
    /// Session of the peer.
    pub session: u32,
    /// This side's end of the direction to the peer.
    pub sender: Sender,
    /// This side's end of the direction from the peer.
    pub receiver: Receiver,
    /// Doorbell of the peer.
    pub bell: D,
    /// Access to the peer's memory, if permitted; the peer is then sent this side's addresses, too.
    pub direct: Option<Box<dyn Direct>>,
}

#[derive(Debug)]
struct Link<D> {
    peer: PeerId,
    sender: Sender,
    receiver: Receiver,
    bell: D,
    direct: Option<Box<dyn Direct>>,
    /// Measured speed of both paths for large messages.
    race: Race,
    /// Whether offers to the peer carry addresses.
    tells: bool,
    /// Offers with addresses from the peer that were not pulled.
    offers: BTreeMap<u64, Offered>,
    /// Cooperative copies from the peer, and to the peer (`push`).
    share: Share,
    push: Option<Box<Push>>,
    /// Short messages from the peer since the last send to it, and sends to it since the last
    /// message from it.
    heard: u32,
    told: u32,
    /// The engine deferred the next event of this channel.
    deferred: bool,
    /// Bytes of the event that found no room last.
    full: Option<usize>,
    /// Rounds in which fed chunks stayed unread; from [`CHANNEL_PACED_LOOKS`] on, chunks are fed
    /// anyway.
    unhurried: u32,
    /// A message reached the limit of bytes fed in a row, and has more.
    left: bool,
    /// The peer's process is gone; events in the channel are still handled.
    lost: Option<Status>,
    /// The channel is unusable, and the engine is informed.
    dead: bool,
    /// Replies about pulls that found no room.
    owed: VecDeque<Head>,
}

impl<D> Link<D> {
    /// Returns the reason if no more events will come.
    fn ended(&self) -> Option<Status> {
        // `closed` is read first: events before the close are visible once the close is.
        let closed = self.receiver.closed().then_some(Status::EndpointClosed);
        self.lost.or(closed).filter(|_| !self.dead && !self.receiver.ready())
    }
}

/// Source of the event that the engine handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    Nothing,
    Note,
    Event(usize),
    /// A step of the first direct read.
    Read,
    /// A step of the first cooperative copy to a peer.
    Push,
}

/// All channels of an endpoint. `D` is the doorbell of a peer.
#[derive(Debug)]
pub struct Channels<D> {
    links: Vec<Option<Link<D>>>,
    /// Index of the channel by peer number.
    by_peer: Vec<Option<u32>>,
    /// New and lost peers that were not reported.
    notes: VecDeque<Arrival>,
    current: Current,
    /// The current event of a channel, and its meaning.
    event: Event,
    arrival: Arrival,
    /// The event is an offer with addresses.
    offered: Option<Offered>,
    /// Direct reads, in turn.
    reads: VecDeque<Reading>,
    /// Peers with a cooperative copy, in turn.
    pushes: VecDeque<PeerId>,
    /// A direct read waits for the sender's part.
    awaits: bool,
    /// Events that are handled before the next step of a direct read.
    before_read: u32,
    /// A step was taken: the caller may handle other work.
    breathes: bool,
    load: Load,
    /// A message that is measured, since nothing else was in flight when it began.
    timed: Option<Timed>,
    fetched: Fetched,
    /// Channel that is polled, and its remaining events in this turn.
    at: usize,
    turn: u32,
    idle: u32,
    /// A channel has work that is not checked on every poll.
    attention: bool,
    /// A channel has a deferred event; and no other event has come since.
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
            offered: None,
            reads: VecDeque::new(),
            pushes: VecDeque::new(),
            awaits: false,
            before_read: 0,
            breathes: false,
            load: Load::default(),
            timed: None,
            fetched: Fetched::default(),
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
    /// Adds a channel and reports its peer with the next event. Returns false if the number is in
    /// use or too high, or the table is full.
    pub fn add(&mut self, channel: Channel<D>) -> bool {
        let Channel { peer, address, session, sender, receiver, bell, direct } = channel;
        let at = peer.0 as usize;
        let free = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        if at >= crate::limits::PEER_NUMBERS_MAX || free >= CHANNELS_MAX || self.of(peer).is_some()
        {
            return false;
        }
        let unknown = u64::from(direct.is_none());
        self.fetched.unknown = self.fetched.unknown.wrapping_add(unknown);
        let link = Link {
            peer,
            sender,
            receiver,
            bell,
            tells: direct.is_some(),
            direct,
            race: Race::default(),
            offers: BTreeMap::new(),
            share: Share::default(),
            push: None,
            heard: 0,
            told: 0,
            deferred: false,
            full: None,
            unhurried: 0,
            left: false,
            lost: None,
            dead: false,
            owed: VecDeque::new(),
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

    /// Reports that the process of a peer is gone. Events that it sent before are handled first.
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

    /// Returns whether a channel leads to a peer.
    pub fn has(&self, peer: PeerId) -> bool {
        self.of(peer).is_some()
    }

    /// Returns the counters of direct reads.
    pub fn fetched(&self) -> Fetched {
        self.fetched
    }

    /// Returns whether the peer that was polled last sends a stream of short messages without a
    /// reply.
    #[inline]
    pub fn streams(&self) -> bool {
        let link = self.links.get(self.at).and_then(Option::as_ref);
        link.is_some_and(|link| link.heard >= STREAM_MESSAGES_MIN)
    }

    /// Ends a stream: no message came within the time of several messages.
    pub fn end_stream(&mut self) {
        if let Some(Some(link)) = self.links.get_mut(self.at) {
            link.heard = 0;
        }
    }

    /// Returns whether a direct read or a cooperative copy is in progress.
    #[inline]
    pub fn is_reading(&self) -> bool {
        !self.reads.is_empty() || !self.pushes.is_empty()
    }

    /// Returns whether an event may be ready.
    #[inline]
    pub fn comes(&self) -> bool {
        if self.is_reading() {
            return !self.breathes;
        }
        self.links.len() > LINKS_GLANCED_AT_MAX
            || !self.notes.is_empty()
            || self.links.iter().flatten().any(|link| link.receiver.ready())
    }

    /// Retries deferred events, after the application posted a receive or collected a request.
    /// Returns whether there are any.
    #[inline]
    pub fn stir(&mut self) -> bool {
        let any = self.deferring;
        if any {
            self.offer_again();
        }
        any
    }

    /// Prepares to sleep: asks all peers to ring the doorbell, and polls once more. Returns false
    /// if there is work; then do not sleep. Call [`Self::disarm`] in both cases.
    pub fn arm(&mut self) -> bool {
        let mut far = false;
        for link in self.links.iter_mut().flatten().filter(|link| !link.dead) {
            far |= link.receiver.wish();
        }
        // One fence covers all channels.
        let mut idle = self.notes.is_empty() && !self.is_reading() && (!far || far_fence());
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            if link.dead {
                continue;
            }
            // Before sleep, chunks are fed without pacing until the channel is full.
            idle &= !matches!(link.unhurried, 1..CHANNEL_PACED_LOOKS);
            link.unhurried = CHANNEL_PACED_LOOKS;
            // Reported once: the caller polls again.
            idle &= !std::mem::take(&mut link.left);
            // A sender reports the end of its part by an event, which a deferred event may block.
            idle &= link.is_told();
            // A deferred event waits for the application only.
            let arrived = link.receiver.ready() && !link.deferred;
            let room = match (link.full, link.owed.is_empty()) {
                (None, true) => Ok(false),
                (full, _) => link.sender.ask_room(full.unwrap_or(0)),
            };
            if matches!(room, Ok(true)) {
                // Reported once: the request that needed the room may have ended.
                link.full = None;
            }
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

    /// Withdraws the requests of [`Self::arm`].
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

    /// Closes a channel and reports the lost peer, once.
    fn bury(&mut self, at: usize, status: Status) {
        let Some(Some(link)) = self.links.get_mut(at) else { return };
        if !link.dead {
            link.dead = true;
            link.sender.close();
            link.bell.ring();
            let peer = link.peer;
            self.notes.push_back(Arrival::PeerGone { peer, status });
            self.stop_reading(peer);
        }
    }

    /// Invalidates the addresses in all open offers, because their memory may change. A peer that
    /// reads there discards the bytes and pulls through the channel.
    pub fn withdraw(&mut self) {
        let told = self.links.iter_mut().flatten().filter(|link| link.tells);
        told.for_each(|link| link.sender.withdraw());
        self.load = Load::default();
    }

    /// Drops the reports about a peer, which must not apply to the next peer with its number.
    fn unsay(&mut self, peer: PeerId) {
        let of = |note: &Arrival| match note {
            Arrival::PeerSeen { peer, .. } | Arrival::PeerGone { peer, .. } => Some(*peer),
            _ => None,
        };
        if self.current == Current::Note && self.notes.front().and_then(of) == Some(peer) {
            self.current = Current::Nothing;
        }
        self.notes.retain(|note| of(note) != Some(peer));
    }

    fn remove(&mut self, peer: PeerId) {
        self.stop_reading(peer);
        self.unsay(peer);
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

    /// Closes the channel of a peer that broke the protocol, and returns the refusal for further
    /// sends.
    #[cold]
    fn broke(&mut self, at: usize) -> Refused {
        self.bury(at, Status::EndpointUnreachable);
        Refused::Never(Status::EndpointUnreachable)
    }

    /// Returns whether `len` more bytes may be fed to a peer. The receiver should copy a chunk
    /// while it is in the L1 cache, unless it is busy.
    #[inline]
    fn keeps_up(&mut self, peer: PeerId, len: usize) -> Result<bool, Refused> {
        let (at, link) = self.link(peer)?;
        let fits = |out: usize| out.saturating_add(len) <= WARM_BYTES;
        if fits(link.sender.data_out()) {
            return Ok(true);
        }
        for look in 0..CHANNEL_LOOKS_AT_ONCE {
            match link.sender.look_data_out() {
                Ok(out) if fits(out) => {
                    // A receiver keeps up only if it copies while this side polls.
                    link.unhurried = if look > 0 { 0 } else { link.unhurried };
                    return Ok(true);
                }
                Ok(_) if link.unhurried >= CHANNEL_PACED_LOOKS => return Ok(true),
                Ok(_) => std::hint::spin_loop(),
                Err(Broken) => return Err(self.broke(at)),
            }
        }
        link.unhurried = link.unhurried.saturating_add(1);
        Ok(false)
    }

    /// Sends an event with the bytes that `put` writes.
    #[inline]
    fn send(
        &mut self,
        peer: PeerId,
        head: Head,
        len: usize,
        put: impl FnOnce(&mut Writing<'_>),
    ) -> Result<(), Refused> {
        self.post(peer, len, |sender| {
            let Some(mut writing) = sender.begin(len)? else { return Ok(false) };
            put(&mut writing);
            writing.send(head);
            Ok(true)
        })
    }

    /// Sends a short message.
    #[inline]
    fn send_short(&mut self, peer: PeerId, short: &Short) -> Result<(), Refused> {
        self.post(peer, short.len(), |sender| sender.send_short(event::MESSAGE, short))
    }

    /// Sends an event of `len` bytes by `write`, which returns false if there is no room.
    #[inline]
    fn post(
        &mut self,
        peer: PeerId,
        len: usize,
        write: impl FnOnce(&mut Sender) -> Result<bool, Broken>,
    ) -> Result<(), Refused> {
        let (at, link) = self.link(peer)?;
        match write(&mut link.sender) {
            Ok(true) => {
                link.full = None;
                (link.heard, link.told) = (0, link.told.saturating_add(1));
                if link.told >= STREAM_MESSAGES_MIN {
                    link.sender.stream();
                }
                if link.sender.take_wish() {
                    link.bell.ring();
                }
                Ok(())
            }
            Ok(false) => {
                link.full = Some(len);
                Err(Refused::Full)
            }
            Err(Broken) => Err(self.broke(at)),
        }
    }

    /// Polls one channel.
    #[inline]
    fn look(&mut self, at: usize) -> bool {
        let Some(Some(link)) = self.links.get_mut(at) else { return false };
        if link.dead || link.deferred {
            return false;
        }
        match link.receiver.poll() {
            Ok(None) => return false,
            Ok(Some(event)) => {
                if event.head.kind >= event::HELP && self.hear_of_help(at, &event) {
                    return false;
                }
                let Some(Some(link)) = self.links.get_mut(at) else { return false };
                if let Some(arrival) = event::arrival(link.peer, &event) {
                    self.load.came(&arrival);
                    // A peer that pulls is running.
                    let pulls = event.head.kind == event::PULL;
                    link.unhurried = if pulls { 0 } else { link.unhurried };
                    let told = event.len > 0 && event.head.kind == event::OFFER;
                    let told = told && link.direct.is_some();
                    self.offered = if told { Offered::of(&event, &link.receiver) } else { None };
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

    /// Polls all channels, beginning with the current one.
    #[inline]
    fn look_round(&mut self) -> bool {
        if self.turn > 0 && self.look(self.at) {
            self.turn = self.turn.saturating_sub(1);
            return true;
        }
        // A channel that used up its turn is polled last.
        let own_was_looked_at = self.turn > 0;
        self.turn = TURN;
        for _ in usize::from(own_was_looked_at)..self.links.len() {
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

    /// Runs the rare checks after an empty poll.
    #[inline]
    fn idle(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        let rare = self.idle.is_multiple_of(IDLE_LOOKS);
        self.rested = self.deferring;
        if self.awaits {
            self.look_at_waiting();
        }
        if rare || self.attention {
            self.attend(rare);
        }
    }

    /// Makes deferred events available again.
    #[cold]
    fn offer_again(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.deferred = false);
        (self.deferring, self.rested) = (false, false);
    }

    fn attend(&mut self, rare: bool) {
        self.attention = false;
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            if !link.owed.is_empty() {
                let (peer, owed) = (link.peer, std::mem::take(&mut link.owed));
                owed.into_iter().for_each(|head| self.say(peer, head));
            }
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            self.attention |= link.lost.is_some() || !link.owed.is_empty();
            if (rare || link.lost.is_some())
                && let Some(status) = link.ended()
            {
                self.bury(at, status);
            }
        }
    }
}
