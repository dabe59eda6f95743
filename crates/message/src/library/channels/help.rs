//! Both sides copy a large message: the receiver reads it from one end, and the sender, which has
//! nothing else to do, writes it from the other. So one copy is made by two processors.
//!
//! A receiver that begins to read says where the message goes ([`event::help`]). A sender that is
//! called in at that time takes parts of it ([`causeway_channel::shared`]); one that is not
//! costs nothing, since the receiver takes them all. Each side takes less and less at a time, so that
//! neither waits long for the other's last.
//!
//! # When the receiver's memory is its own again
//! Before a receive ends, by success or not, nobody writes there any more: the word that both
//! exchange says whether the sender does. A receiver that parts from a sender in the middle waits
//! for that ([`Link::settle`]), and so does one that loses its memory ([`Channels::lose_share`]); not
//! for a process that is gone, nor longer than [`HELP_ENDS_NS`]: one that was stopped within the
//! very part is taken for a liar then, and if it goes on later, it writes what it had begun. A sender
//! takes at most twice in a row, so a process that becomes another program while it receives is
//! written to for no longer than that: 2 MiB at most ([`SHARED_PARTS_AT_ONCE`]).
//!
//! # Trust
//! As in [`super::direct`]: a receiver may say any places, it is its own memory that is written
//! there; and only to whom is vouched for it tells them. It may say some whose faults it answers
//! itself (a mapped file of its own file system), and hold its sender up in the kernel for as long as
//! it likes; as a sender may hold up who reads. Both are processes of one user.

use std::collections::VecDeque;

use causeway_channel::shared::{End, Giving, Next, PARTS_MAX, Taking, Turn};
use causeway_channel::{Broken, Event, Receiver};
use causeway_wire::mx::{PeerId, Status, Token};

use super::direct::{Direct, Places, Reading};
use super::{Bell, Channels, Current, Link, event};
use crate::library::{Arrival, Buffer, pieces};
use crate::limits::{
    HELP_ENDS_NS, HELP_LIVES_NS, HELP_LOOKS_MAX, SHARED_BYTES_MIN, SHARED_PART_BYTES,
    SHARED_PARTS_AT_ONCE,
};

/// A message that a partner sends, and may help with.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// The number of the last one.
    last: u32,
    /// How far it is; until nobody writes there any more.
    taking: Option<Taking>,
    /// The receive that it is for; none: it was given up.
    token: Option<Token>,
    /// It waits for the sender's part; and others behind it, for their turn to be shared.
    waiting: VecDeque<Reading>,
}

/// A message that goes to a partner, and that is helped with.
#[derive(Debug)]
pub(super) struct Push {
    /// Our name for it, and the partner's.
    token: Token,
    to: u64,
    giving: Giving,
    places: Places,
    /// Bytes that these take.
    len: usize,
    /// How often the partner was seen to take nothing.
    looks: u32,
    /// When its process was last seen to live.
    lived: Option<u64>,
    /// Its bytes were asked for.
    fed: bool,
}

impl Push {
    /// From its event; none if that says nonsense.
    fn of(event: &Event, receiver: &Receiver, end: End) -> Option<Self> {
        let [offer, to, len] = event.head.words;
        let (number, places) = Places::told(event, receiver, len)?;
        let parts = u32::try_from(len.div_ceil(SHARED_PART_BYTES as u64)).ok()?;
        let giving = Giving::of(end, u32::try_from(number).ok()?, parts);
        let fits = parts <= PARTS_MAX;
        let (token, looks, lived, fed) = (Token(offer), 0, None, false);
        let len = usize::try_from(len).ok()?;
        fits.then_some(Self { token, to, giving, places, len, looks, lived, fed })
    }

    /// Whether the partner's process lives; it is not asked again at once, since it may end within
    /// a part as well as between two.
    fn has_partner(&mut self, direct: &dyn Direct) -> bool {
        let now = direct.now_ns();
        if self.lived.is_none_or(|lived| now.saturating_sub(lived) > HELP_LIVES_NS) {
            self.lived = direct.lives().then_some(now);
        }
        self.lived.is_some()
    }
}

impl<D> Link<D> {
    /// Shares what is read from now on, if nothing else is shared. Gives its number.
    fn share(&mut self, read: &Reading) -> Option<u32> {
        let share = &mut self.share;
        if share.token.is_some() || read.parts() > PARTS_MAX {
            return None;
        }
        let cell = self.receiver.shared();
        if share.taking.is_some_and(|taking| taking.is_copied(&cell) == Ok(true)) {
            return None;
        }
        let taking = Taking::begin(&cell, End::of(self.sender.side()), share.last, read.parts());
        (share.last, share.taking, share.token) = (taking.number(), Some(taking), Some(read.token));
        share.last.into()
    }

