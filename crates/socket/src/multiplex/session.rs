//! A session: its channels, their bytes, and time. `receive` has the datagrams of the peer and the
//! agreement with it, `transmit` the datagrams to the peer.
//!
//! The caller passes received datagrams to [`PeerSession::receive`], and takes datagrams to send
//! from [`PeerSession::transmit`]. [`PeerSession::deadline_ns`] returns when to call
//! [`PeerSession::tick`]. Events are appended to [`Received`], which the caller clears. The channels
//! of one side have odd numbers and those of the other even numbers: odd those of the side with the
//! smaller tag. Channel 0 carries addresses, and is open in both directions while the session lasts.
//! Each number is used once in a session.

mod receive;
mod transmit;

use std::collections::{BTreeSet, VecDeque};

use causeway_fabric::keyed::{Keyed, keyed};
use causeway_wire::multiplex::ADDRESSES;

use super::byte_ring::{ByteRing, copy_of};
use super::event::{DownReason, PeerEvent, Received};
use super::incoming::Incoming;
use super::loss::{InFlight, Outcome};
use super::outgoing::{Outgoing, Span};
use super::ranges::Ranges;
use crate::limits::{
    CHANNELS_MAX, CHANNELS_PER_OWNER_MAX, HELD_MESSAGES_PER_TURN, HELLO_NS_MIN, SPARE_BYTES_MAX,
    SPARE_IDLE_NS, SPARES_MAX,
};

/// Owner of bytes that belong to no guest: addresses, resets, and the bytes of lost connections.
pub const DISOWNED: u32 = u32::MAX;

/// State of a session, for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionView {
    /// A session is agreed.
    pub is_up: bool,
    /// Channels.
    pub channels: usize,
    /// Bytes that are not acknowledged.
    pub queued_bytes: usize,
    /// Bytes that wait behind gaps, or to be passed on.
    pub held_bytes: usize,
    /// Packets that were lost, of all sessions.
    pub lost_total: u64,
    /// Round-trip time, if known.
    pub rtt_ns: Option<u64>,
}

/// A channel.
#[derive(Debug, Default)]
struct Channel {
    outgoing: Outgoing,
    incoming: Incoming,
    /// It is in the list of channels with bytes to send.
    is_ready: bool,
    /// It is in the list of channels with pieces to pass on.
    is_deferred: bool,
    /// Owner to whom all its queued bytes are charged.
    owner: u32,
    /// Owner who opened it, if it is one of our channels.
    opener: u32,
}

/// A session with a peer. See the [module](super).
#[derive(Debug)]
pub struct PeerSession {
    /// Our tag, never 0.
    tag: u32,
    /// The peer's tag, if known.
    peer: Option<u32>,
    is_up: bool,
    /// When the next hello is sent while no session is agreed.
    hello_ns: u64,
    /// Pause after it.
    hello_pause_ns: u64,
    /// A hello is due at once; whether it asks for another.
    answer: Option<bool>,
    in_flight: InFlight,
    /// When the last session began, of this name or an earlier one.
    began_ns: Option<u64>,
    /// Numbers of received packets.
    received: Ranges,
    /// Numbers below were received or are forgotten.
    floor: u64,
    /// When an acknowledgement is due.
    ack_ns: Option<u64>,
    /// Packets with pieces that are not acknowledged.
    unacked: u32,
    channels: Keyed<u32, Channel>,
    /// Channels with bytes to send, in rotation.
    ready: VecDeque<u32>,
    /// Memory of channels that became idle: a stream that is acknowledged faster than it is written
    /// would allocate, and fault in, its memory again and again.
    spares: Vec<ByteRing>,
    /// When `spares` is freed, unless channels use it.
    spares_until_ns: Option<u64>,
    /// The last piece of the last datagram, of which the second slice is not copied.
    body: Option<(u32, Span)>,
    /// Number of the next own channel.
    next_channel: u32,
    own_channels: usize,
    /// Own channels by the owner who opened them.
    opened: Keyed<u32, usize>,
    /// Number of the peer's next channel.
    next_peer_channel: u32,
    /// Lower numbers that the peer has not used yet.
    unopened: BTreeSet<u32>,
    /// Bytes that wait behind gaps, or to be passed on.
    held: usize,
    /// Channels with pieces that are in order and not passed on yet.
    deferred: VecDeque<u32>,
    /// Number of such pieces and of their messages that may pass on in this turn.
    budget: usize,
    /// Bytes that are not acknowledged, by owner.
    queued: Keyed<u32, usize>,
    queued_all: usize,
    /// Lost packets of earlier sessions.
    lost_before: u64,
}

