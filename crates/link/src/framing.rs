//! Frames to send on a byte stream (TCP, TLS): VNET/U's framing, in bounded memory.
//!
//! [`Framer`] queues frames of at most [`FRAME_BYTES_MAX`] (65,557) bytes, [`BACKLOG_BYTES_MAX`] (1
//! MiB) at most, or fewer for a slow path ([`Framer::bound`]). It is sans-I/O:
//! [`crate::io::stream`] moves the bytes, puts TLS below, and splits received bytes by
//! [`causeway_wire::deframer`]. In the daemon the carrier queues frames in the thread of the group;
//! that thread and the shard of links remove what the socket took.
//!
//! When the peer reads too slowly, [`Framer::push`] refuses new frames with [`FrameError::Backlog`]
//! and its caller drops them; queued frames are kept. A frame that is too long, too short or
//! unreadable is refused alone. Frames keep their order. The framing carries neither offloads nor
//! flood numbers, and the module does not check the frames' headers. The caller provides the
//! locking.

use causeway_wire::vnet_stream::{HEADER_LEN, emit, parse};

use crate::limits::{BACKLOG_BYTES_MAX, BACKLOG_BYTES_MIN, FRAME_BYTES_MAX};

/// Why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError<E> {
    /// The peer reads more slowly than frames are sent: the frame is dropped.
    #[error("the peer reads too slowly: {0} bytes are queued, so the frame is dropped")]
    Backlog(usize),
    /// The frame is longer than [`FRAME_BYTES_MAX`] (65,557 bytes), or shorter than an Ethernet
    /// header (14 bytes).
    #[error("a frame of {0} bytes is shorter or longer than a stream carries")]
    Len(usize),
    /// The frame's bytes could not be read.
    #[error(transparent)]
    Source(E),
}

/// Queues frames for a byte stream.
#[derive(Debug)]
pub struct Framer {
    /// Sent bytes that are still to be removed, and queued frames with their headers.
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that were sent.
    sent: usize,
    /// Offset of the first whole frame in `bytes`; before it is the end of an earlier frame.
    first: usize,
    /// Limit for queued bytes.
    most: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self { bytes: Vec::new(), sent: 0, first: 0, most: BACKLOG_BYTES_MAX }
    }
}

impl Framer {
    /// Limits queued bytes to `bytes`, between [`BACKLOG_BYTES_MIN`] (128 KiB) and
    /// [`BACKLOG_BYTES_MAX`] (1 MiB).
    pub fn bound(&mut self, bytes: usize) {
        self.most = bytes.clamp(BACKLOG_BYTES_MIN, BACKLOG_BYTES_MAX);
    }

