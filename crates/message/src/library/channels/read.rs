//! What is read out of partners' memory: what of it, and in turn.
//!
//! # When
//! Through the channel two processors copy one message at the same time, each a part of its way; by
//! one copy only the receiver's does, unless the sender helps ([`super::help`]). So a message that is
//! alone, and not helped with, is mostly faster through the channel: 80 us instead of 105 to 120 for
//! 1 MiB (a cache line of 0.05 us); but slower where nobody wrote it since the last time. With help it
//! takes 52. Which, is timed ([`super::race`]). Where anything else is under way, in either
//! direction, both have enough to copy, and half as many copies win: 128 KiB to 2 MiB both ways at a
//! time with 23 to 31 GB/s instead of 10 to 12. (Two processors, one process on each, MPI; Open MPI's
//! own shared memory with one copy has 21 to 40.)

use causeway_channel::Head;
use causeway_wire::mx::{PeerId, Token};

use super::direct::{Reading, Stepped, Told};
use super::race::Timed;
use super::{Bell, Channels, Current, TURN, event};
use crate::library::{Arrival, Refused};
use crate::limits::{CHANNEL_LOOKS_AT_ONCE, DIRECT_BYTES_MIN};

/// What large messages are under way through channels, as far as it is known: it says only which
/// way is faster for others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Offers of ours that were not answered.
    offered: u32,
    /// Bytes that partners wait for, and that we wait for.
    leaving: u64,
    coming: u64,
}

impl Load {
    /// One more offer.
    pub(super) fn offer(&mut self) {
        self.offered = self.offered.saturating_add(1);
    }

    /// Whether partners have nothing to copy.
    pub(super) fn sends_nothing(&self) -> bool {
        self.offered == 0 && self.leaving == 0
    }

    /// So much was pulled.
    pub(super) fn pull(&mut self, len: u32) {
        self.coming = self.coming.saturating_add(len.into());
    }

    /// So much was fed.
    pub(super) fn feed(&mut self, len: usize) {
        self.leaving = self.leaving.saturating_sub(len as u64);
    }

    /// This came.
    #[inline]
    pub(super) fn came(&mut self, arrival: &Arrival) {
        match arrival {
            Arrival::Chunk { len, .. } => {
                self.coming = self.coming.saturating_sub((*len).into());
            }
            Arrival::Wanted { len, .. } => {
                self.offered = self.offered.saturating_sub(1);
                self.leaving = self.leaving.saturating_add((*len).into());
            }
            Arrival::Fetched { .. } => self.offered = self.offered.saturating_sub(1),
            Arrival::Failed { .. } => self.coming = 0,
            _ => {}
        }
    }
}

impl<D: Bell> Channels<D> {
    /// In the middle of a message that comes in pieces: looks for a moment whether the next does.
    #[inline]
    pub(super) fn pieces_come(&self) -> bool {
        let coming = self.load.coming > 0 && self.reads.is_empty();
        if !coming || !matches!(self.arrival, Arrival::Chunk { .. }) {
            return false;
        }
        let Some(Some(link)) = self.links.get(self.at) else { return false };
        (0..CHANNEL_LOOKS_AT_ONCE).any(|_| {
            let ready = link.receiver.ready();
            if !ready {
                std::hint::spin_loop();
            }
            ready
        })
    }

    /// Says something of a pull; later, if there is no room.
    pub(super) fn say(&mut self, peer: PeerId, head: Head) {
        if self.send(peer, head, 0, |_| ()) == Err(Refused::Full)
            && let Ok((_, link)) = self.link(peer)
        {
            link.owed.push_back(head);
            self.attention = true;
        }
    }

    /// Begins to read what a partner offered, if it said where that lies.
    pub(super) fn begin_read(
        &mut self,
        (peer, token): (PeerId, Token),
        offer: u64,
        into: Option<Told>,
        len: u32,
    ) -> bool {
        let shown = self.of(peer).is_some_and(|at| self.current == Current::Event(at));
        let now = self.offered.take_if(|offered| shown && offered.name == offer);
        let alone = self.reads.is_empty() && self.load == Load::default();
        let Ok((_, link)) = self.link(peer) else { return false };
        let alone = alone && link.waits_for_nothing();
        let before = link.offers.remove(&offer);
        let (Some(offered), Some(direct)) = (now.or(before), &link.direct) else { return false };
        if (len as usize) < DIRECT_BYTES_MIN || !offered.has(len) {
            return false;
        }
        self.timed = alone.then(|| {
            let (read, since) = (link.race.reads(), direct.now_ns());
            Timed { peer, token, read, len, left: len, since }
        });
        if self.timed.is_some_and(|timed| !timed.read) {
            return false;
        }
        self.reads.push_back(Reading::new((peer, token), offered, into, len));
        true
    }

