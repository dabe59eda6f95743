//! Choice and scheduling of direct reads.
//!
//! # Choice
//! Through the channel, two processors copy one message at the same time. With a direct read the
//! receiver copies alone, unless the sender helps ([`super::cooperative_copy`]). So a message
//! without other traffic and without help is mostly faster through the channel: 80 us instead of
//! 105 to 120 for 1 MiB (a cache line takes 0.05 us). It is slower where the sender did not write
//! the bytes recently. With help it takes 52 us. [`super::path_times`] measures both paths. With
//! other traffic in either direction both processors have enough to copy, and the path with half as
//! many copies wins: 128 KiB to 2 MiB in both directions at 23 to 31 GB/s instead of 10 to 12. (Two
//! processors with one process each, MPI; Open MPI's shared memory with one copy reaches 21 to 40.)
//!
//! # Schedule
//! Reads take turns in steps of [`DIRECT_STEP_BYTES`](crate::limits::DIRECT_STEP_BYTES) (1 MiB),
//! with at most `EVENTS_PER_TURN` (16) events between two steps. Messages shorter than
//! [`DIRECT_BYTES_MIN`] (32 KiB), and offers without addresses, are always pulled through the
//! channel. A failed read is pulled from its first byte; a peer whose memory is inaccessible for
//! good is not read again. A report of a failed pull waits for room in the channel; a peer with
//! 1,024 waiting reports (`PULL_FAILURES_MAX`) loses its channel. The same queue has the ends of
//! direct reads and the pulls after failed reads, at most one for each read, and one *put* event of
//! a cooperative copy. Neither these events nor the waiting direct reads have a limit of their own:
//! each read belongs to a request of the endpoint, of which there are at most 2^20
//! ([`REQUESTS_MAX`](crate::limits::REQUESTS_MAX)).
//!
//! [`TransferLoad`] is an estimate and only serves the choice. This module copies nothing itself:
//! `channels::direct_read` does. Called by `channels::transport` (pull, next, copy, done, fail), by
//! [`Channels`] when a channel closes, and by `channels::cooperative_copy`, in the thread of the
//! application that holds the endpoint.

use causeway_channel::EventHead;
use causeway_wire::mx::{PeerId, Token};

use super::direct_read::{DirectRead, EncodedPlaces, ReadStep};
use super::path_times::TimedMessage;
use super::{ChannelCursor, Channels, EVENTS_PER_TURN, PeerDoorbell, event};
use crate::library::{TransportError, TransportEvent};
use crate::limits::{CHANNEL_POLLS_IN_ROW, DIRECT_BYTES_MIN};

/// Estimate of the large messages in flight through channels. It only serves to choose a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TransferLoad {
    /// Offers of this side without an answer.
    offered: u32,
    /// Bytes that peers pull from this side and that were not fed yet.
    leaving: u64,
    /// Bytes that this side pulls and that have not come yet.
    coming: u64,
}

impl TransferLoad {
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
    pub(super) fn came(&mut self, arrival: &TransportEvent) {
        match arrival {
            TransportEvent::Chunk { len, .. } => {
                self.coming = self.coming.saturating_sub((*len).into());
            }
            TransportEvent::Wanted { len, .. } => {
                self.offered = self.offered.saturating_sub(1);
                self.leaving = self.leaving.saturating_add((*len).into());
            }
            TransportEvent::Fetched { .. } => self.offered = self.offered.saturating_sub(1),
            TransportEvent::Failed { .. } => self.coming = 0,
            _ => {}
        }
    }
}

impl<D: PeerDoorbell> Channels<D> {
    /// Returns whether the next chunk of a pull is there, after at most [`CHANNEL_POLLS_IN_ROW`]
    /// (32) polls.
    #[inline]
    pub(super) fn chunk_comes(&self) -> bool {
        let coming = self.load.coming > 0 && self.reads.is_empty();
        if !coming || !matches!(self.arrival, TransportEvent::Chunk { .. }) {
            return false;
        }
        let Some(Some(channel)) = self.channels.get(self.at) else { return false };
        (0..CHANNEL_POLLS_IN_ROW).any(|_| {
            let ready = channel.receiver.ready();
            if !ready {
                std::hint::spin_loop();
            }
            ready
        })
    }

    /// Sends an event about a pull, or queues it if there is no room. The queue is sent after a
    /// poll of the channels that finds no event, and dropped when the channel is closed.
    pub(super) fn send_or_queue(&mut self, peer: PeerId, head: EventHead) {
        if self.send(peer, head, 0, |_| ()) == Err(TransportError::Full)
            && let Ok((_, channel)) = self.channel(peer)
        {
            channel.replies.push_back(head);
            self.needs_check = true;
        }
    }

