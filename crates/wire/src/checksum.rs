//! The internet checksum (RFC 1071), also over pieces of odd length, and its incremental update
//! (RFC 1624).
//!
//! Used where a checksum offload of a frame is completed in software ([`crate::virtio_net`]), where
//! `mlx5` reports checksums of received frames, and where ECN ([`crate::ecn`]) or an exchange of
//! addresses ([`crate::exchange`]) changes a packet, and for the IPv4 headers that `mlx5` and
//! `hca::packets` make. The module sums private bytes; it finds no headers and verifies no packet.
//! The sum of one piece is exact up to 16 GiB. The incremental update yields a valid checksum only
//! if the old checksum was valid. Ethernet's CRC and other checksums are not here. Callers run in a
//! dispatcher's turn; no call fails.

use crate::field::Writer;

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

    /// Returns the sum over bytes.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self { words: u32::from(fold(sum_words(bytes))), odd: bytes.len() % 2 == 1 }
    }

    /// Adds bytes that follow those already added.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.join(&Self::of(bytes));
    }

    /// Adds the sum over bytes that follow those already added.
    #[inline]
    pub fn join(&mut self, next: &Self) {
        // A folded sum fits 16 bits.
        let words = next.words as u16;
        let words = if self.odd { words.swap_bytes() } else { words };
        self.words = u32::from(fold(u64::from(self.words).wrapping_add(u64::from(words))));
        self.odd ^= next.odd;
    }

    /// Adds a big-endian 16-bit field at an even distance from the first byte.
    #[inline]
    pub fn add_u16(&mut self, field: u16) {
        let words = u64::from(self.words).wrapping_add(u64::from(field.to_be()));
        self.words = u32::from(fold(words));
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
    let mut bytes = [0; 12];
    let mut w = Writer::new(&mut bytes);
    w.put(source);
    w.put(destination);
    w.put([0, protocol]);
    w.put(len.to_be_bytes());
    let mut sum = Sum::new();
    sum.add(&bytes);
    sum
}

/// Returns the sum over the pseudo-header of TCP or UDP over IPv6; `len` counts header and payload.
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, len: u32) -> Sum {
    let mut bytes = [0; 40];
    let mut w = Writer::new(&mut bytes);
    w.put(source);
    w.put(destination);
    w.put(len.to_be_bytes());
    w.put([0, 0, 0, protocol]);
    let mut sum = Sum::new();
    sum.add(&bytes);
    sum
}

/// Returns `checksum` after one covered 16-bit field changed from `old` to `new` (RFC 1624, eqn.
/// 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum).wrapping_add(u64::from(!old)).wrapping_add(u64::from(new));
    !fold(sum)
}

/// Bytes that [`sum_blocks`] adds in a step.
const BLOCK: usize = 32;

/// Returns the sum of little-endian 32-bit words; the last is padded with zeroes.
fn sum_words(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let mut sum = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
    let (words, tail) = rest.as_chunks::<4>();
    for word in words {
        sum = sum.wrapping_add(u64::from(u32::from_le_bytes(*word)));
    }
    if !tail.is_empty() {
        let mut last = [0_u8; 4];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        sum = sum.wrapping_add(u64::from(u32::from_le_bytes(last)));
    }
    sum
}

/// Sums a block a step in eight independent lanes, which compilers vectorize. The sum of the lanes
/// holds 2^32 words before it can overflow: 16 GiB.
fn sum_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = [0_u64; BLOCK / 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane.wrapping_add(u64::from(u32::from_le_bytes(*word)));
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

/// Folds a sum of words to 16 bits with end-around carry.
fn fold(sum: u64) -> u16 {
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
