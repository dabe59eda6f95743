//! Channels: the transport to peers of this host, by shared memory between two processes.
//!
//! This module holds the table of channels (at most [`CHANNELS_MAX`], 4,096; [`Channels::add`]
//! refuses more, and a second channel of a peer) and the polling order. It does not set channels up
//! or authenticate peers: the daemon creates the memory and doorbells of a channel, and
//! `causeway-endpoint` adds the channel here. No message passes through the daemon.
//!
//! The current channel is polled for at most `EVENTS_PER_TURN` (16) events, then the others in
//! order; steps of direct reads alternate with events. A full channel gives
//! [`TransportError::Full`]: the library keeps the message and repeats the send. A *deferred* event
//! (a message for which the library has no room) blocks later events of its channel only; it is
//! retried after the other channels, and after [`Channels::nudge`].
//!
//! A peer that breaks the format loses its channel at once, and its unread events are discarded;
//! truncated memory is detected by [`Channels::arm`]. A peer that closed its direction, or whose
//! process ended ([`Channels::report_lost`]), loses it after the events that it sent before are
//! handled. Then [`TransportEvent::PeerGone`] follows, once; offers and pulls that have not ended
//! fail with its status. Eager messages and chunks that the peer had not taken are lost without a
//! report: their sends are complete. An end of the process that the caller does not report is not
//! detected here. Channels have no lock: one thread at a time calls them.
//!
//! A closed channel keeps its place and the number of its peer, and counts to the 4,096, until the
//! library removes it: by [`Transport::forget`](super::Transport::forget), with which it answers
//! [`TransportEvent::PeerGone`], or by [`Transport::disconnect`](super::Transport::disconnect).
//! Until then [`Channels::add`] refuses the number, [`Channels::has`] is true, and sends to the
//! peer fail with `EndpointUnreachable`. Afterwards the same endpoint can get a new channel, with
//! any free number: `causeway-endpoint` frees the number in the same call, and assigns the numbers
//! of new channels. The removal of an open channel closes it, and gives no
//! [`TransportEvent::PeerGone`].
//!
//! Messages up to [`CHANNEL_EAGER_BYTES_MAX`](crate::limits::CHANNEL_EAGER_BYTES_MAX) (8 KiB) go
//! through the channel as a whole; longer messages are pulled through it, or read directly
//! (`channels::read_schedule`).

mod cooperative_copy;
mod direct_read;
mod event;
mod path_times;
mod read_schedule;
mod transport;

use std::collections::{BTreeMap, VecDeque};

use causeway_channel::{
    BrokenChannel, Event, EventHead, EventWriter, Receiver, Sender, ShortEvent, WARM_BYTES,
    far_fence,
};

pub use direct_read::{DirectCounters, Inaccessible, RemoteMemory, RemoteRange};

use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::{TransportError, TransportEvent};
use crate::limits::{
    CHANNEL_PACED_ROUNDS, CHANNEL_POLLS_IN_ROW, CHANNELS_MAX, CHANNELS_POLLED_MAX,
    STREAM_MESSAGES_MIN,
};
use cooperative_copy::{IncomingCopies, OutgoingCopy};
use direct_read::{DirectOffer, DirectRead};
use path_times::{PathTimes, TimedMessage};
use read_schedule::TransferLoad;

/// Events of one channel before another channel is polled, and events of all channels before a step
/// of a direct read.
const EVENTS_PER_TURN: u32 = 16;
/// Empty polls before the channels are checked for a close.
const EMPTY_POLLS: u32 = 256;

/// Doorbell of the process at the other end of a channel.
pub trait PeerDoorbell {
    /// Rings; must not block.
    fn ring(&self);
}

impl<F: Fn()> PeerDoorbell for F {
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
    pub doorbell: D,
    /// Access to the peer's memory, if permitted; the peer is then sent this side's addresses, too.
    pub direct: Option<Box<dyn RemoteMemory>>,
}

