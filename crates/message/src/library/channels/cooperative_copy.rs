//! Cooperative copy: the receiver copies a large message from one end, and an idle sender copies it
//! from the other end. Two processors make one copy.
//!
//! A receiver that begins a direct read, while no peer copies a message of its own, sends its
//! addresses in a *help* event ([`event::help`]); a sender that helped sends a *put* event when no
//! part is left. A sender that runs at that time claims parts
//! ([`causeway_channel::cooperative_copy`]); a sender that does not run costs nothing, since the
//! receiver claims all parts. Claims shrink towards the end, so that neither side waits long for
//! the other.
//!
//! # Limits
//! Only messages from [`SHARED_BYTES_MIN`] (64 KiB) on, of at most [`PARTS_MAX`] (2^20) parts of
//! [`SHARED_PART_BYTES`] (4 KiB), one at a time per channel and direction; further reads of the
//! channel run without help, or wait for the sender's last part. Each side claims 16 to 256 parts
//! at a time ([`SHARED_PARTS_AT_ONCE`]). A sender that sees no progress in [`HELP_POLLS_MAX`] (512)
//! polls stops. The sender's own load is not considered: it helps in the polls of its endpoint
//! only. `channels::read_schedule` begins and ends copies; the claims themselves are in
//! [`causeway_channel::cooperative_copy`].
//!
//! # When the receiver's memory is free again
//! No sender writes after a receive has ended, with or without success, except after the wait of 2
//! s below: a shared word records whether the sender is copying. A receiver that disconnects in the
//! middle waits for that word ([`PeerChannel::await_peer_writes`]), and so does a receiver that
//! loses its memory ([`Channels::withdraw_share`]). It does not wait for an ended process, nor
//! longer than [`HELP_ENDS_NS`] (2 s) per peer: a sender that was stopped within a part counts as
//! hostile then, and may finish that part later. The wait yields the processor in the thread that
//! calls the library, which keeps the endpoint's lock. A sender claims at most twice in a row, so a
//! process that executes another program while it receives is written to for at most 2 MiB
//! ([`SHARED_PARTS_AT_ONCE`]).
//!
//! # Trust
//! As in [`super::direct_read`]: a receiver may send any addresses, since they refer to its own
//! memory, and it sends them only to a peer that the daemon vouched for. It may send addresses with
//! page faults that it serves itself (a mapped file of its own file system), and so block its
//! sender in the kernel; a sender may block a reader in the same way. Both processes belong to one
//! user.

use std::collections::VecDeque;

use causeway_channel::cooperative_copy::{
    CopyEnd, PARTS_MAX, ReceiverShare, ReceiverStep, SenderShare, SenderStep,
};
use causeway_channel::{BrokenChannel, Event, Receiver};
use causeway_wire::mx::{PeerId, Status, Token};

use super::direct_read::{DirectRead, PeerPlaces, RemoteMemory};
use super::{ChannelCursor, Channels, PeerChannel, PeerDoorbell, event};
use crate::library::{Buffer, TransportEvent, pieces};
use crate::limits::{
    HELP_ENDS_NS, HELP_LIVENESS_NS, HELP_POLLS_MAX, SHARED_BYTES_MIN, SHARED_PART_BYTES,
    SHARED_PARTS_AT_ONCE,
};

/// Cooperative copies of messages from a peer.
#[derive(Debug, Default)]
pub(super) struct IncomingCopies {
    /// Number of the last copy.
    last: u32,
    /// Claims of this side, until the sender stopped writing.
    claims: Option<ReceiverShare>,
    /// The receive that it serves; `None` if it was cancelled.
    token: Option<Token>,
    /// Direct reads that wait: the first for the sender's part, the others for their own copy.
    waiting: VecDeque<DirectRead>,
}

/// Cooperative copy of a message to a peer.
#[derive(Debug)]
pub(super) struct OutgoingCopy {
    /// This side's name for the message, and the peer's.
    token: Token,
    to: u64,
    /// Claims of this side.
    claims: SenderShare,
    /// Segments of the receive in the peer's memory.
    places: PeerPlaces,
    /// Length of `places`, in bytes.
    len: usize,
    /// Polls without progress of the receiver.
    polls: u32,
    /// Time of the last check that the peer's process lives.
    lived_ns: Option<u64>,
    /// The library passed the bytes since the last step.
    fed: bool,
}

