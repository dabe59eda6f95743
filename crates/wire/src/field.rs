//! Reading and writing fields one after another, without an index in sight.

/// A header was cut off: fewer bytes than its format needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs {need} bytes, {have} are there")]
pub struct Truncated {
    /// Which header.
    pub what: &'static str,
    /// Bytes that the header needs.
    pub need: usize,
    /// Bytes that are there.
    pub have: usize,
}

/// Takes fixed-size fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes`, which must hold `need` of them for the header `what`.
    pub(crate) fn new(what: &'static str, need: usize, bytes: &'a [u8]) -> Result<Self, Truncated> {
        if bytes.len() < need {
            return Err(Truncated { what, need, have: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// The next `N` bytes; zeroes past the end, which `new` has ruled out for the header itself.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => {
                self.0 = &[];
                [0; N]
            }
        }
    }

    pub(crate) fn u16_le(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn u32_le(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64_le(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Puts fixed-size fields at the front of a slice; what does not fit is left out.
#[derive(Debug)]
pub(crate) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Writes `bytes` and moves on.
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let all = std::mem::take(&mut self.0);
        if let Some((head, rest)) = all.split_first_chunk_mut::<N>() {
            *head = bytes;
            self.0 = rest;
        }
    }
}
