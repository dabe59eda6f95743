//! Position in a packed ring: a slot with its wrap counter (virtio 1.3, 2.8.1).
//!
//! Plain arithmetic for device and driver side ([`crate::packed`], [`crate::driver`]), for rings of
//! 1 to 32768 slots; the ring itself is not accessed here. A position does not know the size of its
//! ring: the caller passes the same size to every call. Only [`Position::from_bits`] checks a
//! received value; the others cannot fail. Two positions can be compared only within two passes
//! over the ring. A value may be used in any thread: that of a dispatcher, or of a native frontend.

use crate::format::packed;

/// A slot and the parity of the pass over the ring, as device and driver count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(u16);

impl Position {
    /// The first position of a new ring: slot 0, wrap counter 1.
    pub const START: Self = Self(Self::WRAP);
    /// Bit of the wrap counter; a ring has at most 32768 slots, so the slot fits below it.
    const WRAP: u16 = 1 << 15;

    /// Returns the position of slot and wrap counter (bit 15), or `None` if a ring of `size` lacks
    /// the slot.
    #[inline]
    pub fn from_bits(bits: u16, size: u16) -> Option<Self> {
        (bits & !Self::WRAP < size).then_some(Self(bits))
    }

    /// Returns slot and wrap counter (bit 15).
    #[inline]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns the position `by` slots ahead; `by` is at most `size`.
    #[inline]
    pub fn advance(self, by: u16, size: u16) -> Self {
        // At most 65535: both summands are at most 32768, and the index is below the size.
        let index = self.index().wrapping_add(by);
        match index.checked_sub(size) {
            Some(index) => Self(index | (self.0 & Self::WRAP ^ Self::WRAP)),
            None => Self(index | self.0 & Self::WRAP),
        }
    }

    /// Returns the next position.
    #[inline]
    pub fn next(self, size: u16) -> Self {
        // In the largest ring the slot overflows into the wrap counter, as it must.
        let bits = self.0.wrapping_add(1);
        Self(if bits & !Self::WRAP == size { bits & Self::WRAP ^ Self::WRAP } else { bits })
    }

    /// Returns the distance from `from` to this position in slots: below twice the size.
    #[inline]
    pub fn after(self, from: Self, size: u16) -> u32 {
        let (to, start, turn) = (u32::from(self.index()), u32::from(from.index()), u32::from(size));
        let there = if self.wrap() == from.wrap() { to } else { to.wrapping_add(turn) };
        // Adding two passes keeps the difference from being negative.
        match there.checked_sub(start) {
            Some(slots) => slots,
            None => there.wrapping_add(turn).wrapping_add(turn).wrapping_sub(start),
        }
    }

    /// Returns the slot.
    #[inline]
    pub fn index(self) -> u16 {
        self.0 & !Self::WRAP
    }

    /// Returns the wrap counter.
    #[inline]
    fn wrap(self) -> bool {
        self.0 & Self::WRAP != 0
    }

    /// Returns the offset of the slot's descriptor in the ring, in bytes.
    #[inline]
    pub fn at(self) -> usize {
        usize::from(self.index()).wrapping_mul(crate::limits::DESCRIPTOR_BYTES)
    }

    /// Returns the offset of the descriptor's flags in the ring, in bytes.
    #[inline]
    pub fn flags_at(self) -> usize {
        self.at().wrapping_add(packed::FLAGS)
    }

    /// Returns the flags with which a driver makes a descriptor available here.
    #[inline]
    pub fn available(self) -> u16 {
        if self.wrap() { packed::AVAIL } else { packed::USED }
    }

    /// Returns the flags with which a device marks a descriptor as used here.
    #[inline]
    pub fn used(self) -> u16 {
        if self.wrap() { packed::AVAIL | packed::USED } else { 0 }
    }

    /// Returns whether `flags` make a descriptor available here.
    #[inline]
    pub fn is_available(self, flags: u16) -> bool {
        flags & (packed::AVAIL | packed::USED) == self.available()
    }

    /// Returns whether `flags` mark a descriptor as used here.
    #[inline]
    pub fn is_used(self, flags: u16) -> bool {
        flags & (packed::AVAIL | packed::USED) == self.used()
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn packed_positions_wrap_and_differ() {
        for size in [1_u16, 2, 3, 8, 32768] {
            let mut at = Position::START;
            for step in 0..u32::from(size) * 2 {
                assert_eq!(at.after(Position::START, size), step);
                assert_eq!(Position::from_bits(at.bits(), size), Some(at));
                assert_eq!(
                    Position::START.after(at, size),
                    (2 * u32::from(size) - step) % (2 * u32::from(size))
                );
                assert_eq!(at.advance(size, size).after(at, size), u32::from(size));
                assert_eq!(at.next(size), at.advance(1, size));
                at = at.next(size);
            }
            assert_eq!(at, Position::START);
            if size < 32768 {
                assert_eq!(Position::from_bits(size, size), None);
            }
        }
    }

    #[test]
    fn packed_passes_have_different_flags() {
        let (odd, even) = (Position::START, Position::START.advance(8, 8));
        for (one, other) in [(odd, even), (even, odd)] {
            assert!(one.is_available(one.available()) && one.is_used(one.used()));
            assert!(!one.is_available(one.used()) && !one.is_used(one.available()));
            assert!(!one.is_available(other.available()) && !one.is_used(other.used()));
            assert!(!one.is_used(other.available()));
        }
        assert!(!odd.is_available(0) && !odd.is_used(0), "a fresh ring is all zeros");
    }
}
