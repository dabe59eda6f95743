//! The sending side of a session: the next datagram, with hellos, acknowledgements and pieces.
//!
//! `socket::remote` calls [`PeerSession::transmit_parts`] until nothing is to be sent; the congestion
//! window (`multiplex::congestion`) bounds the bytes in flight, and the caller the datagrams of a
//! turn. Channels with bytes take turns.

use causeway_wire::multiplex::{
    Hello, PACKET_LEN, PIECE_LEN, Packet, Piece, Ranges as AckRanges, VERSION,
};

use super::PeerSession;
use crate::limits::{ACK_RANGES_MAX, HELD_MESSAGES_PER_TURN, HELLO_NS_MAX};
use crate::multiplex::loss::PacketSpans;

impl PeerSession {
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
        // Datagrams are sent at the end of a turn.
        self.budget = HELD_MESSAGES_PER_TURN;
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
}

/// Shortest datagram that carries pieces: a header, an acknowledgement, and some bytes.
const DATAGRAM_MIN: usize = 128;
/// Time after which an acknowledgement is tried again if the link had no path; 10 ms.
const PATHLESS_NS: u64 = 10_000_000;
/// Shortest piece that is appended behind others.
const PIECE_BYTES_MIN: usize = 32;