    /// Begins a direct read of the first `len` bytes of the offer `offer`. Returns false if the
    /// message must be pulled through the channel. `into`: the receive's segments, if the sender
    /// may help.
    pub(super) fn begin_read(
        &mut self,
        (peer, token): (PeerId, Token),
        offer: u64,
        into: Option<EncodedPlaces>,
        len: u32,
    ) -> bool {
        let shown = self.of(peer).is_some_and(|at| self.current == ChannelCursor::Event(at));
        let now = self.offered.take_if(|offered| shown && offered.name == offer);
        let alone = self.reads.is_empty() && self.load == TransferLoad::default();
        let Ok((_, channel)) = self.channel(peer) else { return false };
        let alone = alone && channel.waits_for_nothing();
        let before = channel.offers.remove(&offer);
        let (Some(offered), Some(direct)) = (now.or(before), &channel.direct) else { return false };
        if (len as usize) < DIRECT_BYTES_MIN || !offered.has(len) {
            return false;
        }
        self.timed = alone.then(|| {
            let (read, since) = (channel.path_times.reads(), direct.now_ns());
            TimedMessage { peer, token, read, len, left: len, since }
        });
        if self.timed.is_some_and(|timed| !timed.read) {
            return false;
        }
        self.reads.push_back(DirectRead::new((peer, token), offered, into, len));
        true
    }

    /// Counts bytes of a message that may be measured.
    pub(super) fn count_timed(&mut self, peer: PeerId, token: Token, len: u32) {
        let Some(mut timed) =
            self.timed.take_if(|timed| (timed.peer, timed.token) == (peer, token))
        else {
            return;
        };
        timed.left = timed.left.saturating_sub(len);
        if timed.left > 0 {
            self.timed = Some(timed);
        } else if let Ok((_, channel)) = self.channel(peer)
            && let Some(direct) = &channel.direct
        {
            channel.path_times.took(&timed, direct.now_ns());
        }
    }

    /// Returns whether a step of a direct read precedes all events.
    #[inline]
    pub(super) fn read_is_due(&self) -> bool {
        !self.reads.is_empty() && self.before_read == 0
    }

    /// Makes the next step of a direct read the current event.
    pub(super) fn select_read(&mut self) -> bool {
        while self.reads.front().is_some_and(|read| !read.is_begun()) {
            self.begin_step();
        }
        let Some(read) = self.reads.front() else { return false };
        self.arrival = read.arrival();
        self.current = ChannelCursor::Read;
        self.before_read = EVENTS_PER_TURN;
        true
    }

    /// Reads bytes of the current step.
    #[cold]
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let Some(read) = self.reads.front() else { return 0 };
        let channel = self.of(read.peer).and_then(|at| self.channels.get(at)?.as_ref());
        channel
            .map_or(0, |channel| read.read(channel.direct.as_deref(), &channel.receiver, at, into))
    }

    /// Ends the current step of a direct read.
    pub(super) fn end_read_step(&mut self) {
        self.yields = true;
        let Some(mut read) = self.reads.pop_front() else { return };
        let peer = read.peer;
        match read.stepped() {
            ReadStep::On => self.continue_read(read),
            ReadStep::Read => {
                self.fetched.messages = self.fetched.messages.wrapping_add(1);
                if let Ok((_, channel)) = self.channel(peer) {
                    channel.end_share(read.token);
                }
                self.count_timed(peer, read.token, u32::MAX);
                self.send_or_queue(peer, read.taken());
            }
            ReadStep::Failed => {
                self.timed = None;
                if let Ok((_, channel)) = self.channel(peer) {
                    channel.end_share(read.token);
                }
                self.fetched.fell_back = self.fetched.fell_back.wrapping_add(1);
                if read.never.get()
                    && let Ok((_, channel)) = self.channel(peer)
                {
                    // The peer may still have access to this process.
                    channel.await_shared_write();
                    let refused = u64::from(channel.direct.take().is_some());
                    self.fetched.refused = self.fetched.refused.wrapping_add(refused);
                }
                self.send_or_queue(peer, read.pull());
            }
        }
    }

    /// Drops all direct reads and copies of a peer, when its channel is closed or removed. May wait
    /// 2 s for a peer that writes into this process.
    pub(super) fn stop_reading(&mut self, peer: PeerId) {
        if self.current == ChannelCursor::Read
            && self.reads.front().is_some_and(|read| read.peer == peer)
        {
            self.current = ChannelCursor::Nothing;
        }
        let of_push = |arrival: &TransportEvent| matches!(arrival, TransportEvent::Push { peer: of, .. } if *of == peer);
        if self.current == ChannelCursor::Push && of_push(&self.arrival) {
            self.current = ChannelCursor::Nothing;
        }
        self.reads.retain(|read| read.peer != peer);
        self.pushes.retain(|of| *of != peer);
        if let Some(at) = self.of(peer)
            && let Some(Some(channel)) = self.channels.get_mut(at)
        {
            channel.await_peer_writes();
        }
        self.timed = None;
        self.load = TransferLoad::default();
    }

    /// Reports a failed pull to a peer, or queues the report if there is no room.
    pub(super) fn report_failed(&mut self, peer: PeerId, to: u64) {
        let Ok((at, channel)) = self.channel(peer) else { return };
        // More failures than possible pulls: the peer invented them.
        let fails = channel.replies.iter().filter(|head| head.kind == event::FAIL).count();
        if fails < crate::limits::PULL_FAILURES_MAX {
            self.send_or_queue(peer, event::fail(to));
        } else {
            self.close_channel(at, causeway_wire::mx::Status::EndpointUnreachable);
        }
    }
}