/// Returns a tag.
fn tag_of(random: &mut dyn FnMut() -> u32) -> u32 {
    random().max(1)
}

impl PeerSession {
    /// Returns a session that has to be agreed. Its first hello is due at once.
    pub fn new(now_ns: u64, random: &mut dyn FnMut() -> u32) -> Self {
        Self {
            tag: tag_of(random),
            peer: None,
            is_up: false,
            hello_ns: now_ns,
            hello_pause_ns: HELLO_NS_MIN,
            answer: None,
            in_flight: InFlight::default(),
            began_ns: None,
            received: Ranges::default(),
            floor: 0,
            ack_ns: None,
            unacked: 0,
            channels: keyed(),
            ready: VecDeque::new(),
            spares: Vec::new(),
            spares_until_ns: None,
            body: None,
            next_channel: 0,
            own_channels: 0,
            opened: keyed(),
            next_peer_channel: 0,
            unopened: BTreeSet::new(),
            held: 0,
            deferred: VecDeque::new(),
            budget: HELD_MESSAGES_PER_TURN,
            queued: keyed(),
            queued_all: 0,
            lost_before: 0,
        }
    }

    /// Returns whether a session is agreed.
    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Returns the state of the session.
    pub fn view(&self) -> SessionView {
        SessionView {
            is_up: self.is_up,
            channels: self.channels.len(),
            queued_bytes: self.queued_all,
            held_bytes: self.held,
            lost_total: self.lost_before.saturating_add(self.in_flight.lost_total()),
            rtt_ns: self.in_flight.congestion().rtt_ns(),
        }
    }

    /// Ends the session, and begins to agree on a new one. [`PeerEvent::Down`] is appended only if
    /// the session was agreed.
    pub fn restart(
        &mut self,
        now_ns: u64,
        why: DownReason,
        random: &mut dyn FnMut() -> u32,
        out: &mut Received,
    ) {
        let (was_up, old) = (self.is_up, self.tag);
        let (lost_before, began_ns) = (self.view().lost_total, self.began_ns);
        *self = Self { lost_before, began_ns, ..Self::new(now_ns, random) };
        if self.tag == old {
            self.tag = old.wrapping_add(1).max(1);
        }
        if was_up {
            out.events.push(PeerEvent::Down(why));
        }
    }

    /// Sends a hello soon: the link came up.
    pub fn hasten(&mut self, now_ns: u64) {
        if !self.is_up {
            (self.hello_ns, self.hello_pause_ns) = (now_ns, HELLO_NS_MIN);
        }
    }

    /// Frees memory that the session does not need while its link is dormant.
    pub fn release(&mut self) {
        (self.spares, self.spares_until_ns) = (Vec::new(), None);
    }

    /// Sends no hello before a time: the link went dormant without an answer of the peer. No effect
    /// if no hello was sent since the link came up.
    pub fn postpone(&mut self, until_ns: u64) {
        if !self.is_up && self.hello_pause_ns > HELLO_NS_MIN {
            self.hello_ns = self.hello_ns.max(until_ns);
        }
    }

