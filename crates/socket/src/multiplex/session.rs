//! A session: agreement with the peer, packets, acknowledgements, and the channels.
//!
//! The caller passes received datagrams to [`PeerSession::receive`], and takes datagrams to send
//! from [`PeerSession::transmit`]. [`PeerSession::deadline_ns`] returns when to call
//! [`PeerSession::tick`]. Events are appended to [`Received`], which the caller clears. The channels
//! of one side have odd numbers and those of the other even numbers: odd those of the side with the
//! smaller tag. Channel 0 carries addresses, and is open in both directions while the session lasts.
//! Each number is used once in a session.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;

use causeway_fabric::keyed::{Keyed, keyed};
use causeway_wire::multiplex::{
    ADDRESSES, Datagram, Frame, Hello, PACKET_LEN, PIECE_LEN, Packet, Piece, Ranges as AckRanges,
    VERSION, expand,
};

use super::byte_ring::ByteRing;
use super::event::{DownReason, MessageBytes, PacketRefusal, PeerEvent, Received};
use super::incoming::{Fault, Incoming, ReceivedPiece};
use super::loss::{InFlight, Outcome, PacketSpans};
use super::outgoing::{Outgoing, Span};
use super::ranges::Ranges;
use crate::limits::{
    ACK_DELAY_NS, ACK_RANGES_MAX, CHANNELS_MAX, CHANNELS_PER_OWNER_MAX, HELD_BYTES_MAX,
    HELLO_NS_MAX, HELLO_NS_MIN, SPARE_BYTES_MAX, SPARE_IDLE_NS, SPARES_MAX, UNOPENED_MAX,
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
    /// Bytes that wait behind gaps.
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
    /// Bytes that wait behind gaps.
    held: usize,
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
        let [head, mut body] = parts;
        let copied: Result<(), Infallible> =
            self.send_with(number, owner, head, body.len(), |into| {
                if let Some((now, later)) = body.split_at_checked(into.len()) {
                    into.copy_from_slice(now);
                    body = later;
                }
                Ok(())
            });
        copied.unwrap_or_else(|never| match never {});
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

    /// Returns when [`Self::tick`] and [`Self::transmit`] must be called. Bytes that can be sent at
    /// once have no deadline.
    pub fn deadline_ns(&self) -> Option<u64> {
        if !self.is_up {
            return Some(if self.answer.is_some() { 0 } else { self.hello_ns });
        }
        let answer = self.answer.map(|_| 0);
        let deadlines = [self.in_flight.deadline_ns(), self.ack_ns, self.spares_until_ns, answer];
        deadlines.into_iter().flatten().min()
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

    /// Writes the next datagram, of at most `longest` bytes, to `out`, which is cleared before.
    /// Returns false if nothing is to be sent now; with `longest` below 128 only hellos are sent.
    pub fn transmit(&mut self, now_ns: u64, longest: usize, out: &mut Vec<u8>) -> bool {
        let is_sent = self.begin_datagram(now_ns, longest, out);
        let body = self.body();
        out.extend_from_slice(body);
        is_sent
    }

    /// As [`Self::transmit`], without a copy of the datagram's end: `head` gets its beginning, and
    /// `send` both parts.
    pub fn transmit_parts(
        &mut self,
        now_ns: u64,
        longest: usize,
        head: &mut Vec<u8>,
        send: impl FnOnce(&[u8], &[u8]),
    ) -> bool {
        let is_sent = self.begin_datagram(now_ns, longest, head);
        if is_sent {
            send(head, self.body());
        }
        is_sent
    }

    /// Returns the bytes behind the beginning of the last datagram.
    fn body(&self) -> &[u8] {
        let Some((number, span)) = self.body else { return &[] };
        self.channels.get(&number).map_or(&[], |channel| channel.outgoing.slices(span).1)
    }

    /// Writes the beginning of the next datagram to `out`, and notes its end in `body`. Returns false
    /// if nothing is to be sent now.
    fn begin_datagram(&mut self, now_ns: u64, longest: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.body = None;
        if let Some(asks) = self.answer.take() {
            self.emit_hello(asks, out);
            return true;
        }
        if !self.is_up {
            if self.hello_ns > now_ns {
                return false;
            }
            self.hello_ns = now_ns.saturating_add(self.hello_pause_ns);
            self.hello_pause_ns = self.hello_pause_ns.saturating_mul(2).min(HELLO_NS_MAX);
            self.emit_hello(true, out);
            return true;
        }
        let sends = !self.ready.is_empty() && self.in_flight.has_room();
        let acks = self.unacked > 0 && (sends || self.ack_ns.is_some_and(|at| at <= now_ns));
        if !(sends || acks) {
            return false;
        }
        if longest < DATAGRAM_MIN {
            // The link has no path now. A deadline that has passed would be served without end.
            self.ack_ns = self.ack_ns.map(|at| at.max(now_ns.saturating_add(PATHLESS_NS)));
            return false;
        }
        let [.., a, b, c, d] = self.in_flight.next_number().to_be_bytes();
        let number = u32::from_be_bytes([a, b, c, d]);
        out.extend(Packet::header(self.peer.unwrap_or(0), number));
        if acks {
            let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
            let ranges = self.received.iter().rev().take(ACK_RANGES_MAX);
            let ranges = ranges.map(|(from, to)| (low(from), low(to.saturating_sub(1))));
            let room = longest.saturating_sub(PACKET_LEN) / 16;
            AckRanges::emit(ranges.take(room.max(1)), out);
            (self.ack_ns, self.unacked) = (None, 0);
        }
        let (len, spans) = if sends { self.emit_pieces(longest, out) } else { Default::default() };
        self.in_flight.sent(now_ns, len, spans);
        true
    }

    /// Appends a hello.
    fn emit_hello(&self, asks: bool, out: &mut Vec<u8>) {
        let (source, destination) = (self.tag, self.peer.unwrap_or(0));
        out.extend(Hello { version: VERSION, asks, source, destination }.emit());
    }

    /// Appends pieces of channels in rotation, until the datagram has `longest` bytes. The bytes of the
    /// last piece, or their end, are left to `body`. Returns the length of the datagram, and the
    /// pieces.
    fn emit_pieces(&mut self, longest: usize, out: &mut Vec<u8>) -> (usize, PacketSpans) {
        let (mut spans, mut len) = (PacketSpans::default(), out.len());
        while let Some(number) = self.ready.front().copied() {
            let room = longest.saturating_sub(len).saturating_sub(PIECE_LEN);
            if room < PIECE_BYTES_MIN && !spans.is_empty() || room == 0 {
                break;
            }
            // Another piece follows the one that was the last.
            let body = self.body();
            out.extend_from_slice(body);
            self.body = None;
            self.ready.pop_front();
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.is_ready = false;
            let Some(span) = channel.outgoing.next(room.min(usize::from(u16::MAX))) else {
                continue;
            };
            let bytes = u16::try_from(span.to.saturating_sub(span.from)).unwrap_or(u16::MAX);
            let offset = u32::try_from(span.from & u64::from(u32::MAX)).unwrap_or(0);
            out.extend_from_slice(&Piece::header(number, offset, span.last, bytes));
            out.extend_from_slice(channel.outgoing.slices(span).0);
            self.body = Some((number, span));
            len = len.saturating_add(PIECE_LEN).saturating_add(usize::from(bytes));
            spans.push(number, span);
            if channel.outgoing.has_work() {
                channel.is_ready = true;
                self.ready.push_back(number);
            }
        }
        (len, spans)
    }

    /// Processes a datagram of the peer.
    ///
    /// # Errors
    /// [`PacketRefusal`]: the datagram, or a part of it, had no effect.
    pub fn receive(
        &mut self,
        now_ns: u64,
        datagram: &[u8],
        random: &mut dyn FnMut() -> u32,
        out: &mut Received,
    ) -> Result<(), PacketRefusal> {
        match Datagram::parse(datagram)? {
            Datagram::Hello(hello) => self.agree(now_ns, &hello, random, out),
            Datagram::Packet(packet) => {
                let taken = self.take_packet(now_ns, (datagram.len(), &packet), out);
                if taken == Err(PacketRefusal::Breach) {
                    self.restart(now_ns, DownReason::Breach, random, out);
                }
                taken
            }
        }
    }

    /// Processes a hello.
    fn agree(
        &mut self,
        now_ns: u64,
        hello: &Hello,
        random: &mut dyn FnMut() -> u32,
        out: &mut Received,
    ) -> Result<(), PacketRefusal> {
        if hello.version != VERSION {
            if self.is_up {
                // Another daemon took the place of the peer's, and knows nothing of this session.
                self.check_pause(now_ns)?;
                self.restart(now_ns, DownReason::Peer, random, out);
            }
            return Err(PacketRefusal::Version(hello.version));
        }
        if hello.source == 0 {
            return Err(PacketRefusal::Foreign);
        }
        let is_known = self.peer == Some(hello.source);
        let is_mine = hello.destination == self.tag;
        if self.is_up && is_known && (is_mine || hello.destination == 0) {
            // The peer has not received our hello yet.
            self.answer = self.answer.or(hello.asks.then_some(false));
            return Ok(());
        }
        if self.is_up {
            // The peer is in no session with us. It repeats its hello.
            self.check_pause(now_ns)?;
            self.restart(now_ns, DownReason::Peer, random, out);
        }
        self.peer = Some(hello.source);
        if is_mine && hello.destination == self.tag {
            self.begin(now_ns, out)?;
            self.answer = hello.asks.then_some(false);
        } else {
            self.answer = Some(true);
        }
        Ok(())
    }

    /// Checks that the last session began at least [`HELLO_NS_MIN`] (250 ms) ago: each session costs
    /// the shard its connections, addresses and log lines.
    fn check_pause(&self, now_ns: u64) -> Result<(), PacketRefusal> {
        let is_early = self.began_ns.is_some_and(|at| now_ns < at.saturating_add(HELLO_NS_MIN));
        if is_early { Err(PacketRefusal::Early) } else { Ok(()) }
    }

    /// Begins the session with the known peer.
    fn begin(&mut self, now_ns: u64, out: &mut Received) -> Result<(), PacketRefusal> {
        self.check_pause(now_ns)?;
        self.began_ns = Some(now_ns);
        let is_lower = self.peer.is_some_and(|peer| self.tag < peer);
        let numbers = if is_lower { (1, 2) } else { (2, 1) };
        (self.next_channel, self.next_peer_channel) = numbers;
        self.is_up = true;
        self.channels.insert(ADDRESSES, Channel::default());
        out.events.push(PeerEvent::Up);
        Ok(())
    }

    /// Processes a packet, which is the end of a datagram of `datagram_len` bytes.
    fn take_packet(
        &mut self,
        now_ns: u64,
        (datagram_len, packet): (usize, &Packet<'_>),
        out: &mut Received,
    ) -> Result<(), PacketRefusal> {
        if packet.tag != self.tag || self.peer.is_none() {
            return Err(PacketRefusal::Foreign);
        }
        if !self.is_up {
            // Only the known peer knows our tag; its hello was lost.
            self.begin(now_ns, out)?;
        }
        let next = self.received.iter().next_back().map_or(0, |(_, end)| end);
        let number = expand(packet.number, next).ok_or(PacketRefusal::Breach)?;
        if number < self.floor || self.received.contains(number) {
            self.ack_ns = Some(now_ns);
            self.unacked = self.unacked.max(1);
            return Ok(());
        }
        let mut frames = packet.frames;
        let mut elicits = false;
        while let Some(frame) = Frame::next(&mut frames)? {
            match frame {
                Frame::Ack(ranges) => self.take_ack(now_ns, ranges)?,
                Frame::Piece(piece) => {
                    elicits = true;
                    let end = datagram_len.saturating_sub(frames.len());
                    self.take_piece(&piece, end, out)?;
                }
            }
        }
        self.received.insert(number, number.saturating_add(1));
        self.received.keep_last(RECEIVED_RANGES_MAX);
        let first = self.received.iter().next().map_or(0, |(from, _)| from);
        if self.received.iter().count() >= RECEIVED_RANGES_MAX {
            self.floor = self.floor.max(first);
        }
        if elicits {
            self.unacked = self.unacked.saturating_add(1);
            let soon = self.unacked >= 2 || number != next;
            let due = if soon { now_ns } else { now_ns.saturating_add(ACK_DELAY_NS) };
            self.ack_ns = Some(self.ack_ns.map_or(due, |at| at.min(due)));
        }
        Ok(())
    }

    /// Processes an acknowledgement.
    fn take_ack(&mut self, now_ns: u64, ranges: AckRanges<'_>) -> Result<(), PacketRefusal> {
        let near = self.in_flight.next_number();
        let whole = ranges.iter().map(|(from, to)| Some((expand(from, near)?, expand(to, near)?)));
        let mut outcome = Outcome::default();
        let taken = self.in_flight.acknowledge(now_ns, whole, &mut outcome);
        self.apply(now_ns, outcome);
        taken.map_err(|_| PacketRefusal::Breach)
    }

    /// Processes bytes of a channel that end at index `end` of the datagram.
    fn take_piece(
        &mut self,
        piece: &Piece<'_>,
        end: usize,
        out: &mut Received,
    ) -> Result<(), PacketRefusal> {
        let number = piece.channel;
        if !self.channels.contains_key(&number) && !self.accept(number)? {
            // The channel has ended.
            return Ok(());
        }
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let was_over = channel.incoming.is_over();
        let is_ended = channel.outgoing.is_ended();
        let room = HELD_BYTES_MAX.saturating_sub(self.held);
        let offset = expand(piece.offset, channel.incoming.next()).ok_or(PacketRefusal::Breach)?;
        let Received { events, memory } = out;
        let emit = |message: MessageBytes| {
            if !is_ended {
                events.push(PeerEvent::Message(number, message));
            }
        };
        let at = end.saturating_sub(piece.bytes.len());
        let piece = ReceivedPiece { offset, bytes: piece.bytes, at, last: piece.last };
        let taken = channel.incoming.take(piece, room, memory, emit);
        let change = taken.map_err(|fault| match fault {
            Fault::NoRoom => PacketRefusal::NoRoom,
            Fault::Breach => PacketRefusal::Breach,
        })?;
        self.held = self.held.saturating_add_signed(change);
        if channel.incoming.is_over() && !was_over {
            if number == ADDRESSES {
                return Err(PacketRefusal::Breach);
            }
            out.events.push(PeerEvent::Ended(number));
            self.remove_over(number);
        }
        Ok(())
    }

    /// Accepts a channel that the peer opens. Returns false if the channel has ended. Lower numbers
    /// may follow, because packets may overtake each other.
    fn accept(&mut self, number: u32) -> Result<bool, PacketRefusal> {
        if self.is_own(number) {
            // Numbers that were never used are no channels.
            return if number < self.next_channel { Ok(false) } else { Err(PacketRefusal::Breach) };
        }
        let begin = self.next_peer_channel;
        if number < begin {
            if !self.unopened.remove(&number) {
                return Ok(false);
            }
        } else {
            let gap = (number.saturating_sub(begin) / 2) as usize;
            let live = self.channels.len().saturating_sub(self.own_channels);
            let is_full = live >= CHANNELS_MAX.saturating_mul(2);
            if is_full || gap.saturating_add(self.unopened.len()) > UNOPENED_MAX {
                return Err(PacketRefusal::NoRoom);
            }
            self.unopened.extend((begin..number).step_by(2));
            self.next_peer_channel = number.checked_add(2).ok_or(PacketRefusal::Breach)?;
        }
        self.channels.insert(number, Channel::default());
        Ok(true)
    }
}

/// Bytes that wait for a dormant link; 64 KiB.
const DORMANT_BYTES_MAX: usize = 64 << 10;
/// Shortest datagram that carries pieces: a header, an acknowledgement, and some bytes.
const DATAGRAM_MIN: usize = 128;
/// Time after which an acknowledgement is tried again if the link had no path; 10 ms.
const PATHLESS_NS: u64 = 10_000_000;
/// Shortest piece that is appended behind others.
const PIECE_BYTES_MIN: usize = 32;
/// Ranges of received packets that are remembered.
const RECEIVED_RANGES_MAX: usize = 64;
