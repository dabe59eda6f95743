//! Channels as the way to partners of this host: who they lead to, and who is looked at next.

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

/// How many events of one channel are taken before another is looked at; and of all, before a step
/// of what is being read.
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
    /// Its process's memory, where that may be tried: then it may be told of ours.
    pub direct: Option<Box<dyn Direct>>,
}

#[derive(Debug)]
struct Link<D> {
    peer: PeerId,
    sender: Sender,
    receiver: Receiver,
    bell: D,
    direct: Option<Box<dyn Direct>>,
    /// Whether reading it is faster.
    race: Race,
    /// It is told where offers lie.
    tells: bool,
    /// What it offered and nobody took yet.
    offers: BTreeMap<u64, Offered>,
    /// What both copy: of its messages, and of ours.
    share: Share,
    push: Option<Box<Push>>,
    /// Short messages of it since anything was sent to it, and what was sent to it since.
    heard: u32,
    told: u32,
    /// Its next event cannot be taken now.
    deferred: bool,
    /// What found no room last, in bytes.
    full: Option<usize>,
    /// How often what it was fed was found not taken yet; and it is fed all the same then.
    unhurried: u32,
    /// A message was fed as much as is fed at a time, and there is more of it.
    left: bool,
    /// Nothing more is written into it.
    lost: Option<Status>,
    /// Of no use any more; the library half is told.
    dead: bool,
    /// What is to be said of pulls, where there was no room to say so.
    owed: VecDeque<Head>,
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
    /// A step of the first that is being read.
    Read,
    /// A part of the first that is helped with.
    Push,
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
    /// It is an offer that says where its bytes lie.
    offered: Option<Offered>,
    /// What is being read, in turn.
    reads: VecDeque<Reading>,
    /// Who is helped, in turn.
    pushes: VecDeque<PeerId>,
    /// Something waits for a sender's part.
    awaits: bool,
    /// How many events come before its next step.
    before_read: u32,
    /// A step was taken: the caller has time for other things.
    breathes: bool,
    load: Load,
    /// A message that was alone when it was begun.
    timed: Option<Timed>,
    fetched: Fetched,
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
    /// Adds a channel; its partner is seen by the next progress. False: the number is taken or too
    /// high, or there are too many.
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

    /// What was read out of partners' memory.
    pub fn fetched(&self) -> Fetched {
        self.fetched
    }

    /// Whether whoever was heard last sends one short message after the other, and is not answered.
    #[inline]
    pub fn streams(&self) -> bool {
        let link = self.links.get(self.at).and_then(Option::as_ref);
        link.is_some_and(|link| link.heard >= STREAM_MESSAGES_MIN)
    }

    /// Nothing came of a stream in the time of some messages: it is none any more.
    pub fn end_stream(&mut self) {
        if let Some(Some(link)) = self.links.get_mut(self.at) {
            link.heard = 0;
        }
    }

    /// Whether something is being read out of a partner's memory, or written there.
    #[inline]
    pub fn is_reading(&self) -> bool {
        !self.reads.is_empty() || !self.pushes.is_empty()
    }

    /// Whether there may be something next.
    #[inline]
    pub fn comes(&self) -> bool {
        if self.is_reading() {
            return !self.breathes;
        }
        self.links.len() > LINKS_GLANCED_AT_MAX
            || !self.notes.is_empty()
            || self.links.iter().flatten().any(|link| link.receiver.ready())
    }

    /// The application did something by which it may take what it could not take before. Says
    /// whether there is anything of that.
    #[inline]
    pub fn stir(&mut self) -> bool {
        let any = self.deferring;
        if any {
            self.offer_again();
        }
        any
    }

    /// Before sleeping: asks all to ring our doorbell, and looks once more. False: there is
    /// something to do, do not sleep. [`Self::disarm`] comes after either.
    pub fn arm(&mut self) -> bool {
        let mut far = false;
        for link in self.links.iter_mut().flatten().filter(|link| !link.dead) {
            far |= link.receiver.wish();
        }
        // One for all.
        let mut idle = self.notes.is_empty() && !self.is_reading() && (!far || far_fence());
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(at) else { continue };
            if link.dead {
                continue;
            }
            // Who sleeps has filled the channel before.
            idle &= !matches!(link.unhurried, 1..CHANNEL_PACED_LOOKS);
            link.unhurried = CHANNEL_PACED_LOOKS;
            // Said once: whoever asked looks again.
            idle &= !std::mem::take(&mut link.left);
            // Who copies tells when it does not, unless that stands behind what is deferred.
            idle &= link.is_told();
            // What is deferred waits for the application alone.
            let arrived = link.receiver.ready() && !link.deferred;
            let room = match (link.full, link.owed.is_empty()) {
                (None, true) => Ok(false),
                (full, _) => link.sender.ask_room(full.unwrap_or(0)),
            };
            if matches!(room, Ok(true)) {
                // Said once: who waited for it may be gone.
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
            let peer = link.peer;
            self.notes.push_back(Arrival::PeerGone { peer, status });
            self.stop_reading(peer);
        }
    }

    /// What was offered where it lies may be something else from now on: nobody takes it for what
    /// was offered, and whoever reads it there gets it again through the channel.
    pub fn withdraw(&mut self) {
        let told = self.links.iter_mut().flatten().filter(|link| link.tells);
        told.for_each(|link| link.sender.withdraw());
        self.load = Load::default();
    }

    /// What waits to be said of a partner is no news of the next one with its number.
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

    /// The partner of a link broke its rules: why it is not sent to any more.
    #[cold]
    fn broke(&mut self, at: usize) -> Refused {
        self.bury(at, Status::EndpointUnreachable);
        Refused::Never(Status::EndpointUnreachable)
    }

    /// Whether a partner may be fed `len` more bytes: it takes what it is fed while that is still in
    /// a first cache, unless it is busy with something else.
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
                    // Only who takes it while we look keeps up.
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

    /// Sends one event, in pieces that `put` gives.
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

    /// Sends a message of a few bytes.
    #[inline]
    fn send_short(&mut self, peer: PeerId, short: &Short) -> Result<(), Refused> {
        self.post(peer, short.len(), |sender| sender.send_short(event::MESSAGE, short))
    }

    /// Sends one event of `len` bytes by `write`, which says whether there was room.
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

    /// Looks whether the next event of a link is there.
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
                    // Who pulls is awake.
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

    /// Looks at all links from the one whose turn it is.
    #[inline]
    fn look_round(&mut self) -> bool {
        if self.turn > 0 && self.look(self.at) {
            self.turn = self.turn.saturating_sub(1);
            return true;
        }
        // Whose turn is over comes last.
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

    /// Nothing was found: it is time for what is rare.
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