    /// Opens a channel for an owner; `None` if no session is agreed, with [`CHANNELS_MAX`] own
    /// channels, with [`CHANNELS_PER_OWNER_MAX`] of the owner, or if all numbers were used. The
    /// channel is counted until it ended in both directions.
    pub fn open(&mut self, owner: u32) -> Option<u32> {
        let opened = self.opened.get(&owner).copied().unwrap_or(0);
        if !self.is_up || self.own_channels >= CHANNELS_MAX || opened >= CHANNELS_PER_OWNER_MAX {
            return None;
        }
        let number = self.next_channel;
        self.next_channel = number.checked_add(2)?;
        self.own_channels = self.own_channels.saturating_add(1);
        self.opened.insert(owner, opened.saturating_add(1));
        self.channels.insert(number, Channel { opener: owner, ..Channel::default() });
        Some(number)
    }

    /// Returns whether all numbers of own channels were used. The caller restarts the session.
    pub const fn is_exhausted(&self) -> bool {
        self.next_channel >= u32::MAX - 1
    }

    /// Queues a message, which is the concatenation of `parts`, as [`Self::send_with`].
    pub fn send(&mut self, number: u32, owner: u32, parts: [&[u8]; 2]) {
        let [head, body] = parts;
        let Ok(()) = self.send_with(number, owner, head, body.len(), copy_of(body));
    }

    /// Queues a message of `head` and `len` bytes that `fill` writes into the memory of the channel, in
    /// one or two calls, in order. The caller keeps to 10 to 4,106 bytes: the length is not checked
    /// here, and the peer ends the session at another. The bytes are charged to `owner` until they
    /// are acknowledged; behind bytes that are not acknowledged, to the owner of those. Ignored on
    /// an unknown channel, and after [`Self::end`].
    ///
    /// # Errors
    /// That of `fill`; nothing is queued.
    pub fn send_with<E>(
        &mut self,
        number: u32,
        owner: u32,
        head: &[u8],
        len: usize,
        fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        if channel.outgoing.is_ended() {
            return Ok(());
        }
        if channel.outgoing.has_no_memory()
            && let Some(spare) = self.spares.pop()
        {
            channel.outgoing.adopt(spare);
        }
        let before = channel.outgoing.len();
        let whole = u16::try_from(head.len().saturating_add(len)).unwrap_or(u16::MAX);
        channel.outgoing.push_with([&whole.to_be_bytes(), head], len, fill)?;
        if before == 0 {
            channel.owner = owner;
        }
        let owner = channel.owner;
        let added = channel.outgoing.len().saturating_sub(before);
        let sum = self.queued.entry(owner).or_insert(0);
        *sum = sum.saturating_add(added);
        self.queued_all = self.queued_all.saturating_add(added);
        if !channel.is_ready && channel.outgoing.has_work() {
            channel.is_ready = true;
            self.ready.push_back(number);
        }
        Ok(())
    }

