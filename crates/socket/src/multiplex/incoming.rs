//! Bytes of a channel from the peer: put in order, and cut into messages.
//!
//! Bytes that arrive in order pass at once; bytes behind a gap wait. When the gap closes, the pieces
//! that waited are *deferred*: their messages pass within a budget, and bytes that arrive meanwhile
//! wait behind them. The bytes of all channels that wait, with 512 bytes for each piece, are bounded
//! together by the session, which passes in how many may be added. A message that has arrived in part
//! waits in the channel, at most [`MESSAGE_BYTES_MAX`]. Repeated bytes have no effect.
//! [`super::PeerSession`] alone calls; after [`Fault::Breach`] the session ends with the channel.

use std::collections::{BTreeMap, VecDeque};

use causeway_wire::multiplex::{LENGTH_LEN, MESSAGE_LEN};

use super::event::{MessageBytes, MessageMemory};
use crate::limits::{CHANNEL_WINDOW_BYTES, MESSAGE_BYTES_MAX};

/// Why bytes were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No room for bytes behind a gap or behind deferred ones: the peer sends them again.
    NoRoom,
    /// Bytes far behind the last byte in order, bytes behind the end, or a message that is too
    /// long or too short: the peer breaks the protocol.
    Breach,
}

/// A piece that waited, and the number of its bytes that an earlier piece had too.
type HeldPiece = (usize, Vec<u8>);

/// The receiving side of a channel.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Offset behind the last byte that arrived in order.
    next: u64,
    /// Pieces before `next` with messages that were not passed on yet, in order.
    deferred: VecDeque<HeldPiece>,
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

/// Bytes of the session's limit that a piece uses besides its bytes: more than its memory, so that a
/// datagram that closes gaps moves at most 16,000 pieces.
const PIECE_COST: usize = 512;

impl Incoming {
    /// Returns the offset behind the last byte that arrived in order.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether all messages up to the end were passed on.
    pub fn is_over(&self) -> bool {
        self.end == Some(self.next) && !self.has_deferred()
    }

    /// Returns whether pieces that are in order wait for [`Self::pass_deferred`].
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Takes a piece, and passes whole messages to `emit`, with their bytes in the datagram or in
    /// `memory`. Messages that had waited pass within `budget`, as in [`Self::pass_deferred`].
    /// Returns the bytes that wait more than before, or fewer if negative; at most `room` more.
    ///
    /// # Errors
    /// [`Fault`]; of a message that is too long, earlier messages have passed.
    pub fn take(
        &mut self,
        piece: ReceivedPiece<'_>,
        (room, budget): (usize, &mut usize),
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
        let known = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let fresh = bytes.get(known..).unwrap_or(&[]);
        let mut change = 0_isize;
        if self.has_deferred() && !fresh.is_empty() {
            let more = fresh.len().saturating_add(PIECE_COST);
            if more > room {
                return Err(Fault::NoRoom);
            }
            self.deferred.push_back((0, fresh.to_vec()));
            change = change.saturating_add_unsigned(more);
        } else {
            let place = |from: usize, to: usize| {
                let start = at.saturating_add(known);
                MessageBytes::InDatagram(start.saturating_add(from)..start.saturating_add(to))
            };
            self.pass(fresh, &mut memory.spares, place, &mut emit)?;
        }
        self.end = if last { Some(end) } else { self.end };
        self.next = self.next.saturating_add(fresh.len() as u64);
        let repeated = self.defer_held();
        let passed = self.pass_deferred(budget, memory, emit)?;
        Ok(change.saturating_sub_unsigned(repeated).saturating_sub_unsigned(passed))
    }

