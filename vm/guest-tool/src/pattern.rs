//! A seeded byte pattern, cheap to generate and to check byte for byte.
//!
//! The pattern repeats with a prime period, so that a lost, duplicated or moved piece of a common
//! size (a page, a packet, a buffer) is a mismatch. The table is one write longer than the period:
//! every write is a single slice of it. Equal seeds give equal patterns on both sides, so that a
//! receiver needs the seed alone. A pattern takes 2 MiB. Everything is computed in the caller's
//! thread: [`client`](crate::client), [`serve`](crate::serve) and [`flood`](crate::flood) are the
//! callers.

use crate::limits::MAX_WRITE_BYTES;

/// Period of the pattern: a prime just under 1 MiB.
const PERIOD_BYTES: usize = 1_048_573;

/// The first byte that differs from the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset of the byte in the stream.
    pub offset: u64,
    /// The pattern's byte.
    pub expected: u8,
    /// The received byte.
    pub found: u8,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} is {:#04x}, expected {:#04x}", self.offset, self.found, self.expected)
    }
}

/// The pattern of one connection.
#[derive(Debug)]
pub struct Pattern {
    table: Vec<u8>,
}

impl Pattern {
    /// Creates the pattern of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut table = Vec::with_capacity(PERIOD_BYTES + MAX_WRITE_BYTES);
        while table.len() < PERIOD_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            table.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        table.truncate(PERIOD_BYTES);
        table.extend_from_within(..MAX_WRITE_BYTES.min(PERIOD_BYTES));
        let more = PERIOD_BYTES + MAX_WRITE_BYTES - table.len();
        table.extend_from_within(..more);
        Self { table }
    }

    /// Returns the `len` bytes at `offset` of the stream.
    ///
    /// # Panics
    /// When `len` is over [`MAX_WRITE_BYTES`].
    #[must_use]
    pub fn at(&self, offset: u64, len: usize) -> &[u8] {
        assert!(len <= MAX_WRITE_BYTES, "a slice of the pattern is limited to MAX_WRITE_BYTES");
        let start = usize::try_from(offset % PERIOD_BYTES as u64).unwrap_or(0);
        &self.table[start..start + len]
    }

    /// Compares received bytes with the pattern.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut at = offset;
        for part in bytes.chunks(MAX_WRITE_BYTES) {
            let want = self.at(at, part.len());
            if part != want {
                let i = part.iter().zip(want).position(|(a, b)| a != b).unwrap_or(0);
                return Err(Mismatch { offset: at + i as u64, expected: want[i], found: part[i] });
            }
            at += part.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_every_slice_at_its_offset() {
        let p = Pattern::new(7);
        for offset in [0, 1, 4096, PERIOD_BYTES as u64 - 1, 5_000_000_000] {
            let bytes = p.at(offset, MAX_WRITE_BYTES).to_vec();
            assert_eq!(p.check(offset, &bytes), Ok(()));
        }
    }

    #[test]
    fn pattern_detects_a_lost_piece() {
        let p = Pattern::new(1);
        for lost in [1, 64, 3732, 4096, 65536, 262_144, 1 << 20] {
            assert!(p.check(0, p.at(lost, 4096)).is_err(), "{lost} bytes lost went unseen");
        }
    }

    #[test]
    fn pattern_reports_a_flipped_bit() {
        let p = Pattern::new(3);
        let mut bytes = p.at(10, 100).to_vec();
        bytes[42] ^= 1;
        let seen = p.check(10, &bytes).unwrap_err();
        assert_eq!((seen.offset, seen.found), (52, bytes[42]));
    }

    #[test]
    fn pattern_differs_between_seeds() {
        assert!(Pattern::new(1).check(0, Pattern::new(2).at(0, 64)).is_err());
    }
}
