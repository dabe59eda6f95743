//! The internet checksum (RFC 1071), also over pieces of odd length, and its incremental update
//! (RFC 1624).
//!
//! Used where a checksum offload of a frame is completed in software ([`crate::virtio_net`] for
//! `ethernet`, `link`, `mlx5`), where `mlx5` reports checksums of received frames, and where ECN
//! changes an IPv4 header ([`crate::ecn`]). The module sums private bytes; it finds no headers and
//! verifies no packet. The sum of one piece is exact up to about 128 GiB. The incremental update
//! yields a valid checksum only if the old checksum was valid. Ethernet's CRC and other checksums
//! are not here.

/// A running ones' complement sum over consecutive pieces of bytes.
///
/// Words are summed in little-endian order and swapped once at the end (RFC 1071, section 2 B).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Sum of little-endian 16-bit words, folded after every piece.
    words: u32,
    /// Whether an odd number of bytes has been summed: the next piece starts in the middle of a
    /// word.
    odd: bool,
}

impl Sum {
    /// Returns the sum over no bytes.
    pub const fn new() -> Self {
        Self { words: 0, odd: false }
    }

    /// Adds bytes that follow those already added.
    pub fn add(&mut self, bytes: &[u8]) {
        let piece = fold(sum_words(bytes));
        let piece = if self.odd { piece.swap_bytes() } else { piece };
        self.words = u32::from(fold(u64::from(self.words).wrapping_add(u64::from(piece))));
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds a big-endian 16-bit field. The number of bytes added before must be even.
    pub fn add_u16(&mut self, field: u16) {
        self.add(&field.to_be_bytes());
    }

    /// Returns the folded sum, not complemented: the value of an incomplete checksum field.
    pub fn partial(&self) -> u16 {
        fold(u64::from(self.words)).swap_bytes()
    }

    /// Returns the checksum: the complement of the sum. It is 0 over a packet with a valid
    /// checksum.
    pub fn finish(&self) -> u16 {
        !self.partial()
    }

    /// Returns the checksum for fields in which 0 means "none" (UDP): never 0.
    pub fn finish_nonzero(&self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// Returns the checksum of `bytes`.
pub fn of(bytes: &[u8]) -> u16 {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.finish()
}

/// Returns the sum over the pseudo-header of TCP or UDP over IPv4; `len` counts header and payload.
pub fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u16) -> Sum {
    let mut sum = Sum::new();
    sum.add(&source);
    sum.add(&destination);
    sum.add_u16(u16::from(protocol));
    sum.add_u16(len);
    sum
}

/// Returns the sum over the pseudo-header of TCP or UDP over IPv6; `len` counts header and payload.
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add(&source);
    sum.add(&destination);
    sum.add(&len.to_be_bytes());
    sum.add_u16(u16::from(protocol));
    sum
}

/// Returns `checksum` after one covered 16-bit field changed from `old` to `new` (RFC 1624, eqn.
/// 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum).wrapping_add(u64::from(!old)).wrapping_add(u64::from(new));
    !fold(sum)
}

/// Sums 32 bytes a step in eight independent lanes, which compilers vectorize. A lane holds 2^32
/// words before it can overflow: 16 GiB a lane.
fn sum_words(bytes: &[u8]) -> u64 {
    const LANES: usize = 8;
    let mut lanes = [0_u64; LANES];
    let mut blocks = bytes.chunks_exact(LANES.saturating_mul(4));
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane = lane.wrapping_add(u64::from(word_le(word)));
        }
    }
    let mut sum = 0_u64;
    for lane in lanes {
        sum = sum.wrapping_add(lane);
    }
    for word in blocks.remainder().chunks(4) {
        sum = sum.wrapping_add(u64::from(word_le(word)));
    }
    sum
}

/// Returns up to four bytes as a little-endian word, padded with zeroes.
#[inline]
fn word_le(bytes: &[u8]) -> u32 {
    match bytes.first_chunk::<4>() {
        Some(four) => u32::from_le_bytes(*four),
        None => {
            let mut four = [0_u8; 4];
            for (to, from) in four.iter_mut().zip(bytes) {
                *to = *from;
            }
            u32::from_le_bytes(four)
        }
    }
}

/// Folds a sum of words to 16 bits with end-around carry.
fn fold(sum: u64) -> u16 {
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