impl OutgoingCopy {
    /// Decodes a help event; `None` if it is invalid.
    fn of(event: &Event, receiver: &Receiver, end: CopyEnd) -> Option<Self> {
        let [offer, to, len] = event.head.words;
        let (number, places) = PeerPlaces::decode(event, receiver, len)?;
        let parts = u32::try_from(len.div_ceil(SHARED_PART_BYTES as u64)).ok()?;
        let claims = SenderShare::of(end, u32::try_from(number).ok()?, parts);
        let fits = parts <= PARTS_MAX;
        let (token, polls, lived_ns, fed) = (Token(offer), 0, None, false);
        let len = usize::try_from(len).ok()?;
        fits.then_some(Self { token, to, claims, places, len, polls, lived_ns, fed })
    }

    /// Returns whether the peer's process lives. A recent check is reused: the process may end
    /// within a part anyway.
    fn peer_lives(&mut self, direct: &dyn RemoteMemory) -> bool {
        let now = direct.now_ns();
        if self.lived_ns.is_none_or(|lived_ns| now.saturating_sub(lived_ns) > HELP_LIVENESS_NS) {
            self.lived_ns = direct.lives().then_some(now);
        }
        self.lived_ns.is_some()
    }
}

impl<D> PeerChannel<D> {
    /// Begins a cooperative copy of a direct read unless another is running. Returns its number.
    fn share(&mut self, read: &DirectRead) -> Option<u32> {
        let share = &mut self.incoming;
        if share.token.is_some() || read.parts() > PARTS_MAX {
            return None;
        }
        let cell = self.receiver.shared();
        if share.claims.is_some_and(|claims| claims.is_copied(&cell) == Ok(true)) {
            return None;
        }
        let claims =
            ReceiverShare::begin(&cell, CopyEnd::of(self.sender.side()), share.last, read.parts());
        (share.last, share.claims, share.token) = (claims.number(), Some(claims), Some(read.token));
        share.last.into()
    }

    /// Assigns the next step of a direct read. [`ReceiverStep::Wait`]: all parts are claimed, and
    /// the sender still copies; [`ReceiverStep::Done`]: all bytes are there.
    fn assign_step(&mut self, read: &mut DirectRead) -> Result<ReceiverStep, BrokenChannel> {
        let share = &mut self.incoming;
        let Some(claims) = share.claims.as_mut().filter(|_| share.token == Some(read.token)) else {
            read.next_step();
            return Ok(ReceiverStep::Copy(0..0));
        };
        let turn = claims.take(&self.receiver.shared(), SHARED_PARTS_AT_ONCE)?;
        match &turn {
            ReceiverStep::Copy(parts) => read.next_parts(parts),
            ReceiverStep::Wait => {}
            ReceiverStep::Done => {
                read.is_there();
                (share.claims, share.token) = (None, None);
            }
        }
        Ok(turn)
    }

    /// Stops the cooperative copy for a receive; the sender may still finish a part.
    pub(super) fn end_share(&mut self, token: Token) {
        let share = &mut self.incoming;
        if share.token == Some(token)
            && let Some(claims) = &mut share.claims
        {
            claims.end(&self.receiver.shared());
            share.token = None;
        }
    }

    /// Waits until the peer does not write to this process. Call it before a disconnect; not where
    /// a channel is only dropped, since a child process shares the channels of its parent.
    pub(super) fn await_peer_writes(&mut self) {
        self.outgoing = None;
        self.incoming.waiting.clear();
        self.await_shared_write();
    }

    /// Waits for the running cooperative copy only. Reads that wait for it cannot be continued, or
    /// have lost their memory.
    pub(super) fn await_shared_write(&mut self) {
        self.incoming.token = None;
        let (Some(mut claims), Some(direct)) = (self.incoming.claims.take(), &self.direct) else {
            return;
        };
        let (cell, since) = (self.receiver.shared(), direct.now_ns());
        let mut copied = claims.end(&cell);
        while copied && direct.lives() && direct.now_ns().saturating_sub(since) < HELP_ENDS_NS {
            std::thread::yield_now();
            copied = claims.is_copied(&cell) == Ok(true);
        }
    }

