//! Numbers of messages: 14 bits that count and come round, and 2 bits of how often the receiver
//! began anew with this peer.

const COUNT_BITS: u16 = 0x3fff;
const GENERATION_SHIFT: u32 = 14;

/// One number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u16);

impl Number {
    /// The first of a generation, of which the lower 2 bits count.
    pub(crate) const fn first(generation: u8) -> Self {
        Self(((generation & 3) as u16).wrapping_shl(GENERATION_SHIFT) | 1)
    }

    /// How often it was begun anew, modulo 4.
    pub(crate) const fn generation(self) -> u8 {
        self.0.wrapping_shr(GENERATION_SHIFT) as u8
    }

    /// The one that is `steps` behind.
    pub(crate) const fn plus(self, steps: u16) -> Self {
        let count = self.0.wrapping_add(steps) & COUNT_BITS;
        Self(self.0 & !COUNT_BITS | count)
    }

    /// The one behind.
    pub(crate) const fn next(self) -> Self {
        self.plus(1)
    }

    /// The one before.
    pub(crate) const fn before(self) -> Self {
        self.plus(COUNT_BITS)
    }

    /// How many steps it is ahead of `base`, 0 to 16383; none of another generation's.
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
    fn numbers_come_round_within_their_generation() {
        let first = Number::first(2);
        assert_eq!((first.0, first.generation()), (0x8001, 2));
        assert_eq!(first.plus(16_382), Number(0xbfff));
        assert_eq!(first.plus(16_383), Number(0x8000));
        assert_eq!(first.plus(16_384), first);
        assert_eq!(first.next().before(), first);
        assert_eq!(Number(0x8000).ahead_of(Number(0xbfff)), Some(1));
        assert_eq!(Number(0xbfff).ahead_of(Number(0x8000)), Some(16_383));
        assert_eq!(Number::first(1).ahead_of(first), None);
        assert_eq!(Number::first(7), Number::first(3));
    }
}
