//! Sequential reading and writing of fixed-size fields, without indexing: the base of the formats
//! of this crate; those of `mlx5` have a module of their own.
//!
//! [`Reader::new`] checks once that the header is complete; reads past its end yield zeroes, and
//! writes past the end of a [`Writer`] are omitted, so neither panics. Values are never checked
//! here: the format's module does. The types are private to the crate, except [`Truncated`]. The
//! threads are those of the formats' callers.

/// A header is cut off: fewer bytes than its format needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs {need} bytes, {have} are there")]
pub struct Truncated {
    /// Name of the header.
    pub what: &'static str,
    /// Bytes that the header needs.
    pub need: usize,
    /// Bytes that are present.
    pub have: usize,
}

impl Truncated {
    /// Fails if `have` is below `need`.
    pub(crate) const fn check(what: &'static str, need: usize, have: usize) -> Result<(), Self> {
        if have < need { Err(Self { what, need, have }) } else { Ok(()) }
    }
}

/// Takes fixed-size fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns a reader of `bytes`, which must hold the `need` bytes of the header `what`.
    pub(crate) fn new(what: &'static str, need: usize, bytes: &'a [u8]) -> Result<Self, Truncated> {
        Truncated::check(what, need, bytes.len())?;
        Ok(Self(bytes))
    }

    /// Returns the next `N` bytes; zeroes past the end, which `new` excludes for the header itself.
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

    pub(crate) fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    pub(crate) fn u16_be(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub(crate) fn u32_be(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
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

/// Writes fields sequentially to a slice. A field that does not fit is omitted.
#[derive(Debug)]
pub(crate) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Writes `bytes` and moves on.
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.slice(&bytes);
    }

    /// Writes all of `bytes` and moves on.
    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        let all = std::mem::take(&mut self.0);
        if let Some((head, rest)) = all.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.0 = rest;
        }
    }
}