/// A channel in the table, with its work in progress.
#[derive(Debug)]
struct PeerChannel<D> {
    peer: PeerId,
    sender: Sender,
    receiver: Receiver,
    doorbell: D,
    direct: Option<Box<dyn RemoteMemory>>,
    /// Measured speed of both paths for large messages.
    path_times: PathTimes,
    /// Offers to the peer carry the addresses of their segments, for a direct read.
    sends_addresses: bool,
    /// Offers with addresses from the peer that were not pulled.
    offers: BTreeMap<u64, DirectOffer>,
    /// Cooperative copies from the peer, and to the peer (`outgoing`).
    incoming: IncomingCopies,
    outgoing: Option<Box<OutgoingCopy>>,
    /// Short messages from the peer since the last send to it, and sends to it since the last
    /// message from it.
    received_in_row: u32,
    sent_in_row: u32,
    /// The library deferred the next event of this channel.
    deferred: bool,
    /// Bytes of the event that found no room last.
    refused_bytes: Option<usize>,
    /// Rounds in which fed chunks stayed unread; from [`CHANNEL_PACED_ROUNDS`] (32) on, chunks are
    /// fed anyway.
    paced_rounds: u32,
    /// A message reached the limit of bytes fed in a row, and has more.
    has_more: bool,
    /// The peer's process is gone; events in the channel are still handled.
    lost: Option<Status>,
    /// The channel is unusable, and the library is informed.
    is_closed: bool,
    /// Replies about pulls that found no room.
    replies: VecDeque<EventHead>,
}

impl<D> PeerChannel<D> {
    /// Returns the reason if no more events will come.
    fn ended(&self) -> Option<Status> {
        // `closed` is read first: events before the close are visible once the close is.
        let closed = self.receiver.closed().then_some(Status::EndpointClosed);
        self.lost.or(closed).filter(|_| !self.is_closed && !self.receiver.ready())
    }
}

/// Origin of the event that the library handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelCursor {
    /// No event is current.
    Nothing,
    /// The first of `notes`.
    Note,
    /// An event of the channel with this index.
    Event(usize),
    /// A step of the first direct read.
    Read,
    /// A step of the first cooperative copy to a peer.
    Push,
}

/// All channels of an endpoint. `D` is the doorbell of a peer.
#[derive(Debug)]
pub struct Channels<D> {
    channels: Vec<Option<PeerChannel<D>>>,
    /// Index of the channel by peer number.
    by_peer: Vec<Option<u32>>,
    /// New and lost peers that were not reported.
    notes: VecDeque<TransportEvent>,
    current: ChannelCursor,
    /// The current event of a channel, and its meaning.
    event: Event,
    arrival: TransportEvent,
    /// The event is an offer with addresses.
    offered: Option<DirectOffer>,
    /// Direct reads, in turn.
    reads: VecDeque<DirectRead>,
    /// Peers with a cooperative copy, in turn.
    pushes: VecDeque<PeerId>,
    /// A direct read waits for the sender's part.
    waits_for_sender: bool,
    /// Events that are handled before the next step of a direct read.
    before_read: u32,
    /// A step of a direct read or cooperative copy was taken: the caller may handle other work.
    yields: bool,
    /// Large messages in flight.
    load: TransferLoad,
    /// A message that is measured, since nothing else was in flight when it began.
    timed: Option<TimedMessage>,
    fetched: DirectCounters,
    /// Index of the channel that is polled, and its remaining events in this turn.
    at: usize,
    turn: u32,
    /// Number of empty polls.
    idle: u32,
    /// A channel has work that is not checked on every poll.
    needs_check: bool,
    /// A channel has a deferred event.
    has_deferred: bool,
    /// The next poll retries deferred events, because the last poll found no other event.
    retry_due: bool,
}