    /// So much came of a message that may be timed.
    pub(super) fn time(&mut self, peer: PeerId, token: Token, len: u32) {
        let Some(mut timed) =
            self.timed.take_if(|timed| (timed.peer, timed.token) == (peer, token))
        else {
            return;
        };
        timed.left = timed.left.saturating_sub(len);
        if timed.left > 0 {
            self.timed = Some(timed);
        } else if let Ok((_, link)) = self.link(peer)
            && let Some(direct) = &link.direct
        {
            link.race.took(&timed, direct.now_ns());
        }
    }

    /// Whether a step of what is read comes before all events.
    #[inline]
    pub(super) fn read_is_due(&self) -> bool {
        !self.reads.is_empty() && self.before_read == 0
    }

    /// What is next to be read is looked at.
    pub(super) fn look_at_read(&mut self) -> bool {
        while self.reads.front().is_some_and(|read| !read.is_begun()) {
            self.begin_step();
        }
        let Some(read) = self.reads.front() else { return false };
        self.arrival = read.arrival();
        self.current = Current::Read;
        self.before_read = TURN;
        true
    }

    /// Reads bytes of what is read first.
    #[cold]
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let Some(read) = self.reads.front() else { return 0 };
        let link = self.of(read.peer).and_then(|at| self.links.get(at)?.as_ref());
        link.map_or(0, |link| read.read(link.direct.as_deref(), &link.receiver, at, into))
    }

    /// A step of what is read first was taken.
    pub(super) fn read_on(&mut self) {
        self.breathes = true;
        let Some(mut read) = self.reads.pop_front() else { return };
        let peer = read.peer;
        match read.stepped() {
            Stepped::On => self.go_on(read),
            Stepped::Read => {
                self.fetched.messages = self.fetched.messages.wrapping_add(1);
                if let Ok((_, link)) = self.link(peer) {
                    link.end_share(read.token);
                }
                self.time(peer, read.token, u32::MAX);
                self.say(peer, read.taken());
            }
            Stepped::Failed => {
                self.timed = None;
                if let Ok((_, link)) = self.link(peer) {
                    link.end_share(read.token);
                }
                self.fetched.fell_back = self.fetched.fell_back.wrapping_add(1);
                if read.never.get()
                    && let Ok((_, link)) = self.link(peer)
                {
                    // It may have more rights over us than we have over it.
                    link.settle_share();
                    let refused = u64::from(link.direct.take().is_some());
                    self.fetched.refused = self.fetched.refused.wrapping_add(refused);
                }
                self.say(peer, read.pull());
            }
        }
    }

    /// Nothing of a partner is read any more.
    pub(super) fn stop_reading(&mut self, peer: PeerId) {
        if self.current == Current::Read && self.reads.front().is_some_and(|read| read.peer == peer)
        {
            self.current = Current::Nothing;
        }
        let of_push =
            |arrival: &Arrival| matches!(arrival, Arrival::Push { peer: of, .. } if *of == peer);
        if self.current == Current::Push && of_push(&self.arrival) {
            self.current = Current::Nothing;
        }
        self.reads.retain(|read| read.peer != peer);
        self.pushes.retain(|of| *of != peer);
        if let Some(at) = self.of(peer)
            && let Some(Some(link)) = self.links.get_mut(at)
        {
            link.settle();
        }
        self.timed = None;
        self.load = Load::default();
    }

    /// Tells a partner that what it pulls does not come; later, if there is no room.
    pub(super) fn tell_failed(&mut self, peer: PeerId, to: u64) {
        let Ok((at, link)) = self.link(peer) else { return };
        // Only as many as there are pulls: else the partner made them up.
        let fails = link.owed.iter().filter(|head| head.kind == event::FAIL).count();
        if fails < crate::limits::FAILS_MAX {
            self.say(peer, event::fail(to));
        } else {
            self.bury(at, causeway_wire::mx::Status::EndpointUnreachable);
        }
    }
}
