//! Frames out of a byte stream on which each frame follows a header with its length.
//!
//! [`Deframer`] keeps the received bytes of one stream in a buffer of constant size, and returns
//! the places of the complete frames. The format of the header is a parameter ([`FrameHeader`]):
//! [`crate::vnet_stream::VnetHeader`] for links over TCP and TLS,
//! [`crate::vmm_socket::LengthHeader`] for stream ports. The owner reads the socket into
//! [`Deframer::room`].
//!
//! A stream with an invalid header has lost its framing: the error stays, and the owner closes the
//! stream. Frames keep their order; their content is not examined. An owner that takes every frame
//! before it asks for room always gets room. The owner provides the locking. A frame that is longer
//! than the owner permits, or than the buffer has room for, makes the header invalid. The owners
//! are `link::io::stream`, in the shard of links, and `causeway-stream`, in the dispatcher of the
//! port's shard.
//!
//! ```
//! use causeway_wire::deframer::Deframer;
//! use causeway_wire::vmm_socket::LengthHeader;
//!
//! let mut deframer = Deframer::<LengthHeader>::new(4096, 1522);
//! deframer.room()[..7].copy_from_slice(&[0, 0, 0, 3, 1, 2, 3]);
//! deframer.filled(7);
//! let at = deframer.take()?.expect("one frame is complete");
//! assert_eq!(deframer.bytes()[at], [1, 2, 3]);
//! # Ok::<(), causeway_wire::vmm_socket::LengthError>(())
//! ```

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;

/// The format of the header before each frame of a stream.
pub trait FrameHeader {
    /// Reason for which a header is invalid.
    type Error: Copy + Debug;

    /// Length of the header, in bytes.
    const LEN: usize;

    /// Returns the length of the frame that follows the header at the front of `bytes`, in bytes
    /// (at most `most`), or `None` if the header is incomplete.
    ///
    /// # Errors
    /// The header is invalid: the stream must be closed.
    fn parse(bytes: &[u8], most: usize) -> Result<Option<usize>, Self::Error>;
}

/// Splits a byte stream into frames behind headers of format `H`.
#[derive(Debug)]
pub struct Deframer<H: FrameHeader> {
    /// Receive buffer.
    bytes: Vec<u8>,
    /// Size of receive buffers, in bytes.
    capacity: usize,
    /// Range of the bytes that were received and not returned yet.
    unread: Range<usize>,
    /// Longest frame, in bytes.
    most: usize,
    /// The error by which the stream lost its framing.
    broken: Option<H::Error>,
    header: PhantomData<H>,
}

impl<H: FrameHeader> Deframer<H> {
    /// Returns a deframer with a receive buffer of `capacity` bytes, for frames of at most `most`
    /// bytes (and at most `capacity` less the header).
    pub fn new(capacity: usize, most: usize) -> Self {
        let most = most.min(capacity.saturating_sub(H::LEN));
        let (bytes, header) = (vec![0; capacity], PhantomData);
        Self { bytes, capacity, unread: 0..0, most, broken: None, header }
    }

    /// Returns the room for the next bytes, which is not empty once [`Self::take`] returned `None`.
    /// Moves the bytes of an incomplete frame if its rest would not fit behind them. The number of
    /// bytes that were written is reported by [`Self::filled`].
    pub fn room(&mut self) -> &mut [u8] {
        let longest = H::LEN.saturating_add(self.most);
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.bytes.len().saturating_sub(self.unread.start) < longest {
            let len = self.unread.len();
            self.bytes.copy_within(self.unread.clone(), 0);
            self.unread = 0..len;
        }
        self.bytes.get_mut(self.unread.end..).unwrap_or(&mut [])
    }

    /// Reports that `len` bytes were written to [`Self::room`].
    pub fn filled(&mut self, len: usize) {
        self.unread.end = self.unread.end.saturating_add(len).min(self.bytes.len());
    }