    /// Returns whether no direct read waits for the sender's part.
    pub(super) fn waits_for_nothing(&self) -> bool {
        self.incoming.waiting.is_empty()
    }

    /// Returns whether the sender copies a part at the moment.
    fn is_copied(&self) -> bool {
        let cell = self.receiver.shared();
        self.incoming.claims.is_some_and(|claims| claims.is_copied(&cell) == Ok(true))
    }

    /// Returns whether no direct read waits, or the sender's event will end the wait.
    pub(super) fn wait_ends_by_event(&self) -> bool {
        self.waits_for_nothing() || (!self.deferred && self.is_copied())
    }
}

impl<D: PeerDoorbell> Channels<D> {
    /// Begins the first direct read, or queues it behind a running copy.
    pub(super) fn begin_step(&mut self) {
        let Some(read) = self.reads.pop_front() else { return };
        let peer = read.peer;
        // A peer that copies messages of this side does not help.
        let asks_help = read.into.is_some() && self.load.sends_nothing();
        let Ok((_, channel)) = self.channel(peer) else { return };
        // Without access to the peer, this side cannot wait for the end of its writes.
        let asks_help = asks_help && channel.direct.is_some();
        if asks_help && !channel.incoming.waiting.is_empty() {
            // The wait lasts one part; a read without help takes longer.
            channel.incoming.waiting.push_back(read);
            return;
        }
        if asks_help
            && let Some(number) = channel.share(&read)
            && let Some((head, segments)) = read.help(number)
        {
            let asked = self.send(peer, head, segments.bytes().len(), |w| w.put(segments.bytes()));
            if asked.is_err()
                && let Ok((_, channel)) = self.channel(peer)
            {
                channel.end_share(read.token);
            }
        }
        self.continue_read(read);
    }

    /// Assigns the next step of a direct read, or queues it until the sender finished its part. The
    /// read stays first until its turn is over.
    pub(super) fn continue_read(&mut self, mut read: DirectRead) {
        let Ok((at, channel)) = self.channel(read.peer) else { return };
        match channel.assign_step(&mut read) {
            Ok(ReceiverStep::Copy(_)) if read.has_turn() => self.reads.push_front(read),
            Ok(ReceiverStep::Copy(_)) => self.reads.push_back(read),
            Ok(ReceiverStep::Wait) => {
                channel.incoming.waiting.push_front(read);
                self.waits_for_sender = true;
            }
            Ok(ReceiverStep::Done) => {
                self.fetched.helped = self.fetched.helped.wrapping_add(1);
                self.reads.push_front(read);
            }
            Err(BrokenChannel) => self.close_channel(at, Status::EndpointUnreachable),
        }
    }

    /// Handles a help or put event. Returns false for another event.
    pub(super) fn handle_help(&mut self, at: usize, event: &Event) -> bool {
        let Some(Some(channel)) = self.channels.get_mut(at) else { return false };
        let (peer, [first, ..]) = (channel.peer, event.head.words);
        match event.head.kind {
            event::HELP if channel.direct.is_some() => {
                let push =
                    OutgoingCopy::of(event, &channel.receiver, CopyEnd::of(channel.sender.side()));
                channel.outgoing = push.map(Box::new);
                if channel.outgoing.is_some() && !self.pushes.contains(&peer) {
                    self.pushes.push_back(peer);
                }
            }
            event::HELP | event::PUT => {}
            _ => return false,
        }
        if channel.receiver.advance(event) {
            channel.doorbell.ring();
        }
        if event.head.kind == event::PUT && channel.incoming.token == Some(Token(first)) {
            self.resume_waiting(at);
        }
        true
    }

    /// Continues the direct reads of a channel that wait for the sender's part.
    fn resume_waiting(&mut self, at: usize) {
        let Some(Some(channel)) = self.channels.get_mut(at) else { return };
        let mut waiting = std::mem::take(&mut channel.incoming.waiting);
        let first = waiting.pop_front();
        self.reads.extend(waiting);
        if let Some(read) = first {
            self.continue_read(read);
        }
    }