    /// What is next of a message that is read, or that it is all there.
    fn turn(&mut self, read: &mut Reading) -> Result<Turn, Broken> {
        let share = &mut self.share;
        let Some(taking) = share.taking.as_mut().filter(|_| share.token == Some(read.token)) else {
            read.next_step();
            return Ok(Turn::Copy(0..0));
        };
        let turn = taking.take(&self.receiver.shared(), SHARED_PARTS_AT_ONCE)?;
        match &turn {
            Turn::Copy(parts) => read.next_parts(parts),
            Turn::Wait => {}
            Turn::Done => {
                read.is_there();
                (share.taking, share.token) = (None, None);
            }
        }
        Ok(turn)
    }

    /// Nothing more is to be written into what is received by that name. It may be, for a moment.
    pub(super) fn end_share(&mut self, token: Token) {
        let share = &mut self.share;
        if share.token == Some(token)
            && let Some(taking) = &mut share.taking
        {
            taking.end(&self.receiver.shared());
            share.token = None;
        }
    }

    /// Waits until nothing is written here any more by that partner, if it is. Before it is parted
    /// from; not where its link is only dropped: a child process has all of its parent's.
    pub(super) fn settle(&mut self) {
        self.push = None;
        self.share.waiting.clear();
        self.settle_share();
    }

    /// The same for what is shared now. What waits for it, or goes on with it, cannot be read any more
    /// afterwards, or has lost where it goes.
    pub(super) fn settle_share(&mut self) {
        self.share.token = None;
        let (Some(mut taking), Some(direct)) = (self.share.taking.take(), &self.direct) else {
            return;
        };
        let (cell, since) = (self.receiver.shared(), direct.now_ns());
        let mut copied = taking.end(&cell);
        while copied && direct.lives() && direct.now_ns().saturating_sub(since) < HELP_ENDS_NS {
            std::thread::yield_now();
            copied = taking.is_copied(&cell) == Ok(true);
        }
    }

    /// Whether nothing waits for the sender's part.
    pub(super) fn waits_for_nothing(&self) -> bool {
        self.share.waiting.is_empty()
    }

    /// Whether the sender copies what is waited for.
    fn is_copied(&self) -> bool {
        let cell = self.receiver.shared();
        self.share.taking.is_some_and(|taking| taking.is_copied(&cell) == Ok(true))
    }

    /// Whether nothing waits for the sender's part, or it will be told of it.
    pub(super) fn is_told(&self) -> bool {
        self.waits_for_nothing() || (!self.deferred && self.is_copied())
    }
}

impl<D: Bell> Channels<D> {
    /// The first of what is read has its first step, or waits.
    pub(super) fn begin_step(&mut self) {
        let Some(read) = self.reads.pop_front() else { return };
        let peer = read.peer;
        // Who has something of ours to read does not help.
        let asks = read.into.is_some() && self.load.sends_nothing();
        let Ok((_, link)) = self.link(peer) else { return };
        // Who cannot be read may still write here, and could not be waited for.
        let asks = asks && link.direct.is_some();
        if asks && !link.share.waiting.is_empty() {
            // For the time of one part: to read all of it alone takes longer.
            link.share.waiting.push_back(read);
            return;
        }
        if asks
            && let Some(number) = link.share(&read)
            && let Some((head, told)) = read.help(number)
        {
            let asked = self.send(peer, head, told.bytes().len(), |w| w.put(told.bytes()));
            if asked.is_err()
                && let Ok((_, link)) = self.link(peer)
            {
                link.end_share(read.token);
            }
        }
        self.go_on(read);
    }

    /// What is read has its next step, or waits for the sender's part. It goes on at once until it
    /// had as much in a row as any other.
    pub(super) fn go_on(&mut self, mut read: Reading) {
        let Ok((at, link)) = self.link(read.peer) else { return };
        match link.turn(&mut read) {
            Ok(Turn::Copy(_)) if read.has_turn() => self.reads.push_front(read),
            Ok(Turn::Copy(_)) => self.reads.push_back(read),
            Ok(Turn::Wait) => {
                link.share.waiting.push_front(read);
                self.awaits = true;
            }
            Ok(Turn::Done) => {
                self.fetched.helped = self.fetched.helped.wrapping_add(1);
                self.reads.push_front(read);
            }
            Err(Broken) => self.bury(at, Status::EndpointUnreachable),
        }
    }

    /// What a partner says of help goes no further. False: it is something else.
    pub(super) fn hear_of_help(&mut self, at: usize, event: &Event) -> bool {
        let Some(Some(link)) = self.links.get_mut(at) else { return false };
        let (peer, [first, ..]) = (link.peer, event.head.words);
        match event.head.kind {
            event::HELP if link.direct.is_some() => {
                let push = Push::of(event, &link.receiver, End::of(link.sender.side()));
                link.push = push.map(Box::new);
                if link.push.is_some() && !self.pushes.contains(&peer) {
                    self.pushes.push_back(peer);
                }
            }
            event::HELP | event::PUT => {}
            _ => return false,
        }
        if link.receiver.advance(event) {
            link.bell.ring();
        }
        if event.head.kind == event::PUT && link.share.token == Some(Token(first)) {
            self.go_on_with(at);
        }
        true
    }