    /// Returns the place of the next complete frame in [`Self::bytes`], and in the buffer that
    /// [`Self::exchange`] returns; valid until [`Self::room`] is called.
    ///
    /// # Errors
    /// The stream lost its framing; all later calls fail as well.
    pub fn take(&mut self) -> Result<Option<Range<usize>>, H::Error> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let held = self.bytes.get(self.unread.clone()).unwrap_or(&[]);
        let len = match H::parse(held, self.most) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.broken = Some(error);
                return Err(error);
            }
        };
        let start = self.unread.start.saturating_add(H::LEN);
        let end = start.saturating_add(len);
        if end > self.unread.end {
            return Ok(None);
        }
        self.unread.start = end;
        Ok(Some(start..end))
    }

    /// Returns the buffer with the frames that were returned so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of received bytes that are not part of a returned frame.
    pub fn held(&self) -> usize {
        self.unread.len()
    }

    /// Returns the buffer with the frames so far, and continues in `fresh`, which is lengthened to
    /// the capacity if it is shorter, and to which the bytes of the incomplete frame are copied.
    pub fn exchange(&mut self, mut fresh: Vec<u8>) -> Vec<u8> {
        if fresh.len() < self.capacity {
            fresh.resize(self.capacity, 0);
        }
        let held = self.bytes.get(self.unread.clone()).unwrap_or(&[]);
        if let Some(room) = fresh.get_mut(..held.len()) {
            room.copy_from_slice(held);
        }
        self.unread = 0..held.len();
        std::mem::replace(&mut self.bytes, fresh)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vmm_socket::{self, LengthHeader};
    use crate::vnet_stream::{self, VnetHeader};

    const CAPACITY: usize = 4096;

    fn feed<H: FrameHeader>(deframer: &mut Deframer<H>, bytes: &[u8]) {
        deframer.room()[..bytes.len()].copy_from_slice(bytes);
        deframer.filled(bytes.len());
    }

    #[test]
    fn hostile_length_streams_stay_broken() {
        for length in [[0xff; 4], [0; 4], [0, 0, 5, 0xf3]] {
            let mut deframer = Deframer::<LengthHeader>::new(CAPACITY, 1522);
            feed(&mut deframer, &[&[0, 0, 0, 2, 7, 8][..], &length, &[0, 0, 0, 1, 9]].concat());
            assert_eq!(deframer.take(), Ok(Some(4..6)));
            for _ in 0..2 {
                assert!(deframer.take().is_err(), "{length:?}");
            }
        }
    }

    #[test]
    fn hostile_vnet_streams_stay_broken() {
        let mut deframer = Deframer::<VnetHeader>::new(CAPACITY, 1522);
        feed(&mut deframer, b"et\x0e\0\0\0fourteen bytesGET / HTTP/1.1");
        assert_eq!(deframer.take(), Ok(Some(6..20)));
        for _ in 0..2 {
            assert_eq!(deframer.take(), Err(vnet_stream::Error::Type(*b"GE")));
        }
    }

    #[test]
    fn a_frame_longer_than_the_buffer_is_refused() {
        let mut deframer = Deframer::<LengthHeader>::new(64, 1522);
        feed(&mut deframer, &[0, 0, 0, 61]);
        assert!(deframer.take().is_err());
    }

    /// Splits `stream`, of which the reads have the lengths of `steps` in turn, and exchanges the
    /// buffer after every other read.
    fn split<H: FrameHeader>(stream: &[u8], most: usize, steps: &[usize]) -> Vec<Vec<u8>> {
        let (mut deframer, mut out) = (Deframer::<H>::new(CAPACITY, most), Vec::new());
        let (mut rest, mut steps, mut is_exchanged) = (stream, steps.iter().cycle(), false);
        while !rest.is_empty() {
            let room = deframer.room();
            assert!(!room.is_empty());
            let len = rest.len().min(*steps.next().unwrap()).min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            deframer.filled(len);
            rest = &rest[len..];
            let places: Vec<_> = std::iter::from_fn(|| deframer.take().unwrap()).collect();
            is_exchanged = !is_exchanged;
            let bytes = match is_exchanged {
                true => deframer.exchange(vec![1; 10]),
                false => deframer.bytes().to_vec(),
            };
            out.extend(places.into_iter().map(|at| bytes[at].to_vec()));
        }
        assert_eq!(deframer.held(), 0);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any cuts of the stream and both headers.
        #[test]
        fn frames_come_out_of_a_stream_as_they_went_in(
            lengths in prop::collection::vec(14_usize..4000, 1..30),
            steps in prop::collection::vec(1_usize..6000, 1..20),
        ) {
            let frames: Vec<_> =
                lengths.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
            let join = |header: fn(usize) -> Vec<u8>| -> Vec<u8> {
                frames.iter().flat_map(|frame| [header(frame.len()), frame.clone()].concat()).collect()
            };
            let stream = join(|len| vmm_socket::emit(len).unwrap().to_vec());
            prop_assert!(split::<LengthHeader>(&stream, 4000, &steps) == frames);
            let stream = join(|len| vnet_stream::emit(len).unwrap().to_vec());
            prop_assert!(split::<VnetHeader>(&stream, 4000, &steps) == frames);
        }
    }
}
