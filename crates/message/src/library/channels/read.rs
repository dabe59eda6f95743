//! Choice and scheduling of direct reads.
//!
//! # Choice
//! Through the channel, two processors copy one message at the same time. With a direct read the
//! receiver copies alone, unless the sender helps ([`super::help`]). So a message without other
//! traffic and without help is mostly faster through the channel: 80 us instead of 105 to 120 for 1
//! MiB (a cache line takes 0.05 us). It is slower where the sender did not write the bytes
//! recently. With help it takes 52 us. [`super::race`] measures both paths. With other traffic in
//! either direction both processors have enough to copy, and the path with half as many copies
//! wins: 128 KiB to 2 MiB in both directions at 23 to 31 GB/s instead of 10 to 12. (Two processors
//! with one process each, MPI; Open MPI's shared memory with one copy reaches 21 to 40.)

use causeway_channel::Head;
use causeway_wire::mx::{PeerId, Token};

use super::direct::{Reading, Stepped, Told};
use super::race::Timed;
use super::{Bell, Channels, Current, TURN, event};
use crate::library::{Arrival, Refused};
use crate::limits::{CHANNEL_LOOKS_AT_ONCE, DIRECT_BYTES_MIN};

/// Estimate of the large messages in flight through channels. It only serves to choose a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Offers of this side without an answer.
    offered: u32,
    /// Bytes that peers pull from this side, and that this side pulls.
    leaving: u64,
    coming: u64,
}

impl Load {
    /// Counts an offer.
    pub(super) fn offer(&mut self) {
        self.offered = self.offered.saturating_add(1);
    }

    /// Returns whether no peer copies a message of this side.
    pub(super) fn sends_nothing(&self) -> bool {
        self.offered == 0 && self.leaving == 0
    }

    /// Counts pulled bytes.
    pub(super) fn pull(&mut self, len: u32) {
        self.coming = self.coming.saturating_add(len.into());
    }

    /// Counts fed bytes.
    pub(super) fn feed(&mut self, len: usize) {
        self.leaving = self.leaving.saturating_sub(len as u64);
    }

    /// Counts an event.
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
    /// Returns whether the next chunk of a pull comes, after a short poll.
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

    /// Sends an event about a pull, or queues it if there is no room.
    pub(super) fn say(&mut self, peer: PeerId, head: Head) {
        if self.send(peer, head, 0, |_| ()) == Err(Refused::Full)
            && let Ok((_, link)) = self.link(peer)
        {
            link.owed.push_back(head);
            self.attention = true;
        }
    }

    /// Begins a direct read of an offer. Returns false if the message must be pulled.
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

    /// Counts bytes of a message that may be measured.
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

    /// Returns whether a step of a direct read precedes all events.
    #[inline]
    pub(super) fn read_is_due(&self) -> bool {
        !self.reads.is_empty() && self.before_read == 0
    }

    /// Makes the next step of a direct read the current event.
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

    /// Reads bytes of the current step.
    #[cold]
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let Some(read) = self.reads.front() else { return 0 };
        let link = self.of(read.peer).and_then(|at| self.links.get(at)?.as_ref());
        link.map_or(0, |link| read.read(link.direct.as_deref(), &link.receiver, at, into))
    }

    /// Ends the current step of a direct read.
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
                    // The peer may still have access to this process.
                    link.settle_share();
                    let refused = u64::from(link.direct.take().is_some());
                    self.fetched.refused = self.fetched.refused.wrapping_add(refused);
                }
                self.say(peer, read.pull());
            }
        }
    }

    /// Drops all direct reads and copies of a peer.
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

    /// Reports a failed pull to a peer, or queues the report if there is no room.
    pub(super) fn tell_failed(&mut self, peer: PeerId, to: u64) {
        let Ok((at, link)) = self.link(peer) else { return };
        // More failures than possible pulls: the peer invented them.
        let fails = link.owed.iter().filter(|head| head.kind == event::FAIL).count();
        if fails < crate::limits::FAILS_MAX {
            self.say(peer, event::fail(to));
        } else {
            self.bury(at, causeway_wire::mx::Status::EndpointUnreachable);
        }
    }
}
