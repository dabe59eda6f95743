//! The receiving side of a session: datagrams of the peer, and pieces that had waited behind a gap.
//!
//! Each datagram is processed whole. It may close gaps in many channels; up to 1 MiB may wait behind
//! each. The messages of these bytes pass within a budget ([`HELD_MESSAGES_PER_TURN`]), so that a peer
//! with many small messages does not occupy the shard; [`PeerSession::pass_deferred`] and
//! [`PeerSession::transmit`] renew the budget. A session that ends drops the messages that wait.

use causeway_wire::multiplex::{
    ADDRESSES, Datagram, Frame, Hello, Packet, Piece, Ranges as AckRanges, VERSION, expand,
};

use super::{Channel, PeerSession};
use crate::limits::{
    ACK_DELAY_NS, CHANNELS_MAX, HELD_BYTES_MAX, HELD_MESSAGES_PER_TURN, HELLO_NS_MIN, UNOPENED_MAX,
};
use crate::multiplex::event::{DownReason, MessageBytes, PacketRefusal, PeerEvent, Received};
use crate::multiplex::incoming::{Fault, ReceivedPiece};
use crate::multiplex::loss::Outcome;

impl PeerSession {
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
        let room = HELD_BYTES_MAX.saturating_sub(self.held);
        let offset = expand(piece.offset, channel.incoming.next()).ok_or(PacketRefusal::Breach)?;
        let Received { events, memory } = out;
        let emit = message_sink(events, number, channel.outgoing.is_ended());
        let at = end.saturating_sub(piece.bytes.len());
        let piece = ReceivedPiece { offset, bytes: piece.bytes, at, last: piece.last };
        let limits = (room, &mut self.budget);
        let taken = channel.incoming.take(piece, limits, memory, emit);
        let change = taken.map_err(refusal)?;
        self.held = self.held.saturating_add_signed(change);
        self.finish_pass(number, was_over, out)
    }

    /// Passes on deferred pieces of the channels in rotation, within a new budget. A breach of the
    /// protocol restarts the session.
    pub fn pass_deferred(
        &mut self,
        now_ns: u64,
        random: &mut dyn FnMut() -> u32,
        out: &mut Received,
    ) {
        self.budget = HELD_MESSAGES_PER_TURN;
        if self.pass_within_budget(out).is_err() {
            self.restart(now_ns, DownReason::Breach, random, out);
        }
    }

    /// Passes on deferred pieces until the budget is used.
    fn pass_within_budget(&mut self, out: &mut Received) -> Result<(), PacketRefusal> {
        while self.budget > 0
            && let Some(number) = self.deferred.pop_front()
        {
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.is_deferred = false;
            let was_over = channel.incoming.is_over();
            let Received { events, memory } = &mut *out;
            let emit = message_sink(events, number, channel.outgoing.is_ended());
            let passed = channel.incoming.pass_deferred(&mut self.budget, memory, emit);
            self.held = self.held.saturating_sub(passed.map_err(refusal)?);
            self.finish_pass(number, was_over, out)?;
        }
        Ok(())
    }

    /// Puts a channel with deferred pieces into the rotation, and notes the end of a channel, after
    /// pieces of the channel were passed on.
    fn finish_pass(
        &mut self,
        number: u32,
        was_over: bool,
        out: &mut Received,
    ) -> Result<(), PacketRefusal> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        if channel.incoming.has_deferred() && !std::mem::replace(&mut channel.is_deferred, true) {
            self.deferred.push_back(number);
        }
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

/// Returns the function that appends messages of a channel to `events`. Messages of a channel that was
/// ended here (`is_ended`) are dropped.
fn message_sink(
    events: &mut Vec<PeerEvent>,
    number: u32,
    is_ended: bool,
) -> impl FnMut(MessageBytes) {
    move |message| {
        if !is_ended {
            events.push(PeerEvent::Message(number, message));
        }
    }
}

/// Returns the refusal of a packet with a faulty piece.
const fn refusal(fault: Fault) -> PacketRefusal {
    match fault {
        Fault::NoRoom => PacketRefusal::NoRoom,
        Fault::Breach => PacketRefusal::Breach,
    }
}

/// Ranges of received packets that are remembered.
const RECEIVED_RANGES_MAX: usize = 64;