    /// Defers the pieces that had waited and are in order now. Returns the bytes of pieces that were
    /// repetitions, which wait no longer.
    fn defer_held(&mut self) -> usize {
        let mut repeated = 0_usize;
        while let Some(entry) = self.pieces.first_entry()
            && *entry.key() <= self.next
        {
            let (offset, held) = entry.remove_entry();
            let known = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX);
            let fresh = held.len().saturating_sub(known);
            if fresh == 0 {
                repeated = repeated.saturating_add(held.len()).saturating_add(PIECE_COST);
            } else {
                self.next = self.next.saturating_add(fresh as u64);
                self.deferred.push_back((known, held));
            }
        }
        repeated
    }

    /// Passes on deferred pieces while `budget` is above 0; each piece and each message takes 1 of it.
    /// A piece passes whole. Returns the bytes that wait no longer.
    ///
    /// # Errors
    /// [`Fault::Breach`]; earlier messages have passed.
    pub fn pass_deferred(
        &mut self,
        budget: &mut usize,
        memory: &mut MessageMemory,
        mut emit: impl FnMut(MessageBytes),
    ) -> Result<usize, Fault> {
        let mut freed = 0_usize;
        while *budget > 0
            && let Some((known, held)) = self.deferred.pop_front()
        {
            freed = freed.saturating_add(held.len()).saturating_add(PIECE_COST);
            *budget = budget.saturating_sub(1);
            let number = memory.held.len();
            let place = |from: usize, to: usize| {
                let at = known.saturating_add(from)..known.saturating_add(to);
                MessageBytes::InHeldPiece(number, at)
            };
            let mut counted = |message| {
                *budget = budget.saturating_sub(1);
                emit(message);
            };
            let fresh = held.get(known..).unwrap_or(&[]);
            let passed = self.pass(fresh, &mut memory.spares, place, &mut counted);
            memory.held.push(held);
            passed?;
        }
        if self.deferred.is_empty() {
            // Many small pieces need much memory, and the channel may last.
            self.deferred = VecDeque::new();
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
    const BUDGET: usize = 1024;

    /// Returns the bytes of the session's limit that wait.
    fn cost(incoming: &Incoming) -> isize {
        let deferred = incoming.deferred.iter().map(|(_, piece)| piece);
        let all = incoming.pieces.values().chain(deferred);
        all.map(|piece| (piece.len() + PIECE_COST) as isize).sum()
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
        incoming.take(piece, (room, &mut BUDGET.clone()), &mut MessageMemory::default(), |_| {})
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
        const COUNT: usize = 3 * BUDGET;
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
        held +=
            incoming.take(piece, (ROOM, &mut BUDGET.clone()), &mut memory, |_| got += 1).unwrap();
        while incoming.has_deferred() {
            assert!(!incoming.is_over() && got < COUNT);
            let before = got;
            held -= incoming.pass_deferred(&mut BUDGET.clone(), &mut memory, |_| got += 1).unwrap()
                as isize;
            // A piece of 1,000 bytes ends 84 messages at most.
            assert!(got - before < BUDGET + 84, "{}", got - before);
            calls += 1;
        }
        assert_eq!((got, held, calls), (COUNT, 0, 2));
        assert!(incoming.is_over());
    }

    #[test]
    fn multiplex_bytes_that_arrive_behind_deferred_ones_are_within_the_window() {
        const STEP: usize = 1200;
        let one = [&(MESSAGE_LEN as u16).to_be_bytes()[..], &[7; MESSAGE_LEN]].concat();
        let text = one.repeat(STEP * 200);
        assert!(text.len() > 2 * CHANNEL_WINDOW_BYTES);
        let (mut incoming, mut memory) = (Incoming::default(), MessageMemory::default());
        let (mut got, mut held) = (0, 0_isize);
        let mut take = |incoming: &mut Incoming, from: usize, got: &mut usize| {
            let bytes = &text[from..text.len().min(from + STEP)];
            let piece = ReceivedPiece { offset: from as u64, bytes, at: 0, last: false };
            incoming.take(piece, (ROOM, &mut 0), &mut memory, |_| *got += 1).unwrap()
        };
        held += take(&mut incoming, STEP, &mut got);
        held += take(&mut incoming, 0, &mut got);
        for from in (2 * STEP..text.len()).step_by(STEP) {
            held += take(&mut incoming, from, &mut got);
        }
        assert_eq!((got, incoming.next()), (STEP / 12, text.len() as u64));
        // A piece that finds no room has no effect.
        let piece = ReceivedPiece { offset: text.len() as u64, bytes: &[0], at: 0, last: true };
        let refused = incoming.take(piece, (PIECE_COST, &mut 0), &mut memory, |_| {});
        assert_eq!((refused, incoming.end), (Err(Fault::NoRoom), None));
        held -=
            incoming.pass_deferred(&mut ROOM.clone(), &mut memory, |_| got += 1).unwrap() as isize;
        assert_eq!((got, held), (STEP * 200, 0));
    }

    proptest! {
        /// Any cut of the bytes, in any order and with repetitions, yields the messages.
        #[test]
        fn multiplex_messages_survive_any_order_of_pieces(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), MESSAGE_LEN..300), 1..8),
            cuts in prop::collection::vec((0_usize..2000, 1_usize..400), 0..60),
            order: u64,
            budgets in prop::collection::vec(0_usize..4, 1..8),
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
            let mut budgets = budgets.into_iter().cycle();
            for (from, to) in pieces {
                let last = to == text.len();
                // The datagram has bytes before and behind the piece.
                let datagram = [&[1, 2, 3], &text[from..to], &[4]].concat();
                let piece = ReceivedPiece { offset: from as u64, bytes: &text[from..to], at: 3, last };
                let Received { events, memory } = &mut received;
                let emit = |message| events.push(PeerEvent::Message(0, message));
                let budget = &mut budgets.next().unwrap_or(0);
                held += incoming.take(piece, (ROOM, budget), memory, emit).unwrap();
                for event in &received.events {
                    let PeerEvent::Message(_, message) = event else { unreachable!() };
                    got.push(received.read(message, &datagram).to_vec());
                }
                received.clear();
                prop_assert_eq!(held, cost(&incoming));
            }
            let Received { events, memory } = &mut received;
            let emit = |message| events.push(PeerEvent::Message(0, message));
            held -= incoming.pass_deferred(&mut ROOM.clone(), memory, emit).unwrap() as isize;
            for event in &received.events {
                let PeerEvent::Message(_, message) = event else { unreachable!() };
                got.push(received.read(message, &[]).to_vec());
            }
            prop_assert_eq!(got, messages);
            prop_assert!(incoming.is_over() && held == 0);
        }
    }
}