    /// Polls whether senders finished their parts: the put event may stand behind a deferred event.
    #[cold]
    pub(super) fn poll_waiting(&mut self) {
        self.waits_for_sender = false;
        for at in 0..self.channels.len() {
            let Some(Some(channel)) = self.channels.get(at) else { continue };
            if channel.waits_for_nothing() {
                continue;
            }
            if channel.is_copied() {
                self.waits_for_sender = true;
            } else {
                self.resume_waiting(at);
            }
        }
    }

    /// Withdraws the memory of a receive: no peer writes to it after the call. The read goes on
    /// without a destination.
    pub(super) fn withdraw_share(&mut self, token: Token) {
        let waiting =
            self.channels.iter_mut().flatten().flat_map(|channel| &mut channel.incoming.waiting);
        let of = self.reads.iter_mut().chain(waiting).filter(|read| read.token == token);
        of.for_each(|read| read.into = None);
        for at in 0..self.channels.len() {
            if let Some(Some(channel)) = self.channels.get_mut(at)
                && channel.incoming.token == Some(token)
            {
                channel.await_shared_write();
                self.resume_waiting(at);
            }
        }
    }

    /// Waits until no peer writes to this process.
    pub fn await_peer_writes(&mut self) {
        self.channels.iter_mut().flatten().for_each(PeerChannel::await_peer_writes);
    }

    /// Makes the next step of a cooperative copy to a peer the current event.
    pub(super) fn select_push(&mut self) -> bool {
        while let Some(&peer) = self.pushes.front() {
            if let Ok((_, channel)) = self.channel(peer)
                && let Some(push) = &mut channel.outgoing
            {
                push.fed = false;
                self.arrival = TransportEvent::Push { peer, token: push.token };
                self.current = ChannelCursor::Push;
                return true;
            }
            self.pushes.pop_front();
        }
        false
    }

    /// Copies a step of the first cooperative copy into the peer's memory.
    pub(super) fn push_step<B: Buffer>(&mut self, data: &B) {
        let Some(&peer) = self.pushes.front() else { return };
        let Ok((_, channel)) = self.channel(peer) else { return };
        let (Some(push), Some(direct)) = (&mut channel.outgoing, &channel.direct) else { return };
        let cell = channel.sender.shared();
        let tell = match push.claims.next(&cell, SHARED_PARTS_AT_ONCE) {
            SenderStep::Copy(parts) => {
                let byte = |part: u32| (part as usize).saturating_mul(SHARED_PART_BYTES);
                let end = byte(parts.end).min(data.len()).min(push.len);
                let mut at = byte(parts.start);
                let mut is_copied_whole = at < end && push.peer_lives(&**direct);
                pieces(data, at, end, |piece| {
                    let put = |places: &[_]| direct.write(places, piece) == Ok(piece.len());
                    is_copied_whole = is_copied_whole && push.places.cut(at, piece.len(), put);
                    at = at.saturating_add(piece.len());
                });
                // The buffer may have fewer bytes than were offered.
                is_copied_whole = is_copied_whole && at == end;
                let over = push.claims.copied(&cell, parts, is_copied_whole);
                (push.polls, push.fed) = (0, is_copied_whole && !over);
                over.then_some(push.to)
            }
            SenderStep::Wait => {
                push.polls = push.polls.saturating_add(1);
                push.fed = push.polls < HELP_POLLS_MAX;
                None
            }
            SenderStep::Over => None,
        };
        drop(cell);
        if let Some(to) = tell {
            // One copy runs at a time: queued put events of earlier copies are obsolete.
            channel.replies.retain(|head| head.kind != event::PUT);
            self.send_or_queue(peer, event::put(to));
        }
    }

    /// Ends the current step of a cooperative copy to a peer.
    pub(super) fn end_push_step(&mut self) {
        self.yields = true;
        let Some(peer) = self.pushes.pop_front() else { return };
        let Ok((_, channel)) = self.channel(peer) else { return };
        if channel.outgoing.as_ref().is_some_and(|push| push.fed) {
            self.pushes.push_back(peer);
        } else {
            channel.outgoing = None;
        }
    }

    /// Returns whether a message of `len` bytes qualifies for help by the peer.
    pub(super) fn asks_help(&mut self, peer: PeerId, len: u32) -> bool {
        len as usize >= SHARED_BYTES_MIN
            && self.channel(peer).is_ok_and(|(_, channel)| channel.sends_addresses)
    }
}