    /// What waits for the sender's part of a link goes on, and what waits behind it.
    fn go_on_with(&mut self, at: usize) {
        let Some(Some(link)) = self.links.get_mut(at) else { return };
        let mut waiting = std::mem::take(&mut link.share.waiting);
        let first = waiting.pop_front();
        self.reads.extend(waiting);
        if let Some(read) = first {
            self.go_on(read);
        }
    }

    /// Looks whether senders have copied what is waited for: what they say of it may stand behind
    /// something that cannot be taken now.
    #[cold]
    pub(super) fn look_at_waiting(&mut self) {
        self.awaits = false;
        for at in 0..self.links.len() {
            let Some(Some(link)) = self.links.get(at) else { continue };
            if link.waits_for_nothing() {
                continue;
            }
            if link.is_copied() {
                self.awaits = true;
            } else {
                self.go_on_with(at);
            }
        }
    }

    /// Where a message was to be received is lost: nobody writes there when this returns. It goes on
    /// alone, and its bytes nowhere.
    pub(super) fn lose_share(&mut self, token: Token) {
        let waiting = self.links.iter_mut().flatten().flat_map(|link| &mut link.share.waiting);
        let of = self.reads.iter_mut().chain(waiting).filter(|read| read.token == token);
        of.for_each(|read| read.into = None);
        for at in 0..self.links.len() {
            if let Some(Some(link)) = self.links.get_mut(at)
                && link.share.token == Some(token)
            {
                link.settle_share();
                self.go_on_with(at);
            }
        }
    }

    /// No partner writes here any more when this returns.
    pub fn settle(&mut self) {
        self.links.iter_mut().flatten().for_each(Link::settle);
    }

    /// What is next to be helped with is looked at.
    pub(super) fn look_at_push(&mut self) -> bool {
        while let Some(&peer) = self.pushes.front() {
            if let Ok((_, link)) = self.link(peer)
                && let Some(push) = &mut link.push
            {
                push.fed = false;
                self.arrival = Arrival::Push { peer, token: push.token };
                self.current = Current::Push;
                return true;
            }
            self.pushes.pop_front();
        }
        false
    }

    /// Writes some of what is helped with first.
    pub(super) fn push_some<B: Buffer>(&mut self, data: &B) {
        let Some(&peer) = self.pushes.front() else { return };
        let Ok((_, link)) = self.link(peer) else { return };
        let (Some(push), Some(direct)) = (&mut link.push, &link.direct) else { return };
        let cell = link.sender.shared();
        let tell = match push.giving.next(&cell, SHARED_PARTS_AT_ONCE) {
            Next::Copy(parts) => {
                let byte = |part: u32| (part as usize).saturating_mul(SHARED_PART_BYTES);
                let end = byte(parts.end).min(data.len()).min(push.len);
                let mut at = byte(parts.start);
                let mut well = at < end && push.has_partner(&**direct);
                pieces(data, at, end, |piece| {
                    let put = |places: &[_]| direct.write(places, piece) == Ok(piece.len());
                    well = well && push.places.cut(at, piece.len(), put);
                    at = at.saturating_add(piece.len());
                });
                // It may have fewer bytes than it was offered with.
                well = well && at == end;
                let over = push.giving.copied(&cell, parts, well);
                (push.looks, push.fed) = (0, well && !over);
                over.then_some(push.to)
            }
            Next::Wait => {
                push.looks = push.looks.saturating_add(1);
                push.fed = push.looks < HELP_LOOKS_MAX;
                None
            }
            Next::Over => None,
        };
        drop(cell);
        if let Some(to) = tell {
            // One at a time is shared: what could not be said of others is of no use any more.
            link.owed.retain(|head| head.kind != event::PUT);
            self.say(peer, event::put(to));
        }
    }

    /// After that: there is more, or it is over.
    pub(super) fn push_on(&mut self) {
        self.breathes = true;
        let Some(peer) = self.pushes.pop_front() else { return };
        let Ok((_, link)) = self.link(peer) else { return };
        if link.push.as_ref().is_some_and(|push| push.fed) {
            self.pushes.push_back(peer);
        } else {
            link.push = None;
        }
    }

    /// Whether a message of so many bytes may be helped with by that partner.
    pub(super) fn asks_help(&mut self, peer: PeerId, len: u32) -> bool {
        len as usize >= SHARED_BYTES_MIN && self.link(peer).is_ok_and(|(_, link)| link.tells)
    }
}
