//! Bytes of a channel from the peer: put in order, and cut into messages.
//!
//! Bytes that arrive in order pass at once; bytes behind a gap wait, and pass in portions. The bytes of all channels that
//! wait, with 64 bytes for each piece, are bounded together by the session, which passes in how
//! many may be added. A message that has arrived in part waits in the channel, at most
//! [`MESSAGE_BYTES_MAX`]. Repeated bytes have no effect. [`super::PeerSession`] alone calls; after
//! [`Fault::Breach`] the session ends with the channel.

use std::collections::BTreeMap;

use causeway_wire::multiplex::{LENGTH_LEN, MESSAGE_LEN};

use super::event::{MessageBytes, MessageMemory};
use crate::limits::{CHANNEL_WINDOW_BYTES, HELD_MESSAGES_PER_CALL, MESSAGE_BYTES_MAX};

/// Why bytes were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No room for bytes behind a gap: the peer sends them again.
    NoRoom,
    /// Bytes far behind the last byte in order, bytes behind the end, or a message that is too
    /// long or too short: the peer breaks the protocol.
    Breach,
}

/// The receiving side of a channel.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Offset of the next byte in order.
    next: u64,
    /// Bytes behind a gap, by their offset.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Greatest end of all bytes that ever waited behind a gap.
    reach: u64,
    /// Offset at which the channel ends.
    end: Option<u64>,
    /// The beginning of a message, with its length.
    partial: Vec<u8>,
}

/// Bytes of a channel that a datagram carries.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedPiece<'a> {
    /// Offset of the first byte in the channel.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Index of the first byte in the datagram.
    pub at: usize,
    /// The channel ends behind the bytes.
    pub last: bool,
}

/// Bytes of the session's limit that a piece uses besides its bytes.
const PIECE_COST: usize = 64;

impl Incoming {
    /// Returns the offset of the next byte in order.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether all bytes up to the end have passed.
    pub fn is_over(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Takes a piece, and passes each whole message to `emit`, with its bytes in the datagram or in
    /// `memory`. Returns the bytes that are held behind gaps more than before, or fewer if negative;
    /// at most `room` more.
    ///
    /// # Errors
    /// [`Fault`]; of a message that is too long, earlier messages have passed.
    pub fn take(
        &mut self,
        piece: ReceivedPiece<'_>,
        room: usize,
        memory: &mut MessageMemory,
        mut emit: impl FnMut(MessageBytes),
    ) -> Result<isize, Fault> {
        let ReceivedPiece { offset, bytes, at, last } = piece;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Fault::Breach)?;
        let is_far = end > self.next.saturating_add(CHANNEL_WINDOW_BYTES as u64);
        let is_behind = self.end.is_some_and(|known| end > known || (last && end != known));
        let is_early = last && self.reach > end;
        if is_far || is_behind || is_early || (last && end < self.next) {
            return Err(Fault::Breach);
        }
        if offset > self.next {
            let change = self.hold(offset, bytes, room)?;
            self.end = if last { Some(end) } else { self.end };
            return Ok(change);
        }
        if last {
            self.end = Some(end);
        }
        let known = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let fresh = bytes.get(known..).unwrap_or(&[]);
        let in_datagram = |from: usize, to: usize| {
            let start = at.saturating_add(known);
            MessageBytes::InDatagram(start.saturating_add(from)..start.saturating_add(to))
        };
        self.pass(fresh, &mut memory.spares, in_datagram, &mut emit)?;
        Ok(0_isize.saturating_sub_unsigned(self.pass_held(memory, emit)?))
    }

    /// Returns whether pieces that had waited are in order now.
    pub fn has_deferred(&self) -> bool {
        self.pieces.first_key_value().is_some_and(|(at, _)| *at <= self.next)
    }