    /// Ends our direction of a channel behind the messages sent so far. Messages of the peer that
    /// still arrive are dropped.
    pub fn end(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.outgoing.end();
            self.schedule(number);
        }
    }

    /// Returns the bytes of an owner that are not acknowledged.
    pub fn queued_by(&self, owner: u32) -> usize {
        self.queued.get(&owner).copied().unwrap_or(0)
    }

    /// Charges the bytes of an owner that are not acknowledged to [`DISOWNED`]. The caller has ended
    /// all channels of the owner.
    pub fn disown(&mut self, owner: u32) {
        let Some(moved) = self.queued.remove(&owner) else { return };
        let sum = self.queued.entry(DISOWNED).or_insert(0);
        *sum = sum.saturating_add(moved);
        for channel in self.channels.values_mut().filter(|channel| channel.owner == owner) {
            channel.owner = DISOWNED;
        }
    }

    /// Puts a channel into the rotation of those with bytes to send.
    fn schedule(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number)
            && !channel.is_ready
            && channel.outgoing.has_work()
        {
            channel.is_ready = true;
            self.ready.push_back(number);
        }
    }

    /// Returns when [`Self::tick`], [`Self::pass_deferred`] and [`Self::transmit`] must be called.
    /// Bytes that can be sent at once have no deadline.
    pub fn deadline_ns(&self) -> Option<u64> {
        if !self.is_up {
            return Some(if self.answer.is_some() { 0 } else { self.hello_ns });
        }
        let now = (self.answer.is_some() || self.has_deferred()).then_some(0);
        let deadlines = [self.in_flight.deadline_ns(), self.ack_ns, self.spares_until_ns, now];
        deadlines.into_iter().flatten().min()
    }

    /// Returns whether pieces that had waited are to be passed on by [`Self::pass_deferred`].
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Returns whether the session has to send now although its link is dormant: bytes of
    /// connections, an answer to the peer, or more than 64 KiB of addresses. Addresses up to that
    /// wait until the link is awake.
    pub fn needs_link(&self) -> bool {
        let connects = || self.ready.iter().any(|channel| *channel != ADDRESSES);
        let is_owed = self.unacked > 0 || self.in_flight.deadline_ns().is_some();
        self.answer.is_some()
            || self.is_up && (is_owed || self.queued_all > DORMANT_BYTES_MAX || connects())
    }

    /// Handles deadlines of loss, probes, silence and unused memory that have passed;
    /// [`Self::transmit`] handles those of hellos and acknowledgements.
    pub fn tick(&mut self, now_ns: u64, random: &mut dyn FnMut() -> u32, out: &mut Received) {
        if self.spares_until_ns.is_some_and(|at| at <= now_ns) {
            self.release();
        }
        if !self.is_up || self.in_flight.deadline_ns().is_none_or(|at| at > now_ns) {
            return;
        }
        let mut outcome = Outcome::default();
        if !self.in_flight.tick(now_ns, &mut outcome) {
            return self.restart(now_ns, DownReason::Silent, random, out);
        }
        self.apply(now_ns, outcome);
    }

    /// Applies acknowledgements and losses to the channels.
    fn apply(&mut self, now_ns: u64, outcome: Outcome) {
        for (number, span) in outcome.acked {
            self.acked(now_ns, number, span);
        }
        for (number, span) in outcome.lost {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.outgoing.lose(span);
                self.schedule(number);
            }
        }
    }

    /// Applies the acknowledgement of a span.
    fn acked(&mut self, now_ns: u64, number: u32, span: Span) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let freed = channel.outgoing.ack(span);
        if let Some(spare) = channel.outgoing.take_spare()
            && self.spares.len() < SPARES_MAX
            && spare.capacity() <= SPARE_BYTES_MAX
        {
            self.spares.push(spare);
            self.spares_until_ns = Some(now_ns.saturating_add(SPARE_IDLE_NS));
        }
        let owner = channel.owner;
        if let Some(sum) = self.queued.get_mut(&owner) {
            *sum = sum.saturating_sub(freed);
            if *sum == 0 {
                self.queued.remove(&owner);
            }
        }
        self.queued_all = self.queued_all.saturating_sub(freed);
        self.schedule(number);
        self.remove_over(number);
    }

    /// Removes a channel that ended in both directions.
    fn remove_over(&mut self, number: u32) {
        let is_over = self
            .channels
            .get(&number)
            .is_some_and(|channel| channel.outgoing.is_done() && channel.incoming.is_over());
        if is_over
            && let Some(Channel { opener, .. }) = self.channels.remove(&number)
            && self.is_own(number)
        {
            self.own_channels = self.own_channels.saturating_sub(1);
            if let Some(count) = self.opened.get_mut(&opener) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.opened.remove(&opener);
                }
            }
        }
    }

    /// Returns whether the number is one of our channels.
    const fn is_own(&self, number: u32) -> bool {
        number & 1 == self.next_channel & 1
    }
}

/// Bytes that wait for a dormant link; 64 KiB.
const DORMANT_BYTES_MAX: usize = 64 << 10;
