//! Bytes of a channel from the peer: put in order, and cut into messages.
//!
//! Bytes that arrive in order pass at once; bytes behind a gap wait. The bytes of all channels that
//! wait, with 64 bytes for each piece, are bounded together by the session, which passes in how
//! many may be added. A message that has arrived in part waits in the channel, at most
//! [`MESSAGE_BYTES_MAX`]. Repeated bytes have no effect. [`super::PeerSession`] alone calls; after
//! [`Fault::Breach`] the session ends with the channel.

use std::collections::BTreeMap;

use causeway_wire::multiplex::{LENGTH_LEN, MESSAGE_LEN};

use crate::limits::{CHANNEL_WINDOW_BYTES, MESSAGE_BYTES_MAX};

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

    /// Takes bytes at `offset`, and passes each whole message to `emit`. Returns the bytes that are
    /// held behind gaps more than before, or fewer if negative; at most `room` more.
    ///
    /// # Errors
    /// [`Fault`]; of a message that is too long, earlier messages have passed.
    pub fn take(
        &mut self,
        offset: u64,
        bytes: &[u8],
        last: bool,
        room: usize,
        mut emit: impl FnMut(&[u8]),
    ) -> Result<isize, Fault> {
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
        self.pass(bytes.get(known..).unwrap_or(&[]), &mut emit)?;
        let mut freed = 0_isize;
        while let Some(entry) = self.pieces.first_entry()
            && *entry.key() <= self.next
        {
            let (at, piece) = entry.remove_entry();
            freed = freed.saturating_add_unsigned(piece.len().saturating_add(PIECE_COST));
            let known = usize::try_from(self.next.saturating_sub(at)).unwrap_or(usize::MAX);
            self.pass(piece.get(known..).unwrap_or(&[]), &mut emit)?;
        }
        Ok(freed.saturating_neg())
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

    /// Passes bytes that are in order.
    fn pass(&mut self, mut bytes: &[u8], emit: &mut impl FnMut(&[u8])) -> Result<(), Fault> {
        self.next = self.next.saturating_add(bytes.len() as u64);
        while !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some((length, body)) = bytes.split_first_chunk::<LENGTH_LEN>()
                && let Some((message, rest)) = body.split_at_checked(length_of(*length)?)
            {
                emit(message);
                bytes = rest;
                continue;
            }
            let wanted = match self.partial.first_chunk::<LENGTH_LEN>() {
                Some(length) => length_of(*length)?.saturating_add(LENGTH_LEN),
                None => LENGTH_LEN,
            };
            let missing = wanted.saturating_sub(self.partial.len()).min(bytes.len());
            let (now, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            // One allocation for the whole message.
            self.partial.reserve_exact(wanted.saturating_sub(self.partial.len()));
            self.partial.extend_from_slice(now);
            bytes = rest;
            if let Some((length, body)) = self.partial.split_first_chunk::<LENGTH_LEN>()
                && body.len() == length_of(*length)?
            {
                emit(body);
                self.partial = Vec::new();
            }
        }
        Ok(())
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

    const ROOM: usize = usize::MAX / 4;

    /// Returns the bytes of the session's limit that wait behind gaps.
    fn cost(incoming: &Incoming) -> isize {
        incoming.pieces.values().map(|piece| (piece.len() + PIECE_COST) as isize).sum()
    }

    #[test]
    fn hostile_pieces_break_the_protocol() {
        let mut incoming = Incoming::default();
        let far = CHANNEL_WINDOW_BYTES as u64;
        assert_eq!(incoming.take(far, &[0], false, ROOM, |_| {}), Err(Fault::Breach));
        assert_eq!(incoming.take(u64::MAX, &[0], false, ROOM, |_| {}), Err(Fault::Breach));
        assert_eq!(incoming.take(5, &[0], false, PIECE_COST, |_| {}), Err(Fault::NoRoom));
        assert_eq!(incoming.take(0, &[0xff, 0xff], false, ROOM, |_| {}), Err(Fault::Breach));
        let mut incoming = Incoming::default();
        // A message without data has 10 bytes.
        assert_eq!(incoming.take(0, &[0, 9], false, ROOM, |_| {}), Err(Fault::Breach));
        let mut incoming = Incoming::default();
        incoming.take(8, &[0; 4], false, ROOM, |_| {}).unwrap();
        // A piece that reaches less far is held later.
        incoming.take(7, &[0], false, ROOM, |_| {}).unwrap();
        assert_eq!(incoming.take(6, &[0, 0], true, ROOM, |_| {}), Err(Fault::Breach));
        incoming.take(0, &[0, 10, 0, 0, 0, 0, 0, 0], false, ROOM, |_| {}).unwrap();
        incoming.take(12, &[], true, ROOM, |_| {}).unwrap();
        assert!(incoming.is_over());
        assert_eq!(incoming.take(12, &[0], false, ROOM, |_| {}), Err(Fault::Breach));
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
            for (from, to) in pieces {
                let last = to == text.len();
                held += incoming.take(from as u64, &text[from..to], last, ROOM, |m| got.push(m.to_vec())).unwrap();
                prop_assert_eq!(held, cost(&incoming));
            }
            prop_assert_eq!(got, messages);
            prop_assert!(incoming.is_over() && held == 0);
        }
    }
}