    /// Passes on pieces that had waited and are in order, until they had [`HELD_MESSAGES_PER_CALL`]
    /// messages or more. Returns the bytes that wait no longer.
    ///
    /// # Errors
    /// [`Fault::Breach`]; earlier messages have passed.
    pub fn pass_held(
        &mut self,
        memory: &mut MessageMemory,
        mut emit: impl FnMut(MessageBytes),
    ) -> Result<usize, Fault> {
        let (mut freed, mut messages) = (0_usize, 0_usize);
        while messages < HELD_MESSAGES_PER_CALL
            && let Some(entry) = self.pieces.first_entry()
            && *entry.key() <= self.next
        {
            let (offset, held) = entry.remove_entry();
            freed = freed.saturating_add(held.len()).saturating_add(PIECE_COST);
            let known = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX);
            let fresh = held.get(known..).unwrap_or(&[]);
            let number = memory.held.len();
            let in_piece = |from: usize, to: usize| {
                let at = known.saturating_add(from)..known.saturating_add(to);
                MessageBytes::InHeldPiece(number, at)
            };
            let mut counted = |message| {
                messages = messages.saturating_add(1);
                emit(message);
            };
            let passed = self.pass(fresh, &mut memory.spares, in_piece, &mut counted);
            memory.held.push(held);
            passed?;
        }
        Ok(freed)
    }

    /// Keeps bytes behind a gap. A piece at the same offset that is at least as long makes them
    /// unnecessary.
    fn hold(&mut self, offset: u64, bytes: &[u8], room: usize) -> Result<isize, Fault> {
        let known = self.pieces.get(&offset).map(Vec::len);
        if bytes.is_empty() || known.is_some_and(|len| len >= bytes.len()) {
            return Ok(0);
        }
        let more = match known {
            Some(len) => bytes.len().saturating_sub(len),
            None => bytes.len().saturating_add(PIECE_COST),
        };
        if more > room {
            return Err(Fault::NoRoom);
        }
        self.reach = self.reach.max(offset.saturating_add(bytes.len() as u64));
        self.pieces.insert(offset, bytes.to_vec());
        Ok(0_isize.saturating_add_unsigned(more))
    }

    /// Passes bytes that are in order. `place` returns a message that the bytes have whole, from its
    /// first and behind its last index.
    fn pass(
        &mut self,
        bytes: &[u8],
        spares: &mut Vec<Vec<u8>>,
        place: impl Fn(usize, usize) -> MessageBytes,
        emit: &mut impl FnMut(MessageBytes),
    ) -> Result<(), Fault> {
        self.next = self.next.saturating_add(bytes.len() as u64);
        let mut left = bytes;
        while !left.is_empty() {
            if self.partial.is_empty()
                && let Some((length, body)) = left.split_first_chunk::<LENGTH_LEN>()
            {
                let len = length_of(*length)?;
                if let Some((_, rest)) = body.split_at_checked(len) {
                    let to = bytes.len().saturating_sub(rest.len());
                    emit(place(to.saturating_sub(len), to));
                    left = rest;
                    continue;
                }
                self.reserve(LENGTH_LEN.saturating_add(len), spares);
            }
            let wanted = match self.partial.first_chunk::<LENGTH_LEN>() {
                Some(length) => length_of(*length)?.saturating_add(LENGTH_LEN),
                None => LENGTH_LEN,
            };
            self.reserve(wanted, spares);
            let missing = wanted.saturating_sub(self.partial.len()).min(left.len());
            let (now, rest) = left.split_at_checked(missing).unwrap_or((left, &[]));
            self.partial.extend_from_slice(now);
            left = rest;
            if let Some((length, body)) = self.partial.split_first_chunk::<LENGTH_LEN>()
                && body.len() == length_of(*length)?
            {
                emit(MessageBytes::Collected(std::mem::take(&mut self.partial)));
            }
        }
        Ok(())
    }

    /// Provides memory for `len` bytes of a message that crosses in several pieces.
    fn reserve(&mut self, len: usize, spares: &mut Vec<Vec<u8>>) {
        if self.partial.capacity() == 0 {
            self.partial = spares.pop().unwrap_or_default();
            self.partial.clear();
        }
        self.partial.reserve_exact(len.saturating_sub(self.partial.len()));
    }
}

