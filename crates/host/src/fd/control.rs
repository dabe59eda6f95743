//! Control messages that `recvmsg(2)` received, read from a byte buffer with checked lengths.
//!
//! The `CMSG_*` macros follow pointers out of a header into the bytes behind it and trust its
//! length. Here a message is a slice of the buffer, and ends where the buffer does. A malformed
//! header ends the iteration without an error.
//!
//! [`crate::fd::receive`] reads received file descriptors by it, [`crate::net::socket`] VLAN tags.
//! The module owns no descriptor: a caller that takes numbers of descriptors must close them. It
//! does not build messages to send. It runs in the receiving thread, and its time is bounded by the
//! length of the buffer.

use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
/// Alignment of a header in the buffer, in bytes.
const ALIGNMENT: usize = size_of::<usize>();

/// A control message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlMessage<'a> {
    /// `cmsg_level` and `cmsg_type`.
    pub kind: (c_int, c_int),
    /// The bytes behind the header.
    data: &'a [MaybeUninit<u8>],
}

impl ControlMessage<'_> {
    /// Returns the `at`th value of `N` bytes, or `None` beyond the last whole value.
    pub fn value<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let (values, _) = self.data.as_chunks::<N>();
        // SAFETY: the kernel wrote all data of a message, as the caller of `ControlMessages::new`
        // guarantees.
        values.get(at).map(|value| unsafe { value.as_ptr().cast::<[u8; N]>().read() })
    }
}

/// All control messages of a buffer, in order; a header that does not fit ends them.
#[derive(Debug, Clone)]
pub(crate) struct ControlMessages<'a> {
    rest: &'a [MaybeUninit<u8>],
}

impl<'a> ControlMessages<'a> {
    /// Returns the messages of a buffer.
    ///
    /// # Safety
    /// The kernel wrote `bytes`, or they are initialised: each header, and the data behind it up to
    /// the header's length.
    pub unsafe fn new(bytes: &'a [MaybeUninit<u8>]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the messages of a buffer that was initialised.
    pub fn of(bytes: &'a [u8]) -> Self {
        // SAFETY: initialised bytes may be viewed as possibly uninitialised ones.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: they are initialised.
        unsafe { Self::new(bytes) }
    }
}

impl<'a> Iterator for ControlMessages<'a> {
    type Item = ControlMessage<'a>;

    fn next(&mut self) -> Option<ControlMessage<'a>> {
        let header = self.rest.first_chunk::<HEADER_BYTES>()?;
        // SAFETY: a whole header is there, initialised as the caller of `new` guarantees; it
        // consists of numbers only.
        let header = unsafe { header.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        let len = header.cmsg_len as usize;
        let data = self.rest.get(HEADER_BYTES..len)?;
        self.rest = self.rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(ControlMessage { kind: (header.cmsg_level, header.cmsg_type), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a header with the length `len`, then `data`, padded up to the next message.
    fn message(len: usize, kind: (c_int, c_int), data: &[u8]) -> Vec<u8> {
        // SAFETY: an all-zero header is valid: numbers only.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = len as _;
        (header.cmsg_level, header.cmsg_type) = kind;
        // SAFETY: the header is numbers that were all written, zeros between them.
        let mut bytes =
            unsafe { std::mem::transmute::<libc::cmsghdr, [u8; HEADER_BYTES]>(header) }.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    /// The kind of a message, and its values.
    type Read = ((c_int, c_int), Vec<[u8; 4]>);

    fn read(bytes: &[u8]) -> Vec<Read> {
        ControlMessages::of(bytes)
            .map(|message| (message.kind, (0..).map_while(|at| message.value(at)).collect()))
            .collect()
    }

    #[test]
    fn control_messages_are_read_in_order_without_their_padding() {
        let mut bytes = message(HEADER_BYTES + 12, (1, 2), b"onetwotresixpad");
        bytes.extend(message(HEADER_BYTES, (3, 4), b""));
        bytes.extend(message(HEADER_BYTES + 7, (5, 6), b"fourrest"));
        let expected = [
            ((1, 2), vec![*b"onet", *b"wotr", *b"esix"]),
            ((3, 4), vec![]),
            ((5, 6), vec![*b"four"]),
        ];
        assert_eq!(read(&bytes), expected);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn control_messages_end_where_a_length_does_not_fit() {
        let first = message(HEADER_BYTES + 4, (1, 2), b"good");
        for len in [0, 1, HEADER_BYTES - 1, HEADER_BYTES + 9, 1 << 20, usize::MAX] {
            let bytes = [first.clone(), message(len, (3, 4), b"8 bytes.")].concat();
            assert_eq!(read(&bytes), [((1, 2), vec![*b"good"])], "{len}");
        }
        for cut in 1..first.len() {
            let whole = cut >= HEADER_BYTES + 4;
            assert_eq!(read(&first[..cut]).len(), usize::from(whole), "{cut}");
        }
    }
}