    /// Queues a frame of `len` bytes, which `read` writes: all of it or nothing.
    ///
    /// # Errors
    /// [`FrameError`]; queued frames are not affected.
    pub fn push<E>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), FrameError<E>> {
        let header = emit(len).map_err(|_| FrameError::Len(len))?;
        parse(&header, FRAME_BYTES_MAX).map_err(|_| FrameError::Len(len))?;
        let waiting = self.waiting().len();
        if waiting.saturating_add(HEADER_LEN).saturating_add(len) > self.most {
            return Err(FrameError::Backlog(waiting));
        }
        if self.sent >= BACKLOG_BYTES_MAX {
            self.forget_sent();
        }
        let before = self.bytes.len();
        self.bytes.extend(header);
        let start = self.bytes.len();
        self.bytes.resize(start.saturating_add(len), 0);
        let written = read(self.bytes.get_mut(start..).unwrap_or(&mut []));
        if written.is_err() {
            self.bytes.truncate(before);
        }
        written.map_err(FrameError::Source)
    }

    /// Returns the bytes to send.
    pub fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or(&[])
    }

    /// Removes `len` sent bytes from the queue.
    pub fn sent(&mut self, len: usize) {
        self.sent = self.sent.saturating_add(len).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            (self.sent, self.first) = (0, 0);
        }
    }

    /// Returns the number of queued frames, including a partly sent frame.
    pub fn frames(&self) -> u64 {
        let mut at = self.first;
        let mut count = u64::from(self.sent < self.first);
        while let Some(end) = self.end_of(at) {
            count = count.saturating_add(u64::from(end > self.sent));
            at = end;
        }
        count
    }

    /// Returns the end of the frame that begins at `at`.
    fn end_of(&self, at: usize) -> Option<usize> {
        let len = parse(self.bytes.get(at..)?, FRAME_BYTES_MAX).ok()??;
        Some(at.saturating_add(HEADER_LEN).saturating_add(len))
    }

    /// Removes the sent bytes from the buffer, and moves the rest to its front.
    fn forget_sent(&mut self) {
        while self.first < self.sent
            && let Some(end) = self.end_of(self.first)
        {
            self.first = end;
        }
        self.first = self.first.saturating_sub(self.sent);
        self.bytes.drain(..self.sent);
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use causeway_wire::deframer::Deframer;
    use causeway_wire::vnet_stream::VnetHeader;
    use proptest::prelude::*;

    use super::*;
    use crate::limits::STREAM_BYTES;

    fn push(framer: &mut Framer, frame: &[u8]) -> Result<(), FrameError<Infallible>> {
        framer.push(frame.len(), |into| {
            into.copy_from_slice(frame);
            Ok(())
        })
    }

    #[test]
    fn a_slow_stream_holds_little() {
        let mut framer = Framer::default();
        framer.bound(1);
        let pushed = (0..100).filter(|_| push(&mut framer, &[7; 60_000]).is_ok()).count();
        assert_eq!(pushed, BACKLOG_BYTES_MIN / 60_006);
    }

    #[test]
    fn a_stream_that_takes_nothing_has_frames_dropped_whole() {
        let mut framer = Framer::default();
        let frame = vec![7; 60_000];
        let pushed = (0..1_000).filter(|_| push(&mut framer, &frame).is_ok()).count();
        assert_eq!(pushed, BACKLOG_BYTES_MAX / 60_006);
        assert_eq!(framer.waiting().len(), pushed * 60_006);
        framer.sent(60_007);
        assert_eq!(push(&mut framer, &frame), Ok(()));
        assert!(matches!(push(&mut framer, &frame), Err(FrameError::Backlog(_))));
        assert_eq!(push(&mut framer, &[0; 13]), Err(FrameError::Len(13)));
        assert_eq!(push(&mut framer, &vec![0; 65_558]), Err(FrameError::Len(65_558)));
        let before = framer.waiting().to_vec();
        assert_eq!(framer.push(60, |_| Err(())), Err(FrameError::Source(())));
        assert!(framer.waiting() == before);
        assert_eq!(framer.frames(), pushed as u64, "one is sent in part, another came");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any cuts of the stream and any reading speed.
        #[test]
        fn frames_come_out_as_they_went_in(
            lengths in prop::collection::vec(prop_oneof![14_usize..100, 14_usize..65_557], 1..30),
            steps in prop::collection::vec(1_usize..100_000, 1..20),
        ) {
            let mut framer = Framer::default();
            let mut deframer = Deframer::<VnetHeader>::new(STREAM_BYTES, FRAME_BYTES_MAX);
            let frames: Vec<_> =
                lengths.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
            let (mut next, mut out) = (frames.iter().peekable(), Vec::new());
            let (mut steps, mut pushed, mut passed) = (steps.iter().cycle(), Vec::new(), 0);
            while out.len() < frames.len() {
                while let Some(frame) = next.peek() {
                    if push(&mut framer, frame).is_err() {
                        break;
                    }
                    pushed.push(HEADER_LEN + frame.len());
                    next.next();
                }
                let room = deframer.room();
                prop_assert!(!room.is_empty());
                let len = framer.waiting().len().min(*steps.next().unwrap()).min(room.len());
                room[..len].copy_from_slice(&framer.waiting()[..len]);
                deframer.filled(len);
                framer.sent(len);
                passed += len;
                let ends = pushed.iter().scan(0, |end, len| { *end += len; Some(*end) });
                prop_assert_eq!(framer.frames(), ends.filter(|end| *end > passed).count() as u64);
                let mut taken = Vec::new();
                while let Some(at) = deframer.take().unwrap() {
                    taken.push(at);
                }
                if taken.len() % 2 == 1 {
                    let bytes = deframer.exchange(vec![1; 10]);
                    out.extend(taken.into_iter().map(|at| bytes[at].to_vec()));
                } else {
                    out.extend(taken.into_iter().map(|at| deframer.bytes()[at].to_vec()));
                }
            }
            prop_assert!(out == frames);
            prop_assert_eq!((deframer.held(), framer.waiting().len()), (0, 0));
        }
    }
}
