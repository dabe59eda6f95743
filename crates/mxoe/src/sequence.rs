//! Sequence numbers of messages: a 14-bit count that wraps around, and a 2-bit generation.
//!
//! The receiver chooses the generation and changes it when it restarts with a peer, so that packets
//! of an earlier connection are not accepted.
//!
//! Numbers are compared within one generation only: [`SequenceNumber::ahead_of`] returns `None` for
//! others. A distance of 8192 or more means an earlier number. With at most
//! [`IN_FLIGHT_MAX`](crate::limits::IN_FLIGHT_MAX) (255) messages in flight, numbers in use never
//! meet. The module is arithmetic: choice and change of the generation are in [`peer`](crate::peer)
//! and [`connect`](crate::connect). No operation fails: counts wrap within their generation. Used
//! by these modules, [`connect_request`](crate::connect_request), [`transmit`](crate::transmit),
//! [`receive_order`](crate::receive_order), [`refusal`](crate::refusal) and
//! [`sequence_conflict`](crate::sequence_conflict).

/// The bits of a number that count; the upper two are the generation.
const COUNT_BITS: u16 = 0x3fff;
const GENERATION_SHIFT: u32 = 14;

/// Half of the number space: greater distances mean an earlier number.
pub(crate) const HALF: usize = 8192;

/// A sequence number as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceNumber(pub(crate) u16);

impl SequenceNumber {
    /// Returns the first number of a generation (its lower 2 bits): count 1.
    pub(crate) const fn first(generation: u8) -> Self {
        Self(((generation & 3) as u16).wrapping_shl(GENERATION_SHIFT) | 1)
    }

    /// Returns the generation, 0 to 3.
    pub(crate) const fn generation(self) -> u8 {
        self.0.wrapping_shr(GENERATION_SHIFT) as u8
    }

    /// Returns the number `steps` later in the same generation.
    pub(crate) const fn plus(self, steps: u16) -> Self {
        let count = self.0.wrapping_add(steps) & COUNT_BITS;
        Self(self.0 & !COUNT_BITS | count)
    }

    /// Returns the next number.
    pub(crate) const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the previous number.
    pub(crate) const fn before(self) -> Self {
        self.plus(COUNT_BITS)
    }

    /// Returns the distance from `base` to `self`, 0 to 16383, or `None` if the generations differ.
    pub(crate) const fn ahead_of(self, base: Self) -> Option<u16> {
        if self.generation() != base.generation() {
            return None;
        }
        Some(self.0.wrapping_sub(base.0) & COUNT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_within_their_generation() {
        let first = SequenceNumber::first(2);
        assert_eq!((first.0, first.generation()), (0x8001, 2));
        assert_eq!(first.plus(16_382), SequenceNumber(0xbfff));
        assert_eq!(first.plus(16_383), SequenceNumber(0x8000));
        assert_eq!(first.plus(16_384), first);
        assert_eq!(first.next().before(), first);
        assert_eq!(SequenceNumber(0x8000).ahead_of(SequenceNumber(0xbfff)), Some(1));
        assert_eq!(SequenceNumber(0xbfff).ahead_of(SequenceNumber(0x8000)), Some(16_383));
        assert_eq!(SequenceNumber::first(1).ahead_of(first), None);
        assert_eq!(SequenceNumber::first(7), SequenceNumber::first(3));
    }
}