impl<D> Default for Channels<D> {
    fn default() -> Self {
        Self {
            channels: Vec::new(),
            by_peer: Vec::new(),
            notes: VecDeque::new(),
            current: ChannelCursor::Nothing,
            event: Event::default(),
            arrival: TransportEvent::Failed { peer: PeerId(0), token: Token(0) },
            offered: None,
            reads: VecDeque::new(),
            pushes: VecDeque::new(),
            waits_for_sender: false,
            before_read: 0,
            yields: false,
            load: TransferLoad::default(),
            timed: None,
            fetched: DirectCounters::default(),
            at: 0,
            turn: EVENTS_PER_TURN,
            idle: 0,
            needs_check: false,
            has_deferred: false,
            retry_due: false,
        }
    }
}

impl<D: PeerDoorbell> Channels<D> {
    /// Adds a channel and reports its peer with the next event. Returns false, and drops the
    /// channel, if the number is in use or too high, or the table is full. The number of a closed
    /// channel is in use until the library has handled [`TransportEvent::PeerGone`].
    pub fn add(&mut self, channel: Channel<D>) -> bool {
        let Channel { peer, address, session, sender, receiver, doorbell, direct } = channel;
        let at = peer.0 as usize;
        let free = self.channels.iter().position(Option::is_none).unwrap_or(self.channels.len());
        if at >= crate::limits::PEER_NUMBERS_MAX || free >= CHANNELS_MAX || self.of(peer).is_some()
        {
            return false;
        }
        let unknown = u64::from(direct.is_none());
        self.fetched.unknown = self.fetched.unknown.wrapping_add(unknown);
        let channel = PeerChannel {
            peer,
            sender,
            receiver,
            doorbell,
            sends_addresses: direct.is_some(),
            direct,
            path_times: PathTimes::default(),
            offers: BTreeMap::new(),
            incoming: IncomingCopies::default(),
            outgoing: None,
            received_in_row: 0,
            sent_in_row: 0,
            deferred: false,
            refused_bytes: None,
            paced_rounds: 0,
            has_more: false,
            lost: None,
            is_closed: false,
            replies: VecDeque::new(),
        };
        match self.channels.get_mut(free) {
            Some(place) => *place = Some(channel),
            None => self.channels.push(Some(channel)),
        }
        if self.by_peer.len() <= at {
            self.by_peer.resize(at.saturating_add(1), None);
        }
        if let Some(place) = self.by_peer.get_mut(at) {
            *place = u32::try_from(free).ok();
        }
        self.notes.push_back(TransportEvent::PeerSeen { peer, address, session });
        true
    }

    /// Reports that the process of a peer is gone. Events that it sent before are handled first. No
    /// effect without a channel to the peer, or after the channel was closed.
    pub fn report_lost(&mut self, peer: PeerId, status: Status) {
        let Some(at) = self.of(peer) else { return };
        match self.channels.get_mut(at) {
            Some(Some(channel)) if channel.receiver.ready() => {
                channel.lost = Some(status);
                self.needs_check = true;
            }
            _ => self.close_channel(at, status),
        }
    }

    /// Returns whether a channel leads to a peer. A closed channel counts until it is removed.
    pub fn has(&self, peer: PeerId) -> bool {
        self.of(peer).is_some()
    }

    /// Returns the counters of direct reads.
    pub fn fetched(&self) -> DirectCounters {
        self.fetched
    }

