//! Events with all their bytes in their cache line: at most [`INLINE_BYTES`] (32).
//!
//! [`crate::Sender::send_short`] and [`crate::Receiver::poll_short`] pass a [`ShortEvent`] as words
//! in registers. A copy of variable length would load bytes in wider pieces than those just stored,
//! and would stall until the stores reach the cache (failed store forwarding). Small MX messages
//! take this path through the channels of `message`, and from its rings when they are received.
//!
//! A short event carries the first word of an event and its bytes, not the other two words. The
//! module checks no content: more bytes than [`INLINE_BYTES`] give `None`, and bytes without room
//! in the slices of [`ShortEvent::copy_to`] are left out. An event that is not short stays in the
//! ring for [`crate::Receiver::poll`]. The thread is that of the sender or receiver.

use crate::INLINE_BYTES;

/// The bytes of a short event as words in memory order, and its first word.
#[derive(Debug, Clone, Copy)]
pub struct ShortEvent {
    /// The first word of the event.
    pub word: u64,
    /// Number of bytes.
    len: usize,
    /// The bytes as little-endian words.
    bytes: [u64; INLINE_BYTES / 8],
}

impl ShortEvent {
    /// Returns an event as read from a slot.
    pub(crate) fn new(word: u64, len: usize, bytes: [u64; INLINE_BYTES / 8]) -> Self {
        Self { word, len, bytes }
    }

    /// Returns the event with the bytes of two slices, or `None` if they exceed [`INLINE_BYTES`]
    /// (32).
    #[inline(always)]
    pub fn of(word: u64, first: &[u8], second: &[u8]) -> Option<Self> {
        // Fast path for the most common cases: a word, and a head of two words before a word.
        let (words, []) = first.as_chunks::<8>() else { return Self::of_any(word, first, second) };
        match (words, <&[u8; 8]>::try_from(second)) {
            ([one], _) if second.is_empty() => {
                Some(Self::of_words(word, 8, [one, &[0; 8], &[0; 8]]))
            }
            ([one, two], Ok(body)) => Some(Self::of_words(word, 24, [one, two, body])),
            _ => Self::of_any(word, first, second),
        }
    }

    /// Returns the event of `len` bytes in three words.
    #[inline(always)]
    fn of_words(word: u64, len: usize, words: [&[u8; 8]; 3]) -> Self {
        let [one, two, three] = words.map(|word| u64::from_le_bytes(*word));
        Self { word, len, bytes: [one, two, three, 0] }
    }

    /// Like [`Self::of`], for any lengths.
    #[inline(never)]
    fn of_any(word: u64, first: &[u8], second: &[u8]) -> Option<Self> {
        let len = first.len().checked_add(second.len()).filter(|&len| len <= INLINE_BYTES)?;
        let mut bytes = [0; INLINE_BYTES / 8];
        let (words, rest) = first.as_chunks::<8>();
        bytes.iter_mut().zip(words).for_each(|(to, from)| *to = u64::from_le_bytes(*from));
        append(bytes.get_mut(words.len()..).unwrap_or_default(), rest, second);
        Some(Self { word, len, bytes })
    }

    /// Returns the number of bytes, at most [`INLINE_BYTES`] (32).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the event has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes as words.
    #[inline]
    pub(crate) fn words(&self) -> [u64; INLINE_BYTES / 8] {
        self.bytes
    }

    /// Copies as many bytes as fit into two consecutive slices. Returns their number.
    #[inline(always)]
    pub fn copy_to(&self, first: &mut [u8], second: &mut [u8]) -> usize {
        if self.len <= first.len() {
            return scatter(&self.bytes, self.len, first);
        }
        let [one, two, three, _] = self.bytes;
        if let ([head, rest], []) = first.as_chunks_mut::<8>()
            && let (24, Some(body)) = (self.len, second.first_chunk_mut::<8>())
        {
            (*head, *rest, *body) = (one.to_le_bytes(), two.to_le_bytes(), three.to_le_bytes());
            return 24;
        }
        self.copy_to_both(first, second)
    }

    /// Like [`Self::copy_to`], for any lengths.
    #[inline(never)]
    fn copy_to_both(&self, first: &mut [u8], second: &mut [u8]) -> usize {
        let done = scatter(&self.bytes, self.len, first);
        let left = self.len.saturating_sub(done);
        if done.is_multiple_of(8) {
            let behind = self.bytes.get(done / 8..).unwrap_or_default();
            return done.wrapping_add(scatter(behind, left, second));
        }
        let bytes = self.bytes.map(u64::to_le_bytes);
        let bytes = bytes.as_flattened().get(done..self.len).unwrap_or_default();
        let copied = second.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count();
        done.wrapping_add(copied)
    }
}

/// Appends the partial word of the first slice and the second slice.
#[inline(never)]
fn append(behind: &mut [u64], rest: &[u8], second: &[u8]) {
    if rest.is_empty() {
        let (words, rest) = second.as_chunks::<8>();
        behind.iter_mut().zip(words).for_each(|(to, from)| *to = u64::from_le_bytes(*from));
        if let Some(last) = behind.get_mut(words.len()) {
            *last = partial(rest.iter().copied());
        }
        return;
    }
    let mut rest = rest.iter().chain(second).copied();
    behind.iter_mut().for_each(|to| *to = partial(rest.by_ref().take(8)));
}

/// Returns the word of at most eight bytes.
#[inline]
fn partial(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes
        .zip([0, 8, 16, 24, 32, 40, 48, 56])
        .fold(0, |word, (byte, at)| word | u64::from(byte) << at)
}

/// Copies the first `len` bytes of words, as far as they fit. Returns their number.
#[inline]
fn scatter(words: &[u64], len: usize, into: &mut [u8]) -> usize {
    if let ([first, ..], 8, Some(to)) = (words, len, into.first_chunk_mut::<8>()) {
        *to = first.to_le_bytes();
        return 8;
    }
    scatter_all(words, len, into)
}

/// Like [`scatter`], for any length.
#[inline(never)]
fn scatter_all(words: &[u64], len: usize, into: &mut [u8]) -> usize {
    let len = len.min(into.len());
    let (whole, rest) = into.get_mut(..len).unwrap_or_default().as_chunks_mut::<8>();
    let last = words.get(whole.len()).copied().unwrap_or(0).to_le_bytes();
    whole.iter_mut().zip(words).for_each(|(to, from)| *to = from.to_le_bytes());
    rest.iter_mut().zip(last).for_each(|(to, from)| *to = from);
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_short_bytes_survive_any_split() {
        let all: Vec<u8> = (1..=INLINE_BYTES as u8).collect();
        for len in 0..=INLINE_BYTES {
            for cut in 0..=len {
                let (first, second) = all[..len].split_at(cut);
                let short = ShortEvent::of(7, first, second).unwrap();
                assert_eq!((short.word, short.len()), (7, len));
                for room in 0..=len + 9 {
                    for cut in 0..=room {
                        let mut into = [0; INLINE_BYTES + 9];
                        let (first, second) = into[..room].split_at_mut(cut);
                        let copied = short.copy_to(first, second);
                        assert_eq!(copied, len.min(room));
                        assert_eq!(into[..copied], all[..copied]);
                        assert!(into[copied..].iter().all(|&b| b == 0));
                    }
                }
            }
        }
        assert!(ShortEvent::of(7, &all, &[0]).is_none());
    }
}
