//! Bytes of a channel to the peer: kept until they are acknowledged, and sent again if lost.
//!
//! The bytes are one sequence from offset 0. Pieces are cut anew each time, so a piece that was
//! lost may be sent again in shorter pieces after the path became narrower. Bytes are sent up to
//! [`CHANNEL_WINDOW_BYTES`] (1 MiB) ahead of the acknowledged ones. Nothing here bounds the bytes
//! that wait: the credit of the receiver does, and `socket::remote` stops the guest above
//! [`crate::limits::PEER_QUEUED_BYTES_MAX`]. [`super::PeerSession`] alone calls.

use super::byte_ring::ByteRing;
use super::ranges::Ranges;
use crate::limits::CHANNEL_WINDOW_BYTES;

/// A range of a channel's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub from: u64,
    /// Offset behind the last byte.
    pub to: u64,
    /// The channel ends at `to`.
    pub last: bool,
}

/// The sending side of a channel.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// The bytes from `base` on.
    bytes: ByteRing,
    /// Offset of the first byte that is kept: all before are acknowledged.
    base: u64,
    /// Offset of the first byte that was never sent.
    sent: u64,
    /// Bytes to be sent again.
    lost: Ranges,
    /// Acknowledged bytes behind `base`.
    acked: Ranges,
    /// No bytes follow.
    is_ended: bool,
    /// The end was sent and not declared lost.
    is_end_sent: bool,
    /// The end was acknowledged.
    is_end_acked: bool,
}

impl Outgoing {
    /// Appends `heads`, and `len` bytes that `fill` writes in one or two calls, in order. The caller
    /// appends nothing after the end.
    ///
    /// # Errors
    /// That of `fill`; nothing is appended.
    pub fn push_with<E>(
        &mut self,
        heads: [&[u8]; 2],
        len: usize,
        fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.bytes.len();
        heads.iter().for_each(|head| self.bytes.push(head));
        let filled = self.bytes.push_with(len, fill);
        if filled.is_err() {
            self.bytes.remove_last(self.bytes.len().saturating_sub(before));
        }
        filled
    }

    /// Ends the channel behind the bytes appended so far.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns whether the channel was ended.
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the number of bytes that are kept.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the offset behind the last byte.
    fn end_offset(&self) -> u64 {
        self.base.saturating_add(self.bytes.len() as u64)
    }

    /// Returns the offset up to which bytes may be sent now: the receiver takes no bytes that are
    /// further ahead of the acknowledged ones.
    fn limit(&self) -> u64 {
        self.end_offset().min(self.base.saturating_add(CHANNEL_WINDOW_BYTES as u64))
    }

    /// Returns whether there is something to send.
    pub fn has_work(&self) -> bool {
        let ends = self.is_ended && !self.is_end_sent && self.sent == self.end_offset();
        !self.lost.is_empty() || self.sent < self.limit() || ends
    }

    /// Returns whether all bytes and the end were acknowledged.
    pub fn is_done(&self) -> bool {
        self.is_end_acked && self.bytes.is_empty()
    }

    /// Returns the next bytes to send, at most `room`, lost bytes first; `None` if there are none.
    pub fn next(&mut self, room: usize) -> Option<Span> {
        if !self.has_work() {
            return None;
        }
        let end = self.end_offset();
        let (from, to) = match self.lost.take_first(room as u64) {
            Some(range) => range,
            None => {
                let from = self.sent;
                self.sent = self.limit().min(from.saturating_add(room as u64)).max(from);
                (from, self.sent)
            }
        };
        let last = self.is_ended && to == end;
        self.is_end_sent |= last;
        Some(Span { from, to, last })
    }

    /// Returns the bytes of a span in two parts. The first is empty if all are contiguous.
    pub fn slices(&self, span: Span) -> (&[u8], &[u8]) {
        let at = |offset: u64| usize::try_from(offset.saturating_sub(self.base)).unwrap_or(0);
        let (from, to) = (at(span.from).min(self.bytes.len()), at(span.to).min(self.bytes.len()));
        let (first, second) = self.bytes.slices(from, to);
        if second.is_empty() { (&[], first) } else { (first, second) }
    }