/// Returns the length of a message. Shorter messages than the shortest socket packet are refused,
/// because each message costs the shard an event.
fn length_of(length: [u8; LENGTH_LEN]) -> Result<usize, Fault> {
    let len = usize::from(u16::from_be_bytes(length));
    if (MESSAGE_LEN..=MESSAGE_BYTES_MAX).contains(&len) { Ok(len) } else { Err(Fault::Breach) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::multiplex::event::{PeerEvent, Received};

    const ROOM: usize = usize::MAX / 4;

    /// Returns the bytes of the session's limit that wait behind gaps.
    fn cost(incoming: &Incoming) -> isize {
        incoming.pieces.values().map(|piece| (piece.len() + PIECE_COST) as isize).sum()
    }

    /// Passes a piece to a channel, and ignores the messages.
    fn take(
        incoming: &mut Incoming,
        offset: u64,
        bytes: &[u8],
        last: bool,
        room: usize,
    ) -> Result<isize, Fault> {
        let piece = ReceivedPiece { offset, bytes, at: 0, last };
        incoming.take(piece, room, &mut MessageMemory::default(), |_| {})
    }

    #[test]
    fn hostile_pieces_break_the_protocol() {
        let mut incoming = Incoming::default();
        let far = CHANNEL_WINDOW_BYTES as u64;
        assert_eq!(take(&mut incoming, far, &[0], false, ROOM), Err(Fault::Breach));
        assert_eq!(take(&mut incoming, u64::MAX, &[0], false, ROOM), Err(Fault::Breach));
        assert_eq!(take(&mut incoming, 5, &[0], false, PIECE_COST), Err(Fault::NoRoom));
        assert_eq!(take(&mut incoming, 0, &[0xff, 0xff], false, ROOM), Err(Fault::Breach));
        let mut incoming = Incoming::default();
        // A message without data has 10 bytes.
        assert_eq!(take(&mut incoming, 0, &[0, 9], false, ROOM), Err(Fault::Breach));
        let mut incoming = Incoming::default();
        take(&mut incoming, 8, &[0; 4], false, ROOM).unwrap();
        // A piece that reaches less far is held later.
        take(&mut incoming, 7, &[0], false, ROOM).unwrap();
        assert_eq!(take(&mut incoming, 6, &[0, 0], true, ROOM), Err(Fault::Breach));
        take(&mut incoming, 0, &[0, 10, 0, 0, 0, 0, 0, 0], false, ROOM).unwrap();
        take(&mut incoming, 12, &[], true, ROOM).unwrap();
        assert!(incoming.is_over());
        assert_eq!(take(&mut incoming, 12, &[0], false, ROOM), Err(Fault::Breach));
    }

    #[test]
    fn multiplex_messages_behind_a_gap_pass_in_portions() {
        const COUNT: usize = 3 * HELD_MESSAGES_PER_CALL;
        let one = [&(MESSAGE_LEN as u16).to_be_bytes()[..], &[7; MESSAGE_LEN]].concat();
        let text = one.repeat(COUNT);
        let (mut incoming, mut memory) = (Incoming::default(), MessageMemory::default());
        let (mut got, mut held, mut calls) = (0, 0_isize, 0);
        for from in (1..text.len()).step_by(1000) {
            let to = text.len().min(from + 1000);
            held +=
                take(&mut incoming, from as u64, &text[from..to], to == text.len(), ROOM).unwrap();
        }
        let piece = ReceivedPiece { offset: 0, bytes: &text[..1], at: 0, last: false };
        held += incoming.take(piece, ROOM, &mut memory, |_| got += 1).unwrap();
        while incoming.has_deferred() {
            assert!(!incoming.is_over() && got < COUNT);
            let before = got;
            held -= incoming.pass_held(&mut memory, |_| got += 1).unwrap() as isize;
            // A piece of 1,000 bytes ends 84 messages at most.
            assert!(got - before < HELD_MESSAGES_PER_CALL + 84, "{}", got - before);
            calls += 1;
        }
        assert_eq!((got, held, calls), (COUNT, 0, 2));
        assert!(incoming.is_over());
    }

    proptest! {
        /// Any cut of the bytes, in any order and with repetitions, yields the messages.
        #[test]
        fn multiplex_messages_survive_any_order_of_pieces(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), MESSAGE_LEN..300), 1..8),
            cuts in prop::collection::vec((0_usize..2000, 1_usize..400), 0..60),
            order: u64,
        ) {
            let mut text = Vec::new();
            for message in &messages {
                text.extend((message.len() as u16).to_be_bytes());
                text.extend(message);
            }
            let mut pieces: Vec<(usize, usize)> = (0..text.len()).step_by(97)
                .map(|at| (at, text.len().min(at + 97))).collect();
            pieces.extend(cuts.iter().map(|(at, len)| (at % text.len(), text.len().min(at % text.len() + len))));
            let mut state = order | 1;
            for at in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(at, (state >> 33) as usize % (at + 1));
            }
            let (mut incoming, mut got, mut held) = (Incoming::default(), Vec::new(), 0_isize);
            let mut received = Received::default();
            for (from, to) in pieces {
                let last = to == text.len();
                // The datagram has bytes before and behind the piece.
                let datagram = [&[1, 2, 3], &text[from..to], &[4]].concat();
                let piece = ReceivedPiece { offset: from as u64, bytes: &text[from..to], at: 3, last };
                let Received { events, memory } = &mut received;
                let emit = |message| events.push(PeerEvent::Message(0, message));
                held += incoming.take(piece, ROOM, memory, emit).unwrap();
                for event in &received.events {
                    let PeerEvent::Message(_, message) = event else { unreachable!() };
                    got.push(received.read(message, &datagram).to_vec());
                }
                received.clear();
                prop_assert_eq!(held, cost(&incoming));
            }
            prop_assert_eq!(got, messages);
            prop_assert!(incoming.is_over() && held == 0);
        }
    }
}
