//! Reads a fuzz input as numbers and choices. An input never ends: after its last byte, zeros are
//! returned. Reads never fail. Bounds of 0 and empty lists panic, and are faults of the target.
//! Equal bytes give equal choices, so that an input replays its scenario.

/// The unread part of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Creates an input that starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns true if every byte was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Calls `step` until every byte was read, at most `max` times.
    pub fn steps(&mut self, max: usize, mut step: impl FnMut(&mut Self)) {
        for _ in 0..max {
            if self.is_empty() {
                return;
            }
            step(self);
        }
    }

    /// Returns the next `len` bytes, or fewer at the end.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// Returns all unread bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// Returns the next `N` bytes, padded with zeros.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// Reads a number.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Reads a little-endian number.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Reads a little-endian number.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Reads a little-endian number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads a boolean.
    pub fn bool(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Reads a number below `bound`, which is in 1 to 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u8()) % bound
    }

    /// Reads an element of `list`, which has 1 to 256 elements.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