    /// Returns whether the peer that was polled last sends a stream of short messages without a
    /// reply.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        let channel = self.channels.get(self.at).and_then(Option::as_ref);
        channel.is_some_and(|channel| channel.received_in_row >= STREAM_MESSAGES_MIN)
    }

    /// Ends a stream: no message came within the time of several messages.
    pub fn end_stream(&mut self) {
        if let Some(Some(channel)) = self.channels.get_mut(self.at) {
            channel.received_in_row = 0;
        }
    }

    /// Returns whether a direct read or a cooperative copy is in progress.
    #[inline]
    pub fn is_reading(&self) -> bool {
        !self.reads.is_empty() || !self.pushes.is_empty()
    }

    /// Returns whether an event may be ready.
    #[inline]
    pub fn may_have_event(&self) -> bool {
        if self.is_reading() {
            return !self.yields;
        }
        self.channels.len() > CHANNELS_POLLED_MAX
            || !self.notes.is_empty()
            || self.channels.iter().flatten().any(|channel| channel.receiver.ready())
    }

    /// Retries deferred events, after the application posted a receive or collected a request.
    /// Returns whether there are any.
    #[inline]
    pub fn nudge(&mut self) -> bool {
        let any = self.has_deferred;
        if any {
            self.retry_deferred();
        }
        any
    }

    /// Prepares to sleep: asks all peers to ring the doorbell, and polls once more. Returns false
    /// if there is work; then do not sleep. Call [`Self::disarm`] in both cases.
    pub fn arm(&mut self) -> bool {
        let mut far = false;
        for channel in self.channels.iter_mut().flatten().filter(|channel| !channel.is_closed) {
            far |= channel.receiver.request_wake();
        }
        // One fence covers all channels.
        let mut idle = self.notes.is_empty() && !self.is_reading() && (!far || far_fence());
        for at in 0..self.channels.len() {
            let Some(Some(channel)) = self.channels.get_mut(at) else { continue };
            if channel.is_closed {
                continue;
            }
            // Before sleep, chunks are fed without pacing until the channel is full.
            idle &= !matches!(channel.paced_rounds, 1..CHANNEL_PACED_ROUNDS);
            channel.paced_rounds = CHANNEL_PACED_ROUNDS;
            // Reported once: the caller polls again.
            idle &= !std::mem::take(&mut channel.has_more);
            // A sender reports the end of its part by an event, which a deferred event may block.
            idle &= channel.wait_ends_by_event();
            // A deferred event waits for the application only.
            let arrived = channel.receiver.ready() && !channel.deferred;
            let room = match (channel.refused_bytes, channel.replies.is_empty()) {
                (None, true) => Ok(false),
                (full, _) => channel.sender.arm_room(full.unwrap_or(0)),
            };
            if matches!(room, Ok(true)) {
                // Reported once: the request that needed the room may have ended.
                channel.refused_bytes = None;
            }
            let ended = channel.ended();
            idle &= !arrived && !matches!(room, Ok(true));
            if room.is_err() || channel.receiver.is_poisoned() {
                self.close_channel(at, Status::EndpointUnreachable);
                idle = false;
            } else if let Some(status) = ended {
                self.close_channel(at, status);
                idle = false;
            }
        }
        idle
    }

    /// Withdraws the requests of [`Self::arm`].
    pub fn disarm(&mut self) {
        for channel in self.channels.iter_mut().flatten() {
            channel.receiver.disarm();
            channel.sender.disarm();
        }
    }

    /// Returns the index of the channel to a peer.
    fn of(&self, peer: PeerId) -> Option<usize> {
        self.by_peer.get(peer.0 as usize).copied().flatten().map(|at| at as usize)
    }

    /// Returns the open channel to a peer with its index, or the refusal for sends to the peer.
    #[inline]
    fn channel(&mut self, peer: PeerId) -> Result<(usize, &mut PeerChannel<D>), TransportError> {
        let gone = TransportError::Never(Status::EndpointUnreachable);
        let at = self.of(peer).ok_or(gone)?;
        let channel = self.channels.get_mut(at).and_then(Option::as_mut).ok_or(gone)?;
        if channel.is_closed { Err(gone) } else { Ok((at, channel)) }
    }

    /// Closes a channel and reports the lost peer, once.
    fn close_channel(&mut self, at: usize, status: Status) {
        let Some(Some(channel)) = self.channels.get_mut(at) else { return };
        if !channel.is_closed {
            channel.is_closed = true;
            channel.sender.close();
            channel.doorbell.ring();
            let peer = channel.peer;
            self.notes.push_back(TransportEvent::PeerGone { peer, status });
            self.stop_reading(peer);
        }
    }

    /// Invalidates the addresses in all open offers, because their memory may change. A peer that
    /// reads there discards the bytes and pulls through the channel.
    pub fn withdraw(&mut self) {
        let channels = self.channels.iter_mut().flatten();
        channels
            .filter(|channel| channel.sends_addresses)
            .for_each(|channel| channel.sender.withdraw());
        self.load = TransferLoad::default();
    }

    /// Drops the reports about a peer, which must not apply to the next peer with its number.
    fn drop_notes(&mut self, peer: PeerId) {
        let of = |note: &TransportEvent| match note {
            TransportEvent::PeerSeen { peer, .. } | TransportEvent::PeerGone { peer, .. } => {
                Some(*peer)
            }
            _ => None,
        };
        if self.current == ChannelCursor::Note && self.notes.front().and_then(of) == Some(peer) {
            self.current = ChannelCursor::Nothing;
        }
        self.notes.retain(|note| of(note) != Some(peer));
    }

    /// Closes and removes the channel to a peer, without a report. Called by `disconnect` and
    /// `forget` of the transport; no effect without a channel. May wait 2 s for a peer that copies
    /// into this process.
    fn remove(&mut self, peer: PeerId) {
        self.stop_reading(peer);
        self.drop_notes(peer);
        let Some(at) = self.of(peer) else { return };
        if let Some(place) = self.by_peer.get_mut(peer.0 as usize) {
            *place = None;
        }
        if let Some(place) = self.channels.get_mut(at)
            && let Some(mut channel) = place.take()
        {
            channel.sender.close();
            channel.doorbell.ring();
        }
        if self.current == ChannelCursor::Event(at) {
            self.current = ChannelCursor::Nothing;
        }
    }

    /// Closes the channel of a peer that broke the protocol, and returns the refusal for further
    /// sends.
    #[cold]
    fn fail_channel(&mut self, at: usize) -> TransportError {
        self.close_channel(at, Status::EndpointUnreachable);
        TransportError::Never(Status::EndpointUnreachable)
    }

    /// Returns whether `len` more bytes may be fed to a peer. The receiver should copy a chunk
    /// while it is in the L1 cache, unless it is busy.
    #[inline]
    fn keeps_up(&mut self, peer: PeerId, len: usize) -> Result<bool, TransportError> {
        let (at, channel) = self.channel(peer)?;
        let fits = |out: usize| out.saturating_add(len) <= WARM_BYTES;
        if fits(channel.sender.data_out()) {
            return Ok(true);
        }
        for poll in 0..CHANNEL_POLLS_IN_ROW {
            match channel.sender.refresh_data_out() {
                Ok(out) if fits(out) => {
                    // A receiver keeps up only if it copies while this side polls.
                    channel.paced_rounds = if poll > 0 { 0 } else { channel.paced_rounds };
                    return Ok(true);
                }
                Ok(_) if channel.paced_rounds >= CHANNEL_PACED_ROUNDS => return Ok(true),
                Ok(_) => std::hint::spin_loop(),
                Err(BrokenChannel) => return Err(self.fail_channel(at)),
            }
        }
        channel.paced_rounds = channel.paced_rounds.saturating_add(1);
        Ok(false)
    }

    /// Sends an event with the bytes that `put` writes.
    #[inline]
    fn send(
        &mut self,
        peer: PeerId,
        head: EventHead,
        len: usize,
        put: impl FnOnce(&mut EventWriter<'_>),
    ) -> Result<(), TransportError> {
        self.post(peer, len, |sender| {
            let Some(mut writing) = sender.begin(len)? else { return Ok(false) };
            put(&mut writing);
            writing.send(head);
            Ok(true)
        })
    }

    /// Sends a short message.
    #[inline]
    fn send_short(&mut self, peer: PeerId, short: &ShortEvent) -> Result<(), TransportError> {
        self.post(peer, short.len(), |sender| sender.send_short(event::MESSAGE, short))
    }

    /// Sends an event of `len` bytes by `write`, which returns false if there is no room.
    #[inline]
    fn post(
        &mut self,
        peer: PeerId,
        len: usize,
        write: impl FnOnce(&mut Sender) -> Result<bool, BrokenChannel>,
    ) -> Result<(), TransportError> {
        let (at, channel) = self.channel(peer)?;
        match write(&mut channel.sender) {
            Ok(true) => {
                channel.refused_bytes = None;
                (channel.received_in_row, channel.sent_in_row) =
                    (0, channel.sent_in_row.saturating_add(1));
                if channel.sent_in_row >= STREAM_MESSAGES_MIN {
                    channel.sender.stream();
                }
                if channel.sender.take_wake_request() {
                    channel.doorbell.ring();
                }
                Ok(())
            }
            Ok(false) => {
                channel.refused_bytes = Some(len);
                Err(TransportError::Full)
            }
            Err(BrokenChannel) => Err(self.fail_channel(at)),
        }
    }

    /// Polls one channel. Returns whether its next event is the current event now.
    #[inline]
    fn poll_channel(&mut self, at: usize) -> bool {
        let Some(Some(channel)) = self.channels.get_mut(at) else { return false };
        if channel.is_closed || channel.deferred {
            return false;
        }
        match channel.receiver.poll() {
            Ok(None) => return false,
            Ok(Some(event)) => {
                if event.head.kind >= event::HELP && self.handle_help(at, &event) {
                    return false;
                }
                let Some(Some(channel)) = self.channels.get_mut(at) else { return false };
                if let Some(arrival) = event::arrival(channel.peer, &event) {
                    self.load.came(&arrival);
                    // A peer that pulls is running.
                    let pulls = event.head.kind == event::PULL;
                    channel.paced_rounds = if pulls { 0 } else { channel.paced_rounds };
                    let has_addresses = event.len > 0 && event.head.kind == event::OFFER;
                    let has_addresses = has_addresses && channel.direct.is_some();
                    self.offered = if has_addresses {
                        DirectOffer::of(&event, &channel.receiver)
                    } else {
                        None
                    };
                    self.event = event;
                    self.arrival = arrival;
                    self.current = ChannelCursor::Event(at);
                    return true;
                }
            }
            Err(BrokenChannel) => {}
        }
        self.close_channel(at, Status::EndpointUnreachable);
        false
    }

    /// Polls all channels, beginning with the current channel. Returns whether an event is current.
    #[inline]
    fn poll_channels(&mut self) -> bool {
        if self.turn > 0 && self.poll_channel(self.at) {
            self.turn = self.turn.saturating_sub(1);
            return true;
        }
        // A channel that used up its turn is polled last.
        let own_was_looked_at = self.turn > 0;
        self.turn = EVENTS_PER_TURN;
        for _ in usize::from(own_was_looked_at)..self.channels.len() {
            self.at = self.at.saturating_add(1);
            if self.at >= self.channels.len() {
                self.at = 0;
            }
            if self.poll_channel(self.at) {
                return true;
            }
        }
        false
    }

    /// Runs the rare checks after an empty poll.
    #[inline]
    fn idle(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        let rare = self.idle.is_multiple_of(EMPTY_POLLS);
        self.retry_due = self.has_deferred;
        if self.waits_for_sender {
            self.poll_waiting();
        }
        if rare || self.needs_check {
            self.run_rare_checks(rare);
        }
    }

    /// Makes deferred events available again.
    #[cold]
    fn retry_deferred(&mut self) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.deferred = false);
        (self.has_deferred, self.retry_due) = (false, false);
    }

    /// Sends queued replies, and closes channels that ended. `rare`: all channels are checked, not
    /// only those of processes that were reported as gone.
    fn run_rare_checks(&mut self, rare: bool) {
        self.needs_check = false;
        for at in 0..self.channels.len() {
            let Some(Some(channel)) = self.channels.get_mut(at) else { continue };
            if !channel.replies.is_empty() {
                let (peer, replies) = (channel.peer, std::mem::take(&mut channel.replies));
                replies.into_iter().for_each(|head| self.send_or_queue(peer, head));
            }
            let Some(Some(channel)) = self.channels.get_mut(at) else { continue };
            self.needs_check |= channel.lost.is_some() || !channel.replies.is_empty();
            if (rare || channel.lost.is_some())
                && let Some(status) = channel.ended()
            {
                self.close_channel(at, status);
            }
        }
    }
}
