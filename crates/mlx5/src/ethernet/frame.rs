//! Frames on their way from an adapter's send queue to a receiver.
//!
//! The first bytes of a frame (256), with all headers, are private: they are copied once and then
//! checked. The payload stays in the sender's memory until the receiver copies it; if the sender's
//! guest revokes that memory before, the frame is lost and counted by the receiver.
//! [`super::next_frame`] fills a [`Frame`], which `hca::switch` reuses for the next frame; a
//! [`FrameRef`] is a frame from any source, for [`super::receive_frame`]. [`Deliveries`] bounds the
//! pieces of a frame over all its receivers (4,096). All run in the dispatcher's turn; the types
//! hold no lock and nothing waits.

use causeway_memory::{Cursor, Map, OutOfGrant, Span};
use causeway_wire::virtio_net::Offload;

/// A frame that was taken from a send queue.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// First bytes, with all headers: [`super::limits::HEAD_BYTES`] (256 bytes), or the whole frame
    /// if that is shorter. Longer if the send queue entry held more bytes.
    pub head: Vec<u8>,
    /// The other bytes, in the sender's memory. They may lie in memory that is not granted.
    pub body: Vec<Span>,
    /// Length of the frame, in bytes.
    pub len: usize,
    /// Work that the sender left to the device.
    pub offload: Offload,
    /// Entries and empty queues that the last call of [`super::next_frame`] looked at.
    pub looks: u32,
}

impl Frame {
    /// Empties the frame. Keeps the memory of its lists and the number of looks.
    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.len = 0;
        self.offload = Offload::None;
    }
}

/// The deliveries of one frame, over all its receivers: their cost, and their bound
/// ([`super::limits::DELIVERIES_PER_FRAME_MAX`]). Each frame begins with [`Self::default`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deliveries {
    pieces: u32,
    bytes: u64,
}

impl Deliveries {
    /// Returns the number of pieces that were offered to receive queues, and of receivers that were
    /// offered none.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Returns the bytes of these pieces.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a piece of `bytes`. Returns false if no further piece may be delivered.
    pub(crate) fn count(&mut self, bytes: usize) -> bool {
        if self.pieces >= super::limits::DELIVERIES_PER_FRAME_MAX {
            return false;
        }
        self.pieces = self.pieces.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        true
    }
}

/// The bytes of a frame behind its head.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// In the memory of a guest.
    Guest(&'a Map, &'a [Span]),
    /// In private memory.
    Private(&'a [u8]),
}

/// A frame for receivers.
#[derive(Debug, Clone, Copy)]
pub struct FrameRef<'a> {
    /// Work that a sender left to the device.
    pub offload: &'a Offload,
    /// First bytes, with all headers.
    pub head: &'a [u8],
    /// The other bytes.
    pub body: Body<'a>,
    /// Length of the frame, in bytes: that of the head and the body.
    pub len: usize,
}

impl<'a> FrameRef<'a> {
    /// Copies the first bytes of the frame: all of `into`.
    ///
    /// # Errors
    /// [`OutOfGrant`] if the body is not granted, or the frame is shorter.
    pub fn read(&self, into: &mut [u8]) -> Result<(), OutOfGrant> {
        self.reader().read(into)
    }

    /// Returns a reader of the frame's bytes, in order.
    pub(crate) fn reader(&self) -> Reader<'a> {
        let body = match self.body {
            Body::Guest(map, spans) => BodyReader::Guest(map, Cursor::new(spans)),
            Body::Private(bytes) => BodyReader::Private(bytes),
        };
        Reader { head: self.head, body }
    }
}

/// A position in a frame.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    head: &'a [u8],
    body: BodyReader<'a>,
}

/// The bytes behind the head that were not read yet.
#[derive(Debug)]
enum BodyReader<'a> {
    Guest(&'a Map, Cursor<'a>),
    Private(&'a [u8]),
}

impl Reader<'_> {
    /// Copies the next bytes out, once: all of `into`.
    pub fn read(&mut self, into: &mut [u8]) -> Result<(), OutOfGrant> {
        let now = into.len().min(self.head.len());
        let (first, rest) = into.split_at_mut(now);
        let (head, left) = self.head.split_at(now);
        first.copy_from_slice(head);
        self.head = left;
        if rest.is_empty() {
            return Ok(());
        }
        match &mut self.body {
            BodyReader::Guest(map, cursor) => cursor.read(map, rest),
            BodyReader::Private(bytes) => {
                let ended = OutOfGrant { addr: 0, len: rest.len() as u64 };
                let (now, left) = bytes.split_at_checked(rest.len()).ok_or(ended)?;
                rest.copy_from_slice(now);
                *bytes = left;
                Ok(())
            }
        }
    }

    /// Advances by `len` bytes, or to the end.
    pub fn skip(&mut self, len: usize) {
        let now = len.min(self.head.len());
        self.head = self.head.get(now..).unwrap_or(&[]);
        let len = len.saturating_sub(now);
        match &mut self.body {
            BodyReader::Guest(_, cursor) => cursor.skip(len as u64),
            BodyReader::Private(bytes) => *bytes = bytes.get(len..).unwrap_or(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_frame_reader_crosses_from_head_to_body() {
        let body: Vec<u8> = (10..20).collect();
        let head: Vec<u8> = (0..10).collect();
        let (offload, body) = (Offload::None, Body::Private(&body));
        let frame = FrameRef { offload: &offload, head: &head, body, len: 20 };
        let mut reader = frame.reader();
        reader.skip(8);
        let mut four = [0; 4];
        reader.read(&mut four).unwrap();
        assert_eq!(four, [8, 9, 10, 11]);
        reader.skip(7);
        assert!(reader.read(&mut four).is_err());
        assert!(frame.read(&mut [0; 20]).is_ok());
        assert!(frame.read(&mut [0; 21]).is_err());
    }
}