    /// Handles the acknowledgement of a span. Returns the number of bytes that are no longer kept.
    pub fn ack(&mut self, span: Span) -> usize {
        self.is_end_acked |= span.last;
        self.acked.insert(span.from.max(self.base), span.to.max(self.base));
        self.lost.remove(span.from, span.to);
        let mut freed = 0_usize;
        let first = self.acked.iter().next();
        if let Some((from, to)) = first
            && from <= self.base
        {
            let count = usize::try_from(to.saturating_sub(self.base)).unwrap_or(0);
            freed = count.min(self.bytes.len());
            self.bytes.remove_first(freed);
            self.base = self.base.saturating_add(freed as u64);
            self.acked.remove(0, self.base);
        }
        freed
    }

    /// Gives up the memory of a channel of which all bytes are acknowledged: a channel that is idle
    /// keeps none. `None` if it has bytes, or too little memory for another channel to profit.
    pub fn take_spare(&mut self) -> Option<ByteRing> {
        let is_spare = self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES;
        is_spare.then(|| std::mem::take(&mut self.bytes))
    }

    /// Returns whether the channel has no memory for bytes.
    pub fn has_no_memory(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Gives the channel, which has no bytes, memory of another.
    pub fn adopt(&mut self, spare: ByteRing) {
        if self.bytes.is_empty() {
            self.bytes = spare;
        }
    }

    /// Handles the loss of a span: its bytes are sent again, unless they were acknowledged since.
    pub fn lose(&mut self, span: Span) {
        self.lost.insert(span.from.max(self.base), span.to.max(self.base));
        for (from, to) in self.acked.overlapping(span.from, span.to) {
            self.lost.remove(from, to);
        }
        if span.last && !self.is_end_acked {
            self.is_end_sent = false;
        }
    }
}

/// Capacity that a channel keeps while all its bytes are acknowledged.
const IDLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn push(outgoing: &mut Outgoing, bytes: &[u8]) {
        outgoing.push_with([bytes, b""], 0, |_| Ok::<(), ()>(())).unwrap();
    }

    fn text(outgoing: &Outgoing, span: Span) -> Vec<u8> {
        let (first, second) = outgoing.slices(span);
        [first, second].concat()
    }

    #[test]
    fn multiplex_lost_bytes_are_sent_first_and_in_other_pieces() {
        let mut outgoing = Outgoing::default();
        push(&mut outgoing, b"abcdefgh");
        let first = outgoing.next(4).unwrap();
        let second = outgoing.next(9).unwrap();
        assert_eq!(
            (text(&outgoing, first), text(&outgoing, second)),
            (b"abcd".into(), b"efgh".into())
        );
        assert_eq!((outgoing.next(9), second.last), (None, false));
        assert_eq!(outgoing.ack(second), 0, "the first bytes are not acknowledged");
        outgoing.lose(first);
        push(&mut outgoing, b"ij");
        outgoing.end();
        let again = outgoing.next(3).unwrap();
        assert_eq!(text(&outgoing, again), b"abc");
        let rest = outgoing.next(3).unwrap();
        assert_eq!(text(&outgoing, rest), b"d");
        let last = outgoing.next(3).unwrap();
        assert_eq!((text(&outgoing, last), last.last), (b"ij".into(), true));
        assert_eq!(outgoing.ack(again) + outgoing.ack(rest) + outgoing.ack(last), 10);
        assert!(outgoing.is_done() && !outgoing.has_work());
    }

    #[test]
    fn multiplex_message_whose_bytes_cannot_be_read_is_not_queued() {
        let mut outgoing = Outgoing::default();
        push(&mut outgoing, b"ab");
        assert_eq!(outgoing.push_with([b"len", b"head"], 5, |_| Err(1)), Err(1));
        push(&mut outgoing, b"cd");
        let span = outgoing.next(99).unwrap();
        assert_eq!((text(&outgoing, span), outgoing.len()), (b"abcd".into(), 4));
    }

    #[test]
    fn multiplex_lost_end_is_sent_again() {
        let mut outgoing = Outgoing::default();
        outgoing.end();
        let end = outgoing.next(9).unwrap();
        assert!(end.last && end.from == end.to && !outgoing.has_work());
        outgoing.lose(end);
        assert_eq!(outgoing.next(9), Some(end));
        outgoing.ack(end);
        assert!(outgoing.is_done());
        outgoing.lose(end);
        assert!(!outgoing.has_work(), "the end was acknowledged");
    }
}
