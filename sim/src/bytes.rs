//! Payload bytes: each byte is derived from its flow and its offset, so that a misplaced byte is
//! detected.
//!
//! Guests and processes of all worlds make their payload by [`append`] and [`take`]. Guests record
//! the [`sum`] of received bytes, and the checkers ([`crate::check`]) compute the sum that the
//! bytes should have; a process of an MX NIC compares the bytes itself. A *flow* is a frame, a
//! message or a direction of a connection, with a key of its own. The functions are pure, without
//! limits and errors.

use crate::rng::mix;

/// Appends `len` bytes of flow `key` from offset `at` on.
pub fn append(key: u64, at: u64, len: usize, to: &mut Vec<u8>) {
    let end = to.len() + len;
    let mut word = at / 8;
    let mut skip = (at % 8) as usize;
    while to.len() < end {
        let bytes = mix(key ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
        let now = (8 - skip).min(end - to.len());
        to.extend_from_slice(&bytes[skip..skip + now]);
        (word, skip) = (word + 1, 0);
    }
}

/// Returns `len` bytes of a flow from offset `at` on.
pub fn take(key: u64, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    append(key, at, len, &mut bytes);
    bytes
}

/// Returns a checksum that depends on every byte and its position.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let all = words.iter().chain(std::iter::once(&tail));
    let start = bytes.len() as u64;
    all.fold(start, |sum, word| {
        (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}
